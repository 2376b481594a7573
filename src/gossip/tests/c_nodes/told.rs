//! What C nodes are told, rule by rule.

use std::net::Ipv4Addr;

use super::*;
use crate::gossip::{Claim, DownCause, JOIN_MAX_MS, LocalNode};
use crate::proto::dnode::crypto::SecureOption;
use crate::token::DynToken;

#[test]
fn rule_1_large_tables_are_split() {
    let mut world = with_c_nodes(2, settings());
    for i in 2..900 {
        world.poke(0, |m, now| m.add_seed(&seed(i), now));
        meet(&mut world, 0, i);
    }
    world.nodes[0].c_bodies.clear();
    world.run(1500);
    let to_one = world.nodes[0].c_bodies.iter();
    let to_one: Vec<_> = to_one.filter(|(to, _)| *to == seed(1).addr).collect();
    assert!(to_one.len() >= 2);
    assert!(to_one.iter().all(|(_, body)| body.len() <= C_BODY_MAX));
    let records: usize = to_one.iter().map(|(_, body)| body.split('|').count()).sum();
    assert_eq!(records, 900);
}

#[test]
fn rule_2_only_what_the_format_can_say() {
    let mut world = with_c_nodes(2, settings());
    let mut add = |change: fn(&mut LocalNode), i: usize| {
        let mut node = local(i);
        change(&mut node);
        let seed = seed_of(&node);
        world.poke(0, |m, now| m.add_seed(&seed, now));
        let addr = seed.addr.clone();
        world.poke(0, |m, now| m.proven(&addr, false, now));
        hear(&mut world, 0, &seed.slot());
    };
    add(|n| n.addr.host = "by.name".into(), 2);
    add(|n| n.addr.host = "not.resolved".into(), 3);
    add(|n| n.addr.host = "fe80::1".into(), 4);
    add(|n| n.addr.port = 9000, 5);
    add(|n| n.rack = "a$b".into(), 6);
    add(|n| n.tokens.push(DynToken::from_u32(3)), 7);
    add(|n| n.tokens = vec![DynToken::from_u128(0xabc_0000_0001_0000_0009)], 8);
    world.poke(0, |m, now| m.resolved("by.name", Ipv4Addr::new(10, 1, 1, 1).into(), now));
    let sent = tables(&mut world, 31_000);
    let to_one = sent.iter().find(|(to, _)| *to == seed(1).addr).unwrap();
    let tokens: Vec<u32> = states(&to_one.1).into_iter().map(|(token, _)| token).collect();
    let mut want = vec![token(0), token(1), token(2), token(7), 0x0001_0000_0009u64 as u32];
    want.sort_unstable();
    assert_eq!(tokens, want);
    let named = to_one.1.iter().find(|r| r.token == token(2)).unwrap();
    assert_eq!(named.host, "10.1.1.1");
    assert_eq!(to_one.1[0].token, token(0), "this node comes first");
}

#[test]
fn rule_2_two_slots_that_look_alike_are_told_once() {
    let mut world = with_c_nodes(2, settings());
    let mut twin = local(1);
    twin.tokens = vec![DynToken::from_u128(u128::from(token(1)) | 1 << 100)];
    let twin_seed = seed_of(&twin);
    world.poke(0, |m, now| m.add_seed(&twin_seed, now));
    hear(&mut world, 0, &twin.slot());
    let sent = tables(&mut world, 31_000);
    assert_eq!(states(&sent[0].1), [(token(0), 4), (token(1), 4)]);
}

#[test]
fn rule_3_three_states_and_timestamps_that_never_fall() {
    let mut world = with_c_nodes(4, settings());
    let joining = record(&local(3), "10.0.0.4", now_s(&world), 7);
    tell(&mut world, &joining);
    let sent = tables(&mut world, 31_000);
    let first = &sent.last().unwrap().1;
    assert_eq!(states(first), [(token(0), 4), (token(1), 4), (token(2), 4), (token(3), 7)]);
    let own = first.iter().find(|r| r.token == token(0)).unwrap();
    assert!(now_s(&world) - own.timestamp <= 31);
    // Node 2 falls silent: the others are told so, and when it was last heard of.
    let heard_at = now_s(&world);
    world.nodes[0].c_bodies.clear();
    for _ in 0..8 {
        hear(&mut world, 0, &slot(1));
        hear(&mut world, 0, &slot(3));
        world.run(500);
    }
    let sent = tables(&mut world, 31_000);
    assert!(sent.iter().all(|(to, _)| *to != seed(2).addr), "it is down");
    let second = &sent.last().unwrap().1;
    let dead = second.iter().find(|r| r.token == token(2)).unwrap();
    assert_eq!(dead.state, 8);
    assert!(dead.timestamp <= heard_at && heard_at - dead.timestamp <= 2);
    for before in first {
        let after = second.iter().find(|r| r.token == before.token).unwrap();
        assert!(after.timestamp >= before.timestamp);
    }
}

