//! An open-addressing table of 64-bit keys made for the exact state of a producer.
//!
//! Keys lie in *cells* of one or two cache lines. A cell that is full lets later keys pass to the
//! next one and counts them (`overflow`), so a search ends at the first cell nobody passed, and a
//! removal leaves no tombstone. Measured needs this answers: nine tenths of a producer's time went
//! into cache misses of two general hash maps, and their memory was fifteen times the filter's.
//!
//! The table is cut into shards by the top bits of the mixed key. Each grows by half at a
//! time, so a growing step moves one shard and never stalls the owner's loop for the whole table,
//! and the load stays high. Inserting never allocates: room is reserved first and may be refused.

use crate::ckf::alloc::{self, OutOfMemory};
use crate::ckf::simd;

/// Odd multiplier (2^64 over the golden ratio): spreads sequential keys over the high bits.
const MIX: u64 = 0x9E37_79B9_7F4A_7C15;
/// A shard grows when it would be fuller than this many 32nds.
const LOAD_MAX_32NDS: usize = 29;
/// A shard shrinks when it is emptier than one in this many slots.
const SHRINK_BELOW: usize = 4;

/// A table of values `V`, `N` of them a cell.
#[derive(Debug)]
pub(super) struct CellTable<V, const N: usize> {
    shards: Vec<Shard<V, N>>,
    shard_bits: u32,
    seed: u64,
    len: usize,
    /// Cells a shard has from the beginning and keeps.
    cells_min: usize,
}

/// Where an entry lies, until the next insertion or removal.
#[derive(Clone, Copy, Debug)]
pub(super) struct Slot {
    shard: usize,
    cell: usize,
    slot: usize,
}

#[derive(Clone, Copy, Debug)]
#[repr(C, align(64))]
struct Cell<V, const N: usize> {
    keys: [u64; N],
    /// Keys that passed this cell because it was full. Sticks at its maximum.
    overflow: u16,
    /// Which slots are in use, one bit each.
    used: u8,
    values: [V; N],
}

#[derive(Debug)]
struct Shard<V, const N: usize> {
    cells: Vec<Cell<V, N>>,
    len: usize,
    /// Insertions counted so far by a reservation under way.
    pending: usize,
}

impl<V: Copy + Default, const N: usize> CellTable<V, N> {
    /// An empty table of 2^`shard_bits` shards that grows with its content. `seed` keeps outsiders
    /// from choosing keys that crowd one cell.
    pub(super) fn new(shard_bits: u32, seed: u64) -> Result<CellTable<V, N>, OutOfMemory> {
        CellTable::with_room(shard_bits, seed, 0)
    }

    /// The same with room for about `entries` from the beginning.
    pub(super) fn with_room(
        shard_bits: u32,
        seed: u64,
        entries: usize,
    ) -> Result<CellTable<V, N>, OutOfMemory> {
        const { assert!(N <= 8, "one bit a slot") };
        debug_assert!((1..=16).contains(&shard_bits));
        let mut shards = alloc::with_capacity(1 << shard_bits)?;
        shards.resize_with(1 << shard_bits, || Shard { cells: Vec::new(), len: 0, pending: 0 });
        let cells_min = match entries >> shard_bits {
            0..8 => 0,
            // A shard's share varies; a few of them will grow once.
            share => cells_for::<N>(share + share / 64),
        };
        let mut table = CellTable { shards, shard_bits, seed, len: 0, cells_min };
        if cells_min > 0 {
            (0..table.shards.len()).try_for_each(|shard| table.rebuild(shard, cells_min))?;
        }
        Ok(table)
    }

    /// Entries.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Bytes of all cells and shards.
    pub(super) fn bytes(&self) -> usize {
        let cells: usize = self.shards.iter().map(|shard| shard.cells.capacity()).sum();
        cells * size_of::<Cell<V, N>>() + self.shards.capacity() * size_of::<Shard<V, N>>()
    }

