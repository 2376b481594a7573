//! The ASCII header of a DNODE frame: lenient reader, exact writer.
//!
//! The reader resynchronises on the magic `$2014$`: whatever stands before it is junk, and a magic
//! that is not followed by a well-formed header is junk too. It never copies: [`Header`] holds
//! numbers and a span. A header is at most a few hundred bytes long, so one that arrives in pieces
//! is read again from its magic; the search for the magic itself never looks at a byte twice.
//!
//! Source: `Netflix/dynomite` `src/dyn_dnode_msg.c` (`dyn_parse_core`, `dmsg_write`).

use memchr::memmem;

use super::{FLAG_ENCRYPTED, MsgType};
use crate::proto::args::Span;

const MAGIC: &[u8] = b"$2014$";

/// Spaces a C node writes before the magic; they belong to the header, not to the junk.
const LEAD: &[u8] = b"   ";

/// Bytes that may be the beginning of lead and magic, so they are kept while searching.
const SEARCH_KEEP: usize = LEAD.len() + MAGIC.len() - 1;

/// Most digits of a number that fits 64 bits.
const DIGITS_MAX: usize = 20;

/// How much one frame may ask a receiver to hold.
#[derive(Clone, Copy, Debug)]
pub struct HeaderLimits {
    /// Longest inline `data` field, in bytes. A wrapped RSA-1024 key has 128.
    pub data_max: usize,
    /// Longest body whose `plen` binds (see [`Header::plen_binds`]), in bytes.
    pub body_max: u64,
}

impl Default for HeaderLimits {
    fn default() -> HeaderLimits {
        HeaderLimits { data_max: 1024, body_max: 512 << 20 }
    }
}

/// One decoded header. Offsets count from the first byte of the buffer given to the decoder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// The sender's number of the request; an answer carries the number of its request.
    pub id: u64,
    /// The type as a number; numbers above 255 read as 255.
    pub kind: u8,
    /// The low four bits of the flags, as a C receiver keeps them.
    pub flags: u8,
    /// The version; numbers above 255 read as 255.
    pub version: u8,
    /// True when the sender's connection joins two nodes of one datacenter.
    pub same_dc: bool,
    /// Where the inline data stands in the buffer.
    pub data: Span,
    /// Announced length of the body; a mere hint unless [`Header::plen_binds`].
    pub plen: u64,
    /// Bytes before the body: junk, lead, magic and fields. The body begins at this offset.
    pub len: usize,
    /// How many of `len` are junk.
    pub skipped: usize,
}

impl Header {
    /// The type by name.
    pub fn msg_type(&self) -> MsgType {
        MsgType::from_code(self.kind)
    }

    /// True when the body is encrypted. C tests the flags for equality with 1; so does this.
    pub fn encrypted(&self) -> bool {
        self.flags == FLAG_ENCRYPTED
    }

    /// True when the body has exactly `plen` bytes. For plaintext requests and responses it is
    /// only a hint: C nodes count headers already stripped when they relay.
    pub fn plen_binds(&self) -> bool {
        self.encrypted() || !self.msg_type().has_parsed_body()
    }
}

/// Why a header cannot be accepted. The connection cannot go on: nobody knows where the next
/// frame begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HeaderError {
    /// The data field is longer than the limit.
    #[error("dnode data field of {len} bytes at offset {at}, at most {max} are accepted")]
    DataTooLong {
        /// Offset of the length.
        at: usize,
        /// Announced length in bytes.
        len: u64,
        /// The limit.
        max: usize,
    },
    /// The body is longer than the limit and its length binds.
    #[error("dnode body of {len} bytes, at most {max} are accepted")]
    BodyTooLong {
        /// Announced length in bytes.
        len: u64,
        /// The limit.
        max: u64,
    },
}

/// Finds the next header in a growing buffer.
#[derive(Clone, Copy, Debug, Default)]
pub struct HeaderDecoder {
    /// No magic begins before this offset.
    searched: usize,
}

impl HeaderDecoder {
    /// Looks for a header in `buf`, which holds the unread bytes of a connection. `None` asks for
    /// more bytes: call again with the same bytes and more behind them (or fewer in front, see
    /// [`HeaderDecoder::take_junk`]). After a header the decoder is ready for the next buffer,
    /// which begins behind this frame's body.
    pub fn decode(
        &mut self,
        buf: &[u8],
        limits: &HeaderLimits,
    ) -> Result<Option<Header>, HeaderError> {
        while let Some(magic) = find_magic(buf, self.searched) {
            self.searched = magic;
            match read_fields(buf, magic + MAGIC.len(), limits)? {
                Fields::Whole(mut header) => {
                    header.skipped = magic - lead_before(buf, magic);
                    self.searched = 0;
                    return Ok(Some(header));
                }
                Fields::Partial => return Ok(None),
                Fields::Malformed => self.searched = magic + 1,
            }
        }
        self.searched = self.searched.max(buf.len().saturating_sub(MAGIC.len() - 1));
        Ok(None)
    }

    /// After a `None`: how many bytes at the front are known to be junk. The caller must drop
    /// exactly these before the next `decode`, so that noise of any length needs no memory.
    pub fn take_junk(&mut self) -> usize {
        let junk = self.searched.saturating_sub(SEARCH_KEEP);
        self.searched -= junk;
        junk
    }
}

