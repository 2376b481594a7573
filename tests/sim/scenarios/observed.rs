//! The table of what was observed on the reference, `spec/consistency.md` section 9: the same
//! where the reference is right, the fix of section 10 where it is not. Numbers are the rows'.
//!
//! Ring A: n1, n2 | n3, n4 in dc1, n5, n6 | n7, n8 in dc2. Ring B: three racks of one node.

use torc::ring::Consistency::{self, DcEachSafeQuorum, DcOne, DcQuorum, DcSafeQuorum};

use super::super::cluster::Config;
use super::super::user::brief;
use super::super::world::World;
use super::{NO_QUORUM, NOT_CONNECTED, PEER_REFUSED, STORE_REFUSED, assert_error};

/// Ring A with a client of n1, and the keys whose owners are the first and the second nodes.
fn ring_a(level: Consistency) -> (World, usize, String, String) {
    let mut w = World::new(Config::ring_a().level(level));
    let user = w.user(0);
    let (one, two) = (w.key(0), w.key(1));
    (w, user, one, two)
}

fn ring_b(level: Consistency) -> (World, usize) {
    let mut w = World::new(Config::ring_b().level(level));
    let user = w.user(0);
    (w, user)
}

const ONE_OWNERS: [usize; 4] = [0, 2, 4, 6];
const TWO_OWNERS: [usize; 4] = [1, 3, 5, 7];

#[test]
fn row_1_healthy() {
    let (mut w, user, one, two) = ring_a(DcOne);
    for (key, owners) in [(&one, ONE_OWNERS), (&two, TWO_OWNERS)] {
        assert_eq!(w.ask(user, &format!("SET {key} v")), "OK");
        w.run_ms(20);
        assert_eq!(w.in_stores(&owners, &format!("GET {key}")), ["v"; 4]);
        assert_eq!(w.ask(user, &format!("GET {key}")), "v");
    }
}

#[test]
fn rows_2_and_3_the_owners_datastore_dies() {
    let (mut w, user, _, two) = ring_a(DcOne);
    w.ask(user, &format!("SET {two} old"));
    w.run_ms(20);
    w.crash_store(1, false);
    w.run_ms(20);
    let reply = w.ask(user, &format!("SET {two} new"));
    assert_error(&reply, STORE_REFUSED, "");
    w.run_ms(20);
    assert_eq!(w.in_stores(&TWO_OWNERS, &format!("GET {two}")), ["(nil)", "new", "new", "new"]);
    // Fix: another rack answers the read.
    assert_eq!(w.ask(user, &format!("GET {two}")), "new");
    w.start_store(1);
    w.run_ms(1000);
    assert_eq!(w.ask(user, &format!("GET {two}")), "(nil)", "no back-fill");
}

#[test]
fn rows_4_and_5_the_owners_node_dies() {
    let (mut w, user, _, two) = ring_a(DcOne);
    w.ask(user, &format!("SET {two} old"));
    w.run_ms(20);
    w.crash(1);
    w.run_ms(20);
    // Fixes: another rack answers the read (A6) and the write (D2).
    assert_eq!(w.ask(user, &format!("GET {two}")), "old");
    assert_eq!(w.ask(user, &format!("SET {two} new")), "OK");
    w.run_ms(20);
    assert_eq!(w.in_stores(&TWO_OWNERS, &format!("GET {two}")), ["old", "new", "new", "new"]);
    let third = w.user(2);
    assert_eq!(w.ask(third, &format!("GET {two}")), "new");
    w.restart(1);
    w.run_ms(1000);
    assert_eq!(w.ask(user, &format!("GET {two}")), "old", "no replay yet");
}

#[test]
fn rows_6_to_8_two_racks_have_no_majority_without_each_other() {
    let (mut w, user, one, _) = ring_a(DcSafeQuorum);
    w.ask(user, &format!("SET {one} old"));
    w.run_ms(20);
    w.crash(2);
    w.run_ms(20);
    for line in [format!("GET {one}"), format!("SET {one} new")] {
        let reply = w.ask(user, &line);
        assert_error(&reply, NOT_CONNECTED, "(n3, r2, not connected)");
    }
    w.run_ms(20);
    // Fix: what cannot succeed is not begun.
    assert_eq!(w.in_stores(&ONE_OWNERS, &format!("GET {one}")), ["old"; 4]);
    w.restart(2);
    w.run_ms(1000);
    assert_eq!(w.ask(user, &format!("SET {one} new")), "OK");
    w.crash(2);
    w.crash(3);
    w.run_ms(20);
    assert_error(&w.ask(user, &format!("SET {one} newer")), NOT_CONNECTED, "n3");
    assert_error(&w.ask(user, &format!("GET {one}")), NOT_CONNECTED, "n3");
    assert_eq!(w.in_store(0, &format!("GET {one}")), "new");
}

