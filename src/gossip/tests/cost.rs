//! What gossip costs, and that it does not grow with the ring.

use super::world::{World, defaults, local};
use crate::gossip::message::Heartbeat;
use crate::gossip::{Record, Source};

const SILENT: Heartbeat = Heartbeat { beat: 0, age_ms: None };

/// A quiet ring of `n` nodes that know each other.
fn acquainted(n: usize) -> World {
    let mut world = World::new(n as u64);
    world.delay_ms = (1, 1);
    for i in 0..n {
        world.start(local(i), defaults(), vec![]);
    }
    let records: Vec<Record> = world.alive().map(|(_, m)| m.local().record().clone()).collect();
    for i in 0..n {
        let m = world.nodes[i].membership.as_mut().unwrap();
        for record in &records {
            m.merge(record.clone(), SILENT, Source::Gossip, world.now);
        }
        m.rumors.clear();
    }
    world
}

/// Bytes a node sends in a second, measured over one round.
fn bytes_per_node_second(n: usize) -> u64 {
    let mut world = acquainted(n);
    world.run(500);
    let sent = world.nodes.iter().map(|node| node.sent_bytes);
    sent.sum::<u64>() * 2 / n as u64
}

#[test]
fn the_cost_of_a_node_is_flat() {
    let small = bytes_per_node_second(100);
    let large = bytes_per_node_second(400);
    assert!(large <= small * 11 / 10, "{small} bytes a second grow to {large}");
    assert!(large <= 40_000, "{large} bytes a second");
}

/// The figures for large rings; takes minutes without optimisation.
#[test]
#[ignore = "minutes of simulation: scripts/soak runs it"]
fn the_cost_at_a_thousand_nodes_is_the_cost_at_a_hundred() {
    let small = bytes_per_node_second(100);
    for n in [500, 1_000] {
        let large = bytes_per_node_second(n);
        println!("{small} bytes a node and second at 100 nodes, {large} at {n}");
        assert!(large <= small * 11 / 10);
    }
}

#[test]
fn news_reach_a_large_ring_in_a_few_rounds() {
    let n = 150;
    let mut world = acquainted(n);
    world.run(300);
    world.poke(7, |m, _| m.set_attribute("news", Some("yes"))).unwrap();
    let slot = world.nodes[7].local.slot();
    let took = world.run_until(4000, |world| {
        world.alive().all(|(_, m)| {
            let member = m.table.member(slot.id());
            member.unwrap().record().attributes.contains_key("news")
        })
    });
    let rounds = u64::from(usize::BITS - n.leading_zeros());
    assert!(took <= rounds * 500 / 2, "{took} ms");
}
