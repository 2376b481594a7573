//! Backends' answers to one search made one answer.

use super::request::{Paging, SearchRequest};
use crate::document::object;
use crate::document::primary_key::canonical_delete_id;
use crate::document::reserved::Reserved;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};
use std::cmp::Ordering;
use std::collections::BTreeMap;
use thiserror::Error;

const SCORE: &str = "_rankingScore";
const DETAILS: &str = "_rankingScoreDetails";
const FORMATTED: &str = "_formatted";

/// A backend's answer to a search has not the expected form.
#[derive(Debug, Error)]
#[error("a backend's search answer cannot be read: {0}")]
pub struct MergeError(#[from] serde_json::Error);

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Answer<'a> {
    #[serde(borrow)]
    hits: Vec<&'a RawValue>,
    #[serde(default)]
    processing_time_ms: u64,
    estimated_total_hits: Option<u64>,
    total_hits: Option<u64>,
    facet_distribution: Option<BTreeMap<String, BTreeMap<String, u64>>>,
    facet_stats: Option<BTreeMap<String, Range>>,
    semantic_hit_count: Option<u64>,
    query: Option<Value>,
    request_uid: Option<Value>,
}

#[derive(Clone, Deserialize, serde::Serialize)]
struct Range {
    min: serde_json::Number,
    max: serde_json::Number,
}

struct Hit<'a> {
    text: &'a str,
    rules: Vec<Rule>,
    score: f64,
    rank: usize,
    id: String,
}

struct Rule {
    order: u64,
    name: String,
    value: Value,
}

/// The merged answer for `request`, from the texts of the backends' answers.
///
/// # Errors
/// An answer is no search result.
pub fn merge(
    request: &SearchRequest,
    answers: &[&str],
    primary_key: Option<&str>,
    reserved: &Reserved,
) -> Result<String, MergeError> {
    let answers = answers
        .iter()
        .map(|text| serde_json::from_str::<Answer<'_>>(text))
        .collect::<Result<Vec<_>, _>>()?;
    let mut hits: Vec<Hit<'_>> = Vec::new();
    for answer in &answers {
        for (rank, raw) in answer.hits.iter().enumerate() {
            hits.push(read_hit(raw.get(), rank, primary_key));
        }
    }
    hits.sort_by(compare);
    let (offset, limit) = request.paging.range();
    let shown: Vec<String> = hits
        .iter()
        .skip(offset)
        .take(limit)
        .map(|hit| show(hit.text, request, primary_key, reserved))
        .collect();
    let rest = summary(request, &answers);
    let mut members = vec![("hits".to_owned(), format!("[{}]", shown.join(",")))];
    members.extend(rest.into_iter().map(|(name, value)| (name, value.to_string())));
    Ok(object::compose(members.iter().map(|(name, value)| (name.as_str(), value.as_str()))))
}

fn read_hit<'a>(text: &'a str, rank: usize, primary_key: Option<&str>) -> Hit<'a> {
    let mut hit = Hit { text, rules: Vec::new(), score: 0.0, rank, id: String::new() };
    // A hit that cannot be read keeps its rank and sorts by it alone.
    let _ = object::fields(text, |name, value| {
        if name == SCORE {
            hit.score = value.parse().unwrap_or(0.0);
        } else if name == DETAILS {
            hit.rules = rules(value);
        } else if Some(name.as_ref()) == primary_key {
            hit.id = canonical_delete_id(value).unwrap_or_default().into_owned();
        }
    });
    hit
}

fn rules(details: &str) -> Vec<Rule> {
    let Ok(map) = serde_json::from_str::<Map<String, Value>>(details) else { return Vec::new() };
    let mut rules: Vec<Rule> = map
        .into_iter()
        .filter_map(|(name, value)| {
            let order = value.get("order")?.as_u64()?;
            Some(Rule { order, name, value })
        })
        .collect();
    rules.sort_by_key(|rule| rule.order);
    rules
}

/// Better hits first.
fn compare(a: &Hit<'_>, b: &Hit<'_>) -> Ordering {
    for (a, b) in a.rules.iter().zip(&b.rules) {
        if a.name != b.name {
            break;
        }
        let order = compare_rule(&a.name, &a.value, &b.value);
        if order != Ordering::Equal {
            return order;
        }
    }
    b.score.total_cmp(&a.score).then_with(|| a.rank.cmp(&b.rank)).then_with(|| a.id.cmp(&b.id))
}

/// One ranking rule: by score where it has one, else by the value that was sorted by.
fn compare_rule(name: &str, a: &Value, b: &Value) -> Ordering {
    if let (Some(a), Some(b)) = (number(a, "score"), number(b, "score")) {
        return b.total_cmp(&a);
    }
    let descending = name.ends_with(":desc");
    if let (Some(a), Some(b)) = (number(a, "distance"), number(b, "distance")) {
        return directed(a.total_cmp(&b), descending);
    }
    let (a, b) = (a.get("value"), b.get("value"));
    // Numbers stand before text, both before nothing, in either direction.
    match (class(a), class(b)) {
        (x, y) if x != y => x.cmp(&y),
        _ => directed(compare_values(a, b), descending),
    }
}

