//! What a client asks and what each backend is asked.

use crate::document::listing::and_shard_filter;
use crate::document::shard::ShardSet;
use serde_json::{Map, Value, json};
use thiserror::Error;

/// Hits of a page when the request does not say.
const LIMIT_DEFAULT: usize = 20;

/// A search request that cannot be understood.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("{message}")]
pub struct SearchError {
    /// Stable code of the error.
    pub code: &'static str,
    /// What was wrong.
    pub message: String,
}

/// How the client counts hits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Paging {
    /// `offset` and `limit`, estimated total.
    Offset {
        /// Hits skipped.
        offset: usize,
        /// Hits wanted.
        limit: usize,
    },
    /// `page` and `hitsPerPage`, exact total.
    Page {
        /// Page from 1; page 0 has no hits.
        page: usize,
        /// Hits of a page.
        hits_per_page: usize,
    },
}

impl Paging {
    /// The range of merged hits the client gets.
    pub fn range(self) -> (usize, usize) {
        match self {
            Paging::Offset { offset, limit } => (offset, limit),
            Paging::Page { page: 0, .. } => (0, 0),
            Paging::Page { page, hits_per_page } => {
                ((page - 1).saturating_mul(hits_per_page), hits_per_page)
            }
        }
    }
}

/// A client's search.
#[derive(Clone, Debug, PartialEq)]
pub struct SearchRequest {
    body: Map<String, Value>,
    /// How hits are counted and cut.
    pub paging: Paging,
    /// The client wants `_rankingScore`.
    pub wants_score: bool,
    /// The client wants `_rankingScoreDetails`.
    pub wants_details: bool,
}

impl SearchRequest {
    /// Reads the body of `POST search`. An empty body searches for everything.
    ///
    /// # Errors
    /// The body is no JSON object, or paging is no number.
    pub fn from_body(body: &[u8]) -> Result<SearchRequest, SearchError> {
        if body.is_empty() {
            return SearchRequest::from_fields(Map::new());
        }
        match serde_json::from_slice::<Value>(body) {
            Ok(Value::Object(map)) => SearchRequest::from_fields(map),
            Ok(_) => Err(SearchError {
                code: "bad_request",
                message: "Invalid value type: expected an object".to_owned(),
            }),
            Err(e) => Err(SearchError {
                code: "malformed_payload",
                message: format!("The `json` payload provided is malformed. `{e}`."),
            }),
        }
    }

