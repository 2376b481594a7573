//! The world: a virtual clock, the processes, and what is going to happen.
//!
//! Everything that is drawn comes from one generator, and whatever happens at one time happens
//! in the order it was planned, so a seed gives the same history every time.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use torc::dispatch::ClientKind;
use torc::dispatch::view::{NodeState, Now};
use torc::ring::{Peer, PeerState};

use super::checkers::{Health, History};
use super::cluster::Config;
use super::members::Members;
use super::network::{End, LinkId, Network, Side};
use super::node::Node;
use super::planes::Planes;
use super::store::{Store, execute};
use super::user::{Ask, User, brief, request};

/// Wall-clock time at the start of the world.
const WALL_START_MS: u64 = 1_700_000_000_000;

/// The longest a test waits for something, microseconds.
const PATIENCE_US: u64 = 120_000_000;

/// Something that is going to happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Task {
    /// A piece of a way is due.
    Deliver { link: LinkId, side: Side },
    /// A writer learns that its link has room again.
    Writable { link: LinkId, side: Side },
    /// A node's timer.
    Wake { node: usize, epoch: u32 },
    /// A node tries to connect an upstream.
    Connect { node: usize, epoch: u32, up: u32, serial: u64 },
    /// A node's gossip timer.
    Gossip { node: usize },
    /// A gossip message arrives.
    Message { to: usize, number: u64 },
    /// A node's affinity timer.
    Affinity { node: usize, epoch: u32 },
    /// A message about filters arrives.
    Parcel { to: usize, number: u64 },
    /// The workers of a node have said what was asked of all of them.
    Roll { node: usize, epoch: u32 },
}

/// See the module's page.
pub(crate) struct World {
    pub(crate) config: Config,
    pub(crate) rng: fastrand::Rng,
    pub(crate) now_us: u64,
    pub(crate) net: Network,
    pub(crate) nodes: Vec<Node>,
    pub(crate) stores: Vec<Store>,
    pub(crate) users: Vec<User>,
    /// The peer table the control plane would publish.
    pub(crate) table: Vec<Peer>,
    pub(crate) history: History,
    pub(crate) health: Health,
    /// Present while nodes find each other by gossip.
    pub(crate) members: Option<Members>,
    /// Present while nodes tell each other what they hold.
    pub(crate) planes: Option<Planes>,
    pub(crate) trace: bool,
    queue: BinaryHeap<Reverse<(u64, u64, Task)>>,
    planned: u64,
}

impl World {
    /// Starts all nodes and lets them connect.
    pub(crate) fn new(config: Config) -> World {
        let table = config.peers();
        let count = table.len();
        let mut world = World {
            rng: fastrand::Rng::with_seed(config.seed),
            now_us: 1_000_000,
            net: Network::new(config.net.clone()),
            nodes: (0..count).map(|n| Node::new(&config, &table, n)).collect(),
            stores: (0..count).map(|_| Store::new()).collect(),
            users: Vec::new(),
            history: History::default(),
            health: Health::new(count),
            members: None,
            planes: None,
            trace: false,
            queue: BinaryHeap::new(),
            planned: 0,
            table,
            config,
        };
        for n in 0..count {
            world.pump(n);
        }
        world.run_until_connected();
        world
    }

    /// Milliseconds since the world began.
    pub(crate) fn now_ms(&self) -> u64 {
        self.now_us / 1000
    }

    /// The time as node `n` sees it.
    pub(crate) fn time(&self, n: usize) -> Now {
        let mono_us = self.now_us + self.nodes[n].skew_us;
        Now { mono_us, wall_us: WALL_START_MS * 1000 + mono_us }
    }

    /// Plans a task.
    pub(crate) fn plan(&mut self, at_us: u64, task: Task) {
        self.planned += 1;
        self.queue.push(Reverse((at_us.max(self.now_us), self.planned, task)));
    }

    pub(crate) fn plan_arrivals(
        &mut self,
        link: LinkId,
        due: impl IntoIterator<Item = (Side, u64)>,
    ) {
        for (side, at_us) in due {
            self.plan(at_us, Task::Deliver { link, side });
        }
    }

