//! Backends that are away, slow, broken or wrong, and clients that come at once.

use crate::cluster::{Cluster, PASSES, Shape, documents, eventually};
use crate::fake::{Fake, Mode};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::time::Duration;
use torc::gateway::PartialReads;

const PATH: &str = "/indexes/movies/documents";

fn shape(groups: usize, members: usize, copies: usize) -> Shape {
    Shape { groups, members, copies, shards: 16 }
}

#[tokio::test]
async fn a_backend_that_answers_nonsense_is_a_missing_acknowledgement() {
    for mode in [
        Mode::Always(200, "{}"),
        Mode::Always(202, "garbage"),
        Mode::Always(503, "{\"message\":\"m\",\"code\":\"c\"}"),
        Mode::Always(429, "{\"message\":\"m\",\"code\":\"c\"}"),
        Mode::Always(401, "{\"message\":\"m\",\"code\":\"missing_authorization_header\"}"),
        Mode::Always(403, "{\"message\":\"m\",\"code\":\"invalid_api_key\"}"),
        Mode::Always(404, ""),
    ] {
        let cluster = Cluster::start(shape(2, 1, 1)).await;
        cluster.add(&json!([{"id": 1}])).await;
        cluster.fakes[0].set(mode.clone());
        let answer = cluster.post(PATH, &json!([{"id": 2}])).await;
        assert_eq!(answer.status, 202, "{mode:?}");
        assert_eq!(answer.header("x-miroir-degraded"), Some("groups=1"), "{mode:?}");
        cluster.fakes[1].set(mode.clone());
        let answer = cluster.post(PATH, &json!([{"id": 3}])).await;
        assert_eq!((answer.status, answer.code()), (503, "miroir_no_quorum".into()), "{mode:?}");
    }
}

#[tokio::test]
async fn a_refusal_by_all_is_passed_on_and_by_some_is_not() {
    let refusal = "{\"message\":\"no\",\"code\":\"invalid_document_filter\",\
                   \"type\":\"invalid_request\",\"link\":\"l\"}";
    let cluster = Cluster::start(shape(2, 1, 1)).await;
    cluster.add(&json!([{"id": 1}])).await;
    cluster.fakes[0].set(Mode::Always(400, refusal));
    let filter = json!({"filter": "id = 1"});
    let path = format!("{PATH}/delete");
    let answer = cluster.post(&path, &filter).await;
    assert_eq!((answer.status, answer.header("x-miroir-degraded")), (202, Some("groups=1")));
    cluster.fakes[1].set(Mode::Always(400, refusal));
    let answer = cluster.post(&path, &filter).await;
    assert_eq!((answer.status, answer.json()["message"].clone()), (400, json!("no")));
    cluster.fakes[1].set(Mode::Always(500, "{}"));
    let answer = cluster.post(&path, &filter).await;
    assert_eq!(answer.code(), "invalid_document_filter", "all that understood it refused it");
    cluster.fakes.iter().for_each(|fake| fake.set(Mode::Always(405, "")));
    let answer = cluster.post(&path, &filter).await;
    assert_eq!((answer.status, answer.body.len()), (405, 0), "a method that is not served");
}

#[tokio::test]
async fn a_silent_backend_costs_one_wait_and_then_none() {
    let cluster = Cluster::with(shape(2, 1, 1), |settings| {
        settings.node_timeout = PASSES;
    })
    .await;
    cluster.add(&json!([{"id": 1}])).await;
    cluster.fakes[0].set(Mode::Silent);
    for i in 0..20 {
        let answer = cluster.post(PATH, &json!([{"id": i}])).await;
        assert_eq!(answer.header("x-miroir-degraded"), Some("groups=1"));
        let read = cluster.http.get(&format!("{PATH}/1")).await;
        assert_eq!(read.status, 200);
    }
    let state = || cluster.gateway.status()["groups"][0]["backends"][0]["state"].clone();
    assert_eq!(state(), "silent");
    let sent = cluster.fakes[0].writes().len();
    assert!(sent < 10, "{sent} requests went to a backend that does not answer");
    cluster.fakes[0].set(Mode::Normal);
    eventually("the probe finds it", async || state() == "live").await;
    eventually("what it missed is copied", async || {
        cluster.fakes[0].engine(|e| e.documents("movies")) == 20
    })
    .await;
    let answer = cluster.post(PATH, &json!([{"id": 99}])).await;
    assert_eq!(answer.header("x-miroir-degraded"), None);
}

