//! Ranges of sorted sets: by rank, by score, by member.

use crate::proto::args::Args;
use crate::proto::outbuf::OutBuf;

use super::command::{Command, Effect::*, Keys::*, row};
use super::db::{Db, Edit};
use super::error::{CommandError, CommandResult};
use super::format::{c_number, parse_f64_unchecked};
use super::score_tree::Scored;
use super::value::Kind;
use super::zset_value::ZSet;
use super::{arg, reply};

pub(super) const COMMANDS: &[Command] = &[
    row("zrange", -4, One, Read, |db, args, out| {
        show(db, args, out, Query::parse(args, 1, Form::ANY)?)
    }),
    row("zrevrange", -4, One, Read, |db, args, out| {
        show(db, args, out, Query::parse(args, 1, Form::old(By::Rank, true))?)
    }),
    row("zrangebyscore", -4, One, Read, |db, args, out| {
        show(db, args, out, Query::parse(args, 1, Form::old(By::Score, false))?)
    }),
    row("zrevrangebyscore", -4, One, Read, |db, args, out| {
        show(db, args, out, Query::parse(args, 1, Form::old(By::Score, true))?)
    }),
    row("zrangebylex", -4, One, Read, |db, args, out| {
        show(db, args, out, Query::parse(args, 1, Form::old(By::Lex, false))?)
    }),
    row("zrevrangebylex", -4, One, Read, |db, args, out| {
        show(db, args, out, Query::parse(args, 1, Form::old(By::Lex, true))?)
    }),
    row("zrangestore", -5, Two, Grow, zrangestore),
    row("zcount", 4, One, Read, |db, args, out| count(db, args, out, By::Score)),
    row("zlexcount", 4, One, Read, |db, args, out| count(db, args, out, By::Lex)),
    row("zremrangebyrank", 4, One, Write, |db, args, out| remove(db, args, out, By::Rank)),
    row("zremrangebyscore", 4, One, Write, |db, args, out| remove(db, args, out, By::Score)),
    row("zremrangebylex", 4, One, Write, |db, args, out| remove(db, args, out, By::Lex)),
];

/// What a range counts in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum By {
    Rank,
    Score,
    Lex,
}

/// What a command's name fixes about its range.
#[derive(Clone, Copy)]
struct Form {
    by: Option<By>,
    reverse: Option<bool>,
    stores: bool,
}

impl Form {
    /// ZRANGE: everything is an option.
    const ANY: Form = Form { by: None, reverse: None, stores: false };

    /// One of the older commands.
    const fn old(by: By, reverse: bool) -> Form {
        Form { by: Some(by), reverse: Some(reverse), stores: false }
    }
}

/// An end of a range by score or member.
#[derive(Clone, Debug, PartialEq)]
enum Bound<T> {
    Including(T),
    Excluding(T),
}

/// The items of a range, ends in rising order.
enum Range<'a> {
    Ranks(i64, i64),
    Scores(Bound<f64>, Bound<f64>),
    Members(LexBound<'a>, LexBound<'a>),
}

/// An end of a range by member.
#[derive(Clone, Copy)]
enum LexBound<'a> {
    Lowest,
    Highest,
    At(&'a [u8], bool),
}

/// A whole range command: range, direction, limit, form of the reply.
struct Query<'a> {
    range: Range<'a>,
    reverse: bool,
    offset: i64,
    limit: i64,
    with_scores: bool,
}

impl<'a> Query<'a> {
    /// Reads `key first last options...`, the key being argument `at`.
    fn parse(args: &Args<'a>, at: usize, form: Form) -> Result<Query<'a>, CommandError> {
        let (mut by, mut reverse) = (form.by, form.reverse);
        let (mut offset, mut limit, mut with_scores) = (0, -1, false);
        let mut option = at + 3;
        while option < args.len() {
            let word = &args[option];
            if !form.stores && arg::is(word, "withscores") {
                with_scores = true;
            } else if arg::is(word, "limit") && option + 2 < args.len() {
                (offset, limit) = (arg::int(args, option + 1)?, arg::int(args, option + 2)?);
                option += 2;
            } else if reverse.is_none() && arg::is(word, "rev") {
                reverse = Some(true);
            } else if by.is_none() && arg::is(word, "bylex") {
                by = Some(By::Lex);
            } else if by.is_none() && arg::is(word, "byscore") {
                by = Some(By::Score);
            } else {
                return Err(CommandError::Syntax);
            }
            option += 1;
        }
        let (by, reverse) = (by.unwrap_or(By::Rank), reverse.unwrap_or(false));
        if limit != -1 && by == By::Rank {
            return Err(CommandError::LimitWithoutBy);
        }
        if with_scores && by == By::Lex {
            return Err(CommandError::WithscoresByLex);
        }
        let range = match reverse && by != By::Rank {
            true => Range::parse(args, at + 2, at + 1, by)?,
            false => Range::parse(args, at + 1, at + 2, by)?,
        };
        Ok(Query { range, reverse, offset, limit, with_scores })
    }

    /// Where the answer begins, counted from the end the direction starts at, and its length.
    fn resolve(&self, zset: &ZSet) -> (usize, usize) {
        let (low, count) = match &self.range {
            // Ranks are given in the direction of the walk.
            Range::Ranks(start, end) => return arg::range(*start, *end, zset.len()),
            Range::Scores(..) | Range::Members(..) => self.range.resolve(zset),
        };
        let start = if self.reverse { zset.len() - low - count } else { low };
        let Ok(offset) = usize::try_from(self.offset) else {
            return (0, 0);
        };
        let left = count.saturating_sub(offset);
        let limit = usize::try_from(self.limit).unwrap_or(usize::MAX);
        (start + offset.min(count), left.min(limit))
    }
}

impl<'a> Range<'a> {
    fn parse(args: &Args<'a>, low: usize, high: usize, by: By) -> Result<Range<'a>, CommandError> {
        let arg = |at| args.get(at).unwrap_or_default();
        match by {
            By::Rank => Ok(Range::Ranks(arg::int(args, low)?, arg::int(args, high)?)),
            By::Score => Ok(Range::Scores(parse_score(arg(low))?, parse_score(arg(high))?)),
            By::Lex => Ok(Range::Members(parse_lex(arg(low))?, parse_lex(arg(high))?)),
        }
    }

    /// Rank of the first item in rising order, and how many there are.
    fn resolve(&self, zset: &ZSet) -> (usize, usize) {
        let order = zset.order();
        let (from, to) = match self {
            Range::Ranks(start, end) => return arg::range(*start, *end, zset.len()),
            Range::Scores(low, high) => (
                order.count_before(|item| low.is_above(item.score)),
                order.count_before(|item| !high.is_below(item.score)),
            ),
            Range::Members(low, high) => (
                order.count_before(|item| low.is_above(item.member.as_slice())),
                order.count_before(|item| !high.is_below(item.member.as_slice())),
            ),
        };
        (from, to.saturating_sub(from))
    }
}

impl Bound<f64> {
    /// True when `score` lies before a range that begins here.
    fn is_above(&self, score: f64) -> bool {
        match self {
            Bound::Including(low) => score < *low,
            Bound::Excluding(low) => score <= *low,
        }
    }

