use crate::dispatch::UpId;
use crate::dispatch::scripted::{Scripted, ring};
use crate::dispatch::view::Settings;

/// A node with two connections to its datastore. The client's own one was away when it asked for
/// something, and is back; returns it and the other one.
fn back_again() -> (Scripted, UpId, UpId) {
    let settings = Settings { datastore_connections: 2, ..Settings::default() };
    let mut node = Scripted::new(ring(&[("a", "dc/r1", 1)]), settings);
    let own = node.lose("store");
    let other = UpId(1 - own.0);
    node.send("INCR k");
    assert_eq!(node.sent_over(other), ["INCR k"]);
    node.regain(own);
    node.send("APPEND k x");
    node.send("GET k");
    (node, own, other)
}

const NOTHING: [&str; 0] = [];

#[test]
fn requests_do_not_overtake_those_on_another_connection() {
    let (mut node, own, other) = back_again();
    assert_eq!(node.sent_over(other), NOTHING);
    assert_eq!(node.sent_over(own), NOTHING, "the older one is not answered");
    node.answer_over(other, ":1\r\n");
    assert_eq!(node.replies(), ":1\r\n");
    assert_eq!(node.sent_over(own), ["APPEND k x", "GET k"]);
    node.answer_over(own, ":2\r\n");
    node.answer_over(own, "$2\r\n1x\r\n");
    assert_eq!(node.replies(), ":2\r\n$2\r\n1x\r\n");
    // From here on it is like any other.
    node.send("INCR l");
    assert_eq!(node.sent_over(own), ["INCR l"]);
}

#[test]
fn nobody_waits_for_what_is_lost() {
    let (mut node, own, other) = back_again();
    node.lose_over(other);
    assert!(node.replies().starts_with("-ERR Storage: Datastore refused connection"));
    assert_eq!(node.sent_over(own), ["APPEND k x", "GET k"]);
}

#[test]
fn nobody_waits_longer_than_the_deadline_of_the_older_request() {
    let (mut node, own, _) = back_again();
    node.pass_ms(Settings::default().timeout_ms - 1);
    assert_eq!(node.sent_over(own), NOTHING);
    node.pass_ms(2);
    assert!(node.replies().starts_with("-ERR Storage: Datastore refused connection"));
    assert_eq!(node.sent_over(own), ["APPEND k x", "GET k"]);
}