/// Appends a header, byte for byte as a C node writes it. `plen` is the true length of the body
/// that follows; neither `data` nor the body may be empty.
pub fn put_header(
    out: &mut Vec<u8>,
    id: u64,
    kind: u8,
    flags: u8,
    version: u8,
    same_dc: bool,
    data: &[u8],
    plen: u64,
) {
    debug_assert!(!data.is_empty());
    let mut number = itoa::Buffer::new();
    out.reserve(64 + data.len());
    out.extend_from_slice(b"   $2014$ ");
    out.extend_from_slice(number.format(id).as_bytes());
    for small in [kind, flags, version, same_dc as u8] {
        out.push(b' ');
        put_small(out, small);
    }
    out.extend_from_slice(b" *");
    out.extend_from_slice(number.format(data.len()).as_bytes());
    out.push(b' ');
    out.extend_from_slice(data);
    out.extend_from_slice(b" *");
    out.extend_from_slice(number.format(plen).as_bytes());
    out.extend_from_slice(b"\r\n");
}

fn put_small(out: &mut Vec<u8>, number: u8) {
    if number < 10 {
        out.push(b'0' + number);
    } else {
        out.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
    }
}

/// Offset of the first magic at or after `from`.
fn find_magic(buf: &[u8], from: usize) -> Option<usize> {
    // The usual case: the frame begins where the last one ended.
    let lead = from + LEAD.len();
    if buf.get(lead..lead + MAGIC.len()) == Some(MAGIC) && &buf[from..lead] == LEAD {
        return Some(lead);
    }
    memmem::find(buf.get(from..)?, MAGIC).map(|at| from + at)
}

/// How many spaces of a lead stand directly before the magic.
fn lead_before(buf: &[u8], magic: usize) -> usize {
    buf[..magic].iter().rev().take(LEAD.len()).take_while(|b| **b == b' ').count()
}

enum Fields {
    Whole(Header),
    Partial,
    Malformed,
}

/// Reads the fields behind the magic that ends at `at`.
fn read_fields(buf: &[u8], at: usize, limits: &HeaderLimits) -> Result<Fields, HeaderError> {
    let mut cursor = Cursor { buf, at };
    let mut numbers = [0u64; 5];
    for number in &mut numbers {
        match cursor.byte(b' ').and_then(|()| cursor.number()) {
            Ok(value) => *number = value,
            Err(stop) => return Ok(stop.into()),
        }
    }
    let dlen_at = cursor.at;
    let dlen = match cursor.starred() {
        Ok(dlen) if dlen <= limits.data_max as u64 => dlen,
        Ok(len) => {
            return Err(HeaderError::DataTooLong { at: dlen_at, len, max: limits.data_max });
        }
        Err(stop) => return Ok(stop.into()),
    };
    let tail = cursor.byte(b' ').and_then(|()| {
        let data = cursor.skip(dlen as usize)?;
        let plen = cursor.starred()?;
        cursor.byte(b'\r')?;
        cursor.byte(b'\n')?;
        Ok((data, plen))
    });
    let (data, plen) = match tail {
        Ok(tail) => tail,
        Err(stop) => return Ok(stop.into()),
    };
    let [id, kind, flags, version, same_dc] = numbers;
    let header = Header {
        id,
        kind: u8::try_from(kind).unwrap_or(u8::MAX),
        flags: (flags & 0xf) as u8,
        version: u8::try_from(version).unwrap_or(u8::MAX),
        same_dc: same_dc != 0,
        data,
        plen,
        len: cursor.at,
        skipped: 0,
    };
    if header.plen_binds() && plen > limits.body_max {
        return Err(HeaderError::BodyTooLong { len: plen, max: limits.body_max });
    }
    Ok(Fields::Whole(header))
}

/// Why a field could not be read.
enum Stop {
    NeedMore,
    Malformed,
}

impl From<Stop> for Fields {
    fn from(stop: Stop) -> Fields {
        match stop {
            Stop::NeedMore => Fields::Partial,
            Stop::Malformed => Fields::Malformed,
        }
    }
}

struct Cursor<'a> {
    buf: &'a [u8],
    at: usize,
}

impl Cursor<'_> {
    fn byte(&mut self, want: u8) -> Result<(), Stop> {
        match self.buf.get(self.at) {
            Some(b) if *b == want => {
                self.at += 1;
                Ok(())
            }
            Some(_) => Err(Stop::Malformed),
            None => Err(Stop::NeedMore),
        }
    }

    /// A decimal number; it has ended only when another byte follows it.
    fn number(&mut self) -> Result<u64, Stop> {
        let mut value = 0u64;
        for (digits, b) in self.buf[self.at..].iter().take(DIGITS_MAX + 1).enumerate() {
            if !b.is_ascii_digit() {
                self.at += digits;
                return if digits == 0 { Err(Stop::Malformed) } else { Ok(value) };
            }
            let digit = u64::from(b - b'0');
            let next = value.checked_mul(10).and_then(|v| v.checked_add(digit));
            value = next.ok_or(Stop::Malformed)?;
        }
        if self.buf.len() - self.at > DIGITS_MAX {
            return Err(Stop::Malformed);
        }
        Err(Stop::NeedMore)
    }

    /// ` *<number>`
    fn starred(&mut self) -> Result<u64, Stop> {
        self.byte(b' ')?;
        self.byte(b'*')?;
        self.number()
    }

    fn skip(&mut self, len: usize) -> Result<Span, Stop> {
        let start = self.at;
        if self.buf.len() - start < len {
            return Err(Stop::NeedMore);
        }
        self.at += len;
        Ok(Span::new(start, self.at))
    }
}