fn number(details: &Value, field: &str) -> Option<f64> {
    details.get(field)?.as_f64()
}

fn class(value: Option<&Value>) -> u8 {
    match value {
        Some(Value::Number(_)) => 0,
        Some(Value::String(_)) => 1,
        _ => 2,
    }
}

fn compare_values(a: Option<&Value>, b: Option<&Value>) -> Ordering {
    match (a, b) {
        (Some(Value::Number(a)), Some(Value::Number(b))) => {
            a.as_f64().unwrap_or(0.0).total_cmp(&b.as_f64().unwrap_or(0.0))
        }
        (Some(Value::String(a)), Some(Value::String(b))) => a.to_lowercase().cmp(&b.to_lowercase()),
        _ => Ordering::Equal,
    }
}

fn directed(order: Ordering, descending: bool) -> Ordering {
    if descending { order.reverse() } else { order }
}

/// The hit as the client sees it.
fn show(
    text: &str,
    request: &SearchRequest,
    primary_key: Option<&str>,
    reserved: &Reserved,
) -> String {
    let hidden_key = primary_key.filter(|key| request.hides(key));
    let hidden = |name: &str| reserved.contains(name) || Some(name) == hidden_key;
    let mut kept = Vec::new();
    let read = object::fields(text, |name, value| {
        let drop = hidden(&name)
            || (name == SCORE && !request.wants_score)
            || (name == DETAILS && !request.wants_details);
        if !drop {
            let value =
                if name == FORMATTED { object::without(value, hidden) } else { value.into() };
            kept.push((name, value));
        }
    });
    if read.is_err() {
        return text.to_owned();
    }
    object::compose(kept.iter().map(|(name, value)| (name.as_ref(), value.as_ref())))
}

/// Everything of the answer but its hits.
fn summary(request: &SearchRequest, answers: &[Answer<'_>]) -> Vec<(String, Value)> {
    let sum = |count: fn(&Answer<'_>) -> Option<u64>| answers.iter().filter_map(count).sum::<u64>();
    let first = |field: fn(&Answer<'_>) -> Option<Value>| answers.iter().find_map(field);
    let time = answers.iter().map(|a| a.processing_time_ms).max().unwrap_or(0);
    let mut out = vec![
        ("query".to_owned(), first(|a| a.query.clone()).unwrap_or(json!(""))),
        ("processingTimeMs".to_owned(), json!(time)),
    ];
    let mut put = |name: &str, value: Value| out.push((name.to_owned(), value));
    match request.paging {
        Paging::Offset { offset, limit } => {
            put("limit", json!(limit));
            put("offset", json!(offset));
            put("estimatedTotalHits", json!(sum(|a| a.estimated_total_hits)));
        }
        Paging::Page { page, hits_per_page } => {
            let total = sum(|a| a.total_hits);
            put("hitsPerPage", json!(hits_per_page));
            put("page", json!(page));
            let pages = total
                .checked_div(hits_per_page as u64)
                .map_or(0, |whole| whole + u64::from(total % hits_per_page as u64 != 0));
            put("totalPages", json!(pages));
            put("totalHits", json!(total));
        }
    }
    if let Some(facets) = facet_counts(answers) {
        put("facetDistribution", facets);
    }
    if let Some(stats) = facet_ranges(answers) {
        put("facetStats", stats);
    }
    if answers.iter().any(|a| a.semantic_hit_count.is_some()) {
        put("semanticHitCount", json!(sum(|a| a.semantic_hit_count)));
    }
    if let Some(uid) = first(|a| a.request_uid.clone()) {
        put("requestUid", uid);
    }
    out
}

fn facet_counts(answers: &[Answer<'_>]) -> Option<Value> {
    let mut merged: Option<BTreeMap<String, BTreeMap<String, u64>>> = None;
    for facets in answers.iter().filter_map(|a| a.facet_distribution.as_ref()) {
        let merged = merged.get_or_insert_default();
        for (facet, counts) in facets {
            let into = merged.entry(facet.clone()).or_default();
            for (value, count) in counts {
                *into.entry(value.clone()).or_default() += count;
            }
        }
    }
    merged.map(|merged| json!(merged))
}

fn facet_ranges(answers: &[Answer<'_>]) -> Option<Value> {
    let mut merged: Option<BTreeMap<String, Range>> = None;
    let value = |n: &serde_json::Number| n.as_f64().unwrap_or(0.0);
    for stats in answers.iter().filter_map(|a| a.facet_stats.as_ref()) {
        let merged = merged.get_or_insert_default();
        for (facet, range) in stats {
            let into = merged.entry(facet.clone()).or_insert_with(|| range.clone());
            if value(&range.min) < value(&into.min) {
                into.min = range.min.clone();
            }
            if value(&range.max) > value(&into.max) {
                into.max = range.max.clone();
            }
        }
    }
    merged.map(|merged| json!(merged))
}
