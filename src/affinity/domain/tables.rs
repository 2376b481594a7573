//! The tables of a domain. One holds the filters of this node's own size. While datacenters are
//! resized, one after the other, a second one beside it holds those of another size: so the old
//! filters answer until the new ones are here, on both sides, and a lane is in one table at a time.
//!
//! A lane that begins anew in its own place, because its publisher has a new incarnation, is not
//! written over what answers: a filter that is half old and half new lacks keys that both hold.
//! A copy of the old one answers for it until the new one is whole.
//!
//! A key that seems to be nowhere is looked for again: a query that meets a change under way can
//! miss a fingerprint that moves, and reads words of two filters when a lane it found ready begins
//! anew under it.

use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};

use arc_swap::{ArcSwap, ArcSwapOption};

use super::inlets::NotInstalled;
use super::{Chain, DomainError};
use crate::ckf::consumer::lane::LaneIngestor;
use crate::ckf::consumer::{
    ClaimError, ConsumerConfig, ConsumerError, GlobalCkfIndexer, LANES, PrefixDepths,
};
use crate::ckf::format::CkfFormat;
use crate::ckf::hashing::SequenceHash;

/// Hashes looked up at a time by those that add to what was found.
const RUN: usize = 64;

/// Why a filter of another size has no place here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OtherSize {
    /// It is made by other rules.
    #[error("its filter has seed {theirs:#x}, this node's {ours:#x}")]
    Seed {
        /// The filter's.
        theirs: u64,
        /// This node's.
        ours: u64,
    },
    /// Its table would be too large.
    #[error(
        "its filter has {theirs} buckets, this node's {ours}; a table for it needs {needs} MiB, \
         and affinity.memory_max_bytes leaves {left}"
    )]
    TooLarge {
        /// Buckets of the filter.
        theirs: u64,
        /// Buckets of this node's filters.
        ours: u64,
        /// Memory of the table, MiB.
        needs: u64,
        /// Memory there is for it, MiB.
        left: u64,
    },
    /// Filters of two sizes are here already.
    #[error(
        "its filter has {theirs} buckets, this node's {ours}, others' {beside}: \
         affinity.expected_keys must become the same in every datacenter"
    )]
    Third {
        /// Buckets of the filter.
        theirs: u64,
        /// Buckets of this node's filters.
        ours: u64,
        /// Buckets of the filters beside them.
        beside: u64,
    },
}

/// What a lane answers while it begins anew.
#[derive(Clone, Debug)]
struct Held {
    lane: u8,
    filter: Arc<GlobalCkfIndexer>,
}

/// The tables that answer.
#[derive(Debug)]
pub(super) struct Tables {
    config: ConsumerConfig,
    own: GlobalCkfIndexer,
    beside: ArcSwapOption<GlobalCkfIndexer>,
    /// Copies of lanes that begin anew.
    held: ArcSwap<Vec<Held>>,
    /// Memory the second table may need.
    beside_bytes_max: u64,
}

impl Tables {
    pub(super) fn new(config: ConsumerConfig, beside_bytes_max: u64) -> Result<Self, DomainError> {
        let own = GlobalCkfIndexer::new(config.clone())?;
        let (beside, held) = (ArcSwapOption::empty(), ArcSwap::default());
        Ok(Tables { config, own, beside, held, beside_bytes_max })
    }

    /// The lanes that answer.
    pub(super) fn ready_lanes(&self) -> u16 {
        let before = self.in_place();
        let held = self.held.load().iter().fold(0, |lanes, held| lanes | 1 << held.lane);
        // Again: one that was held a moment ago may be in place by now.
        before | held | self.in_place()
    }

    /// The lanes that answer from where they are written.
    fn in_place(&self) -> u16 {
        let beside = self.beside.load();
        self.own.ready_lanes() | beside.as_ref().map_or(0, |beside| beside.ready_lanes())
    }

    /// Bytes of all tables.
    pub(super) fn bytes(&self) -> usize {
        let beside = self.beside.load();
        let held: usize = self.held.load().iter().map(|held| held.filter.table_bytes()).sum();
        self.own.table_bytes() + beside.as_ref().map_or(0, |beside| beside.table_bytes()) + held
    }

    /// For each hash the lanes that may hold it; gives the lanes that answered.
    pub(super) fn probe(&self, hashes: &[SequenceHash], masks: &mut [u16]) -> u16 {
        twice(|hashes, masks| self.probe_once(hashes, masks), hashes, masks)
    }

