//! Ingestion for many lanes: one [`Admission`] that judges, several [`PoolWorker`]s that write.
//!
//! Neither has a thread. The shell gives every worker a thread (or a task), carries [`Command`]s
//! from admission to the worker they name and [`Report`]s back, and calls
//! [`Admission::handle_timeout`] when [`Admission::poll_timeout`] says so.
//!
//! - **Sticky**: a lane's commands always go to the same worker, in order.
//! - **Bounded**: admission counts the commands a worker has not reported and the images a lane
//!   has not applied; over a bound it retires *that lane* and refuses. It never waits.
//! - **Epochs**: every command carries the lane's epoch. Retiring a lane raises it, so whatever is
//!   still under way is rejected by the worker, and a lane retired while its snapshot is written
//!   does not come back: readiness is set under the lane's gate, where the epoch is compared.
//! - **Watchdog**: a delta that is not applied in time takes its lane out of answers, for a stale
//!   "present" costs more than none. Snapshots are written in slices between the deltas of other
//!   lanes, so that one lane's snapshot never makes another lane late.

mod types;
mod worker;

#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

pub use types::{PoolBuildError, PoolConfig, PoolError, PoolEvent, PoolFault};
pub use worker::{PoolWorker, Report};

use super::consumer::lane::LaneOutcome;
use super::consumer::{GlobalCkfIndexer, LANES, Shared};
use super::identity::{LaneLease, ProducerIdentity};
use super::publication::{CkfDelta, CkfSnapshot, DrainMarker};

/// Events kept for the shell at most; readiness is the truth, events only explain it.
const EVENTS_MAX: usize = 64;

/// Work for the worker named by [`Admission::worker_of`] its lane.
#[derive(Debug)]
pub struct Command {
    /// The lane.
    pub lane: u8,
    epoch: u64,
    work: Work,
}

#[derive(Debug)]
enum Work {
    Assign(ProducerIdentity, LaneLease),
    Snapshot(CkfSnapshot),
    Delta(CkfDelta),
    Drain(DrainMarker),
}

/// The epoch of each lane, compared and raised under its lock; held for a few instructions.
#[derive(Debug)]
struct Gates {
    shared: Arc<Shared>,
    epochs: [Mutex<u64>; LANES],
}

impl Gates {
    /// Runs `act` if the lane still has `epoch`.
    fn if_current<R>(&self, lane: u8, epoch: u64, act: impl FnOnce() -> R) -> Option<R> {
        let current = self.epochs[usize::from(lane)].lock().unwrap_or_else(PoisonError::into_inner);
        (*current == epoch).then(act)
    }