    /// Reads the parameters of `GET search`.
    ///
    /// # Errors
    /// A number or boolean is none, or a parameter is unknown.
    pub fn from_query<'a>(
        query: impl Iterator<Item = (&'a str, &'a str)>,
    ) -> Result<SearchRequest, SearchError> {
        let mut map = Map::new();
        for (name, text) in query {
            let (name, value) = parameter(name, text)?;
            match name.strip_prefix("hybrid") {
                Some("Embedder") => nested(&mut map, "hybrid", "embedder", value),
                Some("SemanticRatio") => nested(&mut map, "hybrid", "semanticRatio", value),
                _ => {
                    map.insert(name.to_owned(), value);
                }
            }
        }
        SearchRequest::from_fields(map)
    }

    /// A search from the fields of its body.
    ///
    /// # Errors
    /// Paging is no number.
    pub fn from_fields(body: Map<String, Value>) -> Result<SearchRequest, SearchError> {
        let number = |name: &str, code| match body.get(name) {
            None | Some(Value::Null) => Ok(None),
            Some(value) => value.as_u64().map(|n| Some(n as usize)).ok_or_else(|| SearchError {
                code,
                message: format!("Invalid value at `.{name}`: expected a positive integer"),
            }),
        };
        let offset = number("offset", "invalid_search_offset")?;
        let limit = number("limit", "invalid_search_limit")?;
        let page = number("page", "invalid_search_page")?;
        let hits_per_page = number("hitsPerPage", "invalid_search_hits_per_page")?;
        let paging = if page.is_some() || hits_per_page.is_some() {
            Paging::Page {
                page: page.unwrap_or(1),
                hits_per_page: hits_per_page.unwrap_or(LIMIT_DEFAULT),
            }
        } else {
            Paging::Offset { offset: offset.unwrap_or(0), limit: limit.unwrap_or(LIMIT_DEFAULT) }
        };
        let flag = |name| body.get(name) == Some(&Value::Bool(true));
        let (wants_score, wants_details) =
            (flag("showRankingScore"), flag("showRankingScoreDetails"));
        Ok(SearchRequest { body, paging, wants_score, wants_details })
    }

    /// The body for a backend that answers for `shards` of an index with this primary key.
    pub fn backend_body(&self, shards: &ShardSet, primary_key: Option<&str>) -> Value {
        let mut body = self.body.clone();
        for name in ["offset", "limit", "page", "hitsPerPage"] {
            body.remove(name);
        }
        let (offset, limit) = self.paging.range();
        let wanted = json!(offset.saturating_add(limit));
        match self.paging {
            Paging::Offset { .. } => {
                body.insert("offset".into(), json!(0));
                body.insert("limit".into(), wanted);
            }
            Paging::Page { .. } => {
                body.insert("page".into(), json!(1));
                body.insert("hitsPerPage".into(), wanted);
            }
        }
        body.insert("showRankingScore".into(), json!(true));
        body.insert("showRankingScoreDetails".into(), json!(true));
        body.insert("filter".into(), and_shard_filter(self.body.get("filter"), shards));
        if let Some(key) = primary_key.filter(|key| self.hides(key))
            && let Some(Value::Array(names)) = body.get_mut("attributesToRetrieve")
        {
            names.push(json!(key));
        }
        Value::Object(body)
    }

    /// Whether the client's list of attributes leaves the primary key out. It is asked for all
    /// the same, to order equal hits, and taken out of the answer.
    pub fn hides(&self, primary_key: &str) -> bool {
        match self.body.get("attributesToRetrieve") {
            Some(Value::Array(names)) => {
                !names.iter().any(|name| name == primary_key || name == "*")
            }
            _ => false,
        }
    }

    /// A text that is equal for all pages of one search: the replica choice depends on it.
    pub fn identity(&self) -> String {
        let mut body = self.body.clone();
        for name in ["offset", "limit", "page", "hitsPerPage"] {
            body.remove(name);
        }
        Value::Object(body).to_string()
    }
}

fn nested(map: &mut Map<String, Value>, outer: &str, inner: &str, value: Value) {
    let entry = map.entry(outer).or_insert_with(|| json!({}));
    if let Value::Object(object) = entry {
        object.insert(inner.to_owned(), value);
    }
}

/// A query parameter as the value `POST search` takes.
fn parameter<'a>(name: &'a str, text: &str) -> Result<(&'a str, Value), SearchError> {
    let value = match name {
        "q" | "highlightPreTag" | "highlightPostTag" | "cropMarker" | "matchingStrategy"
        | "distinct" | "hybridEmbedder" => json!(text),
        "filter" => match serde_json::from_str::<Value>(text) {
            Ok(Value::Array(parts)) => Value::Array(parts),
            _ => json!(text),
        },
        "attributesToRetrieve"
        | "attributesToCrop"
        | "attributesToHighlight"
        | "sort"
        | "facets"
        | "attributesToSearchOn"
        | "locales" => {
            json!(text.split(',').map(str::trim).collect::<Vec<_>>())
        }
        "vector" => {
            let numbers: Result<Vec<f64>, _> = text.split(',').map(|n| n.trim().parse()).collect();
            json!(numbers.map_err(|_| bad_parameter(name, text))?)
        }
        "offset" | "limit" | "page" | "hitsPerPage" | "cropLength" => {
            json!(text.parse::<usize>().map_err(|_| bad_parameter(name, text))?)
        }
        "rankingScoreThreshold" | "hybridSemanticRatio" => {
            json!(text.parse::<f64>().map_err(|_| bad_parameter(name, text))?)
        }
        "showMatchesPosition"
        | "showRankingScore"
        | "showRankingScoreDetails"
        | "retrieveVectors" => json!(text.parse::<bool>().map_err(|_| bad_parameter(name, text))?),
        _ => {
            let message = format!("Unknown parameter `{name}`");
            return Err(SearchError { code: "bad_request", message });
        }
    };
    Ok((name, value))
}

fn bad_parameter(name: &str, text: &str) -> SearchError {
    let code = match name {
        "offset" => "invalid_search_offset",
        "limit" => "invalid_search_limit",
        "page" => "invalid_search_page",
        "hitsPerPage" => "invalid_search_hits_per_page",
        _ => "bad_request",
    };
    SearchError { code, message: format!("Invalid value in parameter `{name}`: `{text}`") }
}