#[tokio::test]
async fn overlapping_writes_leave_all_replicas_equal() {
    let cluster = Cluster::start(shape(2, 2, 2)).await;
    cluster.add(&json!([{"id": "first"}])).await;
    cluster.fakes[1].set(Mode::Uneven);
    let mut writers = Vec::new();
    for v in 0..60 {
        let http = cluster.http.clone();
        writers.push(tokio::spawn(async move {
            let id = format!("hot-{}", v % 12);
            let answer = match v % 7 {
                6 => http.send("DELETE", &format!("{PATH}/{id}"), "").await,
                5 => http.json("PUT", PATH, &json!([{"id": id, (format!("f{v}")): v}])).await,
                _ => http.json("POST", PATH, &json!([{"id": id, "v": v}])).await,
            };
            crate::cluster::finished(&http, &answer).await;
        }));
    }
    for writer in writers {
        writer.await.unwrap();
    }
    for i in 0..12 {
        let copy = |fake: &Fake| fake.engine(|e| e.document("movies", &format!("hot-{i}")));
        let copies: Vec<Option<Value>> = cluster.fakes.iter().map(copy).collect();
        assert!(copies.windows(2).all(|pair| pair[0] == pair[1]), "{copies:?}");
    }
}

#[tokio::test]
async fn a_client_that_hangs_up_does_not_split_its_write() {
    let cluster = Cluster::start(shape(2, 1, 1)).await;
    cluster.add(&json!([{"id": 1}])).await;
    cluster.fakes[1].set(Mode::Slow(Duration::from_millis(50)));
    let http = cluster.http.clone();
    let writing = tokio::spawn(async move { http.json("POST", PATH, &json!([{"id": 2}])).await });
    eventually("the write is on its way", async || {
        cluster.fakes[0].engine(|e| e.document("movies", "2")).is_some()
    })
    .await;
    writing.abort();
    eventually("the other group has it too", async || {
        cluster.fakes[1].engine(|e| e.document("movies", "2")).is_some()
    })
    .await;
}

#[tokio::test]
async fn documents_of_a_degraded_write_are_found_whoever_is_asked() {
    let mut cluster = Cluster::start(shape(2, 1, 1)).await;
    cluster.add(&json!([{"id": 1}])).await;
    cluster.fakes[0].set(Mode::Always(503, ""));
    cluster.succeeded(&cluster.post(PATH, &json!([{"id": 2}])).await).await;
    cluster.fakes[0].set(Mode::Normal);
    for _ in 0..4 {
        assert_eq!(cluster.http.get(&format!("{PATH}/2")).await.status, 200);
        assert_eq!(cluster.http.get(&format!("{PATH}/3")).await.code(), "document_not_found");
    }
    cluster.stop(&[0, 1]).await;
    let answer = cluster.http.get(&format!("{PATH}/2")).await;
    assert_eq!((answer.status, answer.code()), (503, "miroir_shard_unavailable".into()));
}

#[tokio::test]
async fn pages_of_listings_and_searches_miss_and_repeat_nothing() {
    let cluster = Cluster::start(shape(2, 3, 2)).await;
    cluster.add(&documents(0..120)).await;
    let all: BTreeSet<String> = (0..120).map(|i| format!("doc-{i}")).collect();
    let ids = |items: &Value| -> Vec<String> {
        let items = items.as_array().unwrap().iter();
        items.map(|item| item["id"].as_str().unwrap().to_owned()).collect()
    };
    let mut listed = Vec::new();
    let mut found = Vec::new();
    let mut paged = Vec::new();
    for page in 0..12 {
        let offset = page * 10;
        let path = format!("{PATH}?limit=10&offset={offset}");
        let listing = cluster.http.get(&path).await.json();
        assert_eq!((&listing["total"], &listing["limit"]), (&json!(120), &json!(10)));
        listed.extend(ids(&listing["results"]));
        let body = json!({"q": "title", "limit": 10, "offset": offset});
        let search = cluster.post("/indexes/movies/search", &body).await.json();
        assert_eq!(search["estimatedTotalHits"], 120);
        found.extend(ids(&search["hits"]));
        let body = json!({"q": "title", "page": page + 1, "hitsPerPage": 10});
        let search = cluster.post("/indexes/movies/search", &body).await.json();
        assert_eq!((&search["totalHits"], &search["totalPages"]), (&json!(120), &json!(12)));
        paged.extend(ids(&search["hits"]));
    }
    assert!(listed.is_sorted(), "ordered by canonical id");
    for seen in [listed, found, paged] {
        assert_eq!(seen.len(), 120);
        assert_eq!(seen.into_iter().collect::<BTreeSet<_>>(), all);
    }
    let body = json!({"limit": 3, "fields": ["n"], "ids": ["doc-7", "doc-5", "nope"]});
    let some = cluster.post(&format!("{PATH}/fetch"), &body).await.json();
    assert_eq!(some["results"], json!([{"n": 5}, {"n": 7}]));
    let bad = cluster.post(&format!("{PATH}/fetch"), &json!({"filter": "zz = 1"})).await;
    assert_eq!((bad.status, bad.code()), (400, "invalid_document_filter".into()));
}

