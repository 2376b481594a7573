//! Reads that another rack answers, and writes that none may answer for.

use torc::ring::PeerState;

use super::super::cluster::Config;
use super::super::user::brief;
use super::super::world::World;
use super::{NOT_CONNECTED, PEER_REFUSED, STORE_REFUSED, assert_error};

/// One datacenter of two racks of two nodes; a key of the second node of each rack, with another
/// value in each rack.
fn two_racks(tune: impl FnOnce(Config) -> Config) -> (World, String) {
    let mut w = World::new(tune(Config::new(&[&[2, 2]])));
    let key = w.key(1);
    w.plant(&[1], &key, "own");
    w.plant(&[3], &key, "other");
    (w, key)
}

#[test]
fn a_read_moves_on_when_its_owner_dies_in_flight() {
    let (mut w, key) = two_racks(|c| c);
    let user = w.user(0);
    assert_eq!(w.ask(user, &format!("GET {key}")), "own");
    w.freeze(1);
    w.send_line(user, &format!("GET {key}"));
    w.send_line(user, "ECHO behind");
    w.run_ms(100);
    w.crash(1);
    assert_eq!(brief(&w.reply(user)), "other");
    assert_eq!(brief(&w.reply(user)), "behind");
    assert_eq!(w.counters(0).retried_reads, 1);
    // From now on it is planned so.
    assert_eq!(w.ask(user, &format!("GET {key}")), "other");
    assert_eq!(w.counters(0).fallback_reads, 1);
    w.restart(1);
    w.run_ms(1500);
    assert_eq!(w.ask(user, &format!("GET {key}")), "own");
}

#[test]
fn a_read_moves_on_when_the_owners_store_is_gone() {
    let (mut w, key) = two_racks(|c| c);
    let user = w.user(0);
    w.crash_store(1, true);
    w.run_ms(10);
    assert_eq!(w.ask(user, &format!("GET {key}")), "other");
    let local = w.key(0);
    w.plant(&[2], &local, "other");
    w.crash_store(0, true);
    w.run_ms(10);
    assert_eq!(w.ask(user, &format!("GET {local}")), "other");
}

#[test]
fn a_multi_key_read_moves_part_by_part() {
    let (mut w, key) = two_racks(|c| c);
    let user = w.user(0);
    let local = w.key(0);
    w.plant(&[0], &local, "local");
    w.freeze(1);
    w.send_line(user, &format!("MGET {key} {local} {key}"));
    w.run_ms(100);
    w.crash(1);
    assert_eq!(brief(&w.reply(user)), "[other, local, other]");
}

#[test]
fn many_reads_in_flight_move_and_keep_their_order() {
    let (mut w, _) = two_racks(|c| c);
    let user = w.user(0);
    let keys: Vec<String> = w.keys(1).take(40).collect();
    for key in &keys {
        w.plant(&[1, 3], key, &format!("of-{key}"));
    }
    w.freeze(1);
    for key in &keys {
        w.send_line(user, &format!("GET {key}"));
    }
    w.run_ms(100);
    w.crash(1);
    for key in &keys {
        assert_eq!(brief(&w.reply(user)), format!("of-{key}"));
    }
    assert_eq!(w.counters(0).retried_reads, 40);
}

#[test]
fn a_read_that_moves_waits_no_longer_than_any_other() {
    let (mut w, key) = two_racks(|c| c);
    let user = w.user(0);
    w.freeze(1);
    w.freeze(3);
    let start_ms = w.now_ms();
    w.send_line(user, &format!("GET {key}"));
    w.run_ms(4000);
    w.crash(1);
    let reply = brief(&w.reply(user));
    assert_error(&reply, PEER_REFUSED, "(n4, r2, timed out)");
    let took_ms = w.now_ms() - start_ms;
    assert!((5200..5230).contains(&took_ms), "{took_ms} ms");
    // Its late answer belongs to nobody.
    w.thaw(3);
    w.run_ms(100);
    assert_eq!(w.ask(user, &format!("GET {key}")), "other");
}

#[test]
fn a_read_does_not_move_after_its_time_is_over() {
    let (mut w, key) = two_racks(|c| c);
    let user = w.user(0);
    w.freeze(1);
    let reply = w.ask(user, &format!("GET {key}"));
    assert_error(&reply, PEER_REFUSED, "(n2, r1, timed out)");
    assert_eq!(w.counters(0).retried_reads, 0);
}

#[test]
fn a_read_runs_out_of_racks() {
    let (mut w, key) = two_racks(|c| c);
    let user = w.user(0);
    w.freeze(1);
    w.send_line(user, &format!("GET {key}"));
    w.run_ms(10);
    w.crash(3);
    w.run_ms(10);
    w.crash(1);
    assert_error(&brief(&w.reply(user)), PEER_REFUSED, "(n2, r1, connection closed)");
    let reply = w.ask(user, &format!("GET {key}"));
    assert_error(&reply, NOT_CONNECTED, "(n2, r1, not connected)");
}

#[test]
fn a_write_that_was_sent_is_never_sent_again() {
    let (mut w, key) = two_racks(|c| c);
    let user = w.user(0);
    w.stores.iter_mut().for_each(|store| store.log = true);
    w.freeze(1);
    w.send_line(user, &format!("INCR {key}n"));
    w.run_ms(10);
    w.crash(1);
    assert_error(&brief(&w.reply(user)), PEER_REFUSED, "(n2, r1, connection closed)");
    let others = w.stores[3].executed.iter().filter(|c| c.starts_with("INCR")).count();
    assert_eq!(others, 1, "the copy it got anyway");
    // When it is known to be gone the next rack answers.
    assert_eq!(w.ask(user, &format!("INCR {key}n")), ":2");
}

#[test]
fn without_fallback_a_read_stays_in_its_rack() {
    let (mut w, key) = two_racks(|c| c.tuned(|settings| settings.read_fallback = false));
    let user = w.user(0);
    w.freeze(1);
    w.send_line(user, &format!("GET {key}"));
    w.run_ms(10);
    w.crash(1);
    assert_error(&brief(&w.reply(user)), PEER_REFUSED, "(n2, r1, connection closed)");
    let reply = w.ask(user, &format!("GET {key}"));
    assert_error(&reply, NOT_CONNECTED, "(n2, r1, not connected)");
    w.crash_store(0, true);
    w.run_ms(10);
    let local = w.key(0);
    let reply = w.ask(user, &format!("GET {local}"));
    assert_error(&reply, STORE_REFUSED, "(n1, r1, not connected)");
}

#[test]
fn a_joining_node_reads_elsewhere_and_itself_when_nobody_else_can() {
    let config = Config::new(&[&[1, 1]]).embedded();
    let mut w = World::new(config);
    let user = w.user(0);
    w.set_state(0, PeerState::Joining);
    w.publish();
    w.plant(&[0], "k", "joining");
    w.plant(&[1], "k", "full");
    assert_eq!(w.ask(user, "GET k"), "full");
    // The full one dies while it is asked: the embedded store of the joining one answers.
    w.freeze(1);
    w.send_line(user, "GET k");
    w.send_line(user, "MGET k k");
    w.run_ms(10);
    w.crash(1);
    assert_eq!(brief(&w.reply(user)), "joining");
    assert_eq!(brief(&w.reply(user)), "[joining, joining]");
    assert_eq!(w.ask(user, "GET k"), "joining");
    assert_eq!(w.nodes[0].dispatcher.in_flight(), 0);
}
