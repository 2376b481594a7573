//! torc's CKF library and the crate `dynamo-kv-router` 1.6.1, side by side on the same content.
//!
//! Every row is done in several rounds, ours and theirs taken in turn, and every round in several
//! laps. What counts is the least processor time of each lap: what else runs on a machine only
//! ever adds.

#[allow(dead_code, unreachable_pub, unused_imports)]
#[path = "../../../../src/ckf/mod.rs"]
mod ckf;
mod ours;
mod theirs;

use std::time::Duration;

use ckf::hashing::SequenceHash;
use rustix::time::{ClockId, clock_gettime};

/// Blocks a producer holds: 80 % of 2^19 buckets.
const BLOCKS: usize = 1_677_720;
/// Sources that store them.
const SOURCES: u64 = 8;
/// Rounds of a row that takes long, and of any other.
const ROUNDS: [usize; 2] = [5, 25];

/// SplitMix64.
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }
}

/// One event of a producer: a source, and blocks as (id, hash of tokens).
pub(crate) struct Event {
    pub(crate) source: u64,
    pub(crate) blocks: Vec<(u64, u64)>,
}

/// Processor time of the parts of one round.
pub(crate) type Laps = [Duration; 16];

/// Does `work` with each of the items and takes the time of equal parts.
pub(crate) fn laps<T>(
    mut items: impl ExactSizeIterator<Item = T>,
    mut work: impl FnMut(T),
) -> Laps {
    let per_lap = items.len().div_ceil(Laps::default().len());
    std::array::from_fn(|_| {
        let start = processor_time();
        items.by_ref().take(per_lap).for_each(&mut work);
        processor_time() - start
    })
}

fn processor_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Least nanoseconds a unit of both sides, taken in turn.
fn row(name: &str, units: usize, mut ours: impl FnMut() -> Laps, mut theirs: impl FnMut() -> Laps) {
    if std::env::args().nth(2).is_some_and(|wanted| !name.contains(&wanted)) {
        return;
    }
    let mut least = [Laps::default().map(|_| Duration::MAX); 2];
    for _ in 0..ROUNDS[usize::from(units < BLOCKS)] {
        for (least, laps) in least.iter_mut().zip([ours(), theirs()]) {
            least.iter_mut().zip(laps).for_each(|(least, lap)| *least = lap.min(*least));
        }
    }
    let [a, b] = least.map(|laps| {
        let total: Duration = laps.iter().sum();
        total.as_nanos() as f64 / units as f64
    });
    println!("{name:<44} {a:>10.1} {b:>10.1} {:>8.1}x", b / a);
}

fn queries(bits: u32) {
    let mib = (128u64 << bits) as f64 / f64::from(1 << 20);
    let mut random = Random(7);
    let (chains, length) = if bits <= 12 { (6, 1024) } else { (600, 1024) };
    let blocks: Vec<Vec<u64>> =
        (0..chains).map(|_| (0..length).map(|_| random.next()).collect()).collect();
    let table = ours::Table::new(bits, &blocks, &mut random);
    let peer = theirs::Table::new(&table);
    // So many that the rows of a large table do not stay in the near caches.
    const PROBES: usize = 1 << 17;
    let absent: Vec<u64> = (0..PROBES).map(|_| random.next()).collect();
    // First blocks of chains are their own hash: some held, most not.
    let mixed: Vec<u64> = (0..PROBES)
        .map(|i| if i % 8 == 0 { blocks[i / 8 % chains][0] } else { absent[i] })
        .collect();
    let singles: Vec<&[u64]> = mixed.iter().map(std::slice::from_ref).collect();
    for batch in [1, 64] {
        row(
            &format!("depth-1, batches of {batch}, {mib} MiB"),
            PROBES,
            || table.probe(&mixed, batch),
            || peer.queries(&singles, PROBES),
        );
    }
    for length in [1, 16, 64, 1024] {
        let times = (1 << 14) / length.clamp(1, 64);
        let blocks: Vec<&[u64]> = blocks.iter().map(|chain| &chain[..length]).collect();
        let known: Vec<&[SequenceHash]> =
            table.chains.iter().map(|chain| &chain[..length]).collect();
        row(
            &format!("prefix, chain given, n={length}, {mib} MiB"),
            times,
            || table.prefix(&known, times),
            || peer.queries(&blocks, times),
        );
        row(
            &format!("prefix, blocks given, n={length}, {mib} MiB"),
            times,
            || table.prefix_of_blocks(&blocks, times),
            || peer.queries(&blocks, times),
        );
    }
    let lost: Vec<&[u64]> = absent.chunks_exact(1024).collect();
    row(
        &format!("prefix, nobody holds it, n=1024, {mib} MiB"),
        1 << 12,
        || table.prefix_of_blocks(&lost, 1 << 12),
        || peer.queries(&lost, 1 << 12),
    );
}

fn events(per_event: usize, engine: bool) -> Vec<Event> {
    let mut random = Random(3);
    (0..BLOCKS / per_event)
        .map(|index| Event {
            source: index as u64 % SOURCES,
            blocks: (0..per_event)
                .map(|_| {
                    let hash = random.next();
                    (if engine { random.next() } else { hash }, hash)
                })
                .collect(),
        })
        .collect()
}

fn producers() {
    for (name, per_event, engine) in
        [("keys", 1, false), ("blocks", 1, true), ("blocks", 16, true), ("blocks", 128, true)]
    {
        let stores = events(per_event, engine);
        let mut ours = ours::Producer::new(&stores, BLOCKS);
        let mut theirs = theirs::Producer::new(&stores, BLOCKS);
        let name = format!("{name}, {per_event} an event");
        row(&format!("first store, {name}"), BLOCKS, || ours.store(), || theirs.store());
        if let Some(bytes) = ours.bytes_per_block() {
            let theirs = theirs.bytes_per_block();
            let name = format!("bytes of exact state a block, {name}");
            println!("{name:<44} {bytes:>10.1} {theirs:>10.1} {:>8.1}x", theirs / bytes);
        }
        row(&format!("final removal, {name}"), BLOCKS, || ours.remove(), || theirs.remove());
    }
    // The crate has no form for several keys in one event.
    let stores = events(1, false);
    let mut keys = ours::Keys::new(&stores, 64);
    let mut theirs = theirs::Producer::new(&stores, BLOCKS);
    row("first store, keys, 64 an event", BLOCKS, || keys.store(), || theirs.store());
    row("final removal, keys, 64 an event", BLOCKS, || keys.remove(), || theirs.remove());
}

fn main() {
    println!("{:<44} {:>10} {:>10} {:>9}", "ns, or bytes", "torc", "crate", "ratio");
    let wanted = std::env::args().nth(1);
    let wants = |name: &str| wanted.as_deref().is_none_or(|wanted| wanted == name);
    if wants("query") {
        for bits in [12, 16, 20] {
            queries(bits);
        }
    }
    if wants("producer") {
        producers();
    }
}
