//! An open-addressing table of 64-bit keys made for the exact state of a producer.
//!
//! Keys lie in *cells* of one cache line. A cell that is full lets later keys pass to the next one
//! and counts them (`overflow`), so a search ends at the first cell nobody passed, and a removal
//! leaves no tombstone. Measured needs this answers: nine tenths of a producer's time went into
//! cache misses of two general hash maps, and their memory was fifteen times the filter's.
//!
//! The table is cut into shards by the top byte of the mixed key, which is therefore not kept:
//! mixing can be undone, so seven bytes and the shard are the whole key. Each shard grows on its
//! own, so a growing step never stalls the owner's loop for the whole table, and the load stays
//! high. What is expected from the beginning lies in one piece that large pages can back.
//! Inserting never allocates: room is reserved first and may be refused.

use crate::ckf::alloc::{self, OutOfMemory};
use crate::ckf::simd;

/// Odd multiplier (2^64 over the golden ratio): spreads sequential keys over the high bits.
const MIX: u64 = 0x9E37_79B9_7F4A_7C15;
/// Takes [`MIX`] back.
const UNMIX: u64 = inverse(MIX);
/// Bits of a mixed key that a cell keeps; the others number its shard.
const KEPT_BITS: u32 = 56;
/// Shards of a table.
const SHARDS: usize = 1 << (64 - KEPT_BITS);
/// A shard grows when it would be fuller than this many 32nds.
const LOAD_MAX_32NDS: usize = 30;
/// A shard is made for this many 32nds: shards get unequal shares of what comes.
const LOAD_MADE_32NDS: usize = 28;
/// A shard shrinks when it is emptier than one in this many slots.
const SHRINK_BELOW: usize = 4;
/// Fewest entries a shard must expect to have cells for them from the beginning.
const SHARE_MIN: usize = 8;

/// A table of values `V`, `N` of them a cell.
#[derive(Debug)]
pub(super) struct CellTable<V, const N: usize> {
    /// What the shards have from the beginning, one after the other.
    base: Vec<Cell<V, N>>,
    /// Cells of one shard in there.
    base_each: usize,
    /// It was made for what is expected, which is not far off: beyond that shards grow little.
    is_sized: bool,
    shards: Vec<Shard<V, N>>,
    seed: u64,
    len: usize,
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
    /// The kept bits of the mixed keys: 32, 16 and 8 of them.
    low: [u32; N],
    middle: [u16; N],
    /// Keys that passed this cell because it was full. Sticks at its maximum.
    overflow: u16,
    high: [u8; N],
    /// Which slots are in use, one bit each.
    used: u8,
    values: [V; N],
}

#[derive(Debug)]
struct Shard<V, const N: usize> {
    /// Cells of its own, once it has outgrown its part of the base.
    own: Vec<Cell<V, N>>,
    len: u32,
    /// Insertions counted so far by a reservation under way.
    pending: u32,
}

impl<V: Copy + Default, const N: usize> CellTable<V, N> {
    /// An empty table that grows with its content. `seed` keeps outsiders from choosing keys that
    /// crowd one cell.
    pub(super) fn new(seed: u64) -> Result<CellTable<V, N>, OutOfMemory> {
        CellTable::with_room(seed, 0)
    }

    /// The same with room for about `entries` from the beginning.
    pub(super) fn with_room(seed: u64, entries: usize) -> Result<CellTable<V, N>, OutOfMemory> {
        const { assert!(N <= 8, "one bit a slot") };
        let mut shards = alloc::with_capacity(SHARDS)?;
        shards.resize_with(SHARDS, || Shard { own: Vec::new(), len: 0, pending: 0 });
        let base_each = match entries / SHARDS {
            0..SHARE_MIN => 0,
            share => cells_for::<N>(share),
        };
        let mut base = alloc::with_capacity(base_each * SHARDS)?;
        simd::advise_huge_pages(&mut base);
        base.resize(base_each * SHARDS, Cell::empty());
        Ok(CellTable { base, base_each, is_sized: base_each > 0, shards, seed, len: 0 })
    }

    /// Entries.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Bytes of all cells and shards.
    pub(super) fn bytes(&self) -> usize {
        let own: usize = self.shards.iter().map(|shard| shard.own.capacity()).sum();
        (self.base.capacity() + own) * size_of::<Cell<V, N>>()
            + self.shards.capacity() * size_of::<Shard<V, N>>()
    }

    /// Brings the cell of `key` near.
    #[inline]
    pub(super) fn prefetch(&self, key: u64) {
        let mixed = self.mix(key);
        let cells = self.cells(shard_of(mixed));
        if let Some(cell) = cells.get(home(mixed, cells.len())) {
            simd::prefetch(cell);
        }
    }

