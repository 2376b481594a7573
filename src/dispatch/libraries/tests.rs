//! Functions on a datastore that may lack them.

use bytes::BytesMut;

use super::super::scripted::{Scripted, ring};
use super::*;
use crate::dispatch::view::Settings;
use crate::proto::resp::encode;

const CALL: [&[u8]; 4] = [b"FCALL", b"f", b"1", b"k"];

const CALLED: &str = "FCALL f 1 k";

const LIST: &str = "3 FUNCTION LIST WITHCODE";

const NONE: &str = "*0\r\n";

fn three_racks() -> Scripted {
    let peers = ring(&[("n1", "dc1/r1", 1), ("n2", "dc1/r2", 1), ("n3", "dc1/r3", 1)]);
    Scripted::new(peers, Settings::default())
}

/// What FUNCTION LIST says of libraries, by name and code.
fn listed(libraries: &[(&str, &str)]) -> String {
    let mut out = Vec::new();
    encode::array(&mut out, libraries.len());
    for (name, code) in libraries {
        encode::array(&mut out, 8);
        for word in ["library_name", name, "engine", "LUA", "functions"] {
            encode::bulk(&mut out, word.as_bytes());
        }
        encode::array(&mut out, 0);
        encode::bulk(&mut out, b"library_code");
        encode::bulk(&mut out, code.as_bytes());
    }
    String::from_utf8(out).unwrap()
}

/// The client's bytes: one call, and a GET behind it.
fn calls() -> BytesMut {
    let mut bytes = Vec::new();
    encode::command(&mut bytes, CALL);
    encode::command(&mut bytes, [&b"GET"[..], b"k"]);
    BytesMut::from(&bytes[..])
}

/// Hands in what the client sent and is not taken yet.
fn feed(s: &mut Scripted, bytes: &mut BytesMut) {
    s.node.on_client_bytes(s.client, bytes, s.now);
}

fn answer_lists(s: &mut Scripted, own: &str, [second, third]: [&str; 2]) {
    assert_eq!(s.sent("store"), ["FUNCTION LIST"]);
    for (name, said) in [("n2", second), ("n3", third)] {
        assert_eq!(s.sent(name), [LIST]);
        s.answer(name, said);
    }
    s.answer("store", own);
}

/// A client called a function; what it sent and is not taken yet.
fn called() -> (Scripted, BytesMut) {
    let (mut s, mut bytes) = (three_racks(), calls());
    feed(&mut s, &mut bytes);
    (s, bytes)
}

/// The same when it was served, since nobody has libraries.
fn served() -> Scripted {
    let (mut s, mut bytes) = called();
    answer_lists(&mut s, NONE, [NONE, NONE]);
    feed(&mut s, &mut bytes);
    assert_eq!(s.sent("store"), [CALLED, "GET k"]);
    s
}

#[test]
fn who_calls_a_function_waits_until_libraries_are_loaded_that_are_missing() {
    let mut s = three_racks();
    let mut bytes = calls();
    let all = bytes.len();
    feed(&mut s, &mut bytes);
    assert!(bytes.len() == all && !s.node.wants_read(s.client), "nothing overtakes it");
    // The library `a` is here already, `b` and `c` are not.
    let of_second = listed(&[("a", "A"), ("b", "B"), ("c", "C")]);
    let of_third = listed(&[("a", "A"), ("b", "B")]);
    answer_lists(&mut s, &listed(&[("a", "older A")]), [&of_second, &of_third]);
    assert_eq!(s.sent("store"), ["FUNCTION LOAD B", "FUNCTION LOAD C"]);
    assert!(!s.node.wants_read(s.client));
    s.answer("store", "$1\r\nb\r\n");
    s.answer("store", "-ERR Library 'c' already exists\r\n");
    assert_eq!(s.node.next_resumable(), Some(s.client));
    assert_eq!(s.node.counters().libraries_loaded, 2);
    feed(&mut s, &mut bytes);
    assert!(bytes.is_empty());
    assert_eq!(s.sent("store"), [CALLED, "GET k"]);
    assert_eq!(s.sent("n3"), [format!("3 {CALLED}")]);
    // From now on there is nothing to ask.
    feed(&mut s, &mut calls());
    assert_eq!(s.sent("store"), [CALLED, "GET k"]);
    assert_eq!(s.sent("n2"), [format!("3 {CALLED}"), format!("3 {CALLED}")]);
}

#[test]
fn the_code_that_most_have_is_loaded() {
    let said = |libraries: &[(&str, &str)]| listed(libraries).into_bytes();
    let mut collecting = Collecting::of(4);
    let answers = [said(&[]), said(&[("a", "1")]), said(&[("a", "2")]), said(&[("a", "2")])];
    for (part, answer) in (0..).zip(&answers) {
        collecting.take(part, &Said::Reply(answer));
    }
    assert_eq!(collecting.missing(), (vec![b"2".to_vec()], 0));
}

