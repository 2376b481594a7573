use super::lane::{AssignError, LaneOutcome};
use super::*;
use crate::ckf::bucket::BucketImage;
use crate::ckf::cbi1::{self, Assembler, Frame};
use crate::ckf::digest::{self, Selection};
use crate::ckf::failure::Action;
use crate::ckf::format::DEFAULT_SEED;
use crate::ckf::hashing::HashFormat;
use crate::ckf::identity::{DcId, ProducerIdentity};
use crate::ckf::producer::{DcCkfState, ProducerConfig, RouterEvent, Source};
use crate::ckf::publication::{CkfDelta, CkfSnapshot, DrainMarker};
use crate::ckf::publisher::tests::{domain, identity, lease};
use crate::ckf::vectors;
use serde_json::Value;

/// A consumer of sixteen lanes; lane l is datacenter l + 1.
fn consumer(format: CkfFormat, instance: u64, lanes: usize) -> GlobalCkfIndexer {
    let pool = |lane| Some(identity(lane as u64 + 1, format).pool);
    GlobalCkfIndexer::new(ConsumerConfig {
        consumer: ConsumerInstanceId(instance),
        domain: domain(),
        format,
        lanes: (0..lanes).map(pool).collect(),
        verification_window: VERIFICATION_WINDOW_DEFAULT,
        linear_positions: LINEAR_POSITIONS_DEFAULT,
    })
    .unwrap()
}

fn format(buckets: u64) -> CkfFormat {
    CkfFormat::new(DEFAULT_SEED, buckets).unwrap()
}

/// Builds inputs of one stream.
struct Stream {
    identity: ProducerIdentity,
    lease: crate::ckf::identity::LaneLease,
}

impl Stream {
    fn snapshot(&self, sequence: u64, words: usize) -> CkfSnapshot {
        let words = vec![0; words];
        CkfSnapshot { identity: self.identity, lease: self.lease, sequence, words }
    }

    fn delta(&self, base: u64, sequence: u64, images: &[(u32, u64)]) -> CkfDelta {
        let image = |&(bucket, word): &(u32, u64)| BucketImage { bucket, word };
        let images = images.iter().map(image).collect();
        CkfDelta { identity: self.identity, lease: self.lease, base, sequence, images }
    }
}

fn to_snake(name: &str) -> String {
    let mut out = String::new();
    for letter in name.chars() {
        if letter.is_uppercase() && !out.is_empty() {
            out.push('_');
        }
        out.extend(letter.to_lowercase());
    }
    out
}

/// The name in a recorded value that is either text or a map of one name.
fn recorded_name(value: &Value) -> String {
    match value {
        Value::Object(map) => to_snake(map.keys().next().unwrap()),
        other => to_snake(vectors::text(other)),
    }
}

fn assert_recorded(
    row: &Value,
    indexer: &GlobalCkfIndexer,
    lane: &LaneIngestor,
    outcome: LaneOutcome,
) {
    let step = vectors::text(&row["step"]);
    assert_eq!(outcome.label(), recorded_name(&row["outcome"]), "{step}");
    assert_eq!(u64::from(indexer.ready_lanes()), vectors::num(&row["ready_mask"]), "{step}");
    let installed =
        (!row["installed_sequence"].is_null()).then(|| vectors::num(&row["installed_sequence"]));
    assert_eq!(lane.installed_sequence(), installed, "{step}");
    if let LaneOutcome::LaneDeactivated { fault, disposition } = outcome {
        let recorded = &row["outcome"]["LaneDeactivated"]["fault"];
        assert_eq!(fault.label(), recorded_name(recorded), "{step}");
        let action = match disposition.action {
            Action::RetrySnapshot => "RetrySnapshot",
            Action::DeactivateAndSnapshot => "DeactivateAndSnapshot",
            other => panic!("{step}: {other:?}"),
        };
        assert_eq!(action, vectors::text(&row["disposition"]["action"]), "{step}");
    } else {
        assert!(row["disposition"].is_null(), "{step}");
    }
}

