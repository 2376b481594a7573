//! Which buckets changed since the last publication, and what they were then.

use crate::ckf::alloc::{self, OutOfMemory};
use crate::ckf::bucket::BucketImage;

/// The open publication window of one filter.
#[derive(Debug)]
pub(super) struct DirtyWindow {
    /// One bit a bucket: has been touched in this window.
    marks: Vec<u64>,
    /// Touched buckets in the order of their first touch, with the published word.
    touched: Vec<(u32, u64)>,
}

/// What closing a window found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Closed {
    /// Buckets touched.
    pub(super) touched: usize,
    /// Of these, how many hold their published word again.
    pub(super) reverted: usize,
}

impl DirtyWindow {
    pub(super) fn new(buckets: usize) -> Result<DirtyWindow, OutOfMemory> {
        let words = buckets.div_ceil(64);
        let mut marks = alloc::with_capacity(words)?;
        marks.resize(words, 0);
        Ok(DirtyWindow { marks, touched: Vec::new() })
    }

    /// Room for `touches` more marks; a bucket is only marked once.
    pub(super) fn reserve(&mut self, touches: usize, buckets: usize) -> Result<(), OutOfMemory> {
        let more = touches.min(buckets - self.touched.len());
        alloc::reserve(&mut self.touched, more)
    }

    /// Remembers that `bucket` held `before`, unless it was touched earlier in this window.
    #[inline]
    pub(super) fn mark(&mut self, bucket: u32, before: u64) {
        let (word, bit) = (bucket as usize / 64, 1 << (bucket % 64));
        if self.marks[word] & bit == 0 {
            self.marks[word] |= bit;
            self.touched.push((bucket, before));
        }
    }

    /// Touched buckets with their published words.
    pub(super) fn touched(&self) -> &[(u32, u64)] {
        &self.touched
    }

    /// Ends the window: fills `out` with the buckets whose word differs from the published one.
    /// When `out` cannot grow, the window stays open and nothing is lost.
    ///
    /// Images leave in the reverse order of the first touch. A relocation touches the bucket it
    /// takes a fingerprint from before the one it puts it in, so reversed a reader meets both
    /// copies for a moment instead of none.
    pub(super) fn close(
        &mut self,
        words: &[u64],
        out: &mut Vec<BucketImage>,
    ) -> Result<Closed, OutOfMemory> {
        alloc::reserve(out, self.touched.len())?;
        let start = out.len();
        for &(bucket, published) in self.touched.iter().rev() {
            self.marks[bucket as usize / 64] &= !(1 << (bucket % 64));
            let word = words[bucket as usize];
            if word != published {
                out.push(BucketImage { bucket, word });
            }
        }
        let touched = self.touched.len();
        self.touched.clear();
        Ok(Closed { touched, reverted: touched - (out.len() - start) })
    }
}
