//! What the owner of a store chooses, and what the store counts.

/// Settings of a [`MemoryStore`](super::MemoryStore).
#[derive(Clone, Debug)]
pub struct StoreSettings {
    /// Most memory for keys and values, in bytes, as the store accounts it; 0 is no limit.
    pub memory_bytes_max: u64,
    /// Most keys; 0 is no limit.
    pub keys_max: u64,
    /// What happens to a write when a limit is reached.
    pub eviction: Eviction,
    /// Longest string a command may build, in bytes (`proto-max-bulk-len` of Redis).
    pub string_bytes_max: usize,
    /// Presence events kept per shard until they are drained; 0 turns them off.
    pub events_max: usize,
    /// Most removed keys whose stamps are remembered; 0 turns that off.
    pub tombstones_max: usize,
    /// How long they are remembered, in milliseconds.
    pub tombstone_age_ms: u64,
    /// Seed of every random pick: eviction samples, RANDOMKEY, SPOP and the like.
    pub seed: u64,
}

impl Default for StoreSettings {
    fn default() -> StoreSettings {
        StoreSettings {
            memory_bytes_max: 0,
            keys_max: 0,
            eviction: Eviction::AllKeysLru,
            string_bytes_max: 512 * 1024 * 1024,
            events_max: 0,
            tombstones_max: 1_000_000,
            tombstone_age_ms: 3 * 60 * 60 * 1000,
            seed: 0,
        }
    }
}

/// What happens to a write when the store is at its memory or key limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Eviction {
    /// The write is refused with Redis's OOM error.
    Refuse,
    /// Keys that were not used for long go first; the order is approximate.
    AllKeysLru,
    /// As `AllKeysLru`, but only keys with an expiry may go.
    VolatileLru,
}

/// Figures of a store at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StoreCounters {
    /// Keys present, those included whose time is over but that nobody touched since.
    pub keys: u64,
    /// Keys with an expiry.
    pub volatile_keys: u64,
    /// Memory of keys and values in bytes.
    pub bytes: u64,
    /// Reads that found their key.
    pub hits: u64,
    /// Reads that did not.
    pub misses: u64,
    /// Keys that went because their time was over.
    pub expired: u64,
    /// Keys that went because of a limit.
    pub evicted: u64,
    /// Removed keys whose stamps are remembered.
    pub tombstones: u64,
}
