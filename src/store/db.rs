//! What one command sees: the shards of its keys, locked, and the time.

use std::sync::MutexGuard;

use super::MemoryStore;
use super::blob::Blob;
use super::dict::{Entry, hash_of};
use super::error::CommandError;
use super::marks::Marks;
use super::shard::{Record, Shard};
use super::usage::SHARDS;
use super::value::{Kind, Value};
use crate::stamp::Stamping;

/// The shards a command holds.
pub(super) enum Guards<'a> {
    /// None: the command names no key. It visits shards one by one.
    Visit,
    /// The shard of its only key.
    One(u8, MutexGuard<'a, Shard>),
    /// Several, by rising number.
    Many(Vec<(u8, MutexGuard<'a, Shard>)>),
    /// One at a time: that of the key whose turn it is.
    Turn(Option<(u8, MutexGuard<'a, Shard>)>),
}

/// The store as one command sees it.
pub(super) struct Db<'a> {
    store: &'a MemoryStore,
    guards: Guards<'a>,
    now_ms: u64,
    /// The key whose hash was needed to find the shard, so that it is not computed twice.
    first: &'a [u8],
    first_hash: u64,
    /// What the command is told of stamps, and what it is to tell.
    stamping: &'a mut Stamping,
    /// Large values that were removed: dropped last, when the shards are no longer locked.
    removed: Vec<Record>,
}

/// What an edit did.
pub(super) enum Edit<R> {
    /// The value is another one now.
    Changed(R),
    /// The value is what it was.
    Same(R),
}

impl<R> Edit<R> {
    /// Changed if `changed`.
    pub(super) fn when(changed: bool, result: R) -> Edit<R> {
        match changed {
            true => Edit::Changed(result),
            false => Edit::Same(result),
        }
    }
}

/// Number of the shard that holds keys with this hash.
#[inline]
pub(super) fn shard_of(hash: u64) -> u8 {
    // The low half places the key inside the shard.
    (hash >> 32) as u8
}

impl<'a> Db<'a> {
    pub(super) fn new(
        store: &'a MemoryStore,
        guards: Guards<'a>,
        now_ms: u64,
        first: (&'a [u8], u64),
        stamping: &'a mut Stamping,
    ) -> Db<'a> {
        let (first, first_hash) = first;
        let mut guards = guards;
        match &mut guards {
            Guards::Visit | Guards::Turn(_) => {}
            Guards::One(_, shard) => shard.begin(stamping, now_ms),
            Guards::Many(held) => held.iter_mut().for_each(|(_, s)| s.begin(stamping, now_ms)),
        }
        Db { store, guards, now_ms, first, first_hash, stamping, removed: Vec::new() }
    }

    /// Milliseconds since the epoch.
    pub(super) fn now_ms(&self) -> u64 {
        self.now_ms
    }

    /// The longest string a command may build, in bytes.
    pub(super) fn string_bytes_max(&self) -> usize {
        self.store.settings().string_bytes_max
    }

    /// The value at `key` as `T`, for reading.
    pub(super) fn read<T: Kind>(&mut self, key: &[u8]) -> Result<Option<&T>, CommandError> {
        match self.record(key) {
            Some(record) => T::of(&record.value).map(Some).ok_or(CommandError::WrongType),
            None => Ok(None),
        }
    }

    /// The record at `key`, for reading: counts as a hit or a miss.
    #[inline]
    pub(super) fn record(&mut self, key: &[u8]) -> Option<&Record> {
        let now_ms = self.now_ms;
        let (shard, hash) = self.shard_for(key);
        let at = shard.find_counted(hash, key, now_ms)?;
        Some(shard.record(at))
    }

    /// The same for a command that only asks about the key, which is no use of it.
    pub(super) fn look(&mut self, key: &[u8]) -> Option<&Record> {
        let now_ms = self.now_ms;
        let (shard, hash) = self.shard_for(key);
        let at = shard.look(hash, key, now_ms)?;
        Some(shard.record(at))
    }

    /// The same for a memcache client that takes the value.
    pub(super) fn fetch(&mut self, key: &[u8]) -> Option<&Record> {
        let now_ms = self.now_ms;
        let (shard, hash) = self.shard_for(key);
        let at = shard.find_counted(hash, key, now_ms)?;
        shard.record_mut(at).marks.fetched = true;
        Some(shard.record(at))
    }

    /// The record at `key`, for a command that will write.
    pub(super) fn peek(&mut self, key: &[u8]) -> Option<&Record> {
        let now_ms = self.now_ms;
        let (shard, hash) = self.shard_for(key);
        let at = shard.find(hash, key, now_ms)?;
        Some(shard.record(at))
    }

    /// True when `key` is there.
    pub(super) fn exists(&mut self, key: &[u8]) -> bool {
        self.peek(key).is_some()
    }

    /// Changes the value at `key`, which is made when it is absent. A collection that `edit`
    /// leaves empty is removed. On an error nothing must have been changed.
    pub(super) fn edit<T: Kind, R>(
        &mut self,
        key: &[u8],
        edit: impl FnOnce(&mut T) -> Result<Edit<R>, CommandError>,
    ) -> Result<R, CommandError> {
        let now_ms = self.now_ms;
        let (shard, hash) = self.shard_for(key);
        if let Some(at) = shard.find(hash, key, now_ms) {
            return edit_at(shard, at, edit);
        }
        let mut fresh = T::default();
        match edit(&mut fresh)? {
            Edit::Changed(result) => {
                if !fresh.is_spent() {
                    shard.insert(hash, key, fresh.into_value(), now_ms);
                }
                Ok(result)
            }
            Edit::Same(result) => Ok(result),
        }
    }

    /// Changes the value at `key` if it is there.
    pub(super) fn edit_existing<T: Kind, R>(
        &mut self,
        key: &[u8],
        edit: impl FnOnce(&mut T) -> Result<Edit<R>, CommandError>,
    ) -> Result<Option<R>, CommandError> {
        let now_ms = self.now_ms;
        let (shard, hash) = self.shard_for(key);
        match shard.find(hash, key, now_ms) {
            Some(at) => edit_at(shard, at, edit).map(Some),
            None => Ok(None),
        }
    }

    /// Sets the string at `key`, whatever it held; `expiry` says what becomes of its expiry.
    /// Nothing happens when the key was written later.
    pub(super) fn set_string(&mut self, key: &[u8], value: &[u8], expiry: Expiry) {
        self.set_item(key, value, 0, expiry);
    }

    /// As [`Db::set_string`], with a memcache client's flags. False when nothing happened.
    pub(super) fn set_item(
        &mut self,
        key: &[u8],
        value: &[u8],
        flags: u32,
        expiry: Expiry,
    ) -> bool {
        let now_ms = self.now_ms;
        let (shard, hash) = self.shard_for(key);
        let found = shard.find(hash, key, now_ms);
        if shard.outruns(found, key, Some(value)) {
            return false;
        }
        let at = match found {
            Some(at) => {
                let record = shard.record_mut(at);
                record.flags = flags;
                record.marks = Marks::default();
                match &mut record.value {
                    Value::Str(old) => old.set(value),
                    other => *other = Value::Str(Blob::new(value)),
                }
                shard.commit(at);
                at
            }
            None => {
                let at = shard.insert(hash, key, Value::Str(Blob::new(value)), now_ms);
                shard.record_mut(at).flags = flags;
                at
            }
        };
        match expiry {
            Expiry::Keep => {}
            Expiry::Never => shard.set_expiry(at, 0),
            Expiry::At(ms) => shard.set_expiry(at, ms),
        }
        true
    }

    /// Adds a string at `key`, which is absent. Unlike [`Db::set_string`] this is the beginning of
    /// a value that commands change in the order they come.
    pub(super) fn add_string(&mut self, key: &[u8], value: &[u8]) {
        let now_ms = self.now_ms;
        let (shard, hash) = self.shard_for(key);
        shard.insert(hash, key, Value::Str(Blob::new(value)), now_ms);
    }

    /// Puts `value` at `key`, whatever it held, without an expiry. An empty collection removes
    /// the key. True when that was done and `key` holds `value` now; nothing happens when the key
    /// was written later.
    pub(super) fn put(&mut self, key: &[u8], value: Value) -> bool {
        if value.is_spent() {
            self.remove(key);
            return false;
        }
        let now_ms = self.now_ms;
        let (shard, hash) = self.shard_for(key);
        let found = shard.find(hash, key, now_ms);
        let text = match &value {
            Value::Str(text) => text.as_slice(),
            Value::Hash(_) | Value::List(_) | Value::Set(_) | Value::ZSet(_) => &[],
        };
        if shard.outruns(found, key, Some(text)) {
            return false;
        }
        match found {
            Some(at) => {
                let record = shard.record_mut(at);
                record.value = value;
                record.flags = 0;
                shard.set_expiry(at, 0);
                shard.commit(at);
            }
            None => {
                shard.insert(hash, key, value, now_ms);
            }
        }
        true
    }

    /// Takes the record at `key` out; `None` when it is absent, or was written later.
    pub(super) fn remove(&mut self, key: &[u8]) -> Option<Record> {
        let now_ms = self.now_ms;
        let (shard, hash) = self.shard_for(key);
        let found = shard.find(hash, key, now_ms);
        if shard.outruns(found, key, None) {
            return None;
        }
        if found.is_none() {
            shard.note_removal(key);
        }
        found.map(|at| shard.remove_at(at))
    }

    /// Lets what the command does to `key` follow what others did, whatever its stamp: for one
    /// whose outcome depends on what is there, and is told to other replicas.
    pub(super) fn follow(&mut self, key: &[u8]) {
        let now_ms = self.now_ms;
        let (shard, hash) = self.shard_for(key);
        let at = shard.find(hash, key, now_ms);
        shard.follow(at, key);
    }

    /// Removes `key`; false when it is absent. A collection is dropped after the command.
    pub(super) fn delete(&mut self, key: &[u8]) -> bool {
        match self.remove(key) {
            Some(Record { value: Value::Str(_), .. }) => true,
            Some(record) => {
                self.removed.push(record);
                true
            }
            None => false,
        }
    }

    /// Sets when `key` goes; 0 is never. False when it is absent.
    pub(super) fn set_expiry(&mut self, key: &[u8], expire_at_ms: u64) -> bool {
        let now_ms = self.now_ms;
        let (shard, hash) = self.shard_for(key);
        let at = shard.find(hash, key, now_ms);
        if let Some(at) = at {
            shard.set_expiry(at, expire_at_ms);
            shard.commit(at);
        }
        at.is_some()
    }

    /// Sets the marks of `key`, which is no change of it.
    pub(super) fn set_marks(&mut self, key: &[u8], marks: Marks) {
        let now_ms = self.now_ms;
        let (shard, hash) = self.shard_for(key);
        if let Some(at) = shard.find(hash, key, now_ms) {
            shard.record_mut(at).marks = marks;
        }
    }

    /// Marks the item at `key` stale, which changes its version: the next reader may make it anew.
    pub(super) fn make_stale(&mut self, key: &[u8]) {
        let now_ms = self.now_ms;
        let (shard, hash) = self.shard_for(key);
        if let Some(at) = shard.find(hash, key, now_ms) {
            let marks = &mut shard.record_mut(at).marks;
            *marks = Marks { stale: true, token_sent: false, ..*marks };
            shard.commit(at);
        }
    }

    /// Sets when `key` goes as [`Db::set_expiry`] does, but not as a change of the key.
    pub(super) fn touch(&mut self, key: &[u8], expire_at_ms: u64) {
        let now_ms = self.now_ms;
        let (shard, hash) = self.shard_for(key);
        if let Some(at) = shard.find(hash, key, now_ms) {
            shard.set_expiry(at, expire_at_ms);
        }
    }

    /// How long `key` was not used, in milliseconds; looking does not count as use.
    pub(super) fn idle_ms(&mut self, key: &[u8]) -> Option<u64> {
        let now_ms = self.now_ms;
        let (shard, hash) = self.shard_for(key);
        shard.idle_ms(hash, key, now_ms)
    }

    /// A generator for the random picks of a command on `key`.
    pub(super) fn rng(&mut self, key: &[u8]) -> fastrand::Rng {
        self.shard_for(key).0.rng.fork()
    }

    /// Calls `f` with shard `number`, which is locked for the call if it is not held.
    pub(super) fn visit<R>(&mut self, number: usize, f: impl FnOnce(&mut Shard) -> R) -> R {
        debug_assert!(number < SHARDS);
        match &mut self.guards {
            Guards::Visit => {
                let mut shard = self.store.lock(number as u8);
                shard.begin(self.stamping, self.now_ms);
                let result = f(&mut shard);
                shard.turn().report(self.stamping);
                result
            }
            Guards::One(..) | Guards::Many(_) | Guards::Turn(_) => f(self.held(number as u8)),
        }
    }

    /// The shard of `key` and the key's hash inside it.
    #[inline]
    pub(super) fn shard_for(&mut self, key: &[u8]) -> (&mut Shard, u32) {
        let hash = match std::ptr::eq(self.first, key) {
            true => self.first_hash,
            false => hash_of(key),
        };
        (self.held(shard_of(hash)), hash as u32)
    }

    #[inline]
    fn held(&mut self, number: u8) -> &mut Shard {
        match &mut self.guards {
            Guards::One(held, shard) if *held == number => shard,
            Guards::Many(held) => {
                let at = held.binary_search_by_key(&number, |(n, _)| *n);
                &mut held[at.expect("the key spec of the command covers its keys")].1
            }
            Guards::Turn(held) => {
                if held.as_ref().is_none_or(|(n, _)| *n != number) {
                    if let Some((_, shard)) = held.take() {
                        shard.turn().report(self.stamping);
                    }
                    let mut shard = self.store.lock(number);
                    shard.begin(self.stamping, self.now_ms);
                    *held = Some((number, shard));
                }
                &mut held.as_mut().expect("it was just locked").1
            }
            Guards::One(..) | Guards::Visit => {
                unreachable!("the key spec of the command covers its keys")
            }
        }
    }
}

impl Drop for Db<'_> {
    fn drop(&mut self) {
        if self.stamping.own.is_none() {
            return;
        }
        match &self.guards {
            Guards::Visit | Guards::Turn(None) => {}
            Guards::One(_, shard) | Guards::Turn(Some((_, shard))) => {
                shard.turn().report(self.stamping);
            }
            Guards::Many(held) => held.iter().for_each(|(_, s)| s.turn().report(self.stamping)),
        }
    }
}

fn edit_at<T: Kind, R>(
    shard: &mut Shard,
    at: usize,
    edit: impl FnOnce(&mut T) -> Result<Edit<R>, CommandError>,
) -> Result<R, CommandError> {
    let value = T::of_mut(&mut shard.record_mut(at).value).ok_or(CommandError::WrongType)?;
    match edit(value)? {
        Edit::Changed(result) => {
            shard.commit(at);
            Ok(result)
        }
        Edit::Same(result) => Ok(result),
    }
}

/// What a write does to the expiry of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Expiry {
    /// It stays.
    Keep,
    /// The key no longer expires.
    Never,
    /// The key goes after this many milliseconds since the epoch.
    At(u64),
}

/// An entry of the key space.
pub(super) type KeyEntry = Entry<Record>;
