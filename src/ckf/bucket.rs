//! One bucket: four 16-bit fingerprints packed in a `u64`, slot 0 in the lowest bits.
//!
//! Zero is an empty slot, so a fingerprint is never zero. Slots need not be compact. The searches
//! work on all four slots at once: the sum trick marks the lowest zero 16-bit lane exactly (lanes
//! above it may be marked falsely, so only the lowest mark is used).

const LOW: u64 = 0x0001_0001_0001_0001;
const HIGH: u64 = 0x8000_8000_8000_8000;
/// Slots of a bucket.
pub const SLOTS: usize = 4;

/// The new value of one bucket. Absolute, so applying it twice is harmless.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct BucketImage {
    /// Which bucket.
    pub bucket: u32,
    /// Its word.
    pub word: u64,
}

/// `fingerprint` in every slot.
#[inline]
pub fn broadcast(fingerprint: u16) -> u64 {
    u64::from(fingerprint) * LOW
}

/// The lowest empty slot.
#[inline]
pub fn first_empty(word: u64) -> Option<usize> {
    lowest_zero(word)
}

/// The lowest slot that holds `fingerprint`.
#[inline]
pub fn find(word: u64, fingerprint: u16) -> Option<usize> {
    lowest_zero(word ^ broadcast(fingerprint))
}

/// True when some slot holds `fingerprint`.
#[inline]
pub fn contains(word: u64, fingerprint: u16) -> bool {
    zero_marks(word ^ broadcast(fingerprint)) != 0
}

/// The fingerprint in `slot`; 0 when empty.
#[inline]
pub fn get(word: u64, slot: usize) -> u16 {
    (word >> (16 * slot)) as u16
}

/// `word` with `fingerprint` (or 0 for empty) in `slot`.
#[inline]
pub fn set(word: u64, slot: usize, fingerprint: u16) -> u64 {
    let shift = 16 * slot;
    (word & !(0xFFFF << shift)) | (u64::from(fingerprint) << shift)
}

/// Number of slots in use.
#[inline]
pub fn occupied(word: u64) -> u32 {
    (0..SLOTS).map(|slot| u32::from(get(word, slot) != 0)).sum()
}

#[inline]
fn zero_marks(word: u64) -> u64 {
    word.wrapping_sub(LOW) & !word & HIGH
}

#[inline]
fn lowest_zero(word: u64) -> Option<usize> {
    let marks = zero_marks(word);
    (marks != 0).then(|| marks.trailing_zeros() as usize / 16)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ckf::vectors;
    use proptest::prelude::*;

    #[test]
    fn packing_matches_the_vectors() {
        let all = vectors::ckf();
        let mut word = 0;
        for row in vectors::rows(&all["bucket_packing"]) {
            let slot = vectors::num(&row["set_slot"]) as usize;
            word = set(word, slot, vectors::num(&row["set_fingerprint"]) as u16);
            assert_eq!(word, vectors::num(&row["word"]));
            let empty = row["first_empty"].as_u64().map(|slot| slot as usize);
            assert_eq!(first_empty(word), empty);
            for query in vectors::rows(&row["queries"]) {
                let fingerprint = vectors::num(&query["fingerprint"]) as u16;
                let slot = query["first_slot"].as_u64().map(|slot| slot as usize);
                assert_eq!(find(word, fingerprint), slot);
                assert_eq!(contains(word, fingerprint), query["present"].as_bool().unwrap());
            }
        }
    }

    proptest! {
        #[test]
        fn searches_agree_with_a_loop_over_slots(
            slots in prop::array::uniform4(
                prop_oneof![Just(0u16), Just(1), Just(0x8000), any::<u16>()],
            ),
            wanted in prop_oneof![1u16..4, Just(0x8000), Just(0x8001)],
        ) {
            let word = (0..4).fold(0, |word, slot| set(word, slot, slots[slot]));
            prop_assert_eq!(find(word, wanted), slots.iter().position(|&s| s == wanted));
            prop_assert_eq!(contains(word, wanted), slots.contains(&wanted));
            prop_assert_eq!(first_empty(word), slots.iter().position(|&s| s == 0));
            prop_assert_eq!(occupied(word) as usize, slots.iter().filter(|&&s| s != 0).count());
        }
    }
}
