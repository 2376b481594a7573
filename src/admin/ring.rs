//! `/ring`: who owns what, as this node sees it, and what it knows of everybody.
//!
//! The page is read by programs, `torc ring` among them: fields are added, never renamed.

use serde::{Deserialize, Serialize};

use super::view::Event;
use crate::dispatch::view::View;
use crate::gossip::{Kind, Reach, Standing};
use crate::ring::{PeerId, PeerRef, Topology, arc_shares};

/// The ring as one node sees it.
#[derive(Debug, Serialize, Deserialize)]
pub struct Ring {
    /// Equal on nodes that see the same ring.
    pub digest: String,
    /// The hash of keys.
    pub hash: String,
    /// The name of the node that was asked.
    pub local: String,
    /// The racks of its own datacenter first.
    pub racks: Vec<Rack>,
    /// The last changes, newest last.
    pub events: Vec<Event>,
}

/// One rack.
#[derive(Debug, Serialize, Deserialize)]
pub struct Rack {
    /// Its datacenter.
    pub datacenter: String,
    /// Its name.
    pub rack: String,
    /// Our writes to that datacenter go to this rack.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub preselected: bool,
    /// Its nodes.
    pub peers: Vec<Peer>,
}

/// One node.
#[derive(Debug, Serialize, Deserialize)]
pub struct Peer {
    /// Its name.
    pub name: String,
    /// Its place: `datacenter/rack/first token`; what `torc ring forget` takes.
    pub slot: String,
    /// Where peers reach it.
    pub host: String,
    /// Its peer port.
    pub port: u16,
    /// As it claims, or as an operator set it.
    pub state: String,
    /// Whether requests are sent to it.
    pub reachable: bool,
    /// `up`, `unreached`, or `down` and why.
    pub reach: String,
    /// Milliseconds since that judgement.
    pub since_ms: u64,
    /// Milliseconds since its last sign of life; absent when there was none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub heard_ms: Option<u64>,
    /// How sure the failure detector is that it is dead, at most [`PHI_MAX`].
    pub phi: f64,
    /// `torc`, `c`, or `unknown` until it answered.
    pub kind: String,
    /// Which process holds the slot; 0 when no torc node ever did.
    pub generation: u64,
    /// Percentage of the rack's keys it owns, if keys are spread evenly.
    pub share: f64,
    /// Its tokens.
    pub tokens: Vec<String>,
}

/// The greatest phi that is shown: of a node that has been silent for long it is infinite.
pub const PHI_MAX: f64 = 999.0;

/// The page. Of a peer without a standing (it came or went just now) only the ring is shown.
pub(super) fn describe(view: &View, standings: &[Standing], events: Vec<Event>) -> Ring {
    let topology = &view.topology;
    let shares = arc_shares(topology, view.hasher.hash);
    let standing = |id: PeerId| standings.iter().find(|standing| standing.id == id);
    let peer = |peer: PeerRef<'_>| {
        let share = shares.get(peer.idx.0 as usize).copied().unwrap_or(0.0);
        describe_peer(&peer, standing(peer.id), share)
    };
    let racks = topology.racks().iter().enumerate().map(|(i, rack)| Rack {
        datacenter: topology.dc_name(rack.dc_index).to_owned(),
        rack: rack.name.clone(),
        preselected: topology.remote_dcs().iter().any(|dc| dc.preselected == i),
        peers: topology.peers().filter(|peer| peer.rack_index == i).map(peer).collect(),
    });
    Ring {
        digest: format!("{:016x}", topology.digest()),
        hash: view.hasher.hash.name().to_owned(),
        local: topology.peer(topology.local()).name.to_owned(),
        racks: racks.collect(),
        events,
    }
}

fn describe_peer(peer: &PeerRef<'_>, standing: Option<&Standing>, share: f64) -> Peer {
    let reach = match standing.map(|standing| standing.reach) {
        Some(Reach::Up) => "up".to_owned(),
        Some(Reach::Down(cause)) => format!("down: {cause}"),
        Some(Reach::Unreached) | None => "unreached".to_owned(),
    };
    let kind = match standing.map(|standing| standing.kind) {
        Some(Kind::Torc) => "torc",
        Some(Kind::C) => "c",
        Some(Kind::Unknown) | None => "unknown",
    };
    let phi = standing.map_or(0.0, |standing| standing.phi);
    Peer {
        name: peer.name.to_owned(),
        slot: standing.map_or_else(String::new, |standing| standing.slot.to_string()),
        host: peer.host.to_owned(),
        port: peer.port,
        state: peer.state.name().to_owned(),
        reachable: peer.reachable,
        reach,
        since_ms: standing.map_or(0, |standing| standing.since_ms),
        heard_ms: standing.and_then(|standing| standing.heard_ms),
        phi: (phi.min(PHI_MAX) * 100.0).round() / 100.0,
        kind: kind.to_owned(),
        generation: standing.map_or(0, |standing| standing.generation),
        share,
        tokens: peer.tokens.iter().map(ToString::to_string).collect(),
    }
}

/// A datacenter in `/cluster_describe`.
#[derive(Serialize)]
pub(super) struct DcServers<'a> {
    name: &'a str,
    racks: Vec<RackServers<'a>>,
}

#[derive(Serialize)]
struct RackServers<'a> {
    name: &'a str,
    servers: Vec<Server<'a>>,
}

/// The reference's form: one token a node, its first word without sign.
#[derive(Serialize)]
struct Server<'a> {
    name: &'a str,
    host: &'a str,
    port: u16,
    token: u32,
}

/// The nodes of the ring in the form of `/cluster_describe`.
pub(super) fn servers(topology: &Topology) -> Vec<DcServers<'_>> {
    let mut dcs: Vec<DcServers<'_>> = Vec::new();
    for (i, rack) in topology.racks().iter().enumerate() {
        let name = topology.dc_name(rack.dc_index);
        let peers = topology.peers().filter(|peer| peer.rack_index == i);
        let servers = peers.map(|peer| Server {
            name: peer.host,
            host: peer.host,
            port: peer.port,
            token: peer.tokens.first().map_or(0, |token| token.low_word()),
        });
        let rack = RackServers { name: &rack.name, servers: servers.collect() };
        match dcs.last_mut() {
            Some(dc) if dc.name == name => dc.racks.push(rack),
            Some(_) | None => dcs.push(DcServers { name, racks: vec![rack] }),
        }
    }
    dcs
}
