//! Indexes and their settings: broadcast to every backend, judged by the two-rule quorum.
//!
//! A backend that misses a change is noted, and set right before its next write.

mod settings;
mod stats;

pub(super) use settings::{read_settings, write_settings};
pub(super) use stats::{index_stats, stats};

use super::call::{
    Call, Outcome, is_valid_uid, kind_of, not_an_object, ok, parse_json, uid_message,
};
use super::catalogue::{Missed, filterable_path};
use super::client::{Outbound, Reply, index_path};
use super::core::Core;
use super::error::{ApiError, Failure, index_not_found, json_response};
use super::fanout::{Done, Job, Sent, send_all, settle};
use super::idempotency::Written;
use super::placement::{Placement, Target};
use super::tasks::{Details, TaskKind};
use super::writes::{Plan, execute, jobs, once};
use crate::document::object::shorten;
use crate::document::shard::ShardSet;
use hyper::{Method, StatusCode};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Indexes of a page when the request does not say.
const LISTED_DEFAULT: usize = 20;
/// Indexes a backend is asked for.
const LISTED_MAX: usize = 100_000;

/// Creates an index on every backend if no backend has it.
///
/// # Errors
/// No quorum of backends took it; those that did were told to drop it again.
pub(super) async fn ensure_index(
    core: &Arc<Core>,
    placement: &Arc<Placement>,
    uid: &str,
    primary_key: Option<&str>,
) -> Result<(), Failure> {
    let lock = core.catalogue.creation_lock(uid);
    let _creating = lock.lock().await;
    if core.catalogue.find(placement, uid).await?.is_some() {
        return Ok(());
    }
    let requests = creation(core, uid, primary_key);
    let jobs = jobs(placement.everyone(), None, |_| requests.clone());
    let done = send_all(core, placement, uid, jobs, || ()).await;
    let all = ShardSet::all(placement.topology.shards());
    match settle(core, placement, uid, &all, done) {
        Ok(sent) => {
            created(core, uid, primary_key.map(str::to_owned), &sent).await;
            Ok(())
        }
        Err(unsettled) => {
            drop_again(core, placement, uid, unsettled.done).await;
            Err(unsettled.failure)
        }
    }
}

/// What makes an index: it, and the shard field filterable. A Meilisearch runs its tasks in
/// order, so nothing needs to be waited for in between.
fn creation(core: &Core, uid: &str, primary_key: Option<&str>) -> Vec<Outbound> {
    let body = json!({"uid": uid, "primaryKey": primary_key});
    let filterable = core.catalogue.with_reserved(&json!([]));
    vec![
        Outbound::json(Method::POST, "/indexes", &body),
        Outbound::json(Method::PUT, filterable_path(uid), &filterable),
    ]
}

async fn created(core: &Core, uid: &str, primary_key: Option<String>, sent: &Sent) {
    let (ready, missed): (Vec<&Done>, Vec<&Done>) = sent.done.iter().partition(|d| d.acked());
    let ids = |done: Vec<&Done>| done.iter().map(|d| d.target.backend.id.clone()).collect();
    core.catalogue.created(uid, primary_key, ids(ready));
    let missed: Vec<String> = ids(missed);
    core.catalogue.note_missed(uid, &missed, Missed::Settings).await;
}

async fn drop_again(core: &Arc<Core>, placement: &Arc<Placement>, uid: &str, done: Vec<Done>) {
    let took = done.into_iter().filter(|done| !done.tasks.is_empty()).map(|done| done.target);
    let jobs: Vec<Job> =
        jobs(took.collect(), None, |_: &Target| vec![Outbound::delete(index_path(uid))]);
    send_all(core, placement, uid, jobs, || ()).await;
    core.catalogue.forget(uid);
}

/// `POST /indexes`.
pub(super) async fn create(core: Arc<Core>, mut call: Call) -> Outcome {
    let body = core.bodies.read(&mut call).await?;
    let fields = parse_json(&body.text)?;
    let Value::Object(map) = &fields else { return Err(not_an_object(&fields).into()) };
    let uid = match map.get("uid") {
        Some(Value::String(uid)) => uid.clone(),
        None => return Err(ApiError::new("missing_index_uid", "Missing field `uid`").into()),
        Some(other) => {
            let shown = shorten(&other.to_string());
            let kind = kind_of(other);
            let message = format!(
                "Invalid value type at `.uid`: expected a string, but found {kind}: `{shown}`"
            );
            return Err(ApiError::new("invalid_index_uid", message).into());
        }
    };
    if !is_valid_uid(&uid) {
        let message = format!("Invalid value at `.uid`: {}", uid_message(&uid));
        return Err(ApiError::new("invalid_index_uid", message).into());
    }
    let primary_key = primary_key_of(map.get("primaryKey"))?;
    let shared = core.clone();
    let raw = body.raw.clone();
    let name = uid.clone();
    let work = async move { create_index(&shared, uid, primary_key).await };
    once(&core, &call, &name, &raw, work).await
}

