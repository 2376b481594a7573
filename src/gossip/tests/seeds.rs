//! Seed lists that change while the node runs.

use super::world::{World, defaults, local, seed, slot};
use crate::gossip::{Addr, EventKind, Reach, Source};

fn moved_seed(i: usize, host: &str) -> crate::gossip::Seed {
    let mut moved = seed(i);
    moved.addr = Addr::new(host, 8101);
    moved.name = moved.addr.to_string();
    moved
}

fn addr_of(world: &mut World, number: usize) -> Addr {
    let mut members = world.m(0).members();
    let found = members.find(|m| m.record().slot == slot(number));
    found.unwrap().record().addr.clone()
}

#[test]
fn a_provider_moves_a_slot_nobody_answers_for() {
    let mut world = World::new(1);
    world.start(local(0), defaults(), vec![seed(1), seed(2)]);
    world.poke(0, |m, now| m.update_seeds(vec![moved_seed(1, "10.9.9.9"), seed(3)], now));
    assert_eq!(addr_of(&mut world, 1).host, "10.9.9.9");
    assert_eq!(world.m(0).peers().len(), 4, "a list removes nobody");
    let peers = world.m(0).peers();
    let names: Vec<_> = peers.iter().map(|p| p.name.as_str()).collect();
    assert!(names.contains(&"10.9.9.9:8101"), "{names:?}");
}

#[test]
fn a_provider_has_its_way_once_the_old_holder_is_dead() {
    let mut world = World::new(1);
    world.start(local(0), defaults(), vec![seed(1)]);
    let old = seed(1).addr;
    world.poke(0, |m, now| m.proven(&old, false, now));
    let id = world.id(0, &slot(1));
    world.poke(0, |m, now| m.observe(id, now, now));
    let list = || vec![moved_seed(1, "10.9.9.9")];
    for _ in 0..3 {
        world.poke(0, |m, now| m.update_seeds(list(), now));
        assert_eq!(addr_of(&mut world, 1), old);
    }
    let refused = EventKind::Conflict { addr: list()[0].addr.clone(), source: Source::Seeds };
    let events = world.events(0, &slot(1));
    assert_eq!(events.iter().filter(|e| **e == refused).count(), 1, "said once");
    world.run(5000);
    assert!(matches!(world.reach(0, &slot(1)), Some(Reach::Down(_))));
    world.poke(0, |m, now| m.update_seeds(list(), now));
    assert_eq!(addr_of(&mut world, 1).host, "10.9.9.9");
    assert_eq!(world.reach(0, &slot(1)), Some(Reach::Unreached));
    // From here on the same list does nothing more.
    world.poke(0, |m, now| m.update_seeds(list(), now));
    assert_eq!(world.m(0).seeds.len(), 1);
}

#[test]
fn a_guess_never_outlives_what_a_torc_node_says_itself() {
    let mut world = World::of(3, 1);
    world.run_until(3000, World::all_up);
    for other in [0, 1] {
        world.cut_both(2, other);
    }
    world.run(5000);
    world.poke(0, |m, now| m.update_seeds(vec![moved_seed(2, "10.9.9.9")], now));
    assert_eq!(addr_of(&mut world, 2).host, "10.9.9.9");
    world.cut.clear();
    world.run(3000);
    assert_eq!(addr_of(&mut world, 2), seed(2).addr);
    assert!(world.all_up());
}

#[test]
fn an_operator_brings_back_what_was_forgotten() {
    let mut world = World::new(1);
    world.start(local(0), defaults(), vec![seed(1)]);
    world.poke(0, |m, now| m.forget(&slot(1), now)).unwrap();
    assert_eq!(world.reach(0, &slot(1)), None);
    world.poke(0, |m, now| m.update_seeds(vec![seed(1)], now));
    assert_eq!(world.reach(0, &slot(1)), None, "an unchanged list does not");
    world.poke(0, |m, now| m.add_seed(&seed(1), now));
    assert_eq!(world.reach(0, &slot(1)), Some(Reach::Unreached));
}

#[test]
fn entries_beyond_the_limits_are_skipped_and_counted() {
    let mut world = World::new(1);
    let mut long = seed(1);
    long.rack = "r".repeat(300);
    world.start(local(0), defaults(), vec![long, seed(2)]);
    assert_eq!(world.m(0).peers().len(), 2);
    assert_eq!(world.m(0).counters().malformed, 1);
}
