//! What is believed of what C nodes say.

use super::*;
use crate::gossip::{Claim, Source};
use crate::ring::PeerState;
use crate::token::DynToken;

#[test]
fn a_c_node_teaches_a_new_member_under_the_port_convention() {
    let mut world = with_c_nodes(2, settings());
    let body = record(&local(3), "10.7.7.7", now_s(&world), 4);
    tell(&mut world, &body);
    let added = EventKind::Added { addr: Addr::new("10.7.7.7", 8101), source: Source::CGossip };
    assert_eq!(world.events(0, &slot(3)), [added]);
    assert_eq!(world.reach(0, &slot(3)), Some(Reach::Unreached));

    let mut other_port = local(0);
    other_port.addr.port = 9101;
    let mut world = World::new(1);
    world.start(other_port, settings(), vec![]);
    tell(&mut world, &body);
    assert_eq!(addr_of(&mut world, 3).port, 8103, "as a C node would take it");
}

#[test]
fn nobody_is_moved_by_an_old_saying_or_while_the_old_address_answers() {
    let mut world = with_c_nodes(3, settings());
    let seconds = now_s(&world);
    tell(&mut world, &record(&local(1), "10.0.0.2", seconds, 4));
    tell(&mut world, &record(&local(1), "10.7.7.7", seconds + 5, 4));
    assert_eq!(addr_of(&mut world, 1), seed(1).addr, "it answers");
    assert_eq!(conflicts(&world, &slot(1)), 1);
    tell(&mut world, &record(&local(1), "10.7.7.7", seconds + 6, 4));
    assert_eq!(conflicts(&world, &slot(1)), 1, "said once");
    world.run(5000);
    assert!(world.is_down_at(0, &slot(1)));
    tell(&mut world, &record(&local(1), "10.7.7.7", seconds - 55, 8));
    assert_eq!(addr_of(&mut world, 1), seed(1).addr, "older");
    tell(&mut world, &record(&local(1), "10.7.7.7", seconds + 7, 4));
    assert_eq!(addr_of(&mut world, 1), Addr::new("10.7.7.7", 8101));
    let moved = |e: &EventKind| matches!(e, EventKind::Moved { source: Source::CGossip, .. });
    assert!(world.events(0, &slot(1)).iter().any(moved));
}

#[test]
fn a_seed_table_that_was_never_heard_moves_nobody() {
    let mut world = World::new(1);
    world.start(local(0), settings(), vec![seed(1)]);
    tell(&mut world, &record(&local(1), "10.7.7.7", 1_010_101, 8));
    assert_eq!(addr_of(&mut world, 1), seed(1).addr);
}

#[test]
fn a_torc_node_is_never_moved_by_the_c_format() {
    let mut world = World::of(3, 1);
    world.run(3000);
    world.kill(2);
    world.run(5000);
    let seconds = now_s(&world);
    tell(&mut world, &record(&local(2), "10.7.7.7", seconds + 9, 4));
    assert_eq!(addr_of(&mut world, 2), seed(2).addr);
    assert_eq!(conflicts(&world, &slot(2)), 1);
}

#[test]
fn a_record_about_this_node_at_another_address_is_reported() {
    let mut world = with_c_nodes(2, settings());
    let seconds = now_s(&world);
    tell(&mut world, &record(&local(0), "10.7.7.7", seconds + 9, 4));
    assert_eq!(addr_of(&mut world, 0), local(0).addr);
    assert_eq!(conflicts(&world, &slot(0)), 1);
}

