//! What one replica's answer means for the others.
//!
//! Commands whose outcome depends on what is stored, on chance or on the moment run on one
//! replica first. From its reply follows what the others have to do to end in the same state.

use super::super::effect::{self, EffectRule, Word};
use super::super::reply::{elements, is_error, is_null, parse_int, text};
use super::super::spec::CommandSpec;
use super::absolute::moment;
use super::{Words, integer};
use crate::proto::args::Args;

/// Moves a group on to what another replica delivered and counts it; its arguments are explained
/// there. redis-server leaves that count to its own replicas, which get it wrong.
pub(super) const ENTRIES_READ: &str = include_str!("entries_read.lua");

/// Appends the requests that bring the other replicas to the state of the one that answered
/// `reply`, and says how many there are: 0 when nothing changed. `now_ms` is Unix time.
///
/// Popped list elements are removed by value elsewhere, the one nearest to that end: where the
/// push that a command waited for has not arrived yet, nothing else goes in its place.
pub fn outcome(
    spec: &CommandSpec,
    args: &Args<'_>,
    reply: &[u8],
    now_ms: u64,
    out: &mut Vec<u8>,
) -> usize {
    if is_error(reply) {
        return 0;
    }
    let requests = requests(spec.effect, args, reply, now_ms).unwrap_or_default();
    requests.iter().for_each(|words| words.write(out));
    requests.len()
}

/// `None` where nothing changed, or where the reply is not of the expected kind.
fn requests<'a>(
    rule: EffectRule,
    args: &Args<'a>,
    reply: &'a [u8],
    now_ms: u64,
) -> Option<Vec<Words<'a>>> {
    let done = || parse_int(reply).is_some_and(|n| n > 0);
    let one = match rule {
        EffectRule::Set if set_applied(args, reply) => unconditional(args, 3, args.len(), now_ms),
        EffectRule::HSetEx if done() => unconditional(args, 2, effect::fields_word(args), now_ms),
        EffectRule::MSetEx if done() => {
            unconditional(args, effect::msetex_options(args), args.len(), now_ms)
        }
        EffectRule::SetNx if done() => renamed(b"SET", args, 3),
        EffectRule::HSetNx if done() => renamed(b"HSET", args, 4),
        EffectRule::MSetNx if done() => renamed(b"MSET", args, args.len()),
        EffectRule::SPop => removed(b"SREM", args.get(1)?, one_or_many(reply))?,
        EffectRule::XAdd => xadd(args, text(reply)?)?,
        EffectRule::XReadGroup => return Some(delivered(args, reply, now_ms)),
        EffectRule::XClaim => claimed(args, reply, 5, now_ms)?,
        EffectRule::XAutoClaim => return Some(auto_claimed(args, reply, now_ms)),
        EffectRule::BLPop => popped(true, reply)?,
        EffectRule::BRPop => popped(false, reply)?,
        EffectRule::BLMove => {
            let left = |i: usize| Some(args.get(i)?.eq_ignore_ascii_case(b"left"));
            return moved(args, (left(3)?, left(4)?), text(reply)?);
        }
        EffectRule::BRPopLPush => return moved(args, (false, true), text(reply)?),
        EffectRule::BLMPop => return popped_many(args, reply),
        EffectRule::BZPop => popped_member(reply)?,
        EffectRule::BZMPop => popped_members(reply)?,
        // What follows is not run on one replica first, or changed nothing there.
        EffectRule::Set
        | EffectRule::HSetEx
        | EffectRule::MSetEx
        | EffectRule::SetNx
        | EffectRule::HSetNx
        | EffectRule::MSetNx
        | EffectRule::Verbatim
        | EffectRule::SetEx
        | EffectRule::PSetEx
        | EffectRule::GetEx
        | EffectRule::HGetEx
        | EffectRule::Expire
        | EffectRule::PExpire
        | EffectRule::HExpire
        | EffectRule::HPExpire
        | EffectRule::Restore => return None,
    };
    Some(vec![one])
}

/// The arguments up to `end` under another name.
fn renamed<'a>(verb: &'static [u8], args: &Args<'a>, end: usize) -> Words<'a> {
    let mut words = Words::of(&[verb]);
    words.extend(args.iter().take(end).skip(1));
    words
}

