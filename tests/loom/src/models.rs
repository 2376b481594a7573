//! What queries may see of an ingestor at work, in every order of their loads and stores.

use std::sync::Arc;

use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::ckf::bucket::BucketImage;
use crate::ckf::consumer::lane::{LaneIngestor, LaneOutcome};
use crate::ckf::consumer::{ConsumerConfig, GlobalCkfIndexer};
use crate::ckf::digest::{self, Selection};
use crate::ckf::format::CkfFormat;
use crate::ckf::hashing::{HashFormat, SequenceHash};
use crate::ckf::identity::{
    ConsumerInstanceId, IndexerDomainId, LaneLease, PoolId, ProducerIdentity,
};
use crate::ckf::publication::{CkfDelta, CkfSnapshot};

/// Checks every model; panics at the first order that breaks one.
pub(crate) fn run() {
    let models: [(&str, fn()); 5] = [
        ("a ready lane shows its whole snapshot", a_ready_lane_shows_its_whole_snapshot),
        ("a query may see half a change, the next one all", a_query_may_see_half_a_change),
        ("a fingerprint that moves is missed once at most", one_that_moves_is_missed_once),
        ("a lane that is laid out anew is not asked meanwhile", a_lane_laid_out_anew_is_not_asked),
        ("one ingestor gets a lane", one_ingestor_gets_a_lane),
    ];
    for (name, model) in models {
        model();
        println!("{name} ... ok");
    }
}

const CONSUMER: ConsumerInstanceId = ConsumerInstanceId(1);
/// A hash every full table holds.
const HASH: SequenceHash = SequenceHash(7);
const SEED: u64 = 5;

fn identity(dc: &str) -> ProducerIdentity {
    let map = Selection::explicit([("authority", "loom")]).unwrap();
    let indexer_domain = IndexerDomainId {
        cache_semantics: digest::cache_semantics(&map, 2, HashFormat::Standard),
        routing_scope: digest::routing_scope(&map),
    };
    ProducerIdentity {
        pool: PoolId { indexer_domain, dc_id: digest::dc_id(dc) },
        producer_incarnation: 1,
        layout_generation: 1,
        format: CkfFormat::new(SEED, 2).unwrap(),
    }
}

/// A table of two buckets and one lane, so that the orders can be counted.
fn indexer() -> Arc<GlobalCkfIndexer> {
    let identity = identity("a");
    Arc::new(
        GlobalCkfIndexer::new(ConsumerConfig {
            consumer: CONSUMER,
            domain: identity.pool.indexer_domain,
            format: identity.format,
            lanes: vec![Some(identity.pool)],
            verification_window: 2,
            linear_positions: 16,
        })
        .unwrap(),
    )
}

fn install(lane: &mut LaneIngestor, epoch: u64, words: [u64; 2]) {
    let identity = identity("a");
    let lease = LaneLease { consumer: CONSUMER, lane: 0, assignment_epoch: epoch };
    lane.assign(identity, lease).unwrap();
    let snapshot = CkfSnapshot { identity, lease, sequence: 0, words: words.to_vec() };
    let outcome = lane.install_snapshot(&snapshot);
    assert!(matches!(outcome, LaneOutcome::SnapshotInstalled { .. }), "{outcome:?}");
}

/// A bucket whose first slot has the fingerprint of [`HASH`].
fn full_word() -> u64 {
    let mixed = xxh3_64_with_seed(&HASH.0.to_le_bytes(), SEED);
    u64::from((mixed as u16).max(1))
}

fn a_ready_lane_shows_its_whole_snapshot() {
    let word = full_word();
    loom::model(move || {
        let indexer = indexer();
        let mut lane = indexer.claim_lane(0).unwrap();
        let asked = Arc::clone(&indexer);
        let query = loom::thread::spawn(move || {
            let mut masks = [0];
            let ready = asked.probe(&[HASH], &mut masks);
            // The bit is set after the words, and read before them.
            assert!(ready == 0 || masks[0] & 1 == 1, "a part of a snapshot was seen");
        });
        install(&mut lane, 1, [word; 2]);
        query.join().unwrap();
        let mut masks = [0];
        assert_eq!((indexer.probe(&[HASH], &mut masks), masks[0] & 1), (1, 1));
    });
}

fn a_query_may_see_half_a_change() {
    let word = full_word();
    loom::model(move || {
        let indexer = indexer();
        let mut lane = indexer.claim_lane(0).unwrap();
        install(&mut lane, 1, [word; 2]);
        let asked = Arc::clone(&indexer);
        let query = loom::thread::spawn(move || {
            let mut masks = [0];
            assert_eq!(asked.probe(&[HASH], &mut masks), 1);
        });
        let identity = identity("a");
        let lease = LaneLease { consumer: CONSUMER, lane: 0, assignment_epoch: 1 };
        let images = (0..2).map(|bucket| BucketImage { bucket, word: 0 }).collect();
        let delta = CkfDelta { identity, lease, base: 0, sequence: 1, images };
        assert!(matches!(lane.apply_delta(&delta), LaneOutcome::DeltaApplied { .. }));
        query.join().unwrap();
        let mut masks = [0];
        assert_eq!((indexer.probe(&[HASH], &mut masks), masks[0] & 1), (1, 0));
    });
}

fn one_that_moves_is_missed_once() {
    let word = full_word();
    loom::model(move || {
        let indexer = indexer();
        let mut lane = indexer.claim_lane(0).unwrap();
        install(&mut lane, 1, [word, 0]);
        let asked = Arc::clone(&indexer);
        let query = loom::thread::spawn(move || {
            let found = || {
                let mut masks = [0];
                assert_eq!(asked.probe(&[HASH], &mut masks), 1);
                masks[0] & 1 == 1
            };
            if !found() {
                loom::sync::atomic::fence(loom::sync::atomic::Ordering::Acquire);
                assert!(found(), "it was missed twice");
            }
        });
        let identity = identity("a");
        let lease = LaneLease { consumer: CONSUMER, lane: 0, assignment_epoch: 1 };
        let images = [(1, word), (0, 0)].map(|(bucket, word)| BucketImage { bucket, word });
        let delta = CkfDelta { identity, lease, base: 0, sequence: 1, images: images.to_vec() };
        assert!(matches!(lane.apply_delta(&delta), LaneOutcome::DeltaApplied { .. }));
        query.join().unwrap();
    });
}

fn a_lane_laid_out_anew_is_not_asked() {
    let word = full_word();
    loom::model(move || {
        let indexer = indexer();
        let mut lane = indexer.claim_lane(0).unwrap();
        install(&mut lane, 1, [word; 2]);
        lane.retire();
        let asked = Arc::clone(&indexer);
        let query = loom::thread::spawn(move || {
            let mut masks = [0];
            let ready = asked.probe(&[HASH], &mut masks);
            assert!(ready == 0 || masks[0] & 1 == 0, "words of the filter before were seen");
        });
        install(&mut lane, 2, [0; 2]);
        query.join().unwrap();
    });
}

fn one_ingestor_gets_a_lane() {
    loom::model(|| {
        let indexer = indexer();
        let other = Arc::clone(&indexer);
        let claim = loom::thread::spawn(move || other.claim_lane(0).is_ok_and(|lane| {
            std::mem::forget(lane);
            true
        }));
        let here = indexer.claim_lane(0);
        let there = claim.join().unwrap();
        assert!(here.is_ok() != there, "exactly one of them has it");
    });
}
