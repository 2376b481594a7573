//! SORT. Patterns that look up other keys are refused: such keys may live in other shards, or with
//! other owners of the ring, which Redis Cluster refuses for the same reason.

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
    row("sort", -2, OneAndStore, Grow, |db, args, out| sort(db, args, out, true)),
    row("sort_ro", -2, One, Read, |db, args, out| sort(db, args, out, false)),
];

/// What one GET gives.
#[derive(Clone, Copy)]
enum Get {
    /// The element itself.
    Element,
    /// Nothing, because the pattern has no place for the element.
    Nothing,
}

/// Options of SORT.
#[derive(Default)]
struct Options<'a> {
    descending: bool,
    alpha: bool,
    /// BY a constant: the elements stay as they are.
    unsorted: bool,
    limit: Option<(i64, i64)>,
    /// What GET gives for each element, in order.
    gets: Vec<Get>,
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
                if pattern.contains(&b'*') {
                    return Err(CommandError::SortPattern("BY"));
                }
                options.unsorted = true;
                at += 1;
            } else if let (true, Some(pattern)) = (arg::is(word, "get"), next) {
                if pattern.contains(&b'*') {
                    return Err(CommandError::SortPattern("GET"));
                }
                let element = pattern == b"#";
                options.gets.push(if element { Get::Element } else { Get::Nothing });
                at += 1;
            } else {
                return Err(CommandError::Syntax);
            }
            at += 1;
        }
        Ok(options)
    }

    /// The elements in order.
    fn order(&self, mut elements: Vec<Blob>, is_set: bool) -> Result<Vec<Blob>, CommandError> {
        // A set has no order of its own, so what is stored of it must have one.
        let by_bytes = self.alpha || (self.unsorted && is_set && self.store.is_some());
        if by_bytes {
            elements.sort_by(|a, b| a.as_slice().cmp(b.as_slice()));
        } else if !self.unsorted {
            let mut scored = Vec::with_capacity(elements.len());
            for element in elements {
                scored.push((number(element.as_slice())?, element));
            }
            scored.sort_by(|(x, a), (y, b)| {
                let by_number = x.partial_cmp(y).expect("NaN was refused");
                by_number.then_with(|| a.as_slice().cmp(b.as_slice()))
            });
            elements = scored.into_iter().map(|(_, element)| element).collect();
        }
        if self.descending && (by_bytes || !self.unsorted) {
            elements.reverse();
        }
        Ok(elements)
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
        Some(Value::List(list)) => list.iter().cloned().collect(),
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
    let elements = options.order(elements, is_set)?;
    let part = &elements[options.part(elements.len())];
    let gets = if options.gets.is_empty() { &[Get::Element][..] } else { &options.gets };
    let answer = part.iter().flat_map(|element| {
        gets.iter().map(move |get| match get {
            Get::Element => Some(element),
            Get::Nothing => None,
        })
    });
    let Some(target) = options.store else {
        reply::array(out, part.len() * gets.len());
        answer.for_each(|element| reply::blob_or_nil(out, element));
        return Ok(());
    };
    let mut list = List::default();
    answer.for_each(|element| list.push(End::Right, element.cloned().unwrap_or_default()));
    let len = list.len();
    db.put(target, list.into_value());
    reply::count(out, len);
    Ok(())
}
