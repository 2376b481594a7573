//! One lane of the consumer: a machine that takes one producer's stream and writes its words.
//!
//! ```text
//!               assign                install_snapshot
//!  unassigned ─────────▶ not ready ─────────────────────▶ ready ──┐ apply_delta
//!                          ▲    ▲                           │ ▲───┘
//!                          │    └──── any fault ────────────┘
//!                          └───────── assign (newer epoch) from anywhere
//! ```
//!
//! Nothing is repaired: a gap, a malformed delta or an unexpected snapshot takes the lane out of
//! answers, and only a whole snapshot brings it back. A delta is validated to its end before its
//! first word is written. Input under another lease is ignored, so late messages of an earlier
//! assignment cannot do harm.

use std::sync::Arc;

use super::Shared;
use crate::ckf::bucket::{self, BucketImage};
use crate::ckf::failure::{Action, Commit, Disposition, Recovery};
use crate::ckf::identity::{LaneLease, ProducerIdentity};
use crate::ckf::publication::{CkfDelta, CkfSnapshot, DrainMarker};

/// Why a lane was not assigned. It is as it was before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AssignError {
    /// The lease is for another consumer.
    #[error("the lease names consumer {actual}, this is {expected}")]
    WrongConsumerInstance {
        /// This consumer.
        expected: u64,
        /// The one named.
        actual: u64,
    },
    /// The lease is for another lane.
    #[error("the lease names lane {actual}, this is lane {expected}")]
    WrongPhysicalLane {
        /// This lane.
        expected: u8,
        /// The one named.
        actual: u8,
    },
    /// The producer is of another pool than this lane's.
    #[error("lane {lane} belongs to another pool")]
    WrongLaneOwner {
        /// This lane.
        lane: u8,
    },
    /// The producer's format is not the consumer's.
    #[error("the producer's filter has another format than this consumer's table")]
    WrongFormat,
    /// The epoch is not newer than the last.
    #[error("assignment epoch {actual} is not above {minimum_exclusive}")]
    StaleAssignmentEpoch {
        /// The last epoch.
        minimum_exclusive: u64,
        /// The one offered.
        actual: u64,
    },
}

/// Why a lane left the answers, or could not enter them. Nothing of the input was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum LaneFault {
    /// Input of another producer under the current lease.
    #[error("input of another producer")]
    WrongIdentity,
    /// A snapshot of another size.
    #[error("a snapshot of {actual} buckets instead of {expected}")]
    InvalidSnapshotBucketCount {
        /// Buckets of the format.
        expected: usize,
        /// Words of the snapshot.
        actual: usize,
    },
    /// A newer snapshot although the lane is ready: deltas in between were missed.
    #[error("snapshot {snapshot_sequence} arrived while ready at {installed_sequence}")]
    SnapshotWhileReady {
        /// What the lane had.
        installed_sequence: u64,
        /// What arrived.
        snapshot_sequence: u64,
    },
    /// A gap.
    #[error("a delta from {actual} arrived at {expected}")]
    BaseSequenceMismatch {
        /// What the lane had.
        expected: u64,
        /// What the delta builds on.
        actual: u64,
    },
    /// The sequence space is used up.
    #[error("no sequence is left")]
    SequenceExhausted,
    /// A delta that skips numbers.
    #[error("a delta leads from {base} to {sequence}")]
    NonContiguousSequence {
        /// What it builds on.
        base: u64,
        /// Where it leads.
        sequence: u64,
    },
    /// A delta without images.
    #[error("an empty delta")]
    EmptyDelta,
    /// An image outside the table.
    #[error("bucket {bucket} is past the last bucket")]
    InvalidImageIndex {
        /// The bucket.
        bucket: u32,
    },
    /// Two images of one bucket.
    #[error("bucket {bucket} appears twice")]
    DuplicateImageIndex {
        /// The bucket.
        bucket: u32,
    },
    /// The drain found another sequence.
    #[error("drained at {actual} instead of {expected}")]
    TerminalSequenceMismatch {
        /// What the producer published last.
        expected: u64,
        /// What the lane has.
        actual: u64,
    },
}

