use super::*;
use crate::ckf::consumer::{ConsumerConfig, GlobalCkfIndexer};
use crate::ckf::format::CkfFormat;
use crate::ckf::hashing::SequenceHash;
use crate::ckf::identity::ConsumerInstanceId;
use crate::ckf::producer::{EventData, ProducerConfig, Source};
use crate::ckf::publication::CkfSnapshot;
use crate::ckf::publisher::tests::{Kept, domain, identity, lease};
use proptest::prelude::*;

fn producer(cadence: u32) -> DcCkfState {
    DcCkfState::new(ProducerConfig {
        expected_blocks: 200,
        publish_every_n_events: cadence,
        ..ProducerConfig::default()
    })
    .unwrap()
}

fn consumer(format: CkfFormat) -> GlobalCkfIndexer {
    GlobalCkfIndexer::new(ConsumerConfig {
        consumer: ConsumerInstanceId(1),
        domain: domain(),
        format,
        lanes: vec![Some(identity(1, format).pool)],
        verification_window: 2,
        linear_positions: 16,
    })
    .unwrap()
}

fn key(worker: u64, hash: u64) -> RouterEvent {
    RouterEvent::stored_key(Source { worker_id: worker, dp_rank: 0 }, hash)
}

fn holds(indexer: &GlobalCkfIndexer, hash: u64) -> bool {
    let mut masks = [0];
    indexer.probe(&[SequenceHash(hash)], &mut masks);
    masks[0] == 1
}

#[test]
fn the_local_lane_follows_its_producer() {
    let state = producer(1);
    let indexer = consumer(*state.format());
    let lane = indexer.claim_lane(0).unwrap();
    let identity = identity(1, *state.format());
    let mut adapter = LocalCkfAdapter::new(state, identity, lane, lease(1, 0, 1)).unwrap();
    for hash in 0..150 {
        adapter.apply_event(&key(1, hash)).unwrap();
        assert!(holds(&indexer, hash));
    }
    assert_eq!(adapter.exact_consumer_drain(), Ok(150));
    assert_eq!(adapter.lane().words(), adapter.producer().words());

    adapter.recover_snapshot().unwrap();
    assert_eq!(adapter.lane().installed_sequence(), Some(150));
    adapter.apply_event(&key(1, 999)).unwrap();
    assert_eq!(adapter.exact_consumer_drain(), Ok(151));
}

#[test]
fn a_lane_that_falls_out_closes_admission_until_it_recovers() {
    let state = producer(1);
    let indexer = consumer(*state.format());
    let identity = identity(1, *state.format());
    let lane = indexer.claim_lane(0).unwrap();
    let mut adapter = LocalCkfAdapter::new(state, identity, lane, lease(1, 0, 1)).unwrap();
    adapter.apply_event(&key(1, 1)).unwrap();
    adapter.lane.retire();
    let error = adapter.apply_event(&key(1, 2)).unwrap_err();
    assert_eq!(error, AdapterError::Lane(LaneOutcome::IgnoredForeignLease));
    assert_eq!(adapter.apply_event(&key(1, 3)), Err(AdapterError::AdmissionClosed));
    assert_eq!(adapter.exact_consumer_drain(), Err(AdapterError::AdmissionClosed));
    assert!(!holds(&indexer, 1));
    adapter.recover_snapshot().unwrap();
    assert!(holds(&indexer, 1) && holds(&indexer, 2));
    adapter.apply_event(&key(1, 3)).unwrap();
    assert!(adapter.exact_consumer_drain().is_ok());
}

#[test]
fn the_identity_must_name_the_producers_format() {
    let state = producer(1);
    let indexer = consumer(*state.format());
    let wrong = identity(1, CkfFormat::new(1, 8).unwrap());
    let lane = indexer.claim_lane(0).unwrap();
    let error = LocalCkfAdapter::new(state, wrong, lane, lease(1, 0, 1)).unwrap_err();
    assert_eq!(error, AdapterError::WrongFormat);
    assert!(indexer.claim_lane(0).is_ok());
}

/// What happens to one delta on its way.
#[derive(Clone, Copy, Debug)]
enum Fate {
    Arrives,
    Lost,
    Twice,
    /// After the one that follows it.
    Late,
}

#[derive(Clone, Debug)]
enum Step {
    Store(u64, u64),
    Remove(u64, u64),
    Clear(u64),
    RemoveWorker(u64),
}

