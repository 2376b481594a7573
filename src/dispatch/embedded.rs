//! What the dispatcher wants of a datastore inside the process.

use crate::proto::args::Args;
use crate::proto::outbuf::OutBuf;
use crate::proto::resp::encode;
use crate::stamp::Stamping;

/// The embedded datastore, as the dispatcher sees it: one call, one reply, no waiting.
pub trait Embedded: Send + Sync {
    /// Runs one RESP request and appends exactly one reply. `stamping` brings its stamp, and takes
    /// what it found.
    fn execute(&self, args: &Args<'_>, wall_ms: u64, stamping: &mut Stamping, out: &mut OutBuf);

    /// Runs several requests and appends one array with a reply each, errors in place; or a null
    /// array when a watched key has another version. By default one after the other; a store that
    /// others use meanwhile must let nobody in between.
    fn execute_block(
        &self,
        requests: &[Args<'_>],
        watched: &[Watched],
        wall_ms: u64,
        stamping: &mut Stamping,
        out: &mut OutBuf,
    ) {
        if watched.iter().any(|w| self.version_of(&w.key, wall_ms) != w.version) {
            return out.put(b"*-1\r\n");
        }
        encode::array(out.tail_mut(), requests.len());
        requests.iter().for_each(|args| self.execute(args, wall_ms, stamping, out));
    }

    /// A number that changes whenever a key does; 0 while it has no value.
    fn version_of(&self, key: &[u8], wall_ms: u64) -> u64;

    /// Whether a key has a value.
    fn holds(&self, key: &[u8], wall_ms: u64) -> bool {
        self.version_of(key, wall_ms) != 0
    }

    /// What it tells of itself, if anything.
    fn report(&self) -> Option<StoreReport> {
        None
    }

    /// The line of those who wait for keys; none where no command waits.
    fn line(&self) -> Option<&dyn KeyLine> {
        None
    }
}

/// What an embedded datastore tells of itself at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StoreReport {
    /// Memory of keys and values in bytes.
    pub bytes: u64,
    /// The most there may be; 0 is no bound.
    pub bytes_max: u64,
    /// Reads that found their key.
    pub hits: u64,
    /// Reads that did not.
    pub misses: u64,
    /// Keys that went because their time was over.
    pub expired: u64,
    /// Keys that went because of a bound.
    pub evicted: u64,
}

/// A key under WATCH.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Watched {
    /// The key.
    pub key: Box<[u8]>,
    /// What [`Embedded::version_of`] gave when its client began to watch.
    pub version: u64,
}

/// What a client waits for at a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Awaited {
    /// A list.
    List,
    /// A sorted set.
    SortedSet,
}

/// Clients that wait for keys of an embedded store to appear, those of all workers.
pub trait KeyLine: Send + Sync {
    /// A place at the end of the line, for a client of worker number `worker`.
    fn next_place(&self, worker: u64) -> u64;

    /// Lets `place` wait for one of `keys` to become what is awaited, unless one of them is: then
    /// its number among them.
    fn stand(
        &self,
        keys: &[&[u8]],
        awaited: Awaited,
        place: u64,
        wall_ms: u64,
    ) -> Result<(), usize>;

    /// Forgets that `place` waits for `keys`.
    fn leave(&self, keys: &[&[u8]], place: u64);

    /// Moves the places of a worker's clients whose keys were written to `into`, the first in
    /// front.
    fn take_woken(&self, worker: u64, into: &mut Vec<u64>);

    /// Calls `wake` from now on whenever there is something for [`KeyLine::take_woken`].
    fn wake_by(&self, worker: u64, wake: Box<dyn Fn() + Send + Sync>);
}
