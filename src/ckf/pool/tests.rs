use super::*;
use crate::ckf::bucket::BucketImage;
use crate::ckf::consumer::ClaimError;
use crate::ckf::consumer::ConsumerConfig;
use crate::ckf::consumer::lane::AssignError;
use crate::ckf::format::CkfFormat;
use crate::ckf::identity::ConsumerInstanceId;
use crate::ckf::publisher::tests::{domain, identity, lease};

/// Admission, its workers, and the way between them.
struct Rig {
    indexer: GlobalCkfIndexer,
    admission: Admission,
    workers: Vec<PoolWorker>,
    format: CkfFormat,
}

fn rig(buckets: u64, lanes: usize, config: PoolConfig) -> Rig {
    let format = CkfFormat::new(1, buckets).unwrap();
    let indexer = GlobalCkfIndexer::new(ConsumerConfig {
        consumer: ConsumerInstanceId(1),
        domain: domain(),
        format,
        lanes: (0..lanes).map(|lane| Some(identity(lane as u64 + 1, format).pool)).collect(),
        verification_window: 2,
        linear_positions: 16,
    })
    .unwrap();
    let (admission, workers) = Admission::new(&indexer, config).unwrap();
    Rig { indexer, admission, workers, format }
}

fn one_worker() -> PoolConfig {
    PoolConfig { workers: 1, ..PoolConfig::default() }
}

impl Rig {
    fn carry(&mut self, command: Command) {
        let worker = self.admission.worker_of(command.lane).unwrap();
        self.workers[worker].submit(command);
    }

    /// Runs the workers until nothing is left to do.
    fn settle(&mut self, now_us: u64) {
        for worker in 0..self.workers.len() {
            while self.workers[worker].has_work() {
                self.slice(worker, now_us);
            }
        }
    }

    fn slice(&mut self, worker: usize, now_us: u64) {
        if let Some(report) = self.workers[worker].run() {
            self.admission.on_report(report, now_us);
        }
    }

    fn assign(&mut self, lane: u8, epoch: u64, now_us: u64) -> Result<(), PoolError> {
        let identity = identity(u64::from(lane) + 1, self.format);
        let command = self.admission.assign(lane, identity, lease(1, lane, epoch), now_us)?;
        self.carry(command);
        Ok(())
    }

    fn snapshot(&mut self, lane: u8, epoch: u64, sequence: u64, now: u64) -> Result<(), PoolError> {
        let snapshot = CkfSnapshot {
            identity: identity(u64::from(lane) + 1, self.format),
            lease: lease(1, lane, epoch),
            sequence,
            words: vec![7; self.format.buckets()],
        };
        let command = self.admission.install_snapshot(snapshot, now)?;
        self.carry(command);
        Ok(())
    }

    fn delta(&mut self, lane: u8, epoch: u64, base: u64, now_us: u64) -> Result<(), PoolError> {
        let delta = CkfDelta {
            identity: identity(u64::from(lane) + 1, self.format),
            lease: lease(1, lane, epoch),
            base,
            sequence: base + 1,
            images: vec![BucketImage { bucket: 1, word: base }],
        };
        let command = self.admission.submit_delta(delta, now_us)?;
        self.carry(command);
        Ok(())
    }

    /// Brings a lane to life at sequence 0.
    fn start(&mut self, lane: u8, epoch: u64) {
        self.assign(lane, epoch, 0).unwrap();
        self.settle(0);
        self.snapshot(lane, epoch, 0, 0).unwrap();
        self.settle(0);
        assert_ne!(self.indexer.ready_lanes() & (1 << lane), 0);
        while self.admission.poll_event().is_some() {}
    }
}

fn retired(lane: u8, reason: PoolFault) -> PoolError {
    PoolError::Retired { lane, reason }
}

