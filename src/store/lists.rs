//! Lists.

use crate::proto::args::Args;
use crate::proto::outbuf::OutBuf;

use super::blob::Blob;
use super::command::{Command, Effect::*, Keys::*, row};
use super::db::{Db, Edit};
use super::error::{CommandError, CommandResult};
use super::value::{End, List};
use super::{arg, reply};

pub(super) const COMMANDS: &[Command] = &[
    row("lpush", -3, One, Grow, |db, args, out| push(db, args, out, End::Left)),
    row("rpush", -3, One, Grow, |db, args, out| push(db, args, out, End::Right)),
    row("lpushx", -3, One, Grow, |db, args, out| push_existing(db, args, out, End::Left)),
    row("rpushx", -3, One, Grow, |db, args, out| push_existing(db, args, out, End::Right)),
    row("lpop", -2, One, Write, |db, args, out| pop(db, args, out, End::Left, "lpop")),
    row("rpop", -2, One, Write, |db, args, out| pop(db, args, out, End::Right, "rpop")),
    row("llen", 2, One, Read, llen),
    row("lindex", 3, One, Read, lindex),
    row("lset", 4, One, Grow, lset),
    row("lrange", 4, One, Read, lrange),
    row("ltrim", 4, One, Write, ltrim),
    row("lrem", 4, One, Write, lrem),
    row("linsert", 5, One, Grow, linsert),
    row("lpos", -3, One, Read, lpos),
];

fn push(db: &mut Db<'_>, args: &Args<'_>, out: &mut OutBuf, end: End) -> CommandResult {
    let len = db.edit(&args[1], |list: &mut List| Ok(push_all(list, args, end)))?;
    reply::count(out, len);
    Ok(())
}

fn push_existing(db: &mut Db<'_>, args: &Args<'_>, out: &mut OutBuf, end: End) -> CommandResult {
    let len = db.edit_existing(&args[1], |list: &mut List| Ok(push_all(list, args, end)))?;
    reply::count(out, len.unwrap_or(0));
    Ok(())
}

fn push_all(list: &mut List, args: &Args<'_>, end: End) -> Edit<usize> {
    args.tail(2).iter().for_each(|item| list.push(end, Blob::new(item)));
    Edit::Changed(list.len())
}

fn pop(
    db: &mut Db<'_>,
    args: &Args<'_>,
    out: &mut OutBuf,
    end: End,
    name: &'static str,
) -> CommandResult {
    let count = match args.len() {
        2 => None,
        3 => Some(arg::count(args, 2)?),
        _ => return Err(CommandError::Arity(name)),
    };
    let popped = pop_up_to(db, &args[1], end, count.unwrap_or(1))?;
    match (popped, count) {
        (None, None) => reply::nil(out),
        (None, Some(_)) => reply::nil_array(out),
        (Some(items), None) => reply::blob_or_nil(out, items.first()),
        (Some(items), Some(_)) => write_items(out, &items),
    }
    Ok(())
}

/// Takes up to `count` items off an end; `None` when the key is absent.
pub(super) fn pop_up_to(
    db: &mut Db<'_>,
    key: &[u8],
    end: End,
    count: usize,
) -> Result<Option<Vec<Blob>>, CommandError> {
    db.edit_existing(key, |list: &mut List| {
        let count = count.min(list.len());
        let items: Vec<Blob> = (0..count).filter_map(|_| list.pop(end)).collect();
        Ok(Edit::when(count > 0, items))
    })
}

/// An array of items.
pub(super) fn write_items(out: &mut OutBuf, items: &[Blob]) {
    reply::array(out, items.len());
    items.iter().for_each(|item| reply::blob(out, item));
}

fn llen(db: &mut Db<'_>, args: &Args<'_>, out: &mut OutBuf) -> CommandResult {
    let len = db.read::<List>(&args[1])?.map_or(0, List::len);
    reply::count(out, len);
    Ok(())
}

fn lindex(db: &mut Db<'_>, args: &Args<'_>, out: &mut OutBuf) -> CommandResult {
    let Some(list) = db.read::<List>(&args[1])? else {
        reply::nil(out);
        return Ok(());
    };
    let at = position(arg::int(args, 2)?, list.len());
    reply::blob_or_nil(out, at.and_then(|at| list.get(at)));
    Ok(())
}

/// An index as Redis reads it, negative from the end.
fn position(index: i64, len: usize) -> Option<usize> {
    let index = if index < 0 { index.checked_add(len as i64)? } else { index };
    usize::try_from(index).ok().filter(|&at| at < len)
}

fn lset(db: &mut Db<'_>, args: &Args<'_>, out: &mut OutBuf) -> CommandResult {
    let set = db.edit_existing(&args[1], |list: &mut List| {
        let at = position(arg::int(args, 2)?, list.len()).ok_or(CommandError::IndexOutOfRange)?;
        list.set(at, &args[3]);
        Ok(Edit::Changed(()))
    })?;
    set.ok_or(CommandError::NoSuchKey)?;
    reply::ok(out);
    Ok(())
}