impl LaneFault {
    /// Fixed name for metrics.
    pub fn label(&self) -> &'static str {
        match self {
            LaneFault::WrongIdentity => "wrong_identity",
            LaneFault::InvalidSnapshotBucketCount { .. } => "invalid_snapshot_bucket_count",
            LaneFault::SnapshotWhileReady { .. } => "snapshot_while_ready",
            LaneFault::BaseSequenceMismatch { .. } => "base_sequence_mismatch",
            LaneFault::SequenceExhausted => "sequence_exhausted",
            LaneFault::NonContiguousSequence { .. } => "non_contiguous_sequence",
            LaneFault::EmptyDelta => "empty_delta",
            LaneFault::InvalidImageIndex { .. } => "invalid_image_index",
            LaneFault::DuplicateImageIndex { .. } => "duplicate_image_index",
            LaneFault::TerminalSequenceMismatch { .. } => "terminal_sequence_mismatch",
        }
    }
}

/// What became of one input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LaneOutcome {
    /// No assignment, or another lease; nothing changed.
    IgnoredForeignLease,
    /// Older than what the lane has; nothing changed.
    IgnoredStaleOrDuplicate {
        /// What the lane has.
        installed_sequence: u64,
    },
    /// A delta before the snapshot it needs; nothing changed.
    AwaitingSnapshot,
    /// The lane answers from this sequence on.
    SnapshotInstalled {
        /// The sequence.
        sequence: u64,
    },
    /// The images are written.
    DeltaApplied {
        /// The sequence.
        sequence: u64,
        /// How many.
        images: usize,
    },
    /// The lane has exactly what was asked for.
    DrainAcknowledged {
        /// The sequence.
        installed_sequence: u64,
    },
    /// The lane does not answer.
    LaneDeactivated {
        /// Why.
        fault: LaneFault,
        /// What to do about it.
        disposition: Disposition,
    },
}

impl LaneOutcome {
    /// Fixed name for metrics.
    pub fn label(&self) -> &'static str {
        match self {
            LaneOutcome::IgnoredForeignLease => "ignored_foreign_lease",
            LaneOutcome::IgnoredStaleOrDuplicate { .. } => "ignored_stale_or_duplicate",
            LaneOutcome::AwaitingSnapshot => "awaiting_snapshot",
            LaneOutcome::SnapshotInstalled { .. } => "snapshot_installed",
            LaneOutcome::DeltaApplied { .. } => "delta_applied",
            LaneOutcome::DrainAcknowledged { .. } => "drain_acknowledged",
            LaneOutcome::LaneDeactivated { .. } => "lane_deactivated",
        }
    }
}

/// The only writer of one lane. Dropping it takes the lane out of answers and frees the claim.
#[derive(Debug)]
pub struct LaneIngestor {
    shared: Arc<Shared>,
    lane: u8,
    assignment: Option<(ProducerIdentity, LaneLease)>,
    last_epoch: Option<u64>,
    /// The installed sequence while ready.
    installed: Option<u64>,
    /// One bit a bucket, all clear between deltas: finds buckets that appear twice.
    seen: Vec<u64>,
    /// Slots in use, whether the lane answers or not.
    occupied: u64,
}

impl LaneIngestor {
    pub(super) fn new(shared: Arc<Shared>, lane: u8) -> LaneIngestor {
        let buckets = shared.table.buckets();
        let seen = vec![0; buckets.div_ceil(64)];
        // Of whoever had the lane before.
        let words = (0..buckets as u32).map(|bucket| shared.table.load(lane, bucket));
        let occupied = words.map(|word| u64::from(bucket::occupied(word))).sum();
        let (assignment, last_epoch, installed) = (None, None, None);
        LaneIngestor { shared, lane, assignment, last_epoch, installed, seen, occupied }
    }

    /// The lane's number.
    pub fn lane(&self) -> u8 {
        self.lane
    }

    /// The sequence the lane answers from; none while it does not answer.
    pub fn installed_sequence(&self) -> Option<u64> {
        self.installed
    }

    /// Slots of the lane in use.
    pub fn occupied_slots(&self) -> u64 {
        self.occupied
    }

    /// The current lease.
    pub fn lease(&self) -> Option<LaneLease> {
        self.assignment.map(|(_, lease)| lease)
    }

    /// The producer whose stream it takes, and under which lease.
    pub fn assignment(&self) -> Option<(ProducerIdentity, LaneLease)> {
        self.assignment
    }

