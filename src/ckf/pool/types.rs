//! Configuration, errors and events of the ingestion pool.

use crate::ckf::consumer::ClaimError;
use crate::ckf::consumer::lane::{AssignError, LaneOutcome};

/// Bounds of a pool. None may be 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolConfig {
    /// Workers.
    pub workers: usize,
    /// Commands one worker may have outstanding.
    pub queue_commands_max: usize,
    /// Images one lane may have outstanding; none means the number of buckets.
    pub lane_images_max: Option<usize>,
    /// How long an assignment, snapshot or drain may take, in microseconds.
    pub control_timeout_us: u64,
    /// How long a delta may wait until it is applied, in microseconds.
    pub delta_age_max_us: u64,
}

impl Default for PoolConfig {
    fn default() -> PoolConfig {
        PoolConfig {
            workers: 4,
            queue_commands_max: 256,
            lane_images_max: None,
            control_timeout_us: 10_000_000,
            delta_age_max_us: 10_000,
        }
    }
}

/// Why a pool cannot be built.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PoolBuildError {
    /// This bound is 0.
    #[error("{0} must be at least 1")]
    Zero(&'static str),
    /// A lane is in use.
    #[error(transparent)]
    Claim(#[from] ClaimError),
}

/// Why a command was not admitted. `Retired` variants took the lane out of answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PoolError {
    /// The consumer has no such lane. Nothing changed.
    #[error("lane {0} has no pool")]
    NoSuchLane(u8),
    /// The assignment is refused. The lane is as it was.
    #[error(transparent)]
    Assign(#[from] AssignError),
    /// The lane is not in a state for this, or another lease holds it. Nothing changed.
    #[error("lane {0} does not take this now")]
    NotAdmitted(u8),
    /// The lane was retired, for this reason.
    #[error("lane {lane} was retired: {reason:?}")]
    Retired {
        /// The lane.
        lane: u8,
        /// Why.
        reason: PoolFault,
    },
}

/// Why the pool took a lane out of answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PoolFault {
    /// The lane itself refused its input.
    Lane(LaneOutcome),
    /// A delta was not applied in time.
    DeltaTooOld,
    /// More images are outstanding than allowed.
    TooManyImages,
    /// The worker has too many commands outstanding.
    QueueFull,
    /// An assignment, snapshot or drain took too long.
    ControlTimeout,
    /// The worker is gone.
    WorkerFailed,
    /// Asked for.
    Withdrawn,
}

/// What became of a lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PoolEvent {
    /// It waits for its snapshot.
    Assigned(u8),
    /// It answers from this sequence on.
    Installed(u8, u64),
    /// It has exactly what was published.
    Drained(u8, u64),
    /// It does not answer.
    Fault(u8, PoolFault),
}
