//! Store events: checked as a whole, then committed block by block.

use super::ownership::{Link, SourceIdx, Unreserved};
use super::{DcCkfState, EventError, Source, StoredBlock};
use crate::ckf::alloc::{self, OutOfMemory};
use crate::ckf::hashing::{ExternalId, SequenceHash};

/// Scratch of the event under way; empty between events, its memory is kept.
#[derive(Debug, Default)]
pub(super) struct StorePlan {
    /// Names and hashes of all blocks of the event.
    chain: Vec<(ExternalId, SequenceHash)>,
    /// Those that need an edge.
    candidates: Vec<(ExternalId, SequenceHash)>,
    seen: SeenIds,
}

impl DcCkfState {
    pub(super) fn store(
        &mut self,
        source: Source,
        parent: Option<ExternalId>,
        start_position: Option<u32>,
        blocks: &[StoredBlock],
    ) -> Option<EventError> {
        if blocks.is_empty() {
            return None;
        }
        let idx = match self.ownership.enter_source(source) {
            Ok(idx) => idx,
            Err(error) => return Some(error.into()),
        };
        // The plan is taken out for the time of the event so that it can be read while the rest
        // of the state changes.
        let mut plan = std::mem::take(&mut self.plan);
        let outcome = self.prepare(&mut plan, idx, parent, start_position, blocks);
        let first_error = match outcome {
            Ok(()) => self.commit(&plan, idx),
            Err(error) => Some(error),
        };
        self.plan = plan;
        self.ownership.forget_if_empty(idx);
        first_error
    }

    /// Stores blocks that are their own names, each a chain of its own.
    pub(super) fn store_keys(
        &mut self,
        source: Source,
        keys: &[SequenceHash],
    ) -> Option<EventError> {
        self.store_resolved(source, keys.iter().map(|hash| (ExternalId(hash.0), *hash)))
    }

    /// Stores blocks whose canonical hashes are known.
    pub(super) fn store_resolved(
        &mut self,
        source: Source,
        chain: impl ExactSizeIterator<Item = (ExternalId, SequenceHash)>,
    ) -> Option<EventError> {
        if chain.len() == 0 {
            return None;
        }
        let idx = match self.ownership.enter_source(source) {
            Ok(idx) => idx,
            Err(error) => return Some(error.into()),
        };
        let mut plan = std::mem::take(&mut self.plan);
        let first_error = match self.choose(&mut plan, idx, chain) {
            Ok(()) => self.commit(&plan, idx),
            Err(error) => Some(error),
        };
        self.plan = plan;
        self.ownership.forget_if_empty(idx);
        first_error
    }

    /// Checks the event and reserves all room it can need. Changes nothing that can be seen.
    fn prepare(
        &mut self,
        plan: &mut StorePlan,
        source: SourceIdx,
        parent: Option<ExternalId>,
        start_position: Option<u32>,
        blocks: &[StoredBlock],
    ) -> Result<(), EventError> {
        let mut previous = match parent {
            None if start_position.is_some_and(|position| position != 0) => {
                return Err(EventError::InvalidBlockSequence);
            }
            None => None,
            Some(id) => match self.ownership.link(source, id) {
                Link::Owned(hash) | Link::Omitted(hash) => Some(hash),
                Link::Unknown => {
                    self.counters.parent_not_found += 1;
                    return Err(EventError::ParentBlockNotFound);
                }
            },
        };
        let chain = blocks.iter().map(|block| {
            let hash = SequenceHash::after(previous, block.tokens_hash);
            previous = Some(hash);
            (block.id, hash)
        });
        self.choose(plan, source, chain)
    }

