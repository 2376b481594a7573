//! What a listing of tasks asks for, in the parameters and words of Meilisearch.

use super::{TaskEntry, parse_uid};
use crate::document::task::Status;
use crate::gateway::call::{Call, is_valid_uid, uid_message};
use crate::gateway::error::ApiError;
use crate::gateway::time::{DAY_US, parse_date, parse_timestamp};

/// Entries of a page when the request does not say, and at most.
const LIMIT_DEFAULT: u64 = 20;
const LIMIT_MAX: u64 = 1_000;

const PARAMETERS: [&str; 15] = [
    "limit",
    "from",
    "reverse",
    "batchUids",
    "uids",
    "canceledBy",
    "types",
    "statuses",
    "indexUids",
    "afterEnqueuedAt",
    "beforeEnqueuedAt",
    "afterStartedAt",
    "beforeStartedAt",
    "afterFinishedAt",
    "beforeFinishedAt",
];

/// Every type of task a Meilisearch knows; the gateway gives out six of them.
const TYPES: [&str; 18] = [
    "documentAdditionOrUpdate",
    "documentEdition",
    "documentDeletion",
    "settingsUpdate",
    "indexCreation",
    "indexDeletion",
    "indexUpdate",
    "indexSwap",
    "taskCancelation",
    "taskDeletion",
    "dumpCreation",
    "snapshotCreation",
    "export",
    "upgradeDatabase",
    "indexCompaction",
    "networkTopologyChange",
    "dsrUpdate",
    "dsrClear",
];
const STATUSES: [&str; 5] = ["enqueued", "processing", "succeeded", "failed", "canceled"];

/// What a listing asks for.
#[derive(Debug, Default)]
pub(super) struct Wanted {
    statuses: Option<Vec<Status>>,
    types: Option<Vec<&'static str>>,
    indexes: Option<Vec<String>>,
    /// These tasks alone, in the order of the request.
    pub(super) uids: Option<Vec<u64>>,
    /// Tasks of a batch, or canceled by another task: the gateway has none.
    none: bool,
    enqueued: Between,
    started: Between,
    finished: Between,
    pub(super) limit: usize,
    pub(super) from: Option<u64>,
    /// The oldest first.
    pub(super) reverse: bool,
}

/// A span of time without its ends, microseconds since 1970.
#[derive(Debug, Default)]
struct Between {
    after: Option<u64>,
    before: Option<u64>,
}

impl Between {
    fn admits(&self, at_us: Option<u64>) -> bool {
        let later = self.after.is_none_or(|after| at_us.is_some_and(|at| at > after));
        later && self.before.is_none_or(|before| at_us.is_some_and(|at| at < before))
    }
}

impl Wanted {
    /// Reads the parameters of `GET /tasks`.
    ///
    /// # Errors
    /// A parameter is unknown, or has no legal value; the code names it.
    pub(super) fn read(call: &Call) -> Result<Wanted, ApiError> {
        call.only_parameters(&PARAMETERS)?;
        let uids = |name, code| list(call, name, code, parse_number);
        let batches = uids("batchUids", "invalid_batch_uids")?;
        let cancelers = uids("canceledBy", "invalid_task_canceled_by")?;
        let limit = call.number("limit", "invalid_task_limit")?.unwrap_or(LIMIT_DEFAULT);
        Ok(Wanted {
            statuses: list(call, "statuses", "invalid_task_statuses", parse_status)?,
            types: list(call, "types", "invalid_task_types", parse_type)?,
            indexes: list(call, "indexUids", "invalid_index_uid", parse_index)?,
            uids: list(call, "uids", "invalid_task_uids", |text| {
                parse_uid(text).map_err(|_| no_number(text))
            })?,
            none: batches.is_some() || cancelers.is_some(),
            enqueued: Between {
                after: date(call, "afterEnqueuedAt", "invalid_task_after_enqueued_at", DAY_US)?,
                before: date(call, "beforeEnqueuedAt", "invalid_task_before_enqueued_at", 0)?,
            },
            started: Between {
                after: date(call, "afterStartedAt", "invalid_task_after_started_at", DAY_US)?,
                before: date(call, "beforeStartedAt", "invalid_task_before_started_at", 0)?,
            },
            finished: Between {
                after: date(call, "afterFinishedAt", "invalid_task_after_finished_at", DAY_US)?,
                before: date(call, "beforeFinishedAt", "invalid_task_before_finished_at", 0)?,
            },
            limit: limit.min(LIMIT_MAX) as usize,
            from: call.number("from", "invalid_task_from")?,
            reverse: flag(call, "reverse", "invalid_task_reverse")?,
        })
    }

