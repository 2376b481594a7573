//! Our own pages.

use serde_json::Value;

use super::*;
use crate::gossip::Addr;

async fn json(pages: &Pages, path: &str) -> (u16, Value) {
    let (status, body) = pages.get(path).await;
    (status, serde_json::from_str(&body).unwrap())
}

#[tokio::test]
async fn ready_waits_for_every_latch() {
    let pages_ready = pages(Told::default());
    assert_eq!(pages_ready.get("/live").await, (200, "live\n".to_owned()));
    assert_eq!(pages_ready.get("/ready").await, (200, "ready\n".to_owned()));
    let waiting = pages(Told { waiting: Some("connection refused"), ..Told::default() });
    let expected = "waiting for datastore: connection refused\n".to_owned();
    assert_eq!(waiting.get("/ready").await, (503, expected));
    assert_eq!(waiting.get("/live").await.0, 200);
}

#[tokio::test]
async fn health_follows_the_replicas_of_the_worst_arc() {
    let told = |down: &[u32], read| Told { down: down.to_vec(), read, ..Told::default() };
    for (down, read, status, word) in [
        (vec![], Consistency::DcEachSafeQuorum, 200, "ok"),
        // One of two racks of an arc: enough for DC_ONE, not for a quorum of two.
        (vec![2], Consistency::DcOne, 200, "degraded"),
        (vec![2], Consistency::DcQuorum, 503, "unavailable"),
        // Both owners of the upper half are away, the lower half does not matter.
        (vec![1, 2], Consistency::DcOne, 503, "unavailable"),
        // The other datacenter counts for DC_EACH alone.
        (vec![3], Consistency::DcSafeQuorum, 200, "degraded"),
        (vec![3], Consistency::DcEachSafeQuorum, 503, "unavailable"),
    ] {
        let pages = pages(told(&down, read));
        let (found, value) = json(&pages, "/health").await;
        assert_eq!((found, value["status"].as_str()), (status, Some(word)), "{down:?} {read}");
    }
    let (_, value) = json(&pages(told(&[2], Consistency::DcOne)), "/health").await;
    assert_eq!(value["levels"]["DC_ONE"], true);
    assert_eq!(value["levels"]["DC_QUORUM"], false);
    assert_eq!(value["datacenters"][0]["racks_of_worst_arc"], 1);
    assert!(value.get("alarms").is_none());
    for (down, word) in [(vec![], "alarm"), (vec![1, 2], "unavailable")] {
        let (status, value) = json(
            &pages(Told { alarm: Some("groups differ"), ..told(&down, Consistency::DcOne) }),
            "/health",
        )
        .await;
        assert_eq!((status, value["status"].as_str()), (503, Some(word)));
        assert_eq!(value["alarms"][0], "groups differ");
    }
}

#[tokio::test]
async fn ring_shows_peers_shares_and_changes() {
    let pages = pages(Told { down: vec![1], ..Told::default() });
    let (status, value) = json(&pages, "/ring").await;
    assert_eq!(status, 200);
    assert_eq!(value["digest"].as_str().unwrap().len(), 16);
    assert_eq!((&value["hash"], &value["local"]), (&"murmur".into(), &"10.0.0.1:8101".into()));
    assert_eq!(value["racks"].as_array().unwrap().len(), 3);
    let peer = &value["racks"][0]["peers"][1];
    assert_eq!((&peer["name"], &peer["reachable"]), (&"10.0.0.2:8102".into(), &false.into()));
    assert_eq!((&peer["state"], &peer["tokens"][0]), (&"NORMAL".into(), &"2147483648".into()));
    assert!((peer["share"].as_f64().unwrap() - 50.0).abs() < 0.001);
    let remote = &value["racks"][2];
    assert_eq!((&remote["preselected"], &remote["peers"][0]["kind"]), (&true.into(), &"c".into()));
    let down = (&peer["slot"], &peer["reach"], &peer["phi"]);
    assert_eq!(
        down,
        (&"dc1/r1/2147483648".into(), &"down: no sign of life".into(), &PHI_MAX.into())
    );
    let local = &value["racks"][0]["peers"][0];
    assert_eq!((&local["reach"], &local["phi"]), (&"up".into(), &0.12.into()));
    assert_eq!((&local["heard_ms"], &peer["heard_ms"]), (&Value::Null, &70.into()));
    let event = &value["events"][0];
    assert_eq!(
        (&event["slot"], &event["what"], &event["cause"]),
        (&"dc1/r1/2147483648".into(), &"down".into(), &"no sign of life".into())
    );
    let ring: Ring = serde_json::from_value(value).unwrap();
    assert_eq!(ring.racks[0].peers.len(), 2, "the page can be read back");
}

