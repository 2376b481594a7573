//! One node: a dispatcher, and around it what the worker's tasks do in the real program, with
//! virtual links in place of sockets.

use std::collections::{BTreeMap, VecDeque};
use std::io::IoSlice;
use std::sync::Arc;

use bytes::BytesMut;
use torc::dispatch::failure::Cause;
use torc::dispatch::view::View;
use torc::dispatch::{
    ClientId, ClientKind, Conn, Dispatcher, Embedded, Ends, Event, RollCall, Target, UpId,
};
use torc::gossip::Link;
use torc::proto::outbuf::SLICES_MAX;
use torc::ring::Peer;
use torc::store::{MemoryStore, StoreSettings};

use super::cluster::{Config, node_at};
use super::network::{End, LinkId, Side};
use super::world::{Task, World};

/// First and longest pause between attempts to connect, as in `net/upstream.rs`.
const RETRY_US: u64 = 50_000;
const RETRY_MAX_US: u64 = 1_000_000;

/// How long an attempt waits for a host that does not answer.
const CONNECT_TIMEOUT_US: u64 = 2_000_000;

/// One end of a link, as its node sees it.
pub(crate) struct Port {
    pub(crate) link: LinkId,
    pub(crate) side: Side,
    rx: BytesMut,
    ended: bool,
}

/// An upstream the dispatcher wants, connected or not.
pub(crate) struct Wanted {
    pub(crate) target: Target,
    /// The host it leads to.
    pub(crate) host: usize,
    pub(crate) port: Option<Port>,
    pause_us: u64,
    /// Tells attempts for this upstream from those for an older one of the same number.
    serial: u64,
}

/// One node.
pub(crate) struct Node {
    pub(crate) dispatcher: Dispatcher,
    pub(crate) embedded: Option<Arc<MemoryStore>>,
    pub(crate) view: Arc<View>,
    pub(crate) up: bool,
    pub(crate) frozen: bool,
    pub(crate) skew_us: u64,
    pub(crate) clients: BTreeMap<u32, Port>,
    pub(crate) upstreams: BTreeMap<u32, Wanted>,
    /// What was passed on to the control plane: type and body.
    pub(crate) control: Vec<(u8, Vec<u8>)>,
    /// Questions to all workers of it that are not answered yet.
    pub(crate) roll_calls: VecDeque<RollCall>,
    pub(crate) epoch: u32,
    serials: u64,
    pub(crate) wake_at_us: Option<u64>,
}

impl Port {
    fn new(link: LinkId, side: Side) -> Port {
        Port { link, side, rx: BytesMut::new(), ended: false }
    }
}

impl Node {
    pub(crate) fn new(config: &Config, table: &[Peer], n: usize) -> Node {
        let view = Arc::new(config.view(table, n));
        let embedded = config.embedded.then(|| Arc::new(MemoryStore::new(embedded_settings())));
        Node {
            dispatcher: dispatcher(&view, &embedded),
            embedded,
            view,
            up: true,
            frozen: false,
            skew_us: n as u64 * 7_000_000,
            clients: BTreeMap::new(),
            upstreams: BTreeMap::new(),
            control: Vec::new(),
            roll_calls: VecDeque::new(),
            epoch: 0,
            serials: 0,
            wake_at_us: None,
        }
    }

    /// True while it does anything.
    pub(crate) fn running(&self) -> bool {
        self.up && !self.frozen
    }
}

/// An embedded store, whose events are lost when they come too fast.
pub(crate) fn embedded_settings() -> StoreSettings {
    StoreSettings { events_max: 8, ..StoreSettings::default() }
}

/// A dispatcher as a node makes it when it starts.
pub(crate) fn dispatcher(view: &Arc<View>, embedded: &Option<Arc<MemoryStore>>) -> Dispatcher {
    let store = embedded.clone().map(|store| store as Arc<dyn Embedded>);
    let mut dispatcher = Dispatcher::new(0, Arc::clone(view), store);
    dispatcher.has_siblings();
    dispatcher
}

/// Input and output of a node.
impl World {
    /// What follows every entry into a dispatcher: events, resumed clients, output, timers.
    pub(crate) fn pump(&mut self, n: usize) {
        while self.nodes[n].running() {
            let dispatcher = &mut self.nodes[n].dispatcher;
            if let Some(event) = dispatcher.poll_event() {
                self.carry_out(n, event);
            } else if let Some(client) = dispatcher.next_resumable() {
                self.read_client(n, client.0);
            } else if let Some(conn) = dispatcher.next_dirty() {
                match conn {
                    Conn::Client(id) => self.flush_client(n, id.0),
                    Conn::Upstream(id) => self.flush_upstream(n, id.0),
                }
            } else {
                break;
            }
        }
        if self.nodes[n].running() {
            self.hang_up_finished(n);
            self.plan_wake(n);
            self.check_node(n);
        }
    }

