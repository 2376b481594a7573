//! An ordered-as-inserted hash map with dense storage, the one table of the store.
//!
//! Entries lie in a vector; a side table of indexes finds them once there are more than
//! [`LINEAR_MAX`]. Dense storage gives three things a plain hash table does not: a uniform random
//! pick in constant time, a fast walk, and a scan that is complete whatever happens between its
//! steps. A scan walks **downwards**: removing an entry only ever moves others to lower positions,
//! so what was not visited yet stays below the cursor.

use hashbrown::HashTable;
use xxhash_rust::xxh3::xxh3_64;

use super::blob::Blob;

/// Up to this many entries are searched in line, without a side table.
const LINEAR_MAX: usize = 16;

/// The hash of a key, field or member. Its low half places it in a [`Dict`].
#[inline]
pub(super) fn hash_of(key: &[u8]) -> u64 {
    xxh3_64(key)
}

/// One key with its value.
#[derive(Clone, Debug)]
pub(super) struct Entry<V> {
    hash: u32,
    pub(super) key: Blob,
    pub(super) value: V,
}

/// A map from byte strings to `V`.
#[derive(Clone, Debug)]
pub(super) struct Dict<V> {
    entries: Vec<Entry<V>>,
    index: HashTable<u32>,
    key_bytes: usize,
}

impl<V> Default for Dict<V> {
    fn default() -> Dict<V> {
        Dict { entries: Vec::new(), index: HashTable::new(), key_bytes: 0 }
    }
}

impl<V> Dict<V> {
    /// Number of entries.
    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    /// True without entries.
    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// True while the entries are searched in line.
    pub(super) fn is_small(&self) -> bool {
        self.index.is_empty()
    }

    /// Memory of entries, keys and side table in bytes; what values hold besides is not known here.
    pub(super) fn heap_bytes(&self) -> usize {
        let slot = size_of::<Entry<V>>() + size_of::<u32>() + 1;
        self.entries.len() * slot + self.key_bytes
    }

    /// Position of `key`, whose hash is `hash`.
    #[inline]
    pub(super) fn find_hashed(&self, hash: u32, key: &[u8]) -> Option<usize> {
        let is_it = |e: &Entry<V>| e.hash == hash && e.key.as_slice() == key;
        if self.index.is_empty() {
            return self.entries.iter().position(is_it);
        }
        let found = self.index.find(spread(hash), |&i| is_it(&self.entries[i as usize]));
        found.map(|&i| i as usize)
    }

    /// Position of `key`.
    pub(super) fn find(&self, key: &[u8]) -> Option<usize> {
        self.find_hashed(hash_of(key) as u32, key)
    }

    /// The first position with this hash whose entry satisfies `is_it`.
    pub(super) fn find_by(&self, hash: u32, is_it: impl Fn(&V) -> bool) -> Option<usize> {
        let is_it = |e: &Entry<V>| e.hash == hash && is_it(&e.value);
        if self.index.is_empty() {
            return self.entries.iter().position(is_it);
        }
        let found = self.index.find(spread(hash), |&i| is_it(&self.entries[i as usize]));
        found.map(|&i| i as usize)
    }

    /// Value of `key`.
    pub(super) fn get(&self, key: &[u8]) -> Option<&V> {
        self.find(key).map(|at| &self.entries[at].value)
    }

    /// Entry at a position.
    #[inline]
    pub(super) fn at(&self, at: usize) -> &Entry<V> {
        &self.entries[at]
    }

    /// Value at a position.
    #[inline]
    pub(super) fn at_mut(&mut self, at: usize) -> &mut V {
        &mut self.entries[at].value
    }

    /// Hash of the entry at a position.
    pub(super) fn hash_at(&self, at: usize) -> u32 {
        self.entries[at].hash
    }

    /// All entries: oldest first until something large is removed from.
    pub(super) fn iter(&self) -> impl ExactSizeIterator<Item = &Entry<V>> {
        self.entries.iter()
    }

    /// Adds a key that is not there; returns its position.
    pub(super) fn push_hashed(&mut self, hash: u32, key: Blob, value: V) -> usize {
        let at = self.entries.len();
        if at == self.entries.capacity() {
            // Grow by half: doubling leaves too much unused in a store that fills memory.
            self.entries.reserve_exact((at / 2).max(4));
        }
        self.key_bytes += key.heap_bytes();
        self.entries.push(Entry { hash, key, value });
        if !self.index.is_empty() {
            let entries = &self.entries;
            self.index
                .insert_unique(spread(hash), at as u32, |&i| spread(entries[i as usize].hash));
        } else if at >= LINEAR_MAX {
            self.build_index();
        }
        at
    }

    /// Adds a key that is not there; returns its position.
    pub(super) fn push(&mut self, key: Blob, value: V) -> usize {
        let hash = hash_of(key.as_slice()) as u32;
        self.push_hashed(hash, key, value)
    }

