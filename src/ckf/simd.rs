//! The one file with unsafe code: what the compiler cannot do on its own.
//!
//! Three things, each with its proof obligation at the `unsafe`: a prefetch, a request for large
//! pages, and vector loads from words that other threads store to. The last is where the time
//! goes: compared word by word, sixteen lanes cost ten times as much as a few vector compares.

#![allow(unsafe_code)]

use crate::ckf::addressing::{Address, Addressing};
use crate::ckf::bucket;
use crate::ckf::consumer::table::{LANES, Row};
use crate::ckf::hashing::SequenceHash;
use crate::ckf::sync::{AtomicU64, Ordering};

/// Tables below this size gain nothing from large pages.
#[cfg(target_os = "linux")]
const HUGE_PAGES_FROM_BYTES: usize = 3 << 20;

/// Asks the processor to bring the cache line of `place` near. A hint without any effect on values.
#[inline(always)]
pub(crate) fn prefetch<T>(place: &T) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: a prefetch reads nothing and never faults, whatever the address; this one comes
        // from a live reference. SSE is part of the x86-64 baseline.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(std::ptr::from_ref(place).cast()) }
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = place;
}

/// Brings the row of `bucket` near: one cache line, or two when it has sixteen words.
#[inline(always)]
pub(crate) fn prefetch_row(rows: &[Row], stride_bits: u32, bucket: u32) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_MM_HINT_T1, _mm_prefetch};
        let start =
            rows.as_ptr().cast::<AtomicU64>().wrapping_add((bucket as usize) << stride_bits);
        // SAFETY: as in `prefetch`: nothing is read, so even an address outside would be harmless.
        unsafe {
            _mm_prefetch::<_MM_HINT_T1>(start.cast());
            if stride_bits > 3 {
                _mm_prefetch::<_MM_HINT_T1>(start.wrapping_add(8).cast());
            }
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (rows, stride_bits, bucket);
}

/// Asks the system to back a large table that is about to be filled by large pages.
pub(crate) fn advise_huge_pages<T>(table: &mut Vec<T>) {
    #[cfg(target_os = "linux")]
    {
        const PAGE: usize = 4096;
        let start = table.as_mut_ptr().addr();
        let (first, end) =
            (start.next_multiple_of(PAGE), start + table.capacity() * size_of::<T>());
        if end.saturating_sub(first) >= HUGE_PAGES_FROM_BYTES {
            let length = (end - first) / PAGE * PAGE;
            let address = table.as_mut_ptr().map_addr(|_| first);
            // SAFETY: the range is page-aligned and lies inside the allocation this function
            // holds exclusively. MADV_HUGEPAGE changes how memory is backed, never its content;
            // its result is a matter of speed only, so it is not looked at.
            unsafe { libc::madvise(address.cast(), length, libc::MADV_HUGEPAGE) };
        }
    }
    #[cfg(not(target_os = "linux"))]
    let _ = table;
}

/// How fingerprints are compared on this machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kernel {
    /// Word by word, anywhere.
    Portable,
    /// Four lanes at a time. Only [`Kernel::detect`] makes this value.
    #[cfg(target_arch = "x86_64")]
    Avx2(Avx2Proof),
    /// Eight lanes at a time, and masks in registers of their own. Only [`Kernel::detect`] makes
    /// this value.
    #[cfg(target_arch = "x86_64")]
    Avx512(Avx512Proof),
}

/// Proof that this processor has AVX2: the field is private to this file.
#[cfg(target_arch = "x86_64")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Avx2Proof(());

/// Proof that this processor has AVX2, AVX-512 (F, BW, DQ and VL) and BMI2.
#[cfg(target_arch = "x86_64")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Avx512Proof(());

impl Kernel {
    /// The best kernel of this processor.
    pub(crate) fn detect() -> Kernel {
        Kernel::available().next().unwrap_or(Kernel::Portable)
    }

    /// The kernels that run on this processor, the best first.
    fn available() -> impl Iterator<Item = Kernel> {
        #[cfg(target_arch = "x86_64")]
        let wide = {
            use std::arch::is_x86_feature_detected as has;
            let avx2 = has!("avx2").then_some(Kernel::Avx2(Avx2Proof(())));
            // VBMI2 stands for processors whose clock does not fall when wide registers are used.
            let has_avx512 = has!("avx512vbmi2")
                && has!("avx512bw")
                && has!("avx512dq")
                && has!("avx512vl")
                && has!("bmi2");
            let avx512 = avx2.filter(|_| has_avx512).map(|_| Kernel::Avx512(Avx512Proof(())));
            [avx512, avx2].into_iter().flatten()
        };
        #[cfg(not(target_arch = "x86_64"))]
        let wide = std::iter::empty();
        wide.chain([Kernel::Portable])
    }
}

