//! One domain on this node: the lanes of all datacenters, and the own datacenter's producer when
//! this node publishes it.
//!
//! Queries read the table and take no lock. The producer stands behind a mutex that is held for
//! one event, or one short batch of them, and never across an await.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::lanes::Lanes;
use super::member::Change;
use crate::ckf::adapter::{AdapterError, LocalCkfAdapter};
use crate::ckf::consumer::{
    ClaimError, ConsumerConfig, ConsumerError, GlobalCkfIndexer, LANES, LINEAR_POSITIONS_DEFAULT,
    PrefixDepths, VERIFICATION_WINDOW_DEFAULT,
};
use crate::ckf::digest;
use crate::ckf::format::{CkfFormat, DEFAULT_SEED, FormatError};
use crate::ckf::hashing::{BlockHash, HashFormat, SequenceHash};
use crate::ckf::identity::{
    ConsumerInstanceId, DcId, IndexerDomainId, LaneLease, PoolId, ProducerIdentity,
};
use crate::ckf::producer::{
    Applied, BuildError, DcCkfState, EventData, ProducerConfig, ProducerCounters, ProducerSizes,
    RouterEvent, Source,
};
use crate::ckf::ringkey::KeyProtocol;

/// The lane of the own datacenter.
const OWN_LANE: u8 = 0;
/// Changes of a member applied together, so that their memory is fetched together.
const CHANGES_PER_EVENT: usize = 64;
/// Events of a member published together.
const EVENTS_PER_BATCH: u32 = 16;

/// Keys of a chain that are looked at in order; beyond them a hole can be missed.
const KEYS_IN_ORDER: usize = 4096;

/// What the hashes of a domain stand for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Keys of the ring, each a chain of one block.
    Keys(KeyProtocol),
    /// Blocks of tokens.
    Blocks {
        /// Tokens of one block.
        block_size: u32,
        /// How tokens are cut.
        format: HashFormat,
    },
}

/// Shape of a domain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DomainSpec {
    /// What clients and operators call it.
    pub name: String,
    /// Its identity, equal in all datacenters.
    pub id: IndexerDomainId,
    /// What its hashes stand for.
    pub kind: Kind,
    /// All datacenters, the own one first.
    pub datacenters: Vec<String>,
    /// Distinct keys or blocks of one datacenter to size for; equal in all datacenters.
    pub expected: u64,
    /// A lane is not believed after this long without a word, milliseconds.
    pub stale_after_ms: u64,
    /// This node as a consumer.
    pub consumer: ConsumerInstanceId,
}

