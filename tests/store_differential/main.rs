//! The embedded store against a real redis-server: the same seeded random commands go to both and
//! every reply, error texts included, must be equal.
//!
//! The server is `REDIS_BIN` or `redis-server` from the path; without one the test says *skipped*.
//! `TORC_SOAK_OPERATIONS` asks for a longer run, `TORC_SEED` for another one.

#![allow(unreachable_pub)]

mod commands;
mod redis;
mod reply;

use commands::{Check, Generator};
use redis::Redis;
use reply::Reply;
use torc::proto::args::{Args, Span};
use torc::proto::outbuf::OutBuf;
use torc::stamp::Stamping;
use torc::store::{MemoryStore, StoreSettings};

/// Commands of a normal run.
const OPERATIONS: usize = 30_000;

/// Commands sent to the server at once.
const BATCH: usize = 64;

/// Commands between two comparisons of everything both hold.
const WHOLE_EVERY: usize = 5_000;

/// One command: its words.
type Command = Vec<Vec<u8>>;

/// Both sides of the comparison.
struct Pair {
    redis: Redis,
    store: MemoryStore,
    now_ms: u64,
}

impl Pair {
    fn new(mut redis: Redis) -> Pair {
        let seconds = redis.call(&words("TIME")).items()[0].text();
        Pair {
            now_ms: seconds.parse::<u64>().expect("TIME gives seconds") * 1_000,
            store: MemoryStore::new(StoreSettings::default()),
            redis,
        }
    }

    fn ask_store(&self, command: &Command) -> Reply {
        let mut out = OutBuf::new();
        with_args(command, |args| self.store.execute(args, self.now_ms, &mut out));
        Reply::parse_whole(&drain(out))
    }

    /// Runs one command on both and compares.
    fn compare(&mut self, command: &Command, check: Check) {
        match check {
            Check::Pop if command.len() > 1 => self.compare_pop(command),
            Check::Pick => self.compare_pick(command),
            Check::Scan => self.compare_scan(command),
            Check::Dump => self.compare_dump(command),
            Check::Equal | Check::Unordered | Check::Pairs | Check::Sign | Check::Pop => {
                let want = self.redis.call(command);
                self.expect(command, check, want);
            }
        }
    }

    fn expect(&self, command: &Command, check: Check, want: Reply) {
        let got = self.ask_store(command);
        let (shown_got, shown_want) = match check {
            Check::Unordered => (got.sorted(1), want.sorted(1)),
            Check::Pairs => (got.sorted(2), want.sorted(2)),
            Check::Sign => (got.sign(), want.sign()),
            _ => (got, want),
        };
        let exact = self.redis.version >= (7, 2);
        assert!(
            shown_got.equals(&shown_want, exact),
            "{}\n store: {shown_got:?}\n redis: {shown_want:?}",
            show(command)
        );
    }

    /// SPOP: what the store took must have been there, and the server must lose it too.
    fn compare_pop(&mut self, command: &Command) {
        let key = command[1].clone();
        let before = self.redis.call(&vec![b"SCARD".to_vec(), key.clone()]);
        let got = self.ask_store(command);
        let taken = match &got {
            Reply::Bulk(member) => vec![member.clone()],
            Reply::Array(members) => members.iter().map(Reply::bytes).collect(),
            _ => Vec::new(),
        };
        if taken.is_empty() {
            let want = self.redis.call(command);
            assert_eq!(got, want, "{}", show(command));
            return;
        }
        let wanted = command.get(2).map_or(1, |n| String::from_utf8_lossy(n).parse().unwrap());
        assert_eq!(taken.len(), before.int().min(wanted) as usize, "{}", show(command));
        let mut remove = vec![b"SREM".to_vec(), key];
        remove.extend(taken.clone());
        assert_eq!(self.redis.call(&remove).int() as usize, taken.len(), "{}", show(command));
    }

