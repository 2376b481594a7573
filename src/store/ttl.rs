//! When keys go: EXPIRE, TTL and their family.

use crate::proto::args::Args;
use crate::proto::outbuf::OutBuf;

use super::arg;
use super::command::{Command, Effect::*, Keys::*, row};
use super::db::{Db, Expiry};
use super::error::{CommandError, CommandResult};
use super::{keys, reply};

pub(super) const COMMANDS: &[Command] = &[
    row("expire", -3, One, Write, |db, args, out| {
        expire(db, args, out, "expire", Unit::Seconds, Base::Now)
    }),
    row("pexpire", -3, One, Write, |db, args, out| {
        expire(db, args, out, "pexpire", Unit::Millis, Base::Now)
    }),
    row("expireat", -3, One, Write, |db, args, out| {
        expire(db, args, out, "expireat", Unit::Seconds, Base::Epoch)
    }),
    row("pexpireat", -3, One, Write, |db, args, out| {
        expire(db, args, out, "pexpireat", Unit::Millis, Base::Epoch)
    }),
    row("ttl", 2, One, Read, |db, args, out| ttl(db, args, out, Unit::Seconds, Base::Now)),
    row("pttl", 2, One, Read, |db, args, out| ttl(db, args, out, Unit::Millis, Base::Now)),
    row("expiretime", 2, One, Read, |db, args, out| ttl(db, args, out, Unit::Seconds, Base::Epoch)),
    row("pexpiretime", 2, One, Read, |db, args, out| ttl(db, args, out, Unit::Millis, Base::Epoch)),
    row("persist", 2, One, Write, persist),
];

/// The unit of a time in a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unit {
    Seconds,
    Millis,
}

/// What a time in a command counts from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Base {
    Now,
    Epoch,
}

/// Conditions under which an expiry is set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Condition {
    pub(super) nx: bool,
    pub(super) xx: bool,
    pub(super) gt: bool,
    pub(super) lt: bool,
}

impl Condition {
    /// Conditions in `args` from `from` on.
    fn parse(args: &Args<'_>, from: usize) -> Result<Condition, CommandError> {
        let mut condition = Condition::default();
        for word in args.tail(from).iter() {
            if !condition.add(word) {
                return Err(CommandError::unsupported_option(word));
            }
        }
        if condition.nx && (condition.xx || condition.gt || condition.lt) {
            return Err(CommandError::ExpireNxWithOther);
        }
        if condition.gt && condition.lt {
            return Err(CommandError::ExpireGtWithLt);
        }
        Ok(condition)
    }

    /// The condition that is this one word, if it is one.
    pub(super) fn parse_one(word: &[u8]) -> Option<Condition> {
        let mut condition = Condition::default();
        condition.add(word).then_some(condition)
    }

    /// Adds a word; false when it is no condition.
    fn add(&mut self, word: &[u8]) -> bool {
        let known = [
            ("nx", &mut self.nx),
            ("xx", &mut self.xx),
            ("gt", &mut self.gt),
            ("lt", &mut self.lt),
        ];
        let found = known.into_iter().find(|(name, _)| arg::is(word, name));
        found.map(|(_, flag)| *flag = true).is_some()
    }

    /// True when an expiry at `new_ms` may replace `old_ms` (0 is never).
    pub(super) fn allows(self, old_ms: u64, new_ms: i64) -> bool {
        let volatile = old_ms != 0;
        let old = old_ms as i64;
        match volatile {
            false => !self.xx && !self.gt,
            true => !(self.nx || self.gt && new_ms <= old || self.lt && new_ms >= old),
        }
    }
}

/// The moment `value` names, in milliseconds since the epoch; it may lie in the past.
pub(super) fn moment(
    value: i64,
    unit: Unit,
    base: Base,
    now_ms: u64,
    command: &'static str,
) -> Result<i64, CommandError> {
    let ms = match unit {
        Unit::Seconds => value.checked_mul(1_000),
        Unit::Millis => Some(value),
    };
    let at = match base {
        Base::Now => ms.and_then(|ms| ms.checked_add(now_ms as i64)),
        Base::Epoch => ms,
    };
    at.ok_or(CommandError::ExpireTime(command))
}

fn expire(
    db: &mut Db<'_>,
    args: &Args<'_>,
    out: &mut OutBuf,
    command: &'static str,
    unit: Unit,
    base: Base,
) -> CommandResult {
    let condition = Condition::parse(args, 3)?;
    let at = moment(arg::int(args, 2)?, unit, base, db.now_ms(), command)?;
    let key = &args[1];
    let set = match db.peek(key) {
        Some(record) => condition.allows(record.expire_at_ms(), at),
        None => false,
    };
    if set {
        keys::expire(db, key, Expiry::At(at.max(0) as u64));
    }
    reply::int(out, i64::from(set));
    Ok(())
}

fn ttl(
    db: &mut Db<'_>,
    args: &Args<'_>,
    out: &mut OutBuf,
    unit: Unit,
    base: Base,
) -> CommandResult {
    let now_ms = db.now_ms();
    let answer = match db.look(&args[1]).map(|r| r.expire_at_ms()) {
        None => -2,
        Some(0) => -1,
        Some(at) => shown(at, unit, base, now_ms),
    };
    reply::int(out, answer);
    Ok(())
}

/// A moment as TTL and its family show it; seconds are rounded.
pub(super) fn shown(at_ms: u64, unit: Unit, base: Base, now_ms: u64) -> i64 {
    let ms = match base {
        Base::Now => at_ms.saturating_sub(now_ms),
        Base::Epoch => at_ms,
    };
    match unit {
        Unit::Seconds => (ms as i64).saturating_add(500) / 1_000,
        Unit::Millis => ms as i64,
    }
}

fn persist(db: &mut Db<'_>, args: &Args<'_>, out: &mut OutBuf) -> CommandResult {
    let volatile = db.peek(&args[1]).is_some_and(|r| r.expire_at_ms() != 0);
    if volatile {
        db.set_expiry(&args[1], 0);
    }
    reply::int(out, i64::from(volatile));
    Ok(())
}
