//! Reading: by filter and, where a matcher is given, by words.

use super::Matcher;
use super::engine::check_filter;
use super::filter::Filter;
use super::index::{Document, Index, strings};
use crate::gateway::error::ApiError;
use serde_json::{Map, Value, json};
use std::cmp::Ordering;
use std::collections::BTreeMap;

const NO_TEXT_SEARCH: &str = "this built-in server stores and fetches documents and does not \
                              search text. Set `documents.backends` to the addresses of \
                              Meilisearch servers to search";

/// Documents a filter lets through, in stored order.
pub(super) fn filtered<'a>(
    uid: &str,
    index: &'a Index,
    filter: Option<&Value>,
    code: &'static str,
    rendered: bool,
) -> Result<Vec<&'a Document>, ApiError> {
    let filter = match filter {
        None | Some(Value::Null) => return Ok(index.iter().collect()),
        Some(Value::String(text)) if rendered && text.is_empty() => {
            return Ok(index.iter().collect());
        }
        Some(value) => Filter::parse(value).map_err(|e| ApiError::new(code, e))?,
    };
    check_filter(uid, index, &filter, code, rendered)?;
    Ok(index.iter().filter(|document| filter.matches(document)).collect())
}

/// Keeps only the named fields; no names or `*` keep all.
pub(super) fn project(document: &Document, fields: Option<&[String]>) -> Value {
    match fields {
        None => Value::Object(document.clone()),
        Some(names) if names.iter().any(|name| name == "*") => Value::Object(document.clone()),
        Some(names) => {
            let kept = document.iter().filter(|(name, _)| names.contains(name));
            Value::Object(kept.map(|(name, value)| (name.clone(), value.clone())).collect())
        }
    }
}

struct Hit<'a> {
    document: &'a Document,
    score: f64,
}

/// Answers `POST search`.
pub(super) fn search(
    uid: &str,
    index: &Index,
    body: &Map<String, Value>,
    matcher: Option<Matcher>,
) -> Result<Value, ApiError> {
    let query = body.get("q").and_then(Value::as_str).unwrap_or_default();
    let documents = filtered(uid, index, body.get("filter"), "invalid_search_filter", true)?;
    let mut hits = matching(&documents, query, matcher)?;
    let sort = strings(body.get("sort"));
    check_sort(uid, index, &sort)?;
    hits.sort_by(|a, b| {
        let by_score = b.score.total_cmp(&a.score);
        by_score.then_with(|| compare_by(&sort, a.document, b.document))
    });
    let number = |name: &str| body.get(name).and_then(Value::as_u64).map(|n| n as usize);
    let total = hits.len();
    let mut answer = Map::new();
    let (offset, limit) = match (number("page"), number("hitsPerPage")) {
        (None, None) => {
            let (offset, limit) = (number("offset").unwrap_or(0), number("limit").unwrap_or(20));
            answer.insert("limit".into(), json!(limit));
            answer.insert("offset".into(), json!(offset));
            answer.insert("estimatedTotalHits".into(), json!(total));
            (offset, limit)
        }
        (page, per_page) => {
            let (page, per_page) = (page.unwrap_or(1), per_page.unwrap_or(20));
            let pages = if per_page == 0 { 0 } else { total.div_ceil(per_page) };
            answer.insert("hitsPerPage".into(), json!(per_page));
            answer.insert("page".into(), json!(page));
            answer.insert("totalPages".into(), json!(pages));
            answer.insert("totalHits".into(), json!(total));
            if page == 0 { (0, 0) } else { ((page - 1).saturating_mul(per_page), per_page) }
        }
    };
    let shown: Vec<Value> =
        hits.iter().skip(offset).take(limit).map(|hit| show(hit, body, &sort)).collect();
    answer.insert("hits".into(), json!(shown));
    answer.insert("query".into(), json!(query));
    answer.insert("processingTimeMs".into(), json!(0));
    answer.insert("requestUid".into(), json!(null));
    if let Some(facets) = body.get("facets") {
        let (counts, ranges) = facet_counts(&hits, &strings(Some(facets)));
        answer.insert("facetDistribution".into(), json!(counts));
        answer.insert("facetStats".into(), json!(ranges));
    }
    Ok(Value::Object(answer))
}

fn matching<'a>(
    documents: &[&'a Document],
    query: &str,
    matcher: Option<Matcher>,
) -> Result<Vec<Hit<'a>>, ApiError> {
    if query.trim().is_empty() {
        return Ok(documents.iter().map(|document| Hit { document, score: 1.0 }).collect());
    }
    let Some(matcher) = matcher else {
        return Err(ApiError::new("bad_request", NO_TEXT_SEARCH));
    };
    let scored = documents.iter().filter_map(|document| {
        let score = matcher(document, query)?;
        Some(Hit { document, score })
    });
    Ok(scored.collect())
}

