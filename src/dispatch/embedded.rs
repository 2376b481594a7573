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

    /// Runs several requests and appends one array with a reply each, errors in place. By default
    /// one after the other; a store that others use meanwhile must let nobody in between.
    fn execute_block(
        &self,
        requests: &[Args<'_>],
        wall_ms: u64,
        stamping: &mut Stamping,
        out: &mut OutBuf,
    ) {
        encode::array(out.tail_mut(), requests.len());
        requests.iter().for_each(|args| self.execute(args, wall_ms, stamping, out));
    }

    /// Whether a key has a value.
    fn holds(&self, key: &[u8], wall_ms: u64) -> bool;

    /// The line of those who wait for keys; none where no command waits.
    fn line(&self) -> Option<&dyn KeyLine> {
        None
    }
}

/// Clients that wait for keys of an embedded store to appear, those of all workers.
pub trait KeyLine: Send + Sync {
    /// A place at the end of the line, for a client of worker number `worker`.
    fn next_place(&self, worker: u64) -> u64;

    /// Lets `place` wait for one of `keys` to appear, unless one of them is there: then false.
    fn stand(&self, keys: &[&[u8]], place: u64, wall_ms: u64) -> bool;

    /// Forgets that `place` waits for `keys`.
    fn leave(&self, keys: &[&[u8]], place: u64);

    /// Moves the places of a worker's clients whose keys appeared to `into`, the first in front.
    fn take_woken(&self, worker: u64, into: &mut Vec<u64>);

    /// Calls `wake` from now on whenever there is something for [`KeyLine::take_woken`].
    fn wake_by(&self, worker: u64, wake: Box<dyn Fn() + Send + Sync>);
}
