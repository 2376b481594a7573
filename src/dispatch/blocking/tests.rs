//! Commands that wait.

use super::super::scripted::{Scripted, ring};
use super::*;
use crate::dispatch::Event;
use crate::dispatch::view::Settings;

const PAIR: &str = "*2\r\n$1\r\nk\r\n$1\r\nv\r\n";

fn one_node() -> Scripted {
    Scripted::new(ring(&[("n1", "dc1/r1", 1)]), Settings::default())
}

/// This node is in the second rack, so that another one goes first.
fn three_racks() -> Scripted {
    let peers = ring(&[("n2", "dc1/r2", 1), ("n1", "dc1/r1", 1), ("n3", "dc1/r3", 1)]);
    Scripted::new(peers, Settings::default())
}

fn later(s: &mut Scripted, ms: u64) {
    s.now.mono_us += ms * 1000;
}

#[test]
fn a_wait_stands_on_a_connection_of_its_own() {
    let mut s = one_node();
    s.send("BLPOP k 0");
    s.connect();
    assert_eq!(s.sent("own store"), ["BLPOP k 0"]);
    assert!(s.sent("store").is_empty());
    assert!(!s.node.wants_read(s.client) && s.node.may_hang_up(s.client));
    // Nothing is overdue, however long it lasts.
    later(&mut s, 3_600_000);
    assert!(s.node.on_deadline(s.now).is_empty());
    s.answer("own store", PAIR);
    assert_eq!(s.replies(), PAIR);
    assert_eq!(s.node.next_resumable(), Some(s.client));
    // The next one finds the connection open.
    s.send("BRPOP k 0");
    assert_eq!(s.sent("own store"), ["BRPOP k 0"]);
    assert_eq!(s.node.waiting(), 1);
}

#[test]
fn who_leaves_is_forgotten_by_the_store() {
    let mut s = one_node();
    s.send("BLPOP k 0");
    s.connect();
    s.sent("own store");
    assert!(!s.node.on_hang_up(s.client, s.now));
    assert!(!s.node.may_hang_up(s.client) && !s.node.is_finished(s.client));
    assert_eq!(s.sent("store"), ["CLIENT UNBLOCK 1001 ERROR"]);
    s.answer("store", ":1\r\n");
    s.answer("own store", "-UNBLOCKED client unblocked via CLIENT UNBLOCK\r\n");
    assert_eq!((s.node.in_flight(), s.node.waiting()), (0, 0));
    assert!(matches!(s.node.poll_event(), Some(Event::Kill { client }) if client == s.client));
    assert!(matches!(s.node.poll_event(), Some(Event::Disconnect { .. })));
}

#[test]
fn who_leaves_before_it_was_heard_was_never_there() {
    let mut s = one_node();
    s.send("BLPOP k 0");
    assert!(matches!(s.node.poll_event(), Some(Event::Connect { .. })));
    assert!(s.node.on_hang_up(s.client, s.now), "nobody needs to be told");
    s.node.remove_client(s.client, s.now);
    assert!(matches!(s.node.poll_event(), Some(Event::Disconnect { .. })));
    assert_eq!(s.node.in_flight(), 0);
}

/// One waits at the first rack and leaves, or its connection breaks, while it is served.
fn what_was_taken_for(leave: impl FnOnce(&mut Scripted)) {
    let mut s = three_racks();
    s.send("BLPOP k 0");
    s.connect();
    assert_eq!(s.sent("own n1"), ["3 BLPOP k 0"]);
    leave(&mut s);
    assert!(matches!(s.node.poll_event(), Some(Event::HangUp { .. })));
    s.answer("own n1", PAIR);
    s.replies();
    assert!(s.node.is_finished(s.client));
    s.node.remove_client(s.client, s.now);
    assert!(matches!(s.node.poll_event(), Some(Event::Disconnect { .. })), "it is not used again");
    assert_eq!(s.sent("store"), ["LREM k 1 v"]);
    assert_eq!(s.sent("n3"), ["3 LREM k 1 v"]);
    for name in ["store", "n3"] {
        s.answer(name, ":1\r\n");
    }
    assert_eq!(s.node.in_flight(), 0);
}

