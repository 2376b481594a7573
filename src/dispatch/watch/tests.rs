//! Transactions that watch.

use super::super::Event;
use super::super::scripted::{Scripted, ring, view};
use crate::dispatch::failure::Cause;
use crate::dispatch::view::Settings;

fn one_node() -> Scripted {
    Scripted::new(ring(&[("n1", "dc1/r1", 1)]), Settings::default())
}

/// This node is in the second rack: the first one's owner watches.
fn second_rack() -> Scripted {
    let peers = ring(&[("n2", "dc1/r2", 1), ("n1", "dc1/r1", 1), ("n3", "dc1/r3", 1)]);
    Scripted::new(peers, Settings::default())
}

fn watch(s: &mut Scripted, key: &str) {
    s.send(&format!("WATCH {key}"));
    assert!(!s.node.wants_read(s.client), "what it reads next waits");
    s.connect();
    assert_eq!(s.sent("own store"), [format!("WATCH {key}")]);
    s.answer("own store", "+OK\r\n");
    assert_eq!(s.replies(), "+OK\r\n");
    assert!(s.node.wants_read(s.client));
}

fn watch_far(s: &mut Scripted, key: &str) {
    s.send(&format!("WATCH {key}"));
    s.connect();
    assert_eq!(s.sent("own n1"), [format!("3 WATCH {key}")]);
    s.answer("own n1", "+OK\r\n");
    assert_eq!(s.replies(), "+OK\r\n");
}

fn queue(s: &mut Scripted, line: &str) {
    s.send("MULTI");
    s.send(line);
    assert_eq!(s.replies(), "+OK\r\n+QUEUED\r\n");
}

#[test]
fn a_watched_transaction_keeps_to_one_connection() {
    let mut s = one_node();
    watch(&mut s, "k");
    s.send("GET k");
    assert_eq!(s.sent("store"), ["GET k"]);
    s.answer("store", "$1\r\n1\r\n");
    s.replies();
    queue(&mut s, "SET k 2");
    s.send("EXEC");
    assert_eq!(s.sent("own store"), ["MULTI", "SET k 2", "EXEC"]);
    assert!(s.sent("store").is_empty());
    assert!(!s.node.wants_read(s.client), "what it asks next must not come first");
    s.answer("own store", "+OK\r\n+QUEUED\r\n*1\r\n+OK\r\n");
    assert_eq!(s.replies(), "*1\r\n+OK\r\n");
    assert!(s.node.wants_read(s.client));
    // The connection is free for the next one.
    s.send("WATCH k");
    assert_eq!(s.sent("own store"), ["WATCH k"]);
}

#[test]
fn a_changed_key_aborts() {
    let mut s = one_node();
    watch(&mut s, "k");
    queue(&mut s, "SET k 2");
    s.send("EXEC");
    s.sent("own store");
    s.answer("own store", "+OK\r\n+QUEUED\r\n*-1\r\n");
    assert_eq!(s.replies(), "*-1\r\n");
    // So does an empty one.
    watch(&mut s, "k");
    s.send("MULTI");
    assert_eq!(s.replies(), "+OK\r\n");
    s.send("EXEC");
    assert_eq!(s.sent("own store"), ["MULTI", "EXEC"]);
    s.answer("own store", "+OK\r\n*-1\r\n");
    assert_eq!(s.replies(), "*-1\r\n");
}

#[test]
fn the_other_racks_get_what_was_not_aborted() {
    let mut s = second_rack();
    watch_far(&mut s, "k");
    queue(&mut s, "SET k 2");
    s.send("EXEC");
    let sent = s.sent("own n1");
    assert!(sent.len() == 1 && sent[0].starts_with("3 TORC.EXEC "), "{sent:?}");
    assert!(s.sent("store").is_empty() && s.sent("n3").is_empty());
    s.answer("own n1", "*1\r\n+OK\r\n");
    assert_eq!(s.replies(), "*1\r\n+OK\r\n");
    assert_eq!(s.sent("store"), ["MULTI", "SET k 2", "EXEC"]);
    s.answer("store", "+OK\r\n+QUEUED\r\n*1\r\n+OK\r\n");
    let sent = s.sent("n3");
    assert!(sent.len() == 1 && sent[0].starts_with("3 TORC.EXEC "), "{sent:?}");
    s.answer("n3", "*1\r\n+OK\r\n");
    watch_far(&mut s, "k");
    queue(&mut s, "SET k 3");
    s.send("EXEC");
    s.sent("own n1");
    s.answer("own n1", "*-1\r\n");
    assert_eq!(s.replies(), "*-1\r\n");
    assert!(s.sent("store").is_empty() && s.sent("n3").is_empty());
}

