//! The control plane's loop: what workers, other nodes and operators say goes into the
//! membership machine, and every change of it becomes a new snapshot.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::{mpsc, oneshot};

use super::Shared;
use super::build::{self, Knobs};
use crate::gossip::{Addr, Event, Link, Membership, Millis, Slot, Transmit};
use crate::net::control_link::{ControlLinks, Proven};
use crate::net::worker::Notice;
use crate::proto::dnode::MsgType;
use crate::proto::dnode::control::control_message;
use crate::ring::{PeerId, Topology};

/// How often the workers' signs of life are looked at.
const LOOK_MS: u64 = 100;

/// Keys of the embedded store looked at for expiry each time.
const SWEEP_KEYS: usize = 2_000;

/// Membership changes kept for `/ring`.
const HISTORY_MAX: usize = 256;

/// What an operator asks of the control plane.
#[derive(Debug)]
pub enum Order {
    /// Set a peer down or up by hand.
    Force(PeerId, bool, oneshot::Sender<bool>),
    /// Change levels, deadlines or the node's state.
    Set(Knobs),
    /// Ask an address whose slot is not known.
    Contact(Addr),
    /// Give up the arc and say so.
    Leave(oneshot::Sender<()>),
    /// Remove a dead node.
    Forget(Slot, oneshot::Sender<Result<(), String>>),
}

/// One change of the membership, as `/ring` and the log show it.
#[derive(Clone, Debug)]
pub struct Change {
    /// Milliseconds since 1970.
    pub at_ms: u64,
    /// Whose slot.
    pub slot: String,
    /// What happened, and why.
    pub what: String,
}

/// What the control plane shows.
#[derive(Debug, Default)]
pub struct Status {
    changes: Mutex<VecDeque<Change>>,
    gossip: Mutex<crate::gossip::Counters>,
    knobs: Mutex<Option<Knobs>>,
}

impl Status {
    /// The last changes, oldest first.
    pub fn changes(&self) -> Vec<Change> {
        let changes = self.changes.lock().unwrap_or_else(PoisonError::into_inner);
        changes.iter().cloned().collect()
    }

