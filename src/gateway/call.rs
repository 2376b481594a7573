//! One HTTP request, taken apart for a handler.

use super::error::{ApiError, Failure, json_response};
use crate::document::batch::Format;
use crate::document::object::shorten;
use axum::body::Body;
use axum::extract::{FromRequestParts, RawPathParams, Request};
use axum::response::Response;
use hyper::header::{CONTENT_TYPE, HeaderMap};
use hyper::{Method, StatusCode};
use serde_json::Value;
use std::borrow::Cow;
use std::sync::{Mutex, PoisonError};

/// Longest index uid. Meilisearch says 512 bytes in its messages and refuses above 400.
const UID_CHARS_MAX: usize = 400;
const ACCEPTED: &str = "Accepted values for the Content-Type header are: `application/json`, \
                        `application/x-ndjson`, `text/csv`";

/// A request with its path parameters decoded. The body has not been read.
pub(super) struct Call {
    pub(super) method: Method,
    /// Path and query as they came.
    pub(super) target: String,
    pub(super) params: Vec<String>,
    pub(super) query: Vec<(String, String)>,
    pub(super) headers: HeaderMap,
    /// In a mutex only because a body is not `Sync`; it is taken through `&mut`.
    body: Mutex<Body>,
}

impl Call {
    /// Takes a request apart.
    pub(super) async fn read(request: Request) -> Result<Call, ApiError> {
        let (mut parts, body) = request.into_parts();
        let target = parts.uri.path_and_query().map_or("/", |target| target.as_str()).to_owned();
        let query = parts.uri.query().unwrap_or_default();
        let query = form_urlencoded::parse(query.as_bytes());
        let query = query.map(|(name, value)| (name.into_owned(), value.into_owned())).collect();
        let params = RawPathParams::from_request_parts(&mut parts, &())
            .await
            .map_err(|e| ApiError::new("bad_request", e.to_string()))?
            .iter()
            .map(|(_, value)| value.to_owned())
            .collect();
        let (method, headers) = (parts.method, parts.headers);
        Ok(Call { method, target, params, query, headers, body: Mutex::new(body) })
    }

    /// The body, once.
    pub(super) fn take_body(&mut self) -> Body {
        let body = self.body.get_mut().unwrap_or_else(PoisonError::into_inner);
        std::mem::take(body)
    }

    /// A path parameter; routes say how many there are.
    pub(super) fn param(&self, i: usize) -> &str {
        self.params.get(i).map_or("", String::as_str)
    }

    /// The index uid, which is the first path parameter.
    pub(super) fn uid(&self) -> Result<String, ApiError> {
        let uid = self.param(0);
        if is_valid_uid(uid) {
            return Ok(uid.to_owned());
        }
        Err(ApiError::new("invalid_index_uid", uid_message(uid)))
    }

    /// A query parameter; of several with the name, the last.
    pub(super) fn parameter(&self, name: &str) -> Option<&str> {
        self.query.iter().rev().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }

    /// Refuses query parameters other than `known`, as Meilisearch does.
    pub(super) fn only_parameters(&self, known: &[&str]) -> Result<(), ApiError> {
        let unknown = self.query.iter().find(|(name, _)| !known.contains(&name.as_str()));
        unknown.map_or(Ok(()), |(name, _)| {
            let known: Vec<String> = known.iter().map(|name| format!("`{name}`")).collect();
            let known = known.join(", ");
            let message = format!("Unknown parameter `{name}`: expected one of {known}");
            Err(ApiError::new("bad_request", message))
        })
    }

    /// The query parameter as a number.
    pub(super) fn number(&self, name: &str, code: &'static str) -> Result<Option<u64>, ApiError> {
        let Some(text) = self.parameter(name) else { return Ok(None) };
        text.parse().map(Some).map_err(|_| {
            let message = format!(
                "Invalid value in parameter `{name}`: could not parse `{text}` as a positive \
                 integer"
            );
            ApiError::new(code, message)
        })
    }

