//! Micro benches of the CKF library: probes, prefix search, producer, and bytes per block.
//!
//! `cargo bench --bench ckf`. Time is processor time of the thread, so that other work on the
//! machine shows as cache misses only.

use std::hint::black_box;
use std::time::Duration;

use criterion::measurement::{Measurement, ValueFormatter, WallTime};
use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use rustix::time::{ClockId, clock_gettime};
use torc::ckf::consumer::lane::LaneIngestor;
use torc::ckf::consumer::{ConsumerConfig, GlobalCkfIndexer, LANES};
use torc::ckf::format::CkfFormat;
use torc::ckf::hashing::{BlockHash, ExternalId, SequenceHash, sequence_hashes};
use torc::ckf::identity::{
    ConsumerInstanceId, DcId, IndexerDomainId, LaneLease, PoolId, ProducerIdentity,
};
use torc::ckf::producer::{
    DcCkfState, EventData, ProducerConfig, RouterEvent, Source, StoredBlock,
};
use torc::ckf::publication::CkfSnapshot;
use torc::ckf::ringkey::ring_key_domain;

/// Blocks the producer holds: 80 % of 2^19 buckets.
const BLOCKS: u64 = 1_677_720;
/// Sources that store them.
const SOURCES: u64 = 8;

/// Processor time of this thread.
struct ThreadTime;

impl ThreadTime {
    fn now() -> Duration {
        let time = clock_gettime(ClockId::ThreadCPUTime);
        Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
    }
}

impl Measurement for ThreadTime {
    type Intermediate = Duration;
    type Value = Duration;

    fn start(&self) -> Duration {
        ThreadTime::now()
    }

    fn end(&self, start: Duration) -> Duration {
        ThreadTime::now() - start
    }

    fn add(&self, a: &Duration, b: &Duration) -> Duration {
        *a + *b
    }

    fn zero(&self) -> Duration {
        Duration::ZERO
    }

    fn to_f64(&self, value: &Duration) -> f64 {
        value.as_nanos() as f64
    }

    fn formatter(&self) -> &dyn ValueFormatter {
        WallTime.formatter()
    }
}

