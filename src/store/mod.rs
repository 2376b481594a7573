//! The embedded datastore: Redis semantics in memory, without sockets, tasks or a clock.
//!
//! Workers share one [`MemoryStore`] and call it synchronously. Keys are spread over 256 shards by
//! XXH3; each has a mutex of its own that is held for one command. A command that names several
//! keys locks their shards in rising order, so commands are atomic and cannot deadlock; EXISTS,
//! TOUCH and UNLINK hold one at a time, so that other workers go on meanwhile.
//!
//! Replies are RESP2 and, errors included, those of redis-server 7.0: a differential test compares
//! every one. Time is a parameter and only moves what expires; random picks come from a seed.
//! A write may carry a stamp, which says its place among the writes of all replicas (`stamps`).
//! Nothing is kept on disk. What is not here is an error in words or Redis's own for an unknown
//! command: scripts and functions, streams, geo, HyperLogLog, publish and subscribe, and SORT by or
//! with other keys. A watched key that was absent, appeared and went again counts as unchanged, and
//! a sorted set knows no negative zero. `memcache` is the same store for memcache clients.
//!
//! Reading order: `command` (the table), `db` (what a command sees), `shard` (the life of a
//! key), `dict` and `value` (the data), then one file per family of commands.

mod arg;
mod bitfield;
mod bits;
mod blob;
mod command;
mod counters;
mod crc64;
mod db;
mod dict;
mod dump;
mod dump_packed;
mod dump_read;
mod error;
mod events;
mod extended;
mod field_expiry;
mod follower;
mod format;
mod hash_value;
mod hashes;
mod keys;
mod keyspace;
mod lcs;
mod list_moves;
mod lists;
mod maintenance;
mod marks;
mod memcache;
mod pick;
mod reply;
mod scan;
mod score_tree;
mod set_algebra;
mod set_options;
mod sets;
mod settings;
mod shard;
mod sort;
mod stamps;
mod strings;
mod transaction;
mod ttl;
mod usage;
mod value;
mod waiters;
mod zadd;
mod zrange;
mod zset_algebra;
mod zset_value;
mod zsets;

#[cfg(test)]
mod tests;

use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::proto::args::Args;
use crate::proto::outbuf::OutBuf;
use crate::stamp::Stamping;

use command::{Command, CommandTable, Effect, Keys};
use db::{Db, Guards, shard_of};
use dict::hash_of;
use error::{CommandError, CommandResult};
use shard::Shard;
use usage::{SHARDS, Usage};
use waiters::Woken;

pub use events::PresenceEvent;
pub use follower::Follower;
pub use settings::{Eviction, StoreCounters, StoreSettings};
pub use waiters::WaitToken;

/// A shard on cache lines of its own.
#[repr(align(128))]
struct Slot(Mutex<Shard>);

/// The embedded store. Shared by all workers of a node.
pub struct MemoryStore {
    shards: Box<[Slot]>,
    commands: CommandTable,
    settings: StoreSettings,
    usage: Arc<Usage>,
    /// Clients that are to try again.
    woken: Arc<Woken>,
    /// The shard that eviction looks at next.
    evict_turn: AtomicUsize,
    /// The shard that a sweep looks at next.
    sweep_turn: AtomicUsize,
}

impl MemoryStore {
    /// An empty store.
    pub fn new(settings: StoreSettings) -> MemoryStore {
        let usage = Arc::new(Usage::new(&settings));
        let woken = Arc::new(Woken::default());
        let shared = || (Arc::clone(&usage), Arc::clone(&woken));
        let shard = |n| Slot(Mutex::new(Shard::new(&settings, shared(), n as u64)));
        MemoryStore {
            shards: (0..SHARDS).map(shard).collect(),
            commands: CommandTable::new(&[
                strings::COMMANDS,
                counters::COMMANDS,
                keys::COMMANDS,
                ttl::COMMANDS,
                keyspace::COMMANDS,
                hashes::COMMANDS,
                field_expiry::COMMANDS,
                dump::COMMANDS,
                lcs::COMMANDS,
                sort::COMMANDS,
                bits::COMMANDS,
                bitfield::COMMANDS,
                lists::COMMANDS,
                list_moves::COMMANDS,
                sets::COMMANDS,
                set_algebra::COMMANDS,
                zadd::COMMANDS,
                zsets::COMMANDS,
                zrange::COMMANDS,
                zset_algebra::COMMANDS,
            ]),
            usage,
            woken,
            evict_turn: AtomicUsize::new(0),
            sweep_turn: AtomicUsize::new(0),
            settings,
        }
    }

    /// What the store was made with.
    pub fn settings(&self) -> &StoreSettings {
        &self.settings
    }

