//! The exact state of the own datacenter's pool on this node: none, kept warm, or published.

use crate::affinity::publication::{Cut, Delta, Frame, Subscriber};
use crate::ckf::adapter::{AdapterError, LocalCkfAdapter};
use crate::ckf::consumer::lane::LaneIngestor;
use crate::ckf::failure::Recovery;
use crate::ckf::identity::{LaneLease, ProducerIdentity};
use crate::ckf::producer::{Applied, DcCkfState, RouterEvent};

/// Changes nobody fetched, over which they are given up; their followers begin anew.
const PENDING_MAX: usize = 4096;

/// What this node holds of the pool's exact state.
#[derive(Debug, Default)]
pub(super) enum Holder {
    /// Nothing: other nodes hold it.
    #[default]
    Nothing,
    /// The state, ready to be published.
    Warm(Box<DcCkfState>),
    /// The state and its publication.
    Publishing(Box<Producer>),
}

/// A published state.
pub(super) struct Producer {
    pub(super) identity: ProducerIdentity,
    pub(super) adapter: LocalCkfAdapter,
    subscribers: Vec<Box<dyn Subscriber>>,
    /// What other nodes have not been sent yet.
    pending: Vec<Delta>,
    /// Times its lane had to begin anew.
    recoveries: u32,
}

/// A part of the filter, with what changed before it was cut.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// Whose filter.
    pub identity: ProducerIdentity,
    /// Changes up to `sequence` that were not taken before.
    pub before: Vec<Delta>,
    /// The last batch the words contain.
    pub sequence: u64,
    /// The words.
    pub words: Vec<u64>,
}

impl Holder {
    /// The state, published or not.
    pub(super) fn state(&self) -> Option<&DcCkfState> {
        match self {
            Holder::Nothing => None,
            Holder::Warm(state) => Some(state),
            Holder::Publishing(producer) => Some(producer.adapter.producer()),
        }
    }

    /// Takes the state out. A publication ends.
    pub(super) fn take_state(&mut self) -> Option<DcCkfState> {
        match std::mem::take(self) {
            Holder::Nothing => None,
            Holder::Warm(state) => Some(*state),
            Holder::Publishing(producer) => Some(producer.end()),
        }
    }

    /// The publication.
    pub(super) fn producer(&mut self) -> Option<&mut Producer> {
        match self {
            Holder::Publishing(producer) => Some(producer),
            Holder::Nothing | Holder::Warm(_) => None,
        }
    }

    /// Applies one event, if there is a state.
    pub(super) fn apply(&mut self, event: &RouterEvent) -> Option<Result<Applied, AdapterError>> {
        match self {
            Holder::Nothing => None,
            Holder::Warm(state) => {
                // Whoever publishes it begins with all its words.
                let mut images = Vec::new();
                Some(Ok(state.apply(event, &mut images)))
            }
            Holder::Publishing(producer) => Some(producer.apply(event)),
        }
    }
}

impl Producer {
    /// Publishes a state through a claimed lane.
    pub(super) fn begin(
        state: DcCkfState,
        identity: ProducerIdentity,
        lane: LaneIngestor,
        lease: LaneLease,
    ) -> Result<Producer, AdapterError> {
        let mut adapter = LocalCkfAdapter::new(state, identity, lane, lease)?;
        adapter.keep_delivered(true);
        let (subscribers, pending) = (Vec::new(), Vec::new());
        Ok(Producer { identity, adapter, subscribers, pending, recoveries: 0 })
    }

    /// Applies one event.
    fn apply(&mut self, event: &RouterEvent) -> Result<Applied, AdapterError> {
        let applied = self.adapter.apply_event(event);
        // The state took it, even where the lane did not.
        applied.or_else(|error| self.recover(error).map(|()| Applied::default()))
    }

    /// Does what a failure asks for, if that concerns the lane alone: it begins anew, and so does
    /// everybody who follows it. The state is as it should be.
    fn recover(&mut self, error: AdapterError) -> Result<(), AdapterError> {
        if error.disposition().recovery != Recovery::ConsumerLane {
            return Err(error);
        }
        self.adapter.recover_snapshot()?;
        self.adapter.take_delivered();
        self.pending.clear();
        self.subscribers.drain(..).for_each(|mut subscriber| {
            subscriber.take(Frame::Ended);
        });
        self.recoveries += 1;
        Ok(())
    }

    /// Times its lane had to begin anew.
    pub(super) fn recoveries(&self) -> u32 {
        self.recoveries
    }

    /// Publishes the open window and hands on what the lane took.
    pub(super) fn publish(&mut self) -> Result<(), AdapterError> {
        let flushed = self.adapter.flush().or_else(|error| self.recover(error));
        for delta in self.adapter.take_delivered() {
            let images = delta.images.into();
            let delta = Delta { base: delta.base, sequence: delta.sequence, images };
            self.subscribers.retain_mut(|s| s.take(Frame::Delta(delta.clone())));
            self.pending.push(delta);
        }
        if self.pending.len() > PENDING_MAX {
            self.pending.clear();
        }
        flushed
    }

    /// The sequence its lane has.
    pub(super) fn sequence(&self) -> u64 {
        self.adapter.lane().installed_sequence().unwrap_or(0)
    }

    /// The whole filter, and a subscriber for what follows.
    pub(super) fn subscribe(
        &mut self,
        subscriber: Box<dyn Subscriber>,
    ) -> Result<Cut, AdapterError> {
        self.publish()?;
        self.subscribers.push(subscriber);
        let words = self.adapter.producer().words().to_vec();
        Ok(Cut { identity: self.identity, sequence: self.sequence(), words })
    }

    /// What other nodes have not been sent yet.
    pub(super) fn take_pending(&mut self) -> Vec<Delta> {
        std::mem::take(&mut self.pending)
    }

    /// Words from `first` on, at most `count` of them.
    pub(super) fn part(&mut self, first: u32, count: usize) -> Result<Part, AdapterError> {
        self.publish()?;
        let words = self.adapter.producer().words();
        let first = (first as usize).min(words.len());
        let words = words[first..words.len().min(first + count)].to_vec();
        let before = self.take_pending();
        Ok(Part { identity: self.identity, before, sequence: self.sequence(), words })
    }

    /// Ends the publication: the state stays.
    pub(super) fn end(mut self) -> DcCkfState {
        for subscriber in &mut self.subscribers {
            subscriber.take(Frame::Ended);
        }
        self.adapter.into_producer()
    }
}

impl std::fmt::Debug for Producer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Producer")
            .field("identity", &self.identity)
            .field("adapter", &self.adapter)
            .field("subscribers", &self.subscribers.len())
            .field("pending", &self.pending.len())
            .finish()
    }
}
