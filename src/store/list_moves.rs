//! Lists: moves between keys, pops from the first of several, and the blocking forms.
//!
//! A blocking command tries once here and answers nil, exactly as it does inside MULTI; waiting is
//! the caller's part ([`MemoryStore::wait_for`](super::MemoryStore::wait_for)).

use crate::proto::args::Args;
use crate::proto::outbuf::OutBuf;

use super::blob::Blob;
use super::command::{Command, Effect::*, Keys::*, row};
use super::db::{Db, Edit};
use super::error::{CommandError, CommandResult};
use super::format::{parse_f64, parse_i64};
use super::lists::{pop_up_to, write_items};
use super::value::{End, List};
use super::{arg, reply};

pub(super) const COMMANDS: &[Command] = &[
    row("lmove", 5, Two, Grow, lmove),
    row("rpoplpush", 3, Two, Grow, |db, args, out| move_item(db, args, out, End::Right, End::Left)),
    row("lmpop", -4, Counted(1), Write, lmpop),
    row("blpop", -3, From(1), Write, |db, args, out| pop_first(db, args, out, End::Left)),
    row("brpop", -3, From(1), Write, |db, args, out| pop_first(db, args, out, End::Right)),
    row("blmove", 6, Two, Grow, |db, args, out| {
        let (from, to) = (end_of(&args[3])?, end_of(&args[4])?);
        timeout(&args[5])?;
        move_item(db, args, out, from, to)
    }),
    row("brpoplpush", 4, Two, Grow, |db, args, out| {
        timeout(&args[3])?;
        move_item(db, args, out, End::Right, End::Left)
    }),
    row("blmpop", -5, Counted(2), Write, blmpop),
];

/// Checks a blocking command's timeout, in seconds.
pub(super) fn timeout(text: &[u8]) -> CommandResult {
    let seconds = parse_f64(text).filter(|s| s.is_finite() && *s <= i64::MAX as f64 / 1_000.0);
    match seconds {
        None => Err(CommandError::TimeoutNotFloat),
        Some(seconds) if seconds < 0.0 => Err(CommandError::TimeoutNegative),
        Some(_) => Ok(()),
    }
}

fn end_of(word: &[u8]) -> Result<End, CommandError> {
    match () {
        () if arg::is(word, "left") => Ok(End::Left),
        () if arg::is(word, "right") => Ok(End::Right),
        () => Err(CommandError::Syntax),
    }
}

fn lmove(db: &mut Db<'_>, args: &Args<'_>, out: &mut OutBuf) -> CommandResult {
    let (from, to) = (end_of(&args[3])?, end_of(&args[4])?);
    move_item(db, args, out, from, to)
}

fn move_item(
    db: &mut Db<'_>,
    args: &Args<'_>,
    out: &mut OutBuf,
    from: End,
    to: End,
) -> CommandResult {
    let (source, target) = (&args[1], &args[2]);
    if db.read::<List>(source)?.is_none() {
        reply::nil(out);
        return Ok(());
    }
    // The target's type is checked before anything is taken.
    db.read::<List>(target)?;
    if source == target {
        let moved = db.edit_existing(source, |list: &mut List| {
            let item = list.pop(from).unwrap_or_default();
            list.push(to, item.clone());
            Ok(Edit::Changed(item))
        })?;
        reply::blob_or_nil(out, moved.as_ref());
        return Ok(());
    }
    let popped = db.edit_existing(source, |list: &mut List| Ok(Edit::Changed(list.pop(from))))?;
    let item = popped.flatten();
    reply::blob_or_nil(out, item.as_ref());
    if let Some(item) = item {
        db.edit(target, |list: &mut List| {
            list.push(to, item);
            Ok(Edit::Changed(()))
        })?;
    }
    Ok(())
}

/// `numkeys key ... WHERE [COUNT n]`.
pub(super) struct Several<'a, W> {
    pub(super) keys: Vec<&'a [u8]>,
    pub(super) place: W,
    pub(super) count: usize,
}

impl<'a, W> Several<'a, W> {
    /// Reads from argument `at` on; `place_of` reads the word after the keys.
    pub(super) fn parse(
        args: &Args<'a>,
        at: usize,
        place_of: impl Fn(&[u8]) -> Result<W, CommandError>,
    ) -> Result<Several<'a, W>, CommandError> {
        let positive = |at: usize| args.get(at).and_then(parse_i64).filter(|&n| n > 0);
        let numkeys = positive(at).ok_or(CommandError::NumkeysZero)?;
        let numkeys = usize::try_from(numkeys).unwrap_or(usize::MAX);
        let word_at = numkeys.checked_add(at + 1).ok_or(CommandError::Syntax)?;
        let place = place_of(args.get(word_at).ok_or(CommandError::Syntax)?)?;
        let mut count = None;
        let mut option = word_at + 1;
        while option < args.len() {
            let is_count = arg::is(&args[option], "count") && option + 1 < args.len();
            if count.is_some() || !is_count {
                return Err(CommandError::Syntax);
            }
            count = Some(positive(option + 1).ok_or(CommandError::CountZero)?);
            option += 2;
        }
        Ok(Several {
            keys: args.iter().skip(at + 1).take(numkeys).collect(),
            place,
            count: usize::try_from(count.unwrap_or(1)).unwrap_or(usize::MAX),
        })
    }
}

fn lmpop(db: &mut Db<'_>, args: &Args<'_>, out: &mut OutBuf) -> CommandResult {
    let several = Several::parse(args, 1, end_of)?;
    pop_several(db, several, out)
}

fn blmpop(db: &mut Db<'_>, args: &Args<'_>, out: &mut OutBuf) -> CommandResult {
    let several = Several::parse(args, 2, end_of)?;
    timeout(&args[1])?;
    pop_several(db, several, out)
}

fn pop_several(db: &mut Db<'_>, several: Several<'_, End>, out: &mut OutBuf) -> CommandResult {
    for key in several.keys {
        if let Some(items) = pop_up_to(db, key, several.place, several.count)? {
            reply::array(out, 2);
            reply::bulk(out, key);
            write_items(out, &items);
            return Ok(());
        }
    }
    reply::nil_array(out);
    Ok(())
}

fn pop_first(db: &mut Db<'_>, args: &Args<'_>, out: &mut OutBuf, end: End) -> CommandResult {
    let last = args.len() - 1;
    timeout(&args[last])?;
    for key in args.iter().take(last).skip(1) {
        let popped: Option<Vec<Blob>> = pop_up_to(db, key, end, 1)?;
        if let Some(item) = popped.as_ref().and_then(|items| items.first()) {
            reply::array(out, 2);
            reply::bulk(out, key);
            reply::blob(out, item);
            return Ok(());
        }
    }
    reply::nil_array(out);
    Ok(())
}