    /// True when the store knows a command of this name, in any case.
    pub fn knows(&self, name: &[u8]) -> bool {
        self.commands.find(name).is_some()
    }

    /// Runs one command: `args` with the name first. Appends exactly one RESP2 reply to `out`.
    /// `now_ms` is wall-clock time in milliseconds since the epoch.
    pub fn execute(&self, args: &Args<'_>, now_ms: u64, out: &mut OutBuf) {
        self.execute_stamped(args, now_ms, &mut Stamping::default(), out);
    }

    /// The same for a command that has a stamp or asks for those of its keys.
    #[inline]
    pub fn execute_stamped(
        &self,
        args: &Args<'_>,
        now_ms: u64,
        stamping: &mut Stamping,
        out: &mut OutBuf,
    ) {
        if let Err(error) = self.run(args, now_ms, stamping, out) {
            reply::error(out, &error);
        }
    }

    fn run(
        &self,
        args: &Args<'_>,
        now_ms: u64,
        stamping: &mut Stamping,
        out: &mut OutBuf,
    ) -> CommandResult {
        let command = self.command_of(args)?;
        self.check_room(command)?;
        let mut db = self.open(command.keys, args, now_ms, stamping);
        let result = (command.run)(&mut db, args, out);
        drop(db);
        self.make_room(command, now_ms);
        result
    }

    /// The command that `args` name, with a fitting number of them.
    fn command_of(&self, args: &Args<'_>) -> Result<&'static Command, CommandError> {
        let name = args.get(0).unwrap_or_default();
        let command =
            self.commands.find(name).ok_or_else(|| CommandError::unknown_command(args))?;
        command.check_arity(args)?;
        Ok(command)
    }

    /// Locks what a command needs.
    #[inline]
    fn open<'a>(
        &'a self,
        keys: Keys,
        args: &Args<'a>,
        now_ms: u64,
        stamping: &'a mut Stamping,
    ) -> Db<'a> {
        if let (Keys::One, Some(key)) = (keys, args.get(1)) {
            return self.open_key(key, now_ms, stamping);
        }
        if let Keys::Each(_) = keys {
            return Db::new(self, Guards::Turn(None), now_ms, (&[], 0), stamping);
        }
        let mut needed = ShardSet::default();
        let mut first: (&[u8], u64) = (&[], 0);
        command::for_each_key(keys, args, |key| {
            first = (key, hash_of(key));
            needed.add(shard_of(first.1));
        });
        if keys == Keys::Sorted && sort::looks_up(args) {
            needed.add_all();
        }
        Db::new(self, self.lock_all(&needed), now_ms, first, stamping)
    }

    /// Locks the shard of one key.
    #[inline]
    fn open_key<'a>(&'a self, key: &'a [u8], now_ms: u64, stamping: &'a mut Stamping) -> Db<'a> {
        let hash = hash_of(key);
        let number = shard_of(hash);
        Db::new(self, Guards::One(number, self.lock(number)), now_ms, (key, hash), stamping)
    }

    fn lock_all(&self, needed: &ShardSet) -> Guards<'_> {
        match needed.len() {
            0 => Guards::Visit,
            1 => {
                let number = needed.iter().next().expect("one was counted");
                Guards::One(number, self.lock(number))
            }
            _ => Guards::Many(needed.iter().map(|n| (n, self.lock(n))).collect()),
        }
    }

    /// Locks one shard. A worker that panicked while it held the lock is no reason to stop the
    /// others: its command may be half done, as after a crash in the middle of it.
    #[inline]
    fn lock(&self, number: u8) -> MutexGuard<'_, Shard> {
        self.shards[usize::from(number)].0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn check_room(&self, command: &Command) -> CommandResult {
        let refuse = command.effect == Effect::Grow && self.settings.eviction == Eviction::Refuse;
        match refuse && self.usage.is_full() {
            true => Err(CommandError::OutOfMemory),
            false => Ok(()),
        }
    }

    #[inline]
    fn make_room(&self, command: &Command, now_ms: u64) {
        if command.effect == Effect::Grow && self.usage.is_over() {
            self.evict(now_ms);
        }
    }
}

/// A set of shard numbers, read in rising order.
#[derive(Default)]
struct ShardSet([u64; SHARDS / 64]);

impl ShardSet {
    fn add(&mut self, number: u8) {
        self.0[usize::from(number / 64)] |= 1 << (number % 64);
    }

    fn add_all(&mut self) {
        self.0 = [u64::MAX; SHARDS / 64];
    }

    fn len(&self) -> u32 {
        self.0.iter().map(|word| word.count_ones()).sum()
    }

    fn iter(&self) -> impl Iterator<Item = u8> {
        (0..=u8::MAX).filter(|n| self.0[usize::from(n / 64)] >> (n % 64) & 1 == 1)
    }
}
