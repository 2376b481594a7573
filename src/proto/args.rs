//! The arguments of one request, as spans of the buffer they arrived in.
//!
//! Decoders fill a reusable `Vec<Span>`; everything downstream reads through [`Args`], so a
//! request is never copied into owned strings on its way to the datastore.

/// A half-open byte range of a request buffer. Offsets are relative to the first byte of the
/// request. A request is therefore limited to 4 GiB, which every decoder enforces.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Span {
    /// Offset of the first byte.
    pub start: u32,
    /// Offset after the last byte.
    pub end: u32,
}

impl Span {
    /// A span from two offsets. Offsets beyond 4 GiB are a bug of the decoder's limits.
    pub fn new(start: usize, end: usize) -> Span {
        debug_assert!(start <= end && end <= u32::MAX as usize);
        Span { start: start as u32, end: end as u32 }
    }

    /// Length in bytes.
    pub fn len(self) -> usize {
        (self.end - self.start) as usize
    }

    /// True for an empty argument.
    pub fn is_empty(self) -> bool {
        self.start == self.end
    }

    /// The bytes this span names in `buf`.
    pub fn of(self, buf: &[u8]) -> &[u8] {
        &buf[self.start as usize..self.end as usize]
    }
}

/// One request's arguments: the command name is number 0.
#[derive(Clone, Copy, Debug)]
pub struct Args<'a> {
    buf: &'a [u8],
    spans: &'a [Span],
}

impl<'a> Args<'a> {
    /// Arguments over `buf`, which begins at the first byte of the request.
    pub fn new(buf: &'a [u8], spans: &'a [Span]) -> Args<'a> {
        Args { buf, spans }
    }

    /// Number of arguments, the command name included.
    pub fn len(&self) -> usize {
        self.spans.len()
    }

    /// True when there is not even a command name.
    pub fn is_empty(&self) -> bool {
        self.spans.is_empty()
    }

    /// Argument `i`, or `None` past the end.
    pub fn get(&self, i: usize) -> Option<&'a [u8]> {
        self.spans.get(i).map(|s| s.of(self.buf))
    }

    /// All arguments in order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &'a [u8]> + use<'a> {
        let buf = self.buf;
        self.spans.iter().map(move |s| s.of(buf))
    }

    /// The arguments from number `i` on.
    pub fn tail(&self, i: usize) -> Args<'a> {
        Args { buf: self.buf, spans: &self.spans[i.min(self.spans.len())..] }
    }

    /// Where the arguments are in the request.
    pub fn spans(&self) -> &'a [Span] {
        self.spans
    }

    /// The whole request as it arrived.
    pub fn raw(&self) -> &'a [u8] {
        self.buf
    }
}

/// Argument `i`; panics past the end, so callers check the arity first (the command table does).
impl std::ops::Index<usize> for Args<'_> {
    type Output = [u8];

    fn index(&self, i: usize) -> &[u8] {
        self.spans[i].of(self.buf)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_slices_of_the_request() {
        let buf = b"GET user:1";
        let spans = [Span::new(0, 3), Span::new(4, 10)];
        let args = Args::new(buf, &spans);
        assert_eq!(args.len(), 2);
        assert_eq!(&args[0], b"GET");
        assert_eq!(args.get(1), Some(&b"user:1"[..]));
        assert_eq!(args.get(2), None);
        assert_eq!(args.tail(1).iter().collect::<Vec<_>>(), [b"user:1"]);
        assert_eq!(args.tail(9).len(), 0);
        assert_eq!(args.raw(), buf);
    }
}
