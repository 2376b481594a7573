//! `POST facet-search`: the values of one facet that begin with some letters.

use super::scatter::{gather, mark_missing};
use crate::document::listing::and_shard_filter;
use crate::document::search::{Faceting, merge_facets};
use crate::document::shard::ShardSet;
use crate::gateway::aliases::Resolved;
use crate::gateway::call::{Call, Outcome, not_an_object, parse_json};
use crate::gateway::client::{Outbound, Reply, index_path};
use crate::gateway::core::Core;
use crate::gateway::error::{ApiError, Failure, index_not_found, json_response};
use crate::gateway::indexes::first_answer;
use crate::gateway::sessions::session_of;
use hyper::{Method, StatusCode};
use serde_json::{Map, Value};
use std::sync::Arc;
use xxhash_rust::xxh3::xxh3_64;

/// `POST facet-search`.
pub(in crate::gateway) async fn facet_search(core: Arc<Core>, mut call: Call) -> Outcome {
    let name = call.uid()?;
    let body = core.bodies.read(&mut call).await?;
    let fields = match parse_json(&body.text)? {
        Value::Object(fields) => fields,
        other => return Err(not_an_object(&other).into()),
    };
    let Some(facet) = fields.get("facetName").and_then(Value::as_str) else {
        let code = "missing_facet_search_facet_name";
        return Err(ApiError::new(code, "Missing field `facetName`").into());
    };
    let uids = match core.aliases.resolve(&name).await? {
        Resolved::One(uid) => vec![uid],
        Resolved::Several(uids) => uids,
    };
    let placement = core.placement();
    let pinned = core.pinned_read(&placement, session_of(&call).as_deref()).await;
    let (mut replies, mut missing) = (Vec::<Reply>::new(), Vec::new());
    let mut faceting = Faceting::of(&Value::Null, facet);
    for uid in &uids {
        if core.catalogue.find_to_read(&placement, uid).await?.is_none() {
            continue;
        }
        let turn = xxh3_64(format!("{uid}\0{facet}").as_bytes());
        let path = format!("{}/facet-search", index_path(uid));
        let ask = |shards: &ShardSet| {
            Outbound::json(Method::POST, path.clone(), &backend_body(&fields, shards))
        };
        let gathered = gather(&core, &placement, turn, pinned.as_ref(), "facetHits", ask).await?;
        missing.extend(gathered.missing);
        replies.extend(gathered.parts.into_iter().map(|(_, _, reply)| reply));
        faceting = faceting_of(&core, uid, facet).await?;
    }
    if replies.is_empty() {
        return Err(index_not_found(&name).into());
    }
    let texts: Vec<&str> = replies.iter().map(Reply::text).collect();
    let merged = merge_facets(&texts, faceting)
        .map_err(|e| ApiError::new("miroir_shard_unavailable", e.to_string()))?;
    let mut response = json_response(StatusCode::OK, merged);
    mark_missing(&mut response, &missing);
    Ok(response)
}

/// The client's search for the shards a backend answers for.
fn backend_body(fields: &Map<String, Value>, shards: &ShardSet) -> Value {
    let mut fields = fields.clone();
    let filter = and_shard_filter(fields.get("filter"), shards);
    fields.insert("filter".into(), filter);
    Value::Object(fields)
}

/// How the index orders and limits the values of the facet.
async fn faceting_of(core: &Core, uid: &str, facet: &str) -> Result<Faceting, Failure> {
    let path = format!("{}/settings/faceting", index_path(uid));
    let setting = first_answer(core, uid, &path, Value::is_object).await?;
    let setting = serde_json::from_slice(&setting).unwrap_or_default();
    Ok(Faceting::of(&setting, facet))
}
