//! `POST search` and `GET search`.

use super::scatter::{gather, mark_missing};
use crate::document::search::{SearchRequest, merge};
use crate::gateway::aliases::Resolved;
use crate::gateway::body::off_reactor;
use crate::gateway::call::{Call, Outcome};
use crate::gateway::client::{Outbound, Reply, index_path};
use crate::gateway::core::Core;
use crate::gateway::error::{ApiError, index_not_found, json_response};
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
    let uids = match core.aliases.resolve(&name).await? {
        Resolved::One(uid) => vec![uid],
        Resolved::Several(uids) => uids,
    };
    let placement = core.placement();
    let pinned = core.pinned_read(&placement, session_of(&call).as_deref()).await;
    let identity = request.identity();
    let (mut replies, mut missing, mut primary_key) = (Vec::<Reply>::new(), Vec::new(), None);
    for uid in &uids {
        let Some(info) = core.catalogue.find(&placement, uid).await? else { continue };
        // All pages of one search read the same replicas: others rank equal hits differently.
        let turn = xxh3_64(format!("{uid}\0{identity}").as_bytes());
        let path = format!("{}/search", index_path(uid));
        let key = info.primary_key;
        let gathered = gather(&core, &placement, turn, pinned.as_ref(), |shards| {
            let body = request.backend_body(shards, key.as_deref());
            Outbound::json(Method::POST, path.clone(), &body)
        })
        .await?;
        if gathered.parts.is_empty() && gathered.index_missing {
            core.catalogue.forget(uid);
            continue;
        }
        missing.extend(gathered.missing);
        replies.extend(gathered.parts.into_iter().map(|(_, _, reply)| reply));
        primary_key = primary_key.or(key);
    }
    if replies.is_empty() {
        return Err(index_not_found(&name).into());
    }
    let bytes = replies.iter().map(|reply| reply.body.len()).sum();
    let reserved = core.settings.reserved;
    let merged = off_reactor(bytes, move || {
        let texts: Vec<&str> = replies.iter().map(Reply::text).collect();
        merge(&request, &texts, primary_key.as_deref(), &reserved)
    })
    .await?
    .map_err(|e| ApiError::new("miroir_shard_unavailable", e.to_string()))?;
    let mut response = json_response(StatusCode::OK, merged);
    mark_missing(&mut response, &missing);
    Ok(response)
}
