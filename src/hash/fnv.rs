//! The FNV family, 1 and 1a, in 32 and 64 bits.

use std::hash::Hasher;

const OFFSET_32: u32 = 0x811c_9dc5;
const PRIME_32: u32 = 0x0100_0193;
const OFFSET_64: u64 = 0xcbf2_9ce4_8422_2325;
const PRIME_64: u64 = 0x0100_0000_01b3;

/// FNV-1, 32 bits.
pub(super) fn fnv1_32(key: &[u8]) -> u32 {
    key.iter().fold(OFFSET_32, |h, &b| h.wrapping_mul(PRIME_32) ^ u32::from(b))
}

/// FNV-1a, 32 bits.
pub(super) fn fnv1a_32(key: &[u8]) -> u32 {
    key.iter().fold(OFFSET_32, |h, &b| (h ^ u32::from(b)).wrapping_mul(PRIME_32))
}

/// FNV-1, the low half of 64 bits.
pub(super) fn fnv1_64(key: &[u8]) -> u32 {
    key.iter().fold(OFFSET_64, |h, &b| h.wrapping_mul(PRIME_64) ^ u64::from(b)) as u32
}

/// FNV-1a, the low half of 64 bits.
///
/// Parity: the reference computes with 32-bit halves of the constants. Nothing moves high bits
/// down, so that equals the low half of the true hash.
pub(super) fn fnv1a_64(key: &[u8]) -> u32 {
    let mut hasher = fnv::FnvHasher::default();
    hasher.write(key);
    hasher.finish() as u32
}
