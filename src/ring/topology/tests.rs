use std::collections::HashMap;

use proptest::prelude::*;

use super::super::{Peer, Point};
use super::*;
use crate::token::{DynToken, Sign};

/// A NORMAL, reachable peer; the name is the id.
fn peer(id: u32, dc: &str, rack: &str, tokens: &[u32]) -> Peer {
    Peer {
        id: PeerId(id),
        name: format!("n{id}"),
        host: format!("10.0.0.{id}"),
        port: 8101,
        dc: dc.into(),
        rack: rack.into(),
        tokens: tokens.iter().copied().map(DynToken::from_u32).collect(),
        state: PeerState::Normal,
        reachable: true,
        is_local: id == 0,
        is_torc: false,
    }
}

/// Two datacenters: `a` with racks r1 and r2, `b` with three racks whose names sort oddly.
fn two_dcs(local: u32) -> Vec<Peer> {
    let mut peers = vec![
        peer(0, "a", "r1", &[100]),
        peer(1, "a", "r1", &[200]),
        peer(2, "a", "r2", &[100]),
        peer(3, "a", "r2", &[200]),
        peer(4, "b", "rack10", &[150]),
        peer(5, "b", "rack9", &[150]),
        peer(6, "b", "z", &[150]),
    ];
    for peer in &mut peers {
        peer.is_local = peer.id == PeerId(local);
    }
    peers
}

fn owner_names(topology: &Topology, token: u32) -> Vec<Option<&str>> {
    let owners = topology.owners(&DynToken::from_u32(token));
    owners.iter().map(|owner| owner.map(|idx| topology.peer(idx).name)).collect()
}

#[test]
fn racks_of_the_local_datacenter_come_first_and_names_sort_by_length() {
    let topology = Topology::build(two_dcs(3)).unwrap();
    let racks = topology.racks().iter().map(|rack| (rack.name.as_str(), rack.dc_index));
    let expected = [("r1", 0), ("r2", 0), ("z", 1), ("rack9", 1), ("rack10", 1)];
    assert_eq!(racks.collect::<Vec<_>>(), expected);
    assert_eq!(topology.local_racks(), 0..2);
    assert_eq!(topology.own_rack(), 1);
    assert_eq!((topology.local_dc(), topology.dc_name(1)), ("a", "b"));
    let dc = &topology.remote_dcs()[0];
    assert_eq!((dc.name.as_str(), &dc.racks, dc.preselected), ("b", &(2..5), 3));

    let from_b = Topology::build(two_dcs(4)).unwrap();
    assert_eq!(from_b.local_racks(), 0..3);
    assert_eq!(from_b.own_rack(), 2);
    // Rack number 2 of the own datacenter, modulo two remote racks.
    assert_eq!(from_b.remote_dcs()[0].preselected, 3);
}

#[test]
fn every_rack_has_one_owner_and_the_top_wraps_to_the_first() {
    let topology = Topology::build(two_dcs(0)).unwrap();
    let owners = |a, b| vec![Some(a), Some(b), Some("n6"), Some("n5"), Some("n4")];
    assert_eq!(owner_names(&topology, 0), owners("n0", "n2"));
    assert_eq!(owner_names(&topology, 100), owners("n0", "n2"));
    assert_eq!(owner_names(&topology, 101), owners("n1", "n3"));
    assert_eq!(owner_names(&topology, 200), owners("n1", "n3"));
    assert_eq!(owner_names(&topology, 201), owners("n0", "n2"));
    let set = topology.owners(&DynToken::from_u32(1));
    assert_eq!(set.owner(0), topology.idx_of(PeerId(0)));
    assert_eq!(set.owner(5), None);
}

#[test]
fn equal_owners_have_equal_set_ids() {
    let topology = Topology::build(two_dcs(0)).unwrap();
    let id = |token| topology.owners(&DynToken::from_u32(token)).set_id();
    assert_eq!(id(1), id(100));
    assert_eq!(id(1), id(u32::MAX));
    assert_eq!(id(120), id(160));
    assert_ne!(id(100), id(101));
}

#[test]
fn a_leaving_peer_owns_nothing_and_a_down_one_keeps_its_arc() {
    let mut peers = two_dcs(0);
    peers[1].state = PeerState::Leaving;
    peers[3].state = PeerState::Down;
    peers[6].state = PeerState::Leaving;
    let topology = Topology::build(peers).unwrap();
    let expected = [Some("n0"), Some("n3"), None, Some("n5"), Some("n4")];
    assert_eq!(owner_names(&topology, 150), expected);
    assert_eq!(topology.racks().len(), 5);
    let down = topology.peer(topology.idx_of(PeerId(3)).unwrap());
    assert!(!down.routable());
}

