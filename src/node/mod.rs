//! A running node: the planes wired together.
//!
//! Start (`start.rs`): bind every listener, build the first snapshot, start the workers, then
//! the control plane and the admin port. Stop: tell the others, accept nobody new, let what is
//! in flight finish, end the workers.

pub mod affinity;
pub mod build;
pub mod serve;

#[cfg(feature = "admin")]
mod admin_view;
mod control;
mod descriptors;
mod discovery;
#[cfg(feature = "documents")]
mod documents;
#[cfg(all(feature = "admin", feature = "documents"))]
mod documents_view;
mod embedded;
mod fill;
mod orders;
#[cfg(feature = "relay")]
mod relay;
mod reload;
mod report;
mod start;
mod status;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use arc_swap::ArcSwap;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinHandle;

use crate::config::Config;
use crate::dispatch::Counters;
use crate::dispatch::view::View;
use crate::net::buffers::Buffers;
use crate::net::clock::Clock;
use crate::net::listener::Accepted;
use crate::net::store_health::StoreHealth;
use crate::net::worker::{Heard, Worker};
use crate::store::MemoryStore;
use affinity::AffinityPlane;

pub use orders::{Done, Order, PeerOrder, Tuning};
#[cfg(feature = "relay")]
pub use relay::RelayPlane;
pub use start::StartError;
pub use status::{Change, Status};

/// How long a stopping node waits for what is in flight.
const DRAIN_MAX: Duration = Duration::from_secs(5);

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
    /// The memory of all buffers.
    pub buffers: Arc<Buffers>,
    /// When peers were last heard.
    pub heard: Arc<Heard>,
    /// The embedded store, when it has one.
    pub embedded: Option<Arc<MemoryStore>>,
    /// Who holds what, unless that is off.
    pub affinity: Option<Arc<AffinityPlane>>,
    /// Whether the datastore is reached, when it is not the embedded one.
    pub store_health: Option<Arc<StoreHealth>>,
    /// What the control plane shows.
    pub status: Status,
    /// True once clients are taken in.
    pub open_for_clients: watch::Sender<bool>,
    /// What operators ask of the control plane.
    pub orders: mpsc::UnboundedSender<Order>,
    /// The document gateway, once it serves.
    #[cfg(feature = "documents")]
    pub documents: std::sync::OnceLock<Arc<crate::gateway::Gateway>>,
    /// The relay, once it runs.
    #[cfg(feature = "relay")]
    pub relay: std::sync::OnceLock<RelayPlane>,
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

    /// Returns once every worker plans with what was published before the call.
    pub async fn settled(&self) {
        // A worker does what it is told in order, so its answer comes after the refresh.
        self.counters().await;
    }
}

/// How long a stopping node waits until the others are told.
const FAREWELL_MAX: Duration = Duration::from_secs(1);

/// A node that serves.
pub struct Node {
    shared: Arc<Shared>,
    #[cfg(feature = "documents")]
    documents: Option<documents::Documents>,
    #[cfg(feature = "relay")]
    relay: relay::Running,
    tasks: Vec<JoinHandle<()>>,
}

impl Node {
    /// What its planes share.
    pub fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    async fn say_farewell(&self, leave: bool) {
        let (done, said) = oneshot::channel();
        let order = if leave { Order::Leave(done) } else { Order::GoAway(done) };
        // Without a control plane there is nobody to speak; peers will notice by themselves.
        if self.shared.orders.send(order).is_ok()
            && tokio::time::timeout(FAREWELL_MAX, said).await.is_err()
        {
            tracing::warn!("not every peer could be told that this node stops");
        }
    }

    /// Stops: the others are told, nobody new is accepted, what is in flight is finished within a
    /// bound. With `leave` the node gives up its arc, else it is expected back.
    pub async fn stop(self, leave: bool) {
        self.shared.accepted.closed.store(true, Ordering::Relaxed);
        self.say_farewell(leave).await;
        // First: its small state goes through the client listener.
        #[cfg(feature = "documents")]
        if let Some(documents) = self.documents {
            documents.stop().await;
        }
        #[cfg(feature = "relay")]
        self.relay.stop().await;
        for task in &self.tasks {
            task.abort();
        }
        let draining: Vec<_> = self.shared.workers.iter().map(Worker::drain).collect();
        let drained = async {
            for worker in draining {
                worker.await;
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
