mod anew;

use super::*;
use crate::affinity::member::Change;
use crate::affinity::publication::{Frame, Subscriber};
use crate::ckf::hashing::ExternalId;
use crate::ckf::producer::{EventData, RouterEvent, Source, StoredBlock};
use crate::ckf::ringkey::{ring_key_domain, ring_key_hash};
use std::sync::Arc;

/// The shape of a domain of these datacenters, with small filters.
pub(crate) fn spec(name: &str, kind: Kind, dcs: &[&str]) -> DomainSpec {
    DomainSpec {
        name: name.into(),
        id: ring_key_domain([("authority", name)], [("authority", name)]).unwrap(),
        kind,
        datacenters: dcs.iter().map(|dc| dc.to_string()).collect(),
        expected: 1000,
        stale_after_ms: 100,
        resize_bytes_max: 1 << 20,
        consumer: ConsumerInstanceId(1),
        table_seed: 0,
    }
}

fn key(name: &str) -> SequenceHash {
    ring_key_hash(KeyProtocol::Resp, name.as_bytes())
}

#[test]
fn a_member_that_tells_its_keys_is_believed_while_it_tells() {
    let spec = spec("keys", Kind::Keys(KeyProtocol::Resp), &["own", "other"]);
    let domain = Domain::new(spec).unwrap();
    let source = Source { worker_id: 1, dp_rank: 0 };
    let stored = [Change::Stored(key("a"))];
    domain.publish(7).unwrap();
    domain.set_hears(true, 1, 1);
    domain.apply_changes(source, &stored, 0).unwrap();
    let mut masks = [0, 0];
    let hashes = [key("a"), key("b")];
    assert_eq!(domain.probe(&hashes, &mut masks, 100), 0b01);
    assert_eq!(masks, [0b01, 0]);
    assert_eq!(domain.probe(&hashes, &mut masks, 101), 0);
    domain.apply_changes(source, &[Change::Removed(key("a"))], 200).unwrap();
    assert_eq!(domain.probe(&hashes, &mut masks, 200), 0b01);
    assert_eq!(masks, [0, 0]);
    let report = domain.producer_report().unwrap();
    assert_eq!((report.sequence, report.sizes.unique_hashes), (Some(2), 0));

    // A new life begins empty, and is the own datacenter's lane again.
    domain.forget().unwrap();
    domain.publish(8).unwrap();
    domain.apply_changes(source, &stored, 300).unwrap();
    assert_eq!(domain.probe(&hashes, &mut masks, 300), 0b01);
    assert_eq!(masks, [0b01, 0]);
}

#[test]
fn depths_are_told_for_every_datacenter() {
    let kind = Kind::Blocks { block_size: 16, format: HashFormat::Standard };
    let domain = Domain::new(spec("llm", kind, &["own", "other"])).unwrap();
    domain.publish(1).unwrap();
    domain.set_hears(true, 1, 1);
    let blocks = [BlockHash(5), BlockHash(6), BlockHash(7)];
    let stored = |range: std::ops::Range<usize>| EventData::Stored {
        parent: None,
        start_position: None,
        blocks: blocks[range]
            .iter()
            .map(|hash| StoredBlock { id: ExternalId(hash.0 + 100), tokens_hash: *hash })
            .collect(),
    };
    let source = Source { worker_id: 1, dp_rank: 0 };
    let event = RouterEvent::device(source, stored(0..2));
    assert_eq!(domain.tell(&event, 5).unwrap().first_error, None);
    let expected = [
        Depth { dc: "own", blocks: Some(2), age_ms: Some(4) },
        Depth { dc: "other", blocks: None, age_ms: None },
    ];
    assert_eq!(domain.depths(Chain::Blocks(&blocks), 9), expected);
    let chain: Vec<SequenceHash> =
        crate::ckf::hashing::sequence_hashes(blocks.into_iter()).collect();
    assert_eq!(domain.depths(Chain::Sequence(&chain), 9), expected);
    assert_eq!(domain.depths(Chain::Sequence(&chain), 500)[0].blocks, None);
}

#[test]
fn two_datacenters_of_one_name_are_refused() {
    let spec = spec("keys", Kind::Keys(KeyProtocol::Resp), &["own", "own"]);
    let error = Domain::new(spec).unwrap_err();
    assert!(matches!(error, DomainError::Consumer(ConsumerError::DuplicateDc(1))));
}

