use super::*;
use crate::ckf::format::FormatError;
use crate::ckf::hashing::BlockHash;
use crate::ckf::vectors;
use proptest::prelude::*;
use serde_json::{Value, json};
use std::collections::BTreeMap;

mod faults;
mod model;

fn producer(expected_blocks: u64) -> DcCkfState {
    DcCkfState::new(ProducerConfig { expected_blocks, ..ProducerConfig::default() }).unwrap()
}

fn source(worker_id: u64, dp_rank: u32) -> Source {
    Source { worker_id, dp_rank }
}

fn stored(source: Source, parent: Option<u64>, blocks: &[(u64, u64)]) -> RouterEvent {
    let block =
        |&(id, hash): &(u64, u64)| StoredBlock { id: ExternalId(id), tokens_hash: BlockHash(hash) };
    let data = EventData::Stored {
        parent: parent.map(ExternalId),
        start_position: None,
        blocks: blocks.iter().map(block).collect(),
    };
    RouterEvent::device(source, data)
}

fn apply(state: &mut DcCkfState, event: &RouterEvent) -> Applied {
    state.apply(event, &mut Vec::new())
}

fn event_of(step: &Value) -> RouterEvent {
    let who = source(vectors::num(&step["worker"]), vectors::num(&step["dp_rank"]) as u32);
    let event = &step["event"];
    if event == "cleared" {
        return RouterEvent::device(who, EventData::Cleared);
    }
    if let Some(removed) = event.get("removed") {
        return RouterEvent::removed_keys(who, vectors::nums(removed));
    }
    let event = &event["stored"];
    let parent = (!event["parent"].is_null()).then(|| vectors::num(&event["parent"]));
    let blocks: Vec<(u64, u64)> = vectors::rows(&event["blocks"])
        .iter()
        .map(|block| (vectors::num(&block["external"]), vectors::num(&block["tokens_hash"])))
        .collect();
    let mut made = stored(who, parent, &blocks);
    if let EventData::Stored { start_position, .. } = &mut made.data {
        *start_position = event["start_position"].as_u64().map(|position| position as u32);
    }
    made
}

/// Residents as the vectors write them: lower bucket, higher bucket, fingerprint, copies.
fn residents(state: &DcCkfState) -> Vec<[u64; 4]> {
    let addressing = crate::ckf::addressing::Addressing::new(state.format());
    let mut found = BTreeMap::new();
    for (bucket, word) in state.words().iter().enumerate() {
        let bucket = bucket as u32;
        for slot in 0..crate::ckf::bucket::SLOTS {
            let fingerprint = crate::ckf::bucket::get(*word, slot);
            if fingerprint != 0 {
                let other = addressing.alternate(bucket, fingerprint);
                let key = [bucket.min(other), bucket.max(other), u32::from(fingerprint)];
                *found.entry(key).or_insert(0u64) += 1;
            }
        }
    }
    found.into_iter().map(|([a, b, f], n)| [a.into(), b.into(), f.into(), n]).collect()
}

fn hex(value: u64) -> String {
    format!("{value:#018x}")
}

fn state_of(state: &DcCkfState) -> Value {
    let mut owners: Vec<(u64, u32)> =
        state.ownership.iter_counts().map(|(hash, count)| (hash.0, count)).collect();
    owners.sort_unstable();
    let mut lineage: Vec<(Source, ExternalId, SequenceHash)> =
        state.ownership.iter_edges().collect();
    lineage.sort_unstable();
    let sizes = state.sizes();
    json!({
        "owners": owners.iter().map(|(hash, n)| json!([hex(*hash), n, true])).collect::<Vec<_>>(),
        "lineage": lineage
            .iter()
            .map(|(s, id, hash)| json!([s.worker_id, s.dp_rank, hex(id.0), hex(hash.0)]))
            .collect::<Vec<_>>(),
        "occupied": residents(state),
        "occupied_slot_count": sizes.occupied_slots,
        "unique": sizes.unique_hashes,
        "contributions": sizes.contributions,
        "members": sizes.members,
    })
}

