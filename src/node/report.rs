//! What a node says when it starts.

use super::Shared;
use crate::config::{OwnAddress, Store};
use crate::net::listener::Listener;

/// Logs version, addresses, place in the ring and limits.
pub(super) fn print(shared: &Shared, clients: &Listener, peers: &Listener, own: &OwnAddress) {
    let config = &shared.config;
    let view = shared.view.load();
    let topology = &view.topology;
    tracing::info!("torc {}", env!("CARGO_PKG_VERSION"));
    tracing::info!("clients on {}, peers on {}", clients.local(), peers.local());
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
    tracing::info!("{} workers, timeout {} ms", shared.workers.len(), config.timeout_ms);
}
