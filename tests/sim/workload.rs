//! Random requests whose replies can be checked.

use super::checkers::KeyHistory;
use super::user::{Ask, request};
use super::world::World;
use torc::ring::Consistency;

/// Keys in use at a time.
pub(crate) const KEYS_IN_USE: usize = 12;

/// Most keys of one command.
pub(crate) const KEYS_MAX: usize = 4;

/// Longest value, bytes.
pub(crate) const VALUE_BYTES_MAX: usize = 20 << 10;

/// Longest request, bytes.
pub(crate) const REQUEST_BYTES_MAX: usize = KEYS_MAX * (VALUE_BYTES_MAX + 64);

/// A request of a workload, with what its reply must show.
#[derive(Clone, Debug)]
pub(crate) enum Op {
    /// Comes back as it is.
    Echo(u64),
    Set {
        key: usize,
        seq: u64,
    },
    Mset {
        pairs: Vec<(usize, u64)>,
    },
    /// Must show value `floor` or a later one.
    Get {
        key: usize,
        floor: u64,
    },
    Mget {
        keys: Vec<(usize, u64)>,
    },
    Exists {
        keys: Vec<usize>,
    },
}

impl Op {
    pub(crate) fn reads(&self) -> bool {
        match self {
            Op::Get { .. } | Op::Mget { .. } | Op::Exists { .. } | Op::Echo(_) => true,
            Op::Set { .. } | Op::Mset { .. } => false,
        }
    }

    pub(crate) fn keys(&self) -> Vec<usize> {
        match self {
            Op::Echo(_) => Vec::new(),
            Op::Set { key, .. } | Op::Get { key, .. } => vec![*key],
            Op::Mset { pairs: keys } | Op::Mget { keys } => keys.iter().map(|k| k.0).collect(),
            Op::Exists { keys } => keys.clone(),
        }
    }
}

/// The name of key number `key`.
pub(crate) fn key_name(key: usize) -> Vec<u8> {
    format!("user:{key}").into_bytes()
}

/// Key number and write number of a value.
pub(crate) fn parse_value(value: &[u8]) -> Option<(usize, u64)> {
    let mut parts = std::str::from_utf8(value).ok()?.splitn(3, ':');
    let key = parts.next()?.parse().ok()?;
    let seq = parts.next()?.parse().ok()?;
    let filler = parts.next()?;
    filler.bytes().all(|b| b == b'x').then_some((key, seq))
}

impl World {
    /// A user sends a few requests at once. False when it has no node to talk to.
    pub(crate) fn burst(&mut self, user: usize) -> bool {
        for _ in 0..self.rng.usize(1..=6) {
            let op = self.draw_op(user);
            let bytes = self.encode(&op);
            if !self.send_raw(user, &bytes) {
                self.close_keys(&op);
                return false;
            }
            let ask = Ask { sent_us: self.now_us, op: Some(op) };
            self.users[user].waiting.push_back(ask);
        }
        true
    }

    /// Takes a key whose write was lost with its connection out of use: that write may be done
    /// at any time, so no later one could be told from it.
    pub(crate) fn close_keys(&mut self, op: &Op) {
        if !op.reads() {
            op.keys().into_iter().for_each(|key| self.history.keys[key].closed = true);
        }
    }

    fn draw_op(&mut self, user: usize) -> Op {
        match self.rng.u32(0..100) {
            0..35 => {
                let key = self.any_key();
                Op::Get { key, floor: self.floor(user, key) }
            }
            35..65 => {
                let key = self.own_key(user, 0);
                Op::Set { key, seq: self.next_seq(key) }
            }
            65..75 => {
                let keys = (0..self.rng.usize(1..=KEYS_MAX)).map(|_| self.any_key());
                let keys: Vec<usize> = keys.collect();
                Op::Mget { keys: keys.iter().map(|key| (*key, self.floor(user, *key))).collect() }
            }
            75..80 => {
                let (one, other) = (self.own_key(user, 0), self.own_key(user, 1));
                let pairs = [one, other].map(|key| (key, self.next_seq(key)));
                Op::Mset { pairs: pairs.to_vec() }
            }
            80..85 => {
                let keys = (0..self.rng.usize(1..=KEYS_MAX)).map(|_| self.any_key());
                Op::Exists { keys: keys.collect() }
            }
            _ => Op::Echo(self.rng.u64(..)),
        }
    }

    fn any_key(&mut self) -> usize {
        while self.history.keys.len() < KEYS_IN_USE {
            self.history.keys.push(KeyHistory::default());
        }
        // Mostly the latest ones.
        let first = self.history.keys.len() - KEYS_IN_USE;
        self.rng.usize(first..self.history.keys.len())
    }

    /// A key that only this user writes: number `nth` of those.
    fn own_key(&mut self, user: usize, nth: usize) -> usize {
        let users = self.users.len();
        let mine = |(key, history): &(usize, &KeyHistory)| key % users == user && !history.closed;
        loop {
            let open = self.history.keys.iter().enumerate().filter(mine).map(|(key, _)| key);
            if let Some(key) = open.collect::<Vec<_>>().get(nth) {
                return *key;
            }
            self.history.keys.push(KeyHistory::default());
        }
    }

    fn next_seq(&mut self, key: usize) -> u64 {
        self.history.keys[key].issued += 1;
        self.history.keys[key].issued
    }

    /// What a read of `key` must see at least, by the levels of the reader's and writer's
    /// datacenters.
    fn floor(&self, user: usize, key: usize) -> u64 {
        use Consistency::{DcEachSafeQuorum, DcOne, DcQuorum, DcSafeQuorum};
        let dc = |user: usize| self.table[self.users[user].node].dc.as_str();
        let writer = key % self.users.len();
        let promised = match (self.config.read, self.config.write) {
            (DcEachSafeQuorum, DcEachSafeQuorum) => true,
            (DcSafeQuorum, DcQuorum | DcSafeQuorum) => dc(user) == dc(writer),
            (DcOne | DcQuorum | DcSafeQuorum | DcEachSafeQuorum, _) => false,
        };
        if promised { self.history.keys[key].floor() } else { 0 }
    }

    fn encode(&mut self, op: &Op) -> Vec<u8> {
        let name = |key: &usize| key_name(*key);
        let named = |verb: &str, keys: Vec<Vec<u8>>| {
            let mut words = vec![verb.as_bytes().to_vec()];
            words.extend(keys);
            request(&words)
        };
        match op {
            Op::Echo(number) => named("ECHO", vec![number.to_string().into_bytes()]),
            Op::Get { key, .. } => named("GET", vec![name(key)]),
            Op::Mget { keys } => named("MGET", keys.iter().map(|(key, _)| name(key)).collect()),
            Op::Exists { keys } => named("EXISTS", keys.iter().map(name).collect()),
            Op::Set { key, seq } => {
                let value = self.value(*key, *seq);
                named("SET", vec![name(key), value])
            }
            Op::Mset { pairs } => {
                let mut words = Vec::new();
                for (key, seq) in pairs {
                    words.push(name(key));
                    words.push(self.value(*key, *seq));
                }
                named("MSET", words)
            }
        }
    }

    fn value(&mut self, key: usize, seq: u64) -> Vec<u8> {
        let mut value = format!("{key}:{seq}:").into_bytes();
        let filler = match self.rng.u32(0..100) {
            0..80 => self.rng.usize(0..40),
            80..97 => self.rng.usize(0..2000),
            _ => self.rng.usize(16 << 10..VALUE_BYTES_MAX - 64),
        };
        value.resize(value.len() + filler, b'x');
        value
    }
}
