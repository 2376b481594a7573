//! What the document write path promises, shown by really storing, stopping and fetching.

use crate::cluster::{Cluster, NODE_KEY, Shape, documents};
use serde_json::{Value, json};
use torc::document::shard::shard_for_key;

const THREE: Shape = Shape { groups: 1, members: 3, copies: 1, shards: 64 };

#[tokio::test]
async fn a_thousand_documents_are_each_found_and_well_spread() {
    let cluster = Cluster::start(THREE).await;
    for batch in 0..4 {
        cluster.add(&documents(batch * 250..(batch + 1) * 250)).await;
    }
    for i in 0..1000 {
        let answer = cluster.http.get(&format!("/indexes/movies/documents/doc-{i}")).await;
        assert_eq!(answer.json(), documents(i..i + 1)[0], "doc-{i}");
    }
    let counts: Vec<usize> =
        cluster.fakes.iter().map(|fake| fake.engine(|e| e.documents("movies"))).collect();
    assert_eq!(counts, [332, 349, 319], "as the recorded topology says: none below 20 %");
    let additions = cluster.fakes.iter().flat_map(|fake| fake.writes());
    let additions = additions.filter(|seen| seen.target.contains("/documents?primaryKey=id"));
    assert_eq!(additions.count(), 12, "one request per backend and batch");
}

#[tokio::test]
async fn stored_documents_carry_their_shard_and_answers_do_not() {
    let cluster = Cluster::start(THREE).await;
    let document = json!({"id": 42, "big": 9007199254740993_u64, "_miroir_custom": 1});
    cluster.add(&json!([document])).await;
    let shard = shard_for_key("42", 64);
    let owner = cluster.topology().write_targets(shard)[0].0 as usize;
    let stored = cluster.fakes[owner].engine(|e| e.document("movies", "42")).unwrap();
    assert_eq!(stored["_miroir_shard"], shard.0);
    for path in ["/indexes/movies/documents/42", "/indexes/movies/documents/42?fields=*"] {
        assert_eq!(cluster.http.get(path).await.json(), document);
    }
    let listed = cluster.http.get("/indexes/movies/documents").await.json();
    assert_eq!(listed["results"], json!([document]));
    let found = cluster.post("/indexes/movies/search", &json!({})).await.json();
    assert_eq!(found["hits"], json!([document]));
    let settings = cluster.http.get("/indexes/movies/settings").await.json();
    assert_eq!(settings["filterableAttributes"], json!([]));
    let stats = cluster.http.get("/indexes/movies/stats").await.json();
    assert_eq!(stats["numberOfDocuments"], 1);
    let fields = json!({"id": 1, "big": 1, "_miroir_custom": 1});
    assert_eq!(stats["fieldDistribution"], fields);
    let keys = cluster.fakes.iter().flat_map(|fake| fake.take_log());
    let expected = format!("Bearer {NODE_KEY}");
    assert!(keys.into_iter().all(|seen| seen.authorization.as_deref() == Some(&expected)));
}

#[tokio::test]
async fn one_bad_document_writes_nothing() {
    let cluster = Cluster::start(THREE).await;
    let good = json!({"id": "a"});
    for (bad, code) in [
        (json!({"x": 1}), "miroir_primary_key_required"),
        (json!({"id": null}), "miroir_primary_key_required"),
        (json!({"id": "b", "_miroir_shard": 3}), "miroir_reserved_field"),
        (json!({"id": 1.5}), "invalid_document_id"),
        (json!({"id": "a b"}), "invalid_document_id"),
    ] {
        for method in ["POST", "PUT"] {
            let body = json!([good, bad]);
            let answer = cluster.http.json(method, "/indexes/movies/documents", &body).await;
            assert_eq!((answer.status, answer.code()), (400, code.to_owned()), "{bad}");
            let error = answer.json();
            assert_eq!(error["type"], "invalid_request");
            assert!(error["link"].as_str().unwrap().ends_with(&format!("#{code}")));
        }
    }
    assert_eq!(cluster.writes(), [0, 0, 0], "no backend has seen a write");
}

#[tokio::test]
async fn post_replaces_and_put_merges() {
    let cluster = Cluster::start(THREE).await;
    cluster.add(&json!([{"id": 1, "a": 1, "b": 1}, {"id": 2, "a": 1, "b": 1}])).await;
    let path = "/indexes/movies/documents";
    cluster.succeeded(&cluster.http.json("PUT", path, &json!([{"id": 1, "b": 2}])).await).await;
    cluster.succeeded(&cluster.http.json("POST", path, &json!({"id": 2, "b": 2})).await).await;
    let get = async |id: u32| cluster.http.get(&format!("{path}/{id}")).await.json();
    assert_eq!(get(1).await, json!({"id": 1, "a": 1, "b": 2}));
    assert_eq!(get(2).await, json!({"id": 2, "b": 2}));
}

