//! One of the store's 256 parts: a table of keys with everything that belongs to it.
//!
//! A shard knows the life of a key: it appears, is changed, expires, is evicted, goes. Every
//! change runs through [`Shard::commit`] or a function that removes, so that accounting, versions,
//! expiry and events cannot be forgotten by a command.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;

use super::blob::Blob;
use super::dict::{Dict, Entry, hash_of};
use super::events::{EventRing, PresenceEvent};
use super::marks::Marks;
use super::settings::{StoreCounters, StoreSettings};
use super::stamps::{Tombstones, Turn};
use super::usage::{SHARDS, Unreported, Usage};
use super::value::Value;
use super::waiters::{Waiters, Woken};
use crate::stamp::{Stamp, Stamping};

/// Memory is charged to a key in units of this many bytes, so that 32 bits reach 64 GiB.
const CHARGE_UNIT: usize = 16;

/// The access clock's tick: 128 ms. Its 32 bits turn over after 17 years.
const ACCESS_SHIFT: u32 = 7;

/// What a key holds, and what the store knows about it.
#[derive(Debug)]
pub(super) struct Record {
    pub(super) value: Value,
    /// Milliseconds since the epoch; 0 is never.
    expire_at_ms: u64,
    /// Number of the change that made this state; unique in the shard.
    version: u64,
    /// Of the last write that had one.
    stamp: Stamp,
    /// Access clock at the last use.
    access: u32,
    /// A memcache client's flags; 0 for everybody else.
    pub(super) flags: u32,
    pub(super) marks: Marks,
    /// Memory charged, in units of [`CHARGE_UNIT`].
    charged: u32,
}

impl Record {
    pub(super) fn expire_at_ms(&self) -> u64 {
        self.expire_at_ms
    }

    pub(super) fn version(&self) -> u64 {
        self.version
    }
}

/// The keys of one shard.
#[derive(Debug)]
pub(super) struct Shard {
    keys: Dict<Record>,
    /// When something may expire: (milliseconds, hash of the key), oldest first. May hold times
    /// that are no longer true; they are dropped when they come up.
    due: BinaryHeap<Reverse<(u64, u32)>>,
    volatile: usize,
    version: u64,
    turn: Turn,
    tombstones: Tombstones,
    bytes: usize,
    unreported: Unreported,
    usage: Arc<Usage>,
    counters: StoreCounters,
    pub(super) rng: fastrand::Rng,
    pub(super) events: EventRing,
    pub(super) waiters: Waiters,
}

impl Shard {
    pub(super) fn new(
        settings: &StoreSettings,
        (usage, woken): (Arc<Usage>, Arc<Woken>),
        number: u64,
    ) -> Shard {
        Shard {
            keys: Dict::default(),
            due: BinaryHeap::new(),
            volatile: 0,
            version: 0,
            turn: Turn::default(),
            tombstones: Tombstones::new(
                settings.tombstones_max.div_ceil(SHARDS),
                settings.tombstone_age_ms,
            ),
            bytes: 0,
            unreported: Unreported::default(),
            usage,
            counters: StoreCounters::default(),
            // Neighbouring seeds would give related sequences.
            rng: fastrand::Rng::with_seed(settings.seed ^ number.wrapping_mul(0x9e37_79b9)),
            events: EventRing::new(settings.events_max),
            waiters: Waiters::new(woken),
        }
    }

    /// A command begins.
    #[inline]
    pub(super) fn begin(&mut self, stamping: &Stamping, now_ms: u64) {
        self.turn = Turn::new(stamping, self.version, now_ms);
    }

    /// The command at hand.
    pub(super) fn turn(&self) -> &Turn {
        &self.turn
    }

    /// Position of a key that is alive; one whose time is over goes now.
    #[inline]
    pub(super) fn find(&mut self, hash: u32, key: &[u8], now_ms: u64) -> Option<usize> {
        let at = self.find_alive(hash, key, now_ms);
        if self.turn.wanted {
            let stamp = self.stamp_of(at, key);
            self.turn.meet(stamp);
        }
        at
    }

    fn stamp_of(&self, at: Option<usize>, key: &[u8]) -> Stamp {
        match at {
            Some(at) => self.keys.at(at).value.stamp.max(Stamp::OLDEST),
            None if self.tombstones.is_empty() => Stamp::NONE,
            None => self.tombstones.of(hash_of(key)),
        }
    }

