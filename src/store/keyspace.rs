//! Commands over all keys, and those that touch none.

use crate::proto::args::Args;
use crate::proto::outbuf::OutBuf;

use super::command::{Command, Effect::*, Keys::*, row};
use super::db::{Db, KeyEntry};
use super::error::{CommandError, CommandResult};
use super::scan::{self, ScanOptions};
use super::shard::Shard;
use super::usage::SHARDS;
use super::{arg, reply};
use crate::proto::glob;

pub(super) const COMMANDS: &[Command] = &[
    row("keys", 2, Whole, Read, keys),
    row("scan", -2, Whole, Read, scan_command),
    row("randomkey", 1, Whole, Read, randomkey),
    row("dbsize", 1, Whole, Read, dbsize),
    row("flushall", -1, Whole, Write, flush),
    row("flushdb", -1, Whole, Write, flush),
    row("ping", -1, Keyless, Read, ping),
    row("echo", 2, Keyless, Read, echo),
    row("time", 1, Keyless, Read, time),
    row("unwatch", 1, Keyless, Read, unwatch),
    row("eval", -3, Keyless, Write, no_scripts),
    row("evalsha", -3, Keyless, Write, no_scripts),
    row("eval_ro", -3, Keyless, Write, no_scripts),
    row("evalsha_ro", -3, Keyless, Write, no_scripts),
    row("script", -2, Keyless, Write, no_scripts),
    row("fcall", -3, Keyless, Write, no_scripts),
    row("fcall_ro", -3, Keyless, Write, no_scripts),
    row("function", -2, Keyless, Write, no_scripts),
];

/// Position of a walk over all keys: a shard, and a position in it. As a number it takes 40 bits,
/// so that the cursor of a whole ring has room for the node (decision F5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Cursor {
    shard: usize,
    /// As [`Dict::scan`](super::dict::Dict::scan) takes it; 0 starts the shard.
    position: u64,
}

/// Bits of a cursor for the position.
const POSITION_BITS: u32 = 32;

impl Cursor {
    /// `None` at the end, or for a number that no scan gave.
    fn from_number(number: u64) -> Option<Cursor> {
        let shard = usize::try_from(number >> POSITION_BITS).ok()?;
        let position = number & ((1 << POSITION_BITS) - 1);
        (shard < SHARDS).then_some(Cursor { shard, position })
    }

    fn number(self) -> u64 {
        (self.shard as u64) << POSITION_BITS | self.position
    }
}

/// Walks on from `cursor` until about `count` keys were looked at; returns the next cursor, 0 at
/// the end. Complete for keys that are there throughout.
pub(super) fn walk(
    db: &mut Db<'_>,
    cursor: u64,
    count: usize,
    mut f: impl FnMut(&KeyEntry),
) -> u64 {
    let Some(mut cursor) = Cursor::from_number(cursor) else {
        return 0;
    };
    let now_ms = db.now_ms();
    let mut left = count;
    loop {
        let (mut looked_at, from) = (0, cursor.position as usize);
        cursor.position = db.visit(cursor.shard, |shard| {
            looked_at = if from == 0 { shard.len() } else { from.min(shard.len()) };
            shard.scan(from, left, now_ms, &mut f) as u64
        });
        left = left.saturating_sub(looked_at - cursor.position as usize);
        if cursor.position == 0 {
            cursor.shard += 1;
            if cursor.shard == SHARDS {
                return 0;
            }
        }
        if left == 0 {
            return cursor.number();
        }
    }
}

fn keys(db: &mut Db<'_>, args: &Args<'_>, out: &mut OutBuf) -> CommandResult {
    let mut found = Vec::new();
    walk(db, 0, usize::MAX, |entry| {
        if glob::matches(&args[1], entry.key.as_slice()) {
            found.push(entry.key.clone());
        }
    });
    reply::array(out, found.len());
    for key in &found {
        reply::blob(out, key);
    }
    Ok(())
}

fn scan_command(db: &mut Db<'_>, args: &Args<'_>, out: &mut OutBuf) -> CommandResult {
    let cursor = scan::parse_cursor(&args[1])?;
    let options = ScanOptions::parse(args, 2, true)?;
    let mut found = Vec::new();
    let next = walk(db, cursor, options.count, |entry| {
        let name = entry.value.value.type_name();
        let wanted = options.type_name.is_none_or(|wanted| arg::is(wanted, name));
        if wanted && options.matches(entry.key.as_slice()) {
            found.push(entry.key.as_slice().to_vec());
        }
    });
    scan::page(out, next, &found);
    Ok(())
}

/// A random key: fair inside a shard, and shards are drawn by what they hold in turn.
fn randomkey(db: &mut Db<'_>, _args: &Args<'_>, out: &mut OutBuf) -> CommandResult {
    let now_ms = db.now_ms();
    let first = db.visit(0, |shard| shard.rng.usize(..SHARDS));
    for step in 0..SHARDS {
        let found =
            db.visit((first + step) % SHARDS, |shard| shard.random(now_ms).map(<[u8]>::to_vec));
        if let Some(key) = found {
            reply::bulk(out, &key);
            return Ok(());
        }
    }
    reply::nil(out);
    Ok(())
}

fn dbsize(db: &mut Db<'_>, _args: &Args<'_>, out: &mut OutBuf) -> CommandResult {
    let keys = (0..SHARDS).map(|n| db.visit(n, |shard| shard.len())).sum();
    reply::count(out, keys);
    Ok(())
}

fn flush(db: &mut Db<'_>, args: &Args<'_>, out: &mut OutBuf) -> CommandResult {
    let known = |word: &[u8]| arg::is(word, "async") || arg::is(word, "sync");
    if args.len() > 2 || args.tail(1).iter().any(|word| !known(word)) {
        return Err(CommandError::Syntax);
    }
    for number in 0..SHARDS {
        drop(db.visit(number, Shard::clear));
    }
    reply::ok(out);
    Ok(())
}

fn ping(_db: &mut Db<'_>, args: &Args<'_>, out: &mut OutBuf) -> CommandResult {
    match args.len() {
        1 => reply::status(out, "PONG"),
        2 => reply::bulk(out, &args[1]),
        _ => return Err(CommandError::Arity("ping")),
    }
    Ok(())
}

fn echo(_db: &mut Db<'_>, args: &Args<'_>, out: &mut OutBuf) -> CommandResult {
    reply::bulk(out, &args[1]);
    Ok(())
}

/// In a transaction only: watching is its caller's matter, and over by then.
fn unwatch(_db: &mut Db<'_>, _args: &Args<'_>, out: &mut OutBuf) -> CommandResult {
    reply::status(out, "OK");
    Ok(())
}

fn time(db: &mut Db<'_>, _args: &Args<'_>, out: &mut OutBuf) -> CommandResult {
    let now_ms = db.now_ms();
    reply::array(out, 2);
    reply::bulk_int(out, (now_ms / 1_000) as i64);
    reply::bulk_int(out, (now_ms % 1_000 * 1_000) as i64);
    Ok(())
}

fn no_scripts(_db: &mut Db<'_>, _args: &Args<'_>, _out: &mut OutBuf) -> CommandResult {
    Err(CommandError::NoScripts)
}