    /// Brings the cell of `key` near.
    #[inline]
    pub(super) fn prefetch(&self, key: u64) {
        let (shard, mixed) = self.shard_of(key);
        if let Some(cell) = self.shards[shard].cells.get(self.shards[shard].home(mixed)) {
            simd::prefetch(&cell.keys);
            if size_of::<Cell<V, N>>() > 64 {
                simd::prefetch(&cell.values);
            }
        }
    }

    /// Where `key` lies.
    #[inline]
    pub(super) fn find(&self, key: u64) -> Option<Slot> {
        let (shard_index, mixed) = self.shard_of(key);
        let shard = &self.shards[shard_index];
        let mut cell_index = shard.home(mixed);
        for _ in 0..shard.cells.len() {
            let cell = &shard.cells[cell_index];
            if let Some(slot) = cell.find(key) {
                return Some(Slot { shard: shard_index, cell: cell_index, slot });
            }
            if cell.overflow == 0 {
                return None;
            }
            cell_index = shard.next(cell_index);
        }
        None
    }

    /// The value of an entry.
    #[inline]
    pub(super) fn value(&self, at: Slot) -> V {
        self.shards[at.shard].cells[at.cell].values[at.slot]
    }

    /// Changes the value of an entry.
    #[inline]
    pub(super) fn set_value(&mut self, at: Slot, value: V) {
        self.shards[at.shard].cells[at.cell].values[at.slot] = value;
    }

    /// The value of `key`.
    #[inline]
    pub(super) fn get(&self, key: u64) -> Option<V> {
        self.find(key).map(|at| self.value(at))
    }

    /// Makes room so that inserting all of `keys` cannot fail. Content is unchanged either way.
    pub(super) fn reserve(
        &mut self,
        keys: impl Iterator<Item = u64> + Clone,
    ) -> Result<(), OutOfMemory> {
        for key in keys.clone() {
            let (shard, _) = self.shard_of(key);
            self.shards[shard].pending += 1;
        }
        let mut outcome = Ok(());
        for key in keys {
            let (shard, _) = self.shard_of(key);
            let pending = std::mem::take(&mut self.shards[shard].pending);
            if outcome.is_ok() && pending != 0 {
                outcome = self.make_room(shard, pending);
            }
        }
        outcome
    }

    /// Adds a key that is not there. Room must have been reserved.
    pub(super) fn insert(&mut self, key: u64, value: V) {
        debug_assert!(self.find(key).is_none());
        let (shard, mixed) = self.shard_of(key);
        self.shards[shard].insert(mixed, key, value);
        self.len += 1;
    }

    /// Takes an entry out. Gives memory back when little of the shard is used, if that works out.
    pub(super) fn remove(&mut self, at: Slot) {
        let key = self.shards[at.shard].cells[at.cell].keys[at.slot];
        let (shard_index, mixed) = self.shard_of(key);
        debug_assert_eq!(shard_index, at.shard);
        self.shards[shard_index].remove(mixed, at);
        self.len -= 1;
        self.shrink(shard_index);
    }

