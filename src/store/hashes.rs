//! Hashes.

use crate::proto::args::Args;
use crate::proto::outbuf::OutBuf;

use super::blob::Blob;
use super::command::{Command, Effect::*, Keys::*, row};
use super::counters::add_float;
use super::db::{Db, Edit};
use super::error::{CommandError, CommandResult};
use super::format::parse_i64;
use super::hash_value::Hash;
use super::scan::{self, ScanOptions};
use super::{arg, extended, pick, reply};

pub(super) const COMMANDS: &[Command] = &[
    row("hset", -4, One, Grow, hset),
    row("hmset", -4, One, Grow, hmset),
    row("hsetnx", 4, One, Grow, hsetnx),
    row("hget", 3, One, Read, hget),
    row("hmget", -3, One, Read, hmget),
    row("hgetall", 2, One, Read, hgetall),
    row("hkeys", 2, One, Read, hkeys),
    row("hvals", 2, One, Read, hvals),
    row("hlen", 2, One, Read, hlen),
    row("hstrlen", 3, One, Read, hstrlen),
    row("hexists", 3, One, Read, hexists),
    row("hdel", -3, One, Write, hdel),
    row("hincrby", 4, One, Grow, hincrby),
    row("hincrbyfloat", 4, One, Grow, hincrbyfloat),
    row("hrandfield", -2, One, Read, hrandfield),
    row("hscan", -3, One, Read, hscan),
];

fn hset(db: &mut Db<'_>, args: &Args<'_>, out: &mut OutBuf) -> CommandResult {
    let added = set_pairs(db, args, "hset")?;
    reply::count(out, added);
    Ok(())
}

fn hmset(db: &mut Db<'_>, args: &Args<'_>, out: &mut OutBuf) -> CommandResult {
    set_pairs(db, args, "hmset")?;
    reply::ok(out);
    Ok(())
}

fn set_pairs(
    db: &mut Db<'_>,
    args: &Args<'_>,
    command: &'static str,
) -> Result<usize, CommandError> {
    if !args.len().is_multiple_of(2) {
        return Err(CommandError::Arity(command));
    }
    db.edit(&args[1], |hash: &mut Hash| {
        let mut added = 0;
        for at in (2..args.len()).step_by(2) {
            added += usize::from(hash.set(&args[at], &args[at + 1]));
        }
        Ok(Edit::Changed(added))
    })
}

fn hsetnx(db: &mut Db<'_>, args: &Args<'_>, out: &mut OutBuf) -> CommandResult {
    let added = db.edit(&args[1], |hash: &mut Hash| {
        let absent = hash.get(&args[2]).is_none();
        if absent {
            hash.set(&args[2], &args[3]);
        }
        Ok(Edit::when(absent, absent))
    })?;
    reply::int(out, i64::from(added));
    Ok(())
}

fn hget(db: &mut Db<'_>, args: &Args<'_>, out: &mut OutBuf) -> CommandResult {
    let hash = db.read::<Hash>(&args[1])?;
    let found = hash.and_then(|hash| hash.get(&args[2]));
    reply::blob_or_nil(out, found.map(|field| &field.value));
    Ok(())
}

fn hmget(db: &mut Db<'_>, args: &Args<'_>, out: &mut OutBuf) -> CommandResult {
    let hash = db.read::<Hash>(&args[1])?;
    reply::array(out, args.len() - 2);
    for field in args.tail(2).iter() {
        let found = hash.and_then(|hash| hash.get(field));
        reply::blob_or_nil(out, found.map(|field| &field.value));
    }
    Ok(())
}

fn hgetall(db: &mut Db<'_>, args: &Args<'_>, out: &mut OutBuf) -> CommandResult {
    list(db, args, out, true, true)
}

fn hkeys(db: &mut Db<'_>, args: &Args<'_>, out: &mut OutBuf) -> CommandResult {
    list(db, args, out, true, false)
}

fn hvals(db: &mut Db<'_>, args: &Args<'_>, out: &mut OutBuf) -> CommandResult {
    list(db, args, out, false, true)
}

fn list(
    db: &mut Db<'_>,
    args: &Args<'_>,
    out: &mut OutBuf,
    names: bool,
    values: bool,
) -> CommandResult {
    let Some(hash) = db.read::<Hash>(&args[1])? else {
        reply::array(out, 0);
        return Ok(());
    };
    reply::array(out, hash.len() * (usize::from(names) + usize::from(values)));
    for entry in hash.iter() {
        if names {
            reply::blob(out, &entry.key);
        }
        if values {
            reply::blob(out, &entry.value.value);
        }
    }
    Ok(())
}