    fn probe_once(&self, hashes: &[SequenceHash], masks: &mut [u16]) -> u16 {
        self.settled(|| {
            let mut ready = self.own.probe(hashes, masks);
            if let Some(beside) = &*self.beside.load() {
                let ask = |hashes: &[_], found: &mut [_]| beside.probe(hashes, found);
                ready |= join(ask, hashes, masks, |found| found);
            }
            self.for_missing(ready, |lane, filter| {
                let ask = |hashes: &[_], found: &mut [_]| filter.probe(hashes, found);
                join(ask, hashes, masks, |found| (found & 1) << lane);
            })
        })
    }

    /// How deep each lane holds a chain.
    pub(super) fn depths(&self, chain: Chain<'_>) -> PrefixDepths {
        let ask = |indexer: &GlobalCkfIndexer| {
            let found = match chain {
                Chain::Sequence(hashes) => indexer.prefix_depths(hashes),
                Chain::Blocks(blocks) => indexer.prefix_depths_of_blocks(blocks, &mut Vec::new()),
            };
            found.unwrap_or(PrefixDepths { ready: 0, depths: [0; LANES] })
        };
        let mut depths = [0; LANES];
        let ready = self.settled(|| {
            let found = ask(&self.own);
            let mut ready = found.ready;
            depths = found.depths;
            if let Some(beside) = &*self.beside.load() {
                let found = ask(beside);
                ready |= found.ready;
                let pairs = depths.iter_mut().zip(found.depths);
                pairs.for_each(|(depth, found)| *depth = (*depth).max(found));
            }
            self.for_missing(ready, |lane, filter| {
                depths[usize::from(lane)] = ask(filter).depths[0];
            })
        });
        PrefixDepths { ready, depths }
    }

    /// Asks again when a lane came in that `ask` did not find: it may have looked for the lane in
    /// the place it went to before it was there, and in the place it left when it was gone.
    fn settled(&self, mut ask: impl FnMut() -> u16) -> u16 {
        loop {
            let ready = ask();
            if self.in_place() & !ready == 0 {
                return ready;
            }
        }
    }

    /// Asks the copies of lanes outside `ready`; gives the lanes that have answered by then.
    fn for_missing(&self, mut ready: u16, mut ask: impl FnMut(u8, &GlobalCkfIndexer)) -> u16 {
        let all = ((1u32 << self.config.lanes.len()) - 1) as u16;
        if ready == all {
            return ready;
        }
        for Held { lane, filter } in self.held.load().iter() {
            if ready & (1 << lane) == 0 {
                ask(*lane, filter);
                ready |= 1 << lane;
            }
        }
        ready
    }

    /// Keeps what a lane answers, if it does, until [`Tables::let_go`]. Nobody may write the lane
    /// meanwhile.
    pub(super) fn hold(&self, lane: u8) -> Result<(), ConsumerError> {
        let beside = self.beside.load();
        let places = [Some(&self.own), beside.as_deref()];
        for place in places.into_iter().flatten() {
            if let Some(filter) = place.copy_of_lane(lane)? {
                let held = Held { lane, filter: Arc::new(filter) };
                self.without_held(lane, Some(held));
                break;
            }
        }
        Ok(())
    }

    /// The lane answers from where it is written, or not at all.
    pub(super) fn let_go(&self, lane: u8) {
        self.without_held(lane, None);
    }

    fn without_held(&self, lane: u8, new: Option<Held>) {
        self.held.rcu(|held| {
            let others = held.iter().filter(|held| held.lane != lane);
            others.chain(&new).cloned().collect::<Vec<Held>>()
        });
    }

    /// Whether filters of a format may be in a lane. `others` are the formats of the other lanes
    /// that other nodes publish.
    pub(super) fn check(
        &self,
        format: CkfFormat,
        mut others: impl Iterator<Item = CkfFormat>,
    ) -> Result<(), OtherSize> {
        let ours = self.config.format;
        let (theirs_buckets, ours_buckets) = (format.bucket_count, ours.bucket_count);
        if (CkfFormat { bucket_count: ours_buckets, ..format }) != ours {
            return Err(OtherSize::Seed { theirs: format.seed, ours: ours.seed });
        }
        if format == ours {
            return Ok(());
        }
        if let Some(third) = others.find(|other| *other != ours && *other != format) {
            let (theirs, ours, beside) = (theirs_buckets, ours_buckets, third.bucket_count);
            return Err(OtherSize::Third { theirs, ours, beside });
        }
        let row = 8 * self.config.lanes.len().next_power_of_two() as u64;
        let needs = theirs_buckets.saturating_mul(row);
        if needs > self.beside_bytes_max {
            let (needs, left) = (needs.div_ceil(1 << 20), self.beside_bytes_max >> 20);
            let (theirs, ours) = (theirs_buckets, ours_buckets);
            return Err(OtherSize::TooLarge { theirs, ours, needs, left });
        }
        Ok(())
    }

