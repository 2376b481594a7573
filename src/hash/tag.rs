//! Hash tags: the part of a key that decides where it lives.

use std::fmt;
use std::str::FromStr;

/// Two bytes that enclose the hashed part of a key. They may be the same byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HashTag {
    open: u8,
    close: u8,
}

impl HashTag {
    /// A tag of two bytes.
    pub fn new(open: u8, close: u8) -> HashTag {
        HashTag { open, close }
    }

    /// The bytes of `key` to hash: those between the first `open` and the first `close` after
    /// it, or the whole key when there is no such pair or nothing in it.
    ///
    /// Parity: the reference sends a key with an empty pair to itself on every rack, and crashes
    /// with two racks (`dyn_redis.c`). Hashing the whole key is what Redis Cluster does.
    ///
    /// ```
    /// use torc::hash::HashTag;
    ///
    /// let tag: HashTag = "{}".parse().unwrap();
    /// assert_eq!(tag.tagged(b"cart:{user:7}:items"), b"user:7");
    /// assert_eq!(tag.tagged(b"a{}b{c}"), b"a{}b{c}");
    /// ```
    pub fn tagged<'k>(&self, key: &'k [u8]) -> &'k [u8] {
        self.inside(key).unwrap_or(key)
    }

    /// What stands between the first `open` and the first `close` after it, unless that is nothing.
    pub(super) fn inside<'k>(&self, key: &'k [u8]) -> Option<&'k [u8]> {
        let open = memchr::memchr(self.open, key)?;
        let rest = &key[open + 1..];
        let part = &rest[..memchr::memchr(self.close, rest)?];
        Some(part).filter(|part| !part.is_empty())
    }
}

/// A `hash_tag` that is not two characters long.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("hash_tag {text:?} has {} bytes, expected exactly two characters such as \"{{}}\"",
    text.len())]
pub struct HashTagError {
    /// The offending text.
    pub text: String,
}

/// Exactly two bytes, as in the reference.
impl FromStr for HashTag {
    type Err = HashTagError;

    fn from_str(text: &str) -> Result<HashTag, HashTagError> {
        match *text.as_bytes() {
            [open, close] => Ok(HashTag { open, close }),
            _ => Err(HashTagError { text: text.to_owned() }),
        }
    }
}

impl fmt::Display for HashTag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&String::from_utf8_lossy(&[self.open, self.close]))
    }
}
