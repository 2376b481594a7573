//! Rounds and messages between torc nodes.
//!
//! Every message has a bounded size whatever the size of the ring: a sample of digests (all of
//! them in a small ring), a few fresh records, and what the other side asked for. Fresh records
//! are passed on by everybody a few times and so reach all nodes in O(log N) rounds; digests
//! repair what that misses and carry the signs of life.

use std::collections::BTreeSet;

use prost::Message as _;

use super::event::{EventKind, Source, Transmit};
use super::identity::{Addr, SlotId};
use super::member::Reach;
use super::membership::Membership;
use super::message::{Digest, Gossip, Heartbeat, RecordMsg, Step};
use super::time::Millis;
use crate::proto::dnode::MsgType;
use crate::proto::dnode::control::SealError;

/// Random peers that are asked in a round, besides one seed and one peer that is down.
pub const FANOUT: usize = 3;

/// Parts of a round: one for each random peer, and one for the seed.
const PARTS: usize = FANOUT + 1;

/// Most digests of a message: the cost of a round does not grow beyond this many nodes.
pub const DIGESTS_MAX: usize = 64;

/// Most fresh records of a message.
const RUMORS_MAX: usize = 16;

/// Bytes of records in a message, beyond which no further one is begun.
const RECORD_BYTES_MAX: usize = 48 * 1024;

/// Peers that are told at once when this node stops.
const FAREWELL_FANOUT: usize = 8;

/// Least time between two reports of refused messages.
const REFUSAL_REPORT_MS: u64 = 10_000;

/// Whom to send to: the slot, when it is known, and the address.
pub(super) type Target = (Option<SlotId>, Addr);

/// An answer that is being made up.
struct Answer {
    message: Gossip,
    record_bytes: usize,
}

impl Membership {
    /// A control message of type `TorcGossip` arrived; `from` is shown when it is refused.
    pub fn handle_message(&mut self, from: &Addr, payload: &[u8], now: Millis) {
        if !self.settings.gossip || self.duplicate.is_some() {
            return;
        }
        let opened = self.settings.seal.open(MsgType::TorcGossip, payload);
        let message = match opened {
            Ok(bytes) => Gossip::read(&bytes),
            Err(error) => return self.refuse(from, &error, now),
        };
        let Some(message) = message else {
            self.counters.malformed += 1;
            return;
        };
        self.counters.received += 1;
        self.counters.received_bytes += payload.len() as u64;
        self.answer(message, now);
    }

    fn refuse(&mut self, from: &Addr, error: &SealError, now: Millis) {
        self.counters.refused += 1;
        let recent = |at: Millis| now.since(at) < REFUSAL_REPORT_MS;
        if self.refusal_reported.is_some_and(recent) {
            return;
        }
        self.refusal_reported = Some(now);
        let (from, why) = (from.to_string(), error.to_string());
        self.event_of(self.local, EventKind::Refused { from, why }, now);
    }

    fn answer(&mut self, message: Gossip, now: Millis) {
        let Some(sender) = message.sender() else {
            return;
        };
        let step = message.step();
        let from = Some(SlotId(message.from));
        self.told_of = self.told_of.max(message.count as usize);
        let complete = message.digests.len() == message.count as usize;
        let listed = message.digests.iter().map(|d| d.slot).collect();
        self.take_records(message.rumors, true, now);
        self.take_records(message.records, false, now);
        if self.duplicate.is_some() {
            return;
        }
        let mut answer = Answer {
            message: self.message(match step {
                Step::Syn => Step::Ack,
                Step::Ack | Step::Push | Step::Unknown => Step::Push,
            }),
            record_bytes: 0,
        };
        for digest in message.digests {
            self.compare(digest, &mut answer, now);
        }
        for slot in message.wants {
            self.give(SlotId(slot), &mut answer, now);
        }
        if step == Step::Syn {
            if complete {
                self.give_missing(&listed, &mut answer, now);
            }
            self.add_digests(&mut answer.message, now);
            self.add_rumors(&mut answer.message, now);
        }
        let answer = answer.message;
        let useful = !answer.records.is_empty() || !answer.wants.is_empty();
        if step == Step::Syn || (useful && step != Step::Unknown) {
            self.send((from, sender), answer);
        }
    }