#[test]
fn rows_9_and_10_at_dc_one_the_own_rack_is_enough() {
    let (mut w, user, one, _) = ring_a(DcOne);
    for gone in [vec![2, 3], vec![4, 5, 6, 7]] {
        gone.into_iter().for_each(|n| w.crash(n));
        w.run_ms(20);
        assert_eq!(w.ask(user, &format!("SET {one} v")), "OK");
        assert_eq!(w.ask(user, &format!("GET {one}")), "v");
    }
}

#[test]
fn rows_11_and_12_two_replicas_differ() {
    for (level, first) in [(DcSafeQuorum, false), (DcQuorum, true)] {
        let (mut w, user, one, _) = ring_a(level);
        w.plant(&[0], &one, "this");
        w.plant(&[2], &one, "other");
        let reply = w.ask(user, &format!("GET {one}"));
        match first {
            true => assert!(["this", "other"].contains(&reply.as_str()), "{reply}"),
            false => assert_error(&reply, NO_QUORUM, "(replicas disagree)"),
        }
    }
}

#[test]
fn row_13_the_majority_of_three_wins_and_the_stale_one_stays() {
    for level in [DcQuorum, DcSafeQuorum] {
        for stale in 0..3 {
            let (mut w, user) = ring_b(level);
            w.plant(&[0, 1, 2], "k", "new");
            w.plant(&[stale], "k", "old");
            assert_eq!(w.ask(user, "GET k"), "new");
            assert_eq!(w.in_store(stale, "GET k"), "old");
        }
    }
}

#[test]
fn rows_14_and_15_three_replicas_differ() {
    for (level, first) in [(DcSafeQuorum, false), (DcQuorum, true)] {
        let (mut w, user) = ring_b(level);
        (0..3).for_each(|n| w.plant(&[n], "k", &format!("v{n}")));
        let reply = w.ask(user, "GET k");
        match first {
            true => assert!(reply.starts_with('v'), "{reply}"),
            false => assert_error(&reply, NO_QUORUM, "(replicas disagree)"),
        }
    }
}

#[test]
fn rows_16_to_18_replicas_of_three_are_gone() {
    for level in [DcQuorum, DcSafeQuorum] {
        let (mut w, user) = ring_b(level);
        w.plant(&[0, 1, 2], "k", "v");
        w.crash(2);
        w.run_ms(20);
        assert_eq!(w.ask(user, "GET k"), "v");
        assert_eq!(w.ask(user, "SET k w"), "OK");
        // One is gone, the others differ.
        w.plant(&[1], "k", "x");
        let reply = w.ask(user, "GET k");
        match level {
            DcQuorum => assert!(["w", "x"].contains(&reply.as_str()), "{reply}"),
            _ => assert_error(&reply, NO_QUORUM, "(replicas disagree)"),
        }
        w.crash(1);
        w.run_ms(20);
        assert_error(&w.ask(user, "GET k"), NOT_CONNECTED, "(n2, r2, not connected)");
        assert_error(&w.ask(user, "SET k y"), NOT_CONNECTED, "(n2, r2, not connected)");
        assert_eq!(w.in_store(0, "GET k"), "w", "fix: nothing is written for nothing");
    }
}

#[test]
fn rows_20_and_22_each_works_over_plain_links() {
    let (mut w, user, one, _) = ring_a(DcEachSafeQuorum);
    assert_eq!(w.ask(user, &format!("SET {one} v")), "OK");
    assert_eq!(w.in_stores(&ONE_OWNERS, &format!("GET {one}")), ["v"; 4], "when the client knows");
    assert_eq!(w.ask(user, &format!("GET {one}")), "v");
    // Fix: each replica executes once.
    assert_eq!(w.ask(user, &format!("APPEND {one} +")), ":2");
    assert_eq!(w.in_stores(&ONE_OWNERS, &format!("GET {one}")), ["v+"; 4]);
    // Fix: a dead remote replica is an error at once, not a client that hangs.
    w.crash(4);
    w.run_ms(20);
    for line in [format!("GET {one}"), format!("SET {one} w")] {
        let (reply, took_ms) = w.timed(user, &line);
        assert_error(&reply, NOT_CONNECTED, "(n5, r1, not connected)");
        assert!(took_ms < 10, "{took_ms} ms");
    }
}