    /// Raises the epoch and takes the lane out of answers.
    fn retire(&self, lane: u8, epoch: u64) {
        let mut current =
            self.epochs[usize::from(lane)].lock().unwrap_or_else(PoisonError::into_inner);
        *current = epoch;
        self.shared.retire(lane);
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Unassigned,
    /// An assignment is under way.
    Transitioning,
    AwaitingSnapshot,
    /// A snapshot is being written; deltas queue behind it.
    Installing,
    Active,
    Retired,
}

#[derive(Debug)]
struct Lane {
    worker: usize,
    epoch: u64,
    state: State,
    lease: Option<LaneLease>,
    last_assignment_epoch: Option<u64>,
    /// When the control operation under way runs out of time.
    control_deadline_us: Option<u64>,
    /// Outstanding deltas: when submitted, how many images.
    deltas: VecDeque<(u64, usize)>,
    images: usize,
}

/// Judges all input of a consumer's lanes. Single owner.
#[derive(Debug)]
pub struct Admission {
    config: PoolConfig,
    images_max: usize,
    gates: Arc<Gates>,
    lanes: [Option<Lane>; LANES],
    /// Commands each worker has not reported.
    outstanding: Vec<usize>,
    failed: Vec<bool>,
    events: VecDeque<PoolEvent>,
}

impl Admission {
    /// Claims every lane of `indexer` and spreads them over workers.
    pub fn new(
        indexer: &GlobalCkfIndexer,
        config: PoolConfig,
    ) -> Result<(Admission, Vec<PoolWorker>), PoolBuildError> {
        let bounds = [
            ("workers", config.workers),
            ("queue_commands_max", config.queue_commands_max),
            ("lane_images_max", config.lane_images_max.unwrap_or(1)),
            ("control_timeout_us", usize::from(config.control_timeout_us != 0)),
            ("delta_age_max_us", usize::from(config.delta_age_max_us != 0)),
        ];
        if let Some((name, _)) = bounds.into_iter().find(|(_, bound)| *bound == 0) {
            return Err(PoolBuildError::Zero(name));
        }
        let gates = Arc::new(Gates {
            shared: indexer.shared(),
            epochs: std::array::from_fn(|_| Mutex::new(0)),
        });
        let mut workers: Vec<PoolWorker> =
            (0..config.workers).map(|_| PoolWorker::new(Arc::clone(&gates))).collect();
        let mut lanes = [const { None }; LANES];
        for (order, (lane, _)) in indexer.pools().enumerate() {
            // Round robin is as sticky as any other fixed rule, and even.
            let worker = order % config.workers;
            workers[worker].adopt(indexer.claim_lane(lane)?);
            lanes[usize::from(lane)] = Some(Lane::new(worker));
        }
        let admission = Admission {
            images_max: config.lane_images_max.unwrap_or(indexer.format().buckets()),
            outstanding: vec![0; config.workers],
            failed: vec![false; config.workers],
            config,
            gates,
            lanes,
            events: VecDeque::new(),
        };
        Ok((admission, workers))
    }

    /// The worker of a lane.
    pub fn worker_of(&self, lane: u8) -> Option<usize> {
        self.lane(lane).map(|lane| lane.worker)
    }

    /// Gives a lane to a producer. Checked before the lane is touched; then it leaves the answers.
    pub fn assign(
        &mut self,
        lane: u8,
        identity: ProducerIdentity,
        lease: LaneLease,
        now_us: u64,
    ) -> Result<Command, PoolError> {
        let record = self.lane(lane).ok_or(PoolError::NoSuchLane(lane))?;
        let last = record.last_assignment_epoch;
        self.gates.shared.check_assignment(lane, last, &identity, &lease)?;
        self.retire_quietly(lane);
        self.admit_command(lane)?;
        let deadline = now_us.saturating_add(self.config.control_timeout_us);
        let record = self.lane_mut(lane).ok_or(PoolError::NoSuchLane(lane))?;
        record.state = State::Transitioning;
        record.lease = Some(lease);
        record.last_assignment_epoch = Some(lease.assignment_epoch);
        record.control_deadline_us = Some(deadline);
        Ok(Command { lane, epoch: record.epoch, work: Work::Assign(identity, lease) })
    }

    /// Installs a snapshot in a lane that was assigned.
    pub fn install_snapshot(
        &mut self,
        snapshot: CkfSnapshot,
        now_us: u64,
    ) -> Result<Command, PoolError> {
        let lane = snapshot.lease.lane;
        self.check_admitted(lane, &snapshot.lease, |state| {
            matches!(state, State::AwaitingSnapshot | State::Active)
        })?;
        self.admit_command(lane)?;
        let deadline = now_us.saturating_add(self.config.control_timeout_us);
        let record = self.lane_mut(lane).ok_or(PoolError::NoSuchLane(lane))?;
        record.state = State::Installing;
        record.control_deadline_us = Some(deadline);
        Ok(Command { lane, epoch: record.epoch, work: Work::Snapshot(snapshot) })
    }