#[test]
fn a_lane_judges_as_recorded() {
    let all = vectors::ckf();
    let rows = vectors::rows(&all["consumer_ingest"]["steps"]);
    let format = format(32);
    let indexer = consumer(format, 1, 16);
    let mut lane = indexer.claim_lane(3).unwrap();
    let mut s = Stream { identity: identity(4, format), lease: lease(1, 3, 1) };
    let foreign = Stream { lease: lease(1, 3, 99), ..s };
    let other = Stream { identity: identity(9, format), ..s };

    let mut outcomes = vec![lane.apply_delta(&s.delta(0, 1, &[(1, 1)]))];
    assert_recorded(&rows[0], &indexer, &lane, outcomes[0]);
    lane.assign(s.identity, s.lease).unwrap();
    let mut run = |lane: &mut LaneIngestor, act: &dyn Fn(&mut LaneIngestor) -> LaneOutcome| {
        let outcome = act(lane);
        assert_recorded(&rows[outcomes.len()], &indexer, lane, outcome);
        outcomes.push(outcome);
    };
    run(&mut lane, &|lane| lane.apply_delta(&s.delta(0, 1, &[(1, 1)])));
    run(&mut lane, &|lane| lane.install_snapshot(&foreign.snapshot(5, 32)));
    run(&mut lane, &|lane| lane.install_snapshot(&other.snapshot(5, 32)));
    run(&mut lane, &|lane| lane.install_snapshot(&s.snapshot(5, 31)));
    run(&mut lane, &|lane| lane.install_snapshot(&s.snapshot(5, 32)));
    run(&mut lane, &|lane| lane.install_snapshot(&s.snapshot(5, 32)));
    run(&mut lane, &|lane| lane.apply_delta(&foreign.delta(5, 6, &[(1, 1)])));
    run(&mut lane, &|lane| lane.apply_delta(&s.delta(5, 6, &[(1, 1), (2, 2)])));
    run(&mut lane, &|lane| lane.apply_delta(&s.delta(5, 6, &[(1, 1), (2, 2)])));
    let drain = |lease, sequence| DrainMarker { lease, sequence };
    run(&mut lane, &|lane| lane.complete_drain(&drain(s.lease, 6)));
    run(&mut lane, &|lane| lane.complete_drain(&drain(foreign.lease, 6)));
    run(&mut lane, &|lane| lane.apply_delta(&s.delta(7, 8, &[(1, 1)])));
    run(&mut lane, &|lane| lane.apply_delta(&s.delta(6, 7, &[(1, 1)])));

    // From here on every step begins with a fresh lease and a snapshot at 6.
    type Act = Box<dyn Fn(&mut LaneIngestor, &Stream) -> LaneOutcome>;
    let single: Vec<Act> = vec![
        Box::new(|lane, s| lane.apply_delta(&s.delta(6, 8, &[(1, 1)]))),
        Box::new(|lane, s| lane.apply_delta(&s.delta(6, 7, &[]))),
        Box::new(|lane, s| lane.apply_delta(&s.delta(6, 7, &[(32, 1)]))),
        Box::new(|lane, s| lane.apply_delta(&s.delta(6, 7, &[(2, 1), (2, 2)]))),
        Box::new(move |lane, s| {
            let wrong = Stream { identity: identity(9, format), lease: s.lease };
            lane.apply_delta(&wrong.delta(6, 7, &[(2, 1)]))
        }),
        Box::new(|lane, s| lane.install_snapshot(&s.snapshot(9, 32))),
        Box::new(|lane, s| lane.install_snapshot(&s.snapshot(9, 31))),
        Box::new(|lane, s| lane.complete_drain(&DrainMarker { lease: s.lease, sequence: 7 })),
    ];
    for (epoch, act) in (10..).zip(&single) {
        s.lease = lease(1, 3, epoch);
        lane.assign(s.identity, s.lease).unwrap();
        lane.install_snapshot(&s.snapshot(6, 32));
        run(&mut lane, &|lane| act(lane, &s));
        assert!(lane.words().iter().all(|word| *word == 0));
    }
    s.lease = lease(1, 3, 30);
    lane.assign(s.identity, s.lease).unwrap();
    lane.install_snapshot(&s.snapshot(u64::MAX, 32));
    run(&mut lane, &|lane| lane.apply_delta(&s.delta(u64::MAX, u64::MAX, &[(1, 1)])));
    assert_eq!(outcomes.len(), rows.len());
}

