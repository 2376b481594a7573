//! Cells of numbers that lead to something which knows its own key: a byte of the key tells most
//! of them apart, and whoever asks looks at the others.

use super::Cell;

/// Numbers of a cell.
const SLOTS: usize = 12;

/// Twelve numbers with their tags.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(64))]
pub(in crate::ckf::producer) struct TaggedCell {
    numbers: [u32; SLOTS],
    tags: [u8; SLOTS],
    overflow: u16,
    used: u16,
}

impl Cell for TaggedCell {
    type Value = u32;
    const SLOTS: usize = SLOTS;
    const EMPTY: Self = TaggedCell { numbers: [0; SLOTS], tags: [0; SLOTS], overflow: 0, used: 0 };

    #[inline]
    fn used(&self) -> u16 {
        self.used
    }

    #[inline]
    fn overflow(&mut self) -> &mut u16 {
        &mut self.overflow
    }

    #[inline]
    fn was_passed(&self) -> bool {
        self.overflow != 0
    }

    #[inline]
    fn candidates(&self, mixed: u64) -> u16 {
        let mut hits = 0;
        for (slot, tag) in self.tags.iter().enumerate() {
            hits |= u16::from(*tag == tag_of(mixed)) << slot;
        }
        hits & self.used
    }

    #[inline]
    fn value(&self, slot: usize) -> u32 {
        self.numbers[slot]
    }

    #[inline]
    fn set_value(&mut self, slot: usize, number: u32) {
        self.numbers[slot] = number;
    }

    #[inline]
    fn fill(&mut self, slot: usize, mixed: u64, number: u32) {
        self.used |= 1 << slot;
        self.tags[slot] = tag_of(mixed);
        self.numbers[slot] = number;
    }

    #[inline]
    fn free(&mut self, slot: usize) {
        self.used &= !(1 << slot);
    }
}

/// Bits that choose neither the shard nor, in tables of usual sizes, the cell.
#[inline]
fn tag_of(mixed: u64) -> u8 {
    (mixed >> 32) as u8
}
