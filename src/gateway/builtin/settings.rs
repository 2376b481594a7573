//! An index's settings as one JSON object, with Meilisearch's defaults.

use serde_json::{Map, Value, json};

/// All settings of a fresh index.
pub(super) fn defaults() -> Map<String, Value> {
    let all = json!({
        "displayedAttributes": ["*"], "searchableAttributes": ["*"], "filterableAttributes": [],
        "sortableAttributes": [], "stopWords": [], "nonSeparatorTokens": [],
        "separatorTokens": [], "dictionary": [], "synonyms": {}, "distinctAttribute": null,
        "rankingRules": ["words", "typo", "proximity", "attribute", "sort", "exactness"],
        "proximityPrecision": "byWord", "searchCutoffMs": null, "localizedAttributes": null,
        "facetSearch": true, "prefixSearch": "indexingTime", "embedders": {},
        "typoTolerance": {"enabled": true,
            "minWordSizeForTypos": {"oneTypo": 5, "twoTypos": 9},
            "disableOnWords": [], "disableOnAttributes": [], "disableOnNumbers": false},
        "faceting": {"maxValuesPerFacet": 100, "sortFacetValuesBy": {"*": "alpha"}},
        "pagination": {"maxTotalHits": 1000},
    });
    match all {
        Value::Object(map) => map,
        _ => Map::new(),
    }
}

/// The settings' name for the last path segment: `filterable-attributes` is
/// `filterableAttributes`. `None` for a setting that does not exist.
pub(super) fn name_of(segment: &str) -> Option<String> {
    let mut name = String::new();
    for (i, word) in segment.split('-').enumerate() {
        let mut chars = word.chars();
        match chars.next() {
            Some(first) if i > 0 => name.extend(first.to_uppercase()),
            Some(first) => name.push(first),
            None => return None,
        }
        name.push_str(chars.as_str());
    }
    defaults().contains_key(&name).then_some(name)
}

/// Applies a change: null resets a setting.
pub(super) fn apply(settings: &mut Map<String, Value>, change: &Map<String, Value>) {
    for (name, value) in change {
        let value = match value {
            Value::Null => defaults().get(name).cloned().unwrap_or(Value::Null),
            other => other.clone(),
        };
        settings.insert(name.clone(), value);
    }
}
