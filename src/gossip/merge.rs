//! What becomes of a record that arrives: the newer saying wins, nobody is rolled back.

use super::event::{EventKind, Source};
use super::identity::SlotId;
use super::member::Member;
use super::membership::{Membership, TOMBSTONE_MS};
use super::message::Heartbeat;
use super::record::{Claim, Kind, Record};
use super::time::Millis;

impl Membership {
    /// Takes over a record when it is newer than what is held, and then its sign of life. Returns
    /// true when it was newer.
    pub(super) fn merge(
        &mut self,
        record: Record,
        beat: Heartbeat,
        source: Source,
        now: Millis,
    ) -> bool {
        let slot = record.slot.id();
        if slot == self.local {
            return self.merge_own(record, now);
        }
        let generation = record.generation;
        let newer = match self.table.record(slot) {
            Some(held) => record.is_newer_than(held),
            None => true,
        };
        if newer && !self.take(slot, record, source, now) {
            return false;
        }
        if let Some(member) = self.table.member_mut(slot) {
            let same = member.record.generation == generation;
            if same && member.record.kind == Kind::Torc {
                member.beat(beat, now);
            }
        }
        self.judge(slot, now);
        newer
    }

    /// Puts a newer record into the table; false when it is refused for its age or for want of
    /// room.
    fn take(&mut self, slot: SlotId, record: Record, source: Source, now: Millis) -> bool {
        if record.claim.is_gone() {
            return self.bury(record, now);
        }
        match self.table.member_mut(slot) {
            Some(member) => {
                let held = std::mem::replace(&mut member.record, record);
                if held.generation < member.record.generation
                    || held.addr != member.record.addr
                    || held.kind != member.record.kind
                {
                    member.renew();
                }
                self.report(slot, &held, source, now);
            }
            None => {
                if self.table.is_full() && self.table.tombstone(slot).is_none() {
                    self.counters.malformed += 1;
                    return false;
                }
                let (name, addr) = (record.slot.clone(), record.addr.clone());
                self.table.insert(record, now);
                self.event(&name, EventKind::Added { addr, source }, now);
            }
        }
        self.settle_address(slot, now);
        self.counters.merged += 1;
        self.changed(now);
        true
    }

    /// Sets a tombstone and removes the holder.
    pub(super) fn bury(&mut self, record: Record, now: Millis) -> bool {
        let unix_ms = self.unix_ms(now);
        let too_old = record.gone_at_ms.saturating_add(TOMBSTONE_MS) < unix_ms;
        let slot = record.slot.id();
        if too_old || (self.table.is_full() && self.table.record(slot).is_none()) {
            return false;
        }
        let forgotten = record.claim == Claim::Forgotten;
        let name = record.slot.clone();
        if self.table.bury(record).is_some() {
            self.event(&name, EventKind::Removed { forgotten }, now);
            self.changed(now);
        }
        self.counters.merged += 1;
        true
    }

    /// Tells what a newer record changed.
    fn report(&mut self, slot: SlotId, held: &Record, source: Source, now: Millis) {
        let Some(record) = self.table.member(slot).map(|m| m.record.clone()) else {
            return;
        };
        let (from, to) = (held.claim, record.claim);
        if held.addr != record.addr {
            let (from, to) = (held.addr.clone(), record.addr.clone());
            self.event_of(slot, EventKind::Moved { from, to, source }, now);
        } else if held.generation > 0 && held.generation < record.generation {
            self.event_of(slot, EventKind::Restarted, now);
        }
        if held.kind != record.kind {
            let torc = record.kind == Kind::Torc;
            self.event_of(slot, EventKind::Kind { torc }, now);
        }
        if held.tokens != record.tokens {
            self.event_of(slot, EventKind::Tokens, now);
        }
        if from != to {
            self.event_of(slot, EventKind::State { from, to }, now);
        }
    }

    /// One address answers for one slot: a newer process there ends every older one, and an
    /// address whose slot is known need not be asked for it.
    fn settle_address(&mut self, slot: SlotId, now: Millis) {
        let Some(member) = self.table.member(slot) else {
            return;
        };
        let (addr, generation) = (member.record.addr.clone(), member.record.generation);
        self.contacts.retain(|contact| *contact != addr);
        if generation == 0 {
            return;
        }
        for other in self.table.at_address(&addr) {
            if let Some(member) = self.table.member_mut(other)
                && member.record.generation < generation
                && !member.local
            {
                member.address_taken = true;
                self.judge(other, now);
            }
        }
    }

    /// A record of our own slot: an echo of this process or of an earlier one, an operator's
    /// order, or somebody else.
    fn merge_own(&mut self, heard: Record, now: Millis) -> bool {
        let own = &self.local().record;
        if !heard.is_newer_than(own) {
            return false;
        }
        let elsewhere = heard.addr != own.addr && !heard.claim.is_gone();
        if elsewhere {
            let holder = heard.addr.clone();
            if heard.kind == Kind::Torc {
                self.stand_down(heard, now);
            } else {
                // A C node cannot take a slot from us by gossip; who relayed it knew no better.
                let source = Source::Gossip;
                let addr = holder;
                self.event_of(self.local, EventKind::Conflict { addr, source }, now);
                self.outdo(&heard);
            }
            return true;
        }
        let removed = heard.claim.is_gone() && own.claim != Claim::Left;
        self.outdo(&heard);
        if removed {
            self.event_of(self.local, EventKind::Rejoined, now);
        }
        true
    }

    /// A newer process elsewhere holds our slot.
    fn stand_down(&mut self, heard: Record, now: Millis) {
        let holder = heard.addr;
        if self.duplicate.as_ref() != Some(&holder) {
            self.duplicate = Some(holder.clone());
            self.event_of(self.local, EventKind::Duplicate { holder }, now);
            self.changed(now);
        }
    }

    /// Says what we are in a way that is newer than `heard`.
    fn outdo(&mut self, heard: &Record) {
        let own = &mut self.local_mut().record;
        if heard.generation > own.generation || heard.claim.is_gone() {
            own.generation = heard.generation.max(own.generation) + 1;
            own.version = 1;
        } else {
            own.version = heard.version + 1;
        }
        self.start_rumor(self.local);
    }
}

impl Member {
    /// True when the holder was met at its address, or said itself where it is.
    pub(super) fn is_certain(&self) -> bool {
        self.local || self.detector.last().is_some() || self.record.generation > 0
    }
}
