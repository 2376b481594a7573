//! Numbering and handing over a producer's batches, to one lease at a time.
//!
//! Sequences count batches that were handed over, not events. A snapshot is taken behind a
//! barrier: the open window goes out first under the old lease, so that its holder misses
//! nothing, and the first delta after a snapshot at N leads from N to N + 1.

use super::alloc::OutOfMemory;
use super::bucket::BucketImage;
use super::failure::{Action, Commit, Disposition, Recovery};
use super::identity::{LaneLease, ProducerIdentity};
use super::producer::DcCkfState;
use super::publication::{CkfDelta, CkfSnapshot, DrainMarker};

/// Where deltas go: first in, first out, and reliable unless it says otherwise.
pub trait DeltaSink {
    /// Takes the next delta. An error means that nobody knows whether it will arrive.
    fn deliver(&mut self, delta: CkfDelta) -> Result<(), DeliveryFailed>;
}

/// A delta may or may not arrive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the stream broke while a delta was handed over")]
pub struct DeliveryFailed;

/// Why a publisher is silent until the next snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Fence {
    /// A delta may have been lost.
    DeliveryUncertain,
    /// The holder of the lease did not keep up.
    LeaseStalled,
    /// No sequence is left; only a new generation of the producer helps.
    SequenceExhausted,
}

/// What became of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Published {
    /// Handed over under this sequence.
    Sent {
        /// Its sequence.
        sequence: u64,
        /// Its size.
        images: usize,
    },
    /// Nobody holds a lease; the sequence stays as it was.
    NoSubscriber {
        /// The last sequence handed over.
        sequence: u64,
    },
}

/// Why a batch or snapshot was not handed over. The sequence is unchanged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PublishError {
    /// Silent until a snapshot is taken.
    #[error("publication is fenced ({0:?})")]
    Fenced(Fence),
    /// No memory for the snapshot; the open window is intact.
    #[error(transparent)]
    OutOfMemory(#[from] OutOfMemory),
}

impl PublishError {
    /// What has to be done.
    pub fn disposition(&self) -> Disposition {
        match self {
            PublishError::Fenced(Fence::SequenceExhausted) => Disposition::new(
                Commit::KnownUnchanged,
                Recovery::Producer,
                Action::FenceAndRebuild,
            ),
            PublishError::Fenced(Fence::DeliveryUncertain) => Disposition::new(
                Commit::Uncertain,
                Recovery::ConsumerLane,
                Action::DeactivateAndSnapshot,
            ),
            PublishError::Fenced(Fence::LeaseStalled) => Disposition::new(
                Commit::KnownUnchanged,
                Recovery::ConsumerLane,
                Action::DeactivateAndSnapshot,
            ),
            PublishError::OutOfMemory(_) => {
                Disposition::new(Commit::KnownUnchanged, Recovery::None, Action::Report)
            }
        }
    }
}

/// The publication of one producer generation.
#[derive(Debug)]
pub struct DcCkfPublisher<S> {
    identity: ProducerIdentity,
    lease: Option<LaneLease>,
    last_sequence: u64,
    fence: Option<Fence>,
    sink: S,
}

impl<S: DeltaSink> DcCkfPublisher<S> {
    /// A publisher without a subscriber, at sequence 0.
    pub fn new(identity: ProducerIdentity, sink: S) -> DcCkfPublisher<S> {
        DcCkfPublisher { identity, lease: None, last_sequence: 0, fence: None, sink }
    }

    /// Hands a batch over. It must not be empty: a window that changed nothing is no batch.
    pub fn publish(&mut self, images: Vec<BucketImage>) -> Result<Published, PublishError> {
        debug_assert!(!images.is_empty());
        if let Some(fence) = self.fence {
            return Err(PublishError::Fenced(fence));
        }
        let base = self.last_sequence;
        let Some(lease) = self.lease else {
            return Ok(Published::NoSubscriber { sequence: base });
        };
        let Some(sequence) = base.checked_add(1) else {
            return Err(self.raise(Fence::SequenceExhausted));
        };
        let count = images.len();
        let delta = CkfDelta { identity: self.identity, lease, base, sequence, images };
        if self.sink.deliver(delta).is_err() {
            return Err(self.raise(Fence::DeliveryUncertain));
        }
        self.last_sequence = sequence;
        Ok(Published::Sent { sequence, images: count })
    }