#[test]
fn assignments_are_checked_as_recorded() {
    let format = format(32);
    let indexer = consumer(format, 17, 16);
    let mut lane = indexer.claim_lane(3).unwrap();
    let right = identity(4, format);
    let results = [
        lane.assign(right, lease(17, 3, 100)),
        lane.assign(right, lease(18, 3, 101)),
        lane.assign(right, lease(17, 4, 101)),
        lane.assign(identity(5, format), lease(17, 3, 101)),
        lane.assign(ProducerIdentity { format: self::format(64), ..right }, lease(17, 3, 101)),
        lane.assign(right, lease(17, 3, 100)),
        lane.assign(right, lease(17, 3, 101)),
    ];
    let all = vectors::ckf();
    for (row, result) in vectors::rows(&all["consumer_ingest"]["assignment"]).iter().zip(results) {
        let name = match result {
            Ok(()) => "ok",
            Err(AssignError::WrongConsumerInstance { expected: 17, actual: 18 }) => {
                "wrong_consumer_instance"
            }
            Err(AssignError::WrongPhysicalLane { expected: 3, actual: 4 }) => "wrong_physical_lane",
            Err(AssignError::WrongLaneOwner { lane: 3 }) => "wrong_lane_owner",
            Err(AssignError::WrongFormat) => "wrong_format",
            Err(AssignError::StaleAssignmentEpoch { minimum_exclusive: 100, actual: 100 }) => {
                "stale_assignment_epoch"
            }
            Err(other) => panic!("{other:?}"),
        };
        assert_eq!(name, recorded_name(&row["result"]), "{}", row["case"]);
    }
}

#[test]
fn lanes_of_the_payload_vectors_behave_as_recorded() {
    let all = vectors::cbi1();
    for row in vectors::rows(&all["lane"]) {
        let buckets = vectors::num(&row["bucket_count"]);
        let format = format(buckets);
        let indexer = consumer(format, 1, 1);
        let mut lane = indexer.claim_lane(0).unwrap();
        let s = Stream { identity: identity(1, format), lease: lease(1, 0, 1) };
        lane.assign(s.identity, s.lease).unwrap();
        for step in vectors::rows(&row["steps"]) {
            let sequence = vectors::num(&step["sequence"]);
            let outcome = if step["op"] == "snapshot" {
                lane.install_snapshot(&s.snapshot(sequence, buckets as usize))
            } else {
                let images: Vec<(u32, u64)> = vectors::rows(&step["images"])
                    .iter()
                    .map(|image| (vectors::num(&image[0]) as u32, vectors::num(&image[1])))
                    .collect();
                lane.apply_delta(&s.delta(vectors::num(&step["base"]), sequence, &images))
            };
            assert_eq!(outcome.label(), vectors::text(&step["outcome"]), "{}", row["name"]);
            if let LaneOutcome::LaneDeactivated { fault, .. } = outcome {
                assert_eq!(fault.label(), vectors::text(&step["fault"]));
            }
            assert_eq!(Some(indexer.ready_lanes() == 1), step["ready_after"].as_bool());
            assert_eq!(lane.installed_sequence(), step["installed_after"].as_u64());
        }
    }
}

