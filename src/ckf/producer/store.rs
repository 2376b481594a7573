//! Store events: checked as a whole, then committed block by block.

use super::ownership::{Edge, Link, SourceIdx, Unreserved};
use super::{DcCkfState, EventError, Source, StoredBlock};
use crate::ckf::alloc::{self, OutOfMemory};
use crate::ckf::hashing::{ExternalId, SequenceHash};

/// Scratch of the event under way; empty between events, its memory is kept.
#[derive(Debug, Default)]
pub(super) struct StorePlan {
    /// All blocks of the event.
    chain: Vec<Edge>,
    /// Those that need an edge.
    candidates: Vec<Edge>,
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
        for (id, hash) in blocks {
            let at = self.filter.address(hash);
            self.ownership.prefetch_edge(source, id, hash);
            self.filter.prefetch(at);
            chain.push(Edge { id, hash, at, is_first: false });
        }
        for index in 0..chain.len() {
            // Most blocks are new, and the filter says so at less cost than the tables.
            let is_first = !self.filter.contains(chain[index].at);
            let edge = Edge { is_first, ..chain[index] };
            let known = match seen.enter(chain, index) {
                Some(earlier) => Link::Owned(chain[earlier].hash),
                None if is_first && edge.id.0 == edge.hash.0 => {
                    self.ownership.named_link(source, edge.id)
                }
                None => self.ownership.link(source, edge.id),
            };
            match known {
                Link::Owned(before) | Link::Omitted(before) if before != edge.hash => {
                    return Err(EventError::InvalidBlockSequence);
                }
                Link::Owned(_) => {}
                Link::Omitted(_) | Link::Unknown => candidates.push(edge),
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
        for edge in &plan.candidates {
            if !self.admit(source, edge) {
                first_error = Some(EventError::CapacityExhausted);
            }
        }
        first_error
    }

    /// An edge as things are now.
    pub(super) fn edge(&self, id: ExternalId, hash: SequenceHash) -> Edge {
        let at = self.filter.address(hash);
        Edge { id, hash, at, is_first: !self.filter.contains(at) }
    }

    /// Adds one edge, or omits the block when the filter has no place for it. Room must have been
    /// reserved.
    pub(super) fn admit(&mut self, source: SourceIdx, edge: &Edge) -> bool {
        let filter = &mut self.filter;
        // An earlier block of the same event may have been the first.
        let edge = Edge { is_first: !filter.contains(edge.at), ..*edge };
        let place = || filter.insert(edge.at).is_ok();
        if self.ownership.add(source, &edge, place) {
            return true;
        }
        self.ownership.omit(source, edge.id, edge.hash);
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
    fn enter(&mut self, chain: &[Edge], index: usize) -> Option<usize> {
        if chain.len() == 1 {
            return None;
        }
        let id = chain[index].id;
        let mask = self.slots.len() - 1;
        let mut slot = (id.0.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32) as usize & mask;
        loop {
            let (stamp, earlier) = self.slots[slot];
            if stamp != self.stamp {
                self.slots[slot] = (self.stamp, index as u32);
                return None;
            }
            if chain[earlier as usize].id == id {
                return Some(earlier as usize);
            }
            slot = (slot + 1) & mask;
        }
    }
}
