//! Death, return, partitions, pauses: who is judged down, how soon, and who is not.

use super::world::{World, defaults, local, seed, slot};
use crate::gossip::{DownCause, EventKind, Link, Reach};

fn settled(n: usize, seed: u64) -> World {
    let mut world = World::of(n, seed);
    world.run_until(8000, World::all_up);
    world.run(8000);
    assert_eq!(world.downs(&[]), [], "nobody flaps in a quiet ring of {n}");
    world.forget_events();
    world
}

#[test]
fn a_dead_node_is_down_everywhere_within_three_seconds() {
    for (n, seeds) in [(2, 12), (3, 12), (8, 6), (50, 1)] {
        for rng_seed in 0..seeds {
            let mut world = settled(n, rng_seed);
            world.kill(n - 1);
            let took = world.run_until(4000, |w| w.down_everywhere(n - 1));
            assert!(took <= 3000, "{n} nodes, seed {rng_seed}: {took} ms");
            assert!(took >= 2000, "{n} nodes, seed {rng_seed}: {took} ms is hasty");
            assert_eq!(world.downs(&[n - 1]), []);
        }
    }
}

#[test]
fn a_node_that_returns_is_routable_within_two_seconds() {
    for (n, seeds) in [(2, 12), (3, 12), (8, 6), (50, 1)] {
        for rng_seed in 0..seeds {
            let mut world = settled(n, rng_seed);
            world.kill(n - 1);
            world.run(10_000);
            assert!(world.down_everywhere(n - 1));
            world.boot(n - 1, vec![seed(0)]);
            let took = world.run_until(3000, |w| w.routable_everywhere(n - 1));
            assert!(took <= 2000, "{n} nodes, seed {rng_seed}: {took} ms");
            world.run_until(3000, World::all_up);
            assert_eq!(world.ring_digests().len(), 1);
        }
    }
}

#[test]
fn the_seed_itself_may_die_and_return_without_knowing_anybody() {
    let mut world = settled(6, 3);
    world.kill(0);
    world.run(5000);
    assert!(world.down_everywhere(0));
    // It was started with an empty seed list: the others find it.
    world.boot(0, vec![]);
    let took = world.run_until(3000, |w| w.routable_everywhere(0));
    assert!(took <= 2000, "{took} ms");
    world.run_until(3000, World::all_up);
}

#[test]
fn a_frozen_node_comes_back_without_a_restart() {
    let mut world = settled(8, 1);
    world.nodes[5].frozen = true;
    let took = world.run_until(4000, |w| w.down_everywhere(5));
    assert!(took <= 3000, "{took} ms");
    world.run(20_000);
    world.nodes[5].frozen = false;
    let took = world.run_until(3000, |w| w.routable_everywhere(5));
    assert!(took <= 2000, "{took} ms");
    world.run(5000);
    // It was not there to hear anybody, and judges nobody for it.
    assert_eq!(world.downs(&[5]), []);
    assert_eq!(world.m(5).counters().pauses, 1);
}

#[test]
fn a_partition_cuts_both_sides_and_heals() {
    let n = 10;
    let mut world = settled(n, 2);
    for a in 0..5 {
        for b in 5..n {
            world.cut_both(a, b);
        }
    }
    world.run(10_000);
    for a in 0..n {
        for b in 0..n {
            let same_side = (a < 5) == (b < 5);
            let up = world.reach(a, &slot(b)) == Some(Reach::Up);
            assert_eq!(up, same_side, "{a} of {b}");
        }
    }
    let downs = world.downs(&[]).len();
    assert_eq!(downs, 2 * 5 * 5, "one verdict each");
    world.cut.clear();
    let took = world.run_until(4000, World::all_up);
    assert!(took <= 2000, "{took} ms");
    assert_eq!(world.ring_digests().len(), 1);
}

#[test]
fn one_way_partitions_flap_nobody() {
    let n = 8;
    let mut world = settled(n, 5);
    // Node 1 hears nothing from 2 and 3; node 4 is not heard by half of the ring.
    world.cut.insert((2, 1));
    world.cut.insert((3, 1));
    for other in 0..4 {
        world.cut.insert((4, other));
    }
    world.run(120_000);
    assert_eq!(world.downs(&[]), []);
    assert!(world.all_up(), "what others hear is passed on");
}

#[test]
fn a_lossy_slow_network_flaps_nobody() {
    let mut world = World::of(8, 9);
    world.delay_ms = (1, 250);
    world.run_until(8000, World::all_up);
    world.run(120_000);
    assert_eq!(world.downs(&[]), []);
}

