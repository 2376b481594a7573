//! The document gateway of a node: its settings from the configuration, its groups from the
//! racks of the ring, its small state through the node's own client listener.

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use super::{Order, Shared, StartError};
use crate::config::{
    Config, DocumentBackend, Endpoint, HostPort, PartialAnswer, Protocol, Secret, SessionWait,
};
use crate::document::reserved::Reserved;
use crate::gateway::{
    BackendSettings, Gateway, GatewayFacts, Key, MemoryKv, NodeAddress, PartialReads, RespKv,
    RespKvSettings, RingKv, SessionStrategy, Settings, TlsRoots, WallClock,
};
use crate::gossip::{Reach, Slot};
use crate::net::clock::wall_us;
use crate::net::listener::Listener;
use crate::ring::Topology;

/// Pause between looks at the ring for the racks of backends.
const RACKS_PAUSE: Duration = Duration::from_millis(200);
/// Looks after which the missing names are logged again.
const RACKS_LOOKS: u32 = 50;
/// Time one command for the small state may take beyond the node's own deadline.
const STATE_GRACE: Duration = Duration::from_secs(1);
/// Pause between two exchanges with what gossip knows.
const TALK_PAUSE: Duration = Duration::from_millis(500);
/// How long a stopping gateway waits for requests in flight.
const DRAIN_MAX: Duration = Duration::from_secs(5);

/// The gateway's part of a node.
pub(super) struct Documents {
    stop: oneshot::Sender<()>,
    serving: JoinHandle<()>,
}

/// Who vouches for servers behind https.
pub(super) fn tls_roots(config: &Config) -> Result<TlsRoots, StartError> {
    let Some(path) = &config.documents.ca_file else { return Ok(TlsRoots::default()) };
    let refused = |reason: String| StartError::CaFile { path: path.clone(), reason };
    let text = std::fs::read(path).map_err(|error| refused(error.to_string()))?;
    TlsRoots::from_pem(&text).map_err(|error| refused(error.to_string()))
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
    /// listener, `own` where peers reach the node.
    pub(super) fn start(
        shared: &Arc<Shared>,
        listener: Listener,
        clients: &Listener,
        own: &HostPort,
    ) -> Result<Documents, StartError> {
        let Listener::Tcp(listener) = listener else {
            let error = std::io::Error::from(std::io::ErrorKind::Unsupported);
            return Err(StartError::System(error));
        };
        let listener = TcpListener::from_std(listener)?;
        let address = listener.local_addr()?;
        tracing::info!("documents on {address}");
        let reached = Reached {
            id: Slot::new(&shared.config.datacenter, &shared.config.rack, shared.config.tokens[0])
                .to_string(),
            url: own_url(&shared.config.documents.listen, address.port(), own),
            tls_roots: tls_roots(&shared.config)?,
        };
        if reached.url.is_none() {
            tracing::warn!(
                plane = "doc",
                "documents.listen is reached from this machine only: other gateways cannot hand \
                 writes over, so one document must not be written through two nodes at a time"
            );
        }
        let kv = state(&shared.config, clients);
        let (stop, stopped) = oneshot::channel();
        let serving = tokio::spawn(serve(Arc::clone(shared), listener, kv, reached, async {
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

/// How this gateway is known to the others.
struct Reached {
    /// Its node's place in the ring.
    id: String,
    /// Where it takes writes.
    url: Option<String>,
    /// And how it knows its backends.
    tls_roots: TlsRoots,
}

/// Where other nodes reach the gateway; `None` when it listens for this machine and peers are
/// elsewhere.
fn own_url(listen: &Endpoint, port: u16, own: &HostPort) -> Option<String> {
    let here =
        |host: &HostPort| host.host == "localhost" || host.ip().is_some_and(|ip| ip.is_loopback());
    let listen = listen.host_port()?;
    let host = if listen.is_wildcard() { own } else { listen };
    let reachable = !here(host) || here(own);
    reachable.then(|| format!("http://{}", HostPort::new(&host.host, port)))
}

async fn serve(
    shared: Arc<Shared>,
    listener: TcpListener,
    kv: Arc<dyn RingKv>,
    reached: Reached,
    stop: impl Future<Output = ()>,
) {
    let mut stop = std::pin::pin!(stop);
    let groups = tokio::select! {
        groups = groups(&shared) => groups,
        () = &mut stop => return,
    };
    let settings = Settings {
        own_url: reached.url,
        tls_roots: reached.tls_roots,
        ..settings(&shared.config, groups)
    };
    match Gateway::new(settings, &reached.id, kv, WallClock::new(wall_us)) {
        Ok(gateway) => {
            let gateway = Arc::new(gateway);
            // Nobody else sets it.
            let _ = shared.documents.set(Arc::clone(&gateway));
            tokio::select! {
                () = gateway.run(listener, DRAIN_MAX, stop) => {}
                () = talk(&shared, &gateway) => {}
            }
        }
        Err(error) => {
            tracing::error!(plane = "doc", %error, "documents are not served: the racks of the \
                                                    backends' nodes make no groups that can");
            stop.await;
        }
    }
}

/// Tells other nodes of the gateway and hears of theirs, for ever.
async fn talk(shared: &Shared, gateway: &Gateway) {
    let mut told = None;
    loop {
        let facts = gateway.facts();
        if told.as_ref() != Some(&facts) {
            // A node that stops hears nothing any more.
            let _ = shared.orders.send(Order::Tell(facts.attributes().into()));
            told = Some(facts);
        }
        let (reply, answer) = oneshot::channel();
        if shared.orders.send(Order::Standings(reply)).is_ok()
            && let Ok(standings) = answer.await
        {
            let alive = standings.iter().filter(|standing| standing.reach == Reach::Up);
            let dc = &shared.config.datacenter;
            let near = alive.filter(|standing| {
                // Gateways of other datacenters serve other backends, unless groups are numbered.
                standing.slot.dc == *dc || by_numbers(&shared.config)
            });
            let others =
                near.filter_map(|s| GatewayFacts::read(&s.slot.to_string(), &s.attributes));
            gateway.set_others(others.collect());
        }
        tokio::time::sleep(TALK_PAUSE).await;
    }
}

/// Whether the file numbers the groups, so that they are the same in every datacenter.
fn by_numbers(config: &Config) -> bool {
    config.documents.backends.0.iter().all(|backend| backend.group.is_some())
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
    // A replica that does not answer fails within the node's deadline; the others count then.
    let timeout = Duration::from_millis(config.timeout_ms) + STATE_GRACE;
    Arc::new(RespKv::new(RespKvSettings { address, password, timeout }))
}

/// The backends' groups: by number, or by the racks of their nodes once all of them are known.
/// They are looked up once: membership of a group does not follow who is up.
async fn groups(shared: &Shared) -> Vec<Vec<BackendSettings>> {
    let backends = &shared.config.documents.backends.0;
    if by_numbers(&shared.config) {
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
        namespace: match by_numbers(config) {
            true => String::new(),
            false => config.datacenter.clone(),
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
        reserved: Reserved { anti_entropy: documents.anti_entropy, ttl: documents.ttl },
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
