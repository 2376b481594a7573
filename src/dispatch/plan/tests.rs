//! Every row of `spec/consistency.md` section 2, and what the decisions add to it.
//!
//! Datacenter `a` is the local one; racks are called `a1`, `a2`, ..., `b1`, ... and hold one node
//! each, so a rack's name is also its owner's. Plans are written as text, see [`show`].

use super::*;
use crate::ring::{Peer, PeerId, PeerState};
use crate::token::DynToken;

use Consistency::{DcEachSafeQuorum as Each, DcOne as One, DcQuorum, DcSafeQuorum as Safe};
use Op::{Read, Write};

/// A ring with `racks[0]` racks here, `racks[1]` in datacenter `b` and so on, seen from rack
/// number `own`.
fn ring(racks: &[usize], own: usize) -> Topology {
    let mut peers = Vec::new();
    for (dc, count) in racks.iter().enumerate() {
        let dc_name = char::from(b'a' + dc as u8).to_string();
        for rack in 0..*count {
            let name = format!("{dc_name}{}", rack + 1);
            peers.push(Peer {
                id: PeerId(peers.len() as u32),
                name: name.clone(),
                host: "h".into(),
                port: 8101,
                dc: dc_name.clone(),
                rack: name,
                tokens: vec![DynToken::from_u32(1)],
                state: PeerState::Normal,
                reachable: true,
                is_local: dc == 0 && rack == own,
                is_torc: true,
            });
        }
    }
    Topology::build(peers).expect("a ring")
}

/// `a2 cut, a3 joining`: everybody else is usable. `cut` is not connected, `down` not routable.
fn standings(topology: &Topology, text: &str) -> Vec<Standing> {
    let mut all = vec![Standing::Usable; topology.peers().len()];
    for word in text.split(", ").filter(|w| !w.is_empty()) {
        let (name, standing) = word.split_once(' ').expect("a name and a standing");
        let peer = topology.peers().find(|p| p.name == name).expect("a peer");
        all[peer.idx.0 as usize] = match standing {
            "cut" => Standing::NotConnected,
            "down" => Standing::NotRoutable,
            "joining" => Standing::Joining,
            other => panic!("no standing {other:?}"),
        };
    }
    all
}

fn question(topology: &Topology, op: Op, level: Consistency) -> Question<'_> {
    Question {
        topology,
        owners: topology.owners(&DynToken::from_u32(7)),
        op,
        level,
        cap: None,
        read_fallback: true,
        tried: 0,
        local_only: false,
        stays: false,
    }
}

/// `a1 store answers; a2 peer copy; b1 forward copy | 2/3 a3` : the legs, for each voting group
/// how many of how many replicas are asked, and the racks that were missed.
fn show(topology: &Topology, result: Result<(), Failure>, plan: &Plan) -> String {
    let rack = |rack: u16| topology.racks()[usize::from(rack)].name.as_str();
    if let Err(failure) = result {
        let of = failure.peer.and_then(|id| topology.idx_of(id));
        let name = of.map_or("nobody", |idx| topology.peer(idx).name);
        return format!("{:?}, {:?}, {name}", failure.kind, failure.cause);
    }
    let legs = plan.legs.iter().map(|leg| {
        let hop = match leg.hop {
            Hop::Store => "store",
            Hop::Peer => "peer",
            Hop::Forward => "forward",
        };
        let role = match leg.role {
            Role::Answer => "answers".to_owned(),
            Role::Count { dc } => format!("votes {dc}"),
            Role::Swallow => "copy".to_owned(),
        };
        assert_eq!(topology.peer(leg.peer).rack, rack(leg.rack));
        format!("{} {hop} {role}", rack(leg.rack))
    });
    let mut text = legs.collect::<Vec<_>>().join("; ");
    let groups = plan.groups.iter().map(|g| format!("{}/{}", g.asked, g.replicas));
    let missed = plan.missed.iter().map(|(r, _)| rack(*r).to_owned());
    let notes = groups.chain(missed).collect::<Vec<_>>().join(" ");
    if !notes.is_empty() {
        text = format!("{text} | {notes}");
    }
    text
}

