//! Finds one request at the beginning of a receive buffer.
//!
//! The result is a list of [`Span`]s: no byte is copied, no text is checked to be UTF-8, nothing
//! is allocated for a request that is there whole. A request that arrives in pieces is continued
//! where the last call stopped; finished elements are never looked at again.
//!
//! Framing is stricter than Redis's in one point: the CR LF after a bulk string must be there,
//! because what is forwarded must read the same for every kind of peer.

use super::error::{DecodeError, DecodeErrorKind as Kind};
use super::number::{self, Number};
use crate::proto::args::Span;

/// Bounds of one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestLimits {
    /// Longest argument, in bytes.
    pub bulk_bytes_max: usize,
    /// Most arguments, the command name included.
    pub elements_max: usize,
    /// Longest inline line, in bytes, its end included.
    pub inline_bytes_max: usize,
    /// Longest request, in bytes with its framing. Above `u32::MAX` it counts as that.
    pub request_bytes_max: usize,
}

impl Default for RequestLimits {
    fn default() -> Self {
        RequestLimits {
            bulk_bytes_max: 512 << 20,
            elements_max: 1 << 20,
            inline_bytes_max: 64 << 10,
            request_bytes_max: u32::MAX as usize,
        }
    }
}

/// One whole request was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decoded {
    /// Bytes of the request: the next one begins there.
    pub len: usize,
    /// True for a line of text instead of an array. Its spans are still to be made, by
    /// [`rewrite`](super::inline::rewrite), because quoted arguments are no slices of the line.
    pub inline: bool,
}

/// The state of one connection's request stream between two reads.
#[derive(Debug, Default)]
pub struct RequestDecoder {
    /// An array of which some elements are there. On the heap, because an idle connection or
    /// one that sends whole requests has none.
    partial: Option<Box<Partial>>,
    /// Bytes of an unfinished inline line that hold no line end.
    line_scanned: u32,
}

/// An array request of which the beginning has arrived.
#[derive(Debug)]
struct Partial {
    /// Finished arguments.
    spans: Vec<Span>,
    /// Where the first unfinished argument begins.
    at: usize,
    /// Arguments that are still to come.
    left: usize,
    /// Bytes that must still arrive, at least.
    need: usize,
}

/// Length of the shortest argument, `$0 CR LF CR LF`.
const ELEMENT_BYTES_MIN: usize = 6;

impl RequestDecoder {
    /// Looks for one request. `buf` begins at its first byte; each call for the same request
    /// shows the same beginning and perhaps more.
    ///
    /// With `Some`, `spans` holds the arguments relative to `buf` (none for `*0`, `*-1` and for
    /// inline requests) and the decoder is ready for the next request. With `None` more bytes are
    /// needed, at least [`need`](Self::need) of them; what `spans` holds then has no meaning.
    ///
    /// # Errors
    /// The bytes are no request or exceed `limits`; the connection cannot be used any more.
    pub fn decode(
        &mut self,
        buf: &[u8],
        limits: &RequestLimits,
        spans: &mut Vec<Span>,
    ) -> Result<Option<Decoded>, DecodeError> {
        spans.clear();
        let (at, left) = match &mut self.partial {
            Some(partial) => {
                std::mem::swap(spans, &mut partial.spans);
                (partial.at, partial.left)
            }
            None => match buf.first() {
                Some(b'*') => match array_header(buf, limits)? {
                    Some(header) => header,
                    None => return Ok(None),
                },
                Some(_) => return self.line(buf, limits),
                None => return Ok(None),
            },
        };
        match elements(buf, at, left, limits, spans)? {
            Progress::Done(len) => {
                self.partial = None;
                Ok(Some(Decoded { len, inline: false }))
            }
            Progress::Stopped { at, left, need } => {
                self.park(spans, at, left, need);
                Ok(None)
            }
        }
    }

    /// How many bytes are missing at least, as of the last call of [`decode`](Self::decode) that
    /// found no whole request. An announcement of the sender: reserve room in step with what
    /// really arrives.
    pub fn need(&self) -> usize {
        self.partial.as_ref().map_or(1, |p| p.need)
    }

