//! Bytes to a view of one frame. Checks run in a fixed order and the first failure wins.

use super::{
    AT_BUCKET_COUNT, AT_CHECKSUM, AT_DC_ID, AT_EPOCH, AT_FINGERPRINT_BITS, AT_FORMAT_VERSION,
    AT_KIND, AT_SEED, AT_SLOTS, AT_VERSION, CHUNK_HEAD_BYTES, CHUNK_WORDS_MAX, DELTA_HEAD_BYTES,
    DELTA_IMAGES_MAX, FRAME_BYTES_MAX, HEADER_BYTES, IMAGE_BYTES, KIND_CHUNK, KIND_DELTA, MAGIC,
    WIRE_VERSION, WORD_BYTES, checksum,
};
use crate::ckf::bucket::BucketImage;
use crate::ckf::format::{CkfFormat, FINGERPRINT_BITS, FORMAT_VERSION, SLOTS_PER_BUCKET};
use crate::ckf::identity::DcId;

/// Why bytes are not a frame of the expected format. None of them changes any state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// Shorter than a header.
    #[error("{0} bytes are less than a header")]
    Truncated(usize),
    /// Longer than the largest frame.
    #[error("{0} bytes are more than the largest frame")]
    FrameTooLarge(usize),
    /// Does not begin with `CBI1`.
    #[error("the magic is not CBI1")]
    Magic,
    /// Another wire version.
    #[error("wire version {0} is not {WIRE_VERSION}")]
    WireVersion(u16),
    /// The body is not what was sent.
    #[error("the checksum does not match the body")]
    Checksum,
    /// Another format version.
    #[error("format version {0} is not {FORMAT_VERSION}")]
    FormatVersion(u16),
    /// Another width of fingerprints.
    #[error("{0} fingerprint bits instead of {FINGERPRINT_BITS}")]
    FingerprintBits(u8),
    /// Another bucket width.
    #[error("{0} slots per bucket instead of {SLOTS_PER_BUCKET}")]
    SlotsPerBucket(u8),
    /// Seed or bucket count differ from the producer's format.
    #[error("seed or bucket count differ from the producer's format")]
    FormatMismatch,
    /// Neither a snapshot chunk nor a delta.
    #[error("unknown frame kind {0:#06x}")]
    Flags(u16),
    /// More images than a frame can hold.
    #[error("{0} images are more than {DELTA_IMAGES_MAX}")]
    DeltaImageCount(u32),
    /// More words than a chunk may hold.
    #[error("{0} words are more than {CHUNK_WORDS_MAX}")]
    ChunkWordCount(usize),
    /// The body contradicts itself or the format.
    #[error("malformed body: {0}")]
    Malformed(&'static str),
}

impl DecodeError {
    /// Fixed name for metrics.
    pub fn label(&self) -> &'static str {
        match self {
            DecodeError::Truncated(_) => "truncated",
            DecodeError::FrameTooLarge(_) => "frame_too_large",
            DecodeError::Magic => "magic",
            DecodeError::WireVersion(_) => "wire_version",
            DecodeError::Checksum => "checksum",
            DecodeError::FormatVersion(_) => "format_version",
            DecodeError::FingerprintBits(_) => "fingerprint_bits",
            DecodeError::SlotsPerBucket(_) => "slots_per_bucket",
            DecodeError::FormatMismatch => "format_mismatch",
            DecodeError::Flags(_) => "flags",
            DecodeError::DeltaImageCount(_) => "delta_image_count",
            DecodeError::ChunkWordCount(_) => "snapshot_chunk_word_count",
            DecodeError::Malformed(_) => "malformed",
        }
    }
}

/// A decoded frame: a view of the payload it came from.
#[derive(Clone, Copy, Debug)]
pub enum Frame<'a> {
    /// Part of a snapshot.
    Chunk(Chunk<'a>),
    /// Changes since a known epoch.
    Delta(Delta<'a>),
}

/// A run of consecutive bucket words.
#[derive(Clone, Copy, Debug)]
pub struct Chunk<'a> {
    /// The datacenter; the caller compares it with its producer's.
    pub dc_id: DcId,
    /// Sequence of the whole snapshot; the caller compares it with the envelope.
    pub epoch: u64,
    /// Place of this chunk, from 0.
    pub chunk_index: u32,
    /// Chunks of the snapshot, at least 1.
    pub chunk_count: u32,
    /// First bucket of this chunk.
    pub bucket_offset: u64,
    words: &'a [u8],
}

impl<'a> Chunk<'a> {
    /// The words, in bucket order.
    pub fn words(&self) -> impl ExactSizeIterator<Item = u64> + use<'a> {
        self.words.chunks_exact(WORD_BYTES).map(|bytes| u64_at(bytes, 0))
    }
}

/// Absolute words of changed buckets.
#[derive(Clone, Copy, Debug)]
pub struct Delta<'a> {
    /// The datacenter; the caller compares it with its producer's.
    pub dc_id: DcId,
    /// Sequence after these images; the caller compares it with the envelope.
    pub epoch: u64,
    /// Sequence the receiver must have; the caller compares it with the envelope.
    pub base_epoch: u64,
    images: &'a [u8],
}

