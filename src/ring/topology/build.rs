//! From a peer table to a snapshot.

use std::cmp::Ordering;
use std::ops::Range;

use xxhash_rust::xxh3::Xxh3;

use super::{PEERS_MAX, PeerRow, RACKS_MAX, Rack, RemoteDc, Topology, by_name};
use crate::ring::peer::{Peer, PeerId, PeerIdx};
use crate::ring::replicas::ReplicaTable;
use crate::ring::{Continuum, Point};
use crate::token::DynToken;

/// Why a peer table makes no ring.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TopologyError {
    /// No row is this node.
    #[error("the peer table lacks this node")]
    NoLocal,
    /// Two rows are this node.
    #[error("the peer table has this node twice, as {first:?} and {second:?}")]
    TwoLocals {
        /// Name of one.
        first: String,
        /// Name of the other.
        second: String,
    },
    /// Two rows have one id.
    #[error("the peer table has {first:?} and {second:?} under one id, {}", id.0)]
    DuplicateId {
        /// The id.
        id: PeerId,
        /// Name of one.
        first: String,
        /// Name of the other.
        second: String,
    },
    /// More than [`PEERS_MAX`] rows.
    #[error("the peer table has {count} peers, at most {PEERS_MAX} are supported")]
    TooManyPeers {
        /// Rows found.
        count: usize,
    },
    /// More than [`RACKS_MAX`] racks.
    #[error("the peer table has {count} racks, at most {RACKS_MAX} are supported")]
    TooManyRacks {
        /// Racks found.
        count: usize,
    },
}

impl Topology {
    /// Builds the snapshot of a peer table, from scratch. The order of `peers` does not matter.
    ///
    /// A rack exists while the table has a peer of it, but peers that are leaving own nothing.
    /// A peer that is down keeps its arc: nobody else has its data.
    pub fn build(mut peers: Vec<Peer>) -> Result<Topology, TopologyError> {
        if peers.len() > PEERS_MAX {
            return Err(TopologyError::TooManyPeers { count: peers.len() });
        }
        peers.sort_by(canonical_order);
        let local = find_local(&peers)?;
        let by_id = index_ids(&peers)?;
        let groups = peers.chunk_by(|a, b| a.dc == b.dc && a.rack == b.rack).collect::<Vec<_>>();
        if groups.len() > RACKS_MAX {
            return Err(TopologyError::TooManyRacks { count: groups.len() });
        }

        let mut first = 0;
        let mut racks = Vec::with_capacity(groups.len());
        for group in &groups {
            racks.push(Rack {
                name: group[0].rack.clone(),
                dc_index: 0,
                peers: first..first + group.len() as u32,
                continuum: continuum_of(group, first),
            });
            first += group.len() as u32;
        }
        // The digest is taken in canonical order, before the local datacenter moves up.
        let digest = digest_of(&racks, &peers);
        let dc_names = order_racks(&mut racks, &peers, local);
        let local_racks = racks.iter().take_while(|rack| rack.dc_index == 0).count();
        let holds_local = |rack: &Rack| rack.peers.contains(&local.0);
        let own_rack = racks.iter().position(holds_local).unwrap_or(0);
        let remote_dcs = remote_dcs(&racks, &dc_names, own_rack);
        let continua = racks.iter().map(|rack| &rack.continuum).collect::<Vec<_>>();
        let table = ReplicaTable::build(&continua);
        let mut topology = Topology {
            peers: Vec::with_capacity(peers.len()),
            text: String::new(),
            tokens: Vec::new(),
            by_id,
            racks,
            dc_names,
            remote_dcs,
            local,
            local_racks,
            own_rack,
            table,
            digest,
        };
        topology.flatten(peers);
        Ok(topology)
    }

    fn flatten(&mut self, peers: Vec<Peer>) {
        let mut rack_of = vec![0; peers.len()];
        for (number, rack) in (0..).zip(&self.racks) {
            rack_of[super::wide(&rack.peers)].fill(number);
        }
        for (peer, rack) in peers.into_iter().zip(rack_of) {
            let name = append(&mut self.text, &peer.name);
            let host = append(&mut self.text, &peer.host);
            let start = self.tokens.len() as u32;
            self.tokens.extend_from_slice(&peer.tokens);
            self.peers.push(PeerRow {
                id: peer.id,
                name,
                host,
                tokens: start..self.tokens.len() as u32,
                rack,
                port: peer.port,
                state: peer.state,
                reachable: peer.reachable,
                is_local: peer.is_local,
                is_torc: peer.is_torc,
            });
        }
    }
}