/// The address of each hash. `out` is as long as `hashes`.
#[inline]
pub(crate) fn locate(
    kernel: Kernel,
    addressing: &Addressing,
    hashes: &[SequenceHash],
    out: &mut [Address],
) {
    match kernel {
        // SAFETY: an `Avx2Proof` exists only where AVX2 was detected.
        #[cfg(target_arch = "x86_64")]
        Kernel::Avx2(Avx2Proof(())) if hashes.len() > 1 => unsafe {
            avx2::locate(addressing, hashes, out);
        },
        // SAFETY: the same of an `Avx512Proof`.
        #[cfg(target_arch = "x86_64")]
        Kernel::Avx512(Avx512Proof(())) if hashes.len() > 1 => unsafe {
            avx512::locate(addressing, hashes, out);
        },
        _ => locate_each(addressing, hashes, out),
    }
}

/// Compiled for each kernel.
#[inline(always)]
fn locate_each(addressing: &Addressing, hashes: &[SequenceHash], out: &mut [Address]) {
    for (at, hash) in out.iter_mut().zip(hashes) {
        *at = addressing.address(*hash);
    }
}

/// For each address, the lanes (one bit each) that hold its fingerprint in either bucket.
///
/// `rows` holds `1 << stride_bits` words a bucket. Panics when an address lies outside.
#[inline]
pub(crate) fn probe(
    kernel: Kernel,
    rows: &[Row],
    stride_bits: u32,
    addresses: &[Address],
    masks: &mut [u16],
) {
    match (kernel, stride_bits) {
        // SAFETY (all): a proof exists only where its features, AVX2 among them, were detected.
        #[cfg(target_arch = "x86_64")]
        (Kernel::Avx2(Avx2Proof(())), 4) => unsafe {
            avx2::probe::<16>(rows, addresses, masks);
        },
        #[cfg(target_arch = "x86_64")]
        (Kernel::Avx2(Avx2Proof(())), 3) => unsafe {
            avx2::probe::<8>(rows, addresses, masks);
        },
        #[cfg(target_arch = "x86_64")]
        (Kernel::Avx2(_) | Kernel::Avx512(_), 2) => unsafe {
            avx2::probe::<4>(rows, addresses, masks);
        },
        #[cfg(target_arch = "x86_64")]
        (Kernel::Avx512(Avx512Proof(())), 4) => unsafe {
            avx512::probe::<16>(rows, addresses, masks);
        },
        #[cfg(target_arch = "x86_64")]
        (Kernel::Avx512(Avx512Proof(())), 3) => unsafe {
            avx512::probe::<8>(rows, addresses, masks);
        },
        (_, 4) => probe_portable::<16>(rows, addresses, masks),
        (_, 3) => probe_portable::<8>(rows, addresses, masks),
        (_, 2) => probe_portable::<4>(rows, addresses, masks),
        (_, 1) => probe_portable::<2>(rows, addresses, masks),
        (_, _) => probe_portable::<1>(rows, addresses, masks),
    }
}

fn probe_portable<const STRIDE: usize>(rows: &[Row], addresses: &[Address], masks: &mut [u16]) {
    for_each::<STRIDE>(rows, addresses, masks, |a, b, fingerprint| {
        let mut mask = 0;
        for (lane, (a, b)) in a.iter().zip(b).enumerate() {
            let hit = bucket::contains(a.load(Ordering::Relaxed), fingerprint)
                | bucket::contains(b.load(Ordering::Relaxed), fingerprint);
            mask |= u16::from(hit) << lane;
        }
        mask
    });
}

/// Sets each mask to what `compare` finds in both rows of its address.
#[inline(always)]
fn for_each<const STRIDE: usize>(
    rows: &[Row],
    addresses: &[Address],
    masks: &mut [u16],
    compare: impl Fn(&[AtomicU64; STRIDE], &[AtomicU64; STRIDE], u16) -> u16,
) {
    for (at, mask) in addresses.iter().zip(masks) {
        let a = row::<STRIDE>(rows, at.bucket_a());
        let b = row::<STRIDE>(rows, at.bucket_b());
        *mask = compare(a, b, at.fingerprint());
    }
}

