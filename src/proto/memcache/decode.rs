//! Finds one memcache request at the beginning of a receive buffer.
//!
//! A request is a line, and for storage commands a block of data. What memcached answers with an
//! error is answered so here, in its words, and is never forwarded; as there, the bytes after a
//! line that could not be understood are taken for the next line.

use super::number;
use super::table::{self, Form, McCommand};
use crate::proto::args::{Args, Span};
use thiserror::Error;

/// Bounds of one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct McLimits {
    /// Longest line of a get, in bytes with its end. Other lines have [`LINE_BYTES_MAX`].
    pub get_line_bytes_max: usize,
    /// Longest value, in bytes.
    pub value_bytes_max: usize,
    /// Most words of a line.
    pub words_max: usize,
}

impl Default for McLimits {
    fn default() -> Self {
        McLimits { get_line_bytes_max: 4 << 20, value_bytes_max: 512 << 20, words_max: 1 << 20 }
    }
}

/// Longest line that is no get, in bytes with its end (memcached gives up at the same).
pub const LINE_BYTES_MAX: usize = 2048;

/// Longest key, in bytes (memcached: `KEY_MAX_LENGTH`).
pub const KEY_BYTES_MAX: usize = 250;

/// First byte of a request of the binary protocol.
const BINARY_MAGIC: u8 = 0x80;

/// Bytes that end the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum McError {
    /// The client speaks the binary protocol.
    #[error("the binary protocol is not offered: use the text protocol")]
    Binary,
    /// No line end within the limit.
    #[error("line too long")]
    LineTooLong,
    /// An HTTP client was led here.
    #[error("this is no HTTP server")]
    Http,
}

/// What was found at the beginning of the buffer.
#[derive(Clone, Copy, Debug)]
pub enum McDecoded {
    /// A request.
    Request(McRequest),
    /// A line that is no request.
    Rejected {
        /// Bytes to drop.
        len: usize,
        /// The answer, with its line end; empty when the client wants none.
        reply: &'static [u8],
    },
    /// A part of a value that is too large to be taken.
    Skipped {
        /// Bytes to drop.
        len: usize,
    },
}

/// One request. Its words are in the caller's spans.
#[derive(Clone, Copy, Debug)]
pub struct McRequest {
    /// Bytes of the request with its data: the next one begins there.
    pub len: usize,
    /// The row of its command.
    pub command: &'static McCommand,
    /// Its data block, without the line end.
    pub data: Option<Span>,
    /// True when the client wants no answer: `noreply`.
    pub noreply: bool,
    /// True when the client wants no answer of the usual kind: the meta flag `q`.
    pub quiet: bool,
    /// True when the bytes as they are can be sent to a store: nothing to leave out, single
    /// blanks, CR LF.
    pub plain: bool,
}

/// The state of one connection's request stream between two reads.
#[derive(Debug, Default)]
pub struct McDecoder {
    /// Bytes of an unfinished line that hold no line end.
    line_scanned: u32,
    /// A line that was understood and waits for its data.
    pending: Option<Box<Pending>>,
    /// Bytes of a refused value that are still to come.
    skip: u64,
}

#[derive(Debug)]
struct Pending {
    request: McRequest,
    spans: Vec<Span>,
    need: usize,
}

impl McDecoder {
    /// Looks for one request. `buf` begins at its first byte; each call for the same request
    /// shows the same beginning and perhaps more. With a request, `spans` holds the words of its
    /// line (cleared first), `noreply` included, relative to `buf`. `None`: more bytes are needed.
    ///
    /// # Errors
    /// The connection cannot be used any more.
    pub fn decode(
        &mut self,
        buf: &[u8],
        limits: &McLimits,
        spans: &mut Vec<Span>,
    ) -> Result<Option<McDecoded>, McError> {
        spans.clear();
        if self.skip > 0 {
            return Ok(self.skipped(buf));
        }
        let request = match self.pending.take() {
            Some(pending) => {
                *spans = pending.spans;
                pending.request
            }
            None => match self.line(buf, limits, spans)? {
                None => return Ok(None),
                Some(McDecoded::Request(request)) => request,
                Some(other) => return Ok(Some(other)),
            },
        };
        Ok(self.with_data(buf, request, spans))
    }

    /// How many bytes are missing at least, as of the last [`decode`](Self::decode) that found
    /// nothing. An announcement of the sender: reserve room in step with what really arrives.
    pub fn need(&self) -> usize {
        self.pending.as_ref().map_or(1, |p| p.need)
    }

