//! Hashing of a source's name: it is looked up for every event, and FNV takes it byte by byte.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use super::event::Source;

/// What is known by the names of sources.
pub(super) type BySource<V> = HashMap<Source, V, BuildHasherDefault<SourceHasher>>;

/// Multiplies and folds whole words. Sources are engines and nodes, which nobody chooses to crowd
/// a table.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct SourceHasher(u64);

impl Hasher for SourceHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.write_u64(u64::from(*byte)));
    }

    fn write_u32(&mut self, word: u32) {
        self.write_u64(u64::from(word));
    }

    fn write_u64(&mut self, word: u64) {
        let product = u128::from(self.0 ^ word ^ 0x9E37_79B9_7F4A_7C15)
            * u128::from(0xD6E8_FEB8_6659_FD93u64);
        self.0 = product as u64 ^ (product >> 64) as u64;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;
    use std::hash::BuildHasher;

    #[test]
    fn neighbouring_sources_spread() {
        let hasher = BuildHasherDefault::<SourceHasher>::default();
        let hash = |n: u64| hasher.hash_one(Source { worker_id: n / 8, dp_rank: (n % 8) as u32 });
        let low: HashSet<u64> = (0..4096).map(|n| hash(n) % 4096).collect();
        let high: HashSet<u64> = (0..4096).map(|n| hash(n) >> 52).collect();
        // Of 4096 balls in 4096 bins about 2590 bins get some.
        assert!(low.len() > 2400 && high.len() > 2400, "{} {}", low.len(), high.len());
    }
}
