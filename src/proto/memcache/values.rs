//! A get of several keys: a request for each owner, and one answer of all of theirs.

use crate::proto::args::Args;

/// Appends the part of a get with the keys at `keys` (places among the arguments). The words
/// before the first key (the verb, and the exptime of a gat) are kept.
pub fn write_part(
    args: &Args<'_>,
    first_key: usize,
    keys: impl IntoIterator<Item = usize>,
    out: &mut Vec<u8>,
) {
    for (i, word) in args.iter().enumerate().take(first_key) {
        if i > 0 {
            out.push(b' ');
        }
        out.extend_from_slice(word);
    }
    for key in keys {
        out.push(b' ');
        out.extend_from_slice(&args[key]);
    }
    out.extend_from_slice(b"\r\n");
}

/// One value of a get's answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Value<'a> {
    /// Its key.
    pub key: &'a [u8],
    /// Line and data, as they came.
    pub block: &'a [u8],
}

/// True for the answer of a get; an error is none.
pub fn is_answer(reply: &[u8]) -> bool {
    reply.starts_with(b"VALUE ") || reply == b"END\r\n"
}

/// The values of a whole answer, in its order. Ends at the first line that is no value.
pub fn values(reply: &[u8]) -> Values<'_> {
    Values { rest: reply }
}

/// See [`values`].
#[derive(Clone, Debug)]
pub struct Values<'a> {
    rest: &'a [u8],
}

impl<'a> Values<'a> {
    /// What follows the values taken so far: `END`, or an error.
    pub fn rest(&self) -> &'a [u8] {
        self.rest
    }
}

impl<'a> Iterator for Values<'a> {
    type Item = Value<'a>;

    fn next(&mut self) -> Option<Value<'a>> {
        let words = self.rest.strip_prefix(b"VALUE ")?;
        let line_end = memchr::memchr(b'\n', self.rest)? + 1;
        let mut words = words.get(..line_end.checked_sub(8)?)?.split(|b| *b == b' ');
        let key = words.next()?;
        let bytes: usize = std::str::from_utf8(words.nth(1)?).ok()?.parse().ok()?;
        let end = line_end.checked_add(bytes)?.checked_add(2)?;
        if end > self.rest.len() {
            return None;
        }
        let (block, rest) = self.rest.split_at(end);
        self.rest = rest;
        Some(Value { key, block })
    }
}

/// Appends the values of several answers as one answer, in the order in which the keys were
/// asked for; `parts[p]` answers the keys that `keys` gives with `p`.
///
/// # Errors
/// The part that is an error (or ends with one): its error line, and nothing is appended.
pub fn join<'a>(
    keys: impl IntoIterator<Item = (&'a [u8], usize)>,
    parts: &[&'a [u8]],
    out: &mut Vec<u8>,
) -> Result<(), &'a [u8]> {
    for part in parts {
        let mut values = values(part);
        values.by_ref().for_each(drop);
        if values.rest() != b"END\r\n" {
            return Err(values.rest());
        }
    }
    let mut answers: Vec<_> = parts.iter().map(|part| values(part).peekable()).collect();
    for (key, part) in keys {
        // A key without a value has no block: the next one is another key's.
        if let Some(value) = answers[part].next_if(|value| value.key == key) {
            out.extend_from_slice(value.block);
        }
    }
    out.extend_from_slice(b"END\r\n");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proto::args::Span;

    #[test]
    fn parts_are_requests_of_their_own() {
        let line = b"gat 10 a b c";
        let spans = [Span::new(0, 3), Span::new(4, 6), Span::new(7, 8), Span::new(9, 10)];
        let args = Args::new(line, &spans);
        let mut out = Vec::new();
        write_part(&args, 2, [3, 2], &mut out);
        assert_eq!(out, b"gat 10 b a\r\n");
    }

    #[test]
    fn values_are_slices_of_the_answer() {
        let reply = b"VALUE a 0 2\r\n\r\n\r\nVALUE b 5 0 77\r\n\r\nEND\r\n";
        let mut found = values(reply);
        assert_eq!(found.next().unwrap(), Value { key: b"a", block: b"VALUE a 0 2\r\n\r\n\r\n" });
        assert_eq!(found.next().unwrap(), Value { key: b"b", block: b"VALUE b 5 0 77\r\n\r\n" });
        assert_eq!(found.next(), None);
        assert_eq!(found.rest(), b"END\r\n");
        for broken in [&b"VALUE a\r\n"[..], b"VALUE a 0 9\r\nx\r\n", b"VALUE \r\n", b"VALUE a 0 x"]
        {
            assert_eq!(values(broken).next(), None, "{}", broken.escape_ascii());
        }
    }

    #[test]
    fn answers_are_joined_in_the_order_of_the_keys() {
        let keys: [(&[u8], usize); 6] =
            [(b"a", 0), (b"x", 1), (b"b", 1), (b"a", 0), (b"c", 0), (b"d", 1)];
        let parts: [&[u8]; 2] = [
            b"VALUE a 0 1\r\n1\r\nVALUE a 0 1\r\n1\r\nVALUE c 0 1\r\n3\r\nEND\r\n",
            b"VALUE b 0 1\r\n2\r\nVALUE d 0 1\r\n4\r\nEND\r\n",
        ];
        let mut out = Vec::new();
        assert_eq!(join(keys, &parts, &mut out), Ok(()));
        let order: Vec<&[u8]> = values(&out).map(|value| value.key).collect();
        assert_eq!(order, [b"a", b"b", b"a", b"c", b"d"]);
        assert!(out.ends_with(b"END\r\n"));
    }

    #[test]
    fn a_part_that_failed_fails_all() {
        let parts: [&[u8]; 2] = [b"END\r\n", b"VALUE b 0 1\r\n2\r\nSERVER_ERROR out\r\n"];
        let mut out = Vec::new();
        let joined = join([(&b"b"[..], 1)], &parts, &mut out);
        assert_eq!(joined, Err(&b"SERVER_ERROR out\r\n"[..]));
        assert!(out.is_empty());
    }
}
