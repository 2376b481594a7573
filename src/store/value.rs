//! The five types a key can hold.

use std::collections::VecDeque;

use super::blob::Blob;
use super::dict::{Dict, Entry};
use super::hash_value::Hash;
use super::zset_value::ZSet;

/// The value of a key.
#[derive(Clone, Debug)]
pub(super) enum Value {
    Str(Blob),
    List(Box<List>),
    Hash(Box<Hash>),
    Set(Box<Set>),
    ZSet(Box<ZSet>),
}

impl Value {
    /// The name TYPE gives.
    pub(super) fn type_name(&self) -> &'static str {
        match self {
            Value::Str(_) => "string",
            Value::List(_) => "list",
            Value::Hash(_) => "hash",
            Value::Set(_) => "set",
            Value::ZSet(_) => "zset",
        }
    }

    /// Heap memory in bytes, as accounting counts it.
    pub(super) fn heap_bytes(&self) -> usize {
        match self {
            Value::Str(text) => text.heap_bytes(),
            Value::List(list) => size_of::<List>() + list.heap_bytes(),
            Value::Hash(hash) => size_of::<Hash>() + hash.heap_bytes(),
            Value::Set(set) => size_of::<Set>() + set.members.heap_bytes(),
            Value::ZSet(zset) => size_of::<ZSet>() + zset.heap_bytes(),
        }
    }

    /// True for a collection without elements: its key must go.
    pub(super) fn is_spent(&self) -> bool {
        match self {
            Value::Str(_) => false,
            Value::List(list) => list.is_spent(),
            Value::Hash(hash) => hash.is_spent(),
            Value::Set(set) => set.is_spent(),
            Value::ZSet(zset) => zset.is_spent(),
        }
    }
}

/// A type of value, for code that is the same for all of them.
pub(super) trait Kind: Default {
    /// The value as this type.
    fn of(value: &Value) -> Option<&Self>;
    /// The value as this type, to change.
    fn of_mut(value: &mut Value) -> Option<&mut Self>;
    /// A value of this type.
    fn into_value(self) -> Value;
    /// True when nothing is left and the key must go.
    fn is_spent(&self) -> bool;
}

macro_rules! kind {
    ($kind:ty, $variant:ident, $wrap:expr, $spent:expr) => {
        impl Kind for $kind {
            fn of(value: &Value) -> Option<&$kind> {
                match value {
                    Value::$variant(inner) => Some(inner),
                    _ => None,
                }
            }

            fn of_mut(value: &mut Value) -> Option<&mut $kind> {
                match value {
                    Value::$variant(inner) => Some(inner),
                    _ => None,
                }
            }

            fn into_value(self) -> Value {
                Value::$variant($wrap(self))
            }

            fn is_spent(&self) -> bool {
                $spent(self)
            }
        }
    };
}

kind!(Blob, Str, std::convert::identity, |_: &Blob| false);
kind!(List, List, Box::new, |list: &List| list.items.is_empty());
kind!(Hash, Hash, Box::new, |hash: &Hash| hash.len() == 0);
kind!(Set, Set, Box::new, |set: &Set| set.members.is_empty());
kind!(ZSet, ZSet, Box::new, |zset: &ZSet| zset.len() == 0);

/// A list: a ring buffer of blobs, so both ends and any index are constant time.
#[derive(Clone, Debug, Default)]
pub(super) struct List {
    items: VecDeque<Blob>,
    item_bytes: usize,
}

impl List {
    pub(super) fn len(&self) -> usize {
        self.items.len()
    }

    pub(super) fn get(&self, at: usize) -> Option<&Blob> {
        self.items.get(at)
    }

