//! The control plane's loop: what workers, other nodes and operators say goes into the
//! membership machine, and every change of it becomes a new snapshot.

use std::cell::Cell;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::mpsc;

use super::Shared;
use super::build::{self, Knobs};
use super::orders::{Done, Order};
use crate::config::Config;
use crate::dispatch::view::NodeState;
use crate::gossip::{
    Addr, Claim, Event, EventKind, Link, Member, Membership, Millis, Reach, Seed, Transmit,
};
use crate::net::clock::wall_ms;
use crate::net::control_link::{ControlLinks, Proven};
use crate::net::worker::Notice;
use crate::proto::dnode::MsgType;
use crate::proto::dnode::control::control_message;
use crate::ring::{PeerId, Topology};

/// How often the workers' signs of life are looked at.
const LOOK_MS: u64 = 100;

/// So long after the start others may believe that an empty datastore has what it had before.
const NEWS_SPREAD_MS: u64 = 2000;

/// So long a starting node waits for connections to peers that answer.
const LINKS_MS: u64 = 2_000;

/// Keys of the embedded store looked at for expiry each time.
const SWEEP_KEYS: usize = 2_000;

/// The control plane of one node.
pub(super) struct Control {
    pub(super) shared: Arc<Shared>,
    /// As the node was started with, and as far as it can change, as it was read last.
    pub(super) config: Config,
    /// What the seed provider said last.
    pub(super) provided: Vec<Seed>,
    pub(super) membership: Membership,
    pub(super) knobs: Knobs,
    pub(super) links: ControlLinks,
    open: HashMap<PeerId, usize>,
    heard: HashMap<PeerId, u64>,
    published: u64,
    /// Whether reads are refused, and clients not taken in, because the datastore began empty.
    refuses_reads: bool,
    started: Millis,
    /// Whether others were told that the datastore holds keys.
    told_data: bool,
    /// The ring as the log told it last.
    told_ring: Cell<Option<RingFigures>>,
    /// Told once everything that was to be said is on the wire.
    pub(super) farewell: Option<Done>,
}

