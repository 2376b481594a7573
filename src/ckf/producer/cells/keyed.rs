//! Cells that keep whole keys: seven bytes of the mixed key, whose eighth numbers the shard.
//! Mixing can be undone, so a table of these can tell its keys.

use super::{Cell, CellTable, KEPT_BITS, MIX, SHARDS, Slot, home, slots};
use crate::ckf::alloc::OutOfMemory;

/// Takes [`MIX`] back.
pub(super) const UNMIX: u64 = inverse(MIX);

/// `N` values `V` with their keys.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(64))]
pub(in crate::ckf::producer) struct KeyedCell<V, const N: usize> {
    /// The kept bits of the mixed keys: 32, 16 and 8 of them.
    low: [u32; N],
    middle: [u16; N],
    overflow: u16,
    high: [u8; N],
    used: u8,
    values: [V; N],
}

/// A value that an unused slot can hold.
pub(in crate::ckf::producer) trait Unset: Copy {
    const UNSET: Self;
}

impl<const N: usize> Unset for [u8; N] {
    const UNSET: Self = [0; N];
}

impl<V: Unset, const N: usize> Cell for KeyedCell<V, N> {
    type Value = V;
    const SLOTS: usize = N;
    const EMPTY: Self = KeyedCell {
        low: [0; N],
        middle: [0; N],
        overflow: 0,
        high: [0; N],
        used: 0,
        values: [V::UNSET; N],
    };

    #[inline]
    fn used(&self) -> u16 {
        self.used.into()
    }

    #[inline]
    fn overflow(&mut self) -> &mut u16 {
        &mut self.overflow
    }

    #[inline]
    fn was_passed(&self) -> bool {
        self.overflow != 0
    }

    /// Compares half of each key without a branch, so that the loop becomes vector code; the rest
    /// of those that seem right.
    #[inline]
    fn candidates(&self, mixed: u64) -> u16 {
        let mut hits = 0;
        for (slot, low) in self.low.iter().enumerate() {
            hits |= u8::from(*low == mixed as u32) << slot;
        }
        hits &= self.used;
        let wanted = ((mixed >> 32) as u16, (mixed >> 48) as u8);
        let is_whole = |slot: &usize| (self.middle[*slot], self.high[*slot]) == wanted;
        slots(hits.into()).find(is_whole).map_or(0, |slot| 1 << slot)
    }

    #[inline]
    fn value(&self, slot: usize) -> V {
        self.values[slot]
    }

    #[inline]
    fn set_value(&mut self, slot: usize, value: V) {
        self.values[slot] = value;
    }

    #[inline]
    fn fill(&mut self, slot: usize, mixed: u64, value: V) {
        self.used |= 1 << slot;
        self.low[slot] = mixed as u32;
        self.middle[slot] = (mixed >> 32) as u16;
        self.high[slot] = (mixed >> 48) as u8;
        self.values[slot] = value;
    }

    #[inline]
    fn free(&mut self, slot: usize) {
        self.used &= !(1 << slot);
    }
}

impl<V: Unset, const N: usize> KeyedCell<V, N> {
    /// The mixed key in a slot of a cell of shard number `shard`.
    #[inline]
    fn mixed(&self, shard: usize, slot: usize) -> u64 {
        let top = (shard as u64) << KEPT_BITS | u64::from(self.high[slot]) << 48;
        top | u64::from(self.middle[slot]) << 32 | u64::from(self.low[slot])
    }
}

impl<V: Unset, const N: usize> CellTable<KeyedCell<V, N>> {
    /// Where `key` lies.
    #[inline]
    pub(in crate::ckf::producer) fn find(&self, key: u64) -> Option<Slot> {
        self.find_by(key, |_, _| true)
    }

    /// The value of `key`.
    #[inline]
    pub(in crate::ckf::producer) fn get(&self, key: u64) -> Option<V> {
        self.find(key).map(|at| self.value(at))
    }

    /// See [`CellTable::reserve_by`].
    pub(in crate::ckf::producer) fn reserve(
        &mut self,
        keys: impl Iterator<Item = u64> + Clone,
    ) -> Result<(), OutOfMemory> {
        self.reserve_by(keys, Self::key_of)
    }

    /// See [`CellTable::remove_by`].
    pub(in crate::ckf::producer) fn remove(&mut self, at: Slot) {
        self.remove_by(at, Self::key_of);
    }

    /// All entries, in no useful order.
    pub(in crate::ckf::producer) fn iter(&self) -> impl Iterator<Item = (u64, V)> + '_ {
        (0..SHARDS).flat_map(move |shard| {
            self.cells(shard).iter().flat_map(move |cell| {
                slots(cell.used())
                    .map(move |slot| (self.key_of(shard, cell, slot), cell.value(slot)))
            })
        })
    }

    /// Changes or drops every entry `visit` is called for: `Some` is the new value.
    pub(in crate::ckf::producer) fn retain(&mut self, mut visit: impl FnMut(u64, V) -> Option<V>) {
        for shard in 0..SHARDS {
            for cell in 0..self.cells(shard).len() {
                let found = self.cells(shard)[cell];
                for slot in slots(found.used()) {
                    match visit(self.key_of(shard, &found, slot), found.value(slot)) {
                        Some(value) => self.cells_mut(shard)[cell].set_value(slot, value),
                        None => {
                            let home = home(found.mixed(shard, slot), self.cells(shard).len());
                            self.take_out(Slot { shard, home, cell, slot });
                        }
                    }
                }
            }
            self.shrink(shard, Self::key_of);
        }
    }

    #[inline]
    fn key_of(&self, shard: usize, cell: &KeyedCell<V, N>, slot: usize) -> u64 {
        self.unmix(cell.mixed(shard, slot))
    }

    #[inline]
    pub(super) fn unmix(&self, mixed: u64) -> u64 {
        mixed.wrapping_mul(UNMIX) ^ self.seed
    }
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
