//! Both sides of the relay beside the crate `dynamo-kv-router` 1.6.1: its consumer is fed from a
//! node's frames, and a node is fed from its producer's.
//!
//! Nothing here is shared with torc but the contract's file: frames are read and written by code
//! of this package ([`cbi1`]).

pub mod cbi1;
pub mod consumer;
pub mod node;
pub mod pool;
pub mod producer;
pub mod relay;

/// Messages and service of the contract.
#[allow(missing_docs, clippy::all)]
pub mod proto {
    tonic::include_proto!("dynamo.kvrelay.v1");
}

/// "KVR1", in every message.
pub const MARKER: u32 = 0x4B56_5231;
/// Blocks a filter is sized for, on both sides.
pub const EXPECTED: usize = 20_000;
/// Tokens of a block.
pub const BLOCK_SIZE: u32 = 16;
/// The domain's name on the node.
pub const DOMAIN: &str = "llama";

/// A chain of block hashes, and how many of them are held.
pub struct Chain {
    pub blocks: Vec<u64>,
    pub held: usize,
}

/// The same chains on every run.
pub fn chains() -> Vec<Chain> {
    const COUNT: usize = 200;
    const BLOCKS: usize = 64;
    let mut state = 7u64;
    let mut random = || {
        state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = state;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    };
    let chain = |n: usize| Chain {
        blocks: (0..BLOCKS).map(|_| random()).collect(),
        held: n * BLOCKS / (COUNT - 1),
    };
    (0..COUNT).map(chain).collect()
}

/// What an engine calls a block: not its hash.
pub fn engine_id(hash: u64) -> u64 {
    !hash
}