#[test]
fn what_was_taken_for_a_client_that_leaves_is_taken_everywhere() {
    what_was_taken_for(|s| assert!(!s.node.on_hang_up(s.client, s.now)));
    what_was_taken_for(|s| s.node.remove_client(s.client, s.now));
    what_was_taken_for(|s| {
        assert!(!s.node.on_hang_up(s.client, s.now));
        s.node.remove_client(s.client, s.now);
    });
}

#[test]
fn a_store_that_cannot_be_reached_is_an_error() {
    let mut s = one_node();
    s.send("BLPOP k 0");
    let Some(Event::Connect { up, once: true, .. }) = s.node.poll_event() else {
        panic!("a connection of its own")
    };
    s.node.on_upstream_state(up, false, Cause::NotConnected, s.now);
    assert!(s.replies().starts_with("-ERR Storage: Datastore refused connection"));
    assert!(s.node.wants_read(s.client) && s.node.waiting() == 0);
    s.send("BLPOP k 0");
    s.connect();
    s.sent("own store");
    s.lose("own store");
    assert!(s.replies().starts_with("-ERR Storage: Datastore refused connection"));
    assert!(s.node.wants_read(s.client));
}

#[test]
fn a_wait_with_an_end_has_a_deadline() {
    let mut s = one_node();
    s.send("BLPOP k 1.5");
    s.connect();
    s.sent("own store");
    later(&mut s, 1_500 + 4_999);
    s.node.on_deadline(s.now);
    assert_eq!(s.replies(), "");
    later(&mut s, 1);
    s.node.on_deadline(s.now);
    assert!(s.replies().contains("timed out"));
    assert!(s.node.wants_read(s.client) && s.node.in_flight() == 0);
}

#[test]
fn what_was_taken_is_taken_in_the_other_racks_too() {
    let mut s = three_racks();
    s.send("BLPOP k 0");
    s.connect();
    assert_eq!(s.sent("own n1"), ["3 BLPOP k 0"]);
    assert!(s.sent("store").is_empty() && s.sent("n3").is_empty());
    s.answer("own n1", PAIR);
    assert_eq!(s.replies(), PAIR);
    assert_eq!(s.sent("store"), ["LREM k 1 v"]);
    assert_eq!(s.sent("n3"), ["3 LREM k 1 v"]);
    assert_eq!(s.node.next_resumable(), Some(s.client));
    s.send("BLPOP k 1");
    assert_eq!(s.sent("own n1"), ["3 BLPOP k 1"]);
    s.answer("own n1", "*-1\r\n");
    assert_eq!(s.replies(), "*-1\r\n");
    assert!(s.sent("store").is_empty() && s.sent("n3").is_empty(), "nothing was taken");
}

#[test]
fn what_a_replica_does_not_have_yet_is_taken_there_later() {
    let mut s = three_racks();
    s.send("BLPOP k 0");
    s.connect();
    s.sent("own n1");
    s.answer("own n1", PAIR);
    s.replies();
    assert_eq!(s.sent("n3"), ["3 LREM k 1 v"]);
    s.answer("n3", ":0\r\n");
    later(&mut s, 9);
    s.node.on_deadline(s.now);
    assert!(s.sent("n3").is_empty(), "not yet");
    later(&mut s, 1);
    s.node.on_deadline(s.now);
    assert_eq!(s.sent("n3"), ["3 LREM k 1 v"]);
    s.answer("n3", ":1\r\n");
    assert_eq!(s.sent("store"), ["LREM k 1 v"]);
    s.answer("store", ":1\r\n");
    assert_eq!(s.node.in_flight(), 0);
}

#[test]
fn a_wait_stands_behind_what_its_client_wrote() {
    let mut s = three_racks();
    s.send("RPUSH k v");
    s.send("BLPOP k 0");
    assert_eq!(s.sent("n1"), ["3 RPUSH k v", "3 PING"]);
    assert!(!s.has("own n1"));
    s.answer("n1", ":1\r\n");
    s.answer("store", ":1\r\n");
    s.replies();
    s.answer("n1", "+PONG\r\n");
    s.connect();
    assert_eq!(s.sent("own n1"), ["3 BLPOP k 0"]);
    s.answer("own n1", PAIR);
    assert_eq!(s.replies(), PAIR);
    // One that leaves meanwhile waits for nothing.
    s.send("RPUSH k v");
    s.send("BLPOP k 0");
    s.sent("n1");
    s.node.remove_client(s.client, s.now);
    s.answer("n1", ":1\r\n");
    s.answer("n1", "+PONG\r\n");
    assert!(s.sent("own n1").is_empty());
}

