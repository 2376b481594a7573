use std::sync::Arc;

use super::super::scripted::{Scripted, ring, view};
use super::super::view::{BucketType, BucketTypes, Settings, View};
use super::*;
use crate::affinity::Affinity;
use crate::affinity::domain::tests::spec;
use crate::affinity::domain::{DomainSpec, Kind};
use crate::affinity::member::Change;
use crate::ckf::identity::ConsumerInstanceId;
use crate::ckf::producer::Source;
use crate::ring::{Peer, PeerState};

const MISS: &str = "$-1\r\n";

/// The filters of other datacenters as `near` sees them, with what each of them holds.
pub(in crate::dispatch) struct Filters {
    near: Arc<Domain>,
    others: Vec<Domain>,
}

fn domain(datacenters: Vec<String>, consumer: u64) -> Domain {
    let spec = DomainSpec {
        datacenters,
        stale_after_ms: 30_000,
        resize_bytes_max: 1 << 30,
        consumer: ConsumerInstanceId(consumer),
        ..spec("keys", Kind::Keys(KeyProtocol::Resp), &[])
    };
    let domain = Domain::new(spec).unwrap();
    domain.publish(1).unwrap();
    domain.set_hears(true, 1, 1);
    domain
}

impl Filters {
    pub(in crate::dispatch) fn new() -> Filters {
        Filters::of(2)
    }

    /// So many datacenters, `dc1` the own one.
    fn of(count: usize) -> Filters {
        let from = |own: usize| {
            let names = (0..count).map(|n| format!("dc{}", (own + n) % count + 1));
            domain(names.collect(), own as u64 + 1)
        };
        let filters = Filters { near: Arc::new(from(0)), others: (1..count).map(from).collect() };
        (1..count).for_each(|lane| filters.tell_of(lane, &[]));
        filters.tell(&[], &[]);
        filters
    }

    pub(in crate::dispatch) fn tell(&self, near: &[&str], far: &[&str]) {
        store(&self.near, near);
        self.tell_of(1, far);
    }

    /// Another datacenter holds these keys too.
    fn tell_of(&self, lane: usize, keys: &[&str]) {
        let other = &self.others[lane - 1];
        store(other, keys);
        let part = other.published_part(0, usize::MAX >> 1).unwrap();
        self.near.install(lane as u8, part.identity, part.sequence, part.words).unwrap();
        self.near.lanes().get(lane as u8).unwrap().heard(1000);
    }
}

fn store(domain: &Domain, keys: &[&str]) {
    let source = Source { worker_id: 1, dp_rank: 0 };
    let stored = |key: &&str| Change::Stored(hash(key.as_bytes()));
    let changes: Vec<Change> = keys.iter().map(stored).collect();
    domain.apply_changes(source, &changes, 1000).unwrap();
}

/// A node of dc1 with a redis store, one other datacenter of one node.
fn node(filters: &Filters) -> Scripted {
    let settings = Settings { route_reads: true, ..Settings::default() };
    node_with(filters, settings)
}

pub(in crate::dispatch) fn node_with(filters: &Filters, settings: Settings) -> Scripted {
    let all = [("n1", "dc1/r1", 0), ("far", "dc2/r1", 0), ("third", "dc3/r1", 0)];
    node_in(ring(&all[..filters.others.len() + 1]), filters, settings)
}

fn node_in(peers: Vec<Peer>, filters: &Filters, settings: Settings) -> Scripted {
    let mut scripted = Scripted::new(peers.clone(), Settings::default());
    let plain = Arc::try_unwrap(view(peers, settings)).expect("nobody else has it");
    let affinity = Some(Arc::new(Affinity::new(Arc::clone(&filters.near), Vec::new())));
    let kv = BucketType {
        name: "kv".into(),
        prefix: b"kv/".to_vec(),
        read: None,
        write: None,
        n_val: None,
        stays: true,
    };
    let buckets = BucketTypes::new(vec![kv], None);
    scripted.node.set_view(Arc::new(View { affinity, buckets, ..plain }));
    scripted.connect();
    scripted
}

