//! The record of a migration, in the ring and here.

use crate::gateway::core::Core;
use crate::gateway::error::ApiError;
use crate::gateway::kv::{Class, State};
use crate::gateway::settings::BackendSettings;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::sync::{Mutex, PoisonError};

/// The key of the migration: written when it begins, goes to another phase or is given up.
const CURRENT: &str = "current";
/// The key of what its coordinator tells again and again. It is another one, so that telling does
/// not undo what somebody decided about the migration at the same moment.
const PROGRESS: &str = "progress";
/// Age at which a coordinator that was not seen is replaced.
const COORDINATOR_AGE_US: u64 = 30_000_000;

/// How far a migration is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) enum Phase {
    /// Writes go to old and new owners; shards are copied.
    Copying,
    /// The new owners are in use; unused copies are removed.
    Switched,
    /// Everything is in place.
    Done,
    /// Given up, or forgotten after it was done.
    Ended,
}

impl Phase {
    pub(super) fn is_running(self) -> bool {
        match self {
            Phase::Copying | Phase::Switched => true,
            Phase::Done | Phase::Ended => false,
        }
    }

    /// The new groups are the ones in use.
    pub(super) fn is_effective(self) -> bool {
        match self {
            Phase::Switched | Phase::Done => true,
            Phase::Copying | Phase::Ended => false,
        }
    }
}

pub(in crate::gateway) type Groups = Vec<Vec<BackendSettings>>;

/// A migration.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Record {
    pub(super) phase: Phase,
    /// The groups before.
    pub(super) base: Groups,
    /// The groups after.
    pub(super) groups: Groups,
    /// When the present phase began.
    pub(super) phase_us: u64,
    #[serde(flatten)]
    pub(super) progress: Progress,
}

/// What the coordinator of a migration tells while it works.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Progress {
    /// When the migration began; tells it from others.
    started_us: u64,
    coordinator: String,
    /// When the coordinator was last there.
    seen_us: u64,
    pub(super) shards_to_copy: u64,
    pub(super) shards_copied: u64,
    pub(super) last_error: Option<String>,
}

impl Progress {
    /// Marks the migration as worked on by this gateway.
    pub(super) fn seen(&mut self, core: &Core) {
        self.coordinator = core.others.id().to_owned();
        self.seen_us = core.clock.now_us();
    }
}

impl Record {
    /// A migration this gateway coordinates from now on.
    pub(super) fn new(core: &Core, base: Groups, groups: Groups) -> Record {
        let now = core.clock.now_us();
        Record {
            phase: Phase::Copying,
            base,
            groups,
            phase_us: now,
            progress: Progress {
                started_us: now,
                coordinator: core.others.id().to_owned(),
                seen_us: now,
                shards_to_copy: 0,
                shards_copied: 0,
                last_error: None,
            },
        }
    }

    /// Whether this gateway works on it: it began, or the one that did is gone.
    pub(super) fn is_ours(&self, core: &Core) -> bool {
        let age = core.clock.now_us().saturating_sub(self.progress.seen_us);
        self.progress.coordinator == core.others.id() || age > COORDINATOR_AGE_US
    }

    /// Whether this is the same migration in the same phase.
    pub(super) fn is_as(&self, other: &Record) -> bool {
        (self.progress.started_us, self.phase) == (other.progress.started_us, other.phase)
    }

    /// Goes to the next phase.
    pub(super) fn enter(&mut self, core: &Core, phase: Phase) {
        self.phase = phase;
        self.phase_us = core.clock.now_us();
        self.progress.last_error = None;
    }
}

/// What this gateway knows of the migration.
#[derive(Debug)]
pub(in crate::gateway) struct Migration {
    known: Mutex<Option<Record>>,
    /// The groups in use and the ones being filled, as the placement was last built.
    applied: Mutex<(Groups, Option<Groups>)>,
}

impl Migration {
    /// Nothing known; the configured groups are in use.
    pub(in crate::gateway) fn new(configured: &Groups) -> Migration {
        Migration { known: Mutex::default(), applied: Mutex::new((configured.clone(), None)) }
    }

    /// The record as last read.
    pub(super) fn known(&self) -> Option<Record> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Reads the record from the ring, with the newest its coordinator told.
    pub(super) async fn refresh(&self, state: &State) -> Result<Option<Record>, ApiError> {
        let mut record: Option<Record> = state.load(Class::Migration, CURRENT).await?;
        if let Some(Record { progress, .. }) = record.as_mut().filter(|r| r.phase.is_running()) {
            let told: Option<Progress> = state.load(Class::Migration, PROGRESS).await?;
            let told = told.filter(|told| told.started_us == progress.started_us);
            if let Some(told) = told.filter(|told| told.seen_us > progress.seen_us) {
                *progress = told;
            }
        }
        *self.known.lock().unwrap_or_else(PoisonError::into_inner) = record.clone();
        Ok(record)
    }

    /// Stores the record.
    pub(super) async fn store(&self, state: &State, record: Record) -> Result<(), ApiError> {
        state.store(Class::Migration, CURRENT, &record).await?;
        *self.known.lock().unwrap_or_else(PoisonError::into_inner) = Some(record);
        Ok(())
    }

    /// Stores what the coordinator tells.
    pub(super) async fn tell(&self, state: &State, progress: &Progress) -> Result<(), ApiError> {
        Ok(state.store(Class::Migration, PROGRESS, progress).await?)
    }

    /// Whether the placement must be built anew. Says yes once for each change.
    pub(super) fn is_news(&self, wanted: &(Groups, Option<Groups>)) -> bool {
        let mut applied = self.applied.lock().unwrap_or_else(PoisonError::into_inner);
        let news = *applied != *wanted;
        *applied = wanted.clone();
        news
    }
}

/// The groups of the configuration.
pub(super) fn configured(core: &Core) -> Groups {
    core.settings.groups.clone()
}

/// The migration for operators.
pub(in crate::gateway) fn view(core: &Core) -> Value {
    let Some(record) = core.migration.known() else { return json!({"phase": "none"}) };
    let ids = |groups: &Groups| {
        let ids = groups.iter().map(|group| group.iter().map(|b| b.id.clone()).collect::<Vec<_>>());
        json!(ids.collect::<Vec<_>>())
    };
    let told = &record.progress;
    json!({"phase": record.phase, "from": ids(&record.base), "to": ids(&record.groups),
        "coordinator": told.coordinator, "shardsToCopy": told.shards_to_copy,
        "shardsCopied": told.shards_copied, "lastError": told.last_error,
        "startedAt": crate::gateway::time::timestamp(told.started_us)})
}