    /// The form of a document body, by content type and `csvDelimiter`.
    pub(super) fn document_format(&self) -> Result<Format, ApiError> {
        let delimiter = self.parameter("csvDelimiter").map(csv_delimiter).transpose()?;
        let Some(full) = self.headers.get(CONTENT_TYPE) else {
            let message = format!("A Content-Type header is missing. {ACCEPTED}");
            return Err(ApiError::new("missing_content_type", message));
        };
        let full = full.to_str().unwrap_or_default();
        let essence = full.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
        let format = match essence.as_str() {
            "application/json" => Format::Json,
            "application/x-ndjson" => Format::Ndjson,
            "text/csv" => return Ok(Format::Csv(delimiter.unwrap_or(b','))),
            _ => {
                let message = format!("The Content-Type `{full}` is invalid. {ACCEPTED}");
                return Err(ApiError::new("invalid_content_type", message));
            }
        };
        if delimiter.is_some() {
            let message = format!(
                "The Content-Type `{essence}` does not support the use of a csv delimiter. The \
                 csv delimiter can only be used with the Content-Type `text/csv`."
            );
            return Err(ApiError::new("invalid_content_type", message));
        }
        Ok(format)
    }

    /// A header's text, when it is text.
    pub(super) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).and_then(|value| value.to_str().ok())
    }
}

/// Whether `uid` can name an index.
pub(super) fn is_valid_uid(uid: &str) -> bool {
    (1..=UID_CHARS_MAX).contains(&uid.len())
        && uid.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_')
}

/// Why `uid` cannot name an index, in Meilisearch's words.
pub(super) fn uid_message(uid: &str) -> String {
    format!(
        "`{uid}` is not a valid index uid. Index uid can be an integer or a string containing \
         only alphanumeric characters, hyphens (-) and underscores (_), and can not be more than \
         512 bytes."
    )
}

fn csv_delimiter(text: &str) -> Result<u8, ApiError> {
    match text.as_bytes() {
        [byte] if byte.is_ascii() => Ok(*byte),
        _ => {
            let message = match text.chars().next() {
                Some(c) if !c.is_ascii() => {
                    format!("csv delimiter must be an ascii character. Found: `{c}`")
                }
                _ => format!("expected one ascii character as csv delimiter, found `{text}`"),
            };
            Err(ApiError::new("invalid_document_csv_delimiter", message))
        }
    }
}

/// JSON from a request body, with Meilisearch's error for text that is none.
pub(super) fn parse_json(body: &[u8]) -> Result<Value, ApiError> {
    if body.is_empty() {
        return Err(ApiError::new("missing_payload", "A json payload is missing."));
    }
    serde_json::from_slice(body).map_err(|e| {
        let message = format!("The `json` payload provided is malformed. `{e}`.");
        ApiError::new("malformed_payload", message)
    })
}

/// What kind of JSON value this is, in words.
pub(super) fn kind_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "an array",
        Value::Object(_) => "an object",
    }
}

/// `value` where an object was expected.
pub(super) fn not_an_object(value: &Value) -> ApiError {
    let (kind, shown) = (kind_of(value), shorten(&value.to_string()));
    let message = format!("Invalid value type: expected an object, but found {kind}: `{shown}`");
    ApiError::new("bad_request", message)
}

/// 200 with a JSON value.
pub(super) fn ok(value: &Value) -> Response {
    json_response(StatusCode::OK, value.to_string())
}

/// 202 with a JSON value.
pub(super) fn accepted(value: &Value) -> Response {
    json_response(StatusCode::ACCEPTED, value.to_string())
}

/// The last path segment as text for a URL.
pub(super) fn encode_segment(text: &str) -> Cow<'_, str> {
    percent_encoding::utf8_percent_encode(text, percent_encoding::NON_ALPHANUMERIC).into()
}

/// What handlers return.
pub(super) type Outcome = Result<Response, Failure>;
