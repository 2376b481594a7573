//! Configuration, errors and counts of a producer.

use crate::ckf::alloc::OutOfMemory;
use crate::ckf::format::{DEFAULT_SEED, FormatError};

/// Kicks of one insertion unless configured.
pub const MAX_KICKS_DEFAULT: u32 = 500;
/// Most kicks that can be configured.
pub const MAX_KICKS_LIMIT: u32 = 4096;

/// Shape and limits of a producer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProducerConfig {
    /// Distinct blocks to size the filter for, at least 1.
    pub expected_blocks: u64,
    /// Seed of the addresses; equal in all datacenters of a domain.
    pub seed: u64,
    /// Relocations tried for one block, 1 to [`MAX_KICKS_LIMIT`].
    pub max_kicks: u32,
    /// Events between two publications, at least 1.
    pub publish_every_n_events: u32,
    /// Keeps outsiders from crowding the tables; any number, best a random one.
    pub table_seed: u64,
}

impl Default for ProducerConfig {
    fn default() -> ProducerConfig {
        ProducerConfig {
            expected_blocks: 1,
            seed: DEFAULT_SEED,
            max_kicks: MAX_KICKS_DEFAULT,
            publish_every_n_events: 1,
            table_seed: 0,
        }
    }
}

/// Why a producer cannot be built.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BuildError {
    /// `expected_blocks` is 0.
    #[error("expected blocks must be at least 1")]
    NoExpectedBlocks,
    /// `max_kicks` is out of range.
    #[error("{0} kicks: must be 1 to {MAX_KICKS_LIMIT}")]
    MaxKicks(u32),
    /// `publish_every_n_events` is 0.
    #[error("publication needs at least one event between two batches")]
    PublishEveryZero,
    /// No format for so many blocks.
    #[error(transparent)]
    Format(#[from] FormatError),
    /// No memory for the filter.
    #[error(transparent)]
    OutOfMemory(#[from] OutOfMemory),
}

/// Why an event, or a block of it, was not applied.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EventError {
    /// No state changed: the source does not know the parent.
    #[error("the parent block is not known to this source")]
    ParentBlockNotFound,
    /// No state changed: a sequence that starts in the middle, or a name used for another block.
    #[error("the blocks do not continue what this source stored before")]
    InvalidBlockSequence,
    /// No state changed: the residency domain means nothing to us.
    #[error("the residency domain is not supported")]
    UnsupportedResidencyDomain,
    /// No state changed: a hash has as many owners as can be counted.
    #[error("a block has too many owners")]
    OwnershipDegreeOverflow,
    /// No state changed.
    #[error(transparent)]
    OutOfMemory(#[from] OutOfMemory),
    /// Some blocks were omitted, the others were applied.
    #[error("the filter has no place for a block")]
    CapacityExhausted,
    /// A block was left as it was: its fingerprint is missing. The producer must be rebuilt.
    #[error("the filter lost a fingerprint, the producer must be rebuilt")]
    IndexerInvariantViolation,
}

impl EventError {
    /// Fixed name for metrics.
    pub fn label(&self) -> &'static str {
        match self {
            EventError::ParentBlockNotFound => "ParentBlockNotFound",
            EventError::InvalidBlockSequence => "InvalidBlockSequence",
            EventError::UnsupportedResidencyDomain => "UnsupportedResidencyDomain",
            EventError::OwnershipDegreeOverflow => "OwnershipDegreeOverflow",
            EventError::OutOfMemory(_) => "OutOfMemory",
            EventError::CapacityExhausted => "CapacityExhausted",
            EventError::IndexerInvariantViolation => "IndexerInvariantViolation",
        }
    }
}

/// What one event did.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Applied {
    /// The first thing that went wrong, if any.
    pub first_error: Option<EventError>,
    /// Removed names the source did not own.
    pub unknown_removals: u64,
    /// Blocks omitted because the filter had no place.
    pub omitted: u64,
    /// True when the event ended a publication window; its images were handed out, if any.
    pub boundary: bool,
}

/// Counts of a producer. Cumulative unless said otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct ProducerCounters {
    /// Events that counted.
    pub events: u64,
    /// Removed names no source owned.
    pub unknown_removals: u64,
    /// Store events whose parent was unknown.
    pub parent_not_found: u64,
    /// Blocks omitted because the filter had no place.
    pub capacity_omissions: u64,
    /// Buckets found touched when windows closed.
    pub touched_buckets: u64,
    /// Images handed out.
    pub emitted_images: u64,
    /// Touched buckets that had returned to their published word.
    pub reverted_buckets: u64,
}

/// Sizes of a producer now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct ProducerSizes {
    /// Sources that own something.
    pub members: usize,
    /// Edges from sources to hashes.
    pub contributions: usize,
    /// Distinct hashes owned.
    pub unique_hashes: usize,
    /// Slots of the filter in use.
    pub occupied_slots: usize,
    /// Slots of the filter.
    pub slots: usize,
    /// Events since the last publication.
    pub pending_events: u32,
    /// Buckets touched since the last publication.
    pub pending_buckets: usize,
    /// Bytes of the exact state.
    pub ownership_bytes: usize,
    /// Bytes of the filter and its window.
    pub filter_bytes: usize,
    /// Bucket writes since the start.
    pub bucket_writes: u64,
}
