//! An open-addressing table made for the exact state of a producer.
//!
//! Entries lie in *cells* of one cache line. A cell that is full lets later keys pass to the next
//! one and counts them (`overflow`), so a search ends at the first cell nobody passed, and a
//! removal leaves no tombstone. Measured needs this answers: nine tenths of a producer's time went
//! into cache misses of two general hash maps, and their memory was fifteen times the filter's.
//!
//! The table is cut into shards by the top byte of the mixed key. Each shard grows on its own, so
//! a growing step never stalls the owner's loop for the whole table, and the load stays high. What
//! is expected lies in one piece that large pages can back; it is asked for with the first entry,
//! since a producer of one kind of content never uses the tables of the other. Inserting never
//! allocates: room is reserved first and may be refused.
//!
//! There are two kinds of cells: [`KeyedCell`] keeps whole keys, [`TaggedCell`] keeps a byte of
//! them, and whoever asks tells the entries apart.

mod keyed;
mod tagged;
#[cfg(test)]
mod tests;

pub(super) use self::keyed::KeyedCell;
pub(super) use self::tagged::TaggedCell;

use crate::ckf::alloc::{self, OutOfMemory};
use crate::ckf::simd;

/// Odd multiplier (2^64 over the golden ratio): spreads sequential keys over the high bits.
const MIX: u64 = 0x9E37_79B9_7F4A_7C15;
/// Bits of a mixed key that choose a place in a shard; the others number the shard.
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

/// One cache line of a table.
pub(super) trait Cell: Copy {
    /// What an entry holds.
    type Value: Copy;
    /// Entries of a cell, at most 16.
    const SLOTS: usize;
    /// A cell without entries that nobody passed.
    const EMPTY: Self;

    /// The slots in use, one bit each.
    fn used(&self) -> u16;
    /// Keys that passed this cell because it was full. Sticks at its maximum.
    fn overflow(&mut self) -> &mut u16;
    /// Whether some key passed.
    fn was_passed(&self) -> bool;
    /// Slots in use that hold, or may hold, this mixed key, one bit each.
    fn candidates(&self, mixed: u64) -> u16;
    /// What is in a slot.
    fn value(&self, slot: usize) -> Self::Value;
    /// Changes what is in a slot.
    fn set_value(&mut self, slot: usize, value: Self::Value);
    /// Uses a slot.
    fn fill(&mut self, slot: usize, mixed: u64, value: Self::Value);
    /// Frees a slot.
    fn free(&mut self, slot: usize);
}

/// A table of cells.
#[derive(Debug)]
pub(super) struct CellTable<C> {
    /// What the shards have from the beginning, one after the other.
    base: Vec<C>,
    /// Cells of one shard in there.
    base_each: usize,
    /// The base that is still to be made: cells of a shard.
    base_due: usize,
    /// It was made for what is expected, which is not far off: beyond that shards grow little.
    is_sized: bool,
    shards: Vec<Shard<C>>,
    seed: u64,
    len: usize,
}

/// Where an entry lies, until the next insertion or removal.
#[derive(Clone, Copy, Debug)]
pub(super) struct Slot {
    shard: usize,
    /// The cell at which its search began.
    home: usize,
    cell: usize,
    slot: usize,
}

#[derive(Debug)]
struct Shard<C> {
    /// Cells of its own, once it has outgrown its part of the base.
    own: Vec<C>,
    len: u32,
    /// Insertions counted so far by a reservation under way.
    pending: u32,
}

impl<C: Cell> CellTable<C> {
    /// An empty table with room for about `entries` from the first one on. `seed` keeps outsiders
    /// from choosing keys that crowd one cell.
    pub(super) fn new(seed: u64, entries: usize) -> Result<CellTable<C>, OutOfMemory> {
        const { assert!(C::SLOTS <= 16 && size_of::<C>() == 64) };
        let mut shards = alloc::with_capacity(SHARDS)?;
        shards.resize_with(SHARDS, || Shard { own: Vec::new(), len: 0, pending: 0 });
        let base_due = match entries / SHARDS {
            0..SHARE_MIN => 0,
            share => cells_for::<C>(share),
        };
        let (base, base_each, is_sized) = (Vec::new(), 0, base_due > 0);
        Ok(CellTable { base, base_each, base_due, is_sized, shards, seed, len: 0 })
    }

