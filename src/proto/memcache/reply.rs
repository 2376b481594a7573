//! Finds the end of one memcache reply.
//!
//! The first word of a line tells what follows: `VALUE` and `VA` announce a data block, after
//! `VALUE`, `STAT` and `ITEM` more lines come until another one ends the reply; all others are
//! the whole reply.

use super::decode::McRequest;
use super::number;
use super::table::McCommand;
use thiserror::Error;

/// Bounds of one reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct McReplyLimits {
    /// Longest line, in bytes with its end.
    pub line_bytes_max: usize,
    /// Longest value, in bytes.
    pub value_bytes_max: usize,
    /// Longest reply, in bytes.
    pub reply_bytes_max: usize,
}

impl Default for McReplyLimits {
    fn default() -> Self {
        McReplyLimits {
            line_bytes_max: 64 << 10,
            value_bytes_max: 512 << 20,
            reply_bytes_max: u32::MAX as usize,
        }
    }
}

/// Bytes that are no reply: the connection cannot be used any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("{kind} at offset {offset} of a memcache reply")]
pub struct McReplyError {
    /// What is wrong.
    pub kind: McReplyErrorKind,
    /// Where, counted from the first byte of the reply.
    pub offset: usize,
}

/// The kinds of [`McReplyError`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum McReplyErrorKind {
    /// No line end within the limit, or a bare LF.
    #[error("invalid line")]
    Line,
    /// The length in a VALUE or VA line is none, or above the limit.
    #[error("invalid length")]
    Length,
    /// A data block that is longer than it said.
    #[error("damaged data block")]
    DataEnd,
    /// More bytes than a reply may have.
    #[error("reply too large")]
    TooBig,
}

/// The state of one connection's reply stream between two reads.
#[derive(Debug, Default)]
pub struct McReplyScanner {
    /// Where the first unfinished line begins.
    at: usize,
    /// Bytes of it that hold no line end.
    line_scanned: usize,
    /// Bytes that must still arrive, at least.
    need: usize,
}

/// What a line means for the lines behind it.
enum Step {
    /// The reply goes on from here.
    More(usize),
    /// The reply ends here.
    End(usize),
    /// Not all of it is there. `scanned` bytes hold no line end.
    Incomplete { scanned: usize, need: usize },
}

impl McReplyScanner {
    /// Looks for the end of one reply. `buf` begins at its first byte; each call for the same
    /// reply shows the same beginning and perhaps more. `Some` is the length of the reply, and
    /// the scanner is ready for the next one.
    ///
    /// # Errors
    /// The bytes are no reply or exceed `limits`.
    pub fn scan(
        &mut self,
        buf: &[u8],
        limits: &McReplyLimits,
    ) -> Result<Option<usize>, McReplyError> {
        loop {
            let (next, last) = match step(buf, self.at, self.line_scanned, limits)? {
                Step::More(next) => (next, false),
                Step::End(next) => (next, true),
                Step::Incomplete { scanned, need } => {
                    self.line_scanned = scanned;
                    self.need = need;
                    return Ok(None);
                }
            };
            if next > limits.reply_bytes_max {
                return Err(McReplyErrorKind::TooBig.at(self.at));
            }
            self.line_scanned = 0;
            self.at = if last { 0 } else { next };
            if last {
                return Ok(Some(next));
            }
        }
    }

    /// How many bytes are missing at least, as of the last [`scan`](Self::scan) that found no
    /// end. An announcement of the sender: reserve room in step with what really arrives.
    pub fn need(&self) -> usize {
        self.need.max(1)
    }
}

impl McReplyErrorKind {
    fn at(self, offset: usize) -> McReplyError {
        McReplyError { kind: self, offset }
    }
}

fn step(
    buf: &[u8],
    at: usize,
    scanned: usize,
    limits: &McReplyLimits,
) -> Result<Step, McReplyError> {
    let from = at + scanned;
    let end = memchr::memchr(b'\n', buf.get(from..).unwrap_or_default()).map(|i| from + i + 1);
    let Some(end) = end else {
        let scanned = buf.len().saturating_sub(at);
        if scanned > limits.line_bytes_max {
            return Err(McReplyErrorKind::Line.at(at));
        }
        return Ok(Step::Incomplete { scanned, need: 1 });
    };
    if end - at > limits.line_bytes_max || !buf[at..end].ends_with(b"\r\n") {
        return Err(McReplyErrorKind::Line.at(at));
    }
    let line = &buf[at..end - 2];
    let bytes = match line.first() {
        Some(b'V') if line.starts_with(b"VALUE ") => 3,
        Some(b'V') if line.starts_with(b"VA ") => 1,
        Some(b'S') if line.starts_with(b"STAT ") => return Ok(Step::More(end)),
        Some(b'I') if line.starts_with(b"ITEM ") => return Ok(Step::More(end)),
        _ => return Ok(Step::End(end)),
    };
    let len = line.split(|b| *b == b' ').nth(bytes).and_then(number::i32_of);
    let len = len.and_then(|len| usize::try_from(len).ok());
    let Some(len) = len.filter(|len| *len <= limits.value_bytes_max) else {
        return Err(McReplyErrorKind::Length.at(at));
    };
    let data_end = end + len;
    match buf.get(data_end..data_end + 2) {
        Some(b"\r\n") if bytes == 3 => Ok(Step::More(data_end + 2)),
        Some(b"\r\n") => Ok(Step::End(data_end + 2)),
        Some(_) => Err(McReplyErrorKind::DataEnd.at(data_end)),
        None if buf.get(data_end).is_some_and(|b| *b != b'\r') => {
            Err(McReplyErrorKind::DataEnd.at(data_end))
        }
        // The line is short; it is read again when the data is there.
        None => Ok(Step::Incomplete { scanned: 0, need: data_end + 2 - buf.len() }),
    }
}

/// True for `ERROR`, `CLIENT_ERROR ...` and `SERVER_ERROR ...`.
pub fn is_error(reply: &[u8]) -> bool {
    reply.starts_with(b"ERROR\r\n")
        || reply.starts_with(b"CLIENT_ERROR ")
        || reply.starts_with(b"SERVER_ERROR ")
}

/// True when the client of `request` is to be told `reply`: not after `noreply`, and with the
/// meta flag `q` only what is out of the ordinary.
pub fn is_wanted(request: &McRequest, reply: &[u8]) -> bool {
    !(request.noreply || (request.quiet && is_ordinary(request.command, reply)))
}

/// True for the reply of `command` that a client with the meta flag `q` does not want to see.
pub fn is_ordinary(command: &McCommand, reply: &[u8]) -> bool {
    let code = reply.get(..2).unwrap_or_default();
    match command.name {
        "mg" => code == b"EN",
        "ms" | "md" => code == b"HD",
        "ma" => code == b"HD" || code == b"VA",
        _ => false,
    }
}

#[cfg(test)]
mod tests;
