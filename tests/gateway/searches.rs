//! Several searches in one request, and what a Meilisearch serves and a gateway does not.

use crate::cluster::{Cluster, Shape};
use serde_json::{Value, json};

const SHAPE: Shape = Shape { groups: 2, members: 2, copies: 1, shards: 16 };

async fn library() -> Cluster {
    let cluster = Cluster::start(SHAPE).await;
    let all: Vec<Value> =
        (0..40).map(|i| json!({"id": i, "title": format!("movie {i}")})).collect();
    cluster.add(&json!(all)).await;
    let books: Vec<Value> =
        (0..30).map(|i| json!({"id": i, "title": format!("book {i}")})).collect();
    let added = cluster.post("/indexes/books/documents", &json!(books)).await;
    cluster.succeeded(&added).await;
    cluster
}

#[tokio::test]
async fn several_searches_in_one_request_are_answered_as_if_alone() {
    let cluster = library().await;
    let alias = json!({"name": "films", "target": "movies"});
    assert_eq!(cluster.post("/_miroir/aliases", &alias).await.status, 200);
    let queries = [
        json!({"indexUid": "movies", "q": "movie", "limit": 3}),
        json!({"indexUid": "books", "q": "book", "page": 2, "hitsPerPage": 7}),
        json!({"indexUid": "films", "q": "movie", "offset": 38, "showRankingScore": true}),
    ];
    let answer = cluster.post("/multi-search", &json!({"queries": queries})).await;
    assert_eq!(answer.status, 200, "{:?}", answer.json());
    let mut results = answer.json()["results"].clone();
    for (i, (mut query, uid)) in queries.into_iter().zip(["movies", "books", "movies"]).enumerate()
    {
        query.as_object_mut().unwrap().remove("indexUid");
        let path = format!("/indexes/{uid}/search");
        let mut alone = cluster.post(&path, &query).await.json();
        alone["indexUid"] = json!(uid);
        for found in [&mut results[i], &mut alone] {
            for changing in ["processingTimeMs", "requestUid"] {
                found.as_object_mut().unwrap().remove(changing);
            }
        }
        assert_eq!(results[i], alone);
    }
    let none = cluster.post("/multi-search", &json!({"queries": []})).await;
    assert_eq!((none.status, none.json()), (200, json!({"results": []})));
    for (body, status, code, message) in [
        (json!({}), 400, "bad_request", "Missing field `queries`"),
        (json!([]), 400, "bad_request", "Invalid value type: expected an object"),
        (json!({"queries": 5}), 400, "bad_request", "Invalid value type at `.queries`"),
        (json!({"queries": [5]}), 400, "bad_request", "Invalid value type at `.queries[0]`"),
        (
            json!({"queries": [{"q": "x"}]}),
            400,
            "missing_index_uid",
            "Missing field `indexUid` inside `.queries[0]`",
        ),
        (
            json!({"queries": [{"indexUid": "a b"}]}),
            400,
            "invalid_index_uid",
            "Invalid value at `.queries[0].indexUid`: `a b` is not",
        ),
        (
            json!({"queries": [{"indexUid": "movies", "limit": "x"}]}),
            400,
            "invalid_search_limit",
            "Inside `.queries[0]`: Invalid value at `.limit`",
        ),
        (
            json!({"queries": [{"indexUid": "movies"}, {"indexUid": "nope"}]}),
            404,
            "index_not_found",
            "Inside `.queries[1]`: Index `nope` not found.",
        ),
        (
            json!({"queries": [{"indexUid": "movies", "filter": "zz = 1"}]}),
            400,
            "invalid_search_filter",
            "Inside `.queries[0]`: ",
        ),
        (json!({"federation": {}, "queries": []}), 501, "miroir_not_supported", "federated"),
    ] {
        let refused = cluster.post("/multi-search", &body).await;
        assert_eq!((refused.status, refused.code()), (status, code.to_owned()), "{body}");
        let said = refused.json()["message"].as_str().unwrap().to_owned();
        assert!(said.starts_with(message) || status == 501 && said.contains(message), "{said}");
    }
}

#[tokio::test]
async fn many_searches_run_and_missing_shards_are_named_once() {
    let mut cluster = library().await;
    let queries = vec![json!({"indexUid": "movies", "limit": 0}); 50];
    let body = json!({"queries": queries});
    let answer = cluster.post("/multi-search", &body).await;
    assert_eq!(answer.json()["results"].as_array().unwrap().len(), 50);
    assert_eq!(answer.header("x-miroir-degraded"), None);
    cluster.stop(&[0, 2, 3]).await;
    let answer = cluster.post("/multi-search", &body).await;
    let alone = cluster.post("/indexes/movies/search", &json!({})).await;
    let missing = alone.header("x-miroir-degraded");
    assert!(missing.is_some_and(|shards| shards.starts_with("shards=")), "{missing:?}");
    assert_eq!(answer.header("x-miroir-degraded"), missing);
}