#[test]
fn rule_3_a_clock_that_was_set_back_is_not_told() {
    let mut world = with_c_nodes(2, settings());
    // The process before this one was ahead by ten minutes; the C node says what it was told.
    let before = now_s(&world) + 600;
    tell(&mut world, &record(&local(0), "10.0.0.1", before, 4));
    let sent = tables(&mut world, 31_000);
    assert!(!sent.is_empty() && sent.iter().all(|(_, table)| table[0].timestamp == before));
}

#[test]
fn rule_4_nobody_is_told_an_address_that_is_not_certain() {
    let mut world = with_c_nodes(3, settings());
    world.poke(0, |m, now| m.add_seed(&seed(3), now));
    let sent = tables(&mut world, 31_000);
    assert_eq!(states(&sent[0].1).len(), 3, "seed 3 was never met");
    // Slot 2 is re-pointed after its holder died: neither the old nor the unmet new address.
    world.nodes[0].c_bodies.clear();
    for _ in 0..10 {
        hear(&mut world, 0, &slot(1));
        world.run(500);
    }
    let mut moved = seed(2);
    moved.addr.host = "10.9.9.9".into();
    world.poke(0, |m, now| m.add_seed(&moved, now));
    let sent = tables(&mut world, 31_000);
    let last = &sent.last().unwrap().1;
    assert_eq!(states(last), [(token(0), 4), (token(1), 4)]);
    world.poke(0, |m, now| m.proven(&moved.addr, false, now));
    hear(&mut world, 0, &slot(2));
    let sent = tables(&mut world, 31_000);
    let last = &sent.last().unwrap().1;
    let new = last.iter().find(|r| r.token == token(2)).unwrap();
    assert_eq!((new.host.as_str(), new.state), ("10.9.9.9", 4));
}

#[test]
fn rule_5_no_gossip_over_links_that_are_encrypted() {
    // Node 0 is in dc1/rack1: node 4 as well, node 2 in dc1/rack2, node 1 in dc2.
    for (secure, told) in [
        (SecureOption::None, vec![1, 2, 4]),
        (SecureOption::Datacenter, vec![2, 4]),
        (SecureOption::Rack, vec![4]),
        (SecureOption::All, vec![]),
    ] {
        let mut settings = settings();
        settings.c.secure = secure;
        let mut world = with_c_nodes(5, settings);
        let sent = tables(&mut world, 5000);
        let reached = |i: &usize| sent.iter().any(|(to, _)| *to == seed(*i).addr);
        let reached: Vec<usize> = [1, 2, 4].into_iter().filter(reached).collect();
        assert_eq!(reached, told, "{secure:?}");
    }
}

#[test]
fn rule_6_nothing_before_this_node_is_ready() {
    let mut world = World::new(1);
    let mut joining = local(0);
    joining.claim = Claim::Joining;
    // Another rack of its datacenter: a C node, which keeps its data.
    world.start(joining, settings(), vec![seed(2)]);
    meet(&mut world, 0, 2);
    assert!(tables(&mut world, 60_000).is_empty());
    world.poke(0, |m, now| m.set_local_claim(Claim::Normal, now));
    let sent = tables(&mut world, 2000);
    assert_eq!(states(&sent[0].1), [(token(0), 4), (token(2), 4)]);
}

