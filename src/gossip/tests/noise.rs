//! Messages nobody sent, in every order.

use proptest::prelude::*;
use prost::Message as _;

use super::world::{World, defaults, local, seed};
use crate::gossip::message::{Digest, Gossip, Heartbeat, RecordMsg};
use crate::gossip::{Addr, Claim, Kind, Record, Settings};
use crate::proto::dnode::MsgType;
use crate::proto::dnode::control::ControlSeal;

fn any_record() -> impl Strategy<Value = Record> {
    let claims = prop::sample::select(vec![
        Claim::Normal,
        Claim::Joining,
        Claim::Standby,
        Claim::Away,
        Claim::Left,
        Claim::Forgotten,
    ]);
    // Few slots, addresses and versions, so that they meet.
    (0usize..4, 0usize..4, claims, 0u64..4, 0u64..4, any::<bool>()).prop_map(
        |(number, at, claim, generation, version, torc)| {
            let holder = local(number);
            Record {
                slot: holder.slot(),
                tokens: holder.tokens,
                addr: local(at).addr,
                name: holder.name,
                kind: if torc { Kind::Torc } else { Kind::C },
                claim,
                generation: generation + u64::from(torc),
                version,
                gone_at_ms: if claim.is_gone() { u64::MAX } else { 0 },
                attributes: Default::default(),
            }
        },
    )
}

fn any_digest() -> impl Strategy<Value = Digest> {
    let numbers = (0usize..5, any::<u64>(), any::<u64>(), any::<u32>());
    numbers.prop_map(|(number, generation, heartbeat, age)| Digest {
        slot: local(number).slot().id().0,
        generation,
        version: generation,
        heartbeat,
        age,
    })
}

const SILENT: Heartbeat = Heartbeat { beat: 0, age_ms: None };

fn message(records: &[Record], digests: Vec<Digest>, step: i32) -> Vec<u8> {
    let gossip = Gossip {
        step,
        from: 0,
        host: "10.8.8.8".into(),
        port: 1,
        count: 3,
        rumors: records.iter().map(|r| RecordMsg::new(r, SILENT)).collect(),
        wants: digests.iter().map(|d| d.slot).collect(),
        digests,
        records: vec![],
    };
    let seal = ControlSeal::new("blue", None);
    seal.seal(MsgType::TorcGossip, gossip.encode_to_vec())
}

/// A node that stands outside of the slots in question.
fn bystander() -> World {
    let mut world = World::new(1);
    world.start(local(9), defaults(), vec![]);
    world
}

fn view(world: &mut World) -> Vec<Record> {
    let table = &world.m(0).table;
    table.shared().map(|slot| table.record(slot).unwrap().clone()).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn the_order_of_arrival_does_not_matter(
        records in prop::collection::vec(any_record(), 1..12),
        swaps in prop::collection::vec((0usize..12, 0usize..12), 12),
    ) {
        let mut other = records.clone();
        for (a, b) in swaps {
            let n = other.len();
            other.swap(a % n, b % n);
        }
        let (mut one, mut two) = (bystander(), bystander());
        let from = Addr::new("10.8.8.8", 1);
        for (world, order) in [(&mut one, &records), (&mut two, &other)] {
            for record in order {
                let payload = message(std::slice::from_ref(record), vec![], 1);
                world.poke(0, |m, now| m.handle_message(&from, &payload, now));
            }
        }
        prop_assert_eq!(view(&mut one), view(&mut two));
    }

    #[test]
    fn any_message_leaves_a_working_node(
        records in prop::collection::vec(any_record(), 0..8),
        digests in prop::collection::vec(any_digest(), 0..8),
        step in -1i32..6,
    ) {
        let mut world = World::new(1);
        world.start(local(0), defaults(), vec![seed(1)]);
        let payload = message(&records, digests, step);
        let from = Addr::new("10.8.8.8", 1);
        world.poke(0, |m, now| m.handle_message(&from, &payload, now));
        world.run(5000);
        let own = world.m(0).local().record().clone();
        prop_assert_eq!(own.addr, local(0).addr);
        prop_assert!(crate::ring::Topology::build(world.m(0).peers()).is_ok());
    }

    #[test]
    fn noise_is_refused(noise in prop::collection::vec(any::<u8>(), 0..300)) {
        let mut world = World::new(1);
        let settings = Settings::new(ControlSeal::new("", None));
        world.start(local(0), settings, vec![]);
        let from = Addr::new("10.8.8.8", 1);
        world.poke(0, |m, now| m.handle_message(&from, &noise, now));
        world.poke(0, |m, now| m.handle_c_gossip(&noise, now));
        prop_assert!(world.m(0).local().record().addr == local(0).addr);
    }
}
