//! From key to token: Dynomite's thirteen hashes and the hash tag.
//!
//! [`KeyHasher`] is the one seam through which the dispatcher and every later user turn a key
//! into a ring position. Names and results are those of `src/hashkit` of Netflix/dynomite, as
//! recorded in `tests/vectors/hashes.json`; where the reference computes nothing usable, the
//! function concerned says what we do instead.

mod crc;
mod fnv;
mod hsieh;
mod jenkins;
mod md5;
mod murmur;
mod one_at_a_time;
mod tag;

#[cfg(test)]
mod tests;

pub use tag::{HashTag, HashTagError};

use std::fmt;
use std::str::FromStr;

use crate::token::DynToken;

/// The hash of a pool, in the reference's order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum HashType {
    /// Bob Jenkins' one-at-a-time over signed bytes.
    OneAtATime,
    /// The first word of MD5.
    Md5,
    /// CRC-16 in an unmasked register of 32 bits.
    Crc16,
    /// Fifteen bits of CRC-32: only 32,768 different tokens.
    Crc32,
    /// The whole CRC-32.
    Crc32a,
    /// The low half of 64-bit FNV-1.
    Fnv1_64,
    /// The low half of 64-bit FNV-1a.
    Fnv1a64,
    /// 32-bit FNV-1.
    Fnv1_32,
    /// 32-bit FNV-1a.
    Fnv1a32,
    /// Paul Hsieh's SuperFastHash.
    Hsieh,
    /// MurmurHash2, the default.
    #[default]
    Murmur,
    /// Bob Jenkins' lookup3.
    Jenkins,
    /// MurmurHash3 of 128 bits. Needs ring tokens of four words; not for rings with C nodes.
    Murmur3,
}

impl HashType {
    /// All hashes, in the reference's order.
    pub const ALL: [HashType; 13] = [
        HashType::OneAtATime,
        HashType::Md5,
        HashType::Crc16,
        HashType::Crc32,
        HashType::Crc32a,
        HashType::Fnv1_64,
        HashType::Fnv1a64,
        HashType::Fnv1_32,
        HashType::Fnv1a32,
        HashType::Hsieh,
        HashType::Murmur,
        HashType::Jenkins,
        HashType::Murmur3,
    ];

    /// The name in `hash:`, exactly as Dynomite spells it.
    pub fn name(self) -> &'static str {
        match self {
            HashType::OneAtATime => "one_at_a_time",
            HashType::Md5 => "md5",
            HashType::Crc16 => "crc16",
            HashType::Crc32 => "crc32",
            HashType::Crc32a => "crc32a",
            HashType::Fnv1_64 => "fnv1_64",
            HashType::Fnv1a64 => "fnv1a_64",
            HashType::Fnv1_32 => "fnv1_32",
            HashType::Fnv1a32 => "fnv1a_32",
            HashType::Hsieh => "hsieh",
            HashType::Murmur => "murmur",
            HashType::Jenkins => "jenkins",
            HashType::Murmur3 => "murmur3",
        }
    }

    /// Bits of the tokens this hash yields: they lie in 0 to 2^bits - 1. Ring layouts must
    /// spread over that range.
    pub fn token_bits(self) -> u32 {
        match self {
            HashType::Crc32 => 15,
            HashType::Murmur3 => 128,
            HashType::OneAtATime
            | HashType::Md5
            | HashType::Crc16
            | HashType::Crc32a
            | HashType::Fnv1_64
            | HashType::Fnv1a64
            | HashType::Fnv1_32
            | HashType::Fnv1a32
            | HashType::Hsieh
            | HashType::Murmur
            | HashType::Jenkins => 32,
        }
    }
}

/// The token of `key` under `hash`, over all bytes of the key.
#[inline]
pub fn map_hash(hash: HashType, key: &[u8]) -> DynToken {
    let value = match hash {
        HashType::OneAtATime => one_at_a_time::one_at_a_time(key),
        HashType::Md5 => md5::md5(key),
        HashType::Crc16 => crc::crc16(key),
        HashType::Crc32 => crc::crc32(key),
        HashType::Crc32a => crc::crc32a(key),
        HashType::Fnv1_64 => fnv::fnv1_64(key),
        HashType::Fnv1a64 => fnv::fnv1a_64(key),
        HashType::Fnv1_32 => fnv::fnv1_32(key),
        HashType::Fnv1a32 => fnv::fnv1a_32(key),
        HashType::Hsieh => hsieh::hsieh(key),
        HashType::Murmur => murmur::murmur(key),
        HashType::Jenkins => jenkins::jenkins(key),
        HashType::Murmur3 => return DynToken::from_u128(murmur::murmur3(key)),
    };
    DynToken::from_u32(value)
}

/// How a pool turns keys into tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KeyHasher {
    /// The hash.
    pub hash: HashType,
    /// The bytes that enclose the hashed part of a key, if any.
    pub tag: Option<HashTag>,
}

impl KeyHasher {
    /// The token of `key`: where it lives on every rack.
    #[inline]
    pub fn token(&self, key: &[u8]) -> DynToken {
        match self.tag {
            Some(tag) => map_hash(self.hash, tag.tagged(key)),
            None => map_hash(self.hash, key),
        }
    }

    /// The one token of all keys that begin with `prefix`, when there is one: a whole tag stands in
    /// it.
    pub fn token_of_prefix(&self, prefix: &[u8]) -> Option<DynToken> {
        Some(map_hash(self.hash, self.tag?.inside(prefix)?))
    }
}

/// A text that names no hash.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown hash {text:?}, expected one of {}", HashType::ALL.map(HashType::name).join(", "))]
pub struct UnknownHash {
    /// The offending text.
    pub text: String,
}

/// The exact name; `MURMUR` is not one.
impl FromStr for HashType {
    type Err = UnknownHash;

    fn from_str(text: &str) -> Result<HashType, UnknownHash> {
        HashType::ALL
            .into_iter()
            .find(|hash| hash.name() == text)
            .ok_or_else(|| UnknownHash { text: text.to_owned() })
    }
}

impl fmt::Display for HashType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