fn primary_key_of(value: Option<&Value>) -> Result<Option<String>, ApiError> {
    match value {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(key)) if !key.is_empty() && !key.contains('.') => Ok(Some(key.clone())),
        Some(other) => {
            let shown = shorten(&other.to_string());
            let message = format!("`{shown}` cannot be the primary key: a dotted or empty name");
            Err(ApiError::new("invalid_index_primary_key", message))
        }
    }
}

async fn create_index(
    core: &Arc<Core>,
    uid: String,
    primary_key: Option<String>,
) -> Result<Written, Failure> {
    if core.aliases.resolve_again(&uid).await? != super::aliases::Resolved::One(uid.clone()) {
        let message = format!("`{uid}` is an alias and cannot be an index");
        return Err(ApiError::new("miroir_invalid_alias", message).into());
    }
    let placement = core.placement();
    let lock = core.catalogue.creation_lock(&uid);
    let _creating = lock.lock().await;
    let exists = core.catalogue.find(&placement, &uid).await?.is_some();
    let mut requests = creation(core, &uid, primary_key.as_deref());
    if exists {
        // The task fails as it should; the settings of the index stay as they are.
        requests.truncate(1);
    }
    let plan = Plan {
        uid: uid.clone(),
        kind: TaskKind::IndexCreation,
        details: Details { other: Some(json!({"primaryKey": primary_key})), ..Details::default() },
        metadata: None,
        session: None,
        touched: ShardSet::all(placement.topology.shards()),
    };
    let jobs = jobs(placement.everyone(), None, |_| requests.clone());
    match execute(core, &placement, plan, jobs, || ()).await {
        Ok((written, sent)) => {
            if !exists {
                created(core, &uid, primary_key, &sent).await;
            }
            Ok(written)
        }
        Err(unsettled) => {
            if !exists {
                drop_again(core, &placement, &uid, unsettled.done).await;
            }
            Err(unsettled.failure)
        }
    }
}

/// `PATCH /indexes/{uid}`: the primary key of an empty index.
pub(super) async fn update(core: Arc<Core>, mut call: Call) -> Outcome {
    let name = call.uid()?;
    let body = core.bodies.read(&mut call).await?;
    let fields = parse_json(&body.text)?;
    let Value::Object(map) = &fields else { return Err(not_an_object(&fields).into()) };
    if let Some(other) = map.keys().find(|key| *key != "primaryKey") {
        let other = shorten(other);
        let message = format!("Unknown field `{other}`: expected one of `primaryKey`");
        return Err(ApiError::new("bad_request", message).into());
    }
    let primary_key = primary_key_of(map.get("primaryKey"))?;
    let (shared, raw, index) = (core.clone(), body.raw.clone(), name.clone());
    once(&core, &call, &index, &raw, async move {
        let uid = shared.aliases.resolve(&name).await?.writable(&name)?;
        let details = json!({"primaryKey": primary_key});
        let request = Outbound::json(Method::PATCH, index_path(&uid), &details);
        let change = Change { kind: TaskKind::IndexUpdate, details, missed: Missed::Settings };
        let written = broadcast(&shared, &uid, vec![request], change).await;
        shared.catalogue.forget(&uid);
        written
    })
    .await
}

/// `DELETE /indexes/{uid}`.
pub(super) async fn delete(core: Arc<Core>, mut call: Call) -> Outcome {
    let name = call.uid()?;
    let body = core.bodies.read(&mut call).await?;
    let (shared, raw, index) = (core.clone(), body.raw.clone(), name.clone());
    once(&core, &call, &index, &raw, async move {
        let uid = shared.aliases.resolve(&name).await?.writable(&name)?;
        let request = Outbound::delete(index_path(&uid));
        let change = Change {
            kind: TaskKind::IndexDeletion,
            details: Value::Null,
            missed: Missed::Deletion,
        };
        let written = broadcast(&shared, &uid, vec![request], change).await;
        shared.catalogue.forget(&uid);
        shared.note_swept(&uid);
        written
    })
    .await
}

/// A change every backend must take.
pub(super) struct Change {
    pub(super) kind: TaskKind,
    pub(super) details: Value,
    /// What a backend that did not take it has to catch up with.
    pub(super) missed: Missed,
}

