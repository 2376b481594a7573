//! A node whose embedded store began empty copies its arc from other racks (decision E11).
//!
//! Each rack of its datacenter that is whole is looked through, and each key this node owns is
//! taken from where it was written, or removed, last: a replica that missed writes is outvoted as
//! long as this node agrees with the others, and must not be believed alone by one that begins
//! anew. ([`copying`] tells how.)

mod copying;

use std::sync::Arc;
use std::time::Duration;

use self::copying::{Copied, Copying};
use super::Shared;
use super::orders::Order;
use crate::dispatch::view::View;
use crate::net::names::Names;
use crate::net::secure::LinkSecurity;
use crate::ring::{PeerIdx, PeerRef, PeerState};
use crate::store::MemoryStore;

/// When the first copy begins: by then every coordinator sends its writes here too.
const BEGIN_AFTER: Duration = Duration::from_secs(3);

/// How often is looked whether there is something to do, or to do again.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// What the task needs.
pub(super) struct Fill {
    pub(super) shared: Arc<Shared>,
    pub(super) store: Arc<MemoryStore>,
    /// The question a link begins with.
    pub(super) probe: &'static [u8],
    pub(super) security: Option<LinkSecurity>,
    pub(super) names: Names,
}

impl Fill {
    /// Copies what this node owns as long as it is joining, and says when that is done.
    pub(super) async fn run(self) {
        let join_max = Duration::from_millis(self.shared.config.cluster.join_max_ms);
        let _ = tokio::time::timeout(join_max, async {
            tokio::time::sleep(BEGIN_AFTER).await;
            while !self.is_filled().await {
                tokio::time::sleep(LOOK_EVERY).await;
            }
            // Sending fails only while the node stops.
            let _ = self.shared.orders.send(Order::Filled);
        })
        .await;
    }

    /// One attempt; false when there is nothing to do yet, or not all of it was done.
    async fn is_filled(&self) -> bool {
        let view = self.shared.view.load_full();
        let local = view.topology.peer(view.topology.local());
        if !local.is_joining() {
            return false;
        }
        let others = view.topology.local_racks().filter(|rack| *rack != view.topology.own_rack());
        let racks: Vec<Source> = others.filter_map(|rack| source(&view, rack)).collect();
        if racks.is_empty() {
            return false;
        }
        let Copied { keys, bytes, failed } = match Copying::new(self, &view, &racks).run().await {
            Ok(copied) => copied,
            Err(error) => {
                tracing::warn!("copying from other racks: {error}; to be repeated");
                return false;
            }
        };
        // Another arc is another copy.
        let same = self.shared.view.load().topology.digest() == view.topology.digest();
        if same {
            let from = racks.len();
            tracing::info!("copied {keys} keys ({bytes} bytes) from {from} racks, {failed} failed");
        }
        same
    }
}

/// A rack that has everything, and its nodes.
struct Source {
    rack: usize,
    peers: Vec<PeerIdx>,
}

/// A rack as a source, when together its nodes have everything and can be asked.
fn source(view: &View, rack: usize) -> Option<Source> {
    let topology = &view.topology;
    let owns_arc = |peer: &PeerRef<'_>| peer.state.owns_arc() && !peer.tokens.is_empty();
    let peers = topology.peers().filter(|peer| peer.rack_index == rack && owns_arc(peer));
    let full = |p: PeerRef<'_>| p.state == PeerState::Normal && p.routable() && p.is_torc;
    let peers: Vec<PeerIdx> =
        peers.map(|peer| full(peer).then_some(peer.idx)).collect::<Option<_>>()?;
    (!peers.is_empty()).then_some(Source { rack, peers })
}

/// Whether this node holds `key`.
fn owns(view: &View, key: &[u8]) -> bool {
    let topology = &view.topology;
    let token = view.hasher.token(key);
    let own = topology.own_rack();
    let mine = topology.owners(&token).owner(own) == Some(topology.local());
    let capped = view.buckets.of(key).and_then(|bucket| bucket.n_val);
    mine && capped.is_none_or(|n_val| {
        topology.capped_racks(&token, topology.local_racks(), n_val).any(|rack| rack == own)
    })
}
