//! The consumer: up to sixteen datacenters' filters in one table, and the questions to it.

pub mod lane;
mod search;
pub(in crate::ckf) mod table;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use self::lane::LaneIngestor;
use self::search::{Manner, Presence};
pub use self::table::LANES;
use self::table::LaneTable;
use super::addressing::Address;
use super::alloc::OutOfMemory;
use super::format::{CkfFormat, FormatError};
use super::hashing::{BlockHash, SequenceHash};
use super::identity::{ConsumerInstanceId, IndexerDomainId, PoolId};

/// Positions verified before a miss unless configured.
pub const VERIFICATION_WINDOW_DEFAULT: usize = 2;
/// Most positions that can be verified.
pub const VERIFICATION_WINDOW_MAX: usize = 8;
/// Positions of a chain looked at in order, before the search jumps, unless configured: right for
/// engines, which evict from the end of a chain.
pub const LINEAR_POSITIONS_DEFAULT: usize = 4;
/// Chains up to this length are hashed to their end rather than looked at step by step.
const ROLLED_AT_ONCE: usize = 128;
/// Hashes whose memory is fetched together.
const PROBE_RUN: usize = search::PROBES_MAX;

/// Shape of a consumer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConsumerConfig {
    /// This consumer.
    pub consumer: ConsumerInstanceId,
    /// The domain of all its pools.
    pub domain: IndexerDomainId,
    /// The format of all its lanes.
    pub format: CkfFormat,
    /// The pool of each lane, from lane 0 on; up to [`LANES`].
    pub lanes: Vec<Option<PoolId>>,
    /// Positions verified before a miss, 1 to [`VERIFICATION_WINDOW_MAX`].
    pub verification_window: usize,
    /// Positions of a chain looked at in order before the search jumps, at least 1; rounded up to
    /// a power of two. Holes among them are always seen.
    pub linear_positions: usize,
}

/// Why a consumer cannot be built.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConsumerError {
    /// No lane has a pool.
    #[error("a consumer needs at least one lane")]
    NoLane,
    /// More than [`LANES`].
    #[error("{0} lanes are more than {LANES}")]
    TooManyLanes(usize),
    /// The pool of this lane is of another domain.
    #[error("lane {0} is of another domain")]
    ForeignDomain(u8),
    /// The pool of this lane is another lane's already.
    #[error("lane {0} repeats the datacenter of an earlier lane")]
    DuplicateDc(u8),
    /// Out of range.
    #[error("a verification window of {0} is not 1 to {VERIFICATION_WINDOW_MAX}")]
    VerificationWindow(usize),
    /// 0 positions in order.
    #[error("a search looks at one position in order at least")]
    NoLinearPositions,
    /// Not a format of ours.
    #[error(transparent)]
    Format(#[from] FormatError),
    /// No memory for the table.
    #[error(transparent)]
    OutOfMemory(#[from] OutOfMemory),
}

/// Why a lane cannot be claimed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ClaimError {
    /// The lane has no pool.
    #[error("lane {0} has no pool")]
    NoSuchLane(u8),
    /// Another ingestor has it.
    #[error("lane {0} has an ingestor already")]
    AlreadyClaimed(u8),
}

/// No lane is ready: nothing can be said.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no lane is ready")]
pub struct Unavailable;

/// How deep a chain is present, lane by lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PrefixDepths {
    /// The lanes that were ready when the query began, one bit each.
    pub ready: u16,
    /// Blocks present from the start; 0 for lanes that were not ready.
    pub depths: [u32; LANES],
}

/// What the ingestors and the queries share.
#[derive(Debug)]
pub(in crate::ckf) struct Shared {
    consumer: ConsumerInstanceId,
    format: CkfFormat,
    lanes: Vec<Option<PoolId>>,
    table: LaneTable,
}

/// One domain's filters of up to sixteen datacenters. Queries take `&self` from any thread.
#[derive(Debug)]
pub struct GlobalCkfIndexer {
    shared: Arc<Shared>,
    manner: Manner,
}

