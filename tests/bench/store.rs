//! The embedded store without sockets: GET and SET of 64-byte values over a million keys on one
//! thread, and commands of many keys on one and two. redis-server's own figure for comparison is
//! `redis-benchmark -t get,set -d 64 -P 64`.

use std::hint::black_box;

use criterion::measurement::{Measurement, WallTime};
use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use torc::proto::args::{Args, Span};
use torc::proto::outbuf::OutBuf;
use torc::store::{MemoryStore, StoreSettings};

/// Keys in the store.
const KEYS: u64 = 1_000_000;

/// Bytes of a value.
const VALUE_BYTES: usize = 64;

/// Milliseconds since the epoch; nothing here expires.
const NOW_MS: u64 = 1_700_000_000_000;

/// Keys of a command of many.
const KEYS_EACH: usize = 100;

/// One command, ready to be run.
struct Request {
    bytes: Vec<u8>,
    spans: Vec<Span>,
}

impl Request {
    fn new(words: &[&[u8]]) -> Request {
        let (mut bytes, mut spans) = (Vec::new(), Vec::new());
        for word in words {
            spans.push(Span::new(bytes.len(), bytes.len() + word.len()));
            bytes.extend_from_slice(word);
        }
        Request { bytes, spans }
    }

    fn run(&self, store: &MemoryStore, out: &mut OutBuf) {
        store.execute(&Args::new(&self.bytes, &self.spans), NOW_MS, out);
    }
}

fn key(n: u64) -> Vec<u8> {
    format!("key:{n:012}").into_bytes()
}

/// Requests over keys below `keys` in random order.
fn requests(verb: &[u8], keys: u64, value: Option<&[u8]>) -> Vec<Request> {
    let mut rng = fastrand::Rng::with_seed(1);
    let one = |_| {
        let key = key(rng.u64(..keys));
        let mut words = vec![verb, &key];
        words.extend(value);
        Request::new(&words)
    };
    (0..100_000).map(one).collect()
}

fn bench(c: &mut Criterion, name: &str, store: &MemoryStore, requests: &[Request]) {
    let mut out = OutBuf::new();
    let mut turn = requests.iter().cycle();
    let mut group = c.benchmark_group("store");
    group.throughput(Throughput::Elements(1));
    group.bench_function(name, |b| {
        b.iter(|| {
            turn.next().expect("a cycle does not end").run(store, &mut out);
            if out.len() > 64 * 1024 {
                black_box(out.front());
                out.clear();
            }
        });
    });
    group.finish();
}

fn store_benches(c: &mut Criterion) {
    let store = MemoryStore::new(StoreSettings::default());
    let value = [b'v'; VALUE_BYTES];
    let mut out = OutBuf::new();
    for n in 0..KEYS {
        Request::new(&[b"SET", &key(n), &value]).run(&store, &mut out);
        out.clear();
    }
    let bytes = store.counters().bytes / KEYS;
    println!("{KEYS} keys, {bytes} accounted bytes a key");
    for (span, keys) in [("hot", 1_000), ("cold", KEYS)] {
        bench(c, &format!("get_64_{span}"), &store, &requests(b"GET", keys, None));
        bench(c, &format!("set_64_{span}"), &store, &requests(b"SET", keys, Some(&value)));
    }
    let small = MemoryStore::new(StoreSettings::default());
    bench(c, "incr", &small, &[Request::new(&[b"INCR", b"counter"])]);
    bench(
        c,
        "lpush_lpop",
        &small,
        &[Request::new(&[b"LPUSH", b"list", &value]), Request::new(&[b"RPOP", b"list"])],
    );
    bench(c, "zadd", &small, &zadds());
}

/// Commands of many keys that several threads run at the same time.
fn many_keys(c: &mut Criterion) {
    const KEYS: u64 = 10_000;
    let store = MemoryStore::new(StoreSettings::default());
    let mut out = OutBuf::new();
    for n in 0..KEYS {
        Request::new(&[b"SET", &key(n), &[b'v'; VALUE_BYTES]]).run(&store, &mut out);
        out.clear();
    }
    for verb in ["EXISTS", "TOUCH", "MGET"] {
        for threads in [1, 2] {
            let mut group = c.benchmark_group("store");
            group.throughput(Throughput::Elements(threads));
            let name = format!("{verb}_of_{KEYS_EACH}_keys_on_{threads}_threads");
            group
                .bench_function(name, |b| b.iter_custom(|n| run_at_once(&store, verb, threads, n)));
        }
    }
}

/// How long `threads` threads take to run `n` commands each.
fn run_at_once(store: &MemoryStore, verb: &str, threads: u64, n: u64) -> std::time::Duration {
    let own: Vec<Vec<Request>> = (0..threads).map(|seed| of_many_keys(verb, seed)).collect();
    let begun = WallTime.start();
    std::thread::scope(|scope| {
        for requests in &own {
            scope.spawn(move || {
                let mut out = OutBuf::new();
                for request in requests.iter().cycle().take(n as usize) {
                    request.run(store, &mut out);
                    out.clear();
                }
            });
        }
    });
    WallTime.end(begun)
}

fn of_many_keys(verb: &str, seed: u64) -> Vec<Request> {
    let mut rng = fastrand::Rng::with_seed(seed);
    let one = |_| {
        let keys: Vec<Vec<u8>> = (0..KEYS_EACH).map(|_| key(rng.u64(..10_000))).collect();
        let words: Vec<&[u8]> =
            std::iter::once(verb.as_bytes()).chain(keys.iter().map(Vec::as_slice)).collect();
        Request::new(&words)
    };
    (0..1_000).map(one).collect()
}

fn zadds() -> Vec<Request> {
    let mut rng = fastrand::Rng::with_seed(2);
    let one = |_| {
        let score = rng.u32(..).to_string();
        Request::new(&[b"ZADD", b"zset", score.as_bytes(), &key(rng.u64(..100_000))])
    };
    (0..100_000).map(one).collect()
}

criterion_group!(benches, many_keys, store_benches);
criterion_main!(benches);
