//! Sorted sets: members and their scores.

use crate::proto::args::Args;
use crate::proto::outbuf::OutBuf;

use super::command::{Command, Effect::*, Keys::*, row};
use super::db::{Db, Edit};
use super::error::{CommandError, CommandResult};
use super::format::push_double;
use super::list_moves::{Several, timeout};
use super::scan::{self, ScanOptions};
use super::score_tree::Scored;
use super::zset_value::ZSet;
use super::{arg, pick, reply};

pub(super) const COMMANDS: &[Command] = &[
    row("zincrby", 4, One, Grow, zincrby),
    row("zrem", -3, One, Write, zrem),
    row("zscore", 3, One, Read, zscore),
    row("zmscore", -3, One, Read, zmscore),
    row("zcard", 2, One, Read, zcard),
    row("zrank", 3, One, Read, |db, args, out| zrank(db, args, out, false)),
    row("zrevrank", 3, One, Read, |db, args, out| zrank(db, args, out, true)),
    row("zpopmin", -2, One, Write, |db, args, out| zpop(db, args, out, false)),
    row("zpopmax", -2, One, Write, |db, args, out| zpop(db, args, out, true)),
    row("zmpop", -4, Counted(1), Write, zmpop),
    row("bzpopmin", -3, From(1), Write, |db, args, out| pop_first(db, args, out, false)),
    row("bzpopmax", -3, From(1), Write, |db, args, out| pop_first(db, args, out, true)),
    row("bzmpop", -5, Counted(2), Write, bzmpop),
    row("zrandmember", -2, One, Read, zrandmember),
    row("zscan", -3, One, Read, zscan),
];

fn zincrby(db: &mut Db<'_>, args: &Args<'_>, out: &mut OutBuf) -> CommandResult {
    let by = arg::double(args, 2)?;
    let score = db.edit(&args[1], |zset: &mut ZSet| {
        let score = zset.score(&args[3]).unwrap_or(0.0) + by;
        if score.is_nan() {
            return Err(CommandError::ScoreNan);
        }
        zset.set(&args[3], score);
        Ok(Edit::Changed(score))
    })?;
    reply::double(out, score);
    Ok(())
}

fn zrem(db: &mut Db<'_>, args: &Args<'_>, out: &mut OutBuf) -> CommandResult {
    let gone = db.edit_existing(&args[1], |zset: &mut ZSet| {
        let gone = args.tail(2).iter().filter(|member| zset.remove(member).is_some()).count();
        Ok(Edit::when(gone > 0, gone))
    })?;
    reply::count(out, gone.unwrap_or(0));
    Ok(())
}

fn zscore(db: &mut Db<'_>, args: &Args<'_>, out: &mut OutBuf) -> CommandResult {
    let zset = db.read::<ZSet>(&args[1])?;
    score_or_nil(out, zset.and_then(|zset| zset.score(&args[2])));
    Ok(())
}

fn score_or_nil(out: &mut OutBuf, score: Option<f64>) {
    match score {
        Some(score) => reply::double(out, score),
        None => reply::nil(out),
    }
}

fn zmscore(db: &mut Db<'_>, args: &Args<'_>, out: &mut OutBuf) -> CommandResult {
    let zset = db.read::<ZSet>(&args[1])?;
    reply::array(out, args.len() - 2);
    for member in args.tail(2).iter() {
        score_or_nil(out, zset.and_then(|zset| zset.score(member)));
    }
    Ok(())
}

fn zcard(db: &mut Db<'_>, args: &Args<'_>, out: &mut OutBuf) -> CommandResult {
    let len = db.read::<ZSet>(&args[1])?.map_or(0, ZSet::len);
    reply::count(out, len);
    Ok(())
}

fn zrank(db: &mut Db<'_>, args: &Args<'_>, out: &mut OutBuf, reverse: bool) -> CommandResult {
    let zset = db.read::<ZSet>(&args[1])?;
    let rank = zset.and_then(|zset| {
        let rank = zset.rank(&args[2])?;
        Some(if reverse { zset.len() - 1 - rank } else { rank })
    });
    match rank {
        Some(rank) => reply::count(out, rank),
        None => reply::nil(out),
    }
    Ok(())
}