#[tokio::test]
async fn searches_find_filter_sort_and_count_over_all_backends() {
    let cluster = Cluster::start(shape(1, 3, 2)).await;
    let settings = json!({"filterableAttributes": ["g"], "sortableAttributes": ["n"]});
    let path = "/indexes/movies/settings";
    cluster.succeeded(&cluster.http.json("PATCH", path, &settings).await).await;
    let one = |i: usize| {
        let group = ["a", "b"][i % 2];
        json!({"id": i, "n": i, "g": group, "t": format!("word{} x", i % 4)})
    };
    let all: Vec<Value> = (0..40).map(one).collect();
    cluster.add(&json!(all)).await;
    let search = async |body: Value| {
        let answer = cluster.post("/indexes/movies/search", &body).await;
        assert_eq!(answer.status, 200, "{:?}", answer.json());
        answer.json()
    };
    let found = search(json!({"q": "word1", "limit": 100})).await;
    assert_eq!(found["hits"].as_array().unwrap().len(), 10);
    assert!(found["hits"][0].get("_rankingScore").is_none());
    let sorted = search(json!({"sort": ["n:desc"], "limit": 5, "offset": 2,
        "filter": "g = a", "facets": ["g", "n"], "attributesToRetrieve": ["n"]}))
    .await;
    let expected = json!([{"n": 34}, {"n": 32}, {"n": 30}, {"n": 28}, {"n": 26}]);
    assert_eq!(sorted["hits"], expected);
    assert_eq!(sorted["estimatedTotalHits"], 20);
    assert_eq!(sorted["facetDistribution"]["g"], json!({"a": 20}));
    assert_eq!(sorted["facetStats"]["n"], json!({"min": 0.0, "max": 38.0}));
    let scored = search(json!({"q": "word2", "showRankingScore": true, "limit": 1})).await;
    assert!(scored["hits"][0]["_rankingScore"].is_number());
    let by_get =
        cluster.http.get("/indexes/movies/search?q=word3&limit=100&filter=g%20%3D%20b").await;
    assert_eq!(by_get.json()["hits"].as_array().unwrap().len(), 10);
    let bad = cluster.post("/indexes/movies/search", &json!({"filter": "zz = 1"})).await;
    assert_eq!((bad.status, bad.code()), (400, "invalid_search_filter".into()));
}

#[tokio::test]
async fn reads_go_on_without_a_backend_and_name_what_is_missing() {
    let mut cluster = Cluster::start(shape(1, 3, 2)).await;
    cluster.add(&documents(0..60)).await;
    cluster.stop(&[1]).await;
    for _ in 0..3 {
        let found = cluster.post("/indexes/movies/search", &json!({"limit": 100})).await;
        assert_eq!(found.json()["hits"].as_array().unwrap().len(), 60);
        assert_eq!(found.header("x-miroir-degraded"), None);
        let listed = cluster.http.get(&format!("{PATH}?limit=100")).await;
        assert_eq!(listed.json()["total"], 60);
    }
    cluster.stop(&[2]).await;
    let topology = cluster.topology();
    let lost: Vec<String> = (0..16)
        .filter(|shard| {
            let owners = topology.write_targets(torc::document::shard::ShardId(*shard));
            owners.iter().all(|owner| owner.0 != 0)
        })
        .map(|shard| shard.to_string())
        .collect();
    let found = cluster.post("/indexes/movies/search", &json!({"limit": 100})).await;
    let header = format!("shards={}", lost.join(","));
    assert_eq!(found.header("x-miroir-degraded"), Some(header.as_str()));
    assert!(found.json()["hits"].as_array().unwrap().len() < 60);

    let mut strict = Cluster::with(shape(1, 2, 1), |settings| {
        settings.partial_reads = PartialReads::Refuse;
    })
    .await;
    strict.add(&documents(0..10)).await;
    strict.stop(&[1]).await;
    let refused = strict.post("/indexes/movies/search", &json!({})).await;
    assert_eq!((refused.status, refused.code()), (503, "miroir_shard_unavailable".into()));
}

#[tokio::test]
async fn groups_that_were_away_in_turn_get_what_each_missed() {
    let mut cluster = Cluster::start(Shape { shards: 1, ..shape(2, 1, 1) }).await;
    cluster.add(&json!([{"id": "old"}, {"id": "gone"}])).await;
    cluster.stop(&[0]).await;
    cluster.add(&json!([{"id": "a", "v": 1}])).await;
    let deleted = cluster.http.send("DELETE", &format!("{PATH}/gone"), "").await;
    cluster.succeeded(&deleted).await;
    // The other one goes before the first is repaired: both lack something of the one shard.
    cluster.stop(&[1]).await;
    cluster.resume(&[0]).await;
    eventually("a write is taken", async || {
        cluster.post(PATH, &json!([{"id": "b", "v": 2}])).await.status == 202
    })
    .await;
    cluster.resume(&[1]).await;
    for fake in &cluster.fakes {
        eventually("each has all", async || {
            let ids = |id: &str| fake.engine(|e| e.document("movies", id)).is_some();
            ids("old") && ids("a") && ids("b") && !ids("gone")
        })
        .await;
    }
}