    #[inline]
    fn find_alive(&mut self, hash: u32, key: &[u8], now_ms: u64) -> Option<usize> {
        let at = self.keys.find_hashed(hash, key)?;
        let record = self.keys.at_mut(at);
        record.access = (now_ms >> ACCESS_SHIFT) as u32;
        let expired = record.expire_at_ms != 0 && now_ms > record.expire_at_ms;
        if expired {
            self.expire_at(at);
            return None;
        }
        match &record.value {
            Value::Hash(hash) if hash.next_expiry_ms() != 0 => self.purge_fields(at, now_ms),
            _ => Some(at),
        }
    }

    /// As [`Shard::find`], and counts a hit or a miss.
    #[inline]
    pub(super) fn find_counted(&mut self, hash: u32, key: &[u8], now_ms: u64) -> Option<usize> {
        let at = self.find(hash, key, now_ms);
        match at {
            Some(_) => self.counters.hits += 1,
            None => self.counters.misses += 1,
        }
        at
    }

    /// The same for a command that only asks about the key, which is no use of it.
    pub(super) fn look(&mut self, hash: u32, key: &[u8], now_ms: u64) -> Option<usize> {
        let used = self.keys.find_hashed(hash, key).map(|at| self.keys.at(at).value.access);
        let at = self.find_counted(hash, key, now_ms)?;
        let record = self.keys.at_mut(at);
        record.access = used.unwrap_or(record.access);
        Some(at)
    }

    #[inline]
    pub(super) fn record(&self, at: usize) -> &Record {
        &self.keys.at(at).value
    }

    /// The record to change; [`Shard::commit`] must follow when it was.
    #[inline]
    pub(super) fn record_mut(&mut self, at: usize) -> &mut Record {
        self.keys.at_mut(at)
    }

    pub(super) fn len(&self) -> usize {
        self.keys.len()
    }

    /// True when the command at hand must not write the whole value of `key`, which is at `at`:
    /// that was written later. Of two writes of one stamp the string with the greater digest
    /// stays, and a value stays before a removal (`value` is `None`), so that all replicas end
    /// with the same one.
    pub(super) fn outruns(&mut self, at: Option<usize>, key: &[u8], value: Option<&[u8]>) -> bool {
        let own = self.turn.own;
        if own.is_none() {
            return false;
        }
        let last = self.stamp_of(at, key);
        let outrun = match at.map(|at| &self.keys.at(at).value) {
            Some(record) if own == last && record.version <= self.turn.since => {
                match (&record.value, value) {
                    (Value::Str(old), Some(new)) => hash_of(new) < hash_of(old.as_slice()),
                    (_, Some(_)) => false,
                    (_, None) => true,
                }
            }
            _ => own < last,
        };
        self.turn.outrun |= outrun;
        outrun
    }

    /// Lets the command at hand follow the last write of `key`, whatever its own stamp says: its
    /// outcome depends on what is there.
    pub(super) fn follow(&mut self, at: Option<usize>, key: &[u8]) {
        let last = self.stamp_of(at, key);
        if !self.turn.own.is_none() && self.turn.own <= last {
            self.turn.own = last.next();
        }
    }

    /// Notes that `key`, which is absent, was removed.
    pub(super) fn note_removal(&mut self, key: &[u8]) {
        if !self.turn.own.is_none() {
            self.tombstones.add(hash_of(key), self.turn.own, self.turn.now_ms);
        }
    }

    /// Adds a key that is not there.
    pub(super) fn insert(&mut self, hash: u32, key: &[u8], value: Value, now_ms: u64) -> usize {
        let record = Record {
            value,
            expire_at_ms: 0,
            version: 0,
            stamp: Stamp::NONE,
            access: (now_ms >> ACCESS_SHIFT) as u32,
            flags: 0,
            marks: Marks::default(),
            charged: 0,
        };
        let at = self.keys.push_hashed(hash, Blob::new(key), record);
        if self.events.is_on() {
            self.events.push(PresenceEvent::Appeared(key.into()));
        }
        if !self.tombstones.is_empty() {
            let hash = hash_of(key);
            if self.tombstones.of(hash) <= self.turn.own {
                self.tombstones.remove(hash);
            }
        }
        self.usage.add(&mut self.unreported, 0, 1);
        self.commit(at);
        at
    }