#[test]
fn a_key_that_is_elsewhere_is_read_there() {
    let filters = Filters::new();
    filters.tell(&["both"], &["both", "k"]);
    let mut node = node(&filters);
    node.send("GET k");
    assert_eq!((node.sent("far"), node.sent("store").len()), (vec!["3 GET k".to_owned()], 0));
    node.answer("far", "$1\r\nv\r\n");
    assert_eq!(node.replies(), "$1\r\nv\r\n");
    // What is here, and what is nowhere, is read here.
    for key in ["both", "nowhere"] {
        node.send(&format!("GET {key}"));
        assert_eq!(node.sent("store"), [format!("GET {key}")]);
        assert!(node.sent("far").is_empty());
        let reply = if key == "both" { "$1\r\nb\r\n" } else { MISS };
        node.answer("store", reply);
        assert_eq!(node.replies(), reply);
    }
    let counters = node.node.counters();
    assert_eq!((counters.affinity_hits, counters.affinity_nobody), (1, 1));
}

#[test]
fn a_filter_that_was_wrong_costs_one_hop_and_is_remembered() {
    let filters = Filters::new();
    filters.tell(&[], &["k"]);
    let mut node = node(&filters);
    node.send("GET k");
    node.sent("far");
    node.answer("far", MISS);
    assert_eq!(node.sent("store"), ["GET k"]);
    node.answer("store", "$1\r\nx\r\n");
    assert_eq!(node.replies(), "$1\r\nx\r\n");
    node.send("GET k");
    assert_eq!((node.sent("far").len(), node.sent("store").len()), (0, 1));
    node.answer("store", MISS);
    assert_eq!(node.replies(), MISS);
    node.now.mono_us += 6_000_000;
    node.send("GET k");
    assert_eq!(node.sent("far").len(), 1);
    assert_eq!(node.node.counters().affinity_false_positives, 1);
}

#[test]
fn a_key_that_only_seems_to_be_here_is_sought_elsewhere_once() {
    let filters = Filters::new();
    filters.tell(&["k"], &["k"]);
    let mut node = node(&filters);
    node.send("GET k");
    assert_eq!((node.sent("store").len(), node.sent("far").len()), (1, 0));
    node.answer("store", MISS);
    assert_eq!(node.sent("far"), ["3 GET k"]);
    node.answer("far", "$1\r\nv\r\n");
    assert_eq!(node.replies(), "$1\r\nv\r\n");
    // An empty field is no proof that the key is absent.
    node.send("HGET k f");
    node.sent("store");
    node.answer("store", MISS);
    assert_eq!(node.replies(), MISS);
}

#[test]
fn a_datacenter_that_fails_means_the_plan_as_ever() {
    let filters = Filters::new();
    filters.tell(&[], &["k"]);
    let mut node = node(&filters);
    node.send("GET k");
    node.sent("far");
    node.lose("far");
    assert_eq!(node.sent("store"), ["GET k"]);
    node.answer("store", MISS);
    assert_eq!(node.replies(), MISS);
    node.send("GET k");
    assert_eq!(node.sent("store"), ["GET k"], "it is not connected");
}

/// The other datacenter has two racks, each with a node that holds the keys.
fn with_twin(filters: &Filters, change: impl FnOnce(&mut Vec<Peer>)) -> Scripted {
    filters.tell(&[], &["k", "l"]);
    let mut peers = ring(&[("n1", "dc1/r1", 0), ("far", "dc2/r1", 0), ("twin", "dc2/r2", 0)]);
    change(&mut peers);
    node_in(peers, filters, Settings { route_reads: true, ..Settings::default() })
}

