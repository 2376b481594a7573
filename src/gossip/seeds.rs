//! Seed lists, from the configuration or a provider, and single nodes an operator names.
//!
//! A list is believed where nothing better is known. For a slot whose holder is alive it is only
//! a hint where else to ask; the entry counts as new until it could be followed, so a provider
//! that is asked again has its way once the old holder is dead.

use super::event::{EventKind, Source};
use super::identity::{Addr, SlotId};
use super::member::Reach;
use super::membership::Membership;
use super::message::{NAME_BYTES_MAX, TOKENS_MAX};
use super::record::{Claim, Kind, Record};
use super::settings::Seed;
use super::time::Millis;

impl Membership {
    /// The seed list as it is now, whole. Entries that did not change since the last call do
    /// nothing, so a list that was once right cannot undo what was learnt later.
    pub fn update_seeds(&mut self, seeds: Vec<Seed>, now: Millis) {
        for (_, member) in self.table.entries_mut() {
            member.seed = false;
        }
        let mut followed = Vec::with_capacity(seeds.len());
        for seed in seeds {
            let old = self.seeds.contains(&seed);
            let slot = seed.slot().id();
            if old || self.follow(&seed, Source::Seeds, now) {
                followed.push(seed);
            }
            if let Some(member) = self.table.member_mut(slot) {
                member.seed = true;
            }
        }
        self.seeds = followed;
    }

    /// A node that an operator names. Unlike a seed list this also brings back a slot that was
    /// forgotten.
    pub fn add_seed(&mut self, seed: &Seed, now: Millis) {
        self.follow(seed, Source::Operator, now);
        if let Some(member) = self.table.member_mut(seed.slot().id()) {
            member.seed = true;
        }
    }

    /// An address to ask whose slot is not known (`join host:port`). It is asked in each round
    /// until a torc node of that address is known or proven to be none.
    pub fn add_contact(&mut self, addr: Addr) {
        let known = |m: &super::Member| m.record.addr == addr && m.record.generation > 0;
        if !self.table.members().any(known) && !self.contacts.contains(&addr) {
            self.contacts.push(addr);
        }
    }

    /// Does what an entry asks for; false when it could not be followed yet.
    fn follow(&mut self, seed: &Seed, source: Source, now: Millis) -> bool {
        let slot = seed.slot().id();
        let names = [&seed.dc, &seed.rack, &seed.name, &seed.addr.host];
        let fits = |name: &&String| !name.is_empty() && name.len() <= NAME_BYTES_MAX;
        if !names.iter().all(fits) || seed.tokens.len() > TOKENS_MAX {
            self.counters.malformed += 1;
            return true;
        }
        if slot == self.local {
            return true;
        }
        match self.table.member(slot) {
            Some(member) if member.record.addr == seed.addr => true,
            Some(member) if member.reach == Reach::Up => {
                self.add_contact(seed.addr.clone());
                self.conflict(slot, &seed.addr, source, now);
                false
            }
            Some(_) => {
                self.move_unanswered(slot, seed.addr.clone(), source, now);
                true
            }
            None => {
                self.add_unmet(seed, source, now);
                true
            }
        }
    }

    /// Puts a node into the table of which only the name is known.
    pub(super) fn add_unmet(&mut self, seed: &Seed, source: Source, now: Millis) {
        let slot = seed.slot().id();
        if self.table.is_full() {
            self.counters.malformed += 1;
            return;
        }
        let unix_ms = self.unix_ms(now);
        let mut record = Record {
            slot: seed.slot(),
            tokens: seed.tokens.clone(),
            addr: seed.addr.clone(),
            name: seed.name.clone(),
            kind: Kind::Unknown,
            claim: Claim::Normal,
            generation: 0,
            version: 0,
            gone_at_ms: 0,
            attributes: Default::default(),
        };
        if let Some(tombstone) = self.table.tombstone(slot) {
            record.generation = tombstone.generation;
            record.version = tombstone.version;
            record.bump(unix_ms);
        }
        let addr = seed.addr.clone();
        self.table.insert(record, now);
        self.event_of(slot, EventKind::Added { addr, source }, now);
        self.changed(now);
    }

    /// Another address for a slot whose holder does not answer. It is not passed on before
    /// somebody was met there.
    pub(super) fn move_unanswered(&mut self, slot: SlotId, to: Addr, source: Source, now: Millis) {
        let unix_ms = self.unix_ms(now);
        let Some(member) = self.table.member_mut(slot) else {
            return;
        };
        let from = std::mem::replace(&mut member.record.addr, to.clone());
        if member.record.name == from.to_string() {
            member.record.name = to.to_string();
        }
        // What a torc node says of itself must stay stronger than this guess.
        match member.record.kind {
            Kind::Torc => member.record.version = member.record.version.saturating_sub(1),
            Kind::C | Kind::Unknown => member.record.bump(unix_ms),
        }
        member.record.kind = Kind::Unknown;
        member.record.claim = Claim::Normal;
        member.renew();
        member.detector = super::Detector::new();
        self.conflicts.remove(&slot);
        self.event_of(slot, EventKind::Moved { from, to, source }, now);
        self.judge(slot, now);
        self.changed(now);
    }

    /// Reports an address that was not believed, once.
    pub(super) fn conflict(&mut self, slot: SlotId, addr: &Addr, source: Source, now: Millis) {
        if self.conflicts.get(&slot) != Some(addr) {
            self.conflicts.insert(slot, addr.clone());
            let addr = addr.clone();
            self.event_of(slot, EventKind::Conflict { addr, source }, now);
        }
    }
}