    /// Random picks: the same shape, and nothing that is not there.
    fn compare_pick(&mut self, command: &Command) {
        let (got, want) = (self.ask_store(command), self.redis.call(command));
        if let (Reply::Array(got), Reply::Array(want)) = (&got, &want) {
            assert_eq!(got.len(), want.len(), "{}", show(command));
        } else {
            assert_eq!(got.is_null(), want.is_null(), "{}", show(command));
            let errors = (got.error(), want.error());
            assert_eq!(errors.0, errors.1, "{}", show(command));
        }
        let has = match command[0].to_ascii_lowercase().as_slice() {
            b"srandmember" => "SISMEMBER",
            b"hrandfield" => "HEXISTS",
            b"zrandmember" => "ZSCORE",
            _ => "EXISTS",
        };
        let with_values = command.len() == 4;
        let picked = match &got {
            Reply::Array(items) => items.iter().step_by(1 + usize::from(with_values)).collect(),
            one @ Reply::Bulk(_) => vec![one],
            _ => Vec::new(),
        };
        for item in picked {
            let mut ask = vec![has.as_bytes().to_vec(), item.bytes()];
            if has != "EXISTS" {
                ask.insert(1, command[1].clone());
            }
            let found = self.redis.call(&ask);
            assert!(found != Reply::Int(0) && !found.is_null(), "{}", show(command));
        }
    }

    /// SCAN and its family: both are driven to the end and must have found the same.
    fn compare_scan(&mut self, command: &Command) {
        let at = if command[0].eq_ignore_ascii_case(b"scan") { 1 } else { 2 };
        let pairs = [&b"hscan"[..], b"zscan"].contains(&&command[0].to_ascii_lowercase()[..]);
        let walk = |ask: &mut dyn FnMut(&Command) -> Reply| {
            let (mut command, mut all) = (command.clone(), Vec::new());
            for _ in 0..10_000 {
                let page = ask(&command);
                let Reply::Array(parts) = &page else {
                    return page;
                };
                all.extend(parts[1].items().to_vec());
                command[at] = parts[0].bytes();
                if parts[0].bytes() == b"0" {
                    return Reply::Array(all);
                }
            }
            panic!("the scan does not end: {}", show(&command));
        };
        let want = walk(&mut |c| self.redis.call(c));
        let got = walk(&mut |c| self.ask_store(c));
        let width = if pairs { 2 } else { 1 };
        let (got, want) = (got.sorted(width).distinct(width), want.sorted(width).distinct(width));
        let exact = self.redis.version >= (7, 2);
        assert!(got.equals(&want, exact), "{}\n{got:?}\n{want:?}", show(command));
    }

    /// DUMP: what either writes the other must read, and both then hold the same.
    fn compare_dump(&mut self, command: &Command) {
        let (ours, theirs) = (self.ask_store(command), self.redis.call(command));
        let (Reply::Bulk(ours), Reply::Bulk(theirs)) = (&ours, &theirs) else {
            assert_eq!(ours, theirs, "{}", show(command));
            return;
        };
        let restore = |payload: &[u8]| {
            let mut restore = words("RESTORE key 0 payload REPLACE");
            (restore[1], restore[3]) = (command[1].clone(), payload.to_vec());
            restore
        };
        assert_eq!(self.ask_store(&restore(theirs)), Reply::Status("OK".into()));
        assert_eq!(self.redis.call(&restore(ours)), Reply::Status("OK".into()));
        self.compare_key(&command[1]);
    }

    /// Everything both hold, key by key.
    fn compare_whole(&mut self) {
        self.compare(&words("KEYS *"), Check::Unordered);
        // Looking at a key makes either side drop it when its time is over.
        self.compare(&commands::all_keys(), Check::Equal);
        self.compare(&words("DBSIZE"), Check::Equal);
        let keys = self.redis.call(&words("KEYS *"));
        for key in keys.items().iter().map(Reply::bytes) {
            self.compare_key(&key);
        }
    }

    /// One key in full.
    fn compare_key(&mut self, key: &[u8]) {
        let with = |line: &str| {
            let mut command = words(line);
            command.insert(1, key.to_vec());
            command
        };
        let kind = self.redis.call(&with("TYPE")).text();
        let (line, check) = match kind.as_str() {
            "string" => ("GET", Check::Equal),
            "list" => ("LRANGE 0 -1", Check::Equal),
            "hash" => ("HGETALL", Check::Pairs),
            "set" => ("SMEMBERS", Check::Unordered),
            "zset" => ("ZRANGE 0 -1 WITHSCORES", Check::Equal),
            other => panic!("unexpected type {other}"),
        };
        self.compare(&with(line), check);
        self.compare(&with("PTTL"), Check::Sign);
    }

