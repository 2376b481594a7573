//! What became of a task, asked from its backends.

use super::{Part, TaskEntry, Tasks};
use crate::document::task::{Status, aggregate, survives_losses};
use crate::gateway::client::{Backend, CallError, Outbound};
use crate::gateway::error::ApiError;
use crate::gateway::placement::Placement;
use crate::gateway::time::parse_timestamp;
use serde_json::Value;
use std::sync::Arc;

/// What a backend says of one of its tasks.
enum Said {
    Known(Box<Value>),
    Unknown,
    Silent,
}

impl Tasks {
    /// The entry with its backends' latest news.
    pub(in crate::gateway) async fn refresh(
        &self,
        placement: &Placement,
        mut entry: TaskEntry,
    ) -> TaskEntry {
        if entry.status.is_final() {
            return entry;
        }
        let mut asked = tokio::task::JoinSet::new();
        for (i, part) in entry.parts.iter().enumerate() {
            for (j, task) in part.tasks.iter().enumerate() {
                if part.lost || task.status.is_some_and(Status::is_final) {
                    continue;
                }
                let backend = placement.find(&part.backend).cloned();
                let uid = task.uid;
                asked.spawn(async move { (i, j, ask(backend, uid).await) });
            }
        }
        let now = self.clock.now_us();
        while let Some(result) = asked.join_next().await {
            let Ok((i, j, said)) = result else { continue };
            note(&mut entry, i, j, said, now, self.lost_after_us);
        }
        conclude(&mut entry, placement, now);
        self.keep(&entry).await;
        entry
    }
}

async fn ask(backend: Option<Arc<Backend>>, uid: u64) -> Said {
    let Some(backend) = backend else { return Said::Unknown };
    match backend.call(Outbound::get(format!("/tasks/{uid}"))).await {
        // Another 404 is not its own word.
        Ok(reply) if reply.error_code().as_deref() == Some("task_not_found") => Said::Unknown,
        Ok(reply) if reply.is_success() => {
            let task = reply.json().filter(|task| task.get("status").is_some());
            task.map_or(Said::Silent, |task| Said::Known(Box::new(task)))
        }
        Ok(_) | Err(CallError::NotSent(_) | CallError::NoAnswer(_)) => Said::Silent,
    }
}

fn note(entry: &mut TaskEntry, i: usize, j: usize, said: Said, now: u64, lost_after_us: u64) {
    let index_uid = entry.index_uid.clone();
    let part = &mut entry.parts[i];
    match said {
        Said::Silent => {
            let since = *part.silent_since_us.get_or_insert(now);
            part.lost = now.saturating_sub(since) >= lost_after_us;
        }
        Said::Unknown => part.lost = true,
        // A server that was set up anew counts its tasks from the start.
        Said::Known(task) if task.get("indexUid").is_some_and(|uid| *uid != *index_uid) => {
            part.lost = true;
        }
        Said::Known(task) => {
            part.silent_since_us = None;
            let time = |name: &str| parse_timestamp(task.get(name)?.as_str()?);
            let known = &mut part.tasks[j];
            known.status = task.get("status").and_then(|s| Status::parse(s.as_str()?));
            known.error = task.get("error").filter(|error| !error.is_null()).cloned();
            known.deleted =
                task.get("details").and_then(|details| details.get("deletedDocuments")?.as_u64());
            known.started_us = time("startedAt");
            known.finished_us = time("finishedAt");
        }
    }
}

/// Sets the entry's own state from its parts.
fn conclude(entry: &mut TaskEntry, placement: &Placement, now: u64) {
    let known = || entry.parts.iter().filter(|part| !part.lost);
    let any_lost = entry.parts.iter().any(|part| part.lost);
    let mut status = aggregate(known().map(Part::status));
    if any_lost && status == Status::Succeeded {
        let topology = &placement.topology;
        let touched = entry.touched.set(topology.shards());
        let succeeded = |b| {
            let id = topology.id(b);
            known().any(|part| part.backend == id && part.status() == Some(Status::Succeeded))
        };
        if !survives_losses(topology, &touched, succeeded) {
            status = Status::Failed;
            let message = "backends lost the task, and what is left is no quorum of replicas";
            entry.error = Some(ApiError::new("miroir_no_quorum", message).body());
        }
    }
    entry.status = status;
    let tasks = || entry.parts.iter().flat_map(|part| part.tasks.iter());
    entry.started_us = tasks().filter_map(|task| task.started_us).min();
    if !status.is_final() {
        return;
    }
    entry.finished_us = tasks().filter_map(|task| task.finished_us).max().or(Some(now));
    entry.started_us = entry.started_us.or(entry.finished_us);
    entry.deleted = deleted_documents(entry, placement);
    if status == Status::Failed && entry.error.is_none() {
        entry.error = first_error(entry);
    }
}

/// Documents deleted, counted once: from one group that did all of its part. `None` when there is
/// no such group, and the number is not known.
fn deleted_documents(entry: &TaskEntry, placement: &Placement) -> Option<u64> {
    let topology = &placement.topology;
    let touched = entry.touched.set(topology.shards());
    let of_group = |group| {
        let mut sum = 0;
        for member in topology.members(group) {
            if topology.shards_of(*member).intersection(&touched).is_empty() {
                continue;
            }
            let id = topology.id(*member);
            let part = entry.parts.iter().find(|part| part.backend == id)?;
            if part.lost || part.status() != Some(Status::Succeeded) {
                return None;
            }
            sum += part.tasks.iter().filter_map(|task| task.deleted).sum::<u64>();
        }
        Some(sum / topology.replication_factor() as u64)
    };
    topology.group_numbers().find_map(of_group)
}

/// The first failed backend's error, with the backend named.
fn first_error(entry: &TaskEntry) -> Option<Value> {
    let failed = entry.parts.iter().find_map(|part| {
        let task = part.tasks.iter().find(|task| task.status == Some(Status::Failed))?;
        Some((part, task))
    });
    let (part, task) = failed?;
    let mut error = task.error.clone()?;
    let message = error.get("message").and_then(Value::as_str).unwrap_or_default();
    error["message"] = Value::String(format!("{}: {message}", part.backend));
    Some(error)
}
