//! The two-rule quorum of a document write.
//!
//! Rule 1: a group is ok for a shard when a majority of the shard's owners in it acknowledged.
//! Rule 2: a write succeeds when each touched shard has an ok group. The verdict is made per
//! shard; adding acknowledgements up over a batch would hide a shard that was lost entirely.

use super::shard::{ShardId, ShardSet};
use super::topology::{BackendIdx, GroupIdx, Topology};
use crate::ring::{Outcome, Rule, Votes};

/// The outcome of a write over all its shards and groups.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Verdict {
    /// Touched shards no group was ok for, ascending. Empty means the write succeeded.
    pub lost_shards: Vec<ShardId>,
    /// Groups that were not ok for at least one touched shard, ascending.
    pub degraded_groups: Vec<GroupIdx>,
    /// The lowest group that was ok for all touched shards: a session reads its write there.
    pub pin: Option<GroupIdx>,
}

impl Verdict {
    /// True when every touched shard has a group that met its quorum.
    pub fn succeeded(&self) -> bool {
        self.lost_shards.is_empty()
    }

    /// The value of `X-Miroir-Degraded`, absent when no group is degraded or the write failed.
    pub fn degraded_header(&self) -> Option<String> {
        let count = self.degraded_groups.len();
        (self.succeeded() && count > 0).then(|| format!("groups={count}"))
    }
}

/// Rule 1: the vote of a shard's owners in one group.
pub fn votes(
    topology: &Topology,
    shard: ShardId,
    group: GroupIdx,
    acked: &impl Fn(BackendIdx) -> bool,
) -> Votes {
    let owners = topology.owners(shard, group);
    Votes::counted(owners.len(), owners.iter().filter(|owner| acked(**owner)).count())
}

/// Rule 2 for one shard: whether some group met its quorum.
pub fn is_kept(topology: &Topology, shard: ShardId, acked: &impl Fn(BackendIdx) -> bool) -> bool {
    let groups = topology.group_numbers();
    let groups = groups.map(|group| votes(topology, shard, group, acked).outcome());
    Rule::Any.outcome(groups) == Outcome::Met
}

/// Judges a write that touched `shards`, given which backends acknowledged.
pub fn judge(
    topology: &Topology,
    shards: &ShardSet,
    acked: impl Fn(BackendIdx) -> bool,
) -> Verdict {
    let mut verdict = Verdict::default();
    let mut degraded = vec![false; topology.groups()];
    for shard in shards.iter() {
        for group in topology.group_numbers() {
            let outcome = votes(topology, shard, group, &acked).outcome();
            degraded[group.0 as usize] |= outcome != Outcome::Met;
        }
        if !is_kept(topology, shard, &acked) {
            verdict.lost_shards.push(shard);
        }
    }
    for group in topology.group_numbers() {
        if degraded[group.0 as usize] {
            verdict.degraded_groups.push(group);
        } else if verdict.pin.is_none() {
            verdict.pin = Some(group);
        }
    }
    if !verdict.succeeded() {
        verdict.pin = None;
    }
    verdict
}
