//! The live generations of published pools, and the hubs that mirror some of them.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use tokio::sync::watch;

use super::hub::Hub;
use super::{Relay, lock};
use crate::affinity::publication::{Cut, Subscriber};
use crate::ckf::identity::{PoolId, ProducerIdentity};
use crate::relay::key::ProducerKey;
use crate::relay::mirror::MirrorError;
use crate::relay::reason::Reason;

/// Where a published pool's filter comes from.
pub trait PoolSource: Send + Sync + 'static {
    /// The whole filter, and `subscriber` for all that follows. None when this pool is not
    /// published here any more.
    fn subscribe(&self, subscriber: Box<dyn Subscriber>) -> Option<Cut>;
}

/// One live generation of a pool.
pub(super) struct Generation {
    pub(super) key: ProducerKey,
    pub(super) source: Arc<dyn PoolSource>,
    /// True once it is withdrawn or replaced.
    retired: watch::Sender<bool>,
    /// The last sequence its hubs sent; a later hub goes on from there.
    pub(super) sequence: AtomicU64,
    hub: Mutex<Option<Arc<Hub>>>,
}

impl Generation {
    pub(super) fn is_retired(&self) -> bool {
        *self.retired.borrow()
    }

    /// Ready once it is withdrawn or replaced.
    pub(super) async fn until_retired(&self) {
        let mut retired = self.retired.subscribe();
        // The sender lives as long as this value.
        let _ = retired.wait_for(|retired| *retired).await;
    }

    /// The hub, if one runs.
    pub(super) fn hub(&self) -> Option<Arc<Hub>> {
        lock(&self.hub).clone().filter(|hub| !hub.has_failed())
    }

    fn retire(&self) {
        self.retired.send_replace(true);
        if let Some(hub) = lock(&self.hub).take() {
            hub.end(Reason::PublicationUnavailable);
        }
    }
}

/// Why a pool has no hub for a subscriber.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NoHub {
    /// As many as allowed are in use.
    AllInUse,
    /// The pool is not published here any more.
    Gone,
    /// Its publisher is of another generation by now.
    Replaced,
    /// Its publisher gives what is no filter of this generation.
    Broken(MirrorError),
}

/// All live generations.
#[derive(Default)]
pub(super) struct Pools {
    live: Mutex<HashMap<PoolId, Arc<Generation>>>,
    /// The last generation of each pool that broke its own rules.
    fenced: Mutex<HashMap<PoolId, ProducerIdentity>>,
}

impl Pools {
    /// A pool's live generation.
    pub(super) fn get(&self, pool: &PoolId) -> Option<Arc<Generation>> {
        lock(&self.live).get(pool).cloned()
    }

    /// All of them.
    pub(super) fn all(&self) -> Vec<Arc<Generation>> {
        lock(&self.live).values().cloned().collect()
    }

    /// A generation is live. A new description of the same one changes nothing.
    pub(super) fn enter(&self, key: ProducerKey, source: Arc<dyn PoolSource>) {
        let mut live = lock(&self.live);
        if live.get(&key.pool()).is_some_and(|generation| generation.key == key) {
            return;
        }
        let generation = Generation {
            key,
            source,
            retired: watch::Sender::new(false),
            sequence: AtomicU64::new(0),
            hub: Mutex::new(None),
        };
        live.insert(key.pool(), Arc::new(generation));
    }

    /// Ends a pool's live generation and all its streams.
    pub(super) fn retire(&self, pool: &PoolId) {
        let generation = lock(&self.live).remove(pool);
        if let Some(generation) = generation {
            generation.retire();
        }
    }

    pub(super) fn fence(&self, producer: &ProducerIdentity) {
        lock(&self.fenced).insert(producer.pool, *producer);
    }

    pub(super) fn is_fenced(&self, key: &ProducerKey) -> bool {
        lock(&self.fenced).get(&key.pool()) == Some(key.identity())
    }

    /// The hub of a generation: the running one, or a new one, for which an idle one of another
    /// pool may have to go.
    pub(super) fn hub(
        &self,
        relay: &Arc<Relay>,
        generation: &Arc<Generation>,
    ) -> Result<Arc<Hub>, NoHub> {
        let live = lock(&self.live);
        let mut place = lock(&generation.hub);
        if let Some(hub) = place.as_ref().filter(|hub| !hub.has_failed()) {
            return Ok(Arc::clone(hub));
        }
        let others = || live.values().filter(|other| !Arc::ptr_eq(other, generation));
        let running = others().filter(|other| other.hub().is_some()).count();
        if running >= relay.limits.max_initialized_pool_hubs {
            let idle = others().find(|other| other.hub().is_some_and(|hub| hub.is_idle()));
            let idle = idle.ok_or(NoHub::AllInUse)?;
            if let Some(hub) = lock(&idle.hub).take() {
                hub.end(Reason::PublicationUnavailable);
                super::counters::add(&relay.counters.hubs_evicted, 1);
            }
        }
        if generation.is_retired() {
            return Err(NoHub::Gone);
        }
        let hub = Hub::start(relay, generation)?;
        *place = Some(Arc::clone(&hub));
        Ok(hub)
    }

    /// Hubs that run, and those of them nobody is subscribed to.
    pub(super) fn hubs(&self) -> (usize, usize) {
        let hubs: Vec<Arc<Hub>> = self.all().iter().filter_map(|g| g.hub()).collect();
        (hubs.len(), hubs.iter().filter(|hub| hub.is_idle()).count())
    }
}

impl Generation {
    /// Takes note of the last sequence that was sent.
    pub(super) fn sent(&self, sequence: u64) {
        self.sequence.fetch_max(sequence, Ordering::Relaxed);
    }
}