    /// Where `key` lies.
    #[inline]
    pub(super) fn find(&self, key: u64) -> Option<Slot> {
        let mixed = self.mix(key);
        let shard = shard_of(mixed);
        let cells = self.cells(shard);
        let mut cell = home(mixed, cells.len());
        for _ in 0..cells.len() {
            if let Some(slot) = cells[cell].find(mixed) {
                return Some(Slot { shard, cell, slot });
            }
            if cells[cell].overflow == 0 {
                return None;
            }
            cell = next(cell, cells.len());
        }
        None
    }

    /// The value of an entry.
    #[inline]
    pub(super) fn value(&self, at: Slot) -> V {
        self.cells(at.shard)[at.cell].values[at.slot]
    }

    /// Changes the value of an entry.
    #[inline]
    pub(super) fn set_value(&mut self, at: Slot, value: V) {
        self.cells_mut(at.shard)[at.cell].values[at.slot] = value;
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
        let most = keys.clone().count();
        let has_room = |key| {
            let shard = shard_of(self.mix(key));
            self.shards[shard].len as usize + most <= room::<N>(self.cells(shard).len())
        };
        if keys.clone().all(has_room) {
            return Ok(());
        }
        for key in keys.clone() {
            let shard = shard_of(self.mix(key));
            self.shards[shard].pending += 1;
        }
        let mut outcome = Ok(());
        for key in keys {
            let shard = shard_of(self.mix(key));
            let pending = std::mem::take(&mut self.shards[shard].pending);
            if outcome.is_ok() && pending != 0 {
                outcome = self.make_room(shard, pending as usize);
            }
        }
        outcome
    }

    /// Adds a key that is not there. Room must have been reserved.
    pub(super) fn insert(&mut self, key: u64, value: V) {
        debug_assert!(self.find(key).is_none());
        let mixed = self.mix(key);
        let shard = shard_of(mixed);
        insert(self.cells_mut(shard), mixed, value);
        self.shards[shard].len += 1;
        self.len += 1;
    }

    /// Takes an entry out. Gives memory back when little of the shard is used, if that works out.
    pub(super) fn remove(&mut self, at: Slot) {
        self.take_out(at);
        self.shrink(at.shard);
    }

    /// All entries, in no useful order.
    pub(super) fn iter(&self) -> impl Iterator<Item = (u64, V)> + '_ {
        (0..SHARDS).flat_map(|shard| {
            let cells = self.cells(shard).iter();
            let entries = cells.flat_map(move |cell| cell.entries(shard));
            entries.map(|(mixed, value)| (self.unmix(mixed), value))
        })
    }

    /// Changes or drops every entry `visit` is called for: `Some` is the new value.
    pub(super) fn retain(&mut self, mut visit: impl FnMut(u64, V) -> Option<V>) {
        for shard in 0..SHARDS {
            for cell in 0..self.cells(shard).len() {
                for slot in 0..N {
                    let found = &self.cells(shard)[cell];
                    if found.used & (1 << slot) == 0 {
                        continue;
                    }
                    let at = Slot { shard, cell, slot };
                    let key = self.unmix(found.mixed(shard, slot));
                    match visit(key, found.values[slot]) {
                        Some(value) => self.set_value(at, value),
                        None => self.take_out(at),
                    }
                }
            }
            self.shrink(shard);
        }
    }

    #[inline]
    fn mix(&self, key: u64) -> u64 {
        (key ^ self.seed).wrapping_mul(MIX)
    }

    #[inline]
    fn unmix(&self, mixed: u64) -> u64 {
        mixed.wrapping_mul(UNMIX) ^ self.seed
    }

    #[inline]
    fn cells(&self, shard: usize) -> &[Cell<V, N>] {
        let own = &self.shards[shard].own;
        match own.is_empty() {
            true => &self.base[shard * self.base_each..][..self.base_each],
            false => own,
        }
    }

    #[inline]
    fn cells_mut(&mut self, shard: usize) -> &mut [Cell<V, N>] {
        let own = &mut self.shards[shard].own;
        match own.is_empty() {
            true => &mut self.base[shard * self.base_each..][..self.base_each],
            false => own,
        }
    }

    fn take_out(&mut self, at: Slot) {
        let cells = self.cells_mut(at.shard);
        let mut cell = home(cells[at.cell].mixed(at.shard, at.slot), cells.len());
        cells[at.cell].used &= !(1 << at.slot);
        while cell != at.cell {
            let overflow = &mut cells[cell].overflow;
            if *overflow != u16::MAX {
                *overflow -= 1;
            }
            cell = next(cell, cells.len());
        }
        self.shards[at.shard].len -= 1;
        self.len -= 1;
    }

    fn make_room(&mut self, shard: usize, more: usize) -> Result<(), OutOfMemory> {
        let cells = self.cells(shard).len();
        let wanted = self.shards[shard].len as usize + more;
        if wanted <= room::<N>(cells) {
            return Ok(());
        }
        let step = if self.is_sized { cells / 8 } else { cells / 2 };
        self.rebuild(shard, cells_for::<N>(wanted).max(cells + step + 1))
    }

    /// Gives memory back when little of a shard is used. Keeping the larger one is always right,
    /// so a refused allocation is no failure.
    fn shrink(&mut self, shard: usize) {
        let (len, cells) = (self.shards[shard].len as usize, self.shards[shard].own.len());
        if len * SHRINK_BELOW < cells * N {
            let fewer = cells_for::<N>(len * 2).max(self.base_each);
            let _ = if fewer < cells { self.rebuild(shard, fewer) } else { Ok(()) };
        }
    }

    /// Moves a shard to so many cells of its own.
    fn rebuild(&mut self, shard: usize, count: usize) -> Result<(), OutOfMemory> {
        let mut own = alloc::with_capacity(count)?;
        own.resize(count, Cell::empty());
        for (mixed, value) in self.cells(shard).iter().flat_map(|cell| cell.entries(shard)) {
            insert(&mut own, mixed, value);
        }
        self.shards[shard].own = own;
        // Nothing looks at the base any more once all have left it.
        if self.base_each > 0 && self.shards.iter().all(|shard| !shard.own.is_empty()) {
            (self.base, self.base_each) = (Vec::new(), 0);
        }
        Ok(())
    }
}

