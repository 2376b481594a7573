//! CBI1 ("cuckoo bucket images, version 1"): snapshot chunks and deltas of one filter as bytes.
//!
//! A frame is a 48-byte header and a body, all little-endian, without padding:
//!
//! ```text
//! header   0 magic "CBI1"   4 wire version u16   6 kind u16 (1 chunk, 2 delta)
//!          8 fingerprint bits u8   9 slots per bucket u8   10 format version u16
//!         12 seed u64   20 bucket count u64   28 dc id u64   36 epoch u64
//!         44 low 32 bits of XXH3-64 over the body
//! chunk    0 chunk index u32   4 chunk count u32   8 first bucket u64   16 words u64 ...
//! delta    0 base epoch u64   8 image count u32   12 (bucket u32, word u64) ...
//! ```
//!
//! The checksum covers the body alone, so the caller must compare `dc_id` and `epoch` with what
//! its stream says. A decoder never allocates: it hands out views of the payload.
//!
//! Follows `ai-dynamo/dynamo lib/llm/src/kv_dc_relay/publication/cbi1.rs`, recorded in
//! `tests/vectors/cbi1.json`. Knows nothing of protobuf or gRPC.

mod assemble;
mod decode;
mod encode;
#[cfg(test)]
mod tests;

pub use assemble::{AssembleError, Assembler, Snapshot};
pub use decode::{Chunk, DecodeError, Delta, Frame, decode};
pub use encode::{EncodeError, Stamp, chunk_count, encode_chunk, encode_delta};

/// First bytes of every frame.
pub const MAGIC: [u8; 4] = *b"CBI1";
/// The only wire version there is.
pub const WIRE_VERSION: u16 = 1;
/// Bytes of the header.
pub const HEADER_BYTES: usize = 48;
/// Words of a full snapshot chunk (4 MiB).
pub const CHUNK_WORDS_MAX: usize = 524_288;
/// Bytes of the largest frame: a full snapshot chunk.
pub const FRAME_BYTES_MAX: usize = HEADER_BYTES + CHUNK_HEAD_BYTES + CHUNK_WORDS_MAX * WORD_BYTES;
/// Images of the largest delta.
pub const DELTA_IMAGES_MAX: usize =
    (FRAME_BYTES_MAX - HEADER_BYTES - DELTA_HEAD_BYTES) / IMAGE_BYTES;

const KIND_CHUNK: u16 = 1;
const KIND_DELTA: u16 = 2;
const CHUNK_HEAD_BYTES: usize = 16;
const DELTA_HEAD_BYTES: usize = 12;
const WORD_BYTES: usize = 8;
const IMAGE_BYTES: usize = 12;

// Offsets in the header.
const AT_VERSION: usize = 4;
const AT_KIND: usize = 6;
const AT_FINGERPRINT_BITS: usize = 8;
const AT_SLOTS: usize = 9;
const AT_FORMAT_VERSION: usize = 10;
const AT_SEED: usize = 12;
const AT_BUCKET_COUNT: usize = 20;
const AT_DC_ID: usize = 28;
const AT_EPOCH: usize = 36;
const AT_CHECKSUM: usize = 44;

/// Low half of the body's hash.
fn checksum(body: &[u8]) -> u32 {
    xxhash_rust::xxh3::xxh3_64(body) as u32
}