    /// Claims a lane for filters of a checked format, in the table for them; it is made when
    /// there is none. Questions see a new one from [`Tables::show`] on.
    pub(super) fn claim(
        &self,
        lane: u8,
        format: CkfFormat,
    ) -> Result<(LaneIngestor, Option<Arc<GlobalCkfIndexer>>), NotInstalled> {
        if format == self.config.format {
            return Ok((self.own.claim_lane(lane)?, None));
        }
        let there = self.beside.load_full().filter(|beside| *beside.format() == format);
        let beside = match there {
            Some(beside) => beside,
            None => {
                let config = ConsumerConfig { format, ..self.config.clone() };
                Arc::new(GlobalCkfIndexer::new(config)?)
            }
        };
        Ok((beside.claim_lane(lane)?, Some(beside)))
    }

    /// Lets questions see the table a lane was claimed in.
    pub(super) fn show(&self, table: Option<Arc<GlobalCkfIndexer>>) {
        if table.is_some() {
            self.beside.store(table);
        }
    }

    /// Claims the lane of what this node publishes.
    pub(super) fn claim_own(&self, lane: u8) -> Result<LaneIngestor, ClaimError> {
        self.own.claim_lane(lane)
    }

    /// Gives the second table up when none of `used` is in it.
    pub(super) fn close_unused(&self, mut used: impl Iterator<Item = CkfFormat>) {
        if !used.any(|format| format != self.config.format) && self.beside.load().is_some() {
            self.beside.store(None);
        }
    }
}

/// Asks, and asks again when a hash was found nowhere.
fn twice(
    ask: impl Fn(&[SequenceHash], &mut [u16]) -> u16,
    hashes: &[SequenceHash],
    masks: &mut [u16],
) -> u16 {
    let ready = ask(hashes, masks);
    if !masks.contains(&0) {
        return ready;
    }
    // What came before a word that was read is seen from here on.
    fence(Ordering::Acquire);
    ready & join(ask, hashes, masks, |found| found)
}

/// Adds what `ask` finds, with its lanes placed by `place`; gives the lanes that answered for all.
fn join(
    ask: impl Fn(&[SequenceHash], &mut [u16]) -> u16,
    hashes: &[SequenceHash],
    masks: &mut [u16],
    place: impl Fn(u16) -> u16,
) -> u16 {
    let mut ready = ask(&[], &mut []);
    for (hashes, masks) in hashes.chunks(RUN).zip(masks.chunks_mut(RUN)) {
        let mut found = [0; RUN];
        let found = &mut found[..hashes.len()];
        ready &= ask(hashes, found);
        masks.iter_mut().zip(found).for_each(|(mask, found)| *mask |= place(*found));
    }
    ready
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    /// Asks of so many hashes, all in lane 0 but the last one, which `last` answers each time it
    /// is asked for; gives the ready lanes, what was found of it, and how often it was asked for.
    fn asked(count: usize, last: impl Fn(usize) -> (u16, u16)) -> (u16, u16, usize) {
        let hashes: Vec<SequenceHash> = (0..count as u64).map(SequenceHash).collect();
        let (mut masks, times) = (vec![0; count], Cell::new(0));
        let ask = |some: &[SequenceHash], found: &mut [u16]| {
            found.fill(1);
            if some.last() != hashes.last() {
                return 0b11;
            }
            let (ready, mask) = last(times.get());
            times.set(times.get() + 1);
            *found.last_mut().unwrap() = mask;
            ready
        };
        let ready = twice(ask, &hashes, &mut masks);
        assert!(masks[..count - 1].iter().all(|mask| *mask == 1));
        (ready, masks[count - 1], times.get())
    }

    #[test]
    fn what_was_found_nowhere_is_asked_for_again() {
        for count in [1, RUN, RUN + 1, 3 * RUN] {
            assert_eq!(asked(count, |_| (0b11, 1)), (0b11, 1, 1));
            let missed_once = |time| (0b11, if time == 0 { 0 } else { 0b10 });
            assert_eq!(asked(count, missed_once), (0b11, 0b10, 2));
            assert_eq!(asked(count, |_| (0b11, 0)), (0b11, 0, 2));
            // A lane that did not answer each time has not said that the hash is not there.
            let leaves = |time| (if time == 0 { 0b11 } else { 0b01 }, 0);
            assert_eq!(asked(count, leaves), (0b01, 0, 2));
            let comes = |time| (if time == 0 { 0b01 } else { 0b11 }, 0);
            assert_eq!(asked(count, comes), (0b01, 0, 2));
        }
    }
}
