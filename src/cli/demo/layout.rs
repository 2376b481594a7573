//! The demo's nodes: names, addresses, tokens and configuration files.

use std::fmt::Write as _;

use super::super::Failure;
use crate::config::HostPort;
use crate::hash::HashType;
use crate::ring::{Peer, PeerId, PeerState, Topology, TopologyError, even_layout};
use crate::token::DynToken;

const DATACENTERS: usize = 2;
const RACKS: usize = 2;
const NODES: usize = 2;

/// Ports of one node stand this far from the next one's.
const PORT_STEP: u16 = 10;

/// The admin port stands as far from the client port as the defaults do.
const ADMIN_OFFSET: u16 = 22_222 - 8_102;

/// What a demo's redis-server is added to, above the client port.
const REDIS_OFFSET: u16 = 5;

/// The gateway's port stands as far below the client port as the defaults do.
const GATEWAY_BELOW: u16 = 8_102 - 7_701;

/// What a demo's document server is added to, above the client port.
const SERVER_OFFSET: u16 = 3;

/// One node of the demo.
#[derive(Clone, Debug)]
pub(super) struct DemoNode {
    pub(super) id: PeerId,
    pub(super) name: String,
    pub(super) dc: String,
    pub(super) rack: String,
    pub(super) token: DynToken,
    pub(super) client: HostPort,
    pub(super) peer: HostPort,
    pub(super) admin: HostPort,
    /// Where its redis-server listens, with `--redis`.
    pub(super) redis: Option<u16>,
    /// Where its document gateway and its document server listen, with `--documents`.
    pub(super) documents: Option<DocumentPorts>,
}

/// Ports of the document plane of one node.
#[derive(Clone, Copy, Debug)]
pub(super) struct DocumentPorts {
    /// The gateway.
    pub(super) gateway: u16,
    /// The document server behind it, run by the demo itself.
    pub(super) server: u16,
}

/// All nodes; `port` is the first one's client port.
pub(super) fn layout(port: u16, redis: bool, documents: bool) -> Result<Vec<DemoNode>, Failure> {
    let count = DATACENTERS * RACKS * NODES;
    let last = u32::from(port) + u32::from(PORT_STEP) * count as u32 + u32::from(ADMIN_OFFSET);
    if port <= GATEWAY_BELOW || last > u32::from(u16::MAX) {
        return Err(Failure::Usage(format!(
            "--port {port}: the ports of {count} nodes do not fit"
        )));
    }
    let tokens = even_layout(HashType::default(), NODES).expect("two tokens fit");
    let mut nodes = Vec::with_capacity(count);
    for dc in 1..=DATACENTERS {
        for rack in 1..=RACKS {
            for token in &tokens {
                let number = nodes.len();
                let client = port + number as u16 * PORT_STEP;
                nodes.push(DemoNode {
                    id: PeerId(number as u32),
                    name: format!("n{}", number + 1),
                    dc: format!("dc{dc}"),
                    rack: format!("r{rack}"),
                    token: *token,
                    client: HostPort::new("127.0.0.1", client),
                    peer: HostPort::new("127.0.0.1", client - 1),
                    admin: HostPort::new("127.0.0.1", client + ADMIN_OFFSET),
                    redis: redis.then_some(client + REDIS_OFFSET),
                    documents: documents.then_some(DocumentPorts {
                        gateway: client - GATEWAY_BELOW,
                        server: client + SERVER_OFFSET,
                    }),
                });
            }
        }
    }
    Ok(nodes)
}

/// The configuration file of `node`. It names only the first node; gossip tells it the others.
pub(super) fn configuration(node: &DemoNode, nodes: &[DemoNode]) -> String {
    let first = &nodes[0];
    let mut text = format!(
        "demo:\n  name: {}\n  datacenter: {}\n  rack: {}\n  tokens: '{}'\n  listen: {}\n  \
         dyn_listen: {}\n  stats_listen: {}\n  hash_tag: '{{}}'\n  workers: 1\n",
        node.name, node.dc, node.rack, node.token, node.client, node.peer, node.admin
    );
    match node.redis {
        None => text.push_str("  datastore: embedded\n"),
        Some(port) => {
            let _ = write!(text, "  servers:\n  - 127.0.0.1:{port}:1\n");
        }
    }
    if node.id != first.id {
        let _ = write!(
            text,
            "  dyn_seeds:\n  - {}:{}:{}:{}\n",
            first.peer, first.rack, first.dc, first.token
        );
    }
    if let Some(ports) = node.documents {
        let _ =
            write!(text, "  documents:\n    listen: 127.0.0.1:{}\n    backends:\n", ports.gateway);
        for other in nodes.iter().filter(|other| other.dc == node.dc) {
            let server = other.documents.map_or(0, |ports| ports.server);
            let _ = writeln!(text, "      {}: http://127.0.0.1:{server}", other.name);
        }
    }
    text
}

/// The ring the nodes form.
pub(super) fn topology(nodes: &[DemoNode]) -> Result<Topology, TopologyError> {
    let peer = |node: &DemoNode| Peer {
        id: node.id,
        name: node.name.clone(),
        host: node.peer.host.clone(),
        port: node.peer.port,
        dc: node.dc.clone(),
        rack: node.rack.clone(),
        tokens: vec![node.token],
        state: PeerState::Normal,
        reachable: true,
        is_local: node.id == PeerId(0),
        is_torc: true,
    };
    Topology::build(nodes.iter().map(peer).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Config, Texts};
    use std::path::Path;

    #[test]
    fn every_configuration_of_the_demo_is_accepted() {
        for redis in [false, true] {
            let nodes = layout(8102, redis, !redis).unwrap();
            assert_eq!(nodes.len(), 8);
            for node in &nodes {
                let text = configuration(node, &nodes);
                let loaded = Config::from_texts(Texts {
                    file: (Path::new("demo.yml"), text),
                    overlay: None,
                    fallback: None,
                });
                let loaded = loaded.unwrap_or_else(|e| panic!("{e}"));
                assert!(loaded.warnings.is_empty(), "{:?}", loaded.warnings);
                assert_eq!(loaded.config.datacenter, node.dc);
            }
        }
    }

    #[test]
    fn ports_that_do_not_fit_are_refused() {
        assert!(layout(60_000, false, false).is_err());
        assert!(layout(400, false, true).is_err());
    }
}
