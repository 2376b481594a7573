//! Document writes: from a request to its 202.

mod add;
mod delete;

pub(super) use add::add;
pub(super) use delete::{delete_batch, delete_matching, delete_one, delete_with_body};

use super::call::{Call, Outcome};
use super::client::Outbound;
use super::core::Core;
use super::counters::count;
use super::error::{ApiError, Failure, json_response};
use super::fanout::{Done, Job, Sent, Unsettled, send_all, settle};
use super::handoff::elsewhere;
use super::idempotency::{Seen, Written, key_of, request_hash};
use super::placement::{Placement, Target};
use super::sessions::Pin;
use super::tasks::{Details, Part, TaskEntry, TaskKind, Touched, accepted_body, text_id};
use crate::document::quorum::Verdict;
use crate::document::shard::ShardSet;
use crate::document::task::Status;
use axum::response::Response;
use bytes::Bytes;
use hyper::StatusCode;
use hyper::header::HeaderValue;
use std::future::Future;
use std::sync::Arc;

/// The header that says how much of a write or read is missing.
pub(super) const DEGRADED_HEADER: &str = "x-miroir-degraded";

/// Answers a write of the index `name` once: hands it to the gateway that orders that index's
/// writes, else looks its idempotency key up and lets it run to its end even when the client goes
/// away, so that replicas never differ because somebody hung up.
pub(super) async fn once(
    core: &Arc<Core>,
    call: &Call,
    name: &str,
    raw: &Bytes,
    work: impl Future<Output = Result<Written, Failure>> + Send + 'static,
) -> Outcome {
    if let Some(response) = elsewhere(core, call, name, raw).await? {
        return Ok(response);
    }
    let Some(key) = key_of(call)? else {
        return Ok(respond(&run(core, work).await?));
    };
    let (method, target, raw_body) = (call.method.to_string(), call.target.clone(), raw.clone());
    let hashed =
        super::body::off_reactor(raw.len(), move || request_hash(&method, &target, &raw_body));
    match core.idempotency.begin(&key, hashed.await?).await? {
        Seen::Before(written) => {
            count(&core.counters.idempotent_replays);
            Ok(respond(&written))
        }
        Seen::New(turn) => {
            let shared = core.clone();
            let work = async move {
                let written = work.await?;
                shared.idempotency.finish(turn, &written).await;
                Ok(written)
            };
            Ok(respond(&run(core, work).await?))
        }
    }
}

async fn run(
    core: &Core,
    work: impl Future<Output = Result<Written, Failure>> + Send + 'static,
) -> Result<Written, Failure> {
    let running = tokio::spawn(work);
    match tokio::time::timeout(core.settings.request_timeout, running).await {
        Ok(Ok(result)) => result,
        Ok(Err(error)) => {
            Err(ApiError::new("internal", format!("the write broke off: {error}")).into())
        }
        Err(_) => {
            let message = "the write took too long; it goes on and its outcome is unknown. \
                           Repeating the same request is safe";
            Err(ApiError::new("miroir_timeout", message).into())
        }
    }
}

fn respond(written: &Written) -> Response {
    let mut response = json_response(StatusCode::ACCEPTED, written.body.clone());
    let degraded = written.degraded.as_deref();
    if let Some(value) = degraded.and_then(|value| HeaderValue::from_str(value).ok()) {
        response.headers_mut().insert(DEGRADED_HEADER, value);
    }
    response
}

/// A write that is ready to be sent.
pub(super) struct Plan {
    pub(super) uid: String,
    pub(super) kind: TaskKind,
    pub(super) details: Details,
    pub(super) metadata: Option<String>,
    pub(super) session: Option<String>,
    /// The shards the quorum is judged for.
    pub(super) touched: ShardSet,
}

/// One job per target, with the requests it gets.
pub(super) fn jobs(
    targets: Vec<Target>,
    prepare: Option<Option<String>>,
    requests: impl Fn(&Target) -> Vec<Outbound>,
) -> Vec<Job> {
    let job = |target: Target| {
        let requests = requests(&target);
        Job { target, requests, prepare: prepare.clone(), mark: None }
    };
    targets.into_iter().map(job).collect()
}

