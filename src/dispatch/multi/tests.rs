//! Transactions.

use std::sync::Arc;

use super::super::scripted::{Scripted, ring, view};
use crate::dispatch::view::Settings;
use crate::hash::HashTag;

fn one_node() -> Scripted {
    Scripted::new(ring(&[("n1", "dc1/r1", 1)]), Settings::default())
}

fn queue(s: &mut Scripted, lines: &[&str]) {
    s.send("MULTI");
    assert_eq!(s.replies(), "+OK\r\n");
    for line in lines {
        s.send(line);
        assert_eq!(s.replies(), "+QUEUED\r\n", "{line}");
    }
}

#[test]
fn a_transaction_reaches_the_store_in_one_piece_and_its_last_reply_counts() {
    let mut s = one_node();
    queue(&mut s, &["SET a 1", "GET a", "PING"]);
    assert!(s.sent("store").is_empty(), "nothing before EXEC");
    s.send("EXEC");
    s.send("GET b");
    assert_eq!(s.sent("store"), ["MULTI", "SET a 1", "GET a", "PING", "EXEC", "GET b"]);
    s.answer("store", "+OK\r\n+QUEUED\r\n+QUEUED\r\n+QUEUED\r\n");
    assert_eq!(s.replies(), "");
    let replies = "*3\r\n+OK\r\n$1\r\n1\r\n+PONG\r\n$1\r\nb\r\n";
    s.answer("store", replies);
    assert_eq!(s.replies(), replies);
}

#[test]
fn replies_are_lifted_each_by_its_own_command() {
    let mut s = one_node();
    s.send("HELLO 3");
    s.replies();
    queue(&mut s, &["ZSCORE z m", "HGETALL h"]);
    s.send("EXEC");
    s.sent("store");
    s.answer("store", "+OK\r\n+QUEUED\r\n+QUEUED\r\n*2\r\n$1\r\n5\r\n*2\r\n$1\r\na\r\n$1\r\nb\r\n");
    assert_eq!(s.replies(), "*2\r\n,5\r\n%1\r\n$1\r\na\r\n$1\r\nb\r\n");
}

#[test]
fn what_cannot_be_queued_discards_the_whole() {
    for bad in ["NOSUCH a", "GET", "SUBSCRIBE a", "KEYS *", "SELECT 0"] {
        let mut s = one_node();
        queue(&mut s, &["SET a 1"]);
        s.send(bad);
        assert!(s.replies().starts_with("-ERR "), "{bad}");
        s.send("SET a 2");
        assert_eq!(s.replies(), "+QUEUED\r\n");
        s.send("EXEC");
        assert!(s.replies().starts_with("-EXECABORT "), "{bad}");
        s.send("EXEC");
        assert_eq!(s.replies(), "-ERR EXEC without MULTI\r\n");
        assert!(s.sent("store").is_empty());
    }
}

#[test]
fn the_words_of_a_transaction_are_those_of_redis() {
    let mut s = one_node();
    let mut say = |line: &str, reply: &str| {
        s.send(line);
        assert_eq!(s.replies(), reply, "{line}");
    };
    say("DISCARD", "-ERR DISCARD without MULTI\r\n");
    say("UNWATCH", "+OK\r\n");
    say("MULTI", "+OK\r\n");
    say("MULTI", "-ERR MULTI calls can not be nested\r\n");
    say("WATCH a", "-ERR WATCH inside MULTI is not allowed\r\n");
    say("EXEC", "*0\r\n");
    say("MULTI", "+OK\r\n");
    say("GET a", "+QUEUED\r\n");
    say("DISCARD", "+OK\r\n");
    say("MULTI", "+OK\r\n");
    say("RESET", "+RESET\r\n");
    say("EXEC", "-ERR EXEC without MULTI\r\n");
}

fn two_owners() -> Scripted {
    let peers = ring(&[("n1", "dc1/r1", 2147483647), ("n2", "dc1/r1", 4294967294)]);
    Scripted::new(peers, Settings::default())
}

/// One key of this node and one of the other.
fn a_key_of_each(s: &Scripted) -> (String, String) {
    let view = s.node.view();
    let owner = |key: &String| view.topology.owners(&view.hasher.token(key.as_bytes())).owner(0);
    let local = Some(view.topology.local());
    let key = |mine: bool| (0..).map(|i| format!("k{i}")).find(|k| (owner(k) == local) == mine);
    (key(true).unwrap(), key(false).unwrap())
}