fn run(racks: &[usize], own: usize, op: Op, level: Consistency, state: &str) -> String {
    let topology = ring(racks, own);
    let standings = standings(&topology, state);
    let mut found = Plan::default();
    let result = plan(&question(&topology, op, level), &standings, &mut found);
    show(&topology, result, &found)
}

#[test]
fn every_row_of_the_table_in_a_healthy_ring() {
    let quorum_read = "a1 store votes 0; a2 peer votes 0; a3 peer votes 0 | 3/3";
    let quorum_write = "a1 store votes 0; a2 peer votes 0; a3 peer votes 0; \
                        b1 forward copy; c1 forward copy | 3/3";
    let each = "a1 store votes 0; a2 peer votes 0; a3 peer votes 0; b1 peer votes 1; \
                b2 peer votes 1; c1 peer votes 2 | 3/3 2/2 1/1";
    let cases = [
        (Read, One, "a1 store answers"),
        (Read, DcQuorum, quorum_read),
        (Read, Safe, quorum_read),
        (Read, Each, each),
        (
            Write,
            One,
            "a1 store answers; a2 peer copy; a3 peer copy; b1 forward copy; c1 forward copy",
        ),
        (Write, DcQuorum, quorum_write),
        (Write, Safe, quorum_write),
        (Write, Each, each),
    ];
    for (op, level, want) in cases {
        assert_eq!(run(&[3, 2, 1], 0, op, level, ""), want, "{op:?} {level}");
    }
}

#[test]
fn a_single_rack_answers_at_every_level() {
    for (op, level) in [(Read, One), (Read, DcQuorum), (Read, Safe), (Write, Safe)] {
        assert_eq!(run(&[1], 0, op, level, ""), "a1 store answers", "{op:?} {level}");
    }
    assert_eq!(run(&[1], 0, Read, Each, ""), "a1 store votes 0 | 1/1");
    let want = "a1 store votes 0; b1 peer votes 1 | 1/1 1/1";
    assert_eq!(run(&[1, 1], 0, Write, Each, ""), want);
    let want = "a1 store answers; b1 forward copy";
    assert_eq!(run(&[1, 1], 0, Write, Safe, ""), want);
}

#[test]
fn five_racks_are_one_group() {
    let want = "a3 store votes 0; a4 peer votes 0; a5 peer votes 0; a1 peer votes 0; \
                a2 peer votes 0 | 5/5";
    assert_eq!(run(&[5], 2, Read, Safe, ""), want);
}

#[test]
fn a_read_goes_to_the_next_rack_when_its_own_cannot_be_asked() {
    let cases = [
        ("", "a2 store answers"),
        ("a2 cut", "a3 peer answers"),
        ("a2 down", "a3 peer answers"),
        ("a2 cut, a3 down", "a1 peer answers"),
        // A joining store may lack data: it is the last to be asked (E11).
        ("a2 joining", "a3 peer answers"),
        ("a2 joining, a3 cut", "a1 peer answers"),
        ("a2 joining, a3 cut, a1 cut", "a2 store answers"),
        ("a2 cut, a3 joining, a1 joining", "a3 peer answers"),
        ("a2 cut, a3 cut, a1 cut", "StoreNotConnected, NotConnected, a2"),
        ("a2 joining, a3 joining, a1 joining", "a2 store answers"),
    ];
    for (state, want) in cases {
        assert_eq!(run(&[3, 2], 1, Read, One, state), want, "{state}");
    }
}

#[test]
fn without_fallback_only_the_own_rack_is_read() {
    let topology = ring(&[3], 1);
    let mut found = Plan::default();
    let mut q = question(&topology, Read, One);
    q.read_fallback = false;
    for (state, want) in [
        ("", "a2 store answers"),
        ("a2 joining", "a2 store answers"),
        ("a2 cut", "StoreNotConnected, NotConnected, a2"),
        ("a2 down", "StoreNotConnected, NotRoutable, a2"),
    ] {
        let result = plan(&q, &standings(&topology, state), &mut found);
        assert_eq!(show(&topology, result, &found), want, "{state}");
    }
}

