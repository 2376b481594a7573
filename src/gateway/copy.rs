//! Making one backend's documents of a shard equal to another's: the one routine behind
//! migrations and repairs.
//!
//! A pass waits until both backends have run every task accepted before it, compares all
//! documents of the shard, and sends what differs through the receiver's lane, leaving out
//! documents that were written since the pass began. Passes are repeated until one finds nothing
//! to do. So an old page can never overwrite a newer write nor bring back what was deleted
//! meanwhile, and writes of other gateways are caught by the next pass.

use super::client::{Backend, OutBody, Outbound, index_path};
use super::core::Core;
use super::counters::count_many;
use super::placement::Placement;
use super::tracking::Tracker;
use crate::document::object;
use crate::document::primary_key::canonical_delete_id;
use crate::document::reserved::SHARD_FIELD;
use crate::document::shard::ShardId;
use crate::document::task::Status;
use bytes::Bytes;
use hyper::Method;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use xxhash_rust::xxh3::Xxh3;

/// Documents of one page.
const PAGE_DOCUMENTS: usize = 1_000;
/// Passes over one shard before the copy gives up for now.
const PASSES_MAX: usize = 20;
/// Pause between looks at a backend's task.
const TASK_PAUSE: Duration = Duration::from_millis(25);
/// Longest wait for one backend task.
const TASK_WAIT_MAX: Duration = Duration::from_secs(600);

/// One shard of one index, from one backend to another.
#[derive(Clone)]
pub(super) struct Copy {
    pub(super) index: String,
    pub(super) primary_key: String,
    pub(super) shard: ShardId,
    pub(super) from: Arc<Backend>,
    pub(super) to: Arc<Backend>,
    /// These documents alone; all of the shard without it.
    pub(super) ids: Option<Vec<String>>,
}

#[derive(Deserialize)]
struct Page<'a> {
    #[serde(borrow)]
    results: Vec<&'a RawValue>,
    total: usize,
}

/// What one pass did.
struct Pass {
    /// Documents that differed when they were read.
    differing: usize,
    /// Those of them that were sent.
    sent: u64,
    pages: usize,
}

/// Copies the shard.
///
/// # Errors
/// In words, why the receiver may still differ. The copy can be tried again.
pub(super) async fn copy_shard(
    core: &Arc<Core>,
    placement: &Placement,
    copy: &Copy,
) -> Result<(), String> {
    let tracked = core.trackers.track(&copy.index, copy.shard);
    for _ in 0..PASSES_MAX {
        tracked.tracker.restart();
        settle_lanes(core, copy).await;
        wait_for_tasks(&copy.from, &copy.index).await?;
        wait_for_tasks(&copy.to, &copy.index).await?;
        let pass = pass(core, placement, copy, &tracked.tracker).await?;
        count_many(&core.counters.documents_copied, pass.sent);
        let swept = tracked.tracker.was_swept();
        // With deletions in between, a page can slide past documents; one page cannot.
        let whole = pass.pages <= 1 || tracked.tracker.restart();
        if pass.differing == 0 && whole && !swept {
            return Ok(());
        }
    }
    Err(format!("documents of shard {} change faster than they are copied", copy.shard.0))
}

/// Waits until every write that was sent before has been answered.
async fn settle_lanes(core: &Arc<Core>, copy: &Copy) {
    let ids = [copy.from.id.as_str(), copy.to.id.as_str()];
    let (places, ()) = core.lanes.take(&copy.index, ids.into_iter(), || ());
    for mut place in places.into_iter().flatten() {
        place.turn().await;
    }
}

/// Waits until a backend has run all tasks it accepted for the index until now.
async fn wait_for_tasks(backend: &Backend, index: &str) -> Result<(), String> {
    let path = format!("/tasks?limit=1&indexUids={index}");
    let reply = backend.call(Outbound::get(path)).await.map_err(|e| e.to_string())?;
    let newest = reply.json().and_then(|body| body.get("results")?.get(0)?.get("uid")?.as_u64());
    match newest {
        None => Ok(()),
        Some(uid) => wait_for_task(backend, uid).await.map(drop),
    }
}

async fn wait_for_task(backend: &Backend, uid: u64) -> Result<Status, String> {
    let wait = async {
        loop {
            let reply = backend.call(Outbound::get(format!("/tasks/{uid}"))).await;
            let task = reply.map_err(|e| e.to_string())?.json().unwrap_or_default();
            let status = task.get("status").and_then(Value::as_str).and_then(Status::parse);
            match status {
                Some(status) if status.is_final() => return Ok(status),
                Some(_) => tokio::time::sleep(TASK_PAUSE).await,
                None => return Err(format!("{} does not know its task {uid}", backend.id)),
            }
        }
    };
    let done = tokio::time::timeout(TASK_WAIT_MAX, wait).await;
    done.unwrap_or_else(|_| Err(format!("task {uid} of {} takes too long", backend.id)))
}

async fn pass(
    core: &Arc<Core>,
    placement: &Placement,
    copy: &Copy,
    tracker: &Tracker,
) -> Result<Pass, String> {
    let mut there: HashMap<String, u64> = HashMap::new();
    let there_pages = each_page(&copy.to, copy, true, |page| {
        for document in page {
            if let Some(id) = id_of(document, &copy.primary_key) {
                there.insert(id, digest(document));
            }
        }
        Vec::new()
    });
    let there_pages = there_pages.await?.1;
    let (changed, pages) = each_page(&copy.from, copy, false, |page| {
        let mut changed = Vec::new();
        for document in page {
            let Some(id) = id_of(document, &copy.primary_key) else { continue };
            if there.remove(&id) != Some(digest(document)) && !tracker.was_written(&id) {
                changed.push((id, without_empty_vectors(document)));
            }
        }
        changed
    })
    .await?;
    let surplus: Vec<String> = there.into_keys().filter(|id| !tracker.was_written(id)).collect();
    let differing = changed.len() + surplus.len();
    let sent = send(core, placement, copy, tracker, changed, surplus).await?;
    Ok(Pass { differing, sent, pages: pages.max(there_pages) })
}

