//! Cursors and options of the SCAN family.

use crate::proto::args::Args;
use crate::proto::outbuf::OutBuf;

use super::error::CommandError;
use super::format::parse_i64;
use super::{arg, reply};
use crate::proto::glob;

/// Elements looked at per step when the client does not say.
const COUNT_DEFAULT: usize = 10;

/// Options after the cursor.
pub(super) struct ScanOptions<'a> {
    pub(super) count: usize,
    pattern: Option<&'a [u8]>,
    pub(super) type_name: Option<&'a [u8]>,
}

impl<'a> ScanOptions<'a> {
    /// Options in `args` from `from` on; TYPE only where `with_type` is set.
    pub(super) fn parse(
        args: &Args<'a>,
        from: usize,
        with_type: bool,
    ) -> Result<ScanOptions<'a>, CommandError> {
        let mut options = ScanOptions { count: COUNT_DEFAULT, pattern: None, type_name: None };
        let mut at = from;
        while at < args.len() {
            let (word, value) = (&args[at], args.get(at + 1).ok_or(CommandError::Syntax)?);
            if arg::is(word, "count") {
                let count = parse_i64(value).ok_or(CommandError::NotInteger)?;
                options.count = usize::try_from(count).unwrap_or(0);
                if options.count == 0 {
                    return Err(CommandError::Syntax);
                }
            } else if arg::is(word, "match") {
                options.pattern = Some(value);
            } else if arg::is(word, "type") && with_type {
                options.type_name = Some(value);
            } else {
                return Err(CommandError::Syntax);
            }
            at += 2;
        }
        Ok(options)
    }

    /// True when `name` matches the pattern, if there is one.
    pub(super) fn matches(&self, name: &[u8]) -> bool {
        self.pattern.is_none_or(|pattern| glob::matches(pattern, name))
    }
}

/// A cursor as `strtoul` reads it.
pub(super) fn parse_cursor(text: &[u8]) -> Result<u64, CommandError> {
    let digits = match text {
        [b'-' | b'+', rest @ ..] => rest,
        _ => text,
    };
    if digits.is_empty() && text.is_empty() {
        return Ok(0);
    }
    let digits = std::str::from_utf8(digits).map_err(|_| CommandError::Cursor)?;
    if !digits.bytes().all(|b| b.is_ascii_digit()) {
        return Err(CommandError::Cursor);
    }
    let value: u64 = digits.parse().map_err(|_| CommandError::Cursor)?;
    Ok(if text[0] == b'-' { value.wrapping_neg() } else { value })
}

/// A step's reply: the next cursor and what was found.
pub(super) fn page(out: &mut OutBuf, cursor: u64, found: &[Vec<u8>]) {
    reply::array(out, 2);
    reply::bulk(out, itoa::Buffer::new().format(cursor).as_bytes());
    reply::array(out, found.len());
    for item in found {
        reply::bulk(out, item);
    }
}