/// True when SET wrote its value. With GET the reply is the old value, from which follows
/// whether the condition held.
fn set_applied(args: &Args<'_>, reply: &[u8]) -> bool {
    let has = |word: &[u8]| args.tail(3).iter().any(|arg| arg.eq_ignore_ascii_case(word));
    if !has(b"get") {
        return !is_null(reply);
    }
    let given = |word: &[u8]| {
        let at = (3..args.len()).find(|&i| args[i].eq_ignore_ascii_case(word))?;
        args.get(at + 1)
    };
    match (given(b"ifeq"), given(b"ifne")) {
        (Some(wanted), _) => text(reply) == Some(wanted),
        (None, Some(unwanted)) => text(reply) != Some(unwanted),
        (None, None) if has(b"nx") => is_null(reply),
        (None, None) if has(b"xx") => !is_null(reply),
        // The digest conditions leave open whether it was written; a missing old value decides.
        (None, None) if has(b"ifdeq") => !is_null(reply),
        (None, None) => true,
    }
}

/// The command without its conditions among the words from `from` to `end`, times absolute.
fn unconditional<'a>(args: &Args<'a>, from: usize, end: usize, now_ms: u64) -> Words<'a> {
    let mut words = Words::default();
    let mut i = 0;
    while let Some(word) = args.get(i) {
        let known = if (from..end).contains(&i) { Word::of(word) } else { Word::Other };
        let at_ms = |unit| args.get(i + 1).and_then(|time| moment(time, unit, now_ms));
        let at_ms = match known {
            Word::Seconds => at_ms(1000),
            Word::Millis => at_ms(1),
            Word::Condition | Word::Other => None,
        };
        match (known, at_ms) {
            // IFEQ and its kin have an argument.
            (Word::Condition, _) => i += if word.len() >= 4 { 2 } else { 1 },
            (_, Some(at_ms)) => {
                words.push(b"PXAT").push_number(at_ms);
                i += 2;
            }
            _ => {
                words.push(word);
                i += 1;
            }
        }
    }
    words
}

/// The strings of an array reply, or a string reply as the only one.
fn one_or_many(reply: &[u8]) -> Vec<&[u8]> {
    match text(reply) {
        Some(one) => vec![one],
        None => elements(reply).filter_map(text).collect(),
    }
}

fn removed<'a>(verb: &'static [u8], key: &'a [u8], members: Vec<&'a [u8]>) -> Option<Words<'a>> {
    if members.is_empty() {
        return None;
    }
    let mut words = Words::of(&[verb, key]);
    words.extend(members);
    Some(words)
}

/// With the id that was given, and whether or not the stream is there.
fn xadd<'a>(args: &Args<'a>, id: &'a [u8]) -> Option<Words<'a>> {
    let place = effect::xadd_id(args)?;
    let mut words = Words::default();
    for (i, word) in args.iter().enumerate() {
        if i == place {
            words.push(id);
        } else if i >= 2 && i < place && word.eq_ignore_ascii_case(b"nomkstream") {
            continue;
        } else {
            words.push(word);
        }
    }
    Some(words)
}

/// The ids of an array of entries, or of an array of ids.
fn ids(entries: &[u8]) -> Vec<&[u8]> {
    let id = |entry| text(entry).or_else(|| elements(entry).next().and_then(text));
    elements(entries).filter_map(id).collect()
}

/// New entries that a group delivered: pending for the same consumer, and the group moves on. Who
/// asks for its own history comes to be by that, if there was no consumer of that name.
fn delivered<'a>(args: &Args<'a>, reply: &'a [u8], now_ms: u64) -> Vec<Words<'a>> {
    let word = |name: &[u8]| (1..args.len()).find(|&i| args[i].eq_ignore_ascii_case(name));
    let (Some(group), Some(streams)) = (word(b"group"), word(b"streams")) else {
        return Vec::new();
    };
    let Some((name, consumer)) = args.get(group + 1).zip(args.get(group + 2)) else {
        return Vec::new();
    };
    let no_ack = (group + 3..streams).any(|i| args[i].eq_ignore_ascii_case(b"noack"));
    let count = (args.len() - streams - 1) / 2;
    let mut requests = Vec::new();
    for asked in streams + 1..=streams + count {
        let Some((key, from)) = args.get(asked).zip(args.get(asked + count)) else { continue };
        if from != b">" {
            requests.push(Words::of(&[b"XGROUP", b"CREATECONSUMER", key, name, consumer]));
            continue;
        }
        let ids = ids_of(reply, key);
        let (Some(first), Some(last)) = (ids.first(), ids.last()) else { continue };
        if !no_ack {
            let mut words = Words::of(&[b"XCLAIM", key, name, consumer, b"0"]);
            words.extend(ids.iter().copied()).push(b"TIME").push_number(now_ms as i64);
            words.extend([&b"RETRYCOUNT"[..], b"1", b"FORCE", b"JUSTID", b"LASTID", last]);
            requests.push(words);
        }
        let mut words = Words::of(&[b"EVAL", ENTRIES_READ.as_bytes(), b"1", key, name]);
        words.push(first).push(last).push_number(ids.len() as i64);
        words.extend(no_ack.then_some(consumer));
        requests.push(words);
    }
    requests
}

