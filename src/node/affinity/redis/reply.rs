//! Replies and pushes in RESP3, as values: for the few questions a follower asks.

/// Deepest nesting that is read.
const DEPTH_MAX: u8 = 8;
/// Longest bulk string or array that is read.
const LEN_MAX: i64 = 512 << 20;

/// One reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Value {
    /// A simple string, a number that is no integer, or anything else in one line.
    Line(String),
    /// An error.
    Error(String),
    /// An integer.
    Int(i64),
    /// A string.
    Bulk(Vec<u8>),
    /// An array or set; a map as its names and values in turn.
    Array(Vec<Value>),
    /// Sent without being asked for.
    Push(Vec<Value>),
    /// Nothing.
    Null,
}

/// The bytes are no reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct NoReply;

impl Value {
    /// The elements of an array.
    pub(super) fn items(&self) -> &[Value] {
        match self {
            Value::Array(items) | Value::Push(items) => items,
            _ => &[],
        }
    }

    /// The bytes of a string.
    pub(super) fn bytes(&self) -> Option<&[u8]> {
        match self {
            Value::Bulk(bytes) => Some(bytes),
            Value::Line(text) => Some(text.as_bytes()),
            _ => None,
        }
    }

    /// The text of a string.
    pub(super) fn text(&self) -> Option<&str> {
        self.bytes().and_then(|bytes| std::str::from_utf8(bytes).ok())
    }
}

/// The reply at the beginning of `buf` and its length; none while it is not whole.
pub(super) fn parse(buf: &[u8]) -> Result<Option<(Value, usize)>, NoReply> {
    let mut at = 0;
    Ok(value(buf, &mut at, 0)?.map(|value| (value, at)))
}

fn value(buf: &[u8], at: &mut usize, depth: u8) -> Result<Option<Value>, NoReply> {
    if depth > DEPTH_MAX {
        return Err(NoReply);
    }
    let Some(end) = memchr::memchr(b'\n', &buf[*at..]).map(|i| *at + i) else { return Ok(None) };
    let line = buf[*at..end].strip_suffix(b"\r").ok_or(NoReply)?;
    let (kind, rest) = line.split_first().ok_or(NoReply)?;
    *at = end + 1;
    let text = || String::from_utf8_lossy(rest).into_owned();
    let number = || std::str::from_utf8(rest).ok().and_then(|n| n.parse::<i64>().ok());
    let len = || number().filter(|len| *len <= LEN_MAX).ok_or(NoReply);
    Ok(Some(match kind {
        b'+' | b',' | b'#' | b'(' => Value::Line(text()),
        b'-' => Value::Error(text()),
        b':' => Value::Int(number().ok_or(NoReply)?),
        b'_' => Value::Null,
        b'$' | b'=' => match usize::try_from(len()?) {
            Err(_) => Value::Null,
            Ok(len) => {
                let Some(bytes) = buf.get(*at..*at + len + 2) else { return Ok(None) };
                *at += len + 2;
                Value::Bulk(bytes[..len].to_vec())
            }
        },
        b'*' | b'~' | b'>' | b'%' => {
            let Ok(len) = usize::try_from(len()?) else { return Ok(Some(Value::Null)) };
            let count = if *kind == b'%' { len * 2 } else { len };
            let mut items = Vec::new();
            for _ in 0..count {
                match value(buf, at, depth + 1)? {
                    Some(item) => items.push(item),
                    None => return Ok(None),
                }
            }
            if *kind == b'>' { Value::Push(items) } else { Value::Array(items) }
        }
        _ => return Err(NoReply),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replies_are_read_when_they_are_whole() {
        let whole =
            b">4\r\n$8\r\npmessage\r\n$1\r\n*\r\n$18\r\n__keyevent@0__:new\r\n$1\r\nk\r\n:7\r\n";
        let push = whole.len() - 4;
        for len in 0..push {
            assert_eq!(parse(&whole[..len]), Ok(None), "{len}");
        }
        let (value, len) = parse(whole).unwrap().unwrap();
        assert_eq!((len, value.items().len()), (push, 4));
        assert_eq!(value.items()[3].bytes(), Some(&b"k"[..]));
        assert_eq!(parse(&whole[push..]), Ok(Some((Value::Int(7), 4))));
        let map = parse(b"%1\r\n+proto\r\n:3\r\n").unwrap().unwrap().0;
        assert_eq!(map, Value::Array(vec![Value::Line("proto".into()), Value::Int(3)]));
        assert_eq!(parse(b"$-1\r\n").unwrap().unwrap().0, Value::Null);
        assert_eq!(parse(b"-ERR no\r\n").unwrap().unwrap().0, Value::Error("ERR no".into()));
    }

    #[test]
    fn noise_is_no_reply() {
        let deep = b"*1\r\n".repeat(20);
        for bad in
            [&b"hello\r\n"[..], b"$x\r\n", b":\r\n", b"\r\n", b"+x\n", b"$99999999999\r\n", &deep]
        {
            assert_eq!(parse(bad), Err(NoReply), "{}", bad.escape_ascii());
        }
    }
}
