//! torc's side.

use std::hint::black_box;

use crate::ckf::consumer::lane::LaneIngestor;
use crate::ckf::consumer::{ConsumerConfig, GlobalCkfIndexer, LANES};
use crate::ckf::hashing::{BlockHash, ExternalId, SequenceHash, sequence_hashes};
use crate::ckf::identity::{
    ConsumerInstanceId, DcId, IndexerDomainId, LaneLease, PoolId, ProducerIdentity,
};
use crate::ckf::producer::{
    DcCkfState, EventData, ProducerConfig, RouterEvent, Source, StoredBlock,
};
use crate::ckf::publication::CkfSnapshot;
use crate::ckf::ringkey::ring_key_domain;
use crate::{Event, Laps, Random, laps};

fn domain() -> IndexerDomainId {
    ring_key_domain([("kind", "bench")], [("kind", "bench")]).expect("a valid map")
}

/// Sixteen ready lanes, filled to 45 % with noise and the chains.
pub(crate) struct Table {
    pub(crate) expected: usize,
    pub(crate) words: Vec<u64>,
    pub(crate) chains: Vec<Vec<SequenceHash>>,
    indexer: GlobalCkfIndexer,
    _lanes: Vec<LaneIngestor>,
}

impl Table {
    pub(crate) fn new(bits: u32, blocks: &[Vec<u64>], random: &mut Random) -> Table {
        let buckets = 1u64 << bits;
        let expected = buckets * 16 / 5;
        let config = ProducerConfig { expected_blocks: expected, ..ProducerConfig::default() };
        let mut state = DcCkfState::new(config).expect("memory");
        let chains: Vec<Vec<SequenceHash>> = blocks
            .iter()
            .map(|blocks| sequence_hashes(blocks.iter().map(|hash| BlockHash(*hash))).collect())
            .collect();
        let planted: Vec<u64> = chains.iter().flatten().map(|hash| hash.0).collect();
        let noise = (buckets * 4 * 45 / 100).saturating_sub(planted.len() as u64);
        let source = Source { worker_id: 1, dp_rank: 0 };
        let mut images = Vec::new();
        for hash in planted.into_iter().chain((0..noise).map(|_| random.next())) {
            state.apply(&RouterEvent::stored_key(source, hash), &mut images);
            images.clear();
        }
        let format = *state.format();
        let pool =
            |lane: usize| PoolId { indexer_domain: domain(), dc_id: DcId::new(lane as u64 + 1) };
        let consumer = ConsumerInstanceId(1);
        let indexer = GlobalCkfIndexer::new(ConsumerConfig {
            consumer,
            domain: domain(),
            format,
            lanes: (0..LANES).map(|lane| Some(pool(lane))).collect(),
            verification_window: 2,
            linear_positions: 4,
        })
        .expect("memory");
        let words = state.words().to_vec();
        let fill = |number: usize| {
            let mut lane = indexer.claim_lane(number as u8).expect("free");
            let lease = LaneLease { consumer, lane: number as u8, assignment_epoch: 1 };
            let identity = ProducerIdentity {
                pool: pool(number),
                producer_incarnation: 1,
                layout_generation: 1,
                format,
            };
            lane.assign(identity, lease).expect("valid");
            let words = words.clone();
            lane.install_snapshot(&CkfSnapshot { identity, lease, sequence: 0, words });
            lane
        };
        let lanes = (0..LANES).map(fill).collect();
        Table { expected: expected as usize, words, chains, indexer, _lanes: lanes }
    }

    pub(crate) fn probe(&self, hashes: &[u64], batch: usize) -> Laps {
        let hashes: Vec<SequenceHash> = hashes.iter().map(|hash| SequenceHash(*hash)).collect();
        let mut masks = vec![0; batch];
        laps(hashes.chunks_exact(batch), |hashes| {
            black_box(self.indexer.probe(hashes, &mut masks));
            black_box(&masks);
        })
    }

    /// Asks for `chains` in turn, so many `times`.
    pub(crate) fn prefix(&self, chains: &[&[SequenceHash]], times: usize) -> Laps {
        laps((0..times).map(|i| chains[i % chains.len()]), |chain| {
            let _ = black_box(self.indexer.prefix_depths(chain));
        })
    }

