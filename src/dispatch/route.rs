//! Reads that go where the filters say the key is (`affinity.mode: route`).
//!
//! Only reads at DC_ONE. What the filters do not know, or a datacenter that cannot be asked, means
//! the plan as ever, so a fault here costs a hop and never a wrong value:
//!
//! - the own datacenter seems to hold the key, or nothing is known of it: its owner is asked; if
//!   the key is not there after all, others that seem to hold it are asked;
//! - it does not, another one does: that one's owner is asked; if the key is not there, the filter
//!   was wrong about it and is not believed for a while. The next one that seems to hold it is
//!   asked, in the end the own owner. An owner that fails is replaced by another rack's, once;
//! - nobody does: the own owner answers the miss.
//!
//! A filter whose publisher does not hear of everything yet may be wrong about what it does not
//! name; what it names is sought there once the own owner does not have it.
//!
//! Keys this worker's clients wrote or deleted a moment ago are read as ever: the filters learn of
//! it later. One request in flight serves all that ask the same at the same time.

mod answers;

use std::collections::VecDeque;

use fnv::FnvHashMap;
use xxhash_rust::xxh3::xxh3_64;

use super::plan::{self, Leg, Question, Role};
use super::requests::Request;
use super::send::{Ask, Parcel, rack_bit};
use super::slot::{Owner, Stage};
use super::upstream::Ticket;
use super::view::{Now, Protocol, View};
use super::{Dispatcher, Frame, block};
use crate::affinity::advice::{Advice, LocalReason, advise};
use crate::affinity::domain::{Domain, OWN_LANE};
use crate::affinity::false_positives::FalsePositives;
use crate::ckf::consumer::LANES;
use crate::ckf::hashing::SequenceHash;
use crate::ckf::ringkey::{KeyProtocol, ring_key_hash};
use crate::proto::args::Args;
use crate::proto::command::{KeySpec, Merge};
use crate::proto::resp::reply::is_null;
use crate::proto::resp::spec::CommandSpec;
use crate::ring::Consistency;

/// Reads sent to one other datacenter and not answered yet, of one worker; more wait.
const IN_FLIGHT_MAX: u32 = 256;
/// Longer requests are read as ever, bytes: they are kept until they are answered.
const REQUEST_BYTES_MAX: usize = 4 << 20;
/// The weight of one answer in the mean time of a datacenter's answers is one in so many.
const MEAN_OF: u32 = 8;

/// What one worker remembers for its routed reads.
#[derive(Default)]
pub(super) struct Router {
    wrong: FalsePositives,
    in_flight: [u32; LANES],
    /// Mean time of an answer, microseconds; 0 before the first one.
    mean_us: [u32; LANES],
    /// Requests in flight that others may wait for, by the hash of their bytes.
    flights: FnvHashMap<u64, (u32, u32)>,
    /// Reads that wait for their turn, by lane: slot and generation.
    waiting: [VecDeque<(u32, u32)>; LANES],
    masks: Vec<u16>,
}

/// Who is asked first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Turn {
    /// The own datacenter, as ever.
    Own,
    /// The other one.
    Other,
}

/// What the filters say about one key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Choice {
    pub(super) turn: Turn,
    /// The other datacenter.
    pub(super) lane: u8,
}

/// A routed read in its slot.
#[derive(Debug)]
pub(super) struct Routed {
    /// Another datacenter's answer is awaited, or its turn; else the own one's.
    asks_other: bool,
    /// That other one, or the last one asked.
    lane: u8,
    /// The rack of it that was asked last.
    rack: Option<u16>,
    /// Other datacenters of which another rack was asked too, one bit each.
    again: u16,
    /// Other datacenters asked so far, one bit each.
    tried: u16,
    /// The own datacenter was asked.
    own_asked: bool,
    /// When the other datacenter was asked.
    asked_us: Option<u64>,
    /// The best answer so far.
    kept: Vec<u8>,
    /// It is registered for others that ask the same.
    flight: Option<u64>,
    /// Slots that get the same answer.
    waiters: Vec<(u32, u32)>,
}

