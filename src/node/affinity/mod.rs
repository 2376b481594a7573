//! The affinity plane of a node: its domains, the store's events that feed them, and the other
//! nodes that have the rest.

mod foreign;
mod holdings;
mod notices;
mod redis;
mod specs;
mod task;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use arc_swap::ArcSwap;
use bytes::Bytes;
use tokio::sync::{mpsc, oneshot, watch};
use xxhash_rust::xxh3::xxh3_64;

use self::foreign::Foreign;
pub use self::redis::RedisStore;
use self::redis::StoreNews;
use self::specs::{About, datacenters, specs};
pub use self::task::Following;
use crate::affinity::Affinity;
use crate::affinity::domain::{Domain, DomainError};
use crate::affinity::mesh::PlaneReport;
use crate::affinity::places::Places;
use crate::ckf::identity::ConsumerInstanceId;
use crate::ckf::producer::Source;
use crate::ckf::ringkey::KeyProtocol;
use crate::config::{self, AffinityMode, Config};
use crate::net::clock::{Clock, wall_ms};
use crate::proto::dnode::MsgType;
use crate::ring::Topology;

/// Presence events kept for each shard of the store; beyond it the shard is listed anew.
pub const EVENTS_MAX: usize = 1024;
/// Messages of other nodes that wait; more are dropped, which their senders find out.
const INBOX_MAX: usize = 4096;

/// The domains of a node, and the way to the task that keeps them.
pub struct AffinityPlane {
    config: config::Affinity,
    about: About,
    /// This node as a holder of keys.
    source: Source,
    clock: Clock,
    domains: ArcSwap<Affinity>,
    foreign: Foreign,
    catalog: watch::Sender<Arc<Affinity>>,
    told: mpsc::Sender<Told>,
    inbox: Mutex<Option<mpsc::Receiver<Told>>>,
    report: Mutex<PlaneReport>,
    /// The ring and its domains, until the task has seen them.
    ring: Mutex<Option<(Places, Arc<Affinity>)>>,
}

/// What the task is told.
enum Told {
    /// The datastore told something.
    Store(StoreNews),
    /// A control message of another node.
    Message(MsgType, Bytes),
    /// Begin a new generation of every pool published here; answered with whether there is any.
    Rebuild(oneshot::Sender<bool>),
}

impl AffinityPlane {
    /// The plane of this node, unless affinity is off.
    pub fn new(
        config: &Config,
        topology: &Topology,
        clock: Clock,
    ) -> Result<Option<AffinityPlane>, DomainError> {
        let own = &config.affinity;
        match own.mode {
            AffinityMode::Off => return Ok(None),
            AffinityMode::Advise | AffinityMode::Route => {}
        }
        let token = config.tokens.first().map(ToString::to_string).unwrap_or_default();
        let slot = format!("{}/{}/{token}", config.datacenter, config.rack);
        let worker_id = xxh3_64(slot.as_bytes()).max(1);
        let about = About {
            protocol: match config.data_store {
                config::Protocol::Redis => KeyProtocol::Resp,
                config::Protocol::Memcache => KeyProtocol::Memcache,
            },
            consumer: ConsumerInstanceId(worker_id),
            // Any number outsiders do not know will do; the clock is one, mixed with the slot.
            table_seed: xxh3_64(&[wall_ms(), worker_id].map(u64::to_le_bytes).concat()),
        };
        let datacenters = datacenters(topology);
        let domains: Result<Vec<Arc<Domain>>, DomainError> =
            specs(own, about, &datacenters).map(|spec| Domain::new(spec).map(Arc::new)).collect();
        let domains = Arc::new(affinity(domains?));
        let (told, inbox) = mpsc::channel(INBOX_MAX);
        Ok(Some(AffinityPlane {
            config: own.clone(),
            about,
            source: Source { worker_id, dp_rank: 0 },
            clock,
            catalog: watch::Sender::new(Arc::clone(&domains)),
            domains: ArcSwap::new(domains),
            foreign: Foreign::default(),
            told,
            inbox: Mutex::new(Some(inbox)),
            report: Mutex::default(),
            ring: Mutex::default(),
        }))
    }

