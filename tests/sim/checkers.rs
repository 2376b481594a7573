//! What must hold after every step, whatever happens.
//!
//! - Each request gets one reply, in order, for the request itself: values carry their key and a
//!   number, echoes carry a number.
//! - What a majority acknowledged is what a safe read sees, or something later (decision H12).
//! - An error is one of the reference's texts, and comes only where the level must fail.
//! - Buffers stay within their limits.

use std::collections::BTreeSet;

use torc::dispatch::{ClientId, Conn, UpId};
use torc::proto::resp::reply::{elements, is_null, is_ok, parse_int, text};
use torc::ring::Consistency;

use super::cluster::node_at;
use super::user::{Ask, brief};
use super::workload::{Op, REQUEST_BYTES_MAX, VALUE_BYTES_MAX, parse_value};
use super::world::World;

/// What is known about one key.
#[derive(Default)]
pub(crate) struct KeyHistory {
    /// Number of the last write that was sent.
    pub(crate) issued: u64,
    /// Numbers of acknowledged writes.
    pub(crate) acked: BTreeSet<u64>,
    /// Not written any more: a write got lost with its connection and may be done at any time.
    pub(crate) closed: bool,
}

/// What was asked and answered so far.
#[derive(Default)]
pub(crate) struct History {
    pub(crate) keys: Vec<KeyHistory>,
    pub(crate) answered: u64,
    pub(crate) errors: u64,
    /// Whether writes may be late: see [`super::network::NetSettings::late_bytes`].
    pub(crate) late_writes: bool,
}

impl KeyHistory {
    /// What a reader that begins now must see at least; 0 is nothing.
    pub(crate) fn floor(&self) -> u64 {
        self.acked.last().copied().unwrap_or(0)
    }
}

/// Since when each node reaches each other one's store without interruption.
pub(crate) struct Health {
    since: Vec<Vec<Option<u64>>>,
}

impl Health {
    pub(crate) fn new(nodes: usize) -> Health {
        Health { since: vec![vec![None; nodes]; nodes] }
    }

    /// True when `from` has reached `to` from before `start_us` until now.
    pub(crate) fn steady(&self, from: usize, to: usize, start_us: u64) -> bool {
        self.since[from][to].is_some_and(|since| since < start_us)
    }

    /// Forgets what is known about `from`: its plans have changed.
    pub(crate) fn reset(&mut self, from: usize) {
        self.since[from].fill(None);
    }
}

impl World {
    /// Looks anew who reaches whom.
    pub(crate) fn refresh_health(&mut self) {
        for from in 0..self.nodes.len() {
            for to in 0..self.nodes.len() {
                let healthy = self.reaches(from, to);
                let since = &mut self.health.since[from][to];
                *since = match healthy {
                    true => Some(since.unwrap_or(self.now_us)),
                    false => None,
                };
            }
        }
    }

    fn reaches(&self, from: usize, to: usize) -> bool {
        let linked = |from: usize, to: usize| {
            let mut ups = self.nodes[from].upstreams.values().filter(|w| w.host == to);
            ups.next().is_some_and(|w| w.port.is_some()) && ups.all(|w| w.port.is_some())
        };
        let store =
            self.nodes[to].embedded.is_some() || (self.stores[to].serves() && linked(to, to));
        let link = from == to || linked(from, to);
        let running = self.nodes[from].running() && self.nodes[to].running();
        running && store && link && self.net.joined(from, to)
    }

    /// Checks the reply to a workload's request.
    pub(crate) fn check_reply(&mut self, user: usize, ask: &Ask, op: &Op, reply: &[u8]) {
        self.history.answered += 1;
        self.note(|| {
            let line: String = brief(reply).chars().take(100).collect();
            format!("user {user} of n{}: {op:?}: {line}", self.users[user].node + 1)
        });
        if reply.first() == Some(&b'-') {
            self.history.errors += 1;
            return self.check_error(user, ask, op, reply);
        }
        let wrong = || -> ! { panic!("{op:?} of user {user} was answered {}", brief(reply)) };
        match op {
            Op::Echo(number) => {
                if text(reply) != Some(number.to_string().as_bytes()) {
                    wrong();
                }
            }
            Op::Set { .. } | Op::Mset { .. } if !is_ok(reply) => wrong(),
            Op::Set { key, seq } => self.acknowledge(*key, *seq),
            Op::Mset { pairs } => pairs.iter().for_each(|(key, seq)| self.acknowledge(*key, *seq)),
            Op::Get { key, floor } => self.check_value(op, *key, *floor, reply),
            Op::Mget { keys } => {
                let values: Vec<_> = elements(reply).collect();
                if values.len() != keys.len() {
                    wrong();
                }
                for ((key, floor), value) in keys.iter().zip(values) {
                    self.check_value(op, *key, *floor, value);
                }
            }
            Op::Exists { keys } => {
                if !parse_int(reply).is_some_and(|n| (0..=keys.len() as i64).contains(&n)) {
                    wrong();
                }
            }
        }
    }