#[test]
fn keys_of_two_owners_are_refused_at_the_first_stray_one() {
    let mut s = two_owners();
    let (mine, theirs) = a_key_of_each(&s);
    queue(&mut s, &[&format!("SET {mine} 1")]);
    s.send(&format!("GET {theirs}"));
    assert!(s.replies().contains("cannot span multiple nodes"));
    s.send("EXEC");
    assert!(s.replies().starts_with("-EXECABORT "));
}

#[test]
fn patterns_of_sort_must_have_the_tag_of_the_key() {
    let mut s = two_owners();
    let (mine, theirs) = a_key_of_each(&s);
    let peers = ring(&[("n1", "dc1/r1", 2147483647), ("n2", "dc1/r1", 4294967294)]);
    let mut view = view(peers, Settings::default());
    let hasher = &mut Arc::get_mut(&mut view).unwrap().hasher;
    hasher.tag = Some(HashTag::new(b'{', b'}'));
    s.node.set_view(view);
    let mut sorts = |pattern: String, right: bool| {
        let line = format!("SORT {{{mine}}}l BY {pattern} GET # GET nothing");
        s.send(&line);
        if right {
            assert_eq!(s.sent("store"), [line.as_str()]);
            s.answer("store", "*0\r\n");
            assert_eq!(s.replies(), "*0\r\n");
        } else {
            assert!(s.replies().contains("cannot span multiple nodes"), "{line}");
        }
        queue(&mut s, &[]);
        s.send(&line);
        assert_eq!(s.replies() == "+QUEUED\r\n", right, "{line}");
        s.send("DISCARD");
        s.replies();
    };
    sorts(format!("w{{{mine}}}_*->f"), true);
    sorts("nosort".into(), true);
    sorts(format!("{{{theirs}}}_*"), false);
    sorts("w_*".into(), false);
    // An element may have a tag of its own.
    sorts(format!("*{{{mine}}}"), false);
}

#[test]
fn another_owner_gets_it_as_one_request() {
    let mut s = two_owners();
    let (_, theirs) = a_key_of_each(&s);
    let set = format!("SET {theirs} 1");
    queue(&mut s, &[&set]);
    s.send("EXEC");
    let framed = format!("*3\r\n$3\r\nSET\r\n${}\r\n{theirs}\r\n$1\r\n1\r\n", theirs.len());
    assert_eq!(s.sent("n2"), [format!("3 TORC.EXEC {framed}")]);
    assert!(s.sent("store").is_empty());
    s.answer("n2", "*1\r\n+OK\r\n");
    assert_eq!(s.replies(), "*1\r\n+OK\r\n");
}

#[test]
fn every_rack_gets_it_and_conditional_commands_run_in_the_first_one() {
    let peers = ring(&[("n2", "dc1/r2", 1), ("n1", "dc1/r1", 1)]);
    let mut s = Scripted::new(peers, Settings::default());
    queue(&mut s, &["SET a 1"]);
    s.send("EXEC");
    assert!(s.sent("n1")[0].starts_with("3 TORC.EXEC "));
    assert_eq!(s.sent("store"), ["MULTI", "SET a 1", "EXEC"]);
    s.answer("n1", "*1\r\n+OK\r\n");
    s.answer("store", "+OK\r\n+QUEUED\r\n*1\r\n+OK\r\n");
    assert_eq!(s.replies(), "*1\r\n+OK\r\n");
    queue(&mut s, &["SETNX a 2", "SETNX a 3", "GET a", "INCR n"]);
    s.send("EXEC");
    assert_eq!(s.sent("n1").len(), 1);
    assert!(s.sent("store").is_empty(), "the first rack answers first");
    let reply = "*4\r\n:1\r\n:0\r\n$1\r\n2\r\n:7\r\n";
    s.answer("n1", reply);
    assert_eq!(s.replies(), reply);
    assert_eq!(s.sent("store"), ["MULTI", "SET a 2", "INCR n", "EXEC"]);
}

#[test]
fn a_node_of_the_reference_gets_one_script() {
    let mut peers = ring(&[("n1", "dc1/r1", 1), ("c1", "dc1/r2", 1)]);
    peers[1].is_torc = false;
    let mut s = Scripted::new(peers, Settings::default());
    queue(&mut s, &["SET a 1", "GET a"]);
    s.send("EXEC");
    let sent = s.sent("c1");
    assert!(sent[0].starts_with("3 EVAL local o"), "{sent:?}");
    assert!(sent[0].ends_with(" 2 a a 2 3 SET a 1 2 GET a"), "{sent:?}");
}
