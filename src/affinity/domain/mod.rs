//! One domain on this node: the lanes of all datacenters, and the own datacenter's exact state
//! when this node holds it.
//!
//! Queries read the table and take no lock. The state stands behind a mutex that is held for one
//! event, or one short batch of them, and never across an await; so does each lane's inlet. Locks
//! are taken in one order: journal, state, inlets.

mod duties;
mod holder;
mod inlets;
mod journal;
mod state;
mod tables;

use std::sync::atomic::{AtomicBool, AtomicU32};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use self::holder::Holder;
use self::inlets::Inlets;
use self::journal::Journal;
use self::tables::Tables;
use super::lanes::Lanes;
use super::observed::ObservedWrites;
use super::recent::RecentWrites;
use crate::ckf::adapter::AdapterError;
use crate::ckf::consumer::{
    ClaimError, ConsumerConfig, ConsumerError, LINEAR_POSITIONS_DEFAULT,
    VERIFICATION_WINDOW_DEFAULT,
};
use crate::ckf::digest;
use crate::ckf::format::{CkfFormat, DEFAULT_SEED, FormatError};
use crate::ckf::hashing::{BlockHash, HashFormat, SequenceHash};
use crate::ckf::identity::{ConsumerInstanceId, DcId, IndexerDomainId, PoolId, ProducerIdentity};
use crate::ckf::producer::{BuildError, ProducerConfig, ProducerCounters, ProducerSizes};
use crate::ckf::ringkey::KeyProtocol;

pub use self::duties::{Duties, StoreLoad};
pub use self::holder::Part;
pub use self::inlets::NotInstalled;
pub use self::journal::News;
pub(super) use self::state::{INCARNATION_STEP, events_of};
pub use self::tables::OtherSize;

/// The lane of the own datacenter.
pub const OWN_LANE: u8 = 0;

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
    /// Memory for filters of datacenters that have another size, bytes.
    pub resize_bytes_max: u64,
    /// Any number outsiders do not know: it keeps them from crowding the tables.
    pub table_seed: u64,
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

/// Why something could not be done with the own datacenter's state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotTaken {
    /// Another node publishes this domain.
    #[error("this node does not publish this domain")]
    NotPublisher,
    /// The domain's hashes are not blocks that engines tell of.
    #[error("this domain takes no events of engines")]
    NoEngines,
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
    /// Who it is; none while it only stands by.
    pub identity: Option<ProducerIdentity>,
    /// Sizes now.
    pub sizes: ProducerSizes,
    /// Counts since it began.
    pub counters: ProducerCounters,
    /// The last batch it published; none while it only stands by.
    pub sequence: Option<u64>,
    /// Times the state, or its lane alone, had to begin anew after a failure.
    pub recoveries: u32,
}

/// One domain.
#[derive(Debug)]
pub struct Domain {
    spec: DomainSpec,
    tables: Tables,
    lanes: Lanes,
    format: CkfFormat,
    /// Who the own datacenter's state hears of, and whether that is everybody.
    hears: Arc<Hears>,
    /// Engines' events, for domains of blocks.
    journal: Option<Arc<Mutex<Journal>>>,
    holder: Arc<Mutex<Holder>>,
    /// Another one took its place, and publishes. Changed under the lock of the holder.
    is_left: AtomicBool,
    inlets: Mutex<Inlets>,
}

/// Whose holdings the exact state contains.
#[derive(Debug, Default)]
struct Hears {
    complete: AtomicBool,
    members: AtomicU32,
    expected: AtomicU32,
    /// The state contradicted itself and must be built anew.
    damaged: AtomicBool,
    recoveries: AtomicU32,
    duties: Mutex<Duties>,
    loads: Mutex<Vec<Option<StoreLoad>>>,
    /// Names of the members the state does not hear of.
    missing: Mutex<Vec<String>>,
    recent: RecentWrites,
    observed: Arc<ObservedWrites>,
}

