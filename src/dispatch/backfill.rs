//! Values that were fetched from another datacenter, stored in this one too
//! (`affinity.backfill`, decision I2).
//!
//! ```text
//! coordinator: GET, MGET          ──▶ other datacenter: values, which its client gets at once
//!              PEXPIRETIME key    ──▶ the same one: when it ends, or that it is gone
//!              TORC.BACKFILL ...  ──▶ own owner
//! own owner:   SET key value NX PXAT end, unless the key was deleted here a moment ago
//! ```
//!
//! Only keys that have one value for ever are stored so. A delete that the other datacenter has
//! not seen yet, but this one has, is among what the own owner remembers; so a deleted key does
//! not come back.

use std::sync::Arc;

use super::gather::Said;
use super::plan::Hop;
use super::route::hash;
use super::send::{Ask, Parcel, stores_values};
use super::slot::{Envelope, Owner, Stage};
use super::task::{Next, Part, Task, Written};
use super::upstream::Ticket;
use super::view::{Now, View};
use super::{Dispatcher, Frame, block};
use crate::affinity::observed::ObservedWrites;
use crate::affinity::recent::RecentWrites;
use crate::proto::args::Args;
use crate::proto::command::Class;
use crate::proto::resp::reply::{elements, parse_int, text};
use crate::proto::resp::{encode, table};
use crate::ring::Consistency;
use crate::stamp::Stamp;

/// How a value is offered: key, end, value, when it was asked for.
pub(super) const NAME: &str = "torc.backfill";

/// Values on their way of one worker at once; more are not stored.
const IN_FLIGHT_MAX: u32 = 256;
/// Bytes of them together.
const BYTES_MAX: usize = 64 << 20;
/// Larger values are not stored, bytes.
const VALUE_BYTES_MAX: usize = 16 << 20;
/// A value that was asked for longer ago is not stored, milliseconds: less than what
/// [`crate::affinity::recent`] remembers.
const AGE_MAX_MS: u64 = 10_000;
/// PEXPIRETIME of a key that never ends.
const NEVER: i64 = -1;
/// PEXPIRETIME of a key that is not there.
const GONE: i64 = -2;
/// The questions of a backfill are all for this part of its task.
const PART: u16 = 1;

/// True for a value that is offered.
pub(super) fn is_offer(args: &Args<'_>) -> bool {
    args.get(0).is_some_and(|name| name.eq_ignore_ascii_case(NAME.as_bytes()))
}

/// Values on their way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct UnderWay {
    count: u32,
    bytes: usize,
}

impl UnderWay {
    /// True when so many bytes more may be on their way.
    fn has_room(self, bytes: usize) -> bool {
        self.count < IN_FLIGHT_MAX && bytes <= VALUE_BYTES_MAX && self.bytes + bytes <= BYTES_MAX
    }

    fn begins(&mut self, bytes: usize) {
        (self.count, self.bytes) = (self.count + 1, self.bytes + bytes);
    }

    /// The value came to where it goes, or got lost.
    pub(super) fn ended(&mut self, backfill: &Backfill) {
        (self.count, self.bytes) = (self.count - 1, self.bytes - backfill.value.len());
    }
}

/// A value on its way.
#[derive(Debug)]
pub(super) struct Backfill {
    key: Vec<u8>,
    value: Vec<u8>,
    /// When it was asked for, milliseconds since 1970.
    begun_ms: u64,
    offered: bool,
}

impl Backfill {
    /// What follows from an answer: of the other datacenter first, then of the own owner.
    pub(super) fn take(&mut self, said: &Said<'_>) -> Next {
        let done = Next::Reply(Vec::new());
        if std::mem::replace(&mut self.offered, true) {
            return done;
        }
        match said.bytes().and_then(parse_int) {
            Some(end) if end >= NEVER && end != GONE => {
                let (end, begun) = (end.to_string(), self.begun_ms.to_string());
                let words = [NAME.as_bytes(), &self.key, end.as_bytes(), &self.value];
                let words = words.into_iter().chain([begun.as_bytes()]).collect::<Vec<_>>();
                Next::Offer(Written::command(words.into_iter()))
            }
            Some(_) | None => done,
        }
    }
}

/// A value that is offered, as its words say.
struct Offer<'a> {
    key: &'a [u8],
    /// When it ends, milliseconds since 1970; none for never.
    end: Option<u64>,
    value: &'a [u8],
    begun_ms: u64,
}

