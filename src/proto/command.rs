//! The vocabulary of commands, the same for Redis and memcache: what a command does, where it
//! goes, and where its keys stand.
//!
//! The values of each command are columns of the protocols' tables; planner and dispatcher know
//! these words only.

use super::args::Args;

/// What a command does to the data. The class is by *effect*: a command that can write is a
/// write, whatever the C reference's table says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Class {
    /// Changes nothing.
    Read,
    /// May change data: it is replicated.
    Write,
    /// Concerns a node or connection, no key.
    Admin,
}

/// Where a command goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Routing {
    /// This node answers it itself.
    Node,
    /// To the owners of its keys. Without any key among the arguments (`EVAL ... 0`, or a
    /// malformed key count) the local store answers.
    Keyed,
    /// To the local store, whatever it owns.
    LocalStore,
    /// To every node.
    AllNodes,
    /// To each owner of the own rack, and joined into one answer.
    Ring,
    /// To the owner, on a connection of its own, because it may wait there.
    Blocking,
    /// Concerns the connection's transaction.
    Transaction,
    /// Not offered, for the reason given: the text after `ERR `.
    Refused(&'static str),
    /// The connection is closed without an answer: an HTTP client was led here.
    Hangup,
}

/// How the answers for parts of a command become one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Merge {
    /// Not at all: all keys must have one owner.
    None,
    /// Arrays of values, put back in the order of the keys.
    Mget,
    /// `OK` when every part said so. The arguments are pairs.
    Mset,
    /// Numbers, added.
    SumInts,
    /// memcache values, one block a key that was found, and one end line.
    Values,
}

/// How the answers of replicas are compared at quorum levels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compare {
    /// Byte for byte.
    Exact,
    /// As a set of elements.
    Unordered,
    /// As a set of pairs of elements.
    UnorderedPairs,
    /// Not at all: replicas may rightly differ, the own rack's answer is taken.
    First,
    /// memcache values, but for their cas ids: every store has its own.
    Values,
}

/// What a write becomes when it has more than one target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// The same bytes everywhere.
    Verbatim,
    /// Relative times are replaced by points in time.
    Absolute,
    /// One replica runs it, the others get what it did.
    PrimaryFirst,
}

/// In what form a command goes to a C peer, which closes the link at a command it does not know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TowardC {
    /// As it is.
    AsIs,
    /// As another command with the same answer.
    Rewrite,
    /// Within a script that has the keys in KEYS.
    Eval,
    /// Not at all.
    Refuse,
}

/// Where the keys stand among the arguments. The command name is argument 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeySpec {
    /// No keys.
    None,
    /// Argument 1.
    First,
    /// From `first` to `last` by `step`; a negative `last` counts from the end, -1 being the
    /// last argument.
    Range {
        /// The first key.
        first: u8,
        /// The last key.
        last: i8,
        /// Distance from key to key.
        step: u8,
    },
    /// Argument `at` says how many keys follow it.
    NumKeys {
        /// The place of the count.
        at: u8,
        /// Distance from key to key: 2 when each key has a value behind it.
        step: u8,
    },
    /// Argument 1 is the destination, argument 2 says how many keys follow it.
    DestNumKeys,
    /// The first half of what follows the word STREAMS.
    Streams,
    /// Argument 1, and what follows the last option STORE or STOREDIST.
    FirstAndStore {
        /// Where the options begin.
        from: u8,
    },
}

impl KeySpec {
    /// The places of the keys, in ascending order. None where the arguments are malformed.
    #[inline]
    pub fn keys(self, args: &Args<'_>) -> KeyIndices {
        let len = args.len();
        match self {
            KeySpec::None => KeyIndices::NONE,
            KeySpec::First => KeyIndices::range(1, len.min(2), 1),
            KeySpec::Range { first, last, step } => {
                let end = match usize::try_from(last) {
                    Ok(last) => len.min(last + 1),
                    Err(_) => (len + 1).saturating_sub(usize::from(last.unsigned_abs())),
                };
                KeyIndices::range(usize::from(first), end, usize::from(step))
            }
            KeySpec::NumKeys { at, step } => counted(args, usize::from(at), usize::from(step)),
            KeySpec::DestNumKeys => {
                let dest = if len > 1 { Some(1) } else { None };
                KeyIndices { before: dest, ..counted(args, 2, 1) }
            }
            KeySpec::Streams => streams(args),
            KeySpec::FirstAndStore { from } => {
                let after =
                    store_word(args, usize::from(from)).map(|word| word + 1).filter(|&i| i < len);
                KeyIndices { after, ..KeyIndices::range(1, len.min(2), 1) }
            }
        }
    }

    /// The place of the first key.
    #[inline]
    pub fn first_key(self, args: &Args<'_>) -> Option<usize> {
        match self {
            KeySpec::First if args.len() > 1 => Some(1),
            _ => self.keys(args).next(),
        }
    }
}

/// The place of the last option STORE or STOREDIST at argument `from` or later. What follows BY,
/// GET and LIMIT may have any name.
pub fn store_word(args: &Args<'_>, from: usize) -> Option<usize> {
    let mut found = None;
    let mut i = from;
    while let Some(word) = args.get(i) {
        let is = |other: &[u8]| word.eq_ignore_ascii_case(other);
        i += match word.len() {
            2 if is(b"by") => 2,
            3 if is(b"get") => 2,
            5 if is(b"limit") => 3,
            5 | 9 if is(b"store") || is(b"storedist") => {
                found = Some(i);
                2
            }
            _ => 1,
        };
    }
    found
}