/// The ids of what a reply shows of one stream.
fn ids_of<'a>(reply: &'a [u8], key: &[u8]) -> Vec<&'a [u8]> {
    let entries = elements(reply).find_map(|stream| {
        let mut parts = elements(stream);
        parts.next().and_then(text).filter(|name| *name == key)?;
        parts.next()
    });
    entries.map(ids).unwrap_or_default()
}

/// XCLAIM without its idle time, for the entries that were claimed. Options stand behind the ids.
fn claimed<'a>(
    args: &Args<'a>,
    entries: &'a [u8],
    first_id: usize,
    now_ms: u64,
) -> Option<Words<'a>> {
    let ids = ids(entries);
    if ids.is_empty() {
        return None;
    }
    let mut words = Words::of(&[b"XCLAIM", args.get(1)?, args.get(2)?, args.get(3)?, b"0"]);
    words.extend(ids);
    let mut time_ms = i64::try_from(now_ms).ok()?;
    let mut i = first_id;
    while let Some(word) = args.get(i) {
        let is = |other: &[u8]| word.eq_ignore_ascii_case(other);
        let number = || args.get(i + 1).and_then(integer);
        if is(b"idle") {
            time_ms -= number()?;
            i += 1;
        } else if is(b"time") {
            time_ms = number()?;
            i += 1;
        } else if is(b"retrycount") || is(b"lastid") {
            words.push(word).push(args.get(i + 1)?);
            i += 1;
        } else if is(b"justid") {
            words.push(word);
        }
        i += 1;
    }
    words.push(b"TIME").push_number(time_ms).push(b"FORCE");
    Some(words)
}

/// The entries that changed hands, and those that are no longer in the stream.
fn auto_claimed<'a>(args: &Args<'a>, reply: &'a [u8], now_ms: u64) -> Vec<Words<'a>> {
    let mut parts = elements(reply).skip(1);
    let entries = parts.next().unwrap_or_default();
    let gone = parts.next().map(ids).unwrap_or_default();
    let mut requests = Vec::new();
    // Behind the start id come COUNT and JUSTID.
    requests.extend(claimed(args, entries, 6, now_ms));
    if let (Some(key), Some(group), false) = (args.get(1), args.get(2), gone.is_empty()) {
        let mut words = Words::of(&[b"XACK", key, group]);
        words.extend(gone);
        requests.push(words);
    }
    requests
}

/// Removes one element of a list: the one of this value that is nearest to an end.
fn taken<'a>(key: &'a [u8], left: bool, value: &'a [u8]) -> Words<'a> {
    Words::of(&[b"LREM", key, if left { b"1" } else { b"-1" }, value])
}

/// A key and its value.
fn popped(left: bool, reply: &[u8]) -> Option<Words<'_>> {
    let mut parts = elements(reply).filter_map(text);
    Some(taken(parts.next()?, left, parts.next()?))
}

/// A value that went from one list to another.
fn moved<'a>(
    args: &Args<'a>,
    (from_left, to_left): (bool, bool),
    value: &'a [u8],
) -> Option<Vec<Words<'a>>> {
    let push: &[u8] = if to_left { b"LPUSH" } else { b"RPUSH" };
    let pushed = Words::of(&[push, args.get(2)?, value]);
    Some(vec![taken(args.get(1)?, from_left, value), pushed])
}

/// A key and its values: `BLMPOP timeout numkeys key... LEFT|RIGHT [COUNT n]`.
fn popped_many<'a>(args: &Args<'a>, reply: &'a [u8]) -> Option<Vec<Words<'a>>> {
    let mut parts = elements(reply);
    let key = parts.next().and_then(text)?;
    let values = elements(parts.next()?).filter_map(text);
    let keys = usize::try_from(integer(args.get(2)?)?).ok()?;
    let left = args.get(3 + keys)?.eq_ignore_ascii_case(b"left");
    Some(values.map(|value| taken(key, left, value)).collect())
}

/// A key, a member and its score.
fn popped_member(reply: &[u8]) -> Option<Words<'_>> {
    let mut parts = elements(reply).filter_map(text);
    removed(b"ZREM", parts.next()?, vec![parts.next()?])
}

/// A key, and members with their scores.
fn popped_members(reply: &[u8]) -> Option<Words<'_>> {
    let mut parts = elements(reply);
    let key = parts.next().and_then(text)?;
    let member = |pair| elements(pair).next().and_then(text);
    removed(b"ZREM", key, elements(parts.next()?).filter_map(member).collect())
}
