//! The life of the process: a runtime, a node in it, and the signals that end it.

use std::sync::Arc;

use tokio::signal::unix::{SignalKind, signal};

use super::{Node, StartError};
use crate::config::Config;
use crate::telemetry::log::Log;

/// Threads of the control runtime: gossip, admin and the other services share them.
const CONTROL_THREADS: usize = 2;

/// Starts a node and serves until SIGINT or SIGTERM. `until` ends it too: the demo's children
/// end with their parent.
pub fn run(
    config: Config,
    log: Arc<Log>,
    until: impl Future<Output = ()>,
) -> Result<(), StartError> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(CONTROL_THREADS)
        .thread_name("control")
        .enable_all()
        .build()?;
    runtime.block_on(async {
        let mut interrupt = signal(SignalKind::interrupt())?;
        let mut terminate = signal(SignalKind::terminate())?;
        let node = Node::start(config, log)?;
        tokio::select! {
            _ = interrupt.recv() => tracing::info!("SIGINT: stopping"),
            _ = terminate.recv() => tracing::info!("SIGTERM: stopping"),
            () = until => tracing::info!("parent ended: stopping"),
        }
        node.stop().await;
        tracing::info!("stopped");
        Ok(())
    })
}