impl Domain {
    /// A domain whose lanes are empty and not ready.
    pub fn new(spec: DomainSpec) -> Result<Domain, DomainError> {
        let journal = match spec.kind {
            Kind::Keys(_) => None,
            Kind::Blocks { .. } => {
                Some(Arc::new(Mutex::new(Journal::new(producer_config(&spec, 1))?)))
            }
        };
        Domain::around(spec, journal, Arc::default(), Arc::default())
    }

    fn around(
        spec: DomainSpec,
        journal: Option<Arc<Mutex<Journal>>>,
        holder: Arc<Mutex<Holder>>,
        hears: Arc<Hears>,
    ) -> Result<Domain, DomainError> {
        let format = CkfFormat::for_blocks(DEFAULT_SEED, spec.expected)?;
        let linear_positions = match spec.kind {
            // Keys go in any order, so chains of them have holes.
            Kind::Keys(_) => KEYS_IN_ORDER,
            Kind::Blocks { .. } => LINEAR_POSITIONS_DEFAULT,
        };
        let pool = |dc: &String| Some(pool(&spec.id, dc_id_of(dc)));
        let config = ConsumerConfig {
            consumer: spec.consumer,
            domain: spec.id,
            format,
            lanes: spec.datacenters.iter().map(pool).collect(),
            verification_window: VERIFICATION_WINDOW_DEFAULT,
            linear_positions,
        };
        let tables = Tables::new(config, spec.resize_bytes_max)?;
        let lanes = Lanes::new(spec.datacenters.iter().cloned(), spec.stale_after_ms);
        let (is_left, inlets) = (AtomicBool::new(false), Mutex::default());
        Ok(Domain { spec, tables, lanes, format, hears, journal, holder, is_left, inlets })
    }

    /// Keys that the node's store was told to change a moment ago.
    pub fn recent_writes(&self) -> &RecentWrites {
        &self.hears.recent
    }

    /// Keys that the node's store was told to change, for who follows it.
    pub fn observed_writes(&self) -> &Arc<ObservedWrites> {
        &self.hears.observed
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
        self.tables.ready_lanes()
    }

    /// Bytes of the table all lanes share, and of the one for filters of another size.
    pub fn table_bytes(&self) -> usize {
        self.tables.bytes()
    }

    /// What a lane does or waits for, in words for operators.
    pub fn lane_state(&self, lane: u8, now_ms: u64) -> String {
        let Some(lane) = self.lanes.get(lane) else { return String::new() };
        let note = lane.note();
        match lane.age_ms(now_ms) {
            Some(age_ms) if age_ms > self.spec.stale_after_ms => {
                format!("stale: nothing was heard of its publisher for {} s", age_ms / 1000)
            }
            Some(_) | None if note.state.is_empty() => "nobody sends it yet".to_owned(),
            Some(_) | None => note.state,
        }
    }

    /// For each hash the lanes that may hold it; gives the lanes that are ready and fresh, the
    /// only ones whose bits mean anything.
    pub fn probe(&self, hashes: &[SequenceHash], masks: &mut [u16], now_ms: u64) -> u16 {
        let ready = self.tables.probe(hashes, masks);
        self.lanes.believed(ready, now_ms)
    }

    /// How deep each datacenter holds a chain.
    pub fn depths(&self, chain: Chain<'_>, now_ms: u64) -> Vec<Depth<'_>> {
        let found = self.tables.depths(chain);
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
}

fn producer_config(spec: &DomainSpec, publish_every_n_events: u32) -> ProducerConfig {
    ProducerConfig {
        expected_blocks: spec.expected,
        publish_every_n_events,
        table_seed: spec.table_seed,
        ..ProducerConfig::default()
    }
}

/// The number of a datacenter by its name. One that is known by its number alone is called `#` and
/// sixteen hexadecimal digits.
pub fn dc_id_of(name: &str) -> DcId {
    let number = name.strip_prefix('#').and_then(|digits| digits.parse().ok());
    number.unwrap_or_else(|| digest::dc_id(name))
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn pool(domain: &IndexerDomainId, dc_id: DcId) -> PoolId {
    PoolId { indexer_domain: *domain, dc_id }
}

#[cfg(test)]
pub(crate) mod tests;
