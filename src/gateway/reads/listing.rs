//! `GET documents` and `POST documents/fetch`.
//!
//! A backend lists in an order of its own, so a page cannot be cut from what each sends first.
//! The ids of all matching documents are collected, ordered and cut; then the page's documents
//! are fetched from the backends that named them.

use super::scatter::{gather, mark_missing};
use crate::document::listing::{Entry, and_shard_filter, arrange, collect_ids, ids_at, page};
use crate::document::object;
use crate::document::shard::ShardId;
use crate::document::topology::BackendIdx;
use crate::gateway::aliases::Resolved;
use crate::gateway::body::off_reactor;
use crate::gateway::call::{Call, Outcome, not_an_object, parse_json};
use crate::gateway::client::{OutBody, Outbound, index_path};
use crate::gateway::core::Core;
use crate::gateway::error::{ApiError, Failure, index_not_found, json_response};
use crate::gateway::placement::Placement;
use crate::gateway::sessions::session_of;
use bytes::Bytes;
use hyper::{Method, StatusCode};
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};
use std::sync::Arc;

/// Documents of a page when the request does not say.
const LIMIT_DEFAULT: usize = 20;
/// More ids than any backend has.
const IDS_MAX: u32 = u32::MAX;

/// What a client lists.
#[derive(Clone, Debug, Default)]
struct Listing {
    offset: usize,
    limit: usize,
    fields: Option<Vec<String>>,
    filter: Option<Value>,
    ids: Option<Value>,
    retrieve_vectors: bool,
}

#[derive(Deserialize)]
struct Results<'a> {
    #[serde(borrow)]
    results: Vec<&'a RawValue>,
}

/// `GET documents`.
pub(in crate::gateway) async fn list(core: Arc<Core>, call: Call) -> Outcome {
    call.only_parameters(&[
        "offset",
        "limit",
        "fields",
        "retrieveVectors",
        "filter",
        "ids",
        "sort",
    ])?;
    let names = |name: &str| {
        let text = call.parameter(name)?;
        Some(text.split(',').map(|name| name.trim().to_owned()).collect::<Vec<_>>())
    };
    let filter = call.parameter("filter").map(|text| match serde_json::from_str(text) {
        Ok(Value::Array(parts)) => Value::Array(parts),
        _ => json!(text),
    });
    let retrieve_vectors = match call.parameter("retrieveVectors") {
        None | Some("false") => false,
        Some("true") => true,
        Some(other) => {
            let message = format!("Invalid value in parameter `retrieveVectors`: `{other}`");
            return Err(ApiError::new("invalid_document_retrieve_vectors", message).into());
        }
    };
    refuse_sort(call.parameter("sort").is_some())?;
    let offset = call.number("offset", "invalid_document_offset")?.unwrap_or(0) as usize;
    let limit = call.number("limit", "invalid_document_limit")?;
    let listing = Listing {
        offset,
        limit: limit.map_or(LIMIT_DEFAULT, |limit| limit as usize),
        fields: names("fields"),
        filter,
        ids: names("ids").map(|ids| json!(ids)),
        retrieve_vectors,
    };
    answer(core, call, listing).await
}

/// `POST documents/fetch`.
pub(in crate::gateway) async fn list_by_body(core: Arc<Core>, mut call: Call) -> Outcome {
    let body = core.bodies.read(&mut call).await?;
    let body = match parse_json(&body.text)? {
        Value::Object(map) => map,
        other => return Err(not_an_object(&other).into()),
    };
    answer(core, call, read_body(&body)?).await
}