    /// Picks the blocks the source does not own yet and reserves all room they can need.
    fn choose(
        &mut self,
        plan: &mut StorePlan,
        source: SourceIdx,
        blocks: impl ExactSizeIterator<Item = (ExternalId, SequenceHash)>,
    ) -> Result<(), EventError> {
        plan.start(blocks.len())?;
        let StorePlan { chain, candidates, seen } = plan;
        let fetch_ahead = blocks.len() > 1;
        for (id, hash) in blocks {
            chain.push((id, hash));
            if fetch_ahead {
                self.ownership.prefetch(source, id);
                self.ownership.prefetch_hash(hash);
                self.filter.prefetch(self.filter.address(hash));
            }
        }
        for (index, &(id, hash)) in chain.iter().enumerate() {
            let known = match seen.enter(chain, index) {
                Some(earlier) => Link::Owned(chain[earlier].1),
                None => self.ownership.link(source, id),
            };
            match known {
                Link::Owned(before) | Link::Omitted(before) if before != hash => {
                    return Err(EventError::InvalidBlockSequence);
                }
                Link::Owned(_) => {}
                Link::Omitted(_) | Link::Unknown => candidates.push((id, hash)),
            }
        }
        self.ownership.reserve(source, candidates).map_err(|error| match error {
            Unreserved::OutOfMemory => EventError::OutOfMemory(OutOfMemory),
            Unreserved::TooManyOwners => EventError::OwnershipDegreeOverflow,
        })?;
        self.ownership.reserve_omissions(source, candidates.len())?;
        self.filter.reserve_insertions(candidates.len())?;
        Ok(())
    }

    /// Adds the edges. Only a filter without a place can stand in the way of one.
    fn commit(&mut self, plan: &StorePlan, source: SourceIdx) -> Option<EventError> {
        let mut first_error = None;
        for &(id, hash) in &plan.candidates {
            if !self.admit(source, id, hash) {
                first_error = Some(EventError::CapacityExhausted);
            }
        }
        first_error
    }

    /// Adds one edge, or omits the block when the filter has no place for it. Room must have been
    /// reserved.
    pub(super) fn admit(&mut self, source: SourceIdx, id: ExternalId, hash: SequenceHash) -> bool {
        let filter = &mut self.filter;
        let place = || filter.insert(filter.address(hash)).is_ok();
        if self.ownership.add(source, id, hash, place) {
            return true;
        }
        self.ownership.omit(source, id, hash);
        self.counters.capacity_omissions += 1;
        false
    }
}

impl StorePlan {
    fn start(&mut self, blocks: usize) -> Result<(), OutOfMemory> {
        self.chain.clear();
        self.candidates.clear();
        alloc::reserve(&mut self.chain, blocks)?;
        alloc::reserve(&mut self.candidates, blocks)?;
        self.seen.start(blocks)
    }
}

/// Which names the event has used so far: a small table that is emptied by a new stamp.
#[derive(Debug, Default)]
struct SeenIds {
    /// Stamp and index in the chain.
    slots: Vec<(u32, u32)>,
    stamp: u32,
}

impl SeenIds {
    fn start(&mut self, ids: usize) -> Result<(), OutOfMemory> {
        let wanted = (ids * 2).next_power_of_two();
        if self.slots.len() < wanted {
            let more = wanted - self.slots.len();
            alloc::reserve(&mut self.slots, more)?;
            self.slots.resize(wanted, (0, 0));
        }
        if self.stamp == u32::MAX {
            self.slots.fill((0, 0));
            self.stamp = 0;
        }
        self.stamp += 1;
        Ok(())
    }

    /// Enters the name at `index`; gives the index of an earlier block of that name.
    fn enter(&mut self, chain: &[(ExternalId, SequenceHash)], index: usize) -> Option<usize> {
        if chain.len() == 1 {
            return None;
        }
        let id = chain[index].0;
        let mask = self.slots.len() - 1;
        let mut slot = (id.0.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32) as usize & mask;
        loop {
            let (stamp, earlier) = self.slots[slot];
            if stamp != self.stamp {
                self.slots[slot] = (self.stamp, index as u32);
                return None;
            }
            if chain[earlier as usize].0 == id {
                return Some(earlier as usize);
            }
            slot = (slot + 1) & mask;
        }
    }
}