#[test]
fn a_pair_that_cannot_connect_is_down_for_the_pair_alone() {
    let mut world = settled(5, 1);
    let id = world.id(1, &slot(2));
    world.poke(1, |m, now| m.link(id, Link::Lost, now));
    world.run(2990);
    assert_eq!(world.reach(1, &slot(2)), Some(Reach::Up));
    world.run(20);
    let unreachable = Reach::Down(DownCause::Unreachable);
    assert_eq!(world.reach(1, &slot(2)), Some(unreachable));
    world.run(5000);
    let downs = world.downs(&[]);
    assert_eq!(downs.len(), 1, "{downs:?}");
    // Others hear it, so it is worth to connect again.
    let retries = world.events(1, &slot(2));
    let retries = retries.iter().filter(|e| **e == EventKind::Retry).count();
    assert!((4..=6).contains(&retries), "{retries}");
    world.poke(1, |m, now| m.link(id, Link::Open, now));
    assert_eq!(world.reach(1, &slot(2)), Some(Reach::Up));
}

#[test]
fn a_refused_connection_is_believed_after_a_second_of_silence() {
    let mut world = settled(5, 1);
    let id = world.id(1, &slot(2));
    world.kill(2);
    world.poke(1, |m, now| m.link(id, Link::Refused, now));
    world.run(900);
    assert_eq!(world.reach(1, &slot(2)), Some(Reach::Up));
    world.run(200);
    let refused = Reach::Down(DownCause::Refused);
    assert_eq!(world.reach(1, &slot(2)), Some(refused));
    assert_eq!(world.reach(3, &slot(2)), Some(Reach::Up), "a local verdict");
    // A new process: what was known of the old one's port is void.
    world.boot(2, vec![seed(0)]);
    world.run(1500);
    assert_eq!(world.reach(1, &slot(2)), Some(Reach::Up));
}

#[test]
fn a_busy_restart_within_a_second_is_no_death() {
    let mut world = settled(5, 1);
    let id = world.id(1, &slot(2));
    world.kill(2);
    world.poke(1, |m, now| m.link(id, Link::Refused, now));
    world.run(500);
    world.boot(2, vec![seed(0)]);
    world.run(5000);
    assert_eq!(world.downs(&[]), []);
    assert_eq!(world.events(1, &slot(2)), [EventKind::Restarted]);
}

#[test]
fn frames_on_our_own_connections_are_signs_of_life() {
    let mut world = World::new(1);
    world.start(local(0), defaults(), vec![seed(1)]);
    let id = world.id(0, &slot(1));
    for _ in 0..20 {
        world.run(1000);
        world.poke(0, |m, now| m.observe(id, now.minus(40), now));
    }
    assert_eq!(world.reach(0, &slot(1)), Some(Reach::Up));
    assert!(world.m(0).member(id).unwrap().last_heard() == Some(world.now.minus(40)));
    let took = world.run_until(5000, |w| w.is_down_at(0, &slot(1)));
    assert!((3500..3700).contains(&took), "{took} ms after one frame a second");
    let now = world.now;
    assert!(world.m(0).phi(id, now).unwrap() >= 7.9);
    world.poke(0, |m, now| m.observe(id, now, now));
    assert_eq!(world.reach(0, &slot(1)), Some(Reach::Up));
}

#[test]
fn who_stops_in_order_is_down_at_once_and_keeps_its_arcs() {
    let mut world = settled(10, 1);
    world.poke(4, |m, now| m.go_away(now));
    world.run(20);
    world.kill(4);
    let took = world.run_until(2000, |w| w.down_everywhere(4));
    assert!(took <= 1200, "{took} ms");
    assert_eq!(world.reach(0, &slot(4)), Some(Reach::Down(DownCause::Away)));
    assert_eq!(world.m(0).peers().len(), 10);
    world.boot(4, vec![seed(0)]);
    let took = world.run_until(2000, |w| w.routable_everywhere(4));
    assert!(took <= 2000, "{took} ms");
}

#[test]
fn an_operator_may_hold_a_peer_down_for_one_node() {
    let mut world = settled(3, 1);
    let id = world.id(0, &slot(1));
    assert!(world.poke(0, |m, now| m.force_down(id, true, now)));
    world.run(5000);
    assert_eq!(world.reach(0, &slot(1)), Some(Reach::Down(DownCause::Operator)));
    assert_eq!(world.reach(2, &slot(1)), Some(Reach::Up));
    world.poke(0, |m, now| m.force_down(id, false, now));
    assert_eq!(world.reach(0, &slot(1)), Some(Reach::Up));
}

#[test]
fn each_verdict_counts_up_the_version() {
    let mut world = settled(3, 1);
    let before = world.m(0).version();
    world.run(5000);
    assert_eq!(world.m(0).version(), before, "nothing happened");
    world.kill(2);
    world.run(4000);
    assert_eq!(world.m(0).version(), before + 1);
    let peers = world.m(0).peers();
    assert_eq!(peers.iter().filter(|p| !p.reachable).count(), 1);
}