    /// Keeps what was found of an unfinished array.
    #[cold]
    fn park(&mut self, spans: &mut Vec<Span>, at: usize, left: usize, need: usize) {
        match &mut self.partial {
            Some(partial) => {
                std::mem::swap(spans, &mut partial.spans);
                (partial.at, partial.left, partial.need) = (at, left, need);
            }
            // The caller keeps its vector: it serves many connections and may be a large one.
            None => {
                let spans = spans.as_slice().to_vec();
                self.partial = Some(Box::new(Partial { spans, at, left, need }));
            }
        }
    }

    /// An inline request ends with its line.
    #[cold]
    fn line(&mut self, buf: &[u8], limits: &RequestLimits) -> Result<Option<Decoded>, DecodeError> {
        let scanned = self.line_scanned as usize;
        let line_max = limits.inline_bytes_max.min(u32::MAX as usize);
        let len = memchr::memchr(b'\n', &buf[scanned..]).map(|i| scanned + i + 1);
        if len.unwrap_or(buf.len()) > line_max {
            return Err(Kind::InlineTooBig.at(line_max));
        }
        self.line_scanned = if len.is_some() { 0 } else { buf.len() as u32 };
        Ok(len.map(|len| Decoded { len, inline: true }))
    }
}

/// Reads `*count`. `None` while the line is incomplete: it is short enough to be read again.
#[inline(always)]
fn array_header(buf: &[u8], limits: &RequestLimits) -> Result<Option<(usize, usize)>, DecodeError> {
    match number::read(buf, 1) {
        Number::Value(count, at) => match usize::try_from(count) {
            Ok(count) if count > limits.elements_max => Err(Kind::MultibulkLength.at(1)),
            Ok(count) => Ok(Some((at, count))),
            Err(_) => Ok(Some((at, 0))),
        },
        Number::Incomplete => Ok(None),
        Number::Invalid => Err(Kind::MultibulkLength.at(1)),
    }
}

enum Progress {
    /// All arguments are there; the request ends here.
    Done(usize),
    /// The argument at `at` is not whole.
    Stopped { at: usize, left: usize, need: usize },
}

/// Reads arguments until none is left or the bytes end.
#[inline(always)]
fn elements(
    buf: &[u8],
    mut at: usize,
    mut left: usize,
    limits: &RequestLimits,
    spans: &mut Vec<Span>,
) -> Result<Progress, DecodeError> {
    let request_max = limits.request_bytes_max.min(u32::MAX as usize);
    while left > 0 {
        let rest = (left - 1) * ELEMENT_BYTES_MIN;
        match buf.get(at) {
            Some(b'$') => {}
            Some(&other) => return Err(Kind::ExpectedBulk(other).at(at)),
            None => return Ok(Progress::Stopped { at, left, need: ELEMENT_BYTES_MIN + rest }),
        }
        let (start, end) = match number::read(buf, at + 1) {
            Number::Value(len, start) => match usize::try_from(len) {
                Ok(len) if len <= limits.bulk_bytes_max => (start, start + len),
                _ => return Err(Kind::BulkLength.at(at + 1)),
            },
            Number::Incomplete => return Ok(Progress::Stopped { at, left, need: 1 + rest }),
            Number::Invalid => return Err(Kind::BulkLength.at(at + 1)),
        };
        if end + 2 > request_max {
            return Err(Kind::FrameTooBig.at(at));
        }
        match buf.get(end..end + 2) {
            Some(b"\r\n") => {}
            Some(_) => return Err(Kind::BulkEnd.at(end)),
            None if buf.get(end).is_some_and(|&b| b != b'\r') => return Err(Kind::BulkEnd.at(end)),
            None => {
                let need = end + 2 - buf.len() + rest;
                return Ok(Progress::Stopped { at, left, need });
            }
        }
        spans.push(Span::new(start, end));
        at = end + 2;
        left -= 1;
    }
    Ok(Progress::Done(at))
}

#[cfg(test)]
mod tests;
