//! LCS: the longest common subsequence of two strings.

use crate::proto::args::Args;
use crate::proto::outbuf::OutBuf;

use super::command::{Command, Effect::*, Keys::*, row};
use super::db::Db;
use super::error::{CommandError, CommandResult};
use super::value::Value;
use super::{arg, reply};

pub(super) const COMMANDS: &[Command] = &[row("lcs", -3, Two, Read, lcs)];

/// Options of LCS.
#[derive(Default)]
struct Options {
    len: bool,
    ranges: bool,
    with_len: bool,
    min_len: i64,
}

/// A common part: its first and last byte in either string.
struct Match {
    a: (usize, usize),
    b: (usize, usize),
}

fn lcs(db: &mut Db<'_>, args: &Args<'_>, out: &mut OutBuf) -> CommandResult {
    let (a, b) = (text_at(db, &args[1])?, text_at(db, &args[2])?);
    let options = parse(args)?;
    let table = Table::new(&a, &b, db.string_bytes_max())?;
    let len = table.at(a.len(), b.len()) as usize;
    if options.len {
        reply::count(out, len);
        return Ok(());
    }
    let (text, matches) = table.trace(&a, &b);
    if !options.ranges {
        reply::bulk(out, &text);
        return Ok(());
    }
    let length = |m: &Match| (m.a.1 - m.a.0 + 1) as i64;
    let shown: Vec<&Match> = matches.iter().filter(|m| length(m) >= options.min_len).collect();
    reply::array(out, 4);
    reply::bulk(out, b"matches");
    reply::array(out, shown.len());
    for found in shown {
        reply::array(out, if options.with_len { 3 } else { 2 });
        for (first, last) in [found.a, found.b] {
            reply::array(out, 2);
            reply::count(out, first);
            reply::count(out, last);
        }
        if options.with_len {
            reply::int(out, length(found));
        }
    }
    reply::bulk(out, b"len");
    reply::count(out, len);
    Ok(())
}

fn text_at(db: &mut Db<'_>, key: &[u8]) -> Result<Vec<u8>, CommandError> {
    match db.record(key).map(|record| &record.value) {
        None => Ok(Vec::new()),
        Some(Value::Str(text)) => Ok(text.as_slice().to_vec()),
        Some(Value::List(_) | Value::Hash(_) | Value::Set(_) | Value::ZSet(_)) => {
            Err(CommandError::LcsType)
        }
    }
}

fn parse(args: &Args<'_>) -> Result<Options, CommandError> {
    let mut options = Options::default();
    let mut at = 3;
    while at < args.len() {
        let word = &args[at];
        if arg::is(word, "len") {
            options.len = true;
        } else if arg::is(word, "idx") {
            options.ranges = true;
        } else if arg::is(word, "withmatchlen") {
            options.with_len = true;
        } else if arg::is(word, "minmatchlen") && at + 1 < args.len() {
            options.min_len = arg::int(args, at + 1)?;
            at += 1;
        } else {
            return Err(CommandError::Syntax);
        }
        at += 1;
    }
    match options.len && options.ranges {
        true => Err(CommandError::LcsLenAndIdx),
        false => Ok(options),
    }
}

/// Lengths of the longest common subsequences of all prefixes.
struct Table {
    cells: Vec<u32>,
    width: usize,
}

impl Table {
    fn new(a: &[u8], b: &[u8], bytes_max: usize) -> Result<Table, CommandError> {
        let width = b.len() + 1;
        let cells = (a.len() + 1).checked_mul(width).filter(|n| *n <= bytes_max / 4);
        let mut table = Table { cells: vec![0; cells.ok_or(CommandError::LcsMemory)?], width };
        for i in 1..=a.len() {
            for j in 1..width {
                let longest = match a[i - 1] == b[j - 1] {
                    true => table.at(i - 1, j - 1) + 1,
                    false => table.at(i - 1, j).max(table.at(i, j - 1)),
                };
                table.cells[i * width + j] = longest;
            }
        }
        Ok(table)
    }

    fn at(&self, i: usize, j: usize) -> u32 {
        self.cells[i * self.width + j]
    }

    /// The subsequence, and its parts from the last to the first. A part that ends because the
    /// next match is not adjacent swallows that match, as in Redis.
    fn trace(&self, a: &[u8], b: &[u8]) -> (Vec<u8>, Vec<Match>) {
        let (mut i, mut j) = (a.len(), b.len());
        let (mut text, mut matches) = (Vec::new(), Vec::new());
        let mut open: Option<Match> = None;
        while i > 0 && j > 0 {
            let mut close = false;
            if a[i - 1] == b[j - 1] {
                text.push(a[i - 1]);
                let part = open.get_or_insert(Match { a: (i, i - 1), b: (j, j - 1) });
                match part.a.0 == i && part.b.0 == j {
                    true => (part.a.0, part.b.0) = (i - 1, j - 1),
                    false => close = true,
                }
                close |= part.a.0 == 0 || part.b.0 == 0;
                (i, j) = (i - 1, j - 1);
            } else {
                close = open.is_some();
                match self.at(i - 1, j) > self.at(i, j - 1) {
                    true => i -= 1,
                    false => j -= 1,
                }
            }
            if close {
                matches.extend(open.take());
            }
        }
        text.reverse();
        (text, matches)
    }
}
