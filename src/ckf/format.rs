//! The shape of a filter and its sizing rule.

use serde::{Deserialize, Serialize};

/// The only format version there is.
pub const FORMAT_VERSION: u16 = 1;
/// Bits of one fingerprint.
pub const FINGERPRINT_BITS: u8 = 16;
/// Fingerprints of one bucket.
pub const SLOTS_PER_BUCKET: u8 = 4;
/// The seed every producer uses unless told otherwise.
pub const DEFAULT_SEED: u64 = 0x5DEE_CE66_D1B5_4A33;
/// Fewest buckets of a filter.
pub const BUCKETS_MIN: u64 = 2;
/// Most buckets of a filter (67 million slots, 128 MiB), the limit of [`super::cbi1`].
pub const BUCKETS_MAX: u64 = 1 << 24;
/// Most distinct blocks a filter can be sized for: more would load [`BUCKETS_MAX`] above 80 %.
pub const BLOCKS_MAX: u64 = BUCKETS_MAX * SLOTS_PER_BUCKET as u64 * 4 / 5;

/// Why a format cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FormatError {
    /// Not [`FORMAT_VERSION`].
    #[error("filter format version {0} is not {FORMAT_VERSION}")]
    Version(u16),
    /// Not [`FINGERPRINT_BITS`].
    #[error("{0} fingerprint bits instead of {FINGERPRINT_BITS}")]
    FingerprintBits(u8),
    /// Not [`SLOTS_PER_BUCKET`].
    #[error("{0} slots per bucket instead of {SLOTS_PER_BUCKET}")]
    SlotsPerBucket(u8),
    /// Not a power of two between [`BUCKETS_MIN`] and [`BUCKETS_MAX`].
    #[error("{0} buckets: must be a power of two from {BUCKETS_MIN} to {BUCKETS_MAX}")]
    BucketCount(u64),
    /// So many blocks need more than [`BUCKETS_MAX`] buckets.
    #[error("a filter for {0} blocks needs more than {BUCKETS_MAX} buckets")]
    TooManyBlocks(u64),
}

/// The shape of one filter. All five fields take part in equality.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct CkfFormat {
    /// [`FORMAT_VERSION`].
    pub format_version: u16,
    /// Seed of the addresses, shared by all pools of a domain.
    pub seed: u64,
    /// Buckets, a power of two.
    pub bucket_count: u64,
    /// [`FINGERPRINT_BITS`].
    pub fingerprint_bits: u8,
    /// [`SLOTS_PER_BUCKET`].
    pub slots_per_bucket: u8,
}

impl CkfFormat {
    /// A format of `bucket_count` buckets; checks the count.
    pub fn new(seed: u64, bucket_count: u64) -> Result<CkfFormat, FormatError> {
        let format = CkfFormat {
            format_version: FORMAT_VERSION,
            seed,
            bucket_count,
            fingerprint_bits: FINGERPRINT_BITS,
            slots_per_bucket: SLOTS_PER_BUCKET,
        };
        format.check()?;
        Ok(format)
    }

    /// A format sized for `expected` distinct blocks, see [`bucket_count_for`].
    pub fn for_blocks(seed: u64, expected: u64) -> Result<CkfFormat, FormatError> {
        CkfFormat::new(seed, bucket_count_for(expected)?)
    }

    /// Refuses a format this code cannot serve. Needed for formats that came from outside.
    pub fn check(&self) -> Result<(), FormatError> {
        if self.format_version != FORMAT_VERSION {
            return Err(FormatError::Version(self.format_version));
        }
        if self.fingerprint_bits != FINGERPRINT_BITS {
            return Err(FormatError::FingerprintBits(self.fingerprint_bits));
        }
        if self.slots_per_bucket != SLOTS_PER_BUCKET {
            return Err(FormatError::SlotsPerBucket(self.slots_per_bucket));
        }
        check_bucket_count(self.bucket_count)
    }

    /// Buckets as an index bound. Only meaningful for a checked format.
    pub fn buckets(&self) -> usize {
        debug_assert!(self.check().is_ok());
        self.bucket_count as usize
    }
}

