//! Random commands from templates, good ones and broken ones.

use super::Command;

/// How two replies to a command are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Check {
    /// Byte for byte.
    Equal,
    /// As bags of elements.
    Unordered,
    /// As bags of pairs.
    Pairs,
    /// Numbers by their sign.
    Sign,
    /// A random removal.
    Pop,
    /// A random look.
    Pick,
    /// A walk with a cursor.
    Scan,
    /// A payload that the other side must read.
    Dump,
}

use Check::*;

/// Templates. A word in capitals or with `|` is literal (one of the choices, `_` for none); small
/// words are drawn: `s h l e z x` a key of a type (x: sorted sets of one score), `k` any key, `v`
/// a value, `m` a member, `i` an integer, `n` a small count, `f` a float, `w` a weight, `o` a bit
/// offset, `b` a bit, `r` a range end, `q` a score bound, `y` a member bound, `p` a pattern, `t` a
/// time far away, `u` a bit field type. `*` repeats a word up to four times; `mv fm sv` are pairs.
const TEMPLATES: &[(&str, Check)] = &[
    ("GET s", Equal),
    ("SET s v", Equal),
    ("SET s i", Equal),
    ("SET s v NX|XX|_ GET|_", Equal),
    ("SET s v EX|PX 5000000", Equal),
    ("SET s v EX|PX|PXAT|KEEPTTL 0|-1|x|9223372036854775807", Equal),
    ("SET s v XX|NX|_ EX 1000", Equal),
    ("SET s v KEEPTTL|GET", Equal),
    ("SET s v PXAT|EXAT t", Equal),
    ("SETNX s v", Equal),
    ("SETEX s 5000 v", Equal),
    ("PSETEX s 5000000 v", Equal),
    ("GETSET s v", Equal),
    ("GETDEL s", Equal),
    ("GETEX s", Equal),
    ("GETEX s PERSIST|EX|PX 5000000", Equal),
    ("GETEX s PERSIST|_", Equal),
    ("GETEX s PXAT|EXAT t", Equal),
    ("MGET k*", Equal),
    ("MSET sv*", Equal),
    ("MSETNX sv*", Equal),
    ("APPEND s v", Equal),
    ("STRLEN s", Equal),
    ("SETRANGE s n v", Equal),
    ("GETRANGE|SUBSTR s r r", Equal),
    ("INCR|DECR s", Equal),
    ("INCRBY|DECRBY s i", Equal),
    ("INCRBYFLOAT s f", Equal),
    ("LCS s s LEN|_", Equal),
    ("LCS s s IDX|_ MINMATCHLEN n WITHMATCHLEN|_", Equal),
    ("SETBIT s o b", Equal),
    ("GETBIT s o", Equal),
    ("BITCOUNT s", Equal),
    ("BITCOUNT s r r", Equal),
    ("BITCOUNT s r r BIT|BYTE", Equal),
    ("BITPOS s b", Equal),
    ("BITPOS s b r", Equal),
    ("BITPOS s b r r BIT|BYTE|_", Equal),
    ("BITOP AND|OR|XOR s s*", Equal),
    ("BITOP NOT s s", Equal),
    ("BITFIELD s GET u o", Equal),
    ("BITFIELD s SET u o i GET u o", Equal),
    ("BITFIELD s OVERFLOW WRAP|SAT|FAIL INCRBY u o i SET u o i", Equal),
    ("BITFIELD_RO s GET u o", Equal),
    ("DEL|UNLINK k*", Equal),
    ("EXISTS|TOUCH k*", Equal),
    ("TYPE k", Equal),
    ("DUMP k", Dump),
    ("RESTORE k -1|0|x v REPLACE|ABSTTL|_ IDLETIME|FREQ -1|0|300", Equal),
    ("RESTORE k 0 v REPLACE|_", Equal),
    ("RENAME k k", Equal),
    ("RENAMENX k k", Equal),
    ("COPY k k REPLACE|_", Equal),
    ("EXPIREAT|PEXPIREAT k t NX|XX|GT|LT|_", Equal),
    ("EXPIREAT k t GT|LT|XX XX|_", Equal),
    ("EXPIRE|PEXPIRE k 5000000", Equal),
    ("EXPIRE|PEXPIRE k -5", Equal),
    ("EXPIRETIME|PEXPIRETIME e", Sign),
    ("TTL|PTTL k", Sign),
    ("PERSIST k", Equal),
    ("KEYS p", Unordered),
    ("RANDOMKEY", Pick),
    ("SCAN 0 COUNT n", Scan),
    ("SCAN 0 MATCH p", Scan),
    ("SCAN 0 TYPE string|hash|list|set|zset|x", Scan),
    ("OBJECT ENCODING|FREQ missing", Equal),
    ("OBJECT nothing s", Equal),
    ("PING|ECHO v", Equal),
    ("PING", Equal),
    ("NOSUCH v*", Equal),
    ("SORT l ALPHA DESC|ASC|_", Equal),
    ("SORT e ALPHA LIMIT r r", Equal),
    ("SORT l DESC|_ STORE l", Equal),
    ("SORT z ALPHA GET #", Equal),
    ("RPUSH l 0|1|2|3|4", Equal),
    ("SORT l BY s*|s DESC|ASC|_", Equal),
    ("SORT l BY h*->m1|h*->m2 GET # GET s*|h*->|s GET h*->m0|z*->m0 LIMIT r r", Equal),
    ("SORT z ALPHA GET s*|h*->m1|# GET # STORE l", Equal),
    ("HSET h mv*", Equal),
    ("HMSET h mv*", Equal),
    ("HSETNX h m v", Equal),
    ("HGET h m", Equal),
    ("HMGET h m*", Equal),
    ("HGETALL h", Pairs),
    ("HKEYS|HVALS h", Unordered),
    ("HLEN h", Equal),
    ("HSTRLEN|HEXISTS h m", Equal),
    ("HDEL h m*", Equal),
    ("HINCRBY h m i", Equal),
    ("HINCRBYFLOAT h m f", Equal),
    ("HRANDFIELD h", Pick),
    ("HRANDFIELD h r WITHVALUES|_", Pick),
    ("HSCAN h 0 MATCH|COUNT n", Scan),
    ("HSCAN h 0 MATCH p", Scan),
    ("LPUSH|RPUSH l v*", Equal),
    ("LPUSHX|RPUSHX l v*", Equal),
    ("LPOP|RPOP l", Equal),
    ("LPOP|RPOP l n", Equal),
    ("LLEN l", Equal),
    ("LINDEX l r", Equal),
    ("LSET l r v", Equal),
    ("LRANGE l r r", Equal),
    ("LTRIM l r 40", Equal),
    ("LREM l r v", Equal),
    ("LINSERT l BEFORE|AFTER v v", Equal),
    ("LPOS l v RANK|COUNT|MAXLEN r", Equal),
    ("LPOS l v RANK r COUNT n MAXLEN n", Equal),
    ("LMOVE l l LEFT|RIGHT LEFT|RIGHT", Equal),
    ("RPOPLPUSH l l", Equal),
    ("LMPOP 2 l l LEFT|RIGHT COUNT n", Equal),
    ("LMPOP 1 l LEFT|RIGHT", Equal),
    ("SADD e m*", Equal),
    ("SREM e m*", Equal),
    ("SISMEMBER e m", Equal),
    ("SMISMEMBER e m*", Equal),
    ("SMEMBERS e", Unordered),
    ("SCARD e", Equal),
    ("SPOP e", Pop),
    ("SPOP e n", Pop),
    ("SRANDMEMBER e", Pick),
    ("SRANDMEMBER e r", Pick),
    ("SMOVE e e m", Equal),
    ("SINTER|SUNION|SDIFF e*", Unordered),
    ("SINTERSTORE|SUNIONSTORE|SDIFFSTORE e e*", Equal),
    ("SINTERCARD 2 e e LIMIT n", Equal),
    ("SINTERCARD n e e", Equal),
    ("SSCAN e 0 COUNT n", Scan),
    ("SSCAN e 0 MATCH p", Scan),
    ("ZADD z fm*", Equal),
    ("ZADD z NX|XX|GT|LT|_ CH|_ fm*", Equal),
    ("ZADD z NX|XX|GT|LT|_ GT|LT|INCR|_ f m", Equal),
    ("ZINCRBY z f m", Equal),
    ("ZREM z m*", Equal),
    ("ZSCORE z m", Equal),
    ("ZMSCORE z m*", Equal),
    ("ZCARD z", Equal),
    ("ZRANK|ZREVRANK z m", Equal),
    ("ZPOPMIN|ZPOPMAX z", Equal),
    ("ZPOPMIN|ZPOPMAX z n", Equal),
    ("ZMPOP 2 z z MIN|MAX COUNT n", Equal),
    ("ZRANDMEMBER z", Pick),
    ("ZRANDMEMBER z r WITHSCORES|_", Pick),
    ("ZSCAN z 0 COUNT n", Scan),
    ("ZRANGE z r r REV|_ WITHSCORES|_", Equal),
    ("ZRANGE z q q BYSCORE REV|_ LIMIT r r", Equal),
    ("ZRANGE z q q BYSCORE WITHSCORES|REV|_", Equal),
    ("ZRANGE x y y BYLEX REV|_", Equal),
    ("ZRANGE z r r LIMIT|BYLEX n n", Equal),
    ("ZREVRANGE z r r WITHSCORES|_", Equal),
    ("ZRANGEBYSCORE|ZREVRANGEBYSCORE z q q WITHSCORES|_", Equal),
    ("ZRANGEBYSCORE|ZREVRANGEBYSCORE z q q LIMIT r r", Equal),
    ("ZRANGEBYLEX|ZREVRANGEBYLEX x y y", Equal),
    ("ZRANGEBYLEX|ZREVRANGEBYLEX x y y LIMIT r r", Equal),
    ("ZRANGESTORE z z r r REV|_", Equal),
    ("ZRANGESTORE z z q q BYSCORE", Equal),
    ("ZCOUNT z q q", Equal),
    ("ZLEXCOUNT x y y", Equal),
    ("ZREMRANGEBYRANK z r r", Equal),
    ("ZREMRANGEBYSCORE z q q", Equal),
    ("ZREMRANGEBYLEX x y y", Equal),
    ("ZADD x 0 m", Equal),
    ("ZADD x 0 m 0 m 0 m", Equal),
    ("ZREM x m*", Equal),
    ("ZUNION|ZINTER 2 z z WITHSCORES", Equal),
    ("ZUNION|ZINTER 2 z e WEIGHTS w w AGGREGATE SUM|MIN|MAX WITHSCORES", Equal),
    ("ZDIFF 2 z z WITHSCORES|_", Equal),
    ("ZUNIONSTORE|ZINTERSTORE z 2 z z AGGREGATE SUM|MIN|MAX", Equal),
    ("ZUNIONSTORE|ZINTERSTORE z 3 z z e WEIGHTS w w w", Equal),
    ("ZDIFFSTORE z 2 z z", Equal),
    ("ZINTERCARD 2 z z LIMIT n", Equal),
    ("ZINTERCARD 2 z e", Equal),
];

