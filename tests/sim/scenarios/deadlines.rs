//! Answers that come late or never.

use torc::ring::Consistency::{DcEachSafeQuorum, DcQuorum};

use super::super::cluster::Config;
use super::super::world::World;
use super::{PEER_REFUSED, STORE_REFUSED, assert_error};

/// How late a deadline may be noticed, milliseconds.
const SLACK_MS: u64 = 25;

#[track_caller]
fn assert_after(took_ms: u64, want_ms: u64) {
    assert!((want_ms..want_ms + SLACK_MS).contains(&took_ms), "{took_ms} ms, not {want_ms}");
}

#[test]
fn every_hop_has_its_deadline() {
    // The own store, a peer here, a peer far away: 5,000, 200 more, 5,000 more.
    let mut w = World::new(Config::new(&[&[2], &[1]]).level(DcEachSafeQuorum));
    let user = w.user(0);
    let (here, there) = (w.key(0), w.key(1));
    w.freeze_store(0);
    let (reply, took_ms) = w.timed(user, &format!("GET {here}"));
    assert_error(&reply, STORE_REFUSED, "(timed out)");
    assert_after(took_ms, 5000);
    w.thaw_store(0);
    w.freeze(1);
    let (reply, took_ms) = w.timed(user, &format!("GET {there}"));
    assert_error(&reply, PEER_REFUSED, "(n2, r1, timed out)");
    assert_after(took_ms, 5200);
    w.thaw(1);
    w.freeze(2);
    let (reply, took_ms) = w.timed(user, &format!("GET {here}"));
    assert_error(&reply, PEER_REFUSED, "(n3, r1, timed out)");
    assert_after(took_ms, 10_000);
}

#[test]
fn the_timeout_factor_stretches_deadlines() {
    let mut w = World::new(Config::new(&[&[2]]).tuned(|settings| {
        settings.timeout_ms = 100;
        settings.timeout_factor = 3;
    }));
    let user = w.user(0);
    let there = w.key(1);
    w.freeze(1);
    let (_, took_ms) = w.timed(user, &format!("GET {there}"));
    assert_after(took_ms, 900);
}

#[test]
fn a_late_reply_is_dropped_and_the_next_request_gets_its_own() {
    let mut w = World::new(Config::new(&[&[2]]));
    let user = w.user(0);
    let there = w.key(1);
    w.ask(user, &format!("SET {there} first"));
    w.freeze(1);
    let reply = w.ask(user, &format!("GET {there}"));
    assert_error(&reply, PEER_REFUSED, "timed out");
    // Still frozen: these two go behind the tombstone.
    let lines = [format!("SET {there} second"), format!("GET {there}")];
    lines.iter().for_each(|line| w.send_line(user, line));
    w.run_ms(1000);
    w.thaw(1);
    let replies = [w.reply(user), w.reply(user)];
    assert_eq!(replies, [b"+OK\r\n".to_vec(), b"$6\r\nsecond\r\n".to_vec()]);
    let counters = w.counters(0);
    assert_eq!((counters.timeouts, counters.late_replies), (1, 1));
    assert_eq!(counters.stalled_upstreams, 0, "the connection was kept");
}

#[test]
fn a_late_reply_of_the_store_is_dropped_too() {
    let mut w = World::new(Config::new(&[&[1]]));
    let (one, other) = (w.user(0), w.user(0));
    w.ask(one, "SET a 1");
    w.ask(one, "SET b 2");
    w.freeze_store(0);
    w.send_line(one, "GET a");
    w.run_ms(3000);
    w.send_line(other, "GET b");
    w.run_ms(2500);
    assert_error(&super::super::user::brief(&w.reply(one)), STORE_REFUSED, "timed out");
    w.thaw_store(0);
    assert_eq!(w.reply(other), b"$1\r\n2\r\n");
    assert_eq!(w.ask(one, "GET a"), "1");
    assert_eq!(w.counters(0).late_replies, 1);
}

#[test]
fn a_silent_upstream_is_dropped_after_twice_the_timeout() {
    let mut w = World::new(Config::new(&[&[2]]));
    let users: Vec<usize> = (0..11).map(|_| w.user(0)).collect();
    let there = w.key(1);
    w.freeze(1);
    let start_ms = w.now_ms();
    for user in &users {
        w.send_line(*user, &format!("GET {there}"));
        w.run_ms(900);
    }
    w.run_until("the link is dropped", |w| w.counters(0).stalled_upstreams == 1);
    let took_ms = w.now_ms() - start_ms;
    assert!((10_000..10_050).contains(&took_ms), "{took_ms} ms");
    // Those that were not yet late are told at once.
    w.run_ms(10);
    for user in &users {
        let reply = super::super::user::brief(&w.reply(*user));
        assert!(reply.starts_with(PEER_REFUSED), "{reply}");
    }
    w.thaw(1);
    w.run_ms(1100);
    assert_eq!(w.ask(users[0], &format!("GET {there}")), "(nil)");
}

#[test]
fn a_busy_upstream_is_not_taken_for_a_silent_one() {
    let mut w = World::new(Config::new(&[&[2]]).tuned(|settings| settings.timeout_ms = 100));
    let user = w.user(0);
    let there = w.key(1);
    // Never without a request in flight for a second, but answered all along.
    for _ in 0..200 {
        w.send_line(user, &format!("GET {there}"));
        w.run_ms(5);
    }
    w.run_ms(100);
    assert_eq!(w.users[user].replies.len(), 200);
    assert_eq!(w.counters(0).stalled_upstreams, 0);
}

#[test]
fn an_idle_link_is_asked_whether_it_lives() {
    let mut w = World::new(Config::new(&[&[2]]));
    w.run_ms(10_000);
    assert!(w.counters(1).peer_requests_in >= 9, "{}", w.counters(1).peer_requests_in);
    // One that does not answer is dropped.
    w.freeze(1);
    w.run_until("the link is dropped", |w| w.counters(0).stalled_upstreams == 1);
}

#[test]
fn a_vote_does_not_wait_for_the_slowest() {
    let mut w = World::new(Config::ring_b().level(DcQuorum));
    let user = w.user(0);
    w.ask(user, "SET k 1");
    w.freeze(2);
    for i in 0..20 {
        let (reply, took_ms) = w.timed(user, &format!("SET k {i}"));
        assert!(reply == "OK" && took_ms < 10, "{reply} after {took_ms} ms");
        assert_eq!(w.ask(user, "GET k"), i.to_string());
    }
    w.run_ms(6000);
    // Nobody was told of a timeout, so none is counted.
    assert_eq!(w.counters(0).timeouts, 0);
    w.thaw(2);
    w.run_ms(100);
    assert_eq!(w.in_store(2, "GET k"), "19", "what was queued is done in order");
}

#[test]
fn a_pipeline_behind_a_late_answer_stays_in_order() {
    let mut w = World::new(Config::new(&[&[2]]));
    let user = w.user(0);
    let (here, there) = (w.key(0), w.key(1));
    w.plant(&[0], &here, "h");
    w.plant(&[1], &there, "t");
    w.freeze(1);
    let lines = [format!("GET {there}"), format!("GET {here}"), "ECHO e".to_owned()];
    lines.iter().for_each(|line| w.send_line(user, line));
    w.run_ms(5000);
    assert!(w.users[user].replies.is_empty(), "nobody overtakes");
    w.run_ms(300);
    let replies: Vec<_> = (0..3).map(|_| super::super::user::brief(&w.reply(user))).collect();
    assert_error(&replies[0], PEER_REFUSED, "timed out");
    assert_eq!(replies[1..], ["h", "e"]);
}
