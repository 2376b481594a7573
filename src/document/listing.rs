//! Listings over several backends made one page.
//!
//! A backend lists documents in an order of its own, which differs between replicas. Pages are
//! cut from the order of canonical ids over all shards instead, so that a page is the same
//! whichever replicas answer.

use super::object::{field, quoted};
use super::primary_key::canonical_delete_id;
use super::reserved::SHARD_FIELD;
use super::shard::ShardSet;
use super::topology::BackendIdx;
use serde_json::Value;
use std::collections::HashMap;

/// The filter that keeps a backend to the shards it answers for.
pub fn shard_filter(shards: &ShardSet) -> String {
    let numbers: Vec<String> = shards.iter().map(|shard| shard.0.to_string()).collect();
    format!("{SHARD_FIELD} IN [{}]", numbers.join(", "))
}

/// The client's filter AND the shard filter.
pub fn and_shard_filter(client: Option<&Value>, shards: &ShardSet) -> Value {
    let ours = shard_filter(shards);
    match client {
        None | Some(Value::Null) => Value::String(ours),
        Some(Value::String(text)) if text.trim().is_empty() => Value::String(ours),
        Some(Value::String(text)) => Value::String(format!("({text}) AND {ours}")),
        Some(Value::Array(parts)) => {
            let mut parts = parts.clone();
            parts.push(Value::String(ours));
            Value::Array(parts)
        }
        // No filter has this form: the backend says so in its own words.
        Some(other) => other.clone(),
    }
}

/// One listed document: where it is and the JSON text of its id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The id all documents are ordered by.
    pub canonical: String,
    /// The id as the backend wrote it.
    pub raw: String,
    /// Who has it.
    pub backend: BackendIdx,
}

/// Collects the ids of one backend's `results`, each an object that has the primary key.
/// Documents without it are skipped.
pub fn collect_ids<'a>(
    backend: BackendIdx,
    results: impl Iterator<Item = &'a str>,
    primary_key: &str,
    into: &mut Vec<Entry>,
) {
    for document in results {
        let Some(raw) = field(document, primary_key) else { continue };
        let Some(canonical) = canonical_delete_id(raw) else { continue };
        into.push(Entry { canonical: canonical.into_owned(), raw: raw.to_owned(), backend });
    }
}

/// Orders the entries by canonical id, drops repeats and cuts one page.
pub fn page(mut entries: Vec<Entry>, offset: usize, limit: usize) -> (Vec<Entry>, usize) {
    entries.sort_by(|a, b| a.canonical.cmp(&b.canonical));
    entries.dedup_by(|a, b| a.canonical == b.canonical);
    let total = entries.len();
    let page = entries.into_iter().skip(offset).take(limit).collect();
    (page, total)
}

/// The page's documents in the page's order, from what backends returned for its ids. A document
/// that was deleted in between is left out.
pub fn arrange<'a>(
    page: &[Entry],
    documents: impl Iterator<Item = &'a str>,
    primary_key: &str,
) -> Vec<&'a str> {
    let mut by_id = HashMap::new();
    for document in documents {
        if let Some(id) = field(document, primary_key).and_then(canonical_delete_id) {
            by_id.insert(id.into_owned(), document);
        }
    }
    page.iter().filter_map(|entry| by_id.get(&entry.canonical).copied()).collect()
}

/// The ids of `page` that `backend` has, as a JSON array of strings.
pub fn ids_at(page: &[Entry], backend: BackendIdx) -> String {
    let mine = page.iter().filter(|entry| entry.backend == backend);
    let ids: Vec<String> = mine.map(|entry| quoted(&entry.canonical)).collect();
    format!("[{}]", ids.join(","))
}