#[test]
fn rows_23_and_24_a_frozen_owner_at_dc_one() {
    let (mut w, user, _, two) = ring_a(DcOne);
    w.ask(user, &format!("SET {two} 0"));
    w.run_ms(20);
    w.freeze(1);
    let (reply, took_ms) = w.timed(user, &format!("GET {two}"));
    assert_error(&reply, PEER_REFUSED, "(n2, r1, timed out)");
    assert!((5200..5230).contains(&took_ms), "{took_ms} ms");
    w.send_line(user, &format!("SET {two} 1"));
    w.run_ms(1000);
    assert_eq!(w.in_stores(&TWO_OWNERS, &format!("GET {two}")), ["0", "1", "1", "1"]);
    let third = w.user(2);
    assert_eq!(w.ask(third, &format!("GET {two}")), "1");
    // Fix: what was queued arrives, so nothing stays divergent.
    w.thaw(1);
    assert_eq!(brief(&w.reply(user)), "OK");
    assert_eq!(w.in_stores(&TWO_OWNERS, &format!("GET {two}")), ["1"; 4]);
    assert_eq!(w.ask(user, &format!("GET {two}")), "1");
}

#[test]
fn row_25_a_frozen_replica_at_a_safe_level() {
    let (mut w, user, _, two) = ring_a(DcSafeQuorum);
    w.ask(user, &format!("SET {two} 0"));
    w.freeze(1);
    let third = w.user(2);
    for asker in [user, third] {
        w.send_line(asker, &format!("GET {two}"));
    }
    let start_ms = w.now_ms();
    for asker in [user, third] {
        assert_error(&brief(&w.reply(asker)), PEER_REFUSED, "(n2, r1, timed out)");
        assert!((5200..5230).contains(&(w.now_ms() - start_ms)));
    }
    let (reply, took_ms) = w.timed(third, &format!("SET {two} 1"));
    assert!(reply.starts_with(PEER_REFUSED) && took_ms < 5230, "{reply} after {took_ms} ms");
    // Fix: the replicas agree again as soon as it goes on, unless its link was given up.
    w.thaw(1);
    w.run_ms(2000);
    assert_eq!(w.ask(user, &format!("SET {two} 2")), "OK");
    assert_eq!(w.ask(user, &format!("GET {two}")), "2");
}

#[test]
fn row_26_a_pause_of_three_seconds() {
    for store_only in [true, false] {
        let (mut w, user, one, two) = ring_a(DcOne);
        match store_only {
            true => w.freeze_store(1),
            false => w.freeze(1),
        }
        let start_ms = w.now_ms();
        w.send_line(user, &format!("SET {two} v"));
        w.send_line(user, &format!("GET {two}"));
        let other = w.user(0);
        let (reply, took_ms) = w.timed(other, &format!("SET {one} v"));
        assert!(reply == "OK" && took_ms < 10, "other keys are not concerned");
        w.run_ms(3000);
        match store_only {
            true => w.thaw_store(1),
            false => w.thaw(1),
        }
        assert_eq!(brief(&w.reply(user)), "OK");
        assert_eq!(brief(&w.reply(user)), "v");
        assert!(w.now_ms() - start_ms < 3100);
        assert_eq!(w.in_stores(&TWO_OWNERS, &format!("GET {two}")), ["v"; 4]);
    }
}

#[test]
fn row_27_frozen_copies_at_dc_one() {
    let (mut w, user, _, two) = ring_a(DcOne);
    // n6 is the one that n1's writes to dc2 go through.
    w.freeze(3);
    w.freeze(5);
    let (reply, took_ms) = w.timed(user, &format!("SET {two} v"));
    assert!(reply == "OK" && took_ms < 10, "{reply} after {took_ms} ms");
    w.run_ms(500);
    assert_eq!(w.in_stores(&TWO_OWNERS, &format!("GET {two}")), ["v", "(nil)", "(nil)", "(nil)"]);
    w.thaw(3);
    w.thaw(5);
    w.run_ms(500);
    assert_eq!(w.in_stores(&TWO_OWNERS, &format!("GET {two}")), ["v"; 4]);
}

#[test]
fn row_28_a_frozen_datastore() {
    let (mut w, user, _, two) = ring_a(DcOne);
    w.freeze_store(1);
    w.send_line(user, &format!("SET {two} v"));
    // Fix: the read is answered by another rack when its own has given up.
    w.send_line(user, &format!("GET {two}"));
    let start_ms = w.now_ms();
    assert_error(&brief(&w.reply(user)), STORE_REFUSED, "timed out");
    assert_eq!(brief(&w.reply(user)), "v");
    let took_ms = w.now_ms() - start_ms;
    assert!((5000..5030).contains(&took_ms), "{took_ms} ms");
    w.thaw_store(1);
    w.run_ms(1000);
    assert_eq!(w.ask(user, &format!("GET {two}")), "v");
}

#[test]
fn row_29_a_rack_listed_in_the_wrong_datacenter() {
    let (mut w, user, one, _) = ring_a(DcOne);
    // n1 takes dc2's second rack for a third one of its own.
    let table = w.table.clone();
    for n in [6, 7] {
        w.table[n].dc = "dc1".into();
        w.table[n].rack = "r3".into();
    }
    w.publish_to(0);
    w.table = table;
    assert_eq!(w.ask(user, &format!("SET {one} v")), "OK");
    w.run_ms(20);
    assert_eq!(w.in_stores(&ONE_OWNERS, &format!("GET {one}")), ["v"; 4]);
}

