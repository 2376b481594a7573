//! The filter plane of a consumer: one stream of one producer.
//!
//! ```text
//!  assembling ──last chunk──▶ installed(S) ──delta S to S+1──▶ installed(S+1) ...
//!       └─────────── any fault ─────┴──▶ the stream must be closed
//! ```
//!
//! Nothing is repaired and nothing skipped: after a fault only a new stream helps.

use super::{PlaneFault, check_sender};
use crate::ckf::bucket::BucketImage;
use crate::ckf::cbi1::{self, AssembleError, Assembler, DecodeError, Snapshot};
use crate::ckf::identity::DcId;
use crate::relay::Fault;
use crate::relay::envelope::RelayId;
use crate::relay::key::ProducerKey;
use crate::relay::proto::{self, FilterUpdateKind as Kind};

/// Why a replica is void.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FilterFault {
    /// The envelope, or the relay in it.
    #[error(transparent)]
    Plane(#[from] PlaneFault),
    /// The frame's producer is malformed or of an unknown kind.
    #[error("the frame's producer: {0}")]
    Producer(#[from] Fault),
    /// A frame of another generation than the one subscribed to.
    #[error("a frame of another producer")]
    OtherProducer,
    /// Not a kind of frame we know.
    #[error("frame kind {0}")]
    UnknownKind(i32),
    /// The payload is not CBI1 of this format.
    #[error("bad payload: {0}")]
    Decode(#[from] DecodeError),
    /// The payload is of another kind than the frame, or not empty in a heartbeat.
    #[error("the payload is not what the frame says")]
    PayloadKind,
    /// The payload is another datacenter's.
    #[error("a payload of another datacenter")]
    OtherDatacenter,
    /// Sequences of frame and payload differ, or do not fit the kind.
    #[error("the frame leads from {base} to {sequence}, its payload says otherwise")]
    Sequence {
        /// The frame's base.
        base: u64,
        /// The frame's sequence.
        sequence: u64,
    },
    /// The chunks are not a snapshot.
    #[error(transparent)]
    Assemble(#[from] AssembleError),
    /// A delta or heartbeat before the whole snapshot.
    #[error("a frame of kind {0:?} within the snapshot")]
    BeforeSnapshot(Kind),
    /// A snapshot chunk after the snapshot.
    #[error("a second snapshot in one stream")]
    SecondSnapshot,
    /// A frame that does not continue from what is installed.
    #[error("a frame from {base} to {sequence} while {installed} is installed")]
    Gap {
        /// What is installed.
        installed: u64,
        /// The frame's base.
        base: u64,
        /// The frame's sequence.
        sequence: u64,
    },
    /// A delta of nothing.
    #[error("an empty delta")]
    EmptyDelta,
}

impl FilterFault {
    /// Fixed name for metrics.
    pub fn label(&self) -> &'static str {
        match self {
            FilterFault::Plane(fault) => fault.label(),
            FilterFault::Producer(fault) => fault.label(),
            FilterFault::OtherProducer => "other_producer",
            FilterFault::UnknownKind(_) => "unknown_frame_kind",
            FilterFault::Decode(error) => error.label(),
            FilterFault::PayloadKind => "payload_kind",
            FilterFault::OtherDatacenter => "other_datacenter",
            FilterFault::Sequence { .. } => "sequence",
            FilterFault::Assemble(AssembleError::ChunkSequence) => "chunk_sequence",
            FilterFault::Assemble(AssembleError::IncompleteCoverage(_)) => "incomplete_coverage",
            FilterFault::Assemble(AssembleError::NoMemory(_)) => "no_memory",
            FilterFault::BeforeSnapshot(_) => "before_snapshot",
            FilterFault::SecondSnapshot => "second_snapshot",
            FilterFault::Gap { .. } => "gap",
            FilterFault::EmptyDelta => "empty_delta",
        }
    }
}

/// What a frame means for the replica.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// A chunk that is not the last.
    Partial,
    /// The whole filter.
    Snapshot(Snapshot),
    /// Changed buckets.
    Delta {
        /// The sequence it leads to, one above the last.
        sequence: u64,
        /// New words.
        images: Vec<BucketImage>,
    },
    /// Nothing changed.
    Heartbeat,
}

/// The machine.
#[derive(Debug)]
pub struct FilterPlane {
    relay: RelayId,
    key: ProducerKey,
    assembler: Assembler,
    installed: Option<u64>,
}

impl FilterPlane {
    /// A plane for one stream of this producer.
    pub fn new(relay: RelayId, key: ProducerKey) -> FilterPlane {
        FilterPlane { relay, key, assembler: Assembler::new(*key.format()), installed: None }
    }

    /// The sequence installed, once the snapshot is whole.
    pub fn installed(&self) -> Option<u64> {
        self.installed
    }

    /// Takes a frame. After an error the plane is of no more use.
    pub fn take(&mut self, update: &proto::FilterUpdate) -> Result<Step, FilterFault> {
        check_sender(update, self.relay)?;
        let producer = update.producer.as_ref().ok_or(Fault::MissingField("producer"))?;
        if ProducerKey::try_from(producer)? != self.key {
            return Err(FilterFault::OtherProducer);
        }
        match Kind::try_from(update.kind) {
            Ok(Kind::SnapshotChunk) => self.chunk(update),
            Ok(Kind::Delta) => self.delta(update),
            Ok(Kind::Heartbeat) => self.heartbeat(update),
            Ok(Kind::Unspecified) | Err(_) => Err(FilterFault::UnknownKind(update.kind)),
        }
    }

    fn chunk(&mut self, update: &proto::FilterUpdate) -> Result<Step, FilterFault> {
        if self.installed.is_some() {
            return Err(FilterFault::SecondSnapshot);
        }
        let frame = cbi1::decode(&update.payload, self.key.format())?;
        let cbi1::Frame::Chunk(chunk) = &frame else { return Err(FilterFault::PayloadKind) };
        self.check_dc(chunk.dc_id)?;
        if update.base_sequence != update.sequence || chunk.epoch != update.sequence {
            return Err(sequence(update));
        }
        match self.assembler.push(&frame)? {
            None => Ok(Step::Partial),
            Some(snapshot) => {
                self.installed = Some(snapshot.epoch);
                Ok(Step::Snapshot(snapshot))
            }
        }
    }

    fn delta(&mut self, update: &proto::FilterUpdate) -> Result<Step, FilterFault> {
        let installed = self.installed.ok_or(FilterFault::BeforeSnapshot(Kind::Delta))?;
        let frame = cbi1::decode(&update.payload, self.key.format())?;
        let cbi1::Frame::Delta(delta) = &frame else { return Err(FilterFault::PayloadKind) };
        self.check_dc(delta.dc_id)?;
        let (base, next) = (update.base_sequence, update.sequence);
        if delta.epoch != next || delta.base_epoch != base {
            return Err(sequence(update));
        }
        if base != installed || base.checked_add(1) != Some(next) {
            return Err(FilterFault::Gap { installed, base, sequence: next });
        }
        if delta.images().len() == 0 {
            return Err(FilterFault::EmptyDelta);
        }
        self.installed = Some(next);
        Ok(Step::Delta { sequence: next, images: delta.images().collect() })
    }

    fn heartbeat(&self, update: &proto::FilterUpdate) -> Result<Step, FilterFault> {
        let installed = self.installed.ok_or(FilterFault::BeforeSnapshot(Kind::Heartbeat))?;
        if !update.payload.is_empty() {
            return Err(FilterFault::PayloadKind);
        }
        let (base, sequence) = (update.base_sequence, update.sequence);
        if base != sequence || sequence != installed {
            return Err(FilterFault::Gap { installed, base, sequence });
        }
        Ok(Step::Heartbeat)
    }

    fn check_dc(&self, dc_id: DcId) -> Result<(), FilterFault> {
        if dc_id == self.key.pool().dc_id { Ok(()) } else { Err(FilterFault::OtherDatacenter) }
    }
}

fn sequence(update: &proto::FilterUpdate) -> FilterFault {
    FilterFault::Sequence { base: update.base_sequence, sequence: update.sequence }
}
