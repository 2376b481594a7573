//! What copies of shards must know of writes that happen meanwhile, and what backends missed.
//!
//! A page that was read before a write and stored after it would bring an old document back. So
//! every running copy has a tracker of the ids written since it began; writes register their ids
//! in the same step that takes their places in the lanes.

use super::client::WriteFailure;
use super::core::Core;
use super::error::ApiError;
use super::fanout::{Done, Sent};
use super::kv::Class;
use super::placement::Placement;
use crate::document::shard::{ShardId, ShardSet};
use crate::document::topology::BackendIdx;
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::{Arc, Mutex, PoisonError};

/// Ids a tracker remembers; beyond it the pass is repeated.
const IDS_MAX: usize = 1_000_000;

/// Writes to one shard of one index since a copy of it began.
#[derive(Debug)]
pub(super) struct Tracker {
    index: String,
    shard: ShardId,
    seen: Mutex<Written>,
}

#[derive(Debug, Default)]
struct Written {
    ids: HashSet<String>,
    /// Documents were deleted by filter or altogether: which ones is not known.
    swept: bool,
}

impl Tracker {
    fn seen(&self) -> std::sync::MutexGuard<'_, Written> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether this document was written since the pass began.
    pub(super) fn was_written(&self, id: &str) -> bool {
        self.seen().ids.contains(id)
    }

    /// Whether the pass must be repeated from the start.
    pub(super) fn was_swept(&self) -> bool {
        self.seen().swept
    }

    /// Begins a new pass. True when nothing was written since the last one began.
    pub(super) fn restart(&self) -> bool {
        let written = std::mem::take(&mut *self.seen());
        written.ids.is_empty() && !written.swept
    }
}

/// All running copies.
#[derive(Debug, Default)]
pub(super) struct Trackers {
    running: Mutex<Vec<Arc<Tracker>>>,
}

/// A tracker that is listed while this value lives.
pub(super) struct Tracked<'a> {
    trackers: &'a Trackers,
    pub(super) tracker: Arc<Tracker>,
}

impl Trackers {
    fn running(&self) -> std::sync::MutexGuard<'_, Vec<Arc<Tracker>>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tracks writes to a shard from now on.
    pub(super) fn track(&self, index: &str, shard: ShardId) -> Tracked<'_> {
        let seen = Mutex::default();
        let tracker = Arc::new(Tracker { index: index.to_owned(), shard, seen });
        self.running().push(tracker.clone());
        Tracked { trackers: self, tracker }
    }

    fn of_index(&self, index: &str) -> Vec<Arc<Tracker>> {
        let running = self.running();
        running.iter().filter(|tracker| tracker.index == index).cloned().collect()
    }
}

impl Drop for Tracked<'_> {
    fn drop(&mut self) {
        self.trackers.running().retain(|other| !Arc::ptr_eq(other, &self.tracker));
    }
}

/// Documents of a missed shard that are remembered one by one.
const MISSED_IDS_MAX: usize = 1_000;

/// What a backend missed of one shard.
#[derive(Clone, Debug, Default)]
pub(super) struct Miss {
    /// The number of the latest miss.
    generation: u64,
    /// The documents; `None` when they are not known or too many: the whole shard.
    ids: Option<BTreeSet<String>>,
}

/// Shards that backends lack writes of, by index, backend and shard.
pub(super) type Dirty = BTreeMap<String, BTreeMap<String, BTreeMap<u32, Miss>>>;

/// Stands for every owner of a shard: two gateways may have written to it in different orders.
pub(super) const EVERY_OWNER: &str = "";

/// The entry that lists the indexes of which documents were missed.
pub(super) const NAMES: &str = "_names";

/// Each gateway keeps records of its own.
pub(super) fn record_name(slot: u32, index: &str) -> String {
    format!("{slot}:{index}")
}

/// A record of missed documents as the ring keeps it, one per index.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct DirtyRecord {
    pub(super) shards: BTreeMap<String, Vec<u32>>,
}

/// A shard whose documents a backend missed.
#[derive(Clone, Debug)]
pub(super) struct MissedShard {
    pub(super) index: String,
    pub(super) backend: String,
    pub(super) shard: ShardId,
    pub(super) generation: u64,
    /// The documents, when they are known.
    pub(super) ids: Option<BTreeSet<String>>,
}

fn members(done: &[Done], which: impl Fn(&Done) -> bool) -> HashSet<BackendIdx> {
    done.iter().filter(|done| which(done)).filter_map(|done| done.target.member).collect()
}

