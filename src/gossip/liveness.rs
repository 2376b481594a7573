//! Signs of life, connections, verdicts.

use super::event::{DownCause, EventKind};
use super::identity::{Addr, SlotId};
use super::member::{Link, Reach};
use super::membership::{Membership, TOMBSTONE_MS};
use super::record::Kind;
use super::time::Millis;
use crate::ring::PeerId;

/// Least time between two requests to connect again.
const RETRY_MS: u64 = 1000;

impl Membership {
    /// A frame of a peer arrived at `at` on one of our own connections to it; `at` may lie in
    /// the past. Verdicts are given in [`Membership::handle_timeout`] and here.
    pub fn observe(&mut self, id: PeerId, at: Millis, now: Millis) {
        let Some(slot) = self.table.slot_of(id) else {
            return;
        };
        if let Some(member) = self.table.member_mut(slot) {
            if member.link_lost.is_some_and(|lost| at > lost) {
                member.link_lost = None;
                member.link_refused = false;
            }
            member.detector.heard(at);
        }
        self.judge(slot, now);
    }

    /// The connections to a peer, all workers together, became open, or the last one was lost or
    /// refused. Repeated calls are harmless.
    pub fn link(&mut self, id: PeerId, link: Link, now: Millis) {
        let Some(slot) = self.table.slot_of(id) else {
            return;
        };
        if let Some(member) = self.table.member_mut(slot) {
            match link {
                Link::Open => {
                    member.link_lost = None;
                    member.link_refused = false;
                }
                Link::Lost => {
                    member.link_lost.get_or_insert(now);
                }
                Link::Refused => {
                    member.link_lost.get_or_insert(now);
                    member.link_refused = true;
                }
            }
        }
        self.judge(slot, now);
    }

    /// The node at `addr` was proven to be torc or not, by its answer to a version 2 request.
    pub fn proven(&mut self, addr: &Addr, torc: bool, now: Millis) {
        if !torc {
            self.contacts.retain(|contact| contact != addr);
        }
        for slot in self.table.at_address(addr) {
            self.prove(slot, torc, now);
        }
    }

    fn prove(&mut self, slot: SlotId, torc: bool, now: Millis) {
        let unix_ms = self.unix_ms(now);
        let Some(member) = self.table.member_mut(slot) else {
            return;
        };
        let was = member.record.kind;
        let wanted = if torc { Kind::Torc } else { Kind::C };
        if member.local || was == wanted {
            return;
        }
        member.record.kind = wanted;
        member.heartbeat = 0;
        // Of a torc node the own record will come; until then nothing is said in its name.
        if !torc {
            member.record.bump(unix_ms);
            self.start_rumor(slot);
        }
        self.event_of(slot, EventKind::Kind { torc }, now);
        self.changed(now);
    }

    /// Looks at every peer and finds out when to look again.
    pub(super) fn scan(&mut self, now: Millis) {
        let oldest = self.unix_ms(now).saturating_sub(TOMBSTONE_MS);
        self.table.drop_tombstones(oldest);
        self.next_scan = Millis::NEVER;
        let slots: Vec<SlotId> = self.table.entries().map(|(slot, _)| slot).collect();
        for slot in slots {
            self.judge(slot, now);
        }
    }

    /// Gives the verdict on one peer after news, or after time passed.
    pub(super) fn judge(&mut self, slot: SlotId, now: Millis) {
        let settings = self.detector;
        let Some(member) = self.table.member_mut(slot) else {
            return;
        };
        let (was, is) = (member.reach, member.judge(&settings, now));
        if was != is {
            member.reach = is;
            member.since = now;
        }
        let recovered = matches!(was, Reach::Down(_)) && is == Reach::Up;
        if recovered {
            member.detector.restart();
        }
        let cut_off =
            matches!(is, Reach::Down(DownCause::Unreachable) | Reach::Down(DownCause::Refused));
        let heard = member.detector.last().is_some_and(|at| at > member.since);
        let retry = cut_off && heard && now.since(member.retried) >= RETRY_MS;
        if retry {
            member.retried = now;
        }
        self.next_scan = self.next_scan.min(member.next_verdict(&settings));
        if retry {
            self.event_of(slot, EventKind::Retry, now);
        }
        match (was, is) {
            (Reach::Down(_), Reach::Down(_)) => {}
            (_, Reach::Down(cause)) => self.verdict(slot, EventKind::Down { cause }, now),
            (Reach::Down(_) | Reach::Unreached, Reach::Up) => {
                self.verdict(slot, EventKind::Up, now);
            }
            (Reach::Down(_), Reach::Unreached) => self.changed(now),
            (Reach::Up | Reach::Unreached, Reach::Up | Reach::Unreached) => {}
        }
    }

    fn verdict(&mut self, slot: SlotId, kind: EventKind, now: Millis) {
        self.event_of(slot, kind, now);
        self.changed(now);
    }

    pub(super) fn event_of(&mut self, slot: SlotId, kind: EventKind, now: Millis) {
        if let Some(record) = self.table.record(slot) {
            let name = record.slot.clone();
            self.event(&name, kind, now);
        }
    }
}
