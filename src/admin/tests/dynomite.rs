//! Dynomite's paths.

use serde_json::Value;

use super::*;

#[tokio::test]
async fn texts_are_those_of_the_reference() {
    let pages = pages(Told::default());
    for (path, expected) in [
        ("/ping", "OK\r\n"),
        ("/get_consistency", "Read Consistency: DC_ONE\r\nWrite Consistency: DC_ONE\r\n"),
        ("/get_timeout_factor", "Timeout factor: 3\n"),
        ("/state/get_state", "State: WRITES_ONLY\n"),
    ] {
        let (status, kind, body) = pages.ask(Method::GET, path, "").await;
        assert_eq!((status, body.as_str()), (200, expected), "{path}");
        assert_eq!(kind, "text/plain; charset=utf-8");
    }
    for path in ["/", "/help"] {
        assert!(pages.get(path).await.1.contains("/cluster_describe"));
    }
}

#[tokio::test]
async fn settings_become_commands() {
    let pages = pages(Told::default());
    for (path, expected) in [
        ("/set_consistency/read/dc_quorum", Command::ReadConsistency(Consistency::DcQuorum)),
        (
            "/set_consistency/write/DC_EACH_SAFE_QUORUM",
            Command::WriteConsistency(Consistency::DcEachSafeQuorum),
        ),
        ("/set_timeout_factor/0", Command::TimeoutFactor(1)),
        ("/set_timeout_factor/4", Command::TimeoutFactor(4)),
        ("/set_timeout_factor/99", Command::TimeoutFactor(10)),
        ("/state/standby", Command::State(NodeState::Standby)),
        ("/state/writes_only", Command::State(NodeState::WritesOnly)),
        ("/state/resuming", Command::State(NodeState::Resuming)),
        ("/state/normal", Command::State(NodeState::Normal)),
        ("/peer/down/10.0.0.2:8102", Command::Peers(vec![PeerId(1)], PeerVerb::Down)),
        ("/peer/up/10.1.0.1", Command::Peers(vec![PeerId(3)], PeerVerb::Up)),
        ("/peer/reset/all", Command::Peers(vec![PeerId(1), PeerId(2), PeerId(3)], PeerVerb::Reset)),
    ] {
        assert_eq!(pages.get(path).await, (200, "OK\r\n".to_owned()), "{path}");
        assert_eq!(pages.commands(), [expected], "{path}");
    }
    let (status, body) = pages.get("/read_repairs/enable").await;
    assert_eq!((status, body.as_str()), (200, "Read Repairs: ENABLED\r\n"));
    let (_, body) = pages.get("/read_repairs/disable").await;
    assert_eq!(body, "Read Repairs: DISABLED\r\n");
    assert_eq!(pages.commands(), [Command::ReadRepairs(true), Command::ReadRepairs(false)]);
}

#[tokio::test]
async fn wrong_arguments_are_refused_with_what_is_accepted() {
    let pages = pages(Told::default());
    for (path, status, part) in [
        ("/set_consistency/read/dc_all", 400, "accepted: DC_ONE, DC_QUORUM"),
        ("/set_consistency/scan/dc_one", 400, "accepted: read, write"),
        ("/set_timeout_factor/x", 400, "accepted: 1 to 10"),
        ("/setloglevel/-1", 400, "accepted: 0 to 11"),
        ("/state/asleep", 400, "accepted: normal, standby"),
        ("/read_repairs/perhaps", 400, "accepted: enable, disable"),
        ("/peer/kill/10.1.0.1", 400, "accepted: down, up, reset"),
        ("/peer/down/10.9.9.9", 404, "peers: 10.0.0.2:8102, 10.0.0.2:8103, 10.1.0.1:8104"),
        ("/peer/down/10.0.0.1", 404, "no peer 10.0.0.1"),
        ("/peer/down/10.0.0.2", 409, "several peers: 10.0.0.2:8102, 10.0.0.2:8103"),
    ] {
        let (found, body) = pages.get(path).await;
        assert_eq!(found, status, "{path}: {body}");
        assert!(body.contains(part), "{path}: {body}");
    }
    assert_eq!(pages.commands(), []);
}

#[tokio::test]
async fn what_the_node_refuses_is_a_conflict() {
    let pages = pages(Told { refuse: Some("not while joining"), ..Told::default() });
    assert_eq!(pages.get("/state/standby").await, (409, "not while joining\n".to_owned()));
}

#[tokio::test]
async fn the_log_level_moves_by_dynomites_numbers() {
    let pages = pages(Told::default());
    for (path, verbosity) in [
        ("/loglevelup", 6),
        ("/loglevelup", 7),
        ("/setloglevel/11", 11),
        ("/loglevelup", 11),
        ("/setloglevel/99", 11),
        ("/setloglevel/0", 0),
        ("/logleveldown", 0),
    ] {
        assert_eq!(pages.get(path).await.0, 200);
        assert_eq!(pages.log.verbosity(), verbosity, "{path}");
    }
}

#[tokio::test]
async fn info_has_the_references_fields_in_order() {
    let pages = pages(Told::default());
    let (status, kind, body) = pages.ask(Method::GET, "/info", "").await;
    assert_eq!((status, kind.as_str()), (200, "application/json; charset=utf-8"));
    let start = concat!(
        r#"{"service":"dynomite","source":"host1","version":""#,
        env!("CARGO_PKG_VERSION"),
        r#"","uptime":61,"timestamp":1700000000,"rack":"r1","dc":"dc1","latency_max":1024,"#,
        r#""latency_999th":1024,"latency_99th":1024,"latency_95th":1024,"latency_mean":500,"#,
        r#""payload_size_max":0,"#,
    );
    assert!(body.starts_with(start), "{body}");
    let value: Value = serde_json::from_str(&body).unwrap();
    assert_eq!(value.as_object().unwrap().len(), 43);
    let pool = value["pool"].as_object().unwrap();
    assert_eq!((pool.len(), &pool["client_connections"]), (46, &Value::from(5)));
    assert_eq!(pool["client_read_requests"], 70);
    assert_eq!(pool["peer_connections"], 3);
    assert_eq!(value["pool"]["127.0.0.1:6379"].as_object().unwrap().len(), 34);
    assert!(value["dyn_memory"].as_u64().unwrap() > 0);

    assert_eq!(pages.get("/historeset").await.0, 200);
    let value: Value = serde_json::from_str(&pages.get("/info").await.1).unwrap();
    assert_eq!((&value["latency_max"], &value["latency_mean"]), (&0.into(), &0.into()));
}

#[tokio::test]
async fn cluster_describe_lists_one_token_a_node() {
    let pages = pages(Told::default());
    let expected = concat!(
        r#"{"dcs":[{"name":"dc1","racks":["#,
        r#"{"name":"r1","servers":["#,
        r#"{"name":"10.0.0.1","host":"10.0.0.1","port":8101,"token":0},"#,
        r#"{"name":"10.0.0.2","host":"10.0.0.2","port":8102,"token":2147483648}]},"#,
        r#"{"name":"r2","servers":["#,
        r#"{"name":"10.0.0.2","host":"10.0.0.2","port":8103,"token":0}]}]},"#,
        r#"{"name":"dc2","racks":[{"name":"r1","servers":["#,
        r#"{"name":"10.1.0.1","host":"10.1.0.1","port":8104,"token":7}]}]}]}"#,
        "\n"
    );
    assert_eq!(pages.get("/cluster_describe").await, (200, expected.to_owned()));
}
