//! Nodes find each other, and only those of their own cluster.

use super::world::{EPOCH_MS, World, defaults, local, seed, slot};
use crate::gossip::{Claim, EventKind, JOIN_MAX_MS, LocalNode, Reach, Settings, Source};
use crate::proto::dnode::control::ControlSeal;
use crate::ring::{PeerState, Topology};
use crate::token::DynToken;

#[test]
fn a_node_that_knows_one_seed_learns_the_ring_and_is_learnt() {
    for n in [2, 3, 8, 20, 50] {
        let mut world = World::of(n, n as u64);
        let took = world.run_until(5000, World::all_up);
        assert_eq!(world.ring_digests().len(), 1, "{n} nodes see one ring");
        assert!(world.alive().all(|(_, m)| m.peers().len() == n));
        // Two rounds and the binary logarithm of N further ones.
        let rounds = 2 + u64::from(usize::BITS - n.leading_zeros());
        assert!(took <= rounds * 550, "{n} nodes took {took} ms");
        assert_eq!(world.downs(&[]), []);
    }
}

#[test]
fn a_chain_of_seeds_is_enough() {
    let mut world = World::new(4);
    for i in 0..12 {
        let seeds = if i == 0 { vec![] } else { vec![seed(i - 1)] };
        world.start(local(i), defaults(), seeds);
    }
    world.run_until(6000, World::all_up);
    assert_eq!(world.ring_digests().len(), 1);
}

#[test]
fn an_address_without_a_slot_is_enough_for_joining() {
    let mut world = World::of(3, 1);
    let i = world.start(local(3), defaults(), vec![]);
    world.poke(i, |m, _| m.add_contact(seed(1).addr));
    world.run_until(3000, World::all_up);
    assert_eq!(world.m(i).peers().len(), 4);
}

#[test]
fn a_large_ring_takes_a_newcomer_in_a_few_rounds() {
    let mut world = World::of(80, 80);
    world.run_until(8000, World::all_up);
    world.start(local(80), defaults(), vec![seed(7)]);
    let took = world.run_until(6000, World::all_up);
    assert!(took <= 9 * 550, "{took} ms");
    assert_eq!(world.ring_digests().len(), 1);
}

#[test]
fn seeds_are_planned_for_before_they_answer() {
    let mut world = World::new(1);
    world.start(local(0), defaults(), vec![seed(0), seed(1), seed(2)]);
    assert_eq!(world.m(0).peers().len(), 3, "its own entry is skipped");
    world.run(60_000);
    assert_eq!(world.reach(0, &slot(1)), Some(Reach::Unreached));
    let peers = world.m(0).peers();
    let peer = peers.iter().find(|p| p.tokens == local(1).tokens).unwrap();
    assert!(peer.routable() && peer.state == PeerState::Normal && !peer.is_torc);
    assert!(Topology::build(peers).is_ok());
    let added = EventKind::Added { addr: seed(1).addr, source: Source::Seeds };
    assert_eq!(world.events(0, &slot(1)), [added]);
}

#[test]
fn two_clusters_never_merge() {
    let mut world = World::of(4, 1);
    let green = Settings::new(ControlSeal::new("green", None));
    for i in 4..8 {
        world.start(local(i), green.clone(), vec![seed(4), seed(0)]);
    }
    world.run(30_000);
    for i in 0..4 {
        assert_eq!(world.m(i).peers().len(), 4);
    }
    for i in 4..8 {
        // The foreign seed stays a name, the others are the own cluster.
        assert_eq!(world.m(i).peers().iter().filter(|p| p.is_torc).count(), 4);
        assert_eq!(world.reach(i, &slot(0)), Some(Reach::Unreached));
    }
    let refused =
        |e: &EventKind| matches!(e, EventKind::Refused { why, .. } if why.contains("green"));
    assert!(world.events(0, &slot(0)).iter().any(refused));
    assert!(world.events(0, &slot(0)).len() <= 8, "reports are rare");
    assert!(world.m(0).counters().refused > 10);
}

