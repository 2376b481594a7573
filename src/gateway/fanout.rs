//! One write to many backends: in parallel, each in its lane, every outcome collected.

use super::client::{Outbound, WriteFailure};
use super::core::Core;
use super::error::{ApiError, Failure};
use super::placement::{Placement, Target};
use crate::document::quorum::{Verdict, judge};
use crate::document::shard::ShardSet;
use crate::document::topology::BackendIdx;
use std::collections::HashSet;
use std::sync::{Arc, PoisonError};

/// The requests one backend gets, in order.
#[derive(Clone, Debug)]
pub(super) struct Job {
    pub(super) target: Target,
    pub(super) requests: Vec<Outbound>,
    /// The index must be ready there first; its primary key.
    pub(super) prepare: Option<Option<String>>,
    /// What the backend's task is marked with, to trace unknown outcomes.
    pub(super) mark: Option<String>,
}

/// What one backend did with its job.
#[derive(Clone, Debug)]
pub(super) struct Done {
    pub(super) target: Target,
    /// Task numbers of accepted requests, in order.
    pub(super) tasks: Vec<u64>,
    /// `None` when all requests were accepted.
    pub(super) failure: Option<WriteFailure>,
}

impl Done {
    pub(super) fn acked(&self) -> bool {
        self.failure.is_none()
    }
}

/// The outcome of a write that met its quorum.
#[derive(Clone, Debug)]
pub(super) struct Sent {
    pub(super) done: Vec<Done>,
    pub(super) verdict: Verdict,
}

/// The outcome of a write that did not.
#[derive(Clone, Debug)]
pub(super) struct Unsettled {
    /// What the client is told.
    pub(super) failure: Failure,
    /// Some may have taken it all the same; nothing when it was not sent.
    pub(super) done: Vec<Done>,
}

impl Unsettled {
    /// The failure of a write that was not sent.
    pub(super) fn unsent(failure: impl Into<Failure>) -> Unsettled {
        Unsettled { failure: failure.into(), done: Vec::new() }
    }

    pub(super) fn into_failure(self) -> Failure {
        self.failure
    }
}

/// Sends every job in its lane and waits for all. `with` runs in the step that takes the lanes.
pub(super) async fn send_all(
    core: &Arc<Core>,
    placement: &Arc<Placement>,
    uid: &str,
    jobs: Vec<Job>,
    with: impl FnOnce(),
) -> Vec<Done> {
    let ids = jobs.iter().map(|job| job.target.backend.id.as_str());
    let (places, ()) = core.lanes.take(uid, ids, with);
    let mut running = Vec::with_capacity(jobs.len());
    for (job, place) in jobs.into_iter().zip(places) {
        let (core, placement, uid) = (core.clone(), placement.clone(), uid.to_owned());
        let target = job.target.clone();
        let work = tokio::spawn(async move {
            let Some(mut place) = place else {
                return (Vec::new(), Some(WriteFailure::Unsent("its queue is full".to_owned())));
            };
            place.turn().await;
            run_job(&core, &placement, &uid, job).await
        });
        running.push((target, work));
    }
    let mut done = Vec::with_capacity(running.len());
    for (target, work) in running {
        let (tasks, failure) =
            work.await.unwrap_or_else(|e| (Vec::new(), Some(WriteFailure::Failed(e.to_string()))));
        done.push(Done { target, tasks, failure });
    }
    done
}

async fn run_job(
    core: &Core,
    placement: &Placement,
    uid: &str,
    job: Job,
) -> (Vec<u64>, Option<WriteFailure>) {
    let backend = &job.target.backend;
    if let Some(primary_key) = &job.prepare {
        let ready = core.catalogue.prepare(placement, backend, uid, primary_key.as_deref()).await;
        if let Err(reason) = ready {
            core.catalogue.distrust(&backend.id);
            return (Vec::new(), Some(WriteFailure::Unsent(reason)));
        }
    }
    let mut tasks = Vec::with_capacity(job.requests.len());
    for request in job.requests {
        let request = match &job.mark {
            Some(mark) if backend.takes_metadata() => {
                request.with_parameter("customMetadata", mark)
            }
            Some(_) | None => request,
        };
        match backend.write(request).await {
            Ok(task) => tasks.push(task),
            Err(failure) => {
                if !matches!(failure, WriteFailure::Rejected(_)) {
                    core.catalogue.distrust(&backend.id);
                }
                return (tasks, Some(failure));
            }
        }
    }
    (tasks, None)
}

/// Judges what came back for a write that touched `shards`.
///
/// # Errors
/// No quorum; when every backend that answered refused the write, their refusal.
pub(super) fn settle(
    core: &Core,
    placement: &Placement,
    uid: &str,
    shards: &ShardSet,
    done: Vec<Done>,
) -> Result<Sent, Unsettled> {
    log_failures(core, uid, &done);
    let acked: HashSet<BackendIdx> =
        done.iter().filter(|d| d.acked()).filter_map(|d| d.target.member).collect();
    let verdict = judge(&placement.topology, shards, |backend| acked.contains(&backend));
    if verdict.succeeded() {
        super::counters::count(&core.counters.writes_acked);
        if !verdict.degraded_groups.is_empty() {
            super::counters::count(&core.counters.writes_degraded);
            let groups: Vec<u16> = verdict.degraded_groups.iter().map(|g| g.0).collect();
            let mut degraded = core.degraded.lock().unwrap_or_else(PoisonError::into_inner);
            groups.iter().for_each(|group| *degraded.entry(*group).or_default() += 1);
            tracing::warn!(plane = "doc", index = uid, ?groups, "a write missed replica groups");
        }
        return Ok(Sent { done, verdict });
    }
    super::counters::count(&core.counters.writes_no_quorum);
    let failure = refusal(&done).unwrap_or_else(|| no_quorum(&done, &verdict).into());
    Err(Unsettled { failure, done })
}

/// The first refusal, when no backend accepted or might have.
fn refusal(done: &[Done]) -> Option<Failure> {
    let members = || done.iter().filter(|d| d.target.member.is_some());
    let mut first = None;
    for member in members() {
        match &member.failure {
            Some(WriteFailure::Rejected(reply)) => {
                first.get_or_insert(reply);
            }
            None => return None,
            Some(WriteFailure::KeyRefused | WriteFailure::Unsent(_) | WriteFailure::Failed(_)) => {}
        }
    }
    first.map(|reply| Failure::Forwarded { status: reply.status, body: reply.body.clone() })
}

fn no_quorum(done: &[Done], verdict: &Verdict) -> ApiError {
    let accepted = done.iter().filter(|d| d.acked()).count();
    let shards = verdict.lost_shards.len();
    let message = format!(
        "the write reached no quorum of replicas for {shards} of its shards; {accepted} of {} \
         backends accepted their part and may keep it. Repeating the same request is safe",
        done.len()
    );
    ApiError::new("miroir_no_quorum", message)
}

fn log_failures(core: &Core, uid: &str, done: &[Done]) {
    for done in done {
        let Some(reason) = &done.failure else { continue };
        super::counters::count(&core.counters.backend_write_failures);
        let backend = done.target.backend.id.as_str();
        tracing::warn!(plane = "doc", index = uid, backend, %reason, "a backend missed a write");
    }
}
