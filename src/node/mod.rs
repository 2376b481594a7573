//! A running node: the planes wired together.
//!
//! Start: bind every listener, build the first snapshot, start the workers, then the control
//! plane. Stop: accept nobody new, let what is in flight finish, end the workers.

pub mod affinity;
pub mod build;

mod control;
#[cfg(feature = "documents")]
mod documents;
mod embedded;
mod report;
pub mod serve;

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use arc_swap::ArcSwap;
use tokio::sync::mpsc;

use crate::config::{Config, Endpoint, NoOwnAddress, Store};
use crate::dispatch::view::View;
use crate::dispatch::{ClientKind, Counters};
use crate::gossip::Millis;
use crate::net::clock::{Clock, wall_ms};
use crate::net::listener::{Accepted, Listener, accept};
use crate::net::worker::{Heard, Notice, Setup, StoreAddress, Worker};
use crate::ring::{PeerId, Topology, TopologyError};
use crate::store::{MemoryStore, StoreSettings};
use affinity::AffinityPlane;
use build::Knobs;
use control::Control;

pub use control::{Change, Order, Status};

/// How long a stopping node waits for what is in flight.
const DRAIN_MAX: Duration = Duration::from_secs(5);

/// Why a node could not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// A listener could not be bound.
    #[error("cannot listen on {what} {address}: {error}")]
    Listen {
        /// Which setting.
        what: &'static str,
        /// Its value.
        address: String,
        /// The reason.
        error: io::Error,
    },
    /// Nobody could connect to this node.
    #[error("{0}")]
    NoOwnAddress(#[from] NoOwnAddress),
    /// The ring makes no sense.
    #[error("the ring cannot be built: {0}")]
    Ring(#[from] TopologyError),
    /// The filters cannot be built.
    #[error("affinity: {0}")]
    Affinity(#[from] crate::affinity::domain::DomainError),
    /// A thread could not be started.
    #[error("cannot start: {0}")]
    System(#[from] io::Error),
}

/// What the planes of a node share.
pub struct Shared {
    /// The configuration it was started with.
    pub config: Config,
    /// Its clock.
    pub clock: Clock,
    /// The snapshot in use.
    pub view: Arc<ArcSwap<View>>,
    /// Its workers.
    pub workers: Arc<[Worker]>,
    /// Connections of clients taken in and turned away.
    pub accepted: Arc<Accepted>,
    /// When peers were last heard.
    pub heard: Arc<Heard>,
    /// The embedded store, when it has one.
    pub embedded: Option<Arc<MemoryStore>>,
    /// Who holds what, unless that is off.
    pub affinity: Option<Arc<AffinityPlane>>,
    /// What the control plane shows.
    pub status: Status,
    /// What operators ask of the control plane.
    pub orders: mpsc::UnboundedSender<Order>,
    /// The document gateway, once it serves.
    #[cfg(feature = "documents")]
    pub documents: std::sync::OnceLock<Arc<crate::gateway::Gateway>>,
}

impl Shared {
    /// The sum of all workers' figures.
    pub async fn counters(&self) -> Counters {
        let mut sum = Counters::default();
        for worker in self.workers.iter() {
            if let Some(counters) = worker.counters().await {
                sum.add(&counters);
            }
        }
        sum
    }

    /// Publishes a new snapshot.
    pub fn publish(&self, view: View) {
        self.view.store(Arc::new(view));
        for worker in self.workers.iter() {
            worker.refresh();
        }
    }
}

/// A node that serves.
pub struct Node {
    shared: Arc<Shared>,
    #[cfg(feature = "documents")]
    documents: Option<documents::Documents>,
    tasks: Vec<tokio::task::JoinHandle<()>>,
}

impl Node {
    /// Starts a node in the current runtime, which becomes its control runtime.
    pub fn start(config: Config) -> Result<Node, StartError> {
        let clients = listen("listen", &config.listen, config.backlog)?;
        let peers = listen("dyn_listen", &config.dyn_listen, config.backlog)?;
        #[cfg(not(feature = "documents"))]
        if !config.documents.backends.0.is_empty() {
            let missing = "this build has no document gateway (feature `documents`)";
            return Err(StartError::System(io::Error::other(missing)));
        }
        #[cfg(feature = "documents")]
        let for_documents = documents::bind(&config)?;
        let own = config.own_address(peers.port().unwrap_or(0), |name| std::env::var(name).ok())?;
        if let Some(warning) = &own.warning {
            tracing::warn!("{warning}");
        }
        let clock = Clock::start();
        let now = Millis(clock.now().mono_ms());
        let membership = build::membership(&config, &own.address, wall_ms(), now);
        let table = membership.peers();
        let heard = Arc::new(Heard::default());
        heard.reserve(PeerId(table.len() as u32));
        let knobs = Knobs::new(&config);
        let topology = Topology::build(table)?;
        let affinity = AffinityPlane::new(&config, &topology, clock)?.map(Arc::new);
        let domains = affinity.as_ref().map(|plane| plane.domains());
        let view = Arc::new(ArcSwap::from_pointee(build::view(&config, &knobs, topology, domains)));
        let (notices, notices_in) = mpsc::unbounded_channel();
        let (orders, orders_in) = mpsc::unbounded_channel();
        let (proven, proven_in) = mpsc::unbounded_channel();
        let embedded = matches!(config.store, Store::Embedded).then(|| {
            Arc::new(MemoryStore::new(StoreSettings {
                memory_bytes_max: config.embedded.memory_bytes_max.as_usize() as u64,
                keys_max: config.embedded.keys_max,
                events_max: if affinity.is_some() { affinity::EVENTS_MAX } else { 0 },
                ..StoreSettings::default()
            }))
        });
        let setup = setup(&config, &view, &embedded, clock, &heard, notices);
        let workers: Arc<[Worker]> = (0..config.worker_count())
            .map(|number| Worker::spawn(number, setup.clone()))
            .collect::<io::Result<_>>()?;
        let shared = Arc::new(Shared {
            config,
            clock,
            view,
            workers,
            accepted: Arc::default(),
            heard,
            embedded,
            affinity,
            status: Status::default(),
            orders,
            #[cfg(feature = "documents")]
            documents: Default::default(),
        });
        let control = Control::new(Arc::clone(&shared), membership, knobs, proven);

        report::print(&shared, &clients, &peers, &own);
        #[cfg(feature = "documents")]
        let documents = for_documents
            .map(|listener| documents::Documents::start(&shared, listener, &clients))
            .transpose()?;
        let mut tasks = vec![
            tokio::spawn(serve(Arc::clone(&shared), clients, ClientKind::Client)),
            tokio::spawn(serve(Arc::clone(&shared), peers, ClientKind::Peer)),
            tokio::spawn(control.run(notices_in, orders_in, proven_in)),
        ];
        if let (Some(plane), Some(store)) = (&shared.affinity, &shared.embedded) {
            tasks.push(tokio::spawn(Arc::clone(plane).follow_store(Arc::clone(store))));
        }
        Ok(Node {
            shared,
            #[cfg(feature = "documents")]
            documents,
            tasks,
        })
    }

    /// What its planes share.
    pub fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// Stops: nobody new is accepted, what is in flight is finished within a bound.
    pub async fn stop(self) {
        // First: its small state goes through the client listener.
        #[cfg(feature = "documents")]
        if let Some(documents) = self.documents {
            documents.stop().await;
        }
        self.shared.accepted.closed.store(true, Ordering::Relaxed);
        for task in &self.tasks {
            task.abort();
        }
        let drained = async {
            for worker in self.shared.workers.iter() {
                worker.drain().await;
            }
        };
        if tokio::time::timeout(DRAIN_MAX, drained).await.is_err() {
            tracing::warn!("stopped with requests in flight");
        }
        for worker in self.shared.workers.iter() {
            worker.stop();
        }
    }
}

fn setup(
    config: &Config,
    view: &Arc<ArcSwap<View>>,
    embedded: &Option<Arc<MemoryStore>>,
    clock: Clock,
    heard: &Arc<Heard>,
    notices: mpsc::UnboundedSender<Notice>,
) -> Setup {
    let store = match &config.store {
        Store::Embedded => None,
        Store::Server(server) => Some(match &server.endpoint {
            Endpoint::Tcp(address) => StoreAddress::Tcp(address.host.clone(), address.port),
            Endpoint::Unix(path) => StoreAddress::Unix(path.clone()),
        }),
    };
    Setup {
        view: Arc::clone(view),
        embedded: embedded
            .as_ref()
            .map(|store| embedded::executor(store, view.load().settings.protocol)),
        scripts: Arc::default(),
        store,
        store_user: config.auth.store_user.clone(),
        store_password: config.auth.store_password.as_ref().map(|p| p.expose().to_owned()),
        store_retry_max: Duration::from_millis(config.store_link.retry_max_ms),
        clock,
        heard: Arc::clone(heard),
        notices,
    }
}

fn listen(what: &'static str, endpoint: &Endpoint, backlog: u32) -> Result<Listener, StartError> {
    let bound = match endpoint {
        Endpoint::Tcp(address) => Listener::tcp(&address.host, address.port, backlog as i32),
        Endpoint::Unix(path) => Listener::unix(path),
    };
    bound.map_err(|error| StartError::Listen { what, address: endpoint.to_string(), error })
}

async fn serve(shared: Arc<Shared>, listener: Listener, kind: ClientKind) {
    let workers = Arc::clone(&shared.workers);
    let most = shared.config.limits.client_connections;
    let accepted = Arc::clone(&shared.accepted);
    if let Err(error) = accept(listener, kind, workers, most, accepted).await {
        tracing::error!(%error, "a listener failed");
    }
}
