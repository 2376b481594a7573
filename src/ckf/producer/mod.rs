//! The producer's state: exact ownership of one datacenter's blocks, mirrored in a filter.
//!
//! Invariants, checked by the model test after every event:
//!
//! 1. the count of a hash is the number of edges (source, name) that lead to it; none is zero;
//! 2. a hash has an edge if and only if exactly one copy of its fingerprint lies in its pair of
//!    buckets because of it; two hashes that look alike hold two copies;
//! 3. removing what a source does not own changes nothing and is counted, never guessed;
//! 4. whatever fails before it is committed leaves every value as it was: all room is reserved
//!    before the first write.
//!
//! The rule for a full filter differs from crate 1.6.1, which keeps the exact state of a block it
//! could not fit: here such a block is *omitted*. It gets no edge and no count, a later removal
//! is unknown, a later store tries again. Only its name stays known, so that its children
//! resolve. Structure errors (unknown parent, orphan start, renamed block) reject the whole event.
//!
//! One owner drives a state; it is no place for locks. Time, sockets and encoding are elsewhere.

mod cells;
mod dirty;
mod event;
mod filter;
mod names;
mod owners;
mod ownership;
mod replace;
mod slab;
mod sources;
mod store;
#[cfg(test)]
mod tests;
mod types;

pub use event::{EventData, ResidencyDomain, RouterEvent, Source, StorageTier, StoredBlock};
pub use replace::ReplaceError;
pub use types::{
    Applied, BuildError, EventError, MAX_KICKS_DEFAULT, MAX_KICKS_LIMIT, ProducerConfig,
    ProducerCounters, ProducerSizes,
};

use self::event::Admission;
use self::filter::Filter;
use self::ownership::{Link, Ownership, SourceIdx, Taken};
use self::store::StorePlan;
use super::alloc::{self, OutOfMemory};
use super::bucket::BucketImage;
use super::format::CkfFormat;
use super::hashing::{ExternalId, SequenceHash};

/// Removals whose memory is fetched ahead together.
const PREFETCH_RUN: usize = 32;

/// Exact state and filter of one datacenter and domain.
#[derive(Debug)]
pub struct DcCkfState {
    config: ProducerConfig,
    filter: Filter,
    ownership: Ownership,
    counters: ProducerCounters,
    pending_events: u32,
    plan: StorePlan,
}

impl DcCkfState {
    /// An empty producer.
    pub fn new(config: ProducerConfig) -> Result<DcCkfState, BuildError> {
        if config.expected_blocks == 0 {
            return Err(BuildError::NoExpectedBlocks);
        }
        if !(1..=MAX_KICKS_LIMIT).contains(&config.max_kicks) {
            return Err(BuildError::MaxKicks(config.max_kicks));
        }
        if config.publish_every_n_events == 0 {
            return Err(BuildError::PublishEveryZero);
        }
        let format = CkfFormat::for_blocks(config.seed, config.expected_blocks)?;
        Ok(DcCkfState {
            config,
            filter: Filter::new(format, config.max_kicks)?,
            ownership: Ownership::new(config.table_seed, config.expected_blocks as usize)?,
            counters: ProducerCounters::default(),
            pending_events: 0,
            plan: StorePlan::default(),
        })
    }

    /// Applies one event. When it ends a publication window, the changed buckets are appended to
    /// `out`; a batch never splits an event.
    pub fn apply(&mut self, event: &RouterEvent, out: &mut Vec<BucketImage>) -> Applied {
        let mut applied = Applied::default();
        match event.admission() {
            Admission::Ignored => return applied,
            Admission::Refused => {
                applied.first_error = Some(EventError::UnsupportedResidencyDomain);
                return applied;
            }
            Admission::Applies => {}
        }
        applied.first_error = match &event.data {
            EventData::Stored { parent, start_position, blocks } => {
                let before = self.counters.capacity_omissions;
                let error = self.store(event.source, *parent, *start_position, blocks);
                applied.omitted = self.counters.capacity_omissions - before;
                error
            }
            EventData::Appeared(keys) => {
                let before = self.counters.capacity_omissions;
                let error = self.store_keys(event.source, keys);
                applied.omitted = self.counters.capacity_omissions - before;
                error
            }
            EventData::Resolved(blocks) => {
                let before = self.counters.capacity_omissions;
                let error = self.store_resolved(event.source, blocks.iter().copied());
                applied.omitted = self.counters.capacity_omissions - before;
                error
            }
            EventData::Removed(ids) => {
                let before = self.counters.unknown_removals;
                let error = self.remove(event.source, ids);
                applied.unknown_removals = self.counters.unknown_removals - before;
                error
            }
            EventData::Cleared => {
                self.ownership.source_idx(event.source).and_then(|idx| self.clear(idx))
            }
        };
        self.counters.events += 1;
        self.pending_events += 1;
        if self.pending_events >= self.config.publish_every_n_events {
            applied.boundary = self.flush(out).is_ok();
        }
        applied
    }

    /// Takes away everything of one rank and ends the window.
    pub fn remove_rank(&mut self, source: Source, out: &mut Vec<BucketImage>) -> Applied {
        let ranks: Vec<SourceIdx> = self.ownership.source_idx(source).into_iter().collect();
        self.remove_sources(&ranks, out)
    }

    /// Takes away everything of all ranks of one worker and ends the window.
    pub fn remove_worker(&mut self, worker_id: u64, out: &mut Vec<BucketImage>) -> Applied {
        let ranks = self.ownership.sources_of_worker(worker_id);
        self.remove_sources(&ranks, out)
    }