    fn carry_out(&mut self, n: usize, event: Event) {
        match event {
            Event::Connect { once: true, .. } | Event::HangUp { .. } => {
                panic!("no user here waits for a key")
            }
            Event::Kill { .. } => panic!("no user here ends another one"),
            Event::RollCall(call) => {
                // The only worker is asked as if there were others, and they took their time.
                self.nodes[n].roll_calls.push_back(call);
                let delay = self.rng.u64(self.net.settings.delay_us.clone());
                let epoch = self.nodes[n].epoch;
                self.plan(self.now_us + delay, Task::Roll { node: n, epoch });
            }
            Event::Connect { up, target, address, once: false } => {
                self.nodes[n].serials += 1;
                let serial = self.nodes[n].serials;
                let host = address.map_or(n, |(_, port)| node_at(port));
                let wanted = Wanted { target, host, port: None, pause_us: RETRY_US, serial };
                self.nodes[n].upstreams.insert(up.0, wanted);
                self.plan_attempt(n, up.0, 0);
            }
            Event::Disconnect { up } => {
                let wanted = self.nodes[n].upstreams.remove(&up.0);
                if let Some(port) = wanted.and_then(|w| w.port) {
                    self.close(port.link, port.side);
                }
            }
            Event::Control { kind, body, .. } => self.nodes[n].control.push((kind, body.to_vec())),
            Event::LinkRefused { why, .. } => panic!("a node refused another one's link: {why}"),
            Event::TorcPeer { .. } => {}
        }
    }

    /// All workers of a node have answered the oldest question.
    pub(crate) fn answer_roll(&mut self, n: usize, epoch: u32) {
        if self.nodes[n].epoch != epoch {
            return;
        }
        if self.nodes[n].frozen {
            return self.plan(self.now_us + RETRY_US, Task::Roll { node: n, epoch });
        }
        let now = self.time(n);
        let node = &mut self.nodes[n];
        let Some(call) = node.roll_calls.pop_front() else { return };
        let ends = |_| Ends { remote: "sim".into(), local: "sim".into() };
        let roll = node.dispatcher.roll(&call.order, ends, now);
        node.dispatcher.on_roll(&call, roll, now);
        self.pump(n);
    }

    fn plan_attempt(&mut self, n: usize, up: u32, pause_us: u64) {
        let node = &self.nodes[n];
        let Some(wanted) = node.upstreams.get(&up) else { return };
        let task = Task::Connect { node: n, epoch: node.epoch, up, serial: wanted.serial };
        let delay = self.rng.u64(self.net.settings.delay_us.clone());
        self.plan(self.now_us + pause_us + delay, task);
    }

    /// One attempt to connect an upstream.
    pub(crate) fn connect(&mut self, n: usize, epoch: u32, up: u32, serial: u64) {
        let node = &self.nodes[n];
        let Some(wanted) = node.upstreams.get(&up) else { return };
        if node.epoch != epoch || wanted.serial != serial || wanted.port.is_some() || !node.up {
            return;
        }
        if node.frozen {
            return self.plan_attempt(n, up, RETRY_US);
        }
        let (host, target) = (wanted.host, wanted.target);
        let pause_us = wanted.pause_us;
        if !self.net.joined(n, host) {
            self.plan_attempt(n, up, CONNECT_TIMEOUT_US + pause_us);
            return self.tell_link(n, target, Link::Lost);
        }
        let end = End::Upstream { node: n, up };
        let link = match target {
            Target::Store => self.accept_store(n, end),
            Target::Peer(_) => self.accept(host, ClientKind::Peer, end),
        };
        let Some(wanted) = self.nodes[n].upstreams.get_mut(&up) else { return };
        let Some(link) = link else {
            wanted.pause_us = (pause_us * 2).min(RETRY_MAX_US);
            self.plan_attempt(n, up, pause_us);
            return self.tell_link(n, target, Link::Refused);
        };
        wanted.port = Some(Port::new(link, 0));
        wanted.pause_us = RETRY_US;
        let now = self.time(n);
        self.nodes[n].dispatcher.on_upstream_state(UpId(up), true, Cause::Closed, now);
        self.note(|| format!("n{}: connected to {target:?} of n{}", n + 1, host + 1));
        self.refresh_health();
        self.pump(n);
        self.tell_link(n, target, Link::Open);
    }