#[test]
fn event_scripts_match_the_vectors() {
    for script in vectors::rows(&vectors::ckf()["event_scripts"]) {
        let name = vectors::text(&script["name"]);
        // A full filter follows another rule here, so its script binds errors and load only.
        let omitting = name == "capacity-omission";
        let mut state = DcCkfState::new(ProducerConfig {
            expected_blocks: vectors::num(&script["expected_blocks"]),
            seed: vectors::num(&script["seed"]),
            max_kicks: vectors::num(&script["max_kicks"]) as u32,
            publish_every_n_events: vectors::num(&script["publish_every_n_events"]) as u32,
            table_seed: 1,
        })
        .unwrap();
        assert_eq!(state.format().bucket_count, vectors::num(&script["bucket_count"]));
        for step in vectors::rows(&script["steps"]) {
            let mut images = Vec::new();
            let applied = state.apply(&event_of(step), &mut images);
            let error = applied.first_error.map(|error| error.label());
            assert_eq!(error, step["first_error"].as_str(), "{name}: {step}");
            if omitting {
                assert!(state.sizes().occupied_slots <= 8);
                assert_eq!(state.sizes().unique_hashes, state.sizes().occupied_slots);
                continue;
            }
            assert_eq!(applied.unknown_removals, vectors::num(&step["unknown_removals"]));
            assert_eq!(Some(applied.boundary), step["publication_boundary"].as_bool());
            let count = (!images.is_empty()).then_some(images.len() as u64);
            assert_eq!(count, step["published_image_count"].as_u64(), "{name}: {step}");
            assert_eq!(state_of(&state), step["state_after"], "{name}: {step}");
        }
        let counters = state.counters();
        let total = |name: &str| vectors::num(&script[name]);
        assert_eq!(counters.parent_not_found, total("parent_not_found_total"));
        assert_eq!(counters.capacity_omissions, total("capacity_failures_total"), "{name}");
        if !omitting {
            assert_eq!(counters.unknown_removals, total("unknown_removals_total"));
        }
    }
}

#[test]
fn ids_of_engines_are_names_and_not_hashes() {
    // Two engines name the same content differently, and different content alike.
    let mut state = producer(64);
    apply(&mut state, &stored(source(1, 0), None, &[(7, 100), (8, 200)]));
    apply(&mut state, &stored(source(2, 0), None, &[(8, 100), (7, 200)]));
    let first = SequenceHash(100);
    let second = first.child(BlockHash(200));
    assert_eq!((state.owner_count(first), state.owner_count(second)), (2, 2));
    assert_eq!(state.owner_count(SequenceHash(7)), 0);
    apply(&mut state, &RouterEvent::removed_keys(source(1, 0), [7]));
    assert_eq!((state.owner_count(first), state.owner_count(second)), (1, 2));
    apply(&mut state, &RouterEvent::removed_keys(source(2, 0), [7]));
    assert_eq!((state.owner_count(first), state.owner_count(second)), (1, 1));
}

#[test]
fn an_omitted_block_is_unknown_but_its_children_resolve() {
    let mut state = producer(1);
    let who = source(1, 0);
    let fill: Vec<RouterEvent> = (1..=8).map(|hash| RouterEvent::stored_key(who, hash)).collect();
    fill.iter().for_each(|event| assert_eq!(apply(&mut state, event).first_error, None));
    let full = |applied: Applied| applied.first_error == Some(EventError::CapacityExhausted);
    assert!(full(apply(&mut state, &stored(who, None, &[(90, 9)]))));
    let sizes = state.sizes();
    assert_eq!((sizes.contributions, sizes.unique_hashes), (8, 8));

    // Its name still resolves, and still cannot be given to another block.
    assert!(full(apply(&mut state, &stored(who, Some(90), &[(91, 10)]))));
    let renamed = apply(&mut state, &stored(who, None, &[(90, 11)]));
    assert_eq!(renamed.first_error, Some(EventError::InvalidBlockSequence));

    // With room, the same store succeeds, and the child hangs on the same chain.
    apply(&mut state, &RouterEvent::removed_keys(who, [1, 2]));
    assert_eq!(apply(&mut state, &stored(who, Some(90), &[(91, 10)])).first_error, None);
    assert_eq!(state.owner_count(SequenceHash(9).child(BlockHash(10))), 1);
    assert_eq!(state.owner_count(SequenceHash(9)), 0);

    // Removing the omitted one is unknown, and then nothing of it is left.
    assert_eq!(apply(&mut state, &RouterEvent::removed_keys(who, [90])).unknown_removals, 1);
    let orphan = apply(&mut state, &stored(who, Some(90), &[(92, 10)]));
    assert_eq!(orphan.first_error, Some(EventError::ParentBlockNotFound));
}

#[test]
fn more_sources_than_a_hash_can_name_are_counted() {
    let mut state = producer(1000);
    // A key of its own each, and one that all of them hold.
    for worker in 0..300 {
        let who = source(worker, 0);
        let keys = [SequenceHash(1000 + worker), SequenceHash(7)].to_vec();
        apply(&mut state, &RouterEvent::device(who, EventData::Appeared(keys)));
    }
    assert_eq!(state.owner_count(SequenceHash(7)), 300);
    assert_eq!((state.unique_hashes(), state.edges().count()), (301, 600));
    for worker in (0..300).rev() {
        let who = source(worker, 0);
        let applied = apply(&mut state, &RouterEvent::removed_keys(who, [7, 1000 + worker, 9]));
        assert_eq!((applied.first_error, applied.unknown_removals), (None, 1), "{worker}");
        assert_eq!(state.owner_count(SequenceHash(7)), worker as u32);
    }
    assert_eq!((state.unique_hashes(), state.sizes().occupied_slots), (0, 0));
}

