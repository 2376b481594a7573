//! `/ring`: who owns what, as this node sees it.

use serde::Serialize;

use super::view::Event;
use crate::dispatch::view::View;
use crate::ring::{PeerRef, Topology, arc_shares};

#[derive(Serialize)]
pub(super) struct Ring {
    /// Equal on nodes that see the same ring.
    digest: String,
    hash: &'static str,
    local: String,
    racks: Vec<Rack>,
    /// Newest last.
    events: Vec<Event>,
}

#[derive(Serialize)]
struct Rack {
    datacenter: String,
    rack: String,
    /// Our writes to that datacenter go to this rack.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    preselected: bool,
    peers: Vec<Peer>,
}

#[derive(Serialize)]
struct Peer {
    name: String,
    host: String,
    port: u16,
    /// As it claims, or as an operator set it.
    state: &'static str,
    /// Whether it answers.
    reachable: bool,
    kind: &'static str,
    /// Percentage of the rack's keys it owns, if keys are spread evenly.
    share: f64,
    tokens: Vec<String>,
}

pub(super) fn describe(view: &View, events: Vec<Event>) -> Ring {
    let topology = &view.topology;
    let shares = arc_shares(topology, view.hasher.hash);
    let racks = topology.racks().iter().enumerate().map(|(i, rack)| Rack {
        datacenter: topology.dc_name(rack.dc_index).to_owned(),
        rack: rack.name.clone(),
        preselected: topology.remote_dcs().iter().any(|dc| dc.preselected == i),
        peers: topology
            .peers()
            .filter(|peer| peer.rack_index == i)
            .map(|peer| describe_peer(&peer, &shares))
            .collect(),
    });
    Ring {
        digest: format!("{:016x}", topology.digest()),
        hash: view.hasher.hash.name(),
        local: topology.peer(topology.local()).name.to_owned(),
        racks: racks.collect(),
        events,
    }
}

fn describe_peer(peer: &PeerRef<'_>, shares: &[f64]) -> Peer {
    Peer {
        name: peer.name.to_owned(),
        host: peer.host.to_owned(),
        port: peer.port,
        state: peer.state.name(),
        reachable: peer.reachable,
        kind: if peer.is_torc { "torc" } else { "c" },
        share: shares.get(peer.idx.0 as usize).copied().unwrap_or(0.0),
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