fn read_body(body: &Map<String, Value>) -> Result<Listing, ApiError> {
    let mut listing = Listing { limit: LIMIT_DEFAULT, ..Listing::default() };
    let number = |value: &Value, code, name: &str| {
        let message = format!("Invalid value at `.{name}`: expected a positive integer");
        value.as_u64().map(|n| n as usize).ok_or_else(|| ApiError::new(code, message))
    };
    for (name, value) in body {
        match (name.as_str(), value) {
            ("offset" | "limit" | "fields" | "filter" | "ids" | "sort", Value::Null) => {}
            ("offset", value) => {
                listing.offset = number(value, "invalid_document_offset", name)?;
            }
            ("limit", value) => listing.limit = number(value, "invalid_document_limit", name)?,
            ("fields", Value::Array(items)) => {
                let names = items.iter().map(|item| item.as_str().map(str::to_owned));
                let invalid =
                    || ApiError::new("invalid_document_fields", "`fields` is a list of names");
                listing.fields = Some(names.collect::<Option<_>>().ok_or_else(invalid)?);
            }
            ("filter", filter) => listing.filter = Some(filter.clone()),
            ("ids", ids @ Value::Array(_)) => listing.ids = Some(ids.clone()),
            ("retrieveVectors", Value::Bool(wanted)) => listing.retrieve_vectors = *wanted,
            ("sort", rules) => refuse_sort(rules.as_array().is_none_or(|r| !r.is_empty()))?,
            ("fields" | "ids" | "retrieveVectors", other) => {
                let shown = object::shorten(&other.to_string());
                let message = format!("Invalid value at `.{name}`: `{shown}`");
                return Err(ApiError::new("bad_request", message));
            }
            _ => {
                let name = object::shorten(name);
                let message = format!(
                    "Unknown field `{name}`: expected one of `offset`, `limit`, `fields`, \
                     `retrieveVectors`, `ids`, `filter`, `sort`"
                );
                return Err(ApiError::new("bad_request", message));
            }
        }
    }
    Ok(listing)
}

/// Sorting over several backends would need the sorted values of every document.
fn refuse_sort(asked: bool) -> Result<(), ApiError> {
    if asked {
        let message = "a document gateway lists by id: `sort` is not served here, search sorts";
        return Err(ApiError::new("miroir_not_supported", message));
    }
    Ok(())
}

async fn answer(core: Arc<Core>, call: Call, listing: Listing) -> Outcome {
    let name = call.uid()?;
    let uids = match core.aliases.resolve(&name).await? {
        Resolved::One(uid) => vec![uid],
        Resolved::Several(uids) => uids,
    };
    let placement = core.placement();
    let pinned = core.pinned_read(&placement, session_of(&call).as_deref()).await;
    let mut shown = Vec::new();
    let (mut total, mut missing, mut any_index) = (0, Vec::new(), false);
    // Indexes of a multi alias follow one another: a page goes on where the last one ended.
    let (mut offset, mut limit) = (listing.offset, listing.limit);
    for uid in &uids {
        let Some(info) = core.catalogue.find_to_read(&placement, uid).await? else { continue };
        any_index = true;
        let Some(key) = info.primary_key else { continue };
        let ids = Ids { core: &core, placement: &placement, uid, key: &key, listing: &listing };
        let (entries, gone) = ids.collect(pinned.as_ref()).await?;
        missing.extend(gone);
        let (part, count) = page(entries, offset, limit);
        total += count;
        offset = offset.saturating_sub(count);
        limit -= part.len();
        shown.extend(ids.documents(&part).await?);
    }
    if !any_index {
        return Err(index_not_found(&name).into());
    }
    let body = format!(
        "{{\"results\":[{}],\"offset\":{},\"limit\":{},\"total\":{total}}}",
        shown.join(","),
        listing.offset,
        listing.limit
    );
    let mut response = json_response(StatusCode::OK, body);
    mark_missing(&mut response, &missing);
    Ok(response)
}

/// One index's part of a listing.
struct Ids<'a> {
    core: &'a Core,
    placement: &'a Placement,
    uid: &'a str,
    key: &'a str,
    listing: &'a Listing,
}

