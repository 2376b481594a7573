//! From a sequence hash to its fingerprint and its two buckets.
//!
//! `alternate = bucket XOR delta(fingerprint)` is an involution that never maps a bucket to
//! itself, so a resident's home is the *unordered* pair of its buckets. Two filters of the same
//! content must be compared by (pair, fingerprint), never word by word.

use super::format::{BUCKETS_MAX, CkfFormat};
use super::hashing::SequenceHash;

/// Keeps the hash of a fingerprint apart from the hash of a block.
pub const ALTERNATE_DOMAIN: u64 = 0x9E37_79B9_7F4A_7C15;

/// Bits of a bucket's number in an [`Address`].
const BUCKET_BITS: u32 = 24;
const _: () = assert!(BUCKETS_MAX == 1 << BUCKET_BITS);

/// Where one hash lives: its fingerprint and its two buckets in one word, so that many of them
/// are made at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Address(u64);

impl Address {
    /// An address from its parts. Bucket numbers are below [`BUCKETS_MAX`].
    #[inline]
    pub fn new(fingerprint: u16, bucket_a: u32, bucket_b: u32) -> Address {
        debug_assert!(u64::from(bucket_a.max(bucket_b)) < BUCKETS_MAX);
        Address::pack(u64::from(fingerprint), u64::from(bucket_a), u64::from(bucket_b))
    }

    /// Never zero.
    #[inline]
    pub fn fingerprint(self) -> u16 {
        self.0 as u16
    }

    /// The bucket tried first.
    #[inline]
    pub fn bucket_a(self) -> u32 {
        (self.0 >> 16) as u32 & (BUCKETS_MAX - 1) as u32
    }

    /// The other one.
    #[inline]
    pub fn bucket_b(self) -> u32 {
        (self.0 >> (16 + BUCKET_BITS)) as u32
    }

    #[inline(always)]
    fn pack(fingerprint: u64, bucket_a: u64, bucket_b: u64) -> Address {
        Address(fingerprint | bucket_a << 16 | bucket_b << (16 + BUCKET_BITS))
    }
}

/// Address arithmetic of one checked format.
///
/// The hashes are XXH3-64 of eight and of two bytes, written out for these lengths: then there is
/// no branch, and the loop over many hashes becomes vector code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Addressing {
    mask: u64,
    /// Seed and secret of XXH3, for eight bytes.
    flip_hash: u64,
    /// The same for the two bytes of a fingerprint.
    flip_fingerprint: u64,
}

/// Words of XXH3's secret: bytes 0 to 7, 8 to 15, 16 to 23.
const SECRET: [u64; 3] = [0xBE4B_A423_396C_FEB8, 0x1CAD_21F7_2C81_017C, 0xDB97_9083_E96D_D4DE];

impl Addressing {
    /// Addressing for `format`, which must have passed [`CkfFormat::check`].
    pub fn new(format: &CkfFormat) -> Addressing {
        debug_assert!(format.check().is_ok());
        let seed = format.seed;
        let swapped = u64::from((seed as u32).swap_bytes()) << 32;
        let narrow = (SECRET[0] ^ (SECRET[0] >> 32)) & u64::from(u32::MAX);
        Addressing {
            mask: format.bucket_count - 1,
            flip_hash: (SECRET[1] ^ SECRET[2]).wrapping_sub(seed ^ swapped),
            flip_fingerprint: narrow.wrapping_add(seed ^ ALTERNATE_DOMAIN),
        }
    }

    /// Fingerprint and buckets of `hash`.
    #[inline(always)]
    pub fn address(&self, hash: SequenceHash) -> Address {
        let mixed = hash_of_eight_bytes(hash.0, self.flip_hash);
        let fingerprint = at_least_one(mixed & 0xFFFF);
        let bucket_a = (mixed >> 16) & self.mask;
        Address::pack(fingerprint, bucket_a, bucket_a ^ self.delta(fingerprint))
    }

    /// The other bucket of a fingerprint that lies in `bucket`.
    #[inline]
    pub fn alternate(&self, bucket: u32, fingerprint: u16) -> u32 {
        bucket ^ self.delta(u64::from(fingerprint)) as u32
    }

    #[inline(always)]
    fn delta(&self, fingerprint: u64) -> u64 {
        at_least_one(hash_of_two_bytes(fingerprint, self.flip_fingerprint) & self.mask)
    }
}