#[test]
fn a_secret_keeps_others_out() {
    let mut world = World::new(1);
    let secret = |s: &[u8]| Settings::new(ControlSeal::new("blue", Some(s)));
    world.start(local(0), secret(b"one"), vec![]);
    world.start(local(1), secret(b"one"), vec![seed(0)]);
    world.start(local(2), secret(b"two"), vec![seed(0)]);
    world.start(local(3), defaults(), vec![seed(0)]);
    world.run(10_000);
    let torc = |world: &mut World, i| world.m(i).peers().iter().filter(|p| p.is_torc).count();
    assert_eq!(torc(&mut world, 0), 2);
    assert_eq!(torc(&mut world, 1), 2);
    assert_eq!(torc(&mut world, 2), 1);
    assert_eq!(torc(&mut world, 3), 1);
}

#[test]
fn without_gossip_the_seed_list_is_final() {
    let mut world = World::of(2, 1);
    let mut settings = defaults();
    settings.gossip = false;
    let i = world.start(local(2), settings, vec![seed(0)]);
    world.run(20_000);
    assert_eq!(world.m(i).peers().len(), 2);
    assert_eq!(world.m(0).peers().len(), 2);
    assert_eq!(world.m(i).counters().sent, 0);
}

#[test]
fn a_joining_node_becomes_normal_by_word_by_a_copy_or_by_time() {
    let mut world = World::of(3, 1);
    // The others have had data for long.
    (0..3).for_each(|n| world.poke(n, |m, _| m.set_data_since(1)));
    let mut joining = local(3);
    joining.claim = Claim::Joining;
    let i = world.start(joining, defaults(), vec![seed(0)]);
    world.run(2000);
    let state = |world: &mut World, n: usize| {
        let peers = world.m(n).peers();
        let peer = peers.iter().find(|p| p.tokens == local(3).tokens);
        peer.unwrap().state
    };
    assert_eq!(state(&mut world, 1), PeerState::Joining);
    world.poke(i, |m, now| m.set_local_claim(Claim::Normal, now));
    world.run(2000);
    assert_eq!(state(&mut world, 1), PeerState::Normal);

    // It has copied what the others have.
    world.kill(i);
    world.boot(i, vec![seed(0)]);
    world.run(5000);
    assert_eq!(state(&mut world, 1), PeerState::Joining);
    world.poke(i, |m, now| m.filled(now));
    world.run(2000);
    assert_eq!(state(&mut world, 1), PeerState::Normal);

    world.kill(i);
    world.boot(i, vec![seed(0)]);
    world.run(JOIN_MAX_MS - 10);
    assert_eq!(state(&mut world, 1), PeerState::Joining);
    world.run(3000);
    assert_eq!(state(&mut world, 1), PeerState::Normal);
}

/// A node whose datastore is empty; nodes of equal numbers modulo 4 share a rack.
fn empty(i: usize) -> LocalNode {
    LocalNode { claim: Claim::Joining, ..local(i) }
}

fn claim(world: &mut World, i: usize) -> Claim {
    world.m(i).local().record().claim
}

/// Unix time in the world.
fn unix_ms(world: &World) -> u64 {
    EPOCH_MS + world.now.0
}

#[test]
fn where_nobody_has_data_nobody_waits_for_it() {
    let mut world = World::new(5);
    world.start(empty(0), defaults(), vec![]);
    world.run(900);
    assert_eq!(claim(&mut world, 0), Claim::Joining, "somebody may know it from before");
    world.run(300);
    assert_eq!(claim(&mut world, 0), Claim::Normal, "it is alone");
    for i in 1..6 {
        world.start(empty(i), defaults(), vec![seed(0)]);
    }
    world.run_until(5000, World::all_up);
    world.run(1000);
    assert!((0..6).all(|i| claim(&mut world, i) == Claim::Normal), "a ring's first start");
    // Keys come later: whoever started before that lacks none of them.
    let soon = unix_ms(&world) + 60_000;
    (0..6).for_each(|i| world.poke(i, |m, _| m.set_data_since(soon)));
    world.run(2000);
    world.start(empty(6), defaults(), vec![seed(0)]);
    world.run(3000);
    assert_eq!(claim(&mut world, 6), Claim::Normal);
    world.run(60_000);
    world.start(empty(7), defaults(), vec![seed(0)]);
    world.run(10_000);
    assert_eq!(claim(&mut world, 7), Claim::Joining, "others have what it lacks");
    assert!((0..7).all(|i| claim(&mut world, i) == Claim::Normal));
}