    /// All entries, in no useful order.
    pub(super) fn iter(&self) -> impl Iterator<Item = (u64, V)> + '_ {
        self.shards.iter().flat_map(|shard| shard.cells.iter().flat_map(Cell::entries))
    }

    /// Changes or drops every entry `visit` is called for: `Some` is the new value.
    pub(super) fn retain(&mut self, mut visit: impl FnMut(u64, V) -> Option<V>) {
        for shard_index in 0..self.shards.len() {
            for cell in 0..self.shards[shard_index].cells.len() {
                for slot in 0..N {
                    let at = Slot { shard: shard_index, cell, slot };
                    let found = &self.shards[shard_index].cells[cell];
                    if found.used & (1 << slot) == 0 {
                        continue;
                    }
                    let key = found.keys[slot];
                    match visit(key, found.values[slot]) {
                        Some(value) => self.set_value(at, value),
                        None => {
                            let (_, mixed) = self.shard_of(key);
                            self.shards[shard_index].remove(mixed, at);
                            self.len -= 1;
                        }
                    }
                }
            }
            self.shrink(shard_index);
        }
    }

    /// The shard of a key, and the rest of the mixed key for the place in it.
    #[inline]
    fn shard_of(&self, key: u64) -> (usize, u64) {
        let mixed = (key ^ self.seed).wrapping_mul(MIX);
        ((mixed >> (64 - self.shard_bits)) as usize, mixed << self.shard_bits)
    }

    fn make_room(&mut self, shard_index: usize, more: usize) -> Result<(), OutOfMemory> {
        let shard = &self.shards[shard_index];
        let wanted = shard.len + more;
        if wanted * 32 <= shard.cells.len() * N * LOAD_MAX_32NDS {
            return Ok(());
        }
        let grown = shard.cells.len() + shard.cells.len() / 2 + 1;
        self.rebuild(shard_index, cells_for::<N>(wanted).max(grown))
    }

    /// Gives memory back when little of a shard is used. Keeping the larger one is always right,
    /// so a refused allocation is no failure.
    fn shrink(&mut self, shard_index: usize) {
        let shard = &self.shards[shard_index];
        let small = shard.cells.len() <= self.cells_min.max(1);
        if !small && shard.len * SHRINK_BELOW < shard.cells.len() * N {
            let cells = cells_for::<N>(shard.len * 2).max(self.cells_min);
            let _ = self.rebuild(shard_index, cells);
        }
    }

    fn rebuild(&mut self, shard_index: usize, cells: usize) -> Result<(), OutOfMemory> {
        let empty = Cell { keys: [0; N], overflow: 0, used: 0, values: [V::default(); N] };
        let mut fresh = Shard { cells: alloc::with_capacity(cells)?, len: 0, pending: 0 };
        fresh.cells.resize(cells, empty);
        for (key, value) in self.shards[shard_index].cells.iter().flat_map(Cell::entries) {
            let (_, mixed) = self.shard_of(key);
            fresh.insert(mixed, key, value);
        }
        fresh.pending = self.shards[shard_index].pending;
        self.shards[shard_index] = fresh;
        Ok(())
    }
}

impl<V: Copy, const N: usize> Cell<V, N> {
    const FULL: u8 = ((1u16 << N) - 1) as u8;

    /// Compares all keys without a branch: the loop becomes vector code.
    #[inline]
    fn find(&self, key: u64) -> Option<usize> {
        let mut hits = 0;
        for (slot, held) in self.keys.iter().enumerate() {
            hits |= u8::from(*held == key) << slot;
        }
        hits &= self.used;
        (hits != 0).then(|| hits.trailing_zeros() as usize)
    }

    fn entries(&self) -> impl Iterator<Item = (u64, V)> + '_ {
        (0..N)
            .filter(|slot| self.used & (1 << slot) != 0)
            .map(|slot| (self.keys[slot], self.values[slot]))
    }
}

impl<V: Copy, const N: usize> Shard<V, N> {
    /// The first cell to look at: the mixed key scaled to the number of cells.
    #[inline]
    fn home(&self, mixed: u64) -> usize {
        ((u128::from(mixed) * self.cells.len() as u128) >> 64) as usize
    }

    #[inline]
    fn next(&self, cell: usize) -> usize {
        if cell + 1 == self.cells.len() { 0 } else { cell + 1 }
    }

    fn insert(&mut self, mixed: u64, key: u64, value: V) {
        let mut cell_index = self.home(mixed);
        while self.cells[cell_index].used == Cell::<V, N>::FULL {
            let overflow = &mut self.cells[cell_index].overflow;
            *overflow = overflow.saturating_add(1);
            cell_index = self.next(cell_index);
        }
        let cell = &mut self.cells[cell_index];
        let slot = cell.used.trailing_ones() as usize;
        cell.used |= 1 << slot;
        cell.keys[slot] = key;
        cell.values[slot] = value;
        self.len += 1;
    }

