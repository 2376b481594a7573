//! The task registry: one entry per write, kept in the ring so that any gateway answers for it.
//!
//! Task numbers need no shared counter: `number = sequence * max_gateways + slot`. Each slot
//! reserves its sequence in blocks in the ring, so a restarted gateway goes on above everything
//! it gave out; when the ring lost that too, above what its backends' tasks are marked with.
//! Numbers stay below 2^31, since typed clients read them as 32 bits.

mod list;
mod numbers;
mod poll;
mod view;
mod wanted;

use super::error::ApiError;
use super::kv::{Class, KvError, State};
use super::others::Others;
use super::placement::Placement;
use super::settings::Settings;
use super::time::WallClock;
use crate::document::shard::{ShardId, ShardSet};
use crate::document::task::Status;
use numbers::Numbers;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

pub(super) use view::{accepted_body, text_id};

/// Unfinished tasks whose progress is remembered here; older ones are asked for again.
const LIVE_MAX: usize = 50_000;

/// What a write was.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) enum TaskKind {
    DocumentAdditionOrUpdate,
    DocumentDeletion,
    IndexCreation,
    IndexUpdate,
    IndexDeletion,
    SettingsUpdate,
}

impl TaskKind {
    /// Whether such a write changes single documents.
    pub(super) fn changes_documents(self) -> bool {
        match self {
            TaskKind::DocumentAdditionOrUpdate | TaskKind::DocumentDeletion => true,
            TaskKind::IndexCreation
            | TaskKind::IndexUpdate
            | TaskKind::IndexDeletion
            | TaskKind::SettingsUpdate => false,
        }
    }

    pub(super) fn as_str(self) -> &'static str {
        match self {
            TaskKind::DocumentAdditionOrUpdate => "documentAdditionOrUpdate",
            TaskKind::DocumentDeletion => "documentDeletion",
            TaskKind::IndexCreation => "indexCreation",
            TaskKind::IndexUpdate => "indexUpdate",
            TaskKind::IndexDeletion => "indexDeletion",
            TaskKind::SettingsUpdate => "settingsUpdate",
        }
    }
}

/// The logical size of a write, not multiplied by copies.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Details {
    /// Documents of an addition.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(super) received: Option<u64>,
    /// Ids of a deletion.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(super) provided: Option<u64>,
    /// Filter of a deletion, as JSON text.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(super) filter: Option<String>,
    /// What an index or settings write carried.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(super) other: Option<Value>,
}

/// The shards a write touched.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) enum Touched {
    All,
    Some(Vec<u32>),
}

impl Touched {
    pub(super) fn of(shards: &ShardSet, count: u32) -> Touched {
        let listed: Vec<u32> = shards.iter().map(|shard| shard.0).collect();
        if listed.len() == count as usize { Touched::All } else { Touched::Some(listed) }
    }

    pub(super) fn set(&self, count: u32) -> ShardSet {
        match self {
            Touched::All => ShardSet::all(count),
            Touched::Some(listed) => {
                let mut set = ShardSet::none(count);
                listed.iter().filter(|n| **n < count).for_each(|n| set.insert(ShardId(*n)));
                set
            }
        }
    }
}

/// One task at one backend.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct PartTask {
    pub(super) uid: u64,
    pub(super) status: Option<Status>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(super) error: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(super) deleted: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(super) started_us: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(super) finished_us: Option<u64>,
}

/// What one backend does for a write. Several tasks, where a write needed several requests.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Part {
    pub(super) backend: String,
    pub(super) tasks: Vec<PartTask>,
    /// Since when the backend cannot be asked.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(super) silent_since_us: Option<u64>,
    /// The backend does not know the task any more.
    #[serde(default)]
    pub(super) lost: bool,
}

impl Part {
    pub(super) fn new(backend: &str, tasks: &[u64]) -> Part {
        let tasks = tasks.iter().map(|uid| PartTask {
            uid: *uid,
            status: None,
            error: None,
            deleted: None,
            started_us: None,
            finished_us: None,
        });
        Part {
            backend: backend.to_owned(),
            tasks: tasks.collect(),
            silent_since_us: None,
            lost: false,
        }
    }

    pub(super) fn status(&self) -> Option<Status> {
        if self.tasks.iter().all(|task| task.status.is_none()) {
            return None;
        }
        Some(crate::document::task::aggregate(self.tasks.iter().map(|task| task.status)))
    }
}

