//! Lists of more tasks than one page looks at.

use crate::cluster::{Cluster, Shape};
use serde_json::{Value, json};
use torc::gateway::KEY_PREFIX;

const PATH: &str = "/indexes/movies/documents";
/// Task numbers of two neighbours of one slot lie so far apart.
const STRIDE: u64 = 16;

/// The key of something a gateway keeps in the ring.
fn key(class: &str, name: u64) -> String {
    format!("{KEY_PREFIX}:{class}:{name}")
}

async fn kept(cluster: &Cluster, key: &str) -> Value {
    let values = cluster.kv.get(key).await.unwrap();
    serde_json::from_slice(&values[0]).unwrap()
}

async fn keep(cluster: &Cluster, key: &str, value: &Value) {
    cluster.kv.set(key, value.to_string().into(), None).await.unwrap();
}

/// As if slot 1 had given out `count` tasks of which the first failed, and slot 2 a million a
/// month ago.
async fn history(cluster: &Cluster, count: u64) {
    let last = cluster.add(&json!([{"id": 1}])).await["uid"].as_u64().unwrap();
    let mut entry = kept(cluster, &key("task", last)).await;
    for sequence in 0..count {
        let uid = sequence * STRIDE + 1;
        entry["d"]["uid"] = json!(uid);
        entry["d"]["status"] = json!(if sequence == 0 { "failed" } else { "succeeded" });
        keep(cluster, &key("task", uid), &entry).await;
    }
    let mut claim = kept(cluster, &key("seq", 0)).await;
    (claim["d"]["owner"], claim["d"]["ceiling"]) = (json!("other"), json!(count));
    keep(cluster, &key("seq", 1), &claim).await;
    (claim["d"]["owner"], claim["d"]["ceiling"]) = (json!("gone"), json!(1_000_000));
    claim["d"]["seen_us"] = json!(claim["d"]["seen_us"].as_u64().unwrap() - 30 * 86_400_000_000);
    keep(cluster, &key("seq", 2), &claim).await;
}

/// The tasks of all pages, as a client that follows `next` sees them, and the number of pages.
async fn follow(cluster: &Cluster, query: &str) -> (Vec<u64>, usize) {
    let (mut seen, mut from, mut pages) = (Vec::new(), String::new(), 0);
    loop {
        let page = cluster.http.get(&format!("/tasks?{query}{from}")).await.json();
        let uids = page["results"].as_array().unwrap().iter();
        seen.extend(uids.map(|task| task["uid"].as_u64().unwrap()));
        pages += 1;
        match page["next"].as_u64() {
            Some(next) => from = format!("&from={next}"),
            None => return (seen, pages),
        }
    }
}

#[tokio::test]
async fn who_follows_next_sees_every_task() {
    const COUNT: u64 = 12_000;
    let cluster = Cluster::start(Shape { groups: 1, members: 1, copies: 1, shards: 16 }).await;
    history(&cluster, COUNT).await;
    // The newest come first, whatever a slot gave out long ago.
    let first = cluster.http.get("/tasks?limit=3").await.json();
    let uids = first["results"].as_array().unwrap().iter().map(|task| task["uid"].clone());
    let newest = (COUNT - 1) * STRIDE + 1;
    assert_eq!(uids.collect::<Vec<_>>(), [newest, newest - STRIDE, newest - 2 * STRIDE]);
    assert_eq!(first["next"], newest - 3 * STRIDE);
    // One task of many, beyond what one page looks at.
    let (failed, pages) = follow(&cluster, "statuses=failed").await;
    assert_eq!(failed, [1]);
    assert!(pages > 1, "all were looked at for one page");
    let (all, _) = follow(&cluster, "limit=1000").await;
    assert_eq!(all.len() as u64, COUNT + 1);
    assert!(all.is_sorted_by(|a, b| a > b));
    let oldest = cluster.http.get("/tasks?reverse=true&limit=2").await.json();
    assert_eq!(
        (&oldest["results"][0]["uid"], &oldest["results"][1]["uid"]),
        (&json!(0), &json!(1))
    );
    let (failed, _) = follow(&cluster, "reverse=true&statuses=failed").await;
    assert_eq!(failed, [1]);
    let written = cluster.post(PATH, &json!([{"id": 2}])).await;
    assert_eq!(written.json()["taskUid"].as_u64().unwrap() % STRIDE, 0, "its own slot goes on");
}
