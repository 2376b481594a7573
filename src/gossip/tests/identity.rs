//! Who holds a slot: replacement, duplicates, leaving, forgetting.

use super::world::{EPOCH_MS, World, defaults, local, seed, slot};
use crate::gossip::{Addr, Claim, DownCause, EventKind, ForgetError, Reach, Source, TOMBSTONE_MS};
use crate::token::DynToken;

fn settled(n: usize) -> World {
    let mut world = World::of(n, n as u64);
    world.run_until(8000, World::all_up);
    world.run(3000);
    world.forget_events();
    world
}

/// The address node `i` holds for a slot.
fn addr_of(world: &mut World, i: usize, number: usize) -> Addr {
    let mut members = world.m(i).members();
    let found = members.find(|m| m.record().slot == slot(number));
    found.unwrap().record().addr.clone()
}

#[test]
fn a_replacement_takes_the_slot_and_keeps_it() {
    let mut world = settled(6);
    world.kill(3);
    world.run(5000);
    let mut heir = local(3);
    heir.addr = Addr::new("10.9.9.9", 8101);
    world.start(heir.clone(), defaults(), vec![seed(0), seed(3)]);
    world.run_until(3000, World::all_up);
    let moved =
        EventKind::Moved { from: local(3).addr, to: heir.addr.clone(), source: Source::Gossip };
    for i in [0, 1, 2, 4, 5] {
        assert_eq!(addr_of(&mut world, i, 3), heir.addr);
        assert!(world.events(i, &slot(3)).contains(&moved));
        assert_eq!(world.m(i).peers().len(), 6, "the slot has one holder");
    }
    assert_eq!(world.ring_digests().len(), 1);

    // The seed list still names the old address, and nobody is led back.
    let stale: Vec<_> = (0..6).map(seed).collect();
    for i in [0, 1, 2, 4, 5] {
        let stale = stale.clone();
        world.poke(i, |m, now| m.update_seeds(stale, now));
    }
    world.run(5000);
    assert!((0..6).filter(|i| *i != 3).all(|i| addr_of(&mut world, i, 3) == heir.addr));
}

#[test]
fn of_two_nodes_with_one_slot_the_older_refuses_to_serve() {
    let mut world = settled(4);
    let mut double = local(2);
    double.addr = Addr::new("10.9.9.9", 8101);
    let i = world.start(double.clone(), defaults(), vec![seed(0)]);
    world.run(4000);
    assert_eq!(world.m(2).duplicate(), Some(&double.addr));
    assert_eq!(world.m(i).duplicate(), None);
    let told = EventKind::Duplicate { holder: double.addr.clone() };
    let events = world.events(2, &slot(2));
    assert_eq!(events.iter().filter(|e| **e == told).count(), 1);
    let sent = world.m(2).counters().sent;
    world.run(5000);
    assert_eq!(world.m(2).counters().sent, sent, "it speaks for the slot no more");
    assert_eq!(addr_of(&mut world, 0, 2), double.addr);
}

#[test]
fn a_newcomer_with_a_slow_clock_is_the_one_that_refuses() {
    let mut world = settled(4);
    let mut double = local(2);
    double.addr = Addr::new("10.9.9.9", 8101);
    let i = world.start(double, defaults(), vec![]);
    world.kill(i);
    // The same again, as a process whose clock is years behind.
    let mut local = world.nodes[i].local.clone();
    local.generation = 5;
    let late = crate::gossip::Membership::new(defaults(), local, vec![seed(0)], 1, world.now);
    world.nodes[i].membership = Some(late);
    world.poke(i, |m, now| m.handle_timeout(now));
    world.run(4000);
    assert_eq!(world.m(i).duplicate(), Some(&seed(2).addr));
    assert_eq!(world.m(2).duplicate(), None);
    assert_eq!(addr_of(&mut world, 0, 2), seed(2).addr);
}

#[test]
fn a_process_older_than_its_own_past_outdoes_it() {
    let mut world = settled(4);
    world.kill(2);
    let mut local = world.nodes[2].local.clone();
    local.generation = 7;
    let again = crate::gossip::Membership::new(defaults(), local, vec![seed(0)], 1, world.now);
    world.nodes[2].membership = Some(again);
    world.poke(2, |m, now| m.handle_timeout(now));
    world.run(4000);
    assert_eq!(world.m(2).duplicate(), None);
    assert!(world.m(2).local().record().generation > EPOCH_MS);
    assert!(world.all_up());
    assert!(world.events(0, &slot(2)).contains(&EventKind::Restarted));
}

#[test]
fn who_leaves_is_gone_everywhere_and_may_come_back() {
    let mut world = settled(8);
    world.poke(5, |m, now| m.leave(now));
    world.run(1500);
    assert_eq!(world.m(5).peers().len(), 8, "it still knows itself and the ring");
    world.kill(5);
    for i in (0..8).filter(|i| *i != 5) {
        assert_eq!(world.reach(i, &slot(5)), None);
        assert_eq!(world.m(i).peers().len(), 7);
        let left = EventKind::Removed { forgotten: false };
        assert_eq!(world.events(i, &slot(5)), [left]);
    }
    world.run(5000);
    world.boot(5, vec![seed(0)]);
    world.run_until(3000, World::all_up);
    assert_eq!(world.m(0).peers().len(), 8);
}