    /// Takes a snapshot for `lease`, which becomes the only one. The open window goes out under
    /// the old lease first; if that fails the new lease is not installed, and a second call
    /// covers the window by its snapshot. Lifts every fence except the last.
    pub fn snapshot_after_barrier(
        &mut self,
        state: &mut DcCkfState,
        lease: LaneLease,
    ) -> Result<CkfSnapshot, PublishError> {
        if self.last_sequence == u64::MAX || self.fence == Some(Fence::SequenceExhausted) {
            return Err(self.raise(Fence::SequenceExhausted));
        }
        let (mut words, mut tail) = (Vec::new(), Vec::new());
        state.barrier_snapshot(&mut words, &mut tail)?;
        if self.fence.is_none() && !tail.is_empty() {
            self.publish(tail)?;
        }
        self.lease = Some(lease);
        self.fence = None;
        let sequence = self.last_sequence;
        Ok(CkfSnapshot { identity: self.identity, lease, sequence, words })
    }

    /// Ends the lease; nobody is served until the next snapshot.
    pub fn retire_lease(&mut self) {
        self.lease = None;
    }

    /// Ends the lease of a holder that did not keep up, and says so until the next snapshot.
    pub fn retire_stalled_lease(&mut self) {
        self.lease = None;
        self.raise(Fence::LeaseStalled);
    }

    /// The question whether the holder has everything handed over so far.
    pub fn exact_drain_marker(&self) -> Option<DrainMarker> {
        self.lease.map(|lease| DrainMarker { lease, sequence: self.last_sequence })
    }

    /// The last sequence handed over.
    pub fn last_sequence(&self) -> u64 {
        self.last_sequence
    }

    /// Why publication stopped, if it did.
    pub fn fence(&self) -> Option<Fence> {
        self.fence
    }

    /// The producer's identity.
    pub fn identity(&self) -> &ProducerIdentity {
        &self.identity
    }

    /// The sink, to take what was delivered.
    pub fn sink_mut(&mut self) -> &mut S {
        &mut self.sink
    }