    /// Lets the next thing happen. False when nothing is planned.
    pub(crate) fn step(&mut self) -> bool {
        let Some(Reverse((at_us, _, task))) = self.queue.pop() else { return false };
        self.now_us = at_us;
        match task {
            Task::Deliver { link, side } => {
                if self.net.deliver(link, side, at_us) {
                    self.arrived(link, 1 - side);
                }
            }
            Task::Writable { link, side } => self.write_again(link, side),
            Task::Wake { node, epoch } => self.wake(node, epoch),
            Task::Connect { node, epoch, up, serial } => self.connect(node, epoch, up, serial),
            Task::Gossip { node } => self.wake_member(node),
            Task::Message { to, number } => self.deliver_message(to, number),
            Task::Affinity { node, epoch } => self.wake_plane(node, epoch),
            Task::Parcel { to, number } => self.deliver_parcel(to, number),
            Task::Roll { node, epoch } => self.answer_roll(node, epoch),
        }
        true
    }

    /// Runs for `ms` milliseconds of the world's time.
    pub(crate) fn run_ms(&mut self, ms: u64) {
        let end_us = self.now_us + ms * 1000;
        while self.queue.peek().is_some_and(|Reverse((at, ..))| *at <= end_us) {
            self.step();
        }
        self.now_us = end_us;
    }

    /// Runs until `done`, which must come true.
    pub(crate) fn run_until(&mut self, what: &str, done: impl Fn(&World) -> bool) {
        let end_us = self.now_us + PATIENCE_US;
        while !done(self) {
            assert!(self.step() && self.now_us < end_us, "waited in vain: {what}");
        }
    }

    /// Runs until every running node has all connections it wants to running ones.
    pub(crate) fn run_until_connected(&mut self) {
        self.run_until("all links are up", |world| {
            world.nodes.iter().filter(|n| n.running()).all(|n| world.is_connected(n))
        });
    }

    /// What stands at `side` of a link may have something to read.
    pub(crate) fn arrived(&mut self, link: LinkId, side: Side) {
        match self.net.links[link].ends[side] {
            End::Upstream { node, up } => {
                self.read_upstream(node, up);
                self.pump(node);
            }
            End::Client { node, client } => {
                self.read_client(node, client);
                self.pump(node);
            }
            End::Store { node } => self.serve_store(node, link, side),
            End::User { user } => self.read_user(user),
            End::Backlog { .. } | End::Gone => {}
        }
    }

    /// Takes bytes that arrived and tells the writer of the room it has now.
    pub(crate) fn take(&mut self, link: LinkId, side: Side) -> Option<Vec<u8>> {
        let bytes = self.net.read(link, side, &mut self.rng);
        if self.net.take_unblocked(link, 1 - side) {
            let delay = self.rng.u64(self.net.settings.delay_us.clone());
            self.plan(self.now_us + delay, Task::Writable { link, side: 1 - side });
        }
        bytes
    }

    /// Writes what a queue of a store or user holds, as far as there is room.
    fn write_queue(
        &mut self,
        link: LinkId,
        side: Side,
        mut out: std::collections::VecDeque<u8>,
    ) -> std::collections::VecDeque<u8> {
        let room = self.net.room(link, side);
        let len = out.len().min(room);
        if len > 0 {
            let bytes = out.drain(..len).collect();
            let due = self.net.send(link, side, bytes, self.now_us, &mut self.rng);
            self.plan_arrivals(link, due);
        }
        if !out.is_empty() {
            self.net.block(link, side);
        }
        out
    }

    /// What stands at `side` of a link goes on writing.
    pub(crate) fn write_again(&mut self, link: LinkId, side: Side) {
        match self.net.links[link].ends[side] {
            End::Upstream { node, up } => {
                self.flush_upstream(node, up);
                self.pump(node);
            }
            End::Client { node, client } => {
                self.flush_client(node, client);
                self.pump(node);
            }
            End::Store { node } => self.write_store(node, link, side),
            End::User { user } => self.write_user(user),
            End::Backlog { .. } | End::Gone => {}
        }
    }

    fn serve_store(&mut self, node: usize, link: LinkId, side: Side) {
        if !self.stores[node].serves() {
            return;
        }
        let wall_ms = self.time(node).wall_ms();
        loop {
            match self.take(link, side) {
                Some(bytes) if bytes.is_empty() => break,
                Some(bytes) => self.stores[node].take(link, &bytes, wall_ms),
                None => {
                    self.stores[node].conns.remove(&link);
                    self.close(link, side);
                    return;
                }
            }
        }
        self.write_store(node, link, side);
    }