    /// A batch of commands, the server's part in one write.
    fn compare_batch(&mut self, batch: &mut Vec<(Command, Check)>) {
        let wanted = self.redis.call_all(batch.iter().map(|(command, _)| command));
        for ((command, check), want) in batch.drain(..).zip(wanted) {
            self.expect(&command, check, want);
        }
    }

    /// Commands as one transaction.
    fn compare_block(&mut self, block: &[Command]) {
        let mut sent = vec![words("MULTI")];
        sent.extend_from_slice(block);
        let queued = self.redis.call_all(sent.iter());
        if queued.iter().any(|reply| reply.error().is_some()) {
            self.redis.call(&words("DISCARD"));
            return;
        }
        let want = self.redis.call(&words("EXEC"));
        let mut out = OutBuf::new();
        let requests: Vec<_> = block.iter().map(spans).collect();
        let block_args: Vec<_> = requests.iter().map(|(bytes, s)| Args::new(bytes, s)).collect();
        assert!(self.store.execute_block(
            &block_args,
            &[],
            self.now_ms,
            &mut Stamping::default(),
            &mut out
        ));
        let got = Reply::parse_whole(&drain(out));
        let exact = self.redis.version >= (7, 2);
        let shown: Vec<_> = block.iter().map(show).collect();
        assert!(got.equals(&want, exact), "{shown:?}\n store: {got:?}\n redis: {want:?}");
    }
}

fn words(line: &str) -> Command {
    line.split(' ').map(|word| word.as_bytes().to_vec()).collect()
}

fn show(command: &Command) -> String {
    let words: Vec<_> = command.iter().map(|w| w.escape_ascii().to_string()).collect();
    words.join(" ")
}

fn spans(command: &Command) -> (Vec<u8>, Vec<Span>) {
    let (mut bytes, mut spans) = (Vec::new(), Vec::new());
    for word in command {
        spans.push(Span::new(bytes.len(), bytes.len() + word.len()));
        bytes.extend_from_slice(word);
    }
    (bytes, spans)
}

fn with_args(command: &Command, f: impl FnOnce(&Args<'_>)) {
    let (bytes, spans) = spans(command);
    f(&Args::new(&bytes, &spans));
}

fn drain(mut out: OutBuf) -> Vec<u8> {
    let mut all = Vec::new();
    while !out.is_empty() {
        let front = out.front();
        let n = front.len();
        all.extend_from_slice(front);
        out.advance(n);
    }
    all
}

fn setting(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |text| text.parse().expect("a number"))
}

#[test]
fn every_reply_equals_that_of_redis_server() {
    let Some(redis) = Redis::start() else {
        eprintln!("skipped: no redis-server (set REDIS_BIN)");
        return;
    };
    let seed = setting("TORC_SEED", 1);
    let operations = setting("TORC_SOAK_OPERATIONS", OPERATIONS as u64) as usize;
    eprintln!("TORC_SEED={seed} TORC_SOAK_OPERATIONS={operations}");
    let mut generator = Generator::new(seed, redis.version);
    let mut pair = Pair::new(redis);
    let mut batch = Vec::new();
    for number in 1..=operations {
        if generator.one_in(50) {
            pair.compare_batch(&mut batch);
            pair.compare_block(&generator.block());
        }
        let (command, check) = generator.next();
        let alone = matches!(check, Check::Pop | Check::Pick | Check::Scan | Check::Dump);
        if alone || batch.len() == BATCH {
            pair.compare_batch(&mut batch);
        }
        match alone {
            true => pair.compare(&command, check),
            false => batch.push((command, check)),
        }
        if number.is_multiple_of(WHOLE_EVERY) {
            pair.compare_batch(&mut batch);
            pair.compare_whole();
        }
    }
    pair.compare_batch(&mut batch);
    pair.compare_whole();
}
