//! Keys that the node's store was told to delete, or to change otherwise than by storing a value,
//! a moment ago. What was fetched from elsewhere before must not be stored here after it: a
//! deleted key would be back (decision I2).
//!
//! One number for each of many groups of keys, by their hashes: it takes no lock, its size is
//! fixed, and a neighbour's change costs a value that is not stored, never one that should not be.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::ckf::hashing::SequenceHash;

/// How long a change is remembered, milliseconds.
pub const REMEMBERED_MS: u64 = 30_000;
/// Groups of keys.
const GROUPS: usize = 1 << 18;

/// Changes of a moment ago, of all workers. Times are milliseconds on one monotonic clock.
#[derive(Debug, Default)]
pub struct RecentWrites {
    /// The last change, plus one so that 0 is never; made with the first one.
    groups: OnceLock<Box<[AtomicU64]>>,
    /// The last change whose keys are not known: FLUSHALL, or a script's.
    all: AtomicU64,
}

impl RecentWrites {
    /// A key is changed now.
    pub fn note(&self, hash: SequenceHash, now_ms: u64) {
        let groups = self.groups.get_or_init(|| (0..GROUPS).map(|_| AtomicU64::new(0)).collect());
        groups[group(hash)].fetch_max(now_ms + 1, Ordering::Relaxed);
    }

    /// Any key may be changed now.
    pub fn note_all(&self, now_ms: u64) {
        self.all.fetch_max(now_ms + 1, Ordering::Relaxed);
    }

    /// Whether a key was not changed for [`REMEMBERED_MS`].
    pub fn is_quiet(&self, hash: SequenceHash, now_ms: u64) -> bool {
        let groups = self.groups.get();
        let of_group = groups.map_or(0, |groups| groups[group(hash)].load(Ordering::Relaxed));
        let last = of_group.max(self.all.load(Ordering::Relaxed));
        last == 0 || now_ms > last - 1 + REMEMBERED_MS
    }
}

fn group(hash: SequenceHash) -> usize {
    hash.0 as usize % GROUPS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_is_remembered_for_its_time() {
        let recent = RecentWrites::default();
        let (key, neighbour) = (SequenceHash(7), SequenceHash(7 + GROUPS as u64));
        assert!(recent.is_quiet(key, 0));
        recent.note(key, 1000);
        for now_ms in [1000, 1000 + REMEMBERED_MS] {
            assert!(!recent.is_quiet(key, now_ms) && !recent.is_quiet(neighbour, now_ms));
            assert!(recent.is_quiet(SequenceHash(8), now_ms));
        }
        assert!(recent.is_quiet(key, 1001 + REMEMBERED_MS));
        // Clocks of workers differ by a tick: the latest counts.
        recent.note(key, 50_000);
        recent.note(key, 49_000);
        assert!(!recent.is_quiet(key, 50_000 + REMEMBERED_MS));
        recent.note_all(100_000);
        assert!(!recent.is_quiet(SequenceHash(8), 100_001));
    }
}
