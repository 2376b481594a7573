//! Starting a node: everything that can fail comes first, then the tasks.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use tokio::runtime::Handle;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use super::affinity::{self, AffinityPlane, Following, RedisStore};
use super::build::{self, Knobs};
use super::control::Control;
use super::discovery;
#[cfg(feature = "documents")]
use super::documents::Documents;
use super::embedded::executor;
use super::fill::Fill;
use super::{Node, Shared, Status, descriptors, report};
use crate::affinity::places::Places;
use crate::config::{
    AffinityMode, BadVariable, Config, Endpoint, KeyFileError, NoOwnAddress, OwnAddress, Store,
};
use crate::dispatch::ClientKind;
use crate::dispatch::view::{NodeState, Protocol, View};
use crate::gossip::{Claim, Membership, Millis};
use crate::net::backoff::Growth;
use crate::net::buffers::Buffers;
use crate::net::clock::{Clock, wall_ms};
use crate::net::control_link::{ControlLinks, FILTER_QUEUE_MAX, GOSSIP_QUEUE_MAX};
use crate::net::listener::{Listener, accept};
use crate::net::names::Names;
use crate::net::secure::LinkSecurity;
use crate::net::store_health::StoreHealth;
use crate::net::worker::{Heard, Notice, Setup, StoreAddress, Worker};
use crate::ring::{PeerId, Topology, TopologyError};
use crate::store::{MemoryStore, StoreSettings};
use crate::telemetry::log::Log;

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
    /// The key of encrypted links cannot be used.
    #[error("{0}")]
    KeyFile(#[from] KeyFileError),
    /// The seed provider cannot be asked.
    #[error("{0}")]
    SeedProvider(#[from] BadVariable),
    /// The certificates for document servers cannot be used.
    #[error("documents.ca_file {}: {reason}", path.display())]
    CaFile {
        /// Its path.
        path: std::path::PathBuf,
        /// Why.
        reason: String,
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

/// The bound listeners of a node.
pub(super) struct Listeners {
    pub(super) clients: Listener,
    pub(super) peers: Listener,
    #[cfg(feature = "admin")]
    pub(super) admin: Listener,
    #[cfg(feature = "documents")]
    pub(super) documents: Option<Listener>,
    #[cfg(feature = "relay")]
    pub(super) relay: Option<Listener>,
}

impl Node {
    /// Starts a node in the current runtime, which becomes its control runtime. The admin port
    /// shows and changes `log`.
    pub fn start(mut config: Config, log: Arc<Log>) -> Result<Node, StartError> {
        let limits = &mut config.limits;
        limits.client_connections = descriptors::clients_max(limits.client_connections);
        let security = build::security(&config)?;
        #[cfg_attr(not(any(feature = "documents", feature = "relay")), expect(unused_mut))]
        let mut listeners = bind(&config)?;
        let port = listeners.peers.port().unwrap_or(0);
        let own = config.own_address(port, |name| std::env::var(name).ok())?;
        let source = config.seed_source(|name| std::env::var(name).ok())?;
        let server = config.cluster.dns_server.map(|server| server.0);
        let names = Names::new(server, Handle::current())?;
        let clock = Clock::start();
        let now = Millis(clock.now().mono_ms());
        let membership = build::membership(&config, &own.address, wall_ms(), now);
        let table = membership.peers();
        let heard = Arc::new(Heard::default());
        heard.reserve(PeerId(table.len() as u32));
        let topology = Topology::build(table)?;
        let affinity = AffinityPlane::new(&config, &topology, clock)?.map(Arc::new);
        let domains = affinity.as_ref().map(|plane| plane.domains());
        let knobs = Knobs::new(&config);
        let first = first_knobs(knobs, &membership);
        let view = Arc::new(ArcSwap::from_pointee(build::view(&config, &first, topology, domains)));
        let (notices, notices_in) = mpsc::unbounded_channel();
        let (orders, orders_in) = mpsc::unbounded_channel();
        let (proven, proven_in) = mpsc::unbounded_channel();
        let embedded = store(&config);
        let buffers = Arc::new(Buffers::new(config.limits.buffers_bytes_max.as_usize()));
        let setup = setup(&config, &view, &embedded, clock, &heard, &buffers, notices, &names);
        let setup = Setup { security: security.clone(), ..setup };
        let store_health = embedded.is_none().then(|| Arc::clone(&setup.store_health));
        let workers: Arc<[Worker]> = (0..config.worker_count())
            .map(|number| Worker::spawn(number, setup.clone()))
            .collect::<io::Result<_>>()?;
        setup.siblings.introduce(&workers);
        let shared = Arc::new(Shared {
            config,
            clock,
            view,
            workers,
            accepted: Arc::default(),
            buffers,
            heard,
            embedded,
            affinity,
            store_health,
            status: Status::default(),
            open_for_clients: Default::default(),
            orders,
            #[cfg(feature = "documents")]
            documents: Default::default(),
            #[cfg(feature = "relay")]
            relay: Default::default(),
        });
        let probe = shared.view.load().settings.protocol.probe();
        let control_links = |queue_max| {
            ControlLinks::new(probe, security.clone(), names.clone(), proven.clone(), queue_max)
        };
        let links = control_links(GOSSIP_QUEUE_MAX);
        let filter_links = control_links(FILTER_QUEUE_MAX);
        let control = Control::new(Arc::clone(&shared), membership, knobs, links);
        tell(&shared, &listeners, &own);
        #[cfg(feature = "documents")]
        let documents = (listeners.documents.take())
            .map(|listener| Documents::start(&shared, listener, &listeners.clients, &own.address))
            .transpose()?;
        #[cfg(feature = "relay")]
        let relay = super::relay::Running::start(&shared, listeners.relay.take())?;
        let mut tasks = serve(&shared, listeners, log);
        if let Some(plane) = &shared.affinity {
            let following = Following {
                links: filter_links,
                places: Places::of(&shared.view.load().topology),
                seal: build::seal(&shared.config),
                store: shared.embedded.clone(),
                store_bytes_max: shared.config.embedded.memory_bytes_max.as_usize() as u64,
                redis: RedisStore::of(&shared.config, plane),
                orders: shared.orders.clone(),
            };
            tasks.push(tokio::spawn(Arc::clone(plane).run(following)));
        }
        if let Some(fill) = fill(&shared, probe, security, &names) {
            tasks.push(tokio::spawn(fill.run()));
        }
        tasks.push(tokio::spawn(control.run(notices_in, orders_in, proven_in)));
        tasks.extend(discovery::start(&shared, source, names));
        Ok(Node {
            shared,
            #[cfg(feature = "documents")]
            documents,
            #[cfg(feature = "relay")]
            relay,
            tasks,
        })
    }
}

/// An empty datastore is not read before the control plane knows whether others have data.
fn first_knobs(knobs: Knobs, membership: &Membership) -> Knobs {
    match membership.local().record().claim {
        Claim::Joining => Knobs { state: NodeState::WritesOnly, ..knobs },
        _ => knobs,
    }
}

fn bind(config: &Config) -> Result<Listeners, StartError> {
    #[cfg(not(feature = "documents"))]
    if !config.documents.backends.0.is_empty() {
        let missing = "this build has no document gateway (feature `documents`)";
        return Err(StartError::System(io::Error::other(missing)));
    }
    #[cfg(not(feature = "relay"))]
    if config.relay.is_on() {
        let missing = "this build has no relay (feature `relay`)";
        return Err(StartError::System(io::Error::other(missing)));
    }
    Ok(Listeners {
        clients: listen("listen", &config.listen, config.backlog)?,
        peers: listen("dyn_listen", &config.dyn_listen, config.backlog)?,
        #[cfg(feature = "admin")]
        admin: listen("stats_listen", &Endpoint::Tcp(config.stats_listen.clone()), config.backlog)?,
        #[cfg(feature = "documents")]
        documents: super::documents::bind(config)?,
        #[cfg(feature = "relay")]
        relay: super::relay::bind(config)?,
    })
}

pub(super) fn listen(
    what: &'static str,
    endpoint: &Endpoint,
    backlog: u32,
) -> Result<Listener, StartError> {
    let bound = match endpoint {
        Endpoint::Tcp(address) => Listener::tcp(&address.host, address.port, backlog as i32),
        Endpoint::Unix(path) => Listener::unix(path),
    };
    bound.map_err(|error| StartError::Listen { what, address: endpoint.to_string(), error })
}

fn store(config: &Config) -> Option<Arc<MemoryStore>> {
    let followed = config.affinity.mode != AffinityMode::Off;
    let settings = || StoreSettings {
        memory_bytes_max: config.embedded.memory_bytes_max.as_usize() as u64,
        keys_max: config.embedded.keys_max,
        tombstones_max: usize::try_from(config.embedded.tombstones_max).unwrap_or(usize::MAX),
        tombstone_age_ms: config.embedded.tombstone_age_ms,
        events_max: if followed { affinity::EVENTS_MAX } else { 0 },
        // Two nodes must not make the same random picks.
        seed: wall_ms() ^ u64::from(std::process::id()).rotate_left(32),
        ..StoreSettings::default()
    };
    matches!(config.store, Store::Embedded).then(|| Arc::new(MemoryStore::new(settings())))
}

fn setup(
    config: &Config,
    view: &Arc<ArcSwap<View>>,
    embedded: &Option<Arc<MemoryStore>>,
    clock: Clock,
    heard: &Arc<Heard>,
    buffers: &Arc<Buffers>,
    notices: mpsc::UnboundedSender<Notice>,
    names: &Names,
) -> Setup {
    let store = match &config.store {
        Store::Embedded => None,
        Store::Server(server) => Some(match &server.endpoint {
            Endpoint::Tcp(address) => StoreAddress::Tcp(address.host.clone(), address.port),
            Endpoint::Unix(path) => StoreAddress::Unix(path.clone()),
        }),
    };
    let link = &config.store_link;
    let protocol = view.load().settings.protocol;
    Setup {
        view: Arc::clone(view),
        embedded: embedded.as_ref().map(|store| executor(store, protocol)),
        scripts: Arc::default(),
        stamps: Arc::default(),
        store,
        store_user: config.auth.store_user.clone(),
        store_password: config.auth.store_password.as_ref().map(|p| p.expose().to_owned()),
        store_pauses: Growth {
            after: if link.auto_eject { link.failure_limit } else { u32::MAX },
            most: Duration::from_millis(link.retry_max_ms),
        },
        security: None,
        names: names.clone(),
        store_health: Arc::new(StoreHealth::new(config.worker_count(), link.preconnect)),
        clock,
        buffers: Arc::clone(buffers),
        idle_timeout_ms: config.limits.idle_timeout_ms,
        heard: Arc::clone(heard),
        siblings: Arc::default(),
        notices,
    }
}

/// The start report, and what the operator should know beside it.
fn tell(shared: &Shared, listeners: &Listeners, own: &OwnAddress) {
    if let Some(warning) = &own.warning {
        tracing::warn!("{warning}");
    }
    report::print(shared, listeners, own);
}

/// Copies what an embedded store may lack. memcache has no words for that.
fn fill(
    shared: &Arc<Shared>,
    probe: &'static [u8],
    security: Option<LinkSecurity>,
    names: &Names,
) -> Option<Fill> {
    let redis = shared.view.load().settings.protocol == Protocol::Redis;
    let store = shared.embedded.clone().filter(|_| redis && shared.config.cluster.gossips())?;
    Some(Fill { shared: Arc::clone(shared), store, probe, security, names: names.clone() })
}

fn serve(shared: &Arc<Shared>, listeners: Listeners, log: Arc<Log>) -> Vec<JoinHandle<()>> {
    let mut tasks =
        vec![tokio::spawn(take_in(Arc::clone(shared), listeners.clients, ClientKind::Client))];
    tasks.push(tokio::spawn(take_in(Arc::clone(shared), listeners.peers, ClientKind::Peer)));
    #[cfg(feature = "admin")]
    tasks.push(tokio::spawn(super::admin_view::serve(Arc::clone(shared), listeners.admin, log)));
    #[cfg(not(feature = "admin"))]
    drop(log);
    tasks
}

async fn take_in(shared: Arc<Shared>, listener: Listener, kind: ClientKind) {
    let workers = Arc::clone(&shared.workers);
    let most = shared.config.limits.client_connections;
    let accepted = Arc::clone(&shared.accepted);
    if kind == ClientKind::Client {
        // It ends with the node.
        let _ = shared.open_for_clients.subscribe().wait_for(|open| *open).await;
    }
    if let Err(error) = accept(listener, kind, workers, most, accepted).await {
        tracing::error!(%error, "a listener failed");
    }
}
