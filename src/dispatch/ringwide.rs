//! KEYS, SCAN, DBSIZE and RANDOMKEY over the whole ring: every owner of the own rack is asked,
//! once, and their answers are joined. An owner that cannot be asked is an error, never a shorter
//! answer; for one that is away or joining, another rack's are asked (`scan.rs`).
//!
//! Keys that another node tells of (left behind when an arc moved) and names the ring keeps for
//! itself are not shown (decision F6). DBSIZE adds what the datastores of one rack count, such keys
//! included.

use std::sync::Arc;

use xxhash_rust::xxh3::xxh3_64_with_seed;

use super::client::ClientId;
use super::failure::{Cause, Failure, FailureKind};
use super::gather::Said;
use super::requests::Request;
use super::scan::{self, Cursor, Stand, Tellers};
use super::send::Parcel;
use super::slot::Stage;
use super::task::{Next, Part, Task, Written};
use super::view::{Now, View};
use super::{Dispatcher, Frame};
use crate::proto::args::Args;
use crate::proto::command::Routing;
use crate::proto::resp::reply::{elements, is_error, parse_int, text};
use crate::proto::resp::spec::CommandSpec;
use crate::proto::resp::{encode, table};
use crate::ring::PeerIdx;

/// Names that the ring keeps for itself begin with one of these: stamps of the reference's read
/// repair, and what this node stores for its own use.
const RESERVED: [&[u8]; 3] = [b"._add-set", b"._rem-set", b"torc:"];

/// Times RANDOMKEY asks again when all it was given were keys that are not to be shown.
const RANDOM_ROUNDS_MAX: u8 = 16;

/// Owners in a rack at most, so that two questions to each have numbers.
const OWNERS_MAX: usize = u16::MAX as usize / 2;

/// One command over the owners of a rack.
#[derive(Debug)]
pub(super) struct Ring {
    /// The snapshot it was planned on.
    view: Arc<View>,
    tellers: Tellers,
    peers: Vec<PeerIdx>,
    questions: Questions,
    what: What,
    waiting: usize,
    /// The first thing that went wrong.
    error: Option<Trouble>,
}