    fn remove(&mut self, mixed: u64, at: Slot) {
        self.cells[at.cell].used &= !(1 << at.slot);
        self.len -= 1;
        let mut cell_index = self.home(mixed);
        while cell_index != at.cell {
            let overflow = &mut self.cells[cell_index].overflow;
            if *overflow != u16::MAX {
                *overflow -= 1;
            }
            cell_index = self.next(cell_index);
        }
    }
}

/// Cells that hold `entries` within the load limit.
fn cells_for<const N: usize>(entries: usize) -> usize {
    (entries * 32).div_ceil(N * LOAD_MAX_32NDS).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashMap;

    #[test]
    fn cells_fill_whole_cache_lines() {
        assert_eq!(size_of::<Cell<u32, 5>>(), 64);
        assert_eq!(size_of::<Cell<u64, 7>>(), 128);
    }

    #[test]
    fn grows_and_shrinks_with_its_content() {
        let mut table: CellTable<u32, 5> = CellTable::new(2, 9).unwrap();
        for key in 0..10_000 {
            table.reserve(std::iter::once(key)).unwrap();
            table.insert(key, key as u32);
        }
        let full = table.bytes();
        assert!(full < 10_000 * 22, "{full} bytes");
        assert!((0..10_000).all(|key| table.get(key) == Some(key as u32)));
        assert_eq!(table.get(10_000), None);
        for key in 0..9_990 {
            table.remove(table.find(key).unwrap());
        }
        assert!(table.bytes() < full / 50, "{} bytes", table.bytes());
        assert_eq!(table.iter().count(), 10);
    }

    #[test]
    fn room_that_was_asked_for_stays() {
        let mut table: CellTable<u32, 5> = CellTable::with_room(4, 9, 10_000).unwrap();
        let before = table.bytes();
        assert!(before < 10_000 * 15, "{before} bytes");
        table.reserve(0..9_000).unwrap();
        (0..9_000).for_each(|key| table.insert(key, 1));
        assert_eq!(table.bytes(), before);
        (0..9_000).for_each(|key| table.remove(table.find(key).unwrap()));
        assert_eq!(table.bytes(), before);
    }

    #[test]
    fn a_refused_reservation_changes_nothing() {
        let mut table: CellTable<u32, 5> = CellTable::new(1, 0).unwrap();
        table.reserve(0..4).unwrap();
        (0..4).for_each(|key| table.insert(key, 1));
        alloc::fail_at(0);
        assert_eq!(table.reserve(10..100), Err(OutOfMemory));
        assert!(alloc::allow_all());
        assert_eq!(table.iter().count(), 4);
        table.reserve(10..100).unwrap();
        (10..100).for_each(|key| table.insert(key, 2));
        assert_eq!(table.len(), 94);
    }

    proptest! {
        #[test]
        fn behaves_like_a_map(
            seed: u64,
            steps in prop::collection::vec((any::<bool>(), 0u64..200), 0..600),
        ) {
            let mut table: CellTable<u64, 7> = CellTable::new(1, seed).unwrap();
            let mut model = HashMap::new();
            for (step, (insert, key)) in steps.into_iter().enumerate() {
                match (insert, table.find(key)) {
                    (true, None) => {
                        table.reserve(std::iter::once(key)).unwrap();
                        table.insert(key, step as u64);
                        model.insert(key, step as u64);
                    }
                    (true, Some(at)) => {
                        table.set_value(at, step as u64);
                        model.insert(key, step as u64);
                    }
                    (false, Some(at)) => {
                        table.remove(at);
                        prop_assert!(model.remove(&key).is_some());
                    }
                    (false, None) => prop_assert!(!model.contains_key(&key)),
                }
                prop_assert_eq!(table.len(), model.len());
            }
            let found: HashMap<u64, u64> = table.iter().collect();
            prop_assert_eq!(&found, &model);
            table.retain(|key, value| (key % 3 == 0).then_some(value + 1));
            model.retain(|key, _| key % 3 == 0);
            model.values_mut().for_each(|value| *value += 1);
            prop_assert!((0..200).all(|key| table.get(key) == model.get(&key).copied()));
        }
    }
}
