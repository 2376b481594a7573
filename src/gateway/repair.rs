//! Repair of backends that missed writes: once they answer again, the shards they lack writes of
//! are copied from an owner that has them.

use super::client::{Backend, Outbound, index_path};
use super::copy::{Copy, copy_shard};
use super::core::Core;
use super::error::ApiError;
use super::kv::Class;
use super::placement::Placement;
use super::tracking::{DirtyRecord, EVERY_OWNER, MissedShard, NAMES, record_name};
use crate::document::shard::ShardId;
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Looks for missed shards whose backends answer, and copies them.
pub(super) async fn run(core: Arc<Core>) {
    let known = core.learned.load(Ordering::Relaxed) && core.missed_shards().is_empty();
    if !known && let Err(error) = learn(&core).await {
        tracing::debug!(plane = "doc", %error, "records of missed writes were not read");
        return;
    }
    let placement = core.placement();
    for missed in core.missed_shards() {
        if missed.backend == EVERY_OWNER {
            match level(&core, &placement, &missed.index, missed.shard).await {
                Ok(()) => core.mark_clean(&placement, &missed, Some(missed.generation)).await,
                Err(reason) => tell(&missed, &reason),
            }
            continue;
        }
        let Some(to) = placement.find(&missed.backend).cloned() else {
            core.mark_clean(&placement, &missed, None).await;
            continue;
        };
        let owner = placement.topology.find(&missed.backend);
        let owns = owner
            .is_some_and(|owner| placement.topology.write_targets(missed.shard).contains(&owner));
        // A joining backend is looked after by its migration.
        if !owns || !to.is_live() {
            continue;
        }
        match repair(&core, &placement, &missed, to).await {
            Ok(()) => {
                let generation = Some(missed.generation);
                core.mark_clean(&placement, &missed, generation).await;
            }
            Err(reason) => tell(&missed, &reason),
        }
    }
}

fn tell(missed: &MissedShard, reason: &str) {
    let (backend, shard) = (missed.backend.as_str(), missed.shard.0);
    let index = missed.index.as_str();
    tracing::debug!(plane = "doc", index, backend, shard, reason, "a shard was not repaired");
}

/// Makes all owners of a shard equal to the first that missed nothing: which of two writes that
/// crossed is the last one nobody can say, but all must say the same.
async fn level(
    core: &Arc<Core>,
    placement: &Placement,
    index: &str,
    shard: ShardId,
) -> Result<(), String> {
    let info = core.catalogue.find(placement, index).await.map_err(|e| e.to_string())?;
    let Some(primary_key) = info.and_then(|info| info.primary_key) else { return Ok(()) };
    let from = source(core, placement, index, shard, EVERY_OWNER)
        .ok_or("no owner has every write of the shard")?;
    for owner in placement.topology.write_targets(shard) {
        let to = placement.backend(*owner).clone();
        if to.id == from.id {
            continue;
        }
        let (index, primary_key) = (index.to_owned(), primary_key.clone());
        let copy = Copy { index, primary_key, shard, from: from.clone(), to, ids: None };
        copy_shard(core, placement, &copy).await?;
    }
    Ok(())
}

async fn repair(
    core: &Arc<Core>,
    placement: &Placement,
    missed: &MissedShard,
    to: Arc<Backend>,
) -> Result<(), String> {
    let (index, shard) = (missed.index.as_str(), missed.shard);
    let info = core.catalogue.find(placement, index).await.map_err(|e| e.to_string())?;
    let Some(info) = info else { return still_missing(&to, index).await };
    let Some(primary_key) = info.primary_key else { return Ok(()) };
    let whole = source(core, placement, index, shard, &to.id).map(|from| (from, None));
    // Owners that were away in turn each missed something: what one lacks another has.
    let copies = match (whole, &missed.ids) {
        (Some(whole), _) => vec![whole],
        (None, Some(ids)) => sources_of(core, placement, missed, ids)?,
        (None, None) => return Err("no other owner has every write of the shard".to_owned()),
    };
    for (from, ids) in copies {
        let (index, primary_key) = (index.to_owned(), primary_key.clone());
        let copy = Copy { index, primary_key, shard, from, to: to.clone(), ids };
        copy_shard(core, placement, &copy).await?;
    }
    Ok(())
}

/// An owner, and the ids of the documents to be taken from it; all of them without.
type Source = (Arc<Backend>, Option<Vec<String>>);

/// Live owners that did not miss these documents, each with those to be taken from it.
fn sources_of(
    core: &Core,
    placement: &Placement,
    missed: &MissedShard,
    ids: &BTreeSet<String>,
) -> Result<Vec<Source>, String> {
    let owners = placement.topology.write_targets(missed.shard).iter();
    let owners: Vec<_> = owners.map(|owner| placement.backend(*owner)).collect();
    let mut wanted: BTreeMap<usize, Vec<String>> = BTreeMap::new();
    for id in ids {
        let has = |owner: &&Arc<Backend>| {
            owner.id != missed.backend
                && owner.is_live()
                && core.has_latest(&missed.index, &owner.id, missed.shard, id)
        };
        let from = owners.iter().position(has);
        let from = from.ok_or_else(|| format!("no other owner has document {id}"))?;
        wanted.entry(from).or_default().push(id.clone());
    }
    Ok(wanted.into_iter().map(|(from, ids)| (owners[from].clone(), Some(ids))).collect())
}

/// An index that is gone needs no repair; that it is gone must be sure.
async fn still_missing(backend: &Backend, index: &str) -> Result<(), String> {
    let reply = backend.call(Outbound::get(index_path(index))).await.map_err(|e| e.to_string())?;
    if reply.status == 404 { Ok(()) } else { Err("the index is gone elsewhere".to_owned()) }
}

/// A live owner of the shard that missed nothing of it.
pub(super) fn source(
    core: &Core,
    placement: &Placement,
    index: &str,
    shard: ShardId,
    except: &str,
) -> Option<Arc<Backend>> {
    let owners = placement.topology.write_targets(shard).iter();
    let fits = |backend: &&Arc<Backend>| {
        backend.id != except && backend.is_live() && !core.is_dirty(index, &backend.id, shard)
    };
    owners.map(|owner| placement.backend(*owner)).find(fits).cloned()
}

/// Reads what gateways recorded: takes over the records of a former run of this one and of
/// gateways that are gone, and learns from the others' which backends are no source for a copy.
pub(super) async fn learn(core: &Core) -> Result<(), ApiError> {
    let own = core.tasks.slot(&core.placement()).await?;
    let mut foreign = HashSet::new();
    for slot in 0..core.settings.max_gateways {
        let first = !core.learned.load(Ordering::Relaxed);
        if slot == own && !first {
            continue;
        }
        let names: Vec<String> =
            core.state.load(Class::Dirty, &record_name(slot, NAMES)).await?.unwrap_or_default();
        let gone = slot == own || !core.tasks.slot_is_alive(slot).await?;
        for index in names {
            let name = record_name(slot, &index);
            let record: DirtyRecord =
                core.state.load(Class::Dirty, &name).await?.unwrap_or_default();
            if gone {
                core.adopt_dirty(&index, &record);
                if slot != own {
                    core.store_dirty(&core.placement(), &index).await;
                    core.state.store(Class::Dirty, &name, &DirtyRecord::default()).await?;
                }
                continue;
            }
            for (backend, shards) in &record.shards {
                foreign.extend(shards.iter().map(|s| (index.clone(), backend.clone(), *s)));
            }
        }
    }
    *core.foreign() = foreign;
    core.learned.store(true, Ordering::Relaxed);
    Ok(())
}
