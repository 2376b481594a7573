//! The ring changes while requests are in flight.

use torc::ring::PeerState;

use super::super::cluster::Config;
use super::super::user::brief;
use super::super::world::World;
use super::{NOT_CONNECTED, assert_error};

#[test]
fn requests_in_flight_finish_on_the_view_they_were_planned_on() {
    let mut w = World::new(Config::new(&[&[2]]));
    let user = w.user(0);
    let key = w.key(1);
    w.plant(&[1], &key, "old_owner");
    w.freeze_store(1);
    w.send_line(user, &format!("GET {key}"));
    w.send_line(user, &format!("SET {key} written"));
    w.run_ms(50);
    // The owner gives its arc up while it still owes two answers.
    w.set_state(1, PeerState::Leaving);
    w.publish();
    assert_eq!(w.nodes[0].upstreams.len(), 2, "the link is kept while it owes answers");
    let other = w.user(0);
    assert_eq!(w.ask(other, &format!("SET {key} here")), "OK");
    assert_eq!(w.in_store(0, &format!("GET {key}")), "here", "the arc has a new owner");
    w.run_ms(500);
    w.thaw_store(1);
    assert_eq!(brief(&w.reply(user)), "old_owner");
    assert_eq!(brief(&w.reply(user)), "OK");
    w.run_ms(50);
    assert_eq!(w.nodes[0].upstreams.len(), 1, "and is closed then");
    assert_eq!(w.counters(0).upstreams_up, 1);
}

#[test]
fn a_leaving_peer_that_dies_fails_its_writes_and_moves_its_reads() {
    let mut w = World::new(Config::new(&[&[2, 2, 1]]));
    let user = w.user(0);
    let key = w.key(1);
    w.plant(&[0], &key, "new_owner");
    w.freeze(1);
    w.send_line(user, &format!("GET {key}"));
    w.send_line(user, &format!("SET {key} x"));
    w.run_ms(20);
    w.set_state(1, PeerState::Leaving);
    w.publish_to(0);
    w.run_ms(20);
    w.crash(1);
    // Its rack has another owner now: this node itself.
    assert_eq!(brief(&w.reply(user)), "new_owner");
    assert!(brief(&w.reply(user)).starts_with("-ERR Peer: Peer Node refused connection (n2"));
    w.run_ms(20);
    assert_eq!(w.nodes[0].dispatcher.in_flight(), 0);
    assert_eq!(w.ask(user, &format!("SET {key} y")), "OK");
}

#[test]
fn a_peer_that_is_forgotten_while_its_reads_are_in_flight() {
    let mut w = World::new(Config::ring_b());
    let user = w.user(0);
    w.plant(&[0, 1, 2], "k", "v");
    w.crash_store(0, true);
    w.freeze(1);
    w.run_ms(10);
    w.send_line(user, "GET k");
    w.run_ms(10);
    // The second rack is forgotten, so the third takes its place in the view.
    w.table.remove(1);
    w.publish_to(0);
    w.crash(1);
    assert_eq!(brief(&w.reply(user)), "v", "the third rack answers");
}

#[test]
fn a_peer_that_moves_to_another_address_is_reached_there() {
    let mut w = World::new(Config::new(&[&[2, 1]]));
    let user = w.user(0);
    let key = w.key(1);
    w.plant(&[1], &key, "old_place");
    w.plant(&[2], &key, "new_place");
    assert_eq!(w.ask(user, &format!("GET {key}")), "old_place");
    w.table[1].port = w.table[2].port;
    w.publish_to(0);
    w.run_until_connected();
    assert_eq!(w.ask(user, &format!("GET {key}")), "new_place");
}

#[test]
fn a_doubted_peer_is_not_asked_and_trusted_again() {
    let mut w = World::new(Config::new(&[&[2, 2]]));
    let user = w.user(0);
    let key = w.key(1);
    w.plant(&[1], &key, "own");
    w.plant(&[3], &key, "other");
    w.table[1].reachable = false;
    w.publish_to(0);
    assert_eq!(w.ask(user, &format!("GET {key}")), "other");
    assert_eq!(w.ask(user, &format!("SET {key} new")), "OK");
    assert_eq!(w.counters(0).missed_writes, 1);
    assert_eq!(w.in_stores(&[1, 3], &format!("GET {key}")), ["own", "new"]);
    w.table[3].reachable = false;
    w.publish_to(0);
    let reply = w.ask(user, &format!("GET {key}"));
    assert_error(&reply, NOT_CONNECTED, "(n2, r1, not routable)");
    w.table[1].reachable = true;
    w.publish_to(0);
    // The link was kept.
    assert_eq!(w.ask(user, &format!("GET {key}")), "own");
}

#[test]
fn equal_tables_give_equal_rings_in_any_order() {
    let mut w = World::new(Config::ring_a());
    w.check_digests();
    let before = w.nodes[0].view.topology.digest();
    for round in 0..20 {
        let mut rng = fastrand::Rng::with_seed(round);
        let n = rng.usize(0..8);
        let state = if w.table[n].state == PeerState::Normal {
            PeerState::Leaving
        } else {
            PeerState::Normal
        };
        // Rows keep their ids, whatever order they stand in.
        w.set_state(n, state);
        let table = w.table.clone();
        rng.shuffle(&mut w.table);
        w.publish();
        w.table = table;
        w.check_digests();
    }
    for n in 0..8 {
        w.set_state(n, PeerState::Normal);
    }
    w.publish();
    w.check_digests();
    assert_eq!(w.nodes[0].view.topology.digest(), before);
}

#[test]
fn a_peer_that_restarts_is_used_again_within_two_seconds() {
    let mut w = World::new(Config::new(&[&[2]]));
    let user = w.user(0);
    let key = w.key(1);
    assert_eq!(w.ask(user, &format!("SET {key} 1")), "OK");
    w.crash(1);
    w.run_ms(20_000);
    let reply = w.ask(user, &format!("GET {key}"));
    assert_error(&reply, NOT_CONNECTED, "(n2, r1, not connected)");
    w.restart(1);
    w.run_ms(2000);
    assert_eq!(w.ask(user, &format!("GET {key}")), "1");
}

#[test]
fn views_that_change_under_load_lose_nothing() {
    let mut w = World::new(Config::new(&[&[3]]));
    let user = w.user(0);
    let mut rng = fastrand::Rng::with_seed(11);
    let mut sent = 0;
    for round in 0..100 {
        for _ in 0..10 {
            w.send_line(user, &format!("ECHO {sent}"));
            w.send_line(user, &format!("SET k{} {sent}", rng.u32(0..30)));
            sent += 1;
        }
        let state = if round % 2 == 0 { PeerState::Leaving } else { PeerState::Normal };
        w.set_state(1 + round / 2 % 2, state);
        w.publish();
        w.run_ms(rng.u64(0..3));
    }
    for i in 0..sent {
        assert_eq!(brief(&w.reply(user)), i.to_string());
        // A peer that comes back is not connected yet; but no write is in doubt.
        let reply = brief(&w.reply(user));
        assert!(reply == "OK" || reply.starts_with(NOT_CONNECTED), "{reply}");
    }
}
