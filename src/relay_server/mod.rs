//! The relay as a server: six calls over gRPC, and what stands behind them.
//!
//! [`Relay`] is the shared state: the node publishes and withdraws pools, says what is ready and
//! how full it is; [`serve`](Relay::serve) answers consumers. A call is admitted in the
//! contract's order (`admission`), then becomes a stream of one kind:
//!
//! ```text
//! publisher ──Delta──▶ hub (mirror, pacer) ──Frame──▶ queue of each subscriber ──▶ connection
//! node ──catalog, readiness──▶ watch ──▶ connection         ticker ──windows──▶ connection
//! ```
//!
//! A hub is one filter's mirror, begun by its first subscriber and shared by the later ones. A
//! slow reader fills its own queue and loses its own stream; nobody waits for it. Streams, hubs,
//! queues and connections are bounded by [`config::Relay`].
//!
//! Follows `ai-dynamo/dynamo lib/llm/src/kv_dc_relay/wan/grpc` as the contract describes it.

mod admission;
mod connections;
mod counters;
mod hub;
mod pools;
mod report;
mod serve;
mod service;
mod streams;
mod windows;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{Semaphore, watch};

use crate::ckf::identity::{PoolId, ProducerIdentity};
use crate::config;
use crate::net::clock::{Clock, wall_ms};
use crate::relay::catalog::{Catalog, Unpublishable};
use crate::relay::descriptor::Descriptor;
use crate::relay::envelope::RelayId;
use crate::relay::load::{PoolLoad, Window};
use crate::relay::readiness::Readiness;
use crate::relay::topology::Entry;
use crate::relay::{load, proto, serving};

use self::admission::Permits;
use self::pools::Pools;
use self::windows::Windows;

pub use self::counters::{Counters, OfKind, StreamKind};
pub use self::pools::PoolSource;
pub use self::report::{PoolReport, RelayReport, StreamReport};

/// The generated service over the messages of [`crate::relay::proto`].
#[allow(missing_docs, unreachable_pub, clippy::all)]
pub mod grpc {
    include!(concat!(env!("OUT_DIR"), "/service/dynamo.kvrelay.v1.rs"));
}

/// What a relay publishes, and its limits.
pub struct Relay {
    id: RelayId,
    limits: config::Relay,
    clock: Clock,
    catalog: Mutex<Catalog>,
    catalog_now: watch::Sender<Arc<proto::KvPoolCatalogUpdate>>,
    readiness: Mutex<Readiness>,
    readiness_now: watch::Sender<Arc<proto::ServingReadinessUpdate>>,
    load: Windows<proto::KvPoolLoadUpdate>,
    serving: Windows<proto::ServingLoadUpdate>,
    pools: Pools,
    permits: Permits,
    counters: Counters,
    /// True once the relay stops: streams end cleanly.
    closing: watch::Sender<bool>,
}

impl Relay {
    /// A relay that publishes nothing yet. `id.incarnation` is fresh and not 0.
    pub fn new(id: RelayId, limits: config::Relay, clock: Clock) -> Arc<Relay> {
        debug_assert_ne!(id.incarnation, 0);
        let (catalog, readiness) = (Catalog::default(), Readiness::default());
        let window = Window { window_ms: limits.load_window_ms, ..Window::default() };
        let capacity = limits.load_fanout_capacity;
        Arc::new(Relay {
            id,
            clock,
            catalog_now: watch::Sender::new(Arc::new(catalog.message(id))),
            catalog: Mutex::new(catalog),
            readiness_now: watch::Sender::new(Arc::new(readiness.message(id))),
            readiness: Mutex::new(readiness),
            load: Windows::new(load::message(id, &window, &[]), capacity),
            serving: Windows::new(serving::message(id, &window, []), capacity),
            pools: Pools::default(),
            permits: Permits::new(&limits),
            counters: Counters::default(),
            closing: watch::Sender::new(false),
            limits,
        })
    }

    /// Who this relay is.
    pub fn id(&self) -> RelayId {
        self.id
    }

    /// What was counted since the start.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Publishes a pool, or a newer generation or description of it. Its filter comes from
    /// `source` as soon as somebody subscribes. A generation that broke its own rules once is
    /// not published again.
    pub fn publish(
        &self,
        pool: Descriptor,
        source: Arc<dyn PoolSource>,
    ) -> Result<(), Unpublishable> {
        let key = pool.key;
        if self.pools.is_fenced(&key) {
            return Ok(());
        }
        let mut catalog = lock(&self.catalog);
        let live = catalog.get(&key.pool()).map(|live| live.key);
        if live.is_some_and(|live| live != key) {
            // Streams of the old generation end; its successor begins anew.
            self.pools.retire(&key.pool());
        }
        if catalog.upsert(pool)? {
            self.pools.enter(key, source);
            self.announce(&catalog);
        }
        Ok(())
    }

    /// Withdraws a pool: it leaves the catalog, then its streams end.
    pub fn withdraw(&self, pool: &PoolId) {
        let mut catalog = lock(&self.catalog);
        if catalog.remove(pool) {
            self.announce(&catalog);
        }
        self.pools.retire(pool);
    }

    /// Withdraws a generation that broke its own rules, for good.
    fn fence(&self, producer: &ProducerIdentity, why: &str) {
        tracing::error!(pool = %producer.pool, why, "relay: a filter is withdrawn");
        self.pools.fence(producer);
        self.withdraw(&producer.pool);
    }

    /// Says which models can serve.
    pub fn set_readiness(&self, entries: Vec<Entry>) {
        let mut readiness = lock(&self.readiness);
        if readiness.set(entries) {
            self.readiness_now.send_replace(Arc::new(readiness.message(self.id)));
        }
    }

    /// The published pools.
    pub fn published(&self) -> Vec<Descriptor> {
        lock(&self.catalog).pools().cloned().collect()
    }

    /// Closes the window of load: what the published pools hold now.
    fn close_window(&self, loads: &[PoolLoad]) {
        let sequence = self.load.sequence() + 1;
        let window =
            Window { sequence, observed_ms: wall_ms(), window_ms: self.limits.load_window_ms };
        let published = self.published();
        let live: Vec<PoolLoad> = loads
            .iter()
            .filter(|load| published.iter().any(|pool| pool.key == load.key))
            .copied()
            .collect();
        self.load.publish(sequence, load::message(self.id, &window, &live));
        let unknown = published.iter().map(|pool| serving::unknown_pool(&pool.key));
        self.serving.publish(sequence, serving::message(self.id, &window, unknown));
    }

    fn announce(&self, catalog: &Catalog) {
        self.catalog_now.send_replace(Arc::new(catalog.message(self.id)));
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn semaphore(permits: usize) -> Arc<Semaphore> {
    Arc::new(Semaphore::new(permits.min(Semaphore::MAX_PERMITS)))
}