#[test]
fn a_dead_node_is_forgotten_for_good() {
    let mut world = settled(6);
    let forget = |world: &mut World, i: usize, number: usize| {
        world.poke(i, |m, now| m.forget(&slot(number), now))
    };
    assert_eq!(forget(&mut world, 0, 3), Err(ForgetError::Alive));
    assert_eq!(forget(&mut world, 0, 0), Err(ForgetError::Local));
    assert_eq!(forget(&mut world, 0, 77), Err(ForgetError::Unknown));
    world.kill(3);
    // Node 4 is asleep and will come back with what it knew.
    world.nodes[4].frozen = true;
    world.run(5000);
    assert_eq!(forget(&mut world, 0, 3), Ok(()));
    world.run(3000);
    world.nodes[4].frozen = false;
    world.run(5000);
    for i in [0, 1, 2, 4, 5] {
        assert_eq!(world.reach(i, &slot(3)), None, "{i}");
        assert_eq!(world.m(i).peers().len(), 5);
    }
    let gone = EventKind::Removed { forgotten: true };
    assert!(world.events(4, &slot(3)).contains(&gone));

    // A new process of that slot is welcome.
    world.boot(3, vec![seed(1)]);
    world.run_until(3000, World::all_up);
    assert_eq!(world.m(0).peers().len(), 6);
}

#[test]
fn a_living_node_that_was_forgotten_takes_its_slot_back() {
    let mut world = settled(5);
    for other in 0..4 {
        world.cut_both(4, other);
    }
    world.run(5000);
    world.poke(0, |m, now| m.forget(&slot(4), now)).unwrap();
    world.run(2000);
    assert_eq!(world.reach(2, &slot(4)), None);
    world.cut.clear();
    world.run_until(5000, World::all_up);
    assert!(world.events(4, &slot(4)).contains(&EventKind::Rejoined));
}

#[test]
fn tombstones_are_dropped_after_their_time() {
    let mut world = World::new(1);
    world.start(local(0), defaults(), vec![seed(1)]);
    world.poke(0, |m, now| m.forget(&slot(1), now)).unwrap();
    assert_eq!(world.m(0).table.shared_count(), 2);
    world.poke(0, |m, now| m.scan(now.plus(TOMBSTONE_MS)));
    assert_eq!(world.m(0).table.shared_count(), 2);
    world.poke(0, |m, now| m.scan(now.plus(TOMBSTONE_MS + 1)));
    assert_eq!(world.m(0).table.shared_count(), 1);
}

#[test]
fn a_changed_first_token_is_a_new_slot_and_the_old_one_is_down() {
    let mut world = settled(5);
    world.kill(2);
    world.nodes[2].local.tokens = vec![DynToken::from_u32(77)];
    world.boot(2, vec![seed(0)]);
    world.run_until(3000, World::all_up);
    world.run(1000);
    let taken = Reach::Down(DownCause::AddressTaken);
    for i in [0, 1, 3, 4] {
        assert_eq!(world.m(i).peers().len(), 6);
        assert_eq!(world.reach(i, &slot(2)), Some(taken));
    }
    // The address answers, but not for the old slot.
    let id = world.id(0, &slot(2));
    world.poke(0, |m, now| m.observe(id, now, now));
    assert_eq!(world.reach(0, &slot(2)), Some(taken));
    world.poke(0, |m, now| m.forget(&slot(2), now)).unwrap();
    world.run(3000);
    assert_eq!(world.ring_digests().len(), 1);
    assert_eq!(world.m(4).peers().len(), 5);
}

#[test]
fn ids_stay_and_are_never_given_twice() {
    let mut world = settled(4);
    let id = world.id(0, &slot(3));
    world.kill(3);
    world.run(5000);
    world.boot(3, vec![seed(0)]);
    world.run_until(3000, World::all_up);
    assert_eq!(world.id(0, &slot(3)), id);
    world.poke(3, |m, now| m.leave(now));
    world.run(2000);
    world.kill(3);
    world.boot(3, vec![seed(0)]);
    world.run_until(3000, World::all_up);
    let new = world.id(0, &slot(3));
    assert!(new > id);
    assert!(world.m(0).member(id).is_none());
    assert_eq!(world.m(0).member(new).unwrap().record().slot, slot(3));
}

#[test]
fn states_set_by_an_operator_are_told() {
    let mut world = settled(3);
    for claim in [Claim::Standby, Claim::WritesOnly, Claim::Resuming, Claim::Normal] {
        world.poke(1, |m, now| m.set_local_claim(claim, now));
        world.run(1500);
        for i in [0, 1, 2] {
            let peers = world.m(i).peers();
            let peer = peers.iter().find(|p| p.tokens == local(1).tokens);
            assert_eq!(peer.unwrap().state, claim.peer_state());
        }
    }
}
