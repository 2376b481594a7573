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
}