    pub(crate) fn prefix_of_blocks(&self, chains: &[&[u64]], times: usize) -> Laps {
        let chains: Vec<Vec<BlockHash>> = chains
            .iter()
            .map(|chain| chain.iter().map(|hash| BlockHash(*hash)).collect())
            .collect();
        let mut scratch = Vec::new();
        laps((0..times).map(|i| &chains[i % chains.len()]), |chain| {
            let _ = black_box(self.indexer.prefix_depths_of_blocks(chain, &mut scratch));
        })
    }
}

fn new_state(blocks: usize) -> DcCkfState {
    let config = ProducerConfig { expected_blocks: blocks as u64, ..ProducerConfig::default() };
    DcCkfState::new(config).expect("memory")
}

fn apply_all(state: &mut DcCkfState, events: &[RouterEvent]) -> Laps {
    let mut images = Vec::new();
    laps(events.iter(), |event| {
        black_box(state.apply(event, &mut images));
        images.clear();
    })
}

/// A producer and the events for it.
pub(crate) struct Producer {
    stores: Vec<RouterEvent>,
    removes: Vec<RouterEvent>,
    blocks: usize,
    state: Option<DcCkfState>,
}

impl Producer {
    pub(crate) fn new(events: &[Event], blocks: usize) -> Producer {
        let source = |event: &Event| Source { worker_id: event.source, dp_rank: 0 };
        let store = |event: &Event| {
            let block = |(id, hash): &(u64, u64)| StoredBlock {
                id: ExternalId(*id),
                tokens_hash: BlockHash(*hash),
            };
            let blocks = event.blocks.iter().map(block).collect();
            let data = EventData::Stored { parent: None, start_position: None, blocks };
            RouterEvent::device(source(event), data)
        };
        let remove = |event: &Event| {
            RouterEvent::removed_keys(source(event), event.blocks.iter().map(|(id, _)| *id))
        };
        Producer {
            stores: events.iter().map(store).collect(),
            removes: events.iter().map(remove).collect(),
            blocks,
            state: None,
        }
    }

    pub(crate) fn store(&mut self) -> Laps {
        let mut state = new_state(self.blocks);
        let taken = apply_all(&mut state, &self.stores);
        self.state = Some(state);
        taken
    }

    pub(crate) fn remove(&mut self) -> Laps {
        if self.state.is_none() {
            self.store();
        }
        apply_all(&mut self.state.take().expect("stored"), &self.removes)
    }

    /// Once the events were stored.
    pub(crate) fn bytes_per_block(&self) -> Option<f64> {
        let sizes = self.state.as_ref()?.sizes();
        Some(sizes.ownership_bytes as f64 / sizes.unique_hashes as f64)
    }
}

/// A producer of ring keys: changes arrive in batches, as they do from a member.
pub(crate) struct Keys {
    stores: Vec<RouterEvent>,
    removes: Vec<RouterEvent>,
    blocks: usize,
    state: Option<DcCkfState>,
}

impl Keys {
    pub(crate) fn new(events: &[Event], per_batch: usize) -> Keys {
        let blocks = events.len();
        // Events of one source follow each other in a batch.
        let mut order: Vec<&Event> = events.iter().collect();
        order.sort_by_key(|event| event.source);
        let hashes = |batch: &[&Event]| batch.iter().map(|event| event.blocks[0].1).collect();
        let source = |batch: &[&Event]| Source { worker_id: batch[0].source, dp_rank: 0 };
        let batches: Vec<(Source, Vec<u64>)> = order
            .chunk_by(|a, b| a.source == b.source)
            .flat_map(|run| run.chunks(per_batch))
            .map(|batch| (source(batch), hashes(batch)))
            .collect();
        let appeared = |(source, hashes): &(Source, Vec<u64>)| {
            let hashes = hashes.iter().map(|hash| SequenceHash(*hash)).collect();
            RouterEvent::device(*source, EventData::Appeared(hashes))
        };
        Keys {
            stores: batches.iter().map(appeared).collect(),
            removes: batches
                .iter()
                .map(|(source, hashes)| RouterEvent::removed_keys(*source, hashes.iter().copied()))
                .collect(),
            blocks,
            state: None,
        }
    }

    pub(crate) fn store(&mut self) -> Laps {
        let mut state = new_state(self.blocks);
        let taken = apply_all(&mut state, &self.stores);
        self.state = Some(state);
        taken
    }

    pub(crate) fn remove(&mut self) -> Laps {
        if self.state.is_none() {
            self.store();
        }
        apply_all(&mut self.state.take().expect("stored"), &self.removes)
    }
}
