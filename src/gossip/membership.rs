//! The machine: what it holds, how it is driven, what it shows.

use std::collections::{BTreeMap, VecDeque};
use std::net::IpAddr;

use super::c_rules::CRounds;
use super::detector::DetectorSettings;
use super::event::{Counters, Event, EventKind, Transmit};
use super::exchange::Target;
use super::identity::{Addr, Slot, SlotId};
use super::member::{Member, Reach};
use super::record::{Claim, Kind, Record};
use super::settings::{LocalNode, Seed, Settings};
use super::table::Table;
use super::time::Millis;
use crate::ring::{Peer, PeerId};

/// Events kept for a caller that does not poll; beyond it the oldest go.
const EVENTS_MAX: usize = 10_000;

/// A timeout handled so late means that this node was stopped; nobody is judged for that time.
const PAUSE_MS: u64 = 1000;

/// How long a tombstone is remembered. A node that was away for longer must be told to rejoin.
pub const TOMBSTONE_MS: u64 = 7 * 24 * 3600 * 1000;

/// The membership of one node: who is in the ring, where, in what state, and alive or not.
///
/// Drive it with `handle_*`, `observe` and `link`, then take what it has to say with
/// `poll_transmit` and `poll_event`, and call [`Membership::handle_timeout`] at
/// [`Membership::poll_timeout`]. Whenever [`Membership::version`] changed, [`Membership::peers`]
/// is the table the ring is built from.
#[derive(Debug)]
pub struct Membership {
    pub(super) settings: Settings,
    pub(super) detector: DetectorSettings,
    pub(super) table: Table,
    pub(super) local: SlotId,
    pub(super) started: Millis,
    pub(super) started_unix_ms: u64,
    pub(super) rng: fastrand::Rng,
    /// Fresh records and how often each is still to be told.
    pub(super) rumors: BTreeMap<SlotId, u32>,
    /// Addresses to ask whose slot is not known.
    pub(super) contacts: Vec<Addr>,
    /// The seed list as last given, to see what changes in it.
    pub(super) seeds: Vec<Seed>,
    /// Most slots another torc node said it could tell of.
    pub(super) told_of: usize,
    /// The datastore began empty, and may lack what others have.
    pub(super) may_lack: bool,
    /// Holder of our slot, when it is not this node.
    pub(super) duplicate: Option<Addr>,
    /// Whom the rest of the present round asks, last part first.
    pub(super) targets: Vec<Vec<Target>>,
    pub(super) next_round: Millis,
    /// Nobody's verdict changes before, unless there is news.
    pub(super) next_scan: Millis,
    pub(super) c: CRounds,
    /// Addresses claimed for a slot and not believed, reported once each.
    pub(super) conflicts: BTreeMap<SlotId, Addr>,
    pub(super) resolved: BTreeMap<String, IpAddr>,
    pub(super) refusal_reported: Option<Millis>,
    pub(super) counters: Counters,
    /// When the caller had promised to call again.
    due: Millis,
    version: u64,
    transmits: VecDeque<Transmit>,
    events: VecDeque<Event>,
}

impl Membership {
    /// A node that starts at `now` and knows itself and its seeds. Seeds that name its own slot
    /// are skipped. `rng_seed` decides whom it talks to; it is no secret.
    pub fn new(
        settings: Settings,
        local: LocalNode,
        seeds: Vec<Seed>,
        rng_seed: u64,
        now: Millis,
    ) -> Membership {
        assert!(local.generation > 0, "generation 0 means no torc node");
        let slot = local.slot();
        let mut membership = Membership {
            detector: settings.detector(),
            settings,
            table: Table::default(),
            local: slot.id(),
            started: now,
            started_unix_ms: local.unix_ms,
            rng: fastrand::Rng::with_seed(rng_seed),
            rumors: BTreeMap::new(),
            contacts: Vec::new(),
            seeds: Vec::new(),
            told_of: 0,
            may_lack: local.claim == Claim::Joining,
            duplicate: None,
            targets: Vec::new(),
            next_round: now,
            next_scan: Millis::NEVER,
            c: CRounds::new(now),
            conflicts: BTreeMap::new(),
            resolved: BTreeMap::new(),
            refusal_reported: None,
            counters: Counters::default(),
            due: now,
            version: 1,
            transmits: VecDeque::new(),
            events: VecDeque::new(),
        };
        membership.insert_local(local, slot, now);
        membership.update_seeds(seeds, now);
        membership
    }

