//! Reading the value of a DUMP payload.
//!
//! The bytes come from a client or another node, so nothing in them is believed: counts are never
//! reserved for, every element takes bytes that must be there, and what makes no sense is `None`.

use super::blob::Blob;
use super::dump::kind;
use super::dump_packed::{self, Packed};
use super::hash_value::Hash;
use super::value::{End, List, Set, Value};
use super::zset_value::ZSet;

/// The value that `body` (type byte and value) holds, all of it.
pub(super) fn value(body: &[u8], string_bytes_max: usize) -> Option<Value> {
    let (&kind, rest) = body.split_first()?;
    let mut reader = Reader { rest, string_bytes_max };
    let value = reader.value(kind)?;
    (reader.rest.is_empty() && !value.is_spent()).then_some(value)
}

/// What is left of a payload.
struct Reader<'a> {
    rest: &'a [u8],
    string_bytes_max: usize,
}

/// A length, or the number of a special string encoding.
enum Length {
    Bytes(u64),
    Encoded(u8),
}

impl<'a> Reader<'a> {
    fn value(&mut self, kind: u8) -> Option<Value> {
        match kind {
            kind::STRING => Some(Value::Str(Blob::from_vec(self.string()?))),
            kind::LIST => self.list(Reader::item),
            kind::LIST_QUICKLIST_2 => self.list(Reader::node),
            kind::SET => self.set(),
            kind::SET_INTSET => set_of(dump_packed::intset(&self.string()?)?),
            kind::SET_LISTPACK => set_of(dump_packed::listpack(&self.string()?)?),
            kind::HASH => self.hash(false),
            kind::HASH_METADATA => self.hash(true),
            kind::HASH_LISTPACK => hash_of(dump_packed::listpack(&self.string()?)?),
            kind::ZSET_2 => self.zset(),
            kind::ZSET_LISTPACK => zset_of(dump_packed::listpack(&self.string()?)?),
            _ => None,
        }
    }

    /// A list whose parts `part` appends.
    fn list(&mut self, part: fn(&mut Self, &mut List) -> Option<()>) -> Option<Value> {
        let mut list = List::default();
        for _ in 0..self.len()? {
            part(self, &mut list)?;
        }
        Some(Value::List(Box::new(list)))
    }

    fn item(&mut self, list: &mut List) -> Option<()> {
        list.push(End::Right, Blob::from_vec(self.string()?));
        Some(())
    }

    /// A node of a list: one plain item, or several packed ones.
    fn node(&mut self, list: &mut List) -> Option<()> {
        const PLAIN: u64 = 1;
        const PACKED: u64 = 2;
        match self.len()? {
            PLAIN => self.item(list),
            PACKED => {
                for item in dump_packed::listpack(&self.string()?)? {
                    list.push(End::Right, Blob::from_vec(item));
                }
                Some(())
            }
            _ => None,
        }
    }

    fn set(&mut self) -> Option<Value> {
        let mut members = Vec::new();
        for _ in 0..self.len()? {
            members.push(self.string()?);
        }
        set_of(members)
    }

    fn hash(&mut self, expiring: bool) -> Option<Value> {
        let first_ms = if expiring { u64::from_le_bytes(self.array()?) } else { 0 };
        let mut hash = Hash::default();
        for _ in 0..self.len()? {
            let after = if expiring { self.len()? } else { 0 };
            let (field, value) = (self.string()?, self.string()?);
            if !hash.set(&field, &value) {
                return None;
            }
            if after != 0 {
                hash.set_expiry(&field, first_ms.checked_add(after - 1)?);
            }
        }
        Some(Value::Hash(Box::new(hash)))
    }

    fn zset(&mut self) -> Option<Value> {
        let mut zset = ZSet::default();
        for _ in 0..self.len()? {
            let member = self.string()?;
            let score = f64::from_le_bytes(self.array()?);
            if score.is_nan() || !zset.set(&member, score) {
                return None;
            }
        }
        Some(Value::ZSet(Box::new(zset)))
    }

    fn take(&mut self, len: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.rest.split_at_checked(len)?;
        self.rest = rest;
        Some(taken)
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.take(N)?.try_into().ok()
    }

    fn length(&mut self) -> Option<Length> {
        let [first] = self.array()?;
        let low = u64::from(first & 0x3f);
        Some(match (first >> 6, first) {
            (0, _) => Length::Bytes(low),
            (1, _) => Length::Bytes(low << 8 | u64::from(self.array::<1>()?[0])),
            (2, 0x80) => Length::Bytes(u32::from_be_bytes(self.array()?).into()),
            (2, 0x81) => Length::Bytes(u64::from_be_bytes(self.array()?)),
            (3, _) => Length::Encoded(first & 0x3f),
            _ => return None,
        })
    }

    fn len(&mut self) -> Option<u64> {
        match self.length()? {
            Length::Bytes(len) => Some(len),
            Length::Encoded(_) => None,
        }
    }

    fn string(&mut self) -> Option<Vec<u8>> {
        const INT8: u8 = 0;
        const INT16: u8 = 1;
        const INT32: u8 = 2;
        const LZF: u8 = 3;
        let int = |n: i64| Some(n.to_string().into_bytes());
        match self.length()? {
            Length::Bytes(len) => Some(self.take(usize::try_from(len).ok()?)?.to_vec()),
            Length::Encoded(INT8) => int(i8::from_le_bytes(self.array()?).into()),
            Length::Encoded(INT16) => int(i16::from_le_bytes(self.array()?).into()),
            Length::Encoded(INT32) => int(i32::from_le_bytes(self.array()?).into()),
            Length::Encoded(LZF) => {
                let (packed, plain) = (self.len()?, self.len()?);
                let plain = usize::try_from(plain).ok().filter(|n| *n <= self.string_bytes_max)?;
                dump_packed::lzf(self.take(usize::try_from(packed).ok()?)?, plain)
            }
            Length::Encoded(_) => None,
        }
    }
}

fn set_of(members: Packed) -> Option<Value> {
    let mut set = Set::default();
    for member in members {
        if !set.insert(&member) {
            return None;
        }
    }
    Some(Value::Set(Box::new(set)))
}

fn hash_of(items: Packed) -> Option<Value> {
    let mut hash = Hash::default();
    for pair in items.chunks(2) {
        let [field, value] = pair else {
            return None;
        };
        if !hash.set(field, value) {
            return None;
        }
    }
    Some(Value::Hash(Box::new(hash)))
}

fn zset_of(items: Packed) -> Option<Value> {
    let mut zset = ZSet::default();
    for pair in items.chunks(2) {
        let [member, score] = pair else {
            return None;
        };
        if !zset.set(member, super::format::parse_f64(score)?) {
            return None;
        }
    }
    Some(Value::ZSet(Box::new(zset)))
}