    /// A connection to a node is accepted by its system, and by itself when it is not frozen.
    pub(crate) fn accept(&mut self, n: usize, kind: ClientKind, opener: End) -> Option<LinkId> {
        if !self.nodes[n].up {
            return None;
        }
        let link = self.net.open(opener, End::Backlog { node: n, kind });
        if !self.nodes[n].frozen {
            self.accept_backlog(n, link, kind);
        }
        Some(link)
    }

    /// A node takes a connection its system has accepted.
    pub(crate) fn accept_backlog(&mut self, n: usize, link: LinkId, kind: ClientKind) {
        let id = self.nodes[n].dispatcher.add_client(kind);
        self.nodes[n].clients.insert(id.0, Port::new(link, 1));
        self.net.links[link].ends[1] = End::Client { node: n, client: id.0 };
    }

    fn accept_store(&mut self, n: usize, opener: End) -> Option<LinkId> {
        if !self.stores[n].up {
            return None;
        }
        let link = self.net.open(opener, End::Store { node: n });
        self.stores[n].conns.insert(link, Default::default());
        Some(link)
    }

    /// Reads an upstream for as long as there is something to read.
    pub(crate) fn read_upstream(&mut self, n: usize, up: u32) {
        while self.nodes[n].running() {
            let Some(port) = port_of(&mut self.nodes[n], up) else { return };
            let (link, side) = (port.link, port.side);
            let Some(bytes) = self.take(link, side) else {
                return self.lose_upstream(n, up, Cause::Closed);
            };
            if bytes.is_empty() {
                return;
            }
            let now = self.time(n);
            let target = self.nodes[n].upstreams.get(&up).map(|wanted| wanted.target);
            target.into_iter().for_each(|target| self.tell_heard(n, target));
            let Some(port) = port_of(&mut self.nodes[n], up) else { return };
            let mut rx = std::mem::take(&mut port.rx);
            rx.extend_from_slice(&bytes);
            let result = self.nodes[n].dispatcher.on_upstream_bytes(UpId(up), &mut rx, now);
            if let Some(port) = port_of(&mut self.nodes[n], up) {
                port.rx = rx;
            }
            if result.is_err() {
                return self.lose_upstream(n, up, Cause::BadReply);
            }
        }
    }

    fn lose_upstream(&mut self, n: usize, up: u32, cause: Cause) {
        let now = self.time(n);
        let Some(wanted) = self.nodes[n].upstreams.get_mut(&up) else { return };
        let host = wanted.host;
        let (pause_us, target) = (wanted.pause_us, wanted.target);
        if let Some(port) = wanted.port.take() {
            self.close(port.link, port.side);
            self.plan_attempt(n, up, pause_us);
        }
        self.note(|| format!("n{}: lost n{}: {}", n + 1, host + 1, cause.text()));
        self.nodes[n].dispatcher.on_upstream_state(UpId(up), false, cause, now);
        self.refresh_health();
        self.tell_link(n, target, Link::Lost);
    }

    /// Reads a client while the dispatcher wants it read.
    pub(crate) fn read_client(&mut self, n: usize, client: u32) {
        let id = ClientId(client);
        let now = self.time(n);
        while self.nodes[n].running() && self.nodes[n].dispatcher.wants_read(id) {
            let node = &mut self.nodes[n];
            let Some(port) = node.clients.get_mut(&client) else { return };
            if !port.rx.is_empty() {
                let before = port.rx.len();
                node.dispatcher.on_client_bytes(id, &mut port.rx, now);
                if port.rx.len() != before {
                    continue;
                }
            }
            if !node.dispatcher.wants_read(id) || port.ended {
                return;
            }
            let (link, side) = (port.link, port.side);
            let bytes = self.take(link, side);
            let node = &mut self.nodes[n];
            let Some(port) = node.clients.get_mut(&client) else { return };
            match bytes {
                Some(bytes) if bytes.is_empty() => return,
                Some(bytes) => {
                    port.rx.extend_from_slice(&bytes);
                    node.dispatcher.on_client_bytes(id, &mut port.rx, now);
                }
                None => {
                    port.ended = true;
                    node.dispatcher.on_client_eof(id);
                }
            }
        }
    }