impl<'a> Offer<'a> {
    fn read(args: &Args<'a>) -> Option<Offer<'a>> {
        let number = |at: usize| std::str::from_utf8(args.get(at)?).ok()?.parse::<i64>().ok();
        let end = match number(2)? {
            NEVER => None,
            end => Some(u64::try_from(end).ok()?),
        };
        let begun_ms = u64::try_from(number(4)?).ok()?;
        (args.len() == 5).then_some(Offer { key: args.get(1)?, end, value: args.get(3)?, begun_ms })
    }

    fn set(&self) -> Written {
        let end = self.end.map(|end| end.to_string());
        let mut words: Vec<&[u8]> = vec![b"SET", self.key, self.value, b"NX"];
        if let Some(end) = &end {
            words.extend([b"PXAT".as_slice(), end.as_bytes()]);
        }
        Written::command(words.into_iter())
    }
}

impl Dispatcher {
    /// Values of another datacenter were read: begins to store them in this one too.
    pub(super) fn backfill_reply(
        &mut self,
        lane: u8,
        command: &str,
        args: &Args<'_>,
        reply: &[u8],
        asked_us: u64,
        now: Now,
    ) {
        if !self.view.settings.backfill {
            return;
        }
        match command {
            "get" => self.begin_backfill(lane, &args[1], reply, asked_us, now),
            "mget" => {
                for (key, value) in args.iter().skip(1).zip(elements(reply)) {
                    self.begin_backfill(lane, key, value, asked_us, now);
                }
            }
            _ => {}
        }
    }

    fn begin_backfill(&mut self, lane: u8, key: &[u8], reply: &[u8], asked_us: u64, now: Now) {
        let view = Arc::clone(&self.view);
        let wanted = |value: &&[u8]| self.backfills.has_room(value.len()) && stays(&view, key);
        let value = text(reply).filter(wanted);
        let leg = value.and_then(|_| self.other_leg(&view, lane, key, 0));
        let (Some(value), Some(leg)) = (value, leg) else { return };
        let waited_ms = now.mono_us.saturating_sub(asked_us) / 1000;
        let backfill = Backfill {
            key: key.to_vec(),
            value: value.to_vec(),
            begun_ms: now.wall_ms().saturating_sub(waited_ms),
            offered: false,
        };
        let stage = Stage::Task(Box::new(Task::Backfill(backfill)));
        let (slot, generation) = self.new_slot(Owner::Nobody, stage, Envelope::default(), now);
        self.backfills.begins(value.len());
        let ask = Written::command([b"PEXPIRETIME".as_slice(), key].into_iter());
        let parcel = Parcel { frame: &Frame::Small(&ask.bytes), args: ask.args(), stamp: None };
        let ticket = Ticket { dc: PART, ..Ticket::of(slot, generation) };
        self.send_ticket(parcel, &leg, ticket, Owner::Nobody, now);
    }

    /// Offers a value to the owner of its key in the own rack.
    pub(super) fn offer_backfill(&mut self, part: Part, offer: &Written, now: Now) {
        let view = Arc::clone(&self.view);
        let args = offer.args();
        let leg = args.get(1).and_then(|key| self.owner_leg(&view, key, 0));
        let leg = leg.filter(|leg| self.is_torc(&view, leg.peer));
        let told = match leg.map(|leg| leg.hop) {
            None => None,
            Some(Hop::Store) => self.admit_backfill(&view, &args, now).ok(),
            Some(Hop::Peer | Hop::Forward) => Some(offer.clone()),
        };
        let (Some(leg), Some(told)) = (leg, told) else {
            return self.feed_task(part, Said::Reply(b""), Default::default(), now);
        };
        let stamp = (leg.hop == Hop::Store).then_some(Stamp::OLDEST);
        let parcel = Parcel { frame: &Frame::Small(&told.bytes), args: told.args(), stamp };
        let ticket = Ticket { dc: PART, ..Ticket::of(part.slot, part.generation) };
        self.send_ticket(parcel, &leg, ticket, Owner::Nobody, now);
    }

