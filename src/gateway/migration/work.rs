//! What the coordinator of a migration does, one step after another. Every step can be repeated.

use super::record::{Phase, Record};
use super::topology_of;
use crate::document::reserved::SHARD_FIELD;
use crate::document::shard::ShardId;
use crate::document::topology::Topology;
use crate::gateway::client::{Backend, Outbound, index_path};
use crate::gateway::copy::{Copy, copy_shard};
use crate::gateway::core::Core;
use crate::gateway::placement::Placement;
use crate::gateway::repair::{learn, source};
use hyper::Method;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Indexes asked for at a time.
const INDEXES_PAGE: usize = 1_000;
/// Shards after which progress is stored.
const PROGRESS_EVERY: u64 = 16;

/// Works on the present phase until it is over or something fails.
pub(super) async fn go_on(core: &Arc<Core>) {
    let Some(mut record) = core.migration.known() else { return };
    if !everybody_follows(core, &record) {
        tell(core, &mut record).await;
        return;
    }
    let result = match record.phase {
        Phase::Copying => copy_all(core, &mut record).await,
        Phase::Switched => remove_unused(core, &record).await,
        Phase::Done | Phase::Ended => return,
    };
    match (result, record.phase) {
        (Ok(()), Phase::Copying) => enter(core, record, Phase::Switched).await,
        (Ok(()), _) => enter(core, record, Phase::Done).await,
        (Err(reason), _) => {
            tracing::warn!(plane = "doc", reason, "the migration does not get on");
            record.progress.last_error = Some(reason);
            tell(core, &mut record).await;
        }
    }
    super::apply(core);
}

/// Tells how far the work is.
async fn tell(core: &Core, record: &mut Record) {
    record.progress.seen(core);
    if let Err(error) = core.migration.tell(&core.state, &record.progress).await {
        tracing::warn!(plane = "doc", %error, "the migration's progress was not stored");
    }
}

/// Goes to the next phase, unless somebody decided otherwise meanwhile.
async fn enter(core: &Core, mut record: Record, phase: Phase) {
    let Ok(now) = core.migration.refresh(&core.state).await else { return };
    if !now.is_some_and(|now| now.is_as(&record)) {
        return;
    }
    record.progress.seen(core);
    record.enter(core, phase);
    if let Err(error) = core.migration.store(&core.state, record).await {
        tracing::warn!(plane = "doc", %error, "the migration's phase was not stored");
    }
}

/// Whether the migration is still the one that is worked on, as far as can be known.
async fn goes_on(core: &Core, record: &Record) -> bool {
    // A ring that cannot be read says nothing: what was known stands.
    let _ = core.migration.refresh(&core.state).await;
    core.migration.known().is_some_and(|now| now.is_as(record))
}

/// Every gateway reads the record at each interval; a write that was sent before it did is
/// answered or given up after the node timeout.
fn everybody_follows(core: &Core, record: &Record) -> bool {
    let wait = 2 * core.settings.refresh_interval + core.settings.node_timeout;
    core.clock.now_us().saturating_sub(record.phase_us) >= wait.as_micros() as u64
}

/// A shard that gets an owner it had not.
struct Move {
    shard: ShardId,
    to: String,
}

/// What `next` adds to the owners of `now`.
fn moves(now: &Topology, next: &Topology) -> Vec<Move> {
    let mut moves = Vec::new();
    for shard in (0..now.shards()).map(ShardId) {
        let old = now.write_targets(shard);
        for new in next.write_targets(shard) {
            let to = next.id(*new);
            if !old.iter().any(|b| now.id(*b) == to) {
                moves.push(Move { shard, to: to.to_owned() });
            }
        }
    }
    moves
}

async fn copy_all(core: &Arc<Core>, record: &mut Record) -> Result<(), String> {
    learn(core).await.map_err(|e| e.to_string())?;
    let placement = core.placement();
    let next = topology_of(core, &record.groups).map_err(|e| e.to_string())?;
    let moves = moves(&placement.topology, &next);
    let indexes = indexes(&placement).await?;
    record.progress.shards_to_copy = (moves.len() * indexes.len()) as u64;
    record.progress.shards_copied = 0;
    for (index, primary_key) in &indexes {
        prepare_joining(core, &placement, index, primary_key.as_deref()).await?;
        for planned in &moves {
            if let Some(key) = primary_key {
                copy_one(core, &placement, index, key, planned).await?;
            }
            record.progress.shards_copied += 1;
            if record.progress.shards_copied.is_multiple_of(PROGRESS_EVERY) {
                tell(core, record).await;
                if !goes_on(core, record).await {
                    return Err("the migration was ended".to_owned());
                }
            }
        }
    }
    catch_up(core, &placement, &moves).await
}

