//! What operators see and do through the admin ports of a real ring.

use std::io::{Read, Write};
use std::net::TcpStream;

use crate::client::{bulk, ok};
use crate::ring::{Layout, Node, PATIENCE, Ring, Store, redis_bin, wait_until};

/// Status and body of a page.
pub fn page(node: &Node, method: &str, path: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(("127.0.0.1", node.admin)).expect("admin port");
    // A bound against hangs; no test's outcome depends on it.
    stream.set_read_timeout(Some(PATIENCE)).expect("timeout set");
    write!(stream, "{method} {path} HTTP/1.1\r\nHost: x\r\n\r\n").expect("asked");
    let mut reply = String::new();
    stream.read_to_string(&mut reply).expect("answered and closed");
    let (head, body) = reply.split_once("\r\n\r\n").expect("a head");
    let status = head.split(' ').nth(1).and_then(|code| code.parse().ok());
    (status.expect("a status"), body.to_owned())
}

pub fn get(node: &Node, path: &str) -> (u16, String) {
    page(node, "GET", path)
}

/// The value of a metric without labels.
pub fn metric(node: &Node, name: &str) -> u64 {
    let (_, text) = get(node, "/metrics");
    let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    value.and_then(|value| value.parse().ok()).unwrap_or_else(|| panic!("{name} in {text}"))
}

fn digest(node: &Node) -> String {
    let (_, body) = get(node, "/ring");
    let rest = body.split_once("\"digest\":\"").expect("a digest").1;
    rest.split('"').next().expect("its end").to_owned()
}

#[test]
fn ready_follows_the_datastore() {
    let Some(bin) = redis_bin("admin") else { return };
    let mut ring = Ring::start(Layout {
        dcs: vec![vec![1]],
        store: Store::Redis(bin.clone()),
        extra: String::new(),
    });
    wait_until("ready", || get(&ring.nodes[0], "/ready").0 == 200);
    ring.nodes[0].redis = None;
    wait_until("the death is seen", || get(&ring.nodes[0], "/ready").0 == 503);
    let (_, body) = get(&ring.nodes[0], "/ready");
    assert!(body.starts_with("waiting for datastore: "), "{body}");
    assert_eq!(get(&ring.nodes[0], "/live").0, 200);
    ring.nodes[0].start_redis(&bin);
    wait_until("its return is seen", || get(&ring.nodes[0], "/ready").0 == 200);
}

#[test]
fn counters_equal_the_requests_sent_and_digests_are_equal() {
    let ring =
        Ring::start(Layout { dcs: vec![vec![2, 1]], store: Store::Embedded, extra: String::new() });
    let mut client = ring.nodes[0].connect();
    for i in 0..70 {
        assert_eq!(client.call(&["SET", &format!("k{i}"), "v"]), ok());
    }
    for i in 0..30 {
        assert_eq!(client.call(&["GET", &format!("k{i}")]), bulk("v"));
    }
    assert!(client.call(&["NOSUCH", "x"]).is_error());
    let node = &ring.nodes[0];
    assert_eq!(metric(node, "torc_client_writes_total"), 70);
    assert_eq!(metric(node, "torc_client_reads_total"), 30);
    assert_eq!(metric(node, "torc_unknown_commands_total"), 1);
    assert_eq!(metric(node, "torc_clients"), 1);
    let digests: Vec<String> = ring.nodes.iter().map(digest).collect();
    assert!(digests.iter().all(|d| *d == digests[0]), "{digests:?}");
    assert_eq!(Some(&digests[0]), ring.nodes[0].info("ring_digest").as_ref());
}

#[test]
fn a_peer_held_down_is_not_planned_until_it_is_let_up() {
    let ring =
        Ring::start(Layout { dcs: vec![vec![1, 1]], store: Store::Embedded, extra: String::new() });
    let mut client = ring.nodes[0].connect();
    let mut plan = || client.call(&["TORC.PLAN", "SET", "a", "1"]).text();
    // Nodes that begin empty are JOINING until they have looked around.
    wait_until("both count", || plan().matches("NORMAL (usable").count() == 2);
    // An order is answered once every worker acts on it.
    assert_eq!(get(&ring.nodes[0], "/peer/down/n1"), (200, "OK\r\n".into()));
    assert!(plan().contains("n1 NORMAL (not routable)"), "{}", plan());
    assert!(get(&ring.nodes[0], "/ring").1.contains("down: set down by an operator"));
    assert_eq!(get(&ring.nodes[0], "/peer/up/n1").0, 200);
    wait_until("it is used again", || !plan().contains("not routable"));
}

