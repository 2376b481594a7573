//! All slots this node knows of: their holders, and the tombstones of those that have none.

use std::collections::BTreeMap;

use super::identity::{Addr, SlotId};
use super::member::Member;
use super::record::Record;
use super::time::Millis;
use crate::ring::PeerId;

/// Most slots a table holds, tombstones included.
pub const SLOTS_MAX: usize = 4096;

/// The table. Iteration is by slot id everywhere, so that equal tables act alike.
#[derive(Debug, Default)]
pub(super) struct Table {
    members: BTreeMap<SlotId, Member>,
    slots: BTreeMap<PeerId, SlotId>,
    gone: BTreeMap<SlotId, Record>,
    next_id: u32,
    /// The slots others may be told of, in a random order, and how far it was told.
    order: Vec<SlotId>,
    cursor: usize,
}

impl Table {
    pub(super) fn is_full(&self) -> bool {
        self.members.len() + self.gone.len() >= SLOTS_MAX
    }

    pub(super) fn member(&self, slot: SlotId) -> Option<&Member> {
        self.members.get(&slot)
    }

    pub(super) fn member_mut(&mut self, slot: SlotId) -> Option<&mut Member> {
        self.members.get_mut(&slot)
    }

    pub(super) fn members(&self) -> impl Iterator<Item = &Member> {
        self.members.values()
    }

    pub(super) fn entries_mut(&mut self) -> impl Iterator<Item = (SlotId, &mut Member)> {
        self.members.iter_mut().map(|(slot, member)| (*slot, member))
    }

    pub(super) fn entries(&self) -> impl Iterator<Item = (SlotId, &Member)> {
        self.members.iter().map(|(slot, member)| (*slot, member))
    }

    pub(super) fn slot_of(&self, id: PeerId) -> Option<SlotId> {
        self.slots.get(&id).copied()
    }

    /// Slots whose holder listens at `addr`.
    pub(super) fn at_address(&self, addr: &Addr) -> Vec<SlotId> {
        let at = self.entries().filter(|(_, m)| m.record.addr == *addr);
        at.map(|(slot, _)| slot).collect()
    }

    pub(super) fn tombstone(&self, slot: SlotId) -> Option<&Record> {
        self.gone.get(&slot)
    }

    /// What is known of a slot, be it a holder or a tombstone.
    pub(super) fn record(&self, slot: SlotId) -> Option<&Record> {
        let held = self.members.get(&slot).map(|m| &m.record);
        held.or_else(|| self.gone.get(&slot))
    }

    /// A new holder; it replaces a tombstone.
    pub(super) fn insert(&mut self, record: Record, now: Millis) -> &mut Member {
        let slot = record.slot.id();
        let id = PeerId(self.next_id);
        self.next_id += 1;
        self.gone.remove(&slot);
        self.slots.insert(id, slot);
        self.members.entry(slot).or_insert_with(|| Member::new(id, record, now))
    }

    /// Sets a tombstone; returns the holder that was removed.
    pub(super) fn bury(&mut self, record: Record) -> Option<Member> {
        let slot = record.slot.id();
        self.gone.insert(slot, record);
        self.remove(slot)
    }

    /// Removes a holder without a trace.
    pub(super) fn remove(&mut self, slot: SlotId) -> Option<Member> {
        let member = self.members.remove(&slot)?;
        self.slots.remove(&member.id);
        Some(member)
    }

    /// Drops the tombstones set before `unix_ms`.
    pub(super) fn drop_tombstones(&mut self, unix_ms: u64) {
        self.gone.retain(|_, record| record.gone_at_ms >= unix_ms);
    }

    /// All slots others may be told of.
    pub(super) fn shared(&self) -> impl Iterator<Item = SlotId> {
        let held = self.entries().filter(|(_, m)| m.record.is_shared());
        held.map(|(slot, _)| slot).chain(self.gone.keys().copied())
    }

    /// How many slots others may be told of.
    pub(super) fn shared_count(&self) -> usize {
        self.shared().count()
    }

    /// Up to `max` slots others may be told of, and how many there are: all of them, or the next
    /// ones of a random order that passes through all before it starts again.
    pub(super) fn sample(&mut self, max: usize, rng: &mut fastrand::Rng) -> (Vec<SlotId>, usize) {
        let count = self.shared_count();
        if count <= max {
            return (self.shared().collect(), count);
        }
        let mut sample = Vec::with_capacity(max);
        while sample.len() < max {
            if self.cursor >= self.order.len() {
                self.order = self.shared().collect();
                rng.shuffle(&mut self.order);
                self.cursor = 0;
            }
            let slot = self.order[self.cursor];
            self.cursor += 1;
            let known = self.record(slot).is_some_and(Record::is_shared);
            if known && !sample.contains(&slot) {
                sample.push(slot);
            }
        }
        (sample, count)
    }
}
