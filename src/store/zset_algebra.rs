//! Unions, intersections and differences of sorted sets; plain sets count with score 1.

use crate::proto::args::Args;
use crate::proto::outbuf::OutBuf;

use super::command::{Command, Effect::*, Keys::*, row};
use super::db::Db;
use super::error::{CommandError, CommandResult};
use super::value::{Kind, Set, Value};
use super::zset_value::ZSet;
use super::{arg, reply};

pub(super) const COMMANDS: &[Command] = &[
    row("zunion", -3, Counted(1), Read, |db, args, out| {
        show(db, args, out, Operation::Union, "zunion")
    }),
    row("zinter", -3, Counted(1), Read, |db, args, out| {
        show(db, args, out, Operation::Inter, "zinter")
    }),
    row("zdiff", -3, Counted(1), Read, |db, args, out| {
        show(db, args, out, Operation::Diff, "zdiff")
    }),
    row("zunionstore", -4, StoreCounted, Grow, |db, args, out| {
        store(db, args, out, Operation::Union, "zunionstore")
    }),
    row("zinterstore", -4, StoreCounted, Grow, |db, args, out| {
        store(db, args, out, Operation::Inter, "zinterstore")
    }),
    row("zdiffstore", -4, StoreCounted, Grow, |db, args, out| {
        store(db, args, out, Operation::Diff, "zdiffstore")
    }),
    row("zintercard", -3, Counted(1), Read, zintercard),
];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Operation {
    Union,
    Inter,
    Diff,
}

/// How the scores of one member are combined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Aggregate {
    Sum,
    Min,
    Max,
}

impl Aggregate {
    fn parse(word: &[u8]) -> Result<Aggregate, CommandError> {
        match () {
            () if arg::is(word, "sum") => Ok(Aggregate::Sum),
            () if arg::is(word, "min") => Ok(Aggregate::Min),
            () if arg::is(word, "max") => Ok(Aggregate::Max),
            () => Err(CommandError::Syntax),
        }
    }

    fn combine(self, a: f64, b: f64) -> f64 {
        match self {
            Aggregate::Sum => number(a + b),
            Aggregate::Min => {
                if b < a {
                    b
                } else {
                    a
                }
            }
            Aggregate::Max => {
                if b > a {
                    b
                } else {
                    a
                }
            }
        }
    }
}

/// Infinities that cancel out count as 0.
fn number(x: f64) -> f64 {
    if x.is_nan() { 0.0 } else { x }
}

/// What a reply or its options may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reply {
    Members,
    Stored,
    Count,
}

/// The inputs of one command and what is done with them.
struct Plan {
    operation: Operation,
    inputs: Vec<Vec<(Vec<u8>, f64)>>,
    weights: Vec<f64>,
    aggregate: Aggregate,
    with_scores: bool,
    limit: usize,
}

impl Plan {
    /// Reads `numkeys key ... options` from argument `at` on, and the inputs.
    fn read(
        db: &mut Db<'_>,
        args: &Args<'_>,
        at: usize,
        operation: Operation,
        reply: Reply,
        name: &'static str,
    ) -> Result<Plan, CommandError> {
        let numkeys = arg::int(args, at)?;
        if numkeys < 1 {
            return Err(CommandError::NoInputKeys(name));
        }
        let numkeys = usize::try_from(numkeys).unwrap_or(usize::MAX);
        if numkeys > args.len() - at - 1 {
            return Err(CommandError::Syntax);
        }
        let keys = args.iter().skip(at + 1).take(numkeys);
        let mut plan = Plan {
            operation,
            inputs: keys.map(|key| members(db, key)).collect::<Result<_, _>>()?,
            weights: vec![1.0; numkeys],
            aggregate: Aggregate::Sum,
            with_scores: false,
            limit: 0,
        };
        plan.parse_options(args, at + 1 + numkeys, reply)?;
        Ok(plan)
    }

