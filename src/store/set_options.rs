//! The options of SET and GETEX, and expiry arguments of string commands.

use crate::proto::args::Args;

use super::arg;
use super::db::Expiry;
use super::error::CommandError;

/// Where an expiry argument stands and what it means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct ExpiryOption {
    at: usize,
    unit_ms: i64,
    relative: bool,
    /// Which word gave it: the same word may be given again, another one not.
    word: &'static str,
}

/// Options of SET or GETEX.
#[derive(Debug, Default)]
pub(super) struct SetOptions {
    pub(super) nx: bool,
    pub(super) xx: bool,
    pub(super) get: bool,
    pub(super) persist: bool,
    keep_ttl: bool,
    expiry: Option<ExpiryOption>,
}

impl SetOptions {
    /// Options of `SET key value ...`.
    pub(super) fn parse_set(args: &Args<'_>) -> Result<SetOptions, CommandError> {
        let mut options = SetOptions::default();
        let mut at = 3;
        while at < args.len() {
            let word = &args[at];
            let no_time = options.expiry.is_none();
            if arg::is(word, "nx") && !options.xx {
                options.nx = true;
            } else if arg::is(word, "xx") && !options.nx {
                options.xx = true;
            } else if arg::is(word, "get") {
                options.get = true;
            } else if arg::is(word, "keepttl") && no_time {
                options.keep_ttl = true;
            } else if !options.keep_ttl && options.take_expiry(args, at) {
                at += 1;
            } else {
                return Err(CommandError::Syntax);
            }
            at += 1;
        }
        Ok(options)
    }

    /// Options of `GETEX key ...`.
    pub(super) fn parse_getex(args: &Args<'_>) -> Result<SetOptions, CommandError> {
        let mut options = SetOptions::default();
        let mut at = 2;
        while at < args.len() {
            if arg::is(&args[at], "persist") && options.expiry.is_none() {
                options.persist = true;
            } else if !options.persist && options.take_expiry(args, at) {
                at += 1;
            } else {
                return Err(CommandError::Syntax);
            }
            at += 1;
        }
        Ok(options)
    }

    /// What the options do to the expiry.
    pub(super) fn expiry(
        &self,
        args: &Args<'_>,
        command: &'static str,
        now_ms: u64,
    ) -> Result<Expiry, CommandError> {
        let Some(option) = self.expiry else {
            return Ok(if self.keep_ttl { Expiry::Keep } else { Expiry::Never });
        };
        let base = option.relative.then_some(now_ms);
        absolute_expiry(arg::int(args, option.at)?, option.unit_ms, base, command).map(Expiry::At)
    }

    fn take_expiry(&mut self, args: &Args<'_>, at: usize) -> bool {
        let words =
            [("ex", 1_000, true), ("px", 1, true), ("exat", 1_000, false), ("pxat", 1, false)];
        let found = words.into_iter().find(|(word, ..)| arg::is(&args[at], word));
        let Some((word, unit_ms, relative)) = found else {
            return false;
        };
        if self.expiry.is_some_and(|given| given.word != word) || at + 1 >= args.len() {
            return false;
        }
        self.expiry = Some(ExpiryOption { at: at + 1, unit_ms, relative, word });
        true
    }
}

/// The moment an expiry argument names, in milliseconds since the epoch: positive only, as string
/// commands want it. `base_ms` is given for relative ones.
pub(super) fn absolute_expiry(
    value: i64,
    unit_ms: i64,
    base_ms: Option<u64>,
    command: &'static str,
) -> Result<u64, CommandError> {
    let base = base_ms.unwrap_or(0) as i64;
    let at = value.checked_mul(unit_ms).and_then(|ms| ms.checked_add(base));
    match at {
        Some(at) if value > 0 && at > 0 => Ok(at as u64),
        _ => Err(CommandError::ExpireTime(command)),
    }
}