    /// Entries.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Bytes of all cells and shards.
    pub(super) fn bytes(&self) -> usize {
        let own: usize = self.shards.iter().map(|shard| shard.own.capacity()).sum();
        (self.base.capacity() + own) * size_of::<C>()
            + self.shards.capacity() * size_of::<Shard<C>>()
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

    /// The first entry that may be that of `key` and of which `is` holds.
    #[inline]
    pub(super) fn find_by(
        &self,
        key: u64,
        mut is: impl FnMut(Slot, C::Value) -> bool,
    ) -> Option<Slot> {
        let mixed = self.mix(key);
        let shard = shard_of(mixed);
        let cells = self.cells(shard);
        let home = home(mixed, cells.len());
        let mut cell = home;
        for _ in 0..cells.len() {
            for slot in slots(cells[cell].candidates(mixed)) {
                let at = Slot { shard, home, cell, slot };
                if is(at, cells[cell].value(slot)) {
                    return Some(at);
                }
            }
            if !cells[cell].was_passed() {
                return None;
            }
            cell = next(cell, cells.len());
        }
        None
    }

    /// Shows all entries that may be those of `key`.
    #[inline]
    pub(super) fn visit(&self, key: u64, mut look: impl FnMut(Slot, C::Value)) {
        self.find_by(key, |at, value| {
            look(at, value);
            false
        });
    }

    /// The value of an entry.
    #[inline]
    pub(super) fn value(&self, at: Slot) -> C::Value {
        self.cells(at.shard)[at.cell].value(at.slot)
    }

    /// Changes the value of an entry.
    #[inline]
    pub(super) fn set_value(&mut self, at: Slot, value: C::Value) {
        self.cells_mut(at.shard)[at.cell].set_value(at.slot, value);
    }

    /// Makes room so that inserting all of `keys` cannot fail. Content is unchanged either way.
    /// `key_of` gives the key of an entry: the number of its shard, its cell and slot.
    pub(super) fn reserve_by(
        &mut self,
        keys: impl Iterator<Item = u64> + Clone,
        key_of: impl Fn(&CellTable<C>, usize, &C, usize) -> u64 + Copy,
    ) -> Result<(), OutOfMemory> {
        let most = keys.clone().count();
        let has_room = |key| {
            let shard = shard_of(self.mix(key));
            self.shards[shard].len as usize + most <= room::<C>(self.cells(shard).len())
        };
        if keys.clone().all(has_room) {
            return Ok(());
        }
        self.make_base()?;
        for key in keys.clone() {
            let shard = shard_of(self.mix(key));
            self.shards[shard].pending += 1;
        }
        let mut outcome = Ok(());
        for key in keys {
            let shard = shard_of(self.mix(key));
            let pending = std::mem::take(&mut self.shards[shard].pending);
            if outcome.is_ok() && pending != 0 {
                outcome = self.make_room(shard, pending as usize, key_of);
            }
        }
        outcome
    }

    /// Adds an entry. Room must have been reserved.
    pub(super) fn insert(&mut self, key: u64, value: C::Value) {
        let mixed = self.mix(key);
        let shard = shard_of(mixed);
        insert(self.cells_mut(shard), mixed, value);
        self.shards[shard].len += 1;
        self.len += 1;
    }

    /// Takes an entry out. Gives memory back when little of the shard is used, if that works out;
    /// `key_of` as for [`CellTable::reserve_by`].
    pub(super) fn remove_by(
        &mut self,
        at: Slot,
        key_of: impl Fn(&CellTable<C>, usize, &C, usize) -> u64 + Copy,
    ) {
        self.take_out(at);
        self.shrink(at.shard, key_of);
    }

    #[inline]
    fn mix(&self, key: u64) -> u64 {
        (key ^ self.seed).wrapping_mul(MIX)
    }

    #[inline]
    fn cells(&self, shard: usize) -> &[C] {
        let own = &self.shards[shard].own;
        match own.is_empty() {
            true => &self.base[shard * self.base_each..][..self.base_each],
            false => own,
        }
    }

    #[inline]
    fn cells_mut(&mut self, shard: usize) -> &mut [C] {
        let own = &mut self.shards[shard].own;
        match own.is_empty() {
            true => &mut self.base[shard * self.base_each..][..self.base_each],
            false => own,
        }
    }

    fn take_out(&mut self, at: Slot) {
        let cells = self.cells_mut(at.shard);
        cells[at.cell].free(at.slot);
        let mut cell = at.home;
        while cell != at.cell {
            let overflow = cells[cell].overflow();
            if *overflow != u16::MAX {
                *overflow -= 1;
            }
            cell = next(cell, cells.len());
        }
        self.shards[at.shard].len -= 1;
        self.len -= 1;
    }

    /// Makes the piece for what is expected, the first time.
    fn make_base(&mut self) -> Result<(), OutOfMemory> {
        if self.base_due > 0 {
            let cells = self.base_due * SHARDS;
            let mut base = alloc::with_capacity(cells)?;
            simd::advise_huge_pages(&mut base);
            base.resize(cells, C::EMPTY);
            (self.base, self.base_each) = (base, self.base_due);
            self.base_due = 0;
        }
        Ok(())
    }

    fn make_room(
        &mut self,
        shard: usize,
        more: usize,
        key_of: impl Fn(&CellTable<C>, usize, &C, usize) -> u64,
    ) -> Result<(), OutOfMemory> {
        let cells = self.cells(shard).len();
        let wanted = self.shards[shard].len as usize + more;
        if wanted <= room::<C>(cells) {
            return Ok(());
        }
        let step = if self.is_sized { cells / 8 } else { cells / 2 };
        self.rebuild(shard, cells_for::<C>(wanted).max(cells + step + 1), key_of)
    }

    /// Gives memory back when little of a shard is used. Keeping the larger one is always right,
    /// so a refused allocation is no failure.
    fn shrink(&mut self, shard: usize, key_of: impl Fn(&CellTable<C>, usize, &C, usize) -> u64) {
        let (len, cells) = (self.shards[shard].len as usize, self.shards[shard].own.len());
        if len * SHRINK_BELOW < cells * C::SLOTS {
            let fewer = cells_for::<C>(len * 2).max(self.base_each);
            let _ = if fewer < cells { self.rebuild(shard, fewer, key_of) } else { Ok(()) };
        }
    }

    /// Moves a shard to so many cells of its own.
    fn rebuild(
        &mut self,
        shard: usize,
        count: usize,
        key_of: impl Fn(&CellTable<C>, usize, &C, usize) -> u64,
    ) -> Result<(), OutOfMemory> {
        let mut own = alloc::with_capacity(count)?;
        own.resize(count, C::EMPTY);
        for cell in self.cells(shard) {
            for slot in slots(cell.used()) {
                let key = key_of(self, shard, cell, slot);
                insert(&mut own, self.mix(key), cell.value(slot));
            }
        }
        self.shards[shard].own = own;
        // Nothing looks at the base any more once all have left it.
        if self.base_each > 0 && self.shards.iter().all(|shard| !shard.own.is_empty()) {
            (self.base, self.base_each) = (Vec::new(), 0);
        }
        Ok(())
    }
}

/// Puts an entry into the first cell from its home on that has room; there is one.
fn insert<C: Cell>(cells: &mut [C], mixed: u64, value: C::Value) {
    let mut at = home(mixed, cells.len());
    while cells[at].used().trailing_ones() as usize == C::SLOTS {
        let overflow = cells[at].overflow();
        *overflow = overflow.saturating_add(1);
        at = next(at, cells.len());
    }
    let slot = cells[at].used().trailing_ones() as usize;
    cells[at].fill(slot, mixed, value);
}

/// The numbers of the bits that are set.
fn slots(mut bits: u16) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let slot = (bits != 0).then(|| bits.trailing_zeros() as usize);
        bits &= bits.wrapping_sub(1);
        slot
    })
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
fn room<C: Cell>(cells: usize) -> usize {
    cells * C::SLOTS * LOAD_MAX_32NDS / 32
}

/// Cells for a shard of `entries` and what comes on top by chance.
fn cells_for<C: Cell>(entries: usize) -> usize {
    (entries * 32).div_ceil(C::SLOTS * LOAD_MADE_32NDS).max(1)
}
