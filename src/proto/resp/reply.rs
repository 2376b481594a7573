//! Finds the end of one RESP2 reply, and reads what stands inside.
//!
//! A reply of a store or peer is passed on as bytes; what the node needs to know is where it
//! ends, whether it is an error, and sometimes its elements or its number.
//!
//! Nested arrays are counted with a stack of counters, never by recursion. (The C reference
//! replaces one counter and hands the rest of a nested reply to the next client.)

use super::error::{DecodeError, DecodeErrorKind as Kind};
use super::number::{self, Number};

/// Bounds of one reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReplyLimits {
    /// Longest bulk string, in bytes.
    pub bulk_bytes_max: usize,
    /// Most elements of one array.
    pub elements_max: usize,
    /// Longest simple string or error, in bytes with its end.
    pub line_bytes_max: usize,
    /// Arrays within arrays.
    pub depth_max: usize,
    /// Longest reply, in bytes with its framing.
    pub reply_bytes_max: usize,
}

impl Default for ReplyLimits {
    fn default() -> Self {
        ReplyLimits {
            bulk_bytes_max: 512 << 20,
            elements_max: u32::MAX as usize,
            line_bytes_max: 1 << 20,
            depth_max: 128,
            reply_bytes_max: u32::MAX as usize,
        }
    }
}

/// The state of one connection's reply stream between two reads.
#[derive(Debug, Default)]
pub struct ReplyScanner {
    /// Where the first unfinished element begins.
    at: usize,
    /// Bytes of that element that hold no line end.
    line_scanned: usize,
    /// Elements still to come in the innermost array; 0 outside of arrays.
    left: usize,
    /// The same counter of each array around it.
    outer: Vec<usize>,
    /// Bytes that must still arrive, at least.
    need: usize,
}

/// One element, or the beginning of an array.
pub(super) enum Element {
    /// A string, number or null ends here.
    Whole(usize),
    /// Elements follow from here.
    Array { count: usize, first: usize },
    /// Not all of it is there.
    Incomplete { need: usize },
}

impl ReplyScanner {
    /// Looks for the end of one reply. `buf` begins at its first byte; each call for the same
    /// reply shows the same beginning and perhaps more. `Some` is the length of the reply, and
    /// the scanner is ready for the next one.
    ///
    /// # Errors
    /// The bytes are no RESP2 reply or exceed `limits`; the connection cannot be used any more.
    #[inline]
    pub fn scan(&mut self, buf: &[u8], limits: &ReplyLimits) -> Result<Option<usize>, DecodeError> {
        loop {
            let at = match element(buf, self.at, self.line_scanned, limits)? {
                Element::Whole(end) => end,
                Element::Array { count, first } => match self.enter(count, limits)? {
                    true => {
                        self.at = first;
                        continue;
                    }
                    false => first,
                },
                Element::Incomplete { need } => {
                    self.line_scanned = buf.len().saturating_sub(self.at);
                    self.need = need;
                    return Ok(None);
                }
            };
            if at > limits.reply_bytes_max {
                return Err(Kind::FrameTooBig.at(self.at));
            }
            if self.leave() {
                self.at = 0;
                self.line_scanned = 0;
                return Ok(Some(at));
            }
            self.at = at;
            self.line_scanned = 0;
        }
    }

    /// How many bytes are missing at least, as of the last [`scan`](Self::scan) that found no
    /// end. An announcement of the sender: reserve room in step with what really arrives.
    pub fn need(&self) -> usize {
        self.need.max(1)
    }

    /// Begins an array; false when it is empty.
    fn enter(&mut self, count: usize, limits: &ReplyLimits) -> Result<bool, DecodeError> {
        if count == 0 {
            return Ok(false);
        }
        self.line_scanned = 0;
        if self.left > 0 {
            if self.outer.len() + 2 > limits.depth_max {
                return Err(Kind::TooDeep.at(self.at));
            }
            self.outer.push(self.left);
        }
        self.left = count;
        Ok(true)
    }

    /// Ends an element; true when the reply ends with it.
    fn leave(&mut self) -> bool {
        while self.left <= 1 {
            match self.outer.pop() {
                Some(left) => self.left = left,
                None => {
                    self.left = 0;
                    return true;
                }
            }
        }
        self.left -= 1;
        false
    }
}

#[inline(always)]
fn element(
    buf: &[u8],
    at: usize,
    scanned: usize,
    limits: &ReplyLimits,
) -> Result<Element, DecodeError> {
    let Some(&kind) = buf.get(at) else {
        return Ok(Element::Incomplete { need: 1 });
    };
    match kind {
        b'$' => bulk(buf, at, limits),
        b'+' | b'-' => line(buf, at, scanned, limits),
        b':' => match number::read_i64(buf, at + 1) {
            Number::Value(_, end) => Ok(Element::Whole(end)),
            Number::Incomplete => Ok(Element::Incomplete { need: 1 }),
            Number::Invalid => Err(Kind::ReplyLine.at(at)),
        },
        b'*' => match number::read(buf, at + 1) {
            Number::Value(-1, end) => Ok(Element::Whole(end)),
            Number::Value(count, first) => match usize::try_from(count) {
                Ok(count) if count <= limits.elements_max => Ok(Element::Array { count, first }),
                _ => Err(Kind::MultibulkLength.at(at)),
            },
            Number::Incomplete => Ok(Element::Incomplete { need: 1 }),
            Number::Invalid => Err(Kind::MultibulkLength.at(at)),
        },
        other => Err(Kind::ReplyType(other).at(at)),
    }
}