#[test]
fn a_fallback_is_marked_as_one() {
    let topology = ring(&[2], 0);
    let mut found = Plan::default();
    for (state, fell_back) in [("", false), ("a1 cut", true), ("a1 joining", true)] {
        let q = question(&topology, Read, One);
        plan(&q, &standings(&topology, state), &mut found).expect("an answer");
        assert_eq!(found.fell_back, fell_back, "{state}");
    }
}

#[test]
fn a_read_is_not_sent_twice_to_a_rack() {
    let topology = ring(&[3], 0);
    let mut found = Plan::default();
    for (tried, want) in [
        (0b001, "a2 peer answers"),
        (0b011, "a3 peer answers"),
        (0b101, "a2 peer answers"),
        (0b111, "NoQuorum, NoReplica, nobody"),
    ] {
        let q = Question { tried, ..question(&topology, Read, One) };
        let result = plan(&q, &standings(&topology, ""), &mut found);
        assert_eq!(show(&topology, result, &found), want, "{tried:b}");
    }
}

#[test]
fn a_write_reaches_everybody_it_can_and_the_next_rack_answers() {
    let cases = [
        ("a1 cut", "a2 peer answers; a3 peer copy; b1 forward copy | a1"),
        ("a2 down", "a1 store answers; a3 peer copy; b1 forward copy | a2"),
        ("a1 cut, a2 cut", "a3 peer answers; b1 forward copy | a1 a2"),
        // Joining nodes are written to like all others, and may answer (E11).
        ("a1 joining", "a1 store answers; a2 peer copy; a3 peer copy; b1 forward copy"),
        ("a1 cut, a2 cut, a3 cut", "StoreNotConnected, NotConnected, a1"),
        ("a1 down, a2 cut, a3 cut", "StoreNotConnected, NotRoutable, a1"),
    ];
    for (state, want) in cases {
        assert_eq!(run(&[3, 2], 0, Write, One, state), want, "{state}");
    }
}

#[test]
fn remote_writes_go_to_the_preselected_rack_else_to_the_next() {
    // Own rack i, remote rack i mod Ri.
    for (own, racks, target) in [(0, 3, "b1"), (1, 3, "b2"), (2, 3, "b3"), (2, 2, "b1")] {
        let want = format!("{target} forward copy");
        let found = run(&[3, racks], own, Write, One, "");
        assert!(found.ends_with(&want), "{found} lacks {want}");
    }
    for (state, want) in [
        ("b2 cut", "b1 forward copy"),
        ("b2 down", "b1 forward copy"),
        ("b2 cut, b1 down", "b3 forward copy"),
        ("b2 joining", "b2 forward copy"),
        ("b1 cut, b2 cut, b3 cut", "| b2"),
    ] {
        let found = run(&[3, 3], 1, Write, One, state);
        assert!(found.ends_with(want), "{state}: {found} lacks {want}");
    }
}

#[test]
fn a_rack_that_cannot_be_asked_is_an_error_of_the_vote() {
    let cases = [
        (DcQuorum, "a3 cut", "a1 store votes 0; a2 peer votes 0 | 2/3 a3"),
        (Safe, "a1 down", "a2 peer votes 0; a3 peer votes 0 | 2/3 a1"),
        (Safe, "a2 joining", "a1 store votes 0; a2 peer votes 0; a3 peer votes 0 | 3/3"),
        // A vote that is lost already is not begun: nothing is written for nothing.
        (DcQuorum, "a2 cut, a3 down", "PeerNotConnected, NotConnected, a2"),
        (Safe, "a3 cut, a2 down", "PeerNotConnected, NotRoutable, a2"),
        (Safe, "a1 cut, a3 cut", "StoreNotConnected, NotConnected, a1"),
    ];
    for (level, state, want) in cases {
        assert_eq!(run(&[3], 0, Read, level, state), want, "{level} {state}");
        assert_eq!(run(&[3], 0, Write, level, state), want, "{level} {state}");
    }
    // Two racks have no majority without each other.
    assert_eq!(run(&[2], 0, Write, Safe, "a2 cut"), "PeerNotConnected, NotConnected, a2");
}

