//! Several commands as one: EXEC with what WATCH needs, and the blocking pops.

use crate::dispatch::{Awaited, Watched};
use crate::proto::args::Args;
use crate::proto::outbuf::OutBuf;

use super::command::{self, Keys};
use super::db::{Db, shard_of};
use super::dict::hash_of;
use super::shard::Record;
use super::value::Value;
use super::waiters::WaitToken;
use super::{MemoryStore, ShardSet, reply, sort};
use crate::stamp::Stamping;

impl MemoryStore {
    /// A number that changes whenever the key does; 0 while it is absent.
    pub fn version_of(&self, key: &[u8], now_ms: u64) -> u64 {
        self.open_key(key, now_ms, &mut Stamping::default()).peek(key).map_or(0, Record::version)
    }

    /// Runs `commands` as one: nothing of anybody else happens between them. Appends one array
    /// with a reply per command, errors in place, or the null array and false when a watched key
    /// changed.
    pub fn execute_block(
        &self,
        commands: &[Args<'_>],
        watched: &[Watched],
        now_ms: u64,
        stamping: &mut Stamping,
        out: &mut OutBuf,
    ) -> bool {
        let mut db = self.open_block(commands, watched, now_ms, stamping);
        let changed = |w: &Watched| db.peek(&w.key).map_or(0, |r| r.version()) != w.version;
        if watched.iter().any(changed) {
            reply::nil_array(out);
            return false;
        }
        reply::array(out, commands.len());
        let mut over = false;
        for args in commands {
            let result = self.command_of(args).and_then(|command| {
                self.check_room(command)?;
                (command.run)(&mut db, args, out)
            });
            match result {
                Ok(()) => over |= self.usage.is_over(),
                Err(error) => reply::error(out, &error),
            }
        }
        drop(db);
        if over {
            self.evict(now_ms);
        }
        true
    }

    fn open_block<'a>(
        &'a self,
        commands: &[Args<'a>],
        watched: &[Watched],
        now_ms: u64,
        stamping: &'a mut Stamping,
    ) -> Db<'a> {
        let mut needed = ShardSet::default();
        for Watched { key, .. } in watched {
            needed.add(shard_of(hash_of(key)));
        }
        for args in commands {
            let Ok(command) = self.command_of(args) else {
                continue;
            };
            match command.keys {
                Keys::Whole => needed.add_all(),
                Keys::Sorted if sort::looks_up(args) => needed.add_all(),
                keys => command::for_each_key(keys, args, |k| needed.add(shard_of(hash_of(k)))),
            }
        }
        Db::new(self, self.lock_all(&needed), now_ms, (&[], 0), stamping)
    }

    /// A place at the end of the line, for a client of worker number `worker`.
    pub fn next_token(&self, worker: u64) -> WaitToken {
        self.woken.next_token(worker)
    }

    /// Calls `wake` from now on when a client of `worker` was woken. It must not call the store.
    pub fn wake_by(&self, worker: u64, wake: Box<dyn Fn() + Send + Sync>) {
        self.woken.wake_by(worker, wake);
    }

    /// Moves the clients of `worker` whose keys appeared to `into`, longest waiting first.
    pub fn take_woken(&self, worker: u64, into: &mut Vec<WaitToken>) {
        self.woken.take(worker, into);
        into.sort_unstable();
        into.dedup();
    }

    /// Remembers that the client `token` waits for one of `keys` to become what is awaited, unless
    /// one of them is: then nothing is remembered, and this is its number.
    pub fn wait_for(
        &self,
        keys: &[&[u8]],
        awaited: Awaited,
        token: WaitToken,
        now_ms: u64,
    ) -> Result<(), usize> {
        let mut needed = ShardSet::default();
        keys.iter().for_each(|key| needed.add(shard_of(hash_of(key))));
        let mut unstamped = Stamping::default();
        let mut db = Db::new(self, self.lock_all(&needed), now_ms, (&[], 0), &mut unstamped);
        let is = |record: &Record| match awaited {
            Awaited::List => matches!(record.value, Value::List(_)),
            Awaited::SortedSet => matches!(record.value, Value::ZSet(_)),
        };
        if let Some(ready) = keys.iter().position(|key| db.peek(key).is_some_and(is)) {
            return Err(ready);
        }
        for key in keys {
            db.shard_for(key).0.waiters.add(key, token);
        }
        Ok(())
    }

    /// Forgets that the client `token` waits for `keys`.
    pub fn stop_waiting(&self, keys: &[&[u8]], token: WaitToken) {
        for key in keys {
            self.lock(shard_of(hash_of(key))).waiters.remove(key, token);
        }
    }
}