fn random(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

fn domain() -> IndexerDomainId {
    ring_key_domain([("kind", "bench")], [("kind", "bench")]).expect("a valid map")
}

fn identity(lane: usize, format: CkfFormat) -> ProducerIdentity {
    let pool = PoolId { indexer_domain: domain(), dc_id: DcId::new(lane as u64 + 1) };
    ProducerIdentity { pool, producer_incarnation: 1, layout_generation: 1, format }
}

/// Sixteen lanes of one filter, filled to 45 % with noise and to `chains` with their blocks.
struct Table {
    indexer: GlobalCkfIndexer,
    _lanes: Vec<LaneIngestor>,
    chains: Vec<Vec<SequenceHash>>,
}

fn table(bucket_bits: u32, chains: usize, length: usize) -> Table {
    let buckets = 1u64 << bucket_bits;
    let config = ProducerConfig { expected_blocks: buckets * 16 / 5, ..ProducerConfig::default() };
    let mut state = DcCkfState::new(config).expect("memory");
    let mut seed = 7;
    let chain = |seed: &mut u64| -> Vec<SequenceHash> {
        let blocks: Vec<BlockHash> = (0..length).map(|_| BlockHash(random(seed))).collect();
        sequence_hashes(blocks.into_iter()).collect()
    };
    let chains: Vec<Vec<SequenceHash>> = (0..chains).map(|_| chain(&mut seed)).collect();
    let planted = chains.iter().flatten().map(|hash| hash.0);
    let noise = (buckets * 4 * 45 / 100).saturating_sub((chains.len() * length) as u64);
    let source = Source { worker_id: 1, dp_rank: 0 };
    let mut images = Vec::new();
    for hash in planted.chain((0..noise).map(|_| random(&mut seed))) {
        state.apply(&RouterEvent::stored_key(source, hash), &mut images);
        images.clear();
    }
    let format = *state.format();
    let indexer = GlobalCkfIndexer::new(ConsumerConfig {
        consumer: ConsumerInstanceId(1),
        domain: domain(),
        format,
        lanes: (0..LANES).map(|lane| Some(identity(lane, format).pool)).collect(),
        verification_window: 2,
        linear_positions: 16,
    })
    .expect("memory");
    let fill = |number: usize| {
        let mut lane = indexer.claim_lane(number as u8).expect("a free lane");
        let lease =
            LaneLease { consumer: ConsumerInstanceId(1), lane: number as u8, assignment_epoch: 1 };
        let identity = identity(number, format);
        lane.assign(identity, lease).expect("a valid lease");
        let words = state.words().to_vec();
        lane.install_snapshot(&CkfSnapshot { identity, lease, sequence: 0, words });
        lane
    };
    let lanes = (0..LANES).map(fill).collect();
    Table { indexer, _lanes: lanes, chains }
}

fn queries(c: &mut Criterion<ThreadTime>) {
    let mut group = c.benchmark_group("query");
    for bits in [12, 20] {
        let mib = (128u64 << bits) >> 20;
        let table = table(bits, if bits == 12 { 4 } else { 400 }, 1024);
        let mut seed = 99;
        let hashes: Vec<SequenceHash> =
            (0..1 << 16).map(|_| SequenceHash(random(&mut seed))).collect();
        for batch in [1, 64] {
            let mut masks = vec![0; batch];
            let mut runs = hashes.chunks_exact(batch).cycle();
            group.throughput(Throughput::Elements(batch as u64));
            group.bench_function(BenchmarkId::new(format!("probe, {mib} MiB"), batch), |b| {
                b.iter(|| table.indexer.probe(runs.next().expect("a cycle"), &mut masks));
            });
        }
        group.throughput(Throughput::Elements(1));
        for length in [1, 16, 64, 1024] {
            let mut chains = table.chains.iter().cycle();
            group.bench_function(BenchmarkId::new(format!("prefix, {mib} MiB"), length), |b| {
                b.iter(|| {
                    let chain = &chains.next().expect("a cycle")[..length];
                    table.indexer.prefix_depths(black_box(chain))
                });
            });
        }
        let absent: Vec<BlockHash> = (0..1024).map(|_| BlockHash(random(&mut seed))).collect();
        let mut scratch = Vec::new();
        group.bench_function(BenchmarkId::new(format!("prefix absent, {mib} MiB"), 1024), |b| {
            b.iter(|| table.indexer.prefix_depths_of_blocks(black_box(&absent), &mut scratch));
        });
    }
    group.finish();
}

/// Events of `per_event` blocks; names differ from hashes when `engine` is set.
fn events(per_event: usize, engine: bool) -> Vec<RouterEvent> {
    let mut seed = 3;
    let event = |index: u64| {
        let source = Source { worker_id: index % SOURCES, dp_rank: 0 };
        let blocks: Vec<StoredBlock> = (0..per_event)
            .map(|_| {
                let hash = random(&mut seed);
                let id = if engine { random(&mut seed) } else { hash };
                StoredBlock { id: ExternalId(id), tokens_hash: BlockHash(hash) }
            })
            .collect();
        RouterEvent::device(
            source,
            EventData::Stored { parent: None, start_position: None, blocks },
        )
    };
    (0..BLOCKS / per_event as u64).map(event).collect()
}

fn removals(stores: &[RouterEvent]) -> Vec<RouterEvent> {
    let removal = |event: &RouterEvent| {
        let EventData::Stored { blocks, .. } = &event.data else { unreachable!("stores only") };
        let ids = blocks.iter().map(|block| block.id).collect();
        RouterEvent::device(event.source, EventData::Removed(ids))
    };
    stores.iter().map(removal).collect()
}

fn apply_all(state: &mut DcCkfState, events: &[RouterEvent]) -> Duration {
    let mut images = Vec::new();
    let start = ThreadTime::now();
    for event in events {
        state.apply(event, &mut images);
        images.clear();
    }
    ThreadTime::now() - start
}

fn producer(c: &mut Criterion<ThreadTime>) {
    let mut group = c.benchmark_group("producer");
    group.sample_size(10);
    group.throughput(Throughput::Elements(BLOCKS));
    for (name, per_event, engine) in [("keys", 1, false), ("blocks", 1, true), ("blocks", 16, true)]
    {
        let stores = events(per_event, engine);
        let removes = removals(&stores);
        let config = ProducerConfig { expected_blocks: BLOCKS, ..ProducerConfig::default() };
        let mut state = DcCkfState::new(config).expect("memory");
        apply_all(&mut state, &stores);
        let sizes = state.sizes();
        println!(
            "{name}, {per_event} an event: {:.1} bytes of exact state a block",
            sizes.ownership_bytes as f64 / sizes.unique_hashes as f64
        );
        drop(state);
        for (what, wanted) in [("first store", true), ("final removal", false)] {
            group.bench_function(BenchmarkId::new(format!("{what}, {name}"), per_event), |b| {
                b.iter_custom(|rounds| {
                    let mut total = Duration::ZERO;
                    for _ in 0..rounds {
                        let mut state = DcCkfState::new(config).expect("memory");
                        let store = apply_all(&mut state, &stores);
                        let remove = apply_all(&mut state, &removes);
                        total += if wanted { store } else { remove };
                    }
                    total
                });
            });
        }
    }
    group.finish();
}

criterion_group! {
    name = benches;
    config = Criterion::default()
        .with_measurement(ThreadTime)
        .warm_up_time(Duration::from_millis(300))
        .measurement_time(Duration::from_secs(1));
    targets = queries, producer
}
criterion_main!(benches);
