//! Errors a client sees: always `message`, `code`, `type` and `link`.

use crate::document::error::DocumentError;
use crate::document::search::SearchError;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use hyper::StatusCode;
use hyper::header::{CONTENT_TYPE, HeaderValue, RETRY_AFTER};
use serde_json::{Value, json};

/// Where the codes that Meilisearch shares are explained.
const MEILISEARCH_DOCS: &str = "https://docs.meilisearch.com/errors";
/// Where the gateway's own codes are explained.
const OWN_DOCS: &str = "https://docs.torc.dev/documents/errors";
/// Seconds a client should wait after a 503.
const RETRY_AFTER_SECS: &str = "10";

/// Every code with its status and type, the one place that relates them.
const CODES: &[(&str, u16, &str)] = &[
    ("bad_request", 400, "invalid_request"),
    ("document_not_found", 404, "invalid_request"),
    ("index_already_exists", 409, "invalid_request"),
    ("index_not_found", 404, "invalid_request"),
    ("index_primary_key_already_exists", 400, "invalid_request"),
    ("index_primary_key_multiple_candidates_found", 400, "invalid_request"),
    ("index_primary_key_no_candidate_found", 400, "invalid_request"),
    ("internal", 500, "internal"),
    ("invalid_api_key", 403, "auth"),
    ("invalid_batch_uids", 400, "invalid_request"),
    ("invalid_content_type", 415, "invalid_request"),
    ("invalid_document_csv_delimiter", 400, "invalid_request"),
    ("invalid_document_fields", 400, "invalid_request"),
    ("invalid_document_filter", 400, "invalid_request"),
    ("invalid_document_id", 400, "invalid_request"),
    ("invalid_document_ids", 400, "invalid_request"),
    ("invalid_document_limit", 400, "invalid_request"),
    ("invalid_document_offset", 400, "invalid_request"),
    ("invalid_document_retrieve_vectors", 400, "invalid_request"),
    ("invalid_facet_search_facet_name", 400, "invalid_request"),
    ("invalid_index_limit", 400, "invalid_request"),
    ("invalid_index_offset", 400, "invalid_request"),
    ("invalid_index_primary_key", 400, "invalid_request"),
    ("invalid_index_uid", 400, "invalid_request"),
    ("invalid_search_filter", 400, "invalid_request"),
    ("invalid_search_hits_per_page", 400, "invalid_request"),
    ("invalid_search_limit", 400, "invalid_request"),
    ("invalid_search_offset", 400, "invalid_request"),
    ("invalid_search_page", 400, "invalid_request"),
    ("invalid_search_sort", 400, "invalid_request"),
    ("invalid_settings_filterable_attributes", 400, "invalid_request"),
    ("invalid_task_after_enqueued_at", 400, "invalid_request"),
    ("invalid_task_after_finished_at", 400, "invalid_request"),
    ("invalid_task_after_started_at", 400, "invalid_request"),
    ("invalid_task_before_enqueued_at", 400, "invalid_request"),
    ("invalid_task_before_finished_at", 400, "invalid_request"),
    ("invalid_task_before_started_at", 400, "invalid_request"),
    ("invalid_task_canceled_by", 400, "invalid_request"),
    ("invalid_task_from", 400, "invalid_request"),
    ("invalid_task_limit", 400, "invalid_request"),
    ("invalid_task_reverse", 400, "invalid_request"),
    ("invalid_task_statuses", 400, "invalid_request"),
    ("invalid_task_types", 400, "invalid_request"),
    ("invalid_task_uids", 400, "invalid_request"),
    ("malformed_payload", 400, "invalid_request"),
    ("miroir_alias_not_found", 404, "invalid_request"),
    ("miroir_idempotency_key_reused", 409, "invalid_request"),
    ("miroir_invalid_alias", 400, "invalid_request"),
    ("miroir_invalid_auth", 401, "auth"),
    ("miroir_invalid_idempotency_key", 400, "invalid_request"),
    ("miroir_migration_conflict", 409, "invalid_request"),
    ("miroir_multi_alias_not_writable", 409, "invalid_request"),
    ("miroir_no_quorum", 503, "system"),
    ("miroir_not_supported", 501, "invalid_request"),
    ("miroir_overloaded", 503, "system"),
    ("miroir_primary_key_required", 400, "invalid_request"),
    ("miroir_reserved_field", 400, "invalid_request"),
    ("miroir_shard_unavailable", 503, "system"),
    ("miroir_state_unavailable", 503, "system"),
    ("miroir_timeout", 504, "system"),
    ("missing_authorization_header", 401, "auth"),
    ("missing_content_type", 415, "invalid_request"),
    ("missing_document_filter", 400, "invalid_request"),
    ("missing_document_id", 400, "invalid_request"),
    ("missing_facet_search_facet_name", 400, "invalid_request"),
    ("missing_index_uid", 400, "invalid_request"),
    ("missing_payload", 400, "invalid_request"),
    ("payload_too_large", 413, "invalid_request"),
    ("task_not_found", 404, "invalid_request"),
];

