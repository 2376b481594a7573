//! The crate's producer and publisher, and who follows them.

use dynamo_kv_router::indexer::cuckoo::{
    ConsumerInstanceId, DcCkfDelta, DcCkfDeltaSink, DcCkfPublisher, DcCkfState, LaneLease,
};
use dynamo_kv_router::protocols::{
    ExternalSequenceBlockHash, KvCacheEvent, KvCacheEventData, KvCacheRemoveData, KvCacheStoreData,
    KvCacheStoredBlockData, LocalBlockHash, RouterEvent,
};
use tokio::sync::mpsc;

use crate::proto::{self, FilterUpdateKind};
use crate::{cbi1, engine_id, pool, relay};

/// Where messages to the one subscriber go.
pub type Messages = mpsc::UnboundedSender<Result<proto::FilterUpdate, tonic::Status>>;

/// One pool of the crate.
pub struct Producer {
    wire: proto::ProducerIdentity,
    state: DcCkfState,
    publisher: DcCkfPublisher<Sink>,
    leases: u64,
}

struct Sink {
    wire: proto::ProducerIdentity,
    to: Option<Messages>,
}

impl DcCkfDeltaSink for Sink {
    type Error = ();

    fn enqueue(&mut self, delta: DcCkfDelta) -> Result<(), ()> {
        let images: Vec<(u32, u64)> =
            delta.images().iter().map(|image| (image.bucket() as u32, image.value())).collect();
        let payload = cbi1::delta(pool::about(&self.wire), delta.base_sequence(), &images);
        let base = delta.base_sequence();
        let update = relay::frame(&self.wire, base, delta.sequence(), FilterUpdateKind::Delta);
        let update = proto::FilterUpdate { payload: payload.into(), ..update };
        self.to.as_ref().ok_or(())?.send(Ok(update)).map_err(|_| ())
    }
}

impl Producer {
    /// An empty one.
    pub fn new(wire: proto::ProducerIdentity) -> Producer {
        let sink = Sink { wire: wire.clone(), to: None };
        let publisher = DcCkfPublisher::new(pool::identity(&wire), 0, sink);
        Producer { wire, state: pool::empty_state(), publisher, leases: 0 }
    }

    /// The whole filter now, and all that follows, to a subscriber that takes the place of the
    /// one before.
    pub fn subscribe(&mut self, to: Messages) {
        self.publisher.retire_lease();
        self.publisher.sink_mut().to = Some(to.clone());
        self.leases += 1;
        let lease = LaneLease::new(ConsumerInstanceId::new(1), 0, self.leases);
        let snapshot = self.publisher.snapshot_after_barrier(&mut self.state, lease).expect("cut");
        let sequence = snapshot.sequence();
        for chunk in cbi1::chunks(pool::about(&self.wire), sequence, snapshot.buckets()) {
            let kind = FilterUpdateKind::SnapshotChunk;
            let update = relay::frame(&self.wire, sequence, sequence, kind);
            // A subscriber that is gone is found out with the next change.
            let _ = to.send(Ok(proto::FilterUpdate { payload: chunk.into(), ..update }));
        }
    }

    /// An engine stores the beginning of a chain.
    pub fn store(&mut self, worker: u64, blocks: &[u64]) {
        let block = |hash: &u64| KvCacheStoredBlockData {
            block_hash: ExternalSequenceBlockHash(engine_id(*hash)),
            tokens_hash: LocalBlockHash(*hash),
            mm_extra_info: None,
        };
        self.apply(
            worker,
            KvCacheEventData::Stored(KvCacheStoreData {
                parent_hash: None,
                start_position: None,
                blocks: blocks.iter().map(block).collect(),
            }),
        );
    }

    /// An engine removes blocks.
    pub fn remove(&mut self, worker: u64, blocks: &[u64]) {
        let id = |hash: &u64| ExternalSequenceBlockHash(engine_id(*hash));
        let block_hashes = blocks.iter().map(id).collect();
        self.apply(worker, KvCacheEventData::Removed(KvCacheRemoveData { block_hashes }));
    }

    fn apply(&mut self, worker: u64, data: KvCacheEventData) {
        let event = RouterEvent::new(worker, KvCacheEvent { event_id: 0, data, dp_rank: 0 });
        let outcome = self.state.apply_event(event);
        assert!(outcome.first_error().is_none(), "{:?}", outcome.first_error());
        if let Some(batch) = outcome.into_publication().or_else(|| self.state.flush()) {
            // One whose subscriber is gone is fenced until the next subscribes.
            let _ = self.publisher.publish(batch);
        }
    }
}