impl GlobalCkfIndexer {
    /// A consumer whose lanes are all empty and not ready.
    pub fn new(config: ConsumerConfig) -> Result<GlobalCkfIndexer, ConsumerError> {
        config.format.check()?;
        if config.lanes.len() > LANES {
            return Err(ConsumerError::TooManyLanes(config.lanes.len()));
        }
        if !(1..=VERIFICATION_WINDOW_MAX).contains(&config.verification_window) {
            return Err(ConsumerError::VerificationWindow(config.verification_window));
        }
        if config.linear_positions == 0 {
            return Err(ConsumerError::NoLinearPositions);
        }
        let mut last = None;
        for (lane, pool) in config.lanes.iter().enumerate() {
            let Some(pool) = pool else { continue };
            if pool.indexer_domain != config.domain {
                return Err(ConsumerError::ForeignDomain(lane as u8));
            }
            let earlier = config.lanes[..lane].iter().flatten();
            if earlier.clone().any(|earlier| earlier.dc_id == pool.dc_id) {
                return Err(ConsumerError::DuplicateDc(lane as u8));
            }
            last = Some(lane);
        }
        let last = last.ok_or(ConsumerError::NoLane)?;
        let table = LaneTable::new(&config.format, last + 1)?;
        Ok(GlobalCkfIndexer {
            shared: Arc::new(Shared {
                consumer: config.consumer,
                format: config.format,
                lanes: config.lanes,
                table,
            }),
            manner: Manner { linear: config.linear_positions, window: config.verification_window },
        })
    }

    /// Claims a lane. There is one ingestor a lane; dropping it gives the lane back.
    pub fn claim_lane(&self, lane: u8) -> Result<LaneIngestor, ClaimError> {
        self.pool(lane).ok_or(ClaimError::NoSuchLane(lane))?;
        if !self.shared.table.claim(lane) {
            return Err(ClaimError::AlreadyClaimed(lane));
        }
        Ok(LaneIngestor::new(Arc::clone(&self.shared), lane))
    }

    /// The pool of a lane.
    pub fn pool(&self, lane: u8) -> Option<PoolId> {
        self.shared.pool(lane)
    }

    /// A consumer of one lane alone, its lane 0, that goes on answering what `lane` answers now;
    /// none while it does not answer. Nobody may write the lane meanwhile.
    pub fn copy_of_lane(&self, lane: u8) -> Result<Option<GlobalCkfIndexer>, ConsumerError> {
        let Shared { consumer, format, table, .. } = &*self.shared;
        let Some(pool) = self.pool(lane).filter(|_| table.ready() & (1 << lane) != 0) else {
            return Ok(None);
        };
        let (consumer, format, lanes) = (*consumer, *format, vec![Some(pool)]);
        let copy = LaneTable::new(&format, lanes.len())?;
        for bucket in 0..table.buckets() as u32 {
            copy.store(0, bucket, table.load(lane, bucket));
        }
        copy.activate(0);
        let shared = Arc::new(Shared { consumer, format, lanes, table: copy });
        Ok(Some(GlobalCkfIndexer { shared, manner: self.manner }))
    }

    /// Lanes with their pools.
    pub fn pools(&self) -> impl Iterator<Item = (u8, PoolId)> + '_ {
        (0u8..).zip(&self.shared.lanes).filter_map(|(lane, pool)| pool.map(|pool| (lane, pool)))
    }

    /// The format of all lanes.
    pub fn format(&self) -> &CkfFormat {
        &self.shared.format
    }

    /// Bytes of the table.
    pub fn table_bytes(&self) -> usize {
        self.shared.table.bytes()
    }

    /// The lanes that are ready, one bit each.
    pub fn ready_lanes(&self) -> u16 {
        self.shared.table.ready()
    }

    /// For each hash, the ready lanes that may hold it. `masks` must be as long as `hashes`.
    /// Gives the lanes that were ready: a lane outside it has said nothing.
    ///
    /// This is the question for ring keys; many at once cost little more than memory bandwidth.
    pub fn probe(&self, hashes: &[SequenceHash], masks: &mut [u16]) -> u16 {
        assert_eq!(hashes.len(), masks.len());
        let ready = self.shared.table.ready();
        if let ([hash], [mask]) = (hashes, &mut *masks) {
            *mask = self.shared.table.probe_one(*hash) & ready;
            return ready;
        }
        for (hashes, masks) in hashes.chunks(PROBE_RUN).zip(masks.chunks_mut(PROBE_RUN)) {
            self.shared.probe_run(hashes, masks);
            masks.iter_mut().for_each(|mask| *mask &= ready);
        }
        ready
    }

    /// The depth of a chain whose hashes are known.
    pub fn prefix_depths(&self, chain: &[SequenceHash]) -> Result<PrefixDepths, Unavailable> {
        self.search(&mut Known { shared: &self.shared, chain }, chain.len())
    }

    /// The depth of a chain given by its block hashes. Sequence hashes are made only as far as
    /// the search looks; `scratch` keeps their memory between calls.
    pub fn prefix_depths_of_blocks(
        &self,
        blocks: &[BlockHash],
        scratch: &mut Vec<SequenceHash>,
    ) -> Result<PrefixDepths, Unavailable> {
        scratch.clear();
        self.search(&mut Rolling { shared: &self.shared, blocks, chain: scratch }, blocks.len())
    }

    /// What ingestors share with the queries.
    pub(in crate::ckf) fn shared(&self) -> Arc<Shared> {
        Arc::clone(&self.shared)
    }

    fn search(
        &self,
        presence: &mut impl Presence,
        length: usize,
    ) -> Result<PrefixDepths, Unavailable> {
        let ready = self.shared.table.ready();
        if ready == 0 {
            return Err(Unavailable);
        }
        let depths = search::depths(presence, length, ready, self.manner);
        Ok(PrefixDepths { ready, depths })
    }
}