/// Datacenter, rack, slot; then what tells peers of one slot apart.
fn canonical_order(a: &Peer, b: &Peer) -> Ordering {
    by_name(&a.dc, &b.dc)
        .then_with(|| by_name(&a.rack, &b.rack))
        .then_with(|| a.tokens.first().cmp(&b.tokens.first()))
        .then_with(|| a.name.cmp(&b.name))
        .then_with(|| a.host.cmp(&b.host))
        .then_with(|| a.port.cmp(&b.port))
        .then_with(|| a.id.cmp(&b.id))
}

fn find_local(peers: &[Peer]) -> Result<PeerIdx, TopologyError> {
    let mut locals = (0..).zip(peers).filter(|(_, peer)| peer.is_local);
    let (place, first) = locals.next().ok_or(TopologyError::NoLocal)?;
    match locals.next() {
        None => Ok(PeerIdx(place)),
        Some((_, second)) => {
            Err(TopologyError::TwoLocals { first: first.name.clone(), second: second.name.clone() })
        }
    }
}

fn index_ids(peers: &[Peer]) -> Result<Vec<(PeerId, PeerIdx)>, TopologyError> {
    let mut by_id = (0..).zip(peers).map(|(i, p)| (p.id, PeerIdx(i))).collect::<Vec<_>>();
    by_id.sort_unstable();
    match by_id.windows(2).find(|pair| pair[0].0 == pair[1].0) {
        None => Ok(by_id),
        Some(pair) => Err(TopologyError::DuplicateId {
            id: pair[0].0,
            first: peers[pair[0].1.0 as usize].name.clone(),
            second: peers[pair[1].1.0 as usize].name.clone(),
        }),
    }
}

fn continuum_of(rack: &[Peer], first: u32) -> Continuum {
    let owning = (first..).zip(rack).filter(|(_, peer)| peer.state.owns_arc());
    Continuum::new(owning.flat_map(|(i, peer)| {
        peer.tokens.iter().map(move |&token| Point { token, peer: PeerIdx(i) })
    }))
}

/// Moves the local datacenter's racks to the front, numbers the datacenters, returns their
/// names.
fn order_racks(racks: &mut [Rack], peers: &[Peer], local: PeerIdx) -> Vec<String> {
    let dc_of = |rack: &Rack| peers[rack.peers.start as usize].dc.as_str();
    let local_dc = peers[local.0 as usize].dc.as_str();
    // Stable, so each datacenter's racks stay sorted.
    racks.sort_by_key(|rack| dc_of(rack) != local_dc);
    let mut names: Vec<String> = Vec::new();
    for rack in racks {
        let dc = dc_of(rack);
        if names.last().is_none_or(|name| name != dc) {
            names.push(dc.to_owned());
        }
        rack.dc_index = names.len() - 1;
    }
    names
}

/// Preselects a rack of each remote datacenter: the one that corresponds to our own, as in
/// `preselect_remote_rack_for_replication` of `src/dyn_dnode_peer.c`.
fn remote_dcs(racks: &[Rack], dc_names: &[String], own_rack: usize) -> Vec<RemoteDc> {
    let mut start = 0;
    let mut dcs = Vec::with_capacity(dc_names.len() - 1);
    for group in racks.chunk_by(|a, b| a.dc_index == b.dc_index) {
        let range = start..start + group.len();
        start = range.end;
        if group[0].dc_index > 0 {
            dcs.push(RemoteDc {
                name: dc_names[group[0].dc_index].clone(),
                preselected: range.start + own_rack % range.len(),
                racks: range,
            });
        }
    }
    dcs
}

fn digest_of(racks: &[Rack], peers: &[Peer]) -> u64 {
    let mut digest = Xxh3::new();
    for rack in racks {
        for name in [&peers[rack.peers.start as usize].dc, &rack.name] {
            digest.update(&(name.len() as u64).to_le_bytes());
            digest.update(name.as_bytes());
        }
        let points = rack.continuum.points();
        digest.update(&(points.len() as u64).to_le_bytes());
        for point in points {
            digest.update(&token_bytes(&point.token));
            // A point exists, so its owner has a first token.
            let slot = peers[point.peer.0 as usize].tokens[0];
            digest.update(&token_bytes(&slot));
        }
    }
    digest.digest()
}

fn token_bytes(token: &DynToken) -> [u8; 18] {
    let mut bytes = [0; 18];
    bytes[0] = token.sign() as u8;
    bytes[1] = token.words().len() as u8;
    bytes[2..].copy_from_slice(&token.magnitude().to_le_bytes());
    bytes
}

fn append(text: &mut String, part: &str) -> Range<u32> {
    let start = text.len() as u32;
    text.push_str(part);
    start..text.len() as u32
}
