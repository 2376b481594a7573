//! One gateway task over the backend tasks it stands for.

use super::quorum::is_kept;
use super::shard::ShardSet;
use super::topology::{BackendIdx, Topology};
use serde::{Deserialize, Serialize};

/// State of a task, of a backend or of the gateway.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Status {
    /// Accepted, not begun.
    Enqueued,
    /// Running.
    Processing,
    /// Done.
    Succeeded,
    /// Refused or broken; nothing of it was stored there.
    Failed,
    /// Ended by an operator before it ran.
    Canceled,
}

impl Status {
    /// True when the state will not change any more.
    pub fn is_final(self) -> bool {
        match self {
            Status::Succeeded | Status::Failed | Status::Canceled => true,
            Status::Enqueued | Status::Processing => false,
        }
    }

    /// The name in answers.
    pub fn as_str(self) -> &'static str {
        match self {
            Status::Enqueued => "enqueued",
            Status::Processing => "processing",
            Status::Succeeded => "succeeded",
            Status::Failed => "failed",
            Status::Canceled => "canceled",
        }
    }

    /// The state with this name.
    pub fn parse(name: &str) -> Option<Status> {
        let all = [
            Status::Enqueued,
            Status::Processing,
            Status::Succeeded,
            Status::Failed,
            Status::Canceled,
        ];
        all.into_iter().find(|status| status.as_str() == name)
    }
}

/// The state of a gateway task. `None` stands for a backend task whose state was never learnt.
pub fn aggregate(parts: impl IntoIterator<Item = Option<Status>>) -> Status {
    let (mut total, mut failed, mut canceled, mut succeeded, mut processing) = (0, 0, 0, 0, 0);
    for part in parts {
        total += 1;
        match part {
            Some(Status::Failed) => failed += 1,
            Some(Status::Canceled) => canceled += 1,
            Some(Status::Succeeded) => succeeded += 1,
            Some(Status::Processing) => processing += 1,
            Some(Status::Enqueued) | None => {}
        }
    }
    if failed > 0 {
        Status::Failed
    } else if canceled > 0 {
        Status::Canceled
    } else if succeeded == total {
        Status::Succeeded
    } else if processing + succeeded > 0 {
        Status::Processing
    } else {
        Status::Enqueued
    }
}

/// Whether a task may be called succeeded although some of its backends lost it: each touched
/// shard still has a group in which a quorum of owners succeeded.
pub fn survives_losses(
    topology: &Topology,
    touched: &ShardSet,
    succeeded: impl Fn(BackendIdx) -> bool,
) -> bool {
    touched.iter().all(|shard| is_kept(topology, shard, &succeeded))
}