impl Shared {
    /// The pool of a lane.
    fn pool(&self, lane: u8) -> Option<PoolId> {
        self.lanes.get(usize::from(lane)).copied().flatten()
    }

    /// Takes a lane out of later queries.
    pub(in crate::ckf) fn retire(&self, lane: u8) {
        self.table.retire(lane);
    }

    /// At most [`PROBE_RUN`] hashes.
    #[inline]
    fn probe_run(&self, hashes: &[SequenceHash], masks: &mut [u16]) {
        match hashes.len() {
            0..=1 => self.probe_up_to::<1>(hashes, masks),
            2..=4 => self.probe_up_to::<4>(hashes, masks),
            5..=16 => self.probe_up_to::<16>(hashes, masks),
            17..=32 => self.probe_up_to::<32>(hashes, masks),
            _ => self.probe_up_to::<PROBE_RUN>(hashes, masks),
        }
    }

    #[inline]
    fn probe_up_to<const MAX: usize>(&self, hashes: &[SequenceHash], masks: &mut [u16]) {
        let mut addresses = [Address::default(); MAX];
        self.table.probe(hashes, &mut addresses[..hashes.len()], masks);
    }

    /// The hashes at `positions` of a chain; at most [`PROBE_RUN`] of them.
    #[inline]
    fn probe_positions(&self, chain: &[SequenceHash], positions: &[usize], masks: &mut [u16]) {
        match positions.len() {
            0..=1 => self.probe_picked::<1>(chain, positions, masks),
            2..=4 => self.probe_picked::<4>(chain, positions, masks),
            5..=16 => self.probe_picked::<16>(chain, positions, masks),
            17..=32 => self.probe_picked::<32>(chain, positions, masks),
            _ => self.probe_picked::<PROBE_RUN>(chain, positions, masks),
        }
    }

    #[inline]
    fn probe_picked<const MAX: usize>(
        &self,
        chain: &[SequenceHash],
        positions: &[usize],
        masks: &mut [u16],
    ) {
        let mut picked = [SequenceHash(0); MAX];
        let picked = &mut picked[..positions.len()];
        for (hash, position) in picked.iter_mut().zip(positions) {
            *hash = chain[*position];
        }
        self.probe_up_to::<MAX>(picked, masks);
    }
}

/// A chain whose hashes are known.
struct Known<'a> {
    shared: &'a Shared,
    chain: &'a [SequenceHash],
}

impl Presence for Known<'_> {
    fn reaches_far(&self) -> bool {
        true
    }

    fn probe(&mut self, positions: &[usize], masks: &mut [u16]) {
        self.shared.probe_positions(self.chain, positions, masks);
    }
}

/// A chain whose hashes are made when needed.
struct Rolling<'a> {
    shared: &'a Shared,
    blocks: &'a [BlockHash],
    chain: &'a mut Vec<SequenceHash>,
}

impl Presence for Rolling<'_> {
    fn reaches_far(&self) -> bool {
        self.blocks.len() <= ROLLED_AT_ONCE
    }

    fn probe(&mut self, positions: &[usize], masks: &mut [u16]) {
        let needed = positions.last().map_or(0, |last| last + 1);
        while self.chain.len() < needed {
            let block = self.blocks[self.chain.len()];
            self.chain.push(SequenceHash::after(self.chain.last().copied(), block));
        }
        self.shared.probe_positions(self.chain, positions, masks);
    }
}
