//! Several nodes, one virtual clock, one network.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};

use prost::Message as _;

use crate::gossip::message::Gossip;
use crate::gossip::{
    Addr, Claim, Event, EventKind, LocalNode, Membership, Millis, Reach, Seed, Settings, Slot,
    Transmit,
};
use crate::proto::dnode::control::{ControlSeal, control_message, put_control_frame};
use crate::proto::dnode::{HeaderDecoder, HeaderLimits, MsgType};
use crate::ring::{PeerId, Topology};
use crate::token::DynToken;

/// Unix time at which every world begins, in milliseconds.
pub(super) const EPOCH_MS: u64 = 1_795_982_732_000;

/// Tokens of neighbours lie so far apart.
const TOKEN_STEP: u32 = 1_000_000;

/// One node of the world.
pub(super) struct Node {
    pub membership: Option<Membership>,
    pub local: LocalNode,
    pub settings: Settings,
    pub frozen: bool,
    pub events: Vec<Event>,
    /// What C nodes were sent, body by body.
    pub c_bodies: Vec<(Addr, String)>,
    /// What it told torc nodes.
    pub sent: Sent,
}

/// Messages to torc nodes.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Sent {
    pub messages: u64,
    /// Bytes of their frames.
    pub bytes: u64,
    /// Whole records in them.
    pub records: u64,
}

pub(super) struct World {
    pub now: Millis,
    pub nodes: Vec<Node>,
    /// Pairs (from, to) that cannot talk.
    pub cut: BTreeSet<(usize, usize)>,
    /// Delay of a message, in milliseconds: least and most.
    pub delay_ms: (u64, u64),
    rng: fastrand::Rng,
    by_addr: BTreeMap<Addr, usize>,
    wire: BinaryHeap<Reverse<(Millis, u64, usize, usize)>>,
    frames: BTreeMap<u64, Vec<u8>>,
    timers: BinaryHeap<Reverse<(Millis, usize)>>,
    sequence: u64,
}

/// Settings of the cluster `blue` at defaults.
pub(super) fn defaults() -> Settings {
    Settings::new(ControlSeal::new("blue", None))
}

/// Node number `i`: two datacenters, two racks each, tokens rising with the number.
pub(super) fn local(i: usize) -> LocalNode {
    let addr = Addr::new(&format!("10.0.{}.{}", i / 250, i % 250 + 1), 8101);
    LocalNode {
        dc: format!("dc{}", i % 2 + 1),
        rack: format!("rack{}", i / 2 % 2 + 1),
        tokens: vec![DynToken::from_u32((i as u32 + 1) * TOKEN_STEP)],
        name: addr.to_string(),
        addr,
        generation: EPOCH_MS,
        claim: Claim::Normal,
        unix_ms: EPOCH_MS,
    }
}

/// Node number `i` as a seed list names it.
pub(super) fn seed(i: usize) -> Seed {
    seed_of(&local(i))
}

pub(super) fn seed_of(local: &LocalNode) -> Seed {
    Seed {
        dc: local.dc.clone(),
        rack: local.rack.clone(),
        tokens: local.tokens.clone(),
        addr: local.addr.clone(),
        name: local.name.clone(),
    }
}

pub(super) fn slot(i: usize) -> Slot {
    local(i).slot()
}

impl World {
    pub(super) fn new(seed: u64) -> World {
        World {
            now: Millis(1_000_000),
            nodes: Vec::new(),
            cut: BTreeSet::new(),
            delay_ms: (1, 5),
            rng: fastrand::Rng::with_seed(seed),
            by_addr: BTreeMap::new(),
            wire: BinaryHeap::new(),
            frames: BTreeMap::new(),
            timers: BinaryHeap::new(),
            sequence: 0,
        }
    }

    /// `n` nodes that know node 0, which knows nobody, started within the first second.
    pub(super) fn of(n: usize, rng_seed: u64) -> World {
        let mut world = World::new(rng_seed);
        for i in 0..n {
            let seeds = if i == 0 { vec![] } else { vec![seed(0)] };
            world.start(local(i), defaults(), seeds);
            world.run(1000 / n as u64);
        }
        world
    }

    /// Starts another node; its generation is the present time.
    pub(super) fn start(
        &mut self,
        local: LocalNode,
        settings: Settings,
        seeds: Vec<Seed>,
    ) -> usize {
        let i = self.nodes.len();
        self.nodes.push(Node {
            membership: None,
            local,
            settings,
            frozen: false,
            events: Vec::new(),
            c_bodies: Vec::new(),
            sent: Sent::default(),
        });
        self.boot(i, seeds);
        i
    }

