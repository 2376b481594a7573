//! Who publishes, who fetches, and how nodes that start or were apart come to agree.

use super::*;
use crate::affinity::places::tests::ring_of;

#[test]
fn between_two_datacenters_there_is_one_stream_each_way() {
    let mut world = World::new(&["x", "x", "x", "x", "y", "y", "y"]);
    for round in 0..20 {
        (0..7).for_each(|node| world.store(node, [round * 10 + node as u64]));
        world.run(500);
    }
    world.run(4000);
    world.assert_in_step();
    world.wan.clear();
    for round in 20..40 {
        (0..7).for_each(|node| world.store(node, [round * 10 + node as u64]));
        world.run(500);
    }
    world.assert_in_step();
    // Of each domain: from the publisher of either side to the importer of the other.
    let imports = |dc: &str, name: &[u8]| {
        let is_it = |n: &usize| {
            let node = &world.nodes[*n];
            node.dc == dc && node.affinity.domain(Some(name)).unwrap().duties().imports
        };
        (0..7).find(is_it).expect("one")
    };
    let publishes = |dc: &str, name: &[u8]| {
        let is_it = |n: &usize| {
            let node = &world.nodes[*n];
            let domain = node.affinity.domain(Some(name)).unwrap();
            node.dc == dc && domain.publication().is_some()
        };
        (0..7).find(is_it).expect("one")
    };
    let mut expected = BTreeSet::new();
    for name in [&b"keys"[..], b"llm"] {
        expected.insert((imports("x", name), publishes("y", name)));
        expected.insert((publishes("x", name), imports("y", name)));
    }
    assert_eq!(world.wan, expected);
}

#[test]
fn a_node_that_starts_replaces_nobody_before_it_knows_who_the_others_are() {
    let mut world = World::new(&["x", "x", "x", "y"]);
    for number in 0..4 {
        world.store(number, [number as u64 + 10, 5]);
    }
    world.run(4000);
    let publisher = world.publisher("x");
    let identity =
        |world: &World| world.nodes[publisher].affinity.keys().publication().map(|p| p.identity);
    let before = identity(&world);
    let member = (0..3).find(|n| *n != publisher).unwrap();
    world.nodes[member] = node(member, "x", world.now_ms);
    let unknown = ring_of(&world.dcs, member, &[], false);
    world.nodes[member].mesh.set_places(unknown);
    world.run(500);
    assert_eq!(world.nodes[member].mesh.counters().takeovers, 0);
    let note = world.nodes[member].affinity.keys().lanes().get(0).unwrap().note();
    assert!(note.state.contains("not known to be torc"), "{}", note.state);
    world.tell_ring();
    world.run(4000);
    assert_eq!((identity(&world), before.is_some()), (before, true), "it goes on as it was");
    world.assert_in_step();
    assert_eq!(world.held(3, member as u64 + 10), Some(vec![]), "its keys are gone");
    assert_eq!(world.held(3, 5), Some(vec!["x", "y"]));
}

#[test]
fn nodes_that_take_over_at_one_moment_are_told_apart() {
    // Three parts of a datacenter begin to publish at the same time, each without the others.
    let mut world = World::new(&["x", "x", "x", "y"]);
    world.cut = vec![(0, 1), (0, 2), (1, 2), (3, 0), (3, 1), (3, 2)];
    world.tell_ring();
    for number in 0..4 {
        world.store(number, [number as u64]);
    }
    world.run(1000);
    let incarnations: BTreeSet<u64> = (0..3)
        .map(|n| world.nodes[n].affinity.keys().publication().unwrap())
        .map(|publication| publication.identity.producer_incarnation)
        .collect();
    assert_eq!(incarnations.len(), 3);
    world.cut.clear();
    world.tell_ring();
    world.run(6000);
    world.assert_in_step();
    for key in 0..3 {
        assert_eq!(world.held(3, key), Some(vec!["x"]), "{key}");
    }
}

#[test]
fn two_lives_of_a_publisher_whose_clock_is_behind_are_told_apart() {
    let mut world = World::new(&["x", "x", "y"]);
    world.store(2, [9]);
    world.run(4000);
    let publisher = world.publisher("x");
    // Its clock is an hour behind what was heard, in two lives that nobody tells of the other.
    let mut numbers = BTreeSet::new();
    for life in [1, 2] {
        let start_ms = world.now_ms - 500 * life;
        world.nodes[publisher] = node(publisher, "x", start_ms);
        let pools = &mut world.nodes[publisher].mesh.pools;
        pools.iter_mut().for_each(|pools| pools.inlets[0].note_seen(u64::MAX / 2));
        world.nodes[publisher].mesh.set_places(ring(&world.dcs, publisher, &[]));
        world.nodes[publisher].mesh.handle_timeout(time(world.now_ms));
        let publication = world.nodes[publisher].affinity.keys().publication().unwrap();
        numbers.insert(publication.identity.producer_incarnation);
    }
    assert_eq!(numbers.len(), 2);
    // One whose sequence went back is fetched anew, though it has the number it had.
    world.tell_ring();
    world.run(8000);
    world.assert_in_step();
}

#[test]
fn a_member_whose_clock_went_back_is_heard_all_the_same() {
    let mut world = World::new(&["x", "x", "x", "y"]);
    world.run(20_000);
    let member = (0..3).find(|n| *n != world.publisher("x")).unwrap();
    world.nodes[member] = node(member, "x", world.now_ms);
    world.tell_ring();
    world.run(3000);
    // It starts again so quickly that nobody misses it, and its clock is ten seconds slow.
    world.nodes[member] = node(member, "x", world.now_ms - 10_000);
    world.tell_ring();
    world.store(member, [77]);
    world.run(3000);
    world.assert_in_step();
    assert_eq!(world.held(3, 77), Some(vec!["x"]));
}