    pub(super) fn iter(&self) -> std::collections::vec_deque::Iter<'_, Blob> {
        self.items.iter()
    }

    pub(super) fn range(&self, from: usize, to: usize) -> impl Iterator<Item = &Blob> {
        self.items.range(from..to)
    }

    pub(super) fn push(&mut self, end: End, item: Blob) {
        self.item_bytes += item.heap_bytes();
        match end {
            End::Left => self.items.push_front(item),
            End::Right => self.items.push_back(item),
        }
    }

    pub(super) fn pop(&mut self, end: End) -> Option<Blob> {
        let item = match end {
            End::Left => self.items.pop_front(),
            End::Right => self.items.pop_back(),
        }?;
        self.item_bytes -= item.heap_bytes();
        Some(item)
    }

    pub(super) fn insert(&mut self, at: usize, item: Blob) {
        self.item_bytes += item.heap_bytes();
        self.items.insert(at, item);
    }

    pub(super) fn set(&mut self, at: usize, data: &[u8]) {
        self.item_bytes -= self.items[at].heap_bytes();
        self.items[at].set(data);
        self.item_bytes += self.items[at].heap_bytes();
    }

    /// Keeps the items from `from` up to, not including, `to`.
    pub(super) fn keep(&mut self, from: usize, to: usize) {
        self.items.truncate(to);
        self.items.drain(..from.min(self.items.len()));
        self.item_bytes = self.items.iter().map(Blob::heap_bytes).sum();
    }

    /// Removes up to `max` items equal to `data`, from the given end; returns how many.
    pub(super) fn remove_equal(&mut self, data: &[u8], max: usize, from: End) -> usize {
        let mut skip = match from {
            End::Left => 0,
            End::Right => {
                let all = self.items.iter().filter(|i| i.as_slice() == data).count();
                all.saturating_sub(max)
            }
        };
        let (mut removed, mut freed) = (0, 0);
        self.items.retain(|item| {
            if removed == max || item.as_slice() != data {
                return true;
            }
            if skip > 0 {
                skip -= 1;
                return true;
            }
            removed += 1;
            freed += item.heap_bytes();
            false
        });
        self.item_bytes -= freed;
        removed
    }

    fn heap_bytes(&self) -> usize {
        self.items.len() * size_of::<Blob>() + self.item_bytes
    }
}

/// An end of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    Left,
    Right,
}

/// A set of members.
#[derive(Clone, Debug, Default)]
pub(super) struct Set {
    members: Dict<()>,
}

impl Set {
    pub(super) fn len(&self) -> usize {
        self.members.len()
    }

    pub(super) fn contains(&self, member: &[u8]) -> bool {
        self.members.find(member).is_some()
    }

    /// Adds a member; false when it was there.
    pub(super) fn insert(&mut self, member: &[u8]) -> bool {
        let absent = !self.contains(member);
        if absent {
            self.members.push(Blob::new(member), ());
        }
        absent
    }

    /// Removes a member; false when it was not there.
    pub(super) fn remove(&mut self, member: &[u8]) -> bool {
        self.members.remove(member).is_some()
    }

    /// Keeps the members that `keep` approves.
    pub(super) fn retain(&mut self, keep: impl Fn(&[u8]) -> bool) {
        // Downwards, so that a removal moves only what was looked at already.
        for at in (0..self.members.len()).rev() {
            if !keep(self.members.at(at).key.as_slice()) {
                self.members.remove_at(at);
            }
        }
    }

    /// Removes the member at a position.
    pub(super) fn remove_at(&mut self, at: usize) -> Blob {
        self.members.remove_at(at).key
    }

    /// Member at a position; positions are dense, so a random one is a fair pick.
    pub(super) fn at(&self, at: usize) -> &Blob {
        &self.members.at(at).key
    }

    pub(super) fn iter(&self) -> impl ExactSizeIterator<Item = &Blob> {
        self.members.iter().map(|e| &e.key)
    }

    /// One step of a scan, as [`Dict::scan`].
    pub(super) fn scan(&self, cursor: usize, count: usize, f: impl FnMut(&Entry<()>)) -> usize {
        self.members.scan(cursor, count, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_three_words() {
        assert_eq!(size_of::<Value>(), 24);
    }

    #[test]
    fn list_accounting_follows_every_change() {
        let big = [b'x'; 100];
        let mut list = List::default();
        for n in 0..10u8 {
            list.push(if n % 2 == 0 { End::Left } else { End::Right }, Blob::new(&big));
        }
        list.insert(3, Blob::new(b"small"));
        list.set(3, &big);
        list.set(0, b"a");
        assert_eq!(list.remove_equal(&big, 2, End::Right), 2);
        list.keep(1, 4);
        assert_eq!((list.len(), list.item_bytes), (3, 300));
        while list.pop(End::Left).is_some() {}
        assert_eq!(list.heap_bytes(), 0);
    }
}