/// The words of one bucket.
#[inline(always)]
fn row<const STRIDE: usize>(rows: &[Row], bucket: u32) -> &[AtomicU64; STRIDE] {
    let per_row = LANES / STRIDE;
    let (row, part) = (bucket as usize / per_row, bucket as usize % per_row);
    let (parts, _) = rows[row].0.as_chunks::<STRIDE>();
    &parts[part]
}

#[cfg(target_arch = "x86_64")]
mod avx2 {
    use super::{Address, Addressing, AtomicU64, Row, SequenceHash, for_each, locate_each};
    use std::arch::asm;
    use std::arch::x86_64::{
        __m256i, _mm256_castsi256_pd, _mm256_cmpeq_epi64, _mm256_movemask_pd, _mm256_or_si256,
        _mm256_set1_epi16, _mm256_setzero_si256,
    };

    /// Lanes of one load.
    const QUAD: usize = 4;

    /// See [`super::locate`].
    #[target_feature(enable = "avx2")]
    pub(super) fn locate(addressing: &Addressing, hashes: &[SequenceHash], out: &mut [Address]) {
        locate_each(addressing, hashes, out);
    }

    /// See [`super::probe`]. `STRIDE` is 4, 8 or 16.
    #[target_feature(enable = "avx2")]
    pub(super) fn probe<const STRIDE: usize>(
        rows: &[Row],
        addresses: &[Address],
        masks: &mut [u16],
    ) {
        const { assert!(STRIDE.is_multiple_of(QUAD)) };
        for_each::<STRIDE>(rows, addresses, masks, |a, b, fingerprint| {
            let wanted = _mm256_set1_epi16(fingerprint as i16);
            let (a, b) = (a.as_chunks::<QUAD>().0, b.as_chunks::<QUAD>().0);
            let mut absent = 0;
            for quad in 0..STRIDE / QUAD {
                let held = _mm256_or_si256(equal(&a[quad], wanted), equal(&b[quad], wanted));
                let none = _mm256_cmpeq_epi64(held, _mm256_setzero_si256());
                absent |= _mm256_movemask_pd(_mm256_castsi256_pd(none)) << (quad * QUAD);
            }
            !absent as u16 & ((1u32 << STRIDE) - 1) as u16
        });
    }

    /// The slots of four words that equal those of `wanted`, as ones.
    #[inline]
    #[target_feature(enable = "avx2")]
    fn equal(words: &[AtomicU64; QUAD], wanted: __m256i) -> __m256i {
        let slots;
        // SAFETY: the 32 bytes read are the four words. Other threads may store to them meanwhile;
        // the compiler sees an opaque block that reads memory, so there is no unsynchronised
        // access in its model, and any bits that arrive are a value. No flags, stack or memory
        // are written. Words arrive whole where the processor reads 8, 16 or 32 aligned bytes at
        // once, which all do; a word of two halves would be one old and one new half of a bucket,
        // as a query may see of two words anyhow.
        unsafe {
            asm!(
                "vpcmpeqw {slots}, {wanted}, ymmword ptr [{words}]",
                words = in(reg) words.as_ptr(),
                wanted = in(ymm_reg) wanted,
                slots = lateout(ymm_reg) slots,
                options(nostack, preserves_flags, readonly),
            );
        }
        slots
    }
}

#[cfg(target_arch = "x86_64")]
mod avx512 {
    use super::{Address, Addressing, AtomicU64, Row, SequenceHash, for_each, locate_each};
    use std::arch::asm;
    use std::arch::x86_64::{__m512i, _mm512_set1_epi16, _pext_u64};

    /// Lanes of one load.
    const OCTET: usize = 8;
    /// The lowest of a lane's four slots, in a mask of one bit a slot.
    const FIRST_SLOTS: u64 = 0x1111_1111_1111_1111;

    /// See [`super::locate`].
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,bmi2")]
    pub(super) fn locate(addressing: &Addressing, hashes: &[SequenceHash], out: &mut [Address]) {
        locate_each(addressing, hashes, out);
    }

