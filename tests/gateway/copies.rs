//! Copies between backends while documents are written, and what makes replicas equal again after
//! writes that met no quorum.

use crate::cluster::{Cluster, PASSES, Shape, eventually};
use crate::fake::Mode;
use serde_json::{Value, json};

const PATH: &str = "/indexes/movies/documents";

fn shape(groups: usize, members: usize, copies: usize) -> Shape {
    Shape { groups, members, copies, shards: 1 }
}

/// `node-1` missed documents and is back; what its repair read at `node-0` is on its way.
async fn held_copy() -> Cluster {
    let mut cluster = Cluster::start(shape(2, 1, 1)).await;
    cluster.add(&json!([{"id": "a", "v": 1}])).await;
    cluster.stop(&[1]).await;
    cluster.add(&json!([{"id": "a", "v": 2}, {"id": "b", "v": 2}])).await;
    cluster.fakes[0].set(Mode::Held("/documents/fetch"));
    cluster.resume(&[1]).await;
    eventually("the page was read", async || cluster.fakes[0].held() > 0).await;
    cluster.forget_requests();
    cluster
}

/// Lets the page go and waits until nothing is missing any more.
async fn copied(cluster: &Cluster) {
    cluster.fakes[0].set(Mode::Normal);
    eventually("the copy is whole", async || cluster.state_of("node-1")["missedShards"] == 0).await;
}

fn stored(cluster: &Cluster, id: &str) -> Vec<Option<Value>> {
    cluster.fakes.iter().map(|fake| fake.engine(|e| e.document("movies", id))).collect()
}

#[tokio::test]
async fn a_page_that_was_read_before_a_write_never_comes_after_it() {
    let cluster = held_copy().await;
    let answer = cluster.post(PATH, &json!([{"id": "a", "v": 3}])).await;
    assert_eq!(answer.header("x-miroir-degraded"), None, "both took it");
    cluster.succeeded(&answer).await;
    copied(&cluster).await;
    let sent = cluster.fakes[1].writes();
    let bodies = sent.iter().map(|seen| String::from_utf8_lossy(&seen.body).into_owned());
    let bodies: Vec<String> = bodies.collect();
    assert!(bodies.iter().any(|body| body.contains("\"id\":\"b\"")), "b was copied: {bodies:?}");
    let old = |body: &String| body.contains("\"id\":\"a\"") && body.contains("\"v\":2");
    assert!(!bodies.iter().any(old), "a is newer than the page: {bodies:?}");
    assert_eq!(stored(&cluster, "a")[0], stored(&cluster, "a")[1]);
}

#[tokio::test]
async fn a_page_that_was_read_before_a_deletion_brings_nothing_back() {
    let cluster = held_copy().await;
    cluster.succeeded(&cluster.http.send("DELETE", PATH, "").await).await;
    copied(&cluster).await;
    let added: Vec<_> = cluster.fakes[1].writes();
    let added: Vec<_> = added.iter().filter(|seen| seen.target.contains("primaryKey")).collect();
    assert!(added.is_empty(), "documents came back: {added:?}");
    assert_eq!((stored(&cluster, "a"), stored(&cluster, "b")), (vec![None; 2], vec![None; 2]));
}

#[tokio::test]
async fn replicas_are_equal_again_after_a_write_that_too_few_took() {
    let mut cluster = Cluster::start(shape(1, 3, 3)).await;
    cluster.add(&json!([{"id": "a", "v": 1}, {"id": "b", "v": 1}])).await;
    cluster.stop(&[1, 2]).await;
    let refused = cluster.post(PATH, &json!([{"id": "a", "v": 2}])).await;
    assert_eq!((refused.status, refused.code()), (503, "miroir_no_quorum".into()));
    let refused = cluster.http.send("DELETE", &format!("{PATH}/b"), "").await;
    assert_eq!((refused.status, refused.code()), (503, "miroir_no_quorum".into()));
    cluster.resume(&[1, 2]).await;
    eventually("all have what one took", async || {
        let a = stored(&cluster, "a");
        a.iter().all(|a| a.as_ref().is_some_and(|a| a["v"] == 2))
            && stored(&cluster, "b") == [None, None, None]
    })
    .await;
}

#[tokio::test]
async fn replicas_are_equal_again_after_a_write_nobody_knows_the_outcome_of() {
    let cluster = Cluster::with(shape(2, 1, 1), |settings| {
        settings.node_timeout = PASSES;
    })
    .await;
    cluster.add(&json!([{"id": "a", "v": 1}])).await;
    cluster.fakes[0].set(Mode::Held("/documents"));
    cluster.fakes[1].set(Mode::Silent);
    let refused = cluster.post(PATH, &json!([{"id": "a", "v": 2}])).await;
    assert_eq!((refused.status, refused.code()), (503, "miroir_no_quorum".into()));
    let versions = || {
        let stored = stored(&cluster, "a");
        stored.iter().map(|a| a.as_ref().unwrap()["v"].as_u64().unwrap()).collect::<Vec<_>>()
    };
    eventually("one of them has it", async || versions() == [2, 1]).await;
    assert_eq!(cluster.gateway.status()["unsureShards"], 1);
    cluster.fakes.iter().for_each(|fake| fake.set(Mode::Normal));
    eventually("both say the same", async || versions()[0] == versions()[1]).await;
}

/// What a backend has as its stop words.
async fn stop_words(cluster: &Cluster, node: usize) -> Value {
    let direct = crate::http::Http::new(cluster.fakes[node].url());
    let key = format!("Bearer {}", crate::cluster::NODE_KEY);
    let direct = direct.with("authorization", &key);
    direct.get("/indexes/movies/settings/stop-words").await.json()
}

#[tokio::test]
async fn settings_come_from_a_backend_that_has_them() {
    let mut cluster = Cluster::start(Shape { shards: 16, ..shape(2, 2, 1) }).await;
    cluster.add(&crate::cluster::documents(0..20)).await;
    let path = "/indexes/movies/settings/stop-words";
    // A whole group misses the change: its members are no source for each other.
    cluster.stop(&[0, 1]).await;
    let degraded = cluster.http.json("PUT", path, &json!(["the"])).await;
    assert_eq!(degraded.header("x-miroir-degraded"), Some("groups=1"));
    cluster.succeeded(&degraded).await;
    cluster.resume(&[0, 1]).await;
    for id in ["node-0", "node-1"] {
        eventually("it answers", async || cluster.state_of(id)["state"] == "live").await;
    }
    cluster.add(&crate::cluster::documents(0..20)).await;
    for node in 0..4 {
        assert_eq!(stop_words(&cluster, node).await, json!(["the"]), "node-{node}");
    }
    // One backend misses a change without which there is no quorum: it must not stay behind.
    cluster.stop(&[1, 3]).await;
    let refused = cluster.http.json("PUT", path, &json!(["a"])).await;
    assert_eq!((refused.status, refused.code()), (503, "miroir_no_quorum".into()));
    cluster.resume(&[1, 3]).await;
    for id in ["node-1", "node-3"] {
        eventually("it answers", async || cluster.state_of(id)["state"] == "live").await;
    }
    cluster.add(&crate::cluster::documents(0..20)).await;
    for node in 0..4 {
        assert_eq!(stop_words(&cluster, node).await, json!(["a"]), "node-{node}");
    }
}
