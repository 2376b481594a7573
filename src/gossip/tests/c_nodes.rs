//! Towards nodes of the reference, and from them.
//!
//! What a C node may be told, rule by rule, and where each is shown. `told` and `heard` are here;
//! `c_rules` (tests/cluster) has a peer on a socket, `wire_c_node` and `mixed` the reference
//! itself.
//!
//! 1. Frames of type 7 in plaintext, data field `a`, one write each, at most 16,000 bytes:
//!    `told::rule_1`, `c_rules::a_c_node_is_told`, `wire_c_node::gossip_teaches`.
//! 2. No empty body, the exact form, IPv4 addresses, the port taken for granted: `told::rule_2`
//!    (two), `c_format`, `c_rules::a_c_node_is_told`.
//! 3. States 4, 7 and 8; times in seconds that never fall: `told::rule_3` (two), `c_rules`.
//! 4. Addresses that are certain alone, none that was given up: `told::rule_4`, `c_rules`.
//! 5. Nothing over links that are encrypted: `told::rule_5`.
//! 6. Nothing before a node is ready to serve: `told::rule_6` (three).
//! 7. Nothing is expected of them: `told::rule_7`.
//!
//! From them: empty and header-less bodies, nonsense (`c_rules::whatever_a_c_node_gossips`,
//! `heard::every_oddity`), times of seeds never heard, first words of tokens, records that come
//! twice, unknown states, older addresses, and this node's own place elsewhere (`heard`).

mod heard;
mod told;

use super::world::{EPOCH_MS, World, defaults, local, seed, seed_of, slot};
use crate::gossip::c_format::{C_BODY_MAX, CRecord, read_body};
use crate::gossip::{Addr, EventKind, LocalNode, Reach, Settings, Slot};

pub(super) fn settings() -> Settings {
    let mut settings = defaults();
    settings.c.send = true;
    settings
}

/// A world of node 0 alone, with C nodes 1..n in its seed list, all proven and answering.
pub(super) fn with_c_nodes(n: usize, settings: Settings) -> World {
    let mut world = World::new(1);
    world.start(local(0), settings, (1..n).map(seed).collect());
    for i in 1..n {
        meet(&mut world, 0, i);
    }
    world
}

/// Node `i` of the world meets C node `number`: it is proven, and a frame came.
pub(super) fn meet(world: &mut World, i: usize, number: usize) {
    let (addr, slot) = (seed(number).addr, slot(number));
    world.poke(i, |m, now| m.proven(&addr, false, now));
    hear(world, i, &slot);
}

pub(super) fn hear(world: &mut World, i: usize, slot: &Slot) {
    let id = world.id(i, slot);
    world.poke(i, |m, now| m.observe(id, now, now));
}

/// The bodies node 0 sends until the next table is due, with C nodes alive all the time.
pub(super) fn tables(world: &mut World, ms: u64) -> Vec<(Addr, Vec<CRecord>)> {
    world.nodes[0].c_bodies.clear();
    for _ in 0..ms / 500 {
        let c_slots: Vec<Slot> = world
            .m(0)
            .members()
            .filter(|m| m.record().kind == crate::gossip::Kind::C && m.reach() == Reach::Up)
            .map(|m| m.record().slot.clone())
            .collect();
        for slot in c_slots {
            hear(world, 0, &slot);
        }
        world.run(500);
    }
    let sent = world.nodes[0].c_bodies.iter();
    sent.map(|(to, body)| {
        assert!(!body.is_empty() && body.len() <= C_BODY_MAX);
        let records = read_body(body.as_bytes()).map(|r| r.expect("exact form"));
        (to.clone(), records.collect())
    })
    .collect()
}

pub(super) fn states(records: &[CRecord]) -> Vec<(u32, u32)> {
    let mut states: Vec<_> = records.iter().map(|r| (r.token, r.state)).collect();
    states.sort_unstable();
    states
}

pub(super) fn token(i: usize) -> u32 {
    local(i).tokens[0].low_word()
}

/// A body as a C node would send it.
pub(super) fn record(node: &LocalNode, host: &str, timestamp: u64, state: u32) -> String {
    let token = node.tokens[0].low_word();
    format!("{}${}${token},{timestamp},{state},{host}", node.dc, node.rack)
}

pub(super) fn tell(world: &mut World, body: &str) {
    world.poke(0, |m, now| m.handle_c_gossip(body.as_bytes(), now));
}

pub(super) fn addr_of(world: &mut World, number: usize) -> Addr {
    let mut members = world.m(0).members();
    let found = members.find(|m| m.record().slot == slot(number));
    found.unwrap().record().addr.clone()
}

pub(super) fn conflicts(world: &World, slot: &Slot) -> usize {
    let events = world.events(0, slot);
    let conflict = |e: &&EventKind| matches!(e, EventKind::Conflict { .. });
    events.iter().filter(conflict).count()
}

pub(super) fn now_s(world: &World) -> u64 {
    (EPOCH_MS + world.now.0) / 1000
}
