//! What the gateway knows of indexes: primary keys, and which backends are ready for documents.
//!
//! A backend is *prepared* for an index when the index exists there, has its primary key and has
//! the shard field filterable. One that missed a creation, a change of settings or a deletion is
//! set right in its own lane before its next write, so a dead group stops nothing.

use super::client::{Backend, Outbound, Reply, index_path};
use super::error::ApiError;
use super::kv::{Class, State};
use super::placement::Placement;
use super::time::WallClock;
use crate::document::reserved::Reserved;
use hyper::Method;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Age at which what is known of an index is asked for again: another gateway may have changed it.
const ENTRY_AGE_US: u64 = 5_000_000;
/// Indexes remembered; beyond it the memory starts anew.
const ENTRIES_MAX: usize = 10_000;
/// Pause between looks at a backend's queue.
const QUEUE_PAUSE: Duration = Duration::from_millis(20);
/// Looks at a backend's queue before it is taken as it is.
const QUEUE_LOOKS_MAX: usize = 100;

/// An index as clients see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct IndexInfo {
    pub(super) primary_key: Option<String>,
}

/// What a backend must catch up with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Missed {
    /// A creation or a change of settings: copy the settings of another backend.
    Settings,
    /// A deletion: what is there now belongs to a former index.
    Deletion,
}

type MissedBy = BTreeMap<String, Missed>;

#[derive(Debug, Default)]
struct Entry {
    info: Option<IndexInfo>,
    known_at_us: u64,
    prepared: HashSet<String>,
    missed: MissedBy,
}

/// The catalogue of one gateway.
pub(super) struct Catalogue {
    entries: Mutex<HashMap<String, Entry>>,
    creations: Mutex<HashMap<String, Arc<tokio::sync::Mutex<()>>>>,
    state: State,
    clock: WallClock,
    reserved: Reserved,
}

impl Catalogue {
    pub(super) fn new(state: State, clock: WallClock, reserved: Reserved) -> Catalogue {
        Catalogue { entries: Mutex::default(), creations: Mutex::default(), state, clock, reserved }
    }