/// Whether a backend may have taken a write it did not acknowledge.
fn is_unknown(done: &Done) -> bool {
    matches!(done.failure, Some(WriteFailure::Failed(_)))
}

impl Core {
    /// Tells running copies which documents are being written.
    pub(super) fn note_written<'a>(
        &self,
        index: &str,
        ids: impl Iterator<Item = (Cow<'a, str>, ShardId)>,
    ) {
        let trackers = self.trackers.of_index(index);
        if trackers.is_empty() {
            return;
        }
        for (id, shard) in ids {
            for tracker in trackers.iter().filter(|tracker| tracker.shard == shard) {
                let mut seen = tracker.seen();
                if seen.ids.len() < IDS_MAX {
                    seen.ids.insert(id.clone().into_owned());
                } else {
                    seen.swept = true;
                }
            }
        }
    }

    /// Tells running copies that documents are being deleted that nobody can name.
    pub(super) fn note_swept(&self, index: &str) {
        for tracker in self.trackers.of_index(index) {
            tracker.seen().swept = true;
        }
    }

    /// Remembers what some backends missed of a write that succeeded; `ids` are the documents it
    /// changed, where they are known.
    pub(super) async fn note_missed_documents<'a>(
        &self,
        placement: &Placement,
        index: &str,
        sent: &Sent,
        ids: Option<impl Iterator<Item = (Cow<'a, str>, ShardId)>>,
    ) {
        let missed: Vec<_> = sent.done.iter().filter(|done| !done.acked()).collect();
        if missed.is_empty() {
            return;
        }
        let by_shard = ids.map(|ids| {
            let mut by_shard: BTreeMap<u32, BTreeSet<String>> = BTreeMap::new();
            for (id, shard) in ids {
                by_shard.entry(shard.0).or_default().insert(id.into_owned());
            }
            by_shard
        });
        let mut news = false;
        for done in missed {
            let (backend, shards) = (&done.target.backend.id, &done.target.shards);
            news |= self.mark_dirty(index, backend, shards, by_shard.as_ref());
        }
        if news {
            self.store_dirty(placement, index).await;
        }
    }

    /// Remembers shards whose owners may differ because a write met no quorum: what one of them
    /// took the others get, and where nobody knows who took it they are compared.
    pub(super) async fn note_torn(
        &self,
        placement: &Placement,
        index: &str,
        touched: &ShardSet,
        done: &[Done],
    ) {
        let (acked, unknown) = (members(done, Done::acked), members(done, is_unknown));
        let mut news = false;
        for shard in touched.iter() {
            let mut one = ShardSet::none(placement.topology.shards());
            one.insert(shard);
            let owners = placement.topology.write_targets(shard);
            let took = owners.iter().any(|owner| acked.contains(owner));
            let may_differ = owners.len() > 1 && owners.iter().any(|b| unknown.contains(b));
            if !(took || may_differ) {
                continue;
            }
            for owner in owners.iter().filter(|owner| took && !acked.contains(owner)) {
                news |= self.mark_dirty(index, placement.topology.id(*owner), &one, None);
            }
            if !took {
                news |= self.mark_dirty(index, EVERY_OWNER, &one, None);
            }
            let joining = done.iter().filter(|done| done.target.member.is_none());
            for done in joining.filter(|done| done.target.shards.contains(shard)) {
                news |= self.mark_dirty(index, &done.target.backend.id, &one, None);
            }
        }
        if news {
            self.store_dirty(placement, index).await;
        }
    }

    /// Remembers shards whose owners may differ because this gateway was not sure to be the only
    /// one that writes the index.
    pub(super) async fn note_unsure(&self, placement: &Placement, index: &str, shards: &ShardSet) {
        if self.mark_dirty(index, EVERY_OWNER, shards, None) {
            self.store_dirty(placement, index).await;
        }
    }

    /// True when some shard was not marked before.
    fn mark_dirty(
        &self,
        index: &str,
        backend: &str,
        shards: &ShardSet,
        ids: Option<&BTreeMap<u32, BTreeSet<String>>>,
    ) -> bool {
        let generation = self.next_miss();
        let mut dirty = self.dirty();
        let known = dirty.entry(index.to_owned()).or_default();
        let known = known.entry(backend.to_owned()).or_default();
        let before = known.len();
        for shard in shards.iter() {
            let first = || Miss { generation, ids: Some(BTreeSet::new()) };
            let miss = known.entry(shard.0).or_insert_with(first);
            miss.generation = generation;
            miss.ids = match (miss.ids.take(), ids.and_then(|ids| ids.get(&shard.0))) {
                (Some(mut all), Some(more)) if all.len() + more.len() <= MISSED_IDS_MAX => {
                    all.extend(more.iter().cloned());
                    Some(all)
                }
                _ => None,
            };
        }
        known.len() > before
    }

