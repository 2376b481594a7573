//! Deletes: one document, by ids, by filter, all.
//!
//! The client's request is never passed on as it came: a Meilisearch ignores the body of
//! `DELETE documents` and deletes everything.

use super::{Plan, already_done, execute, jobs, once};
use crate::document::object::{quoted, shorten};
use crate::document::primary_key::canonical_delete_id;
use crate::document::shard::{ShardId, ShardSet, shard_for_key};
use crate::gateway::body::{ReadBody, off_reactor};
use crate::gateway::call::{Call, Outcome, encode_segment, not_an_object, parse_json};
use crate::gateway::client::{OutBody, Outbound, index_path};
use crate::gateway::core::Core;
use crate::gateway::counters::count_many;
use crate::gateway::error::{ApiError, Failure};
use crate::gateway::fanout::Unsettled;
use crate::gateway::idempotency::Written;
use crate::gateway::placement::Target;
use crate::gateway::sessions::session_of;
use crate::gateway::tasks::{Details, TaskKind};
use bytes::Bytes;
use hyper::Method;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use std::borrow::Cow;
use std::sync::Arc;

/// What a delete takes away.
enum What {
    Ids(Vec<String>),
    Matching(Value),
    Everything,
}

/// `DELETE documents/{id}`. A body is tolerated: clients send `null`.
pub(in crate::gateway) async fn delete_one(core: Arc<Core>, mut call: Call) -> Outcome {
    let id = call.param(1).to_owned();
    let body = core.bodies.read(&mut call).await?;
    answer(core, call, body, move |_| Ok(What::Ids(vec![id]))).await
}

/// `DELETE documents`: by ids or filter when the body says so, everything when there is none.
pub(in crate::gateway) async fn delete_with_body(core: Arc<Core>, mut call: Call) -> Outcome {
    let body = core.bodies.read(&mut call).await?;
    answer(core, call, body, |text| {
        // Blanks alone are no JSON: nobody asked for everything.
        if text.is_empty() {
            return Ok(What::Everything);
        }
        match first_byte(text) {
            Some(b'[') => Ok(What::Ids(read_ids(text)?)),
            _ => from_object(&parse_json(text)?),
        }
    })
    .await
}

/// `POST documents/delete-batch`: an array of ids.
pub(in crate::gateway) async fn delete_batch(core: Arc<Core>, mut call: Call) -> Outcome {
    let body = core.bodies.read(&mut call).await?;
    answer(core, call, body, |text| {
        if first_byte(text) == Some(b'[') {
            return Ok(What::Ids(read_ids(text)?));
        }
        parse_json(text)?;
        let message =
            "Json deserialize error: invalid type: map, expected a sequence at line 1 column 0";
        Err(ApiError::new("bad_request", message))
    })
    .await
}

/// `POST documents/delete`: by filter.
pub(in crate::gateway) async fn delete_matching(core: Arc<Core>, mut call: Call) -> Outcome {
    let body = core.bodies.read(&mut call).await?;
    answer(core, call, body, |text| {
        let body = parse_json(text)?;
        let Value::Object(fields) = &body else { return Err(not_an_object(&body)) };
        if let Some(other) = fields.keys().find(|name| *name != "filter") {
            let other = shorten(other);
            let message = format!("Unknown field `{other}`: expected one of `filter`");
            return Err(ApiError::new("bad_request", message));
        }
        filter_of(fields.get("filter"))
    })
    .await
}

fn filter_of(filter: Option<&Value>) -> Result<What, ApiError> {
    match filter {
        None | Some(Value::Null) => {
            Err(ApiError::new("missing_document_filter", "Missing field `filter`"))
        }
        Some(Value::String(text)) if text.trim().is_empty() => {
            let message = "Sending an empty filter is forbidden.";
            Err(ApiError::new("invalid_document_filter", message))
        }
        Some(filter @ (Value::String(_) | Value::Array(_))) => Ok(What::Matching(filter.clone())),
        Some(other) => {
            let shown = shorten(&other.to_string());
            let message = format!("Invalid syntax for the filter parameter: `{shown}`");
            Err(ApiError::new("invalid_document_filter", message))
        }
    }
}

/// The body of `DELETE documents`. An object that says nothing must never delete everything.
fn from_object(body: &Value) -> Result<What, ApiError> {
    let unclear = || {
        let message = "the body of a deletion is an array of ids, an object with either `ids` or \
                       `filter`, or absent to delete every document";
        ApiError::new("bad_request", message)
    };
    match body {
        Value::Null => Ok(What::Everything),
        Value::Object(fields) if fields.len() == 1 => {
            match (fields.get("ids"), fields.get("filter")) {
                (Some(ids @ Value::Array(_)), None) => {
                    Ok(What::Ids(read_ids(ids.to_string().as_bytes())?))
                }
                (None, Some(filter)) => filter_of(Some(filter)),
                _ => Err(unclear()),
            }
        }
        _ => Err(unclear()),
    }
}

fn first_byte(text: &[u8]) -> Option<u8> {
    text.iter().copied().find(|b| !b.is_ascii_whitespace())
}

