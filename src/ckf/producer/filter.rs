//! The packed cuckoo filter: insertion with bounded relocation, removal, dirty tracking.

use super::dirty::{Closed, DirtyWindow};
use crate::ckf::addressing::{Address, Addressing};
use crate::ckf::alloc::{self, OutOfMemory};
use crate::ckf::bucket::{self, BucketImage};
use crate::ckf::format::CkfFormat;
use crate::ckf::hashing::SequenceHash;
use crate::ckf::simd;

/// No place was found within the allowed number of kicks. Nothing was changed. This does not
/// prove that the table is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct NoPlace;

/// A fingerprint that should be there is not. Nothing was changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Missing;

/// One filter and its open publication window.
#[derive(Debug)]
pub(super) struct Filter {
    format: CkfFormat,
    addressing: Addressing,
    words: Vec<u64>,
    occupied: usize,
    max_kicks: u32,
    random: SplitMix64,
    dirty: DirtyWindow,
    /// Bucket and word before each write of a relocation under way.
    undo: Vec<(u32, u64)>,
    /// Bucket writes of successful changes.
    touches: u64,
}

impl Filter {
    pub(super) fn new(format: CkfFormat, max_kicks: u32) -> Result<Filter, OutOfMemory> {
        let mut words = alloc::with_capacity(format.buckets())?;
        simd::advise_huge_pages(&mut words);
        words.resize(format.buckets(), 0);
        Ok(Filter {
            format,
            addressing: Addressing::new(&format),
            words,
            occupied: 0,
            max_kicks,
            random: SplitMix64(format.seed),
            dirty: DirtyWindow::new(format.buckets())?,
            undo: alloc::with_capacity(max_kicks as usize + 1)?,
            touches: 0,
        })
    }

    pub(super) fn format(&self) -> &CkfFormat {
        &self.format
    }

    pub(super) fn words(&self) -> &[u64] {
        &self.words
    }

    /// Slots in use.
    pub(super) fn occupied(&self) -> usize {
        self.occupied
    }

    pub(super) fn touches(&self) -> u64 {
        self.touches
    }

    pub(super) fn touched_buckets(&self) -> usize {
        self.dirty.touched().len()
    }

    pub(super) fn bytes(&self) -> usize {
        size_of_val(&self.words[..])
            + self.words.len() / 8
            + (self.dirty.touched().len() + self.undo.capacity()) * size_of::<(u32, u64)>()
    }

    #[inline]
    pub(super) fn address(&self, hash: SequenceHash) -> Address {
        self.addressing.address(hash)
    }

    #[inline]
    pub(super) fn prefetch(&self, at: Address) {
        simd::prefetch(&self.words[at.bucket_a() as usize]);
        simd::prefetch(&self.words[at.bucket_b() as usize]);
    }

    /// Whether the fingerprint, of this hash or of one like it, lies in either bucket. If not, the
    /// hash has no owner.
    #[inline]
    pub(super) fn contains(&self, at: Address) -> bool {
        [at.bucket_a(), at.bucket_b()]
            .iter()
            .any(|&index| bucket::contains(self.words[index as usize], at.fingerprint()))
    }

    /// Room in the publication window for `insertions` relocations at their worst.
    pub(super) fn reserve_insertions(&mut self, insertions: usize) -> Result<(), OutOfMemory> {
        let touches = insertions.saturating_mul(self.max_kicks as usize + 1);
        self.dirty.reserve(touches, self.words.len())
    }

    /// Room in the publication window for `removals` removals.
    pub(super) fn reserve_removals(&mut self, removals: usize) -> Result<(), OutOfMemory> {
        self.dirty.reserve(removals, self.words.len())
    }

    /// Adds one copy. Window room must have been reserved.
    pub(super) fn insert(&mut self, at: Address) -> Result<(), NoPlace> {
        for index in [at.bucket_a(), at.bucket_b()] {
            let word = self.words[index as usize];
            if let Some(slot) = bucket::first_empty(word) {
                self.write(index, bucket::set(word, slot, at.fingerprint()));
                self.occupied += 1;
                return Ok(());
            }
        }
        self.relocate(at)?;
        self.occupied += 1;
        Ok(())
    }

    /// Takes one copy away. Window room must have been reserved.
    pub(super) fn remove(&mut self, at: Address) -> Result<(), Missing> {
        for index in [at.bucket_a(), at.bucket_b()] {
            let word = self.words[index as usize];
            if let Some(slot) = bucket::find(word, at.fingerprint()) {
                self.write(index, bucket::set(word, slot, 0));
                self.occupied -= 1;
                return Ok(());
            }
        }
        Err(Missing)
    }

    /// Ends the publication window, see [`DirtyWindow::close`].
    pub(super) fn close_window(
        &mut self,
        out: &mut Vec<BucketImage>,
    ) -> Result<Closed, OutOfMemory> {
        self.dirty.close(&self.words, out)
    }

