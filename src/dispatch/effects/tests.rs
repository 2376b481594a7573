//! What the replicas of a write get.

use super::super::scripted::{Scripted, ring, view};
use super::*;
use crate::dispatch::view::Settings;

/// This node is in the second rack, so that another one goes first.
fn three_racks() -> Scripted {
    let peers = ring(&[("n2", "dc1/r2", 1), ("n1", "dc1/r1", 1), ("n3", "dc1/r3", 1)]);
    Scripted::new(peers, Settings::default())
}

#[test]
fn a_conditional_write_runs_in_the_first_rack_and_the_others_get_what_it_did() {
    let mut s = three_racks();
    s.send("SETNX k v");
    assert_eq!(s.sent("n1"), ["3 SETNX k v"]);
    assert!(s.sent("store").is_empty() && s.sent("n3").is_empty());
    s.answer("n1", ":1\r\n");
    // Nobody else is waited for at DC_ONE.
    assert_eq!(s.replies(), ":1\r\n");
    assert_eq!(s.sent("store"), ["SET k v"]);
    assert_eq!(s.sent("n3"), ["3 SET k v"]);
    s.send("SETNX k w");
    s.sent("n1");
    s.answer("n1", ":0\r\n");
    assert_eq!(s.replies(), ":0\r\n");
    assert!(s.sent("store").is_empty() && s.sent("n3").is_empty(), "nothing changed");
}

#[test]
fn what_the_client_asks_next_waits_for_the_first_replica() {
    let mut s = three_racks();
    s.send("SPOP k");
    assert!(!s.node.wants_read(s.client));
    s.send("GET k");
    assert!(s.sent("store").is_empty(), "it stays with the shell");
    s.sent("n1");
    s.answer("n1", "$1\r\na\r\n");
    assert_eq!(s.node.next_resumable(), Some(s.client));
    assert!(s.node.wants_read(s.client));
    assert_eq!(s.replies(), "$1\r\na\r\n");
    s.send("GET k");
    assert_eq!(s.sent("store"), ["SREM k a", "GET k"]);
}

#[test]
fn an_error_of_the_first_replica_ends_it() {
    let mut s = three_racks();
    s.send("SPOP k");
    s.sent("n1");
    s.answer("n1", "-WRONGTYPE no set\r\n");
    assert_eq!(s.replies(), "-WRONGTYPE no set\r\n");
    s.send("SPOP k");
    s.lose("n1");
    assert!(s.replies().starts_with("-ERR Peer: Peer Node is not connected (n1, r1"));
    assert!(s.sent("store").is_empty() && s.node.wants_read(s.client));
}

#[test]
fn a_quorum_must_have_the_effect() {
    let mut s = three_racks();
    s.send("DYNO_CONFIG:CONN_CONSISTENCY DC_QUORUM");
    s.replies();
    for (answer, reply) in [("+OK\r\n", ":1\r\n"), ("-OOM full\r\n", "-ERR Dynomite: Failed")] {
        s.send("SETNX k v");
        s.sent("n1");
        s.answer("n1", ":1\r\n");
        assert_eq!(s.sent("n3"), ["3 SET k v"]);
        assert_eq!(s.sent("store"), ["SET k v"]);
        s.answer("n3", answer);
        if answer.starts_with('-') {
            assert_eq!(s.replies(), "", "one more may have it");
            s.answer("store", answer);
        } else {
            s.answer("store", "+OK\r\n");
        }
        assert!(s.replies().starts_with(reply), "{answer:?}");
    }
}

#[test]
fn a_client_that_leaves_does_not_keep_the_others_from_the_effect() {
    let mut s = three_racks();
    s.send("SPOP k");
    s.sent("n1");
    s.node.remove_client(s.client, s.now);
    s.answer("n1", "$1\r\na\r\n");
    assert_eq!(s.sent("store"), ["SREM k a"]);
    assert_eq!(s.sent("n3"), ["3 SREM k a"]);
    assert_eq!(s.node.in_flight(), 0);
}

#[test]
fn the_effect_follows_a_peer_to_its_place_in_a_newer_ring() {
    let mut s = three_racks();
    s.send("SPOP k");
    s.sent("n1");
    let mut peers =
        ring(&[("n2", "dc1/r2", 1), ("n1", "dc1/r1", 1), ("n3", "dc1/r3", 1), ("n0", "dc1/r0", 1)]);
    peers.swap(0, 3);
    s.node.set_view(view(peers, Settings::default()));
    s.connect();
    s.answer("n1", "$1\r\na\r\n");
    assert_eq!(s.replies(), "$1\r\na\r\n");
    assert_eq!(s.sent("n3"), ["3 SREM k a"]);
}

#[test]
fn a_relative_time_becomes_a_point_in_time_once_the_store_is_known() {
    let mut s = three_racks();
    let at = s.now.wall_ms() + 10_000;
    s.send("EXPIRE k 10");
    assert_eq!(s.sent("n1"), [format!("3 PEXPIREAT k {at}")]);
    s.send("SET k v EX 10");
    assert_eq!(s.sent("n1"), ["3 SET k v EX 10"]);
    let sent = s.sent("store");
    assert_eq!(sent, [format!("PEXPIREAT k {at}"), "INFO server".into(), "SET k v EX 10".into()]);
    s.answer("store", ":1\r\n$29\r\n# Server\r\nredis_version:7.0\r\n\r\n+OK\r\n");
    assert_eq!(s.replies(), ":1\r\n+OK\r\n");
    s.send("SETEX k 10 v");
    assert_eq!(s.sent("n3").last(), Some(&format!("3 SET k v PXAT {at}")));
}

#[test]
fn an_old_store_and_nodes_of_the_reference_get_relative_times() {
    let mut s = three_racks();
    s.send("SETEX k 10 v");
    s.answer("store", "$19\r\nredis_version:6.0.9\r\n+OK\r\n");
    s.replies();
    s.send("SETEX k 10 v");
    assert_eq!(s.sent("n1"), ["3 SETEX k 10 v", "3 SETEX k 10 v"]);
    let mut peers = ring(&[("n1", "dc1/r1", 1), ("c1", "dc1/r2", 1)]);
    peers[1].is_torc = false;
    let mut s = Scripted::new(peers, Settings::default());
    s.send("SETEX k 10 v");
    assert_eq!(s.sent("c1"), ["3 SETEX k 10 v"]);
    assert_eq!(s.sent("store"), ["SETEX k 10 v"], "its version does not matter");
}

#[test]
fn a_ring_of_one_rack_gets_what_the_client_sent() {
    let mut s = Scripted::new(ring(&[("n1", "dc1/r1", 1)]), Settings::default());
    s.send("SET k v EX 10 NX");
    assert_eq!(s.sent("store"), ["SET k v EX 10 NX"]);
}

#[test]
fn versions_are_read_from_info() {
    assert_eq!(version_of("# Server\r\nredis_version:7.0.15\r\nos:x"), Some((7, 0)));
    assert_eq!(version_of("redis_version:6\r\n"), None);
    assert_eq!(version_of("nothing"), None);
}