    /// Takes a new producer or a new lease. The lane leaves the answers until its snapshot.
    pub fn assign(
        &mut self,
        identity: ProducerIdentity,
        lease: LaneLease,
    ) -> Result<(), AssignError> {
        self.shared.check_assignment(self.lane, self.last_epoch, &identity, &lease)?;
        self.leave_answers();
        self.assignment = Some((identity, lease));
        self.last_epoch = Some(lease.assignment_epoch);
        Ok(())
    }

    /// Installs a whole snapshot.
    pub fn install_snapshot(&mut self, snapshot: &CkfSnapshot) -> LaneOutcome {
        if let Err(outcome) = self.check_snapshot(snapshot) {
            return outcome;
        }
        self.write_words(0, &snapshot.words);
        self.enter_answers(snapshot.sequence);
        LaneOutcome::SnapshotInstalled { sequence: snapshot.sequence }
    }

    /// Applies one delta.
    pub fn apply_delta(&mut self, delta: &CkfDelta) -> LaneOutcome {
        if let Err(outcome) = self.check_sender(&delta.identity, &delta.lease) {
            return outcome;
        }
        let Some(installed) = self.installed else {
            return LaneOutcome::AwaitingSnapshot;
        };
        if delta.sequence <= installed {
            return LaneOutcome::IgnoredStaleOrDuplicate { installed_sequence: installed };
        }
        if let Err(fault) = self.check_delta(delta, installed) {
            return self.deactivate(fault);
        }
        delta.images.iter().for_each(|image| self.put(image.bucket, image.word));
        self.installed = Some(delta.sequence);
        LaneOutcome::DeltaApplied { sequence: delta.sequence, images: delta.images.len() }
    }

    /// Answers whether the lane has exactly what the marker names.
    pub fn complete_drain(&mut self, marker: &DrainMarker) -> LaneOutcome {
        if self.lease() != Some(marker.lease) {
            return LaneOutcome::IgnoredForeignLease;
        }
        if self.installed == Some(marker.sequence) {
            return LaneOutcome::DrainAcknowledged { installed_sequence: marker.sequence };
        }
        let (expected, actual) = (marker.sequence, self.installed.unwrap_or(0));
        self.deactivate(LaneFault::TerminalSequenceMismatch { expected, actual })
    }

    /// Takes the lane out of answers and forgets its assignment, not its last epoch.
    pub fn retire(&mut self) {
        self.leave_answers();
        self.assignment = None;
    }

    /// The lane's words as they are now, for comparisons.
    pub fn words(&self) -> Vec<u64> {
        self.words_from(0, self.shared.table.buckets())
    }

    /// The lane's words from bucket `first` on, at most `count` of them.
    pub fn words_from(&self, first: u32, count: usize) -> Vec<u64> {
        let all = self.shared.table.buckets();
        let end = all.min((first as usize).saturating_add(count)) as u32;
        (first..end).map(|bucket| self.shared.table.load(self.lane, bucket)).collect()
    }

    /// Whether a snapshot may be written now; its consequences when not.
    pub(in crate::ckf) fn check_snapshot(
        &mut self,
        snapshot: &CkfSnapshot,
    ) -> Result<(), LaneOutcome> {
        self.check_sender(&snapshot.identity, &snapshot.lease)?;
        if let Some(installed_sequence) = self.installed
            && snapshot.sequence <= installed_sequence
        {
            return Err(LaneOutcome::IgnoredStaleOrDuplicate { installed_sequence });
        }
        let (expected, actual) = (self.shared.table.buckets(), snapshot.words.len());
        if actual != expected {
            let fault = LaneFault::InvalidSnapshotBucketCount { expected, actual };
            return Err(self.deactivate(fault));
        }
        if let Some(installed_sequence) = self.installed {
            let snapshot_sequence = snapshot.sequence;
            let fault = LaneFault::SnapshotWhileReady { installed_sequence, snapshot_sequence };
            return Err(self.deactivate(fault));
        }
        Ok(())
    }

    /// Writes part of a checked snapshot. The lane must not answer.
    pub(in crate::ckf) fn write_words(&mut self, first_bucket: u32, words: &[u64]) {
        debug_assert!(self.installed.is_none());
        (first_bucket..).zip(words).for_each(|(bucket, word)| self.put(bucket, *word));
    }

    fn put(&mut self, bucket: u32, word: u64) {
        let before = self.shared.table.load(self.lane, bucket);
        self.shared.table.store(self.lane, bucket, word);
        self.occupied += u64::from(bucket::occupied(word));
        self.occupied -= u64::from(bucket::occupied(before));
    }

