//! Sessions: how long a pin holds, and when it is given up.

use crate::cluster::{Cluster, Shape};
use crate::fake::hand_clock;
use serde_json::json;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use torc::gateway::builtin::Hold;
use torc::gateway::{MemoryKv, SessionStrategy};

const PATH: &str = "/indexes/movies/documents";
const TWO_GROUPS: Shape = Shape { groups: 2, members: 1, copies: 1, shards: 16 };

fn hold_all(cluster: &Cluster) {
    cluster.fakes.iter().for_each(|fake| fake.engine(|e| e.set_hold(Some(Hold::Enqueued))));
}

#[tokio::test]
async fn a_pinned_group_that_goes_away_is_left_and_not_waited_for() {
    let mut cluster = Cluster::start(TWO_GROUPS).await;
    cluster.add(&json!([{"id": 1, "v": 1}])).await;
    hold_all(&cluster);
    let session = cluster.http.with("x-miroir-session", "s");
    let written = session.json("POST", PATH, &json!([{"id": 1, "v": 2}])).await;
    assert_eq!(written.header("x-miroir-degraded"), None, "both took it: group 0 is pinned");
    cluster.stop(&[0]).await;
    for _ in 0..3 {
        let read = session.get(&format!("{PATH}/1")).await;
        assert_eq!(read.json(), json!({"id": 1, "v": 1}), "the other group answers");
    }
    assert_eq!(cluster.gateway.counters().session_wait_timeouts, 0);
}

#[tokio::test]
async fn a_pin_lasts_from_its_last_use() {
    let (ahead, clock) = hand_clock();
    let mut cluster = Cluster::with(TWO_GROUPS, |settings| {
        settings.session_strategy = SessionStrategy::RoutePin;
    })
    .await;
    cluster.kv = Arc::new(MemoryKv::new(clock.clone()));
    cluster.restart_at(clock).await;
    cluster.add(&json!([{"id": 1, "v": 1}])).await;
    hold_all(&cluster);
    let session = cluster.http.with("x-miroir-session", "s");
    session.json("POST", PATH, &json!([{"id": 1, "v": 2}])).await;
    let minutes = |minutes: u64| ahead.fetch_add(minutes * 60_000_000, Ordering::Relaxed);
    let groups_asked = async || {
        cluster.forget_requests();
        for _ in 0..4 {
            assert_eq!(session.get(&format!("{PATH}/1")).await.status, 200);
        }
        let of_group = |fake: &crate::fake::Fake| {
            let log = fake.take_log();
            log.iter().filter(|seen| seen.target.ends_with("/documents/1")).count()
        };
        cluster.fakes.iter().map(of_group).collect::<Vec<_>>()
    };
    for _ in 0..3 {
        minutes(10);
        assert_eq!(groups_asked().await, [4, 0], "group 0 took all of the write: it is pinned");
    }
    minutes(16);
    assert_eq!(groups_asked().await, [2, 2], "nobody used it for a quarter of an hour");
}
