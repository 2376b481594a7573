//! The document gateway of a node: its settings from the configuration, its groups from the
//! racks of the ring, its small state through the node's own client listener.

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use super::{Shared, StartError};
use crate::config::{
    Config, DocumentBackend, Endpoint, PartialAnswer, Protocol, Secret, SessionWait,
};
use crate::gateway::{
    BackendSettings, Gateway, Key, MemoryKv, NodeAddress, PartialReads, RespKv, RespKvSettings,
    RingKv, SessionStrategy, Settings, WallClock,
};
use crate::net::clock::wall_us;
use crate::net::listener::Listener;
use crate::ring::Topology;

/// Pause between looks at the ring for the racks of backends.
const RACKS_PAUSE: Duration = Duration::from_millis(200);
/// Looks after which the missing names are logged again.
const RACKS_LOOKS: u32 = 50;
/// Time one command for the small state may take.
const STATE_TIMEOUT: Duration = Duration::from_secs(2);
/// How long a stopping gateway waits for requests in flight.
const DRAIN_MAX: Duration = Duration::from_secs(5);

/// The gateway's part of a node.
pub(super) struct Documents {
    stop: oneshot::Sender<()>,
    serving: JoinHandle<()>,
}

/// The bound listener, before the node serves; `None` without backends.
pub(super) fn bind(config: &Config) -> Result<Option<Listener>, StartError> {
    if config.documents.backends.0.is_empty() {
        return Ok(None);
    }
    super::start::listen("documents.listen", &config.documents.listen, config.backlog).map(Some)
}

impl Documents {
    /// Serves documents once every backend's group is known. `clients` is the node's own client
    /// listener.
    pub(super) fn start(
        shared: &Arc<Shared>,
        listener: Listener,
        clients: &Listener,
    ) -> Result<Documents, StartError> {
        let Listener::Tcp(listener) = listener else {
            let error = std::io::Error::from(std::io::ErrorKind::Unsupported);
            return Err(StartError::System(error));
        };
        let listener = TcpListener::from_std(listener)?;
        if let Ok(address) = listener.local_addr() {
            tracing::info!("documents on {address}");
        }
        let kv = state(&shared.config, clients);
        let (stop, stopped) = oneshot::channel();
        let serving = tokio::spawn(serve(Arc::clone(shared), listener, kv, async {
            // A dropped sender ends it too.
            let _ = stopped.await;
        }));
        Ok(Documents { stop, serving })
    }

    /// Lets requests in flight finish, within a bound.
    pub(super) async fn stop(self) {
        let _ = self.stop.send(());
        let abort = self.serving.abort_handle();
        if tokio::time::timeout(2 * DRAIN_MAX, self.serving).await.is_err() {
            abort.abort();
        }
    }
}

async fn serve(
    shared: Arc<Shared>,
    listener: TcpListener,
    kv: Arc<dyn RingKv>,
    stop: impl Future<Output = ()>,
) {
    let mut stop = std::pin::pin!(stop);
    let groups = tokio::select! {
        groups = groups(&shared) => groups,
        () = &mut stop => return,
    };
    let settings = settings(&shared.config, groups);
    let name = gateway_id(&shared.config);
    match Gateway::new(settings, &name, kv, WallClock::new(wall_us)) {
        Ok(gateway) => {
            let gateway = Arc::new(gateway);
            // Nobody else sets it.
            let _ = shared.documents.set(Arc::clone(&gateway));
            gateway.run(listener, DRAIN_MAX, stop).await;
        }
        Err(error) => {
            tracing::error!(plane = "doc", %error, "documents are not served: the racks of the \
                                                    backends' nodes make no groups that can");
            stop.await;
        }
    }
}

/// What tells this gateway from others: the node's name, else its place in the ring.
fn gateway_id(config: &Config) -> String {
    let place = || format!("{}/{}/{}", config.datacenter, config.rack, config.dyn_listen);
    config.name.clone().unwrap_or_else(place)
}

/// The small state lives in the ring, through the node itself. A memcache ring cannot hold it.
fn state(config: &Config, clients: &Listener) -> Arc<dyn RingKv> {
    if config.data_store == Protocol::Memcache {
        tracing::warn!("documents: a memcache ring cannot keep tasks; they are this node's own");
        return Arc::new(MemoryKv::new(WallClock::new(wall_us)));
    }
    let address = match &config.listen {
        Endpoint::Unix(path) => NodeAddress::Unix(path.clone()),
        Endpoint::Tcp(address) => {
            let host = if address.is_wildcard() { "localhost" } else { &address.host };
            let port = clients.port().unwrap_or(address.port);
            NodeAddress::Tcp(if host.contains(':') {
                format!("[{host}]:{port}")
            } else {
                format!("{host}:{port}")
            })
        }
    };
    let password = config.auth.requirepass.as_ref().and_then(|key| Key::new(key.expose()));
    Arc::new(RespKv::new(RespKvSettings { address, password, timeout: STATE_TIMEOUT }))
}