    /// Ends the publication window; the changed buckets are appended to `out`. When there is no
    /// memory for them the window stays open and nothing is lost.
    pub fn flush(&mut self, out: &mut Vec<BucketImage>) -> Result<(), OutOfMemory> {
        let closed = self.filter.close_window(out)?;
        self.pending_events = 0;
        self.counters.touched_buckets += closed.touched as u64;
        self.counters.reverted_buckets += closed.reverted as u64;
        self.counters.emitted_images += (closed.touched - closed.reverted) as u64;
        Ok(())
    }

    /// Copies all words to `words` (whose memory is reused), then ends the window, whose images
    /// are appended to `out`. When there is no memory for either, the window stays open.
    pub fn barrier_snapshot(
        &mut self,
        words: &mut Vec<u64>,
        out: &mut Vec<BucketImage>,
    ) -> Result<(), OutOfMemory> {
        words.clear();
        alloc::reserve(words, self.filter.words().len())?;
        words.extend_from_slice(self.filter.words());
        self.flush(out)
    }

    /// The filter's format.
    pub fn format(&self) -> &CkfFormat {
        self.filter.format()
    }

    /// The filter's words, one a bucket.
    pub fn words(&self) -> &[u64] {
        self.filter.words()
    }

    /// How many (source, name) edges lead to `hash`.
    pub fn owner_count(&self, hash: SequenceHash) -> u32 {
        self.ownership.count(hash)
    }

    /// What `source` knows as `id`, whether the filter had a place for it or not.
    pub fn canonical(&self, source: Source, id: ExternalId) -> Option<SequenceHash> {
        let idx = self.ownership.source_idx(source)?;
        match self.ownership.link(idx, id) {
            Link::Owned(hash) | Link::Omitted(hash) => Some(hash),
            Link::Unknown => None,
        }
    }

    /// Distinct hashes owned.
    pub fn unique_hashes(&self) -> usize {
        self.ownership.unique()
    }

    /// Slots of the filter in use.
    pub fn occupied_slots(&self) -> usize {
        self.filter.occupied()
    }

    /// Everything owned, in no useful order.
    pub fn edges(&self) -> impl Iterator<Item = (Source, ExternalId, SequenceHash)> + '_ {
        self.ownership.iter_edges()
    }

    /// Counts since the start.
    pub fn counters(&self) -> ProducerCounters {
        self.counters
    }

    /// Sizes now. Looks at every source, so it is for reports.
    pub fn sizes(&self) -> ProducerSizes {
        ProducerSizes {
            members: self.ownership.members(),
            contributions: self.ownership.edges(),
            unique_hashes: self.ownership.unique(),
            occupied_slots: self.filter.occupied(),
            slots: self.filter.words().len() * super::bucket::SLOTS,
            pending_events: self.pending_events,
            pending_buckets: self.filter.touched_buckets(),
            ownership_bytes: self.ownership.bytes(),
            filter_bytes: self.filter.bytes(),
            bucket_writes: self.filter.touches(),
        }
    }

    fn remove(&mut self, source: Source, ids: &[ExternalId]) -> Option<EventError> {
        let Some(idx) = self.ownership.source_idx(source) else {
            self.counters.unknown_removals += ids.len() as u64;
            return None;
        };
        if let Err(error) = self.filter.reserve_removals(ids.len()) {
            return Some(error.into());
        }
        let mut first_error = None;
        for run in ids.chunks(PREFETCH_RUN) {
            if run.len() > 1 {
                self.prefetch_removals(idx, run);
            }
            for &id in run {
                let outcome = self.remove_one(idx, id);
                first_error = first_error.or(outcome.err());
            }
        }
        self.ownership.forget_if_empty(idx);
        first_error
    }

    /// Brings near what removing `ids` will touch: names first, then step by step what they lead
    /// to.
    fn prefetch_removals(&self, source: SourceIdx, ids: &[ExternalId]) {
        ids.iter().for_each(|id| self.ownership.prefetch_name(source, *id));
        ids.iter().for_each(|id| self.ownership.prefetch_record(source, *id));
        for &id in ids {
            let hash = self.ownership.prefetch_hash_of(source, id);
            self.filter.prefetch(self.filter.address(hash));
        }
    }

    fn remove_one(&mut self, source: SourceIdx, id: ExternalId) -> Result<(), EventError> {
        match self.ownership.take(source, id, &mut self.filter) {
            Taken::Gone => Ok(()),
            Taken::Kept => Err(EventError::IndexerInvariantViolation),
            Taken::Unknown => {
                self.counters.unknown_removals += 1;
                Ok(())
            }
        }
    }

    fn clear(&mut self, source: SourceIdx) -> Option<EventError> {
        // A clear may empty any bucket, so room for all that the source could touch.
        if let Err(error) = self.filter.reserve_removals(self.ownership.edges_of(source)) {
            return Some(error.into());
        }
        let filter = &mut self.filter;
        let mut first_error = None;
        self.ownership.clear(source, |hash, last| {
            let missing = last && filter.remove(filter.address(hash)).is_err();
            if missing {
                first_error.get_or_insert(EventError::IndexerInvariantViolation);
            }
            !missing
        });
        self.ownership.forget_if_empty(source);
        first_error
    }

    fn remove_sources(&mut self, ranks: &[SourceIdx], out: &mut Vec<BucketImage>) -> Applied {
        let mut applied = Applied::default();
        for &rank in ranks {
            applied.first_error = applied.first_error.or(self.clear(rank));
        }
        applied.boundary = self.flush(out).is_ok();
        applied
    }
}