impl<V: Copy + Default, const N: usize> Cell<V, N> {
    fn empty() -> Cell<V, N> {
        Cell {
            low: [0; N],
            middle: [0; N],
            overflow: 0,
            high: [0; N],
            used: 0,
            values: [V::default(); N],
        }
    }
}

impl<V: Copy, const N: usize> Cell<V, N> {
    const FULL: u8 = ((1u16 << N) - 1) as u8;

    /// Compares half of each key without a branch, so that the loop becomes vector code; the rest
    /// of those that seem right.
    #[inline]
    fn find(&self, mixed: u64) -> Option<usize> {
        let mut hits = 0;
        for (slot, low) in self.low.iter().enumerate() {
            hits |= u8::from(*low == mixed as u32) << slot;
        }
        hits &= self.used;
        while hits != 0 {
            let slot = hits.trailing_zeros() as usize;
            let rest = (self.middle[slot], self.high[slot]);
            if rest == ((mixed >> 32) as u16, (mixed >> 48) as u8) {
                return Some(slot);
            }
            hits &= hits - 1;
        }
        None
    }

    /// The mixed key in a slot of a cell of shard number `shard`.
    #[inline]
    fn mixed(&self, shard: usize, slot: usize) -> u64 {
        let top = (shard as u64) << KEPT_BITS | u64::from(self.high[slot]) << 48;
        top | u64::from(self.middle[slot]) << 32 | u64::from(self.low[slot])
    }

    fn entries(&self, shard: usize) -> impl Iterator<Item = (u64, V)> + '_ {
        (0..N)
            .filter(|slot| self.used & (1 << slot) != 0)
            .map(move |slot| (self.mixed(shard, slot), self.values[slot]))
    }
}

/// Puts an entry into the first cell from its home on that has room; there is one.
fn insert<V: Copy, const N: usize>(cells: &mut [Cell<V, N>], mixed: u64, value: V) {
    let mut at = home(mixed, cells.len());
    while cells[at].used == Cell::<V, N>::FULL {
        cells[at].overflow = cells[at].overflow.saturating_add(1);
        at = next(at, cells.len());
    }
    let cell = &mut cells[at];
    let slot = cell.used.trailing_ones() as usize;
    cell.used |= 1 << slot;
    cell.low[slot] = mixed as u32;
    cell.middle[slot] = (mixed >> 32) as u16;
    cell.high[slot] = (mixed >> 48) as u8;
    cell.values[slot] = value;
}

#[inline]
fn shard_of(mixed: u64) -> usize {
    (mixed >> KEPT_BITS) as usize
}

/// The first of `cells` to look at: the kept bits scaled to their number.
#[inline]
fn home(mixed: u64, cells: usize) -> usize {
    ((u128::from(mixed << (64 - KEPT_BITS)) * cells as u128) >> 64) as usize
}

#[inline]
fn next(cell: usize, cells: usize) -> usize {
    if cell + 1 == cells { 0 } else { cell + 1 }
}

/// Entries that so many cells take.
#[inline]
fn room<const N: usize>(cells: usize) -> usize {
    cells * N * LOAD_MAX_32NDS / 32
}

/// Cells for a shard of `entries` and what comes on top by chance.
fn cells_for<const N: usize>(entries: usize) -> usize {
    (entries * 32).div_ceil(N * LOAD_MADE_32NDS).max(1)
}

/// What undoes a multiplication by an odd number: each step doubles the bits that are right.
const fn inverse(odd: u64) -> u64 {
    let mut found = odd;
    let mut right = 3;
    while right < 64 {
        found = found.wrapping_mul(2u64.wrapping_sub(odd.wrapping_mul(found)));
        right *= 2;
    }
    found
}

#[cfg(test)]
mod tests;
