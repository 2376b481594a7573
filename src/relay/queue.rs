//! Frames of one subscriber of a filter, between the mirror and the connection: bounded in
//! frames and in bytes.
//!
//! ```text
//!  snapshot ──last chunk taken──▶ deltas and heartbeats
//!      │                               │
//!      └──────────── end ──────────────┴──▶ ended (queued frames are thrown away)
//! ```
//!
//! The chunks of the cut go first, whatever deltas came meanwhile; those are held back and only
//! bounded in bytes, since nobody could have taken them. A chunk that does not fit waits, a delta
//! that does not fit ends the stream: one slow reader costs neither memory nor the others' time.

use std::collections::VecDeque;

use bytes::Bytes;

use super::proto::FilterUpdateKind as Kind;

/// What a queued frame costs besides its payload, in bytes.
pub const FRAME_OVERHEAD_BYTES: usize = 256;

/// Bounds of one subscriber's queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueLimits {
    /// Frames.
    pub frames: usize,
    /// Bytes; room for one largest frame at least.
    pub bytes: usize,
}

/// One frame of a filter's stream. Cloning shares the payload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    /// What it is.
    pub kind: Kind,
    /// The sequence the receiver must have.
    pub base: u64,
    /// The sequence it leads to.
    pub sequence: u64,
    /// CBI1.
    pub payload: Bytes,
}

impl Frame {
    /// The frame that says nothing changed.
    pub fn heartbeat(sequence: u64) -> Frame {
        Frame { kind: Kind::Heartbeat, base: sequence, sequence, payload: Bytes::new() }
    }

    fn cost(&self) -> usize {
        self.payload.len() + FRAME_OVERHEAD_BYTES
    }
}

/// What a reader gets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Next {
    /// The next frame.
    Frame(Frame),
    /// Nothing yet.
    Nothing,
    /// The snapshot is out and nothing is queued: the reader has this sequence.
    Idle(u64),
    /// The stream is over.
    Ended,
}

/// A delta did not fit: the stream has ended, what was queued is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the subscriber does not keep up")]
pub struct Lagged;

/// The queue of one subscriber.
#[derive(Debug)]
pub struct FrameQueue {
    limits: QueueLimits,
    chunks: VecDeque<Frame>,
    deltas: VecDeque<Frame>,
    /// Chunks the reader has not taken yet, queued or not.
    chunks_left: u32,
    /// Deltas that came before the reader had the snapshot.
    held_back: usize,
    bytes: usize,
    /// What the reader has.
    taken: u64,
    ended: bool,
}

impl FrameQueue {
    /// A queue that begins with a snapshot of so many chunks, at least one.
    pub fn new(limits: QueueLimits, chunks: u32) -> FrameQueue {
        debug_assert!(chunks > 0);
        FrameQueue {
            limits,
            chunks: VecDeque::new(),
            deltas: VecDeque::new(),
            chunks_left: chunks,
            held_back: 0,
            bytes: 0,
            taken: 0,
            ended: false,
        }
    }

    /// Queues the next chunk, or gives it back when there is no room.
    pub fn push_chunk(&mut self, frame: Frame) -> Result<(), Frame> {
        if self.ended {
            return Ok(());
        }
        // Held-back deltas must not keep out what they wait for.
        let room = self.chunks.is_empty()
            || (self.chunks.len() < self.limits.frames
                && self.bytes + frame.cost() <= self.limits.bytes);
        if !room {
            return Err(frame);
        }
        self.bytes += frame.cost();
        self.chunks.push_back(frame);
        Ok(())
    }

    /// Queues a delta; the stream ends when there is no room.
    pub fn push_delta(&mut self, frame: Frame) -> Result<(), Lagged> {
        if self.ended {
            return Ok(());
        }
        let waiting = self.deltas.len() - self.held_back;
        let fits =
            waiting < self.limits.frames && self.delta_bytes() + frame.cost() <= self.limits.bytes;
        if !fits {
            self.end();
            return Err(Lagged);
        }
        self.bytes += frame.cost();
        self.held_back += usize::from(self.chunks_left > 0);
        self.deltas.push_back(frame);
        Ok(())
    }

    /// Ends the stream and throws away what is queued.
    pub fn end(&mut self) {
        self.ended = true;
        self.chunks.clear();
        self.deltas.clear();
        self.bytes = 0;
    }

