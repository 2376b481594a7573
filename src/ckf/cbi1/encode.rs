//! Frames to bytes, appended to the caller's buffer.

use super::{
    AT_CHECKSUM, CHUNK_WORDS_MAX, DELTA_IMAGES_MAX, HEADER_BYTES, KIND_CHUNK, KIND_DELTA, MAGIC,
    WIRE_VERSION, checksum,
};
use crate::ckf::bucket::BucketImage;
use crate::ckf::format::{CkfFormat, FormatError};
use crate::ckf::identity::DcId;

/// Why something cannot be a frame. The buffer is unchanged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EncodeError {
    /// The format is not one of ours.
    #[error(transparent)]
    Format(#[from] FormatError),
    /// The table is not as long as the format says.
    #[error("a table of {actual} words instead of {expected}")]
    SnapshotBucketCount {
        /// Buckets of the format.
        expected: u64,
        /// Words given.
        actual: usize,
    },
    /// The snapshot has fewer chunks.
    #[error("chunk {0} is past the end of the snapshot")]
    ChunkIndex(u32),
    /// More images than a frame can hold: the publisher must fall back to a snapshot.
    #[error("{0} images are more than {DELTA_IMAGES_MAX}")]
    DeltaImageCount(usize),
    /// An image outside the table.
    #[error("bucket {0} is past the last bucket")]
    BucketIndex(u32),
}

impl EncodeError {
    /// Fixed name for metrics.
    pub fn label(&self) -> &'static str {
        match self {
            EncodeError::Format(FormatError::BucketCount(_)) => "bucket_count",
            EncodeError::Format(_) => "format",
            EncodeError::SnapshotBucketCount { .. } => "snapshot_bucket_count",
            EncodeError::ChunkIndex(_) => "chunk_index",
            EncodeError::DeltaImageCount(_) => "delta_image_count",
            EncodeError::BucketIndex(_) => "bucket_index",
        }
    }
}

/// What every frame of one producer and moment carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
    /// The producer's format.
    pub format: CkfFormat,
    /// The producer's datacenter.
    pub dc_id: DcId,
    /// Publication sequence after the frame is applied.
    pub epoch: u64,
}

/// Chunks of a snapshot of this many buckets.
pub fn chunk_count(bucket_count: u64) -> u32 {
    bucket_count.div_ceil(CHUNK_WORDS_MAX as u64) as u32
}

/// Appends chunk number `index` of a snapshot of `table`, the words of all buckets.
pub fn encode_chunk(
    out: &mut Vec<u8>,
    stamp: &Stamp,
    table: &[u64],
    index: u32,
) -> Result<(), EncodeError> {
    stamp.format.check()?;
    if table.len() as u64 != stamp.format.bucket_count {
        let (expected, actual) = (stamp.format.bucket_count, table.len());
        return Err(EncodeError::SnapshotBucketCount { expected, actual });
    }
    let count = chunk_count(stamp.format.bucket_count);
    if index >= count {
        return Err(EncodeError::ChunkIndex(index));
    }
    let offset = index as usize * CHUNK_WORDS_MAX;
    let words = &table[offset..table.len().min(offset + CHUNK_WORDS_MAX)];
    let start = push_header(out, stamp, KIND_CHUNK);
    out.extend_from_slice(&index.to_le_bytes());
    out.extend_from_slice(&count.to_le_bytes());
    out.extend_from_slice(&(offset as u64).to_le_bytes());
    words.iter().for_each(|word| out.extend_from_slice(&word.to_le_bytes()));
    seal(out, start);
    Ok(())
}

/// Appends a delta from `base_epoch` to `stamp.epoch`. An empty delta can be encoded, but every
/// consumer refuses it: do not send one.
pub fn encode_delta(
    out: &mut Vec<u8>,
    stamp: &Stamp,
    base_epoch: u64,
    images: &[BucketImage],
) -> Result<(), EncodeError> {
    stamp.format.check()?;
    if images.len() > DELTA_IMAGES_MAX {
        return Err(EncodeError::DeltaImageCount(images.len()));
    }
    let outside = |image: &&BucketImage| u64::from(image.bucket) >= stamp.format.bucket_count;
    if let Some(image) = images.iter().find(outside) {
        return Err(EncodeError::BucketIndex(image.bucket));
    }
    let start = push_header(out, stamp, KIND_DELTA);
    out.extend_from_slice(&base_epoch.to_le_bytes());
    out.extend_from_slice(&(images.len() as u32).to_le_bytes());
    for image in images {
        out.extend_from_slice(&image.bucket.to_le_bytes());
        out.extend_from_slice(&image.word.to_le_bytes());
    }
    seal(out, start);
    Ok(())
}

/// Appends a header with an empty checksum; returns where it begins.
fn push_header(out: &mut Vec<u8>, stamp: &Stamp, kind: u16) -> usize {
    let start = out.len();
    out.extend_from_slice(&MAGIC);
    out.extend_from_slice(&WIRE_VERSION.to_le_bytes());
    out.extend_from_slice(&kind.to_le_bytes());
    out.push(stamp.format.fingerprint_bits);
    out.push(stamp.format.slots_per_bucket);
    out.extend_from_slice(&stamp.format.format_version.to_le_bytes());
    out.extend_from_slice(&stamp.format.seed.to_le_bytes());
    out.extend_from_slice(&stamp.format.bucket_count.to_le_bytes());
    out.extend_from_slice(&stamp.dc_id.get().to_le_bytes());
    out.extend_from_slice(&stamp.epoch.to_le_bytes());
    out.extend_from_slice(&[0; 4]);
    debug_assert_eq!(out.len() - start, HEADER_BYTES);
    start
}

/// Writes the checksum of the body that follows the header at `start`.
fn seal(out: &mut [u8], start: usize) {
    let sum = checksum(&out[start + HEADER_BYTES..]);
    out[start + AT_CHECKSUM..start + HEADER_BYTES].copy_from_slice(&sum.to_le_bytes());
}
