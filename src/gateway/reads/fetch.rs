//! `GET documents/{id}`.

use crate::document::object;
use crate::document::reserved::SHARD_FIELD;
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
    let path = format!("{}/documents/{}{}", index_path(uid), encode_segment(id), query_of(call));
    let asked = Asked { core, placement, path, shard };
    if let Some(pinned) = pinned {
        let owners = placement.topology.owners(shard, pinned.group).to_vec();
        let allowed = owners.into_iter().filter(|owner| pinned.allows(shard, *owner));
        // A pinned group that cannot answer is left for normal routing.
        if let Ok(found) = asked.ask_groups(vec![allowed.collect()]).await {
            return Ok(found);
        }
    }
    asked.ask_groups(owners_in_turn(placement, shard, core.next_turn())).await
}

/// The client's parameters. The shard number is always asked for: a document is known by it.
fn query_of(call: &Call) -> String {
    let mut query = form_urlencoded::Serializer::new(String::new());
    if let Some(fields) = call.parameter("fields") {
        let all = fields.split(',').any(|field| field.trim() == "*");
        let fields = if all { fields.to_owned() } else { format!("{fields},{SHARD_FIELD}") };
        query.append_pair("fields", &fields);
    }
    if let Some(wanted) = call.parameter("retrieveVectors") {
        query.append_pair("retrieveVectors", wanted);
    }
    let query = query.finish();
    if query.is_empty() { query } else { format!("?{query}") }
}

/// Whether a backend's answer is a document of this shard: all that were written through a
/// gateway carry their number. Anything else comes from somebody who stands in for the backend.
pub(in crate::gateway) fn is_document(text: &str, shard: ShardId) -> bool {
    object::field(text, SHARD_FIELD).is_some_and(|number| number.parse() == Ok(shard.0))
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

/// A document that is asked for.
struct Asked<'a> {
    core: &'a Core,
    placement: &'a Placement,
    path: String,
    shard: ShardId,
}

impl Asked<'_> {
    /// Asks one owner per group until one has the document. A group that was degraded during the
    /// write may not have it, so "not found" is believed only when every group says so.
    async fn ask_groups(&self, groups: Vec<Vec<BackendIdx>>) -> Result<Found, Failure> {
        let mut answer = None;
        for owners in groups {
            for owner in owners {
                let request = Outbound::get(self.path.clone());
                let Ok(reply) = self.placement.backend(owner).call(request).await else {
                    continue;
                };
                if reply.is_success() && is_document(reply.text(), self.shard) {
                    let reserved = self.core.settings.reserved;
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
}
