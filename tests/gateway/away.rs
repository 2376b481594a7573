//! Lookups and reads while nobody who knows can be asked.

use crate::cluster::{Cluster, Shape, documents, eventually};
use crate::fake::{Mode, hand_clock};
use serde_json::json;
use std::sync::atomic::Ordering;
use std::time::Duration;
use torc::gateway::builtin::Hold;

const PATH: &str = "/indexes/movies/documents";

fn shape(groups: usize, members: usize) -> Shape {
    Shape { groups, members, copies: 1, shards: 16 }
}

#[tokio::test]
async fn reads_say_that_shards_cannot_be_reached() {
    let mut cluster = Cluster::start(shape(1, 2)).await;
    cluster.add(&documents(0..4)).await;
    // A gateway that has not looked the index up yet.
    cluster.restart().await;
    cluster.stop(&[0, 1]).await;
    let queries = json!({"queries": [{"indexUid": "movies"}]});
    for answer in [
        cluster.http.get(&format!("{PATH}/doc-1")).await,
        cluster.http.get(PATH).await,
        cluster.post("/indexes/movies/search", &json!({})).await,
        cluster.post("/indexes/movies/facet-search", &json!({"facetName": "n"})).await,
        cluster.post("/multi-search", &queries).await,
        cluster.http.get("/indexes/movies").await,
        cluster.http.get("/indexes/movies/stats").await,
    ] {
        let said = answer.json();
        assert_eq!((answer.status, answer.code().as_str()), (503, "miroir_shard_unavailable"));
        assert_eq!((&said["type"], answer.header("retry-after")), (&json!("system"), Some("10")));
    }
    let written = cluster.post(PATH, &json!([{"id": 1}])).await;
    assert_eq!((written.status, written.code()), (503, "miroir_no_quorum".into()));
}

#[tokio::test]
async fn a_read_ends_when_its_time_is_over() {
    let mut cluster = Cluster::start(shape(2, 1)).await;
    cluster.add(&documents(0..4)).await;
    cluster.settings.request_timeout = Duration::from_millis(150);
    cluster.restart().await;
    cluster.fakes.iter().for_each(|fake| fake.set(Mode::Silent));
    for answer in [
        cluster.http.get(&format!("{PATH}/doc-1")).await,
        cluster.http.get(PATH).await,
        cluster.post("/indexes/movies/search", &json!({})).await,
        cluster.http.get("/indexes/movies/settings").await,
    ] {
        assert_eq!((answer.status, answer.code()), (504, "miroir_timeout".into()));
        assert_eq!(answer.json()["type"], "system");
    }
}

#[tokio::test]
async fn a_backend_that_missed_a_creation_is_not_believed_that_there_is_no_index() {
    let (ahead, clock) = hand_clock();
    let mut cluster = Cluster::start(shape(2, 1)).await;
    cluster.restart_at(clock).await;
    cluster.stop(&[1]).await;
    let made = cluster.post("/indexes", &json!({"uid": "movies", "primaryKey": "sku"})).await;
    assert_eq!(made.header("x-miroir-degraded"), Some("groups=1"));
    cluster.succeeded(&made).await;
    cluster.stop(&[0]).await;
    cluster.resume(&[1]).await;
    eventually("it answers", async || cluster.state_of("node-1")["state"] == "live").await;
    // What was known a while ago still holds: nobody says otherwise.
    ahead.fetch_add(60_000_000, Ordering::Relaxed);
    let document = json!([{"id": "x", "sku": 7}]);
    let kept = cluster.post(PATH, &document).await;
    assert_eq!(kept.header("x-miroir-degraded"), Some("groups=1"), "{:?}", kept.json());
    eventually("it is stored by its key", async || {
        cluster.fakes[1].engine(|e| e.document("movies", "7")).is_some()
    })
    .await;
}