    /// Lets a store speak unasked, on all its connections.
    pub(crate) fn say_from_store(&mut self, node: usize, bytes: &[u8]) {
        let links: Vec<LinkId> = self.stores[node].conns.keys().copied().collect();
        for link in links {
            if let Some(conn) = self.stores[node].conns.get_mut(&link) {
                conn.out.extend(bytes);
            }
            self.write_store(node, link, 1);
        }
    }

    fn write_store(&mut self, node: usize, link: LinkId, side: Side) {
        let Some(conn) = self.stores[node].conns.get_mut(&link) else { return };
        let out = std::mem::take(&mut conn.out);
        let rest = self.write_queue(link, side, out);
        if let Some(conn) = self.stores[node].conns.get_mut(&link) {
            conn.out = rest;
        }
    }

    /// Lets go of a link.
    pub(crate) fn close(&mut self, link: LinkId, side: Side) {
        let due = self.net.close(link, side, self.now_us, &mut self.rng);
        self.plan_arrivals(link, due);
    }

    /// Prints what happens, when somebody wants to know.
    pub(crate) fn note(&self, what: impl FnOnce() -> String) {
        if self.trace {
            eprintln!("{:>12.3} ms  {}", self.now_us as f64 / 1000.0, what());
        }
    }
}

/// Users.
impl World {
    /// A client of node `node`.
    pub(crate) fn user(&mut self, node: usize) -> usize {
        self.users.push(User::new(node, ClientKind::Client));
        self.users.len() - 1
    }

    /// A link of another node to `node`, driven by hand.
    pub(crate) fn peer_user(&mut self, node: usize) -> usize {
        self.users.push(User::new(node, ClientKind::Peer));
        self.users.len() - 1
    }

    /// Sends bytes, connecting first when need be. False when the node does not accept.
    pub(crate) fn send_raw(&mut self, user: usize, bytes: &[u8]) -> bool {
        if self.users[user].link.is_none() {
            let (node, kind) = (self.users[user].node, self.users[user].kind);
            let Some(link) = self.accept(node, kind, End::User { user }) else { return false };
            self.users[user].link = Some(link);
        }
        self.users[user].out.extend(bytes);
        self.write_user(user);
        true
    }

    /// Sends a request whose reply ends up in the user's `replies`.
    pub(crate) fn send<W: AsRef<[u8]>>(&mut self, user: usize, words: &[W]) {
        let ask = Ask { sent_us: self.now_us, op: None };
        assert!(self.send_raw(user, &request(words)), "the node does not accept");
        self.users[user].waiting.push_back(ask);
    }

    /// The same, from one line of words.
    pub(crate) fn send_line(&mut self, user: usize, line: &str) {
        self.send(user, &line.split(' ').collect::<Vec<_>>());
    }

    /// Expects replies to requests sent as raw bytes.
    pub(crate) fn expect(&mut self, user: usize, replies: usize) {
        let ask = Ask { sent_us: self.now_us, op: None };
        self.users[user].waiting.extend(std::iter::repeat_n(ask, replies));
    }

    /// Waits for one reply.
    pub(crate) fn reply(&mut self, user: usize) -> Vec<u8> {
        self.run_until("a reply", |world| {
            !world.users[user].replies.is_empty() || world.users[user].link.is_none()
        });
        self.users[user].replies.pop_front().expect("the node hung up")
    }

    /// Asks, waits, and gives the reply in its brief form.
    pub(crate) fn ask(&mut self, user: usize, line: &str) -> String {
        self.send_line(user, line);
        brief(&self.reply(user))
    }

    fn write_user(&mut self, user: usize) {
        let Some(link) = self.users[user].link else { return };
        let out = std::mem::take(&mut self.users[user].out);
        self.users[user].out = self.write_queue(link, 0, out);
    }

