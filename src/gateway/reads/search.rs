//! `POST search` and `GET search`.

use super::scatter::{gather, mark_missing};
use crate::document::search::{SearchRequest, merge};
use crate::document::shard::{ShardId, ShardSet};
use crate::gateway::aliases::Resolved;
use crate::gateway::body::off_reactor;
use crate::gateway::call::{Call, Outcome};
use crate::gateway::client::{Outbound, Reply, index_path};
use crate::gateway::core::Core;
use crate::gateway::error::{ApiError, Failure, index_not_found, json_response};
use crate::gateway::sessions::session_of;
use hyper::{Method, StatusCode};
use std::sync::Arc;
use xxhash_rust::xxh3::xxh3_64;

/// `POST search`.
pub(in crate::gateway) async fn search(core: Arc<Core>, mut call: Call) -> Outcome {
    let body = core.bodies.read(&mut call).await?;
    let request = SearchRequest::from_body(&body.text)?;
    answer(core, call, request).await
}

/// `GET search`.
pub(in crate::gateway) async fn search_by_query(core: Arc<Core>, call: Call) -> Outcome {
    let parameters = call.query.iter().map(|(name, value)| (name.as_str(), value.as_str()));
    let request = SearchRequest::from_query(parameters)?;
    answer(core, call, request).await
}

async fn answer(core: Arc<Core>, call: Call, request: SearchRequest) -> Outcome {
    let name = call.uid()?;
    let hits = find(&core, &name, session_of(&call).as_deref(), request).await?;
    let mut response = json_response(StatusCode::OK, hits.body);
    mark_missing(&mut response, &hits.missing);
    Ok(response)
}

/// What a search found.
pub(super) struct Hits {
    /// The index; of a multi alias its name.
    pub(super) uid: String,
    /// The merged answer, a JSON object.
    pub(super) body: String,
    /// Shards nobody answered for.
    pub(super) missing: Vec<ShardId>,
}

/// Searches the index or alias `name` over a covering set of backends.
///
/// # Errors
/// There is no such index, a backend refused the search for what it says, or shards are missing
/// and must not be.
pub(super) async fn find(
    core: &Core,
    name: &str,
    session: Option<&str>,
    request: SearchRequest,
) -> Result<Hits, Failure> {
    let (uid, uids) = match core.aliases.resolve(name).await? {
        Resolved::One(uid) => (uid.clone(), vec![uid]),
        Resolved::Several(uids) => (name.to_owned(), uids),
    };
    let placement = core.placement();
    let pinned = core.pinned_read(&placement, session).await;
    let identity = request.identity();
    let (mut replies, mut missing, mut primary_key) = (Vec::<Reply>::new(), Vec::new(), None);
    for uid in &uids {
        let Some(info) = core.catalogue.find_to_read(&placement, uid).await? else { continue };
        // All pages of one search read the same replicas: others rank equal hits differently.
        let turn = xxh3_64(format!("{uid}\0{identity}").as_bytes());
        let path = format!("{}/search", index_path(uid));
        let key = info.primary_key;
        let ask = |shards: &ShardSet| {
            let body = request.backend_body(shards, key.as_deref());
            Outbound::json(Method::POST, path.clone(), &body)
        };
        let gathered = gather(core, &placement, turn, pinned.as_ref(), "hits", ask).await?;
        if gathered.parts.is_empty() && gathered.index_missing {
            core.catalogue.forget(uid);
            continue;
        }
        missing.extend(gathered.missing);
        replies.extend(gathered.parts.into_iter().map(|(_, _, reply)| reply));
        primary_key = primary_key.or(key);
    }
    if replies.is_empty() {
        return Err(index_not_found(name).into());
    }
    let bytes = replies.iter().map(|reply| reply.body.len()).sum();
    let reserved = core.settings.reserved;
    let body = off_reactor(bytes, move || {
        let texts: Vec<&str> = replies.iter().map(Reply::text).collect();
        merge(&request, &texts, primary_key.as_deref(), &reserved)
    })
    .await?
    .map_err(|e| ApiError::new("miroir_shard_unavailable", e.to_string()))?;
    Ok(Hits { uid, body, missing })
}