/// What each owner is asked.
type Questions = Arc<[(&'static CommandSpec, Written)]>;

#[derive(Debug)]
enum What {
    /// The keys found so far, with their framing, and their number.
    Keys { found: Vec<u8>, count: usize },
    /// The node's number and that of the next one, if any.
    Scan { node: u32, after: Option<u32>, page: Vec<u8> },
    /// The sum so far.
    Size(i64),
    /// For each owner a key with its framing, and how many it has.
    Random { picks: Vec<(Option<Vec<u8>>, u64)>, seed: u64, rounds: u8 },
}

#[derive(Debug)]
enum Trouble {
    Failure(Failure),
    Reply(Vec<u8>),
}

impl Dispatcher {
    /// Serves a command over all keys of the ring.
    pub(super) fn serve_ring(
        &mut self,
        view: &View,
        id: ClientId,
        frame: &Frame<'_>,
        spec: &'static CommandSpec,
        args: Args<'_>,
        now: Now,
    ) {
        if view.settings.keyspace_node_only {
            return self.serve_store(view, id, frame, spec, args, now);
        }
        let request = self.request(view, id, spec, args);
        self.counters.client_reads += 1;
        if let Some(failure) = self.forbidden(view, request.op).or_else(|| unowned(view)) {
            return self.reply_in_turn(id.0, request.envelope, Said::Failed(failure), now);
        }
        let same = (spec, Written::command(args.iter()));
        let (questions, what) = match spec.name {
            "scan" => return self.serve_scan(view, &request, spec, now),
            "keys" => (vec![same], What::Keys { found: Vec::new(), count: 0 }),
            "dbsize" => (vec![same], What::Size(0)),
            _ => {
                let size = table::lookup(b"dbsize").expect("a command of the table");
                let how_many = (size, Written::command([&b"DBSIZE"[..]].into_iter()));
                let turn = self.next_generation.to_le_bytes();
                let seed = xxh3_64_with_seed(&turn, now.mono_us);
                let what = What::Random { picks: Vec::new(), seed, rounds: RANDOM_ROUNDS_MAX };
                (vec![same, how_many], what)
            }
        };
        let part = self.begin_ring(&request, questions, what, now);
        self.ask_owners(part, now);
    }

    fn begin_ring(
        &mut self,
        request: &Request<'_>,
        questions: Vec<(&'static CommandSpec, Written)>,
        what: What,
        now: Now,
    ) -> Part {
        let view = Arc::clone(&self.view);
        let tellers = Tellers::of(&view.topology, view.topology.own_rack());
        let (questions, peers) = (questions.into(), Vec::new());
        let ring = Ring { view, tellers, peers, questions, what, waiting: 0, error: None };
        self.begin_task(request.client, request.envelope, Task::Ring(ring), now)
    }

    /// Asks every owner of the own rack.
    pub(super) fn ask_owners(&mut self, part: Part, now: Now) {
        let topology = &self.view.topology;
        let tellers = Tellers::of(topology, topology.own_rack());
        let peers: Vec<PeerIdx> = match self.ring_task(part).map(|ring| &ring.what) {
            Some(What::Size(_)) => tellers.counted(topology).take(OWNERS_MAX).collect(),
            Some(What::Keys { .. } | What::Scan { .. } | What::Random { .. }) | None => {
                tellers.peers(topology).take(OWNERS_MAX).collect()
            }
        };
        self.ask_all(part, tellers, &peers, now);
    }

    fn ring_task(&self, part: Part) -> Option<&Ring> {
        let Stage::Task(task) = &self.slots.get(part.slot as usize)?.stage else { return None };
        let Task::Ring(ring) = task.as_ref() else { return None };
        Some(ring)
    }

    fn ask_all(&mut self, part: Part, tellers: Tellers, peers: &[PeerIdx], now: Now) {
        let view = &Arc::clone(&self.view);
        let Stage::Task(task) = &mut self.slots[part.slot as usize].stage else { return };
        let Task::Ring(ring) = task.as_mut() else { return };
        ring.begin(view, tellers, peers);
        let questions = Arc::clone(&ring.questions);
        let mut number = 0;
        for peer in peers {
            for (spec, question) in questions.iter() {
                let frame = Frame::Small(&question.bytes);
                let part = Part { part: number, ..part };
                let parcel = Parcel { frame: &frame, args: question.args(), stamp: None };
                self.ask_node(view, *peer, spec, parcel, part, now);
                number += 1;
            }
        }
    }

    /// SCAN goes to the node its cursor names.
    fn serve_scan(
        &mut self,
        view: &View,
        request: &Request<'_>,
        spec: &'static CommandSpec,
        now: Now,
    ) {
        let Some(cursor) = Cursor::parse(&request.args[1]) else {
            return self.reply_error(ClientId(request.client), "ERR invalid cursor", now);
        };
        let Some(stand) = scan::stand(&view.topology, cursor) else {
            let failure = Failure::new(FailureKind::NoQuorum, Cause::NoReplica);
            let said = Said::Failed(failure);
            return self.reply_in_turn(request.client, request.envelope, said, now);
        };
        let Stand { tellers, node: (node, peer), store, after } = stand;
        let mut number = itoa::Buffer::new();
        let number = number.format(store).as_bytes();
        let words = request.args.iter().enumerate();
        let words = words.map(|(i, arg)| if i == 1 { number } else { arg });
        let questions = vec![(spec, Written::command(words))];
        let what = What::Scan { node, after, page: Vec::new() };
        let part = self.begin_ring(request, questions, what, now);
        self.ask_all(part, tellers, &[peer], now);
    }

    /// `TORC.LOCAL CMD ARGS...`: the command on this node's datastore, whatever it owns, and on no
    /// other (decision A12).
    pub(super) fn serve_own_store(
        &mut self,
        view: &View,
        id: ClientId,
        command: Args<'_>,
        now: Now,
    ) {
        let Some(spec) = self.known_command(view, id, &command, now) else { return };
        let flush = spec.name.starts_with("flush");
        let may = match spec.routing_of(&command) {
            Routing::Keyed | Routing::LocalStore | Routing::Ring => true,
            Routing::AllNodes => !flush || view.settings.allow_flush,
            Routing::Node
            | Routing::Blocking
            | Routing::Transaction
            | Routing::Refused(_)
            | Routing::Hangup => false,
        };
        if !may {
            let text = format!("ERR TORC.LOCAL does not run '{}'", spec.name);
            return self.reply_error(id, &text, now);
        }
        self.note_scripts(&command);
        let written = Written::command(command.iter());
        self.serve_store(view, id, &Frame::Small(&written.bytes), spec, written.args(), now);
    }
}

/// An error when nobody in the own rack owns anything.
fn unowned(view: &View) -> Option<Failure> {
    let nobody = scan::owners(&view.topology).next().is_none();
    nobody.then(|| Failure::new(FailureKind::NoQuorum, Cause::NoReplica))
}

impl Ring {
    fn begin(&mut self, view: &Arc<View>, tellers: Tellers, peers: &[PeerIdx]) {
        self.view = Arc::clone(view);
        self.tellers = tellers;
        self.peers = peers.to_vec();
        self.waiting = peers.len() * self.questions.len();
        if let What::Random { picks, .. } = &mut self.what {
            picks.clear();
            picks.resize(peers.len(), (None, 0));
        }
    }

    /// Takes the answer to question number `part`.
    pub(super) fn take(&mut self, part: u16, said: Said<'_>) -> Next {
        self.waiting -= 1;
        match &said {
            Said::Failed(failure) => {
                self.error.get_or_insert(Trouble::Failure(*failure));
            }
            Said::Reply(_) | Said::Large(_) => {
                let reply = said.bytes().unwrap_or_default();
                match is_error(reply) {
                    true => {
                        self.error.get_or_insert_with(|| Trouble::Reply(reply.to_vec()));
                    }
                    false => self.add(part, reply),
                }
            }
        }
        if self.waiting > 0 {
            return Next::Wait;
        }
        match self.error.take() {
            Some(Trouble::Failure(failure)) => Next::Fail(failure),
            Some(Trouble::Reply(reply)) => Next::Reply(reply),
            None => self.finish(),
        }
    }

    fn add(&mut self, part: u16, reply: &[u8]) {
        let from = (&*self.view, self.tellers);
        match &mut self.what {
            What::Keys { found, count } => {
                let peer = self.peers[usize::from(part)];
                for key in elements(reply).filter(|key| shown(from, peer, key)) {
                    found.extend_from_slice(key);
                    *count += 1;
                }
            }
            What::Scan { page, .. } => page.extend_from_slice(reply),
            What::Size(sum) => *sum += parse_int(reply).unwrap_or(0),
            What::Random { picks, .. } => {
                let peer = usize::from(part) / 2;
                let pick = &mut picks[peer];
                if part % 2 == 1 {
                    pick.1 = parse_int(reply).and_then(|n| u64::try_from(n).ok()).unwrap_or(0);
                } else if shown(from, self.peers[peer], reply) {
                    pick.0 = Some(reply.to_vec());
                }
            }
        }
    }

    fn finish(&mut self) -> Next {
        let mut out = Vec::new();
        match &mut self.what {
            What::Keys { found, count } => {
                encode::array(&mut out, *count);
                out.append(found);
            }
            What::Size(sum) => encode::int(&mut out, *sum),
            What::Scan { node, after, page } => {
                let from = (&*self.view, self.tellers);
                return scanned(from, self.peers[0], (*node, *after), page);
            }
            What::Random { picks, seed, rounds } => match draw(picks, *seed) {
                Some(key) => out.extend_from_slice(key),
                None if *rounds > 0 && picks.iter().any(|(_, size)| *size > 0) => {
                    *rounds -= 1;
                    *seed = seed.wrapping_add(1);
                    return Next::Again;
                }
                None => encode::null_bulk(&mut out),
            },
        }
        Next::Reply(out)
    }
}

/// One of the keys, each with the weight of its owner.
fn draw(picks: &[(Option<Vec<u8>>, u64)], seed: u64) -> Option<&[u8]> {
    let keys = || picks.iter().filter_map(|(key, size)| Some((key.as_deref()?, (*size).max(1))));
    let total: u64 = keys().map(|(_, weight)| weight).sum();
    let mut left = seed.checked_rem(total)?;
    for (key, weight) in keys() {
        if left < weight {
            return Some(key);
        }
        left -= weight;
    }
    None
}

/// A datastore's page with the cursor of the ring, without the keys that are not shown.
fn scanned(
    from: (&View, Tellers),
    peer: PeerIdx,
    (node, after): (u32, Option<u32>),
    page: &[u8],
) -> Next {
    let mut parts = elements(page);
    let cursor =
        parts.next().and_then(text).and_then(|t| std::str::from_utf8(t).ok()?.parse().ok());
    let (Some(store), Some(keys)) = (cursor, parts.next()) else {
        let kind = FailureKind::StoreRefused;
        let failure = Failure::new(kind, Cause::BadReply).at(from.0.topology.peer(peer).id);
        return Next::Fail(failure);
    };
    let next = match (store, after) {
        (0, None) => Some(0),
        (0, Some(after)) => Cursor { node: after, store: 0 }.number(),
        (store, _) => Cursor { node, store }.number(),
    };
    let mut out = Vec::new();
    let Some(next) = next else {
        encode::error(&mut out, b"ERR the cursor of a datastore has more than 41 bits");
        return Next::Reply(out);
    };
    encode::array(&mut out, 2);
    encode::bulk(&mut out, itoa::Buffer::new().format(next).as_bytes());
    let shown = || elements(keys).filter(|key| shown(from, peer, key));
    encode::array(&mut out, shown().count());
    shown().for_each(|key| out.extend_from_slice(key));
    Next::Reply(out)
}

/// True for a key, in its framing, that `peer` tells of and that is not reserved.
fn shown((view, tellers): (&View, Tellers), peer: PeerIdx, key: &[u8]) -> bool {
    let Some(key) = text(key) else { return false };
    if RESERVED.iter().any(|prefix| key.starts_with(prefix)) {
        return false;
    }
    let owners = view.topology.owners(&view.hasher.token(key));
    tellers.teller(&view.topology, owners) == Some(peer)
}

#[cfg(test)]
mod tests;
