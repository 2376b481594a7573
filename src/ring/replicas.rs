//! From a token to its owner in every rack, by one search.
//!
//! The points of all racks are merged into one ascending array of distinct boundaries. Between
//! two boundaries the owners do not change, so each boundary carries the number of the replica
//! set for the tokens below it (down to the boundary before) and for the token that equals it;
//! these two differ only where a rack has several points at one token. Equal sets share one
//! number, so keys can be grouped by it.

use hashbrown::HashTable;
use hashbrown::hash_table::Entry;
use xxhash_rust::xxh3::xxh3_64_with_seed;

use super::bounds::Bounds;
use super::{Continuum, PeerIdx};
use crate::token::DynToken;

/// Stands for "no owner" in the flat owner array.
const NOBODY: u32 = u32::MAX;

/// One owner a rack for some token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReplicaSet<'a> {
    id: u32,
    owners: &'a [u32],
}

impl<'a> ReplicaSet<'a> {
    /// The owner in rack number `rack` of the snapshot; `None` when that rack owns nothing.
    #[inline]
    pub fn owner(self, rack: usize) -> Option<PeerIdx> {
        match self.owners.get(rack) {
            None | Some(&NOBODY) => None,
            Some(&peer) => Some(PeerIdx(peer)),
        }
    }

    /// The set's number in this snapshot: equal exactly when the owners are, in every rack.
    #[inline]
    pub fn set_id(self) -> u32 {
        self.id
    }

    /// The owners in rack order.
    pub fn iter(self) -> impl ExactSizeIterator<Item = Option<PeerIdx>> + use<'a> {
        self.owners.iter().map(|&peer| (peer != NOBODY).then_some(PeerIdx(peer)))
    }
}

/// All replica sets of a snapshot and the boundaries between them.
#[derive(Debug)]
pub(super) struct ReplicaTable {
    bounds: Bounds,
    /// One more than there are boundaries: the last is for tokens above all of them.
    sets: Vec<SetPair>,
    /// `racks` owners a set.
    owners: Vec<u32>,
    racks: usize,
}

#[derive(Clone, Copy, Debug)]
struct SetPair {
    /// For tokens below the boundary and above the one before.
    below: u32,
    /// For tokens equal to the boundary.
    at: u32,
}

impl ReplicaTable {
    /// Merges the continua of all racks, in one pass over their points.
    pub(super) fn build(continua: &[&Continuum]) -> ReplicaTable {
        let merged = merge(continua);
        let mut sets = SetInterner::new(continua.len(), merged.len());
        // Who owns what lies between the boundary before and the next one.
        let mut row = Row::new(continua);
        let mut bounds = Vec::with_capacity(merged.len());
        let mut pairs = Vec::with_capacity(merged.len() + 1);
        for points in merged.chunk_by(|a, b| a.token == b.token) {
            let bound = points[0].token;
            let below = sets.intern(&row);
            let mut at = below;
            let mut of_racks = points.chunk_by(|a, b| a.rack == b.rack);
            if of_racks.any(|points| points.len() > 1) {
                at = sets.intern(&row.at(&bound, points, continua));
            }
            for point in points {
                let rest = continua[point.rack as usize].points();
                let next = rest.get(point.place as usize + 1).unwrap_or(&rest[0]);
                row.set(point.rack, next.peer.0);
            }
            bounds.push(bound);
            pairs.push(SetPair { below, at });
        }
        // What lies above the last boundary wraps.
        let wrap = sets.intern(&row);
        pairs.push(SetPair { below: wrap, at: wrap });
        ReplicaTable {
            bounds: Bounds::new(bounds),
            sets: pairs,
            owners: sets.owners,
            racks: continua.len(),
        }
    }

    /// The owners of `token`.
    #[inline]
    pub(super) fn find(&self, token: &DynToken) -> ReplicaSet<'_> {
        let (place, exact) = self.bounds.search(token);
        let pair = self.sets[place];
        let id = if exact { pair.at } else { pair.below };
        let start = id as usize * self.racks;
        ReplicaSet { id, owners: &self.owners[start..start + self.racks] }
    }
}

/// A point and where it stands in its rack's continuum.
struct Merged {
    token: DynToken,
    rack: u32,
    place: u32,
}

/// The points of all racks, ascending; those of equal tokens by rack, then by place.
fn merge(continua: &[&Continuum]) -> Vec<Merged> {
    let mut merged = Vec::with_capacity(continua.iter().map(|c| c.points().len()).sum());
    for (rack, continuum) in (0..).zip(continua) {
        let points = (0..).zip(continuum.points());
        merged.extend(points.map(|(place, point)| Merged { token: point.token, rack, place }));
    }
    // Stable, and quick on sorted runs.
    merged.sort_by_key(|point| point.token);
    merged
}

/// One owner a rack, with a hash that is kept up to date for each change.
#[derive(Clone)]
struct Row {
    owners: Vec<u32>,
    hash: u64,
}

impl Row {
    /// The owners below all boundaries.
    fn new(continua: &[&Continuum]) -> Row {
        let mut row = Row { owners: vec![NOBODY; continua.len()], hash: 0 };
        for (rack, continuum) in (0..).zip(continua) {
            if let Some(first) = continuum.points().first() {
                row.set(rack, first.peer.0);
            }
        }
        row
    }

    fn set(&mut self, rack: u32, owner: u32) {
        let place = &mut self.owners[rack as usize];
        self.hash ^= hash_of(rack, *place) ^ hash_of(rack, owner);
        *place = owner;
    }

    /// The owners of the boundary itself, where `points` are all that stand on it. A rack with
    /// several of them gives the one its search hits.
    fn at(&self, bound: &DynToken, points: &[Merged], continua: &[&Continuum]) -> Row {
        let mut row = self.clone();
        for point in points {
            if let Some(peer) = continua[point.rack as usize].owner(bound) {
                row.set(point.rack, peer.0);
            }
        }
        row
    }
}

fn hash_of(rack: u32, owner: u32) -> u64 {
    xxh3_64_with_seed(&owner.to_le_bytes(), u64::from(rack))
}

/// Gives equal rows one number, in order of first appearance.
struct SetInterner {
    racks: usize,
    owners: Vec<u32>,
    /// Of each number's row.
    hashes: Vec<u64>,
    numbers: HashTable<u32>,
}

impl SetInterner {
    fn new(racks: usize, sets_expected: usize) -> SetInterner {
        SetInterner {
            racks,
            owners: Vec::with_capacity(racks * sets_expected),
            hashes: Vec::with_capacity(sets_expected),
            numbers: HashTable::with_capacity(sets_expected),
        }
    }

    fn intern(&mut self, row: &Row) -> u32 {
        let owners_of = |id: u32| &self.owners[id as usize * self.racks..][..self.racks];
        let hashes = &self.hashes;
        let equal = |&id: &u32| hashes[id as usize] == row.hash && owners_of(id) == row.owners;
        match self.numbers.entry(row.hash, equal, |&id| hashes[id as usize]) {
            Entry::Occupied(entry) => *entry.get(),
            Entry::Vacant(entry) => {
                let id = self.hashes.len() as u32;
                entry.insert(id);
                self.owners.extend_from_slice(&row.owners);
                self.hashes.push(row.hash);
                id
            }
        }
    }
}