    fn with<T>(&self, work: impl FnOnce(&mut HashMap<String, Entry>) -> T) -> T {
        work(&mut self.entries.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// The index, `None` when no backend has it.
    ///
    /// # Errors
    /// No backend could be asked.
    pub(super) async fn find(
        &self,
        placement: &Placement,
        uid: &str,
    ) -> Result<Option<IndexInfo>, ApiError> {
        let now = self.clock.now_us();
        let known = self.with(|entries| {
            let entry = entries.get(uid)?;
            let fresh = now.saturating_sub(entry.known_at_us) < ENTRY_AGE_US;
            entry.info.clone().filter(|_| fresh)
        });
        if known.is_some() {
            return Ok(known);
        }
        let missed = self.load_missed(uid).await;
        let info = match ask_backends(placement, uid, &missed).await {
            Ok(info) => info,
            // What was known is better than nothing.
            Err(error) => {
                let known = self.with(|entries| entries.get(uid)?.info.clone());
                return known.map(Some).ok_or(error);
            }
        };
        self.with(|entries| {
            if entries.len() >= ENTRIES_MAX {
                entries.clear();
            }
            let entry = entries.entry(uid.to_owned()).or_default();
            if info.is_none() {
                entry.prepared.clear();
            }
            entry.info = info.clone();
            entry.known_at_us = now;
            entry.missed = missed;
        });
        Ok(info)
    }

    /// The same for a read.
    ///
    /// # Errors
    /// No backend could be asked.
    pub(super) async fn find_to_read(
        &self,
        placement: &Placement,
        uid: &str,
    ) -> Result<Option<IndexInfo>, ApiError> {
        self.find(placement, uid).await.map_err(|_| super::indexes::unavailable())
    }

    /// Forgets an index, after a change of it.
    pub(super) fn forget(&self, uid: &str) {
        self.with(|entries| entries.remove(uid));
    }

    /// Records a created index and who is ready for it.
    pub(super) fn created(&self, uid: &str, primary_key: Option<String>, ready: Vec<String>) {
        let now = self.clock.now_us();
        self.with(|entries| {
            let entry = entries.entry(uid.to_owned()).or_default();
            entry.info = Some(IndexInfo { primary_key });
            entry.known_at_us = now;
            entry.prepared.extend(ready);
        });
    }

    /// Records the primary key an index got with its first documents.
    pub(super) fn settle_primary_key(&self, uid: &str, key: &str) {
        self.with(|entries| {
            if let Some(info) = entries.get_mut(uid).and_then(|entry| entry.info.as_mut()) {
                info.primary_key.get_or_insert_with(|| key.to_owned());
            }
        });
    }

    /// A backend failed: what it has must be looked at before its next write.
    pub(super) fn distrust(&self, backend: &str) {
        self.with(|entries| {
            for entry in entries.values_mut() {
                entry.prepared.remove(backend);
            }
        });
    }

    /// Keeps in the ring that backends missed a change.
    pub(super) async fn note_missed(&self, uid: &str, backends: &[String], what: Missed) {
        if backends.is_empty() {
            return;
        }
        let mut all = self.load_missed(uid).await;
        for backend in backends {
            let deleted = all.get(backend) == Some(&Missed::Deletion);
            all.insert(backend.clone(), if deleted { Missed::Deletion } else { what });
        }
        self.store_missed(uid, all).await;
    }

    /// Keeps in the ring who missed the deletion of an index. What was missed of it before is gone
    /// with it.
    pub(super) async fn note_deleted(&self, uid: &str, backends: &[String]) {
        let before = self.load_missed(uid).await;
        let missed = backends.iter().map(|backend| (backend.clone(), Missed::Deletion));
        let missed: MissedBy = missed.collect();
        if missed != before {
            self.store_missed(uid, missed).await;
        }
    }

    async fn caught_up(&self, uid: &str, backend: &str) {
        let mut all = self.load_missed(uid).await;
        if all.remove(backend).is_some() {
            self.store_missed(uid, all).await;
        }
    }

    /// Backends that missed a change of the index and have not caught up.
    pub(super) async fn behind(&self, uid: &str) -> BTreeSet<String> {
        self.load_missed(uid).await.into_keys().collect()
    }

    async fn load_missed(&self, uid: &str) -> MissedBy {
        let stored = self.state.load::<MissedBy>(Class::Missed, uid).await;
        stored.ok().flatten().unwrap_or_else(|| {
            self.with(|entries| entries.get(uid).map(|e| e.missed.clone()).unwrap_or_default())
        })
    }

    async fn store_missed(&self, uid: &str, missed: MissedBy) {
        self.with(|entries| {
            let entry = entries.entry(uid.to_owned()).or_default();
            for backend in missed.keys() {
                entry.prepared.remove(backend);
            }
            entry.missed = missed.clone();
        });
        if let Err(error) = self.state.store(Class::Missed, uid, &missed).await {
            tracing::warn!(plane = "doc", index = uid, %error, "a missed change was not recorded");
        }
    }

    /// The lock under which one index is created, so that two first writes create it once.
    pub(super) fn creation_lock(&self, uid: &str) -> Arc<tokio::sync::Mutex<()>> {
        let mut locks = self.creations.lock().unwrap_or_else(PoisonError::into_inner);
        locks.retain(|_, lock| Arc::strong_count(lock) > 1);
        locks.entry(uid.to_owned()).or_default().clone()
    }

    /// Makes a backend ready for documents of an existing index. Runs in the backend's lane.
    ///
    /// # Errors
    /// The backend could not be made ready; the write must not go there.
    pub(super) async fn prepare(
        &self,
        placement: &Placement,
        backend: &Backend,
        uid: &str,
        primary_key: Option<&str>,
    ) -> Result<(), String> {
        let (ready, missed) = self.with(|entries| {
            let entry = entries.entry(uid.to_owned()).or_default();
            (entry.prepared.contains(&backend.id), entry.missed.get(&backend.id).copied())
        });
        if ready && missed.is_none() {
            return Ok(());
        }
        wait_for_queue(backend, uid).await?;
        if missed == Some(Missed::Deletion) {
            write(backend, Outbound::delete(index_path(uid))).await?;
        }
        let there = ask(backend, index_path(uid)).await?;
        let exists = there.is_success() && missed != Some(Missed::Deletion);
        if !exists {
            let body = json!({"uid": uid, "primaryKey": primary_key});
            let create = Outbound::json(Method::POST, "/indexes", &body);
            write(backend, create).await?;
        }
        if !exists || missed.is_some() {
            self.copy_settings(placement, backend, uid).await?;
        } else {
            self.ensure_filterable(backend, uid).await?;
        }
        if missed.is_some() {
            self.caught_up(uid, &backend.id).await;
        }
        self.with(|entries| {
            entries.entry(uid.to_owned()).or_default().prepared.insert(backend.id.clone());
        });
        Ok(())
    }

    /// Gives a backend the settings another one has that missed no change of them, or at least
    /// the filterable shard field.
    async fn copy_settings(
        &self,
        placement: &Placement,
        backend: &Backend,
        uid: &str,
    ) -> Result<(), String> {
        let path = format!("{}/settings", index_path(uid));
        let behind = self.behind(uid).await;
        for other in placement.by_health() {
            if other.id == backend.id || behind.contains(&other.id) {
                continue;
            }
            let Ok(reply) = other.call(Outbound::get(path.clone())).await else { continue };
            let Some(Value::Object(mut settings)) = reply.json().filter(|_| reply.is_success())
            else {
                continue;
            };
            let list = settings.entry("filterableAttributes").or_insert(json!([]));
            *list = self.with_reserved(list);
            let change = Outbound::json(Method::PATCH, path, &Value::Object(settings));
            return write(backend, change).await;
        }
        self.ensure_filterable(backend, uid).await
    }

    async fn ensure_filterable(&self, backend: &Backend, uid: &str) -> Result<(), String> {
        let path = filterable_path(uid);
        let now = ask(backend, path.clone()).await?;
        let list = now.json().filter(|_| now.is_success()).unwrap_or(json!([]));
        let wanted = self.with_reserved(&list);
        if wanted == list {
            return Ok(());
        }
        write(backend, Outbound::json(Method::PUT, path, &wanted)).await
    }

    /// A list of filterable attributes with the reserved ones in it.
    pub(super) fn with_reserved(&self, list: &Value) -> Value {
        let mut names = list.as_array().cloned().unwrap_or_default();
        for name in self.reserved.filterable() {
            if !names.iter().any(|known| known == name) {
                names.push(json!(name));
            }
        }
        Value::Array(names)
    }

    /// A list of filterable attributes without the reserved ones.
    pub(super) fn without_reserved(&self, list: &Value) -> Value {
        let Value::Array(names) = list else { return list.clone() };
        let kept = names
            .iter()
            .filter(|name| !name.as_str().is_some_and(|name| self.reserved.contains(name)));
        Value::Array(kept.cloned().collect())
    }
}

/// The path of the filterable attributes.
pub(super) fn filterable_path(uid: &str) -> String {
    format!("{}/settings/filterable-attributes", index_path(uid))
}

async fn ask(backend: &Backend, path: String) -> Result<Reply, String> {
    let reply = backend.call(Outbound::get(path)).await.map_err(|e| e.to_string())?;
    match reply.status {
        200..=299 | 404 => Ok(reply),
        status => Err(format!("status {status} while the index was looked at")),
    }
}

async fn write(backend: &Backend, request: Outbound) -> Result<(), String> {
    backend.write(request).await.map(drop).map_err(|e| format!("preparing failed: {e}"))
}

/// Waits until the backend has run what it accepted for this index: a creation that is still
/// queued does not show yet, and a change of settings that is would be overwritten.
async fn wait_for_queue(backend: &Backend, uid: &str) -> Result<(), String> {
    let path = format!("/tasks?limit=1&statuses=enqueued,processing&indexUids={uid}");
    for _ in 0..QUEUE_LOOKS_MAX {
        let reply = ask(backend, path.clone()).await?;
        let results = reply.json().and_then(|body| body.get("results")?.as_array().cloned());
        if results.is_none_or(|results| results.is_empty()) {
            return Ok(());
        }
        tokio::time::sleep(QUEUE_PAUSE).await;
    }
    Ok(())
}

/// Asks every member for the index. A backend that missed the index's deletion is not believed
/// that it is there, nor one that may have missed its creation that it is not.
async fn ask_backends(
    placement: &Placement,
    uid: &str,
    missed: &MissedBy,
) -> Result<Option<IndexInfo>, ApiError> {
    let mut asked = tokio::task::JoinSet::new();
    for backend in placement.by_health() {
        if missed.get(&backend.id) == Some(&Missed::Deletion) {
            continue;
        }
        let (backend, path) = (backend.clone(), index_path(uid));
        let is_behind = missed.contains_key(&backend.id);
        asked.spawn(async move { (is_behind, ask(&backend, path).await) });
    }
    let (mut found, mut answers) = (None, 0);
    while let Some(result) = asked.join_next().await {
        let Ok((is_behind, Ok(reply))) = result else { continue };
        let body = reply.json().filter(Value::is_object).unwrap_or_default();
        let there = reply.is_success() && body["uid"] == *uid;
        if !there && (is_behind || body["code"] != "index_not_found") {
            // It cannot know, or somebody else stands in for it.
            continue;
        }
        answers += 1;
        if !there {
            continue;
        }
        let primary_key = body.get("primaryKey").and_then(Value::as_str).map(str::to_owned);
        let settled = primary_key.is_some();
        found = Some(IndexInfo { primary_key });
        if settled {
            return Ok(found);
        }
    }
    if answers == 0 {
        let message = "no backend can be reached to look the index up; nothing was written";
        return Err(ApiError::new("miroir_no_quorum", message));
    }
    Ok(found)
}