#[tokio::test]
async fn an_index_is_not_made_anew_while_those_that_have_it_are_away() {
    let mut cluster = Cluster::start(shape(2, 1)).await;
    cluster.stop(&[1]).await;
    let made = cluster.post("/indexes", &json!({"uid": "movies", "primaryKey": "sku"})).await;
    cluster.succeeded(&made).await;
    cluster.stop(&[0]).await;
    cluster.resume(&[1]).await;
    cluster.restart().await;
    cluster.forget_requests();
    let refused = cluster.post(PATH, &json!([{"id": "x", "sku": 7}])).await;
    assert_eq!((refused.status, refused.code()), (503, "miroir_no_quorum".into()));
    assert_eq!(cluster.writes(), [0, 0], "no index of another key");
    cluster.resume(&[0]).await;
    eventually("it answers", async || cluster.state_of("node-0")["state"] == "live").await;
    cluster.add(&json!([{"id": "x", "sku": 7}])).await;
    assert_eq!(cluster.http.get(&format!("{PATH}/7")).await.json()["id"], "x");
}

#[tokio::test]
async fn what_was_missed_of_an_index_goes_with_it() {
    let mut cluster = Cluster::start(shape(2, 1)).await;
    cluster.add(&json!([{"id": 1}])).await;
    for away in [1, 0] {
        cluster.stop(&[away]).await;
        let path = "/indexes/movies/settings/stop-words";
        let degraded = cluster.http.json("PUT", path, &json!(["the"])).await;
        assert_eq!(degraded.header("x-miroir-degraded"), Some("groups=1"), "node-{away}");
        cluster.resume(&[away]).await;
        let id = format!("node-{away}");
        eventually("it answers", async || cluster.state_of(&id)["state"] == "live").await;
    }
    let deleted = cluster.http.send("DELETE", "/indexes/movies", "").await;
    assert_eq!(deleted.header("x-miroir-degraded"), None);
    cluster.succeeded(&deleted).await;
    cluster.restart().await;
    cluster.add(&json!([{"id": 2}])).await;
    assert_eq!(cluster.http.get(PATH).await.json()["results"], json!([{"id": 2}]));
}

#[tokio::test]
async fn a_task_is_lost_only_when_its_backend_says_so() {
    let cluster = Cluster::start(shape(1, 1)).await;
    cluster.add(&json!([{"id": 1}])).await;
    cluster.fakes[0].engine(|e| e.set_hold(Some(Hold::Enqueued)));
    let answer = cluster.post(PATH, &json!([{"id": 2}])).await;
    let path = format!("/tasks/{}", answer.json()["taskUid"]);
    // Somebody stands in for the backend for a while.
    cluster.fakes[0].set(Mode::Always(404, "<html>"));
    assert_eq!(cluster.http.get(&path).await.json()["status"], "enqueued");
    cluster.fakes[0].set(Mode::Normal);
    cluster.fakes[0].engine(|e| e.set_hold(None));
    cluster.succeeded(&answer).await;
}

#[tokio::test]
async fn lag_is_shown_while_it_lasts() {
    let mut cluster = Cluster::start(shape(2, 1)).await;
    cluster.add(&documents(0..40)).await;
    cluster.stop(&[1]).await;
    cluster.add(&documents(0..40)).await;
    let (one, other) = (cluster.state_of("node-0"), cluster.state_of("node-1"));
    assert_eq!((&one["missedShards"], &one["owns"]), (&json!(0), &json!("0-15")));
    let missed = other["missedShards"].as_u64().unwrap();
    assert!(missed > 10, "{other}");
    assert_eq!(other["state"], "refusing");
    let groups = cluster.gateway.status()["groups"].clone();
    assert_eq!(
        (&groups[0]["degradedWrites"], &groups[1]["degradedWrites"]),
        (&json!(0), &json!(1))
    );
    let figures = cluster.gateway.backend_figures();
    assert_eq!((figures[1].live, figures[1].missed_shards), (false, missed));
    cluster.fakes[0].set(Mode::Held("/documents"));
    let http = cluster.http.clone();
    let writing = tokio::spawn(async move { http.json("POST", PATH, &documents(0..4)).await });
    eventually("a write waits", async || cluster.state_of("node-0")["waitingWrites"] == 1).await;
    cluster.fakes[0].set(Mode::Normal);
    assert_eq!(writing.await.unwrap().status, 202);
    cluster.resume(&[1]).await;
    eventually("nothing is missing", async || cluster.state_of("node-1")["missedShards"] == 0)
        .await;
}
