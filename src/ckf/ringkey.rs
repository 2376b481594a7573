//! The hash of a ring key (a Redis or memcache key) as a one-block chain.
//!
//! The 64-bit hash of the key is written as two `u32` tokens, low word first, and hashed as one
//! block of two tokens by `DYNAMO_STANDARD_V1`. So the domain's declared semantics (block size 2,
//! standard format) are true of it, and any consumer of the relay contract can compute it.
//! Hash tags do not take part: they place a key on the ring, they do not name it.

use xxhash_rust::xxh3::{Xxh3, xxh3_64_with_seed};

use super::digest::{self, ExplicitMapError, Selection};
use super::hashing::{CHAIN_SEED, HashFormat, SequenceHash};
use super::identity::IndexerDomainId;

/// Tokens of a ring key's only block.
pub const RING_KEY_BLOCK_SIZE: u32 = 2;
/// Domain separation of the first hash.
const DOMAIN: &[u8] = b"torc-key/v1\0";
/// Longest key that is hashed without the streaming hasher.
const STACK_KEY_BYTES: usize = 256;

/// The protocol whose key space a key belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum KeyProtocol {
    /// Redis.
    Resp,
    /// memcache.
    Memcache,
}

impl KeyProtocol {
    /// The name that takes part in the hash.
    pub fn name(self) -> &'static str {
        match self {
            KeyProtocol::Resp => "resp",
            KeyProtocol::Memcache => "memcache",
        }
    }
}

/// The canonical hash of `key`. It serves as external id as well: a key is its own name.
pub fn ring_key_hash(protocol: KeyProtocol, key: &[u8]) -> SequenceHash {
    let name = protocol.name().as_bytes();
    let prefix = DOMAIN.len() + name.len() + 1;
    let first = if prefix + key.len() <= STACK_KEY_BYTES {
        let mut bytes = [0; STACK_KEY_BYTES];
        bytes[..DOMAIN.len()].copy_from_slice(DOMAIN);
        bytes[DOMAIN.len()..prefix - 1].copy_from_slice(name);
        bytes[prefix..prefix + key.len()].copy_from_slice(key);
        xxh3_64_with_seed(&bytes[..prefix + key.len()], 0)
    } else {
        let mut hasher = Xxh3::new();
        hasher.update(DOMAIN);
        hasher.update(name);
        hasher.update(&[0]);
        hasher.update(key);
        hasher.digest()
    };
    // Two tokens, low word first, are the eight little-endian bytes of the hash.
    SequenceHash(xxh3_64_with_seed(&first.to_le_bytes(), CHAIN_SEED))
}

/// The domain of a ring's keys from explicit maps, equal in every datacenter of the ring.
pub fn ring_key_domain<K: Into<String>, V: Into<String>>(
    semantics: impl IntoIterator<Item = (K, V)>,
    scope: impl IntoIterator<Item = (K, V)>,
) -> Result<IndexerDomainId, ExplicitMapError> {
    let semantics = Selection::explicit(semantics)?;
    let scope = Selection::explicit(scope)?;
    Ok(IndexerDomainId {
        cache_semantics: digest::cache_semantics(
            &semantics,
            RING_KEY_BLOCK_SIZE,
            HashFormat::Standard,
        ),
        routing_scope: digest::routing_scope(&scope),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ckf::hashing;

    /// The rule in its long form: hash, two tokens, standard pipeline.
    fn by_the_pipeline(protocol: &str, key: &[u8]) -> u64 {
        let mut bytes = b"torc-key/v1\0".to_vec();
        bytes.extend_from_slice(protocol.as_bytes());
        bytes.push(0);
        bytes.extend_from_slice(key);
        let hash = xxh3_64_with_seed(&bytes, 0);
        let tokens = [hash as u32, (hash >> 32) as u32];
        let salt = hashing::salt_seed(None, None);
        let blocks = hashing::block_hashes(&tokens, 2, HashFormat::Standard, salt);
        let chain: Vec<SequenceHash> = hashing::sequence_hashes(blocks).collect();
        assert_eq!(chain.len(), 1);
        chain[0].0
    }

    #[test]
    fn a_key_is_one_standard_block_of_two_tokens() {
        // Recorded with the relay's own pipeline: tokens 0x89abcdef and 0x01234567.
        let tokens = [0x89AB_CDEF, 0x0123_4567];
        let salt = hashing::salt_seed(None, None);
        let block = hashing::block_hashes(&tokens, 2, HashFormat::Standard, salt).next();
        assert_eq!(block.unwrap().0, 0x97E6_4656_DCE7_C0E8);

        for length in [0, 1, 17, 200, 238, 239, 240, 241, 256, 1000] {
            let key: Vec<u8> = (0..length).map(|i| i as u8).collect();
            let resp = ring_key_hash(KeyProtocol::Resp, &key);
            assert_eq!(resp.0, by_the_pipeline("resp", &key), "{length} bytes");
            let memcache = ring_key_hash(KeyProtocol::Memcache, &key);
            assert_eq!(memcache.0, by_the_pipeline("memcache", &key), "{length} bytes");
            assert_ne!(resp, memcache);
        }
    }

    #[test]
    fn a_domain_needs_explicit_maps() {
        let domain = ring_key_domain([("authority", "ring")], [("authority", "ring")]).unwrap();
        let again = ring_key_domain([("authority", "ring")], [("authority", "ring")]).unwrap();
        let other = ring_key_domain([("authority", "other")], [("authority", "ring")]).unwrap();
        assert_eq!(domain, again);
        assert_ne!(domain, other);
        let none: [(&str, &str); 0] = [];
        assert!(ring_key_domain(none, [("authority", "ring")]).is_err());
    }
}
