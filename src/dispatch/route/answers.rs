//! What comes back for routed reads: the answer, or the reason to ask the second of the two.

use std::sync::Arc;

use super::{Choice, IN_FLIGHT_MAX, Routed, Turn, hash, proves_absence};
use crate::ckf::hashing::SequenceHash;
use crate::dispatch::failure::{Cause, Failure, FailureKind, from_reply};
use crate::dispatch::gather::Said;
use crate::dispatch::send::rack_bit;
use crate::dispatch::slot::Slot;
use crate::dispatch::upstream::Ticket;
use crate::dispatch::view::Now;
use crate::dispatch::{Dispatcher, Frame};
use crate::proto::args::{Args, Span};
use crate::proto::command::Merge;
use crate::proto::resp::decode::RequestDecoder;
use crate::proto::resp::reply::{elements, is_null};
use crate::proto::resp::spec::CommandSpec;
use crate::proto::resp::{encode, table};

/// True when `reply` may be what an absent key is answered with.
fn is_empty(reply: &[u8]) -> bool {
    let empty: [&[u8]; 5] = [b":0\r\n", b":-2\r\n", b"*0\r\n", b"$0\r\n\r\n", b"+none\r\n"];
    is_null(reply) || empty.contains(&reply)
}

/// For each element the first reply's, or the second's where that is nil.
fn merged(first: &[u8], second: &[u8]) -> Vec<u8> {
    let (first, mut second) = (elements(first), elements(second));
    let mut out = Vec::new();
    encode::array(&mut out, first.left());
    for element in first {
        let other = second.next();
        let nil = is_null(element);
        out.extend_from_slice(other.filter(|_| nil).unwrap_or(element));
    }
    out
}

/// Hashes of the keys a reply proves to be absent.
fn absent(spec: &CommandSpec, args: &Args<'_>, reply: &[u8]) -> Vec<SequenceHash> {
    if spec.merge == Merge::Mget && reply.starts_with(b"*") {
        let nil = elements(reply).map(is_null);
        return (1..args.len())
            .zip(nil)
            .filter(|(_, nil)| *nil)
            .map(|(i, _)| hash(&args[i]))
            .collect();
    }
    let key = || spec.first_key(args).and_then(|i| args.get(i)).map(hash);
    key().into_iter().filter(|_| proves_absence(spec.name, reply)).collect()
}

impl Dispatcher {
    /// An answer for a routed read. True when it was dealt with here: somebody else was asked, or
    /// the read was answered.
    pub(in crate::dispatch) fn answer_routed(
        &mut self,
        key: u32,
        said: &Said<'_>,
        now: Now,
    ) -> bool {
        let Some(mut routed) = self.slots[key as usize].routed.take() else { return false };
        let reply = said.bytes().unwrap_or_default();
        let failed = said.bytes().is_none() || from_reply(reply).is_some();
        let lane = routed.choice.lane;
        let of_other = routed.asked_us.take().inspect(|asked_us| {
            self.router.answered(lane, *asked_us, failed, now);
        });
        if of_other.is_some() {
            self.send_waiting(lane, now);
        }
        let request = self.slots[key as usize].request.clone();
        let Some((spec, spans)) = self.read_again(&request) else {
            self.slots[key as usize].routed = Some(routed);
            return false;
        };
        let args = Args::new(&request, &spans);
        let absent = absent(spec, &args, reply);
        if let Some(asked_us) = of_other.filter(|_| !failed) {
            if spec.name == "get" && absent.is_empty() {
                self.begin_backfill(lane, &args[1], reply, asked_us, now);
            }
            self.count_other(lane, &absent, spec.merge == Merge::Mget, args.len(), now);
        }
        if routed.second {
            return self.close_routed(key, routed, spec, (reply, failed), now);
        }
        let ask_second = match routed.choice.turn {
            Turn::Other => failed || is_empty(reply) || !absent.is_empty(),
            Turn::Own => !failed && !absent.is_empty(),
        };
        if ask_second {
            routed.second = true;
            if !failed {
                routed.kept = reply.to_vec();
            }
        }
        let choice = routed.choice;
        self.slots[key as usize].routed = Some(routed);
        ask_second && self.ask_second(key, choice, spec, &request, args, now)
    }

    /// The other datacenter answered: what was not there is remembered.
    fn count_other(
        &mut self,
        lane: u8,
        absent: &[SequenceHash],
        many: bool,
        args: usize,
        now: Now,
    ) {
        let asked = if many { args - 1 } else { 1 };
        self.counters.affinity_hits += (asked - absent.len().min(asked)) as u64;
        self.counters.affinity_false_positives += absent.len() as u64;
        for hash in absent {
            self.router.wrong.remember(*hash, lane, now.mono_ms());
        }
    }

