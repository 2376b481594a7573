//! What a Meilisearch serves and a gateway does not. A client is told so in words, with what to
//! do instead; a path no Meilisearch knows is 404 with an empty body.

use super::error::ApiError;
use axum::routing::MethodFilter;
use hyper::Method;

const ANY: MethodFilter = MethodFilter::GET
    .or(MethodFilter::POST)
    .or(MethodFilter::PUT)
    .or(MethodFilter::PATCH)
    .or(MethodFilter::DELETE);
const GET: MethodFilter = MethodFilter::GET;
const POST: MethodFilter = MethodFilter::POST;
const DELETE: MethodFilter = MethodFilter::DELETE;

const SERVERS: &str = "ask the servers themselves";
const KEYS: &str = "one key opens the gateway: `documents.master_key`";
const TASKS: &str = "tasks run at once where they are accepted, and expire after 7 days";
const ONE_SERVER: &str = "its outcome depends on all documents, and each server has some of them";

/// Methods and paths, with what to do instead or why not.
pub(super) const PATHS: [(MethodFilter, &str, &str); 28] = [
    (ANY, "/batches", SERVERS),
    (ANY, "/batches/{uid}", SERVERS),
    (ANY, "/chats", ONE_SERVER),
    (ANY, "/chats/{*rest}", ONE_SERVER),
    (ANY, "/dumps", SERVERS),
    (ANY, "/dynamic-search-rules", SERVERS),
    (ANY, "/dynamic-search-rules/{*rest}", SERVERS),
    (ANY, "/experimental-features", SERVERS),
    (ANY, "/export", SERVERS),
    (ANY, "/keys", KEYS),
    (ANY, "/keys/{key}", KEYS),
    (ANY, "/logs/{*rest}", SERVERS),
    (ANY, "/metrics", "the node's admin port has them"),
    (ANY, "/network", "the gateway is the network of its servers"),
    (ANY, "/network/{*rest}", "the gateway is the network of its servers"),
    (ANY, "/render-template", SERVERS),
    (ANY, "/snapshots", SERVERS),
    (ANY, "/swap-indexes", "flip an alias: `PUT /_miroir/aliases/{name}`"),
    (ANY, "/webhooks", SERVERS),
    (ANY, "/webhooks/{*rest}", SERVERS),
    (DELETE, "/tasks", TASKS),
    (POST, "/tasks/cancel", TASKS),
    (POST, "/tasks/compact", TASKS),
    (GET, "/tasks/{uid}/documents", SERVERS),
    (GET.or(POST), "/indexes/{uid}/similar", ONE_SERVER),
    (POST, "/indexes/{uid}/compact", SERVERS),
    (POST, "/indexes/{uid}/fields", SERVERS),
    (POST, "/indexes/{uid}/documents/edit", "fetch, change and `PUT` the documents"),
];

/// Says that a request is not served.
pub(super) fn refusal(method: &Method, target: &str, instead: &str) -> ApiError {
    let path = target.split_once('?').map_or(target, |(path, _)| path);
    let message = format!("`{method} {path}` is not served by a document gateway: {instead}");
    ApiError::new("miroir_not_supported", message)
}