    /// Applies a delta, behind whatever the lane has outstanding.
    pub fn submit_delta(&mut self, delta: CkfDelta, now_us: u64) -> Result<Command, PoolError> {
        let lane = delta.lease.lane;
        self.check_admitted(lane, &delta.lease, |state| {
            matches!(state, State::Installing | State::Active)
        })?;
        let (images, images_max) = (delta.images.len(), self.images_max);
        let age_max = self.config.delta_age_max_us;
        let record = self.lane_mut(lane).ok_or(PoolError::NoSuchLane(lane))?;
        if record.state == State::Active && record.is_late(now_us, age_max) {
            return Err(self.retire(lane, PoolFault::DeltaTooOld));
        }
        if record.images + images > images_max {
            return Err(self.retire(lane, PoolFault::TooManyImages));
        }
        self.admit_command(lane)?;
        let record = self.lane_mut(lane).ok_or(PoolError::NoSuchLane(lane))?;
        record.deltas.push_back((now_us, images));
        record.images += images;
        Ok(Command { lane, epoch: record.epoch, work: Work::Delta(delta) })
    }

    /// Asks whether a lane has exactly what its producer published.
    pub fn complete_drain(
        &mut self,
        marker: DrainMarker,
        now_us: u64,
    ) -> Result<Command, PoolError> {
        let lane = marker.lease.lane;
        self.check_admitted(lane, &marker.lease, |state| state == State::Active)?;
        self.admit_command(lane)?;
        let deadline = now_us.saturating_add(self.config.control_timeout_us);
        let record = self.lane_mut(lane).ok_or(PoolError::NoSuchLane(lane))?;
        record.control_deadline_us = Some(deadline);
        Ok(Command { lane, epoch: record.epoch, work: Work::Drain(marker) })
    }

    /// Takes a lane out of answers; what is under way for it is dropped.
    pub fn withdraw(&mut self, lane: u8) {
        if self.lane(lane).is_some() {
            self.retire(lane, PoolFault::Withdrawn);
        }
    }

    /// The worker's thread is gone: its lanes are retired for good.
    pub fn worker_failed(&mut self, worker: usize) {
        self.failed[worker] = true;
        for lane in 0..LANES as u8 {
            if self.worker_of(lane) == Some(worker) {
                self.retire(lane, PoolFault::WorkerFailed);
            }
        }
    }

    /// Takes in what a worker did.
    pub fn on_report(&mut self, report: Report, now_us: u64) {
        let lane = report.lane;
        let Some(record) = self.lane(lane) else { return };
        let (worker, current) = (record.worker, record.epoch == report.epoch);
        self.outstanding[worker] -= 1;
        let Some(outcome) = report.outcome.filter(|_| current) else { return };
        match outcome {
            worker::Done::Assigned(Ok(())) => {
                self.control_done(lane, State::AwaitingSnapshot);
                self.push_event(PoolEvent::Assigned(lane));
            }
            // Checked before it was sent, so only a bug leads here; the lane stays out.
            worker::Done::Assigned(Err(_)) => drop(self.retire(lane, PoolFault::Withdrawn)),
            worker::Done::Judged(outcome) => self.on_outcome(lane, outcome, now_us),
        }
    }

    /// Retires what is late. Spurious calls are harmless.
    pub fn handle_timeout(&mut self, now_us: u64) {
        let age_max = self.config.delta_age_max_us;
        for lane in 0..LANES as u8 {
            let Some(record) = self.lane(lane) else { continue };
            if record.control_deadline_us.is_some_and(|deadline| deadline <= now_us) {
                self.retire(lane, PoolFault::ControlTimeout);
            } else if record.state == State::Active && record.is_late(now_us, age_max) {
                self.retire(lane, PoolFault::DeltaTooOld);
            }
        }
    }

    /// When [`Admission::handle_timeout`] has something to do.
    pub fn poll_timeout(&self) -> Option<u64> {
        let age_max = self.config.delta_age_max_us;
        let of = |lane: &Lane| {
            let oldest = lane.deltas.front().filter(|_| lane.state == State::Active);
            let age = oldest.map(|(submitted, _)| submitted.saturating_add(age_max + 1));
            [age, lane.control_deadline_us].into_iter().flatten().min()
        };
        self.lanes.iter().flatten().filter_map(of).min()
    }

    /// What became of a lane, oldest first.
    pub fn poll_event(&mut self) -> Option<PoolEvent> {
        self.events.pop_front()
    }