    fn hang_up_finished(&mut self, n: usize) {
        let node = &self.nodes[n];
        let gone = |port: &Port| self.net.links[port.link].ends[1 - port.side] == End::Gone;
        let finished = |id: u32, port: &Port| {
            node.dispatcher.is_finished(ClientId(id)) || (port.ended && gone(port))
        };
        let done: Vec<u32> = node
            .clients
            .iter()
            .filter(|(id, port)| finished(**id, port))
            .map(|(id, _)| *id)
            .collect();
        let now = self.time(n);
        for client in done {
            self.nodes[n].dispatcher.remove_client(ClientId(client), now);
            if let Some(port) = self.nodes[n].clients.remove(&client) {
                let due = self.net.finish(port.link, port.side, self.now_us, &mut self.rng);
                self.plan_arrivals(port.link, due);
            }
        }
    }

    pub(crate) fn flush_client(&mut self, n: usize, client: u32) {
        let Some(port) = self.nodes[n].clients.get(&client) else { return };
        let (link, side) = (port.link, port.side);
        self.flush(n, Conn::Client(ClientId(client)), link, side);
    }

    pub(crate) fn flush_upstream(&mut self, n: usize, up: u32) {
        let Some(port) = port_of(&mut self.nodes[n], up) else { return };
        let (link, side) = (port.link, port.side);
        self.flush(n, Conn::Upstream(UpId(up)), link, side);
    }

    /// Writes a connection's output until nothing is left or the link is full.
    fn flush(&mut self, n: usize, conn: Conn, link: LinkId, side: Side) {
        while self.nodes[n].running() && self.nodes[n].dispatcher.output_len(conn) > 0 {
            let mut room = self.net.room(link, side);
            if room == 0 {
                return self.net.block(link, side);
            }
            let len = self.nodes[n].dispatcher.output_len(conn);
            if self.net.settings.choppy {
                room = room.min(self.rng.usize(1..=len));
            }
            let mut slices = [IoSlice::new(&[]); SLICES_MAX];
            let count = self.nodes[n].dispatcher.output(conn, &mut slices);
            let mut bytes = Vec::new();
            for slice in &slices[..count] {
                bytes.extend_from_slice(&slice[..slice.len().min(room - bytes.len())]);
            }
            self.nodes[n].dispatcher.on_written(conn, bytes.len());
            let due = self.net.send(link, side, bytes, self.now_us, &mut self.rng);
            self.plan_arrivals(link, due);
        }
    }

    fn plan_wake(&mut self, n: usize) {
        let now = self.time(n);
        let node = &mut self.nodes[n];
        let Some(at_ms) = node.dispatcher.poll_timeout(now) else { return };
        let at_us = at_ms * 1000 - node.skew_us;
        if node.wake_at_us.is_none_or(|planned| at_us < planned) {
            node.wake_at_us = Some(at_us);
            let epoch = node.epoch;
            self.plan(at_us, Task::Wake { node: n, epoch });
        }
    }

    pub(crate) fn wake(&mut self, n: usize, epoch: u32) {
        let node = &self.nodes[n];
        if node.epoch != epoch
            || !node.running()
            || node.wake_at_us.is_none_or(|at| at > self.now_us)
        {
            return;
        }
        self.nodes[n].wake_at_us = None;
        let now = self.time(n);
        for up in self.nodes[n].dispatcher.on_deadline(now) {
            self.lose_upstream(n, up.0, Cause::TimedOut);
        }
        self.pump(n);
    }

    /// True when a node has every connection it wants to processes that accept.
    pub(crate) fn is_connected(&self, node: &Node) -> bool {
        node.upstreams.values().all(|wanted| {
            let serves = match wanted.target {
                Target::Store => self.stores[wanted.host].up,
                Target::Peer(_) => self.nodes[wanted.host].up,
            };
            wanted.port.is_some() || !serves
        })
    }

    /// Swaps a node's view.
    pub(crate) fn set_view(&mut self, n: usize, view: View) {
        let view = Arc::new(self.with_affinity(n, view));
        self.nodes[n].view = Arc::clone(&view);
        if self.nodes[n].up {
            self.nodes[n].dispatcher.set_view(view);
            self.pump(n);
        }
        self.health.reset(n);
        self.refresh_health();
    }
}

fn port_of(node: &mut Node, up: u32) -> Option<&mut Port> {
    node.upstreams.get_mut(&up).and_then(|wanted| wanted.port.as_mut())
}
