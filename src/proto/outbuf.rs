//! Bytes waiting to be written to one connection.
//!
//! Small pieces are copied into one growing tail; payloads of [`SHARE_MIN`] bytes and more are
//! queued as shared [`Bytes`] and never copied. An empty `OutBuf` holds no heap memory once its
//! tail was taken back with [`OutBuf::reclaim`]: ten thousand idle connections cost nothing here.

use std::collections::VecDeque;
use std::io::IoSlice;

use bytes::{Buf, Bytes};

/// From this size on a payload travels as a shared slice instead of being copied.
pub const SHARE_MIN: usize = 16 * 1024;

/// Most slices handed to one `writev`.
pub const SLICES_MAX: usize = 64;

/// An ordered queue of output bytes.
#[derive(Debug, Default)]
pub struct OutBuf {
    queue: VecDeque<Bytes>,
    queued_bytes: usize,
    tail: Vec<u8>,
    tail_written: usize,
}

impl OutBuf {
    /// An empty buffer without heap memory.
    pub fn new() -> OutBuf {
        OutBuf::default()
    }

    /// Bytes not yet written.
    pub fn len(&self) -> usize {
        self.queued_bytes + self.tail.len() - self.tail_written
    }

    /// True when nothing waits to be written.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Appends by copying.
    pub fn put(&mut self, bytes: &[u8]) {
        self.tail.extend_from_slice(bytes);
    }

    /// Appends a payload that is already shared; a small one is copied, because a slice costs
    /// more than the copy.
    pub fn put_shared(&mut self, bytes: Bytes) {
        if bytes.len() < SHARE_MIN {
            return self.put(&bytes);
        }
        self.seal_tail();
        self.queued_bytes += bytes.len();
        self.queue.push_back(bytes);
    }

    /// The growing tail, for encoders that append to a `Vec<u8>`. Only append to it.
    pub fn tail_mut(&mut self) -> &mut Vec<u8> {
        &mut self.tail
    }

    /// Lends a recycled vector to an empty buffer, so that the next `put` does not allocate.
    pub fn lend(&mut self, mut spare: Vec<u8>) {
        if self.tail.capacity() == 0 {
            spare.clear();
            self.tail = spare;
            self.tail_written = 0;
        }
    }

    /// True when the tail has no memory yet, so `lend` would help.
    pub fn wants_memory(&self) -> bool {
        self.tail.capacity() == 0
    }

    /// Takes the tail's memory back once everything was written.
    pub fn reclaim(&mut self) -> Option<Vec<u8>> {
        if !self.is_empty() || self.tail.capacity() == 0 {
            return None;
        }
        self.tail_written = 0;
        let mut spare = std::mem::take(&mut self.tail);
        spare.clear();
        Some(spare)
    }

    /// Fills `slices` with what is to be written, in order; returns how many were filled.
    pub fn slices<'a>(&'a self, slices: &mut [IoSlice<'a>]) -> usize {
        self.slices_up_to(self.len(), slices)
    }

    /// The same for the first `most` bytes alone.
    pub fn slices_up_to<'a>(&'a self, mut most: usize, slices: &mut [IoSlice<'a>]) -> usize {
        let mut n = 0;
        let tail = &self.tail[self.tail_written..];
        for piece in self.queue.iter().map(|chunk| &chunk[..]).chain([tail]) {
            if n == slices.len() || most == 0 {
                break;
            }
            let piece = &piece[..piece.len().min(most)];
            most -= piece.len();
            if !piece.is_empty() {
                slices[n] = IoSlice::new(piece);
                n += 1;
            }
        }
        n
    }

    /// The first contiguous piece to be written; empty when there is none.
    pub fn front(&self) -> &[u8] {
        match self.queue.front() {
            Some(chunk) => chunk,
            None => &self.tail[self.tail_written..],
        }
    }

