//! Memory and keys of all shards together.
//!
//! Shards report in steps, so that workers do not fight over one cache line; the total is off by
//! less than a sixteenth of the limit.

use std::sync::atomic::{AtomicI64, Ordering::Relaxed};

use super::settings::StoreSettings;

/// Shards of a store.
pub(super) const SHARDS: usize = 256;

/// Largest step in which a shard reports bytes.
const STEP_BYTES_MAX: u64 = 16 * 1024;

/// Largest step in which a shard reports keys.
const STEP_KEYS_MAX: u64 = 64;

/// The totals and their limits.
#[derive(Debug)]
pub(super) struct Usage {
    bytes: AtomicI64,
    keys: AtomicI64,
    bytes_max: i64,
    keys_max: i64,
    step_bytes: i64,
    step_keys: i64,
}

/// What one shard has not reported yet.
#[derive(Debug, Default)]
pub(super) struct Unreported {
    bytes: i64,
    keys: i64,
}

impl Usage {
    pub(super) fn new(settings: &StoreSettings) -> Usage {
        let limit = |max: u64| match max {
            0 => i64::MAX,
            max => i64::try_from(max).unwrap_or(i64::MAX),
        };
        let step = |max: i64, most: u64| (max / (16 * SHARDS as i64)).min(most as i64);
        let (bytes_max, keys_max) = (limit(settings.memory_bytes_max), limit(settings.keys_max));
        Usage {
            bytes: AtomicI64::new(0),
            keys: AtomicI64::new(0),
            bytes_max,
            keys_max,
            step_bytes: step(bytes_max, STEP_BYTES_MAX),
            step_keys: step(keys_max, STEP_KEYS_MAX),
        }
    }

    /// Adds a change of one shard, which may be reported later.
    pub(super) fn add(&self, unreported: &mut Unreported, bytes: i64, keys: i64) {
        unreported.bytes += bytes;
        unreported.keys += keys;
        if unreported.bytes.abs() > self.step_bytes {
            self.bytes.fetch_add(std::mem::take(&mut unreported.bytes), Relaxed);
        }
        if unreported.keys.abs() > self.step_keys {
            self.keys.fetch_add(std::mem::take(&mut unreported.keys), Relaxed);
        }
    }

    /// True when something has to be evicted.
    pub(super) fn is_over(&self) -> bool {
        self.bytes.load(Relaxed) > self.bytes_max || self.keys.load(Relaxed) > self.keys_max
    }

    /// True when nothing more may be added.
    pub(super) fn is_full(&self) -> bool {
        self.bytes.load(Relaxed) > self.bytes_max || self.keys.load(Relaxed) >= self.keys_max
    }
}