#[test]
fn orders_change_the_node_and_bad_paths_say_what_is_wrong() {
    let ring =
        Ring::start(Layout { dcs: vec![vec![1, 1]], store: Store::Embedded, extra: String::new() });
    let node = &ring.nodes[0];
    let mut client = node.connect();
    assert_eq!(get(node, "/set_consistency/read/dc_quorum").0, 200);
    assert!(get(node, "/get_consistency").1.starts_with("Read Consistency: DC_QUORUM"));
    assert_eq!(get(node, "/state/standby").0, 200);
    let refused = client.call(&["SET", "a", "1"]).text();
    assert!(refused.starts_with("ERR Dynomite: Dynomite's current state"), "{refused}");
    assert_eq!(get(node, "/ready").0, 503);
    // What refuses reads takes writes; nothing hangs.
    for state in ["writes_only", "resuming"] {
        assert_eq!(get(node, &format!("/state/{state}")).0, 200);
        assert_eq!(client.call(&["SET", "a", state]), ok());
        let refused = client.call(&["GET", "a"]).text();
        assert!(refused.starts_with("ERR Dynomite: Dynomite's current state"), "{refused}");
        let mut other = ring.nodes[1].connect();
        wait_until("the write is everywhere", || other.call(&["GET", "a"]) == bulk(state));
    }
    assert_eq!(get(node, "/state/normal").0, 200);
    assert_eq!(client.call(&["SET", "a", "1"]), ok());
    for (path, status) in [
        ("/nowhere", 404),
        ("/peer/down/nobody", 404),
        ("/peer/kill/n1", 400),
        ("/set_consistency/read/dc_all", 400),
        ("/set_timeout_factor/x", 400),
        ("/state/asleep", 400),
        ("/setloglevel/x", 400),
        ("/read_repairs/enable", 409),
        ("/ring/leave", 405),
    ] {
        let (found, body) = get(node, path);
        assert_eq!(found, status, "{path}: {body}");
        assert!(!body.trim().is_empty(), "{path}");
    }
    assert_eq!(page(node, "POST", "/ring/forget/dc1/r2/0").0, 409, "its holder is alive");
    assert_eq!(page(node, "POST", "/ring/forget/dc1").0, 400);
}

#[test]
fn a_node_that_leaves_is_gone_from_every_ring() {
    let ring =
        Ring::start(Layout { dcs: vec![vec![1, 1]], store: Store::Embedded, extra: String::new() });
    assert_eq!(page(&ring.nodes[1], "POST", "/ring/leave").0, 200);
    wait_until("it is gone", || ring.nodes[0].info("peers").as_deref() == Some("1"));
    assert_eq!(get(&ring.nodes[1], "/ready").0, 503);
    assert!(get(&ring.nodes[0], "/ring").1.contains("it said that it leaves"));
}

#[test]
fn what_an_operator_changes_is_an_event() {
    let ring =
        Ring::start(Layout { dcs: vec![vec![1, 1]], store: Store::Embedded, extra: String::new() });
    let node = &ring.nodes[0];
    for (path, what) in [
        ("/set_consistency/read/dc_quorum".to_owned(), "reads at DC_QUORUM"),
        ("/set_timeout_factor/3".to_owned(), "deadlines times 3"),
        ("/state/writes_only".to_owned(), "state WRITES_ONLY"),
        ("/state/normal".to_owned(), "state NORMAL"),
        ("/peer/down/all".to_owned(), "held down"),
        ("/peer/reset/all".to_owned(), "judged and connected anew"),
    ] {
        assert_eq!(get(node, &path).0, 200, "{path}");
        let event = format!("\"what\":\"{what}\",\"cause\":\"by order of an operator\"");
        assert!(get(node, "/ring").1.contains(&event), "{path}");
        assert!(node.log().contains(&format!("{what} (by order of an operator)")), "{path}");
    }
    let (_, metrics) = get(node, "/metrics");
    assert!(metrics.contains("torc_ring_events_total{kind=\"ordered\"} 6"), "{metrics}");
    // The same again changes nothing.
    assert_eq!(get(node, "/set_timeout_factor/3").0, 200);
    assert!(get(node, "/metrics").1.contains("kind=\"ordered\"} 6"));
    ring.wait_settled();
}

#[test]
fn a_hangup_reads_the_configuration_again() {
    let mut ring = Ring::empty(Layout {
        dcs: Vec::new(),
        store: Store::Embedded,
        extra: "  read_consistency: DC_ONE\n".into(),
    });
    ring.seeded = false;
    ring.add("dc1", "r1", 0);
    ring.add("dc1", "r2", 0);
    let node = &ring.nodes[0];
    let level = || node.info("read_consistency");
    wait_until("it serves", || level().as_deref() == Some("DC_ONE"));
    let seed = format!("  dyn_seeds:\n  - 127.0.0.1:{}:r2:dc1:0\n", ring.nodes[1].peer);
    node.edit(|text| {
        let text = text.replace("read_consistency: DC_ONE", "read_consistency: DC_QUORUM");
        text.replace("workers: 1", "workers: 3") + &seed
    });
    node.signal("-HUP");
    wait_until("the new level is in force", || level().as_deref() == Some("DC_QUORUM"));
    ring.wait_settled();
    assert!(node.log().contains("in effect after a restart only: workers"), "{}", node.log());
    let (_, changes) = get(node, "/ring");
    assert!(changes.contains("new in the file: dyn_seeds, read_consistency"), "{changes}");
    // What cannot be used changes nothing, and is told with its line.
    node.edit(|text| text.replace("DC_QUORUM", "SOME") + "  timeout: 1\n");
    node.signal("-HUP");
    wait_until("it is refused", || node.log().contains("the configuration stays as it was"));
    assert!(node.log().contains("SOME"), "{}", node.log());
    assert_eq!(level().as_deref(), Some("DC_QUORUM"));
    node.edit(|text| text.replace("SOME", "DC_SAFE_QUORUM"));
    node.signal("-HUP");
    wait_until("it goes on", || level().as_deref() == Some("DC_SAFE_QUORUM"));
}