type Changed = Vec<(String, String)>;

/// Reads all documents of the shard, page after page, and collects what `visit` keeps.
async fn each_page(
    backend: &Backend,
    copy: &Copy,
    may_lack_index: bool,
    mut visit: impl FnMut(&[&str]) -> Changed,
) -> Result<(Changed, usize), String> {
    let path = format!("{}/documents/fetch", index_path(&copy.index));
    let (mut kept, mut offset, mut pages) = (Vec::new(), 0, 0);
    loop {
        let mut body = json!({"filter": format!("{SHARD_FIELD} = {}", copy.shard.0),
            "offset": offset, "limit": PAGE_DOCUMENTS, "retrieveVectors": true});
        if let Some(ids) = &copy.ids {
            body["ids"] = json!(ids);
        }
        let request = Outbound::json(Method::POST, path.clone(), &body);
        let reply = backend.call(request).await.map_err(|e| e.to_string())?;
        if may_lack_index && reply.error_code().as_deref() == Some("index_not_found") {
            return Ok((kept, pages));
        }
        if !reply.is_success() {
            return Err(format!("{} answered {}: {}", backend.id, reply.status, reply.text()));
        }
        let page: Page<'_> = serde_json::from_str(reply.text()).map_err(|e| e.to_string())?;
        let documents: Vec<&str> = page.results.into_iter().map(RawValue::get).collect();
        pages += 1;
        kept.extend(visit(&documents));
        offset += PAGE_DOCUMENTS;
        if documents.is_empty() || offset >= page.total {
            return Ok((kept, pages));
        }
    }
}

fn id_of(document: &str, primary_key: &str) -> Option<String> {
    canonical_delete_id(object::field(document, primary_key)?).map(|id| id.into_owned())
}

/// A Meilisearch adds an empty `_vectors` when it is asked for vectors.
fn without_empty_vectors(document: &str) -> String {
    let empty = object::field(document, "_vectors") == Some("{}");
    object::without(document, |name| empty && name == "_vectors").into_owned()
}

/// Equal for documents that are equal as JSON, whatever the order of their fields.
fn digest(document: &str) -> u64 {
    let mut hash = Xxh3::new();
    match serde_json::from_str::<Value>(&without_empty_vectors(document)) {
        Ok(value) => hash_value(&value, &mut hash),
        Err(_) => hash.update(document.as_bytes()),
    }
    hash.digest()
}

fn hash_value(value: &Value, hash: &mut Xxh3) {
    match value {
        Value::Object(map) => {
            let mut names: Vec<&String> = map.keys().collect();
            names.sort_unstable();
            hash.update(b"{");
            for name in names {
                hash.update(&(name.len() as u64).to_le_bytes());
                hash.update(name.as_bytes());
                hash_value(&map[name], hash);
            }
            hash.update(b"}");
        }
        Value::Array(items) => {
            hash.update(b"[");
            items.iter().for_each(|item| hash_value(item, hash));
            hash.update(b"]");
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {
            let text = value.to_string();
            hash.update(&(text.len() as u64).to_le_bytes());
            hash.update(text.as_bytes());
        }
    }
}

/// Sends what differs in the receiver's lane; the number of documents. What was written while it
/// waited there is left out, and all of it when documents were deleted that nobody named.
async fn send(
    core: &Arc<Core>,
    placement: &Placement,
    copy: &Copy,
    tracker: &Tracker,
    changed: Changed,
    surplus: Vec<String>,
) -> Result<u64, String> {
    if changed.is_empty() && surplus.is_empty() {
        return Ok(0);
    }
    let (mut places, ()) =
        core.lanes.take(&copy.index, std::iter::once(copy.to.id.as_str()), || ());
    let Some(mut place) = places.pop().flatten() else {
        return Err(format!("the queue of {} is full", copy.to.id));
    };
    place.turn().await;
    if tracker.was_swept() {
        return Ok(0);
    }
    let key = Some(copy.primary_key.as_str());
    core.catalogue.prepare(placement, &copy.to, &copy.index, key).await?;
    let base = format!("{}/documents", index_path(&copy.index));
    let mut tasks = Vec::new();
    let fresh = |(id, document): (String, String)| (!tracker.was_written(&id)).then_some(document);
    let documents: Vec<String> = changed.into_iter().filter_map(fresh).collect();
    for chunk in documents.chunks(PAGE_DOCUMENTS) {
        let path = format!("{base}?primaryKey={}", super::call::encode_segment(&copy.primary_key));
        let body = OutBody::Text(Bytes::from(format!("[{}]", chunk.join(","))));
        tasks.push(Outbound { method: Method::POST, path, body });
    }
    let surplus: Vec<String> = surplus.into_iter().filter(|id| !tracker.was_written(id)).collect();
    let sent = (documents.len() + surplus.len()) as u64;
    for chunk in surplus.chunks(PAGE_DOCUMENTS) {
        let path = format!("{base}/delete-batch");
        tasks.push(Outbound::json(Method::POST, path, &json!(chunk)));
    }
    for request in tasks {
        let task = copy.to.write(request).await.map_err(|e| e.to_string())?;
        if wait_for_task(&copy.to, task).await? != Status::Succeeded {
            return Err(format!("task {task} of {} did not succeed", copy.to.id));
        }
    }
    Ok(sent)
}
