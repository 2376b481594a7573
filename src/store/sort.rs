//! SORT, with what BY and GET look up in other keys.

use std::cmp::Ordering;

use crate::proto::args::Args;
use crate::proto::outbuf::OutBuf;

use super::blob::Blob;
use super::command::{Command, Effect::*, Keys::*, row};
use super::db::Db;
use super::error::{CommandError, CommandResult};
use super::format::{c_number, parse_f64};
use super::value::{End, Kind, List, Value};
use super::{arg, reply};

pub(super) const COMMANDS: &[Command] = &[
    row("sort", -2, Sorted, Grow, |db, args, out| sort(db, args, out, true)),
    row("sort_ro", -2, Sorted, Read, |db, args, out| sort(db, args, out, false)),
];

/// Whether a command may look up keys that it does not name.
pub(super) fn looks_up(args: &Args<'_>) -> bool {
    args.tail(2).iter().any(|word| word.contains(&b'*'))
}

/// The name of another key, made of an element.
#[derive(Clone, Copy)]
struct Pattern<'a> {
    before: &'a [u8],
    after: &'a [u8],
    /// The key is a hash, and this is the field.
    field: Option<&'a [u8]>,
}

impl<'a> Pattern<'a> {
    /// `None` when the text has no place for the element.
    fn of(text: &'a [u8]) -> Option<Pattern<'a>> {
        let star = text.iter().position(|byte| *byte == b'*')?;
        let (before, rest) = (&text[..star], &text[star + 1..]);
        let arrow = rest.windows(2).position(|pair| pair == b"->");
        Some(match arrow.filter(|at| at + 2 < rest.len()) {
            Some(at) => Pattern { before, after: &rest[..at], field: Some(&rest[at + 2..]) },
            None => Pattern { before, after: rest, field: None },
        })
    }

    /// What is there for an element.
    fn find(&self, db: &mut Db<'_>, element: &[u8]) -> Option<Blob> {
        let key = [self.before, element, self.after].concat();
        match (&db.record(&key)?.value, self.field) {
            (Value::Str(text), None) => Some(text.clone()),
            (Value::Hash(hash), Some(field)) => Some(hash.get(field)?.value.clone()),
            _ => None,
        }
    }
}

/// What one GET gives.
#[derive(Clone, Copy)]
enum Get<'a> {
    /// The element itself.
    Element,
    /// Nothing, because the pattern has no place for the element.
    Nothing,
    /// Something of another key.
    Other(Pattern<'a>),
}

impl Get<'_> {
    fn find(&self, db: &mut Db<'_>, element: &Blob) -> Option<Blob> {
        match self {
            Get::Element => Some(element.clone()),
            Get::Nothing => None,
            Get::Other(pattern) => pattern.find(db, element.as_slice()),
        }
    }
}

/// Options of SORT.
#[derive(Default)]
struct Options<'a> {
    descending: bool,
    alpha: bool,
    /// BY a constant: the elements stay as they are.
    unsorted: bool,
    by: Option<Pattern<'a>>,
    limit: Option<(i64, i64)>,
    /// What GET gives for each element, in order.
    gets: Vec<Get<'a>>,
    store: Option<&'a [u8]>,
}

impl<'a> Options<'a> {
    fn parse(args: &Args<'a>, may_store: bool) -> Result<Options<'a>, CommandError> {
        let mut options = Options::default();
        let mut at = 2;
        while at < args.len() {
            let (word, next) = (&args[at], args.get(at + 1));
            if arg::is(word, "asc") {
                options.descending = false;
            } else if arg::is(word, "desc") {
                options.descending = true;
            } else if arg::is(word, "alpha") {
                options.alpha = true;
            } else if arg::is(word, "limit") && at + 2 < args.len() {
                options.limit = Some((arg::int(args, at + 1)?, arg::int(args, at + 2)?));
                at += 2;
            } else if let (true, Some(key)) = (may_store && arg::is(word, "store"), next) {
                options.store = Some(key);
                at += 1;
            } else if let (true, Some(pattern)) = (arg::is(word, "by"), next) {
                options.by = Pattern::of(pattern);
                options.unsorted |= options.by.is_none();
                at += 1;
            } else if let (true, Some(pattern)) = (arg::is(word, "get"), next) {
                options.gets.push(match Pattern::of(pattern) {
                    _ if pattern == b"#" => Get::Element,
                    Some(pattern) => Get::Other(pattern),
                    None => Get::Nothing,
                });
                at += 1;
            } else {
                return Err(CommandError::Syntax);
            }
            at += 1;
        }
        Ok(options)
    }

    /// The elements in order.
    fn order(
        &self,
        db: &mut Db<'_>,
        elements: Vec<Blob>,
        is_set: bool,
    ) -> Result<Vec<Blob>, CommandError> {
        if self.unsorted {
            // A set has no order of its own, so what is stored of it must have one.
            return Ok(match is_set && self.store.is_some() {
                true => self.directed(elements, |a, b| a.as_slice().cmp(b.as_slice())),
                false => elements,
            });
        }
        let weight = |db: &mut Db<'_>, element: &Blob| match &self.by {
            Some(by) => by.find(db, element.as_slice()),
            None => Some(element.clone()),
        };
        let weighed: Vec<(Option<Blob>, Blob)> =
            elements.into_iter().map(|element| (weight(db, &element), element)).collect();
        if self.alpha {
            let sorted = self.directed(weighed, |(x, _), (y, _)| {
                x.as_ref().map(Blob::as_slice).cmp(&y.as_ref().map(Blob::as_slice))
            });
            return Ok(sorted.into_iter().map(|(_, element)| element).collect());
        }
        let mut scored = Vec::with_capacity(weighed.len());
        for (weight, element) in weighed {
            let score = weight.map_or(Ok(0.0), |weight| number(weight.as_slice()))?;
            scored.push((score, element));
        }
        let sorted = self.directed(scored, |(x, a), (y, b)| {
            let by_number = x.partial_cmp(y).expect("NaN was refused");
            by_number.then_with(|| a.as_slice().cmp(b.as_slice()))
        });
        Ok(sorted.into_iter().map(|(_, element)| element).collect())
    }

