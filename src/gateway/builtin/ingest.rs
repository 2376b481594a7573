//! Request bodies to documents, with Meilisearch's refusals.

use super::index::Document;
use crate::document::batch::Format;
use crate::document::csv;
use crate::document::error::DocumentError;
use crate::gateway::error::ApiError;
use serde_json::value::RawValue;

/// The documents of a body.
pub(super) fn documents(format: Format, body: &[u8]) -> Result<Vec<Document>, ApiError> {
    let kind = format.kind();
    if body.is_empty() {
        return Err(DocumentError::MissingPayload(kind).into());
    }
    let malformed = |reason: String| ApiError::from(DocumentError::Malformed { kind, reason });
    let text = std::str::from_utf8(body).map_err(|e| malformed(e.to_string()))?;
    match format {
        Format::Json => json(text).map_err(malformed)?.into_iter().map(object).collect(),
        Format::Ndjson => serde_json::Deserializer::from_str(text)
            .into_iter::<&RawValue>()
            .map(|value| object(value.map_err(|e| malformed(e.to_string()))?.get()))
            .collect(),
        Format::Csv(delimiter) => {
            let (text, spans) = csv::to_objects(text, delimiter, u32::MAX as usize)?;
            let objects = spans.iter().map(|s| &text[s.start as usize..s.end as usize]);
            objects.map(object).collect()
        }
    }
}

fn json(text: &str) -> Result<Vec<&str>, String> {
    let prefix = "Couldn't serialize document value: ";
    let show = |e: serde_json::Error| format!("{prefix}{e}");
    match text.trim_start().as_bytes().first() {
        Some(b'[') => {
            let values: Vec<&RawValue> = serde_json::from_str(text).map_err(show)?;
            Ok(values.into_iter().map(RawValue::get).collect())
        }
        Some(b'{') => {
            let value: &RawValue = serde_json::from_str(text).map_err(show)?;
            Ok(vec![value.get()])
        }
        _ => {
            serde_json::from_str::<&RawValue>(text).map_err(show)?;
            Err(format!("{prefix}data are neither an object nor a list of objects"))
        }
    }
}

/// Meilisearch answers 500 for an element that is no object, and so does this server.
fn object(text: &str) -> Result<Document, ApiError> {
    serde_json::from_str(text).map_err(|e| ApiError::new("internal", e.to_string()))
}
