//! What a node says when it starts.

use super::Shared;
use super::start::Listeners;
use crate::config::{OwnAddress, Store};

/// Logs version, addresses, place in the ring and limits.
pub(super) fn print(shared: &Shared, listeners: &Listeners, own: &OwnAddress) {
    let config = &shared.config;
    let view = shared.view.load();
    let topology = &view.topology;
    tracing::info!("torc {}", env!("CARGO_PKG_VERSION"));
    let (clients, peers) = (listeners.clients.local(), listeners.peers.local());
    tracing::info!("clients on {clients}, peers on {peers}");
    #[cfg(feature = "admin")]
    print_admin(listeners, &config.stats_listen.host);
    tracing::info!("other nodes are told {} (from {})", own.address, own.source);
    let store = match &config.store {
        Store::Embedded => "embedded, in memory only: empty after a restart".to_owned(),
        Store::Server(server) => server.endpoint.to_string(),
    };
    tracing::info!("datastore: {store}");
    let tokens: Vec<String> = config.tokens.iter().map(ToString::to_string).collect();
    tracing::info!(
        "cluster {}, datacenter {}, rack {}, tokens {}",
        config.cluster_name(),
        config.datacenter,
        config.rack,
        tokens.join(",")
    );
    tracing::info!(
        "ring: {} peers in {} racks, digest {:016x}; reads {}, writes {}",
        topology.peers().len(),
        topology.racks().len(),
        topology.digest(),
        view.read,
        view.write
    );
    let secret = match config.cluster.secret {
        Some(_) => "control messages are authenticated with cluster.secret",
        None => "peers are trusted: there is no cluster.secret",
    };
    tracing::info!("{secret}");
    tracing::info!("{} workers, timeout {} ms", shared.workers.len(), config.timeout_ms);
}

#[cfg(feature = "admin")]
fn print_admin(listeners: &Listeners, host: &str) {
    let admin = listeners.admin.local();
    match super::admin_view::is_exposed(host) {
        false => tracing::info!("admin port on {admin}"),
        true => tracing::warn!("admin port on {admin}: it has no passwords, keep it private"),
    }
}