    /// The domains now.
    pub fn domains(&self) -> Arc<Affinity> {
        self.domains.load_full()
    }

    /// The domains, told again whenever one of them is published, is not any more, or is another
    /// one; see [`crate::affinity::publication`] for what to do with them.
    pub fn catalog(&self) -> watch::Receiver<Arc<Affinity>> {
        self.catalog.subscribe()
    }

    /// What the task did so far.
    pub fn report(&self) -> PlaneReport {
        lock(&self.report).clone()
    }

    /// Begins a new generation of every pool this node publishes. False when it publishes none.
    pub async fn rebuild(&self) -> bool {
        let (done, answer) = oneshot::channel();
        self.told.send(Told::Rebuild(done)).await.is_ok() && answer.await.unwrap_or(false)
    }

    /// Makes room for a datacenter that is not of this ring; takes effect when the ring is
    /// published next. False when it has its room.
    #[cfg(feature = "relay")]
    pub(super) fn admit_foreign(&self, dc: &str) -> bool {
        self.foreign.admit(dc)
    }

    /// Whether a datacenter is not of this ring.
    #[cfg(feature = "relay")]
    pub(super) fn is_foreign(&self, dc: &str) -> bool {
        self.foreign.contains(dc)
    }

    /// A control message about feeds or filters arrived.
    pub(super) fn message(&self, kind: MsgType, message: &[u8]) {
        // One that is dropped is missed by its sender, who sends again.
        let _ = self.told.try_send(Told::Message(kind, Bytes::copy_from_slice(message)));
    }

    /// Follows a change of the ring: when datacenters came or went, the lanes are laid out anew
    /// and the exact state moves over. Gives the domains to use from now on.
    pub(super) fn follow_ring(&self, topology: &Topology) -> Arc<Affinity> {
        let domains = self.lay_out(topology);
        *lock(&self.ring) = Some((Places::of(topology), Arc::clone(&domains)));
        domains
    }

    fn lay_out(&self, topology: &Topology) -> Arc<Affinity> {
        let datacenters = self.foreign.beside(datacenters(topology));
        let current = self.domains();
        if current.keys().spec().datacenters == datacenters {
            return current;
        }
        let moved: Result<Vec<Arc<Domain>>, DomainError> = current
            .domains()
            .zip(specs(&self.config, self.about, &datacenters))
            .map(|(old, spec)| old.move_to(spec).map(Arc::new))
            .collect();
        match moved {
            Ok(domains) => {
                let next = Arc::new(affinity(domains));
                self.domains.store(Arc::clone(&next));
                self.catalog.send_replace(Arc::clone(&next));
                next
            }
            Err(error) => {
                tracing::error!(%error, "the lanes cannot be laid out for the new ring");
                for old in current.domains() {
                    if let Err(error) = old.stay() {
                        tracing::error!(domain = old.name(), %error, "cannot publish");
                    }
                }
                current
            }
        }
    }

    /// Tells who follows the catalog that a publication came or went.
    fn tell_catalog(&self) {
        self.catalog.send_replace(self.domains());
    }

    fn set_report(&self, report: PlaneReport) {
        *lock(&self.report) = report;
    }

    fn take_inbox(&self) -> Option<mpsc::Receiver<Told>> {
        lock(&self.inbox).take()
    }

    fn take_ring(&self) -> Option<(Places, Arc<Affinity>)> {
        lock(&self.ring).take()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Domains in the order of their specs: ring keys first.
fn affinity(mut domains: Vec<Arc<Domain>>) -> Affinity {
    let keys = domains.remove(0);
    Affinity::new(keys, domains)
}