#[test]
fn recorded_frames_answer_recorded_queries() {
    let all = vectors::cbi1();
    let case = &all["producer_to_query"];
    let format = CkfFormat::new(
        vectors::num(&case["format"]["seed"]),
        vectors::num(&case["format"]["bucket_count"]),
    )
    .unwrap();
    let dc = vectors::num(&case["dc_id"]);
    let pool = identity(dc, format).pool;
    let indexer = GlobalCkfIndexer::new(ConsumerConfig {
        consumer: ConsumerInstanceId(1),
        domain: domain(),
        format,
        lanes: vec![Some(pool)],
        verification_window: 2,
        linear_positions: 16,
    })
    .unwrap();
    let mut lane = indexer.claim_lane(0).unwrap();
    let s = Stream { identity: identity(dc, format), lease: lease(1, 0, 1) };
    lane.assign(s.identity, s.lease).unwrap();
    let mut assembler = Assembler::new(format);
    for step in vectors::rows(&case["steps"]) {
        if let Some(hex) = step.get("frame_hex") {
            let payload = vectors::bytes(hex);
            let frame = cbi1::decode(&payload, &format).unwrap();
            match frame {
                Frame::Chunk(chunk) => {
                    assert_eq!(chunk.dc_id, DcId::new(dc));
                    let done = assembler.push(&frame).unwrap().unwrap();
                    let (identity, lease) = (s.identity, s.lease);
                    let (sequence, words) = (done.epoch, done.words);
                    lane.install_snapshot(&CkfSnapshot { identity, lease, sequence, words });
                }
                Frame::Delta(delta) => {
                    let images: Vec<(u32, u64)> =
                        delta.images().map(|image| (image.bucket, image.word)).collect();
                    let delta = s.delta(delta.base_epoch, delta.epoch, &images);
                    assert_eq!(lane.apply_delta(&delta).label(), "delta_applied");
                }
            }
        }
        for query in vectors::rows(&step["queries"]) {
            let blocks: Vec<BlockHash> =
                vectors::nums(&query["block_hashes"]).into_iter().map(BlockHash).collect();
            let found = indexer.prefix_depths_of_blocks(&blocks, &mut Vec::new());
            let depth = found.ok().map(|found| u64::from(found.depths[0]));
            assert_eq!(depth, query["prefix_depth"].as_u64(), "{step}");
        }
    }
}

/// A real producer's words in a lane.
fn fill(indexer: &GlobalCkfIndexer, lane: &mut LaneIngestor, chain: &[SequenceHash], epoch: u64) {
    let mut state = DcCkfState::new(ProducerConfig {
        expected_blocks: indexer.format().bucket_count * 3,
        seed: indexer.format().seed,
        ..ProducerConfig::default()
    })
    .unwrap();
    assert_eq!(state.format(), indexer.format());
    let source = Source { worker_id: 1, dp_rank: 0 };
    for hash in chain {
        state.apply(&RouterEvent::stored_key(source, hash.0), &mut Vec::new());
    }
    let number = lane.lane();
    let identity = identity(u64::from(number) + 1, *indexer.format());
    let lease = lease(1, number, epoch);
    lane.assign(identity, lease).unwrap();
    let words = state.words().to_vec();
    lane.install_snapshot(&CkfSnapshot { identity, lease, sequence: 0, words });
}

#[test]
fn prefix_depths_match_the_vectors() {
    let all = vectors::ckf();
    let case = &all["prefix_depth"];
    let indexer = consumer(format(vectors::num(&case["bucket_count"])), 1, 16);
    let blocks = |value: &Value| -> Vec<BlockHash> {
        vectors::nums(value).into_iter().map(BlockHash).collect()
    };
    let chain: Vec<SequenceHash> =
        crate::ckf::hashing::sequence_hashes(blocks(&case["chain_block_hashes"]).into_iter())
            .collect();
    let mut lanes: Vec<LaneIngestor> = Vec::new();
    for row in vectors::rows(&case["lanes"]) {
        let mut lane = indexer.claim_lane(vectors::num(&row["lane"]) as u8).unwrap();
        fill(&indexer, &mut lane, &chain[..vectors::num(&row["stored_prefix_blocks"]) as usize], 1);
        lanes.push(lane);
    }
    let expect = |found: PrefixDepths, row: &Value| {
        assert_eq!(u64::from(found.ready), vectors::num(&row["captured_ready_lanes"]));
        for lane in 0..LANES {
            let expected = row["depths"].get(lane.to_string()).map_or(0, vectors::num);
            assert_eq!(u64::from(found.depths[lane]), expected, "{row} lane {lane}");
        }
    };
    for query in vectors::rows(&case["queries"]) {
        let found =
            indexer.prefix_depths_of_blocks(&blocks(&query["block_hashes"]), &mut Vec::new());
        expect(found.unwrap(), query);
        let known: Vec<SequenceHash> =
            vectors::nums(&query["sequence_hashes"]).into_iter().map(SequenceHash).collect();
        expect(indexer.prefix_depths(&known).unwrap(), query);
    }
    lanes.remove(1).retire();
    expect(indexer.prefix_depths(&chain).unwrap(), &case["full_chain_after_lane3_retired"]);
}