/// Refuses counts that are not a power of two in the allowed range.
pub fn check_bucket_count(count: u64) -> Result<(), FormatError> {
    if count.is_power_of_two() && (BUCKETS_MIN..=BUCKETS_MAX).contains(&count) {
        Ok(())
    } else {
        Err(FormatError::BucketCount(count))
    }
}

/// Buckets for `expected` distinct blocks: the next power of two that keeps the load between
/// 40 % and 80 %.
pub fn bucket_count_for(expected: u64) -> Result<u64, FormatError> {
    let too_many = FormatError::TooManyBlocks(expected);
    let required = expected.checked_mul(5).and_then(|n| n.checked_add(15)).ok_or(too_many)? / 16;
    let count = required.max(BUCKETS_MIN).checked_next_power_of_two().ok_or(too_many)?;
    if count > BUCKETS_MAX { Err(too_many) } else { Ok(count) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ckf::vectors;

    #[test]
    fn sizes_match_the_vectors() {
        let all = vectors::ckf();
        for row in vectors::rows(&all["bucket_count_for_expected_blocks"]) {
            let expected = vectors::num(&row["expected_blocks"]);
            assert_eq!(bucket_count_for(expected), Ok(vectors::num(&row["bucket_count"])));
        }
        assert_eq!(bucket_count_for(53_687_092), Err(FormatError::TooManyBlocks(53_687_092)));
        assert_eq!(bucket_count_for(u64::MAX), Err(FormatError::TooManyBlocks(u64::MAX)));
        assert_eq!(vectors::num(&all["format"]["default_seed"]), DEFAULT_SEED);
    }

    #[test]
    fn defaults_and_bounds_match_the_vectors() {
        use crate::ckf::addressing::ALTERNATE_DOMAIN;
        use crate::ckf::consumer::{VERIFICATION_WINDOW_DEFAULT, VERIFICATION_WINDOW_MAX};
        use crate::ckf::producer::{MAX_KICKS_LIMIT, ProducerConfig};
        let all = vectors::ckf();
        let number = |name: &str| vectors::num(&all["format"][name]);
        let producer = ProducerConfig::default();
        assert_eq!(number("default_max_kicks"), u64::from(producer.max_kicks));
        assert_eq!(number("max_max_kicks"), u64::from(MAX_KICKS_LIMIT));
        assert_eq!(
            number("default_publish_every_n_events"),
            u64::from(producer.publish_every_n_events)
        );
        let window = [VERIFICATION_WINDOW_DEFAULT, VERIFICATION_WINDOW_MAX];
        let recorded = ["default_verification_window", "max_verification_window"].map(number);
        assert_eq!(recorded, window.map(|n| n as u64));
        let constant = vectors::num(&all["addressing"]["alternate_domain_constant"]);
        assert_eq!(constant, ALTERNATE_DOMAIN);
    }

    #[test]
    fn the_largest_filter_has_room_for_that_many() {
        assert_eq!(bucket_count_for(BLOCKS_MAX), Ok(BUCKETS_MAX));
        assert_eq!(bucket_count_for(BLOCKS_MAX + 1), Err(FormatError::TooManyBlocks(53_687_092)));
    }

    #[test]
    fn foreign_formats_are_checked() {
        let good = CkfFormat::new(1, 8).unwrap();
        assert_eq!(good.check(), Ok(()));
        for count in [0, 1, 3, 12, BUCKETS_MAX + 1, BUCKETS_MAX * 2] {
            assert_eq!(CkfFormat::new(1, count), Err(FormatError::BucketCount(count)));
        }
        let version = CkfFormat { format_version: 2, ..good };
        assert_eq!(version.check(), Err(FormatError::Version(2)));
        let bits = CkfFormat { fingerprint_bits: 8, ..good };
        assert_eq!(bits.check(), Err(FormatError::FingerprintBits(8)));
        let slots = CkfFormat { slots_per_bucket: 8, ..good };
        assert_eq!(slots.check(), Err(FormatError::SlotsPerBucket(8)));
    }
}