#[test]
fn a_node_that_fails_does_not_hide_what_its_datacenter_holds() {
    let filters = Filters::new();
    let value = "$1\r\nv\r\n";
    let both = format!("*2\r\n{value}{value}");
    for (line, reply) in [("GET k", value), ("MGET k l", &both)] {
        for dies in [true, false] {
            let mut node = with_twin(&filters, |_| ());
            node.send(line);
            assert_eq!((node.sent("far").len(), node.sent("twin").len()), (1, 0));
            match dies {
                true => _ = node.lose("far"),
                // It has just started, and its datastore is not there yet.
                false => node.answer("far", "-ERR Storage: Datastore refused connection\r\n"),
            }
            assert_eq!(node.sent("twin"), [format!("3 {line}")]);
            node.answer("twin", reply);
            assert_eq!((node.replies().as_str(), node.sent("store").len()), (reply, 0));
        }
    }
    // Who fails in turn is not asked again and again.
    let mut node = with_twin(&filters, |_| ());
    node.send("GET k");
    node.sent("far");
    let up = node.lose("far");
    assert_eq!(node.sent("twin").len(), 1);
    node.regain(up);
    node.lose("twin");
    assert_eq!(node.sent("store"), ["GET k"]);
    node.answer("store", MISS);
    assert_eq!((node.replies().as_str(), node.node.in_flight()), (MISS, 0));
}

#[test]
fn a_read_that_waits_for_its_turn_does_not_forget_who_failed() {
    let filters = Filters::new();
    let keys: Vec<String> = (0..=IN_FLIGHT_MAX).map(|n| format!("k{n}")).collect();
    let mut node = with_twin(&filters, |_| ());
    filters.tell(&[], &keys.iter().map(String::as_str).collect::<Vec<_>>());
    keys.iter().for_each(|key| node.send(&format!("GET {key}")));
    assert_eq!(node.sent("far").len(), IN_FLIGHT_MAX as usize);
    // The last one takes the place of the first, which fails and waits for another place.
    node.answer("far", "-ERR Storage: Datastore refused connection\r\n");
    let last = format!("3 GET {}", keys[IN_FLIGHT_MAX as usize]);
    assert_eq!((node.sent("far"), node.sent("twin").len()), (vec![last], 0));
    node.answer("far", "$1\r\nv\r\n");
    assert_eq!((node.sent("twin"), node.sent("far").len()), (vec!["3 GET k0".to_owned()], 0));
}

#[test]
fn a_node_that_joins_is_asked_for_others_keys_when_there_is_no_other() {
    let filters = Filters::new();
    let mut node = with_twin(&filters, |peers| peers[1].state = PeerState::Joining);
    node.send("GET k");
    assert_eq!((node.sent("twin").len(), node.sent("far").len()), (1, 0));
    node.lose("twin");
    assert_eq!(node.sent("far"), ["3 GET k"]);
}

#[test]
fn a_filter_that_was_wrong_does_not_hide_who_holds_the_key() {
    let filters = Filters::of(3);
    filters.tell_of(1, &["k", "l"]);
    filters.tell_of(2, &["k", "l"]);
    let mut node = node(&filters);
    let value = "$1\r\nv\r\n";
    node.send("GET k");
    assert_eq!((node.sent("far"), node.sent("third").len()), (vec!["3 GET k".to_owned()], 0));
    node.answer("far", MISS);
    assert_eq!((node.sent("third"), node.sent("store").len()), (vec!["3 GET k".to_owned()], 0));
    node.answer("third", value);
    assert_eq!(node.replies(), value);
    // From now on that one is asked at once, for some time.
    node.send("MGET k l");
    assert_eq!(node.sent("third"), ["3 MGET k"]);
    assert_eq!(node.sent("far"), ["3 MGET l"]);
    node.answer("third", &format!("*1\r\n{value}"));
    node.answer("far", &format!("*1\r\n{MISS}"));
    assert_eq!(node.sent("third"), ["3 MGET l"]);
    node.answer("third", &format!("*1\r\n{MISS}"));
    assert_eq!(node.sent("store"), ["MGET l"]);
    node.answer("store", &format!("*1\r\n{MISS}"));
    assert_eq!(node.replies(), format!("*2\r\n{value}{MISS}"));
    assert_eq!(node.node.in_flight(), 0);
}