#[tokio::test]
async fn values_of_a_facet_are_counted_over_all_backends() {
    let cluster = Cluster::start(Shape { copies: 2, ..SHAPE }).await;
    let settings = json!({"filterableAttributes": ["kind", "n"]});
    let path = "/indexes/movies/settings";
    cluster.succeeded(&cluster.http.json("PATCH", path, &settings).await).await;
    let kinds = ["Drama", "drone", "comedy", "Drift"];
    // 24, 12, 8 and 4 of 48.
    let kind = |i: usize| kinds[[0, 0, 0, 1, 2, 0, 0, 1, 0, 2, 1, 3][i % 12]];
    let all: Vec<Value> = (0..48).map(|i| json!({"id": i, "n": i % 2, "kind": kind(i)})).collect();
    cluster.add(&json!(all)).await;
    let search = async |body: Value| {
        let answer = cluster.post("/indexes/movies/facet-search", &body).await;
        assert_eq!(answer.status, 200, "{:?}", answer.json());
        answer.json()
    };
    let hits = |counts: &[(&str, u64)]| {
        let hit = |(value, count): &(&str, u64)| json!({"value": value, "count": count});
        json!(counts.iter().map(hit).collect::<Vec<_>>())
    };
    let found = search(json!({"facetName": "kind", "facetQuery": "dr"})).await;
    assert_eq!(found["facetHits"], hits(&[("Drama", 24), ("Drift", 4), ("drone", 12)]));
    assert_eq!((&found["facetQuery"], &found["processingTimeMs"]), (&json!("dr"), &json!(0)));
    let odd = search(json!({"facetName": "kind", "filter": "n = 1"})).await;
    let counted = all.iter().filter(|film| film["n"] == 1 && film["kind"] == "Drama").count();
    assert_eq!(odd["facetHits"][1], json!({"value": "Drama", "count": counted}));
    let faceting = json!({"sortFacetValuesBy": {"kind": "count"}, "maxValuesPerFacet": 3});
    let path = "/indexes/movies/settings/faceting";
    cluster.succeeded(&cluster.http.json("PATCH", path, &faceting).await).await;
    let found = search(json!({"facetName": "kind"})).await;
    assert_eq!(found["facetHits"].as_array().unwrap().len(), 3);
    assert_eq!(found["facetHits"][0], json!({"value": "Drama", "count": 24}));
    for (path, body, status, code) in [
        ("movies", json!({}), 400, "missing_facet_search_facet_name"),
        ("movies", json!([]), 400, "bad_request"),
        ("movies", json!({"facetName": "title"}), 400, "invalid_facet_search_facet_name"),
        ("nope", json!({"facetName": "kind"}), 404, "index_not_found"),
    ] {
        let path = format!("/indexes/{path}/facet-search");
        let refused = cluster.post(&path, &body).await;
        assert_eq!((refused.status, refused.code()), (status, code.to_owned()), "{path} {body}");
    }
    for sort in [json!(["n:asc"]), json!("n:asc")] {
        let sorted = json!({"sort": sort});
        let refused = cluster.post("/indexes/movies/documents/fetch", &sorted).await;
        assert_eq!((refused.status, refused.code()), (501, "miroir_not_supported".into()));
    }
    let listed = cluster.post("/indexes/movies/documents/fetch", &json!({"sort": []})).await;
    assert_eq!(listed.json()["total"], 48);
}

#[tokio::test]
async fn what_is_not_served_says_so_in_words() {
    let cluster = library().await;
    for (method, path, hint) in [
        ("POST", "/swap-indexes", "flip an alias"),
        ("POST", "/tasks/cancel?uids=1", "`POST /tasks/cancel` is not served"),
        ("DELETE", "/tasks?uids=1", "expire after 7 days"),
        ("GET", "/keys", "documents.master_key"),
        ("DELETE", "/keys/x", "documents.master_key"),
        ("GET", "/batches", "ask the servers"),
        ("GET", "/batches/1", "ask the servers"),
        ("POST", "/dumps", "ask the servers"),
        ("POST", "/snapshots", "ask the servers"),
        ("PATCH", "/experimental-features", "ask the servers"),
        ("GET", "/network", "its servers"),
        ("POST", "/indexes/movies/similar", "each server has some of them"),
        ("POST", "/indexes/movies/documents/edit", "`PUT` the documents"),
    ] {
        cluster.forget_requests();
        let refused = cluster.http.json(method, path, &json!([])).await;
        let expected = (501, "miroir_not_supported".to_owned());
        assert_eq!((refused.status, refused.code()), expected, "{method} {path}");
        assert_eq!(refused.json()["type"], "invalid_request");
        let said = refused.json()["message"].as_str().unwrap().to_owned();
        assert!(said.contains(hint), "{said}");
        assert_eq!(cluster.writes(), [0, 0, 0, 0]);
    }
    let tasks = cluster.http.get("/tasks/cancel").await;
    assert_eq!(tasks.status, 405, "as a Meilisearch says");
}