/// Why a domain cannot be built.
#[derive(Debug, thiserror::Error)]
pub enum DomainError {
    /// No format for so many keys.
    #[error(transparent)]
    Format(#[from] FormatError),
    /// The lanes contradict each other; or two datacenters share an id.
    #[error(transparent)]
    Consumer(#[from] ConsumerError),
    /// The producer cannot be built.
    #[error(transparent)]
    Producer(#[from] BuildError),
    /// The own lane is in use.
    #[error(transparent)]
    Claim(#[from] ClaimError),
    /// Producer and lane do not work together.
    #[error(transparent)]
    Adapter(#[from] AdapterError),
}

/// Why an event was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotTaken {
    /// Another node publishes this domain.
    #[error("this node does not publish this domain")]
    NotPublisher,
    /// The producer or its lane failed; it is being recovered.
    #[error(transparent)]
    Adapter(#[from] AdapterError),
}

/// The depth of a chain in one datacenter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Depth<'a> {
    /// The datacenter.
    pub dc: &'a str,
    /// Blocks from the start that it holds; none while its lane is not believed.
    pub blocks: Option<u32>,
    /// Milliseconds since its producer was heard.
    pub age_ms: Option<u64>,
}

/// A chain as its asker has it.
#[derive(Clone, Copy, Debug)]
pub enum Chain<'a> {
    /// Hashes of blocks with all before them.
    Sequence(&'a [SequenceHash]),
    /// Hashes of single blocks, to be chained.
    Blocks(&'a [BlockHash]),
}

/// Figures of the producer of a domain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProducerReport {
    /// Who it is.
    pub identity: ProducerIdentity,
    /// Sizes now.
    pub sizes: ProducerSizes,
    /// Counts since it began.
    pub counters: ProducerCounters,
    /// The last batch it published.
    pub sequence: Option<u64>,
    /// Times its lane had to be started anew.
    pub recoveries: u64,
}

#[derive(Debug)]
struct Producer {
    identity: ProducerIdentity,
    adapter: LocalCkfAdapter,
    recoveries: u64,
}

/// One domain.
#[derive(Debug)]
pub struct Domain {
    spec: DomainSpec,
    indexer: GlobalCkfIndexer,
    lanes: Lanes,
    format: CkfFormat,
    /// Whether the producer hears of everything its datacenter holds.
    complete: AtomicBool,
    producer: Mutex<Option<Producer>>,
}

impl Domain {
    /// A domain whose lanes are empty and not ready.
    pub fn new(spec: DomainSpec) -> Result<Domain, DomainError> {
        let format = CkfFormat::for_blocks(DEFAULT_SEED, spec.expected)?;
        let linear_positions = match spec.kind {
            // Keys go in any order, so chains of them have holes.
            Kind::Keys(_) => KEYS_IN_ORDER,
            Kind::Blocks { .. } => LINEAR_POSITIONS_DEFAULT,
        };
        let pool = |dc: &String| Some(pool(&spec.id, digest::dc_id(dc)));
        let indexer = GlobalCkfIndexer::new(ConsumerConfig {
            consumer: spec.consumer,
            domain: spec.id,
            format,
            lanes: spec.datacenters.iter().map(pool).collect(),
            verification_window: VERIFICATION_WINDOW_DEFAULT,
            linear_positions,
        })?;
        let lanes = Lanes::new(spec.datacenters.iter().cloned(), spec.stale_after_ms);
        let complete = AtomicBool::new(true);
        Ok(Domain { spec, indexer, lanes, format, complete, producer: Mutex::new(None) })
    }

    /// The same domain with other datacenters. The producer moves over and goes on; remote lanes
    /// begin anew. This one answers for the remote lanes until it is dropped.
    pub fn move_to(&self, spec: DomainSpec) -> Result<Domain, DomainError> {
        let next = Domain::new(spec)?;
        next.complete.store(self.complete.load(Ordering::Relaxed), Ordering::Relaxed);
        let mut old = self.producer();
        if let Some(mut producer) = old.take() {
            let lease = next.own_lease(producer.identity.producer_incarnation);
            let moved = next
                .indexer
                .claim_lane(OWN_LANE)
                .map_err(DomainError::from)
                .and_then(|lane| Ok(producer.adapter.move_to(lane, lease)?));
            if let Err(error) = moved {
                *old = Some(producer);
                return Err(error);
            }
            if let (Some(before), Some(after)) =
                (self.lanes.get(OWN_LANE), next.lanes.get(OWN_LANE))
            {
                after.heard_like(before);
            }
            *next.producer() = Some(producer);
        }
        Ok(next)
    }

    /// Says whether the producer hears of everything its datacenter holds. While it does not,
    /// its lane is not refreshed, and so is not believed.
    pub fn set_complete(&self, complete: bool) {
        self.complete.store(complete, Ordering::Relaxed);
    }

    /// Makes this node the publisher of the own datacenter's pool. `incarnation` rises with every
    /// takeover of the pool; `table_seed` is any number outsiders do not know.
    pub fn publish(&self, incarnation: u64, table_seed: u64) -> Result<(), DomainError> {
        let per_batch = match self.spec.kind {
            Kind::Keys(_) => EVENTS_PER_BATCH,
            Kind::Blocks { .. } => 1,
        };
        let state = DcCkfState::new(ProducerConfig {
            expected_blocks: self.spec.expected,
            publish_every_n_events: per_batch,
            table_seed,
            ..ProducerConfig::default()
        })?;
        let own = self.indexer.pool(OWN_LANE).ok_or(ClaimError::NoSuchLane(OWN_LANE))?;
        let identity = ProducerIdentity {
            pool: own,
            producer_incarnation: incarnation,
            layout_generation: 1,
            format: self.format,
        };
        let lease = self.own_lease(incarnation);
        let mut producer = self.producer();
        // The lane of an earlier life must be free before it is claimed again.
        *producer = None;
        let lane = self.indexer.claim_lane(OWN_LANE)?;
        let adapter = LocalCkfAdapter::new(state, identity, lane, lease)?;
        *producer = Some(Producer { identity, adapter, recoveries: 0 });
        Ok(())
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.spec.name
    }

    /// Its shape.
    pub fn spec(&self) -> &DomainSpec {
        &self.spec
    }

    /// Its lanes.
    pub fn lanes(&self) -> &Lanes {
        &self.lanes
    }

    /// The lanes whose filters are complete, one bit each.
    pub fn ready_lanes(&self) -> u16 {
        self.indexer.ready_lanes()
    }

    /// Bytes of the table all lanes share.
    pub fn table_bytes(&self) -> usize {
        self.indexer.table_bytes()
    }

    /// For each hash the lanes that may hold it; gives the lanes that are ready and fresh, the
    /// only ones whose bits mean anything.
    pub fn probe(&self, hashes: &[SequenceHash], masks: &mut [u16], now_ms: u64) -> u16 {
        let ready = self.indexer.probe(hashes, masks);
        self.lanes.believed(ready, now_ms)
    }

    /// How deep each datacenter holds a chain.
    pub fn depths(&self, chain: Chain<'_>, now_ms: u64) -> Vec<Depth<'_>> {
        let found = match chain {
            Chain::Sequence(hashes) => self.indexer.prefix_depths(hashes),
            Chain::Blocks(blocks) => self.indexer.prefix_depths_of_blocks(blocks, &mut Vec::new()),
        };
        let found = found.unwrap_or(PrefixDepths { ready: 0, depths: [0; LANES] });
        let believed = self.lanes.believed(found.ready, now_ms);
        let depth = |(number, lane): (u8, &'_ super::lanes::Lane)| {
            let blocks =
                (believed & (1 << number) != 0).then_some(found.depths[usize::from(number)]);
            (blocks, lane.age_ms(now_ms))
        };
        self.lanes
            .iter()
            .map(|(number, lane)| {
                let (blocks, age_ms) = depth((number, lane));
                Depth { dc: &lane.dc, blocks, age_ms }
            })
            .collect()
    }

    /// Applies one event of a source to the own datacenter's producer.
    pub fn apply(&self, event: &RouterEvent, now_ms: u64) -> Result<Applied, NotTaken> {
        let mut guard = self.producer();
        let producer = guard.as_mut().ok_or(NotTaken::NotPublisher)?;
        let applied = producer.apply(event);
        self.heard_own(producer, now_ms);
        applied
    }

    /// Applies what changed at a member and publishes it.
    pub fn apply_changes(
        &self,
        source: Source,
        changes: &[Change],
        now_ms: u64,
    ) -> Result<(), NotTaken> {
        let mut guard = self.producer();
        let producer = guard.as_mut().ok_or(NotTaken::NotPublisher)?;
        for event in events_of(source, changes) {
            producer.apply(&event)?;
        }
        producer.publish_rest()?;
        self.heard_own(producer, now_ms);
        Ok(())
    }

    /// Figures of the producer, when this node publishes.
    pub fn producer_report(&self) -> Option<ProducerReport> {
        let guard = self.producer();
        let producer = guard.as_ref()?;
        Some(ProducerReport {
            identity: producer.identity,
            sizes: producer.adapter.producer().sizes(),
            counters: producer.adapter.producer().counters(),
            sequence: producer.adapter.lane().installed_sequence(),
            recoveries: producer.recoveries,
        })
    }

    fn heard_own(&self, producer: &Producer, now_ms: u64) {
        if self.complete.load(Ordering::Relaxed)
            && producer.adapter.lane().installed_sequence().is_some()
            && let Some(lane) = self.lanes.get(OWN_LANE)
        {
            lane.heard(now_ms);
        }
    }

    fn own_lease(&self, epoch: u64) -> LaneLease {
        LaneLease { consumer: self.spec.consumer, lane: OWN_LANE, assignment_epoch: epoch }
    }

    fn producer(&self) -> MutexGuard<'_, Option<Producer>> {
        self.producer.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Producer {
    fn apply(&mut self, event: &RouterEvent) -> Result<Applied, NotTaken> {
        match self.adapter.apply_event(event) {
            Ok(applied) => Ok(applied),
            Err(error) => {
                self.recover()?;
                Err(error.into())
            }
        }
    }

    fn publish_rest(&mut self) -> Result<(), NotTaken> {
        match self.adapter.flush() {
            Ok(()) => Ok(()),
            // The snapshot of the recovery holds what could not be published.
            Err(_) => self.recover(),
        }
    }

    fn recover(&mut self) -> Result<(), NotTaken> {
        self.recoveries += 1;
        Ok(self.adapter.recover_snapshot()?)
    }
}

/// Changes as events: runs of one kind go together, at most [`CHANGES_PER_EVENT`] of them.
fn events_of(source: Source, changes: &[Change]) -> impl Iterator<Item = RouterEvent> + '_ {
    let stored = |change: &Change| matches!(change, Change::Stored(_));
    let runs = changes.chunk_by(move |a, b| stored(a) == stored(b));
    runs.flat_map(|run| run.chunks(CHANGES_PER_EVENT)).map(move |run| {
        let hash = |change: &Change| match change {
            Change::Stored(hash) | Change::Removed(hash) => *hash,
        };
        let hashes = run.iter().map(hash);
        match run.first() {
            Some(Change::Removed(_)) => {
                RouterEvent::removed_keys(source, hashes.map(|hash| hash.0))
            }
            Some(Change::Stored(_)) | None => {
                RouterEvent::device(source, EventData::Appeared(hashes.collect()))
            }
        }
    })
}

fn pool(domain: &IndexerDomainId, dc_id: DcId) -> PoolId {
    PoolId { indexer_domain: *domain, dc_id }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::ckf::hashing::ExternalId;
    use crate::ckf::producer::StoredBlock;
    use crate::ckf::ringkey::{ring_key_domain, ring_key_hash};

    pub(in crate::affinity) fn spec(name: &str, kind: Kind, dcs: &[&str]) -> DomainSpec {
        DomainSpec {
            name: name.into(),
            id: ring_key_domain([("authority", name)], [("authority", name)]).unwrap(),
            kind,
            datacenters: dcs.iter().map(|dc| dc.to_string()).collect(),
            expected: 1000,
            stale_after_ms: 100,
            consumer: ConsumerInstanceId(1),
        }
    }

    fn key(name: &str) -> SequenceHash {
        ring_key_hash(KeyProtocol::Resp, name.as_bytes())
    }

    #[test]
    fn a_member_that_tells_its_keys_is_believed_while_it_tells() {
        let spec = spec("keys", Kind::Keys(KeyProtocol::Resp), &["own", "other"]);
        let domain = Domain::new(spec).unwrap();
        let source = Source { worker_id: 1, dp_rank: 0 };
        let stored = [Change::Stored(key("a"))];
        let refused = domain.apply_changes(source, &stored, 0);
        assert_eq!(refused, Err(NotTaken::NotPublisher));

        domain.publish(7, 0).unwrap();
        domain.apply_changes(source, &stored, 0).unwrap();
        let mut masks = [0, 0];
        let hashes = [key("a"), key("b")];
        assert_eq!(domain.probe(&hashes, &mut masks, 100), 0b01);
        assert_eq!(masks, [0b01, 0]);
        assert_eq!(domain.probe(&hashes, &mut masks, 101), 0);
        domain.apply_changes(source, &[Change::Removed(key("a"))], 200).unwrap();
        assert_eq!(domain.probe(&hashes, &mut masks, 200), 0b01);
        assert_eq!(masks, [0, 0]);
        let report = domain.producer_report().unwrap();
        assert_eq!((report.sequence, report.sizes.unique_hashes), (Some(2), 0));

        // A new life begins empty, and is the own datacenter's lane again.
        domain.publish(8, 0).unwrap();
        domain.apply_changes(source, &stored, 300).unwrap();
        assert_eq!(domain.probe(&hashes, &mut masks, 300), 0b01);
        assert_eq!(masks, [0b01, 0]);
    }

    #[test]
    fn depths_are_told_for_every_datacenter() {
        let kind = Kind::Blocks { block_size: 16, format: HashFormat::Standard };
        let domain = Domain::new(spec("llm", kind, &["own", "other"])).unwrap();
        domain.publish(1, 0).unwrap();
        let blocks = [BlockHash(5), BlockHash(6), BlockHash(7)];
        let stored = |range: std::ops::Range<usize>| EventData::Stored {
            parent: None,
            start_position: None,
            blocks: blocks[range]
                .iter()
                .map(|hash| StoredBlock { id: ExternalId(hash.0 + 100), tokens_hash: *hash })
                .collect(),
        };
        let source = Source { worker_id: 1, dp_rank: 0 };
        let event = RouterEvent::device(source, stored(0..2));
        assert_eq!(domain.apply(&event, 5).unwrap().first_error, None);
        let expected = [
            Depth { dc: "own", blocks: Some(2), age_ms: Some(4) },
            Depth { dc: "other", blocks: None, age_ms: None },
        ];
        assert_eq!(domain.depths(Chain::Blocks(&blocks), 9), expected);
        let chain: Vec<SequenceHash> =
            crate::ckf::hashing::sequence_hashes(blocks.into_iter()).collect();
        assert_eq!(domain.depths(Chain::Sequence(&chain), 9), expected);
        assert_eq!(domain.depths(Chain::Sequence(&chain), 500)[0].blocks, None);
    }

    #[test]
    fn two_datacenters_of_one_name_are_refused() {
        let spec = spec("keys", Kind::Keys(KeyProtocol::Resp), &["own", "own"]);
        let error = Domain::new(spec).unwrap_err();
        assert!(matches!(error, DomainError::Consumer(ConsumerError::DuplicateDc(1))));
    }
}