    fn raise(&mut self, fence: Fence) -> PublishError {
        self.fence = Some(fence);
        PublishError::Fenced(fence)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::ckf::digest::{self, Selection};
    use crate::ckf::format::CkfFormat;
    use crate::ckf::hashing::HashFormat;
    use crate::ckf::identity::{ConsumerInstanceId, DcId, IndexerDomainId, PoolId};
    use crate::ckf::producer::{ProducerConfig, RouterEvent, Source};
    use crate::ckf::vectors;

    pub(crate) fn domain() -> IndexerDomainId {
        let map = Selection::explicit([("authority", "test")]).unwrap();
        IndexerDomainId {
            cache_semantics: digest::cache_semantics(&map, 2, HashFormat::Standard),
            routing_scope: digest::routing_scope(&map),
        }
    }

    pub(crate) fn identity(dc: u64, format: CkfFormat) -> ProducerIdentity {
        let pool = PoolId { indexer_domain: domain(), dc_id: DcId::new(dc) };
        ProducerIdentity { pool, producer_incarnation: 1, layout_generation: 1, format }
    }

    pub(crate) fn lease(consumer: u64, lane: u8, epoch: u64) -> LaneLease {
        LaneLease { consumer: ConsumerInstanceId(consumer), lane, assignment_epoch: epoch }
    }

    /// Keeps what it gets; fails while told to.
    #[derive(Debug, Default)]
    pub(crate) struct Kept {
        pub(crate) deltas: Vec<CkfDelta>,
        pub(crate) broken: bool,
    }

    impl DeltaSink for Kept {
        fn deliver(&mut self, delta: CkfDelta) -> Result<(), DeliveryFailed> {
            if self.broken {
                return Err(DeliveryFailed);
            }
            self.deltas.push(delta);
            Ok(())
        }
    }

    fn producer() -> (DcCkfState, DcCkfPublisher<Kept>) {
        let config = ProducerConfig {
            expected_blocks: 64,
            publish_every_n_events: 1000,
            ..ProducerConfig::default()
        };
        let state = DcCkfState::new(config).unwrap();
        let publisher = DcCkfPublisher::new(identity(1, *state.format()), Kept::default());
        (state, publisher)
    }

    fn store(state: &mut DcCkfState, hash: u64) {
        let who = Source { worker_id: 1, dp_rank: 0 };
        state.apply(&RouterEvent::stored_key(who, hash), &mut Vec::new());
    }

    fn flush(state: &mut DcCkfState) -> Vec<BucketImage> {
        let mut images = Vec::new();
        state.flush(&mut images).unwrap();
        images
    }

    #[test]
    fn sequences_match_the_vectors() {
        let all = vectors::ckf();
        let steps = vectors::rows(&all["publication_sequence"]);
        let step = |index: usize, name: &str| {
            assert_eq!(vectors::text(&steps[index]["op"]), name);
            &steps[index]
        };
        let (mut state, mut publisher) = producer();
        publisher.last_sequence = vectors::num(&step(0, "snapshot lease 1")["sequence"]);
        store(&mut state, 1);
        let snapshot = publisher.snapshot_after_barrier(&mut state, lease(1, 0, 1)).unwrap();
        assert_eq!(snapshot.sequence, 7);
        assert!(publisher.sink.deltas.is_empty());

        let row = step(1, "store (window open) then snapshot lease 2");
        store(&mut state, 2);
        let snapshot = publisher.snapshot_after_barrier(&mut state, lease(1, 0, 2)).unwrap();
        assert_eq!(snapshot.sequence, vectors::num(&row["sequence"]));
        let sent: Vec<[u64; 4]> = publisher
            .sink
            .deltas
            .iter()
            .map(|d| [d.lease.assignment_epoch, d.base, d.sequence, d.images.len() as u64])
            .collect();
        assert_eq!(serde_json::to_value(sent).unwrap(), row["deltas"]);

        let row = step(2, "store then flush+publish");
        store(&mut state, 3);
        let images = flush(&mut state);
        assert_eq!(publisher.publish(images), Ok(Published::Sent { sequence: 9, images: 1 }));
        assert_eq!(
            publisher.exact_drain_marker().unwrap().sequence,
            vectors::num(&row["drain_marker"])
        );
        step(3, "flush with nothing pending");
        assert!(flush(&mut state).is_empty());

        step(4, "publish with no lease");
        let image = vec![BucketImage { bucket: 0, word: 1 }];
        publisher.retire_lease();
        let unsent = publisher.publish(image.clone());
        assert_eq!(unsent, Ok(Published::NoSubscriber { sequence: 9 }));
        step(5, "publish after stalled lease");
        publisher.retire_stalled_lease();
        assert_eq!(publisher.publish(image), Err(PublishError::Fenced(Fence::LeaseStalled)));

        let row = step(6, "snapshot lease 3 clears the fence");
        store(&mut state, 4);
        let snapshot = publisher.snapshot_after_barrier(&mut state, lease(1, 0, 3)).unwrap();
        assert_eq!(snapshot.sequence, vectors::num(&row["sequence"]));
        assert_eq!(publisher.fence(), None);
        assert_eq!(publisher.sink.deltas.len(), 2);
    }

    #[test]
    fn an_uncertain_delivery_fences_until_a_snapshot_covers_it() {
        let (mut state, mut publisher) = producer();
        publisher.snapshot_after_barrier(&mut state, lease(1, 0, 1)).unwrap();
        publisher.sink.broken = true;
        store(&mut state, 1);
        let fenced = PublishError::Fenced(Fence::DeliveryUncertain);
        let refused = publisher.snapshot_after_barrier(&mut state, lease(1, 0, 2));
        assert_eq!(refused, Err(fenced));
        assert_eq!(publisher.exact_drain_marker().unwrap().lease, lease(1, 0, 1));
        assert_eq!(fenced.disposition().recovery, Recovery::ConsumerLane);
        let snapshot = publisher.snapshot_after_barrier(&mut state, lease(1, 0, 2)).unwrap();
        assert_eq!((snapshot.sequence, snapshot.words), (0, state.words().to_vec()));
        assert!(snapshot.identity.format.check().is_ok());
    }

    #[test]
    fn the_last_sequence_needs_a_new_generation() {
        let (mut state, mut publisher) = producer();
        publisher.last_sequence = u64::MAX - 1;
        publisher.snapshot_after_barrier(&mut state, lease(1, 0, 1)).unwrap();
        let image = vec![BucketImage { bucket: 0, word: 1 }];
        assert!(publisher.publish(image.clone()).is_ok());
        let exhausted = Err(PublishError::Fenced(Fence::SequenceExhausted));
        assert_eq!(publisher.publish(image), exhausted);
        let refused = publisher.snapshot_after_barrier(&mut state, lease(1, 0, 2)).map(|_| ());
        assert_eq!(refused, Err(PublishError::Fenced(Fence::SequenceExhausted)));
    }

    #[test]
    fn a_snapshot_without_memory_leaves_the_window_open() {
        let (mut state, mut publisher) = producer();
        store(&mut state, 1);
        crate::ckf::alloc::fail_at(0);
        let refused = publisher.snapshot_after_barrier(&mut state, lease(1, 0, 1));
        crate::ckf::alloc::allow_all();
        assert_eq!(refused, Err(PublishError::OutOfMemory(OutOfMemory)));
        assert_eq!(flush(&mut state).len(), 1);
    }
}
