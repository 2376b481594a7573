//! A producer and its own lane in one process: the local datacenter's part of a consumer.
//!
//! Events are admitted while the lane follows. When it falls out (which needs a fault, since
//! nothing is lost in between), admission stays closed until a recovery installs a new snapshot
//! under a new epoch.

use std::collections::VecDeque;

use super::bucket::BucketImage;
use super::consumer::lane::{AssignError, LaneIngestor, LaneOutcome};
use super::identity::{LaneLease, ProducerIdentity};
use super::producer::{Applied, DcCkfState, RouterEvent};
use super::publication::CkfDelta;
use super::publisher::{DcCkfPublisher, DeliveryFailed, DeltaSink, PublishError};

/// Why an adapter cannot go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AdapterError {
    /// The identity names another format than the producer has.
    #[error("the producer's filter has another format than its identity names")]
    WrongFormat,
    /// The lane refused the assignment.
    #[error(transparent)]
    Assign(#[from] AssignError),
    /// The publisher is fenced or out of memory.
    #[error(transparent)]
    Publish(#[from] PublishError),
    /// The lane did not take what it was given; recover.
    #[error("the local lane answered {}", .0.label())]
    Lane(LaneOutcome),
    /// Closed until a recovery succeeds. The event was not applied.
    #[error("admission is closed until the lane is recovered")]
    AdmissionClosed,
    /// No epoch is left.
    #[error("no assignment epoch is left")]
    EpochsExhausted,
}

/// The queue between publisher and lane.
#[derive(Debug, Default)]
struct Fifo(VecDeque<CkfDelta>);

impl DeltaSink for Fifo {
    fn deliver(&mut self, delta: CkfDelta) -> Result<(), DeliveryFailed> {
        self.0.push_back(delta);
        Ok(())
    }
}

/// One producer, its publisher and one lane.
#[derive(Debug)]
pub struct LocalCkfAdapter {
    state: DcCkfState,
    publisher: DcCkfPublisher<Fifo>,
    lane: LaneIngestor,
    lease: LaneLease,
    open: bool,
    images: Vec<BucketImage>,
    /// What the lane took since it was last asked for, when others want it too.
    delivered: Option<Vec<CkfDelta>>,
}

impl LocalCkfAdapter {
    /// Joins a producer and a claimed lane, and installs the first snapshot.
    pub fn new(
        state: DcCkfState,
        identity: ProducerIdentity,
        lane: LaneIngestor,
        lease: LaneLease,
    ) -> Result<LocalCkfAdapter, AdapterError> {
        if *state.format() != identity.format {
            return Err(AdapterError::WrongFormat);
        }
        let publisher = DcCkfPublisher::new(identity, Fifo::default());
        let (images, delivered) = (Vec::new(), None);
        let mut adapter =
            LocalCkfAdapter { state, publisher, lane, lease, open: false, images, delivered };
        adapter.install(lease)?;
        Ok(adapter)
    }

    /// Applies one event to the producer and what came of it to the lane.
    pub fn apply_event(&mut self, event: &RouterEvent) -> Result<Applied, AdapterError> {
        if !self.open {
            return Err(AdapterError::AdmissionClosed);
        }
        let mut images = std::mem::take(&mut self.images);
        let applied = self.state.apply(event, &mut images);
        self.forward(images)?;
        Ok(applied)
    }

    /// Publishes the open window.
    pub fn flush(&mut self) -> Result<(), AdapterError> {
        if !self.open {
            return Err(AdapterError::AdmissionClosed);
        }
        let mut images = std::mem::take(&mut self.images);
        self.state.flush(&mut images).map_err(PublishError::from)?;
        self.forward(images)
    }

    /// Publishes the open window and checks that the lane has everything.
    pub fn exact_consumer_drain(&mut self) -> Result<u64, AdapterError> {
        if !self.open {
            return Err(AdapterError::AdmissionClosed);
        }
        self.open = false;
        let mut images = std::mem::take(&mut self.images);
        self.state.flush(&mut images).map_err(PublishError::from)?;
        self.forward(images)?;
        let marker = self.publisher.exact_drain_marker().ok_or(AdapterError::AdmissionClosed)?;
        match self.lane.complete_drain(&marker) {
            LaneOutcome::DrainAcknowledged { installed_sequence } => {
                self.open = true;
                Ok(installed_sequence)
            }
            other => Err(AdapterError::Lane(other)),
        }
    }

    /// Starts the lane anew from a snapshot, under the next epoch. What the old lease has not
    /// seen is not sent to it: the snapshot holds it.
    pub fn recover_snapshot(&mut self) -> Result<(), AdapterError> {
        self.open = false;
        let epoch =
            self.lease.assignment_epoch.checked_add(1).ok_or(AdapterError::EpochsExhausted)?;
        self.lease.assignment_epoch = epoch;
        self.publisher.retire_lease();
        self.publisher.sink_mut().0.clear();
        self.install(self.lease)
    }

    /// Moves to a lane of another consumer: the old one is given back, the new one starts from a
    /// snapshot. The producer and its sequence go on.
    pub fn move_to(&mut self, lane: LaneIngestor, lease: LaneLease) -> Result<(), AdapterError> {
        self.open = false;
        self.publisher.retire_lease();
        self.publisher.sink_mut().0.clear();
        self.lane = lane;
        self.lease = lease;
        self.install(lease)
    }

    /// Whether deltas are kept for [`LocalCkfAdapter::take_delivered`] once the lane has them.
    pub fn keep_delivered(&mut self, keep: bool) {
        self.delivered = keep.then(|| self.delivered.take().unwrap_or_default());
    }

    /// The deltas the lane took since the last call, in order.
    pub fn take_delivered(&mut self) -> Vec<CkfDelta> {
        self.delivered.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// Gives the producer back; its lane leaves the answers.
    pub fn into_producer(self) -> DcCkfState {
        self.state
    }

    /// The producer, for reports.
    pub fn producer(&self) -> &DcCkfState {
        &self.state
    }

    /// The lane, for reports.
    pub fn lane(&self) -> &LaneIngestor {
        &self.lane
    }

    /// Takes the lane out of answers, as a fault would.
    #[cfg(test)]
    pub(crate) fn retire_lane(&mut self) {
        self.lane.retire();
    }

    fn install(&mut self, lease: LaneLease) -> Result<(), AdapterError> {
        self.lane.assign(*self.publisher.identity(), lease)?;
        let snapshot = self.publisher.snapshot_after_barrier(&mut self.state, lease)?;
        match self.lane.install_snapshot(&snapshot) {
            LaneOutcome::SnapshotInstalled { .. } => {
                self.open = true;
                Ok(())
            }
            other => Err(AdapterError::Lane(other)),
        }
    }

    /// Publishes a batch and lets the lane take it. On a failure admission stays closed.
    fn forward(&mut self, images: Vec<BucketImage>) -> Result<(), AdapterError> {
        if images.is_empty() {
            self.images = images;
            return Ok(());
        }
        let open = std::mem::replace(&mut self.open, false);
        self.publisher.publish(images)?;
        while let Some(delta) = self.publisher.sink_mut().0.pop_front() {
            match self.lane.apply_delta(&delta) {
                LaneOutcome::DeltaApplied { .. } => {}
                other => return Err(AdapterError::Lane(other)),
            }
            match &mut self.delivered {
                Some(delivered) => delivered.push(delta),
                None => {
                    self.images = delta.images;
                    self.images.clear();
                }
            }
        }
        self.open = open;
        Ok(())
    }
}

#[cfg(test)]
mod tests;
