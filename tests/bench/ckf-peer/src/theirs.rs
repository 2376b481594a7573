//! The crate's side.

use std::hint::black_box;

use dynamo_kv_router::identity::{
    CacheSemanticsId, DcId, IdentitySource, IndexerDomainId, PoolId, RoutingScopeId,
};
use dynamo_kv_router::indexer::cuckoo::{
    CkfConfig, ConsumerInstanceId, DcCkfState, GlobalCkfIndexer, GlobalCkfLaneIngestor,
    GlobalCkfManifest, GlobalCkfSnapshot, LaneLease, PrefixSearchConfig, ProducerIdentity,
};
use dynamo_kv_router::protocols::{
    ExternalSequenceBlockHash, KvCacheEvent, KvCacheEventData, KvCacheRemoveData, KvCacheStoreData,
    KvCacheStoredBlockData, LocalBlockHash, RouterEvent,
};

use crate::{Event, Laps, laps, ours};

fn pool(dc: u64) -> PoolId {
    let semantics = CacheSemanticsId::new([1; 16], IdentitySource::Explicit);
    let scope = RoutingScopeId::new([2; 16], IdentitySource::Explicit);
    PoolId::new(IndexerDomainId::new(semantics, scope), DcId::new(dc))
}

/// Sixteen ready lanes with the words of our table.
pub(crate) struct Table {
    indexer: GlobalCkfIndexer,
    _lanes: Vec<GlobalCkfLaneIngestor>,
}

impl Table {
    pub(crate) fn new(ours: &ours::Table) -> Table {
        let config = CkfConfig::new(ours.expected);
        let state = DcCkfState::new(config).expect("memory");
        let format = state.format();
        assert_eq!(format.bucket_count(), ours.words.len());
        let lanes = std::array::from_fn(|lane| Some(pool(lane as u64 + 1)));
        let consumer = ConsumerInstanceId::new(1);
        let domain = pool(1).indexer_domain();
        let manifest = GlobalCkfManifest::new(consumer, domain, format, lanes).expect("valid");
        let search = PrefixSearchConfig { verification_window: 2 };
        let indexer = GlobalCkfIndexer::new(manifest, search).expect("memory");
        let fill = |number: usize| {
            let mut lane = indexer.claim_lane(number).expect("free");
            let identity = ProducerIdentity::new(pool(number as u64 + 1), 1, 1, format);
            let lease = LaneLease::new(consumer, number as u8, 1);
            lane.assign(identity, lease).expect("valid");
            let words = ours.words.clone().into_boxed_slice();
            lane.install_snapshot(&GlobalCkfSnapshot::new(identity, lease, 0, words));
            lane
        };
        let lanes = (0..16).map(fill).collect();
        Table { indexer, _lanes: lanes }
    }

    /// Asks for `chains` in turn, so many `times`.
    pub(crate) fn queries(&self, chains: &[&[u64]], times: usize) -> Laps {
        let chains: Vec<Vec<LocalBlockHash>> = chains
            .iter()
            .map(|chain| chain.iter().map(|hash| LocalBlockHash(*hash)).collect())
            .collect();
        laps((0..times).map(|i| &chains[i % chains.len()]), |chain| {
            let _ = black_box(self.indexer.find_prefix_matches(chain));
        })
    }
}

/// A producer and the events for it.
pub(crate) struct Producer<'a> {
    events: &'a [Event],
    blocks: usize,
    state: Option<DcCkfState>,
}

impl<'a> Producer<'a> {
    pub(crate) fn new(events: &'a [Event], blocks: usize) -> Producer<'a> {
        Producer { events, blocks, state: None }
    }

    pub(crate) fn store(&mut self) -> Laps {
        let mut state = DcCkfState::new(CkfConfig::new(self.blocks)).expect("memory");
        let events: Vec<RouterEvent> = self.events.iter().map(store).collect();
        let taken = laps(events.into_iter(), |event| apply(&mut state, event));
        self.state = Some(state);
        taken
    }

    pub(crate) fn remove(&mut self) -> Laps {
        if self.state.is_none() {
            self.store();
        }
        let mut state = self.state.take().expect("stored");
        let events: Vec<RouterEvent> = self.events.iter().map(remove).collect();
        laps(events.into_iter(), |event| apply(&mut state, event))
    }

    /// 17 bytes an entry of both hash tables, which hold 7 of 8 slots at most.
    pub(crate) fn bytes_per_block(&self) -> f64 {
        let table = |entries: usize| (entries * 8 / 7).next_power_of_two() * 17;
        let sources = crate::SOURCES as usize;
        (table(self.blocks) + sources * table(self.blocks / sources)) as f64 / self.blocks as f64
    }
}

fn apply(state: &mut DcCkfState, event: RouterEvent) {
    black_box(state.apply_event(event));
}

fn store(event: &Event) -> RouterEvent {
    let block = |(id, hash): &(u64, u64)| KvCacheStoredBlockData {
        block_hash: ExternalSequenceBlockHash(*id),
        tokens_hash: LocalBlockHash(*hash),
        mm_extra_info: None,
    };
    let data = KvCacheEventData::Stored(KvCacheStoreData {
        parent_hash: None,
        start_position: None,
        blocks: event.blocks.iter().map(block).collect(),
    });
    RouterEvent::new(event.source, KvCacheEvent { event_id: 0, data, dp_rank: 0 })
}

fn remove(event: &Event) -> RouterEvent {
    let block_hashes = event.blocks.iter().map(|(id, _)| ExternalSequenceBlockHash(*id)).collect();
    let data = KvCacheEventData::Removed(KvCacheRemoveData { block_hashes });
    RouterEvent::new(event.source, KvCacheEvent { event_id: 0, data, dp_rank: 0 })
}
