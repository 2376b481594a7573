//! The store as its callers use it, under an explicit clock.

use super::*;
use crate::dispatch::{Awaited, Watched};
use crate::proto::args::Span;
use crate::stamp::Stamp;
use std::sync::atomic::Ordering::Relaxed;

mod stamps;

/// Milliseconds since the epoch at which every test begins.
const NOW: u64 = 1_700_000_000_000;

/// Owned arguments, lent as [`Args`].
pub(super) struct Request {
    bytes: Vec<u8>,
    spans: Vec<Span>,
}

impl Request {
    /// The words of `line`, split at blanks.
    pub(super) fn words(line: &str) -> Request {
        let words: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
        Request::new(&words)
    }

    pub(super) fn new(words: &[&[u8]]) -> Request {
        let (mut bytes, mut spans) = (Vec::new(), Vec::new());
        for word in words {
            spans.push(Span::new(bytes.len(), bytes.len() + word.len()));
            bytes.extend_from_slice(word);
        }
        Request { bytes, spans }
    }

    pub(super) fn args(&self) -> Args<'_> {
        Args::new(&self.bytes, &self.spans)
    }
}

/// Everything in `out`.
pub(super) fn drain(mut out: OutBuf) -> String {
    let mut all = Vec::new();
    while !out.is_empty() {
        let front = out.front();
        let n = front.len();
        all.extend_from_slice(front);
        out.advance(n);
    }
    String::from_utf8_lossy(&all).replace("\r\n", " ").trim_end().to_string()
}

/// Runs one command of words; line ends of the reply become blanks.
pub(super) fn run_at(store: &MemoryStore, now_ms: u64, line: &str) -> String {
    let mut out = OutBuf::new();
    store.execute(&Request::words(line).args(), now_ms, &mut out);
    drain(out)
}

fn run(store: &MemoryStore, line: &str) -> String {
    run_at(store, NOW, line)
}

fn store(change: impl FnOnce(&mut StoreSettings)) -> MemoryStore {
    let mut settings = StoreSettings::default();
    change(&mut settings);
    MemoryStore::new(settings)
}

fn events(store: &MemoryStore) -> (Vec<PresenceEvent>, bool) {
    let (mut all, mut overrun) = (Vec::new(), false);
    for shard in 0..store.shards() {
        overrun |= store.drain_events(shard as u8, &mut all);
    }
    (all, overrun)
}

#[test]
fn the_store_is_shared_between_threads() {
    fn is_shared<T: Send + Sync>() {}
    is_shared::<MemoryStore>();
}

#[test]
fn a_key_lives_through_its_last_millisecond() {
    let store = store(|_| {});
    assert_eq!(run(&store, "SET k v PX 100"), "+OK");
    assert_eq!(run_at(&store, NOW + 100, "GET k"), "$1 v");
    assert_eq!(run_at(&store, NOW + 100, "PTTL k"), ":0");
    assert_eq!(run_at(&store, NOW + 101, "GET k"), "$-1");
    assert_eq!(run_at(&store, NOW + 101, "DBSIZE"), ":0");
    assert_eq!(store.counters().expired, 1);
}

#[test]
fn expiry_commands_follow_the_clock() {
    let store = store(|_| {});
    run(&store, "SET k v");
    assert_eq!(run(&store, "TTL k"), ":-1");
    assert_eq!(run(&store, "EXPIRE k 10"), ":1");
    assert_eq!(run_at(&store, NOW + 1_400, "TTL k"), ":9");
    assert_eq!(run_at(&store, NOW + 1_501, "TTL k"), ":8");
    assert_eq!(run(&store, "PEXPIRETIME k"), format!(":{}", NOW + 10_000));
    assert_eq!(run(&store, "EXPIRE k 5 GT"), ":0");
    assert_eq!(run(&store, "EXPIRE k 5 LT"), ":1");
    assert_eq!(run(&store, "SET k w KEEPTTL"), "+OK");
    assert_eq!(run(&store, "TTL k"), ":5");
    assert_eq!(run(&store, "PERSIST k"), ":1");
    assert_eq!(run_at(&store, NOW + 100_000, "GET k"), "$1 w");
    assert_eq!(run(&store, "EXPIRE k -1"), ":1");
    assert_eq!(run(&store, "EXISTS k"), ":0");
    run(&store, "SET k v EX 5");
    assert_eq!(run(&store, "GETEX k PERSIST"), "$1 v");
    assert_eq!(run(&store, "TTL k"), ":-1");
    assert_eq!(run(&store, "GETEX k PXAT 5"), "$1 v");
    assert_eq!(run(&store, "EXISTS k"), ":0");
}

