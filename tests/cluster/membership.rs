//! Joining, leaving, dying and coming back, seen from the client ports.

use crate::client::{Reply, bulk, ok};
use crate::ring::{Layout, Ring, Store, wait_until};

#[test]
fn a_node_that_knows_one_seed_learns_the_ring_and_is_learnt() {
    let mut ring =
        Ring::start(Layout { dcs: vec![vec![1, 1]], store: Store::Embedded, extra: String::new() });
    let mut client = ring.nodes[0].connect();
    for i in 0..200 {
        assert_eq!(client.call(&["SET", &format!("k{i}"), &i.to_string()]), ok());
    }
    ring.add("dc2", "r1", 0);
    ring.wait_settled();
    for node in &ring.nodes {
        assert_eq!(node.info("peers").as_deref(), Some("3"));
    }
    // Writes reach the new datacenter; what it never saw is a miss there.
    assert_eq!(client.call(&["SET", "late", "x"]), ok());
    let mut far = ring.nodes[2].connect();
    wait_until("the copy arrives", || far.call(&["GET", "late"]) == bulk("x"));
    assert_eq!(far.call(&["GET", "k1"]), Reply::Nil);
}

#[test]
fn a_killed_node_is_routed_around_and_used_again_after_its_restart() {
    let mut ring =
        Ring::start(Layout { dcs: vec![vec![2, 2]], store: Store::Embedded, extra: String::new() });
    let mut client = ring.nodes[0].connect();
    for i in 0..100 {
        assert_eq!(client.call(&["SET", &format!("k{i}"), &i.to_string()]), ok());
    }
    let before = ring.nodes[0].info("ring_digest");
    ring.nodes[1].kill();
    wait_until("the death is noticed", || {
        ring.nodes
            .iter()
            .filter(|n| n.process.is_some())
            .all(|n| n.info("peers_usable").as_deref() == Some("3"))
    });
    assert_eq!(ring.nodes[0].info("ring_digest"), before, "a dead node keeps its arc");
    for i in 0..100 {
        let reply = client.call(&["GET", &format!("k{i}")]);
        assert_eq!(reply, bulk(i.to_string()), "read from the other rack");
        assert_eq!(client.call(&["SET", &format!("k{i}"), "new"]), ok());
    }
    ring.nodes[1].start();
    ring.wait_settled();
    let mut back = ring.nodes[1].connect();
    assert_eq!(back.call(&["SET", "k1", "again"]), ok());
    assert_eq!(client.call(&["GET", "k1"]), bulk("again"));
}
