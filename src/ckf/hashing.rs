//! From token ids to block hashes, and from block hashes to the rolling sequence hash.
//!
//! Three 64-bit numbers meet here and must not be mixed: the engine's own id of a block
//! ([`ExternalId`]), the hash of one block's tokens ([`BlockHash`]) and the hash of a block
//! together with everything before it ([`SequenceHash`], the *canonical* hash, the only one that
//! is counted, fingerprinted and asked for). They are types of their own for that reason.
//!
//! Rules of `DYNAMO_STANDARD_V1` and `DYNAMO_EAGLE_V1` (crates `dynamo-kv-hashing` and
//! `dynamo-kv-router` 1.6.1), XXH3-64 throughout, little-endian.

use xxhash_rust::xxh3::{Xxh3, xxh3_64_with_seed};

/// Seed of the chain, and of block hashes without salt.
pub const CHAIN_SEED: u64 = 1337;

/// The engine's own name of a block; meaningful only inside one source.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ExternalId(pub u64);

/// The hash of the tokens of one block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BlockHash(pub u64);

/// The canonical hash of a block and of all blocks before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SequenceHash(pub u64);

impl SequenceHash {
    /// The hash of a chain's first block.
    #[inline]
    pub fn first(block: BlockHash) -> SequenceHash {
        SequenceHash(block.0)
    }

    /// The hash of `block` after everything `self` stands for.
    #[inline]
    pub fn child(self, block: BlockHash) -> SequenceHash {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&self.0.to_le_bytes());
        bytes[8..].copy_from_slice(&block.0.to_le_bytes());
        SequenceHash(xxh3_64_with_seed(&bytes, CHAIN_SEED))
    }

    /// The hash of `block` after `parent`, if there is one.
    #[inline]
    pub fn after(parent: Option<SequenceHash>, block: BlockHash) -> SequenceHash {
        match parent {
            None => SequenceHash::first(block),
            Some(parent) => parent.child(block),
        }
    }
}

/// How tokens are cut into blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum HashFormat {
    /// `block_size` tokens each, without overlap.
    Standard,
    /// `block_size + 1` tokens each; neighbours share one token.
    Eagle,
}

impl HashFormat {
    /// The number that takes part in the cache-semantics digest.
    pub fn identity_version(self) -> u16 {
        match self {
            HashFormat::Standard => 1,
            HashFormat::Eagle => 2,
        }
    }

    /// The name used by the relay contract.
    pub fn name(self) -> &'static str {
        match self {
            HashFormat::Standard => "DYNAMO_STANDARD_V1",
            HashFormat::Eagle => "DYNAMO_EAGLE_V1",
        }
    }

    fn window(self, block_size: usize) -> usize {
        match self {
            HashFormat::Standard => block_size,
            HashFormat::Eagle => block_size + 1,
        }
    }
}

/// The seed of block hashes for an adapter and a cache namespace. Empty text is the same as none.
/// For a LoRA target the name is the canonical adapter id, never an alias.
pub fn salt_seed(lora_name: Option<&str>, cache_namespace: Option<&str>) -> u64 {
    let part = |text: Option<&str>, seed| match text {
        None | Some("") => 0,
        Some(text) => xxh3_64_with_seed(text.as_bytes(), seed),
    };
    CHAIN_SEED.wrapping_add(part(lora_name, 0)).wrapping_add(part(cache_namespace, 1))
}

/// The block hashes of `tokens`, complete windows only. A block size of 0 gives none.
pub fn block_hashes(
    tokens: &[u32],
    block_size: usize,
    format: HashFormat,
    salt: u64,
) -> impl Iterator<Item = BlockHash> {
    windows(tokens, block_size, format).map(move |window| hash_block(window, &[], salt))
}

/// Like [`block_hashes`], with the hashes of the objects (images, audio) that lie in each block.
/// Their order and place do not matter; blocks beyond the end of `objects` have none.
pub fn block_hashes_multimodal(
    tokens: &[u32],
    block_size: usize,
    format: HashFormat,
    salt: u64,
    objects: &[Vec<u64>],
) -> impl Iterator<Item = BlockHash> {
    windows(tokens, block_size, format).enumerate().map(move |(index, window)| {
        hash_block(window, objects.get(index).map_or(&[], Vec::as_slice), salt)
    })
}

/// The rolling hashes of a chain that starts at its first block.
pub fn sequence_hashes(
    blocks: impl Iterator<Item = BlockHash>,
) -> impl Iterator<Item = SequenceHash> {
    blocks.scan(None, |parent, block| {
        let hash = SequenceHash::after(*parent, block);
        *parent = Some(hash);
        Some(hash)
    })
}

/// The hash an opaque multimodal identifier stands for: 64 hexadecimal digits are a digest whose
/// first 16 count, anything else is hashed, nothing stands for nothing.
pub fn multimodal_hash(identifier: &str) -> Option<u64> {
    if identifier.is_empty() {
        return None;
    }
    let is_digest =
        identifier.len() == 64 && identifier.bytes().all(|byte| byte.is_ascii_hexdigit());
    if is_digest {
        return u64::from_str_radix(&identifier[..16], 16).ok();
    }
    Some(xxh3_64_with_seed(identifier.as_bytes(), 0))
}

/// The token id that stands in the place of a multimodal object.
pub fn multimodal_pad_value(mm_hash: u64) -> u32 {
    1_000_000 + (mm_hash & ((1 << 30) - 1)) as u32
}

/// Complete windows, each `block_size` tokens after the one before.
fn windows(tokens: &[u32], block_size: usize, format: HashFormat) -> impl Iterator<Item = &[u32]> {
    let window = format.window(block_size);
    let starts = if block_size == 0 || tokens.len() < window {
        0
    } else {
        (tokens.len() - window) / block_size + 1
    };
    (0..starts).map(move |index| &tokens[index * block_size..index * block_size + window])
}

/// Tokens in their bytes, then the objects' hashes in ascending order.
fn hash_block(tokens: &[u32], objects: &[u64], salt: u64) -> BlockHash {
    // Blocks of up to 128 tokens without objects are hashed in one go from the stack: the
    // streaming hasher costs more than the hash itself.
    const STACK_TOKENS: usize = 128;
    if tokens.len() <= STACK_TOKENS && objects.is_empty() {
        let mut bytes = [0; STACK_TOKENS * 4];
        for (cell, token) in bytes.chunks_exact_mut(4).zip(tokens) {
            cell.copy_from_slice(&token.to_le_bytes());
        }
        return BlockHash(xxh3_64_with_seed(&bytes[..tokens.len() * 4], salt));
    }
    let mut sorted = objects.to_vec();
    sorted.sort_unstable();
    let mut hasher = Xxh3::with_seed(salt);
    tokens.iter().for_each(|token| hasher.update(&token.to_le_bytes()));
    sorted.iter().for_each(|object| hasher.update(&object.to_le_bytes()));
    BlockHash(hasher.digest())
}

#[cfg(test)]
mod tests;