    fn take_records(&mut self, records: Vec<RecordMsg>, rumor: bool, now: Millis) {
        for record in records {
            let Some((record, beat)) = record.read() else {
                self.counters.malformed += 1;
                continue;
            };
            let slot = record.slot.id();
            if self.merge(record, beat, Source::Gossip, now) && rumor {
                self.start_rumor(slot);
            }
        }
    }

    /// Asks for what is newer there, gives what is newer here, takes the sign of life.
    fn compare(&mut self, digest: Digest, answer: &mut Answer, now: Millis) {
        let slot = SlotId(digest.slot);
        let theirs = (digest.generation, digest.version);
        let ours = self.table.record(slot).map(|r| (r.generation, r.version));
        if ours.is_none_or(|ours| theirs > ours) {
            answer.message.wants.push(slot.0);
        } else if ours.is_some_and(|ours| theirs < ours) {
            self.give(slot, answer, now);
        }
        let beat = Heartbeat::from_wire(digest.heartbeat, digest.age);
        if let Some(member) = self.table.member_mut(slot)
            && !member.local
            && member.record.generation == digest.generation
            && member.beat(beat, now)
        {
            self.judge(slot, now);
        }
    }

    /// Adds a record to an answer that has room; false when it is full.
    fn give(&mut self, slot: SlotId, answer: &mut Answer, now: Millis) -> bool {
        if answer.record_bytes >= RECORD_BYTES_MAX {
            return false;
        }
        if let Some(record) = self.record_msg(slot, now) {
            answer.record_bytes += record.encoded_len();
            answer.message.records.push(record);
        }
        true
    }

    /// Gives what a node does not know that has shown all it knows.
    fn give_missing(&mut self, listed: &BTreeSet<u64>, answer: &mut Answer, now: Millis) {
        let missing = self.table.shared().filter(|slot| !listed.contains(&slot.0));
        let mut missing: Vec<SlotId> = missing.collect();
        // When they do not all fit, another one who is asked gives others.
        self.rng.shuffle(&mut missing);
        for slot in missing {
            if !self.give(slot, answer, now) {
                break;
            }
        }
    }

    /// When the next part of a round is due.
    pub(super) fn round_at(&self) -> Millis {
        if self.settings.gossip && self.duplicate.is_none() {
            self.next_round
        } else {
            Millis::NEVER
        }
    }

    /// One part of a round: asks the next of its targets. A round is spread over its interval, so
    /// that signs of life come evenly and no burst of work builds up.
    pub(super) fn round(&mut self, now: Millis) {
        if self.targets.is_empty() {
            self.counters.rounds += 1;
            self.draw_targets();
        }
        let part = (self.settings.gossip_interval_ms / PARTS as u64).max(1);
        // A fifth of jitter keeps nodes that started together from speaking together.
        let jitter = self.rng.u64(0..=part * 2 / 5);
        self.next_round = now.plus((part - part / 5 + jitter).max(1));
        for to in self.targets.pop().unwrap_or_default() {
            let mut syn = self.message(Step::Syn);
            self.add_digests(&mut syn, now);
            self.add_rumors(&mut syn, now);
            self.send(to, syn);
        }
    }

    /// Whom a round asks, part by part: a few random peers, then one seed and one peer that is
    /// down, which may be back. Where there are fewer peers they are asked again.
    fn draw_targets(&mut self) {
        let (mut live, mut down) = (Vec::new(), Vec::new());
        let mut seeds: Vec<Target> = self.contacts.iter().map(|a| (None, a.clone())).collect();
        for (slot, member) in self.table.entries().filter(|(_, m)| m.may_gossip()) {
            let target = (Some(slot), member.record.addr.clone());
            if member.seed {
                seeds.push(target.clone());
            }
            match member.reach {
                Reach::Up | Reach::Unreached => live.push(target),
                Reach::Down(_) => down.push(target),
            }
        }
        let mut random = self.rng.choose_multiple(live, FANOUT);
        self.rng.shuffle(&mut random);
        let again = random.clone().into_iter().cycle();
        let mut parts: Vec<Vec<Target>> = again.take(PARTS).map(|target| vec![target]).collect();
        parts.resize(PARTS, Vec::new());
        if let Some(seed) = self.rng.choice(seeds) {
            parts[PARTS - 1] = vec![seed];
        }
        if let Some(target) = self.rng.choice(down)
            && !parts[PARTS - 1].contains(&target)
        {
            parts[PARTS - 1].push(target);
        }
        // The seed first: a node that starts knows nobody else.
        self.targets = parts;
    }