/// Ids as they are hashed. Numbers keep their text, however large.
fn read_ids(text: &[u8]) -> Result<Vec<String>, ApiError> {
    let malformed = |e: &dyn std::fmt::Display| {
        let message = format!("The `json` payload provided is malformed. `{e}`.");
        ApiError::new("malformed_payload", message)
    };
    let text = std::str::from_utf8(text).map_err(|e| malformed(&e))?;
    let items: Vec<&RawValue> = serde_json::from_str(text).map_err(|e| malformed(&e))?;
    let id = |item: &&RawValue| {
        canonical_delete_id(item.get()).map(Cow::into_owned).ok_or_else(|| {
            let shown = shorten(item.get());
            let message = format!("a document id is a string or an integer, not `{shown}`");
            ApiError::new("bad_request", message)
        })
    };
    items.iter().map(id).collect()
}

async fn answer(
    core: Arc<Core>,
    call: Call,
    body: ReadBody,
    read: impl FnOnce(&[u8]) -> Result<What, ApiError> + Send + 'static,
) -> Outcome {
    let name = call.uid()?;
    call.only_parameters(&["customMetadata"])?;
    let metadata = call.parameter("customMetadata").map(str::to_owned);
    let session = session_of(&call);
    let raw = body.raw.clone();
    let shared = core.clone();
    let index = name.clone();
    once(&core, &call, &index, &raw, async move {
        let text = body.text.clone();
        let what = off_reactor(text.len(), move || read(&text)).await??;
        let written = write(&shared, &name, what, metadata, session).await;
        drop(body);
        written
    })
    .await
}

async fn write(
    core: &Arc<Core>,
    name: &str,
    what: What,
    metadata: Option<String>,
    session: Option<String>,
) -> Result<Written, Failure> {
    let uid = core.aliases.resolve(name).await?.writable(name)?;
    let placement = core.placement();
    let shards = placement.topology.shards();
    let provided = match &what {
        What::Ids(ids) => ids.len() as u64,
        What::Matching(_) | What::Everything => 0,
    };
    count_many(&core.counters.documents_received, provided);
    let filter = match &what {
        What::Matching(filter) => Some(filter.to_string()),
        What::Ids(_) | What::Everything => None,
    };
    let mut plan = Plan {
        uid: uid.clone(),
        kind: TaskKind::DocumentDeletion,
        details: Details { provided: Some(provided), filter, ..Details::default() },
        metadata,
        session,
        touched: ShardSet::all(shards),
    };
    if provided == 0 && matches!(what, What::Ids(_)) {
        return already_done(core, plan).await;
    }
    // Deletes never create an index, but a backend that missed a creation gets it.
    let info = core.catalogue.find(&placement, &uid).await?;
    let prepare = info.map(|info| info.primary_key);
    let suffix = plan.metadata.as_deref().map_or_else(String::new, |metadata| {
        format!("?customMetadata={}", encode_segment(metadata))
    });
    let base = format!("{}/documents", index_path(&uid));
    let tracked = core.clone();
    let index = uid.clone();
    let mut named = None;
    let (jobs, note): (_, Box<dyn FnOnce() + Send>) = match what {
        What::Ids(ids) => {
            let ids = Arc::new(by_shard(ids, shards));
            named = Some(ids.clone());
            plan.touched = touched(&ids, shards);
            let path = format!("{base}/delete-batch{suffix}");
            let jobs = jobs(placement.targets(&plan.touched), prepare, |target| {
                vec![Outbound {
                    method: Method::POST,
                    path: path.clone(),
                    body: id_list(&ids, target),
                }]
            });
            let note = move || tracked.note_written(&index, pairs(&ids));
            (jobs, Box::new(note))
        }
        What::Matching(filter) => {
            let request = Outbound::json(
                Method::POST,
                format!("{base}/delete{suffix}"),
                &json!({"filter": filter}),
            );
            let jobs = jobs(placement.everyone(), prepare, |_| vec![request.clone()]);
            (jobs, Box::new(move || tracked.note_swept(&index)))
        }
        What::Everything => {
            let request = Outbound::delete(format!("{base}{suffix}"));
            let jobs = jobs(placement.everyone(), prepare, |_| vec![request.clone()]);
            (jobs, Box::new(move || tracked.note_swept(&index)))
        }
    };
    let sent = execute(core, &placement, plan, jobs, note).await;
    let (written, sent) = sent.map_err(Unsettled::into_failure)?;
    let ids = named.as_deref().map(|ids| pairs(ids));
    core.note_missed_documents(&placement, &uid, &sent, ids).await;
    Ok(written)
}

fn pairs(ids: &[(String, ShardId)]) -> impl Iterator<Item = (Cow<'_, str>, ShardId)> {
    ids.iter().map(|(id, shard)| (Cow::Borrowed(id.as_str()), *shard))
}

fn by_shard(ids: Vec<String>, shards: u32) -> Vec<(String, ShardId)> {
    let with_shard = |id: String| {
        let shard = shard_for_key(&id, shards);
        (id, shard)
    };
    ids.into_iter().map(with_shard).collect()
}

fn touched(ids: &[(String, ShardId)], shards: u32) -> ShardSet {
    let mut touched = ShardSet::none(shards);
    ids.iter().for_each(|(_, shard)| touched.insert(*shard));
    touched
}

fn id_list(ids: &[(String, ShardId)], target: &Target) -> OutBody {
    let mine = ids.iter().filter(|(_, shard)| target.shards.contains(*shard));
    let mine: Vec<String> = mine.map(|(id, _)| quoted(id)).collect();
    OutBody::Text(Bytes::from(format!("[{}]", mine.join(","))))
}
