//! Scripts whose text other nodes know.

use crate::dispatch::scripted::{Scripted, ring};
use crate::dispatch::view::Settings;

/// Of `return{1}`.
const SHA: &str = "7da067d306ba2950a9b8ae9ef59deade71ff5b36";

const NOSCRIPT: &str = "-NOSCRIPT No matching script.\r\n";

fn three_racks() -> Scripted {
    let peers = ring(&[("n1", "dc1/r1", 1), ("n2", "dc1/r2", 1), ("n3", "dc1/r3", 1)]);
    Scripted::new(peers, Settings::default())
}

#[test]
fn a_text_is_asked_of_the_others_before_any_replica_is() {
    let mut s = three_racks();
    s.send(&format!("EVALSHA {SHA} 1 k"));
    for name in ["n2", "n3"] {
        assert_eq!(s.sent(name), [format!("3 TORC.SCRIPT {SHA}")]);
    }
    assert!(s.sent("store").is_empty() && !s.node.wants_read(s.client));
    // A text that has another digest is none.
    s.answer("n2", "$9\r\nreturn{2}\r\n");
    assert!(s.sent("store").is_empty());
    s.answer("n3", "$9\r\nreturn{1}\r\n");
    assert_eq!(s.sent("store"), ["EVAL return{1} 1 k"]);
    assert_eq!(s.sent("n2"), ["3 EVAL return{1} 1 k"]);
    assert_eq!(s.sent("n3"), ["3 EVAL return{1} 1 k"]);
    assert!(s.node.wants_read(s.client));
    s.answer("store", ":1\r\n");
    assert_eq!(s.replies(), ":1\r\n");
    // From now on it is known.
    s.send(&format!("EVALSHA {SHA} 1 k"));
    assert_eq!(s.sent("store"), ["EVAL return{1} 1 k"]);
}

/// Asks for it where nobody knows it.
fn miss(s: &mut Scripted) {
    s.send(&format!("EVALSHA {SHA} 0"));
    for name in ["n2", "n3"] {
        assert_eq!(s.sent(name), [format!("3 TORC.SCRIPT {SHA}")]);
        s.answer(name, "$-1\r\n");
    }
    assert_eq!(s.sent("store"), [format!("EVALSHA {SHA} 0")]);
    s.answer("store", NOSCRIPT);
    assert_eq!(s.replies(), NOSCRIPT);
}

#[test]
fn what_nobody_knows_is_left_to_the_datastores_and_not_asked_again_at_once() {
    let mut s = three_racks();
    for _ in 0..2 {
        miss(&mut s);
        s.send(&format!("EVALSHA {SHA} 0"));
        assert!(s.sent("n2").is_empty());
        assert_eq!(s.sent("store"), [format!("EVALSHA {SHA} 0")]);
        s.answer("store", NOSCRIPT);
        s.replies();
        s.now.mono_us += 1_000_000;
    }
}

#[test]
fn a_script_that_is_sent_because_nobody_knew_it_is_known() {
    let mut s = three_racks();
    let run = |s: &mut Scripted| {
        s.send("EVAL return{1} 0");
        assert_eq!(s.sent("store"), ["EVAL return{1} 0"]);
        s.answer("store", ":1\r\n");
        s.replies();
    };
    run(&mut s);
    miss(&mut s);
    run(&mut s);
    s.send(&format!("EVALSHA {SHA} 1 k"));
    assert_eq!(s.sent("store"), ["EVAL return{1} 1 k"]);
}

#[test]
fn a_client_that_leaves_meanwhile_is_forgotten() {
    let mut s = three_racks();
    s.send(&format!("EVALSHA {SHA} 1 k"));
    s.sent("n2");
    s.sent("n3");
    s.node.remove_client(s.client, s.now);
    s.answer("n2", "$9\r\nreturn{1}\r\n");
    assert!(s.sent("store").is_empty());
    s.answer("n3", "$-1\r\n");
    assert_eq!(s.node.in_flight(), 0);
}
