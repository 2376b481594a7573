//! What the store does besides commands: expiry on its own, eviction, events, figures, listings.

use std::sync::atomic::Ordering::Relaxed;

use super::db::{Db, Guards};
use super::keyspace;
use super::{Eviction, MemoryStore, PresenceEvent, SHARDS, StoreCounters};
use crate::stamp::Stamping;

/// Keys compared for one eviction.
const EVICTION_SAMPLES: usize = 8;

/// Most keys evicted after one command; what is left is done by the next ones.
const EVICTIONS_MAX: usize = 10_000;

impl MemoryStore {
    /// Expires what is due, at most `budget` keys; returns how many were looked at. Keys that are
    /// touched expire exactly without it: this frees the memory of those that are not.
    pub fn sweep(&self, now_ms: u64, budget: usize) -> usize {
        let mut left = budget;
        for _ in 0..SHARDS {
            if left == 0 {
                break;
            }
            // A sweep goes on behind the shard where the last one stopped.
            let number = (self.sweep_turn.fetch_add(1, Relaxed) % SHARDS) as u8;
            left -= self.lock(number).sweep(now_ms, left);
        }
        budget - left
    }

    /// Lists keys: appends about `count` to `keys` and returns the next cursor. 0 starts and 0 is
    /// the end; cursors stay below 2^40. Complete for keys that are there throughout.
    pub fn scan_keys(
        &self,
        cursor: u64,
        count: usize,
        now_ms: u64,
        keys: &mut Vec<Box<[u8]>>,
    ) -> u64 {
        let mut unstamped = Stamping::default();
        let mut db = Db::new(self, Guards::Visit, now_ms, (&[], 0), &mut unstamped);
        keyspace::walk(&mut db, cursor, count, |entry| keys.push(entry.key.as_slice().into()))
    }

    /// Appends the keys of one shard, after an overrun of its events.
    pub fn shard_keys(&self, shard: u8, now_ms: u64, keys: &mut Vec<Box<[u8]>>) {
        self.lock(shard).scan(0, usize::MAX, now_ms, |entry| {
            keys.push(entry.key.as_slice().into());
        });
    }

    /// Number of shards, for [`drain_events`](MemoryStore::drain_events).
    pub fn shards(&self) -> usize {
        SHARDS
    }

    /// Moves the presence events of one shard to `into`. True when some were lost since the last
    /// call: the shard must be listed again.
    pub fn drain_events(&self, shard: u8, into: &mut Vec<PresenceEvent>) -> bool {
        self.lock(shard).events.drain(into)
    }

    /// Figures of the whole store.
    pub fn counters(&self) -> StoreCounters {
        (0..SHARDS).fold(StoreCounters::default(), |sum, number| {
            let one = self.lock(number as u8).counters();
            StoreCounters {
                keys: sum.keys + one.keys,
                volatile_keys: sum.volatile_keys + one.volatile_keys,
                bytes: sum.bytes + one.bytes,
                hits: sum.hits + one.hits,
                misses: sum.misses + one.misses,
                expired: sum.expired + one.expired,
                evicted: sum.evicted + one.evicted,
                tombstones: sum.tombstones + one.tombstones,
            }
        })
    }

    /// Evicts until the store is within its limits. Locks one shard at a time and holds no other.
    pub(super) fn evict(&self, now_ms: u64) {
        let volatile_only = match self.settings.eviction {
            Eviction::Refuse => return,
            Eviction::AllKeysLru => false,
            Eviction::VolatileLru => true,
        };
        let mut fruitless = 0;
        for _ in 0..EVICTIONS_MAX {
            if !self.usage.is_over() || fruitless == SHARDS {
                return;
            }
            let number = (self.evict_turn.fetch_add(1, Relaxed) % SHARDS) as u8;
            let evicted = self.lock(number).evict_one(EVICTION_SAMPLES, volatile_only, now_ms);
            fruitless = if evicted { 0 } else { fruitless + 1 };
        }
    }
}