/// Templates for servers that expire hash fields.
const FIELD_EXPIRY: &[(&str, Check)] = &[
    ("HEXPIRE|HPEXPIRE h 5000000 FIELDS 1 m", Equal),
    ("HEXPIREAT|HPEXPIREAT h t FIELDS 2 m m", Equal),
    ("HEXPIREAT|HPEXPIREAT h t NX|XX|GT|LT FIELDS 2 m m", Equal),
    ("HPERSIST h FIELDS 2 m m", Equal),
    ("HEXPIRETIME|HPEXPIRETIME x FIELDS 1 m", Equal),
    ("HTTL h FIELDS 1 m", Equal),
];

/// Templates for transactions only: there they do not wait.
const BLOCKING: &[&str] = &[
    "BLPOP|BRPOP l l 0|0.1|-1|x",
    "BLMOVE l l LEFT|RIGHT LEFT|RIGHT 0|x",
    "BRPOPLPUSH l l 0",
    "BLMPOP 0|-1 2 l l LEFT|RIGHT COUNT n",
    "BZPOPMIN|BZPOPMAX z z 0|-0.5",
    "BZMPOP 0 2 z z MIN|MAX COUNT n",
];

/// Words that replace a good one in a broken command.
const JUNK: &[&str] = &["", "-1", "0", "foo", "99999999999999999999", "1.5", "COUNT", "-", "nan"];

