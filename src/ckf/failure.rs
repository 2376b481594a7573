//! What a failure made uncertain, and so what has to be done again.
//!
//! Recovery follows from the uncertainty, not from the name of the error: most failures are found
//! before the first write and concern one source or one lane, and only that is repaired.
//!
//! Refusals of a lane and of a publisher bring theirs with them
//! ([`LaneOutcome::LaneDeactivated`], and
//! [`PublishError::disposition`](super::publisher::PublishError::disposition)); those of the
//! producer, of the pool and of the adapter are told here.

use super::adapter::AdapterError;
use super::consumer::lane::LaneOutcome;
use super::pool::PoolFault;
use super::producer::EventError;

/// Whether a failed step left a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Commit {
    /// Nothing was written.
    KnownUnchanged,
    /// Everything but the named part was written.
    KnownPartial,
    /// Nobody can say.
    Uncertain,
}

/// The smallest thing that must be rebuilt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Recovery {
    /// Nothing.
    None,
    /// The listing of one source.
    Source,
    /// The producer: a new generation.
    Producer,
    /// One lane of one consumer: a new snapshot.
    ConsumerLane,
}

/// What to do next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    /// Go on; the loss is counted.
    Continue,
    /// Report it; a later try may succeed.
    Report,
    /// Refuse this input of the source.
    RejectInput,
    /// Stop publishing and build a new generation.
    FenceAndRebuild,
    /// Keep the lane out of answers; the lease stays valid for another snapshot.
    RetrySnapshot,
    /// Take the lane out of answers and ask for a snapshot.
    DeactivateAndSnapshot,
}

/// The consequences of one failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Disposition {
    /// Whether it left a trace.
    pub commit: Commit,
    /// What must be rebuilt.
    pub recovery: Recovery,
    /// What to do.
    pub action: Action,
}

impl Disposition {
    /// Short form.
    pub const fn new(commit: Commit, recovery: Recovery, action: Action) -> Disposition {
        Disposition { commit, recovery, action }
    }
}

/// The lane has to begin anew; what was written of it nobody can say.
const LANE_UNCERTAIN: Disposition =
    Disposition::new(Commit::Uncertain, Recovery::ConsumerLane, Action::DeactivateAndSnapshot);

/// The same for a lane of which it is known that nothing was written.
const LANE_BEHIND: Disposition =
    Disposition::new(Commit::KnownUnchanged, Recovery::ConsumerLane, Action::DeactivateAndSnapshot);

impl EventError {
    /// What has to be done about an event of a source that was not applied, or not wholly.
    pub fn disposition(&self) -> Disposition {
        let (commit, recovery, action) = match self {
            EventError::CapacityExhausted => {
                (Commit::KnownPartial, Recovery::None, Action::Continue)
            }
            EventError::OutOfMemory(_) => (Commit::KnownUnchanged, Recovery::None, Action::Report),
            EventError::ParentBlockNotFound
            | EventError::InvalidBlockSequence
            | EventError::UnsupportedResidencyDomain
            | EventError::OwnershipDegreeOverflow => {
                (Commit::KnownUnchanged, Recovery::None, Action::RejectInput)
            }
            EventError::IndexerInvariantViolation => {
                (Commit::KnownUnchanged, Recovery::Producer, Action::FenceAndRebuild)
            }
        };
        Disposition::new(commit, recovery, action)
    }
}

impl PoolFault {
    /// What has to be done about a lane that the pool took out of answers.
    pub fn disposition(&self) -> Disposition {
        match self {
            PoolFault::Lane(LaneOutcome::LaneDeactivated { disposition, .. }) => *disposition,
            PoolFault::ControlTimeout | PoolFault::WorkerFailed | PoolFault::DeltaTooOld => {
                LANE_UNCERTAIN
            }
            PoolFault::Lane(_)
            | PoolFault::TooManyImages
            | PoolFault::QueueFull
            | PoolFault::Withdrawn => LANE_BEHIND,
        }
    }
}

impl AdapterError {
    /// What has to be done about an event that a producer and its own lane did not take.
    pub fn disposition(&self) -> Disposition {
        match self {
            AdapterError::Publish(error) => error.disposition(),
            AdapterError::Lane(LaneOutcome::LaneDeactivated { disposition, .. }) => *disposition,
            AdapterError::Lane(_) | AdapterError::Assign(_) => LANE_BEHIND,
            // The event was not applied: its source must tell what it holds.
            AdapterError::AdmissionClosed => {
                Disposition::new(Commit::KnownUnchanged, Recovery::Source, Action::Report)
            }
            AdapterError::WrongFormat | AdapterError::EpochsExhausted => Disposition::new(
                Commit::KnownUnchanged,
                Recovery::Producer,
                Action::FenceAndRebuild,
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ckf::OutOfMemory;
    use crate::ckf::publisher::{Fence, PublishError};

    /// The rows of the table in the description, and what has no row of its own.
    #[test]
    fn every_failure_names_the_smallest_thing_to_rebuild() {
        let of_events = [
            (EventError::CapacityExhausted, Recovery::None, Action::Continue),
            (EventError::OutOfMemory(OutOfMemory), Recovery::None, Action::Report),
            (EventError::ParentBlockNotFound, Recovery::None, Action::RejectInput),
            (EventError::InvalidBlockSequence, Recovery::None, Action::RejectInput),
            (EventError::UnsupportedResidencyDomain, Recovery::None, Action::RejectInput),
            (EventError::OwnershipDegreeOverflow, Recovery::None, Action::RejectInput),
            (EventError::IndexerInvariantViolation, Recovery::Producer, Action::FenceAndRebuild),
        ];
        for (error, recovery, action) in of_events {
            let is = error.disposition();
            assert_eq!((is.recovery, is.action), (recovery, action), "{error:?}");
            let partial = error == EventError::CapacityExhausted;
            assert_eq!(is.commit == Commit::KnownPartial, partial, "{error:?}");
        }
        for fault in [PoolFault::WorkerFailed, PoolFault::ControlTimeout, PoolFault::DeltaTooOld] {
            assert_eq!(fault.disposition(), LANE_UNCERTAIN, "{fault:?}");
        }
        for fault in [PoolFault::QueueFull, PoolFault::TooManyImages, PoolFault::Withdrawn] {
            assert_eq!(fault.disposition(), LANE_BEHIND, "{fault:?}");
        }
        let fenced = |fence| PublishError::Fenced(fence).disposition().recovery;
        assert_eq!(fenced(Fence::SequenceExhausted), Recovery::Producer);
        assert_eq!(fenced(Fence::DeliveryUncertain), Recovery::ConsumerLane);
        assert_eq!(fenced(Fence::LeaseStalled), Recovery::ConsumerLane);
        let short = PublishError::OutOfMemory(OutOfMemory).disposition();
        assert_eq!(short.recovery, Recovery::None);
        let of_adapter = [
            (AdapterError::Publish(PublishError::Fenced(Fence::LeaseStalled)), LANE_BEHIND),
            (AdapterError::Lane(LaneOutcome::AwaitingSnapshot), LANE_BEHIND),
        ];
        for (error, disposition) in of_adapter {
            assert_eq!(error.disposition(), disposition, "{error:?}");
        }
        let closed = AdapterError::AdmissionClosed.disposition();
        assert_eq!((closed.commit, closed.recovery), (Commit::KnownUnchanged, Recovery::Source));
        let used_up = AdapterError::EpochsExhausted.disposition();
        assert_eq!(used_up.recovery, Recovery::Producer);
    }
}