#[tokio::test]
async fn orders_about_membership_are_posted_from_this_machine() {
    let pages = pages(Told::default());
    let slot = Slot::new("dc1", "r1", DynToken::from_u32(7));
    for (path, command) in [
        ("/ring/leave", Command::Leave),
        ("/ring/forget/dc1/r1/7", Command::Forget(slot)),
        ("/ring/join/n2.example:8101", Command::Join(Addr::new("n2.example", 8101))),
    ] {
        let (status, _, body) = pages.ask(Method::POST, path, "").await;
        assert_eq!((status, body.as_str()), (200, "OK\r\n"), "{path}");
        assert_eq!(pages.commands(), [command]);
        assert_eq!(pages.get(path).await.0, 405, "{path}");
        let (status, _, _) = pages.ask_from("10.0.0.9:77", Method::POST, path, "").await;
        assert_eq!(status, 403, "{path}");
        // The address the node itself listens on is this machine too.
        let (status, _, _) = pages.ask_from("10.0.0.1:77", Method::POST, path, "").await;
        assert_eq!(status, 200, "{path}");
        pages.commands();
    }
    for path in ["/ring/forget/dc1/7", "/ring/forget/dc1/r1/x", "/ring/join/n2", "/ring/join/:1"] {
        let (status, _, body) = pages.ask(Method::POST, path, "").await;
        assert_eq!(status, 400, "{path}: {body}");
    }
    assert_eq!(pages.commands(), []);
}

#[tokio::test]
async fn metrics_are_for_prometheus() {
    let pages = pages(Told { down: vec![1], ..Told::default() });
    let (status, kind, body) = pages.ask(Method::GET, "/metrics", "").await;
    assert_eq!(status, 200);
    assert!(kind.starts_with("application/openmetrics-text"), "{kind}");
    for line in [
        concat!("torc_build_info{version=\"", env!("CARGO_PKG_VERSION"), "\"} 1"),
        "# TYPE torc_clients gauge",
        "torc_clients 5",
        "# TYPE torc_client_reads counter",
        "torc_client_reads_total 70",
        "torc_uptime_seconds 61",
        "torc_ready 1",
        "torc_timeout_factor 3",
        "torc_ring_peers{datacenter=\"dc1\",rack=\"r1\",state=\"NORMAL\",reachable=\"no\"} 1",
        "torc_request_latency_seconds_bucket{le=\"0.000128\"} 1",
        "torc_request_latency_seconds_bucket{le=\"+Inf\"} 2",
        "torc_request_latency_seconds_count 2",
        "torc_hints_kept_total 0",
        "# EOF",
    ] {
        assert!(body.lines().any(|l| l == line), "{line} is not in\n{body}");
    }
}

#[tokio::test]
async fn the_log_filter_is_for_this_machine_only() {
    let pages = pages(Told::default());
    assert_eq!(pages.get("/log-level").await, (200, "info\n".to_owned()));
    let (status, _, body) = pages.ask(Method::PUT, "/log-level", "warn,torc::ring=debug").await;
    assert_eq!((status, body.as_str()), (200, "torc::ring=debug,warn\n"));
    let (status, _, body) = pages.ask(Method::PUT, "/log-level", "torc=loud").await;
    assert_eq!(status, 400, "{body}");
    let (status, _, _) = pages.ask(Method::PUT, "/log-level", &"x".repeat(5_000)).await;
    assert_eq!(status, 400);
    for caller in ["10.0.0.9:77", "[::ffff:10.0.0.9]:77"] {
        let (status, _, _) = pages.ask_from(caller, Method::PUT, "/log-level", "trace").await;
        assert_eq!(status, 403);
        assert_eq!(pages.ask_from(caller, Method::GET, "/log-level", "").await.0, 403);
    }
    assert_eq!(pages.log.filter(), "torc::ring=debug,warn");
    assert_eq!(pages.ask_from("[::1]:77", Method::GET, "/log-level", "").await.0, 200);
}