#[test]
fn only_normal_and_joining_peers_that_answer_are_routable() {
    let states = [
        (PeerState::Init, false),
        (PeerState::Standby, false),
        (PeerState::WritesOnly, false),
        (PeerState::Resuming, false),
        (PeerState::Normal, true),
        (PeerState::Leaving, false),
        (PeerState::Joining, true),
        (PeerState::Down, false),
        (PeerState::Reset, false),
        (PeerState::Unknown, false),
    ];
    for (state, routable) in states {
        let mut one = Peer { state, ..peer(0, "a", "r", &[1]) };
        assert_eq!(one.routable(), routable, "{state}");
        one.reachable = false;
        assert!(!one.routable(), "{state}");
    }
}

#[test]
fn a_peer_shows_what_the_table_said() {
    let table = two_dcs(2);
    let topology = Topology::build(table.clone()).unwrap();
    assert_eq!(topology.peers().len(), table.len());
    assert!(topology.peer(topology.local()).is_local);
    for row in &table {
        let shown = topology.peer(topology.idx_of(row.id).unwrap());
        assert_eq!((shown.id, shown.name, shown.host), (row.id, &*row.name, &*row.host));
        assert_eq!((shown.dc, shown.rack, shown.port), (&*row.dc, &*row.rack, row.port));
        assert_eq!((shown.tokens, shown.state), (&*row.tokens, row.state));
        assert_eq!((shown.reachable, shown.is_local), (row.reachable, row.is_local));
        assert_eq!(topology.racks()[shown.rack_index].name, row.rack);
    }
    assert_eq!(topology.idx_of(PeerId(99)), None);
}

