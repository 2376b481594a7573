//! The load plane: how full the pools are, one window after the other.

use super::envelope::{CONTRACT_MARKER, PROTOCOL_VERSION, RelayId};
use super::key::ProducerKey;
use super::{Fault, proto};

/// What is known of one pool's load in one window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolLoad {
    /// The pool's generation.
    pub key: ProducerKey,
    /// Blocks in use, over the ranks observed.
    pub used_blocks: u64,
    /// Blocks there is room for; 0 when that is not known.
    pub total_blocks: u64,
    /// Ranks that reported in this window.
    pub observed_ranks: u32,
    /// Ranks there should be.
    pub expected_ranks: u32,
}

impl PoolLoad {
    /// Whether the sums say anything: every rank was observed, and the capacity is known. Without
    /// that the pool is not idle, it is unknown.
    pub fn is_authoritative(&self) -> bool {
        self.observed_ranks == self.expected_ranks
            && self.expected_ranks > 0
            && self.total_blocks > 0
    }
}

impl TryFrom<&proto::KvPoolLoadEntry> for PoolLoad {
    type Error = Fault;

    fn try_from(message: &proto::KvPoolLoadEntry) -> Result<PoolLoad, Fault> {
        let producer = message.producer.as_ref().ok_or(Fault::MissingField("producer"))?;
        Ok(PoolLoad {
            key: ProducerKey::try_from(producer)?,
            used_blocks: message.kv_used_blocks,
            total_blocks: message.total_kv_blocks,
            observed_ranks: message.kv_observed_ranks,
            expected_ranks: message.kv_expected_ranks,
        })
    }
}

impl From<&PoolLoad> for proto::KvPoolLoadEntry {
    fn from(load: &PoolLoad) -> proto::KvPoolLoadEntry {
        proto::KvPoolLoadEntry {
            producer: Some((&load.key).into()),
            kv_used_blocks: load.used_blocks,
            total_kv_blocks: load.total_blocks,
            kv_observed_ranks: load.observed_ranks,
            kv_expected_ranks: load.expected_ranks,
        }
    }
}

/// Usage and room of one rank, as it reported them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RankLoad {
    /// Blocks in use.
    pub used: u64,
    /// Blocks there is room for; none when the rank has no limit.
    pub total: Option<u64>,
}

/// Sums what the ranks of a pool reported; a rank that did not is none.
///
/// With a rank missing the usage is sent as 0, and with a rank without limit the total is, so
/// that nobody takes a part for the whole. Sums stop at the largest number.
pub fn sum(key: ProducerKey, ranks: &[Option<RankLoad>]) -> PoolLoad {
    let reported = || ranks.iter().flatten();
    let (observed, expected) = (reported().count(), ranks.len());
    let saturated = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
    let add = |sum: u64, next: u64| sum.saturating_add(next);
    let complete = observed == expected;
    let used = reported().map(|rank| rank.used).fold(0, add);
    let total = reported().map(|rank| rank.total).try_fold(0, |sum, total| Some(add(sum, total?)));
    PoolLoad {
        key,
        used_blocks: if complete { used } else { 0 },
        total_blocks: if complete { total.unwrap_or(0) } else { 0 },
        observed_ranks: saturated(observed),
        expected_ranks: saturated(expected),
    }
}

/// When a window was closed, and its place.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Window {
    /// Rises by one with each window; 0 before the first.
    pub sequence: u64,
    /// The sender's wall clock, milliseconds; for display.
    pub observed_ms: u64,
    /// Its length, milliseconds.
    pub window_ms: u64,
}

/// The message of one window.
pub fn message(relay: RelayId, window: &Window, pools: &[PoolLoad]) -> proto::KvPoolLoadUpdate {
    proto::KvPoolLoadUpdate {
        protocol_version: PROTOCOL_VERSION,
        relay: Some(relay.into()),
        window_sequence: window.sequence,
        observed_ms: window.observed_ms,
        window_ms: window.window_ms,
        pools: pools.iter().map(Into::into).collect(),
        contract_marker: CONTRACT_MARKER,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::relay::vectors;

    fn key() -> ProducerKey {
        ProducerKey::try_from(&vectors::message("producer_identity")).unwrap()
    }

    #[test]
    fn windows_match_the_vectors() {
        let relay = RelayId { drt_instance_id: 17, incarnation: 23 };
        let window = |sequence| Window { sequence, observed_ms: 1000, window_ms: 500 };
        let partial = PoolLoad {
            key: key(),
            used_blocks: 40,
            total_blocks: 100,
            observed_ranks: 3,
            expected_ranks: 4,
        };
        assert!(!partial.is_authoritative());
        let ours = message(relay, &window(12), &[partial]);
        assert_eq!(ours, vectors::message("load_update_partial_coverage"));
        assert_eq!(PoolLoad::try_from(&ours.pools[0]), Ok(partial));
        let idle = message(relay, &window(13), &[]);
        assert_eq!(idle, vectors::message("load_update_idle_window"));
        let rank = Some(RankLoad { used: u64::MAX, total: Some(u64::MAX) });
        let saturated = sum(key(), &[rank, rank]);
        assert!(saturated.is_authoritative());
        let ours = message(relay, &window(14), &[saturated]);
        assert_eq!(ours, vectors::message("load_update_saturated"));
    }

    #[test]
    fn a_part_is_never_taken_for_the_whole() {
        let rank = |used, total| Some(RankLoad { used, total });
        let whole = sum(key(), &[rank(1, Some(10)), rank(2, Some(20))]);
        assert_eq!((whole.used_blocks, whole.total_blocks), (3, 30));
        assert!(whole.is_authoritative());
        let silent = sum(key(), &[rank(1, Some(10)), None]);
        assert_eq!((silent.used_blocks, silent.total_blocks), (0, 0));
        assert_eq!((silent.observed_ranks, silent.expected_ranks), (1, 2));
        let unlimited = sum(key(), &[rank(1, Some(10)), rank(2, None)]);
        assert_eq!((unlimited.used_blocks, unlimited.total_blocks), (3, 0));
        assert!(!unlimited.is_authoritative());
        assert!(!sum(key(), &[]).is_authoritative());
    }
}