    /// Whether a task is to be listed.
    pub(super) fn admits(&self, entry: &TaskEntry) -> bool {
        let finished = entry.finished_us.filter(|_| entry.status.is_final());
        !self.none
            && self.statuses.as_ref().is_none_or(|list| list.contains(&entry.status))
            && self.types.as_ref().is_none_or(|list| list.contains(&entry.kind.as_str()))
            && self.indexes.as_ref().is_none_or(|list| list.contains(&entry.index_uid))
            && self.enqueued.admits(Some(entry.enqueued_us))
            && self.started.admits(entry.started_us)
            && self.finished.admits(finished)
    }
}

/// A comma list; `*` and absence stand for everything.
fn list<T>(
    call: &Call,
    name: &str,
    code: &'static str,
    read: impl Fn(&str) -> Result<T, String>,
) -> Result<Option<Vec<T>>, ApiError> {
    let Some(text) = call.parameter(name).filter(|text| *text != "*") else { return Ok(None) };
    let items: Vec<&str> = text.split(',').map(str::trim).collect();
    let one = items.len() == 1;
    let read = |(i, item): (usize, &&str)| {
        let place = if one { name.to_owned() } else { format!("{name}[{i}]") };
        read(item).map_err(|reason| invalid(&place, code, &reason))
    };
    items.iter().enumerate().map(read).collect::<Result<Vec<T>, _>>().map(Some)
}

fn invalid(place: &str, code: &'static str, reason: &str) -> ApiError {
    ApiError::new(code, format!("Invalid value in parameter `{place}`: {reason}"))
}

fn no_number(text: &str) -> String {
    format!("could not parse `{text}` as a positive integer")
}

fn parse_number(text: &str) -> Result<u64, String> {
    text.parse().map_err(|_| no_number(text))
}

fn parse_status(text: &str) -> Result<Status, String> {
    Status::parse(&text.to_ascii_lowercase()).ok_or_else(|| {
        format!(
            "`{text}` is not a valid task status. Available statuses are {}.",
            available(&STATUSES)
        )
    })
}

fn parse_type(text: &str) -> Result<&'static str, String> {
    let known = TYPES.into_iter().find(|known| known.eq_ignore_ascii_case(text));
    known.ok_or_else(|| {
        format!("`{text}` is not a valid task type. Available types are {}.", available(&TYPES))
    })
}

fn parse_index(text: &str) -> Result<String, String> {
    if is_valid_uid(text) { Ok(text.to_owned()) } else { Err(uid_message(text)) }
}

fn available(names: &[&str]) -> String {
    names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")
}

/// A time; a day alone stands for its beginning, `day_us` later.
fn date(call: &Call, name: &str, code: &'static str, day_us: u64) -> Result<Option<u64>, ApiError> {
    let Some(text) = call.parameter(name).filter(|text| *text != "*") else { return Ok(None) };
    let time = parse_timestamp(text).or_else(|| Some(parse_date(text)? + day_us));
    let wrong = || {
        let form = "It should follow the YYYY-MM-DD or RFC 3339 date-time format.";
        invalid(name, code, &format!("`{text}` is an invalid date-time. {form}"))
    };
    time.map(Some).ok_or_else(wrong)
}

fn flag(call: &Call, name: &str, code: &'static str) -> Result<bool, ApiError> {
    match call.parameter(name) {
        None | Some("false") => Ok(false),
        Some("true") => Ok(true),
        Some(other) => {
            let reason = format!(
                "could not parse `{other}` as a boolean, expected either `true` or `false`"
            );
            Err(invalid(name, code, &reason))
        }
    }
}