#[test]
fn tables_without_exactly_one_local_or_with_a_repeated_id_are_refused() {
    assert_eq!(Topology::build(Vec::new()).unwrap_err(), TopologyError::NoLocal);
    assert_eq!(Topology::build(two_dcs(99)).unwrap_err(), TopologyError::NoLocal);
    let mut twice = two_dcs(0);
    twice[4].is_local = true;
    let error = Topology::build(twice).unwrap_err();
    let (first, second) = ("n0".to_owned(), "n4".to_owned());
    assert_eq!(error, TopologyError::TwoLocals { first, second });
    let mut same_id = two_dcs(0);
    same_id[1].id = PeerId(5);
    let error = Topology::build(same_id).unwrap_err().to_string();
    assert_eq!(error, r#"the peer table has "n1" and "n5" under one id, 5"#);
}

#[test]
fn sizes_are_bounded() {
    let racks = (0..=RACKS_MAX as u32).map(|i| peer(i, "a", &format!("r{i}"), &[i]));
    let count = RACKS_MAX + 1;
    let error = Topology::build(racks.collect()).unwrap_err();
    assert_eq!(error, TopologyError::TooManyRacks { count });
    let peers = vec![peer(0, "a", "r", &[]); PEERS_MAX + 1];
    let error = Topology::build(peers).unwrap_err();
    assert_eq!(error, TopologyError::TooManyPeers { count: PEERS_MAX + 1 });
}

#[test]
fn the_digest_is_that_of_the_ring_alone() {
    let digest = |peers| Topology::build(peers).unwrap().digest();
    let plain = digest(two_dcs(0));
    // The same from another node, even in another datacenter, and in any state.
    assert_eq!(digest(two_dcs(6)), plain);
    let mut down = two_dcs(0);
    down[1].state = PeerState::Down;
    down[2].reachable = false;
    assert_eq!(digest(down), plain);

    let mut moved = two_dcs(0);
    moved[1].tokens = vec![DynToken::from_u32(201)];
    assert_ne!(digest(moved), plain);
    let mut renamed = two_dcs(0);
    renamed[6].rack = "y".into();
    assert_ne!(digest(renamed), plain);
    let mut left = two_dcs(0);
    left[3].state = PeerState::Leaving;
    assert_ne!(digest(left), plain);
}

#[test]
fn bucket_types_use_a_share_of_the_racks_that_the_token_picks() {
    let topology = Topology::build(two_dcs(0)).unwrap();
    let capped = |token, racks, n| {
        topology.capped_racks(&DynToken::from_u32(token), racks, n).collect::<Vec<_>>()
    };
    assert_eq!(capped(7, 2..5, 2), [3, 4]);
    assert_eq!(capped(8, 2..5, 2), [4, 2]);
    assert_eq!(capped(8, 2..5, 9), [4, 2, 3]);
    assert_eq!(capped(8, 0..2, 0), [0]);
    assert_eq!(capped(8, 0..0, 3), [0usize; 0]);
}

/// Tokens that collide, touch and wrap often.
fn ring_token() -> impl Strategy<Value = DynToken> {
    prop_oneof![
        6 => (0..40u32).prop_map(DynToken::from_u32),
        2 => any::<u32>().prop_map(DynToken::from_u32),
        1 => (0..4u32).prop_map(|w| DynToken::from_words(Sign::Negative, &[w]).unwrap()),
        1 => Just(DynToken::from_words(Sign::Positive, &[0]).unwrap()),
        1 => (0..40u128).prop_map(DynToken::from_u128),
    ]
}

/// Tokens as hashes of 32 bits make them.
fn narrow_token() -> impl Strategy<Value = DynToken> {
    prop_oneof![(0..200u32).prop_map(DynToken::from_u32), any::<u32>().prop_map(DynToken::from_u32)]
}

/// Tokens as hashes of 128 bits make them.
fn broad_token() -> impl Strategy<Value = DynToken> {
    prop_oneof![
        (0..200u128).prop_map(DynToken::from_u128),
        (0..9u128).prop_map(|w| DynToken::from_u128((w << 64) | (w % 2))),
        any::<u128>().prop_map(DynToken::from_u128)
    ]
}

fn table(token: impl Strategy<Value = DynToken> + 'static) -> impl Strategy<Value = Vec<Peer>> {
    let place = (0..2u32, 0..3u32);
    let row = (place, prop::collection::vec(token, 0..6), 0..10u32);
    prop::collection::vec(row, 1..24).prop_map(|rows| {
        let row = |(i, ((dc, rack), tokens, state))| {
            let dc = if dc == 0 { "east" } else { "west" };
            let mut row = peer(i, dc, &format!("r{rack}"), &[]);
            row.tokens = tokens;
            row.state = if state == 0 { PeerState::Leaving } else { PeerState::Normal };
            row
        };
        (0..).zip(rows).map(row).collect()
    })
}

/// The literal search over each rack's own continuum, built from the table.
fn check_owners(table: Vec<Peer>, extra: Vec<DynToken>) -> Result<(), TestCaseError> {
    let topology = Topology::build(table.clone()).unwrap();
    let mut wanted = table.iter().flat_map(|peer| peer.tokens.clone()).collect::<Vec<_>>();
    wanted.extend(extra);
    let mut ids = HashMap::new();
    for token in wanted {
        let set = topology.owners(&token);
        let mut expected = Vec::new();
        for (i, rack) in topology.racks().iter().enumerate() {
            let dc = topology.dc_name(rack.dc_index);
            let members = topology.peers().filter(|p| (p.dc, p.rack) == (dc, &*rack.name));
            let owning = members.filter(|p| p.state != PeerState::Leaving);
            let continuum = Continuum::new(
                owning
                    .flat_map(|p| p.tokens.iter().map(move |&token| Point { token, peer: p.idx })),
            );
            prop_assert_eq!(&rack.continuum, &continuum);
            prop_assert_eq!(set.owner(i), continuum.owner(&token), "{} in {}", token, rack.name);
            expected.push(continuum.owner(&token));
        }
        prop_assert_eq!(set.iter().collect::<Vec<_>>(), expected.clone());
        prop_assert_eq!(ids.entry(expected).or_insert(set.set_id()), &set.set_id());
    }
    let mut distinct = ids.values().collect::<Vec<_>>();
    distinct.sort();
    distinct.dedup();
    prop_assert_eq!(distinct.len(), ids.len());
    Ok(())
}

proptest! {
    #[test]
    fn owners_are_those_of_each_racks_literal_search(
        table in table(ring_token()),
        extra in prop::collection::vec(ring_token(), 30),
    ) {
        check_owners(table, extra)?;
    }

    #[test]
    fn owners_are_right_where_all_tokens_are_narrow(
        table in table(narrow_token()),
        extra in prop::collection::vec(ring_token(), 30),
    ) {
        check_owners(table, extra)?;
    }

    #[test]
    fn owners_are_right_where_all_tokens_are_broad(
        table in table(broad_token()),
        extra in prop::collection::vec(ring_token(), 30),
    ) {
        check_owners(table, extra)?;
    }

    #[test]
    fn the_order_of_the_table_and_the_observer_do_not_matter(
        table in table(ring_token()),
        shuffled in Just(()).prop_perturb(|_, rng| rng),
        observer: prop::sample::Index,
    ) {
        let mut rng = shuffled;
        let mut other = table.clone();
        for i in (1..other.len()).rev() {
            other.swap(i, rng.random_range(0..=i));
        }
        let same_view = Topology::build(other.clone()).unwrap();
        let first = Topology::build(table).unwrap();
        prop_assert_eq!(first.digest(), same_view.digest());
        prop_assert_eq!(first.racks(), same_view.racks());

        let local = observer.index(other.len());
        for (i, peer) in other.iter_mut().enumerate() {
            peer.is_local = i == local;
        }
        let other_view = Topology::build(other).unwrap();
        prop_assert_eq!(first.digest(), other_view.digest());
        for rack in first.racks() {
            let dc = first.dc_name(rack.dc_index);
            let mut others = other_view.racks().iter();
            let same = others.find(|r| r.name == rack.name && other_view.dc_name(r.dc_index) == dc);
            prop_assert_eq!(&same.unwrap().continuum, &rack.continuum);
        }
    }
}