impl<'a> Delta<'a> {
    /// The images, in the order sent. Every bucket lies inside the format.
    pub fn images(&self) -> impl ExactSizeIterator<Item = BucketImage> + use<'a> {
        self.images
            .chunks_exact(IMAGE_BYTES)
            .map(|bytes| BucketImage { bucket: u32_at(bytes, 0), word: u64_at(bytes, 4) })
    }
}

/// Decodes one whole payload. `expected` comes from the validated producer, never from a frame.
pub fn decode<'a>(payload: &'a [u8], expected: &CkfFormat) -> Result<Frame<'a>, DecodeError> {
    if payload.len() < HEADER_BYTES {
        return Err(DecodeError::Truncated(payload.len()));
    }
    if payload.len() > FRAME_BYTES_MAX {
        return Err(DecodeError::FrameTooLarge(payload.len()));
    }
    let (header, body) = payload.split_at(HEADER_BYTES);
    check_header(header, body, expected)?;
    let dc_id = DcId::new(u64_at(header, AT_DC_ID));
    let epoch = u64_at(header, AT_EPOCH);
    match u16_at(header, AT_KIND) {
        KIND_CHUNK => decode_chunk(body, expected, dc_id, epoch).map(Frame::Chunk),
        KIND_DELTA => decode_delta(body, expected, dc_id, epoch).map(Frame::Delta),
        kind => Err(DecodeError::Flags(kind)),
    }
}

fn check_header(header: &[u8], body: &[u8], expected: &CkfFormat) -> Result<(), DecodeError> {
    if header[..4] != MAGIC {
        return Err(DecodeError::Magic);
    }
    let version = u16_at(header, AT_VERSION);
    if version != WIRE_VERSION {
        return Err(DecodeError::WireVersion(version));
    }
    if u32_at(header, AT_CHECKSUM) != checksum(body) {
        return Err(DecodeError::Checksum);
    }
    let bucket_count = u64_at(header, AT_BUCKET_COUNT);
    if usize::try_from(bucket_count).is_err() {
        return Err(DecodeError::Malformed("the bucket count exceeds the machine word"));
    }
    let format_version = u16_at(header, AT_FORMAT_VERSION);
    if format_version != FORMAT_VERSION {
        return Err(DecodeError::FormatVersion(format_version));
    }
    if header[AT_FINGERPRINT_BITS] != FINGERPRINT_BITS {
        return Err(DecodeError::FingerprintBits(header[AT_FINGERPRINT_BITS]));
    }
    if header[AT_SLOTS] != SLOTS_PER_BUCKET {
        return Err(DecodeError::SlotsPerBucket(header[AT_SLOTS]));
    }
    if u64_at(header, AT_SEED) != expected.seed || bucket_count != expected.bucket_count {
        return Err(DecodeError::FormatMismatch);
    }
    Ok(())
}

fn decode_chunk<'a>(
    body: &'a [u8],
    expected: &CkfFormat,
    dc_id: DcId,
    epoch: u64,
) -> Result<Chunk<'a>, DecodeError> {
    if body.len() < CHUNK_HEAD_BYTES {
        return Err(DecodeError::Malformed("a chunk needs 16 bytes before its words"));
    }
    let (head, words) = body.split_at(CHUNK_HEAD_BYTES);
    let (chunk_index, chunk_count) = (u32_at(head, 0), u32_at(head, 4));
    if chunk_index >= chunk_count {
        return Err(DecodeError::Malformed("the chunk index is not below the chunk count"));
    }
    if !words.len().is_multiple_of(WORD_BYTES) {
        return Err(DecodeError::Malformed("the last word is cut"));
    }
    let count = words.len() / WORD_BYTES;
    if count > CHUNK_WORDS_MAX {
        return Err(DecodeError::ChunkWordCount(count));
    }
    let bucket_offset = u64_at(head, 8);
    match bucket_offset.checked_add(count as u64) {
        Some(end) if end <= expected.bucket_count => {}
        _ => {
            return Err(DecodeError::Malformed("the words reach past the last bucket"));
        }
    }
    Ok(Chunk { dc_id, epoch, chunk_index, chunk_count, bucket_offset, words })
}

fn decode_delta<'a>(
    body: &'a [u8],
    expected: &CkfFormat,
    dc_id: DcId,
    epoch: u64,
) -> Result<Delta<'a>, DecodeError> {
    if body.len() < DELTA_HEAD_BYTES {
        return Err(DecodeError::Malformed("a delta needs 12 bytes before its images"));
    }
    let (head, images) = body.split_at(DELTA_HEAD_BYTES);
    let count = u32_at(head, 8);
    if count as usize > DELTA_IMAGES_MAX {
        return Err(DecodeError::DeltaImageCount(count));
    }
    if images.len() != count as usize * IMAGE_BYTES {
        return Err(DecodeError::Malformed("the length differs from the image count"));
    }
    let delta = Delta { dc_id, epoch, base_epoch: u64_at(head, 0), images };
    if delta.images().any(|image| u64::from(image.bucket) >= expected.bucket_count) {
        return Err(DecodeError::Malformed("an image lies past the last bucket"));
    }
    Ok(delta)
}

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes(array_at(bytes, at))
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(array_at(bytes, at))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(array_at(bytes, at))
}

/// `N` bytes from `at`; the callers have checked the length.
fn array_at<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    let mut out = [0; N];
    out.copy_from_slice(&bytes[at..at + N]);
    out
}
