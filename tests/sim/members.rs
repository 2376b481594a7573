//! Membership: nodes that find each other by gossip, and what follows for requests.

use std::collections::{BTreeMap, BTreeSet};

use torc::dispatch::Target;
use torc::gossip::{Addr, Claim, JOIN_MAX_MS, Link, LocalNode, Membership, Millis, Seed, Settings};
use torc::proto::dnode::control::ControlSeal;
use torc::ring::Consistency::DcSafeQuorum;
use torc::ring::PeerState;

use super::cluster::{Config, node_at};
use super::world::{Task, World};

/// Unix time at the start of the world.
const UNIX_START_MS: u64 = 1_700_000_000_000;

/// A detector's verdict is due within this time at defaults, milliseconds.
const DOWN_WITHIN_MS: u64 = 3000;

/// A node that is back is used within this time, milliseconds.
const BACK_WITHIN_MS: u64 = 2000;

/// The membership machines of all nodes, and messages on their way.
pub(crate) struct Members {
    nodes: Vec<Option<Membership>>,
    versions: Vec<u64>,
    /// By number: who sent it, and the message.
    messages: BTreeMap<u64, (usize, Vec<u8>)>,
    sent: u64,
}

impl World {
    /// Lets nodes find each other, knowing the first one only; those of `absent` come later.
    pub(crate) fn start_gossip(&mut self, absent: &[usize]) {
        let count = self.nodes.len();
        self.members = Some(Members {
            nodes: (0..count).map(|_| None).collect(),
            versions: vec![0; count],
            messages: BTreeMap::new(),
            sent: 0,
        });
        for n in 0..count {
            match absent.contains(&n) {
                true => self.crash(n),
                false => self.start_member(n),
            }
        }
    }

    /// The membership machine of a node that has just started.
    pub(crate) fn start_member(&mut self, n: usize) {
        if self.members.is_none() {
            return;
        }
        let unix_ms = UNIX_START_MS + self.now_ms();
        let (row, first) = (&self.table[n], &self.table[0]);
        let local = LocalNode {
            dc: row.dc.clone(),
            rack: row.rack.clone(),
            tokens: row.tokens.clone(),
            addr: Addr::new(&row.host, row.port),
            name: row.name.clone(),
            generation: unix_ms,
            claim: if self.config.embedded { Claim::Joining } else { Claim::Normal },
            unix_ms,
        };
        let seed = Seed {
            dc: first.dc.clone(),
            rack: first.rack.clone(),
            tokens: first.tokens.clone(),
            addr: Addr::new(&first.host, first.port),
            name: first.name.clone(),
        };
        let settings = Settings::new(ControlSeal::new("sim", None));
        let now = Millis(self.now_ms());
        let membership = Membership::new(settings, local, vec![seed], self.rng.u64(..), now);
        let Some(members) = &mut self.members else { return };
        members.nodes[n] = Some(membership);
        members.versions[n] = 0;
        self.tell_data(n);
        self.drain_member(n);
    }

    /// The machine of a node that died.
    pub(crate) fn stop_member(&mut self, n: usize) {
        if let Some(members) = &mut self.members {
            members.nodes[n] = None;
        }
    }

    /// A node's gossip timer.
    pub(crate) fn wake_member(&mut self, n: usize) {
        let now = Millis(self.now_ms());
        if !self.nodes[n].running() {
            // It finds out when it goes on.
            if self.nodes[n].up {
                self.plan(self.now_us + 50_000, Task::Gossip { node: n });
            }
            return;
        }
        let Some(membership) = self.member(n) else { return };
        if membership.poll_timeout() <= now {
            membership.handle_timeout(now);
            self.tell_data(n);
            self.drain_member(n);
        }
    }

    /// A node tells once that its datastore holds keys, as the control plane does.
    fn tell_data(&mut self, n: usize) {
        let unix_ms = UNIX_START_MS + self.now_ms();
        let since = match &self.nodes[n].embedded {
            None => 0,
            Some(store) if store.counters().keys > 0 => unix_ms,
            Some(_) => return,
        };
        let told = |m: &&mut Membership| m.local().record().attributes.contains_key("data");
        if let Some(membership) = self.member(n).filter(|m| !told(m)) {
            membership.set_data_since(since);
        }
    }