impl Router {
    /// Other datacenters, the one that answers soonest first.
    fn cheapest_first(&self, lanes: u8) -> impl Iterator<Item = u8> + Clone + use<> {
        let mut order = [0u8; LANES];
        (0u8..).zip(order.iter_mut()).for_each(|(lane, place)| *place = lane);
        let cost = |lane: &u8| {
            let lane = usize::from(*lane);
            u64::from(self.mean_us[lane]) * u64::from(self.in_flight[lane] + 8)
        };
        let known = usize::from(lanes).min(LANES);
        order[..known].sort_by_key(cost);
        order.into_iter().take(known).filter(|lane| *lane != OWN_LANE)
    }

    fn answered(&mut self, lane: u8, asked_us: u64, failed: bool, now: Now) {
        let lane = usize::from(lane);
        self.in_flight[lane] = self.in_flight[lane].saturating_sub(1);
        if !failed {
            let took =
                now.mono_us.saturating_sub(asked_us).clamp(1, u64::from(u32::MAX / 2)) as u32;
            let mean = &mut self.mean_us[lane];
            *mean = match *mean {
                0 => took,
                mean => mean - mean / MEAN_OF + took / MEAN_OF,
            };
        }
    }
}

/// True when reads of `view` are routed at all.
pub(super) fn is_on(view: &View) -> bool {
    view.settings.route_reads && view.affinity.is_some()
}

/// True for commands whose reads are routed.
pub(super) fn is_routed(spec: &CommandSpec) -> bool {
    let one_key = spec.keys == KeySpec::First && !spec.patterns;
    one_key || spec.merge == Merge::Mget
}

/// True when a read of `key` is at DC_ONE.
fn is_at_one(view: &View, key: &[u8], level: Consistency) -> bool {
    let token = view.hasher.token(key);
    view.terms(key, &token, false, level).level == Consistency::DcOne
}

pub(super) fn hash(key: &[u8]) -> SequenceHash {
    ring_key_hash(KeyProtocol::Resp, key)
}

/// True when `reply` to command `name` says that the key does not exist.
fn proves_absence(name: &str, reply: &[u8]) -> bool {
    match name {
        "get" | "dump" => is_null(reply),
        "type" => reply == b"+none\r\n",
        "ttl" | "pttl" | "expiretime" | "pexpiretime" => reply == b":-2\r\n",
        "hlen" | "llen" | "scard" | "zcard" => reply == b":0\r\n",
        "hgetall" | "hkeys" | "hvals" | "smembers" => reply == b"*0\r\n",
        _ => false,
    }
}

/// True for commands whose reply can say that the key does not exist.
fn can_prove_absence(spec: &CommandSpec) -> bool {
    let replies: [&[u8]; 5] = [b"$-1\r\n", b"+none\r\n", b":-2\r\n", b":0\r\n", b"*0\r\n"];
    spec.merge == Merge::Mget || replies.iter().any(|reply| proves_absence(spec.name, reply))
}

impl Dispatcher {
    /// Keys were written through this worker: they are read as ever for a while.
    pub(super) fn note_written(&mut self, view: &View, request: &Request<'_>, now: Now) {
        let Some(affinity) = view.affinity.as_ref().filter(|_| is_on(view)) else { return };
        let lanes = affinity.keys().lanes().all();
        for key in request.keys.keys(&request.args).filter_map(|i| request.args.get(i)) {
            self.router.wrong.remember_all(hash(key), lanes, now.mono_ms());
        }
    }

    /// Sends a read by what the filters say; false when it goes as ever.
    pub(super) fn ask_routed(&mut self, view: &View, ask: &Ask<'_>, now: Now) -> bool {
        let (Some(affinity), Some(key), Some(spec)) = (&view.affinity, ask.key, ask.spec) else {
            return false;
        };
        if !self.may_route(view, ask, key, spec) {
            return false;
        }
        let mut choices = Vec::new();
        self.choose(affinity.keys(), std::iter::once(hash(key)), &mut choices, now);
        choices[0].is_some_and(|choice| self.route(view, ask, choice, now))
    }