    fn line(
        &mut self,
        buf: &[u8],
        limits: &McLimits,
        spans: &mut Vec<Span>,
    ) -> Result<Option<McDecoded>, McError> {
        if buf.first() == Some(&BINARY_MAGIC) {
            return Err(McError::Binary);
        }
        let scanned = self.line_scanned as usize;
        let end = memchr::memchr(b'\n', &buf[scanned..]).map(|i| scanned + i + 1);
        let len = end.unwrap_or(buf.len());
        if len > LINE_BYTES_MAX && !(is_get(buf) && len <= limits.get_line_bytes_max) {
            return Err(McError::LineTooLong);
        }
        self.line_scanned = if end.is_some() { 0 } else { buf.len() as u32 };
        let Some(end) = end else {
            return Ok(None);
        };
        understand(&buf[..end], limits, spans, &mut self.skip).map(Some)
    }

    fn skipped(&mut self, buf: &[u8]) -> Option<McDecoded> {
        let len = usize::try_from(self.skip).unwrap_or(usize::MAX).min(buf.len());
        self.skip -= len as u64;
        (len > 0).then_some(McDecoded::Skipped { len })
    }

    /// Waits for the data block of a request that has one.
    fn with_data(
        &mut self,
        buf: &[u8],
        request: McRequest,
        spans: &mut Vec<Span>,
    ) -> Option<McDecoded> {
        let Some(data) = request.data else {
            return Some(McDecoded::Request(request));
        };
        let end = data.end as usize;
        match buf.get(end..end + 2) {
            Some(b"\r\n") => Some(McDecoded::Request(request)),
            Some(_) => {
                let reply = if request.noreply { &b""[..] } else { BAD_CHUNK };
                Some(McDecoded::Rejected { len: request.len, reply })
            }
            None => {
                let need = request.len - buf.len();
                let spans = spans.as_slice().to_vec();
                self.pending = Some(Box::new(Pending { request, spans, need }));
                None
            }
        }
    }
}

const ERROR: &[u8] = b"ERROR\r\n";
const BAD_FORMAT: &[u8] = b"CLIENT_ERROR bad command line format\r\n";
const BAD_CHUNK: &[u8] = b"CLIENT_ERROR bad data chunk\r\n";
const BAD_EXPTIME: &[u8] = b"CLIENT_ERROR invalid exptime argument\r\n";
const BAD_DELTA: &[u8] = b"CLIENT_ERROR invalid numeric delta argument\r\n";
const BAD_DELETE: &[u8] =
    b"CLIENT_ERROR bad command line format.  Usage: delete <key> [noreply]\r\n";
const MG_TOO_LONG: &[u8] = b"CLIENT_ERROR options flags are too long\r\n";
const META_TOO_LONG: &[u8] = b"CLIENT_ERROR options flags too long\r\n";
const TOO_LARGE: &[u8] = b"SERVER_ERROR object too large for cache\r\n";

/// A line that may be longer than others: it began with a get.
fn is_get(line: &[u8]) -> bool {
    let word = line.trim_ascii_start();
    [&b"get "[..], b"gets ", b"gat ", b"gats "].iter().any(|verb| word.starts_with(verb))
}

/// Why a line is no request.
struct Refusal {
    /// The answer.
    reply: &'static [u8],
    /// Bytes of data behind the line that are passed over.
    skip: u64,
}

impl From<&'static [u8]> for Refusal {
    fn from(reply: &'static [u8]) -> Refusal {
        Refusal { reply, skip: 0 }
    }
}

/// Splits a line and checks it.
fn understand(
    line: &[u8],
    limits: &McLimits,
    spans: &mut Vec<Span>,
    skip: &mut u64,
) -> Result<McDecoded, McError> {
    let len = line.len();
    let single_blanks = words(line, limits.words_max, spans);
    let args = Args::new(line, spans);
    let Some(command) = args.get(0).and_then(table::lookup) else {
        return match args.iter().last() {
            Some(word) if word.starts_with(b"HTTP/") => Err(McError::Http),
            _ => Ok(McDecoded::Rejected { len, reply: ERROR }),
        };
    };
    let noreply = wants_no_reply(command.form, &args);
    let quiet = command.meta_flags(&args).any(|flag| flag[0] == b'q');
    Ok(match check(command, &args, noreply, limits) {
        Ok(bytes) => {
            let data = bytes.map(|bytes| Span::new(len, len + bytes));
            McDecoded::Request(McRequest {
                len: data.map_or(len, |data| data.end as usize + 2),
                command,
                data,
                noreply,
                quiet,
                plain: single_blanks && !noreply && !quiet && is_canonical(command, &args),
            })
        }
        Err(refusal) => {
            *skip = refusal.skip;
            // Too few words are told even to those who want no answer, as in memcached.
            let silent = noreply && refusal.reply != ERROR;
            McDecoded::Rejected { len, reply: if silent { b"" } else { refusal.reply } }
        }
    })
}

/// True for a line whose words are sent as they are: no hold time of old deletes, digits only
/// where a time of expiry stands.
fn is_canonical(command: &McCommand, args: &Args<'_>) -> bool {
    let exptime = command.exptime_word().and_then(|i| args.get(i));
    let digits = exptime.is_none_or(|word| word.iter().all(u8::is_ascii_digit));
    digits && !(command.form == Form::Delete && args.len() > 2)
}

