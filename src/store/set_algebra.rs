//! Unions, intersections and differences of sets.

use crate::proto::args::Args;
use crate::proto::outbuf::OutBuf;

use super::command::{Command, Effect::*, Keys::*, row};
use super::db::Db;
use super::error::{CommandError, CommandResult};
use super::format::parse_i64;
use super::value::{Kind, Set};
use super::{arg, reply};

pub(super) const COMMANDS: &[Command] = &[
    row("sinter", -2, From(1), Read, |db, args, out| show(db, args, out, inter)),
    row("sunion", -2, From(1), Read, |db, args, out| show(db, args, out, union)),
    row("sdiff", -2, From(1), Read, |db, args, out| show(db, args, out, diff)),
    row("sinterstore", -3, From(1), Grow, |db, args, out| store(db, args, out, inter)),
    row("sunionstore", -3, From(1), Grow, |db, args, out| store(db, args, out, union)),
    row("sdiffstore", -3, From(1), Grow, |db, args, out| store(db, args, out, diff)),
    row("sintercard", -3, Counted(1), Read, sintercard),
];

/// Combines the sets at some keys.
type Combine = fn(&mut Db<'_>, &[&[u8]]) -> Result<Set, CommandError>;

fn show(db: &mut Db<'_>, args: &Args<'_>, out: &mut OutBuf, combine: Combine) -> CommandResult {
    let keys: Vec<&[u8]> = args.tail(1).iter().collect();
    let set = combine(db, &keys)?;
    reply::array(out, set.len());
    set.iter().for_each(|member| reply::blob(out, member));
    Ok(())
}

fn store(db: &mut Db<'_>, args: &Args<'_>, out: &mut OutBuf, combine: Combine) -> CommandResult {
    let keys: Vec<&[u8]> = args.tail(2).iter().collect();
    let set = combine(db, &keys)?;
    let len = set.len();
    db.put(&args[1], set.into_value());
    reply::count(out, len);
    Ok(())
}

fn sintercard(db: &mut Db<'_>, args: &Args<'_>, out: &mut OutBuf) -> CommandResult {
    let numkeys = args.get(1).and_then(parse_i64).filter(|&n| n > 0);
    let numkeys = numkeys.ok_or(CommandError::NumkeysZero)? as usize;
    if numkeys > args.len() - 2 {
        return Err(CommandError::NumkeysTooMany);
    }
    let mut limit = 0;
    let mut at = 2 + numkeys;
    while at < args.len() {
        if !arg::is(&args[at], "limit") || at + 1 == args.len() {
            return Err(CommandError::Syntax);
        }
        limit = arg::count(args, at + 1).map_err(|_| CommandError::LimitNegative)?;
        at += 2;
    }
    let keys: Vec<&[u8]> = args.iter().skip(2).take(numkeys).collect();
    let len = inter(db, &keys)?.len();
    reply::count(out, if limit == 0 { len } else { len.min(limit) });
    Ok(())
}

/// Number of members at `key`; absent is empty.
fn len_of(db: &mut Db<'_>, key: &[u8]) -> Result<usize, CommandError> {
    Ok(db.read::<Set>(key)?.map_or(0, Set::len))
}

fn inter(db: &mut Db<'_>, keys: &[&[u8]]) -> Result<Set, CommandError> {
    // Every key's type is checked, even when the result is known to be empty.
    let mut sized = Vec::with_capacity(keys.len());
    for key in keys {
        sized.push((len_of(db, key)?, *key));
    }
    sized.sort_by_key(|(len, _)| *len);
    let (len, smallest) = sized[0];
    if len == 0 {
        return Ok(Set::default());
    }
    let mut result = db.read::<Set>(smallest)?.cloned().unwrap_or_default();
    for (_, key) in &sized[1..] {
        if let Some(other) = db.read::<Set>(key)? {
            result.retain(|member| other.contains(member));
        }
    }
    Ok(result)
}

fn union(db: &mut Db<'_>, keys: &[&[u8]]) -> Result<Set, CommandError> {
    let mut result = Set::default();
    for key in keys {
        for member in db.read::<Set>(key)?.into_iter().flat_map(Set::iter) {
            result.insert(member.as_slice());
        }
    }
    Ok(result)
}

fn diff(db: &mut Db<'_>, keys: &[&[u8]]) -> Result<Set, CommandError> {
    let mut result = db.read::<Set>(keys[0])?.cloned().unwrap_or_default();
    for key in &keys[1..] {
        let Some(other) = db.read::<Set>(key)? else {
            continue;
        };
        if other.len() < result.len() {
            for member in other.iter() {
                result.remove(member.as_slice());
            }
        } else {
            result.retain(|member| !other.contains(member));
        }
    }
    Ok(result)
}