/// Keeps what it is told, up to a number of frames.
struct Kept(Arc<Mutex<Vec<Frame>>>, usize);

impl Subscriber for Kept {
    fn take(&mut self, frame: Frame) -> bool {
        let mut kept = self.0.lock().unwrap();
        kept.push(frame);
        kept.len() < self.1
    }
}

fn published() -> Domain {
    let domain = Domain::new(spec("keys", Kind::Keys(KeyProtocol::Resp), &["a", "b"])).unwrap();
    domain.publish(1).unwrap();
    domain.set_hears(true, 1, 1);
    domain
}

const MEMBER: Source = Source { worker_id: 9, dp_rank: 0 };

#[test]
fn a_subscriber_gets_a_cut_and_everything_after_it() {
    let domain = published();
    domain.apply_changes(MEMBER, &[Change::Stored(key("a"))], 0).unwrap();
    let frames = Arc::new(Mutex::new(Vec::new()));
    let cut = domain.subscribe(Box::new(Kept(Arc::clone(&frames), 9))).unwrap();
    assert_eq!((cut.sequence, domain.publication().unwrap().sequence), (1, 1));
    let mut words = cut.words;
    for name in ["b", "c"] {
        domain.apply_changes(MEMBER, &[Change::Stored(key(name))], 0).unwrap();
    }
    domain.publish(2).unwrap();
    let frames = std::mem::take(&mut *frames.lock().unwrap());
    let mut at = cut.sequence;
    for frame in &frames[..2] {
        let Frame::Delta(delta) = frame else { panic!("a change") };
        assert_eq!((delta.base, delta.sequence), (at, at + 1));
        at = delta.sequence;
        delta.images.iter().for_each(|image| words[image.bucket as usize] = image.word);
    }
    assert_eq!((frames.len(), &frames[2]), (3, &Frame::Ended));
    // The new generation begins with what the old one had come to.
    let again = domain.subscribe(Box::new(Kept(Arc::default(), 9))).unwrap();
    assert_eq!((again.words, again.identity.producer_incarnation), (words, 2));
    domain.stand_by();
    assert_eq!(domain.publication(), None);
    assert!(domain.holds_state());
}

#[test]
fn a_subscriber_that_cannot_take_more_is_forgotten() {
    let domain = published();
    let frames = Arc::new(Mutex::new(Vec::new()));
    domain.subscribe(Box::new(Kept(Arc::clone(&frames), 1))).unwrap();
    for n in 0..5 {
        domain.apply_changes(MEMBER, &[Change::Stored(key(&n.to_string()))], 0).unwrap();
    }
    assert_eq!(frames.lock().unwrap().len(), 1);
}

#[test]
fn a_lane_of_another_node_is_installed_and_follows() {
    let there = published();
    there.apply_changes(MEMBER, &[Change::Stored(key("a"))], 0).unwrap();
    let mut spec = spec("keys", Kind::Keys(KeyProtocol::Resp), &["b", "a"]);
    spec.consumer = ConsumerInstanceId(2);
    let here = Domain::new(spec).unwrap();
    let buckets = here.format().buckets();
    let part = there.published_part(0, buckets).unwrap();
    assert_eq!(part.before.len(), 1, "what was not taken before comes first");
    let identity = here.identity_of(1, 1, 1, here.format()).unwrap();
    assert_eq!(identity, part.identity);
    here.install(1, identity, part.sequence, part.words).unwrap();
    here.lanes().get(1).unwrap().heard(0);
    let held = |name: &str| {
        let mut mask = [0];
        let believed = here.probe(&[key(name)], &mut mask, 0);
        (believed, mask[0])
    };
    assert_eq!(held("a"), (0b10, 0b10));
    there.apply_changes(MEMBER, &[Change::Removed(key("a"))], 0).unwrap();
    there.apply_changes(MEMBER, &[Change::Stored(key("b"))], 0).unwrap();
    let changes = there.take_published();
    assert!(changes.iter().all(|delta| here.apply_delta(1, delta)));
    assert_eq!((held("a").1, held("b").1), (0, 0b10));
    assert_eq!(
        here.lane_part(1, 0, buckets).unwrap().words,
        there.published_part(0, buckets).unwrap().words
    );
    // A gap takes it out of answers.
    there.apply_changes(MEMBER, &[Change::Stored(key("c"))], 0).unwrap();
    there.take_published();
    there.apply_changes(MEMBER, &[Change::Stored(key("d"))], 0).unwrap();
    assert!(!here.apply_delta(1, &there.take_published()[0]));
    assert_eq!(held("b").0, 0);
}