    /// Sorted upwards or downwards.
    fn directed<T>(&self, mut list: Vec<T>, order: impl Fn(&T, &T) -> Ordering) -> Vec<T> {
        list.sort_by(order);
        if self.descending {
            list.reverse();
        }
        list
    }

    /// The part of `len` elements that LIMIT asks for.
    fn part(&self, len: usize) -> std::ops::Range<usize> {
        let (offset, count) = self.limit.unwrap_or((0, -1));
        let start = usize::try_from(offset).unwrap_or(0).min(len);
        let count = usize::try_from(count).unwrap_or(len);
        start..len.min(start.saturating_add(count))
    }
}

/// An element as a number.
fn number(text: &[u8]) -> Result<f64, CommandError> {
    parse_f64(c_number(text)).ok_or(CommandError::SortNotFloat)
}

fn sort(db: &mut Db<'_>, args: &Args<'_>, out: &mut OutBuf, may_store: bool) -> CommandResult {
    let options = Options::parse(args, may_store)?;
    let mut is_set = false;
    let elements: Vec<Blob> = match db.record(&args[1]).map(|record| &record.value) {
        None => Vec::new(),
        // Elements that stay as they are may still be asked for from the end.
        Some(Value::List(list)) => match options.unsorted && options.descending {
            true => list.iter().rev().cloned().collect(),
            false => list.iter().cloned().collect(),
        },
        Some(Value::Set(set)) => {
            is_set = true;
            set.iter().cloned().collect()
        }
        Some(Value::ZSet(zset)) => {
            let items = zset.slice(0, zset.len(), options.unsorted && options.descending);
            items.into_iter().map(|item| item.member).collect()
        }
        Some(Value::Str(_) | Value::Hash(_)) => return Err(CommandError::WrongType),
    };
    let elements = options.order(db, elements, is_set)?;
    let part = &elements[options.part(elements.len())];
    let gets = if options.gets.is_empty() { &[Get::Element][..] } else { &options.gets };
    let answer: Vec<Option<Blob>> = part
        .iter()
        .flat_map(|e| gets.iter().map(move |get| (get, e)))
        .map(|(get, e)| get.find(db, e))
        .collect();
    let Some(target) = options.store else {
        reply::array(out, answer.len());
        answer.iter().for_each(|found| reply::blob_or_nil(out, found.as_ref()));
        return Ok(());
    };
    let mut list = List::default();
    answer.into_iter().for_each(|found| list.push(End::Right, found.unwrap_or_default()));
    let len = list.len();
    db.put(target, list.into_value());
    reply::count(out, len);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::tests::run_at;
    use super::super::{MemoryStore, StoreSettings};

    #[test]
    fn other_keys_give_the_order_and_the_answer() {
        let store = MemoryStore::new(StoreSettings::default());
        let run = |line| run_at(&store, 1, line);
        run("RPUSH l 3 1 2");
        run("MSET w_1 30 w_2 -4 w_3 5 d_1 one");
        run("HSET h_2 f two");
        assert_eq!(run("SORT l BY w_*"), "*3 $1 2 $1 3 $1 1");
        let answer = run("SORT_RO l BY w_* DESC LIMIT 0 1 GET # GET d_* GET h_*->f");
        assert_eq!(answer, "*3 $1 1 $3 one $-1");
        // What is not there comes first, or counts as 0.
        assert_eq!(run("SORT l BY d_* ALPHA"), "*3 $1 3 $1 2 $1 1");
        assert_eq!(run("SORT l BY h_*->g"), "*3 $1 1 $1 2 $1 3");
        assert_eq!(run("SORT l BY h_* DESC"), "*3 $1 3 $1 2 $1 1");
        let error = "-ERR One or more scores can't be converted into double";
        assert_eq!(run("SORT l BY d_*"), error);
        assert_eq!(run("SORT l BY nosort DESC LIMIT 0 2"), "*2 $1 2 $1 1");
        assert_eq!(run("SORT l BY nosort GET h_*->f STORE t"), ":3");
        assert_eq!(run("LRANGE t 0 -1"), "*3 $0  $0  $3 two");
    }
}