fn check_sort(uid: &str, index: &Index, sort: &[String]) -> Result<(), ApiError> {
    let sortable = strings(index.settings.get("sortableAttributes"));
    for rule in sort {
        let known = rule
            .rsplit_once(':')
            .is_some_and(|(name, _)| sortable.iter().any(|attribute| attribute == name));
        if !known {
            let name = rule.split(':').next().unwrap_or_default();
            let message = format!("Index `{uid}`: Attribute `{name}` is not sortable.");
            return Err(ApiError::new("invalid_search_sort", message));
        }
    }
    Ok(())
}

fn compare_by(sort: &[String], a: &Document, b: &Document) -> Ordering {
    for rule in sort {
        let Some((name, direction)) = rule.rsplit_once(':') else { continue };
        let order = match (a.get(name), b.get(name)) {
            (Some(a), Some(b)) => {
                let order = match (a.as_f64(), b.as_f64()) {
                    (Some(a), Some(b)) => a.total_cmp(&b),
                    _ => a.to_string().cmp(&b.to_string()),
                };
                if direction == "desc" { order.reverse() } else { order }
            }
            (Some(_), None) => Ordering::Less,
            (None, Some(_)) => Ordering::Greater,
            (None, None) => Ordering::Equal,
        };
        if order != Ordering::Equal {
            return order;
        }
    }
    Ordering::Equal
}

fn show(hit: &Hit<'_>, body: &Map<String, Value>, sort: &[String]) -> Value {
    let names = body.get("attributesToRetrieve").map(|names| strings(Some(names)));
    let mut shown = project(hit.document, names.as_deref());
    if body.get("showRankingScore") == Some(&Value::Bool(true)) {
        shown["_rankingScore"] = json!(hit.score);
    }
    if body.get("showRankingScoreDetails") == Some(&Value::Bool(true)) {
        let mut details = json!({"words": {"order": 0, "score": hit.score}});
        for (i, rule) in sort.iter().enumerate() {
            let name = rule.rsplit_once(':').map_or(rule.as_str(), |(name, _)| name);
            details[rule] = json!({"order": i + 1, "value": hit.document.get(name)});
        }
        shown["_rankingScoreDetails"] = details;
    }
    shown
}

/// Answers `POST facet-search`: values that begin with the query, in the order of their letters.
pub(super) fn facet_search(
    uid: &str,
    index: &Index,
    body: &Map<String, Value>,
) -> Result<Value, ApiError> {
    let text = |name: &str| body.get(name).and_then(Value::as_str).unwrap_or_default();
    let (facet, query) = (text("facetName"), text("facetQuery").to_lowercase());
    if !index.filterable().iter().any(|name| name == facet) {
        let message = format!("Index `{uid}`: Attribute `{facet}` is not facet-searchable.");
        return Err(ApiError::new("invalid_facet_search_facet_name", message));
    }
    let documents = filtered(uid, index, body.get("filter"), "invalid_search_filter", true)?;
    let hits = matching(&documents, "", None)?;
    let (counts, _) = facet_counts(&hits, &[facet.to_owned()]);
    let found = counts.into_values().flatten();
    let mut found: Vec<_> =
        found.filter(|(value, _)| value.to_lowercase().starts_with(&query)).collect();
    found.sort_by_key(|(value, _)| value.to_lowercase());
    let faceting = index.settings.get("faceting").unwrap_or(&Value::Null);
    found.truncate(faceting["maxValuesPerFacet"].as_u64().unwrap_or(100) as usize);
    let hits: Vec<Value> =
        found.iter().map(|(value, count)| json!({"value": value, "count": count})).collect();
    Ok(json!({"facetHits": hits, "facetQuery": body.get("facetQuery"), "processingTimeMs": 0}))
}

type Counts = BTreeMap<String, BTreeMap<String, u64>>;

fn facet_counts(hits: &[Hit<'_>], facets: &[String]) -> (Counts, Map<String, Value>) {
    let mut counts = Counts::new();
    let mut ranges = Map::new();
    for facet in facets {
        let values = counts.entry(facet.clone()).or_default();
        let mut numbers: Vec<f64> = Vec::new();
        for hit in hits {
            match hit.document.get(facet) {
                Some(Value::String(text)) => *values.entry(text.clone()).or_default() += 1,
                Some(Value::Number(n)) => {
                    *values.entry(n.to_string()).or_default() += 1;
                    numbers.extend(n.as_f64());
                }
                _ => {}
            }
        }
        let least = numbers.iter().copied().reduce(f64::min);
        let most = numbers.iter().copied().reduce(f64::max);
        if let (Some(min), Some(max)) = (least, most) {
            ranges.insert(facet.clone(), json!({"min": min, "max": max}));
        }
    }
    (counts, ranges)
}