    /// A message arrives, if the host it goes to can be reached.
    pub(crate) fn deliver_message(&mut self, to: usize, number: u64) {
        let now = Millis(self.now_ms());
        let Some(members) = &mut self.members else { return };
        let Some((from, bytes)) = members.messages.remove(&number) else { return };
        let reached = self.nodes[to].running() && self.net.joined(from, to);
        let row = &self.table[from];
        let from = Addr::new(&row.host, row.port);
        if let Some(membership) = self.member(to).filter(|_| reached) {
            membership.handle_message(&from, &bytes, now);
            self.drain_member(to);
        }
    }

    /// Tells a node's machine what became of a connection.
    pub(crate) fn tell_link(&mut self, n: usize, target: Target, link: Link) {
        let now = Millis(self.now_ms());
        if let (Target::Peer(peer), Some(membership)) = (target, self.member(n)) {
            membership.link(peer, link, now);
            self.drain_member(n);
        }
    }

    /// Tells a node's machine that a peer was heard.
    pub(crate) fn tell_heard(&mut self, n: usize, target: Target) {
        let now = Millis(self.now_ms());
        if let (Target::Peer(peer), Some(membership)) = (target, self.member(n)) {
            membership.observe(peer, now, now);
        }
    }

    fn member(&mut self, n: usize) -> Option<&mut Membership> {
        self.members.as_mut()?.nodes[n].as_mut()
    }

    /// Carries out what a node's machine has to say.
    fn drain_member(&mut self, n: usize) {
        let Some(membership) = self.member(n) else { return };
        while membership.poll_event().is_some() {}
        let transmits: Vec<_> = std::iter::from_fn(|| membership.poll_transmit()).collect();
        let (version, due) = (membership.version(), membership.poll_timeout());
        let peers = membership.peers();
        self.plan(due.0.saturating_mul(1000), Task::Gossip { node: n });
        for transmit in transmits {
            let delay = self.rng.u64(self.net.settings.delay_us.clone());
            let Some(members) = &mut self.members else { return };
            members.sent += 1;
            let number = members.sent;
            members.messages.insert(number, (n, transmit.payload));
            let to = node_at(transmit.to.port);
            self.plan(self.now_us + delay, Task::Message { to, number });
        }
        let Some(members) = &mut self.members else { return };
        if members.versions[n] != version {
            members.versions[n] = version;
            let view = self.config.view_of(peers);
            self.set_view(n, view);
        }
    }

    /// True when every running node knows `peers` peers and all of them have the same ring.
    pub(crate) fn converged(&self, peers: usize) -> bool {
        let views = self.nodes.iter().filter(|n| n.up).map(|n| &n.view.topology);
        let seen: BTreeSet<_> = views.map(|t| (t.digest(), t.peers().len())).collect();
        seen.len() == 1 && seen.iter().all(|(_, known)| *known == peers)
    }

    /// Waits for [`World::converged`] and for the links that follow.
    pub(crate) fn converge(&mut self, peers: usize) {
        self.run_until("the ring is known to all", |w| w.converged(peers));
        self.run_until_connected();
    }

    /// How often a node plans for another one: not once it judges it down.
    fn routes_to(&self, n: usize, to: usize) -> bool {
        self.nodes[n].view.topology.peers().any(|p| node_at(p.port) == to && p.routable())
    }
}

fn ring(dcs: &[&[usize]]) -> World {
    let mut w = World::new(Config::new(dcs).level(DcSafeQuorum));
    w.start_gossip(&[]);
    w.converge(dcs.iter().flat_map(|racks| racks.iter()).sum());
    w
}

