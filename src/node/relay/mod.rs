//! The relay of a node: what its affinity plane publishes goes out, what other relays publish
//! comes in.

mod consume;
mod publish;
mod report;

use std::sync::Arc;

use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use xxhash_rust::xxh3::xxh3_64;

use self::consume::Upstream;
use super::affinity::AffinityPlane;
use super::{Shared, StartError};
use crate::config::{Config, Endpoint};
use crate::net::listener::Listener;
use crate::relay::envelope::RelayId;
use crate::relay_server::Relay;

/// What the admin port shows of the relay.
pub struct RelayPlane {
    affinity: Arc<AffinityPlane>,
    server: Option<Arc<Relay>>,
    upstreams: Vec<Arc<Upstream>>,
}

/// The relay's tasks.
pub(super) struct Running {
    stop: Option<oneshot::Sender<()>>,
    serving: Option<JoinHandle<()>>,
    tasks: Vec<JoinHandle<()>>,
}

/// The bound listener, before the node serves; none while nothing is served.
pub(super) fn bind(config: &Config) -> Result<Option<Listener>, StartError> {
    let Some(address) = config.relay.listen() else { return Ok(None) };
    let endpoint = Endpoint::Tcp(address.clone());
    super::start::listen("relay.listen", &endpoint, config.backlog).map(Some)
}

impl Running {
    /// Serves on `listener`, if there is one, and follows the upstreams.
    pub(super) fn start(
        shared: &Arc<Shared>,
        listener: Option<Listener>,
    ) -> Result<Running, StartError> {
        let mut running = Running { stop: None, serving: None, tasks: Vec::new() };
        let Some(affinity) = &shared.affinity else { return Ok(running) };
        let mut server = None;
        if let Some(Listener::Tcp(listener)) = listener {
            let listener = TcpListener::from_std(listener)?;
            if let Ok(address) = listener.local_addr() {
                tracing::info!("relay on {address}");
            }
            let relay = Relay::new(id(&shared.config)?, shared.config.relay.clone(), shared.clock);
            let (stop, stopped) = oneshot::channel::<()>();
            running.stop = Some(stop);
            let (served, loads) = (Arc::clone(&relay), publish::loads(shared));
            running.serving = Some(tokio::spawn(async move {
                let stopped = async {
                    // A dropped sender ends it too.
                    let _ = stopped.await;
                };
                if let Err(error) = served.serve(listener, loads, stopped).await {
                    tracing::error!(%error, "the relay failed");
                }
            }));
            let publishing = publish::run(Arc::clone(shared), Arc::clone(&relay), affinity.clone());
            running.tasks.push(tokio::spawn(publishing));
            server = Some(relay);
        }
        let mut upstreams = Vec::new();
        for address in shared.config.relay.upstreams() {
            let upstream = Arc::new(Upstream::new(shared, affinity, address.to_string()));
            let settings = consume::settings(&shared.config, address.to_string());
            running.tasks.push(tokio::spawn(Arc::clone(&upstream).run(settings)));
            upstreams.push(upstream);
        }
        // Nobody else sets it.
        let affinity = Arc::clone(affinity);
        let _ = shared.relay.set(RelayPlane { affinity, server, upstreams });
        Ok(running)
    }

    /// Ends the streams cleanly, within a bound; upstreams are left at once.
    pub(super) async fn stop(self) {
        for task in &self.tasks {
            task.abort();
        }
        if let Some(stop) = self.stop {
            let _ = stop.send(());
        }
        if let Some(serving) = self.serving {
            // It has bounds of its own.
            let _ = serving.await;
        }
    }
}

/// The runtime is the node's slot; each start is another life (decision J1).
fn id(config: &Config) -> Result<RelayId, StartError> {
    let mut random = [0; 8];
    getrandom::fill(&mut random)
        .map_err(|error| StartError::System(std::io::Error::other(error.to_string())))?;
    Ok(RelayId {
        drt_instance_id: xxh3_64(slot(config).as_bytes()).max(1),
        incarnation: (u64::from_le_bytes(random) >> 1).max(1),
    })
}

/// A name that stays with the node over restarts.
fn slot(config: &Config) -> String {
    let token = config.tokens.first().map(ToString::to_string).unwrap_or_default();
    format!("{}/{}/{token}", config.datacenter, config.rack)
}
