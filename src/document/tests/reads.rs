//! Listings and searches over several backends.

use crate::document::listing::{Entry, and_shard_filter, arrange, collect_ids, ids_at, page};
use crate::document::object;
use crate::document::reserved::Reserved;
use crate::document::search::{Faceting, Paging, SearchRequest, merge, merge_facets};
use crate::document::shard::{ShardId, ShardSet};
use crate::document::topology::BackendIdx;
use serde_json::{Value, json};

fn shards(numbers: &[u32]) -> ShardSet {
    let mut set = ShardSet::none(16);
    numbers.iter().for_each(|n| set.insert(ShardId(*n)));
    set
}

#[test]
fn the_shard_filter_is_added_to_every_form_of_filter() {
    let set = shards(&[3, 7]);
    let cases = [
        (None, json!("_miroir_shard IN [3, 7]")),
        (Some(json!(null)), json!("_miroir_shard IN [3, 7]")),
        (Some(json!("")), json!("_miroir_shard IN [3, 7]")),
        (Some(json!("a = 1 OR b = 2")), json!("(a = 1 OR b = 2) AND _miroir_shard IN [3, 7]")),
        (
            Some(json!(["a = 1", ["b = 2", "c = 3"]])),
            json!(["a = 1", ["b = 2", "c = 3"], "_miroir_shard IN [3, 7]"]),
        ),
    ];
    for (client, expected) in cases {
        assert_eq!(and_shard_filter(client.as_ref(), &set), expected);
    }
}

#[test]
fn pages_are_cut_from_the_order_of_canonical_ids() {
    let (a, b) = (BackendIdx(0), BackendIdx(1));
    let mut entries = Vec::new();
    collect_ids(a, ["{\"id\":10}", "{\"id\":\"b\"}"].into_iter(), "id", &mut entries);
    collect_ids(b, ["{\"id\":\"9\"}", "{\"x\":1}", "{\"id\":2}"].into_iter(), "id", &mut entries);
    let (first, total) = page(entries.clone(), 0, 2);
    let (second, _) = page(entries, 2, 2);
    assert_eq!(total, 4);
    let names = |page: &[Entry]| page.iter().map(|e| e.canonical.clone()).collect::<Vec<_>>();
    assert_eq!(names(&first), ["10", "2"]);
    assert_eq!(names(&second), ["9", "b"]);
    assert_eq!(ids_at(&second, b), "[\"9\"]");
    let documents = ["{\"id\":\"b\",\"x\":1}", "{\"id\":9}"];
    assert_eq!(arrange(&second, documents.into_iter(), "id"), ["{\"id\":9}", documents[0]]);
}

#[test]
fn fields_are_removed_without_touching_others() {
    let text = "{\"_miroir_shard\":3,\"a\":1.10,\"n\":{\"_miroir_shard\":1}}";
    let kept = object::without(text, |name| name == "_miroir_shard");
    assert_eq!(kept, "{\"a\":1.10,\"n\":{\"_miroir_shard\":1}}");
    assert_eq!(object::without("[1]", |_| true), "[1]");
}

fn answer(hits: Value, total: u64) -> String {
    json!({"hits": hits, "query": "q", "processingTimeMs": total, "limit": 9, "offset": 0,
        "estimatedTotalHits": total, "totalHits": total,
        "facetDistribution": {"g": {"a": total, (total.to_string()): 1}},
        "facetStats": {"n": {"min": total, "max": total * 10}}, "requestUid": "u"})
    .to_string()
}

fn merged(request: Value, answers: &[String]) -> Value {
    let request = SearchRequest::from_body(request.to_string().as_bytes()).unwrap();
    let answers: Vec<&str> = answers.iter().map(String::as_str).collect();
    let text = merge(&request, &answers, Some("id"), &Reserved::default()).unwrap();
    serde_json::from_str(&text).unwrap()
}

fn ids(answer: &Value) -> Vec<String> {
    answer["hits"].as_array().unwrap().iter().map(|hit| hit["id"].to_string()).collect()
}

#[test]
fn hits_merge_by_score_then_rank_then_id() {
    let one = answer(
        json!([
        {"id": 1, "_miroir_shard": 3, "_rankingScore": 0.9},
        {"id": 5, "_miroir_shard": 3, "_rankingScore": 0.5}]),
        2,
    );
    let two = answer(
        json!([
        {"id": 4, "_rankingScore": 0.9, "_formatted": {"id": "4", "_miroir_shard": "3"}},
        {"id": 2, "_rankingScore": 0.7}, {"id": 3, "_rankingScore": 0.5}]),
        3,
    );
    let got = merged(json!({"q": "q", "limit": 4}), &[two, one]);
    assert_eq!(ids(&got), ["1", "4", "2", "5"]);
    assert_eq!(got["hits"][1], json!({"id": 4, "_formatted": {"id": "4"}}));
    assert_eq!(got["estimatedTotalHits"], 5);
    assert_eq!(got["processingTimeMs"], 3);
    assert_eq!((&got["limit"], &got["offset"]), (&json!(4), &json!(0)));
    assert_eq!(got["facetDistribution"], json!({"g": {"a": 5, "2": 1, "3": 1}}));
    assert_eq!(got["facetStats"], json!({"n": {"min": 2, "max": 30}}));
}