#[test]
fn a_read_waits_at_one_replica() {
    let mut s = three_racks();
    s.send("TORC.CONSISTENCY DC_QUORUM");
    s.replies();
    s.send("XREAD BLOCK 0 STREAMS x $");
    s.connect();
    assert_eq!(s.sent("own store"), ["XREAD BLOCK 0 STREAMS x $"]);
    assert!(s.sent("n1").is_empty() && s.sent("n3").is_empty());
}

#[test]
fn nobody_waits_at_a_node_of_the_reference() {
    let mut peers = ring(&[("n2", "dc1/r2", 1), ("n1", "dc1/r1", 1)]);
    peers[1].is_torc = false;
    let mut s = Scripted::new(peers, Settings::default());
    s.send("BLPOP k 0");
    assert!(s.replies().starts_with("-ERR Peer: Peer Node does not know this command (n1"));
    assert!(s.node.wants_read(s.client));
}

#[test]
fn a_peer_that_is_given_up_is_not_waited_for() {
    let mut s = three_racks();
    s.send("BLPOP k 0");
    s.connect();
    s.sent("own n1");
    let mut peers = ring(&[("n2", "dc1/r2", 1), ("n1", "dc1/r1", 1), ("n3", "dc1/r3", 1)]);
    peers[1].reachable = false;
    s.node.set_view(super::super::scripted::view(peers, Settings::default()));
    s.node.on_deadline(s.now);
    assert!(s.replies().contains("not routable"));
    assert!(s.node.wants_read(s.client));
}

#[test]
fn no_more_wait_than_may() {
    let mut s = three_racks();
    let first = s.client;
    for _ in 0..64 {
        s.client = s.node.add_client(super::super::ClientKind::Client);
        s.send("BLPOP k 0");
    }
    s.client = first;
    s.send("BLPOP k 0");
    assert!(s.replies().contains("too many clients wait there"));
    assert_eq!(s.node.waiting(), 64);
}

#[test]
fn keys_of_several_owners_are_refused() {
    let mut s =
        Scripted::new(ring(&[("n1", "dc1/r1", 0), ("n2", "dc1/r1", 1 << 31)]), Settings::default());
    s.send("BLPOP a b c d e f g 0");
    assert!(s.replies().starts_with("-ERR Dynomite: Keys of this command cannot span"));
}

#[test]
fn durations_are_read_as_redis_reads_them() {
    let wait = |line: &str| {
        let mut frame = Vec::new();
        let mut spans = Vec::new();
        crate::proto::resp::inline::rewrite(line.as_bytes(), &mut frame, &mut spans).unwrap();
        let args = Args::new(&frame, &spans);
        let modules = Default::default();
        patience(crate::proto::resp::table::find(&args, &modules).unwrap(), &args)
    };
    assert_eq!(wait("BLPOP k 0"), Patience::Forever);
    assert_eq!(wait("BLPOP k 0.25"), Patience::Millis(250));
    assert_eq!(wait("BLPOP k -1"), Patience::Senseless);
    assert_eq!(wait("BLPOP k x"), Patience::Senseless);
    assert_eq!(wait("BLMOVE a b LEFT LEFT 3"), Patience::Millis(3_000));
    assert_eq!(wait("BLMPOP 2 1 k LEFT"), Patience::Millis(2_000));
    assert_eq!(wait("BZMPOP 0 1 k MIN"), Patience::Forever);
    assert_eq!(wait("XREAD COUNT 1 BLOCK 30 STREAMS x 0"), Patience::Millis(30));
    assert_eq!(wait("XREADGROUP GROUP g c BLOCK 0 STREAMS x >"), Patience::Forever);
}
