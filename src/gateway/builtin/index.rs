//! One index: documents in the order they came, and settings.

use super::filter::Filter;
use super::settings;
use crate::document::primary_key::canonical_id;
use crate::gateway::error::ApiError;
use serde_json::{Map, Value};
use std::collections::{BTreeMap, HashMap};

pub(super) type Document = Map<String, Value>;

/// Documents under one uid.
#[derive(Clone, Debug)]
pub(super) struct Index {
    pub(super) created_us: u64,
    pub(super) updated_us: u64,
    pub(super) primary_key: Option<String>,
    pub(super) settings: Map<String, Value>,
    places: HashMap<String, u64>,
    documents: BTreeMap<u64, Document>,
    next_place: u64,
}

impl Index {
    pub(super) fn new(primary_key: Option<String>, now_us: u64) -> Index {
        Index {
            created_us: now_us,
            updated_us: now_us,
            primary_key,
            settings: settings::defaults(),
            places: HashMap::new(),
            documents: BTreeMap::new(),
            next_place: 0,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.documents.len()
    }

    pub(super) fn get(&self, id: &str) -> Option<&Document> {
        self.documents.get(self.places.get(id)?)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Document> {
        self.documents.values()
    }

    /// Stores all documents or none. `merge` keeps the fields a stored document has beyond the
    /// new ones.
    pub(super) fn add(
        &mut self,
        documents: Vec<Document>,
        requested_key: Option<String>,
        merge: bool,
    ) -> Result<usize, ApiError> {
        let key = self.key_for(requested_key, documents.first())?;
        let mut ids = Vec::with_capacity(documents.len());
        for document in &documents {
            ids.push(document_id(document, key.as_deref().unwrap_or_default())?);
        }
        let count = documents.len();
        self.primary_key = self.primary_key.take().or(key);
        for (document, id) in documents.into_iter().zip(ids) {
            let place = *self.places.entry(id).or_insert_with(|| {
                self.next_place += 1;
                self.next_place
            });
            let stored = self.documents.entry(place).or_default();
            if merge {
                stored.extend(document);
            } else {
                *stored = document;
            }
        }
        Ok(count)
    }

    fn key_for(
        &self,
        requested: Option<String>,
        first: Option<&Document>,
    ) -> Result<Option<String>, ApiError> {
        match (&self.primary_key, requested) {
            (Some(own), Some(other)) if *own != other => Err(ApiError::new(
                "index_primary_key_already_exists",
                format!("Index already has a primary key: `{own}`."),
            )),
            (Some(own), _) => Ok(Some(own.clone())),
            (None, Some(key)) => Ok(Some(key)),
            (None, None) => first.map(infer_primary_key).transpose(),
        }
    }

    /// Removes documents by id; the number that existed.
    pub(super) fn remove(&mut self, ids: &[String]) -> usize {
        let places: Vec<u64> = ids.iter().filter_map(|id| self.places.remove(id)).collect();
        places.iter().filter(|place| self.documents.remove(place).is_some()).count()
    }

    /// Removes the documents a filter matches; their number.
    pub(super) fn remove_matching(&mut self, filter: &Filter) -> usize {
        let before = self.documents.len();
        self.documents.retain(|_, document| !filter.matches(document));
        let documents = &self.documents;
        self.places.retain(|_, place| documents.contains_key(place));
        before - self.documents.len()
    }

    /// Removes everything; the number of documents there were.
    pub(super) fn clear(&mut self) -> usize {
        self.places.clear();
        std::mem::take(&mut self.documents).len()
    }

    /// The attributes a filter may name.
    pub(super) fn filterable(&self) -> Vec<String> {
        strings(self.settings.get("filterableAttributes"))
    }

    /// How many documents have each field.
    pub(super) fn field_distribution(&self) -> BTreeMap<&str, u64> {
        let mut counts = BTreeMap::new();
        for name in self.documents.values().flat_map(|document| document.keys()) {
            *counts.entry(name.as_str()).or_default() += 1;
        }
        counts
    }
}

pub(super) fn strings(value: Option<&Value>) -> Vec<String> {
    let items = value.and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    items.iter().filter_map(|item| item.as_str().map(str::to_owned)).collect()
}

fn document_id(document: &Document, key: &str) -> Result<String, ApiError> {
    let Some(value) = document.get(key) else {
        let shown = Value::Object(document.clone());
        let message = format!("Document doesn't have a `{key}` attribute: `{shown}`.");
        return Err(ApiError::new("missing_document_id", message));
    };
    let text = value.to_string();
    canonical_id(&text).map(|id| id.into_owned()).map_err(|_| {
        let message = format!(
            "Document identifier `{value}` is invalid. A document identifier can be of type \
             integer or string, only composed of alphanumeric characters (a-z A-Z 0-9), hyphens \
             (-) and underscores (_), and can not be more than 511 bytes."
        );
        ApiError::new("invalid_document_id", message)
    })
}

/// Meilisearch's own rule: the only field whose lower-cased name ends in `id`.
fn infer_primary_key(first: &Document) -> Result<String, ApiError> {
    let mut candidates = first.keys().filter(|name| name.to_lowercase().ends_with("id"));
    let advice = "Please specify the primary key manually using the `primaryKey` query parameter.";
    match (candidates.next(), candidates.next()) {
        (Some(only), None) => Ok(only.clone()),
        (None, _) => Err(ApiError::new(
            "index_primary_key_no_candidate_found",
            format!(
                "The primary key inference failed as the engine did not find any field ending \
                 with `id` in its name. {advice}"
            ),
        )),
        (Some(a), Some(b)) => {
            let count = 2 + candidates.count();
            Err(ApiError::new(
                "index_primary_key_multiple_candidates_found",
                format!(
                    "The primary key inference failed as the engine found {count} fields ending \
                     with `id` in their names: '{a}' and '{b}'. {advice}"
                ),
            ))
        }
    }
}
