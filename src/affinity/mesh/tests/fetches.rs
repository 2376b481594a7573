//! How many whole filters a node fetches at a time, and when it begins.

use super::*;
use crate::affinity::domain::dc_id_of;
use crate::affinity::mesh::message::{ChangeMsg, FilterKind};
use crate::affinity::publication::Delta;
use crate::ckf::bucket::BucketImage;

/// A message about the filter lane `lane` is to have, as its publisher sends it.
fn about(domain: &Domain, lane: u8, kind: FilterKind) -> Filter {
    let format = domain.format();
    let mut message = Filter {
        from: lane.into(),
        dc: dc_id_of(&domain.lanes().get(lane).unwrap().dc).get(),
        incarnation: 7,
        generation: 1,
        buckets: format.bucket_count,
        seed: format.seed,
        complete: true,
        ..Filter::default()
    };
    message.set_kind(kind);
    message
}

fn take(pools: &mut Pools, message: &Filter, (nodes, dice): (usize, u64)) {
    pools.take(message, (nodes, dice), &mut MeshCounters::default(), time(0)).unwrap();
}

/// A domain whose lanes 1 to 5 all wait for their filters, each heard of with such a dice.
fn waiting(dice: u64, nodes: usize) -> Pools {
    let spec = domain("keys", Kind::Keys(KeyProtocol::Resp), "x", 0, 1000).spec().clone();
    let datacenters: Vec<String> = ["x", "a", "b", "c", "d", "e"].map(String::from).into();
    let domain = Arc::new(Domain::new(DomainSpec { datacenters, ..spec }).unwrap());
    let mut pools = Pools::new(Arc::clone(&domain), None);
    for lane in 1..6u8 {
        let dc = domain.lanes().get(lane).unwrap().dc.clone();
        pools.inlets[usize::from(lane)].set_upstream(Some(u64::from(lane)), &dc);
        take(&mut pools, &about(&domain, lane, FilterKind::Beat), (nodes, dice));
    }
    pools
}

fn fetches(pools: &mut Pools, busy: usize, now_ms: u64) -> usize {
    let asked = pools.filters(0, busy, now_ms);
    asked.iter().filter(|(_, filter)| filter.kind() == FilterKind::Fetch).count()
}

#[test]
fn a_node_fetches_two_filters_at_a_time_whatever_they_are_of() {
    assert_eq!(fetches(&mut waiting(0, 1), 0, 100), 2);
    assert_eq!(fetches(&mut waiting(0, 1), 1, 100), 1);
    assert_eq!(fetches(&mut waiting(0, 1), 2, 100), 0);
    let mut pools = waiting(0, 1);
    assert_eq!(fetches(&mut pools, 0, 100), 2);
    assert_eq!(fetches(&mut pools, 0, 200), 0, "both are still under way");
    // What gives no answer makes room in the end, and is begun anew after the others.
    assert!(fetches(&mut pools, 0, 4000) > 0);
}

#[test]
fn fetches_begin_at_a_moment_of_chance() {
    // In a large ring within two seconds, in a small one sooner.
    for (nodes, dice, at_ms) in [(100, 1999, 1999), (100, 2001 + 5, 5), (2, 1999, 1999 % 101)] {
        let mut pools = waiting(dice, nodes);
        assert_eq!(fetches(&mut pools, 0, at_ms - 1), 0, "{nodes} {dice}");
        assert_eq!(fetches(&mut pools, 0, at_ms), 2, "{nodes} {dice}");
    }
}

#[test]
fn a_fetch_that_misses_a_change_begins_anew() {
    for (base, missed) in [(5, false), (6, true)] {
        let mut pools = waiting(0, 1);
        assert_eq!(fetches(&mut pools, 0, 100), 2);
        let domain = Arc::clone(&pools.domain);
        let mut part = about(&domain, 1, FilterKind::Part);
        (part.sequence, part.words) = (5, [1, 2, 3u64].map(u64::to_le_bytes).concat());
        take(&mut pools, &part, (1, 0));
        let images = [BucketImage { bucket: 1, word: 9 }].into();
        let mut changes = about(&domain, 1, FilterKind::Changes);
        changes.changes = vec![ChangeMsg::new(&Delta { base, sequence: base + 1, images })];
        changes.sequence = base + 1;
        take(&mut pools, &changes, (1, 0));
        let inlet = &pools.inlets[1];
        assert_eq!((inlet.is_fetching(), inlet.note().gaps), (!missed, u64::from(missed)));
    }
}

#[test]
fn a_publisher_that_was_replaced_is_not_believed_any_more() {
    let mut pools = waiting(0, 1);
    let mut beat = about(&pools.domain, 1, FilterKind::Beat);
    beat.incarnation = 6;
    take(&mut pools, &beat, (1, 0));
    let inlet = &pools.inlets[1];
    assert_eq!((inlet.note().state.as_str(), inlet.seen()), ("its publisher was replaced", 7));
}
