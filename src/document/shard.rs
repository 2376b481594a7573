//! Shards of documents and the ranking of backends: XXH64 with seed 0.
//!
//! The bytes hashed are those Rust's `Hash` feeds a hasher in the reference
//! (`jedarden/miroir crates/miroir-core/src/router.rs`): text ends with one byte `ff`. The shard
//! number is written little-endian on every machine. No hash setting of the pool reaches this
//! module: the stored shard numbers depend on it.

use xxhash_rust::xxh64::Xxh64;

/// Number of a shard of the document hash space, below the configured count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ShardId(pub u32);

/// Byte that ends text in the hashed input.
const TEXT_END: &[u8] = &[0xff];

/// Hash of a document's canonical id.
///
/// ```
/// use torc::document::shard::{key_hash, shard_for_key, ShardId};
/// assert_eq!(shard_for_key("user:123", 64), ShardId(46));
/// assert_eq!(key_hash("") % 8, 4);
/// ```
pub fn key_hash(key: &str) -> u64 {
    let mut hash = Xxh64::new(0);
    hash.update(key.as_bytes());
    hash.update(TEXT_END);
    hash.digest()
}

/// The shard of a document out of `shards` (at least 1).
pub fn shard_for_key(key: &str, shards: u32) -> ShardId {
    ShardId((key_hash(key) % u64::from(shards)) as u32)
}

/// How strongly a backend claims a shard: the highest scores own it.
pub fn score(shard: ShardId, backend: &str) -> u64 {
    let mut hash = Xxh64::new(0);
    hash.update(&shard.0.to_le_bytes());
    hash.update(backend.as_bytes());
    hash.update(TEXT_END);
    hash.digest()
}

/// Positions in `backends` from the best claim on `shard` to the weakest. Equal scores go to the
/// smaller id in byte order, so the order never depends on the order of the list.
pub fn rank(shard: ShardId, backends: &[&str]) -> Vec<usize> {
    let mut ranked: Vec<(u64, usize)> =
        backends.iter().enumerate().map(|(i, id)| (score(shard, id), i)).collect();
    ranked.sort_by(|a, b| b.0.cmp(&a.0).then_with(|| backends[a.1].cmp(backends[b.1])));
    ranked.into_iter().map(|(_, i)| i).collect()
}

/// A set of shards, as one flag per shard.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct ShardSet {
    flags: Vec<bool>,
}

impl ShardSet {
    /// No shard out of `shards`.
    pub fn none(shards: u32) -> ShardSet {
        ShardSet { flags: vec![false; shards as usize] }
    }

    /// Every one of `shards` shards.
    pub fn all(shards: u32) -> ShardSet {
        ShardSet { flags: vec![true; shards as usize] }
    }

    /// Adds a shard. Shards beyond the count the set was made for are a programming error.
    pub fn insert(&mut self, shard: ShardId) {
        self.flags[shard.0 as usize] = true;
    }

    /// Whether the shard is in the set.
    pub fn contains(&self, shard: ShardId) -> bool {
        self.flags.get(shard.0 as usize).copied().unwrap_or(false)
    }

    /// The shards of the set, ascending.
    pub fn iter(&self) -> impl Iterator<Item = ShardId> + '_ {
        self.flags.iter().enumerate().filter(|(_, on)| **on).map(|(i, _)| ShardId(i as u32))
    }

    /// The shards both sets have.
    pub fn intersection(&self, other: &ShardSet) -> ShardSet {
        let both = self.flags.iter().zip(&other.flags).map(|(a, b)| *a && *b);
        ShardSet { flags: both.collect() }
    }

    /// True when no shard is in the set.
    pub fn is_empty(&self) -> bool {
        !self.flags.contains(&true)
    }
}
