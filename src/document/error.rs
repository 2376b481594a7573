//! Why a document request is refused, with the code a client sees.

use thiserror::Error;

/// The form of a request body, as it is named in messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PayloadKind {
    /// One object or an array of objects.
    Json,
    /// Objects one after another.
    Ndjson,
    /// A header line and records.
    Csv,
}

impl PayloadKind {
    /// The name Meilisearch uses in its messages.
    pub fn as_str(self) -> &'static str {
        match self {
            PayloadKind::Json => "json",
            PayloadKind::Ndjson => "ndjson",
            PayloadKind::Csv => "csv",
        }
    }
}

/// A request the document plane refuses. No backend has seen any of it.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum DocumentError {
    /// No field of the first document can be the primary key.
    #[error(
        "the primary key cannot be determined: the first document has none of the fields \
         `id`, `pk`, `key`, `_id`. Name it with the `primaryKey` query parameter"
    )]
    NoPrimaryKey,
    /// A document lacks the primary key, or its value is null.
    #[error("document {position} has no value for the primary key `{field}`")]
    MissingId {
        /// The primary key.
        field: String,
        /// Position in the request, from 0.
        position: usize,
    },
    /// A client document carries a field that belongs to the gateway.
    #[error("document {position} carries the reserved field `{field}`")]
    Reserved {
        /// The field.
        field: String,
        /// Position in the request, from 0.
        position: usize,
    },
    /// The value of the primary key cannot identify a document.
    #[error(
        "Document identifier `{value}` is invalid (document {position}). A document identifier \
         can be of type integer or string, only composed of alphanumeric characters (a-z A-Z \
         0-9), hyphens (-) and underscores (_), and can not be more than 511 bytes."
    )]
    InvalidId {
        /// The value as it was written, shortened.
        value: String,
        /// Position in the request, from 0.
        position: usize,
    },
    /// The request names another primary key than the index has.
    #[error("Index already has a primary key: `{0}`.")]
    PrimaryKeyExists(String),
    /// The name cannot be a primary key here.
    #[error("`{0}` cannot be the primary key: it is empty or a dotted name")]
    InvalidPrimaryKey(String),
    /// There is no body.
    #[error("A {} payload is missing.", .0.as_str())]
    MissingPayload(PayloadKind),
    /// The body cannot be read as documents.
    #[error("The `{}` payload provided is malformed. `{reason}`.", .kind.as_str())]
    Malformed {
        /// The expected form.
        kind: PayloadKind,
        /// What was wrong, with its place where known.
        reason: String,
    },
    /// The documents are larger than the limit once decoded.
    #[error("the payload exceeds the limit of {0} bytes")]
    TooLarge(usize),
}

impl DocumentError {
    /// The stable code of this refusal.
    pub fn code(&self) -> &'static str {
        match self {
            DocumentError::NoPrimaryKey | DocumentError::MissingId { .. } => {
                "miroir_primary_key_required"
            }
            DocumentError::Reserved { .. } => "miroir_reserved_field",
            DocumentError::InvalidId { .. } => "invalid_document_id",
            DocumentError::PrimaryKeyExists(_) => "index_primary_key_already_exists",
            DocumentError::InvalidPrimaryKey(_) => "invalid_index_primary_key",
            DocumentError::MissingPayload(_) => "missing_payload",
            DocumentError::Malformed { .. } => "malformed_payload",
            DocumentError::TooLarge(_) => "payload_too_large",
        }
    }
}