#[test]
fn a_batch_answers_what_single_probes_answer() {
    for lanes in [1, 2, 3, 5, 16] {
        let indexer = consumer(format(256), 1, lanes);
        let chain: Vec<SequenceHash> = (0..600).map(SequenceHash).collect();
        let mut ingestors: Vec<LaneIngestor> =
            (0..lanes as u8).map(|lane| indexer.claim_lane(lane).unwrap()).collect();
        for (index, lane) in ingestors.iter_mut().enumerate() {
            fill(&indexer, lane, &chain[..30 * (index + 1)], 1);
        }
        let mut batch = vec![0; chain.len()];
        let ready = indexer.probe(&chain, &mut batch);
        assert_eq!(ready.count_ones() as usize, lanes);
        for (index, hash) in chain.iter().enumerate() {
            let mut one = [0];
            indexer.probe(&[*hash], &mut one);
            assert_eq!(batch[index], one[0]);
            for lane in 0..lanes {
                // What is held is always found; what is not, nearly never.
                assert!(index >= 30 * (lane + 1) || one[0] & 1 << lane != 0);
            }
        }
        assert!(batch[500..].iter().filter(|mask| **mask != 0).count() < 3);
        ingestors[0].retire();
        indexer.probe(&chain, &mut batch);
        assert!(batch.iter().all(|mask| mask & 1 == 0));
    }
}

#[test]
fn a_manifest_that_contradicts_itself_is_named() {
    let format = format(8);
    let config = |lanes: Vec<Option<PoolId>>| ConsumerConfig {
        consumer: ConsumerInstanceId(1),
        domain: domain(),
        format,
        lanes,
        verification_window: 2,
        linear_positions: 16,
    };
    let error = |config| GlobalCkfIndexer::new(config).map(|_| ()).unwrap_err();
    let pool = identity(1, format).pool;
    assert_eq!(error(config(vec![])), ConsumerError::NoLane);
    assert_eq!(error(config(vec![None; 3])), ConsumerError::NoLane);
    assert_eq!(error(config(vec![Some(pool); 17])), ConsumerError::TooManyLanes(17));
    assert_eq!(error(config(vec![Some(pool), None, Some(pool)])), ConsumerError::DuplicateDc(2));
    let other = Selection::explicit([("authority", "other")]).unwrap();
    let mut foreign = pool;
    foreign.indexer_domain.cache_semantics =
        digest::cache_semantics(&other, 2, HashFormat::Standard);
    assert_eq!(error(config(vec![Some(foreign)])), ConsumerError::ForeignDomain(0));
    let blind = ConsumerConfig { verification_window: 0, ..config(vec![Some(pool)]) };
    assert_eq!(error(blind), ConsumerError::VerificationWindow(0));
    let jumping = ConsumerConfig { linear_positions: 0, ..config(vec![Some(pool)]) };
    assert_eq!(error(jumping), ConsumerError::NoLinearPositions);

    let indexer = GlobalCkfIndexer::new(config(vec![None, Some(pool)])).unwrap();
    assert_eq!(indexer.claim_lane(0).unwrap_err(), ClaimError::NoSuchLane(0));
    assert_eq!(indexer.claim_lane(7).unwrap_err(), ClaimError::NoSuchLane(7));
    let lane = indexer.claim_lane(1).unwrap();
    assert_eq!(indexer.claim_lane(1).unwrap_err(), ClaimError::AlreadyClaimed(1));
    drop(lane);
    assert!(indexer.claim_lane(1).is_ok());
    assert_eq!(indexer.prefix_depths(&[]), Err(Unavailable));
}