#[test]
fn only_other_racks_of_the_own_datacenter_count_and_the_dead_may_come_back() {
    let mut world = World::new(6);
    // Nodes 0 and 4 share a rack, 2 is another one, 1 is of another datacenter.
    for i in [0, 1, 2] {
        world.start(local(i), defaults(), vec![seed(0)]);
    }
    world.run_until(3000, World::all_up);
    (0..2).for_each(|i| world.poke(i, |m, _| m.set_data_since(1)));
    let i = world.start(empty(4), defaults(), vec![seed(0)]);
    world.run(2000);
    assert_eq!(claim(&mut world, i), Claim::Normal, "nobody could give it what it lacks");
    world.kill(i);
    world.poke(2, |m, _| m.set_data_since(1));
    world.run(2000);
    world.boot(i, vec![seed(0)]);
    world.run(2000);
    assert_eq!(claim(&mut world, i), Claim::Joining);
    world.kill(2);
    world.run(20_000);
    assert_eq!(claim(&mut world, i), Claim::Joining, "who has data may come back with it");
    world.nodes[2].local.claim = Claim::Joining;
    world.boot(2, vec![seed(0)]);
    world.run(3000);
    assert_eq!(claim(&mut world, i), Claim::Normal, "it came back with nothing");
}

#[test]
fn of_those_that_came_back_empty_the_first_has_most() {
    let mut world = World::new(7);
    for i in [0, 2] {
        world.start(local(i), defaults(), vec![seed(0)]);
    }
    world.run_until(3000, World::all_up);
    // The world's second node is of another rack.
    world.poke(1, |m, _| m.set_data_since(1));
    world.kill(0);
    world.nodes[0].local.claim = Claim::Joining;
    world.boot(0, vec![seed(2)]);
    world.run(2000);
    assert_eq!(claim(&mut world, 0), Claim::Joining);
    // It is written to from now on, and then the full one loses everything.
    let since = unix_ms(&world);
    world.poke(0, |m, _| m.set_data_since(since));
    world.run(1000);
    world.kill(1);
    world.nodes[1].local.claim = Claim::Joining;
    world.boot(1, vec![seed(0)]);
    for _ in 0..30 {
        world.run(100);
        let both = (claim(&mut world, 0), claim(&mut world, 1));
        assert_ne!(both, (Claim::Joining, Claim::Normal), "the emptier one is not believed");
    }
    assert_eq!((claim(&mut world, 0), claim(&mut world, 1)), (Claim::Normal, Claim::Joining));
}

#[test]
fn a_node_that_was_cut_off_finds_out_what_it_lacks() {
    for wrote in [false, true] {
        let mut world = World::of(3, 8);
        world.run_until(3000, World::all_up);
        // Node 4 is of node 0's rack, node 2 of another one.
        world.poke(2, |m, _| m.set_data_since(1));
        world.run(1000);
        world.start(empty(4), defaults(), vec![seed(0)]);
        (0..3).for_each(|other| world.cut_both(3, other));
        world.run(4000);
        assert_eq!(claim(&mut world, 3), Claim::Joining, "its seed may have something");
        world.run(2000);
        assert_eq!(claim(&mut world, 3), Claim::Normal, "nobody answers");
        if wrote {
            let since = unix_ms(&world);
            world.poke(3, |m, _| m.set_data_since(since));
        }
        world.cut.clear();
        world.run(5000);
        let left = if wrote { Claim::Normal } else { Claim::Joining };
        assert_eq!(claim(&mut world, 3), left);
    }
}