/// EXISTS for every key that a command may name.
pub fn all_keys() -> Command {
    let drawn = "shlezx".chars().flat_map(|kind| (0..5).map(move |n| format!("{kind}{n}")));
    let junk = JUNK.iter().map(|key| key.to_string());
    let words = std::iter::once("EXISTS".to_string()).chain(drawn).chain(junk);
    words.map(String::into_bytes).collect()
}

/// Makes commands from a seed.
pub struct Generator {
    rng: fastrand::Rng,
    templates: Vec<(&'static str, Check)>,
}

impl Generator {
    pub fn new(seed: u64, version: (u32, u32)) -> Generator {
        let mut templates = TEMPLATES.to_vec();
        if version >= (7, 4) {
            templates.extend_from_slice(FIELD_EXPIRY);
        }
        Generator { rng: fastrand::Rng::with_seed(seed), templates }
    }

    pub fn one_in(&mut self, n: usize) -> bool {
        self.rng.usize(..n) == 0
    }

    /// A command, broken now and then.
    pub fn next(&mut self) -> (Command, Check) {
        let (template, check) = self.templates[self.rng.usize(..self.templates.len())];
        let mut command = self.fill(template);
        // Members of one score must keep it; encodings are compared for no key.
        let whole =
            template.starts_with("ZADD x") || template.starts_with("OBJECT") || check == Dump;
        if !whole && self.one_in(20) {
            // A cursor that no scan gave has no right answer.
            self.damage(&mut command, check != Scan);
        }
        (command, check)
    }

