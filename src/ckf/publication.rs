//! What travels from a producer to a lane: snapshots, deltas and drain markers.

use super::bucket::BucketImage;
use super::identity::{LaneLease, ProducerIdentity};

/// The whole filter at one sequence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CkfSnapshot {
    /// Whose filter.
    pub identity: ProducerIdentity,
    /// For whom.
    pub lease: LaneLease,
    /// The last delta it contains.
    pub sequence: u64,
    /// One word a bucket.
    pub words: Vec<u64>,
}

/// The buckets that changed from one sequence to the next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CkfDelta {
    /// Whose filter.
    pub identity: ProducerIdentity,
    /// For whom.
    pub lease: LaneLease,
    /// The sequence it starts from.
    pub base: u64,
    /// The sequence it leads to.
    pub sequence: u64,
    /// New words; every bucket at most once.
    pub images: Vec<BucketImage>,
}

/// Asks whether everything up to `sequence` has been applied, and nothing after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DrainMarker {
    /// Of which stream.
    pub lease: LaneLease,
    /// The last sequence published.
    pub sequence: u64,
}