/// An error with one of the known codes.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{code}: {message}")]
pub struct ApiError {
    /// The stable code.
    pub code: &'static str,
    /// What happened, for people.
    pub message: String,
}

impl ApiError {
    /// An error with a code of the table above; another code is a programming error and shows as
    /// `internal`.
    pub fn new(code: &'static str, message: impl Into<String>) -> ApiError {
        debug_assert!(CODES.iter().any(|(known, ..)| *known == code), "unknown code {code}");
        ApiError { code, message: message.into() }
    }

    /// The HTTP status that belongs to the code.
    pub fn status(&self) -> StatusCode {
        StatusCode::from_u16(self.entry().1).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
    }

    /// The JSON body.
    pub fn body(&self) -> Value {
        let (code, _, kind) = self.entry();
        let docs = if code.starts_with("miroir_") { OWN_DOCS } else { MEILISEARCH_DOCS };
        json!({"message": self.message, "code": code, "type": kind,
            "link": format!("{docs}#{code}")})
    }

    fn entry(&self) -> (&'static str, u16, &'static str) {
        let known = CODES.iter().find(|(code, ..)| *code == self.code);
        known.copied().unwrap_or(("internal", 500, "internal"))
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let status = self.status();
        let mut response = json_response(status, self.body().to_string());
        if status == StatusCode::SERVICE_UNAVAILABLE {
            let wait = HeaderValue::from_static(RETRY_AFTER_SECS);
            response.headers_mut().insert(RETRY_AFTER, wait);
        }
        response
    }
}

impl From<DocumentError> for ApiError {
    fn from(error: DocumentError) -> ApiError {
        ApiError::new(error.code(), error.to_string())
    }
}

impl From<SearchError> for ApiError {
    fn from(error: SearchError) -> ApiError {
        ApiError::new(error.code, error.message)
    }
}

/// Why a request is not answered with success.
#[derive(Clone, Debug)]
pub enum Failure {
    /// An error of the gateway.
    Api(ApiError),
    /// A backend's refusal, passed on with its status.
    Forwarded {
        /// The backend's status.
        status: u16,
        /// The backend's body.
        body: Bytes,
    },
}

impl<E: Into<ApiError>> From<E> for Failure {
    fn from(error: E) -> Failure {
        Failure::Api(error.into())
    }
}

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        match self {
            Failure::Api(error) => error.into_response(),
            Failure::Forwarded { status, body } => {
                let status = StatusCode::from_u16(status).unwrap_or(StatusCode::BAD_GATEWAY);
                json_response(status, body)
            }
        }
    }
}

/// A response with a JSON body.
pub(super) fn json_response(status: StatusCode, body: impl Into<axum::body::Body>) -> Response {
    let mut response = Response::new(body.into());
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

/// `index_not_found` as Meilisearch words it.
pub(super) fn index_not_found(uid: &str) -> ApiError {
    ApiError::new("index_not_found", format!("Index `{uid}` not found."))
}

/// `document_not_found` as Meilisearch words it.
pub(super) fn document_not_found(id: &str) -> ApiError {
    ApiError::new("document_not_found", format!("Document `{id}` not found."))
}