#[test]
fn a_block_with_many_names_is_counted() {
    for owners in 1..9 {
        let mut state = producer(100);
        for worker in 0..owners {
            apply(&mut state, &stored(source(worker, 0), None, &[(900 + worker, 7)]));
        }
        for left in (0..owners).rev() {
            assert_eq!(state.owner_count(SequenceHash(7)), left as u32 + 1);
            let event = RouterEvent::removed_keys(source(left, 0), [900 + left]);
            assert_eq!(apply(&mut state, &event).unknown_removals, 0);
            let held = usize::from(left > 0);
            assert_eq!((state.unique_hashes(), state.sizes().occupied_slots), (held, held));
        }
    }
}

#[test]
fn events_about_something_else_do_not_count() {
    let mut state = producer(8);
    let mut event = RouterEvent::stored_key(source(1, 0), 5);
    event.tier = StorageTier::Disk;
    assert_eq!(apply(&mut state, &event), Applied::default());
    event.residency = ResidencyDomain::Unknown;
    let refused = apply(&mut state, &event);
    assert_eq!(refused.first_error, Some(EventError::UnsupportedResidencyDomain));
    assert!(!refused.boundary);
    assert_eq!(state.counters(), ProducerCounters::default());
    // An empty store is an event that changes nothing.
    let applied = apply(&mut state, &stored(source(1, 0), None, &[]));
    assert_eq!((applied.first_error, applied.boundary), (None, true));
    assert_eq!((state.counters().events, state.sizes().members), (1, 0));
}

#[test]
fn workers_and_ranks_leave_whole() {
    let mut state = producer(64);
    for (worker, rank, hash) in [(1, 0, 10), (1, 1, 10), (1, 1, 11), (2, 0, 11)] {
        apply(&mut state, &RouterEvent::stored_key(source(worker, rank), hash));
    }
    apply(&mut state, &stored(source(1, 1), None, &[(70, 12), (71, 13)]));
    assert!(state.remove_rank(source(1, 0), &mut Vec::new()).boundary);
    assert_eq!(state.owner_count(SequenceHash(10)), 1);
    let mut images = Vec::new();
    state.remove_worker(1, &mut images);
    assert!(!images.is_empty());
    let sizes = state.sizes();
    assert_eq!((sizes.members, sizes.unique_hashes, sizes.occupied_slots), (1, 1, 1));
    state.remove_worker(3, &mut Vec::new());
    assert_eq!(state.owner_count(SequenceHash(11)), 1);
}

#[test]
fn replacing_ranks_publishes_only_what_differs() {
    let mut state = producer(64);
    let (kept, replaced) = (source(1, 0), source(2, 0));
    apply(&mut state, &stored(kept, None, &[(7, 1), (8, 2)]));
    for hash in 100..110 {
        apply(&mut state, &RouterEvent::stored_key(replaced, hash));
    }
    let before = state.words().to_vec();

    let listing: Vec<RouterEvent> =
        (105..112).map(|hash| RouterEvent::stored_key(replaced, hash)).collect();
    let mut images = Vec::new();
    state.replace_ranks(&[replaced], &listing, &mut images).unwrap();
    let counts: Vec<u32> = (100..112).map(|hash| state.owner_count(SequenceHash(hash))).collect();
    assert_eq!(counts, [0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1]);
    assert_eq!(state.owner_count(SequenceHash(1)), 1);
    let mut mirror = before;
    for image in &images {
        assert_ne!(mirror[image.bucket as usize], image.word);
        mirror[image.bucket as usize] = image.word;
    }
    assert_eq!(mirror, state.words());

    let foreign = [RouterEvent::stored_key(kept, 1)];
    let refused = state.replace_ranks(&[replaced], &foreign, &mut images);
    assert_eq!(refused, Err(ReplaceError::ForeignEvent));
    let orphan = [stored(replaced, Some(999), &[(1, 1)])];
    let refused = state.replace_ranks(&[replaced], &orphan, &mut images);
    assert_eq!(refused, Err(ReplaceError::Event(EventError::ParentBlockNotFound)));
    assert_eq!(mirror, state.words());
}

#[test]
fn a_configuration_out_of_range_is_named() {
    let base = ProducerConfig { expected_blocks: 8, ..ProducerConfig::default() };
    let error = |config| DcCkfState::new(config).map(|_| ()).unwrap_err();
    assert_eq!(error(ProducerConfig { expected_blocks: 0, ..base }), BuildError::NoExpectedBlocks);
    assert_eq!(error(ProducerConfig { max_kicks: 0, ..base }), BuildError::MaxKicks(0));
    assert_eq!(error(ProducerConfig { max_kicks: 4097, ..base }), BuildError::MaxKicks(4097));
    let never = ProducerConfig { publish_every_n_events: 0, ..base };
    assert_eq!(error(never), BuildError::PublishEveryZero);
    let vast = ProducerConfig { expected_blocks: u64::MAX, ..base };
    assert_eq!(error(vast), BuildError::Format(FormatError::TooManyBlocks(u64::MAX)));
}
