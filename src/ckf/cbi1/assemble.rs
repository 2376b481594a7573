//! Snapshot chunks to one table.
//!
//! Nothing is handed out before the last chunk, and the memory is one dense table of the validated
//! format, whatever the chunks claim.

use super::decode::{Chunk, Frame};
use crate::ckf::format::CkfFormat;

/// Why a stream of chunks is not a snapshot. The assembler has forgotten everything and waits for
/// the next first chunk, except after a misplaced delta, which leaves it as it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AssembleError {
    /// A chunk out of order or of another snapshot, or a delta between chunks.
    #[error("a snapshot chunk is missing, repeated or of another snapshot")]
    ChunkSequence,
    /// The last chunk ended before the last bucket.
    #[error("the snapshot ends at bucket {0}")]
    IncompleteCoverage(u64),
    /// No memory for the table.
    #[error("no memory for a table of {0} buckets")]
    NoMemory(u64),
}

/// A whole snapshot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Snapshot {
    /// Sequence the table stands for.
    pub epoch: u64,
    /// One word a bucket.
    pub words: Vec<u64>,
}

/// Collects the chunks of one stream, for one format.
#[derive(Debug)]
pub struct Assembler {
    format: CkfFormat,
    partial: Option<Partial>,
}

#[derive(Debug)]
struct Partial {
    epoch: u64,
    chunk_count: u32,
    next_chunk: u32,
    words: Vec<u64>,
}

impl Assembler {
    /// An assembler for one stream of `format`.
    pub fn new(format: CkfFormat) -> Assembler {
        Assembler { format, partial: None }
    }

    /// Takes the next frame; gives the snapshot when it is complete.
    pub fn push(&mut self, frame: &Frame<'_>) -> Result<Option<Snapshot>, AssembleError> {
        let chunk = match frame {
            Frame::Chunk(chunk) => chunk,
            Frame::Delta(_) => return Err(AssembleError::ChunkSequence),
        };
        let mut partial = match self.partial.take() {
            _ if chunk.chunk_index == 0 => self.start(chunk)?,
            Some(partial) => partial,
            None => return Err(AssembleError::ChunkSequence),
        };
        let fits = chunk.chunk_index == partial.next_chunk
            && chunk.chunk_count == partial.chunk_count
            && chunk.epoch == partial.epoch
            && chunk.bucket_offset == partial.words.len() as u64;
        if !fits {
            return Err(AssembleError::ChunkSequence);
        }
        partial.words.extend(chunk.words());
        partial.next_chunk += 1;
        if partial.next_chunk < partial.chunk_count {
            self.partial = Some(partial);
            return Ok(None);
        }
        let covered = partial.words.len() as u64;
        if covered != self.format.bucket_count {
            return Err(AssembleError::IncompleteCoverage(covered));
        }
        Ok(Some(Snapshot { epoch: partial.epoch, words: partial.words }))
    }

    fn start(&self, chunk: &Chunk<'_>) -> Result<Partial, AssembleError> {
        let count = self.format.bucket_count;
        let mut words = Vec::new();
        words.try_reserve_exact(count as usize).map_err(|_| AssembleError::NoMemory(count))?;
        Ok(Partial { epoch: chunk.epoch, chunk_count: chunk.chunk_count, next_chunk: 0, words })
    }
}
