//! What is asked of all workers.

use super::super::scripted::{Scripted, ring};
use super::*;
use crate::dispatch::view::Settings;
use crate::dispatch::{ClientKind, Event};
use crate::proto::resp::{inline, table};

/// The id of a worker's first client.
const FIRST: u64 = (1 << 40) + 1;

fn one_node() -> Scripted {
    Scripted::new(ring(&[("n1", "dc1/r1", 1)]), Settings::default())
}

fn order(line: &str) -> Result<Order, String> {
    let (mut frame, mut spans) = (Vec::new(), Vec::new());
    inline::rewrite(line.as_bytes(), &mut frame, &mut spans).unwrap();
    let args = Args::new(&frame, &spans);
    Order::of(table::find(&args, &Default::default()).unwrap(), &args, 7)
}

fn ends(id: ClientId) -> Ends {
    Ends { remote: format!("1.1.1.1:{}", id.0), local: "2.2.2.2:2".into() }
}

/// The ids of those among clients 7 (who asks), 8 and 9 that a line ends.
fn killed(line: &str) -> Vec<u64> {
    let Ok(Order::Kill(victims)) = order(line) else { panic!("{line}") };
    let at = |id: u64| move || ends(ClientId(id as u32));
    [7, 8, 9].into_iter().filter(|id| victims.has(*id, at(*id))).collect()
}

#[test]
fn clients_are_ended_that_are_all_that_is_named() {
    assert_eq!(killed("CLIENT KILL 1.1.1.1:8"), [8]);
    assert_eq!(killed("CLIENT KILL 1.1.1.1:7"), [7], "in the old form oneself");
    assert_eq!(killed("client kill id 9 skipme yes"), [9]);
    assert_eq!(killed("CLIENT KILL ADDR 1.1.1.1:9 ID 8"), [0; 0]);
    assert_eq!(killed("CLIENT KILL LADDR 2.2.2.2:2"), [8, 9]);
    assert_eq!(killed("CLIENT KILL LADDR 2.2.2.2:3"), [0; 0]);
    assert_eq!(killed("CLIENT KILL TYPE normal SKIPME no"), [7, 8, 9]);
    assert_eq!(killed("CLIENT KILL TYPE pubsub SKIPME no"), [0; 0]);
    assert_eq!(killed("CLIENT KILL USER default ID 7"), [0; 0]);
}

#[test]
fn orders_that_make_no_sense_are_errors() {
    let error = |line: &str| order(line).unwrap_err();
    for line in ["CLIENT KILL ID 1 ADDR", "CLIENT KILL NOPE 1", "CLIENT KILL SKIPME maybe"] {
        assert_eq!(error(line), SYNTAX, "{line}");
    }
    assert_eq!(error("CLIENT KILL ID 0"), "ERR client-id should be greater than 0");
    assert_eq!(error("CLIENT KILL TYPE nope"), "ERR Unknown client type 'nope'");
    assert_eq!(error("CLIENT KILL USER bob"), "ERR No such user 'bob'");
    assert!(error("CLIENT UNBLOCK 1 NOW").contains("reason should be TIMEOUT or ERROR"));
    assert!(error("CLIENT UNBLOCK 1 ERROR x").contains("wrong number of arguments"));
    assert!(error("CLIENT UNBLOCK x").contains("not an integer"));
}

#[test]
fn a_client_is_ended_by_another_one_and_by_itself() {
    let mut s = one_node();
    let other = s.node.add_client(ClientKind::Client);
    s.send(&format!("CLIENT KILL ID {} SKIPME no", FIRST + 1));
    assert_eq!(s.replies(), ":1\r\n");
    assert!(matches!(s.node.poll_event(), Some(Event::Kill { client }) if client == other));
    assert!(!s.node.wants_read(other), "it is not served any more");
    s.send("CLIENT KILL TYPE normal SKIPME no");
    assert!(!s.node.is_finished(s.client));
    assert_eq!(s.replies(), ":1\r\n", "the other one is as good as gone");
    assert!(s.node.is_finished(s.client));
    assert!(s.node.poll_event().is_none());
}

/// A client waits for a key and another one lets it wait no longer; gives what both get.
fn unblock(how: &str, end: impl FnOnce(&mut Scripted)) -> String {
    let mut s = one_node();
    let waiting = s.client;
    s.send("BLPOP k 0");
    s.client = s.node.add_client(ClientKind::Client);
    s.send(&format!("CLIENT UNBLOCK {}", FIRST + 1));
    assert_eq!(s.replies(), ":0\r\n", "the asker itself waits for nothing");
    end(&mut s);
    s.send(&format!("CLIENT UNBLOCK {FIRST}{how}"));
    if s.has("own store") {
        assert_eq!(s.replies(), ":1\r\n");
        assert_eq!(s.sent("store"), ["CLIENT UNBLOCK 1001 ERROR"]);
        s.answer("own store", "-UNBLOCKED client unblocked via CLIENT UNBLOCK\r\n");
    }
    let replies = s.replies();
    assert!(s.node.wants_read(waiting) && s.node.waiting() == 0);
    replies
}

#[test]
fn a_client_waits_no_longer() {
    let written = |s: &mut Scripted| {
        s.connect();
        assert_eq!(s.sent("own store"), ["BLPOP k 0"]);
    };
    assert_eq!(unblock("", written), "*-1\r\n");
    assert_eq!(unblock(" TIMEOUT", written), "*-1\r\n");
    let error = "-UNBLOCKED client unblocked via CLIENT UNBLOCK\r\n";
    assert_eq!(unblock(" error", written), error);
    // Nobody had heard of it yet.
    let both = unblock("", |_| ());
    assert!(both == "*-1\r\n:1\r\n" || both == ":1\r\n*-1\r\n", "{both}");
}

#[test]
fn who_is_served_at_that_moment_is_served() {
    let mut s = one_node();
    s.send("BLPOP k 0");
    s.connect();
    s.sent("own store");
    s.client = s.node.add_client(ClientKind::Client);
    s.send(&format!("CLIENT UNBLOCK {FIRST} ERROR"));
    s.replies();
    s.answer("own store", "*2\r\n$1\r\nk\r\n$1\r\nv\r\n");
    assert_eq!(s.replies(), "*2\r\n$1\r\nk\r\n$1\r\nv\r\n");
    assert_eq!((s.node.in_flight(), s.node.waiting()), (0, 0));
}