/// Takes up to `count` members off an end; `None` when the key is absent.
fn pop_up_to(
    db: &mut Db<'_>,
    key: &[u8],
    highest: bool,
    count: usize,
) -> Result<Option<Vec<Scored>>, CommandError> {
    db.edit_existing(key, |zset: &mut ZSet| {
        let items = zset.slice(0, count, highest);
        for item in &items {
            zset.remove(item.member.as_slice());
        }
        Ok(Edit::when(!items.is_empty(), items))
    })
}

fn zpop(db: &mut Db<'_>, args: &Args<'_>, out: &mut OutBuf, highest: bool) -> CommandResult {
    let count = match args.len() {
        2 => 1,
        3 => arg::count(args, 2)?,
        _ => return Err(CommandError::Syntax),
    };
    let items = pop_up_to(db, &args[1], highest, count)?.unwrap_or_default();
    reply::array(out, 2 * items.len());
    for item in &items {
        reply::blob(out, &item.member);
        reply::double(out, item.score);
    }
    Ok(())
}

fn zmpop(db: &mut Db<'_>, args: &Args<'_>, out: &mut OutBuf) -> CommandResult {
    let several = Several::parse(args, 1, is_max)?;
    pop_several(db, several, out)
}

fn bzmpop(db: &mut Db<'_>, args: &Args<'_>, out: &mut OutBuf) -> CommandResult {
    let several = Several::parse(args, 2, is_max)?;
    timeout(&args[1])?;
    pop_several(db, several, out)
}

fn is_max(word: &[u8]) -> Result<bool, CommandError> {
    match () {
        () if arg::is(word, "min") => Ok(false),
        () if arg::is(word, "max") => Ok(true),
        () => Err(CommandError::Syntax),
    }
}

fn pop_several(db: &mut Db<'_>, several: Several<'_, bool>, out: &mut OutBuf) -> CommandResult {
    for key in several.keys {
        if let Some(items) = pop_up_to(db, key, several.place, several.count)? {
            reply::array(out, 2);
            reply::bulk(out, key);
            reply::array(out, items.len());
            for item in &items {
                reply::array(out, 2);
                reply::blob(out, &item.member);
                reply::double(out, item.score);
            }
            return Ok(());
        }
    }
    reply::nil_array(out);
    Ok(())
}

fn pop_first(db: &mut Db<'_>, args: &Args<'_>, out: &mut OutBuf, highest: bool) -> CommandResult {
    let last = args.len() - 1;
    timeout(&args[last])?;
    for key in args.iter().take(last).skip(1) {
        let popped = pop_up_to(db, key, highest, 1)?;
        if let Some(item) = popped.as_ref().and_then(|items| items.first()) {
            reply::array(out, 3);
            reply::bulk(out, key);
            reply::blob(out, &item.member);
            reply::double(out, item.score);
            return Ok(());
        }
    }
    reply::nil_array(out);
    Ok(())
}

fn zrandmember(db: &mut Db<'_>, args: &Args<'_>, out: &mut OutBuf) -> CommandResult {
    let request = pick::Request::parse(args, "withscores")?;
    let mut rng = db.rng(&args[1]);
    let zset = db.read::<ZSet>(&args[1])?;
    let Some(request) = request else {
        let found = zset.map(|zset| &zset.at(rng.usize(..zset.len())).key);
        reply::blob_or_nil(out, found);
        return Ok(());
    };
    let picks = pick::positions(zset.map_or(0, ZSet::len), request.count, &mut rng);
    reply::array(out, picks.len() * if request.with_values { 2 } else { 1 });
    for entry in zset.into_iter().flat_map(|zset| picks.iter().map(|&at| zset.at(at))) {
        reply::blob(out, &entry.key);
        if request.with_values {
            reply::double(out, entry.value);
        }
    }
    Ok(())
}

fn zscan(db: &mut Db<'_>, args: &Args<'_>, out: &mut OutBuf) -> CommandResult {
    let cursor = scan::parse_cursor(&args[2])?;
    let mut found = Vec::new();
    let Some(zset) = db.read::<ZSet>(&args[1])? else {
        scan::page(out, 0, &found);
        return Ok(());
    };
    let options = ScanOptions::parse(args, 3, false)?;
    let next = zset.scan(cursor as usize, options.count, |entry| {
        if options.matches(entry.key.as_slice()) {
            let mut score = Vec::new();
            push_double(&mut score, entry.value);
            found.push(entry.key.as_slice().to_vec());
            found.push(score);
        }
    });
    scan::page(out, next as u64, &found);
    Ok(())
}