    /// Forgets the first `n` bytes: they were written.
    pub fn advance(&mut self, mut n: usize) {
        assert!(n <= self.len(), "more bytes written than were waiting");
        while let Some(chunk) = self.queue.front_mut() {
            if n < chunk.len() {
                chunk.advance(n);
                self.queued_bytes -= n;
                return;
            }
            n -= chunk.len();
            self.queued_bytes -= chunk.len();
            self.queue.pop_front();
            if n == 0 {
                break;
            }
        }
        self.tail_written += n;
        if self.tail_written == self.tail.len() {
            self.tail.clear();
            self.tail_written = 0;
        }
    }

    /// Takes the first `n` bytes out.
    pub fn take_front(&mut self, n: usize) -> Vec<u8> {
        let mut taken = Vec::with_capacity(n);
        while taken.len() < n {
            let front = self.front();
            let step = front.len().min(n - taken.len());
            taken.extend_from_slice(&front[..step]);
            self.advance(step);
        }
        taken
    }

    /// Drops everything that waits.
    pub fn clear(&mut self) {
        self.queue.clear();
        self.queued_bytes = 0;
        self.tail.clear();
        self.tail_written = 0;
    }

    fn seal_tail(&mut self) {
        if self.tail_written < self.tail.len() {
            let mut sealed = Bytes::from(std::mem::take(&mut self.tail));
            sealed.advance(self.tail_written);
            self.queued_bytes += sealed.len();
            self.queue.push_back(sealed);
        } else {
            self.tail.clear();
        }
        self.tail_written = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drain(out: &mut OutBuf, step: usize) -> Vec<u8> {
        let mut all = Vec::new();
        while !out.is_empty() {
            let front = out.front();
            let n = front.len().min(step);
            all.extend_from_slice(&front[..n]);
            out.advance(n);
        }
        all
    }

    #[test]
    fn copies_and_slices_keep_their_order() {
        for step in [1, 7, 1 << 20] {
            let mut out = OutBuf::new();
            let big = Bytes::from(vec![7u8; SHARE_MIN]);
            out.put(b"head");
            out.put_shared(big.clone());
            out.put_shared(Bytes::from_static(b"small"));
            out.put_shared(big.clone());
            out.put(b"tail");
            assert_eq!(out.len(), 4 + SHARE_MIN + 5 + SHARE_MIN + 4);
            let want = [b"head", &big[..], b"small", &big[..], b"tail"].concat();
            assert_eq!(drain(&mut out, step), want);
        }
    }

    #[test]
    fn slices_cover_everything_and_large_payloads_are_shared() {
        let mut out = OutBuf::new();
        let big = Bytes::from(vec![1u8; SHARE_MIN]);
        out.put(b"a");
        out.put_shared(big.clone());
        out.put(b"b");
        let mut slices = [IoSlice::new(&[]); SLICES_MAX];
        let n = out.slices(&mut slices);
        assert_eq!(n, 3);
        assert_eq!(slices[1].as_ptr(), big.as_ptr());
        assert_eq!(slices[..n].iter().map(|s| s.len()).sum::<usize>(), out.len());
    }

    #[test]
    fn slices_stop_where_they_are_told_to() {
        let mut out = OutBuf::new();
        let big = Bytes::from(vec![1u8; SHARE_MIN]);
        out.put(b"ab");
        out.put_shared(big);
        out.put(b"c");
        for most in [0, 1, 2, 3, SHARE_MIN + 2, SHARE_MIN + 3, usize::MAX] {
            let mut slices = [IoSlice::new(&[]); SLICES_MAX];
            let n = out.slices_up_to(most, &mut slices);
            let len = slices[..n].iter().map(|s| s.len()).sum::<usize>();
            assert_eq!(len, out.len().min(most));
            assert!(slices[..n].iter().all(|s| !s.is_empty()));
        }
    }

    #[test]
    fn an_empty_buffer_gives_its_memory_back() {
        let mut out = OutBuf::new();
        out.put(b"xyz");
        assert!(out.reclaim().is_none());
        out.advance(2);
        out.put(b"w");
        assert_eq!(drain(&mut out, 9), b"zw");
        let spare = out.reclaim().expect("memory to give back");
        assert!(out.wants_memory() && spare.is_empty() && spare.capacity() > 0);
        out.lend(spare);
        assert!(!out.wants_memory());
    }
}
