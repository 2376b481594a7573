//! Indexes and the queue of tasks that change them, one after another.

use super::Matcher;
use super::filter::Filter;
use super::index::{Document, Index};
use super::settings;
use crate::document::task::Status;
use crate::gateway::error::{ApiError, index_not_found};
use crate::gateway::time::{WallClock, duration, timestamp};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

/// Where the queue stands still, for tests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hold {
    /// No task starts.
    Enqueued,
    /// The next task starts and does not end.
    Processing,
}

/// What a task does to its index.
#[derive(Clone, Debug)]
pub(super) enum Action {
    Add { documents: Vec<Document>, primary_key: Option<String>, merge: bool },
    DeleteIds(Vec<String>),
    DeleteMatching(Filter),
    Clear,
    Create(Option<String>),
    Update(Option<String>),
    Drop,
    Settings(Map<String, Value>),
}

#[derive(Clone, Debug)]
pub(super) struct Task {
    uid: u64,
    index_uid: String,
    pub(super) status: Status,
    pub(super) kind: &'static str,
    details: Value,
    error: Value,
    metadata: Option<String>,
    enqueued_us: u64,
    started_us: Option<u64>,
    finished_us: Option<u64>,
    action: Option<Action>,
}

impl Task {
    pub(super) fn index_uid(&self) -> &str {
        &self.index_uid
    }

    /// The answer to the request that made the task.
    pub(super) fn summary(&self) -> Value {
        let mut summary = json!({"taskUid": self.uid, "indexUid": self.index_uid,
            "status": "enqueued", "type": self.kind, "enqueuedAt": timestamp(self.enqueued_us)});
        if let Some(metadata) = &self.metadata {
            summary["customMetadata"] = json!(metadata);
        }
        summary
    }

    /// The task as `GET /tasks` shows it.
    pub(super) fn view(&self) -> Value {
        let finished = self.started_us.zip(self.finished_us);
        let mut view = json!({"uid": self.uid, "batchUid": self.started_us.map(|_| self.uid),
            "indexUid": self.index_uid, "status": self.status.as_str(), "type": self.kind,
            "canceledBy": null, "details": self.details, "error": self.error,
            "duration": finished.map(|(start, end)| duration(end.saturating_sub(start))),
            "enqueuedAt": timestamp(self.enqueued_us),
            "startedAt": self.started_us.map(timestamp),
            "finishedAt": self.finished_us.map(timestamp)});
        if let Some(metadata) = &self.metadata {
            view["customMetadata"] = json!(metadata);
        }
        view
    }
}

/// The whole state of one built-in server.
#[derive(Debug)]
pub struct Engine {
    pub(super) clock: WallClock,
    pub(super) matcher: Option<Matcher>,
    pub(super) indexes: BTreeMap<String, Index>,
    tasks: Vec<Task>,
    /// Position of the first task that has not ended.
    next: usize,
    hold: Option<Hold>,
    fail_next: Option<String>,
    forgotten_below: u64,
}

impl Engine {
    /// An empty server. Without a matcher, searches with words are refused.
    pub fn new(clock: WallClock, matcher: Option<Matcher>) -> Engine {
        Engine {
            clock,
            matcher,
            indexes: BTreeMap::new(),
            tasks: Vec::new(),
            next: 0,
            hold: None,
            fail_next: None,
            forgotten_below: 0,
        }
    }

    /// Stops the queue at a point, or lets it run again.
    pub fn set_hold(&mut self, hold: Option<Hold>) {
        self.hold = hold;
    }

    /// Makes the next task that runs fail with this message.
    pub fn fail_next_task(&mut self, message: &str) {
        self.fail_next = Some(message.to_owned());
    }

    /// Forgets every task known so far, as a server that was set up anew.
    pub fn forget_tasks(&mut self) {
        self.forgotten_below = self.tasks.len() as u64;
    }

    /// Number of documents of an index, 0 when there is none.
    pub fn documents(&self, uid: &str) -> usize {
        self.indexes.get(uid).map_or(0, Index::len)
    }

    /// A stored document by canonical id.
    pub fn document(&self, uid: &str, id: &str) -> Option<Value> {
        self.indexes.get(uid)?.get(id).cloned().map(Value::Object)
    }

    /// Queues a task and returns the answer to its request.
    pub(super) fn enqueue(
        &mut self,
        index_uid: &str,
        action: Action,
        details: Value,
        metadata: Option<String>,
    ) -> Value {
        let task = Task {
            uid: self.tasks.len() as u64,
            index_uid: index_uid.to_owned(),
            status: Status::Enqueued,
            kind: kind(&action),
            details,
            error: Value::Null,
            metadata,
            enqueued_us: self.clock.now_us(),
            started_us: None,
            finished_us: None,
            action: Some(action),
        };
        let summary = task.summary();
        self.tasks.push(task);
        summary
    }

    pub(super) fn task(&self, uid: u64) -> Option<&Task> {
        if uid < self.forgotten_below {
            return None;
        }
        self.tasks.get(usize::try_from(uid).ok()?)
    }

    /// Tasks, newest first.
    pub(super) fn tasks(&self) -> impl Iterator<Item = (u64, &Task)> {
        let known = self.tasks.iter().enumerate().skip(self.forgotten_below as usize);
        known.map(|(i, task)| (i as u64, task)).rev()
    }