    /// Starts node `i` again, as another process.
    pub(super) fn boot(&mut self, i: usize, seeds: Vec<Seed>) {
        let unix_ms = EPOCH_MS + self.now.0;
        let rng_seed = self.rng.u64(..);
        let node = &mut self.nodes[i];
        node.local.unix_ms = unix_ms;
        node.local.generation = unix_ms;
        node.frozen = false;
        let (settings, local) = (node.settings.clone(), node.local.clone());
        let membership = Membership::new(settings, local, seeds, rng_seed, self.now);
        node.membership = Some(membership);
        self.by_addr.insert(node.local.addr.clone(), i);
        self.timers.push(Reverse((self.now, i)));
    }

    pub(super) fn kill(&mut self, i: usize) {
        self.nodes[i].membership = None;
    }

    pub(super) fn cut_both(&mut self, a: usize, b: usize) {
        self.cut.insert((a, b));
        self.cut.insert((b, a));
    }

    /// The living node `i`, to be driven from outside; see [`World::poke`].
    pub(super) fn m(&mut self, i: usize) -> &mut Membership {
        self.nodes[i].membership.as_mut().expect("a living node")
    }

    /// Calls node `i` and takes what it has to say.
    pub(super) fn poke<T>(&mut self, i: usize, f: impl FnOnce(&mut Membership, Millis) -> T) -> T {
        let now = self.now;
        let result = f(self.m(i), now);
        self.drain(i);
        result
    }

    /// Lets `ms` pass.
    pub(super) fn run(&mut self, ms: u64) {
        let end = self.now.plus(ms);
        loop {
            let wire = self.wire.peek().map(|Reverse((at, ..))| *at);
            let timer = self.timers.peek().map(|Reverse((at, _))| *at);
            let wire = wire.unwrap_or(Millis::NEVER);
            let timer = timer.unwrap_or(Millis::NEVER);
            if wire.min(timer) > end {
                break;
            }
            if wire <= timer {
                self.deliver();
            } else {
                self.tick();
            }
        }
        self.now = end;
    }

    /// Lets time pass until `done`, looked at every 10 ms; panics after `ms`. Returns how long
    /// it took.
    pub(super) fn run_until(&mut self, ms: u64, done: impl Fn(&World) -> bool) -> u64 {
        let start = self.now;
        while !done(self) {
            let took = self.now.since(start);
            assert!(took < ms, "not done after {took} ms");
            self.run(10);
        }
        self.now.since(start)
    }

    fn tick(&mut self) {
        let Some(Reverse((at, i))) = self.timers.pop() else {
            return;
        };
        self.now = self.now.max(at);
        let now = self.now;
        if self.nodes[i].frozen {
            self.timers.push(Reverse((now.plus(50), i)));
            return;
        }
        if let Some(membership) = &mut self.nodes[i].membership
            && membership.poll_timeout() <= now
        {
            membership.handle_timeout(now);
            self.drain(i);
        }
    }

    fn deliver(&mut self) {
        let Some(Reverse((at, number, from, to))) = self.wire.pop() else {
            return;
        };
        self.now = self.now.max(at);
        let frame = self.frames.remove(&number).expect("a frame on its way");
        let sender = self.nodes[from].local.addr.clone();
        let node = &mut self.nodes[to];
        if node.frozen || self.cut.contains(&(from, to)) {
            return;
        }
        if let Some(membership) = &mut node.membership {
            let limits = HeaderLimits::default();
            let header = HeaderDecoder::default().decode(&frame, &limits);
            let header = header.unwrap().expect("a whole header");
            assert_eq!(header.msg_type(), MsgType::TorcGossip);
            let message = control_message(&frame[header.len..]).expect("a bulk string");
            membership.handle_message(&sender, message, self.now);
            self.drain(to);
        }
    }

    /// Takes what node `i` has to say and sets its timer.
    fn drain(&mut self, i: usize) {
        while let Some(event) = self.m(i).poll_event() {
            self.nodes[i].events.push(event);
        }
        while let Some(transmit) = self.m(i).poll_transmit() {
            self.send(i, transmit);
        }
        let at = self.m(i).poll_timeout();
        self.timers.push(Reverse((at, i)));
    }