    fn on_outcome(&mut self, lane: u8, outcome: LaneOutcome, now_us: u64) {
        match outcome {
            LaneOutcome::SnapshotInstalled { sequence } => {
                self.control_done(lane, State::Active);
                // Time spent behind the snapshot is not the deltas' fault.
                if let Some(record) = self.lane_mut(lane) {
                    record.deltas.iter_mut().for_each(|(submitted, _)| *submitted = now_us);
                }
                self.push_event(PoolEvent::Installed(lane, sequence));
            }
            LaneOutcome::DeltaApplied { .. } => {
                if let Some(record) = self.lane_mut(lane)
                    && let Some((_, images)) = record.deltas.pop_front()
                {
                    record.images -= images;
                }
            }
            LaneOutcome::DrainAcknowledged { installed_sequence } => {
                self.control_done(lane, State::Active);
                self.push_event(PoolEvent::Drained(lane, installed_sequence));
            }
            // On a healthy stream nothing is foreign, stale, early or wrong.
            LaneOutcome::IgnoredForeignLease
            | LaneOutcome::IgnoredStaleOrDuplicate { .. }
            | LaneOutcome::AwaitingSnapshot
            | LaneOutcome::LaneDeactivated { .. } => {
                self.retire(lane, PoolFault::Lane(outcome));
            }
        }
    }

    fn control_done(&mut self, lane: u8, state: State) {
        if let Some(record) = self.lane_mut(lane) {
            record.state = state;
            record.control_deadline_us = None;
        }
    }

    fn check_admitted(
        &self,
        lane: u8,
        lease: &LaneLease,
        allowed: impl Fn(State) -> bool,
    ) -> Result<(), PoolError> {
        let record = self.lane(lane).ok_or(PoolError::NoSuchLane(lane))?;
        if record.lease != Some(*lease) || !allowed(record.state) {
            return Err(PoolError::NotAdmitted(lane));
        }
        Ok(())
    }

    /// Counts a command against its worker's bound.
    fn admit_command(&mut self, lane: u8) -> Result<(), PoolError> {
        let worker = self.worker_of(lane).ok_or(PoolError::NoSuchLane(lane))?;
        if self.failed[worker] {
            return Err(self.retire(lane, PoolFault::WorkerFailed));
        }
        if self.outstanding[worker] >= self.config.queue_commands_max {
            return Err(self.retire(lane, PoolFault::QueueFull));
        }
        self.outstanding[worker] += 1;
        Ok(())
    }

    fn retire(&mut self, lane: u8, reason: PoolFault) -> PoolError {
        self.retire_quietly(lane);
        self.push_event(PoolEvent::Fault(lane, reason));
        PoolError::Retired { lane, reason }
    }

    fn retire_quietly(&mut self, lane: u8) {
        let Some(record) = self.lane_mut(lane) else { return };
        record.epoch += 1;
        record.state = match record.state {
            State::Unassigned => State::Unassigned,
            State::Transitioning
            | State::AwaitingSnapshot
            | State::Installing
            | State::Active
            | State::Retired => State::Retired,
        };
        record.lease = None;
        record.control_deadline_us = None;
        record.deltas.clear();
        record.images = 0;
        let epoch = record.epoch;
        self.gates.retire(lane, epoch);
    }

    fn push_event(&mut self, event: PoolEvent) {
        if self.events.len() < EVENTS_MAX {
            self.events.push_back(event);
        }
    }

    fn lane(&self, lane: u8) -> Option<&Lane> {
        self.lanes.get(usize::from(lane))?.as_ref()
    }

    fn lane_mut(&mut self, lane: u8) -> Option<&mut Lane> {
        self.lanes.get_mut(usize::from(lane))?.as_mut()
    }
}

impl Lane {
    fn new(worker: usize) -> Lane {
        Lane {
            worker,
            epoch: 0,
            state: State::Unassigned,
            lease: None,
            last_assignment_epoch: None,
            control_deadline_us: None,
            deltas: VecDeque::new(),
            images: 0,
        }
    }

    fn is_late(&self, now_us: u64, age_max_us: u64) -> bool {
        self.deltas
            .front()
            .is_some_and(|(submitted, _)| now_us.saturating_sub(*submitted) > age_max_us)
    }
}
