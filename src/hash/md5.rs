//! MD5, cut to its first word.

use md5::{Digest, Md5};

/// The first four digest bytes, little-endian.
pub(super) fn md5(key: &[u8]) -> u32 {
    let digest = Md5::digest(key);
    u32::from_le_bytes([digest[0], digest[1], digest[2], digest[3]])
}