    fn may_route(&self, view: &View, ask: &Ask<'_>, key: &[u8], spec: &CommandSpec) -> bool {
        is_on(view)
            && view.settings.protocol == Protocol::Redis
            && !ask.local_only
            && ask.tried == 0
            && is_routed(spec)
            && !block::is_block(&ask.args)
            && is_at_one(view, key, ask.level)
    }

    /// What the filters say about the keys of a command that is split; empty when it is not
    /// routed.
    pub(super) fn choices(
        &mut self,
        view: &View,
        request: &Request<'_>,
        keys: impl Iterator<Item = usize> + Clone,
        now: Now,
    ) -> Vec<Option<Choice>> {
        let mut choices = Vec::new();
        let affinity = view.affinity.as_ref().filter(|_| is_on(view));
        let redis = view.settings.protocol == Protocol::Redis;
        if let Some(affinity) = affinity.filter(|_| redis && request.merge == Merge::Mget) {
            let hashes = keys.clone().map(|i| hash(&request.args[i]));
            self.choose(affinity.keys(), hashes, &mut choices, now);
            for (choice, i) in choices.iter_mut().zip(keys) {
                *choice = choice.filter(|_| is_at_one(view, &request.args[i], request.level));
            }
        }
        choices
    }

    /// One probe for all keys.
    fn choose(
        &mut self,
        domain: &Domain,
        hashes: impl Iterator<Item = SequenceHash>,
        choices: &mut Vec<Option<Choice>>,
        now: Now,
    ) {
        let hashes: Vec<SequenceHash> = hashes.collect();
        let now_ms = now.mono_ms();
        let (masks, believed) = self.probe_filters(domain, &hashes, now_ms);
        let lanes = domain.lanes();
        let hinting = lanes.hinting(u16::MAX, now_ms);
        let cheapest = self.router.cheapest_first(lanes.iter().len() as u8);
        for (hash, mask) in hashes.iter().zip(&masks) {
            let wrong = self.router.wrong.lanes(*hash, now_ms);
            let advice = advise(lanes, *mask, believed, wrong, cheapest.clone(), now_ms);
            let own_first = || {
                let holders = mask & hinting & !wrong;
                let lane = cheapest.clone().find(|lane| holders & (1 << lane) != 0)?;
                Some(Choice { turn: Turn::Own, lane })
            };
            choices.push(match advice {
                Advice::Remote { lane } => Some(Choice { turn: Turn::Other, lane }),
                Advice::Local(LocalReason::Held) => own_first(),
                Advice::Local(LocalReason::NobodyHolds) => {
                    self.counters.affinity_nobody += 1;
                    None
                }
                Advice::Local(LocalReason::NotKnown) => {
                    self.counters.affinity_unknown += 1;
                    own_first()
                }
                Advice::Local(LocalReason::FalsePositive) => None,
            });
        }
        self.router.masks = masks;
    }

    /// The lanes that seem to hold each key, to be given back to the router; and who is ready.
    fn probe_filters(
        &mut self,
        domain: &Domain,
        keys: &[SequenceHash],
        now_ms: u64,
    ) -> (Vec<u16>, u16) {
        self.counters.affinity_probes += 1;
        let mut masks = std::mem::take(&mut self.router.masks);
        masks.clear();
        masks.resize(keys.len(), 0);
        let believed = domain.probe(keys, &mut masks, now_ms);
        (masks, believed)
    }