#[test]
fn nodes_that_know_one_seed_find_all_others_and_serve() {
    let mut w = ring(&[&[2, 2, 2], &[1]]);
    for n in 0..7 {
        let user = w.user(n);
        assert_eq!(w.ask(user, &format!("SET key{n} {n}")), "OK");
    }
    let user = w.user(3);
    for n in 0..6 {
        assert_eq!(w.ask(user, &format!("GET key{n}")), n.to_string());
    }
}

#[test]
fn a_dead_node_is_down_everywhere_soon_and_used_soon_after_its_return() {
    let mut w = ring(&[&[2, 2, 2]]);
    let user = w.user(0);
    for kill in [1, 3, 5] {
        w.crash(kill);
        w.run_ms(DOWN_WITHIN_MS);
        let others: Vec<usize> = (0..6).filter(|n| *n != kill).collect();
        assert!(others.iter().all(|n| !w.routes_to(*n, kill)), "n{} is down", kill + 1);
        // Its arc stays its own, so the ring is the same; two of three racks are enough.
        assert!(w.converged(6));
        for key in w.keys(1).take(5) {
            assert_eq!(w.ask(user, &format!("SET {key} {kill}")), "OK");
            assert_eq!(w.ask(user, &format!("GET {key}")), kill.to_string());
        }
        w.restart(kill);
        w.run_ms(BACK_WITHIN_MS);
        assert!(others.iter().all(|n| w.routes_to(*n, kill)), "n{} is back", kill + 1);
        w.converge(6);
    }
}

#[test]
fn a_frozen_node_is_routed_around_and_trusted_again() {
    let mut w = ring(&[&[1, 1, 1]]);
    let user = w.user(0);
    w.freeze(1);
    w.run_ms(DOWN_WITHIN_MS);
    assert!(!w.routes_to(0, 1) && !w.routes_to(2, 1));
    let start_ms = w.now_ms();
    assert_eq!(w.ask(user, "SET k 1"), "OK");
    assert!(w.now_ms() - start_ms < 20, "nobody waits for a node that is known to be down");
    w.thaw(1);
    w.run_ms(BACK_WITHIN_MS);
    assert!(w.routes_to(0, 1) && w.routes_to(2, 1));
    assert_eq!(w.ask(user, "SET k 2"), "OK");
}

/// What one of two nodes sends does not arrive at the other, so they cannot hold a connection; all
/// others hear both. Nobody's word but theirs is touched, and theirs about the other alone.
#[test]
fn a_one_way_cut_concerns_the_pair_alone() {
    let (mute, deaf) = (1, 2);
    let mut w = ring(&[&[2, 2, 2]]);
    w.run_ms(5000);
    let others: Vec<usize> = (0..6).filter(|n| ![mute, deaf].contains(n)).collect();
    let versions = |w: &World| -> Vec<u64> {
        let members = w.members.as_ref().expect("gossip");
        others.iter().map(|n| members.versions[*n]).collect()
    };
    let before = versions(&w);
    let users: Vec<usize> = (0..6).map(|n| w.user(n)).collect();
    w.cut_off(mute, deaf);
    let mut doubted = false;
    for round in 0..400 {
        w.run_ms(100);
        for n in 0..6 {
            for to in 0..6 {
                let pair = [n, to].iter().all(|n| [mute, deaf].contains(n));
                assert!(pair || w.routes_to(n, to), "n{} of n{}, round {round}", n + 1, to + 1);
                doubted |= !w.routes_to(n, to);
            }
        }
        // Two racks of three are enough whoever is asked.
        let key = format!("key{round}");
        let user = users[round % 6];
        assert_eq!(w.ask(user, &format!("SET {key} {round}")), "OK");
        assert_eq!(w.ask(user, &format!("GET {key}")), round.to_string());
    }
    assert!(doubted, "the pair finds out");
    assert_eq!(versions(&w), before, "to all others nothing happened");
    w.join(mute, deaf);
    w.run_ms(DOWN_WITHIN_MS);
    assert!(w.routes_to(mute, deaf) && w.routes_to(deaf, mute));
    assert_eq!(versions(&w), before);
}

