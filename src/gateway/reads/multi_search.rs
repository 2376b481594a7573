//! `POST /multi-search`: several searches in one request, each answered as if it came alone.

use super::scatter::mark_missing;
use super::search::{Hits, find};
use crate::document::object::quoted;
use crate::document::search::SearchRequest;
use crate::gateway::call::{Call, Outcome, is_valid_uid, not_an_object, parse_json, uid_message};
use crate::gateway::core::Core;
use crate::gateway::error::{ApiError, Failure, json_response};
use crate::gateway::sessions::session_of;
use hyper::StatusCode;
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::sync::Arc;
use tokio::task::JoinSet;

/// Searches of one request that run at the same time.
const QUERIES_AT_ONCE: usize = 16;

struct Query {
    index: String,
    request: SearchRequest,
}

/// `POST /multi-search`.
pub(in crate::gateway) async fn multi_search(core: Arc<Core>, mut call: Call) -> Outcome {
    let body = core.bodies.read(&mut call).await?;
    let session = session_of(&call);
    let mut waiting = read(parse_json(&body.text)?)?.into_iter().enumerate();
    let (mut results, mut missing) = (Vec::new(), Vec::new());
    loop {
        let mut running = JoinSet::new();
        for (i, query) in waiting.by_ref().take(QUERIES_AT_ONCE) {
            let (core, session) = (core.clone(), session.clone());
            running.spawn(async move {
                (i, find(&core, &query.index, session.as_deref(), query.request).await)
            });
        }
        if running.is_empty() {
            break;
        }
        // The first failure in the order of the request is told, whichever came first.
        let mut found = BTreeMap::new();
        while let Some(done) = running.join_next().await {
            let (i, result) = done.map_err(|e| ApiError::new("internal", e.to_string()))?;
            found.insert(i, result);
        }
        for (i, result) in found {
            let Hits { uid, body, missing: lost } = result.map_err(|e| inside(i, e))?;
            results.push(format!("{{\"indexUid\":{},{}", quoted(&uid), &body[1..]));
            missing.extend(lost);
        }
    }
    missing.sort_unstable();
    missing.dedup();
    let body = format!("{{\"results\":[{}]}}", results.join(","));
    let mut response = json_response(StatusCode::OK, body);
    mark_missing(&mut response, &missing);
    Ok(response)
}

fn read(body: Value) -> Result<Vec<Query>, ApiError> {
    let mut fields = match body {
        Value::Object(fields) => fields,
        other => return Err(not_an_object(&other)),
    };
    if fields.get("federation").is_some_and(|federation| !federation.is_null()) {
        let message = "a federated search is not served by a document gateway: search an alias of \
                       several indexes, or leave `federation` out";
        return Err(ApiError::new("miroir_not_supported", message));
    }
    let queries = match fields.remove("queries") {
        Some(Value::Array(queries)) => queries,
        None => return Err(ApiError::new("bad_request", "Missing field `queries`")),
        Some(_) => {
            let message = "Invalid value type at `.queries`: expected an array";
            return Err(ApiError::new("bad_request", message));
        }
    };
    queries.into_iter().enumerate().map(|(i, query)| read_query(i, query)).collect()
}

fn read_query(i: usize, query: Value) -> Result<Query, ApiError> {
    let Value::Object(mut fields) = query else {
        let message = format!("Invalid value type at `.queries[{i}]`: expected an object");
        return Err(ApiError::new("bad_request", message));
    };
    let index = index_of(i, &mut fields)?;
    let request = SearchRequest::from_fields(fields).map_err(ApiError::from);
    let request = request.map_err(|e| ApiError { message: placed(i, &e.message), ..e })?;
    Ok(Query { index, request })
}

fn index_of(i: usize, fields: &mut Map<String, Value>) -> Result<String, ApiError> {
    let Some(Value::String(index)) = fields.remove("indexUid") else {
        let message = format!("Missing field `indexUid` inside `.queries[{i}]`");
        return Err(ApiError::new("missing_index_uid", message));
    };
    if is_valid_uid(&index) {
        return Ok(index);
    }
    let message = format!("Invalid value at `.queries[{i}].indexUid`: {}", uid_message(&index));
    Err(ApiError::new("invalid_index_uid", message))
}

/// Names the search a failure belongs to.
fn inside(i: usize, failure: Failure) -> Failure {
    match failure {
        Failure::Api(error) => ApiError { message: placed(i, &error.message), ..error }.into(),
        Failure::Forwarded { status, body } => {
            let Ok(mut said) = serde_json::from_slice::<Value>(&body) else {
                return Failure::Forwarded { status, body };
            };
            if let Some(message) = said.get("message").and_then(Value::as_str) {
                said["message"] = Value::String(placed(i, message));
            }
            Failure::Forwarded { status, body: said.to_string().into() }
        }
    }
}

fn placed(i: usize, message: &str) -> String {
    format!("Inside `.queries[{i}]`: {message}")
}