/// Sends the same requests to every backend.
pub(super) async fn broadcast(
    core: &Arc<Core>,
    uid: &str,
    requests: Vec<Outbound>,
    change: Change,
) -> Result<Written, Failure> {
    let placement = core.placement();
    let plan = Plan {
        uid: uid.to_owned(),
        kind: change.kind,
        details: Details {
            other: Some(change.details).filter(|details| !details.is_null()),
            ..Details::default()
        },
        metadata: None,
        session: None,
        touched: ShardSet::all(placement.topology.shards()),
    };
    let jobs = jobs(placement.everyone(), None, |_| requests.clone());
    let (done, answer) = match execute(core, &placement, plan, jobs, || ()).await {
        Ok((written, sent)) => (sent.done, Ok(written)),
        Err(unsettled) => (unsettled.done, Err(unsettled.failure)),
    };
    let missed = done.iter().filter(|done| !done.acked());
    let missed: Vec<String> = missed.map(|done| done.target.backend.id.clone()).collect();
    match change.missed {
        // Settings that some took without a quorum reach the others too: all are alike again.
        Missed::Settings if done.iter().any(Done::acked) => {
            core.catalogue.note_missed(uid, &missed, Missed::Settings).await;
        }
        // Nothing is deleted without one.
        Missed::Deletion if answer.is_ok() => core.catalogue.note_deleted(uid, &missed).await,
        Missed::Settings | Missed::Deletion => {}
    }
    answer
}

/// `GET /indexes/{uid}`: from the first backend that has it.
pub(super) async fn get(core: Arc<Core>, call: Call) -> Outcome {
    let name = call.uid()?;
    let uid = core.aliases.resolve(&name).await?.writable(&name)?;
    let is_index = |body: &Value| body["uid"] == uid;
    let reply = first_answer(&core, &uid, &index_path(&uid), is_index).await?;
    Ok(json_response(StatusCode::OK, reply))
}

/// `GET /indexes`: all that any member has. One that was away when an index was made lacks it
/// until its next write.
pub(super) async fn list(core: Arc<Core>, call: Call) -> Outcome {
    call.only_parameters(&["offset", "limit"])?;
    let offset = call.number("offset", "invalid_index_offset")?.unwrap_or(0) as usize;
    let limit = call.number("limit", "invalid_index_limit")?.map_or(LISTED_DEFAULT, |n| n as usize);
    let placement = core.placement();
    let mut asked = tokio::task::JoinSet::new();
    for backend in placement.by_health() {
        let backend = Arc::clone(backend);
        let path = format!("/indexes?offset=0&limit={LISTED_MAX}");
        asked.spawn(async move { backend.call(Outbound::get(path)).await });
    }
    let (mut found, mut answered) = (BTreeMap::<String, Value>::new(), false);
    while let Some(reply) = asked.join_next().await {
        let Ok(Ok(reply)) = reply else { continue };
        let Some(body) = reply.json().filter(|_| reply.is_success()) else { continue };
        answered = true;
        for index in body["results"].as_array().into_iter().flatten() {
            let Some(uid) = index["uid"].as_str() else { continue };
            let known = found.entry(uid.to_owned()).or_insert_with(|| index.clone());
            if known["primaryKey"].is_null() {
                *known = index.clone();
            }
        }
    }
    if !answered {
        return Err(unavailable().into());
    }
    let total = found.len();
    let page: Vec<Value> = found.into_values().skip(offset).take(limit).collect();
    Ok(ok(&json!({"results": page, "offset": offset, "limit": limit, "total": total})))
}

/// The first success among all members for a path of an index that makes sense;
/// `index_not_found` when every member that answered said so.
pub(super) async fn first_answer(
    core: &Core,
    uid: &str,
    path: &str,
    makes_sense: impl Fn(&Value) -> bool,
) -> Result<bytes::Bytes, Failure> {
    let placement = core.placement();
    let mut missing = false;
    let mut members = placement.by_health();
    // A member that missed a change of the index is asked last.
    let behind = core.catalogue.behind(uid).await;
    members.sort_by_key(|backend| behind.contains(&backend.id));
    for backend in members {
        match backend.call(Outbound::get(path)).await {
            Ok(reply) if reply.is_success() && reply.json().is_some_and(|b| makes_sense(&b)) => {
                return Ok(reply.body);
            }
            Ok(reply) if reply.error_code().as_deref() == Some("index_not_found") => {
                missing = true;
            }
            Ok(reply) if is_refusal(&reply) => {
                return Err(Failure::Forwarded { status: reply.status, body: reply.body });
            }
            Ok(_) | Err(_) => {}
        }
    }
    Err(if missing { index_not_found(uid).into() } else { unavailable().into() })
}

/// Whether a member refuses a read for what it says: in its own words, or as a path or method it
/// does not serve.
fn is_refusal(reply: &Reply) -> bool {
    match reply.status {
        404 | 405 if reply.body.is_empty() => true,
        400 | 404 | 405 => reply.error_code().is_some(),
        _ => false,
    }
}

/// No backend could be asked.
pub(super) fn unavailable() -> ApiError {
    ApiError::new("miroir_shard_unavailable", "no backend can be reached")
}