#[test]
fn a_sweep_frees_what_nobody_touches() {
    let store = store(|s| s.events_max = 100);
    for n in 0..50 {
        run(&store, &format!("SET k{n} v PX {}", 100 + n));
        run(&store, &format!("SET k{n} v PX {}", 200 + n));
    }
    run(&store, "SET stays v");
    events(&store);
    store.sweep(NOW + 200, usize::MAX);
    assert_eq!(store.counters().keys, 51, "old times are dropped, not believed");
    assert_eq!(store.sweep(NOW + 1_000, 10), 10);
    assert_eq!(store.counters().keys, 41);
    store.sweep(NOW + 1_000, usize::MAX);
    let counters = store.counters();
    assert_eq!((counters.keys, counters.volatile_keys, counters.expired), (1, 0, 50));
    assert_eq!(events(&store).0.len(), 50);
}

#[test]
fn setting_an_expiry_again_and_again_keeps_memory_flat() {
    let store = store(|_| {});
    for n in 0..10_000 {
        run(&store, &format!("SET k v PX {}", 1_000 + n));
    }
    assert!(store.lock(shard_of(hash_of(b"k"))).due_len() < 200);
    store.sweep(NOW + 50_000, usize::MAX);
    assert_eq!(store.counters().keys, 0);
}

#[test]
fn the_memory_limit_evicts_what_was_not_used() {
    let store = store(|s| s.memory_bytes_max = 200_000);
    let value = "v".repeat(100);
    for n in 0..500 {
        run_at(&store, NOW, &format!("SET old{n} {value}"));
    }
    for n in 0..500 {
        let now = NOW + 60_000 + n;
        run_at(&store, now, &format!("SET hot{n} {value}"));
        run_at(&store, now, &format!("GET hot{}", n / 2));
    }
    for n in 0..600 {
        run_at(&store, NOW + 120_000, &format!("SET new{n} {value}"));
    }
    let counters = store.counters();
    assert!(counters.evicted > 0 && counters.bytes <= 200_000, "{counters:?}");
    let left = |prefix: &str| {
        let is_there =
            |n: &u64| run_at(&store, NOW + 120_000, &format!("EXISTS {prefix}{n}")) == ":1";
        (0..500).filter(is_there).count()
    };
    assert!(left("old") < left("hot"), "old {}, hot {}", left("old"), left("hot"));
}

#[test]
fn limits_refuse_when_nothing_may_go() {
    let store = store(|s| (s.keys_max, s.eviction) = (10, Eviction::Refuse));
    for n in 0..10 {
        assert_eq!(run(&store, &format!("SET k{n} v")), "+OK");
    }
    let refused = "-OOM command not allowed when used memory > 'maxmemory'.";
    assert_eq!(run(&store, "SET more v"), refused);
    assert_eq!(run(&store, "GET k1"), "$1 v");
    assert_eq!(run(&store, "DEL k1"), ":1");
    assert_eq!(run(&store, "SET more v"), "+OK");
}

#[test]
fn the_key_limit_holds() {
    let store = store(|s| s.keys_max = 100);
    for n in 0..1_000 {
        run(&store, &format!("HSET k{n} f v"));
    }
    assert_eq!(store.counters().keys, 100);
    assert_eq!(store.counters().evicted, 900);
}

#[test]
fn accounting_returns_to_nothing() {
    let store = store(|_| {});
    let value = "v".repeat(5_000);
    for n in 0..300 {
        run(&store, &format!("SET s{n} {value}"));
        run(&store, &format!("APPEND s{n} more"));
        run(&store, &format!("HSET h a{n} {value}"));
        run(&store, &format!("RENAME s{n} r{n}"));
    }
    assert!(store.counters().bytes > 600 * 5_000);
    for n in 0..300 {
        run(&store, &format!("DEL r{n}"));
        run(&store, &format!("HDEL h a{n}"));
    }
    assert_eq!(store.counters().bytes, 0);
    run(&store, &format!("SET s {value}"));
    run(&store, "FLUSHALL");
    assert_eq!(store.counters().bytes, 0);
}