#[test]
fn a_datacenter_that_cannot_be_asked_does_not_hide_another_one() {
    let filters = Filters::of(3);
    filters.tell_of(1, &["k", "l"]);
    filters.tell_of(2, &["k"]);
    let mut node = node(&filters);
    node.send("GET k");
    assert_eq!(node.sent("far").len(), 1);
    node.lose("far");
    assert_eq!(node.sent("third"), ["3 GET k"]);
    node.answer("third", "$1\r\nv\r\n");
    assert_eq!(node.replies(), "$1\r\nv\r\n");
    // Known to be lost it is not even tried; what nobody else holds is read as ever.
    node.send("GET k");
    assert_eq!(node.sent("third"), ["3 GET k"]);
    node.answer("third", "$1\r\nv\r\n");
    assert_eq!(node.replies(), "$1\r\nv\r\n");
    node.send("GET l");
    assert_eq!((node.sent("third").len(), node.sent("store").len()), (0, 1));
}

#[test]
fn many_long_keys_are_read_where_they_are() {
    let filters = Filters::new();
    let keys: Vec<String> = (0..500).map(|n| format!("{n:0>60}")).collect();
    filters.tell(&[], &keys.iter().map(String::as_str).collect::<Vec<_>>());
    let mut node = node(&filters);
    let mget = format!("MGET {}", keys.join(" "));
    node.send(&mget);
    assert_eq!((node.sent("far"), node.sent("store").len()), (vec![format!("3 {mget}")], 0));
    let reply = format!("*500\r\n{}", "$1\r\nv\r\n".repeat(500));
    node.answer("far", &reply);
    assert_eq!(node.replies(), reply);
}

#[test]
fn lanes_that_are_not_believed_and_other_levels_mean_plain_reads() {
    let filters = Filters::new();
    filters.tell(&[], &["k"]);
    let mut node = node(&filters);
    filters.near.lanes().get(1).unwrap().unheard();
    node.send("GET k");
    assert_eq!((node.sent("far").len(), node.sent("store").len()), (0, 1));
    node.answer("store", MISS);
    assert_eq!(node.replies(), MISS);
    // Of the own one nothing is known: it is asked first, and then who seems to hold the key.
    filters.tell(&[], &[]);
    filters.near.lanes().get(0).unwrap().unheard();
    node.send("GET k");
    assert_eq!((node.sent("far").len(), node.sent("store").len()), (0, 1));
    node.answer("store", MISS);
    assert_eq!(node.sent("far"), ["3 GET k"]);
    node.answer("far", "$1\r\nv\r\n");
    assert_eq!(node.replies(), "$1\r\nv\r\n");
    filters.tell(&[], &[]);
    // A filter that is not complete is right about what it names, and about nothing else.
    filters.near.lanes().get(1).unwrap().hinted(1000);
    node.send("GET other");
    assert_eq!((node.sent("far").len(), node.sent("store").len()), (0, 1));
    node.answer("store", MISS);
    assert_eq!(node.replies(), MISS);
    node.send("GET k");
    assert_eq!((node.sent("far").len(), node.sent("store").len()), (0, 1));
    node.answer("store", MISS);
    assert_eq!(node.sent("far"), ["3 GET k"]);
    node.answer("far", "$1\r\nv\r\n");
    assert_eq!(node.replies(), "$1\r\nv\r\n");
    filters.tell(&[], &[]);
    node.send("TORC.CONSISTENCY DC_EACH_SAFE_QUORUM");
    node.replies();
    node.send("GET k");
    assert_eq!((node.sent("far").len(), node.sent("store").len()), (1, 1), "both vote");
}

#[test]
fn one_request_serves_all_that_ask_the_same() {
    let filters = Filters::new();
    filters.tell(&[], &["k"]);
    let mut node = node(&filters);
    for _ in 0..3 {
        node.send("GET k");
    }
    assert_eq!(node.sent("far"), ["3 GET k"]);
    node.answer("far", "$1\r\nv\r\n");
    assert_eq!(node.replies(), "$1\r\nv\r\n".repeat(3));
    assert_eq!(node.node.counters().affinity_shared, 2);
    assert_eq!(node.node.in_flight(), 0);
    assert!(node.node.router.flights.is_empty());
    assert_eq!(node.node.router.in_flight, [0; LANES]);
}