/// Sends a planned write, judges it, registers its task and pins its session.
///
/// # Errors
/// No quorum, or the backends' refusal. Nothing is registered then; owners of documents that
/// differ because of it are made equal later.
pub(super) async fn execute(
    core: &Arc<Core>,
    placement: &Arc<Placement>,
    plan: Plan,
    mut jobs: Vec<Job>,
    with: impl FnOnce(),
) -> Result<(Written, Sent), Unsettled> {
    let number = core.tasks.allocate(placement).await.map_err(Unsettled::unsent)?;
    if plan.kind.changes_documents() && plan.metadata.is_none() {
        jobs.iter_mut().for_each(|job| job.mark = Some(text_id(number)));
    }
    let enqueued_us = core.clock.now_us();
    let done = send_all(core, placement, &plan.uid, jobs, with).await;
    if plan.kind.changes_documents() && !core.others.is_sure(&plan.uid) {
        count(&core.counters.writes_unsure);
        core.note_unsure(placement, &plan.uid, &plan.touched).await;
    }
    let sent = match settle(core, placement, &plan.uid, &plan.touched, done) {
        Ok(sent) => sent,
        Err(unsettled) => {
            if plan.kind.changes_documents() {
                core.note_torn(placement, &plan.uid, &plan.touched, &unsettled.done).await;
            }
            return Err(unsettled);
        }
    };
    let written = register(core, placement, number, enqueued_us, plan, &sent).await;
    Ok((written, sent))
}

async fn register(
    core: &Core,
    placement: &Placement,
    number: u64,
    enqueued_us: u64,
    plan: Plan,
    sent: &Sent,
) -> Written {
    let touched = Touched::of(&plan.touched, placement.topology.shards());
    let session = plan.session.clone();
    let mut entry = entry(core, number, plan, touched.clone(), parts(&sent.done), &sent.verdict);
    entry.enqueued_us = enqueued_us;
    if let Some(session) = session {
        let acked = entry.parts.iter().map(|part| part.backend.clone()).collect();
        let group = sent.verdict.pin.map(|group| group.0);
        core.pin(&session, Pin { task: number, group, acked, touched, used_us: 0 }).await;
    }
    keep(core, entry, sent.verdict.degraded_header()).await
}

/// Registers a write that has nothing to do: its task is done.
pub(super) async fn already_done(core: &Core, plan: Plan) -> Result<Written, Failure> {
    let number = core.tasks.allocate(&core.placement()).await?;
    let touched = Touched::Some(Vec::new());
    let mut entry = entry(core, number, plan, touched, Vec::new(), &Verdict::default());
    entry.status = Status::Succeeded;
    entry.started_us = Some(entry.enqueued_us);
    entry.finished_us = Some(entry.enqueued_us);
    entry.deleted = Some(0);
    Ok(keep(core, entry, None).await)
}

fn entry(
    core: &Core,
    uid: u64,
    plan: Plan,
    touched: Touched,
    parts: Vec<Part>,
    verdict: &Verdict,
) -> TaskEntry {
    TaskEntry {
        uid,
        kind: plan.kind,
        index_uid: plan.uid,
        status: Status::Enqueued,
        enqueued_us: core.clock.now_us(),
        started_us: None,
        finished_us: None,
        details: plan.details,
        error: None,
        deleted: None,
        degraded_groups: verdict.degraded_groups.iter().map(|group| group.0).collect(),
        touched,
        parts,
        metadata: plan.metadata,
    }
}

async fn keep(core: &Core, entry: TaskEntry, degraded: Option<String>) -> Written {
    let body = accepted_body(&entry).to_string();
    if let Err(error) = core.tasks.register(entry).await {
        // The documents are stored; only other gateways cannot answer for the task.
        count(&core.counters.state_failures);
        tracing::warn!(plane = "doc", %error, "a task was not stored in the ring");
    }
    Written { body, degraded }
}

/// The registry's view of who took a write. Joining backends never count.
fn parts(done: &[Done]) -> Vec<Part> {
    let members = done.iter().filter(|done| done.acked() && done.target.member.is_some());
    members.map(|done| Part::new(&done.target.backend.id, &done.tasks)).collect()
}
