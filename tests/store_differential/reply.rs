//! A RESP2 reply as a value, and the ways two of them are compared.

use std::fmt;

/// A reply.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reply {
    Status(String),
    Error(String),
    Int(i64),
    NullBulk,
    Bulk(Vec<u8>),
    NullArray,
    Array(Vec<Reply>),
}

impl Reply {
    /// The reply at the start of `bytes` and its length; `None` while it is incomplete.
    pub fn parse(bytes: &[u8]) -> Option<(Reply, usize)> {
        let line_end = bytes.windows(2).position(|w| w == b"\r\n")?;
        let text = String::from_utf8_lossy(&bytes[1..line_end]).into_owned();
        let mut used = line_end + 2;
        let number = || text.parse::<i64>().expect("a number");
        let reply = match bytes[0] {
            b'+' => Reply::Status(text),
            b'-' => Reply::Error(text),
            b':' => Reply::Int(number()),
            b'$' if number() < 0 => Reply::NullBulk,
            b'$' => {
                let end = used + number() as usize;
                let body = bytes.get(used..end)?.to_vec();
                bytes.get(end..end + 2)?;
                used = end + 2;
                Reply::Bulk(body)
            }
            b'*' if number() < 0 => Reply::NullArray,
            b'*' => {
                let mut items = Vec::new();
                for _ in 0..number() {
                    let (item, n) = Reply::parse(bytes.get(used..)?)?;
                    items.push(item);
                    used += n;
                }
                Reply::Array(items)
            }
            other => panic!("unexpected type byte {other}"),
        };
        Some((reply, used))
    }

    /// The one reply that `bytes` are.
    pub fn parse_whole(bytes: &[u8]) -> Reply {
        let (reply, used) = Reply::parse(bytes).expect("a whole reply");
        assert_eq!(used, bytes.len(), "one reply and no more");
        reply
    }

    pub fn items(&self) -> &[Reply] {
        match self {
            Reply::Array(items) => items,
            other => panic!("{other:?} is no array"),
        }
    }

    pub fn bytes(&self) -> Vec<u8> {
        match self {
            Reply::Bulk(bytes) => bytes.clone(),
            Reply::Status(text) => text.as_bytes().to_vec(),
            other => panic!("{other:?} is no string"),
        }
    }

    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.bytes()).into_owned()
    }

    pub fn int(&self) -> i64 {
        match self {
            Reply::Int(n) => *n,
            _ => 0,
        }
    }

    pub fn is_null(&self) -> bool {
        matches!(self, Reply::NullBulk | Reply::NullArray)
    }

    pub fn error(&self) -> Option<&str> {
        match self {
            Reply::Error(text) => Some(text),
            _ => None,
        }
    }

    /// The same array with its groups of `width` items in a canonical order.
    pub fn sorted(self, width: usize) -> Reply {
        match self {
            Reply::Array(items) => {
                let mut groups: Vec<_> = items.chunks(width).map(<[Reply]>::to_vec).collect();
                groups.sort();
                Reply::Array(groups.concat())
            }
            other => other,
        }
    }

    /// The same sorted array with equal neighbours once.
    pub fn distinct(self, width: usize) -> Reply {
        match self {
            Reply::Array(items) => {
                let mut groups: Vec<_> = items.chunks(width).map(<[Reply]>::to_vec).collect();
                groups.dedup();
                Reply::Array(groups.concat())
            }
            other => other,
        }
    }

    /// Only the sign of a number: for times that go on while the test runs.
    pub fn sign(self) -> Reply {
        match self {
            Reply::Int(n) if n > 0 => Reply::Int(1),
            other => other,
        }
    }

    /// Equality. Servers from 7.2 on write doubles shorter than 7.0 does: with `by_number` texts
    /// that mean the same double are equal. The sign of zero depends on the size of a sorted set
    /// there, so it never counts.
    pub fn equals(&self, other: &Reply, by_number: bool) -> bool {
        match (self, other) {
            (Reply::Array(a), Reply::Array(b)) => {
                a.len() == b.len() && a.iter().zip(b).all(|(a, b)| a.equals(b, by_number))
            }
            (Reply::Bulk(a), Reply::Bulk(b)) if by_number || a == b"-0" || b == b"-0" => {
                let number = |text: &[u8]| String::from_utf8_lossy(text).parse::<f64>().ok();
                a == b || (number(a).is_some() && number(a) == number(b))
            }
            (a, b) => a == b,
        }
    }
}

impl fmt::Debug for Reply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Reply::Status(text) => write!(f, "+{text}"),
            Reply::Error(text) => write!(f, "-{text}"),
            Reply::Int(n) => write!(f, ":{n}"),
            Reply::NullBulk => write!(f, "nil"),
            Reply::Bulk(bytes) => write!(f, "\"{}\"", bytes.escape_ascii()),
            Reply::NullArray => write!(f, "nil array"),
            Reply::Array(items) => f.debug_list().entries(items).finish(),
        }
    }
}