/// `max(1)` without a comparison of greatness, which vectors of 64-bit words lack.
#[inline(always)]
fn at_least_one(value: u64) -> u64 {
    value + u64::from(value == 0)
}

/// XXH3-64 of the eight bytes of `input`, in which `flip` holds the seed.
#[inline(always)]
fn hash_of_eight_bytes(input: u64, flip: u64) -> u64 {
    const PRIME: u64 = 0x9FB2_1C65_1E98_DF25;
    let mut x = input.rotate_left(32) ^ flip;
    x ^= x.rotate_left(49) ^ x.rotate_left(24);
    x = x.wrapping_mul(PRIME);
    x ^= (x >> 35).wrapping_add(8);
    x = x.wrapping_mul(PRIME);
    x ^ (x >> 28)
}

/// XXH3-64 of the two bytes of `input`, in which `flip` holds the seed.
#[inline(always)]
fn hash_of_two_bytes(input: u64, flip: u64) -> u64 {
    const PRIMES: [u64; 2] = [0xC2B2_AE3D_27D4_EB4F, 0x1656_67B1_9E37_79F9];
    let mut x = (input << 16 | input >> 8 | 2 << 8) ^ flip;
    x = (x ^ (x >> 33)).wrapping_mul(PRIMES[0]);
    x = (x ^ (x >> 29)).wrapping_mul(PRIMES[1]);
    x ^ (x >> 32)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ckf::vectors;
    use proptest::prelude::*;
    use serde_json::Value;
    use xxhash_rust::xxh3::xxh3_64_with_seed;

    fn addressing(row: &Value) -> Addressing {
        let count = vectors::num(&row["bucket_count"]);
        Addressing::new(&CkfFormat::new(vectors::num(&row["seed"]), count).unwrap())
    }

    fn assert_row(addressing: Addressing, hash: u64, expected: [u64; 3]) {
        let address = addressing.address(SequenceHash(hash));
        let found = [
            u64::from(address.fingerprint()),
            u64::from(address.bucket_a()),
            u64::from(address.bucket_b()),
        ];
        assert_eq!(found, expected, "hash {hash:#x}");
        let back = addressing.alternate(address.bucket_b(), address.fingerprint());
        assert_eq!(back, address.bucket_a());
        assert_ne!(address.bucket_a(), address.bucket_b());
    }

    #[test]
    fn addresses_match_the_vectors() {
        let all = vectors::ckf();
        let section = &all["addressing"];
        for case in vectors::rows(&section["cases"]) {
            let columns: Vec<&str> =
                vectors::rows(&case["columns"]).iter().map(vectors::text).collect();
            let column = |name| columns.iter().position(|column| *column == name).unwrap();
            let picked = ["fingerprint", "bucket_a", "bucket_b"].map(column);
            for row in vectors::rows(&case["rows"]) {
                let row = vectors::nums(row);
                assert_row(addressing(case), row[0], picked.map(|column| row[column]));
            }
        }
        for rule in ["zero_fingerprint_rule", "zero_delta_rule"] {
            for row in vectors::rows(&section[rule]["rows"]) {
                let expected =
                    ["fingerprint", "bucket_a", "bucket_b"].map(|name| vectors::num(&row[name]));
                assert_row(addressing(&section[rule]), vectors::num(&row["hash"]), expected);
            }
        }
        for row in vectors::rows(&section["deltas"]) {
            let delta = addressing(row).delta(vectors::num(&row["fingerprint"]));
            assert_eq!(delta, vectors::num(&row["delta"]));
        }
    }

    proptest! {
        #[test]
        fn the_hashes_are_the_librarys(hash: u64, fingerprint: u16, seed: u64, bits in 1u32..25) {
            let format = CkfFormat::new(seed, 1 << bits).unwrap();
            let addressing = Addressing::new(&format);
            let wide = xxh3_64_with_seed(&hash.to_le_bytes(), seed);
            prop_assert_eq!(hash_of_eight_bytes(hash, addressing.flip_hash), wide);
            let bytes = fingerprint.to_le_bytes();
            let narrow = xxh3_64_with_seed(&bytes, seed ^ ALTERNATE_DOMAIN);
            let found = hash_of_two_bytes(fingerprint.into(), addressing.flip_fingerprint);
            prop_assert_eq!(found, narrow);
            let at = addressing.address(SequenceHash(hash));
            let parts = Address::new(at.fingerprint(), at.bucket_a(), at.bucket_b());
            prop_assert_eq!(parts, at);
        }
    }
}