    /// Takes an entry out. Small tables keep their order, large ones move the last entry here.
    pub(super) fn remove_at(&mut self, at: usize) -> Entry<V> {
        let removed = if self.index.is_empty() {
            self.entries.remove(at)
        } else {
            self.unindex(at);
            let last = self.entries.len() - 1;
            if at != last {
                let hash = spread(self.entries[last].hash);
                let slot = self.index.find_mut(hash, |&i| i as usize == last);
                *slot.expect("every entry is indexed") = at as u32;
            }
            self.entries.swap_remove(at)
        };
        self.key_bytes -= removed.key.heap_bytes();
        self.shrink();
        removed
    }

    /// Takes `key` out.
    pub(super) fn remove(&mut self, key: &[u8]) -> Option<V> {
        let at = self.find(key)?;
        Some(self.remove_at(at).value)
    }

    /// Walks at most `count` entries from `cursor` downwards and returns the next cursor; 0 starts
    /// and 0 is the end. A small table is walked whole.
    pub(super) fn scan(&self, cursor: usize, count: usize, mut f: impl FnMut(&Entry<V>)) -> usize {
        let top = match cursor {
            0 => self.entries.len(),
            _ => cursor.min(self.entries.len()),
        };
        let bottom = match self.is_small() {
            true => 0,
            false => top.saturating_sub(count.max(1)),
        };
        self.entries[bottom..top].iter().rev().for_each(&mut f);
        bottom
    }

    fn build_index(&mut self) {
        self.index.reserve(self.entries.len() * 2, |_| 0);
        for (i, entry) in self.entries.iter().enumerate() {
            // Nothing is rehashed: the room was reserved.
            self.index.insert_unique(spread(entry.hash), i as u32, |_| 0);
        }
    }

    fn unindex(&mut self, at: usize) {
        let hash = spread(self.entries[at].hash);
        let slot = self.index.find_entry(hash, |&i| i as usize == at);
        slot.expect("every entry is indexed").remove();
    }

    fn shrink(&mut self) {
        let len = self.entries.len();
        if self.entries.capacity() > 64 && len < self.entries.capacity() / 4 {
            self.entries.shrink_to(len * 2);
            let entries = &self.entries;
            self.index.shrink_to(len * 2, |&i| spread(entries[i as usize].hash));
        }
    }
}

/// Spreads 32 bits over the 64 the side table looks at: tags come from the top, places from below.
#[inline]
fn spread(hash: u32) -> u64 {
    u64::from(hash).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::{BTreeMap, BTreeSet};

    fn key(n: u64) -> Vec<u8> {
        format!("key:{n}").into_bytes()
    }

    #[test]
    fn agrees_with_a_map_over_random_changes() {
        let mut rng = fastrand::Rng::with_seed(7);
        let mut dict = Dict::default();
        let mut model = BTreeMap::new();
        for step in 0..20_000u64 {
            let k = key(rng.u64(..if step % 5_000 < 2_500 { 900 } else { 40 }));
            match (dict.find(&k), rng.u8(..3)) {
                (Some(at), 0) => {
                    assert_eq!(Some(dict.remove_at(at).value), model.remove(&k));
                }
                (Some(at), _) => {
                    *dict.at_mut(at) = step;
                    model.insert(k, step);
                }
                (None, 0) => assert!(!model.contains_key(&k)),
                (None, _) => {
                    dict.push(Blob::new(&k), step);
                    model.insert(k, step);
                }
            }
            assert_eq!(dict.len(), model.len());
        }
        for (k, v) in &model {
            assert_eq!(dict.get(k), Some(v));
        }
        let got: BTreeSet<_> = dict.iter().map(|e| e.key.as_slice().to_vec()).collect();
        assert_eq!(got, model.keys().cloned().collect());
        while !dict.is_empty() {
            dict.remove_at(0);
        }
        assert_eq!(dict.heap_bytes(), 0);
    }

    #[test]
    fn a_scan_sees_every_entry_that_stays_while_others_come_and_go() {
        let mut rng = fastrand::Rng::with_seed(1);
        for round in 0..50u64 {
            let mut dict = Dict::default();
            for n in 0..200 {
                dict.push(Blob::new(&key(n)), ());
            }
            let mut seen = BTreeSet::new();
            let mut cursor = 0;
            loop {
                cursor = dict.scan(cursor, 7, |e| {
                    seen.insert(e.key.as_slice().to_vec());
                });
                if cursor == 0 {
                    break;
                }
                for _ in 0..5 {
                    dict.remove(&key(100 + rng.u64(..100)));
                    let new = key(1_000 + rng.u64(..1_000));
                    if dict.find(&new).is_none() {
                        dict.push(Blob::new(&new), ());
                    }
                }
            }
            assert!((0..100).all(|n| seen.contains(&key(n))), "round {round}");
        }
    }
}
