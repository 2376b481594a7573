//! Changing who holds what while documents are written: backends join or leave groups, groups
//! are added.
//!
//! A migration is a record in the ring. Every gateway reads it and sends writes to the future
//! owners too (`Copying`), without counting them. One gateway, the coordinator, waits until all
//! gateways do so, copies the shards that move, and switches (`Switched`): then reads and quorums
//! use the new owners everywhere. Afterwards it removes the copies nobody uses (`Done`). The
//! record stays until the configuration names the same groups.

mod record;
mod work;

pub(super) use record::{Migration, view};
use record::{Phase, Record};

use super::call::{Call, Outcome, accepted, not_an_object, ok, parse_json};
use super::core::Core;
use super::error::ApiError;
use super::placement::Placement;
use super::settings::BackendSettings;
use crate::document::topology::Topology;
use serde_json::Value;
use std::sync::Arc;

/// `GET /_miroir/migration`.
pub(super) async fn status(core: Arc<Core>, _: Call) -> Outcome {
    core.migration.refresh(&core.state).await?;
    Ok(ok(&view(&core)))
}

/// `POST /_miroir/migration`: `{"add": [{"id", "url", "group"}], "remove": [id]}`.
pub(super) async fn start(core: Arc<Core>, mut call: Call) -> Outcome {
    let body = core.bodies.read(&mut call).await?;
    let body = parse_json(&body.text)?;
    if !body.is_object() {
        return Err(not_an_object(&body).into());
    }
    let known = core.migration.refresh(&core.state).await?;
    if known.as_ref().is_some_and(|record| record.phase.is_running()) {
        return Err(conflict("a migration is running; end it first").into());
    }
    let base = effective_groups(&core, known.as_ref());
    let groups = change_groups(&base, &body)?;
    topology_of(&core, &groups)?;
    let record = Record::new(&core, base, groups);
    core.migration.store(&core.state, record).await?;
    apply(&core);
    Ok(accepted(&view(&core)))
}

/// `DELETE /_miroir/migration`: gives a running one up, or forgets one that is done.
pub(super) async fn end(core: Arc<Core>, _: Call) -> Outcome {
    let Some(mut record) = core.migration.refresh(&core.state).await? else {
        return Err(conflict("there is no migration").into());
    };
    match record.phase {
        Phase::Copying => record.phase = Phase::Ended,
        Phase::Switched => {
            return Err(conflict("the new owners are in use already; wait until it is done").into());
        }
        Phase::Done if record.groups != record::configured(&core) => {
            let message = "the configuration still names the former groups: put the new ones into \
                           `documents.backends` of every gateway first";
            return Err(conflict(message).into());
        }
        Phase::Done | Phase::Ended => record.phase = Phase::Ended,
    }
    core.migration.store(&core.state, record).await?;
    apply(&core);
    Ok(ok(&view(&core)))
}

fn conflict(message: &str) -> ApiError {
    ApiError::new("miroir_migration_conflict", message)
}

/// The groups reads and quorums use.
fn effective_groups(core: &Core, record: Option<&Record>) -> Vec<Vec<BackendSettings>> {
    let configured = record::configured(core);
    match record {
        // A configuration that was changed since wins over an old migration.
        Some(record) if record.phase.is_effective() && configured == record.base => {
            record.groups.clone()
        }
        _ => configured,
    }
}

fn change_groups(
    base: &[Vec<BackendSettings>],
    body: &Value,
) -> Result<Vec<Vec<BackendSettings>>, ApiError> {
    let invalid = |message: String| ApiError::new("bad_request", message);
    let list = |name: &str| match body.get(name) {
        None | Some(Value::Null) => Ok(Vec::new()),
        Some(Value::Array(items)) => Ok(items.clone()),
        Some(_) => Err(invalid(format!("`{name}` must be a list"))),
    };
    let mut groups = base.to_vec();
    for id in list("remove")? {
        let id = id.as_str().ok_or_else(|| invalid("`remove` is a list of backend ids".into()))?;
        let before: usize = groups.iter().map(Vec::len).sum();
        groups.iter_mut().for_each(|group| group.retain(|backend| backend.id != id));
        if groups.iter().map(Vec::len).sum::<usize>() == before {
            return Err(invalid(format!("there is no backend `{id}`")));
        }
    }
    for added in list("add")? {
        let text = |name: &str| added.get(name).and_then(Value::as_str).map(str::to_owned);
        let group = added.get("group").and_then(Value::as_u64).map(|group| group as usize);
        let (Some(id), Some(url), Some(group)) = (text("id"), text("url"), group) else {
            return Err(invalid("an added backend has an `id`, a `url` and a `group`".into()));
        };
        if !url.starts_with("http://") && !url.starts_with("https://") {
            return Err(invalid(format!("`{url}` is no http:// or https:// address")));
        }
        if group > groups.len() {
            let next = groups.len();
            return Err(invalid(format!("group {group} would leave a gap; the next is {next}")));
        }
        if group == groups.len() {
            groups.push(Vec::new());
        }
        groups[group].push(BackendSettings { id, url });
    }
    if groups == base {
        return Err(invalid("the migration changes nothing".into()));
    }
    Ok(groups)
}

fn topology_of(core: &Core, groups: &[Vec<BackendSettings>]) -> Result<Topology, ApiError> {
    let ids: Vec<Vec<String>> = groups
        .iter()
        .map(|group| group.iter().map(|backend| backend.id.clone()).collect())
        .collect();
    Topology::new(core.settings.shards, core.settings.replication_factor, &ids)
        .map_err(|e| ApiError::new("bad_request", e.to_string()))
}

/// Reads the record, follows it, and works on it when this gateway coordinates it.
pub(super) async fn advance(core: Arc<Core>) {
    let Ok(record) = core.migration.refresh(&core.state).await else { return };
    apply(&core);
    if let Some(record) = record
        && record.phase.is_running()
        && record.is_ours(&core)
    {
        work::go_on(&core).await;
    }
}

/// Makes the placement what the record says.
fn apply(core: &Core) {
    let record = core.migration.known();
    let groups = effective_groups(core, record.as_ref());
    let next = record.filter(|record| record.phase == Phase::Copying).map(|record| record.groups);
    let wanted = (groups, next);
    if !core.migration.is_news(&wanted) {
        return;
    }
    let (groups, next) = wanted;
    let before = core.placement();
    let backend = |settings: &BackendSettings| {
        let known = before.find(&settings.id).filter(|known| known.url == settings.url);
        known.cloned().unwrap_or_else(|| core.new_backend(settings))
    };
    let Ok(topology) = topology_of(core, &groups) else { return };
    let find = |id: &String| groups.iter().flatten().find(|backend| backend.id == *id);
    let backends = topology.backends().iter().filter_map(find).map(backend).collect();
    let mut placement = Placement::new(topology, backends);
    if let Some(next) = next
        && let Ok(topology) = topology_of(core, &next)
    {
        let members = placement.topology.backends().to_vec();
        let joining = next.iter().flatten().filter(|backend| !members.contains(&backend.id));
        placement = placement.with_migration(&topology, joining.map(backend).collect());
    }
    let fingerprint = format!("{:016x}", placement.topology.fingerprint());
    tracing::info!(plane = "doc", fingerprint, "the placement of documents changed");
    core.set_placement(placement);
}
