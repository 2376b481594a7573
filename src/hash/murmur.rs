//! The Murmur family: MurmurHash2 (Dynomite's default) and the 128-bit MurmurHash3.

const M: u32 = 0x5bd1_e995;
const R: u32 = 24;
/// Multiplied by the key's length to give the seed of `murmur`.
const SEED_FACTOR: u32 = 0xdead_beef;
/// The seed of `murmur3`.
const SEED_3: u32 = 0xc0a1_e5ce;

/// MurmurHash2, 32 bits, with a seed derived from the length.
pub(super) fn murmur(key: &[u8]) -> u32 {
    let len = key.len() as u32;
    let (blocks, tail) = key.as_chunks::<4>();
    let mut h = SEED_FACTOR.wrapping_mul(len) ^ len;
    for block in blocks {
        let mut k = u32::from_le_bytes(*block).wrapping_mul(M);
        k ^= k >> R;
        h = h.wrapping_mul(M) ^ k.wrapping_mul(M);
    }
    if !tail.is_empty() {
        let word = tail.iter().rev().fold(0, |word, &b| word << 8 | u32::from(b));
        h = (h ^ word).wrapping_mul(M);
    }
    h ^= h >> 13;
    h = h.wrapping_mul(M);
    h ^ h >> 15
}

/// MurmurHash3_x86_128 as one number with h1 as the most significant word, so that our order of
/// tokens is the order of the reference's word index.
///
/// Parity: the reference leaves these words unwritten (`dyn_murmur3.c`), so all its keys go to
/// one peer; this hash is for rings without C nodes.
pub(super) fn murmur3(mut key: &[u8]) -> u128 {
    // Reading from a slice cannot fail. The crate puts h1 lowest.
    let hash = murmur3::murmur3_x86_128(&mut key, SEED_3).unwrap_or_default();
    let [h1, h2, h3, h4] = [hash, hash >> 32, hash >> 64, hash >> 96].map(|h| h as u32);
    [h1, h2, h3, h4].iter().fold(0, |value, &word| value << 32 | u128::from(word))
}
