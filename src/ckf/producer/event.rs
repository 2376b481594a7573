//! What a producer is told, and which of it concerns the filter.

use crate::ckf::hashing::{BlockHash, ExternalId, SequenceHash};

/// One rank of one worker: the unit that holds blocks and is cleared at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Source {
    /// The worker (for ring keys: the node).
    pub worker_id: u64,
    /// Its data-parallel rank, 0 where there is only one.
    pub dp_rank: u32,
}

/// Where a block lies. Only [`StorageTier::Device`] enters the filter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum StorageTier {
    /// Ready to serve. A ring node's datastore is this tier.
    #[default]
    Device,
    /// Host memory behind a device.
    HostPinned,
    /// Local disk.
    Disk,
    /// Storage outside the worker.
    External,
}

/// Whose residency an event speaks of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum ResidencyDomain {
    /// The worker's own; also when an event names none.
    #[default]
    Worker,
    /// A cache owner shared by several workers.
    CacheOwner,
    /// Named, but nothing we know (an explicit null included).
    Unknown,
}

/// One block of a store event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoredBlock {
    /// The engine's name of it.
    pub id: ExternalId,
    /// The hash of its tokens.
    pub tokens_hash: BlockHash,
}

/// What happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EventData {
    /// A run of blocks, each the child of the one before.
    Stored {
        /// The block the run continues; none when it starts a sequence.
        parent: Option<ExternalId>,
        /// Position of the first block, where the engine tells it.
        start_position: Option<u32>,
        /// The run.
        blocks: Vec<StoredBlock>,
    },
    /// Blocks that are their own names and chains of their own, in any order: keys.
    Appeared(Vec<SequenceHash>),
    /// Blocks whose place in their chains was resolved before, in any order.
    Resolved(Vec<(ExternalId, SequenceHash)>),
    /// Blocks that are gone, in any order.
    Removed(Vec<ExternalId>),
    /// Everything of this source is gone.
    Cleared,
}

/// One event of one source. The caller keeps the events of a source in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RouterEvent {
    /// Who tells it.
    pub source: Source,
    /// Where the blocks lie.
    pub tier: StorageTier,
    /// Whose residency it speaks of.
    pub residency: ResidencyDomain,
    /// What happened.
    pub data: EventData,
}

impl RouterEvent {
    /// An event about the worker's own device tier.
    pub fn device(source: Source, data: EventData) -> RouterEvent {
        RouterEvent { source, tier: StorageTier::Device, residency: ResidencyDomain::Worker, data }
    }

    /// A key or block that is its own name appeared.
    pub fn stored_key(source: Source, hash: u64) -> RouterEvent {
        RouterEvent::device(source, EventData::Appeared(vec![SequenceHash(hash)]))
    }

    /// Keys or blocks that are their own names went.
    pub fn removed_keys(source: Source, hashes: impl IntoIterator<Item = u64>) -> RouterEvent {
        let removed = hashes.into_iter().map(ExternalId).collect();
        RouterEvent::device(source, EventData::Removed(removed))
    }

    /// Blocks it speaks of; one for everything of a source.
    pub fn blocks(&self) -> usize {
        match &self.data {
            EventData::Stored { blocks, .. } => blocks.len(),
            EventData::Appeared(keys) => keys.len(),
            EventData::Resolved(blocks) => blocks.len(),
            EventData::Removed(ids) => ids.len(),
            EventData::Cleared => 1,
        }
    }

    /// Whether this event enters the filter.
    pub(super) fn admission(&self) -> Admission {
        match (&self.data, self.residency, self.tier) {
            (EventData::Cleared, ResidencyDomain::CacheOwner, _) => Admission::Ignored,
            (EventData::Cleared, ResidencyDomain::Worker | ResidencyDomain::Unknown, _) => {
                Admission::Applies
            }
            (_, ResidencyDomain::Unknown, _) => Admission::Refused,
            (_, ResidencyDomain::CacheOwner, StorageTier::Device) => Admission::Refused,
            (_, ResidencyDomain::Worker, StorageTier::Device) => Admission::Applies,
            (
                _,
                ResidencyDomain::Worker | ResidencyDomain::CacheOwner,
                StorageTier::HostPinned | StorageTier::Disk | StorageTier::External,
            ) => Admission::Ignored,
        }
    }
}

/// Whether an event enters the filter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Admission {
    /// Yes, and it counts as an event.
    Applies,
    /// It is valid but about something else; it does not count.
    Ignored,
    /// We cannot tell what it means; it changes nothing and does not count.
    Refused,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_workers_device_tier_enters_the_filter() {
        let source = Source { worker_id: 1, dp_rank: 0 };
        let admission = |data: &EventData, tier, residency| {
            RouterEvent { source, tier, residency, data: data.clone() }.admission()
        };
        let removed = EventData::Removed(vec![ExternalId(1)]);
        use {Admission::*, ResidencyDomain as R, StorageTier as T};
        assert_eq!(admission(&removed, T::Device, R::Worker), Applies);
        assert_eq!(admission(&removed, T::Disk, R::Worker), Ignored);
        assert_eq!(admission(&removed, T::HostPinned, R::CacheOwner), Ignored);
        assert_eq!(admission(&removed, T::Device, R::CacheOwner), Refused);
        assert_eq!(admission(&removed, T::External, R::Unknown), Refused);
        assert_eq!(admission(&EventData::Cleared, T::Disk, R::Worker), Applies);
        assert_eq!(admission(&EventData::Cleared, T::Device, R::Unknown), Applies);
        assert_eq!(admission(&EventData::Cleared, T::Device, R::CacheOwner), Ignored);
    }
}