    fn acknowledge(&mut self, key: usize, seq: u64) {
        self.history.keys[key].acked.insert(seq);
    }

    fn check_value(&self, op: &Op, key: usize, floor: u64, reply: &[u8]) {
        let history = &self.history.keys[key];
        let seq = if is_null(reply) {
            0
        } else {
            let (found, seq) = text(reply)
                .and_then(parse_value)
                .unwrap_or_else(|| panic!("{op:?}: not a value: {}", brief(reply)));
            assert_eq!(found, key, "{op:?}: the value of another key");
            seq
        };
        assert!(seq <= history.issued, "{op:?}: value {seq} was never written");
        // Late bytes may bring an old write that nobody was ever promised.
        let unknown = self.history.late_writes && seq > 0 && !history.acked.contains(&seq);
        assert!(seq >= floor || unknown, "{op:?}: value {seq}, but {floor} was acknowledged");
    }

    fn check_error(&self, user: usize, ask: &Ask, op: &Op, reply: &[u8]) {
        const TEXTS: [&[u8]; 4] = [
            b"-ERR Storage: Datastore refused connection (",
            b"-ERR Peer: Peer Node is not connected (",
            b"-ERR Peer: Peer Node refused connection (",
            b"-ERR Dynomite: Failed to achieve Quorum (",
        ];
        let line = brief(reply);
        assert!(TEXTS.iter().any(|t| reply.starts_with(t)), "{op:?} of user {user}: {line}");
        // Replicas may differ after writes that failed.
        let node = self.users[user].node;
        let reads = op.reads();
        if reads && line.contains("replicas disagree") {
            return;
        }
        let level = if reads { self.nodes[node].view.read } else { self.nodes[node].view.write };
        let excused =
            op.keys().iter().any(|key| !self.must_succeed(node, *key, level, ask.sent_us));
        assert!(excused, "{op:?} of user {user} at {level}, asked at {}: {line}", ask.sent_us);
    }

    /// True when enough replicas of `key` were within reach of `node` all the time.
    fn must_succeed(&self, node: usize, key: usize, level: Consistency, start_us: u64) -> bool {
        let view = &self.nodes[node].view;
        let topology = &view.topology;
        let owners = topology.owners(&view.hasher.token(&super::workload::key_name(key)));
        let steady = |rack: usize| {
            owners.owner(rack).is_some_and(|idx| {
                let peer = topology.peer(idx);
                peer.routable() && self.health.steady(node, node_at(peer.port), start_us)
            })
        };
        let majority = |racks: std::ops::Range<usize>| {
            let all = racks.len();
            racks.filter(|rack| steady(*rack)).count() > all / 2
        };
        match level {
            Consistency::DcOne => steady(topology.own_rack()),
            Consistency::DcQuorum | Consistency::DcSafeQuorum => majority(topology.local_racks()),
            Consistency::DcEachSafeQuorum => {
                majority(topology.local_racks())
                    && topology.remote_dcs().iter().all(|dc| majority(dc.racks.clone()))
            }
        }
    }

    /// Checks that what a node holds is within its limits.
    pub(crate) fn check_node(&self, n: usize) {
        let node = &self.nodes[n];
        let settings = &node.view.settings;
        // Requests in flight when the limit was hit may still be answered.
        let replies = settings.client_in_flight_max * VALUE_BYTES_MAX * 4;
        for client in node.clients.keys() {
            let held = node.dispatcher.output_len(Conn::Client(ClientId(*client)));
            assert!(held <= settings.client_output_max + replies, "client output of {held} bytes");
        }
        // One request a client may exceed a limit, and reads that move do not wait for it.
        let requests = (node.clients.len() + 1) * REQUEST_BYTES_MAX;
        for up in node.upstreams.keys() {
            let held = node.dispatcher.output_len(Conn::Upstream(UpId(*up)));
            assert!(held <= settings.upstream_output_max + requests, "{held} bytes to send");
        }
        let slots = node.clients.len() * settings.client_in_flight_max;
        // Multi-key commands have a slot a part besides their own; clients that left are awaited.
        let gone = self.users.len() * settings.client_in_flight_max;
        let parts = super::workload::KEYS_MAX + 1;
        assert!(node.dispatcher.in_flight() <= (slots + gone) * parts, "too many slots");
    }

    /// Nodes whose views come from equal tables have equal rings.
    pub(crate) fn check_digests(&self) {
        let digests = self.nodes.iter().filter(|n| n.up).map(|n| n.view.topology.digest());
        let different: BTreeSet<u64> = digests.collect();
        assert!(different.len() <= 1, "equal tables, different rings: {different:x?}");
    }
}