    /// Runs the next task, if there is one and the queue does not stand still.
    pub fn run_next(&mut self) -> bool {
        let now = self.clock.now_us();
        let Some(task) = self.tasks.get_mut(self.next) else { return false };
        match self.hold {
            Some(Hold::Enqueued) => return false,
            Some(Hold::Processing) => {
                task.status = Status::Processing;
                task.started_us.get_or_insert(now);
                return false;
            }
            None => {}
        }
        task.started_us.get_or_insert(now);
        let index_uid = task.index_uid.clone();
        let action = task.action.take();
        let result = match self.fail_next.take() {
            Some(message) => Err(ApiError::new("internal", message)),
            None => action.map_or(Ok(Value::Null), |action| self.run(&index_uid, action, now)),
        };
        let finished = self.clock.now_us();
        let task = &mut self.tasks[self.next];
        task.finished_us = Some(finished);
        match result {
            Ok(details) => {
                task.status = Status::Succeeded;
                merge_details(&mut task.details, details);
            }
            Err(error) => {
                task.status = Status::Failed;
                task.error = error.body();
                let failed = match task.kind {
                    "documentAdditionOrUpdate" => json!({"indexedDocuments": 0}),
                    "documentDeletion" => json!({"deletedDocuments": 0}),
                    _ => Value::Null,
                };
                merge_details(&mut task.details, failed);
            }
        }
        self.next += 1;
        true
    }

    fn run(&mut self, uid: &str, action: Action, now: u64) -> Result<Value, ApiError> {
        let details = match action {
            Action::Add { documents, primary_key, merge } => {
                let created = !self.indexes.contains_key(uid);
                let index =
                    self.indexes.entry(uid.to_owned()).or_insert_with(|| Index::new(None, now));
                let added = index.add(documents, primary_key, merge);
                if added.is_err() && created {
                    self.indexes.remove(uid);
                }
                json!({ "indexedDocuments": added? })
            }
            Action::DeleteIds(ids) => json!({"deletedDocuments": self.known(uid)?.remove(&ids)}),
            Action::DeleteMatching(filter) => {
                let index = self.known(uid)?;
                check_filter(uid, index, &filter, "invalid_document_filter", false)?;
                json!({"deletedDocuments": index.remove_matching(&filter)})
            }
            Action::Clear => json!({"deletedDocuments": self.known(uid)?.clear()}),
            Action::Create(_) if self.indexes.contains_key(uid) => {
                let message = format!("Index `{uid}` already exists.");
                return Err(ApiError::new("index_already_exists", message));
            }
            Action::Create(primary_key) => {
                self.indexes.insert(uid.to_owned(), Index::new(primary_key, now));
                Value::Null
            }
            Action::Update(primary_key) => {
                let index = self.known(uid)?;
                if primary_key.is_some() && index.len() > 0 && index.primary_key != primary_key {
                    let own = index.primary_key.clone().unwrap_or_default();
                    let message = format!("Index already has a primary key: `{own}`.");
                    return Err(ApiError::new("index_primary_key_already_exists", message));
                }
                index.primary_key = primary_key.or(index.primary_key.take());
                Value::Null
            }
            Action::Drop => {
                let removed = self.known(uid)?.len();
                self.indexes.remove(uid);
                json!({"deletedDocuments": removed})
            }
            Action::Settings(change) => {
                let index =
                    self.indexes.entry(uid.to_owned()).or_insert_with(|| Index::new(None, now));
                settings::apply(&mut index.settings, &change);
                Value::Null
            }
        };
        if let Some(index) = self.indexes.get_mut(uid) {
            index.updated_us = now;
        }
        Ok(details)
    }

    fn known(&mut self, uid: &str) -> Result<&mut Index, ApiError> {
        self.indexes.get_mut(uid).ok_or_else(|| index_not_found(uid))
    }
}

fn kind(action: &Action) -> &'static str {
    match action {
        Action::Add { .. } => "documentAdditionOrUpdate",
        Action::DeleteIds(_) | Action::DeleteMatching(_) | Action::Clear => "documentDeletion",
        Action::Create(_) => "indexCreation",
        Action::Update(_) => "indexUpdate",
        Action::Drop => "indexDeletion",
        Action::Settings(_) => "settingsUpdate",
    }
}

fn merge_details(into: &mut Value, more: Value) {
    if let (Value::Object(into), Value::Object(more)) = (into, more) {
        into.extend(more);
    }
}

/// Refuses a filter over an attribute that is not filterable, in Meilisearch's words.
pub(super) fn check_filter(
    uid: &str,
    index: &Index,
    filter: &Filter,
    code: &'static str,
    rendered: bool,
) -> Result<(), ApiError> {
    let filterable = index.filterable();
    filter.check(&filterable, rendered).map_err(|bad| {
        let known: Vec<String> = filterable.iter().map(|name| format!("`{name}`")).collect();
        let known = known.join(", ");
        let message = format!(
            "Index `{uid}`: Attribute `{}` is not filterable. Available filterable attribute \
             patterns are: {known}.\n{}",
            bad.attribute, bad.place
        );
        ApiError::new(code, message)
    })
}