    fn parse_options(&mut self, args: &Args<'_>, from: usize, reply: Reply) -> CommandResult {
        let numkeys = self.inputs.len();
        let combines = self.operation != Operation::Diff && reply != Reply::Count;
        let mut at = from;
        while at < args.len() {
            let (word, left) = (&args[at], args.len() - at - 1);
            if combines && left >= numkeys && arg::is(word, "weights") {
                for (number, weight) in self.weights.iter_mut().enumerate() {
                    let given = arg::double(args, at + 1 + number);
                    *weight = given.map_err(|_| CommandError::WeightNotFloat)?;
                }
                at += numkeys;
            } else if combines && left >= 1 && arg::is(word, "aggregate") {
                self.aggregate = Aggregate::parse(&args[at + 1])?;
                at += 1;
            } else if reply == Reply::Members && arg::is(word, "withscores") {
                self.with_scores = true;
            } else if reply == Reply::Count && left >= 1 && arg::is(word, "limit") {
                let limit = arg::count(args, at + 1);
                self.limit = limit.map_err(|_| CommandError::LimitNegative)?;
                at += 1;
            } else {
                return Err(CommandError::Syntax);
            }
            at += 1;
        }
        Ok(())
    }

    fn run(self) -> ZSet {
        let mut result = ZSet::default();
        let mut inputs: Vec<_> = self.inputs.into_iter().zip(self.weights).collect();
        if self.operation != Operation::Diff {
            // Smallest first, as Redis does: the order of additions shows in the last digits.
            inputs.sort_by_key(|(input, _)| input.len());
        }
        let mut inputs = inputs.into_iter();
        let Some((first, weight)) = inputs.next() else {
            return result;
        };
        for (member, score) in first {
            result.set(&member, number(score * weight));
        }
        for (input, weight) in inputs {
            match self.operation {
                Operation::Union => {
                    for (member, score) in input {
                        let score = number(score * weight);
                        let old = result.score(&member);
                        let new = old.map_or(score, |old| self.aggregate.combine(old, score));
                        result.set(&member, new);
                    }
                }
                Operation::Inter => {
                    let mut both = ZSet::default();
                    for (member, score) in input {
                        if let Some(old) = result.score(&member) {
                            let score = number(score * weight);
                            both.set(&member, self.aggregate.combine(old, score));
                        }
                    }
                    result = both;
                }
                Operation::Diff => {
                    for (member, _) in input {
                        result.remove(&member);
                    }
                }
            }
        }
        result
    }
}

/// Members and scores at `key`: a sorted set, a set, or nothing.
fn members(db: &mut Db<'_>, key: &[u8]) -> Result<Vec<(Vec<u8>, f64)>, CommandError> {
    let Some(record) = db.record(key) else {
        return Ok(Vec::new());
    };
    match &record.value {
        Value::ZSet(zset) => {
            Ok(zset.iter().map(|e| (e.key.as_slice().to_vec(), e.value)).collect())
        }
        Value::Set(set) => Ok(Set::iter(set).map(|m| (m.as_slice().to_vec(), 1.0)).collect()),
        Value::Str(_) | Value::List(_) | Value::Hash(_) => Err(CommandError::WrongType),
    }
}

fn show(
    db: &mut Db<'_>,
    args: &Args<'_>,
    out: &mut OutBuf,
    operation: Operation,
    name: &'static str,
) -> CommandResult {
    let plan = Plan::read(db, args, 1, operation, Reply::Members, name)?;
    let with_scores = plan.with_scores;
    let result = plan.run();
    reply::array(out, result.len() * if with_scores { 2 } else { 1 });
    result.order().walk(0, result.len(), false, |item| {
        reply::blob(out, &item.member);
        if with_scores {
            reply::double(out, item.score);
        }
        true
    });
    Ok(())
}

fn store(
    db: &mut Db<'_>,
    args: &Args<'_>,
    out: &mut OutBuf,
    operation: Operation,
    name: &'static str,
) -> CommandResult {
    let result = Plan::read(db, args, 2, operation, Reply::Stored, name)?.run();
    let len = result.len();
    db.put(&args[1], result.into_value());
    reply::count(out, len);
    Ok(())
}

fn zintercard(db: &mut Db<'_>, args: &Args<'_>, out: &mut OutBuf) -> CommandResult {
    let plan = Plan::read(db, args, 1, Operation::Inter, Reply::Count, "zintercard")?;
    let limit = plan.limit;
    let len = plan.run().len();
    reply::count(out, if limit == 0 { len } else { len.min(limit) });
    Ok(())
}