#[test]
fn a_node_that_joins_is_learnt_and_one_that_leaves_is_forgotten() {
    let mut w = World::new(Config::new(&[&[2, 2, 2]]).level(DcSafeQuorum));
    w.start_gossip(&[5]);
    w.converge(5);
    let user = w.user(0);
    for i in 0..20 {
        w.send_line(user, &format!("SET early{i} x"));
    }
    w.restart(5);
    w.converge(6);
    for _ in 0..20 {
        assert_eq!(w.reply(user), b"+OK\r\n");
    }
    let now = Millis(w.now_ms());
    w.member(4).expect("n5 lives").leave(now);
    w.drain_member(4);
    for i in 0..20 {
        w.send_line(user, &format!("SET late{i} x"));
        w.run_ms(100);
    }
    for _ in 0..20 {
        assert_eq!(w.reply(user), b"+OK\r\n", "a leave fails no request");
    }
    let owns = |w: &World, n: usize| {
        let mut peers = w.nodes[n].view.topology.peers();
        peers.any(|p| node_at(p.port) == 4 && p.state != PeerState::Leaving)
    };
    assert!((0..4).all(|n| !owns(&w, n)), "everybody knows that it left");
}

#[test]
fn members_that_come_and_go_under_load_lose_nothing() {
    for seed in 1..4 {
        let mut w = World::new(Config { seed, ..Config::new(&[&[2, 2, 2]]).level(DcSafeQuorum) });
        w.start_gossip(&[]);
        w.converge(6);
        for n in 0..6 {
            w.user(n);
        }
        let mut dead: Option<usize> = None;
        for round in 0..600 {
            let pause = w.rng.u64(1..30);
            w.run_ms(pause);
            let user = w.rng.usize(0..6);
            if w.users[user].waiting.len() < 40 && !w.burst(user) {
                w.hang_up(user);
            }
            if round % 150 == 0 {
                let n = w.rng.usize(0..6);
                w.crash(n);
                dead = Some(n);
            } else if round % 150 == 100 {
                dead.take().into_iter().for_each(|n| w.restart(n));
            }
        }
        w.converge(6);
        w.run_ms(10_000);
        let waiting: usize = w.users.iter().map(|user| user.waiting.len()).sum();
        assert_eq!(waiting, 0, "seed={seed}: somebody still waits");
        assert!(w.history.answered > 1000, "seed={seed}");
    }
}

#[test]
fn a_rack_that_comes_back_empty_is_not_believed_before_it_has_what_the_others_have() {
    let mut w = World::new(Config::new(&[&[2, 2, 2]]).embedded());
    w.start_gossip(&[]);
    w.converge(6);
    w.run_ms(2000);
    let joining = |w: &World, of: usize| {
        let mut peers = w.nodes[0].view.topology.peers();
        peers.any(|p| node_at(p.port) == of && p.is_joining())
    };
    assert!((0..6).all(|n| !joining(&w, n)), "a new ring has nothing to wait for");
    let writer = w.user(0);
    for i in 0..60 {
        assert_eq!(w.ask(writer, &format!("SET key{i} {i}")), "OK");
    }
    // One rack after the other loses everything; the first one keeps what it has.
    for rack in [[2, 3], [4, 5]] {
        rack.iter().for_each(|n| w.crash(*n));
        w.run_ms(DOWN_WITHIN_MS);
        for i in (0..60).step_by(3) {
            assert_eq!(w.ask(writer, &format!("SET key{i} {i}")), "OK");
        }
        rack.iter().for_each(|n| w.restart(*n));
        w.converge(6);
        assert!(rack.iter().all(|n| joining(&w, *n)));
        for n in 0..6 {
            let user = w.user(n);
            for i in 0..60 {
                assert_eq!(w.ask(user, &format!("GET key{i}")), i.to_string(), "n{}", n + 1);
            }
            assert_eq!(w.ask(user, &format!("SETNX key{n} other")), ":0", "who decides is full");
        }
    }
    // Nothing but writes fills a store, so the time is over at some point.
    w.run_ms(JOIN_MAX_MS + 5000);
    assert!((0..6).all(|n| !joining(&w, n)));
}