#[test]
fn libraries_beyond_the_bounds_are_counted() {
    let names: Vec<String> = (0..LIBRARIES_MAX + 3).map(|i| format!("l{i}")).collect();
    let many: Vec<(&str, &str)> = names.iter().map(|name| (name.as_str(), "code")).collect();
    let mut collecting = Collecting::of(2);
    collecting.take(0, &Said::Reply(NONE.as_bytes()));
    collecting.take(1, &Said::Reply(listed(&many).as_bytes()));
    let (codes, left_out) = collecting.missing();
    assert_eq!((codes.len(), left_out), (LIBRARIES_MAX, 3));
    let large = "c".repeat(LIBRARY_BYTES_MAX);
    let mut collecting = Collecting::of(2);
    collecting.take(0, &Said::Reply(NONE.as_bytes()));
    collecting.take(1, &Said::Reply(listed(&[("a", &large), ("b", "code")]).as_bytes()));
    let (codes, left_out) = collecting.missing();
    assert_eq!((codes.len(), left_out), (1, 1));
}

#[test]
fn there_may_be_nobody_to_ask() {
    let mut s = Scripted::new(ring(&[("n1", "dc1/r1", 1)]), Settings::default());
    feed(&mut s, &mut calls());
    assert_eq!(s.sent("store"), [CALLED, "GET k"]);
}

#[test]
fn nobody_waits_for_answers_that_are_not_to_be_had() {
    let (mut s, mut bytes) = called();
    assert_eq!(s.sent("store"), ["FUNCTION LIST"]);
    s.lose("n2");
    s.lose("n3");
    s.answer("store", NONE);
    feed(&mut s, &mut bytes);
    assert_eq!(s.sent("store"), [CALLED, "GET k"]);
}

#[test]
fn a_datastore_that_is_connected_anew_may_lack_them_again() {
    let mut s = served();
    let up = s.lose("store");
    s.replies();
    s.regain(up);
    let mut bytes = calls();
    feed(&mut s, &mut bytes);
    assert_eq!(s.sent("store"), ["FUNCTION LIST"]);
}

#[test]
fn a_function_that_is_not_there_is_looked_for_while_nobody_waits() {
    let mut s = served();
    for (passed_ms, asks) in [(0, false), (PAUSE_MS, true)] {
        s.pass_ms(passed_ms);
        s.sent("store");
        s.answer("store", "-ERR Function not found\r\n");
        s.answer("store", "$-1\r\n");
        assert_eq!(s.replies(), "-ERR Function not found\r\n$-1\r\n");
        assert_eq!(s.sent("store") == ["FUNCTION LIST"], asks);
        feed(&mut s, &mut calls());
        assert!(s.node.wants_read(s.client));
    }
}

#[test]
fn what_was_told_before_a_library_was_deleted_is_not_loaded() {
    let (mut s, mut bytes) = called();
    let waiting = s.client;
    // Another node's client deletes it: the command comes over a link.
    let request = Written::command([&b"FUNCTION"[..], b"DELETE", b"a"].into_iter());
    s.node.note_libraries(&request.args());
    let of_second = listed(&[("a", "A")]);
    answer_lists(&mut s, NONE, [&of_second, NONE]);
    assert!(s.sent("store").is_empty());
    assert_eq!(s.node.next_resumable(), Some(waiting));
    feed(&mut s, &mut bytes);
    answer_lists(&mut s, NONE, [NONE, NONE]);
    feed(&mut s, &mut bytes);
    assert_eq!(s.sent("store"), [CALLED, "GET k"]);
}

#[test]
fn requests_that_depend_on_libraries_are_told_apart() {
    let needs = |words: &[&[u8]], of_peer: bool| {
        let request = Written::command(words.iter().copied());
        needs_libraries(&request.args(), of_peer)
    };
    for of_peer in [false, true] {
        assert!(needs(&CALL, of_peer) && needs(&[b"fcall_ro", b"f", b"0"], of_peer));
        assert!(!needs(&[b"FLUSHALL"], of_peer) && !needs(&[b"GET", b"k"], of_peer));
        let call = Written::command(CALL.into_iter());
        assert!(needs(&[b"TORC.EXEC", b"*1\r\n$4\r\nPING\r\n", &call.bytes], of_peer));
        assert!(!needs(&[b"TORC.EXEC", b"*1\r\n$4\r\nPING\r\n"], of_peer));
    }
    for sub in [&b"LIST"[..], b"LOAD"] {
        assert!(needs(&[b"FUNCTION", sub], false));
        assert!(!needs(&[b"FUNCTION", sub], true), "it is how others ask and tell");
    }
}