    /// Reads what arrived for a user, and checks each reply.
    pub(crate) fn read_user(&mut self, user: usize) {
        if !self.users[user].reading {
            return;
        }
        while let Some(link) = self.users[user].link {
            match self.take(link, 0) {
                Some(bytes) if bytes.is_empty() => return,
                Some(bytes) => {
                    self.users[user].rx.extend_from_slice(&bytes);
                    if self.users[user].kind == ClientKind::Client {
                        self.take_replies(user);
                    }
                }
                None => self.lose_user(user),
            }
        }
    }

    fn take_replies(&mut self, user: usize) {
        while let Some(reply) = self.users[user].next_reply() {
            let ask = self.users[user].waiting.pop_front();
            let ask = ask.unwrap_or_else(|| panic!("a reply nobody asked for: {}", brief(&reply)));
            match ask.op.clone() {
                None => self.users[user].replies.push_back(reply),
                Some(op) => self.check_reply(user, &ask, &op, &reply),
            }
        }
    }

    /// The user's connection is gone, or the user lets go of it.
    pub(crate) fn lose_user(&mut self, user: usize) {
        if let Some(link) = self.users[user].link {
            self.close(link, 0);
        }
        let unanswered = self.users[user].lose();
        self.note(|| format!("user {user} lost its link, {} unanswered", unanswered.len()));
    }
}

/// What the control plane and the tests' own eyes do.
impl World {
    /// Gives every running node the view of the present table.
    pub(crate) fn publish(&mut self) {
        for n in 0..self.nodes.len() {
            self.publish_to(n);
        }
    }

    /// Gives one node the view of the present table.
    pub(crate) fn publish_to(&mut self, n: usize) {
        let view = self.config.view(&self.table, n);
        self.set_view(n, view);
    }

    /// Sets a node's own state, as its admin port does.
    pub(crate) fn operate(&mut self, n: usize, state: NodeState) {
        self.table[n].state = match state {
            NodeState::Standby => PeerState::Standby,
            NodeState::Normal | NodeState::WritesOnly | NodeState::Resuming => PeerState::Normal,
        };
        self.publish();
        let mut view = self.config.view(&self.table, n);
        view.state = state;
        self.set_view(n, view);
    }

    /// Changes what a node claims to be, in the table.
    pub(crate) fn set_state(&mut self, n: usize, state: PeerState) {
        self.table[n].state = state;
    }

    /// What the store of a node answers to a command given to it directly.
    pub(crate) fn in_store(&self, n: usize, line: &str) -> String {
        let bytes = request(&line.split(' ').collect::<Vec<_>>());
        let mut spans = Vec::new();
        let mut decoder = torc::proto::resp::decode::RequestDecoder::default();
        let found = decoder.decode(&bytes, &Default::default(), &mut spans);
        assert!(matches!(found, Ok(Some(_))));
        let args = torc::proto::args::Args::new(&bytes, &spans);
        let data = match &self.nodes[n].embedded {
            Some(data) => data.as_ref(),
            None => &self.stores[n].data,
        };
        brief(&execute(data, &args, self.time(n).wall_ms()))
    }

    /// The same for several nodes.
    pub(crate) fn in_stores(&self, nodes: &[usize], line: &str) -> Vec<String> {
        nodes.iter().map(|n| self.in_store(*n, line)).collect()
    }

    /// A key that the nodes at `position` of their racks own, where racks are alike.
    pub(crate) fn key(&self, position: usize) -> String {
        self.keys(position).next().expect("endless")
    }

    /// All such keys.
    pub(crate) fn keys(&self, position: usize) -> impl Iterator<Item = String> + use<> {
        let view = self.config.view(&self.table, 0);
        (0..).map(|i| format!("key{i}")).filter(move |key| {
            let token = view.hasher.token(key.as_bytes());
            let owner = view.topology.owners(&token).owner(view.topology.own_rack());
            let racks = view.topology.racks();
            let first = racks[view.topology.own_rack()].peers.start;
            owner.is_some_and(|peer| (peer.0 - first) as usize == position)
        })
    }

    /// The nodes that own `key`, one a rack, in the order of the table.
    pub(crate) fn owners(&self, key: &str) -> Vec<usize> {
        let view = self.config.view(&self.table, 0);
        let owners = view.topology.owners(&view.hasher.token(key.as_bytes()));
        let mut nodes: Vec<usize> =
            owners.iter().flatten().map(|idx| view.topology.peer(idx).id.0 as usize).collect();
        nodes.sort_unstable();
        nodes
    }
}