#[test]
fn a_lane_goes_from_assignment_to_drain() {
    let mut rig = rig(8, 2, PoolConfig::default());
    assert_eq!(rig.snapshot(0, 1, 0, 0), Err(PoolError::NotAdmitted(0)));
    rig.assign(0, 1, 0).unwrap();
    assert_eq!(rig.delta(0, 1, 0, 0), Err(PoolError::NotAdmitted(0)));
    rig.settle(0);
    assert_eq!(rig.admission.poll_event(), Some(PoolEvent::Assigned(0)));
    rig.snapshot(0, 1, 3, 0).unwrap();
    // Deltas may queue behind the snapshot they need.
    rig.delta(0, 1, 3, 0).unwrap();
    rig.settle(0);
    assert_eq!(rig.admission.poll_event(), Some(PoolEvent::Installed(0, 3)));
    assert_eq!(rig.indexer.ready_lanes(), 1);
    let marker = DrainMarker { lease: lease(1, 0, 1), sequence: 4 };
    let command = rig.admission.complete_drain(marker, 0).unwrap();
    rig.carry(command);
    rig.settle(0);
    assert_eq!(rig.admission.poll_event(), Some(PoolEvent::Drained(0, 4)));
    assert_eq!(rig.admission.poll_timeout(), None);
    assert_eq!(rig.assign(5, 1, 0), Err(PoolError::NoSuchLane(5)));
    rig.admission.withdraw(0);
    assert_eq!(rig.indexer.ready_lanes(), 0);
}

#[test]
fn a_refused_assignment_leaves_the_lane_alone() {
    let mut rig = rig(8, 2, PoolConfig::default());
    rig.start(0, 5);
    let refused = rig.assign(0, 5, 0).unwrap_err();
    assert!(matches!(refused, PoolError::Assign(AssignError::StaleAssignmentEpoch { .. })));
    let foreign = rig.admission.assign(0, identity(2, rig.format), lease(1, 0, 6), 0);
    assert!(matches!(foreign, Err(PoolError::Assign(AssignError::WrongLaneOwner { .. }))));
    assert_eq!(rig.indexer.ready_lanes(), 1);
    rig.assign(0, 6, 0).unwrap();
    assert_eq!(rig.indexer.ready_lanes(), 0);
}

#[test]
fn a_gap_retires_its_lane_only() {
    let mut rig = rig(8, 2, one_worker());
    rig.start(0, 1);
    rig.start(1, 1);
    rig.delta(0, 1, 9, 0).unwrap();
    rig.delta(1, 1, 0, 0).unwrap();
    rig.settle(0);
    assert_eq!(rig.indexer.ready_lanes(), 0b10);
    let Some(PoolEvent::Fault(0, PoolFault::Lane(LaneOutcome::LaneDeactivated { .. }))) =
        rig.admission.poll_event()
    else {
        panic!("a fault of lane 0");
    };
    assert_eq!(rig.delta(0, 1, 0, 0), Err(PoolError::NotAdmitted(0)));
    rig.start(0, 2);
    assert_eq!(rig.indexer.ready_lanes(), 0b11);
}

#[test]
fn bounds_retire_the_submitting_lane() {
    let bounds = PoolConfig { queue_commands_max: 4, lane_images_max: Some(2), ..one_worker() };
    let mut images = rig(8, 2, bounds);
    images.start(0, 1);
    images.start(1, 1);
    images.delta(0, 1, 0, 0).unwrap();
    images.delta(0, 1, 1, 0).unwrap();
    let too_many = retired(0, PoolFault::TooManyImages);
    assert_eq!(images.delta(0, 1, 2, 0), Err(too_many));
    assert_eq!(images.indexer.ready_lanes(), 0b10);
    // What was under way is rejected, but still counts until it is reported.
    images.delta(1, 1, 0, 0).unwrap();
    images.delta(1, 1, 1, 0).unwrap();
    images.settle(0);
    assert_eq!(images.indexer.ready_lanes(), 0b10);

    let mut queue = rig(8, 2, PoolConfig { queue_commands_max: 2, ..one_worker() });
    queue.start(0, 1);
    queue.start(1, 1);
    queue.delta(1, 1, 0, 0).unwrap();
    queue.delta(1, 1, 1, 0).unwrap();
    assert_eq!(queue.delta(0, 1, 0, 0), Err(retired(0, PoolFault::QueueFull)));
    queue.settle(0);
    assert_eq!(queue.indexer.ready_lanes(), 0b10);
}