/// A write as the registry keeps it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct TaskEntry {
    pub(super) uid: u64,
    pub(super) kind: TaskKind,
    pub(super) index_uid: String,
    pub(super) status: Status,
    pub(super) enqueued_us: u64,
    pub(super) started_us: Option<u64>,
    pub(super) finished_us: Option<u64>,
    pub(super) details: Details,
    pub(super) error: Option<Value>,
    pub(super) deleted: Option<u64>,
    pub(super) degraded_groups: Vec<u16>,
    pub(super) touched: Touched,
    pub(super) parts: Vec<Part>,
    pub(super) metadata: Option<String>,
}

/// The registry of one gateway.
pub(super) struct Tasks {
    numbers: Numbers,
    state: State,
    clock: WallClock,
    lost_after_us: u64,
    /// Tasks that are not finished, with what is known of their progress.
    live: Mutex<BTreeMap<u64, TaskEntry>>,
}

impl Tasks {
    pub(super) fn new(
        settings: &Settings,
        others: Arc<Others>,
        state: State,
        clock: WallClock,
    ) -> Tasks {
        Tasks {
            numbers: Numbers::new(settings, others, state.clone(), clock.clone()),
            state,
            clock,
            lost_after_us: settings.task_lost_after.as_micros() as u64,
            live: Mutex::default(),
        }
    }

    /// A number no other task has. Taken before anything is sent, so that a write whose task
    /// could never be found is not begun.
    pub(super) async fn allocate(&self, placement: &Placement) -> Result<u64, ApiError> {
        self.numbers.next(placement).await
    }

    /// Keeps the slot's claim fresh; called from time to time.
    pub(super) async fn keep_slot(&self, placement: &Placement) {
        self.numbers.keep(placement).await;
    }

    /// Whether a gateway of this slot was seen lately.
    pub(super) async fn slot_is_alive(&self, slot: u32) -> Result<bool, KvError> {
        self.numbers.is_alive(slot).await
    }

    /// The slot of this gateway.
    pub(super) async fn slot(&self, placement: &Placement) -> Result<u32, ApiError> {
        self.numbers.slot(placement).await
    }

    /// The slot task numbers are given of, else why none are.
    pub(super) fn standing(&self) -> Result<u32, String> {
        self.numbers.standing()
    }

    /// Registers a task. It can be asked for here at once, and elsewhere when it is stored.
    ///
    /// # Errors
    /// It could not be stored in the ring; this gateway still answers for it.
    pub(super) async fn register(&self, entry: TaskEntry) -> Result<(), ApiError> {
        self.remember(&entry);
        Ok(self.state.store(Class::Task, &entry.uid.to_string(), &entry).await?)
    }

    fn live(&self) -> std::sync::MutexGuard<'_, BTreeMap<u64, TaskEntry>> {
        self.live.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn remember(&self, entry: &TaskEntry) {
        if entry.status.is_final() {
            return;
        }
        let mut live = self.live();
        live.insert(entry.uid, entry.clone());
        while live.len() > LIVE_MAX {
            live.pop_first();
        }
    }

    /// The entry as last known, without asking backends.
    pub(super) async fn load(&self, uid: u64) -> Result<Option<TaskEntry>, ApiError> {
        if let Some(entry) = self.live().get(&uid) {
            return Ok(Some(entry.clone()));
        }
        Ok(self.state.load(Class::Task, &uid.to_string()).await?)
    }

    /// Keeps what was learnt. A finished task is stored, so that it needs no backend any more.
    async fn keep(&self, entry: &TaskEntry) {
        if !entry.status.is_final() {
            self.remember(entry);
            return;
        }
        let stored = self.state.store(Class::Task, &entry.uid.to_string(), entry).await;
        match stored {
            Ok(()) => {
                self.live().remove(&entry.uid);
            }
            Err(error) => {
                let task = entry.uid;
                tracing::warn!(plane = "doc", task, %error, "a finished task was not stored");
            }
        }
    }
}

/// Reads a task id: digits, or `mtask-` and digits.
pub(super) fn parse_uid(text: &str) -> Result<u64, ApiError> {
    let digits = text.strip_prefix("mtask-").unwrap_or(text);
    let plain = !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit());
    let invalid = || {
        let message =
            format!("Task uid `{text}` is invalid. It should only contain numeric characters.");
        ApiError::new("invalid_task_uids", message)
    };
    if !plain {
        return Err(invalid());
    }
    digits.parse().map_err(|_| invalid())
}

/// `task_not_found` as Meilisearch words it.
pub(super) fn not_found(uid: u64) -> ApiError {
    ApiError::new("task_not_found", format!("Task `{uid}` not found."))
}