    /// Makes this filter's window hold what differs from what `old` had published.
    pub(super) fn continue_from(&mut self, old: &Filter) -> Result<(), OutOfMemory> {
        debug_assert_eq!(self.format, old.format);
        let mut published = alloc::with_capacity(old.words.len())?;
        published.extend_from_slice(&old.words);
        old.dirty.touched().iter().for_each(|&(index, word)| published[index as usize] = word);
        let mut dirty = DirtyWindow::new(self.words.len())?;
        let differs = published.iter().zip(&self.words).filter(|(a, b)| a != b).count();
        dirty.reserve(differs, self.words.len())?;
        for (index, (&before, &now)) in published.iter().zip(&self.words).enumerate() {
            if before != now {
                dirty.mark(index as u32, before);
            }
        }
        self.dirty = dirty;
        Ok(())
    }

    fn write(&mut self, index: u32, word: u64) {
        self.dirty.mark(index, self.words[index as usize]);
        self.words[index as usize] = word;
        self.touches += 1;
    }

    /// Random walk: put the carried fingerprint in the place of a random one, carry that to its
    /// other bucket, until some bucket has room. Written words are restored when none has.
    fn relocate(&mut self, at: Address) -> Result<(), NoPlace> {
        self.undo.clear();
        let mut carried = at.fingerprint();
        let mut index = if self.random.next() & 1 == 0 { at.bucket_a() } else { at.bucket_b() };
        for _ in 0..self.max_kicks {
            let word = self.words[index as usize];
            let slot = (self.random.next() % bucket::SLOTS as u64) as usize;
            let evicted = bucket::get(word, slot);
            self.undo.push((index, word));
            self.words[index as usize] = bucket::set(word, slot, carried);
            carried = evicted;
            index = self.addressing.alternate(index, carried);
            let next = self.words[index as usize];
            if let Some(slot) = bucket::first_empty(next) {
                self.undo.push((index, next));
                self.words[index as usize] = bucket::set(next, slot, carried);
                self.touches += self.undo.len() as u64;
                self.undo.iter().for_each(|&(index, before)| self.dirty.mark(index, before));
                return Ok(());
            }
        }
        for &(index, before) in self.undo.iter().rev() {
            self.words[index as usize] = before;
        }
        Err(NoPlace)
    }
}

/// Small generator for the random walk; its choices are no part of any contract.
#[derive(Debug)]
struct SplitMix64(u64);

impl SplitMix64 {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filter(buckets: u64, max_kicks: u32) -> Filter {
        Filter::new(CkfFormat::new(1, buckets).unwrap(), max_kicks).unwrap()
    }

    fn insert(filter: &mut Filter, hash: u64) -> Result<(), NoPlace> {
        filter.reserve_insertions(1).unwrap();
        let at = filter.address(SequenceHash(hash));
        filter.insert(at)
    }

    #[test]
    fn a_failed_insertion_restores_every_word_and_marks_nothing() {
        let mut filter = filter(64, 500);
        let mut hash = 0;
        while filter.occupied() < 64 * 4 {
            hash += 1;
            let _ = insert(&mut filter, hash);
        }
        filter.close_window(&mut Vec::new()).unwrap();
        let full = filter.words().to_vec();
        for absent in hash + 1..hash + 50 {
            assert_eq!(insert(&mut filter, absent), Err(NoPlace));
            assert_eq!(filter.words(), full);
            assert_eq!(filter.touched_buckets(), 0);
        }
    }

    #[test]
    fn relocation_keeps_every_resident() {
        let mut filter = filter(256, 500);
        let held: Vec<u64> =
            (0..).filter(|hash| insert(&mut filter, *hash).is_ok()).take(970).collect();
        assert!(held.iter().all(|hash| filter.contains(filter.address(SequenceHash(*hash)))));
        filter.reserve_removals(held.len()).unwrap();
        for hash in held {
            filter.remove(filter.address(SequenceHash(hash))).unwrap();
        }
        assert!(filter.words().iter().all(|word| *word == 0));
        let at = filter.address(SequenceHash(1));
        assert_eq!(filter.remove(at), Err(Missing));
    }

    #[test]
    fn a_window_forgets_what_returned_to_its_published_word() {
        let mut filter = filter(16, 10);
        let mut images = Vec::new();
        insert(&mut filter, 1).unwrap();
        let at = filter.address(SequenceHash(1));
        filter.reserve_removals(1).unwrap();
        filter.remove(at).unwrap();
        let closed = filter.close_window(&mut images).unwrap();
        assert_eq!(closed, Closed { touched: 1, reverted: 1 });
        assert!(images.is_empty());
        insert(&mut filter, 1).unwrap();
        filter.close_window(&mut images).unwrap();
        assert_eq!(images.len(), 1);
        assert_eq!(images[0].bucket, at.bucket_a());
    }

    #[test]
    fn a_window_that_cannot_be_copied_stays_open() {
        let mut filter = filter(16, 10);
        insert(&mut filter, 1).unwrap();
        let mut images = Vec::new();
        alloc::fail_at(0);
        assert_eq!(filter.close_window(&mut images), Err(OutOfMemory));
        alloc::allow_all();
        assert_eq!(filter.touched_buckets(), 1);
        filter.close_window(&mut images).unwrap();
        assert_eq!(images.len(), 1);
    }
}
