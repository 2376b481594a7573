//! Counters: strings that are numbers.

use crate::proto::args::Args;
use crate::proto::outbuf::OutBuf;

use super::arg;
use super::blob::Blob;
use super::command::{Command, Effect::*, Keys::*, row};
use super::db::{Db, Edit};
use super::error::{CommandError, CommandResult};
use super::extended::{self, Extended, Parsed};
use super::format::parse_i64;
use super::reply;

pub(super) const COMMANDS: &[Command] = &[
    row("incr", 2, One, Grow, incr),
    row("decr", 2, One, Grow, decr),
    row("incrby", 3, One, Grow, incrby),
    row("decrby", 3, One, Grow, decrby),
    row("incrbyfloat", 3, One, Grow, incrbyfloat),
];

fn incr(db: &mut Db<'_>, args: &Args<'_>, out: &mut OutBuf) -> CommandResult {
    add(db, &args[1], 1, out)
}

fn decr(db: &mut Db<'_>, args: &Args<'_>, out: &mut OutBuf) -> CommandResult {
    add(db, &args[1], -1, out)
}

fn incrby(db: &mut Db<'_>, args: &Args<'_>, out: &mut OutBuf) -> CommandResult {
    add(db, &args[1], arg::int(args, 2)?, out)
}

fn decrby(db: &mut Db<'_>, args: &Args<'_>, out: &mut OutBuf) -> CommandResult {
    let by = arg::int(args, 2)?.checked_neg().ok_or(CommandError::DecrementOverflow)?;
    add(db, &args[1], by, out)
}

fn add(db: &mut Db<'_>, key: &[u8], by: i64, out: &mut OutBuf) -> CommandResult {
    let sum = db.edit_existing(key, |text: &mut Blob| {
        let old = parse_i64(text.as_slice()).ok_or(CommandError::NotInteger)?;
        let sum = old.checked_add(by).ok_or(CommandError::CounterOverflow)?;
        *text = Blob::from_int(sum);
        Ok(Edit::Changed(sum))
    })?;
    let sum = sum.unwrap_or_else(|| {
        db.add_string(key, itoa::Buffer::new().format(by).as_bytes());
        by
    });
    reply::int(out, sum);
    Ok(())
}

fn incrbyfloat(db: &mut Db<'_>, args: &Args<'_>, out: &mut OutBuf) -> CommandResult {
    let (key, by) = (&args[1], &args[2]);
    let sum = db.edit_existing(key, |text: &mut Blob| {
        let sum = add_float(text.as_slice(), by, CommandError::NotFloat)?;
        *text = Blob::new(sum.as_bytes());
        Ok(Edit::Changed(sum))
    })?;
    let sum = match sum {
        Some(sum) => sum,
        None => {
            let sum = add_float(b"0", by, CommandError::NotFloat)?;
            db.add_string(key, sum.as_bytes());
            sum
        }
    };
    reply::bulk(out, sum.as_bytes());
    Ok(())
}

/// The text of `old + by`. `bad_old` is the error when `old` is no number.
pub(super) fn add_float(
    old: &[u8],
    by: &[u8],
    bad_old: CommandError,
) -> Result<String, CommandError> {
    let old = extended::parse(old).ok_or(bad_old)?;
    let by = extended::parse(by).ok_or(CommandError::NotFloat)?;
    match (old, by) {
        (Parsed::Finite(old), Parsed::Finite(by)) => {
            let sum = old.add(by).ok_or(CommandError::FloatOverflow)?;
            Ok(Extended::text(sum))
        }
        (Parsed::Infinite, _) | (_, Parsed::Infinite) => Err(CommandError::FloatOverflow),
    }
}
