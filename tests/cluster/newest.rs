//! What DC_QUORUM reads promise over embedded stores: a write that was acknowledged is seen, or a
//! later one, although stores differ and one of three racks is away (decision H12).

use crate::client::{Client, Reply, bulk};
use crate::ring::{Layout, Ring, Store, wait_until};

const KEYS: usize = 60;

/// A client of a node, at DC_QUORUM.
fn quorum_client(ring: &Ring, node: usize) -> Client {
    let mut client = ring.nodes[node].connect();
    assert_eq!(client.call(&["TORC.CONSISTENCY", "DC_QUORUM"]).text(), "OK");
    client
}

fn key(n: usize) -> String {
    format!("key:{n}")
}

/// Writes `value` to every `step`th key through the nodes in turn; all are acknowledged.
fn write(ring: &Ring, nodes: &[usize], value: &str, step: usize) {
    let mut clients: Vec<Client> = nodes.iter().map(|n| quorum_client(ring, *n)).collect();
    for n in (0..KEYS).step_by(step) {
        let client = &mut clients[n % nodes.len()];
        match n % 5 {
            0 => assert!(!client.call(&["DEL", &key(n)]).is_error()),
            1 => assert_eq!(client.call(&["SET", &key(n), value, "PX", "600000"]).text(), "OK"),
            _ => assert_eq!(client.call(&["SET", &key(n), value]).text(), "OK"),
        }
    }
}

/// What the last write of key `n` left, when every `step`th key was written last with `value` and
/// all others with `before`.
fn left(n: usize, value: &str, step: usize, before: &str) -> Reply {
    match n % 5 {
        0 => Reply::Nil,
        _ if n.is_multiple_of(step) => bulk(value),
        _ => bulk(before),
    }
}

fn check(ring: &Ring, nodes: &[usize], expected: impl Fn(usize) -> Reply) {
    for node in nodes {
        let mut client = quorum_client(ring, *node);
        for n in 0..KEYS {
            assert_eq!(client.call(&["GET", &key(n)]), expected(n), "{} from n{node}", key(n));
        }
        let keys: Vec<String> = (0..KEYS).map(key).collect();
        let mget: Vec<&str> = ["MGET"].into_iter().chain(keys.iter().map(String::as_str)).collect();
        let all = Reply::Array((0..KEYS).map(&expected).collect());
        assert_eq!(client.call(&mget), all, "together from n{node}");
    }
}

fn wait_for_loss(ring: &Ring, lost: usize) {
    let others = || ring.nodes.iter().enumerate().filter(|(n, _)| *n != lost);
    wait_until("a lost node is known to be gone", || {
        others().all(|(_, node)| node.info("peers_usable").as_deref() == Some("2"))
    });
}

#[test]
fn quorum_reads_see_what_was_acknowledged_whoever_is_away() {
    let mut ring = Ring::start(Layout {
        dcs: vec![vec![1, 1, 1]],
        store: Store::Embedded,
        extra: "  timeout: 5000\n".into(),
    });
    write(&ring, &[0, 1, 2], "first", 1);
    // The third rack misses writes and comes back empty.
    ring.nodes[2].kill();
    wait_for_loss(&ring, 2);
    write(&ring, &[0, 1], "second", 3);
    check(&ring, &[0, 1], |n| left(n, "second", 3, "first"));
    ring.nodes[2].start();
    ring.wait_settled();
    check(&ring, &[0, 1, 2], |n| left(n, "second", 3, "first"));
    // Now another one goes: of the two that are left, one has never heard of most keys.
    ring.nodes[1].kill();
    wait_for_loss(&ring, 1);
    check(&ring, &[0, 2], |n| left(n, "second", 3, "first"));
    write(&ring, &[0, 2], "third", 3);
    check(&ring, &[0, 2], |n| left(n, "third", 3, "first"));
}

#[test]
fn a_node_that_begins_anew_believes_none_that_missed_writes() {
    let (store, extra) = (Store::Embedded, "  timeout: 5000\n".into());
    let mut ring = Ring::start(Layout { dcs: vec![vec![1, 1, 1]], store, extra });
    for n in 0..KEYS {
        assert_eq!(quorum_client(&ring, 0).call(&["SET", &key(n), "first"]).text(), "OK");
    }
    // The second rack stands still while keys are changed, removed and added.
    ring.nodes[1].signal("-STOP");
    wait_for_loss(&ring, 1);
    write(&ring, &[0, 2], "second", 3);
    let mut client = quorum_client(&ring, 0);
    assert_eq!(client.call(&["SET", "new", "second"]).text(), "OK");
    ring.nodes[1].signal("-CONT");
    ring.wait_settled();
    // Of the two that agreed one begins anew: it takes from each key's latest owner what it had.
    ring.nodes[0].kill();
    ring.nodes[0].start();
    let filled = || ring.nodes[0].info("state").as_deref() == Some("NORMAL");
    wait_until("it has what the others have", filled);
    ring.wait_settled();
    let last = |n: usize| match n % 3 {
        0 => left(n, "second", 3, "first"),
        _ => bulk("first"),
    };
    check(&ring, &[0, 1, 2], last);
    // So it does alone: what was removed is known to be.
    for node in [0, 2] {
        let mut client = ring.nodes[node].connect();
        assert_eq!(client.call(&["TORC.LOCAL", "GET", "new"]), bulk("second"));
        for n in 0..KEYS {
            assert_eq!(client.call(&["TORC.LOCAL", "GET", &key(n)]), last(n), "n{node}: {n}");
        }
    }
    ring.nodes[2].kill();
    wait_for_loss(&ring, 2);
    check(&ring, &[0, 1], last);
}
