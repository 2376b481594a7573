//! The document gateway: a Meilisearch-compatible HTTP face over replica groups of ordinary
//! Meilisearch servers.
//!
//! A write is routed by `document::batch`, sent to every owner of its shards in parallel
//! (`fanout`), one after another per index and backend (`lanes`), judged by the two-rule quorum
//! and registered as one task (`tasks`). Reads ask a covering set of backends and merge
//! (`reads`). What must be known everywhere (tasks, idempotency keys, session pins, aliases,
//! migrations) is kept in the ring through [`RingKv`].
//!
//! Only `client` speaks to backends; only `error` relates codes and statuses; decisions are in
//! [`crate::document`]. Document bodies are worked on where they cannot delay the data path:
//! small ones on the service runtime, large ones on blocking threads, all of them counted
//! against a bound of bytes in flight.
//!
//! Lanes order the writes of one gateway; so that two gateways cannot cross, all writes of an
//! index are done by one of them (`others`, `handoff`), and what was written while they did not
//! agree on which is compared between its owners afterwards (`repair`).

mod admin;
mod aliases;
mod answers;
mod body;
mod bounded;
pub mod builtin;
mod call;
mod catalogue;
mod client;
mod copy;
mod core;
mod counters;
mod error;
mod fanout;
mod handoff;
mod idempotency;
mod indexes;
mod kv;
mod lanes;
mod migration;
mod others;
mod placement;
mod reads;
mod repair;
mod resp_kv;
mod routes;
mod server;
mod sessions;
mod settings;
mod status;
mod tasks;
mod time;
mod tls;
mod tracking;
mod unserved;
mod writes;

pub use counters::{CounterValues, Counters};
pub use error::{ApiError, Failure};
pub use kv::{KEY_PREFIX, KvError, KvFuture, MemoryKv, RingKv};
pub use others::GatewayFacts;
pub use resp_kv::{NodeAddress, RespKv, RespKvSettings};
pub use server::{ServeLimits, serve};
pub use settings::{BackendSettings, Key, PartialReads, SessionStrategy, Settings};
pub use status::BackendFigures;
pub use time::WallClock;
pub use tls::{TlsError, TlsRoots};

use self::core::Core;
use crate::document::topology::TopologyError;
use serde_json::Value;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::task::JoinSet;

/// Time between probes of backends that do not answer.
const PROBE_INTERVAL: Duration = Duration::from_millis(1_000);
/// Time between looks at the task slot.
const SLOT_INTERVAL: Duration = Duration::from_millis(1_000);
/// Time between looks for shards that backends missed writes of.
const REPAIR_INTERVAL: Duration = Duration::from_millis(1_000);
/// Time a client has to send the head of a request.
const HEAD_TIMEOUT: Duration = Duration::from_secs(30);

/// A document gateway.
pub struct Gateway {
    core: Arc<Core>,
}

impl Gateway {
    /// A gateway that keeps its small state in `kv`. `gateway_id` tells this gateway from others
    /// that may use the same slot; a node's name is good.
    ///
    /// # Errors
    /// The groups cannot serve.
    pub fn new(
        settings: Settings,
        gateway_id: &str,
        kv: Arc<dyn RingKv>,
        clock: WallClock,
    ) -> Result<Gateway, TopologyError> {
        Ok(Gateway { core: Arc::new(Core::new(settings, gateway_id, kv, clock)?) })
    }

    /// Serves clients on `listener` until `stop` ends, with all background work of the gateway.
    pub async fn run(
        &self,
        listener: TcpListener,
        drain_timeout: Duration,
        stop: impl Future<Output = ()>,
    ) {
        let limits = ServeLimits {
            connections_max: self.core.settings.connections_max,
            head_timeout: HEAD_TIMEOUT,
            drain_timeout,
        };
        // Dropping the set ends the work.
        let _background = self.background();
        serve(listener, routes::router(self.core.clone()), limits, stop).await;
    }

    fn background(&self) -> JoinSet<()> {
        let mut work = JoinSet::new();
        let core = &self.core;
        work.spawn(every(PROBE_INTERVAL, core.clone(), probe_backends));
        work.spawn(every(SLOT_INTERVAL, core.clone(), keep_slot));
        work.spawn(every(core.settings.refresh_interval, core.clone(), refresh));
        work.spawn(every(REPAIR_INTERVAL, core.clone(), repair::run));
        work.spawn(every(core.settings.refresh_interval, core.clone(), migration::advance));
        work
    }

    /// What the gateway counted.
    pub fn counters(&self) -> CounterValues {
        self.core.counters.values()
    }

    /// Bytes of request bodies in flight.
    pub fn in_flight_bytes(&self) -> usize {
        self.core.bodies.in_flight_bytes()
    }

    /// Groups, backends, shard ownership, lag, degraded writes, the other gateways and a running
    /// migration, for the admin page.
    pub fn status(&self) -> Value {
        status::page(&self.core)
    }

    /// Figures of each backend, joining ones included, for metrics.
    pub fn backend_figures(&self) -> Vec<BackendFigures> {
        status::backends(&self.core)
    }

    /// What this gateway tells the others of its ring.
    pub fn facts(&self) -> GatewayFacts {
        self.core.others.own(self.fingerprint(), self.core.tasks.standing().ok())
    }

    /// Takes over what the other gateways of the ring that are alive tell of themselves. Until
    /// the first call a gateway with an own address is not sure to be alone.
    pub fn set_others(&self, others: Vec<GatewayFacts>) {
        self.core.others.set(others, self.fingerprint());
    }

    /// Bytes of backends' answers in flight.
    pub fn answer_bytes(&self) -> usize {
        self.core.answers.in_flight_bytes()
    }

    /// What an operator must look at before documents go astray, a line each.
    pub fn alarms(&self) -> Vec<String> {
        let own = self.fingerprint();
        let differing = self.core.others.differing(own).into_iter();
        let line = |other: GatewayFacts| {
            format!(
                "documents: shards, replication_factor or backends of {} differ from this \
                 node's (fingerprint {:016x}, here {own:016x})",
                other.id, other.fingerprint
            )
        };
        differing.map(line).collect()
    }

    /// A digest of shards, replication factor, backend ids and groups: gateways of one ring must
    /// agree on it.
    pub fn fingerprint(&self) -> u64 {
        self.core.placement().topology.fingerprint()
    }
}

async fn every<F, R>(pause: Duration, core: Arc<Core>, work: F)
where
    F: Fn(Arc<Core>) -> R,
    R: Future<Output = ()>,
{
    loop {
        work(core.clone()).await;
        tokio::time::sleep(pause).await;
    }
}

async fn probe_backends(core: Arc<Core>) {
    let placement = core.placement();
    let mut probes = JoinSet::new();
    for backend in placement.backends.iter() {
        let backend = Arc::clone(backend);
        probes.spawn(async move {
            match backend.is_live() {
                true => backend.learn_version().await,
                false => backend.probe(PROBE_INTERVAL).await,
            }
        });
    }
    while probes.join_next().await.is_some() {}
}

async fn keep_slot(core: Arc<Core>) {
    core.tasks.keep_slot(&core.placement()).await;
}

async fn refresh(core: Arc<Core>) {
    if let Err(error) = core.aliases.refresh().await {
        counters::count(&core.counters.state_failures);
        tracing::debug!(plane = "doc", %error, "aliases were not read");
    }
}