    /// See [`super::probe`]. `STRIDE` is 8 or 16.
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,bmi2")]
    pub(super) fn probe<const STRIDE: usize>(
        rows: &[Row],
        addresses: &[Address],
        masks: &mut [u16],
    ) {
        const { assert!(STRIDE.is_multiple_of(OCTET)) };
        for_each::<STRIDE>(rows, addresses, masks, |a, b, fingerprint| {
            let wanted = _mm512_set1_epi16(fingerprint as i16);
            let (a, b) = (a.as_chunks::<OCTET>().0, b.as_chunks::<OCTET>().0);
            let mut slots = 0;
            for octet in 0..STRIDE / OCTET {
                let held = equal(&a[octet], wanted) | equal(&b[octet], wanted);
                slots |= u64::from(held) << (octet * OCTET * 4);
            }
            let pairs = slots | slots >> 1;
            _pext_u64(pairs | pairs >> 2, FIRST_SLOTS) as u16
        });
    }

    /// The slots of eight words that equal those of `wanted`, one bit each.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,bmi2")]
    fn equal(words: &[AtomicU64; OCTET], wanted: __m512i) -> u32 {
        let slots: u32;
        // SAFETY: as in `avx2::equal`; the 64 bytes read are the eight words.
        unsafe {
            asm!(
                "vpcmpeqw {slots}, {wanted}, zmmword ptr [{words}]",
                words = in(reg) words.as_ptr(),
                wanted = in(zmm_reg) wanted,
                slots = lateout(kreg) slots,
                options(nostack, preserves_flags, readonly),
            );
        }
        slots
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ckf::format::CkfFormat;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn kernels_agree(
            words in prop::collection::vec(
                prop::array::uniform4(prop_oneof![0u16..4, Just(0x8000), any::<u16>()]), 64),
            stride_bits in 0u32..5,
            wanted in prop::collection::vec(
                (prop_oneof![1u16..4, Just(0x8000)], 0u32..64, 0u32..64),
                1..20,
            ),
        ) {
            let packed: Vec<u64> = words
                .iter()
                .map(|slots| (0..4).fold(0, |word, slot| bucket::set(word, slot, slots[slot])))
                .collect();
            let rows: Vec<Row> = packed
                .chunks_exact(LANES)
                .map(|row| Row(std::array::from_fn(|lane| AtomicU64::new(row[lane]))))
                .collect();
            let buckets = 64 >> stride_bits;
            let addresses: Vec<Address> = wanted
                .into_iter()
                .map(|(fingerprint, a, b)| Address::new(fingerprint, a % buckets, b % buckets))
                .collect();
            let mut portable = vec![0; addresses.len()];
            probe(Kernel::Portable, &rows, stride_bits, &addresses, &mut portable);
            for kernel in Kernel::available() {
                let mut found = vec![0; addresses.len()];
                probe(kernel, &rows, stride_bits, &addresses, &mut found);
                prop_assert_eq!(&found, &portable, "{:?}", kernel);
            }
            for (at, mask) in addresses.iter().zip(portable) {
                for lane in 0..1 << stride_bits {
                    let word = |bucket: u32| packed[((bucket as usize) << stride_bits) + lane];
                    let held = bucket::contains(word(at.bucket_a()), at.fingerprint())
                        || bucket::contains(word(at.bucket_b()), at.fingerprint());
                    prop_assert_eq!(mask >> lane & 1 == 1, held);
                }
            }
        }
    }

    proptest! {
        #[test]
        fn kernels_find_the_same_places(
            hashes in prop::collection::vec(any::<u64>().prop_map(SequenceHash), 0..70),
            seed: u64,
            bits in 1u32..25,
        ) {
            let addressing = Addressing::new(&CkfFormat::new(seed, 1 << bits).unwrap());
            let one_by_one: Vec<Address> =
                hashes.iter().map(|hash| addressing.address(*hash)).collect();
            for kernel in Kernel::available() {
                let mut found = vec![Address::default(); hashes.len()];
                locate(kernel, &addressing, &hashes, &mut found);
                prop_assert_eq!(&found, &one_by_one);
            }
        }
    }

    #[test]
    fn large_tables_take_the_advice() {
        let mut table: Vec<[u64; 16]> = Vec::with_capacity(80_000);
        advise_huge_pages(&mut table);
        table.resize(80_000, [7; 16]);
        assert!(table.iter().all(|row| row[15] == 7));
    }
}
