//! Reads of several keys of which replicas hold different values: each key is settled by itself.

use torc::ring::Consistency::{self, DcEachSafeQuorum, DcQuorum, DcSafeQuorum};
use torc::ring::PeerState;

use super::super::cluster::Config;
use super::super::world::World;
use super::{NO_QUORUM, assert_error};

fn three_racks(level: Consistency) -> (World, usize) {
    let mut w = World::new(Config::ring_b().level(level));
    let user = w.user(0);
    (w, user)
}

#[test]
fn replicas_that_lack_a_key_each_have_no_say_in_the_others() {
    for level in [DcQuorum, DcSafeQuorum, DcEachSafeQuorum] {
        let (mut w, user) = three_racks(level);
        for (stale, key) in ["a", "b", "c"].into_iter().enumerate() {
            w.plant(&[0, 1, 2], key, "new");
            w.plant(&[stale], key, "old");
        }
        assert_eq!(w.ask(user, "MGET a b none c a"), "[new, new, (nil), new, new]", "{level}");
        assert_eq!(w.counters(0).keys_asked_again, 0);
    }
}

#[test]
fn keys_are_counted_one_by_one() {
    for level in [DcQuorum, DcSafeQuorum] {
        let (mut w, user) = three_racks(level);
        for (missing, key) in ["a", "b", "c"].into_iter().enumerate() {
            let others: Vec<usize> = (0..3).filter(|n| *n != missing).collect();
            w.plant(&others, key, "v");
        }
        w.plant(&[2], "only", "v");
        // Each store has two of the three: a vote on the sums would say so.
        assert_eq!(w.ask(user, "EXISTS a b c"), ":3", "{level}");
        assert_eq!(w.ask(user, "TOUCH a b c none a only"), ":4", "{level}");
    }
    // Where nobody votes they travel together.
    let (mut w, user) = three_racks(Consistency::DcOne);
    w.plant(&[0, 1, 2], "a", "v");
    w.stores[0].log = true;
    assert_eq!(w.ask(user, "EXISTS a b a"), ":2");
    assert!(w.stores[0].executed.contains(&"EXISTS a b a".to_owned()));
}

#[test]
fn a_key_without_a_majority_is_asked_for_alone() {
    for level in [DcQuorum, DcSafeQuorum] {
        let (mut w, user) = three_racks(level);
        w.plant(&[0, 1, 2], "a", "v");
        (0..3).for_each(|n| w.plant(&[n], "b", &format!("b{n}")));
        w.stores.iter_mut().for_each(|store| store.log = true);
        let replies = w.ask_all(user, &["MGET a b a", "GET a"]);
        let several = replies[0].as_str();
        match level {
            DcQuorum => assert!(several.starts_with("[v, b") && several.ends_with(", v]")),
            _ => assert_error(several, NO_QUORUM, "(replicas disagree)"),
        }
        assert_eq!(replies[1], "v", "in the order asked");
        for store in &w.stores {
            let asked: Vec<_> = store.executed.iter().filter(|line| *line != "PING").collect();
            assert_eq!(asked, ["MGET a b a", "GET a", "MGET b"]);
        }
        assert_eq!(w.counters(0).keys_asked_again, 1);
        // The node goes on as ever.
        assert_eq!(w.ask(user, "MGET a a"), "[v, v]");
    }
}

#[test]
fn parts_of_several_owners_are_settled_alike() {
    let mut w = World::new(Config::new(&[&[2, 2, 2]]).level(DcQuorum));
    let user = w.user(3);
    let keys: Vec<String> = (0..2).flat_map(|at| w.keys(at).take(3)).collect();
    for (n, key) in keys.iter().enumerate() {
        let owners = w.owners(key);
        w.plant(&owners, key, &format!("new{n}"));
        w.plant(&[owners[n % 3]], key, "old");
    }
    let all: Vec<&str> = [5, 0, 1, 4, 2, 3].map(|n: usize| keys[n].as_str()).to_vec();
    let reply = w.ask(user, &format!("MGET {}", all.join(" ")));
    assert_eq!(reply, "[new5, new0, new1, new4, new2, new3]");
}

#[test]
fn of_embedded_stores_each_keys_newest_value_is_given() {
    let mut w = World::new(Config::ring_b().level(DcQuorum).embedded());
    let user = w.user(0);
    for key in ["a", "b", "c"] {
        assert_eq!(w.ask(user, &format!("SET {key} old")), "OK");
    }
    // Two racks miss one write each. Then the one that has both goes.
    for (missing, key) in [(2, "a"), (1, "b")] {
        w.set_state(missing, PeerState::Down);
        w.publish();
        assert_eq!(w.ask(user, &format!("SET {key} new")), "OK");
        w.set_state(missing, PeerState::Normal);
        w.publish();
        w.run_until_connected();
    }
    w.crash(0);
    w.run_ms(50);
    assert_eq!(w.in_stores(&[1, 2], "MGET c a b"), ["[old, new, old]", "[old, old, new]"]);
    for node in [1, 2] {
        let user = w.user(node);
        assert_eq!(w.ask(user, "MGET c a b a"), "[old, new, new, new]", "n{node}");
        assert_eq!(w.counters(node).keys_asked_again, 3);
    }
}