/// One row of the quorum table: topology, who is down, the outcome.
async fn row(shape: Shape, down: &[usize], status: u16, header: Option<&str>) {
    let mut cluster = Cluster::start(shape).await;
    // The index is there before anybody goes.
    cluster.add(&json!([{"id": "first"}])).await;
    cluster.stop(down).await;
    let answer = cluster.post("/indexes/movies/documents", &json!([{"id": "x"}])).await;
    assert_eq!(answer.status, status, "{down:?}: {:?}", answer.json());
    assert_eq!(answer.header("x-miroir-degraded"), header, "{down:?}");
    if status == 503 {
        assert_eq!(answer.code(), "miroir_no_quorum");
        assert_eq!(answer.json()["type"], "system");
        assert_eq!(answer.header("retry-after"), Some("10"));
    } else {
        cluster.succeeded(&answer).await;
        let fetched = cluster.http.get("/indexes/movies/documents/x").await;
        assert_eq!(fetched.json(), json!({"id": "x"}));
    }
}

fn shape(groups: usize, members: usize, copies: usize) -> Shape {
    Shape { groups, members, copies, shards: 8 }
}

#[tokio::test]
async fn every_row_of_the_quorum_table() {
    row(shape(1, 1, 1), &[], 202, None).await;
    row(shape(1, 1, 1), &[0], 503, None).await;
    row(shape(1, 2, 2), &[1], 503, None).await;
    row(shape(1, 3, 3), &[1], 202, None).await;
    row(shape(1, 3, 3), &[0, 1], 503, None).await;
    row(shape(2, 1, 1), &[1], 202, Some("groups=1")).await;
    row(shape(2, 1, 1), &[0], 202, Some("groups=1")).await;
    row(shape(2, 1, 1), &[0, 1], 503, None).await;
    row(shape(2, 2, 2), &[2], 202, Some("groups=1")).await;
    row(shape(2, 3, 3), &[0], 202, None).await;
    row(shape(2, 3, 3), &[0, 1], 202, Some("groups=1")).await;
    row(shape(2, 3, 3), &[0, 1, 4, 5], 503, None).await;
    row(shape(3, 1, 1), &[0, 2], 202, Some("groups=2")).await;
}

#[tokio::test]
async fn an_index_is_created_while_a_group_is_down_and_caught_up_later() {
    let mut cluster = Cluster::start(shape(2, 1, 1)).await;
    cluster.stop(&[1]).await;
    let answer = cluster.post("/indexes/movies/documents", &json!([{"id": "a"}])).await;
    assert_eq!(answer.header("x-miroir-degraded"), Some("groups=1"));
    cluster.succeeded(&answer).await;
    let stop_words = json!(["the"]);
    let path = "/indexes/movies/settings/stop-words";
    cluster.succeeded(&cluster.http.json("PUT", path, &stop_words).await).await;
    cluster.resume(&[1]).await;
    // The other one missed all of it: what one has is what clients see.
    for _ in 0..4 {
        let listed = cluster.http.get("/indexes").await.json();
        assert_eq!((&listed["total"], &listed["results"][0]["uid"]), (&json!(1), &json!("movies")));
        assert_eq!(cluster.http.get(path).await.json(), stop_words);
    }
    cluster.add(&json!([{"id": "b"}])).await;
    let settings = async |node: usize| {
        let direct = crate::http::Http::new(cluster.fakes[node].url());
        let direct = direct.with("authorization", &format!("Bearer {NODE_KEY}"));
        direct.get("/indexes/movies/settings").await.json()
    };
    let prepared = settings(1).await;
    assert_eq!(prepared["filterableAttributes"], json!(["_miroir_shard"]), "before the write");
    assert_eq!(prepared["stopWords"], stop_words);
    // What the group missed is copied to it.
    crate::cluster::eventually("the missed document arrives", async || {
        cluster.fakes[1].engine(|e| e.document("movies", "a")).is_some()
    })
    .await;
}

#[tokio::test]
async fn deletes_go_to_the_owners_only() {
    let cluster = Cluster::start(THREE).await;
    cluster.add(&documents(0..50)).await;
    let ids = ["doc-1", "doc-2", "doc-3"];
    let mut owners = [false; 3];
    for id in ids {
        let shard = shard_for_key(id, 64);
        owners[cluster.topology().write_targets(shard)[0].0 as usize] = true;
    }
    cluster.forget_requests();
    let path = "/indexes/movies/documents/delete-batch";
    let task = cluster.succeeded(&cluster.post(path, &json!(ids)).await).await;
    assert_eq!(
        task["details"],
        json!({"providedIds": 3, "deletedDocuments": 3,
        "originalFilter": null})
    );
    let asked: Vec<bool> = cluster.writes().iter().map(|count| *count == 1).collect();
    assert_eq!(asked, owners);
    for fake in &cluster.fakes {
        for seen in fake.writes() {
            assert!(seen.target.contains("/documents/delete-batch"), "{seen:?}");
            assert!(serde_json::from_slice::<Vec<String>>(&seen.body).is_ok());
        }
    }
    for id in ids {
        let gone = cluster.http.get(&format!("/indexes/movies/documents/{id}")).await;
        assert_eq!((gone.status, gone.code()), (404, "document_not_found".into()));
    }
}

