//! The control plane's loop: what workers and operators report becomes a new snapshot.

use std::sync::Arc;

use tokio::sync::mpsc;

use super::Shared;
use super::build::{self, Knobs};
use crate::net::worker::Notice;
use crate::ring::Peer;

/// Runs until the node stops.
pub(super) async fn run(
    shared: Arc<Shared>,
    mut table: Vec<Peer>,
    knobs: Knobs,
    mut inbox: mpsc::UnboundedReceiver<Notice>,
) {
    while let Some(notice) = inbox.recv().await {
        match notice {
            Notice::Control { kind, body } => {
                tracing::debug!(kind, bytes = body.len(), "control frame");
            }
            Notice::TorcPeer(id) => {
                let Some(peer) = table.iter_mut().find(|p| p.id == id && !p.is_torc) else {
                    continue;
                };
                peer.is_torc = true;
                match build::view(&shared.config, &knobs, table.clone()) {
                    Ok(view) => shared.publish(view),
                    Err(error) => tracing::error!(%error, "the ring cannot be rebuilt"),
                }
            }
        }
    }
}
