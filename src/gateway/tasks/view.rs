//! Tasks as clients see them.

use super::{TaskEntry, TaskKind};
use crate::document::task::Status;
use crate::gateway::time::{duration, timestamp};
use serde_json::{Map, Value, json};

/// The body of a 202.
pub(in crate::gateway) fn accepted_body(entry: &TaskEntry) -> Value {
    let mut body = json!({"taskUid": entry.uid, "indexUid": entry.index_uid,
        "status": "enqueued", "type": entry.kind.as_str(),
        "enqueuedAt": timestamp(entry.enqueued_us), "miroirTaskId": text_id(entry.uid)});
    if let Some(metadata) = &entry.metadata {
        body["customMetadata"] = json!(metadata);
    }
    body
}

/// A task number as text.
pub(in crate::gateway) fn text_id(uid: u64) -> String {
    format!("mtask-{uid:05}")
}

impl TaskEntry {
    /// The body of `GET /tasks/{uid}`.
    pub(in crate::gateway) fn view(&self) -> Value {
        let spent = self.started_us.zip(self.finished_us);
        let mut view = json!({"uid": self.uid, "batchUid": null, "indexUid": self.index_uid,
            "status": self.status.as_str(), "type": self.kind.as_str(), "canceledBy": null,
            "details": self.details_view(), "error": self.error,
            "duration": spent.map(|(start, end)| duration(end.saturating_sub(start))),
            "enqueuedAt": timestamp(self.enqueued_us),
            "startedAt": self.started_us.map(timestamp),
            "finishedAt": self.finished_us.map(timestamp),
            "miroir": self.parts_view()});
        if let Some(metadata) = &self.metadata {
            view["customMetadata"] = json!(metadata);
        }
        view
    }

    fn details_view(&self) -> Value {
        // A number that is not known is null.
        let done = |whole: Option<u64>| match self.status {
            Status::Succeeded => json!(whole),
            Status::Failed | Status::Canceled => json!(0),
            Status::Enqueued | Status::Processing => Value::Null,
        };
        let details = &self.details;
        match self.kind {
            TaskKind::DocumentAdditionOrUpdate => json!({
                "receivedDocuments": details.received,
                "indexedDocuments": done(details.received)}),
            TaskKind::DocumentDeletion => json!({
                "providedIds": details.provided.unwrap_or(0),
                "deletedDocuments": done(self.deleted),
                "originalFilter": details.filter}),
            TaskKind::IndexDeletion => json!({"deletedDocuments": done(self.deleted)}),
            TaskKind::IndexCreation | TaskKind::IndexUpdate | TaskKind::SettingsUpdate => {
                details.other.clone().unwrap_or(Value::Null)
            }
        }
    }

    fn parts_view(&self) -> Value {
        let mut backends = Map::new();
        for part in &self.parts {
            let uids: Vec<u64> = part.tasks.iter().map(|task| task.uid).collect();
            let status = if part.lost { Some("lost") } else { part.status().map(Status::as_str) };
            backends.insert(part.backend.clone(), json!({"taskUids": uids, "status": status}));
        }
        json!({"taskId": text_id(self.uid), "degradedGroups": self.degraded_groups,
            "backends": backends})
    }
}
