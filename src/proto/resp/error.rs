//! What can be wrong with bytes that should be RESP.

use thiserror::Error;

/// Bytes that are not RESP. The connection cannot go on: where the next frame begins is unknown.
///
/// [`Display`](std::fmt::Display) is the text Redis sends, without the leading `-ERR `.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("{kind}")]
pub struct DecodeError {
    /// What is wrong.
    pub kind: DecodeErrorKind,
    /// Where, counted from the first byte of the request or reply.
    pub offset: usize,
}

/// The kinds of [`DecodeError`]. Texts follow Redis `src/networking.c` where Redis has one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum DecodeErrorKind {
    /// The number after `*` is no count, or above the limit of elements.
    #[error("Protocol error: invalid multibulk length")]
    MultibulkLength,
    /// The number after `$` is no length, or above the limit of one bulk.
    #[error("Protocol error: invalid bulk length")]
    BulkLength,
    /// An element of a request that is not a bulk string; the byte found instead.
    #[error("Protocol error: expected '$', got '{}'", printable(*.0))]
    ExpectedBulk(u8),
    /// A bulk string that is longer than it said, or whose end is damaged.
    #[error("Protocol error: expected CRLF after a bulk string")]
    BulkEnd,
    /// An inline request without a line end within the limit.
    #[error("Protocol error: too big inline request")]
    InlineTooBig,
    /// An inline request with a quote that is not closed, or glued to what follows it.
    #[error("Protocol error: unbalanced quotes in request")]
    UnbalancedQuotes,
    /// A frame that would be larger than one frame may be.
    #[error("Protocol error: request or reply too large")]
    FrameTooBig,
    /// A reply that begins with none of `+ - : $ *`; the byte found instead.
    #[error("Protocol error: unknown reply type '{}'", printable(*.0))]
    ReplyType(u8),
    /// A reply line without an end within the limit, or with a bare CR.
    #[error("Protocol error: invalid reply line")]
    ReplyLine,
    /// Arrays within arrays beyond the limit.
    #[error("Protocol error: reply nested too deeply")]
    TooDeep,
}

impl DecodeErrorKind {
    /// This kind at a place.
    pub(super) fn at(self, offset: usize) -> DecodeError {
        DecodeError { kind: self, offset }
    }
}

/// A byte that may stand in an error line: control bytes would break the reply's framing.
fn printable(byte: u8) -> char {
    if byte.is_ascii_graphic() || byte == b' ' { char::from(byte) } else { '?' }
}