#[test]
fn a_quorum_write_does_not_need_the_other_datacenters() {
    let want = "a1 store votes 0; a2 peer votes 0 | 2/2 b1";
    assert_eq!(run(&[2, 2], 0, Write, Safe, "b1 cut, b2 cut"), want);
    let want = "a1 store votes 0; a2 peer votes 0; b2 forward copy | 2/2";
    assert_eq!(run(&[2, 2], 0, Write, Safe, "b1 cut"), want);
}

#[test]
fn each_needs_a_majority_everywhere() {
    let want = "a1 store votes 0; b1 peer votes 1; b3 peer votes 1 | 1/1 2/3 b2";
    assert_eq!(run(&[1, 3], 0, Write, Each, "b2 cut"), want);
    let want = "PeerNotConnected, NotConnected, b1";
    assert_eq!(run(&[1, 3], 0, Write, Each, "b1 cut, b3 down"), want);
    assert_eq!(run(&[2, 2], 0, Read, Each, "b2 down"), "PeerNotConnected, NotRoutable, b2");
}

#[test]
fn a_forwarded_request_stays_in_its_datacenter() {
    let topology = ring(&[3, 2], 1);
    let mut found = Plan::default();
    for level in Consistency::ALL {
        let q = Question { local_only: true, ..question(&topology, Write, level) };
        let result = plan(&q, &standings(&topology, ""), &mut found);
        let want = "a2 store answers; a3 peer copy; a1 peer copy";
        assert_eq!(show(&topology, result, &found), want, "{level}");
        let q = Question { local_only: true, ..question(&topology, Read, level) };
        let result = plan(&q, &standings(&topology, ""), &mut found);
        assert_eq!(show(&topology, result, &found), "a2 store answers", "{level}");
    }
}

#[test]
fn a_bucket_type_caps_the_racks_of_each_datacenter() {
    let cap = |start, count| Some(RackCap { start, count });
    let cases = [
        (Write, One, cap(0, 1), "a1 peer answers; b1 forward copy"),
        (Write, One, cap(1, 1), "a2 store answers; b2 forward copy"),
        (Write, One, cap(2, 2), "a3 peer answers; a1 peer copy; b1 forward copy"),
        (Write, One, cap(1, 2), "a2 store answers; a3 peer copy; b3 forward copy"),
        (Read, Safe, cap(3, 2), "a2 store votes 0; a1 peer votes 0 | 2/2"),
        (Read, Safe, cap(4, 1), "a2 store answers"),
        (Read, One, cap(2, 1), "a3 peer answers"),
        (Write, Each, cap(2, 1), "a3 peer votes 0; b3 peer votes 1 | 1/1 1/1"),
        (Read, One, cap(9, 7), "a2 store answers"),
        (Read, One, cap(0, 0), "a1 peer answers"),
    ];
    let topology = ring(&[3, 3], 1);
    let mut found = Plan::default();
    for (op, level, cap, want) in cases {
        let q = Question { cap, ..question(&topology, op, level) };
        let result = plan(&q, &standings(&topology, ""), &mut found);
        assert_eq!(show(&topology, result, &found), want, "{op:?} {level} {cap:?}");
    }
}

