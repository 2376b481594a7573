//! Datacenters whose filters change their size, one after the other.

use super::*;
use crate::ckf::format::bucket_count_for;

/// Keys of a datacenter that is resized; a filter of other tests has room for a fifth of them.
const LARGE: u64 = 1_000_000;

/// A node of the same place with filters for so many keys.
fn resized(world: &World, number: usize, expected: u64) -> Node {
    let dc = world.dcs[number];
    sized(number, dc, world.now_ms, expected)
}

/// What a lane says of a key that is not believed to be all there: its hint.
fn hint(world: &World, node: usize, dc: &str, key: u64) -> bool {
    let keys = world.nodes[node].affinity.keys();
    let mut mask = [0];
    keys.probe(&[SequenceHash(key)], &mut mask, world.now_ms);
    let lane = keys.lanes().iter().find(|(_, lane)| lane.dc == dc).unwrap().0;
    mask[0] & keys.lanes().hinting(u16::MAX, world.now_ms) & (1 << lane) != 0
}

fn buckets(world: &World, node: usize, dc: &str) -> Option<u64> {
    let keys = world.nodes[node].affinity.keys();
    let lane = keys.lanes().iter().find(|(_, lane)| lane.dc == dc).unwrap().0;
    keys.lane_buckets(lane)
}

fn state(world: &World, node: usize, dc: &str) -> String {
    let keys = world.nodes[node].affinity.keys();
    let lane = keys.lanes().iter().find(|(_, lane)| lane.dc == dc).unwrap().0;
    keys.lane_state(lane, world.now_ms)
}

#[test]
fn the_filter_before_answers_until_the_one_of_the_new_size_is_complete() {
    let mut world = World::new(&["x", "x", "x", "y"]);
    (0..4).for_each(|node| world.store(node, [node as u64]));
    world.run(4000);
    assert_eq!(world.held(0, 3), Some(vec!["y"]));
    let before = buckets(&world, 0, "y").unwrap();

    // The only node of a datacenter comes back larger, and has to list its store first.
    world.nodes[3] = resized(&world, 3, LARGE);
    world.nodes[3].mesh.set_sure(false);
    world.tell_ring();
    for _ in 0..20 {
        world.run(500);
        for node in 0..3 {
            assert!(hint(&world, node, "y", 3), "{}", state(&world, node, "y"));
            assert_eq!(buckets(&world, node, "y"), Some(before));
        }
    }
    let states: Vec<String> = (0..3).map(|node| state(&world, node, "y")).collect();
    assert!(states.iter().any(|state| state.starts_with("answers from the filter before")));
    assert!(states.iter().all(|state| state.contains("does not hear of everything")));
    world.store(3, [3, 30]);
    world.nodes[3].mesh.set_sure(true);
    world.run(5000);
    world.assert_in_step();
    for node in 0..3 {
        assert_eq!(buckets(&world, node, "y"), bucket_count_for(LARGE).ok());
        assert_eq!(buckets(&world, node, "x"), Some(before));
        assert_eq!(world.held(node, 30), Some(vec!["y"]));
        assert_eq!(world.held(node, 0), Some(vec!["x"]));
    }
    // It knows the smaller ones of the others.
    assert_eq!(world.held(3, 1), Some(vec!["x"]));
    assert_eq!(buckets(&world, 3, "x"), Some(before));
    let two_tables = world.nodes[3].affinity.keys().table_bytes();

    // The others follow, one by one, whoever publishes.
    for node in 0..3 {
        let larger = resized(&world, node, LARGE);
        world.nodes[node] = larger;
        world.tell_ring();
        world.store(node, [node as u64]);
        world.run(5000);
        world.assert_in_step();
        for other in 0..4 {
            assert_eq!(world.held(other, node as u64), Some(vec!["x"]), "{node} for {other}");
            assert_eq!(world.held(other, 30), Some(vec!["y"]));
        }
    }
    assert_eq!(buckets(&world, 3, "x"), bucket_count_for(LARGE).ok());
    assert!(world.nodes[3].affinity.keys().table_bytes() < two_tables, "one table is left");
}

#[test]
fn a_publisher_that_never_hears_of_everything_is_followed_in_the_end() {
    let mut world = World::new(&["x", "y", "y"]);
    (0..3).for_each(|node| world.store(node, [node as u64]));
    world.run(4000);
    let restarted = resized(&world, 0, 200_000);
    world.nodes[0] = restarted;
    world.tell_ring();
    world.nodes[0].mesh.set_sure(false);
    world.run(10_000);
    assert!(hint(&world, 1, "x", 0));
    // For good: what it says itself is a better hint than what another life of it said.
    world.run(301_000);
    assert!(!hint(&world, 1, "x", 0) && state(&world, 1, "x").contains("does not hear"));
    world.assert_in_step();
}