#[test]
fn claimed_states_are_taken_and_down_is_not() {
    let mut world = with_c_nodes(2, settings());
    let mut seconds = now_s(&world);
    for (state, want) in [
        (7, PeerState::Joining),
        (4, PeerState::Normal),
        (8, PeerState::Normal),
        (1, PeerState::Standby),
        (2, PeerState::WritesOnly),
        (3, PeerState::Resuming),
        (0, PeerState::Resuming),
        (12, PeerState::Unknown),
        (99, PeerState::Unknown),
        (4, PeerState::Normal),
    ] {
        seconds += 1;
        tell(&mut world, &record(&local(1), "10.0.0.2", seconds, state));
        let peers = world.m(0).peers();
        let peer = peers.iter().find(|p| p.tokens == local(1).tokens);
        assert_eq!(peer.unwrap().state, want, "{state}");
    }
    tell(&mut world, &record(&local(1), "10.0.0.2", seconds, 1));
    let peers = world.m(0).peers();
    let peer = peers.iter().find(|p| p.tokens == local(1).tokens);
    assert_eq!(peer.unwrap().state, PeerState::Normal, "not newer");
}

#[test]
fn a_record_that_comes_twice_is_taken_once() {
    let mut world = with_c_nodes(2, settings());
    let seconds = now_s(&world);
    let new = record(&local(3), "10.7.7.7", seconds, 7);
    tell(&mut world, &format!("{new}|{new}"));
    let version = world.m(0).version();
    tell(&mut world, &format!("{new}|{new}|{}", record(&local(1), "10.0.0.2", seconds, 4)));
    assert_eq!(world.m(0).version(), version, "nothing is new");
    let joining = EventKind::State { from: Claim::Normal, to: Claim::Joining };
    let added = EventKind::Added { addr: Addr::new("10.7.7.7", 8101), source: Source::CGossip };
    assert_eq!(world.events(0, &slot(3)), [added, joining]);
}

#[test]
fn long_tokens_are_known_by_their_low_word() {
    let mut world = World::new(1);
    let mut long = local(1);
    long.tokens = vec![DynToken::from_u128(u128::from(token(1)) | 7 << 64)];
    world.start(local(0), settings(), vec![seed_of(&long)]);
    let seconds = now_s(&world);
    tell(&mut world, &record(&local(1), "10.0.0.2", seconds, 7));
    assert_eq!(world.m(0).peers().len(), 2, "no second slot");
}

#[test]
fn the_dead_are_not_brought_back_by_old_tables() {
    let mut world = with_c_nodes(3, settings());
    world.run(5000);
    world.poke(0, |m, now| m.forget(&slot(2), now)).unwrap();
    let seconds = now_s(&world);
    tell(&mut world, &record(&local(2), "10.0.0.3", seconds - 3, 4));
    assert_eq!(world.reach(0, &slot(2)), None);
    tell(&mut world, &record(&local(2), "10.0.0.3", seconds + 60, 4));
    assert_eq!(world.reach(0, &slot(2)), Some(Reach::Unreached), "it lives");
}

#[test]
fn every_oddity_seen_on_the_wire_is_tolerated() {
    let vectors = crate::proto::dnode::tests::vectors();
    let mut world = World::new(1);
    world.start(local(0), settings(), vec![]);
    for frame in vectors["frames"].as_array().unwrap() {
        if frame["header"]["type"] == 7 {
            let body = frame["payload_ascii"].as_str().unwrap();
            tell(&mut world, body);
        }
    }
    // Eight nodes of one capture, two of another; nobody twice.
    assert_eq!(world.m(0).peers().len(), 1 + 8 + 2);
    for body in ["", "nonsense", "|||", "dc1$r1$0,1,4,0.0.0.0", "$$,,,", "a$b$c,d,e,f"] {
        tell(&mut world, body);
    }
    assert_eq!(world.m(0).peers().len(), 11);
    assert_eq!(world.m(0).counters().malformed, 4);
}

#[test]
fn a_ring_that_trusts_nobody_does_not_listen() {
    let mut closed = settings();
    closed.c.accept = false;
    let mut world = World::new(1);
    world.start(local(0), closed, vec![]);
    let body = record(&local(3), "10.7.7.7", now_s(&world), 4);
    tell(&mut world, &body);
    assert_eq!(world.m(0).peers().len(), 1);
}