    /// Books a change of the value at `at`: version, memory, field expiry. A collection that was
    /// emptied goes.
    #[inline]
    pub(super) fn commit(&mut self, at: usize) {
        self.version += 1;
        let Entry { key, value, .. } = self.keys.at(at);
        if value.value.is_spent() {
            self.remove_at(at);
            return;
        }
        self.waiters.key_written(key.as_slice());
        let bytes = size_of::<Entry<Record>>() + key.heap_bytes() + value.value.heap_bytes();
        let field_due = match &value.value {
            Value::Hash(hash) => hash.next_expiry_ms(),
            Value::Str(_) | Value::List(_) | Value::Set(_) | Value::ZSet(_) => 0,
        };
        let (version, stamp) = (self.version, self.turn.own);
        let record = self.keys.at_mut(at);
        record.version = version;
        record.stamp = record.stamp.max(stamp);
        let charged = bytes.div_ceil(CHARGE_UNIT) as u32;
        let change = i64::from(charged) - i64::from(record.charged);
        record.charged = charged;
        if change != 0 {
            self.charge(change * CHARGE_UNIT as i64, 0);
        }
        if field_due != 0 {
            self.push_due(field_due, self.keys.hash_at(at));
        }
    }

    /// Sets when a key goes, in milliseconds since the epoch; 0 is never.
    pub(super) fn set_expiry(&mut self, at: usize, expire_at_ms: u64) {
        let record = self.keys.at_mut(at);
        if record.expire_at_ms == expire_at_ms {
            return;
        }
        self.volatile -= usize::from(record.expire_at_ms != 0);
        self.volatile += usize::from(expire_at_ms != 0);
        record.expire_at_ms = expire_at_ms;
        if expire_at_ms != 0 {
            self.push_due(expire_at_ms, self.keys.hash_at(at));
        }
    }

    /// Removes a key and returns what it held.
    pub(super) fn remove_at(&mut self, at: usize) -> Record {
        let Entry { key, value, .. } = self.keys.at(at);
        let stamp = value.stamp.max(self.turn.own);
        if !stamp.is_none() {
            self.tombstones.add(hash_of(key.as_slice()), stamp, self.turn.now_ms);
        }
        self.take_out(at)
    }

    fn take_out(&mut self, at: usize) -> Record {
        let Entry { key, value, .. } = self.keys.remove_at(at);
        self.version += 1;
        self.volatile -= usize::from(value.expire_at_ms != 0);
        self.charge(-i64::from(value.charged) * CHARGE_UNIT as i64, -1);
        if self.events.is_on() {
            self.events.push(PresenceEvent::Went(key.as_slice().into()));
        }
        value
    }

    /// Removes every key. They come back to be dropped when the shard is no longer locked.
    #[must_use = "many keys take long to drop"]
    pub(super) fn clear(&mut self) -> Dict<Record> {
        let keys = self.keys.len() as i64;
        let removed = std::mem::take(&mut self.keys);
        self.due = BinaryHeap::new();
        self.tombstones.add_all(self.turn.own, self.turn.now_ms);
        self.volatile = 0;
        self.version += 1;
        self.charge(-(self.bytes as i64), -keys);
        self.events.push(PresenceEvent::Cleared);
        removed
    }

    /// Expires what is due, at most `budget` keys and fields' hashes; returns how many were
    /// looked at.
    pub(super) fn sweep(&mut self, now_ms: u64, budget: usize) -> usize {
        self.begin(&Stamping::default(), now_ms);
        self.tombstones.forget_old(now_ms);
        for looked_at in 0..budget {
            match self.due.peek() {
                Some(&Reverse((due_ms, hash))) if due_ms < now_ms => {
                    self.due.pop();
                    self.expire_due(due_ms, hash, now_ms);
                }
                _ => return looked_at,
            }
        }
        budget
    }

    /// Evicts the longest unused of a few random keys; false when none may go.
    pub(super) fn evict_one(&mut self, samples: usize, volatile_only: bool, now_ms: u64) -> bool {
        if self.keys.is_empty() || (volatile_only && self.volatile == 0) {
            return false;
        }
        let now = (now_ms >> ACCESS_SHIFT) as u32;
        let rng = &mut self.rng;
        let picks = (0..samples).map(|_| rng.usize(..self.keys.len()));
        let allowed = picks.filter(|&at| {
            let record = &self.keys.at(at).value;
            !volatile_only || record.expire_at_ms != 0
        });
        let oldest = allowed.max_by_key(|&at| now.wrapping_sub(self.keys.at(at).value.access));
        if let Some(at) = oldest {
            // It is forgotten, not removed: other replicas still have it.
            self.take_out(at);
            self.counters.evicted += 1;
        }
        oldest.is_some()
    }

