//! What gossip costs, and that it does not grow with the ring.

use super::world::{Sent, World, defaults, local};
use crate::gossip::message::Heartbeat;
use crate::gossip::{Record, Source};

const SILENT: Heartbeat = Heartbeat { beat: 0, age_ms: None };

/// More than any record here takes.
const RECORD_BYTES: u64 = 150;

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

/// What all nodes send in `ms`.
fn sent_in(world: &mut World, ms: u64) -> Sent {
    world.nodes.iter_mut().for_each(|node| node.sent = Sent::default());
    world.run(ms);
    world.nodes.iter().fold(Sent::default(), |sum, node| Sent {
        messages: sum.messages + node.sent.messages,
        bytes: sum.bytes + node.sent.bytes,
        records: sum.records + node.sent.records,
    })
}

/// Bytes a node sends in a second, measured over one round.
fn bytes_per_node_second(n: usize) -> u64 {
    sent_in(&mut acquainted(n), 500).bytes * 2 / n as u64
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

/// In a ring that shows all it knows in each message, and in one that shows a part.
#[test]
fn a_quiet_ring_tells_digests_alone_and_a_change_costs_its_own_record() {
    for n in [40, 150] {
        let mut world = acquainted(n);
        world.run(2000);
        let quiet = sent_in(&mut world, 2000);
        assert_eq!(quiet.records, 0, "{n} nodes have nothing to tell");
        world.poke(7, |m, _| m.set_attribute("news", Some("yes"))).unwrap();
        let changed = sent_in(&mut world, 2000);
        let slot = world.nodes[7].local.slot();
        let knows = |m: &crate::gossip::Membership| {
            let member = m.table.member(slot.id()).unwrap();
            member.record().attributes.contains_key("news")
        };
        assert!(world.alive().all(|(_, m)| knows(m)), "all {n} nodes know it");
        // Each node passes it on a few times, by the logarithm of their number; a table each time
        // would be as many records as there are nodes in every message.
        let rumors = 2 * u64::from(usize::BITS - n.leading_zeros()) + 2;
        let most = n as u64 * rumors;
        assert!((n as u64 - 1..=most).contains(&changed.records), "{n} nodes: {changed:?}");
        assert!(changed.records < changed.messages, "{n} nodes: {changed:?}");
        let more = changed.bytes.saturating_sub(quiet.bytes * 101 / 100);
        assert!(more <= changed.records * RECORD_BYTES, "{n} nodes: {quiet:?}, then {changed:?}");
        world.run(2000);
        assert_eq!(sent_in(&mut world, 2000).records, 0, "{n} nodes are quiet again");
    }
}

/// How long it takes until all of `n` nodes have heard of a change, in milliseconds; at most half a
/// round for each doubling.
fn news_take(n: usize) -> u64 {
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
    assert!(took <= rounds * 500 / 2, "{n} nodes: {took} ms");
    took
}

#[test]
fn news_reach_a_large_ring_in_a_few_rounds() {
    news_take(150);
}

#[test]
#[ignore = "minutes of simulation: scripts/soak runs it"]
fn the_cost_in_time_at_a_thousand_nodes_is_a_few_rounds() {
    for n in [100, 500, 1_000] {
        println!("news reach {n} nodes in {} ms", news_take(n));
    }
}