    fn send(&mut self, from: usize, transmit: Transmit) {
        if transmit.kind == MsgType::GossipSyn {
            let body = String::from_utf8(transmit.payload).unwrap();
            self.nodes[from].c_bodies.push((transmit.to, body));
            return;
        }
        let mut frame = Vec::new();
        let kind = transmit.kind;
        put_control_frame(&mut frame, 1, kind, true, b"d", &transmit.payload);
        let node = &mut self.nodes[from];
        let opened = node.settings.seal.open(kind, &transmit.payload).expect("its own message");
        let message = Gossip::decode(&*opened).expect("a message");
        node.sent.messages += 1;
        node.sent.bytes += frame.len() as u64;
        node.sent.records += (message.records.len() + message.rumors.len()) as u64;
        let Some(to) = self.by_addr.get(&transmit.to).copied() else {
            return;
        };
        let delay = self.rng.u64(self.delay_ms.0..=self.delay_ms.1);
        self.sequence += 1;
        self.frames.insert(self.sequence, frame);
        let at = self.now.plus(delay);
        self.wire.push(Reverse((at, self.sequence, from, to)));
    }

    // What nodes think.

    pub(super) fn alive(&self) -> impl Iterator<Item = (usize, &Membership)> {
        let nodes = self.nodes.iter().enumerate();
        nodes.filter_map(|(i, node)| Some((i, node.membership.as_ref()?)))
    }

    /// What node `i` thinks of a slot.
    pub(super) fn reach(&self, i: usize, slot: &Slot) -> Option<Reach> {
        let membership = self.nodes[i].membership.as_ref()?;
        let mut members = membership.members();
        let found = members.find(|m| m.record().slot == *slot);
        found.map(|m| m.reach())
    }

    pub(super) fn id(&self, i: usize, slot: &Slot) -> PeerId {
        let membership = self.nodes[i].membership.as_ref().unwrap();
        let mut members = membership.members();
        members.find(|m| m.record().slot == *slot).unwrap().id()
    }

    /// True when every living node holds every living node up.
    pub(super) fn all_up(&self) -> bool {
        let slots: Vec<Slot> = self.alive().map(|(i, _)| self.nodes[i].local.slot()).collect();
        self.alive().all(|(i, _)| {
            let up = |slot: &Slot| self.reach(i, slot) == Some(Reach::Up);
            slots.iter().all(up)
        })
    }

    /// True when every living node but `i` holds it down.
    pub(super) fn down_everywhere(&self, i: usize) -> bool {
        let slot = self.nodes[i].local.slot();
        let down = |n| matches!(self.reach(n, &slot), Some(Reach::Down(_)));
        self.alive().filter(|(n, _)| *n != i).all(|(n, _)| down(n))
    }

    /// True when node `i` holds `slot` down.
    pub(super) fn is_down_at(&self, i: usize, slot: &Slot) -> bool {
        matches!(self.reach(i, slot), Some(Reach::Down(_)))
    }

    /// True when every living node but `i` would route to it.
    pub(super) fn routable_everywhere(&self, i: usize) -> bool {
        let slot = self.nodes[i].local.slot();
        self.alive().filter(|(n, _)| *n != i).all(|(_, m)| {
            let mut peers = m.peers().into_iter();
            peers.any(|p| p.routable() && p.tokens[0] == slot.token && p.is_torc)
        })
    }

    /// Digests of the rings the living nodes would build.
    pub(super) fn ring_digests(&self) -> BTreeSet<u64> {
        let rings = self.alive().map(|(_, m)| Topology::build(m.peers()));
        rings.map(|ring| ring.unwrap().digest()).collect()
    }

    /// How often any node judged `slot` down since event number `since` of each node.
    pub(super) fn downs(&self, except: &[usize]) -> Vec<(usize, Event)> {
        let excluded: Vec<Slot> = except.iter().map(|i| self.nodes[*i].local.slot()).collect();
        let nodes = self.nodes.iter().enumerate();
        nodes
            .flat_map(|(i, node)| node.events.iter().map(move |e| (i, e.clone())))
            .filter(|(_, e)| matches!(e.kind, EventKind::Down { .. }))
            .filter(|(_, e)| !excluded.contains(&e.slot))
            .collect()
    }

    /// Events of node `i` about `slot` since `at`.
    pub(super) fn events(&self, i: usize, slot: &Slot) -> Vec<EventKind> {
        let events = self.nodes[i].events.iter().filter(|e| e.slot == *slot);
        events.map(|e| e.kind.clone()).collect()
    }

    pub(super) fn forget_events(&mut self) {
        for node in &mut self.nodes {
            node.events.clear();
        }
    }
}