    /// True when `score` lies behind a range that ends here.
    fn is_below(&self, score: f64) -> bool {
        match self {
            Bound::Including(high) => score > *high,
            Bound::Excluding(high) => score >= *high,
        }
    }
}

impl LexBound<'_> {
    fn is_above(self, member: &[u8]) -> bool {
        match self {
            LexBound::Lowest => false,
            LexBound::Highest => true,
            LexBound::At(low, including) => member < low || (member == low && !including),
        }
    }

    fn is_below(self, member: &[u8]) -> bool {
        match self {
            LexBound::Lowest => true,
            LexBound::Highest => false,
            LexBound::At(high, including) => member > high || (member == high && !including),
        }
    }
}

fn parse_score(text: &[u8]) -> Result<Bound<f64>, CommandError> {
    let (text, excluding) = match text {
        [b'(', rest @ ..] => (rest, true),
        _ => (text, false),
    };
    let score = parse_f64_unchecked(c_number(text)).ok_or(CommandError::RangeNotFloat)?;
    Ok(if excluding { Bound::Excluding(score) } else { Bound::Including(score) })
}

fn parse_lex(text: &[u8]) -> Result<LexBound<'_>, CommandError> {
    match text {
        b"-" => Ok(LexBound::Lowest),
        b"+" => Ok(LexBound::Highest),
        [b'[', rest @ ..] => Ok(LexBound::At(rest, true)),
        [b'(', rest @ ..] => Ok(LexBound::At(rest, false)),
        _ => Err(CommandError::RangeNotLex),
    }
}

fn show(db: &mut Db<'_>, args: &Args<'_>, out: &mut OutBuf, query: Query<'_>) -> CommandResult {
    let Some(zset) = db.read::<ZSet>(&args[1])? else {
        reply::array(out, 0);
        return Ok(());
    };
    let (start, count) = query.resolve(zset);
    reply::array(out, count * if query.with_scores { 2 } else { 1 });
    zset.order().walk(start, count, query.reverse, |item| {
        reply::blob(out, &item.member);
        if query.with_scores {
            reply::double(out, item.score);
        }
        true
    });
    Ok(())
}

fn zrangestore(db: &mut Db<'_>, args: &Args<'_>, out: &mut OutBuf) -> CommandResult {
    let query = Query::parse(args, 2, Form { stores: true, ..Form::ANY })?;
    let mut result = ZSet::default();
    if let Some(zset) = db.read::<ZSet>(&args[2])? {
        let (start, count) = query.resolve(zset);
        zset.order().walk(start, count, query.reverse, |item| {
            result.set(item.member.as_slice(), item.score);
            true
        });
    }
    let len = result.len();
    db.put(&args[1], result.into_value());
    reply::count(out, len);
    Ok(())
}

fn count(db: &mut Db<'_>, args: &Args<'_>, out: &mut OutBuf, by: By) -> CommandResult {
    let range = Range::parse(args, 2, 3, by)?;
    let count = db.read::<ZSet>(&args[1])?.map_or(0, |zset| range.resolve(zset).1);
    reply::count(out, count);
    Ok(())
}

fn remove(db: &mut Db<'_>, args: &Args<'_>, out: &mut OutBuf, by: By) -> CommandResult {
    let range = Range::parse(args, 2, 3, by)?;
    let gone = db.edit_existing(&args[1], |zset: &mut ZSet| {
        let (start, count) = range.resolve(zset);
        let items: Vec<Scored> = zset.slice(start, count, false);
        for item in &items {
            zset.remove(item.member.as_slice());
        }
        Ok(Edit::when(!items.is_empty(), items.len()))
    })?;
    reply::count(out, gone.unwrap_or(0));
    Ok(())
}