/// A datacenter of its own size that holds one key.
fn datacenter(dc: &str, expected: u64, held: &str) -> Domain {
    let shape = spec("keys", Kind::Keys(KeyProtocol::Resp), &[dc, "here"]);
    let domain = Domain::new(DomainSpec { expected, ..shape }).unwrap();
    domain.publish(expected).unwrap();
    domain.set_hears(true, 1, 1);
    domain.apply_changes(MEMBER, &[Change::Stored(key(held))], 0).unwrap();
    domain
}

/// Puts what a datacenter publishes into a lane; the answer is whether it got in.
fn fetch(here: &Domain, lane: u8, from: &Domain) -> Result<(), NotInstalled> {
    let part = from.published_part(0, from.format().buckets()).unwrap();
    here.install(lane, part.identity, part.sequence, part.words)?;
    here.lanes().get(lane).unwrap().heard(0);
    Ok(())
}

#[test]
fn filters_of_another_size_answer_beside_the_others() {
    let keys = Kind::Keys(KeyProtocol::Resp);
    let here = Domain::new(spec("keys", keys, &["here", "a", "b"])).unwrap();
    let bytes = here.table_bytes();
    let held = |name: &str| {
        let mut mask = [0];
        let believed = here.probe(&[key(name)], &mut mask, 0);
        let chain = here.depths(Chain::Sequence(&[key(name)]), 0);
        for (lane, depth) in (0u8..).zip(chain) {
            let bit = u32::from(mask[0] >> lane & 1);
            assert_eq!(depth.blocks, (believed >> lane & 1 == 1).then_some(bit), "lane {lane}");
        }
        (believed, mask[0])
    };
    let (small_a, small_b) = (datacenter("a", 1000, "x"), datacenter("b", 1000, "y"));
    fetch(&here, 1, &small_a).unwrap();
    fetch(&here, 2, &small_b).unwrap();
    assert_eq!((held("x"), held("y")), ((0b110, 0b010), (0b110, 0b100)));

    // One is resized, then the other: each answers from what it had until the new filter is in.
    let large_a = datacenter("a", 4000, "x2");
    fetch(&here, 1, &large_a).unwrap();
    assert!(here.table_bytes() > bytes);
    assert_eq!((held("x2"), held("y")), ((0b110, 0b010), (0b110, 0b100)));
    assert_eq!(held("x"), (0b110, 0), "its old filter is gone");
    large_a.apply_changes(MEMBER, &[Change::Stored(key("z"))], 0).unwrap();
    let changes = large_a.take_published();
    assert!(changes.iter().all(|delta| here.apply_delta(1, delta)));
    assert_eq!(held("z"), (0b110, 0b010));
    assert!(here.lane_load(1).unwrap() < here.lane_load(2).unwrap(), "each by its own size");

    // A third size has no place, and changes nothing.
    let third = datacenter("b", 9000, "y");
    let refused = fetch(&here, 2, &third).unwrap_err();
    assert!(matches!(refused, NotInstalled::Size(OtherSize::Third { .. })), "{refused}");
    assert_eq!(held("y"), (0b110, 0b100));
    fetch(&here, 2, &datacenter("b", 4000, "y2")).unwrap();
    assert_eq!(held("y2"), (0b110, 0b100));

    // This node is resized as well, and takes over what it had.
    let shape = DomainSpec { expected: 4000, ..here.spec().clone() };
    let next = here.move_to(shape).unwrap();
    let mut mask = [0];
    assert_eq!((next.probe(&[key("y2")], &mut mask, 0), mask[0]), (0b110, 0b100));
    // Both go back: the second table is given up.
    fetch(&here, 1, &small_a).unwrap();
    here.drop_lane(2);
    assert_eq!((here.table_bytes(), held("x")), (bytes, (0b010, 0b010)));
}