    /// Commands for a transaction: those with one right answer only.
    pub fn block(&mut self) -> Vec<Command> {
        let count = 1 + self.rng.usize(..5);
        let mut block = Vec::new();
        while block.len() < count {
            if self.one_in(6) {
                let template = BLOCKING[self.rng.usize(..BLOCKING.len())];
                block.push(self.fill(template));
            }
            let (command, check) = self.next();
            if check == Equal {
                block.push(command);
            }
        }
        block
    }

    fn damage(&mut self, command: &mut Command, replace: bool) {
        let junk = JUNK[self.rng.usize(..JUNK.len())].as_bytes().to_vec();
        match self.rng.u8(..3) {
            0 if command.len() > 1 => drop(command.pop()),
            1 if replace && command.len() > 2 => {
                let at = self.rng.usize(2..command.len());
                command[at] = junk;
            }
            _ => command.push(junk),
        }
    }

    fn fill(&mut self, template: &str) -> Command {
        let mut command = Vec::new();
        for word in template.split(' ') {
            let (word, times) = match word.strip_suffix('*') {
                Some(word) => (word, 1 + self.rng.usize(..4)),
                None => (word, 1),
            };
            for _ in 0..times {
                self.push_word(word, &mut command);
            }
        }
        command
    }

    fn push_word(&mut self, word: &str, command: &mut Command) {
        match word {
            "mv" => command.extend([self.draw("m"), self.draw("v")]),
            "fm" => command.extend([self.draw("f"), self.draw("m")]),
            "sv" => command.extend([self.draw("s"), self.draw("v")]),
            _ if word.contains('|')
                || word.len() > 1
                || !word.as_bytes()[0].is_ascii_lowercase() =>
            {
                let choices: Vec<_> = word.split('|').collect();
                let choice = choices[self.rng.usize(..choices.len())];
                if choice != "_" {
                    command.push(choice.as_bytes().to_vec());
                }
            }
            _ => command.push(self.draw(word)),
        }
    }