#[test]
fn a_rack_without_nodes_is_no_candidate() {
    // A rack whose only node leaves has no owner.
    let mut peers = Vec::new();
    for (id, rack) in [(0, "a1"), (1, "a2")] {
        peers.push(Peer {
            id: PeerId(id),
            name: rack.into(),
            host: "h".into(),
            port: 8101,
            dc: "a".into(),
            rack: rack.into(),
            tokens: vec![DynToken::from_u32(1)],
            state: if id == 0 { PeerState::Leaving } else { PeerState::Normal },
            reachable: true,
            is_local: id == 0,
            is_torc: true,
        });
    }
    let topology = Topology::build(peers).expect("a ring");
    let mut found = Plan::default();
    for (op, level, state, want) in [
        (Read, One, "", "a2 peer answers"),
        (Write, One, "", "a2 peer answers | a1"),
        (Write, Safe, "", "NoQuorum, NoReplica, nobody"),
        (Read, One, "a2 cut", "NoQuorum, NoReplica, nobody"),
    ] {
        let result =
            plan(&question(&topology, op, level), &standings(&topology, state), &mut found);
        assert_eq!(show(&topology, result, &found), want, "{op:?} {level} {state:?}");
    }
}

/// Every mixture of standings of up to five local racks: what must hold of any plan.
#[test]
fn plans_hold_their_promises_in_every_mixture() {
    let states =
        [Standing::Usable, Standing::Joining, Standing::NotConnected, Standing::NotRoutable];
    let mut found = Plan::default();
    for racks in 1..=5usize {
        for own in [0, racks - 1] {
            let topology = ring(&[racks, 2], own);
            for mixture in 0..states.len().pow(racks as u32) {
                let mut all = vec![Standing::Usable; topology.peers().len()];
                for (rack, standing) in all.iter_mut().take(racks).enumerate() {
                    *standing = states[mixture / states.len().pow(rack as u32) % states.len()];
                }
                for level in Consistency::ALL {
                    for op in [Read, Write] {
                        let q = question(&topology, op, level);
                        let result = plan(&q, &all, &mut found);
                        check_promises(&q, &all[..racks], result, &found);
                    }
                }
            }
        }
    }
}

fn check_promises(q: &Question<'_>, local: &[Standing], result: Result<(), Failure>, p: &Plan) {
    let can = |s: &Standing| matches!(s, Standing::Usable | Standing::Joining);
    let usable = local.iter().filter(|s| can(s)).count();
    let votes = q.level == Each || (q.level != One && local.len() > 1);
    let need = if votes { local.len() / 2 + 1 } else { 1 };
    let note = format!("{:?} {} {local:?}: {result:?} {p:?}", q.op, q.level);
    assert_eq!(result.is_ok(), usable >= need, "{note}");
    if result.is_err() {
        return;
    }
    let here: Vec<_> = p.legs.iter().filter(|l| usize::from(l.rack) < local.len()).collect();
    assert!(here.iter().all(|leg| can(&local[usize::from(leg.rack)])), "{note}");
    let answers = here.iter().filter(|leg| leg.role == Role::Answer).count();
    match (votes, q.op) {
        (false, Read) => {
            assert_eq!((here.len(), answers), (1, 1), "{note}");
            let normal = local.contains(&Standing::Usable);
            let chosen = local[usize::from(here[0].rack)];
            assert!(!normal || chosen == Standing::Usable, "{note}");
        }
        (false, Write) => assert_eq!((here.len(), answers), (usable, 1), "{note}"),
        (true, _) => {
            assert_eq!((here.len(), answers), (usable, 0), "{note}");
            assert_eq!(usize::from(p.groups[0].asked), usable, "{note}");
            assert_eq!(usize::from(p.groups[0].replicas), local.len(), "{note}");
        }
    }
    let own_asked = here.iter().any(|l| usize::from(l.rack) == q.topology.own_rack());
    assert!(!own_asked || usize::from(here[0].rack) == q.topology.own_rack(), "{note}");
    let mut racks: Vec<_> = p.legs.iter().map(|l| l.rack).collect();
    racks.sort_unstable();
    racks.dedup();
    assert_eq!(racks.len(), p.legs.len(), "one leg a rack: {note}");
}