#[test]
fn presence_events_tell_what_came_and_went() {
    use PresenceEvent::{Appeared, Cleared, Went};
    let store = store(|s| s.events_max = 8);
    run(&store, "SET k 1");
    run(&store, "SET k 2");
    run(&store, "HSET h f v");
    run(&store, "HDEL h f");
    run(&store, "DEL missing");
    let (mut all, overrun) = events(&store);
    all.sort_by_key(|e| format!("{e:?}"));
    let key = |k: &str| Box::from(k.as_bytes());
    assert_eq!(all, [Appeared(key("h")), Appeared(key("k")), Went(key("h"))]);
    assert!(!overrun);
    for _ in 0..10 {
        run(&store, "SET x 1");
        run(&store, "DEL x");
    }
    assert!(events(&store).1, "more events than the ring holds");
    assert!(!events(&store).1, "the loss is told once");
    run(&store, "FLUSHALL");
    assert!(events(&store).0.iter().all(|e| *e == Cleared));
}

#[test]
fn a_block_runs_whole_or_not_at_all() {
    let store = store(|_| {});
    let commands = ["SET a 1", "INCR a", "LPUSH2 a", "HGET a f", "DBSIZE", "GET a"];
    let requests: Vec<Request> = commands.iter().map(|c| Request::words(c)).collect();
    let block: Vec<Args<'_>> = requests.iter().map(Request::args).collect();
    let version = store.version_of(b"w", NOW);
    let watched = [Watched { key: b"w"[..].into(), version }];
    let mut out = OutBuf::new();
    assert!(store.execute_block(&block, &watched, NOW, &mut Stamping::default(), &mut out));
    assert_eq!(
        drain(out),
        "*6 +OK :2 -ERR unknown command 'LPUSH2', with args beginning with: 'a'  \
         -WRONGTYPE Operation against a key holding the wrong kind of value :1 $1 2"
    );
    run(&store, "SET w x PX 10");
    let mut out = OutBuf::new();
    assert!(!store.execute_block(&block, &watched, NOW, &mut Stamping::default(), &mut out));
    assert_eq!(drain(out), "*-1");
    let version = store.version_of(b"w", NOW);
    assert_ne!(version, 0);
    assert_eq!(store.version_of(b"w", NOW), version);
    run(&store, "APPEND w y");
    assert_ne!(store.version_of(b"w", NOW), version);
    assert_eq!(store.version_of(b"w", NOW + 11), 0);
}

#[test]
fn who_waits_is_woken_once_and_in_order() {
    let store = store(|_| {});
    let calls = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&calls);
    store.wake_by(0, Box::new(move || _ = counted.fetch_add(1, Relaxed)));
    let [first, second, third, other] = [0, 0, 0, 1].map(|worker| store.next_token(worker));
    assert!(first < second && second < third && third < other);
    assert!(store.wait_for(&[b"a", b"b"], Awaited::List, second, NOW).is_ok());
    assert!(store.wait_for(&[b"b"], Awaited::List, first, NOW).is_ok());
    assert!(store.wait_for(&[b"b"], Awaited::List, third, NOW).is_ok());
    assert!(store.wait_for(&[b"b"], Awaited::List, other, NOW).is_ok());
    store.stop_waiting(&[b"b"], third);
    run(&store, "RPUSH b 1");
    assert_eq!(calls.load(Relaxed), 2);
    let mut woken = Vec::new();
    store.take_woken(0, &mut woken);
    assert_eq!(woken, [first, second], "each worker fetches its own");
    assert_eq!(store.wait_for(&[b"a", b"b"], Awaited::List, third, NOW), Err(1), "b is there");
    woken.clear();
    store.take_woken(0, &mut woken);
    assert!(woken.is_empty());
    assert!(store.wait_for(&[b"b"], Awaited::SortedSet, third, NOW).is_ok(), "a list is no zset");
    run(&store, "RPUSH b 2");
    store.take_woken(0, &mut woken);
    assert_eq!(woken, [third], "it may have become one");
    woken.clear();
    store.take_woken(1, &mut woken);
    assert_eq!(woken, [other]);
}

#[test]
fn large_values_are_shared_with_the_output() {
    let store = store(|_| {});
    let value = vec![b'x'; 100_000];
    let mut out = OutBuf::new();
    let request = Request::new(&[b"SET", b"k", &value]);
    store.execute(&request.args(), NOW, &mut out);
    out.clear();
    let get = Request::words("GET k");
    store.execute(&get.args(), NOW, &mut out);
    store.execute(&get.args(), NOW, &mut out);
    let mut slices = [std::io::IoSlice::new(&[]); 8];
    let n = out.slices(&mut slices);
    let large: Vec<_> = slices[..n].iter().filter(|s| s.len() == value.len()).collect();
    assert_eq!(large.len(), 2);
    assert_eq!(large[0].as_ptr(), large[1].as_ptr());
}

