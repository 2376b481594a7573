//! The embedded store in the two protocols a node can speak.

use std::sync::Arc;

use crate::dispatch::view::Protocol;
use crate::dispatch::{Awaited, Embedded, KeyLine, StoreReport, Watched};
use crate::proto::args::Args;
use crate::proto::memcache::decode::{McDecoded, McDecoder, McLimits};
use crate::proto::outbuf::OutBuf;
use crate::stamp::Stamping;
use crate::store::MemoryStore;

/// The store as workers call it.
pub(super) fn executor(store: &Arc<MemoryStore>, protocol: Protocol) -> Arc<dyn Embedded> {
    match protocol {
        Protocol::Redis => Arc::clone(store) as Arc<dyn Embedded>,
        Protocol::Memcache => Arc::new(Memcache(Arc::clone(store))),
    }
}

impl Embedded for MemoryStore {
    fn execute(&self, args: &Args<'_>, wall_ms: u64, stamping: &mut Stamping, out: &mut OutBuf) {
        self.execute_stamped(args, wall_ms, stamping, out);
    }

    fn execute_block(
        &self,
        requests: &[Args<'_>],
        watched: &[Watched],
        wall_ms: u64,
        stamping: &mut Stamping,
        out: &mut OutBuf,
    ) {
        MemoryStore::execute_block(self, requests, watched, wall_ms, stamping, out);
    }

    fn version_of(&self, key: &[u8], wall_ms: u64) -> u64 {
        MemoryStore::version_of(self, key, wall_ms)
    }

    fn report(&self) -> Option<StoreReport> {
        let counters = self.counters();
        Some(StoreReport {
            bytes: counters.bytes,
            bytes_max: self.settings().memory_bytes_max,
            hits: counters.hits,
            misses: counters.misses,
            expired: counters.expired,
            evicted: counters.evicted,
        })
    }

    fn line(&self) -> Option<&dyn KeyLine> {
        Some(self)
    }
}

impl KeyLine for MemoryStore {
    fn next_place(&self, worker: u64) -> u64 {
        self.next_token(worker)
    }

    fn stand(
        &self,
        keys: &[&[u8]],
        awaited: Awaited,
        place: u64,
        wall_ms: u64,
    ) -> Result<(), usize> {
        self.wait_for(keys, awaited, place, wall_ms)
    }

    fn leave(&self, keys: &[&[u8]], place: u64) {
        self.stop_waiting(keys, place);
    }

    fn take_woken(&self, worker: u64, into: &mut Vec<u64>) {
        MemoryStore::take_woken(self, worker, into);
    }

    fn wake_by(&self, worker: u64, wake: Box<dyn Fn() + Send + Sync>) {
        MemoryStore::wake_by(self, worker, wake);
    }
}

/// The dispatcher passes words on; the data block is found again in the bytes behind them.
struct Memcache(Arc<MemoryStore>);

impl Embedded for Memcache {
    fn execute(&self, args: &Args<'_>, wall_ms: u64, stamping: &mut Stamping, out: &mut OutBuf) {
        let mut spans = Vec::new();
        let raw = args.raw();
        match McDecoder::default().decode(raw, &McLimits::default(), &mut spans) {
            Ok(Some(McDecoded::Request(request))) => {
                let data = request.data.map(|span| span.of(raw));
                let args = Args::new(raw, &spans);
                self.0.execute_memcache(&args, data, wall_ms, stamping, out);
            }
            // The dispatcher decoded the same bytes before.
            Ok(_) | Err(_) => out.put(b"ERROR\r\n"),
        }
    }

    fn version_of(&self, key: &[u8], wall_ms: u64) -> u64 {
        self.0.version_of(key, wall_ms)
    }
}