    fn pick(&mut self, choices: &[&str]) -> Vec<u8> {
        choices[self.rng.usize(..choices.len())].as_bytes().to_vec()
    }

    fn draw(&mut self, word: &str) -> Vec<u8> {
        let n = |rng: &mut fastrand::Rng, max: i64| rng.i64(..max).to_string().into_bytes();
        match word {
            // Lists and sets of one score must not become something else too often, and those of
            // one score never get another.
            "s" | "h" | "l" | "e" | "z" if self.one_in(25) => self.draw("k"),
            "s" | "h" | "l" | "e" | "z" | "x" => format!("{word}{}", self.rng.u8(..5)).into(),
            "k" => {
                let kind = self.pick(&["s", "h", "l", "e", "z"]);
                let number = self.rng.u8(..5).to_string();
                [kind, number.into_bytes()].concat()
            }
            "v" => self.value(),
            "m" => match self.rng.u8(..10) {
                0 => self.value(),
                1..=5 => format!("m{}", self.rng.u8(..60)).into(),
                _ => n(&mut self.rng, 60),
            },
            "i" => self.integer(),
            "n" => n(&mut self.rng, 12),
            "f" => self.pick(&[
                "1", "2", "-3", "0", "1.5", "3.14", "-0.1", "1e3", "inf", "-inf", "100", "0.25",
                "7",
            ]),
            "w" => self.pick(&["1", "2", "0", "-1", "0.5", "inf"]),
            "o" => match self.rng.u8(..10) {
                0 => self.pick(&["#1", "#3", "-1", "4294967296"]),
                _ => n(&mut self.rng, 200),
            },
            "b" => self.pick(&["0", "1", "0", "1", "0", "1", "2"]),
            "r" => self.rng.i64(-12..12).to_string().into_bytes(),
            "q" => self.pick(&[
                "-inf", "+inf", "0", "(1", "1", "2", "(3.14", "3", "(-inf", "100", "-3", "(100",
                "7",
            ]),
            "y" => {
                self.pick(&["-", "+", "[m1", "(m3", "[m5", "(", "[", "[m7", "-", "+", "[1", "z"])
            }
            "p" => {
                self.pick(&["*", "s*", "*1", "m?", "[m-z][0-3]*", "m[^1-5]*", "\\m1*", "nothing"])
            }
            "t" => {
                self.pick(&["4000000000", "4000000000000", "5000000000000", "1", "4500000000000"])
            }
            "u" => {
                self.pick(&["u8", "i8", "u1", "i5", "u16", "i64", "u63", "i32", "u64", "u4", "i3"])
            }
            other => panic!("no such word: {other}"),
        }
    }

    fn integer(&mut self) -> Vec<u8> {
        match self.rng.u8(..12) {
            0 => self.pick(&["9223372036854775807", "-9223372036854775808", "+1", "01", "-0"]),
            1 => self.rng.i64(..).to_string().into_bytes(),
            _ => self.rng.i64(-100..100).to_string().into_bytes(),
        }
    }

    fn value(&mut self) -> Vec<u8> {
        let len = match self.rng.u8(..20) {
            0 => 0,
            1 => 4_000 + self.rng.usize(..300),
            2..=4 => 20 + self.rng.usize(..60),
            5..=9 => return self.integer(),
            10..=11 => return self.draw("f"),
            12..=15 => return format!("v{}", self.rng.u8(..10)).into(),
            _ => 1 + self.rng.usize(..8),
        };
        // SORT compares C strings there, so a NUL has no right order.
        (0..len).map(|_| self.rng.u8(1..)).collect()
    }
}