#[test]
fn row_30_wrong_tokens_for_a_remote_rack() {
    let (mut w, user, one, _) = ring_a(DcOne);
    let table = w.table.clone();
    let tokens = w.table[4].tokens.clone();
    w.table[4].tokens = std::mem::replace(&mut w.table[5].tokens, tokens);
    w.publish_to(0);
    w.table = table;
    assert_eq!(w.ask(user, &format!("SET {one} v")), "OK");
    w.run_ms(20);
    // The wrong one passes it on to the right owners.
    assert_eq!(w.in_stores(&ONE_OWNERS, &format!("GET {one}")), ["v"; 4]);
    assert_eq!(w.in_store(5, &format!("EXISTS {one}")), ":0");
}

#[test]
fn row_31_large_values() {
    let (mut w, user, one, two) = ring_a(DcOne);
    for key in [&one, &two] {
        let value = "v".repeat(1 << 20);
        w.send(user, &["SET", key.as_str(), value.as_str()]);
        assert_eq!(w.reply(user), b"+OK\r\n");
        w.run_ms(200);
        assert_eq!(w.in_stores(&w.owners(key), &format!("STRLEN {key}")), [":1048576"; 4]);
        w.send(user, &["GET", key.as_str()]);
        assert_eq!(w.reply(user).len(), (1 << 20) + "$1048576\r\n\r\n".len());
    }
}

#[test]
fn rows_35_and_36_thousands_of_keys_in_one_command() {
    let (mut w, user, _, _) = ring_a(DcOne);
    let keys: Vec<String> = (0..10_000).map(|i| format!("m{i}")).collect();
    for n in 0..2 {
        for key in w.keys(n).filter(|key| key.ends_with('7')).take(5) {
            w.plant(&[n], &key, &key);
        }
    }
    let mut words = vec!["MGET".to_owned()];
    words.extend(keys);
    words.extend(w.keys(0).filter(|key| key.ends_with('7')).take(5));
    words.extend(w.keys(1).filter(|key| key.ends_with('7')).take(5));
    w.send(user, &words);
    let reply = w.reply(user);
    let found: Vec<String> = torc::proto::resp::reply::elements(&reply).map(brief).collect();
    assert_eq!(found.len(), 10_010);
    assert!(found[..10_000].iter().all(|value| value == "(nil)"));
    assert_eq!(found[10_000..], words[10_001..]);
}

#[test]
fn row_36a_one_rack_a_datacenter_works_at_every_level() {
    for level in Consistency::ALL {
        for dcs in [&[&[2usize][..]][..], &[&[2], &[2]]] {
            let mut w = World::new(Config::new(dcs).level(level));
            let user = w.user(0);
            for key in [w.key(0), w.key(1)] {
                assert_eq!(w.ask(user, &format!("SET {key} v")), "OK", "{level}");
                assert_eq!(w.ask(user, &format!("GET {key}")), "v", "{level}");
            }
        }
    }
}

#[test]
fn row_37_four_and_five_racks() {
    for (racks, enough) in [(&[1usize, 1, 1, 1][..], 3), (&[1, 1, 1, 1, 1], 3)] {
        for level in [DcQuorum, DcSafeQuorum] {
            let mut w = World::new(Config::new(&[racks]).level(level));
            let user = w.user(0);
            let all: Vec<usize> = (0..racks.len()).collect();
            w.plant(&all, "k", "v");
            w.plant(&all[enough..], "k", "stale");
            assert_eq!(w.ask(user, "GET k"), "v");
            assert_eq!(w.ask(user, "SET k w"), "OK");
            for n in enough..racks.len() {
                w.crash(n);
            }
            w.run_ms(20);
            assert_eq!(w.ask(user, "SET k x"), "OK");
            assert_eq!(w.ask(user, "GET k"), "x");
            w.crash(1);
            w.run_ms(20);
            assert_error(&w.ask(user, "SET k y"), NOT_CONNECTED, "n2");
        }
    }
}

#[test]
fn a_level_of_one_connection() {
    let (mut w, user) = ring_b(DcOne);
    w.crash(1);
    w.crash(2);
    w.run_ms(20);
    assert_eq!(w.ask(user, "DYNO_CONFIG:CONN_CONSISTENCY dc_quorum"), "OK");
    assert_error(&w.ask(user, "SET k v"), NOT_CONNECTED, "");
    let other = w.user(0);
    assert_eq!(w.ask(other, "SET k v"), "OK");
    assert_eq!(w.ask(user, "TORC.CONSISTENCY READ DC_ONE"), "OK");
    assert_eq!(w.ask(user, "GET k"), "v");
}
