//! Sets.

use crate::proto::args::Args;
use crate::proto::outbuf::OutBuf;

use super::blob::Blob;
use super::command::{Command, Effect::*, Keys::*, row};
use super::db::{Db, Edit};
use super::error::{CommandError, CommandResult};
use super::scan::{self, ScanOptions};
use super::value::Set;
use super::{arg, pick, reply};

pub(super) const COMMANDS: &[Command] = &[
    row("sadd", -3, One, Grow, sadd),
    row("srem", -3, One, Write, srem),
    row("sismember", 3, One, Read, sismember),
    row("smismember", -3, One, Read, smismember),
    row("smembers", 2, One, Read, smembers),
    row("scard", 2, One, Read, scard),
    row("spop", -2, One, Write, spop),
    row("srandmember", -2, One, Read, srandmember),
    row("smove", 4, Two, Grow, smove),
    row("sscan", -3, One, Read, sscan),
];

fn sadd(db: &mut Db<'_>, args: &Args<'_>, out: &mut OutBuf) -> CommandResult {
    let added = db.edit(&args[1], |set: &mut Set| {
        let added = args.tail(2).iter().filter(|member| set.insert(member)).count();
        Ok(Edit::when(added > 0, added))
    })?;
    reply::count(out, added);
    Ok(())
}

fn srem(db: &mut Db<'_>, args: &Args<'_>, out: &mut OutBuf) -> CommandResult {
    let gone = db.edit_existing(&args[1], |set: &mut Set| {
        let gone = args.tail(2).iter().filter(|member| set.remove(member)).count();
        Ok(Edit::when(gone > 0, gone))
    })?;
    reply::count(out, gone.unwrap_or(0));
    Ok(())
}

fn sismember(db: &mut Db<'_>, args: &Args<'_>, out: &mut OutBuf) -> CommandResult {
    let found = db.read::<Set>(&args[1])?.is_some_and(|set| set.contains(&args[2]));
    reply::int(out, i64::from(found));
    Ok(())
}

fn smismember(db: &mut Db<'_>, args: &Args<'_>, out: &mut OutBuf) -> CommandResult {
    let set = db.read::<Set>(&args[1])?;
    reply::array(out, args.len() - 2);
    for member in args.tail(2).iter() {
        let found = set.is_some_and(|set| set.contains(member));
        reply::int(out, i64::from(found));
    }
    Ok(())
}

fn smembers(db: &mut Db<'_>, args: &Args<'_>, out: &mut OutBuf) -> CommandResult {
    let set = db.read::<Set>(&args[1])?;
    reply::array(out, set.map_or(0, Set::len));
    set.into_iter().flat_map(Set::iter).for_each(|member| reply::blob(out, member));
    Ok(())
}

fn scard(db: &mut Db<'_>, args: &Args<'_>, out: &mut OutBuf) -> CommandResult {
    let len = db.read::<Set>(&args[1])?.map_or(0, Set::len);
    reply::count(out, len);
    Ok(())
}

fn spop(db: &mut Db<'_>, args: &Args<'_>, out: &mut OutBuf) -> CommandResult {
    let count = match args.len() {
        2 => None,
        3 => Some(arg::count(args, 2)?),
        _ => return Err(CommandError::Syntax),
    };
    let mut rng = db.rng(&args[1]);
    let popped = db.edit_existing(&args[1], |set: &mut Set| {
        let count = count.unwrap_or(1).min(set.len());
        let mut pop = || set.remove_at(rng.usize(..set.len()));
        let popped: Vec<Blob> = (0..count).map(|_| pop()).collect();
        Ok(Edit::when(count > 0, popped))
    })?;
    let popped = popped.unwrap_or_default();
    match count {
        None => reply::blob_or_nil(out, popped.first()),
        Some(_) => {
            reply::array(out, popped.len());
            popped.iter().for_each(|member| reply::blob(out, member));
        }
    }
    Ok(())
}

fn srandmember(db: &mut Db<'_>, args: &Args<'_>, out: &mut OutBuf) -> CommandResult {
    if args.len() > 3 {
        return Err(CommandError::Syntax);
    }
    let request = pick::Request::parse(args, "")?;
    let mut rng = db.rng(&args[1]);
    let set = db.read::<Set>(&args[1])?;
    let Some(request) = request else {
        reply::blob_or_nil(out, set.map(|set| set.at(rng.usize(..set.len()))));
        return Ok(());
    };
    let picks = pick::positions(set.map_or(0, Set::len), request.count, &mut rng);
    reply::array(out, picks.len());
    if let Some(set) = set {
        picks.iter().for_each(|&at| reply::blob(out, set.at(at)));
    }
    Ok(())
}

fn smove(db: &mut Db<'_>, args: &Args<'_>, out: &mut OutBuf) -> CommandResult {
    let (from, to, member) = (&args[1], &args[2], &args[3]);
    if !db.exists(from) {
        reply::int(out, 0);
        return Ok(());
    }
    let found = db.read::<Set>(from)?.is_some_and(|set| set.contains(member));
    db.read::<Set>(to)?;
    if found && from != to {
        db.edit_existing(from, |set: &mut Set| Ok(Edit::Changed(set.remove(member))))?;
        db.edit(to, |set: &mut Set| {
            let added = set.insert(member);
            Ok(Edit::when(added, ()))
        })?;
    }
    reply::int(out, i64::from(found));
    Ok(())
}

fn sscan(db: &mut Db<'_>, args: &Args<'_>, out: &mut OutBuf) -> CommandResult {
    let cursor = scan::parse_cursor(&args[2])?;
    let mut found = Vec::new();
    let Some(set) = db.read::<Set>(&args[1])? else {
        scan::page(out, 0, &found);
        return Ok(());
    };
    let options = ScanOptions::parse(args, 3, false)?;
    let next = set.scan(cursor as usize, options.count, |entry| {
        if options.matches(entry.key.as_slice()) {
            found.push(entry.key.as_slice().to_vec());
        }
    });
    scan::page(out, next as u64, &found);
    Ok(())
}
