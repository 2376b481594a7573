//! Reading a command's arguments.

use crate::proto::args::Args;

use super::error::CommandError;
use super::format::{parse_f64, parse_i64};

/// True when `arg` is the option `name`, in any case.
pub(super) fn is(arg: &[u8], name: &str) -> bool {
    arg.eq_ignore_ascii_case(name.as_bytes())
}

/// Argument `at` as an integer.
pub(super) fn int(args: &Args<'_>, at: usize) -> Result<i64, CommandError> {
    args.get(at).and_then(parse_i64).ok_or(CommandError::NotInteger)
}

/// Argument `at` as a double.
pub(super) fn double(args: &Args<'_>, at: usize) -> Result<f64, CommandError> {
    args.get(at).and_then(parse_f64).ok_or(CommandError::NotFloat)
}

/// An integer that counts something: 0 or more.
pub(super) fn count(args: &Args<'_>, at: usize) -> Result<usize, CommandError> {
    let n = args.get(at).and_then(parse_i64).ok_or(CommandError::NotPositive)?;
    usize::try_from(n).map_err(|_| CommandError::NotPositive)
}

/// An integer that may not be `i64::MIN`, because it will be negated.
pub(super) fn negatable(args: &Args<'_>, at: usize) -> Result<i64, CommandError> {
    match int(args, at)? {
        i64::MIN => Err(CommandError::NotInRange(-i64::MAX, i64::MAX)),
        n => Ok(n),
    }
}

/// Start and end of a range as Redis reads them (negative from the end, both included), over
/// `len` items: the first position and how many follow. Empty ranges give a length of 0.
pub(super) fn range(start: i64, end: i64, len: usize) -> (usize, usize) {
    let len = len as i64;
    let from_end = |n: i64| if n < 0 { n.saturating_add(len) } else { n };
    let (start, end) = (from_end(start).max(0), from_end(end).min(len - 1));
    match start <= end && start < len {
        true => (start as usize, (end - start + 1) as usize),
        false => (0, 0),
    }
}