    /// Sends a read as chosen; false when it has to go as ever.
    pub(super) fn route(
        &mut self,
        view: &View,
        ask: &Ask<'_>,
        mut choice: Choice,
        now: Now,
    ) -> bool {
        let (Some(key), Some(spec)) = (ask.key, ask.spec) else { return false };
        if ask.frame.as_slice().len() > REQUEST_BYTES_MAX {
            return false;
        }
        if choice.turn == Turn::Own {
            match self.own_leg(view, ask, key, spec, now) {
                OwnLeg::AsEver => return false,
                OwnLeg::Absent => choice.turn = Turn::Other,
                OwnLeg::Ask(leg) => {
                    let slot = self.begin_routed(view, ask, choice, rack_bit(leg.rack), now);
                    self.send_read(ask.frame, ask.args, &leg, slot, now);
                    return true;
                }
            }
        }
        let leg = match self.other_leg(view, choice.lane, key, 0) {
            Some(leg) => leg,
            // It cannot be asked, but another one may hold the key too.
            None => match self.next_lane(view, &[hash(key)], key, 1 << choice.lane, now) {
                Some((lane, leg)) => {
                    choice.lane = lane;
                    leg
                }
                None => return false,
            },
        };
        let bytes = ask.frame.as_slice();
        let flight = xxh3_64(bytes);
        if self.join_flight(flight, ask, now) {
            return true;
        }
        let slot = self.begin_routed(view, ask, choice, 0, now);
        if let Some(routed) = self.slots[slot.0 as usize].routed.as_mut() {
            routed.flight = Some(flight);
            self.router.flights.insert(flight, slot);
        }
        if self.has_room(choice.lane, slot) {
            self.send_other(ask.frame, ask.args, &leg, choice.lane, slot, now);
        }
        true
    }

    fn begin_routed(
        &mut self,
        view: &View,
        ask: &Ask<'_>,
        choice: Choice,
        tried: u64,
        now: Now,
    ) -> (u32, u32) {
        let mut request = self.spare();
        request.extend_from_slice(ask.frame.as_slice());
        let (key, generation) = self.new_slot(ask.owner, Stage::Single, ask.envelope, now);
        let local_racks = view.topology.local_racks().len();
        let slot = &mut self.slots[key as usize];
        slot.request = request;
        slot.tried = tried;
        slot.moves = view.settings.read_fallback && local_racks > 1;
        let asks_other = choice.turn == Turn::Other;
        slot.routed = Some(Box::new(Routed {
            asks_other,
            lane: choice.lane,
            rack: None,
            again: 0,
            tried: u16::from(asks_other) << choice.lane,
            own_asked: !asks_other,
            asked_us: None,
            kept: Vec::new(),
            flight: None,
            waiters: Vec::new(),
        }));
        (key, generation)
    }

    /// Waits for the answer of a request with the same bytes, if one is in flight.
    fn join_flight(&mut self, flight: u64, ask: &Ask<'_>, now: Now) -> bool {
        let Some((key, generation)) = self.router.flights.get(&flight).copied() else {
            return false;
        };
        let same = self.slots.get(key as usize).is_some_and(|slot| {
            slot.generation == generation && slot.request == ask.frame.as_slice()
        });
        if !same {
            return false;
        }
        let waiter = self.new_slot(ask.owner, Stage::Single, ask.envelope, now);
        if let Some(routed) = self.slots[key as usize].routed.as_mut() {
            routed.waiters.push(waiter);
        }
        self.counters.affinity_shared += 1;
        true
    }

    /// The leg to the own datacenter, when the answer may have to be sought elsewhere.
    fn own_leg(
        &mut self,
        view: &View,
        ask: &Ask<'_>,
        key: &[u8],
        spec: &CommandSpec,
        now: Now,
    ) -> OwnLeg {
        if !can_prove_absence(spec) {
            return OwnLeg::AsEver;
        }
        let mut plan = std::mem::take(&mut self.plan);
        let planned = self.make_plan(view, ask, &mut plan);
        let leg = plan.legs.first().copied();
        self.plan = plan;
        let Some(leg) = leg.filter(|_| planned.is_ok()) else { return OwnLeg::AsEver };
        match &self.embedded {
            // The node's own store is asked at no cost, and knows for sure.
            Some(store) if leg.peer == view.topology.local() && spec.merge != Merge::Mget => {
                match store.holds(key, now.wall_ms()) {
                    true => OwnLeg::AsEver,
                    false => OwnLeg::Absent,
                }
            }
            Some(_) | None => OwnLeg::Ask(leg),
        }
    }