    fn read_again(&self, request: &[u8]) -> Option<(&'static CommandSpec, Vec<Span>)> {
        let mut spans = Vec::new();
        let settings = &self.view.settings;
        RequestDecoder::default().decode(request, &settings.request, &mut spans).ok()??;
        let spec = table::find(&Args::new(request, &spans), &settings.modules).ok()?;
        Some((spec, spans))
    }

    /// Asks the second of the two; false when it cannot be asked: the answer stands.
    fn ask_second(
        &mut self,
        key: u32,
        choice: Choice,
        spec: &'static CommandSpec,
        request: &[u8],
        args: Args<'_>,
        now: Now,
    ) -> bool {
        let view = Arc::clone(&self.view);
        let Some(name) = spec.first_key(&args).and_then(|i| args.get(i)) else { return false };
        let generation = self.slots[key as usize].generation;
        let frame = Frame::Small(request);
        match choice.turn {
            Turn::Own => {
                let leg = self.other_leg(&view, choice.lane, name);
                let Some(leg) = leg else { return false };
                self.counters.affinity_second_tries += 1;
                if !self.has_room(choice.lane, (key, generation)) {
                    return true;
                }
                self.send_other(&frame, args, &leg, choice.lane, (key, generation), now);
            }
            Turn::Other => {
                let Some(leg) = self.read_leg(&view, spec, &args, 0) else { return false };
                if !self.is_torc(&view, leg.peer) {
                    return false;
                }
                self.slots[key as usize].tried |= rack_bit(leg.rack);
                self.send_read(&frame, args, &leg, (key, generation), now);
            }
        }
        true
    }

    /// Both have answered; false when what came last is the answer.
    fn close_routed(
        &mut self,
        key: u32,
        mut routed: Box<Routed>,
        spec: &CommandSpec,
        (reply, failed): (&[u8], bool),
        now: Now,
    ) -> bool {
        let turn = routed.choice.turn;
        let many = spec.merge == Merge::Mget && reply.starts_with(b"*");
        let answer = match (turn, failed) {
            _ if routed.kept.is_empty() => None,
            (Turn::Own, true) => Some(std::mem::take(&mut routed.kept)),
            // The own datacenter may still have another rack to ask.
            (Turn::Other, true) => None,
            (Turn::Own, false) if many => Some(merged(&routed.kept, reply)),
            // What the own datacenter holds is newer.
            (Turn::Other, false) if many => Some(merged(reply, &routed.kept)),
            (Turn::Own | Turn::Other, false) => None,
        };
        self.slots[key as usize].routed = Some(routed);
        match answer {
            Some(answer) => {
                self.complete(key, Said::Reply(&answer), now);
                true
            }
            None => false,
        }
    }

    /// Sends reads that waited for their turn.
    fn send_waiting(&mut self, lane: u8, now: Now) {
        let at = usize::from(lane);
        while self.router.in_flight[at] < IN_FLIGHT_MAX {
            let Some((key, generation)) = self.router.waiting[at].pop_front() else { return };
            let waits = |slot: &&Slot| slot.generation == generation && slot.routed.is_some();
            let Some(slot) = self.slots.get(key as usize).filter(waits) else { continue };
            let request = slot.request.clone();
            let view = Arc::clone(&self.view);
            let Some((spec, spans)) = self.read_again(&request) else { continue };
            let args = Args::new(&request, &spans);
            let name = spec.first_key(&args).and_then(|i| args.get(i));
            match name.and_then(|name| self.other_leg(&view, lane, name)) {
                Some(leg) => {
                    let frame = Frame::Small(&request);
                    self.send_other(&frame, args, &leg, lane, (key, generation), now);
                }
                None => {
                    let kind = FailureKind::PeerNotConnected;
                    let failure = Failure::new(kind, Cause::NotConnected);
                    self.answer(Ticket::of(key, generation), Said::Failed(failure), now);
                }
            }
        }
    }

    /// The slot is answered: those who wait for the same get the same.
    pub(in crate::dispatch) fn end_routed(&mut self, key: u32, said: &Said<'_>, now: Now) {
        let slot = &mut self.slots[key as usize];
        let generation = slot.generation;
        let Some(routed) = slot.routed.take() else { return };
        if let Some(asked_us) = routed.asked_us {
            self.router.answered(routed.choice.lane, asked_us, true, now);
            self.send_waiting(routed.choice.lane, now);
        }
        if let Some(flight) = routed.flight
            && self.router.flights.get(&flight) == Some(&(key, generation))
        {
            self.router.flights.remove(&flight);
        }
        for (waiter, generation) in routed.waiters {
            let waits = self.slots.get(waiter as usize).is_some_and(|s| s.generation == generation);
            if waits {
                self.complete(waiter, said.again(), now);
            }
        }
    }
}