#[test]
fn late_deltas_and_late_control_retire_the_lane() {
    let mut rig = rig(8, 2, one_worker());
    rig.start(0, 1);
    rig.start(1, 1);
    rig.delta(0, 1, 0, 1000).unwrap();
    assert_eq!(rig.admission.poll_timeout(), Some(11_001));
    rig.admission.handle_timeout(11_000);
    assert_eq!(rig.indexer.ready_lanes(), 0b11);
    rig.admission.handle_timeout(11_001);
    assert_eq!(rig.indexer.ready_lanes(), 0b10);
    assert_eq!(rig.admission.poll_event(), Some(PoolEvent::Fault(0, PoolFault::DeltaTooOld)));
    // The late delta arrives after all and does nothing.
    rig.settle(12_000);
    assert_eq!(rig.indexer.ready_lanes(), 0b10);

    rig.delta(1, 1, 0, 20_000).unwrap();
    assert_eq!(rig.delta(1, 1, 1, 40_000), Err(retired(1, PoolFault::DeltaTooOld)));
    rig.assign(0, 2, 50_000).unwrap();
    rig.admission.handle_timeout(10_050_000);
    assert_eq!(rig.admission.poll_event(), Some(PoolEvent::Fault(1, PoolFault::DeltaTooOld)));
    assert_eq!(rig.admission.poll_event(), Some(PoolEvent::Fault(0, PoolFault::ControlTimeout)));
}

#[test]
fn one_lanes_snapshot_does_not_hold_up_another_lane() {
    let mut rig = rig(1 << 20, 2, one_worker());
    rig.start(1, 1);
    rig.assign(0, 1, 0).unwrap();
    rig.settle(0);
    rig.snapshot(0, 1, 0, 0).unwrap();
    // It is being written, and not in one go, when the other lane has something to do.
    rig.slice(0, 0);
    rig.slice(0, 0);
    assert_eq!(rig.indexer.ready_lanes(), 0b10);
    rig.delta(1, 1, 0, 0).unwrap();
    let mut slices = 0;
    while rig.admission.poll_timeout() != Some(10_000_000) {
        rig.slice(0, 0);
        slices += 1;
    }
    assert!(slices <= 2, "the delta waited for {slices} slices");
    assert_eq!(rig.indexer.ready_lanes(), 0b10);
    rig.settle(0);
    assert_eq!(rig.indexer.ready_lanes(), 0b11);
}

#[test]
fn a_lane_retired_while_its_snapshot_is_written_stays_out() {
    let mut rig = rig(1 << 16, 1, one_worker());
    rig.assign(0, 1, 0).unwrap();
    rig.settle(0);
    rig.snapshot(0, 1, 0, 0).unwrap();
    rig.slice(0, 0);
    rig.admission.withdraw(0);
    rig.settle(0);
    assert_eq!(rig.indexer.ready_lanes(), 0);
    rig.start(0, 2);
}

#[test]
fn a_dead_worker_takes_its_lanes_with_it() {
    let mut rig = rig(8, 3, PoolConfig { workers: 2, ..PoolConfig::default() });
    (0..3).for_each(|lane| rig.start(lane, 1));
    assert_eq!(rig.admission.worker_of(0), rig.admission.worker_of(2));
    rig.admission.worker_failed(0);
    assert_eq!(rig.indexer.ready_lanes(), 0b010);
    assert_eq!(rig.assign(0, 2, 0), Err(retired(0, PoolFault::WorkerFailed)));
    rig.delta(1, 1, 0, 0).unwrap();
}

#[test]
fn every_bound_must_be_positive() {
    let rig = rig(8, 1, PoolConfig::default());
    let base = PoolConfig::default();
    let zero = |config| Admission::new(&rig.indexer, config).map(|_| ()).unwrap_err();
    assert_eq!(zero(PoolConfig { workers: 0, ..base }), PoolBuildError::Zero("workers"));
    for (config, name) in [
        (PoolConfig { queue_commands_max: 0, ..base }, "queue_commands_max"),
        (PoolConfig { lane_images_max: Some(0), ..base }, "lane_images_max"),
        (PoolConfig { control_timeout_us: 0, ..base }, "control_timeout_us"),
        (PoolConfig { delta_age_max_us: 0, ..base }, "delta_age_max_us"),
    ] {
        assert_eq!(zero(config), PoolBuildError::Zero(name));
    }
    let taken = PoolBuildError::Claim(ClaimError::AlreadyClaimed(0));
    assert_eq!(zero(base), taken);
}