#[test]
fn a_transaction_stands_behind_what_its_client_wrote() {
    let mut s = second_rack();
    watch_far(&mut s, "k");
    s.send("SET k 1");
    assert_eq!(s.sent("n1"), ["3 SET k 1"]);
    s.sent("n3");
    s.sent("store");
    s.answer("store", "+OK\r\n");
    assert_eq!(s.replies(), "+OK\r\n");
    queue(&mut s, "SET k 2");
    s.send("EXEC");
    assert_eq!(s.sent("n1"), ["3 PING"]);
    assert!(s.sent("own n1").is_empty());
    assert!(!s.node.wants_read(s.client), "what it asks next must not come first");
    s.answer("n1", "+OK\r\n");
    s.answer("n1", "+PONG\r\n");
    let sent = s.sent("own n1");
    assert!(sent.len() == 1 && sent[0].starts_with("3 TORC.EXEC "), "{sent:?}");
    s.answer("own n1", "*-1\r\n");
    assert_eq!(s.replies(), "*-1\r\n");
    // One that leaves meanwhile runs nothing.
    watch_far(&mut s, "k");
    s.send("SET k 1");
    s.sent("n1");
    s.sent("store");
    s.answer("store", "+OK\r\n");
    s.replies();
    queue(&mut s, "SET k 2");
    s.send("EXEC");
    s.sent("n1");
    s.node.remove_client(s.client, s.now);
    s.answer("n1", "+OK\r\n");
    s.answer("n1", "+PONG\r\n");
    assert!(!s.has("own n1"));
}

#[test]
fn what_is_read_is_no_older_than_what_is_watched() {
    let mut s = second_rack();
    s.send("TORC.CONSISTENCY DC_QUORUM");
    s.replies();
    watch_far(&mut s, "k");
    s.send("GET k");
    assert_eq!(s.sent("n1"), ["3 GET k"]);
    assert!(s.sent("store").is_empty() && s.sent("n3").is_empty());
    s.answer("n1", "$1\r\n1\r\n");
    assert_eq!(s.replies(), "$1\r\n1\r\n");
}

#[test]
fn its_own_write_is_there_before_it_watches() {
    let mut s = second_rack();
    s.send("SET k 1");
    assert_eq!((s.sent("store"), s.sent("n1")), (vec!["SET k 1".into()], vec!["3 SET k 1".into()]));
    s.answer("store", "+OK\r\n");
    assert_eq!(s.replies(), "+OK\r\n");
    s.send("WATCH k");
    s.connect();
    assert_eq!(s.sent("n1"), ["3 PING"]);
    assert!(!s.node.wants_read(s.client));
    s.answer("n1", "+OK\r\n");
    s.answer("n1", "+PONG\r\n");
    s.connect();
    assert_eq!(s.sent("own n1"), ["3 WATCH k"]);
    s.answer("own n1", "+OK\r\n");
    assert_eq!(s.replies(), "+OK\r\n");
    assert!(s.node.wants_read(s.client));
}

#[test]
fn what_ends_a_watch_gives_the_connection_back() {
    for end in ["UNWATCH", "DISCARD", "RESET"] {
        let mut s = one_node();
        watch(&mut s, "k");
        if end == "DISCARD" {
            queue(&mut s, "SET k 2");
        }
        s.send(end);
        assert!(!s.replies().starts_with('-'), "{end}");
        assert_eq!(s.sent("own store"), ["UNWATCH"], "{end}");
        s.answer("own store", "+OK\r\n");
        assert_eq!(s.replies(), "", "{end}");
        s.send("BLPOP q 0");
        assert_eq!(s.sent("own store"), ["BLPOP q 0"], "{end}");
    }
    let mut s = one_node();
    watch(&mut s, "k");
    s.node.remove_client(s.client, s.now);
    assert!(matches!(s.node.poll_event(), Some(Event::Disconnect { .. })));
}

