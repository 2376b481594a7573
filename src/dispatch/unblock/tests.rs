//! Waits at the own datastore whose clients leave.

use super::super::scripted::{Scripted, ring};
use super::*;
use crate::dispatch::view::Settings;

const PAIR: &str = "*2\r\n$1\r\nk\r\n$1\r\nv\r\n";
const UNBLOCKED: &str = "-UNBLOCKED client unblocked via CLIENT UNBLOCK\r\n";

/// One waits at the first rack, which is this node's own.
fn waiting() -> Scripted {
    let peers = ring(&[("n1", "dc1/r1", 1), ("n2", "dc1/r2", 1), ("n3", "dc1/r3", 1)]);
    let mut s = Scripted::new(peers, Settings::default());
    s.send("BLPOP k 0");
    s.connect();
    assert_eq!(s.sent("own store"), ["BLPOP k 0"]);
    s
}

/// The number by which the datastore is told to end the wait.
fn ended(s: &mut Scripted) -> Vec<String> {
    s.sent("store")
}

fn has_hung_up(s: &mut Scripted) -> bool {
    matches!(s.node.poll_event(), Some(Event::HangUp { .. }))
}

/// The other racks take what was taken here.
fn is_taken_everywhere(s: &mut Scripted) {
    for name in ["n2", "n3"] {
        assert_eq!(s.sent(name), ["3 LREM k 1 v"]);
        s.answer(name, ":1\r\n");
    }
    assert_eq!((s.node.in_flight(), s.node.waiting()), (0, 0));
}

#[test]
fn what_comes_after_the_client_left_is_taken_at_every_replica() {
    let mut s = waiting();
    s.node.remove_client(s.client, s.now);
    assert!(s.node.poll_event().is_none(), "the connection stays as it is");
    assert_eq!(ended(&mut s), ["CLIENT UNBLOCK 1003 ERROR"]);
    // It was served before that was read.
    s.answer("own store", PAIR);
    is_taken_everywhere(&mut s);
    assert!(matches!(s.node.poll_event(), Some(Event::Disconnect { .. })));
    s.answer("store", ":0\r\n");
    s.pass_ms(1_000);
    assert!(s.sent("store").is_empty(), "nobody is left to be told of");
}

#[test]
fn a_wait_that_was_not_read_yet_is_ended_a_little_later() {
    let mut s = waiting();
    assert!(!s.node.on_hang_up(s.client, s.now));
    assert_eq!(ended(&mut s).len(), 1);
    s.answer("store", ":0\r\n");
    s.pass_ms(9);
    assert!(ended(&mut s).is_empty());
    assert!(s.node.poll_timeout(s.now).is_some());
    s.pass_ms(1);
    assert_eq!(ended(&mut s), ["CLIENT UNBLOCK 1003 ERROR"]);
    s.answer("store", ":1\r\n");
    s.answer("own store", UNBLOCKED);
    assert!(matches!(s.node.poll_event(), Some(Event::Kill { client }) if client == s.client));
    s.replies();
    for name in ["n2", "n3"] {
        assert!(s.sent(name).is_empty(), "nothing was taken");
    }
    s.node.remove_client(s.client, s.now);
    assert_eq!((s.node.in_flight(), s.node.waiting()), (0, 0));
}

#[test]
fn who_leaves_before_the_number_is_known_leaves_when_it_is() {
    let peers = ring(&[("n1", "dc1/r1", 1)]);
    for (answer, hangs_up) in [(":77\r\n", false), ("-ERR unknown command\r\n", true)] {
        let mut s = Scripted::new(peers.clone(), Settings::default());
        s.send("BLPOP k 0");
        let Some(Event::Connect { up, .. }) = s.node.poll_event() else { panic!("a connection") };
        s.regain(up);
        assert_eq!(s.sent("own store"), ["CLIENT ID", "BLPOP k 0"]);
        s.node.remove_client(s.client, s.now);
        assert!(s.sent("store").is_empty() && s.node.poll_event().is_none());
        s.answer("own store", answer);
        assert_eq!(has_hung_up(&mut s), hangs_up);
        let told = if hangs_up { vec![] } else { vec!["CLIENT UNBLOCK 77 ERROR".to_owned()] };
        assert_eq!(ended(&mut s), told);
        s.lose("own store");
        assert_eq!((s.node.in_flight(), s.node.waiting()), (0, 0));
    }
}

#[test]
fn a_datastore_that_refuses_is_hung_up_on() {
    for refusal in ["-ERR unknown command\r\n", "-NOPERM this user has no permissions\r\n"] {
        let mut s = waiting();
        s.node.remove_client(s.client, s.now);
        assert_eq!(ended(&mut s).len(), 1);
        s.answer("store", refusal);
        assert!(has_hung_up(&mut s));
    }
    // One that is busy is asked again.
    let mut s = waiting();
    s.node.remove_client(s.client, s.now);
    assert_eq!(ended(&mut s).len(), 1);
    s.answer("store", "-BUSY Redis is busy running a script\r\n");
    s.pass_ms(10);
    assert_eq!(ended(&mut s).len(), 1);
}

#[test]
fn a_datastore_that_cannot_be_asked_is_hung_up_on() {
    let mut s = waiting();
    s.node.remove_client(s.client, s.now);
    assert_eq!(ended(&mut s).len(), 1);
    s.lose("store");
    s.pass_ms(10);
    assert!(has_hung_up(&mut s));
    s.answer("own store", PAIR);
    is_taken_everywhere(&mut s);
}

#[test]
fn a_connection_keeps_its_number_from_client_to_client() {
    let mut s = waiting();
    s.answer("own store", "*-1\r\n");
    s.replies();
    s.send("BLPOP k 0");
    assert_eq!(s.sent("own store"), ["BLPOP k 0"]);
    s.node.remove_client(s.client, s.now);
    assert_eq!(ended(&mut s), ["CLIENT UNBLOCK 1003 ERROR"]);
}

#[test]
fn what_is_said_otherwise_than_asked_for_reaches_the_client() {
    let mut s = waiting();
    // Somebody else ended it, at the datastore.
    s.answer("own store", UNBLOCKED);
    assert_eq!(s.replies(), UNBLOCKED);
    assert!(s.node.wants_read(s.client));
}
