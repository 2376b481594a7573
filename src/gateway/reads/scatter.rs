//! A read that needs every shard: who is asked for which, and what happens when one is away.

use crate::document::covering::{Covering, cover};
use crate::document::object;
use crate::document::shard::{ShardId, ShardSet};
use crate::document::topology::{BackendIdx, GroupIdx};
use crate::gateway::client::{Outbound, Reply};
use crate::gateway::core::Core;
use crate::gateway::counters::count;
use crate::gateway::error::{ApiError, Failure};
use crate::gateway::placement::Placement;
use crate::gateway::sessions::PinnedRead;
use crate::gateway::settings::PartialReads;
use axum::response::Response;
use hyper::header::HeaderValue;
use std::collections::HashSet;

/// Rounds of asking others for the shards of backends that did not answer.
const ROUNDS_MAX: usize = 8;

/// The answers of a read over all shards.
pub(super) struct Gathered {
    /// Who answered, for which shards, and what.
    pub(super) parts: Vec<(BackendIdx, ShardSet, Reply)>,
    /// Shards nobody answered for.
    pub(super) missing: Vec<ShardId>,
    /// Some backend that answered did not know the index.
    pub(super) index_missing: bool,
}

/// Asks a covering set of backends and, for those that do not answer, the next owners.
///
/// `turn` picks group and replicas; all pages of one query pass the same. `list` is the field
/// that holds what is asked for: an answer without it is none.
///
/// # Errors
/// A backend refused the request for what it says, or shards are missing and must not be.
pub(super) async fn gather(
    core: &Core,
    placement: &Placement,
    turn: u64,
    pinned: Option<&PinnedRead>,
    list: &str,
    request: impl Fn(&ShardSet) -> Outbound,
) -> Result<Gathered, Failure> {
    count(&core.counters.reads_scattered);
    let mut gathered = Gathered { parts: Vec::new(), missing: Vec::new(), index_missing: false };
    let mut failed: HashSet<BackendIdx> = HashSet::new();
    let mut wanted = ShardSet::all(placement.topology.shards());
    for _ in 0..ROUNDS_MAX {
        let covering = plan(placement, turn, pinned, &failed);
        let parts = restrict(covering, &wanted);
        if parts.is_empty() {
            break;
        }
        let mut unanswered = ShardSet::none(placement.topology.shards());
        for (backend, shards, reply) in ask(placement, parts, &request).await {
            match reply {
                Some(reply) if reply.is_success() && has_list(&reply, list) => {
                    gathered.parts.push((backend, shards, reply));
                }
                Some(reply) if reply.error_code().as_deref() == Some("index_not_found") => {
                    gathered.index_missing = true;
                    failed.insert(backend);
                    shards.iter().for_each(|shard| unanswered.insert(shard));
                }
                Some(reply) if is_refusal(&reply) => {
                    return Err(Failure::Forwarded { status: reply.status, body: reply.body });
                }
                Some(_) | None => {
                    failed.insert(backend);
                    shards.iter().for_each(|shard| unanswered.insert(shard));
                }
            }
        }
        wanted = unanswered;
        if wanted.is_empty() {
            break;
        }
    }
    let answered = |shard| gathered.parts.iter().any(|(_, shards, _)| shards.contains(shard));
    let all = (0..placement.topology.shards()).map(ShardId);
    gathered.missing = all.filter(|shard| !answered(*shard)).collect();
    check_missing(core, gathered)
}

/// Whether an answer is an object with a list of this name. What is in it is read when all
/// answers are there.
fn has_list(reply: &Reply, name: &str) -> bool {
    let text = reply.text();
    object::field(text, name).is_some_and(|list| list.starts_with('['))
}

/// Whether a backend refuses a read for what it says, in its own words.
fn is_refusal(reply: &Reply) -> bool {
    let about_us = matches!(reply.status, 401 | 403 | 429);
    (400..500).contains(&reply.status) && !about_us && reply.error_code().is_some()
}

/// A covering from a pinned group where there is one, else from the group whose turn it is.
/// Backends known to be down are tried only when a shard has no other.
fn plan(
    placement: &Placement,
    turn: u64,
    pinned: Option<&PinnedRead>,
    failed: &HashSet<BackendIdx>,
) -> Covering {
    let topology = &placement.topology;
    let groups = topology.groups() as u64;
    let first = pinned.map_or(GroupIdx((turn % groups) as u16), |pinned| pinned.group);
    let others: Vec<GroupIdx> = topology.group_numbers().filter(|group| *group != first).collect();
    let allowed = |shard, backend: BackendIdx| {
        let fits = pinned.is_none_or(|pinned| {
            topology.group_of(backend) != pinned.group || pinned.allows(shard, backend)
        });
        fits && !failed.contains(&backend)
    };
    let live = |backend| placement.backend(backend).is_live();
    let replica = turn / groups;
    let covering =
        cover(topology, first, &others, replica, |shard, b| allowed(shard, b) && live(b));
    if covering.uncovered.is_empty() {
        return covering;
    }
    cover(topology, first, &others, replica, allowed)
}

/// The parts of a covering that are still wanted.
fn restrict(covering: Covering, wanted: &ShardSet) -> Vec<(BackendIdx, ShardSet)> {
    let parts =
        covering.parts.into_iter().map(|(backend, shards)| (backend, shards.intersection(wanted)));
    parts.filter(|(_, shards)| !shards.is_empty()).collect()
}

async fn ask(
    placement: &Placement,
    parts: Vec<(BackendIdx, ShardSet)>,
    request: &impl Fn(&ShardSet) -> Outbound,
) -> Vec<(BackendIdx, ShardSet, Option<Reply>)> {
    let mut asked = Vec::with_capacity(parts.len());
    for (member, shards) in parts {
        let (backend, request) = (placement.backend(member).clone(), request(&shards));
        let work = tokio::spawn(async move { backend.call(request).await.ok() });
        asked.push((member, shards, work));
    }
    let mut answers = Vec::with_capacity(asked.len());
    for (member, shards, work) in asked {
        answers.push((member, shards, work.await.ok().flatten()));
    }
    answers
}

fn check_missing(core: &Core, gathered: Gathered) -> Result<Gathered, Failure> {
    if gathered.missing.is_empty() || (gathered.parts.is_empty() && gathered.index_missing) {
        return Ok(gathered);
    }
    count(&core.counters.reads_partial);
    if gathered.parts.is_empty() || core.settings.partial_reads == PartialReads::Refuse {
        let message = format!("{} shards cannot be reached", gathered.missing.len());
        return Err(ApiError::new("miroir_shard_unavailable", message).into());
    }
    Ok(gathered)
}

/// Names the missing shards in the answer's header.
pub(super) fn mark_missing(response: &mut Response, missing: &[ShardId]) {
    if missing.is_empty() {
        return;
    }
    let numbers: Vec<String> = missing.iter().map(|shard| shard.0.to_string()).collect();
    let value = format!("shards={}", numbers.join(","));
    if let Ok(value) = HeaderValue::from_str(&value) {
        response.headers_mut().insert(crate::gateway::writes::DEGRADED_HEADER, value);
    }
}