#[test]
fn rule_6_torc_nodes_that_join_are_hidden_until_they_are_ready() {
    let mut world = with_c_nodes(2, settings());
    world.poke(0, |m, _| m.set_data_since(1));
    let mut joining = local(2);
    joining.claim = Claim::Joining;
    let i = world.start(joining, settings(), vec![seed(0)]);
    let sent = tables(&mut world, 31_000);
    assert_eq!(states(&sent.last().unwrap().1).len(), 2);
    world.poke(i, |m, now| m.set_local_claim(Claim::Normal, now));
    let sent = tables(&mut world, 3000);
    let told = states(&sent.last().unwrap().1);
    assert_eq!(told, [(token(0), 4), (token(1), 4), (token(2), 4)], "told soon");
}

#[test]
fn rule_7_a_ring_of_c_nodes_that_never_gossip_is_complete() {
    let mut world = with_c_nodes(4, settings());
    world.run(60_000);
    assert_eq!(world.m(0).peers().len(), 4);
    assert_eq!(world.m(0).counters().c_received, 0);
    assert_eq!(world.m(0).counters().sent, 0, "and hear nothing of torc's own");
}

#[test]
fn c_nodes_hear_nothing_unless_gossip_is_enabled() {
    let mut world = with_c_nodes(3, defaults());
    assert!(tables(&mut world, 60_000).is_empty());
}

#[test]
fn a_table_comes_each_interval_and_soon_after_a_change() {
    let mut world = with_c_nodes(2, settings());
    let first = tables(&mut world, 3000);
    assert!((1..=2).contains(&first.len()), "{}", first.len());
    assert_eq!(tables(&mut world, 26_000).len(), 0);
    assert_eq!(tables(&mut world, 3000).len(), 1, "after 30 s");
    world.poke(0, |m, now| m.add_seed(&seed(2), now));
    let sent = tables(&mut world, 1500);
    assert_eq!(sent.len(), 1, "within a second");
}

#[test]
fn a_c_nodes_death_and_return_is_seen() {
    let mut world = with_c_nodes(2, settings());
    for _ in 0..10 {
        world.run(1000);
        hear(&mut world, 0, &slot(1));
    }
    let took = world.run_until(5000, |w| w.is_down_at(0, &slot(1)));
    assert!((3400..3800).contains(&took), "{took}");
    assert_eq!(world.reach(0, &slot(1)), Some(Reach::Down(DownCause::Silent)));
    hear(&mut world, 0, &slot(1));
    assert_eq!(world.reach(0, &slot(1)), Some(Reach::Up));
}

#[test]
fn torc_nodes_tell_each_other_of_c_nodes() {
    let mut world = with_c_nodes(4, settings());
    let i = world.start(local(7), settings(), vec![seed(0)]);
    world.run(3000);
    let peers = world.m(i).peers();
    assert_eq!(peers.len(), 5);
    assert_eq!(peers.iter().filter(|p| p.is_torc).count(), 2);
    assert_eq!(world.reach(i, &slot(2)), Some(Reach::Unreached), "each judges for itself");
    // A C node is replaced by torc at its address, and by C again.
    world.start(local(2), settings(), vec![seed(0)]);
    world.run(3000);
    let torc = |world: &mut World, n: usize| {
        let peers = world.m(n).peers();
        peers.iter().find(|p| p.tokens == local(2).tokens).unwrap().is_torc
    };
    assert!(torc(&mut world, 0) && torc(&mut world, i));
    let heir = world.nodes.len() - 1;
    world.kill(heir);
    world.run(5000);
    world.poke(0, |m, now| m.proven(&seed(2).addr, false, now));
    world.run(3000);
    assert!(!torc(&mut world, 0) && !torc(&mut world, i), "rolled back");
    world.boot(heir, vec![seed(0)]);
    world.run(3000);
    assert!(torc(&mut world, 0) && torc(&mut world, i));
}

#[test]
fn rule_6_a_node_is_ready_after_some_time_at_latest() {
    let mut world = World::new(9);
    let empty = LocalNode { claim: Claim::Joining, ..local(0) };
    world.start(empty, settings(), vec![seed(2)]);
    meet(&mut world, 0, 2);
    world.run(JOIN_MAX_MS - 1000);
    assert_eq!(world.m(0).local().record().claim, Claim::Joining);
    world.run(1000);
    hear(&mut world, 0, &slot(2));
    let told = tables(&mut world, 40_000);
    assert_eq!(world.m(0).local().record().claim, Claim::Normal);
    let (to, records) = &told[0];
    assert_eq!((to, records[0].state, records[0].token), (&seed(2).addr, 4, 1_000_000));
}
