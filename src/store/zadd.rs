//! ZADD and its options.

use crate::proto::args::Args;
use crate::proto::outbuf::OutBuf;

use super::command::{Command, Effect::*, Keys::*, row};
use super::db::{Db, Edit};
use super::error::{CommandError, CommandResult};
use super::zset_value::ZSet;
use super::{arg, reply};

pub(super) const COMMANDS: &[Command] = &[row("zadd", -4, One, Grow, zadd)];

/// Options of ZADD.
#[derive(Debug, Default)]
struct Options {
    nx: bool,
    xx: bool,
    gt: bool,
    lt: bool,
    changed: bool,
    increment: bool,
    /// Where scores and members begin.
    pairs_at: usize,
}

/// What one pair did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    Added,
    Updated,
    Unchanged,
    /// An option forbade it.
    Refused,
}

impl Options {
    fn parse(args: &Args<'_>) -> Result<Options, CommandError> {
        let mut options = Options::default();
        let mut at = 2;
        while at < args.len() {
            match args[at].to_ascii_lowercase().as_slice() {
                b"nx" => options.nx = true,
                b"xx" => options.xx = true,
                b"gt" => options.gt = true,
                b"lt" => options.lt = true,
                b"ch" => options.changed = true,
                b"incr" => options.increment = true,
                _ => break,
            }
            at += 1;
        }
        options.pairs_at = at;
        let rest = args.len() - at;
        if rest == 0 || !rest.is_multiple_of(2) {
            return Err(CommandError::Syntax);
        }
        if options.nx && options.xx {
            return Err(CommandError::ZaddXxNx);
        }
        if (options.gt || options.lt) && options.nx || options.gt && options.lt {
            return Err(CommandError::ZaddGtLtNx);
        }
        if options.increment && rest > 2 {
            return Err(CommandError::ZaddIncrPair);
        }
        Ok(options)
    }

    /// Applies one pair; the score it ends up with comes back too.
    fn apply(
        &self,
        zset: &mut ZSet,
        member: &[u8],
        score: f64,
    ) -> Result<(Outcome, f64), CommandError> {
        let Some(old) = zset.score(member) else {
            if self.xx {
                return Ok((Outcome::Refused, score));
            }
            zset.set(member, score);
            return Ok((Outcome::Added, score));
        };
        if self.nx {
            return Ok((Outcome::Refused, old));
        }
        let score = if self.increment { old + score } else { score };
        if score.is_nan() {
            return Err(CommandError::ScoreNan);
        }
        if (self.lt && score >= old) || (self.gt && score <= old) {
            return Ok((Outcome::Refused, old));
        }
        if score == old {
            return Ok((Outcome::Unchanged, score));
        }
        zset.set(member, score);
        Ok((Outcome::Updated, score))
    }
}

fn zadd(db: &mut Db<'_>, args: &Args<'_>, out: &mut OutBuf) -> CommandResult {
    let options = Options::parse(args)?;
    // All scores are read before anything is changed.
    let mut scores = Vec::with_capacity((args.len() - options.pairs_at) / 2);
    for at in (options.pairs_at..args.len()).step_by(2) {
        scores.push(arg::double(args, at)?);
    }
    let (mut added, mut updated) = (0, 0);
    let last = db.edit(&args[1], |zset: &mut ZSet| {
        let mut last = (Outcome::Refused, 0.0);
        for (number, &score) in scores.iter().enumerate() {
            last = options.apply(zset, &args[options.pairs_at + 2 * number + 1], score)?;
            added += usize::from(last.0 == Outcome::Added);
            updated += usize::from(last.0 == Outcome::Updated);
        }
        Ok(Edit::when(added + updated > 0, last))
    })?;
    match (options.increment, last.0) {
        (true, Outcome::Refused) => reply::nil(out),
        (true, _) => reply::double(out, last.1),
        (false, _) => reply::count(out, if options.changed { added + updated } else { added }),
    }
    Ok(())
}