fn counted(args: &Args<'_>, at: usize, step: usize) -> KeyIndices {
    let count = args.get(at).and_then(small_number).unwrap_or(0);
    if count * step > args.len().saturating_sub(at + 1) {
        return KeyIndices::NONE;
    }
    KeyIndices::range(at + 1, at + 1 + count * step, step)
}

fn streams(args: &Args<'_>) -> KeyIndices {
    let word = (1..args.len()).find(|&i| args[i].eq_ignore_ascii_case(b"streams"));
    let Some(first) = word.map(|i| i + 1) else {
        return KeyIndices::NONE;
    };
    let rest = args.len() - first;
    if rest % 2 == 1 {
        return KeyIndices::NONE;
    }
    KeyIndices::range(first, first + rest / 2, 1)
}

/// Digits only, at most nine of them.
fn small_number(text: &[u8]) -> Option<usize> {
    if text.is_empty() || text.len() > 9 || !text.iter().all(u8::is_ascii_digit) {
        return None;
    }
    Some(text.iter().fold(0, |n, b| n * 10 + usize::from(b - b'0')))
}

/// The places of a command's keys. See [`KeySpec::keys`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyIndices {
    before: Option<usize>,
    next: usize,
    end: usize,
    step: usize,
    after: Option<usize>,
}

impl KeyIndices {
    const NONE: KeyIndices = KeyIndices { before: None, next: 0, end: 0, step: 1, after: None };

    fn range(next: usize, end: usize, step: usize) -> KeyIndices {
        KeyIndices { next, end, step, ..KeyIndices::NONE }
    }
}

impl Iterator for KeyIndices {
    type Item = usize;

    #[inline]
    fn next(&mut self) -> Option<usize> {
        if self.before.is_some() {
            return self.before.take();
        }
        if self.next < self.end {
            let key = self.next;
            self.next += self.step;
            return Some(key);
        }
        self.after.take()
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let range = self.end.saturating_sub(self.next).div_ceil(self.step);
        let len = usize::from(self.before.is_some()) + range + usize::from(self.after.is_some());
        (len, Some(len))
    }
}

impl ExactSizeIterator for KeyIndices {}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proto::args::Span;

    fn keys(spec: KeySpec, line: &str) -> Vec<String> {
        let mut spans = Vec::new();
        let mut at = 0;
        for word in line.split(' ') {
            spans.push(Span::new(at, at + word.len()));
            at += word.len() + 1;
        }
        let args = Args::new(line.as_bytes(), &spans);
        let keys = spec.keys(&args);
        assert_eq!(keys.len(), keys.count());
        assert_eq!(spec.first_key(&args), spec.keys(&args).next());
        keys.map(|i| String::from_utf8_lossy(&args[i]).into_owned()).collect()
    }

    #[test]
    fn every_key_spec_finds_its_keys() {
        use KeySpec::*;
        let all = Range { first: 1, last: -1, step: 1 };
        let none: [&str; 0] = [];
        assert_eq!(keys(None, "PING a"), none);
        assert_eq!(keys(First, "GET a"), ["a"]);
        assert_eq!(keys(First, "GET"), none);
        assert_eq!(keys(all, "DEL a b c"), ["a", "b", "c"]);
        assert_eq!(keys(all, "DEL"), none);
        assert_eq!(keys(Range { first: 1, last: -1, step: 2 }, "MSET a 1 b 2"), ["a", "b"]);
        assert_eq!(keys(Range { first: 1, last: -2, step: 1 }, "BLPOP a b 0"), ["a", "b"]);
        assert_eq!(keys(Range { first: 1, last: -2, step: 1 }, "BLPOP"), none);
        assert_eq!(keys(Range { first: 2, last: -1, step: 1 }, "BITOP AND d s"), ["d", "s"]);
        assert_eq!(keys(Range { first: 1, last: 2, step: 1 }, "RENAME a b c"), ["a", "b"]);
        assert_eq!(keys(NumKeys { at: 2, step: 1 }, "EVAL s 2 a b c"), ["a", "b"]);
        assert_eq!(keys(NumKeys { at: 2, step: 1 }, "EVAL s 0 c"), none);
        assert_eq!(keys(NumKeys { at: 2, step: 1 }, "EVAL s 3 a b"), none);
        assert_eq!(keys(NumKeys { at: 2, step: 1 }, "EVAL s -1 a b"), none);
        assert_eq!(keys(NumKeys { at: 2, step: 1 }, "EVAL s"), none);
        assert_eq!(keys(NumKeys { at: 1, step: 2 }, "MSETEX 2 a 1 b 2 NX"), ["a", "b"]);
        assert_eq!(keys(DestNumKeys, "ZUNIONSTORE d 2 a b WEIGHTS 1 2"), ["d", "a", "b"]);
        assert_eq!(keys(DestNumKeys, "ZUNIONSTORE d x a b"), ["d"]);
        assert_eq!(keys(Streams, "XREAD COUNT 2 streams a b 0 0"), ["a", "b"]);
        assert_eq!(keys(Streams, "XREAD STREAMS a b 0"), none);
        assert_eq!(keys(Streams, "XREAD COUNT 2"), none);
        let sort = FirstAndStore { from: 2 };
        assert_eq!(keys(sort, "SORT a BY w STORE b store c"), ["a", "c"]);
        assert_eq!(keys(sort, "SORT a BY store GET store LIMIT store 1 ALPHA"), ["a"]);
        assert_eq!(keys(sort, "SORT a STORE"), ["a"]);
        let radius = FirstAndStore { from: 5 };
        assert_eq!(keys(radius, "GEORADIUSBYMEMBER a store 1 m STOREDIST b"), ["a", "b"]);
    }
}