/// The backends' groups: by number, or by the racks of their nodes once all of them are known.
/// They are looked up once: membership of a group does not follow who is up.
async fn groups(shared: &Shared) -> Vec<Vec<BackendSettings>> {
    let backends = &shared.config.documents.backends.0;
    if backends.iter().all(|backend| backend.group.is_some()) {
        return by_number(backends);
    }
    let mut looks = 0;
    loop {
        let view = shared.view.load_full();
        match by_rack(backends, &view.topology, &shared.config.datacenter) {
            Ok(groups) => return groups,
            Err(missing) if looks % RACKS_LOOKS == 0 => {
                let names = missing.join(", ");
                tracing::warn!(
                    plane = "doc",
                    names,
                    "documents wait for nodes that are named in \
                                                      documents.backends and not known"
                );
            }
            Err(_) => {}
        }
        looks += 1;
        tokio::time::sleep(RACKS_PAUSE).await;
    }
}

fn by_number(backends: &[DocumentBackend]) -> Vec<Vec<BackendSettings>> {
    let mut groups: BTreeMap<u16, Vec<BackendSettings>> = BTreeMap::new();
    for backend in backends {
        groups.entry(backend.group.unwrap_or(0)).or_default().push(named(backend));
    }
    groups.into_values().collect()
}

/// Groups by rack of the own datacenter, racks in the order of their names; else the names of
/// backends that stand for no node there.
fn by_rack(
    backends: &[DocumentBackend],
    topology: &Topology,
    datacenter: &str,
) -> Result<Vec<Vec<BackendSettings>>, Vec<String>> {
    let mut groups: BTreeMap<String, Vec<BackendSettings>> = BTreeMap::new();
    let mut missing = Vec::new();
    for backend in backends {
        let mut peers = topology.peers();
        match peers.find(|peer| peer.name == backend.id && peer.dc == datacenter) {
            Some(peer) => groups.entry(peer.rack.to_owned()).or_default().push(named(backend)),
            None => missing.push(backend.id.clone()),
        }
    }
    if missing.is_empty() { Ok(groups.into_values().collect()) } else { Err(missing) }
}

fn named(backend: &DocumentBackend) -> BackendSettings {
    BackendSettings { id: backend.id.clone(), url: backend.url.clone() }
}

fn settings(config: &Config, groups: Vec<Vec<BackendSettings>>) -> Settings {
    let documents = &config.documents;
    let ms = Duration::from_millis;
    Settings {
        shards: documents.shards,
        replication_factor: documents.replication_factor,
        groups,
        // Racks of another datacenter are other groups of other backends.
        namespace: match documents.backends.0.iter().any(|backend| backend.group.is_none()) {
            true => config.datacenter.clone(),
            false => String::new(),
        },
        master_key: key(&documents.master_key, "TORC_DOCUMENTS_MASTER_KEY"),
        admin_key: key(&documents.admin_key, "TORC_DOCUMENTS_ADMIN_KEY"),
        node_master_key: key(&documents.node_master_key, "TORC_DOCUMENTS_NODE_MASTER_KEY"),
        slot: documents.slot,
        max_gateways: documents.max_gateways,
        node_timeout: ms(documents.node_timeout_ms),
        request_timeout: ms(documents.request_timeout_ms),
        task_lost_after: ms(documents.task_lost_after_ms),
        session_strategy: match documents.session_strategy {
            SessionWait::Block => SessionStrategy::Block,
            SessionWait::RoutePin => SessionStrategy::RoutePin,
        },
        session_wait: ms(documents.session_wait_ms),
        partial_reads: match documents.partial_reads {
            PartialAnswer::Partial => PartialReads::Allow,
            PartialAnswer::Error => PartialReads::Refuse,
        },
        body_bytes_max: documents.body_bytes_max.as_usize(),
        in_flight_bytes_max: documents.in_flight_bytes_max.as_usize(),
        connections_max: documents.connections_max,
        lane_requests_max: documents.lane_requests_max,
        refresh_interval: ms(documents.refresh_interval_ms),
        ..Settings::default()
    }
}

fn key(configured: &Option<Secret>, variable: &str) -> Option<Key> {
    match configured {
        Some(secret) => Key::new(secret.expose()),
        None => Key::new(&std::env::var(variable).unwrap_or_default()),
    }
}
