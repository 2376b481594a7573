//! The primary key of a batch and the canonical id of a document.
//!
//! Parity: Meilisearch infers the only field whose lower-cased name ends in `id`, and fails the
//! task for a bad id after accepting the batch. Here the key is one of four names and every id is
//! checked before anything is sent, because a failure on some backends only would split a batch.

use super::error::DocumentError;
use std::borrow::Cow;

/// Names tried on the first document when nothing else names the key, in this order.
pub const CANDIDATES: [&str; 4] = ["id", "pk", "key", "_id"];
/// Longest document id in bytes.
pub const ID_BYTES_MAX: usize = 511;

/// The primary key of a write: the index's own, else the one the request names, else the first of
/// [`CANDIDATES`] that `first_has` says the first document has.
pub fn resolve(
    index_key: Option<&str>,
    requested: Option<&str>,
    first_has: impl Fn(&str) -> bool,
) -> Result<String, DocumentError> {
    if let Some(name) = requested
        && (name.is_empty() || name.contains('.'))
    {
        return Err(DocumentError::InvalidPrimaryKey(name.to_owned()));
    }
    match (index_key, requested) {
        (Some(own), Some(other)) if own != other => {
            Err(DocumentError::PrimaryKeyExists(own.to_owned()))
        }
        (Some(own), _) if own.contains('.') => Err(DocumentError::InvalidPrimaryKey(own.into())),
        (Some(own), _) => Ok(own.to_owned()),
        (None, Some(name)) => Ok(name.to_owned()),
        (None, None) => CANDIDATES
            .iter()
            .find(|name| first_has(name))
            .map(|name| (*name).to_owned())
            .ok_or(DocumentError::NoPrimaryKey),
    }
}

/// What is wrong with the value of a primary key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IdProblem {
    /// It is null, which counts as missing.
    Missing,
    /// It is no id.
    Invalid,
}

/// The canonical id for the JSON text of a primary-key value. `42` and `"42"` are one document.
pub fn canonical_id(json: &str) -> Result<Cow<'_, str>, IdProblem> {
    match json.as_bytes().first() {
        Some(b'"') => {
            let id = unquote(json).ok_or(IdProblem::Invalid)?;
            if is_valid_id(&id) { Ok(id) } else { Err(IdProblem::Invalid) }
        }
        Some(b'-' | b'0'..=b'9') if is_integer(json) => Ok(Cow::Borrowed(json)),
        Some(b'n') => Err(IdProblem::Missing),
        _ => Err(IdProblem::Invalid),
    }
}

/// The text a delete request's id is hashed by: strings as they are, integers as decimal text.
/// Ids that no document can have are allowed, since Meilisearch accepts and ignores them.
/// `None` for JSON that is neither.
pub fn canonical_delete_id(json: &str) -> Option<Cow<'_, str>> {
    match json.as_bytes().first() {
        Some(b'"') => unquote(json),
        Some(b'-' | b'0'..=b'9') if is_integer(json) => Some(Cow::Borrowed(json)),
        _ => None,
    }
}

/// Whether `id` is a legal document id.
pub fn is_valid_id(id: &str) -> bool {
    (1..=ID_BYTES_MAX).contains(&id.len())
        && id.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_')
}

/// An i64 or u64 without fraction or exponent; `-0` is a float to Meilisearch.
fn is_integer(json: &str) -> bool {
    json != "-0"
        && json.bytes().skip(1).all(|b| b.is_ascii_digit())
        && (json.parse::<i64>().is_ok() || json.parse::<u64>().is_ok())
}

fn unquote(json: &str) -> Option<Cow<'_, str>> {
    let inner = json.strip_prefix('"')?.strip_suffix('"')?;
    if !inner.contains('\\') {
        return Some(Cow::Borrowed(inner));
    }
    serde_json::from_str::<String>(json).ok().map(Cow::Owned)
}
