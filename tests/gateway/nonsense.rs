//! Reads from backends that answer nonsense, late or never.

use crate::cluster::{Cluster, PASSES, Shape, documents, serve};
use crate::fake::Mode;
use bytes::Bytes;
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;
use torc::gateway::builtin::Hold;
use torc::gateway::{KvError, KvFuture, RingKv, Settings};

const PATH: &str = "/indexes/movies/documents";
const TWO_GROUPS: Shape = Shape { groups: 2, members: 1, copies: 1, shards: 16 };

fn nonsense() -> Vec<Mode> {
    vec![
        Mode::Always(200, ""),
        Mode::Always(200, "garbage"),
        Mode::Always(200, "{}"),
        Mode::Always(200, "[]"),
        Mode::Always(200, "{\"results\":5,\"hits\":null}"),
        Mode::Always(200, "{\"id\":\"doc-3\",\"title\":\"of somebody else\"}"),
        Mode::Always(200, "{\"id\":\"doc-3\",\"_miroir_shard\":\"x\"}"),
        Mode::Always(404, "<html>"),
        Mode::Always(500, "{}"),
        Mode::Always(401, "{\"code\":\"invalid_api_key\"}"),
        Mode::Silent,
        Mode::Slow(PASSES + PASSES / 2),
    ]
}

/// What is set on the gateway so that the test of a backend of this mode ends.
fn patience(mode: &Mode, settings: &mut Settings) {
    if matches!(mode, Mode::Silent | Mode::Slow(_)) {
        settings.node_timeout = PASSES;
    }
}

#[tokio::test]
async fn reads_go_to_a_backend_that_makes_sense() {
    for mode in nonsense() {
        let cluster = Cluster::with(TWO_GROUPS, |settings| patience(&mode, settings)).await;
        cluster.add(&documents(0..20)).await;
        cluster.fakes[0].set(mode.clone());
        // Each group is the first one in turn; a search's turn depends on what it asks.
        for turn in 0..4 {
            let one = cluster.http.get(&format!("{PATH}/doc-3")).await;
            assert_eq!(one.json(), documents(3..4)[0], "{mode:?} {turn}");
            let part = cluster.http.get(&format!("{PATH}/doc-3?fields=n,title")).await;
            let expected = json!({"n": 3, "title": "title 3"});
            assert_eq!(part.json(), expected, "{mode:?} {turn}");
            let listed = cluster.http.get(&format!("{PATH}?limit=3")).await;
            assert_eq!(listed.json()["total"], 20, "{mode:?} {turn}");
            let names = json!(["*", format!("turn-{turn}")]);
            let body = json!({"q": "title", "limit": 1, "attributesToRetrieve": names});
            let found = cluster.post("/indexes/movies/search", &body).await;
            assert_eq!(found.json()["estimatedTotalHits"], 20, "{mode:?} {turn}");
            assert_eq!(found.header("x-miroir-degraded"), None, "{mode:?}");
        }
        let stats = cluster.http.get("/indexes/movies/stats").await;
        assert_eq!(stats.json()["numberOfDocuments"], 20, "{mode:?}");
        let index = cluster.http.get("/indexes/movies").await;
        assert_eq!(index.json()["primaryKey"], "id", "{mode:?}");
        let settings = cluster.http.get("/indexes/movies/settings").await;
        assert_eq!(settings.json()["filterableAttributes"], json!([]), "{mode:?}");
        let found = cluster.http.get("/_miroir/shards?index=movies&id=doc-3").await.json();
        let has = |group: usize| found["groups"][group]["owners"][0]["has"].clone();
        assert_eq!((has(0), has(1)), (json!("unknown"), json!("yes")), "{mode:?}");
        let version = cluster.http.get("/version").await;
        assert_eq!(version.json()["pkgVersion"], "1.50.0", "{mode:?}");
    }
}

#[tokio::test]
async fn a_task_whose_backend_stops_making_sense_ends_with_the_others() {
    for mode in nonsense() {
        let cluster = Cluster::with(TWO_GROUPS, |settings| {
            patience(&mode, settings);
            settings.task_lost_after = Duration::ZERO;
        })
        .await;
        cluster.add(&json!([{"id": "first"}])).await;
        cluster.fakes[0].engine(|e| e.set_hold(Some(Hold::Enqueued)));
        let written = cluster.post(PATH, &json!([{"id": 1}])).await;
        assert_eq!(written.header("x-miroir-degraded"), None, "both took it");
        cluster.fakes[0].set(mode.clone());
        let task = cluster.succeeded(&written).await;
        assert_eq!(task["miroir"]["backends"]["node-0"]["status"], "lost", "{mode:?}: {task}");
        assert_eq!(task["miroir"]["backends"]["node-1"]["status"], "succeeded", "{mode:?}");
    }
}

#[tokio::test]
async fn nothing_is_written_while_the_aliases_were_never_read() {
    let cluster = Cluster::start(TWO_GROUPS).await;
    let unread: Arc<dyn RingKv> = Arc::new(Unreachable);
    let (_, http, serving) = serve(cluster.settings.clone(), unread).await;
    for (method, path) in [("POST", PATH), ("GET", PATH), ("DELETE", PATH)] {
        let body = if method == "POST" { json!([{"id": 1}]) } else { json!([1]) };
        let answer = http.json(method, path, &body).await;
        let expected = (503, "miroir_state_unavailable".to_owned());
        assert_eq!((answer.status, answer.code()), expected, "{method}");
    }
    assert_eq!(cluster.writes(), [0, 0]);
    serving.abort();
}

/// A ring that cannot be reached.
struct Unreachable;

impl RingKv for Unreachable {
    fn get<'a>(&'a self, _: &'a str) -> KvFuture<'a, Vec<Bytes>> {
        Box::pin(std::future::ready(Err(KvError("away".to_owned()))))
    }

    fn set<'a>(&'a self, _: &'a str, _: Bytes, _: Option<Duration>) -> KvFuture<'a, ()> {
        Box::pin(std::future::ready(Err(KvError("away".to_owned()))))
    }
}
