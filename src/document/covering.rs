//! Which backend answers for which shards of a read over a whole index.

use super::shard::{ShardId, ShardSet};
use super::topology::{BackendIdx, GroupIdx, Topology};

/// Backends with the shards each answers for; every covered shard is in exactly one of them.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Covering {
    /// In the order of each backend's lowest shard.
    pub parts: Vec<(BackendIdx, ShardSet)>,
    /// Shards no usable owner was found for, ascending.
    pub uncovered: Vec<ShardId>,
}

impl Covering {
    fn assign(&mut self, topology: &Topology, shard: ShardId, backend: BackendIdx) {
        let known = self.parts.iter().position(|(b, _)| *b == backend);
        let at = known.unwrap_or_else(|| {
            self.parts.push((backend, ShardSet::none(topology.shards())));
            self.parts.len() - 1
        });
        self.parts[at].1.insert(shard);
    }
}

/// Covers all shards from `group`: of a shard's usable owners, in score order, the one at
/// `turn` modulo their number. Shards without one are taken from the groups in `others`, in that
/// order, by the same rule.
///
/// `turn` must be the same for all pages of one query: replicas rank equal documents differently.
pub fn cover(
    topology: &Topology,
    group: GroupIdx,
    others: &[GroupIdx],
    turn: u64,
    usable: impl Fn(ShardId, BackendIdx) -> bool,
) -> Covering {
    let mut covering = Covering::default();
    for shard in (0..topology.shards()).map(ShardId) {
        let chosen = std::iter::once(&group).chain(others).find_map(|group| {
            let owners = topology.owners(shard, *group).iter();
            let live: Vec<_> = owners.filter(|owner| usable(shard, **owner)).collect();
            (!live.is_empty()).then(|| *live[(turn % live.len() as u64) as usize])
        });
        match chosen {
            Some(backend) => covering.assign(topology, shard, backend),
            None => covering.uncovered.push(shard),
        }
    }
    covering
}
