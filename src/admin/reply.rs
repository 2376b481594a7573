//! The few kinds of replies there are.

use axum::Extension;
use axum::body::Body;
use axum::http::{HeaderValue, Method, StatusCode, Uri, header};
use axum::response::Response;
use serde::Serialize;

use crate::net::http::Caller;

const TEXT: &str = "text/plain; charset=utf-8";
const JSON: &str = "application/json; charset=utf-8";
const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// What Dynomite answers to what it did.
pub(super) const DONE: &str = "OK\r\n";

/// A text.
pub(super) fn text(status: StatusCode, body: impl Into<String>) -> Response {
    with_type(status, TEXT, body.into())
}

/// A text, all being well.
pub(super) fn ok(body: impl Into<String>) -> Response {
    text(StatusCode::OK, body)
}

/// A value as JSON, on one line.
pub(super) fn json(status: StatusCode, value: &impl Serialize) -> Response {
    match serde_json::to_string(value) {
        Ok(body) => with_type(status, JSON, body + "\n"),
        Err(error) => text(StatusCode::INTERNAL_SERVER_ERROR, format!("{error}\n")),
    }
}

/// Metrics.
pub(super) fn metrics(body: String) -> Response {
    with_type(StatusCode::OK, OPEN_METRICS, body)
}

/// A wrong argument, and what is accepted.
pub(super) fn bad_request(what: &str, accepted: &str) -> Response {
    text(StatusCode::BAD_REQUEST, format!("{what}; accepted: {accepted}\n"))
}

/// A path nobody serves.
pub(super) async fn not_found(uri: Uri) -> Response {
    let body = format!("no such path: {}; see /help\n", uri.path());
    text(StatusCode::NOT_FOUND, body)
}

/// A path that is not served for this method.
pub(super) fn method_not_allowed(method: &Method) -> Response {
    text(StatusCode::METHOD_NOT_ALLOWED, format!("{method} is not for this path; see /help\n"))
}

/// True when the caller is a process on this machine: only it may change what outlives a
/// mistake badly.
pub(super) fn is_here(caller: Option<Extension<Caller>>) -> bool {
    caller.is_some_and(|Extension(caller)| caller.is_here())
}

/// The answer to others.
pub(super) fn not_here() -> Response {
    text(StatusCode::FORBIDDEN, "only for callers on this machine\n")
}

fn with_type(status: StatusCode, kind: &'static str, body: String) -> Response {
    let mut response = Response::new(Body::from(body));
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    response
}