    /// Lets queries see the lane, whose words are complete.
    pub(in crate::ckf) fn enter_answers(&mut self, sequence: u64) {
        self.installed = Some(sequence);
        self.shared.table.activate(self.lane);
    }

    fn check_sender(
        &mut self,
        identity: &ProducerIdentity,
        lease: &LaneLease,
    ) -> Result<(), LaneOutcome> {
        match &self.assignment {
            Some((_, current)) if current != lease => Err(LaneOutcome::IgnoredForeignLease),
            None => Err(LaneOutcome::IgnoredForeignLease),
            Some((current, _)) if current != identity => {
                Err(self.deactivate(LaneFault::WrongIdentity))
            }
            Some(_) => Ok(()),
        }
    }

    fn check_delta(&mut self, delta: &CkfDelta, installed: u64) -> Result<(), LaneFault> {
        let (base, sequence) = (delta.base, delta.sequence);
        if base != installed {
            return Err(LaneFault::BaseSequenceMismatch { expected: installed, actual: base });
        }
        match base.checked_add(1) {
            None => return Err(LaneFault::SequenceExhausted),
            Some(next) if next != sequence => {
                return Err(LaneFault::NonContiguousSequence { base, sequence });
            }
            Some(_) => {}
        }
        if delta.images.is_empty() {
            return Err(LaneFault::EmptyDelta);
        }
        let buckets = self.shared.table.buckets();
        if let Some(image) = delta.images.iter().find(|image| image.bucket as usize >= buckets) {
            return Err(LaneFault::InvalidImageIndex { bucket: image.bucket });
        }
        match self.find_duplicate(&delta.images) {
            Some(bucket) => Err(LaneFault::DuplicateImageIndex { bucket }),
            None => Ok(()),
        }
    }

    /// The first bucket that appears twice. All buckets lie inside the table.
    fn find_duplicate(&mut self, images: &[BucketImage]) -> Option<u32> {
        let place = |bucket: u32| (bucket as usize / 64, 1u64 << (bucket % 64));
        let mut duplicate = None;
        let mut entered = images.len();
        for (index, image) in images.iter().enumerate() {
            let (word, bit) = place(image.bucket);
            if self.seen[word] & bit != 0 {
                duplicate = Some(image.bucket);
                entered = index;
                break;
            }
            self.seen[word] |= bit;
        }
        for image in &images[..entered] {
            let (word, bit) = place(image.bucket);
            self.seen[word] &= !bit;
        }
        duplicate
    }

    fn deactivate(&mut self, fault: LaneFault) -> LaneOutcome {
        let action = match (self.installed, fault) {
            (None, LaneFault::WrongIdentity | LaneFault::InvalidSnapshotBucketCount { .. }) => {
                Action::RetrySnapshot
            }
            _ => Action::DeactivateAndSnapshot,
        };
        self.leave_answers();
        let disposition = Disposition::new(Commit::KnownUnchanged, Recovery::ConsumerLane, action);
        LaneOutcome::LaneDeactivated { fault, disposition }
    }

    fn leave_answers(&mut self) {
        self.shared.table.retire(self.lane);
        self.installed = None;
    }
}

impl Shared {
    /// Whether `lane` may be given to this producer under this lease. Nothing is changed.
    pub(in crate::ckf) fn check_assignment(
        &self,
        lane: u8,
        last_epoch: Option<u64>,
        identity: &ProducerIdentity,
        lease: &LaneLease,
    ) -> Result<(), AssignError> {
        let (expected, actual) = (self.consumer.0, lease.consumer.0);
        if expected != actual {
            return Err(AssignError::WrongConsumerInstance { expected, actual });
        }
        if lease.lane != lane {
            return Err(AssignError::WrongPhysicalLane { expected: lane, actual: lease.lane });
        }
        if self.pool(lane) != Some(identity.pool) {
            return Err(AssignError::WrongLaneOwner { lane });
        }
        if identity.format != self.format {
            return Err(AssignError::WrongFormat);
        }
        match last_epoch {
            Some(last) if lease.assignment_epoch <= last => {
                Err(AssignError::StaleAssignmentEpoch {
                    minimum_exclusive: last,
                    actual: lease.assignment_epoch,
                })
            }
            _ => Ok(()),
        }
    }
}

impl Drop for LaneIngestor {
    fn drop(&mut self) {
        self.leave_answers();
        self.shared.table.release(self.lane);
    }
}