impl Control {
    /// A control plane around `membership`.
    pub(super) fn new(
        shared: Arc<Shared>,
        membership: Membership,
        knobs: Knobs,
        links: ControlLinks,
    ) -> Control {
        let published = membership.version();
        let refuses_reads = membership.local().record().claim == Claim::Joining;
        let started = Millis(shared.clock.now().mono_ms());
        Control {
            config: shared.config.clone(),
            provided: Vec::new(),
            shared,
            membership,
            knobs,
            links,
            open: HashMap::new(),
            heard: HashMap::new(),
            published,
            refuses_reads,
            started,
            told_data: false,
            told_ring: Cell::new(None),
            farewell: None,
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

    pub(super) fn now(&self) -> Millis {
        Millis(self.shared.clock.now().mono_ms())
    }

    /// Signs of life of peers, as the workers noted them; and expired keys of the embedded store
    /// that nobody asks for.
    fn look(&mut self) {
        let now = self.now();
        if let Some(store) = &self.shared.embedded {
            store.sweep(wall_ms(), SWEEP_KEYS);
        }
        self.tell_data();
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

    /// Tells others, once, that this node's datastore holds keys: one that is no embedded store has
    /// since ever. A store that was emptied again counts as one that holds some.
    fn tell_data(&mut self) {
        if self.told_data {
            return;
        }
        let since = match &self.shared.embedded {
            None => Some(0),
            // The first key came after the last look.
            Some(store) => (store.counters().keys > 0).then(|| wall_ms().saturating_sub(LOOK_MS)),
        };
        if let Some(since) = since {
            self.told_data = true;
            self.membership.set_data_since(since);
        }
    }

    /// True from the start on while others may not have heard that this node's datastore began
    /// empty. It refuses reads then, so that they ask another rack.
    fn is_believed_full(&self) -> bool {
        let joining = self.membership.local().record().claim == Claim::Joining;
        let fresh = self.now().since(self.started) < NEWS_SPREAD_MS;
        self.refuses_reads && joining && fresh
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
            Notice::Unanswered(peer) => {
                if self.open.get(&peer).is_none_or(|open| *open == 0) {
                    let now = self.now();
                    self.membership.link(peer, Link::Lost, now);
                }
            }
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
            kind @ (MsgType::TorcFeed | MsgType::TorcFilter) => {
                if let (Some(plane), Some(message)) = (&self.shared.affinity, control_message(body))
                {
                    plane.message(kind, message);
                }
            }
            _ => tracing::debug!(kind, "control frame of a kind this node does not use"),
        }
    }

    /// Sends what is to be said, reports what changed, publishes a changed table.
    pub(super) fn settle(&mut self) {
        while let Some(message) = self.membership.poll_transmit() {
            self.transmit(message);
        }
        while let Some(event) = self.membership.poll_event() {
            tracing::info!("ring: {} {} ({})", event.slot, event.kind, event.kind.cause());
            self.shared.status.add(&event, wall_ms());
            self.hurry(&event);
        }
        self.show();
        if self.links.is_idle()
            && let Some(done) = self.farewell.take()
        {
            // Nobody awaits it any more when sending fails.
            let _ = done.send(());
        }
        let refused = self.refuses_reads;
        self.refuses_reads = self.is_believed_full();
        if self.membership.version() != self.published || refused != self.refuses_reads {
            self.published = self.membership.version();
            self.publish();
        }
        if !*self.shared.open_for_clients.borrow()
            && !self.refuses_reads
            && self.membership.knows_ring(self.now())
            && self.is_linked()
        {
            self.shared.open_for_clients.send_replace(true);
        }
    }

    /// True once there is a connection to each peer that answers, as requests go at once to the
    /// only owner in the own rack; but nobody is waited for longer than [`LINKS_MS`].
    fn is_linked(&self) -> bool {
        let others = self.membership.members().filter(|m| !m.is_local());
        let mut up = others.filter(|m| m.reach() == Reach::Up).map(Member::id);
        let is_open = |id| self.open.get(&id).is_some_and(|open| *open > 0);
        up.all(is_open) || self.now().since(self.started) >= LINKS_MS
    }

    /// A holder that is back, or elsewhere, is not waited for.
    fn hurry(&self, event: &Event) {
        let is_back = match event.kind {
            EventKind::Moved { .. } | EventKind::Restarted | EventKind::Retry => true,
            EventKind::Resolved { .. } | EventKind::Up => true,
            EventKind::Added { .. }
            | EventKind::Removed { .. }
            | EventKind::Down { .. }
            | EventKind::State { .. }
            | EventKind::Tokens
            | EventKind::Kind { .. }
            | EventKind::Duplicate { .. }
            | EventKind::Ordered { .. }
            | EventKind::Rejoined
            | EventKind::Conflict { .. }
            | EventKind::Refused { .. } => false,
        };
        let holder = |m: &&Member| m.record().slot == event.slot && !m.is_local();
        if is_back && let Some(member) = self.membership.members().find(holder) {
            self.shared.workers.iter().for_each(|worker| worker.retry(member.id()));
        }
    }

    fn transmit(&mut self, message: Transmit) {
        let own = &self.membership.local().record().slot;
        let member = message.peer.and_then(|id| self.membership.member(id));
        let same_rack = message.same_dc && member.is_some_and(|m| m.record().slot.rack == own.rack);
        self.links.send(message, same_rack);
    }

    fn show(&self) {
        let status = &self.shared.status;
        let counters = *self.membership.counters();
        status.set_gossip(counters, self.links.dropped);
        if status.met() {
            return;
        }
        let others = || self.membership.members().filter(|m| !m.is_local()).map(Member::reach);
        let heard = counters.received + counters.c_received > 0;
        let nobody_left = others().all(|reach| reach != Reach::Unreached);
        if heard || nobody_left || others().any(|reach| reach == Reach::Up) {
            status.set_met();
        }
    }

    /// Publishes the snapshot of the present table and knobs. A node whose slot a newer process
    /// holds serves nobody.
    pub(super) fn publish(&self) {
        let peers = self.membership.peers();
        if let Some(most) = peers.iter().map(|p| p.id).max() {
            self.shared.heard.reserve(most);
        }
        let holder = self.membership.duplicate().map(ToString::to_string);
        let mut knobs = self.knobs;
        if self.refuses_reads && knobs.state == NodeState::Normal {
            knobs.state = NodeState::WritesOnly;
        }
        if holder.is_some() {
            knobs.state = NodeState::Standby;
        }
        self.shared.status.set_holder(holder);
        match Topology::build(peers) {
            Ok(topology) => {
                self.log_ring(&topology);
                let affinity = &self.shared.affinity;
                let affinity = affinity.as_ref().map(|plane| plane.follow_ring(&topology));
                self.shared.publish(build::view(&self.config, &knobs, topology, affinity));
            }
            Err(error) => tracing::error!(%error, "the ring cannot be rebuilt; the old one stays"),
        }
    }

    /// Tells the log what the ring amounts to, where that is not what it told last.
    fn log_ring(&self, topology: &Topology) {
        let ring = RingFigures {
            peers: topology.peers().len(),
            routable: topology.peers().filter(|p| p.routable()).count(),
            digest: topology.digest(),
        };
        if self.told_ring.replace(Some(ring)) != Some(ring) {
            let RingFigures { peers, routable, digest } = ring;
            tracing::info!("ring: {peers} peers, {routable} routable, digest {digest:016x}");
        }
    }
}

/// What the log tells of a ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct RingFigures {
    peers: usize,
    routable: usize,
    digest: u64,
}