#[test]
fn who_answers_is_heard_before_nobody_is_thought_to_have_data() {
    // Node 3 is of node 0's rack's ring, and all of the others have data.
    let mut world = World::of(3, 8);
    world.run_until(3000, World::all_up);
    (0..3).for_each(|n| world.poke(n, |m, _| m.set_data_since(1)));
    world.run(1000);
    world.start(empty(3), defaults(), vec![seed(0), seed(1), seed(2)]);
    (0..3).for_each(|other| world.cut_both(3, other));
    // They answer requests; what they say about themselves is late.
    for _ in 0..40 {
        world.poke(3, |m, now| {
            let ids: Vec<_> = m.members().map(|member| member.id()).collect();
            ids.into_iter().for_each(|id| m.observe(id, now, now));
        });
        world.run(250);
    }
    assert_eq!(claim(&mut world, 3), Claim::Joining, "they may have something");
    world.cut.clear();
    world.run(5000);
    assert_eq!(claim(&mut world, 3), Claim::Joining, "they have");
}

#[test]
fn tokens_and_ports_and_attributes_are_learnt_whole() {
    let mut world = World::of(3, 1);
    let mut rich = local(3);
    rich.addr.port = 9999;
    rich.name = "pretty".into();
    let more = ["00", "-5", "0x000102030405060708090a0b0c0d0e0f", "0"];
    let more = more.map(|text| DynToken::parse_config(text).unwrap());
    rich.tokens.extend(more);
    rich.tokens.extend((0..256).map(DynToken::from_u32));
    let i = world.start(rich.clone(), defaults(), vec![seed(0)]);
    world.poke(i, |m, _| m.set_attribute("documents", Some("10.0.0.4:7701"))).unwrap();
    world.run_until(3000, World::all_up);
    world.run(1000);
    let peers = world.m(1).peers();
    let peer = peers.iter().find(|p| p.name == "pretty").unwrap();
    assert_eq!((peer.port, &peer.tokens), (9999, &rich.tokens));
    let id = peer.id;
    let documents = |world: &mut World| {
        let record = world.m(1).member(id).unwrap().record();
        record.attributes.get("documents").cloned()
    };
    assert_eq!(documents(&mut world).as_deref(), Some("10.0.0.4:7701"));
    world.poke(i, |m, _| m.set_attribute("documents", None)).unwrap();
    world.run(2000);
    assert_eq!(documents(&mut world), None);
}

#[test]
fn a_node_serves_once_it_knows_its_ring() {
    let knows = |world: &mut World, i: usize| {
        let now = world.now;
        world.m(i).knows_ring(now)
    };
    let mut world = World::of(60, 3);
    world.run_until(8000, World::all_up);
    world.run(3000);
    // One that knew nobody, or one other, and is known: it serves as soon as it knows them all.
    for seeds in [vec![], vec![seed(0)]] {
        world.kill(7);
        world.boot(7, seeds);
        let mut took = 0;
        while !knows(&mut world, 7) {
            assert!(world.m(7).peers().len() < 60, "what does it wait for?");
            world.run(1);
            took += 1;
        }
        assert_eq!(world.m(7).peers().len(), 60, "after {took} ms");
        assert!(took < 1000, "after {took} ms");
        world.run(5000);
    }
    // One that nobody knows waits two rounds for them, and one whose only seed is dead no longer.
    for seeds in [vec![], vec![seed(99)]] {
        let mut world = World::new(4);
        world.start(local(0), defaults(), seeds);
        world.run(990);
        assert!(!knows(&mut world, 0));
        world.run(10);
        assert!(knows(&mut world, 0));
    }
    // Nodes of the reference tell nobody: who is listed is all there is.
    let mut world = World::new(5);
    world.start(local(0), defaults(), vec![seed(1)]);
    assert!(!knows(&mut world, 0));
    world.poke(0, |m, now| m.proven(&seed(1).addr, false, now));
    assert!(knows(&mut world, 0));
    // A seed list that is final is known.
    let mut settings = defaults();
    settings.gossip = false;
    let mut world = World::new(6);
    world.start(local(0), settings, vec![seed(1)]);
    assert!(knows(&mut world, 0));
}
