//! Datacenters of other rings: fetched by one node, passed on to the others; and stores' loads.

use super::*;
use crate::affinity::publication::Delta;
use crate::ckf::bucket::BucketImage;

/// The lane of a datacenter no node of the ring is in.
const FAR: u8 = 1;

fn position(world: &World, node: usize) -> Option<u64> {
    world.nodes[node].affinity.keys().lane_position(FAR).map(|(_, sequence)| sequence)
}

fn age(world: &World, node: usize) -> Option<u64> {
    let lanes = world.nodes[node].affinity.keys().lanes();
    lanes.get(FAR).unwrap().age_ms(world.now_ms)
}

fn importer(world: &World) -> usize {
    let imports = |n: &usize| world.nodes[*n].affinity.keys().duties().imports;
    let all: Vec<usize> = world.up().filter(imports).collect();
    assert_eq!(all.len(), 1, "one node fetches what others publish");
    all[0]
}

/// What a relay does: installs a whole filter.
fn install(world: &World, node: usize, sequence: u64) {
    let keys = world.nodes[node].affinity.keys();
    let identity = keys.identity_of(FAR, 5, 1, keys.format()).unwrap();
    let words = (0..keys.format().bucket_count).collect();
    keys.install(FAR, identity, sequence, words).unwrap();
    keys.lanes().get(FAR).unwrap().heard(world.now_ms);
}

#[test]
fn a_filter_of_another_ring_is_fetched_by_one_node_and_passed_on() {
    let mut world = World::new(&["x", "x", "x", "x"]);
    world.run(1000);
    let one = importer(&world);
    let others: Vec<usize> = world.up().filter(|node| *node != one).collect();
    for node in &others {
        let duties = world.nodes[*node].affinity.keys().duties();
        assert_eq!(duties.importer, format!("n{one}"));
        // Those who do not know that datacenter yet are told of it.
        assert_eq!(world.nodes[*node].mesh.take_abroad(), BTreeSet::from(["y".to_owned()]));
        assert_eq!(age(&world, *node), None);
    }

    install(&world, one, 40);
    world.run(5000);
    assert!(others.iter().all(|node| position(&world, *node) == Some(40)));
    assert!(others.iter().all(|node| age(&world, *node).is_some()));
    // Changes go to the others as they come, whatever is asked for meanwhile.
    for sequence in 41..400 {
        let images = [BucketImage { bucket: sequence as u32, word: sequence }];
        let delta = Delta { base: sequence - 1, sequence, images: images.into() };
        assert!(world.nodes[one].affinity.keys().apply_relayed(FAR, delta));
        world.run(10);
    }
    let truth = world.nodes[one].affinity.keys().lane_part(FAR, 0, usize::MAX >> 1).unwrap();
    for node in &others {
        let keys = world.nodes[*node].affinity.keys();
        let part = keys.lane_part(FAR, 0, usize::MAX >> 1).unwrap();
        assert_eq!((part.sequence, part.words == truth.words), (399, true), "{node}");
        let note = keys.lanes().get(FAR).unwrap().note();
        assert_eq!((note.snapshots, note.gaps), (1, 0), "{node}");
    }

    // The relay is gone: nobody believes what it said.
    world.nodes[one].affinity.keys().drop_lane(FAR);
    world.run(2000);
    assert!(others.iter().all(|node| age(&world, *node).is_none()));
    install(&world, one, 500);
    world.run(5000);
    assert!(others.iter().all(|node| position(&world, *node) == Some(500)));

    // So is the node: another one takes its place, and is followed.
    world.down.push(one);
    world.tell_ring();
    world.run(1000);
    let next = importer(&world);
    install(&world, next, 600);
    world.run(5000);
    assert!(world.up().all(|node| position(&world, node) == Some(600)));
}

#[test]
fn the_publisher_knows_how_full_every_store_is_and_who_does_not_say() {
    let mut world = World::new(&["x", "x", "x", "y"]);
    let load = |n: u64| Some(StoreLoad { used: 10 * n, total: Some(100) });
    (0..3).for_each(|n| world.nodes[n].mesh.set_load(load(n as u64 + 1)));
    world.run(3000);
    let loads = |world: &World| {
        let mut loads = world.nodes[world.publisher("x")].affinity.keys().store_loads();
        loads.sort_by_key(|load| load.map(|load| load.used));
        loads
    };
    assert_eq!(loads(&world), [load(1), load(2), load(3)]);
    world.nodes[1].mesh.set_load(None);
    world.run(3000);
    assert_eq!(loads(&world), [None, load(1), load(3)]);
    // Engines' blocks lie elsewhere.
    let blocks = world.nodes[world.publisher("x")].affinity.domain(Some(b"llm")).unwrap().clone();
    assert!(blocks.store_loads().iter().all(Option::is_none));
    // One that is away is a rank all the same.
    let gone = (0..3).find(|n| *n != world.publisher("x")).unwrap();
    world.nodes[1].mesh.set_load(load(2));
    world.down.push(gone);
    world.tell_ring();
    world.run(3000);
    assert_eq!(loads(&world).iter().filter(|load| load.is_none()).count(), 1);
    assert_eq!(loads(&world).len(), 3);
}
