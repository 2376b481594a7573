//! The peer table a node starts with: itself and the nodes of its seed list.

use super::addr::HostPort;
use super::model::Config;
use super::seeds::Seed;
use crate::ring::{Peer, PeerId, PeerState};

impl Config {
    /// This node, reachable at `own`, as number 0, then the seeds in file order. Seeds count as
    /// serving and reachable until somebody finds otherwise, and as C nodes until proven torc.
    pub fn peer_table(&self, own: &HostPort) -> Vec<Peer> {
        let local = Peer {
            id: PeerId(0),
            name: self.name.clone().unwrap_or_else(|| own.to_string()),
            host: own.host.clone(),
            port: own.port,
            dc: self.datacenter.clone(),
            rack: self.rack.clone(),
            tokens: self.tokens.clone(),
            state: PeerState::Normal,
            reachable: true,
            is_local: true,
            is_torc: true,
        };
        let seeds = self.seeds.iter().zip(1..).map(|(seed, id)| seed.to_peer(PeerId(id)));
        std::iter::once(local).chain(seeds).collect()
    }
}

impl Seed {
    /// The peer this entry describes.
    pub fn to_peer(&self, id: PeerId) -> Peer {
        Peer {
            id,
            name: self.name.clone().unwrap_or_else(|| self.address.to_string()),
            host: self.address.host.clone(),
            port: self.address.port,
            dc: self.datacenter.clone(),
            rack: self.rack.clone(),
            tokens: self.tokens.clone(),
            state: PeerState::Normal,
            reachable: true,
            is_local: false,
            is_torc: false,
        }
    }
}