/// The last word says so; a key may have that name too.
fn wants_no_reply(form: Form, args: &Args<'_>) -> bool {
    let fewest = if form == Form::Delete { 3 } else { 2 };
    form.takes_noreply() && args.len() >= fewest && &args[args.len() - 1] == b"noreply"
}

/// Splits at blanks; true when the line is written as plainly as can be. As in memcached, a NUL
/// ends the line.
fn words(line: &[u8], words_max: usize, spans: &mut Vec<Span>) -> bool {
    let text = line.strip_suffix(b"\n").unwrap_or(line);
    let (text, crlf) = match text.strip_suffix(b"\r") {
        Some(text) => (text, true),
        None => (text, false),
    };
    let end = memchr::memchr(0, text).unwrap_or(text.len());
    let mut plain = crlf && end == text.len();
    let mut at = 0;
    while at < end {
        let word = memchr::memchr(b' ', &text[at..end]).map_or(end, |i| at + i);
        if word > at {
            spans.push(Span::new(at, word));
        } else {
            plain = false;
        }
        if spans.len() > words_max {
            // One word too many: no command has that many, and a get is refused.
            spans.clear();
            return false;
        }
        at = word + 1;
    }
    // A blank at the end of the line.
    plain && !text.ends_with(b" ")
}

/// Checks the words of a line. `Ok` is the length of the data that follows.
fn check(
    command: &McCommand,
    args: &Args<'_>,
    noreply: bool,
    limits: &McLimits,
) -> Result<Option<usize>, Refusal> {
    let (fewest, most) = command.words;
    if args.len() < fewest || args.len() > most {
        let text = match (command.name, command.form) {
            ("me", _) => BAD_FORMAT,
            ("mg", _) if args.len() > most => MG_TOO_LONG,
            (_, Form::Meta | Form::MetaSet) if args.len() > most => META_TOO_LONG,
            _ => ERROR,
        };
        return Err(text.into());
    }
    match command.form {
        Form::GetAndTouch => exptime(args, 1)?,
        Form::Delete => check_delete(args, noreply)?,
        _ => {}
    }
    if command.keys.keys(args).any(|key| args[key].len() > KEY_BYTES_MAX) {
        return Err(BAD_FORMAT.into());
    }
    match command.form {
        Form::Store | Form::Cas => return check_store(command.form, args, limits).map(Some),
        Form::MetaSet => return meta_bytes(args, limits).map(Some),
        Form::Touch => exptime(args, 2)?,
        Form::FlushAll if args.len() - usize::from(noreply) > 1 => exptime(args, 1)?,
        Form::Arithmetic => {
            number::u64_of(&args[2]).ok_or(BAD_DELTA)?;
        }
        Form::Verbosity => {
            number::u32_of(&args[1]).ok_or(BAD_FORMAT)?;
        }
        Form::Get
        | Form::GetAndTouch
        | Form::Delete
        | Form::Meta
        | Form::Plain
        | Form::FlushAll => {}
    }
    Ok(None)
}

fn exptime(args: &Args<'_>, at: usize) -> Result<(), Refusal> {
    number::i32_of(&args[at]).map(drop).ok_or(BAD_EXPTIME.into())
}

/// `delete key`, and the old forms `delete key 0` and `delete key 0 noreply`.
fn check_delete(args: &Args<'_>, noreply: bool) -> Result<(), Refusal> {
    let zero = args.get(2).is_some_and(|hold| hold == b"0");
    let valid = match args.len() {
        2 => true,
        3 => zero || noreply,
        _ => zero && noreply,
    };
    if valid { Ok(()) } else { Err(BAD_DELETE.into()) }
}

fn check_store(form: Form, args: &Args<'_>, limits: &McLimits) -> Result<usize, Refusal> {
    let flags = number::u32_of(&args[2]);
    let exptime = number::i32_of(&args[3]);
    let unique_fits = form != Form::Cas || number::u64_of(&args[5]).is_some();
    if flags.is_none() || exptime.is_none() || !unique_fits {
        return Err(BAD_FORMAT.into());
    }
    bytes_of(args.get(4), limits)
}

fn meta_bytes(args: &Args<'_>, limits: &McLimits) -> Result<usize, Refusal> {
    bytes_of(args.get(2), limits)
}

/// The length of a data block.
fn bytes_of(word: Option<&[u8]>, limits: &McLimits) -> Result<usize, Refusal> {
    let bytes = word.and_then(number::i32_of).and_then(|bytes| usize::try_from(bytes).ok());
    match bytes {
        Some(bytes) if bytes <= limits.value_bytes_max => Ok(bytes),
        // memcached's own bound is that of an int less the line end.
        Some(bytes) if bytes <= i32::MAX as usize - 2 => {
            Err(Refusal { reply: TOO_LARGE, skip: bytes as u64 + 2 })
        }
        _ => Err(BAD_FORMAT.into()),
    }
}

#[cfg(test)]
mod tests;