#[test]
fn keys_are_listed_completely_and_cursors_stay_small() {
    let store = store(|_| {});
    for n in 0..2_000 {
        run(&store, &format!("SET k{n} v"));
    }
    run(&store, "SET gone v PX 1");
    let (mut keys, mut cursor) = (Vec::new(), 0);
    loop {
        cursor = store.scan_keys(cursor, 50, NOW + 2, &mut keys);
        assert!(cursor < 1 << 40);
        if cursor == 0 {
            break;
        }
    }
    keys.sort();
    keys.dedup();
    assert_eq!(keys.len(), 2_000);
}

#[test]
fn commands_of_several_keys_are_atomic_and_do_not_deadlock() {
    const ACCOUNTS: u64 = 12;
    const THREADS: u64 = 4;
    let store = store(|_| {});
    for n in 0..ACCOUNTS {
        run(&store, &format!("SET account{n} 1000"));
    }
    let sum = || {
        let names: Vec<_> = (0..ACCOUNTS).map(|n| format!("account{n}")).collect();
        let all = run(&store, &format!("MGET {}", names.join(" ")));
        all.split(' ').skip(2).step_by(2).map(|n| n.parse::<i64>().unwrap()).sum::<i64>()
    };
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let store = &store;
            scope.spawn(move || {
                let mut rng = fastrand::Rng::with_seed(thread);
                for _ in 0..500 {
                    let (from, to) = (rng.u64(..ACCOUNTS), rng.u64(..ACCOUNTS));
                    let amount = rng.u8(..);
                    let lines = [
                        format!("DECRBY account{from} {amount}"),
                        format!("INCRBY account{to} {amount}"),
                    ];
                    let requests = lines.map(|line| Request::words(&line));
                    let block = requests.each_ref().map(Request::args);
                    store.execute_block(
                        &block,
                        &[],
                        NOW,
                        &mut Stamping::default(),
                        &mut OutBuf::new(),
                    );
                    run(store, &format!("COPY account{to} copy{from} REPLACE"));
                    run(store, "DBSIZE");
                }
            });
        }
        for _ in 0..200 {
            assert_eq!(sum(), 1_000 * ACCOUNTS as i64);
        }
    });
    assert_eq!(sum(), 1_000 * ACCOUNTS as i64);
}

#[test]
fn hash_fields_expire_with_and_without_being_touched() {
    let store = store(|s| s.events_max = 10);
    run(&store, "HSET h a 1 b 2 c 3");
    assert_eq!(run(&store, "HPEXPIRE h 100 FIELDS 2 a nosuch"), "*2 :1 :-2");
    assert_eq!(run(&store, "HPEXPIRE h 50 GT FIELDS 2 a b"), "*2 :0 :0");
    assert_eq!(run(&store, "HPEXPIRE h 200 FIELDS 1 b"), "*1 :1");
    assert_eq!(run(&store, "HPTTL h FIELDS 3 a b c"), "*3 :100 :200 :-1");
    assert_eq!(run(&store, "HPERSIST h FIELDS 2 b c"), "*2 :1 :-1");
    assert_eq!(run_at(&store, NOW + 100, "HGET h a"), "$1 1");
    assert_eq!(run_at(&store, NOW + 101, "HLEN h"), ":2");
    assert_eq!(run_at(&store, NOW + 101, "HEXPIREAT h 1 FIELDS 1 c"), "*1 :2");
    assert_eq!(run_at(&store, NOW + 101, "HPEXPIRE h 10 FIELDS 1 b"), "*1 :1");
    assert_eq!(run(&store, "HTTL nosuch FIELDS 1 a"), "*1 :-2");
    let short = "-ERR The `numfields` parameter must match the number of arguments";
    assert_eq!(run(&store, "HTTL h FIELDS 3 a b"), short);
    events(&store);
    store.sweep(NOW + 112, 100);
    assert_eq!(store.counters().keys, 0, "a hash goes with its last field");
    assert_eq!(events(&store).0.len(), 1);
}

#[test]
fn asking_about_a_key_is_no_use_of_it() {
    let s = store(|_| {});
    run(&s, "SET k v");
    let idle = |ms: u64| run_at(&s, NOW + ms, "OBJECT IDLETIME k");
    assert_eq!(idle(3_100), ":3");
    for asks in ["OBJECT IDLETIME k", "TTL k", "TYPE k", "EXISTS k", "OBJECT ENCODING k"] {
        run_at(&s, NOW + 4_000, asks);
        assert_eq!(idle(5_200), ":5", "{asks}");
    }
    for uses in ["GET k", "TOUCH k", "STRLEN k"] {
        run_at(&s, NOW + 10_000, uses);
        assert_eq!(idle(11_200), ":1", "{uses}");
    }
}
