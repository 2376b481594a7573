//! What comes back for routed reads: the answer, or the reason to ask somebody else.

use std::sync::Arc;

use super::{IN_FLIGHT_MAX, Routed, hash, proves_absence};
use crate::ckf::hashing::SequenceHash;
use crate::dispatch::failure::{Cause, Failure, FailureKind, from_reply};
use crate::dispatch::gather::Said;
use crate::dispatch::plan::Leg;
use crate::dispatch::send::rack_bit;
use crate::dispatch::slot::Slot;
use crate::dispatch::upstream::Ticket;
use crate::dispatch::view::{Now, View};
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

/// Hashes of the keys a command reads.
fn keys_of(spec: &CommandSpec, args: &Args<'_>) -> Vec<SequenceHash> {
    spec.keys_of(args).filter_map(|i| args.get(i)).map(hash).collect()
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

impl Routed {
    /// The rack of the datacenter that is asked which failed already, one bit.
    fn failed_racks(&self) -> u64 {
        let again = self.again & 1 << self.lane != 0;
        self.rack.filter(|_| again).map_or(0, rack_bit)
    }

    /// A reply about several keys and what was known of them. What the own datacenter holds is
    /// newer than what others do.
    fn merged(&self, reply: &[u8]) -> Vec<u8> {
        match self.asks_other {
            true => merged(&self.kept, reply),
            false => merged(reply, &self.kept),
        }
    }
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
        let (lane, from_other) = (routed.lane, routed.asks_other);
        let asked_us = routed.asked_us.take().inspect(|asked_us| {
            self.router.answered(lane, *asked_us, failed, now);
        });
        if asked_us.is_some() {
            self.send_waiting(lane, now);
        }
        let request = self.slots[key as usize].request.clone();
        let Some((spec, spans)) = self.read_again(&request) else {
            self.slots[key as usize].routed = Some(routed);
            return false;
        };
        let args = Args::new(&request, &spans);
        let many = spec.merge == Merge::Mget && reply.starts_with(b"*");
        if let Some(asked_us) = asked_us.filter(|_| !failed) {
            self.backfill_reply(lane, spec.name, &args, reply, asked_us, now);
            self.count_other(lane, &absent(spec, &args, reply), many, args.len(), now);
        }
        let merged = (many && !routed.kept.is_empty()).then(|| routed.merged(reply));
        let missing = match failed {
            true => keys_of(spec, &args),
            false => absent(spec, &args, merged.as_deref().unwrap_or(reply)),
        };
        let open = match (from_other, failed) {
            (true, _) => failed || !missing.is_empty() || is_empty(reply),
            // Another rack of the own datacenter may answer in place of the one that failed.
            (false, true) => false,
            (false, false) => !missing.is_empty(),
        };
        match merged {
            Some(merged) => routed.kept = merged,
            None if open && !failed => routed.kept = reply.to_vec(),
            None => {}
        }
        let view = Arc::clone(&self.view);
        let twin = (failed && from_other).then(|| self.twin(&view, &mut routed, spec, &args));
        let next = match (open, twin.flatten()) {
            (true, Some(leg)) => Some((Some(lane), leg)),
            (true, None) => self.next_to_ask(&view, &routed, spec, &args, &missing, now),
            (false, _) => None,
        };
        match next {
            Some(next) => self.ask_next(key, routed, next, (&request[..], args), now),
            None => self.close_routed(key, routed, many, failed, now),
        }
    }

    /// The owner in another rack of the datacenter whose owner failed: one node that dies does not
    /// hide what its datacenter holds. Once for each datacenter.
    fn twin(
        &self,
        view: &View,
        routed: &mut Routed,
        spec: &CommandSpec,
        args: &Args<'_>,
    ) -> Option<Leg> {
        let bit = 1 << routed.lane;
        if routed.again & bit != 0 {
            return None;
        }
        routed.again |= bit;
        let key = spec.first_key(args).and_then(|i| args.get(i))?;
        let failed = routed.rack?;
        let leg = self.other_leg(view, routed.lane, key, rack_bit(failed))?;
        (leg.rack != failed).then_some(leg)
    }

    /// Who may still have what is missing.
    fn next_to_ask(
        &mut self,
        view: &View,
        routed: &Routed,
        spec: &'static CommandSpec,
        args: &Args<'_>,
        missing: &[SequenceHash],
        now: Now,
    ) -> Option<(Option<u8>, Leg)> {
        let name = spec.first_key(args).and_then(|i| args.get(i))?;
        if let Some((lane, leg)) = self.next_lane(view, missing, name, routed.tried, now) {
            return Some((Some(lane), leg));
        }
        if routed.own_asked {
            return None;
        }
        let leg = self.read_leg(view, spec, args, 0)?;
        self.is_torc(view, leg.peer).then_some((None, leg))
    }

    /// Asks another datacenter, or the own one. Always true: the read goes on.
    fn ask_next(
        &mut self,
        key: u32,
        mut routed: Box<Routed>,
        (lane, leg): (Option<u8>, Leg),
        (request, args): (&[u8], Args<'_>),
        now: Now,
    ) -> bool {
        let slot = &mut self.slots[key as usize];
        let place = (key, slot.generation);
        let frame = Frame::Small(request);
        match lane {
            None => {
                (routed.asks_other, routed.own_asked) = (false, true);
                slot.tried |= rack_bit(leg.rack);
                slot.routed = Some(routed);
                self.send_read(&frame, args, &leg, place, now);
            }
            Some(lane) => {
                (routed.asks_other, routed.lane) = (true, lane);
                routed.tried |= 1 << lane;
                slot.routed = Some(routed);
                self.counters.affinity_second_tries += 1;
                if self.has_room(lane, place) {
                    self.send_other(&frame, args, &leg, lane, place, now);
                }
            }
        }
        true
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

    /// Nobody else is asked; false when what came last is the answer.
    fn close_routed(
        &mut self,
        key: u32,
        mut routed: Box<Routed>,
        many: bool,
        failed: bool,
        now: Now,
    ) -> bool {
        // Of the own datacenter another rack may still be asked.
        let last_stands = if failed { !routed.asks_other } else { !many };
        let kept = std::mem::take(&mut routed.kept);
        self.slots[key as usize].routed = Some(routed);
        if last_stands || kept.is_empty() {
            return false;
        }
        self.complete(key, Said::Reply(&kept), now);
        true
    }

    /// Sends reads that waited for their turn.
    fn send_waiting(&mut self, lane: u8, now: Now) {
        let at = usize::from(lane);
        while self.router.in_flight[at] < IN_FLIGHT_MAX {
            let Some((key, generation)) = self.router.waiting[at].pop_front() else { return };
            let waits = |slot: &&Slot| slot.generation == generation && slot.routed.is_some();
            let Some(slot) = self.slots.get(key as usize).filter(waits) else { continue };
            let failed = slot.routed.as_ref().map_or(0, |routed| routed.failed_racks());
            let request = slot.request.clone();
            let view = Arc::clone(&self.view);
            let Some((spec, spans)) = self.read_again(&request) else { continue };
            let args = Args::new(&request, &spans);
            let name = spec.first_key(&args).and_then(|i| args.get(i));
            match name.and_then(|name| self.other_leg(&view, lane, name, failed)) {
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
            self.router.answered(routed.lane, asked_us, true, now);
            self.send_waiting(routed.lane, now);
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
