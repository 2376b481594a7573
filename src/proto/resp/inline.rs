//! Inline requests: a line of text instead of an array, as people and load balancers send it.
//!
//! The line is split as Redis does (`sdssplitargs`): blanks separate, `"..."` knows the escapes
//! `\n \r \t \b \a \xHH`, `'...'` only `\'`. The request is rewritten as an array, so that all
//! that follows knows one form only.

use super::encode;
use super::error::{DecodeError, DecodeErrorKind as Kind};
use crate::proto::args::Span;

/// Rewrites the line of an inline request (its line end included or not) as a RESP array into
/// `frame`, with the arguments' spans relative to it; both are cleared first. An empty line
/// gives no spans and an empty frame.
///
/// # Errors
/// A quote is not closed, or something other than a blank follows a closing quote.
pub fn rewrite(line: &[u8], frame: &mut Vec<u8>, spans: &mut Vec<Span>) -> Result<(), DecodeError> {
    spans.clear();
    frame.clear();
    let line = line.strip_suffix(b"\n").unwrap_or(line);
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    let mut args: Vec<Vec<u8>> = Vec::new();
    let mut at = 0;
    loop {
        at += line[at..].iter().take_while(|b| is_space(**b)).count();
        if at == line.len() {
            break;
        }
        let mut arg = Vec::new();
        at = argument(line, at, &mut arg)?;
        args.push(arg);
    }
    if args.is_empty() {
        return Ok(());
    }
    encode::array(frame, args.len());
    for arg in &args {
        encode::bulk(frame, arg);
        let end = frame.len() - 2;
        spans.push(Span::new(end - arg.len(), end));
    }
    Ok(())
}

/// Reads one argument at `at`, returns the offset after it.
fn argument(line: &[u8], mut at: usize, arg: &mut Vec<u8>) -> Result<usize, DecodeError> {
    while let Some(&byte) = line.get(at) {
        match byte {
            b'"' => return closed(line, double_quoted(line, at + 1, arg)),
            b'\'' => return closed(line, single_quoted(line, at + 1, arg)),
            // Redis ends an unquoted word at a NUL too.
            _ if is_space(byte) || byte == 0 => return Ok(at + usize::from(byte == 0)),
            _ => arg.push(byte),
        }
        at += 1;
    }
    Ok(at)
}

/// After a closing quote only a blank or the end may follow.
fn closed(line: &[u8], after: Option<usize>) -> Result<usize, DecodeError> {
    match after {
        Some(at) if line.get(at).is_none_or(|b| is_space(*b)) => Ok(at),
        _ => Err(Kind::UnbalancedQuotes.at(after.unwrap_or(line.len()))),
    }
}

/// Returns the offset after the closing quote, `None` when there is none.
fn double_quoted(line: &[u8], mut at: usize, arg: &mut Vec<u8>) -> Option<usize> {
    loop {
        match *line.get(at..)? {
            [b'"', ..] => return Some(at + 1),
            [b'\\', b'x', high, low, ..] if high.is_ascii_hexdigit() && low.is_ascii_hexdigit() => {
                arg.push(hex(high) << 4 | hex(low));
                at += 4;
            }
            [b'\\', escaped, ..] => {
                arg.push(match escaped {
                    b'n' => b'\n',
                    b'r' => b'\r',
                    b't' => b'\t',
                    b'b' => 0x08,
                    b'a' => 0x07,
                    other => other,
                });
                at += 2;
            }
            [byte, ..] => {
                arg.push(byte);
                at += 1;
            }
            [] => return None,
        }
    }
}

/// Returns the offset after the closing quote, `None` when there is none.
fn single_quoted(line: &[u8], mut at: usize, arg: &mut Vec<u8>) -> Option<usize> {
    loop {
        match *line.get(at..)? {
            [b'\'', ..] => return Some(at + 1),
            [b'\\', b'\'', ..] => {
                arg.push(b'\'');
                at += 2;
            }
            [byte, ..] => {
                arg.push(byte);
                at += 1;
            }
            [] => return None,
        }
    }
}

/// The blanks of C's `isspace`.
fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\n' | b'\r' | 0x0b | 0x0c)
}

fn hex(digit: u8) -> u8 {
    match digit {
        b'0'..=b'9' => digit - b'0',
        b'a'..=b'f' => digit - b'a' + 10,
        _ => digit - b'A' + 10,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn split(line: &[u8]) -> Result<Vec<Vec<u8>>, DecodeError> {
        let (mut frame, mut spans) = (Vec::new(), Vec::new());
        rewrite(line, &mut frame, &mut spans)?;
        Ok(spans.iter().map(|s| s.of(&frame).to_vec()).collect())
    }

    #[test]
    fn words_are_split_as_redis_splits_them() {
        assert_eq!(split(b"ping\n").unwrap(), [b"ping"]);
        assert_eq!(split(b"  SET a\t1 \r\n").unwrap(), [&b"SET"[..], b"a", b"1"]);
        assert_eq!(split(b"a\"b c\"").unwrap(), [b"ab c"]);
        assert_eq!(split(br#"SET k "\x41\n\q\"""#).unwrap(), [&b"SET"[..], b"k", b"A\nq\""]);
        assert_eq!(split(br#"SET k "\xZZ""#).unwrap()[2], b"xZZ");
        assert_eq!(split(br"SET k 'a\'b\n'").unwrap()[2], br"a'b\n");
        assert_eq!(split(br#"SET k """#).unwrap()[2], b"");
        assert_eq!(split(b"\r\n").unwrap(), Vec::<Vec<u8>>::new());
        assert_eq!(split(b" \t \n").unwrap(), Vec::<Vec<u8>>::new());
    }

    #[test]
    fn quotes_must_be_closed_and_stand_alone() {
        for line in [&b"SET k \"a"[..], b"SET k 'a", b"SET k \"a\"b", b"SET 'a'\"b\"", b"\"\\"] {
            assert_eq!(split(line).unwrap_err().kind, Kind::UnbalancedQuotes, "{line:?}");
        }
    }

    #[test]
    fn the_frame_is_the_request_as_an_array() {
        let (mut frame, mut spans) = (b"old".to_vec(), vec![Span::new(0, 1)]);
        rewrite(b"get 'a b'\r\n", &mut frame, &mut spans).unwrap();
        assert_eq!(frame, b"*2\r\n$3\r\nget\r\n$3\r\na b\r\n");
        assert_eq!(spans.len(), 2);
        rewrite(b"\n", &mut frame, &mut spans).unwrap();
        assert!(frame.is_empty() && spans.is_empty());
    }
}