    /// One step of a scan over live keys, as [`Dict::scan`].
    pub(super) fn scan(
        &self,
        cursor: usize,
        count: usize,
        now_ms: u64,
        mut f: impl FnMut(&Entry<Record>),
    ) -> usize {
        self.keys.scan(cursor, count, |entry| {
            let due = entry.value.expire_at_ms;
            if due == 0 || now_ms <= due {
                f(entry);
            }
        })
    }

    /// A random key that is alive; keys met whose time is over go.
    pub(super) fn random(&mut self, now_ms: u64) -> Option<&[u8]> {
        while !self.keys.is_empty() {
            let at = self.rng.usize(..self.keys.len());
            let due = self.keys.at(at).value.expire_at_ms;
            if due == 0 || now_ms <= due {
                return Some(self.keys.at(at).key.as_slice());
            }
            self.expire_at(at);
        }
        None
    }

    /// Times that wait to come up, true and old ones.
    #[cfg(test)]
    pub(super) fn due_len(&self) -> usize {
        self.due.len()
    }

    /// Figures of this shard.
    pub(super) fn counters(&self) -> StoreCounters {
        StoreCounters {
            keys: self.keys.len() as u64,
            volatile_keys: self.volatile as u64,
            bytes: self.bytes as u64,
            tombstones: self.tombstones.len() as u64,
            ..self.counters
        }
    }

    /// How long a key was not used, in milliseconds.
    pub(super) fn idle_ms(&self, hash: u32, key: &[u8], now_ms: u64) -> Option<u64> {
        let at = self.keys.find_hashed(hash, key)?;
        let now = (now_ms >> ACCESS_SHIFT) as u32;
        let ticks = now.wrapping_sub(self.keys.at(at).value.access);
        Some(u64::from(ticks) << ACCESS_SHIFT)
    }

    fn charge(&mut self, bytes: i64, keys: i64) {
        self.bytes = (self.bytes as i64 + bytes) as usize;
        self.usage.add(&mut self.unreported, bytes, keys);
    }

    fn expire_at(&mut self, at: usize) {
        self.remove_at(at);
        self.counters.expired += 1;
    }

    /// Removes the fields of a hash whose time is over; `None` when the key went with them.
    fn purge_fields(&mut self, at: usize, now_ms: u64) -> Option<usize> {
        let Value::Hash(hash) = &mut self.keys.at_mut(at).value else {
            return Some(at);
        };
        let expected = hash.next_expiry_ms();
        let purged = hash.purge(now_ms);
        let (next, spent) = (hash.next_expiry_ms(), hash.len() == 0);
        if purged > 0 {
            self.commit(at);
        } else if next != expected && next != 0 {
            self.push_due(next, self.keys.hash_at(at));
        }
        (!spent).then_some(at)
    }

    fn expire_due(&mut self, due_ms: u64, hash: u32, now_ms: u64) {
        let key_due = |r: &Record| r.expire_at_ms == due_ms;
        let fields_due =
            |r: &Record| matches!(&r.value, Value::Hash(h) if h.next_expiry_ms() == due_ms);
        if let Some(at) = self.keys.find_by(hash, key_due) {
            self.expire_at(at);
        } else if let Some(at) = self.keys.find_by(hash, fields_due) {
            self.purge_fields(at, now_ms);
        }
    }

    fn push_due(&mut self, due_ms: u64, hash: u32) {
        // Keys set again and again leave old times behind: start over before they pile up.
        if self.due.len() > 2 * self.keys.len() + 64 {
            self.rebuild_due();
        }
        self.due.push(Reverse((due_ms, hash)));
    }

    fn rebuild_due(&mut self) {
        let mut due = std::mem::take(&mut self.due).into_vec();
        due.clear();
        for at in 0..self.keys.len() {
            let Entry { value, .. } = self.keys.at(at);
            let hash = self.keys.hash_at(at);
            if value.expire_at_ms != 0 {
                due.push(Reverse((value.expire_at_ms, hash)));
            }
            match &value.value {
                Value::Hash(h) if h.next_expiry_ms() != 0 => {
                    due.push(Reverse((h.next_expiry_ms(), hash)));
                }
                _ => {}
            }
        }
        self.due = due.into();
    }
}
