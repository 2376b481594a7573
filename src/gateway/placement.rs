//! Who holds what now: the topology, its backends, and the extra targets of a migration.
//!
//! A placement is immutable; a request takes the current one once and keeps it.

use super::client::Backend;
use crate::document::shard::{ShardId, ShardSet};
use crate::document::topology::{BackendIdx, Topology};
use std::sync::Arc;

/// The topology reads and quorums use, and where writes go beside it.
#[derive(Debug)]
pub(super) struct Placement {
    pub(super) topology: Topology,
    /// The topology's backends in its order, then those that are joining.
    pub(super) backends: Vec<Arc<Backend>>,
    /// Per shard, joining backends that get a copy of every write. They never count.
    extra: Vec<Vec<usize>>,
}

/// A backend a write goes to.
#[derive(Clone, Debug)]
pub(super) struct Target {
    pub(super) backend: Arc<Backend>,
    /// Its place in the topology, `None` while it is joining.
    pub(super) member: Option<BackendIdx>,
    /// The touched shards it stores.
    pub(super) shards: ShardSet,
}

impl Placement {
    /// A placement without a migration. `backends` are in the topology's order.
    pub(super) fn new(topology: Topology, backends: Vec<Arc<Backend>>) -> Placement {
        Placement { topology, backends, extra: Vec::new() }
    }

    /// The same placement while `next` is being filled: what `next` adds to a shard's targets
    /// gets every write too. `joining` are the backends `next` has beyond the present ones.
    pub(super) fn with_migration(&self, next: &Topology, joining: Vec<Arc<Backend>>) -> Placement {
        let members = self.topology.backends().len();
        let mut backends = self.backends[..members].to_vec();
        backends.extend(joining);
        let place = |id: &str| backends.iter().position(|backend| backend.id == id);
        let extra = (0..self.topology.shards())
            .map(|shard| {
                let old = self.topology.write_targets(ShardId(shard));
                let new = next.write_targets(ShardId(shard)).iter().map(|b| next.id(*b));
                new.filter(|id| !old.iter().any(|b| self.topology.id(*b) == *id))
                    .filter_map(place)
                    .collect()
            })
            .collect();
        Placement { topology: self.topology.clone(), backends, extra }
    }

    /// A backend of the topology.
    pub(super) fn backend(&self, backend: BackendIdx) -> &Arc<Backend> {
        &self.backends[backend.0 as usize]
    }

    /// Every backend a write to `touched` goes to, with the shards it stores of them. Members
    /// come in the topology's order, so rejections are forwarded from the lowest group.
    pub(super) fn targets(&self, touched: &ShardSet) -> Vec<Target> {
        let shards = self.topology.shards();
        let mut wanted = vec![None; self.backends.len()];
        for shard in touched.iter() {
            let members = self.topology.write_targets(shard).iter().map(|b| b.0 as usize);
            let joining = self.extra.get(shard.0 as usize).into_iter().flatten().copied();
            for place in members.chain(joining) {
                wanted[place].get_or_insert_with(|| ShardSet::none(shards)).insert(shard);
            }
        }
        let wanted = wanted.into_iter().enumerate();
        wanted.filter_map(|(place, shards)| Some(self.target(place, shards?))).collect()
    }

    /// Every backend, joining ones included, with all the shards it stores.
    pub(super) fn everyone(&self) -> Vec<Target> {
        let all = ShardSet::all(self.topology.shards());
        (0..self.backends.len()).map(|place| self.target(place, all.clone())).collect()
    }

    fn target(&self, place: usize, shards: ShardSet) -> Target {
        let member = place < self.topology.backends().len();
        Target {
            backend: self.backends[place].clone(),
            member: member.then_some(BackendIdx(place as u16)),
            shards,
        }
    }

    /// The backend with this id, joining ones included.
    pub(super) fn find(&self, id: &str) -> Option<&Arc<Backend>> {
        self.backends.iter().find(|backend| backend.id == id)
    }

    /// Members in the order reads try them: live ones first.
    pub(super) fn by_health(&self) -> Vec<&Arc<Backend>> {
        let members = &self.backends[..self.topology.backends().len()];
        let mut ordered: Vec<_> = members.iter().collect();
        ordered.sort_by_key(|backend| !backend.is_live());
        ordered
    }
}
