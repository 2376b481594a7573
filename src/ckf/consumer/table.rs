//! The transposed table: all lanes of one bucket side by side, shared with every query.
//!
//! Queries and ingestors share the words and the ready mask, nothing else. The contract is weak on
//! purpose: a query may see some new and some old words of one delta, and one that captured a
//! ready bit may finish after the lane was retired. Words are loaded relaxed, and stored one atomic
//! store an image; the snapshot's stores are ordered before the lane's ready bit by the release in
//! [`LaneTable::activate`], and a query begins with one acquire load of the mask.
//!
//! So a fingerprint that moves to its other bucket just then can be missed, once: words are stored
//! with release, so who asks again after an acquire fence sees everything that came before the
//! word that misled him.
//!
//! A row holds as many words as the next power of two of the configured lanes, so that four
//! datacenters do not fetch the memory of sixteen. Rows are aligned to their own size.

use crate::ckf::addressing::{Address, Addressing};
use crate::ckf::alloc::{self, OutOfMemory};
use crate::ckf::format::CkfFormat;
use crate::ckf::hashing::SequenceHash;
use crate::ckf::simd::{self, Kernel};
use crate::ckf::sync::{AtomicU16, AtomicU64, Ordering};

/// Lanes of one consumer.
pub const LANES: usize = 16;

/// Tables up to this size stay in the near caches of a core.
const NEAR_BYTES: usize = 768 << 10;

/// Sixteen words on two cache lines: one bucket of sixteen lanes, or several of fewer.
#[derive(Debug)]
#[repr(C, align(128))]
pub(in crate::ckf) struct Row(pub(in crate::ckf) [AtomicU64; LANES]);

/// The table and its readiness.
#[derive(Debug)]
pub(super) struct LaneTable {
    rows: Vec<Row>,
    /// Words of one bucket, as a power of two.
    stride_bits: u32,
    buckets: usize,
    addressing: Addressing,
    kernel: Kernel,
    /// Too large for the near caches, so that fetching ahead pays.
    is_large: bool,
    ready: AtomicU16,
    claimed: AtomicU16,
}

impl LaneTable {
    /// A zeroed table for lanes 0 to `lanes - 1` of a checked format.
    pub(super) fn new(format: &CkfFormat, lanes: usize) -> Result<LaneTable, OutOfMemory> {
        debug_assert!((1..=LANES).contains(&lanes));
        let stride_bits = lanes.next_power_of_two().trailing_zeros();
        let rows_needed = (format.buckets() << stride_bits).div_ceil(LANES);
        let mut rows = alloc::with_capacity(rows_needed)?;
        simd::advise_huge_pages(&mut rows);
        rows.resize_with(rows_needed, || Row(std::array::from_fn(|_| AtomicU64::new(0))));
        Ok(LaneTable {
            rows,
            stride_bits,
            buckets: format.buckets(),
            addressing: Addressing::new(format),
            kernel: Kernel::detect(),
            is_large: rows_needed * size_of::<Row>() > NEAR_BYTES,
            ready: AtomicU16::new(0),
            claimed: AtomicU16::new(0),
        })
    }

    /// Buckets of every lane.
    pub(super) fn buckets(&self) -> usize {
        self.buckets
    }

    /// Bytes of the words.
    pub(super) fn bytes(&self) -> usize {
        size_of_val(&self.rows[..])
    }

    /// The lanes that may be asked now: one acquire load.
    #[inline]
    pub(super) fn ready(&self) -> u16 {
        self.ready.load(Ordering::Acquire)
    }

    /// Lets queries see a lane whose words are complete.
    pub(super) fn activate(&self, lane: u8) {
        self.ready.fetch_or(1 << lane, Ordering::Release);
    }

    /// Takes a lane out of later queries.
    pub(super) fn retire(&self, lane: u8) {
        self.ready.fetch_and(!(1 << lane), Ordering::AcqRel);
    }

    /// Claims a lane for one ingestor; false when it is claimed already.
    pub(super) fn claim(&self, lane: u8) -> bool {
        self.claimed.fetch_or(1 << lane, Ordering::AcqRel) & (1 << lane) == 0
    }

    /// Gives a claimed lane back.
    pub(super) fn release(&self, lane: u8) {
        self.claimed.fetch_and(!(1 << lane), Ordering::AcqRel);
    }

    /// Writes one word.
    #[inline]
    pub(super) fn store(&self, lane: u8, bucket: u32, word: u64) {
        self.cell(lane, bucket).store(word, Ordering::Release);
    }

    /// Reads one word.
    pub(super) fn load(&self, lane: u8, bucket: u32) -> u64 {
        self.cell(lane, bucket).load(Ordering::Relaxed)
    }

    /// The lanes that hold each of the hashes, ready or not. `addresses` is room for as many.
    #[inline]
    pub(super) fn probe(
        &self,
        hashes: &[SequenceHash],
        addresses: &mut [Address],
        masks: &mut [u16],
    ) {
        if self.is_large {
            // One after the other: memory takes rows as they come, and too many at once wait.
            for (at, hash) in addresses.iter_mut().zip(hashes) {
                *at = self.addressing.address(*hash);
                simd::prefetch_row(&self.rows, self.stride_bits, at.bucket_a());
                simd::prefetch_row(&self.rows, self.stride_bits, at.bucket_b());
            }
        } else {
            simd::locate(self.kernel, &self.addressing, hashes, addresses);
        }
        simd::probe(self.kernel, &self.rows, self.stride_bits, addresses, masks);
    }

    /// The lanes that hold one hash, ready or not.
    #[inline]
    pub(super) fn probe_one(&self, hash: SequenceHash) -> u16 {
        let mut mask = [0];
        let at = self.addressing.address(hash);
        simd::probe(self.kernel, &self.rows, self.stride_bits, &[at], &mut mask);
        mask[0]
    }

    #[inline]
    fn cell(&self, lane: u8, bucket: u32) -> &AtomicU64 {
        debug_assert!(usize::from(lane) < 1 << self.stride_bits);
        let index = ((bucket as usize) << self.stride_bits) + usize::from(lane);
        &self.rows[index / LANES].0[index % LANES]
    }
}