fn lrange(db: &mut Db<'_>, args: &Args<'_>, out: &mut OutBuf) -> CommandResult {
    let (start, end) = (arg::int(args, 2)?, arg::int(args, 3)?);
    let Some(list) = db.read::<List>(&args[1])? else {
        reply::array(out, 0);
        return Ok(());
    };
    let (from, count) = arg::range(start, end, list.len());
    reply::array(out, count);
    list.range(from, from + count).for_each(|item| reply::blob(out, item));
    Ok(())
}

fn ltrim(db: &mut Db<'_>, args: &Args<'_>, out: &mut OutBuf) -> CommandResult {
    let (start, end) = (arg::int(args, 2)?, arg::int(args, 3)?);
    db.edit_existing(&args[1], |list: &mut List| {
        let (from, count) = arg::range(start, end, list.len());
        list.keep(from, from + count);
        Ok(Edit::Changed(()))
    })?;
    reply::ok(out);
    Ok(())
}

fn lrem(db: &mut Db<'_>, args: &Args<'_>, out: &mut OutBuf) -> CommandResult {
    let count = arg::int(args, 2)?;
    let (max, from) = match count {
        0 => (usize::MAX, End::Left),
        1.. => (count as usize, End::Left),
        _ => (count.unsigned_abs() as usize, End::Right),
    };
    let removed = db.edit_existing(&args[1], |list: &mut List| {
        let removed = list.remove_equal(&args[3], max, from);
        Ok(Edit::when(removed > 0, removed))
    })?;
    reply::count(out, removed.unwrap_or(0));
    Ok(())
}

fn linsert(db: &mut Db<'_>, args: &Args<'_>, out: &mut OutBuf) -> CommandResult {
    let after = match () {
        () if arg::is(&args[2], "before") => 0,
        () if arg::is(&args[2], "after") => 1,
        () => return Err(CommandError::Syntax),
    };
    let len = db.edit_existing(&args[1], |list: &mut List| {
        let pivot = list.iter().position(|item| item.as_slice() == &args[3]);
        Ok(match pivot {
            Some(at) => {
                list.insert(at + after, Blob::new(&args[4]));
                Edit::Changed(list.len() as i64)
            }
            None => Edit::Same(-1),
        })
    })?;
    reply::int(out, len.unwrap_or(0));
    Ok(())
}

/// Options of LPOS.
struct Search {
    rank: i64,
    count: Option<usize>,
    /// Items compared at most; 0 is all.
    max_len: usize,
}

impl Search {
    fn parse(args: &Args<'_>) -> Result<Search, CommandError> {
        let mut search = Search { rank: 1, count: None, max_len: 0 };
        for at in (3..args.len()).step_by(2) {
            let word = &args[at];
            if at + 1 == args.len() {
                return Err(CommandError::Syntax);
            }
            let number = arg::count(args, at + 1);
            if arg::is(word, "rank") {
                search.rank = arg::negatable(args, at + 1)?;
                if search.rank == 0 {
                    return Err(CommandError::RankZero);
                }
            } else if arg::is(word, "count") {
                search.count = Some(number.map_err(|_| CommandError::CountNegative)?);
            } else if arg::is(word, "maxlen") {
                search.max_len = number.map_err(|_| CommandError::MaxlenNegative)?;
            } else {
                return Err(CommandError::Syntax);
            }
        }
        Ok(search)
    }

    fn run(&self, list: &List, wanted: &[u8]) -> Vec<usize> {
        let max_len = if self.max_len == 0 { list.len() } else { self.max_len };
        let max = match self.count {
            Some(0) => usize::MAX,
            Some(count) => count,
            None => 1,
        };
        let len = list.len();
        let skip = self.rank.unsigned_abs() as usize - 1;
        let places: Box<dyn Iterator<Item = usize>> = match self.rank > 0 {
            true => Box::new(0..len),
            false => Box::new((0..len).rev()),
        };
        let hits = places
            .take(max_len)
            .filter(|&at| list.get(at).is_some_and(|item| item.as_slice() == wanted));
        hits.skip(skip).take(max).collect()
    }
}

fn lpos(db: &mut Db<'_>, args: &Args<'_>, out: &mut OutBuf) -> CommandResult {
    let search = Search::parse(args)?;
    let list = db.read::<List>(&args[1])?;
    let hits = list.map_or(Vec::new(), |list| search.run(list, &args[2]));
    match (search.count, hits.first()) {
        (Some(_), _) => {
            reply::array(out, hits.len());
            hits.iter().for_each(|&at| reply::count(out, at));
        }
        (None, Some(&at)) => reply::count(out, at),
        (None, None) => reply::nil(out),
    }
    Ok(())
}