    /// Of the other datacenters that seem to hold one of the keys and are not among `tried`, the
    /// one to ask next, and the owner of `name` in it.
    fn next_lane(
        &mut self,
        view: &View,
        hashes: &[SequenceHash],
        name: &[u8],
        tried: u16,
        now: Now,
    ) -> Option<(u8, Leg)> {
        let domain = view.affinity.as_ref()?.keys();
        let (masks, _) = self.probe_filters(domain, hashes, now.mono_ms());
        let hinting = domain.lanes().hinting(u16::MAX, now.mono_ms());
        let wrong = |hash: &SequenceHash| self.router.wrong.lanes(*hash, now.mono_ms());
        let seem = hashes.iter().zip(&masks).fold(0, |all, (hash, mask)| all | mask & !wrong(hash));
        self.router.masks = masks;
        let holders = seem & hinting & !tried & !(1 << OWN_LANE);
        let lanes = domain.lanes().iter().len() as u8;
        let mut open = self.router.cheapest_first(lanes).filter(|lane| holders & 1 << lane != 0);
        open.find_map(|lane| Some((lane, self.other_leg(view, lane, name, 0)?)))
    }

    /// The owner of a key in another datacenter, in a rack that is not among `tried`.
    pub(super) fn other_leg(&self, view: &View, lane: u8, key: &[u8], tried: u64) -> Option<Leg> {
        let dc = &view.affinity.as_ref()?.keys().lanes().get(lane)?.dc;
        let remote = view.topology.remote_dcs().iter().find(|remote| remote.name == *dc)?;
        let token = view.hasher.token(key);
        let question = Question {
            topology: &view.topology,
            owners: view.topology.owners(&token),
            op: plan::Op::Read,
            level: Consistency::DcOne,
            cap: view.terms(key, &token, false, Consistency::DcOne).cap,
            read_fallback: true,
            tried,
            local_only: false,
            stays: false,
        };
        let (rack, peer) = plan::reader_in(&question, remote, self.links.standings())?;
        let leg = Leg { peer, rack: rack as u16, hop: plan::Hop::Peer, role: Role::Answer };
        self.is_torc(view, peer).then_some(leg)
    }

    /// True when another read may be sent to a datacenter; else this one waits for its turn.
    fn has_room(&mut self, lane: u8, slot: (u32, u32)) -> bool {
        let lane = usize::from(lane);
        let room = self.router.in_flight[lane] < IN_FLIGHT_MAX;
        if !room {
            self.counters.affinity_capped += 1;
            self.router.waiting[lane].push_back(slot);
        }
        room
    }

    fn send_other(
        &mut self,
        frame: &Frame<'_>,
        args: Args<'_>,
        leg: &Leg,
        lane: u8,
        (key, generation): (u32, u32),
        now: Now,
    ) {
        self.counters.affinity_remote += 1;
        self.router.in_flight[usize::from(lane)] += 1;
        if let Some(routed) = self.slots[key as usize].routed.as_mut() {
            (routed.asked_us, routed.rack) = (Some(now.mono_us), Some(leg.rack));
        }
        let ticket = Ticket::of(key, generation);
        let parcel = Parcel { frame, args, stamp: None };
        self.send_ticket(parcel, leg, ticket, Owner::Nobody, now);
    }
}

/// What to do about the own datacenter first.
enum OwnLeg {
    /// The plan as ever is all that is needed, or all there is.
    AsEver,
    /// The node's own store has to answer and does not hold the key.
    Absent,
    /// It is asked here.
    Ask(Leg),
}

#[cfg(test)]
pub(super) mod tests;