#[test]
fn a_filter_whose_table_would_be_too_large_is_refused() {
    let keys = Kind::Keys(KeyProtocol::Resp);
    let here = Domain::new(spec("keys", keys, &["here", "a"])).unwrap();
    let large = CkfFormat::for_blocks(DEFAULT_SEED, 1_000_000).unwrap();
    let refused = here.admits(1, large).unwrap_err();
    assert!(matches!(refused, OtherSize::TooLarge { needs: 8, left: 1, .. }), "{refused}");
    let seeded = CkfFormat { seed: 1, ..here.format() };
    assert!(matches!(here.admits(1, seeded), Err(OtherSize::Seed { theirs: 1, .. })));
}

#[test]
fn a_listing_replaces_what_a_member_held() {
    let domain = published();
    let other = Source { worker_id: 10, dp_rank: 0 };
    let stored = |names: &[&str]| -> Vec<Change> {
        names.iter().map(|name| Change::Stored(key(name))).collect()
    };
    domain.apply_changes(MEMBER, &stored(&["a", "b", "c"]), 0).unwrap();
    domain.apply_changes(other, &stored(&["a", "d"]), 0).unwrap();
    let listed: Vec<RouterEvent> = state::events_of(MEMBER, &stored(&["b", "e"])).collect();
    domain.reconcile(&[MEMBER], &listed, 0).unwrap();
    let names = ["a", "b", "c", "d", "e"].map(key);
    let mut masks = [0; 5];
    assert_eq!(domain.probe(&names, &mut masks, 0), 1);
    assert_eq!(masks, [1, 1, 0, 1, 1]);
    assert_eq!(domain.producer_report().unwrap().sizes.contributions, 4);
}

#[test]
fn engines_events_are_kept_for_the_next_holder() {
    let kind = Kind::Blocks { block_size: 16, format: HashFormat::Standard };
    let domain = Domain::new(spec("llm", kind, &["own"])).unwrap();
    let stored = EventData::Stored {
        parent: None,
        start_position: None,
        blocks: vec![
            StoredBlock { id: ExternalId(1), tokens_hash: BlockHash(5) },
            StoredBlock { id: ExternalId(2), tokens_hash: BlockHash(6) },
        ],
    };
    domain.tell(&RouterEvent::device(MEMBER, stored), 0).unwrap();
    let News::Events(news) = domain.news() else { panic!("few events") };
    let second = SequenceHash::after(Some(SequenceHash(5)), BlockHash(6));
    let resolved = vec![(ExternalId(1), SequenceHash(5)), (ExternalId(2), second)];
    assert_eq!(news, [RouterEvent::device(MEMBER, EventData::Resolved(resolved))]);
    assert_eq!(domain.engines_listing(), news);
    assert_eq!(domain.news(), News::Events(Vec::new()));
    let holder = Domain::new(domain.spec().clone()).unwrap();
    holder.publish(1).unwrap();
    holder.set_hears(true, 1, 1);
    holder.reconcile(&[MEMBER], &news, 0).unwrap();
    let chain = Chain::Blocks(&[BlockHash(5), BlockHash(6)]);
    assert_eq!(holder.depths(chain, 0)[0].blocks, Some(2));
}

#[test]
fn a_lane_that_failed_begins_anew_and_the_state_stays() {
    let domain = published();
    let stored = |name: &str| [Change::Stored(key(name))];
    domain.apply_changes(MEMBER, &stored("a"), 0).unwrap();
    let frames = Arc::new(Mutex::new(Vec::new()));
    domain.subscribe(Box::new(Kept(Arc::clone(&frames), 9))).unwrap();
    domain.take_published();
    domain.holder.lock().unwrap().producer().unwrap().adapter.retire_lane();
    domain.apply_changes(MEMBER, &stored("b"), 0).unwrap();
    domain.apply_changes(MEMBER, &stored("c"), 0).unwrap();
    let mut masks = [0; 3];
    assert_eq!(domain.probe(&["a", "b", "c"].map(key), &mut masks, 0), 1);
    assert_eq!(masks, [1; 3]);
    assert!(!domain.is_damaged(), "members have nothing to tell again");
    assert_eq!(domain.producer_report().unwrap().recoveries, 1);
    // Who follows cannot follow over the break, and begins anew.
    assert_eq!(*frames.lock().unwrap(), [Frame::Ended]);
    let after = domain.take_published();
    assert!(after.windows(2).all(|two| two[0].sequence == two[1].base));
}
