//! From a token to its owner in every rack, by one search.
//!
//! The points of all racks are merged into one ascending array of distinct boundaries. Between
//! two boundaries the owners do not change, so each boundary carries the number of the replica
//! set for the tokens below it (down to the boundary before) and for the token that equals it;
//! these two differ only where a rack has several points at one token. Equal sets share one
//! number, so keys can be grouped by it.

use std::hash::{BuildHasher, RandomState};

use hashbrown::HashTable;

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
        self.owners
            .iter()
            .map(|&peer| (peer != NOBODY).then_some(PeerIdx(peer)))
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

/// The distinct boundaries, ascending.
#[derive(Debug)]
enum Bounds {
    /// All of them are values of a 32-bit hash, which makes the search short.
    Narrow(Vec<u32>),
    Wide(Vec<DynToken>),
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
        let mut sets = SetInterner::new(continua.len());
        let mut heads = vec![0; continua.len()];
        let mut bounds = Vec::new();
        let mut pairs = Vec::new();
        let (mut below, mut at) = (vec![NOBODY; continua.len()], Vec::new());
        loop {
            for ((owner, &head), continuum) in below.iter_mut().zip(&heads).zip(continua) {
                let points = continuum.points();
                let point = points.get(head).or(points.first());
                *owner = point.map_or(NOBODY, |point| point.peer.0);
            }
            let Some(bound) = lowest(continua, &heads) else {
                break;
            };
            at.clone_from(&below);
            for ((owner, head), continuum) in at.iter_mut().zip(&mut heads).zip(continua) {
                let rest = &continuum.points()[*head..];
                let equal = rest.iter().take_while(|point| point.token == bound).count();
                if equal > 1 {
                    *owner = continuum.owner(&bound).map_or(NOBODY, |peer| peer.0);
                }
                *head += equal;
            }
            bounds.push(bound);
            pairs.push(SetPair {
                below: sets.intern(&below),
                at: sets.intern(&at),
            });
        }
        // All heads are at their ends: what lies above the last boundary wraps.
        let wrap = sets.intern(&below);
        pairs.push(SetPair {
            below: wrap,
            at: wrap,
        });
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
        ReplicaSet {
            id,
            owners: &self.owners[start..start + self.racks],
        }
    }
}

impl Bounds {
    fn new(bounds: Vec<DynToken>) -> Bounds {
        match bounds
            .iter()
            .map(DynToken::as_hash_u32)
            .collect::<Option<Vec<_>>>()
        {
            Some(narrow) => Bounds::Narrow(narrow),
            None => Bounds::Wide(bounds),
        }
    }

    /// The number of boundaries below `token`, and whether the next one equals it.
    #[inline]
    fn search(&self, token: &DynToken) -> (usize, bool) {
        match self {
            Bounds::Narrow(bounds) => match token.as_hash_u32() {
                Some(key) => {
                    let place = bounds.partition_point(|&bound| bound < key);
                    (place, bounds.get(place) == Some(&key))
                }
                // No 32-bit hash yields this token, so no boundary equals it.
                None => {
                    let below = |&bound: &u32| DynToken::from_u32(bound) < *token;
                    (bounds.partition_point(below), false)
                }
            },
            Bounds::Wide(bounds) => {
                let place = bounds.partition_point(|bound| bound < token);
                (place, bounds.get(place) == Some(token))
            }
        }
    }
}

/// The lowest token at or after the heads.
fn lowest(continua: &[&Continuum], heads: &[usize]) -> Option<DynToken> {
    let heads = continua.iter().zip(heads);
    heads
        .filter_map(|(continuum, &head)| Some(continuum.points().get(head)?.token))
        .min()
}

/// Gives equal owner rows one number, in order of first appearance.
struct SetInterner {
    racks: usize,
    owners: Vec<u32>,
    count: u32,
    numbers: HashTable<u32>,
    hasher: RandomState,
}

impl SetInterner {
    fn new(racks: usize) -> SetInterner {
        SetInterner {
            racks,
            owners: Vec::new(),
            count: 0,
            numbers: HashTable::new(),
            hasher: RandomState::new(),
        }
    }

    fn intern(&mut self, row: &[u32]) -> u32 {
        let (owners, racks, hasher) = (&self.owners, self.racks, &self.hasher);
        let row_of = |id: u32| &owners[id as usize * racks..][..racks];
        let found = self.numbers.entry(
            hasher.hash_one(row),
            |&id| row_of(id) == row,
            |&id| hasher.hash_one(row_of(id)),
        );
        match found {
            hashbrown::hash_table::Entry::Occupied(entry) => *entry.get(),
            hashbrown::hash_table::Entry::Vacant(entry) => {
                let id = self.count;
                entry.insert(id);
                self.owners.extend_from_slice(row);
                self.count += 1;
                id
            }
        }
    }
}