fn hlen(db: &mut Db<'_>, args: &Args<'_>, out: &mut OutBuf) -> CommandResult {
    let len = db.read::<Hash>(&args[1])?.map_or(0, Hash::len);
    reply::count(out, len);
    Ok(())
}

fn hstrlen(db: &mut Db<'_>, args: &Args<'_>, out: &mut OutBuf) -> CommandResult {
    let hash = db.read::<Hash>(&args[1])?;
    let len = hash.and_then(|hash| hash.get(&args[2])).map_or(0, |field| field.value.len());
    reply::count(out, len);
    Ok(())
}

fn hexists(db: &mut Db<'_>, args: &Args<'_>, out: &mut OutBuf) -> CommandResult {
    let hash = db.read::<Hash>(&args[1])?;
    let found = hash.is_some_and(|hash| hash.get(&args[2]).is_some());
    reply::int(out, i64::from(found));
    Ok(())
}

fn hdel(db: &mut Db<'_>, args: &Args<'_>, out: &mut OutBuf) -> CommandResult {
    let gone = db.edit_existing(&args[1], |hash: &mut Hash| {
        let gone = args.tail(2).iter().filter(|field| hash.remove(field).is_some()).count();
        Ok(Edit::when(gone > 0, gone))
    })?;
    reply::count(out, gone.unwrap_or(0));
    Ok(())
}

fn hincrby(db: &mut Db<'_>, args: &Args<'_>, out: &mut OutBuf) -> CommandResult {
    let by = arg::int(args, 3)?;
    let sum = db.edit(&args[1], |hash: &mut Hash| {
        let old = match hash.get(&args[2]) {
            Some(field) => parse_i64(field.value.as_slice()).ok_or(CommandError::HashNotInteger)?,
            None => 0,
        };
        let sum = old.checked_add(by).ok_or(CommandError::CounterOverflow)?;
        hash.set_keeping_expiry(&args[2], Blob::from_int(sum));
        Ok(Edit::Changed(sum))
    })?;
    reply::int(out, sum);
    Ok(())
}

fn hincrbyfloat(db: &mut Db<'_>, args: &Args<'_>, out: &mut OutBuf) -> CommandResult {
    match extended::parse(&args[3]) {
        Some(extended::Parsed::Finite(_)) => {}
        Some(extended::Parsed::Infinite) => return Err(CommandError::FloatNotFinite),
        None => return Err(CommandError::NotFloat),
    }
    let sum = db.edit(&args[1], |hash: &mut Hash| {
        let old = hash.get(&args[2]).map_or(&b"0"[..], |field| field.value.as_slice());
        let sum = add_float(old, &args[3], CommandError::HashNotFloat)?;
        hash.set_keeping_expiry(&args[2], Blob::new(sum.as_bytes()));
        Ok(Edit::Changed(sum))
    })?;
    reply::bulk(out, sum.as_bytes());
    Ok(())
}

fn hrandfield(db: &mut Db<'_>, args: &Args<'_>, out: &mut OutBuf) -> CommandResult {
    let request = pick::Request::parse(args, "withvalues")?;
    let mut rng = db.rng(&args[1]);
    let hash = db.read::<Hash>(&args[1])?;
    let Some(request) = request else {
        let found = hash.map(|hash| &hash.at(rng.usize(..hash.len())).key);
        reply::blob_or_nil(out, found);
        return Ok(());
    };
    let picks = pick::positions(hash.map_or(0, Hash::len), request.count, &mut rng);
    reply::array(out, picks.len() * if request.with_values { 2 } else { 1 });
    for entry in hash.into_iter().flat_map(|hash| picks.iter().map(|&at| hash.at(at))) {
        reply::blob(out, &entry.key);
        if request.with_values {
            reply::blob(out, &entry.value.value);
        }
    }
    Ok(())
}

fn hscan(db: &mut Db<'_>, args: &Args<'_>, out: &mut OutBuf) -> CommandResult {
    let cursor = scan::parse_cursor(&args[2])?;
    let mut found = Vec::new();
    let Some(hash) = db.read::<Hash>(&args[1])? else {
        scan::page(out, 0, &found);
        return Ok(());
    };
    let options = ScanOptions::parse(args, 3, false)?;
    let next = hash.scan(cursor as usize, options.count, |entry| {
        if options.matches(entry.key.as_slice()) {
            found.push(entry.key.as_slice().to_vec());
            found.push(entry.value.value.as_slice().to_vec());
        }
    });
    scan::page(out, next as u64, &found);
    Ok(())
}