#[test]
fn sorted_hits_merge_by_the_sorted_value() {
    let hit = |id: u64, value: Value| {
        json!({"id": id, "_rankingScore": 1.0, "_rankingScoreDetails": {
            "words": {"order": 0, "score": 1.0}, "n:desc": {"order": 1, "value": value}}})
    };
    let one = answer(json!([hit(1, json!(30)), hit(2, json!(10)), hit(3, json!(null))]), 3);
    let two = answer(json!([hit(4, json!(20)), hit(5, json!("b")), hit(6, json!("a"))]), 3);
    let got = merged(json!({"q": "q", "sort": ["n:desc"]}), &[one, two]);
    assert_eq!(ids(&got), ["1", "4", "2", "5", "6", "3"]);
    assert!(got["hits"][0].get("_rankingScoreDetails").is_none());
}

#[test]
fn page_requests_are_answered_as_pages() {
    let hits = |from: u64| {
        let all: Vec<_> = (from..from + 3).map(|i| json!({"id": i, "_rankingScore": 1})).collect();
        answer(json!(all), 3)
    };
    let got = merged(json!({"page": 2, "hitsPerPage": 4}), &[hits(10), hits(20)]);
    assert_eq!(ids(&got), ["12", "22"]);
    assert_eq!((&got["totalHits"], &got["totalPages"]), (&json!(6), &json!(2)));
    assert_eq!((&got["page"], &got["hitsPerPage"]), (&json!(2), &json!(4)));
    assert!(got.get("estimatedTotalHits").is_none() && got.get("limit").is_none());
}

#[test]
fn backends_are_asked_for_the_first_hits_of_their_shards() {
    let body = json!({"q": "x", "offset": 10, "limit": 5, "filter": "a = 1",
        "attributesToRetrieve": ["t"]});
    let request = SearchRequest::from_body(body.to_string().as_bytes()).unwrap();
    let sent = request.backend_body(&shards(&[2]), Some("id"));
    assert_eq!(
        sent,
        json!({"q": "x", "offset": 0, "limit": 15, "showRankingScore": true,
            "showRankingScoreDetails": true, "filter": "(a = 1) AND _miroir_shard IN [2]",
            "attributesToRetrieve": ["t", "id"]})
    );
    let other = json!({"q": "x", "offset": 30, "filter": "a = 1", "attributesToRetrieve": ["t"]});
    let other = SearchRequest::from_body(other.to_string().as_bytes()).unwrap();
    assert_eq!(request.identity(), other.identity(), "pages of one search");
    let got = merged(body, &[answer(json!([{"t": 1, "id": 2, "_rankingScore": 1}]), 1)]);
    assert_eq!(got["hits"], json!([]), "the eleventh hit does not exist");
}

#[test]
fn query_parameters_become_a_search_body() {
    let query = [
        ("q", "a"),
        ("limit", "3"),
        ("facets", "g, h"),
        ("filter", "[\"a = 1\"]"),
        ("showRankingScore", "true"),
        ("hybridEmbedder", "e"),
        ("hybridSemanticRatio", "0.5"),
    ];
    let request = SearchRequest::from_query(query.into_iter()).unwrap();
    assert_eq!(request.paging, Paging::Offset { offset: 0, limit: 3 });
    assert!(request.wants_score);
    let sent = request.backend_body(&shards(&[1]), None);
    assert_eq!(sent["facets"], json!(["g", "h"]));
    assert_eq!(sent["filter"], json!(["a = 1", "_miroir_shard IN [1]"]));
    assert_eq!(sent["hybrid"], json!({"embedder": "e", "semanticRatio": 0.5}));
    let refused = |name, text| SearchRequest::from_query([(name, text)].into_iter()).unwrap_err();
    assert_eq!(refused("limit", "x").code, "invalid_search_limit");
    assert_eq!(refused("zzz", "x").code, "bad_request");
    assert_eq!(SearchRequest::from_body(b"[1]").unwrap_err().code, "bad_request");
    assert_eq!(SearchRequest::from_body(b"{").unwrap_err().code, "malformed_payload");
    let page = SearchRequest::from_body(b"{\"page\":-1}").unwrap_err();
    assert_eq!(page.code, "invalid_search_page");
}

#[test]
fn values_of_a_facet_add_up_in_the_order_of_the_index() {
    let setting =
        json!({"sortFacetValuesBy": {"*": "alpha", "g": "count"}, "maxValuesPerFacet": 2});
    let by_count = Faceting::of(&setting, "g");
    assert_eq!(by_count, Faceting { by_count: true, values_max: 2 });
    let by_letters = Faceting::of(&setting, "other");
    assert!(!by_letters.by_count);
    assert_eq!(Faceting::of(&json!(null), "g"), Faceting { by_count: false, values_max: 100 });
    let one = r#"{"facetHits":[{"value":"A","count":1},{"value":"b","count":2}],
        "facetQuery":"x","processingTimeMs":3}"#;
    let other = r#"{"facetHits":[{"value":"b","count":2},{"value":"C","count":3}],
        "facetQuery":"x","processingTimeMs":9}"#;
    let merged = |faceting| {
        let text = merge_facets(&[one, other], faceting).unwrap();
        serde_json::from_str::<Value>(&text).unwrap()
    };
    let hit = |value: &str, count: u64| json!({"value": value, "count": count});
    assert_eq!(
        merged(by_letters),
        json!({"facetHits": [hit("A", 1), hit("b", 4)], "facetQuery": "x", "processingTimeMs": 9})
    );
    assert_eq!(merged(by_count)["facetHits"], json!([hit("b", 4), hit("C", 3)]));
    assert!(merge_facets(&["{}"], by_count).is_err());
}
