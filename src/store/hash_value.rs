//! A hash: fields, each with a value and perhaps an expiry of its own.

use super::blob::Blob;
use super::dict::{Dict, Entry};

/// A field's value and its expiry in milliseconds since the epoch; 0 is never.
#[derive(Clone, Debug)]
pub(super) struct Field {
    pub(super) value: Blob,
    pub(super) expire_at_ms: u64,
}

/// Fields of one key.
#[derive(Clone, Debug, Default)]
pub(super) struct Hash {
    fields: Dict<Field>,
    value_bytes: usize,
    volatile: usize,
    /// No field expires before this; 0 when none expires.
    next_expiry_ms: u64,
}

impl Hash {
    pub(super) fn len(&self) -> usize {
        self.fields.len()
    }

    pub(super) fn get(&self, field: &[u8]) -> Option<&Field> {
        self.fields.get(field)
    }

    pub(super) fn at(&self, at: usize) -> &Entry<Field> {
        self.fields.at(at)
    }

    pub(super) fn iter(&self) -> impl ExactSizeIterator<Item = &Entry<Field>> {
        self.fields.iter()
    }

    /// One step of a scan, as [`Dict::scan`].
    pub(super) fn scan(&self, cursor: usize, count: usize, f: impl FnMut(&Entry<Field>)) -> usize {
        self.fields.scan(cursor, count, f)
    }

    /// Sets a field and forgets its expiry; true when the field is new.
    pub(super) fn set(&mut self, field: &[u8], value: &[u8]) -> bool {
        let Some(at) = self.fields.find(field) else {
            self.push_new(field, Blob::new(value));
            return true;
        };
        self.set_expiry_at(at, 0);
        self.change_at(at, |old| old.set(value));
        false
    }

    /// Sets a field and keeps its expiry.
    pub(super) fn set_keeping_expiry(&mut self, field: &[u8], value: Blob) {
        match self.fields.find(field) {
            Some(at) => self.change_at(at, |old| *old = value),
            None => self.push_new(field, value),
        }
    }

    pub(super) fn remove(&mut self, field: &[u8]) -> Option<Blob> {
        let at = self.fields.find(field)?;
        self.set_expiry_at(at, 0);
        let removed = self.fields.remove_at(at).value.value;
        self.value_bytes -= removed.heap_bytes();
        Some(removed)
    }

    /// Sets the expiry of a field that is there; 0 is never.
    pub(super) fn set_expiry(&mut self, field: &[u8], expire_at_ms: u64) {
        if let Some(at) = self.fields.find(field) {
            self.set_expiry_at(at, expire_at_ms);
        }
    }

    /// When the next field may expire; 0 when none does.
    pub(super) fn next_expiry_ms(&self) -> u64 {
        self.next_expiry_ms
    }

    /// Removes the fields whose time is over (like a key, a field lives through its last
    /// millisecond); returns how many.
    pub(super) fn purge(&mut self, now_ms: u64) -> usize {
        if self.next_expiry_ms == 0 || self.next_expiry_ms >= now_ms {
            return 0;
        }
        let before = self.fields.len();
        let mut next = 0;
        // Downwards, so that a removal moves only what was looked at already.
        for at in (0..before).rev() {
            match self.fields.at(at).value.expire_at_ms {
                0 => {}
                due if due < now_ms => {
                    let removed = self.fields.remove_at(at).value.value;
                    self.value_bytes -= removed.heap_bytes();
                    self.volatile -= 1;
                }
                later if next == 0 || later < next => next = later,
                _ => {}
            }
        }
        self.next_expiry_ms = next;
        before - self.fields.len()
    }

    pub(super) fn heap_bytes(&self) -> usize {
        self.fields.heap_bytes() + self.value_bytes
    }

    fn push_new(&mut self, field: &[u8], value: Blob) {
        self.value_bytes += value.heap_bytes();
        let field_value = Field { value, expire_at_ms: 0 };
        self.fields.push(Blob::new(field), field_value);
    }

    fn change_at(&mut self, at: usize, change: impl FnOnce(&mut Blob)) {
        let value = &mut self.fields.at_mut(at).value;
        self.value_bytes -= value.heap_bytes();
        change(value);
        self.value_bytes += value.heap_bytes();
    }

    fn set_expiry_at(&mut self, at: usize, expire_at_ms: u64) {
        let field = self.fields.at_mut(at);
        self.volatile -= usize::from(field.expire_at_ms != 0);
        self.volatile += usize::from(expire_at_ms != 0);
        field.expire_at_ms = expire_at_ms;
        if self.volatile == 0 {
            self.next_expiry_ms = 0;
        } else if expire_at_ms != 0 {
            self.next_expiry_ms = match self.next_expiry_ms {
                0 => expire_at_ms,
                next => next.min(expire_at_ms),
            };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_go_at_their_time_and_not_before() {
        let mut hash = Hash::default();
        for n in 0..50u64 {
            let field = n.to_string();
            hash.set(field.as_bytes(), &[b'v'; 100]);
            hash.set_expiry(field.as_bytes(), if n % 2 == 0 { 100 + n } else { 0 });
        }
        assert_eq!(hash.next_expiry_ms(), 100);
        assert_eq!(hash.purge(100), 0);
        assert_eq!(hash.purge(101), 1);
        assert_eq!(hash.next_expiry_ms(), 102);
        assert!(!hash.set(b"2", b"again"), "a new value forgets the expiry");
        assert_eq!(hash.purge(200), 23);
        assert_eq!((hash.len(), hash.next_expiry_ms()), (26, 0));
        for n in 0..50u64 {
            hash.remove(n.to_string().as_bytes());
        }
        assert_eq!(hash.heap_bytes(), 0);
    }
}
