//! From a sequence hash to its fingerprint and its two buckets.
//!
//! `alternate = bucket XOR delta(fingerprint)` is an involution that never maps a bucket to
//! itself, so a resident's home is the *unordered* pair of its buckets. Two filters of the same
//! content must be compared by (pair, fingerprint), never word by word.

use xxhash_rust::xxh3::xxh3_64_with_seed;

use super::format::CkfFormat;
use super::hashing::SequenceHash;

/// Keeps the hash of a fingerprint apart from the hash of a block.
pub const ALTERNATE_DOMAIN: u64 = 0x9E37_79B9_7F4A_7C15;

/// Where one hash lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Address {
    /// The bucket tried first.
    pub bucket_a: u32,
    /// The other one.
    pub bucket_b: u32,
    /// Never zero.
    pub fingerprint: u16,
    /// No padding is left, so that an array of these is cleared at once.
    unused: u16,
}

impl Address {
    /// An address from its parts.
    #[inline]
    pub fn new(fingerprint: u16, bucket_a: u32, bucket_b: u32) -> Address {
        Address { bucket_a, bucket_b, fingerprint, unused: 0 }
    }
}

/// Address arithmetic of one checked format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Addressing {
    seed: u64,
    mask: u32,
}

impl Addressing {
    /// Addressing for `format`, which must have passed [`CkfFormat::check`].
    pub fn new(format: &CkfFormat) -> Addressing {
        debug_assert!(format.check().is_ok());
        Addressing { seed: format.seed, mask: (format.bucket_count - 1) as u32 }
    }

    /// Fingerprint and buckets of `hash`.
    #[inline]
    pub fn address(&self, hash: SequenceHash) -> Address {
        let mixed = xxh3_64_with_seed(&hash.0.to_le_bytes(), self.seed);
        let fingerprint = (mixed as u16).max(1);
        let bucket_a = (mixed >> 16) as u32 & self.mask;
        Address::new(fingerprint, bucket_a, bucket_a ^ self.delta(fingerprint))
    }

    /// The other bucket of a fingerprint that lies in `bucket`.
    #[inline]
    pub fn alternate(&self, bucket: u32, fingerprint: u16) -> u32 {
        bucket ^ self.delta(fingerprint)
    }

    #[inline]
    fn delta(&self, fingerprint: u16) -> u32 {
        let mixed = xxh3_64_with_seed(&fingerprint.to_le_bytes(), self.seed ^ ALTERNATE_DOMAIN);
        (mixed as u32 & self.mask).max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ckf::vectors;
    use serde_json::Value;

    fn addressing(row: &Value) -> Addressing {
        let count = vectors::num(&row["bucket_count"]);
        Addressing::new(&CkfFormat::new(vectors::num(&row["seed"]), count).unwrap())
    }

    fn assert_row(addressing: Addressing, hash: u64, expected: [u64; 3]) {
        let address = addressing.address(SequenceHash(hash));
        let found = [
            u64::from(address.fingerprint),
            u64::from(address.bucket_a),
            u64::from(address.bucket_b),
        ];
        assert_eq!(found, expected, "hash {hash:#x}");
        let back = addressing.alternate(address.bucket_b, address.fingerprint);
        assert_eq!(back, address.bucket_a);
        assert_ne!(address.bucket_a, address.bucket_b);
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
            let delta = addressing(row).delta(vectors::num(&row["fingerprint"]) as u16);
            assert_eq!(u64::from(delta), vectors::num(&row["delta"]));
        }
    }
}