#[test]
fn a_watch_that_was_lost_aborts() {
    let mut s = one_node();
    watch(&mut s, "k");
    s.lose("own store");
    s.connect();
    queue(&mut s, "SET k 2");
    s.send("EXEC");
    assert_eq!(s.replies(), "*-1\r\n");
    assert!(s.sent("store").is_empty());
    // The next one begins anew.
    watch(&mut s, "k");
}

#[test]
fn a_store_that_cannot_be_reached_is_an_error_and_watches_nothing() {
    let mut s = one_node();
    s.send("WATCH k");
    let Some(Event::Connect { up, once: true, .. }) = s.node.poll_event() else { panic!() };
    s.node.on_upstream_state(up, false, Cause::NotConnected, s.now);
    assert!(s.replies().starts_with("-ERR Storage: Datastore refused connection"));
    queue(&mut s, "SET k 2");
    s.send("EXEC");
    assert_eq!(s.sent("store"), ["MULTI", "SET k 2", "EXEC"]);
}

#[test]
fn a_transaction_is_carried_out_when_its_client_leaves() {
    let mut s = second_rack();
    watch_far(&mut s, "k");
    queue(&mut s, "SET k 2");
    s.send("EXEC");
    s.sent("own n1");
    s.node.remove_client(s.client, s.now);
    s.answer("own n1", "*1\r\n+OK\r\n");
    assert_eq!(s.sent("store"), ["MULTI", "SET k 2", "EXEC"]);
    assert_eq!(s.sent("n3").len(), 1);
}

#[test]
fn keys_of_another_owner_are_refused() {
    let mut s =
        Scripted::new(ring(&[("n1", "dc1/r1", 0), ("n2", "dc1/r1", 1 << 31)]), Settings::default());
    s.send("WATCH a b c d e f g h");
    assert!(s.replies().starts_with("-ERR Dynomite: Keys of this command cannot span"));
    s.send("WATCH a");
    s.connect();
    let names = ["own store", "own n2"];
    let at = names.iter().find(|name| s.has(name)).expect("somebody watches");
    s.sent(at);
    s.answer(at, "+OK\r\n");
    s.replies();
    let mut refused = 0;
    for key in ["b", "c", "d", "e", "f", "g", "h"] {
        s.send("MULTI");
        s.send(&format!("SET {key} 1"));
        s.replies();
        s.send("EXEC");
        if s.node.wants_read(s.client) {
            assert!(s.replies().starts_with("-ERR Dynomite: Keys of this command cannot span"));
            refused += 1;
            break;
        }
        s.sent(at);
        s.answer(
            at,
            match *at {
                "own store" => "+OK\r\n+QUEUED\r\n*1\r\n+OK\r\n",
                _ => "*1\r\n+OK\r\n",
            },
        );
        s.replies();
        s.send("WATCH a");
        s.sent(at);
        s.answer(at, "+OK\r\n");
        s.replies();
    }
    assert_eq!(refused, 1);
}

#[test]
fn another_first_rack_aborts() {
    let named = |n1_reachable: bool| {
        let mut peers = ring(&[("n2", "dc1/r2", 1), ("n1", "dc1/r1", 1), ("n3", "dc1/r3", 1)]);
        peers[1].reachable = n1_reachable;
        view(peers, Settings::default())
    };
    let mut s = second_rack();
    s.node.set_view(named(false));
    watch(&mut s, "k");
    // The first rack is back: what happened there meanwhile nobody here knows.
    s.node.set_view(named(true));
    queue(&mut s, "SET k 2");
    s.send("EXEC");
    assert_eq!(s.replies(), "*-1\r\n");
    assert_eq!(s.sent("own store"), ["UNWATCH"]);
}

#[test]
fn nobody_watches_at_a_node_of_the_reference() {
    let mut peers = ring(&[("n2", "dc1/r2", 1), ("n1", "dc1/r1", 1)]);
    peers[1].is_torc = false;
    let mut s = Scripted::new(peers, Settings::default());
    s.send("WATCH k");
    assert!(s.replies().starts_with("-ERR Peer: Peer Node does not know this command (n1"));
}

#[test]
fn no_more_watch_than_may() {
    let mut s = one_node();
    let first = s.client;
    for _ in 0..64 {
        s.client = s.node.add_client(super::super::ClientKind::Client);
        s.send("WATCH k");
    }
    s.client = first;
    s.send("WATCH k");
    assert!(s.replies().contains("too many clients wait there"));
}