#[inline(always)]
fn bulk(buf: &[u8], at: usize, limits: &ReplyLimits) -> Result<Element, DecodeError> {
    let (len, start) = match number::read(buf, at + 1) {
        Number::Value(-1, end) => return Ok(Element::Whole(end)),
        Number::Value(len, start) => match usize::try_from(len) {
            Ok(len) if len <= limits.bulk_bytes_max => (len, start),
            _ => return Err(Kind::BulkLength.at(at)),
        },
        Number::Incomplete => return Ok(Element::Incomplete { need: 1 }),
        Number::Invalid => return Err(Kind::BulkLength.at(at)),
    };
    let end = start + len;
    match buf.get(end..end + 2) {
        Some(b"\r\n") => Ok(Element::Whole(end + 2)),
        Some(_) => Err(Kind::BulkEnd.at(end)),
        None if buf.get(end).is_some_and(|&b| b != b'\r') => Err(Kind::BulkEnd.at(end)),
        None => Ok(Element::Incomplete { need: end + 2 - buf.len() }),
    }
}

/// `+text` or `-text`: ends with CR LF, and holds no other CR or LF.
fn line(
    buf: &[u8],
    at: usize,
    scanned: usize,
    limits: &ReplyLimits,
) -> Result<Element, DecodeError> {
    if buf[at..].starts_with(OK) {
        return Ok(Element::Whole(at + OK.len()));
    }
    // The last byte seen may have been the CR.
    let from = at + scanned.saturating_sub(1).max(1);
    let end = memchr::memchr2(b'\r', b'\n', &buf[from..]).map(|i| from + i);
    if end.unwrap_or(buf.len()) - at > limits.line_bytes_max {
        return Err(Kind::ReplyLine.at(at));
    }
    match end {
        None => Ok(Element::Incomplete { need: 2 }),
        Some(end) => match buf[end..] {
            [b'\r', b'\n', ..] => Ok(Element::Whole(end + 2)),
            [b'\r'] => Ok(Element::Incomplete { need: 1 }),
            _ => Err(Kind::ReplyLine.at(end)),
        },
    }
}

/// The commonest reply to a write.
const OK: &[u8] = b"+OK\r\n";

/// True for an error reply.
pub fn is_error(reply: &[u8]) -> bool {
    reply.first() == Some(&b'-')
}

/// True for a RESP2 null, string or array.
pub fn is_null(reply: &[u8]) -> bool {
    matches!(reply, b"$-1\r\n" | b"*-1\r\n")
}

/// True for `+OK`.
pub fn is_ok(reply: &[u8]) -> bool {
    reply == OK
}

/// The value of a `:n` reply.
pub fn parse_int(reply: &[u8]) -> Option<i64> {
    match reply.split_first()? {
        (b':', _) => match number::read_i64(reply, 1) {
            Number::Value(value, _) => Some(value),
            Number::Incomplete | Number::Invalid => None,
        },
        _ => None,
    }
}

/// The bytes of a bulk or simple string reply, without framing. `None` for anything else.
pub fn text(reply: &[u8]) -> Option<&[u8]> {
    match reply.first()? {
        b'+' => reply[1..].strip_suffix(b"\r\n"),
        b'$' => match number::read(reply, 1) {
            Number::Value(len, start) => reply.get(start..start + usize::try_from(len).ok()?),
            Number::Incomplete | Number::Invalid => None,
        },
        _ => None,
    }
}

/// The elements of an array reply, each with its framing. Empty for anything else.
///
/// `reply` must be whole, as [`ReplyScanner`] found it: the iterator ends early at bytes that
/// are no reply.
pub fn elements(reply: &[u8]) -> Elements<'_> {
    match (reply.first(), number::read(reply, 1)) {
        (Some(b'*'), Number::Value(count, first)) => {
            Elements { rest: &reply[first..], left: usize::try_from(count).unwrap_or(0) }
        }
        _ => Elements { rest: &[], left: 0 },
    }
}

/// See [`elements`].
#[derive(Clone, Debug)]
pub struct Elements<'a> {
    rest: &'a [u8],
    left: usize,
}

impl<'a> Elements<'a> {
    /// How many elements are still to come, as the array's header says.
    pub fn left(&self) -> usize {
        self.left
    }
}

impl<'a> Iterator for Elements<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        if self.left == 0 {
            return None;
        }
        let len = whole(self.rest)?;
        let (element, rest) = self.rest.split_at(len);
        self.rest = rest;
        self.left -= 1;
        Some(element)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (0, Some(self.left))
    }
}

/// The element at `at` of a reply that a scanner has found whole; `None` at bytes that are none.
#[inline]
pub(super) fn known(reply: &[u8], at: usize) -> Option<Element> {
    element(reply, at, 0, &UNBOUNDED).ok()
}

/// The length of the reply at the beginning of `buf`, which holds all of it. No depth limit is
/// needed to pass over what was already found whole: one counter serves all levels.
pub(super) fn whole(buf: &[u8]) -> Option<usize> {
    let (mut at, mut left) = (0, 1usize);
    while left > 0 {
        left -= 1;
        match known(buf, at)? {
            Element::Whole(end) => at = end,
            Element::Array { count, first } => {
                at = first;
                left = left.checked_add(count)?;
            }
            Element::Incomplete { .. } => return None,
        }
    }
    Some(at)
}

/// For bytes that a scanner with real limits has already passed.
const UNBOUNDED: ReplyLimits = ReplyLimits {
    bulk_bytes_max: u32::MAX as usize,
    elements_max: u32::MAX as usize,
    line_bytes_max: usize::MAX,
    depth_max: usize::MAX,
    reply_bytes_max: usize::MAX,
};

#[cfg(test)]
mod tests;
