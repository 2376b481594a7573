//! The node as its admin port sees it, and the task that serves it.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use prometheus_client::registry::Registry;
use tokio::sync::oneshot;

use super::Shared;
use super::orders::{Done, Order, PeerOrder, Tuning};
use super::status::Provider;
use crate::admin::{AdminView, Command, Event, Identity, LIMITS, Latch, PeerVerb, Refused, router};
use crate::affinity::mesh::PlaneReport;
use crate::dispatch::Counters;
use crate::dispatch::view::{NodeState, Now, View};
use crate::gossip::Standing;
use crate::net::http;
use crate::net::listener::Listener;
use crate::telemetry::figures::{Figure, Figures, of_affinity, of_gossip, of_store};
use crate::telemetry::log::Log;

/// Where Linux keeps the name of the machine.
const HOST_NAME_FILE: &str = "/proc/sys/kernel/hostname";

/// How the seed provider was asked.
fn of_provider(provider: &Provider) -> [Figure; 3] {
    let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
    let answers = read(&provider.answers);
    let skipped = read(&provider.skipped);
    [
        Figure::counter("seed_provider_answers", "Answers of the seed provider", answers),
        Figure::counter(
            "seed_provider_failures",
            "Times the seed provider gave no answer",
            read(&provider.failures),
        ),
        Figure::counter(
            "seed_provider_entries_skipped",
            "Entries of the seed provider that made no sense",
            skipped,
        ),
    ]
}

/// Serves the admin port for ever.
pub(super) async fn serve(shared: Arc<Shared>, listener: Listener, log: Arc<Log>) {
    let pages = router(NodeView(Arc::clone(&shared)), log);
    #[cfg(feature = "documents")]
    let pages = pages.merge(super::documents_view::pages(shared));
    if let Err(error) = http::serve(listener, pages, LIMITS).await {
        tracing::error!(%error, "the admin port failed");
    }
}

/// True when everybody who reaches this machine can reach the address.
pub(super) fn is_exposed(host: &str) -> bool {
    host.parse().map_or(host != "localhost", |ip: IpAddr| !ip.is_loopback())
}

#[derive(Clone)]
struct NodeView(Arc<Shared>);

impl NodeView {
    /// Gives the control plane an order and waits until it, and every worker, acts on it.
    async fn give(&self, order: impl FnOnce(Done) -> Order) -> Result<(), Refused> {
        let (done, answer) = oneshot::channel();
        self.ask(order(done), answer).await?;
        self.0.settled().await;
        Ok(())
    }

    async fn ask<T>(&self, order: Order, answer: oneshot::Receiver<T>) -> Result<T, Refused> {
        let stopping = || Refused("the node is stopping".to_owned());
        self.0.orders.send(order).map_err(|_| stopping())?;
        answer.await.map_err(|_| stopping())
    }

    fn latch_of_ring(&self) -> Option<String> {
        if let Some(address) = self.0.status.holder() {
            return Some(format!("a newer process at {address} holds its slot"));
        }
        let topology = &self.view().topology;
        let left = !topology.peer(topology.local()).state.owns_arc();
        left.then(|| "this node has left the ring".to_owned())
    }

    fn latch_of_listeners(&self) -> Option<String> {
        match self.0.accepted.closed.load(Ordering::Relaxed) {
            true => Some("the node is stopping".to_owned()),
            false => (!self.is_open())
                .then(|| "clients wait until the node knows who else is in its ring".to_owned()),
        }
    }

    /// Whether clients are let in.
    fn is_open(&self) -> bool {
        *self.0.open_for_clients.borrow()
    }

    fn latch_of_state(&self) -> Option<String> {
        match self.view().state {
            _ if self.0.status.holder().is_some() => None,
            // It refuses reads by itself then.
            _ if !self.is_open() => None,
            NodeState::Normal => None,
            NodeState::Standby => Some("an operator set STANDBY".to_owned()),
            NodeState::WritesOnly => Some("an operator set WRITES_ONLY".to_owned()),
            NodeState::Resuming => Some("an operator set RESUMING".to_owned()),
        }
    }

    fn figures(&self) -> Vec<Figure> {
        let (status, accepted) = (&self.0.status, &self.0.accepted);
        let mut figures = vec![
            Figure::counter(
                "connections_accepted",
                "Connections of clients and peers taken in",
                accepted.total.load(Ordering::Relaxed),
            ),
            Figure::counter(
                "connections_refused",
                "Connections of clients beyond limits.client_connections",
                accepted.refused.load(Ordering::Relaxed),
            ),
            Figure::counter(
                "accept_pauses",
                "Times accepting paused because no descriptor was left",
                accepted.no_descriptor.load(Ordering::Relaxed),
            ),
            Figure::gauge("buffers_bytes", "Bytes in all buffers", self.0.buffers.held() as u64),
            Figure::counter(
                "buffers_closed",
                "Connections closed because all buffers exceeded limits.buffers_bytes_max",
                self.0.buffers.closed(),
            ),
            Figure::gauge("workers", "Threads that serve", self.0.workers.len() as u64),
            Figure::counters(
                "ring_events",
                "Changes of the ring",
                "kind",
                status.change_counts().into_iter().map(|(kind, n)| (kind.to_owned(), n)),
            ),
            Figure::counter(
                "control_dropped",
                "Messages dropped because their control link was full",
                status.dropped(),
            ),
        ];
        figures.extend(of_provider(status.provider()));
        figures.extend(of_gossip(&status.gossip()));
        if let Some(plane) = &self.0.affinity {
            let now_ms = self.0.clock.now().mono_ms();
            figures.extend(of_affinity(&plane.report(), &plane.domains(), now_ms));
        }
        if let Some(store) = &self.0.embedded {
            figures.extend(of_store(&store.counters()));
        }
        #[cfg(feature = "documents")]
        if let Some(gateway) = self.0.documents.get() {
            figures.extend(super::documents_view::figures(gateway));
        }
        #[cfg(feature = "relay")]
        if let Some(relay) = self.0.relay.get() {
            figures.extend(relay.figures());
        }
        figures
    }
}