fn any_step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (0u64..3, 0u64..200).prop_map(|(worker, hash)| Step::Store(worker, hash)),
        3 => (0u64..3, 0u64..200).prop_map(|(worker, hash)| Step::Remove(worker, hash)),
        1 => (0u64..3).prop_map(Step::Clear),
        1 => (0u64..3).prop_map(Step::RemoveWorker),
    ]
}

fn any_fate() -> impl Strategy<Value = Fate> {
    prop_oneof![
        12 => Just(Fate::Arrives),
        1 => Just(Fate::Lost),
        1 => Just(Fate::Twice),
        1 => Just(Fate::Late),
    ]
}

/// A producer, a lane, and a line between them that drops, doubles and reorders.
struct Line {
    state: DcCkfState,
    publisher: DcCkfPublisher<Kept>,
    lane: LaneIngestor,
    held_back: Vec<CkfDelta>,
    epoch: u64,
}

impl Line {
    fn snapshot(&mut self) -> CkfSnapshot {
        self.epoch += 1;
        let lease = lease(1, 0, self.epoch);
        self.lane.assign(*self.publisher.identity(), lease).unwrap();
        self.publisher.snapshot_after_barrier(&mut self.state, lease).unwrap()
    }

    fn recover(&mut self) {
        let snapshot = self.snapshot();
        self.lane.install_snapshot(&snapshot);
    }

    fn send(&mut self, images: Vec<BucketImage>, fate: Fate) {
        if images.is_empty() {
            return;
        }
        self.publisher.publish(images).unwrap();
        let delta = self.publisher.sink_mut().deltas.pop().unwrap();
        match fate {
            Fate::Arrives => drop(self.lane.apply_delta(&delta)),
            Fate::Lost => {}
            Fate::Twice => {
                self.lane.apply_delta(&delta);
                self.lane.apply_delta(&delta);
            }
            Fate::Late => return self.held_back.push(delta),
        }
        for late in std::mem::take(&mut self.held_back) {
            self.lane.apply_delta(&late);
        }
    }

    /// A lane that is ready has exactly the words of some published moment; one that lost its
    /// way says so.
    fn drain(&mut self) {
        let mut images = Vec::new();
        self.state.flush(&mut images).unwrap();
        self.send(images, Fate::Arrives);
        let marker = self.publisher.exact_drain_marker().unwrap();
        if let LaneOutcome::DrainAcknowledged { .. } = self.lane.complete_drain(&marker) {
            return;
        }
        self.recover();
        let marker = self.publisher.exact_drain_marker().unwrap();
        let outcome = self.lane.complete_drain(&marker);
        assert!(matches!(outcome, LaneOutcome::DrainAcknowledged { .. }), "{outcome:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    #[test]
    fn after_an_exact_drain_the_lane_equals_the_producer(
        steps in prop::collection::vec((any_step(), any_fate()), 1..120),
        cadence in 1u32..6,
    ) {
        let state = producer(cadence);
        let indexer = consumer(*state.format());
        let identity = identity(1, *state.format());
        let mut line = Line {
            lane: indexer.claim_lane(0).unwrap(),
            publisher: DcCkfPublisher::new(identity, Kept::default()),
            state,
            held_back: Vec::new(),
            epoch: 0,
        };
        line.recover();
        for (step, fate) in steps {
            let mut images = Vec::new();
            let source = |worker_id| Source { worker_id, dp_rank: 0 };
            match step {
                Step::Store(worker, hash) => {
                    line.state.apply(&key(worker, hash), &mut images);
                }
                Step::Remove(worker, hash) => {
                    let event = RouterEvent::removed_keys(source(worker), [hash]);
                    line.state.apply(&event, &mut images);
                }
                Step::Clear(worker) => {
                    let event = RouterEvent::device(source(worker), EventData::Cleared);
                    line.state.apply(&event, &mut images);
                }
                Step::RemoveWorker(worker) => {
                    line.state.remove_worker(worker, &mut images);
                }
            }
            line.send(images, fate);
            let sequence = line.publisher.last_sequence();
            if line.lane.installed_sequence() == Some(sequence) && line.held_back.is_empty() {
                let mut tail = Vec::new();
                line.state.flush(&mut tail).unwrap();
                line.send(tail, Fate::Arrives);
                prop_assert_eq!(line.lane.words(), line.state.words());
            }
        }
        line.drain();
        prop_assert_eq!(line.lane.words(), line.state.words());
        for hash in 0..200 {
            let held = line.state.owner_count(SequenceHash(hash)) > 0;
            prop_assert!(!held || holds(&indexer, hash), "hash {} is missing", hash);
        }
    }
}