    /// The figures of gossip.
    pub fn gossip(&self) -> crate::gossip::Counters {
        *self.gossip.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What operators set.
    pub fn knobs(&self) -> Option<Knobs> {
        *self.knobs.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The control plane of one node.
pub(super) struct Control {
    pub(super) shared: Arc<Shared>,
    pub(super) membership: Membership,
    pub(super) knobs: Knobs,
    links: ControlLinks,
    open: HashMap<PeerId, usize>,
    heard: HashMap<PeerId, u64>,
    published: u64,
}

impl Control {
    /// A control plane around `membership`; what its links find out goes to `proven`.
    pub(super) fn new(
        shared: Arc<Shared>,
        membership: Membership,
        knobs: Knobs,
        proven: mpsc::UnboundedSender<Proven>,
    ) -> Control {
        let published = membership.version();
        let probe = shared.view.load().settings.protocol.probe();
        Control {
            shared,
            membership,
            knobs,
            links: ControlLinks::new(probe, proven),
            open: HashMap::new(),
            heard: HashMap::new(),
            published,
        }
    }

    /// Runs until the node stops.
    pub(super) async fn run(
        mut self,
        mut notices: mpsc::UnboundedReceiver<Notice>,
        mut orders: mpsc::UnboundedReceiver<Order>,
        mut proven: mpsc::UnboundedReceiver<Proven>,
    ) {
        loop {
            self.settle();
            let wait = self.membership.poll_timeout().since(self.now()).clamp(1, LOOK_MS);
            tokio::select! {
                () = tokio::time::sleep(Duration::from_millis(wait)) => {}
                Some(notice) = notices.recv() => self.notice(notice),
                Some(order) = orders.recv() => self.order(order),
                Some(found) = proven.recv() => {
                    let now = self.now();
                    self.membership.proven(&found.addr, found.torc, now);
                }
            }
            self.look();
        }
    }

    fn now(&self) -> Millis {
        Millis(self.shared.clock.now().mono_ms())
    }

    /// Signs of life of peers, as the workers noted them; and expired keys of the embedded store
    /// that nobody asks for.
    fn look(&mut self) {
        let now = self.now();
        if let Some(store) = &self.shared.embedded {
            store.sweep(crate::net::clock::wall_ms(), SWEEP_KEYS);
        }
        let ids: Vec<PeerId> = self.membership.members().map(|m| m.id()).collect();
        for id in ids {
            let at = self.shared.heard.last(id);
            let before = self.heard.insert(id, at);
            if at > 0 && before != Some(at) {
                self.membership.observe(id, Millis(at), now);
            }
        }
        self.membership.handle_timeout(now);
    }

    fn notice(&mut self, notice: Notice) {
        match notice {
            Notice::Control { from, kind, body } => self.control_frame(from, kind, &body),
            Notice::TorcPeer(id) => {
                let addr = self.membership.member(id).map(|m| m.record().addr.clone());
                if let Some(addr) = addr {
                    let now = self.now();
                    self.membership.proven(&addr, true, now);
                }
            }
            Notice::Link { peer, link } => self.link(peer, link),
        }
    }

    /// Workers report each of their connections; the machine wants to know of the first and of
    /// the last one.
    fn link(&mut self, peer: PeerId, link: Link) {
        let now = self.now();
        let open = self.open.entry(peer).or_default();
        match link {
            Link::Open => *open += 1,
            Link::Lost => *open = open.saturating_sub(1),
            Link::Refused => {}
        }
        if link == Link::Open || *open == 0 {
            self.membership.link(peer, link, now);
        }
    }

    fn control_frame(&mut self, from: String, kind: u8, body: &Bytes) {
        let now = self.now();
        match MsgType::from_code(kind) {
            MsgType::TorcGossip => {
                if let Some(message) = control_message(body) {
                    self.membership.handle_message(&Addr::new(&from, 0), message, now);
                }
            }
            MsgType::GossipSyn => self.membership.handle_c_gossip(body, now),
            _ => tracing::debug!(kind, "control frame of a kind this node does not use"),
        }
    }

    fn order(&mut self, order: Order) {
        let now = self.now();
        match order {
            Order::Force(id, down, reply) => {
                let _ = reply.send(self.membership.force_down(id, down, now));
            }
            Order::Set(knobs) => {
                self.knobs = knobs;
                self.publish();
            }
            Order::Contact(addr) => self.membership.add_contact(addr),
            Order::Leave(reply) => {
                self.membership.leave(now);
                self.settle();
                let _ = reply.send(());
            }
            Order::Forget(slot, reply) => {
                let result = self.membership.forget(&slot, now).map_err(|e| e.to_string());
                let _ = reply.send(result);
            }
        }
    }

    /// Sends what is to be said, reports what changed, publishes a changed table.
    fn settle(&mut self) {
        while let Some(message) = self.membership.poll_transmit() {
            self.transmit(message);
        }
        while let Some(event) = self.membership.poll_event() {
            self.report(&event);
        }
        let status = &self.shared.status;
        *status.gossip.lock().unwrap_or_else(PoisonError::into_inner) = *self.membership.counters();
        if self.membership.version() != self.published {
            self.published = self.membership.version();
            self.publish();
        }
    }

    fn transmit(&mut self, message: Transmit) {
        self.links.send(message);
    }

    fn report(&self, event: &Event) {
        tracing::info!("ring: {} {}", event.slot, event.kind);
        let change = Change {
            at_ms: crate::net::clock::wall_ms(),
            slot: event.slot.to_string(),
            what: event.kind.to_string(),
        };
        let changes = &self.shared.status.changes;
        let mut changes = changes.lock().unwrap_or_else(PoisonError::into_inner);
        if changes.len() == HISTORY_MAX {
            changes.pop_front();
        }
        changes.push_back(change);
    }

    fn publish(&self) {
        let peers = self.membership.peers();
        if let Some(most) = peers.iter().map(|p| p.id).max() {
            self.shared.heard.reserve(most);
        }
        *self.shared.status.knobs.lock().unwrap_or_else(PoisonError::into_inner) = Some(self.knobs);
        match Topology::build(peers) {
            Ok(topology) => {
                log_ring(&topology);
                let affinity = &self.shared.affinity;
                let affinity = affinity.as_ref().map(|plane| plane.follow_ring(&topology));
                let config = &self.shared.config;
                self.shared.publish(build::view(config, &self.knobs, topology, affinity));
            }
            Err(error) => tracing::error!(%error, "the ring cannot be rebuilt; the old one stays"),
        }
    }
}

fn log_ring(topology: &Topology) {
    let routable = topology.peers().filter(|p| p.routable()).count();
    tracing::info!(
        "ring: {} peers, {routable} routable, digest {:016x}",
        topology.peers().len(),
        topology.digest()
    );
}