async fn copy_one(
    core: &Arc<Core>,
    placement: &Placement,
    index: &str,
    primary_key: &str,
    planned: &Move,
) -> Result<(), String> {
    let to = placement.find(&planned.to).cloned();
    let to = to.ok_or_else(|| format!("{} is not known any more", planned.to))?;
    let from = source(core, placement, index, planned.shard, &planned.to).ok_or_else(|| {
        format!("no owner of shard {} of {index} has every write of it", planned.shard.0)
    })?;
    let copy = Copy {
        index: index.to_owned(),
        primary_key: primary_key.to_owned(),
        shard: planned.shard,
        from,
        to,
        ids: None,
    };
    let known = core.missed_shards();
    copy_shard(core, placement, &copy).await?;
    // What the receiver missed before the copy began is copied now.
    let mine = known.iter().filter(|missed| {
        missed.index == index && missed.backend == planned.to && missed.shard == planned.shard
    });
    for missed in mine {
        core.mark_clean(placement, missed, Some(missed.generation)).await;
    }
    Ok(())
}

/// Copies again what future owners missed while other shards were copied.
async fn catch_up(core: &Arc<Core>, placement: &Placement, moves: &[Move]) -> Result<(), String> {
    for missed in core.missed_shards() {
        let moving = moves.iter().find(|m| m.shard == missed.shard && m.to == missed.backend);
        let Some(planned) = moving else { continue };
        let info =
            core.catalogue.find(placement, &missed.index).await.map_err(|e| e.to_string())?;
        if let Some(key) = info.and_then(|info| info.primary_key) {
            copy_one(core, placement, &missed.index, &key, planned).await?;
        }
    }
    let left = core.missed_shards();
    let missing = |m: &Move| left.iter().any(|l| l.shard == m.shard && l.backend == m.to);
    match moves.iter().find(|m| missing(m)) {
        None => Ok(()),
        Some(planned) => Err(format!("{} missed writes again", planned.to)),
    }
}

/// Makes joining backends ready for an index, in their lanes.
async fn prepare_joining(
    core: &Arc<Core>,
    placement: &Placement,
    index: &str,
    primary_key: Option<&str>,
) -> Result<(), String> {
    for backend in &placement.backends[placement.topology.backends().len()..] {
        let ids = std::iter::once(backend.id.as_str());
        let (places, ()) = core.lanes.take(index, ids, || ());
        for mut place in places.into_iter().flatten() {
            place.turn().await;
            core.catalogue.prepare(placement, backend, index, primary_key).await?;
        }
    }
    Ok(())
}

/// All indexes members have, with their primary keys.
async fn indexes(placement: &Placement) -> Result<BTreeMap<String, Option<String>>, String> {
    let mut found: BTreeMap<String, Option<String>> = BTreeMap::new();
    let mut asked = false;
    for backend in placement.by_health() {
        let Ok(listed) = indexes_of(backend).await else { continue };
        asked = true;
        for (uid, key) in listed {
            let known = found.entry(uid).or_default();
            *known = known.take().or(key);
        }
    }
    if asked { Ok(found) } else { Err("no backend can be reached".to_owned()) }
}

async fn indexes_of(backend: &Backend) -> Result<Vec<(String, Option<String>)>, String> {
    let mut all = Vec::new();
    loop {
        let path = format!("/indexes?limit={INDEXES_PAGE}&offset={}", all.len());
        let reply = backend.call(Outbound::get(path)).await.map_err(|e| e.to_string())?;
        let body = reply.json().filter(|_| reply.is_success()).ok_or("no list of indexes")?;
        let results = body.get("results").and_then(Value::as_array).cloned().unwrap_or_default();
        let text = |item: &Value, name: &str| item.get(name)?.as_str().map(str::to_owned);
        all.extend(results.iter().filter_map(|i| Some((text(i, "uid")?, text(i, "primaryKey")))));
        if results.len() < INDEXES_PAGE {
            return Ok(all);
        }
    }
}

/// Deletes the shards that backends do not own any more.
async fn remove_unused(core: &Arc<Core>, record: &Record) -> Result<(), String> {
    let placement = core.placement();
    let before = topology_of(core, &record.base).map_err(|e| e.to_string())?;
    let unused = moves(&placement.topology, &before);
    let mut by_backend: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for unused in &unused {
        by_backend.entry(&unused.to).or_default().push(unused.shard.0.to_string());
    }
    for index in indexes(&placement).await?.keys() {
        for (id, shards) in &by_backend {
            // A backend that left keeps what it has.
            let Some(backend) = placement.find(id) else { continue };
            let filter = format!("{SHARD_FIELD} IN [{}]", shards.join(", "));
            let (places, ()) = core.lanes.take(index, std::iter::once(*id), || ());
            for mut place in places.into_iter().flatten() {
                place.turn().await;
                let path = format!("{}/documents/delete", index_path(index));
                let request = Outbound::json(Method::POST, path, &json!({"filter": filter}));
                backend.write(request).await.map_err(|e| e.to_string())?;
            }
        }
    }
    Ok(())
}