impl Ids<'_> {
    /// The ids of all matching documents, and the shards nobody answered for.
    async fn collect(
        &self,
        pinned: Option<&crate::gateway::sessions::PinnedRead>,
    ) -> Result<(Vec<Entry>, Vec<ShardId>), Failure> {
        let path = format!("{}/documents/fetch", index_path(self.uid));
        let turn = self.core.next_turn();
        let gathered = gather(self.core, self.placement, turn, pinned, "results", |shards| {
            let mut body = json!({"offset": 0, "limit": IDS_MAX, "fields": [self.key],
                "filter": and_shard_filter(self.listing.filter.as_ref(), shards)});
            if let Some(ids) = &self.listing.ids {
                body["ids"] = ids.clone();
            }
            Outbound::json(Method::POST, path.clone(), &body)
        })
        .await?;
        let bytes = gathered.parts.iter().map(|(_, _, reply)| reply.body.len()).sum();
        let (parts, key) = (gathered.parts, self.key.to_owned());
        let entries = off_reactor(bytes, move || {
            let mut entries = Vec::new();
            for (backend, _, reply) in &parts {
                let results = results(reply.text())?;
                collect_ids(*backend, results.into_iter(), &key, &mut entries);
            }
            Ok::<_, ApiError>(entries)
        })
        .await??;
        Ok((entries, gathered.missing))
    }

    /// The documents of a page, in its order.
    async fn documents(&self, part: &[Entry]) -> Result<Vec<String>, Failure> {
        let mut backends: Vec<BackendIdx> = part.iter().map(|entry| entry.backend).collect();
        backends.sort_unstable();
        backends.dedup();
        let mut asked = Vec::new();
        for member in backends {
            let backend = self.placement.backend(member).clone();
            let request = self.request_for(part, member);
            asked.push(tokio::spawn(async move { backend.call(request).await }));
        }
        let mut replies = Vec::new();
        for work in asked {
            let lost = |reason: String| ApiError::new("miroir_shard_unavailable", reason);
            let reply = work.await.map_err(|e| lost(e.to_string()))?;
            let reply = reply.map_err(|e| lost(format!("a backend stopped answering: {e}")))?;
            if !reply.is_success() {
                return Err(Failure::Forwarded { status: reply.status, body: reply.body });
            }
            replies.push(reply);
        }
        let bytes = replies.iter().map(|reply| reply.body.len()).sum();
        let (part, key) = (part.to_vec(), self.key.to_owned());
        let reserved = self.core.settings.reserved;
        let hide_key = self.listing.fields.as_ref().is_some_and(|fields| !covers(fields, &key));
        let shown = off_reactor(bytes, move || {
            let mut documents = Vec::new();
            for reply in &replies {
                documents.extend(results(reply.text())?);
            }
            let hidden = |name: &str| reserved.contains(name) || (hide_key && name == key);
            let arranged = arrange(&part, documents.into_iter(), &key);
            let shown = arranged.into_iter().map(|text| object::without(text, hidden).into_owned());
            Ok::<Vec<String>, ApiError>(shown.collect())
        })
        .await??;
        Ok(shown)
    }

    fn request_for(&self, part: &[Entry], member: BackendIdx) -> Outbound {
        let mut fields = self.listing.fields.clone();
        if let Some(fields) = fields.as_mut().filter(|fields| !covers(fields, self.key)) {
            fields.push(self.key.to_owned());
        }
        let body = format!(
            "{{\"ids\":{},\"limit\":{},\"fields\":{},\"retrieveVectors\":{}}}",
            ids_at(part, member),
            part.len(),
            json!(fields),
            self.listing.retrieve_vectors
        );
        let path = format!("{}/documents/fetch", index_path(self.uid));
        Outbound { method: Method::POST, path, body: OutBody::Text(Bytes::from(body)) }
    }
}

fn covers(fields: &[String], key: &str) -> bool {
    fields.iter().any(|field| field == key || field == "*")
}

fn results(text: &str) -> Result<Vec<&str>, ApiError> {
    let read: Results<'_> = serde_json::from_str(text).map_err(|e| {
        ApiError::new("miroir_shard_unavailable", format!("a backend's listing: {e}"))
    })?;
    Ok(read.results.into_iter().map(RawValue::get).collect())
}