    /// Tells some peers at once what this node has to say about itself.
    pub(super) fn farewell(&mut self, now: Millis) {
        self.start_rumor(self.local);
        let live = self
            .table
            .entries()
            .filter(|(_, m)| m.may_gossip() && m.reach == Reach::Up)
            .map(|(slot, m)| (Some(slot), m.record.addr.clone()))
            .collect::<Vec<Target>>();
        for to in self.rng.choose_multiple(live, FAREWELL_FANOUT) {
            let mut push = self.message(Step::Push);
            push.rumors.extend(self.record_msg(self.local, now));
            self.send(to, push);
        }
    }

    fn message(&self, step: Step) -> Gossip {
        let addr = &self.local().record.addr;
        Gossip {
            step: step.into(),
            host: addr.host.clone(),
            port: addr.port.into(),
            from: self.local.0,
            ..Gossip::default()
        }
    }

    /// Our own digest and a sample of the others.
    fn add_digests(&mut self, message: &mut Gossip, now: Millis) {
        let local = self.local;
        let (sample, count) = self.table.sample(DIGESTS_MAX - 1, &mut self.rng);
        message.count = count as u32;
        let others = sample.into_iter().filter(|slot| *slot != local);
        for slot in std::iter::once(local).chain(others) {
            let beat = self.heartbeat(slot, now);
            if let Some(record) = self.table.record(slot) {
                message.digests.push(Digest::new(slot, record, beat));
            }
        }
    }

    /// The freshest rumors, each one told once more.
    fn add_rumors(&mut self, message: &mut Gossip, now: Millis) {
        let mut fresh: Vec<(u32, SlotId)> = self.rumors.iter().map(|(s, n)| (*n, *s)).collect();
        fresh.sort_unstable_by(|a, b| b.cmp(a));
        for (left, slot) in fresh.into_iter().take(RUMORS_MAX) {
            message.rumors.extend(self.record_msg(slot, now));
            if left > 1 {
                self.rumors.insert(slot, left - 1);
            } else {
                self.rumors.remove(&slot);
            }
        }
    }

    fn record_msg(&self, slot: SlotId, now: Millis) -> Option<RecordMsg> {
        let record = self.table.record(slot).filter(|r| r.is_shared())?;
        Some(RecordMsg::new(record, self.heartbeat(slot, now)))
    }

    fn heartbeat(&self, slot: SlotId, now: Millis) -> Heartbeat {
        match self.table.member(slot) {
            Some(member) if member.local => {
                Heartbeat { beat: now.since(self.started) + 1, age_ms: Some(0) }
            }
            Some(member) => member.heartbeat(now),
            None => Heartbeat { beat: 0, age_ms: None },
        }
    }

    fn send(&mut self, (slot, to): Target, message: Gossip) {
        let bytes = message.encode_to_vec();
        let payload = self.settings.seal.seal(MsgType::TorcGossip, bytes);
        self.counters.sent += 1;
        self.counters.sent_bytes += payload.len() as u64;
        let own_dc = &self.local().record.slot.dc;
        let member = slot.and_then(|slot| self.table.member(slot));
        let member = member.filter(|m| m.record.addr == to);
        let same_dc = member.is_some_and(|m| m.record.slot.dc == *own_dc);
        let peer = member.map(|m| m.id);
        self.transmit(Transmit { to, peer, kind: MsgType::TorcGossip, same_dc, payload });
    }
}
