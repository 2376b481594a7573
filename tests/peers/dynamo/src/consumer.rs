//! The crate's consumer of one lane, fed from the frames of a stream.

use dynamo_kv_router::indexer::cuckoo::{
    ConsumerInstanceId, GlobalCkfBucketImage, GlobalCkfDelta, GlobalCkfIndexer,
    GlobalCkfIngestOutcome, GlobalCkfLaneIngestor, GlobalCkfManifest, GlobalCkfSnapshot, LaneLease,
    PrefixSearchConfig, ProducerIdentity,
};
use dynamo_kv_router::protocols::LocalBlockHash;

use crate::cbi1::{self, Frame};
use crate::proto::{self, FilterUpdateKind};
use crate::{MARKER, pool};

/// A consumer of one pool.
pub struct Consumer {
    indexer: GlobalCkfIndexer,
    lane: GlobalCkfLaneIngestor,
    wire: proto::ProducerIdentity,
    identity: ProducerIdentity,
    lease: LaneLease,
    /// Words of the snapshot so far.
    words: Vec<u64>,
    /// Changes applied.
    pub deltas: u64,
}

impl Consumer {
    /// One that waits for a snapshot.
    pub fn new(wire: proto::ProducerIdentity) -> Consumer {
        let identity = pool::identity(&wire);
        let consumer = ConsumerInstanceId::new(1);
        let lanes = std::array::from_fn(|lane| (lane == 0).then(|| identity.pool_id()));
        let domain = identity.indexer_domain();
        let manifest =
            GlobalCkfManifest::new(consumer, domain, identity.format(), lanes).expect("valid");
        let search = PrefixSearchConfig { verification_window: 2 };
        let indexer = GlobalCkfIndexer::new(manifest, search).expect("memory");
        let mut lane = indexer.claim_lane(0).expect("free");
        let lease = LaneLease::new(consumer, 0, 1);
        lane.assign(identity, lease).expect("valid");
        Consumer { indexer, lane, wire, identity, lease, words: Vec::new(), deltas: 0 }
    }

    /// Takes the next message of the stream. The lane must take each of them.
    pub fn take(&mut self, update: &proto::FilterUpdate) {
        assert_eq!((update.contract_marker, update.protocol_version), (MARKER, 1));
        assert_eq!(update.producer.as_ref(), Some(&self.wire));
        let installed = self.lane.installed_sequence();
        match update.kind() {
            FilterUpdateKind::Heartbeat => {
                assert!(update.payload.is_empty());
                let said = (update.base_sequence, Some(update.sequence));
                assert_eq!(said, (update.sequence, installed));
            }
            FilterUpdateKind::SnapshotChunk | FilterUpdateKind::Delta => {
                let (epoch, frame) = cbi1::read(pool::about(&self.wire), &update.payload);
                assert_eq!(epoch, update.sequence);
                self.take_frame(update, frame);
            }
            FilterUpdateKind::Unspecified => panic!("a kind of frame"),
        }
    }

    fn take_frame(&mut self, update: &proto::FilterUpdate, frame: Frame) {
        match frame {
            Frame::Chunk { index, count, first, words } => {
                assert_eq!(update.kind(), FilterUpdateKind::SnapshotChunk);
                assert_eq!(first, self.words.len() as u64, "chunks in order");
                self.words.extend(words);
                if index + 1 < count {
                    return;
                }
                let words = std::mem::take(&mut self.words).into_boxed_slice();
                let (identity, lease) = (self.identity, self.lease);
                let snapshot = GlobalCkfSnapshot::new(identity, lease, update.sequence, words);
                let outcome = self.lane.install_snapshot(&snapshot);
                let taken = matches!(outcome, GlobalCkfIngestOutcome::SnapshotInstalled { .. });
                assert!(taken, "{outcome:?}");
            }
            Frame::Delta { base, images } => {
                assert_eq!((update.kind(), base), (FilterUpdateKind::Delta, update.base_sequence));
                let image = |(bucket, word)| GlobalCkfBucketImage::new(bucket as usize, word);
                let images = images.into_iter().map(image).collect();
                let (identity, lease) = (self.identity, self.lease);
                let delta = GlobalCkfDelta::new(identity, lease, base, update.sequence, images);
                let outcome = self.lane.apply_delta(&delta);
                let taken = matches!(outcome, GlobalCkfIngestOutcome::DeltaApplied { .. });
                assert!(taken, "{outcome:?}");
                self.deltas += 1;
            }
        }
    }

    /// How deep a chain is held; none before the snapshot.
    pub fn depth(&self, blocks: &[u64]) -> Option<usize> {
        let blocks: Vec<LocalBlockHash> = blocks.iter().map(|hash| LocalBlockHash(*hash)).collect();
        let found = self.indexer.find_prefix_matches(&blocks).ok()?;
        found.lanes()[0].map(|lane| lane.prefix_depth() as usize)
    }
}