#[tokio::test]
async fn every_form_of_delete() {
    let cluster = Cluster::start(THREE).await;
    let filterable = json!(["g"]);
    let path = "/indexes/movies/settings/filterable-attributes";
    cluster.succeeded(&cluster.http.json("PUT", path, &filterable).await).await;
    let all: Vec<Value> = (0..30).map(|i| json!({"id": i, "g": i % 3})).collect();
    cluster.add(&json!(all)).await;
    let base = "/indexes/movies/documents";
    let left = async || cluster.http.get(&format!("{base}?limit=0")).await.json()["total"].clone();
    let delete = async |body: &str| {
        let answer = cluster.http.send("DELETE", base, body.to_owned()).await;
        cluster.succeeded(&answer).await
    };
    delete("[0, \"1\"]").await;
    assert_eq!(left().await, 28);
    delete("{\"ids\": [2]}").await;
    assert_eq!(left().await, 27);
    let task = delete("{\"filter\": \"g = 0\"}").await;
    assert_eq!(left().await, 18);
    assert_eq!(task["details"]["deletedDocuments"], 9);
    assert_eq!(task["details"]["originalFilter"], "\"g = 0\"");
    let answer = cluster.post(&format!("{base}/delete"), &json!({"filter": ["g = 1"]})).await;
    cluster.succeeded(&answer).await;
    assert_eq!(left().await, 9);
    let answer = cluster.http.send("DELETE", &format!("{base}/5"), "null").await;
    cluster.succeeded(&answer).await;
    assert_eq!(left().await, 8);
    for body in
        ["{}", "{\"ids\": [1], \"filter\": \"g = 2\"}", "5", "{\"other\": 1}", "{\"ids\": 1}"]
    {
        cluster.forget_requests();
        let answer = cluster.http.send("DELETE", base, body).await;
        assert_eq!((answer.status, answer.code()), (400, "bad_request".into()), "{body}");
        assert_eq!(cluster.writes(), [0, 0, 0], "{body}");
    }
    for body in ["{", " ", "\n\t"] {
        let broken = cluster.http.send("DELETE", base, body).await;
        assert_eq!((broken.status, broken.code()), (400, "malformed_payload".into()), "{body:?}");
    }
    assert_eq!(left().await, 8);
    for body in ["null", ""] {
        cluster.add(&json!([{"id": 1, "g": 1}])).await;
        delete(body).await;
        assert_eq!(left().await, 0, "{body:?}");
    }
    // An empty list names no document; it must never mean all of them.
    cluster.add(&json!([{"id": 1, "g": 1}])).await;
    cluster.forget_requests();
    let batch = format!("{base}/delete-batch");
    for (method, path, body) in
        [("POST", &*batch, "[]"), ("DELETE", base, "[]"), ("DELETE", base, "{\"ids\": []}")]
    {
        let none = cluster.http.send(method, path, body).await;
        assert_eq!(cluster.succeeded(&none).await["details"]["deletedDocuments"], 0, "{body}");
    }
    assert_eq!(cluster.writes(), [0, 0, 0]);
    assert_eq!(left().await, 1);
}

#[tokio::test]
async fn deleting_from_an_unknown_index_fails_as_a_task() {
    let cluster = Cluster::start(THREE).await;
    let answer = cluster.http.send("DELETE", "/indexes/nope/documents/1", "").await;
    let task = cluster.task(&answer).await;
    assert_eq!(task["status"], "failed");
    assert_eq!(task["error"]["code"], "index_not_found");
    assert!(task["error"]["message"].as_str().unwrap().starts_with("node-"), "{task}");
    let reads = [
        cluster.http.get("/indexes/nope/documents/1").await,
        cluster.http.get("/indexes/nope/documents").await,
        cluster.post("/indexes/nope/search", &json!({})).await,
        cluster.http.get("/indexes/nope").await,
        cluster.http.get("/indexes/nope/settings").await,
        cluster.http.get("/indexes/nope/stats").await,
    ];
    for read in reads {
        assert_eq!((read.status, read.code()), (404, "index_not_found".into()));
    }
}