    /// Takes the next frame.
    pub fn take(&mut self) -> Next {
        if self.ended {
            return Next::Ended;
        }
        let frame = if self.chunks_left > 0 {
            let chunk = self.chunks.pop_front();
            self.chunks_left -= u32::from(chunk.is_some());
            chunk
        } else {
            let delta = self.deltas.pop_front();
            self.held_back = self.held_back.saturating_sub(1);
            delta
        };
        match frame {
            Some(frame) => {
                self.bytes -= frame.cost();
                self.taken = frame.sequence;
                Next::Frame(frame)
            }
            None if self.chunks_left > 0 => Next::Nothing,
            None => Next::Idle(self.taken),
        }
    }

    /// Whether the reader has the whole snapshot.
    pub fn has_snapshot(&self) -> bool {
        self.chunks_left == 0
    }

    /// Whether the stream is over.
    pub fn has_ended(&self) -> bool {
        self.ended
    }

    /// Bytes queued.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Frames queued.
    pub fn frames(&self) -> usize {
        self.chunks.len() + self.deltas.len()
    }

    fn delta_bytes(&self) -> usize {
        self.bytes - self.chunks.iter().map(Frame::cost).sum::<usize>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: QueueLimits = QueueLimits { frames: 2, bytes: 3 * 1024 };

    fn frame(kind: Kind, base: u64, sequence: u64, bytes: usize) -> Frame {
        Frame { kind, base, sequence, payload: Bytes::from(vec![0; bytes]) }
    }

    fn chunk() -> Frame {
        frame(Kind::SnapshotChunk, 5, 5, 1000)
    }

    fn delta(sequence: u64) -> Frame {
        frame(Kind::Delta, sequence - 1, sequence, 100)
    }

    #[test]
    fn the_snapshot_goes_first_and_held_back_deltas_follow() {
        let mut queue = FrameQueue::new(LIMITS, 3);
        assert_eq!(queue.take(), Next::Nothing);
        assert_eq!(queue.push_chunk(chunk()), Ok(()));
        assert_eq!(queue.push_chunk(chunk()), Ok(()));
        assert_eq!(queue.push_chunk(chunk()), Err(chunk()));
        for sequence in 6..10 {
            assert_eq!(queue.push_delta(delta(sequence)), Ok(()));
        }
        assert_eq!(queue.take(), Next::Frame(chunk()));
        assert_eq!(queue.take(), Next::Frame(chunk()));
        assert_eq!(queue.take(), Next::Nothing);
        assert!(!queue.has_snapshot());
        assert_eq!(queue.push_chunk(chunk()), Ok(()));
        assert_eq!(queue.take(), Next::Frame(chunk()));
        assert!(queue.has_snapshot());
        // What was held back does not count against the frames queued since.
        assert_eq!(queue.push_delta(delta(10)), Ok(()));
        assert_eq!(queue.push_delta(delta(11)), Ok(()));
        for sequence in 6..12 {
            assert_eq!(queue.take(), Next::Frame(delta(sequence)));
        }
        assert_eq!(queue.take(), Next::Idle(11));
        assert_eq!((queue.bytes(), queue.frames()), (0, 0));
    }

    #[test]
    fn a_delta_that_does_not_fit_ends_the_stream() {
        let mut queue = FrameQueue::new(LIMITS, 1);
        queue.push_chunk(chunk()).unwrap();
        queue.take();
        assert_eq!(queue.take(), Next::Idle(5));
        queue.push_delta(delta(6)).unwrap();
        queue.push_delta(delta(7)).unwrap();
        assert_eq!(queue.push_delta(delta(8)), Err(Lagged));
        assert_eq!((queue.take(), queue.bytes()), (Next::Ended, 0));
        assert_eq!(queue.push_delta(delta(9)), Ok(()));
        assert_eq!(queue.push_chunk(chunk()), Ok(()));
        assert_eq!(queue.frames(), 0);

        let mut queue = FrameQueue::new(LIMITS, 1);
        queue.push_chunk(chunk()).unwrap();
        queue.take();
        queue.push_delta(frame(Kind::Delta, 5, 6, 2000)).unwrap();
        let large = frame(Kind::Delta, 6, 7, 2000);
        assert_eq!(queue.push_delta(large), Err(Lagged), "bytes are bounded as well");
    }

    #[test]
    fn deltas_behind_a_stuck_snapshot_are_bounded_in_bytes() {
        let mut queue = FrameQueue::new(LIMITS, 2);
        queue.push_chunk(chunk()).unwrap();
        let fitting = LIMITS.bytes / delta(6).cost();
        for sequence in 6..6 + fitting as u64 {
            queue.push_delta(delta(sequence)).unwrap();
        }
        assert_eq!(queue.push_delta(delta(99)), Err(Lagged));
    }
}
