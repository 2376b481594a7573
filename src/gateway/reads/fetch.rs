//! `GET documents/{id}`.

use crate::document::object;
use crate::document::shard::{ShardId, shard_for_key};
use crate::document::topology::{BackendIdx, GroupIdx};
use crate::gateway::aliases::Resolved;
use crate::gateway::call::{Call, Outcome, encode_segment};
use crate::gateway::client::{Outbound, index_path};
use crate::gateway::core::Core;
use crate::gateway::error::{
    ApiError, Failure, document_not_found, index_not_found, json_response,
};
use crate::gateway::placement::Placement;
use crate::gateway::sessions::{PinnedRead, session_of};
use hyper::StatusCode;
use std::sync::Arc;

/// What one index says of a document.
enum Found {
    Document(String),
    /// No owner that answered has it.
    NoDocument,
    /// No owner that answered has the index.
    NoIndex,
}

/// Fetches one document from an owner of its shard; of a multi alias, from the first index that
/// has it.
pub(in crate::gateway) async fn fetch(core: Arc<Core>, call: Call) -> Outcome {
    let name = call.uid()?;
    call.only_parameters(&["fields", "retrieveVectors"])?;
    let id = call.param(1).to_owned();
    let session = session_of(&call);
    let placement = core.placement();
    let uids = match core.aliases.resolve(&name).await? {
        Resolved::One(uid) => vec![uid],
        Resolved::Several(uids) => uids,
    };
    let pinned = core.pinned_read(&placement, session.as_deref()).await;
    let mut any_index = false;
    for uid in &uids {
        match fetch_from(&core, &placement, &call, uid, &id, pinned.as_ref()).await? {
            Found::Document(text) => return Ok(json_response(StatusCode::OK, text)),
            Found::NoDocument => any_index = true,
            Found::NoIndex => {}
        }
    }
    Err(if any_index { document_not_found(&id).into() } else { index_not_found(&name).into() })
}

async fn fetch_from(
    core: &Core,
    placement: &Placement,
    call: &Call,
    uid: &str,
    id: &str,
    pinned: Option<&PinnedRead>,
) -> Result<Found, Failure> {
    let shard = shard_for_key(id, placement.topology.shards());
    let query = call.target.split_once('?').map_or("", |(_, query)| query);
    let mut path = format!("{}/documents/{}", index_path(uid), encode_segment(id));
    if !query.is_empty() {
        path.push_str(&format!("?{query}"));
    }
    if let Some(pinned) = pinned {
        let owners = placement.topology.owners(shard, pinned.group).to_vec();
        let allowed = owners.into_iter().filter(|owner| pinned.allows(shard, *owner));
        // A pinned group that cannot answer is left for normal routing.
        if let Ok(found) = ask_groups(core, placement, &path, vec![allowed.collect()]).await {
            return Ok(found);
        }
    }
    let order = owners_in_turn(placement, shard, core.next_turn());
    ask_groups(core, placement, &path, order).await
}

/// The owners of a shard, group after group from the group whose turn it is, and inside a group
/// from the owner whose turn it is. Owners that are known to be down come last.
fn owners_in_turn(placement: &Placement, shard: ShardId, turn: u64) -> Vec<Vec<BackendIdx>> {
    let groups = placement.topology.groups();
    let first = (turn % groups as u64) as usize;
    let in_turn = (0..groups).map(|i| GroupIdx(((first + i) % groups) as u16));
    in_turn
        .map(|group| {
            let mut owners = placement.topology.owners(shard, group).to_vec();
            let shift = (turn / groups as u64 % owners.len() as u64) as usize;
            owners.rotate_left(shift);
            owners.sort_by_key(|owner| !placement.backend(*owner).is_live());
            owners
        })
        .collect()
}

/// Asks one owner per group until one has the document. A group that was degraded during the
/// write may not have it, so "not found" is believed only when every group says so.
async fn ask_groups(
    core: &Core,
    placement: &Placement,
    path: &str,
    groups: Vec<Vec<BackendIdx>>,
) -> Result<Found, Failure> {
    let mut answer = None;
    for owners in groups {
        for owner in owners {
            let Ok(reply) = placement.backend(owner).call(Outbound::get(path)).await else {
                continue;
            };
            // What is no object is no document: somebody else stands in for the backend.
            if reply.is_success() && object::fields(reply.text(), |_, _| ()).is_ok() {
                let reserved = core.settings.reserved;
                let shown = object::without(reply.text(), |name| reserved.contains(name));
                return Ok(Found::Document(shown.into_owned()));
            }
            match reply.error_code().as_deref() {
                Some("document_not_found") => answer = Some(Found::NoDocument),
                Some("index_not_found") => {
                    answer.get_or_insert(Found::NoIndex);
                }
                Some(_) if reply.status == 400 => {
                    return Err(Failure::Forwarded { status: reply.status, body: reply.body });
                }
                _ => continue,
            }
            break;
        }
    }
    let unavailable = || {
        let message = "no backend that holds this document can be reached";
        Failure::from(ApiError::new("miroir_shard_unavailable", message))
    };
    answer.ok_or_else(unavailable)
}
