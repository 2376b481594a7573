//! The shape of a simulated ring, and the view each node has of it.

use torc::dispatch::view::{BucketTypes, NodeState, Settings, View};
use torc::hash::{HashType, KeyHasher};
use torc::ring::{Consistency, Peer, PeerId, PeerState, Topology, even_layout};

use super::network::NetSettings;

/// The port of node number `n`, by which it is known everywhere: host names are all alike.
pub(crate) fn port_of(n: usize) -> u16 {
    n as u16 + 1
}

/// The node behind a port.
pub(crate) fn node_at(port: u16) -> usize {
    usize::from(port) - 1
}

/// Everything a world is made from.
#[derive(Clone)]
pub(crate) struct Config {
    pub(crate) seed: u64,
    /// Nodes of each rack of each datacenter.
    pub(crate) dcs: Vec<Vec<usize>>,
    /// Whether nodes have the embedded store, which is empty after a crash.
    pub(crate) embedded: bool,
    pub(crate) read: Consistency,
    pub(crate) write: Consistency,
    pub(crate) settings: Settings,
    pub(crate) buckets: BucketTypes,
    pub(crate) net: NetSettings,
}

impl Config {
    /// Datacenters of racks of nodes: `&[&[2, 2], &[2, 2]]`.
    pub(crate) fn new(dcs: &[&[usize]]) -> Config {
        Config {
            seed: 1,
            dcs: dcs.iter().map(|racks| racks.to_vec()).collect(),
            embedded: false,
            read: Consistency::DcOne,
            write: Consistency::DcOne,
            settings: Settings::default(),
            buckets: BucketTypes::default(),
            net: NetSettings::default(),
        }
    }

    /// Two datacenters of two racks of two nodes: ring A of `spec/consistency.md` section 9.
    pub(crate) fn ring_a() -> Config {
        Config::new(&[&[2, 2], &[2, 2]])
    }

    /// One datacenter of three racks of one node: ring B.
    pub(crate) fn ring_b() -> Config {
        Config::new(&[&[1, 1, 1]])
    }

    pub(crate) fn embedded(self) -> Config {
        Config { embedded: true, ..self }
    }

    pub(crate) fn levels(self, read: Consistency, write: Consistency) -> Config {
        Config { read, write, ..self }
    }

    pub(crate) fn level(self, level: Consistency) -> Config {
        self.levels(level, level)
    }

    pub(crate) fn tuned(mut self, tune: impl FnOnce(&mut Settings)) -> Config {
        tune(&mut self.settings);
        self
    }

    /// The peer table, nobody local: node `i` is called `n{i+1}` and has id `i`.
    pub(crate) fn peers(&self) -> Vec<Peer> {
        let mut peers = Vec::new();
        for (dc, racks) in self.dcs.iter().enumerate() {
            for (rack, nodes) in racks.iter().enumerate() {
                let tokens = even_layout(HashType::Murmur, *nodes).expect("tokens");
                for token in tokens {
                    let number = peers.len();
                    peers.push(Peer {
                        id: PeerId(number as u32),
                        name: format!("n{}", number + 1),
                        host: "sim".into(),
                        port: port_of(number),
                        dc: format!("dc{}", dc + 1),
                        rack: format!("r{}", rack + 1),
                        tokens: vec![token],
                        state: PeerState::Normal,
                        reachable: true,
                        is_local: false,
                        is_torc: true,
                    });
                }
            }
        }
        peers
    }

    /// The view of node `local` of a peer table.
    pub(crate) fn view(&self, table: &[Peer], local: usize) -> View {
        let mut peers = table.to_vec();
        for peer in &mut peers {
            peer.is_local = peer.id.0 as usize == local;
        }
        self.view_of(peers)
    }

    /// The view of a peer table that says which node is the local one.
    pub(crate) fn view_of(&self, peers: Vec<Peer>) -> View {
        View {
            topology: Topology::build(peers).expect("a ring"),
            hasher: KeyHasher::default(),
            read: self.read,
            write: self.write,
            buckets: self.buckets.clone(),
            state: NodeState::Normal,
            affinity: None,
            settings: self.settings.clone(),
        }
    }
}