#[test]
fn more_reads_than_may_be_in_flight_wait_for_their_turn() {
    let filters = Filters::new();
    let keys: Vec<String> = (0..IN_FLIGHT_MAX + 20).map(|n| format!("k{n}")).collect();
    let names: Vec<&str> = keys.iter().map(String::as_str).collect();
    filters.tell(&[], &names);
    let mut node = node(&filters);
    keys.iter().for_each(|key| node.send(&format!("GET {key}")));
    let first = node.sent("far").len();
    assert_eq!((first, node.sent("store").len()), (IN_FLIGHT_MAX as usize, 0));
    (0..first).for_each(|_| node.answer("far", "$1\r\nv\r\n"));
    assert_eq!(node.replies(), "$1\r\nv\r\n".repeat(first));
    assert_eq!(node.sent("far").len(), 20);
    // Those that waited are not lost with the connection either.
    node.lose("far");
    assert_eq!(node.sent("store").len(), 20);
    (0..20).for_each(|_| node.answer("store", MISS));
    assert_eq!(node.replies(), MISS.repeat(20));
    assert_eq!((node.node.in_flight(), node.node.router.in_flight), (0, [0; LANES]));
}

#[test]
fn what_was_written_a_moment_ago_is_read_as_ever() {
    let filters = Filters::new();
    filters.tell(&[], &["k"]);
    let mut node = node(&filters);
    node.send("DEL k");
    node.sent("far");
    node.sent("store");
    node.answer("store", ":0\r\n");
    node.replies();
    node.send("GET k");
    assert_eq!((node.sent("far").len(), node.sent("store").len()), (0, 1));
}

#[test]
fn many_keys_are_grouped_by_where_they_are() {
    let filters = Filters::new();
    filters.tell(&["here"], &["there1", "there2"]);
    let mut node = node(&filters);
    let probes = |node: &Scripted| node.node.counters().affinity_probes;
    node.send("MGET there1 here nowhere there2");
    assert_eq!(probes(&node), 1, "one for all keys");
    assert_eq!(node.sent("far"), ["3 MGET there1 there2"]);
    assert_eq!(node.sent("store"), ["MGET here nowhere"]);
    node.answer("store", "*2\r\n$1\r\nh\r\n$-1\r\n");
    node.answer("far", "*2\r\n$1\r\na\r\n$-1\r\n");
    // The filter was wrong about one of them: its group is asked for here as well.
    assert_eq!(node.sent("store"), ["MGET there1 there2"]);
    assert_eq!(probes(&node), 2, "and one for all that is missing");
    node.answer("store", "*2\r\n$-1\r\n$1\r\nb\r\n");
    let reply = "*4\r\n$1\r\na\r\n$1\r\nh\r\n$-1\r\n$1\r\nb\r\n";
    assert_eq!(node.replies(), reply);
    let counters = node.node.counters();
    assert_eq!((counters.affinity_hits, counters.affinity_false_positives), (1, 1));
}

#[test]
fn writes_of_types_that_stay_do_not_leave_the_datacenter_and_deletes_do() {
    let filters = Filters::new();
    let mut node = node(&filters);
    let cases = [
        ("SET kv/1 v", 0),
        ("SET other v", 1),
        ("MSET kv/2 v kv/3 w", 0),
        ("DEL kv/1", 1),
        ("EXPIRE kv/1 100", 1),
        ("RENAME kv/1 kv/1", 1),
    ];
    for (line, far) in cases {
        node.send(line);
        assert_eq!(node.sent("store").len(), 1, "{line}");
        assert_eq!(node.sent("far").len(), far, "{line}");
        node.answer("store", "+OK\r\n");
        node.replies();
    }
}