    fn insert_local(&mut self, local: LocalNode, slot: Slot, now: Millis) {
        let record = Record {
            slot,
            tokens: local.tokens,
            addr: local.addr,
            name: local.name,
            kind: Kind::Torc,
            claim: local.claim,
            generation: local.generation,
            version: 1,
            gone_at_ms: 0,
            attributes: BTreeMap::new(),
        };
        let member = self.table.insert(record, now);
        member.local = true;
        member.reach = Reach::Up;
        self.start_rumor(self.local);
    }

    /// Does what is due at `now`. Early and spurious calls are harmless; a call that is late by
    /// more than a second means that this node was stopped, and nobody is judged for it.
    pub fn handle_timeout(&mut self, now: Millis) {
        if now.since(self.due) > PAUSE_MS {
            self.counters.pauses += 1;
            for (_, member) in self.table.entries_mut() {
                member.detector.excuse(now);
            }
        }
        if now >= self.next_scan {
            self.scan(now);
        }
        self.look_for_data(now);
        if now >= self.round_at() {
            self.round(now);
        }
        if now >= self.c_round_at() {
            self.c_round(now);
        }
        self.due = self.poll_timeout();
    }

    /// When [`Membership::handle_timeout`] is to be called next.
    pub fn poll_timeout(&self) -> Millis {
        self.next_scan.min(self.join_ends_at()).min(self.round_at()).min(self.c_round_at())
    }

    /// The next bytes to send.
    pub fn poll_transmit(&mut self) -> Option<Transmit> {
        self.transmits.pop_front()
    }

    /// The next change to report.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// Grows whenever [`Membership::peers`] gives something else than before.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// The peer table the ring is built from. Slots without a holder are not in it.
    pub fn peers(&self) -> Vec<Peer> {
        self.table.members().map(Member::peer).collect()
    }

    /// All holders, this node included.
    pub fn members(&self) -> impl Iterator<Item = &Member> {
        self.table.members()
    }

    /// One holder by its number.
    pub fn member(&self, id: PeerId) -> Option<&Member> {
        self.table.member(self.table.slot_of(id)?)
    }

    /// This node as others are told of it.
    pub fn local(&self) -> &Member {
        let local = self.table.member(self.local);
        local.expect("this node is always in its own table")
    }

    /// Where the newer holder of our slot listens; when set, this node must not serve.
    pub fn duplicate(&self) -> Option<&Addr> {
        self.duplicate.as_ref()
    }

    /// Counts since the start.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// How sure the failure detector is that a peer is dead; 0 for one never heard of.
    pub fn phi(&self, id: PeerId, now: Millis) -> Option<f64> {
        let member = self.member(id)?;
        Some(member.detector.phi(&self.detector, now))
    }

    pub(super) fn unix_ms(&self, now: Millis) -> u64 {
        self.started_unix_ms + now.since(self.started)
    }

    pub(super) fn event(&mut self, slot: &Slot, kind: EventKind, now: Millis) {
        if self.events.len() == EVENTS_MAX {
            self.events.pop_front();
        }
        self.events.push_back(Event { at: now, slot: slot.clone(), kind });
    }

    /// The peer table is another one from here on.
    pub(super) fn changed(&mut self, now: Millis) {
        self.version += 1;
        self.c.changed(now);
    }

    pub(super) fn transmit(&mut self, transmit: Transmit) {
        self.transmits.push_back(transmit);
    }

    pub(super) fn local_mut(&mut self) -> &mut Member {
        let local = self.table.member_mut(self.local);
        local.expect("this node is always in its own table")
    }

    /// Tells everybody about a record, as often as it takes to reach all.
    pub(super) fn start_rumor(&mut self, slot: SlotId) {
        let nodes = self.table.shared_count() as u32 + 1;
        let times = RUMOR_FACTOR * (u32::BITS - nodes.leading_zeros());
        self.rumors.insert(slot, times);
    }
}

/// A rumor is told this often times the binary logarithm of the number of nodes.
const RUMOR_FACTOR: u32 = 2;
