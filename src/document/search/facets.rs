//! Backends' answers to one search for the values of a facet made one answer.

use super::merge::MergeError;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// Values of an answer when the index does not say.
const VALUES_DEFAULT: usize = 100;

/// What the `faceting` setting of an index says of one facet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Faceting {
    /// The values with most documents come first, else they are in the order of their letters.
    pub by_count: bool,
    /// Most values of an answer.
    pub values_max: usize,
}

impl Faceting {
    /// Reads the setting. What it does not say is as in a fresh index.
    pub fn of(setting: &Value, facet: &str) -> Faceting {
        let order = setting.get("sortFacetValuesBy");
        let order = order.and_then(|by| by.get(facet).or(by.get("*"))).and_then(Value::as_str);
        let most = setting.get("maxValuesPerFacet").and_then(Value::as_u64);
        Faceting {
            by_count: order == Some("count"),
            values_max: most.map_or(VALUES_DEFAULT, |most| most as usize),
        }
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Answer {
    facet_hits: Vec<FacetHit>,
    #[serde(default)]
    facet_query: Value,
    #[serde(default)]
    processing_time_ms: u64,
}

#[derive(Deserialize, Serialize)]
struct FacetHit {
    value: String,
    count: u64,
}

/// The merged answer, from the texts of the backends' answers. Each backend sends the first
/// values of its own documents; in the order of letters the first of all are among them.
///
/// # Errors
/// An answer is no search for facet values.
pub fn merge_facets(answers: &[&str], faceting: Faceting) -> Result<String, MergeError> {
    let answers = answers.iter().map(|text| serde_json::from_str::<Answer>(text));
    let answers = answers.collect::<Result<Vec<_>, _>>()?;
    let spent = answers.iter().map(|answer| answer.processing_time_ms).max().unwrap_or(0);
    let query = answers.first().map_or(Value::Null, |answer| answer.facet_query.clone());
    let mut counts: BTreeMap<(String, String), u64> = BTreeMap::new();
    for hit in answers.into_iter().flat_map(|answer| answer.facet_hits) {
        *counts.entry((hit.value.to_lowercase(), hit.value)).or_default() += hit.count;
    }
    let hits = counts.into_iter().map(|((_, value), count)| FacetHit { value, count });
    let mut hits: Vec<FacetHit> = hits.collect();
    if faceting.by_count {
        hits.sort_by_key(|hit| std::cmp::Reverse(hit.count));
    }
    hits.truncate(faceting.values_max);
    let merged = json!({"facetHits": hits, "facetQuery": query, "processingTimeMs": spent});
    Ok(merged.to_string())
}
