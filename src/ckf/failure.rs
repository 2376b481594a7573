//! What a failure made uncertain, and so what has to be done again.
//!
//! Recovery follows from the uncertainty, not from the name of the error: most failures are found
//! before the first write and concern one source or one lane, and only that is repaired.

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
