//! The ring as one immutable value: datacenters, racks, peers, and who owns what.
//!
//! Invariants:
//! - Peers stand in canonical order (datacenter, rack, slot), the same on every node and for
//!   every order of the peer table, so equal tables give equal continua and digests.
//! - Racks are listed with the own datacenter first; inside a datacenter they are sorted by
//!   name as the reference sorts them, which preselection depends on.
//! - Everything lies in a few flat arrays, so that a worker which drops the last reference
//!   frees a handful of blocks.

mod build;

#[cfg(test)]
mod tests;

use std::cmp::Ordering;
use std::ops::Range;

pub use build::TopologyError;

use super::Continuum;
use super::peer::{PeerId, PeerIdx, PeerRef, PeerState};
use super::replicas::{ReplicaSet, ReplicaTable};
use crate::token::DynToken;

/// Most peers a topology takes.
pub const PEERS_MAX: usize = 65_535;

/// Most racks a topology takes, over all datacenters.
pub const RACKS_MAX: usize = 1_024;

/// An immutable snapshot of the ring.
///
/// ```
/// use torc::ring::{Peer, PeerId, PeerState, Topology};
/// use torc::token::DynToken;
///
/// let peer = |id: u32, rack: &str, token: u32| Peer {
///     id: PeerId(id),
///     name: format!("n{id}"),
///     host: "127.0.0.1".into(),
///     port: 8101,
///     dc: "dc1".into(),
///     rack: rack.into(),
///     tokens: vec![DynToken::from_u32(token)],
///     state: PeerState::Normal,
///     reachable: true,
///     is_local: id == 1,
///     is_torc: true,
/// };
/// let table = vec![peer(1, "r1", 10), peer(2, "r1", 1000), peer(3, "r2", 10)];
/// let topology = Topology::build(table).unwrap();
///
/// let owners = topology.owners(&DynToken::from_u32(500));
/// let names = owners.iter().map(|peer| topology.peer(peer.unwrap()).name);
/// assert_eq!(names.collect::<Vec<_>>(), ["n2", "n3"]);
/// ```
#[derive(Debug)]
pub struct Topology {
    peers: Vec<PeerRow>,
    /// Names and hosts of all peers, end to end.
    text: String,
    /// Tokens of all peers, end to end.
    tokens: Vec<DynToken>,
    /// Ascending by id.
    by_id: Vec<(PeerId, PeerIdx)>,
    racks: Vec<Rack>,
    dc_names: Vec<String>,
    remote_dcs: Vec<RemoteDc>,
    local: PeerIdx,
    local_racks: usize,
    own_rack: usize,
    table: ReplicaTable,
    digest: u64,
}

/// One rack: a full replica of its datacenter's data.
#[derive(Debug, PartialEq, Eq)]
pub struct Rack {
    /// Name, unique inside the datacenter.
    pub name: String,
    /// 0 for the local datacenter, `i + 1` for number `i` of [`Topology::remote_dcs`].
    pub dc_index: usize,
    /// Peers of this rack; their indices are consecutive.
    pub peers: Range<u32>,
    /// Who owns which arc.
    pub continuum: Continuum,
}

/// A datacenter other than the own one.
#[derive(Debug, PartialEq, Eq)]
pub struct RemoteDc {
    /// Name.
    pub name: String,
    /// Its racks, as indices into [`Topology::racks`]; never empty.
    pub racks: Range<usize>,
    /// The rack our writes go to, an index into [`Topology::racks`].
    pub preselected: usize,
}

/// A peer in the flat arrays.
#[derive(Debug)]
struct PeerRow {
    id: PeerId,
    name: Range<u32>,
    host: Range<u32>,
    tokens: Range<u32>,
    rack: u32,
    port: u16,
    state: PeerState,
    reachable: bool,
    is_local: bool,
    is_torc: bool,
}

impl Topology {
    /// The owners of `token`, one a rack, whatever their state.
    #[inline]
    pub fn owners(&self, token: &DynToken) -> ReplicaSet<'_> {
        self.table.find(token)
    }

    /// The racks among `racks` (those of one datacenter) that hold a key under a bucket type
    /// with this `n_val`: at most that many and at least one, in sorted order from a start that
    /// depends on the token, so that all coordinators agree and the load is spread.
    pub fn capped_racks(
        &self,
        token: &DynToken,
        racks: Range<usize>,
        n_val: usize,
    ) -> impl ExactSizeIterator<Item = usize> + Clone + use<> {
        let all = racks.len();
        let start = token.low_word() as usize % all.max(1);
        let count = n_val.max(1).min(all);
        (0..count).map(move |i| racks.start + (start + i) % all)
    }

    /// All peers in index order.
    pub fn peers(&self) -> impl ExactSizeIterator<Item = PeerRef<'_>> + Clone {
        (0..self.peers.len() as u32).map(|i| self.peer(PeerIdx(i)))
    }

    /// How many peers may lack data, see [`PeerRef::is_joining`].
    pub fn joining(&self) -> usize {
        self.peers().filter(PeerRef::is_joining).count()
    }

    /// A peer of this snapshot. Panics for an index of another, larger one.
    #[inline]
    pub fn peer(&self, idx: PeerIdx) -> PeerRef<'_> {
        let row = &self.peers[idx.0 as usize];
        let rack = &self.racks[row.rack as usize];
        PeerRef {
            idx,
            id: row.id,
            name: &self.text[wide(&row.name)],
            host: &self.text[wide(&row.host)],
            port: row.port,
            dc: &self.dc_names[rack.dc_index],
            rack: &rack.name,
            rack_index: row.rack as usize,
            tokens: &self.tokens[wide(&row.tokens)],
            state: row.state,
            reachable: row.reachable,
            is_local: row.is_local,
            is_torc: row.is_torc,
        }
    }

    /// Where peer `id` stands in this snapshot.
    pub fn idx_of(&self, id: PeerId) -> Option<PeerIdx> {
        let place = self.by_id.binary_search_by_key(&id, |&(id, _)| id).ok()?;
        Some(self.by_id[place].1)
    }

    /// This node.
    #[inline]
    pub fn local(&self) -> PeerIdx {
        self.local
    }

    /// All racks: those of the local datacenter, then those of each remote one.
    #[inline]
    pub fn racks(&self) -> &[Rack] {
        &self.racks
    }

    /// The racks of the local datacenter.
    #[inline]
    pub fn local_racks(&self) -> Range<usize> {
        0..self.local_racks
    }

    /// This node's rack.
    #[inline]
    pub fn own_rack(&self) -> usize {
        self.own_rack
    }

    /// The local datacenter's name.
    pub fn local_dc(&self) -> &str {
        &self.dc_names[0]
    }

    /// The name of the datacenter a [`Rack::dc_index`] means.
    pub fn dc_name(&self, dc_index: usize) -> &str {
        &self.dc_names[dc_index]
    }

    /// The other datacenters, sorted by name.
    #[inline]
    pub fn remote_dcs(&self) -> &[RemoteDc] {
        &self.remote_dcs
    }

    /// A number for racks, tokens and slots together: equal on all nodes that see the same
    /// ring, whichever datacenter they stand in. States and addresses do not count.
    pub fn digest(&self) -> u64 {
        self.digest
    }
}

/// The reference's order of names: shorter ones first, then bytes. So `rack9` stands before
/// `rack10`.
pub(super) fn by_name(a: &str, b: &str) -> Ordering {
    a.len().cmp(&b.len()).then_with(|| a.as_bytes().cmp(b.as_bytes()))
}

fn wide(range: &Range<u32>) -> Range<usize> {
    range.start as usize..range.end as usize
}
