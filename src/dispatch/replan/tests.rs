use crate::dispatch::scripted::{Scripted, ring};
use crate::dispatch::view::Settings;

/// A node whose rack has another one that owns the tokens from 1 on: every key here.
fn three_racks() -> Scripted {
    let peers = ring(&[
        ("a1", "dc/r1", 1),
        ("a2", "dc/r1", u32::MAX),
        ("b", "dc/r2", 1),
        ("c", "dc/r3", 1),
    ]);
    Scripted::new(peers, Settings::default())
}

fn two_connections(peers: &[(&str, &str, u32)]) -> Scripted {
    let settings =
        Settings { datastore_connections: 2, local_peer_connections: 2, ..Settings::default() };
    Scripted::new(ring(peers), settings)
}

#[test]
fn a_write_that_was_never_sent_is_answered_by_another_replica() {
    let mut node = three_racks();
    node.send("SET k v");
    node.lose("a2");
    assert_eq!(node.replies(), "");
    assert_eq!(node.sent("c"), ["3 SET k v"]);
    node.answer("c", "+OK\r\n");
    assert_eq!(node.replies(), "+OK\r\n");
    assert_eq!(node.sent("b"), ["3 SET k v"]);
    node.answer("b", "+OK\r\n");
    assert_eq!(node.replies(), "");
}

#[test]
fn a_write_that_was_sent_is_not_answered_by_another_replica() {
    let mut node = three_racks();
    node.send("SET k v");
    assert_eq!(node.sent("a2"), ["3 SET k v"]);
    node.lose("a2");
    let reply = node.replies();
    assert!(reply.starts_with("-ERR Peer: Peer Node refused connection (a2, r1"), "{reply}");
    node.answer("b", "+OK\r\n");
    assert_eq!(node.replies(), "");
}

#[test]
fn a_write_that_no_replica_took_fails_as_not_connected() {
    let mut node = three_racks();
    node.send("INCR k");
    node.lose("b");
    node.lose("a2");
    node.lose("c");
    let reply = node.replies();
    assert!(reply.starts_with("-ERR Peer: Peer Node is not connected (a2, r1"), "{reply}");
}

#[test]
fn a_replica_that_fails_does_not_answer_for_another() {
    let mut node = three_racks();
    node.send("SET k v");
    node.lose("a2");
    assert_eq!(node.sent("b"), ["3 SET k v"]);
    node.answer("b", "-ERR Storage: Datastore refused connection\r\n");
    assert_eq!(node.replies(), "");
    assert_eq!(node.sent("c"), ["3 SET k v"]);
    node.answer("c", "+OK\r\n");
    assert_eq!(node.replies(), "+OK\r\n");
}

#[test]
fn requests_move_to_another_connection_in_their_order() {
    let mut node = two_connections(&[("a", "dc/r1", 1)]);
    node.send("INCR k");
    assert_eq!(node.sent("store"), ["INCR k"]);
    node.send("INCR k");
    node.send("APPEND k x");
    node.lose("store");
    let reply = node.replies();
    assert!(reply.starts_with("-ERR Storage: Datastore refused connection"), "{reply}");
    assert_eq!(node.sent("store"), ["INCR k", "APPEND k x"]);
    node.answer("store", ":2\r\n");
    node.answer("store", ":3\r\n");
    assert_eq!(node.replies(), ":2\r\n:3\r\n");
    assert_eq!(node.node.counters().replanned, 2);
}

#[test]
fn parts_of_a_command_move_too() {
    let mut node = two_connections(&[("a", "dc/r1", 1), ("b", "dc/r1", u32::MAX)]);
    node.send("MSET k v l w");
    node.lose("b");
    assert_eq!(node.replies(), "");
    assert_eq!(node.sent("b"), ["3 MSET k v l w"]);
    node.answer("b", "+OK\r\n");
    assert_eq!(node.replies(), "+OK\r\n");
}

#[test]
fn a_transaction_in_one_piece_is_not_taken_for_a_request() {
    let mut node = two_connections(&[("a", "dc/r1", 1)]);
    node.send("MULTI");
    node.send("INCR k");
    node.send("EXEC");
    assert!(node.replies().starts_with("+OK\r\n+QUEUED\r\n"));
    node.send("MULTI");
    node.send("INCR k");
    node.send("EXEC");
    node.lose("store");
    let reply = node.replies();
    assert!(reply.contains("-ERR Storage: Datastore refused connection"), "{reply}");
    assert_eq!(node.sent("store"), Vec::<String>::new());
}