    /// Another node offers a value.
    pub(super) fn serve_backfill_of_peer(&mut self, view: &View, ask: &Ask<'_>, now: Now) {
        match self.admit_backfill(view, &ask.args, now) {
            Ok(set) => {
                let (frame, stamp) = (Frame::Small(&set.bytes), Some(Stamp::OLDEST));
                self.ask(view, &Ask { frame: &frame, args: set.args(), stamp, ..*ask }, now);
            }
            Err(text) => {
                let mut error = Vec::new();
                encode::error(&mut error, text.as_bytes());
                self.answer_now(ask, Said::Reply(&error), now);
            }
        }
    }

    /// What the own store gets for a value that is offered; else why it gets nothing.
    pub(super) fn admit_backfill(
        &mut self,
        view: &View,
        args: &Args<'_>,
        now: Now,
    ) -> Result<Written, &'static str> {
        let admitted = judge(view, args, now);
        match admitted {
            Ok(_) => self.counters.affinity_backfills += 1,
            Err(_) => self.counters.affinity_backfills_refused += 1,
        }
        admitted
    }

    /// The own store is about to run a request: remembers what it may change, for whoever needs
    /// to know.
    pub(super) fn note_changes(&self, args: &Args<'_>, now: Now) {
        let Some(affinity) = &self.view.affinity else { return };
        if affinity.keys().observed_writes().are_wanted() {
            self.note_for_follower(affinity.keys().observed_writes(), args);
        }
        if self.view.settings.backfill {
            self.note_for_backfill(affinity.keys().recent_writes(), args, now);
        }
    }

    /// What a store that does not tell of its keys has to be asked about. A script's undeclared
    /// keys are found by the next rescan.
    fn note_for_follower(&self, observed: &ObservedWrites, args: &Args<'_>) {
        let modules = &self.view.settings.modules;
        let note = |args: &Args<'_>| {
            if let Ok(spec) = table::find(args, modules)
                && spec.class_of(args) == Class::Write
            {
                let keys = spec.keys_of(args).filter_map(|i| args.get(i));
                keys.for_each(|key| observed.note(key));
            }
        };
        match block::is_block(args) {
            false => note(args),
            true => {
                let commands = block::commands(args, modules).into_iter().flatten();
                commands.for_each(|queued| note(&queued.request.args()));
            }
        }
    }

    /// What may take a key away. Values that are stored need no memory: what is offered replaces
    /// none, and a key has one value for ever.
    fn note_for_backfill(&self, recent: &RecentWrites, args: &Args<'_>, now: Now) {
        let view = &self.view;
        let note = |args: &Args<'_>| match table::find(args, &view.settings.modules) {
            Ok(spec) if spec.class_of(args) != Class::Write || stores_values(spec.name) => {}
            Ok(spec) => {
                let keys = spec.keys_of(args).filter_map(|i| args.get(i));
                let mut any = false;
                for key in keys {
                    recent.note(hash(key), now.mono_ms());
                    any = true;
                }
                // A script may change keys it does not name.
                if !any || spec.name.starts_with("eval") || spec.name.starts_with("fcall") {
                    recent.note_all(now.mono_ms());
                }
            }
            Err(_) => recent.note_all(now.mono_ms()),
        };
        match block::is_block(args) {
            false => note(args),
            true => match block::commands(args, &view.settings.modules) {
                Some(commands) => commands.iter().for_each(|queued| note(&queued.request.args())),
                None => recent.note_all(now.mono_ms()),
            },
        }
    }
}

/// Whether the values of a key never change.
fn stays(view: &View, key: &[u8]) -> bool {
    let token = view.hasher.token(key);
    view.terms(key, &token, true, Consistency::DcOne).stays
}

fn judge(view: &View, args: &Args<'_>, now: Now) -> Result<Written, &'static str> {
    let affinity = view.affinity.as_ref().filter(|_| view.settings.backfill);
    let affinity = affinity.ok_or("ERR affinity.backfill is off here")?;
    let offer = Offer::read(args).ok_or("ERR expected TORC.BACKFILL key end value begun")?;
    if !stays(view, offer.key) {
        return Err("ERR this key's values may change");
    }
    if now.wall_ms().abs_diff(offer.begun_ms) > AGE_MAX_MS {
        return Err("ERR the value was asked for too long ago");
    }
    if !affinity.keys().recent_writes().is_quiet(hash(offer.key), now.mono_ms()) {
        return Err("ERR the key was deleted a moment ago");
    }
    if offer.end.is_some_and(|end| end <= now.wall_ms()) {
        return Err("ERR the value has ended");
    }
    Ok(offer.set())
}

#[cfg(test)]
mod tests;