    /// Takes over what a former run, or a gateway that is gone, recorded.
    pub(super) fn adopt_dirty(&self, index: &str, record: &DirtyRecord) {
        let generation = self.next_miss();
        let mut dirty = self.dirty();
        let known = dirty.entry(index.to_owned()).or_default();
        for (backend, shards) in &record.shards {
            let known = known.entry(backend.clone()).or_default();
            for shard in shards {
                let whole = Miss { generation, ids: None };
                known.entry(*shard).and_modify(|miss| miss.ids = None).or_insert(whole);
            }
        }
    }

    /// Whether a backend has the latest of one document of a shard, as far as is known here.
    pub(super) fn has_latest(&self, index: &str, backend: &str, shard: ShardId, id: &str) -> bool {
        if self.foreign().contains(&(index.to_owned(), backend.to_owned(), shard.0)) {
            return false;
        }
        let dirty = self.dirty();
        let miss = dirty.get(index).and_then(|backends| backends.get(backend)?.get(&shard.0));
        miss.is_none_or(|miss| miss.ids.as_ref().is_some_and(|ids| !ids.contains(id)))
    }

    /// Shards whose documents backends missed.
    pub(super) fn dirty(&self) -> std::sync::MutexGuard<'_, Dirty> {
        self.dirty.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether a backend missed writes to a shard.
    pub(super) fn is_dirty(&self, index: &str, backend: &str, shard: ShardId) -> bool {
        let dirty = self.dirty();
        let shards = dirty.get(index).and_then(|backends| backends.get(backend));
        shards.is_some_and(|shards| shards.contains_key(&shard.0))
            || self.foreign().contains(&(index.to_owned(), backend.to_owned(), shard.0))
    }

    /// What other gateways recorded, as last read: index, backend, shard.
    pub(super) fn foreign(&self) -> std::sync::MutexGuard<'_, HashSet<(String, String, u32)>> {
        self.foreign.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A list of all of them.
    pub(super) fn missed_shards(&self) -> Vec<MissedShard> {
        let mut listed = Vec::new();
        for (index, backends) in self.dirty().iter() {
            for (backend, shards) in backends {
                listed.extend(shards.iter().map(|(shard, miss)| MissedShard {
                    index: index.clone(),
                    backend: backend.clone(),
                    shard: ShardId(*shard),
                    generation: miss.generation,
                    ids: miss.ids.clone(),
                }));
            }
        }
        listed
    }

    /// Takes a shard off the list, unless it was missed again after `generation`.
    pub(super) async fn mark_clean(
        &self,
        placement: &Placement,
        missed: &MissedShard,
        generation: Option<u64>,
    ) {
        if let Some(backends) = self.dirty().get_mut(&missed.index) {
            if let Some(shards) = backends.get_mut(&missed.backend) {
                let same = |known: &Miss| generation.is_none_or(|g| g == known.generation);
                if shards.get(&missed.shard.0).is_some_and(same) {
                    shards.remove(&missed.shard.0);
                }
            }
            backends.retain(|_, shards| !shards.is_empty());
        }
        self.store_dirty(placement, &missed.index).await;
    }

    pub(super) async fn store_dirty(&self, placement: &Placement, index: &str) {
        let mut record = DirtyRecord::default();
        for (backend, shards) in self.dirty().get(index).into_iter().flatten() {
            // A backend that left needs nothing any more.
            if backend == EVERY_OWNER || placement.find(backend).is_some() {
                record.shards.insert(backend.clone(), shards.keys().copied().collect());
            }
        }
        let names: Vec<String> = self.dirty().keys().cloned().collect();
        let stored = async {
            let slot = self.tasks.slot(placement).await?;
            self.state.store(Class::Dirty, &record_name(slot, index), &record).await?;
            self.state.store(Class::Dirty, &record_name(slot, NAMES), &names).await?;
            Ok::<(), ApiError>(())
        };
        if let Err(error) = stored.await {
            super::counters::count(&self.counters.state_failures);
            tracing::warn!(plane = "doc", index, %error, "missed documents were not recorded");
        }
    }
}
