//! Expiry of single hash fields, as Redis has it from 7.4 on.

use crate::proto::args::Args;
use crate::proto::outbuf::OutBuf;

use super::command::{Command, Effect::*, Keys::*, row};
use super::db::{Db, Edit};
use super::error::{CommandError, CommandResult};
use super::format::parse_i64;
use super::hash_value::Hash;
use super::ttl::{Base, Condition, Unit};
use super::{arg, reply};

pub(super) const COMMANDS: &[Command] = &[
    row("hexpire", -6, One, Write, |db, args, out| {
        expire(db, args, out, "hexpire", Unit::Seconds, Base::Now)
    }),
    row("hpexpire", -6, One, Write, |db, args, out| {
        expire(db, args, out, "hpexpire", Unit::Millis, Base::Now)
    }),
    row("hexpireat", -6, One, Write, |db, args, out| {
        expire(db, args, out, "hexpireat", Unit::Seconds, Base::Epoch)
    }),
    row("hpexpireat", -6, One, Write, |db, args, out| {
        expire(db, args, out, "hpexpireat", Unit::Millis, Base::Epoch)
    }),
    row("hpersist", -5, One, Write, persist),
    row("httl", -5, One, Read, |db, args, out| ttl(db, args, out, Unit::Seconds, Base::Now)),
    row("hpttl", -5, One, Read, |db, args, out| ttl(db, args, out, Unit::Millis, Base::Now)),
    row("hexpiretime", -5, One, Read, |db, args, out| {
        ttl(db, args, out, Unit::Seconds, Base::Epoch)
    }),
    row("hpexpiretime", -5, One, Read, |db, args, out| {
        ttl(db, args, out, Unit::Millis, Base::Epoch)
    }),
];

/// Answers of these commands, one per field.
const NO_FIELD: i64 = -2;
const NO_EXPIRY: i64 = -1;
const NOT_SET: i64 = 0;
const SET: i64 = 1;
const DELETED: i64 = 2;

/// Latest time a field can have, in milliseconds since the epoch.
const EXPIRY_MAX_MS: i64 = (1 << 48) - 2;

/// The fields of `FIELDS n field ...` from argument `at` on.
fn fields<'a>(args: &Args<'a>, at: usize) -> Result<Args<'a>, CommandError> {
    if !args.get(at).is_some_and(|word| arg::is(word, "fields")) {
        return Err(CommandError::MissingArgument("FIELDS"));
    }
    let given = args.get(at + 1).and_then(parse_i64).filter(|n| *n > 0);
    let given = given.ok_or(CommandError::NumFieldsZero)?;
    let fields = args.tail(at + 2);
    match usize::try_from(given) == Ok(fields.len()) {
        true => Ok(fields),
        false => Err(CommandError::NumFieldsMismatch),
    }
}

/// The moment a command names, in milliseconds since the epoch.
fn moment(
    value: i64,
    unit: Unit,
    base: Base,
    now_ms: u64,
    command: &'static str,
) -> Result<i64, CommandError> {
    if value < 0 {
        return Err(CommandError::FieldExpireNegative);
    }
    super::ttl::moment(value, unit, base, now_ms, command)
        .ok()
        .filter(|at| *at <= EXPIRY_MAX_MS)
        .ok_or(CommandError::ExpireTime(command))
}

fn expire(
    db: &mut Db<'_>,
    args: &Args<'_>,
    out: &mut OutBuf,
    command: &'static str,
    unit: Unit,
    base: Base,
) -> CommandResult {
    let now_ms = db.now_ms();
    let at_ms = moment(arg::int(args, 2)?, unit, base, now_ms, command)?;
    let condition = Condition::parse_one(&args[3]);
    let fields = fields(args, if condition.is_some() { 4 } else { 3 })?;
    let condition = condition.unwrap_or_default();
    let answers = db.edit_existing(&args[1], |hash: &mut Hash| {
        let set = |field| set_one(hash, field, condition, at_ms, now_ms);
        let answers: Vec<i64> = fields.iter().map(set).collect();
        let changed = answers.iter().any(|&answer| answer > NOT_SET);
        Ok(Edit::when(changed, answers))
    })?;
    write_answers(out, answers, fields.len());
    Ok(())
}

fn set_one(hash: &mut Hash, field: &[u8], condition: Condition, at_ms: i64, now_ms: u64) -> i64 {
    let Some(old) = hash.get(field) else {
        return NO_FIELD;
    };
    if !condition.allows(old.expire_at_ms, at_ms) {
        return NOT_SET;
    }
    if at_ms as u64 <= now_ms {
        hash.remove(field);
        return DELETED;
    }
    hash.set_expiry(field, at_ms as u64);
    SET
}

fn persist(db: &mut Db<'_>, args: &Args<'_>, out: &mut OutBuf) -> CommandResult {
    let fields = fields(args, 2)?;
    let answers = db.edit_existing(&args[1], |hash: &mut Hash| {
        let persist = |field| match hash.get(field).map(|old| old.expire_at_ms) {
            None => NO_FIELD,
            Some(0) => NO_EXPIRY,
            Some(_) => {
                hash.set_expiry(field, 0);
                SET
            }
        };
        let answers: Vec<i64> = fields.iter().map(persist).collect();
        Ok(Edit::when(answers.contains(&SET), answers))
    })?;
    write_answers(out, answers, fields.len());
    Ok(())
}

fn ttl(
    db: &mut Db<'_>,
    args: &Args<'_>,
    out: &mut OutBuf,
    unit: Unit,
    base: Base,
) -> CommandResult {
    let (fields, now_ms) = (fields(args, 2)?, db.now_ms());
    let hash = db.read::<Hash>(&args[1])?;
    let answers = hash.map(|hash| {
        let shown = |field| match hash.get(field).map(|field| field.expire_at_ms) {
            None => NO_FIELD,
            Some(0) => NO_EXPIRY,
            Some(at_ms) => shown(at_ms, unit, base, now_ms),
        };
        fields.iter().map(shown).collect()
    });
    write_answers(out, answers, fields.len());
    Ok(())
}

/// A moment as these commands show it: seconds are rounded up, other than for keys.
fn shown(at_ms: u64, unit: Unit, base: Base, now_ms: u64) -> i64 {
    let ms = match base {
        Base::Now => at_ms.saturating_sub(now_ms),
        Base::Epoch => at_ms,
    };
    match unit {
        Unit::Seconds => ms.div_ceil(1_000) as i64,
        Unit::Millis => ms as i64,
    }
}

/// One answer per field; without a hash no field is there.
fn write_answers(out: &mut OutBuf, answers: Option<Vec<i64>>, fields: usize) {
    let answers = answers.unwrap_or_else(|| vec![NO_FIELD; fields]);
    reply::array(out, answers.len());
    answers.iter().for_each(|&answer| reply::int(out, answer));
}