impl AdminView for NodeView {
    fn identity(&self) -> Identity {
        let host = std::fs::read_to_string(HOST_NAME_FILE).unwrap_or_default();
        Identity {
            pool: self.0.config.pool.clone(),
            store: self.0.config.store_name().to_owned(),
            source: host.trim().to_owned(),
        }
    }

    fn now(&self) -> Now {
        self.0.clock.now()
    }

    fn view(&self) -> Arc<View> {
        self.0.view.load_full()
    }

    async fn counters(&self) -> Counters {
        self.0.counters().await
    }

    fn latches(&self) -> Vec<Latch> {
        let shared = &self.0;
        let met = "no other node was heard of, and not all of them are known to be away";
        let latch = |name, waiting_for| Latch { name, waiting_for };
        vec![
            latch("listeners", self.latch_of_listeners()),
            latch("ring", self.latch_of_ring()),
            latch("datastore", shared.store_health.as_ref().and_then(|health| health.trouble())),
            latch("gossip", (!shared.status.met()).then(|| met.to_owned())),
            latch("state", self.latch_of_state()),
        ]
    }

    fn alarms(&self) -> Vec<String> {
        #[cfg(feature = "documents")]
        if let Some(gateway) = self.0.documents.get() {
            return gateway.alarms();
        }
        Vec::new()
    }

    fn affinity_report(&self) -> Option<PlaneReport> {
        self.0.affinity.as_ref().map(|plane| plane.report())
    }

    async fn standings(&self) -> Vec<Standing> {
        let (reply, answer) = oneshot::channel();
        // A stopping node knows nothing of others any more.
        self.ask(Order::Standings(reply), answer).await.unwrap_or_default()
    }

    fn events(&self) -> Vec<Event> {
        let changes = self.0.status.changes().into_iter();
        let event = |change: super::Change| Event {
            at_ms: change.at_ms,
            slot: change.slot,
            what: change.what,
            cause: change.cause,
        };
        changes.map(event).collect()
    }

    fn collect(&self, registry: &mut Registry) {
        registry.register_collector(Box::new(Figures(self.figures())));
    }

    fn relay(&self) -> Option<serde_json::Value> {
        #[cfg(feature = "relay")]
        return self.0.relay.get().map(super::RelayPlane::page);
        #[cfg(not(feature = "relay"))]
        None
    }

    async fn command(&self, command: Command) -> Result<(), Refused> {
        let tune = |tuning| self.give(move |done| Order::Tune(tuning, done));
        match command {
            Command::ReadConsistency(level) => tune(Tuning::Read(level)).await,
            Command::WriteConsistency(level) => tune(Tuning::Write(level)).await,
            Command::TimeoutFactor(factor) => tune(Tuning::TimeoutFactor(factor)).await,
            Command::State(state) => tune(Tuning::State(state)).await,
            Command::ReadRepairs(false) => Ok(()),
            Command::ReadRepairs(true) => {
                Err(Refused("this version cannot repair replicas on reads".to_owned()))
            }
            Command::Peers(peers, verb) => {
                let what = match verb {
                    PeerVerb::Down => PeerOrder::Down,
                    PeerVerb::Up => PeerOrder::Up,
                    PeerVerb::Reset => PeerOrder::Reset,
                };
                self.give(|done| Order::Peers(peers, what, done)).await
            }
            Command::Leave => self.give(Order::Leave).await,
            Command::Forget(slot) => {
                let (reply, answer) = oneshot::channel();
                let outcome = self.ask(Order::Forget(slot, reply), answer).await?;
                self.0.settled().await;
                outcome.map_err(|error| Refused(error.to_string()))
            }
            Command::RebuildAffinity => match &self.0.affinity {
                None => Err(Refused("affinity is off; see affinity.mode".to_owned())),
                Some(plane) if plane.rebuild().await => Ok(()),
                Some(_) => {
                    let elsewhere = "another node publishes; see `from` in /affinity";
                    Err(Refused(elsewhere.to_owned()))
                }
            },
            Command::Join(addr) => self.give(|done| Order::Contact(addr, done)).await,
        }
    }
}
