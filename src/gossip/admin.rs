//! What operators and other parts of the node ask for.

use std::collections::BTreeMap;
use std::net::IpAddr;

use super::event::EventKind;
use super::identity::{Slot, SlotId};
use super::member::{Member, Reach};
use super::membership::Membership;
use super::message::{ATTRIBUTES_MAX, attribute_fits};
use super::record::{Claim, Kind};
use super::time::Millis;
use crate::ring::PeerId;

/// What this node knows of one holder, itself included.
#[derive(Clone, Debug, PartialEq)]
pub struct Standing {
    /// Its number in this process.
    pub id: PeerId,
    /// The slot it holds.
    pub slot: Slot,
    /// What kind of node it is.
    pub kind: Kind,
    /// Whether it lives, as this node judges.
    pub reach: Reach,
    /// Milliseconds since that judgement.
    pub since_ms: u64,
    /// Milliseconds since its last sign of life; `None` when there was none.
    pub heard_ms: Option<u64>,
    /// How sure the failure detector is that it is dead.
    pub phi: f64,
    /// Which process holds the slot; 0 when no torc node ever did.
    pub generation: u64,
    /// Small facts its node tells of itself.
    pub attributes: BTreeMap<String, String>,
}

/// Why a slot was not forgotten. Nothing changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ForgetError {
    /// Nobody holds that slot.
    #[error("no such slot")]
    Unknown,
    /// It is this node's own.
    #[error("a node cannot forget itself; let it leave")]
    Local,
    /// Its holder is alive and would come back at once.
    #[error("its holder is alive; let it leave, or stop it first")]
    Alive,
}

/// Why an attribute was not set. Nothing changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AttributeError {
    /// A key or value is empty or too long to travel.
    #[error("an attribute is empty or too long")]
    Length,
    /// There are as many as fit a record.
    #[error("a node has at most {ATTRIBUTES_MAX} attributes")]
    TooMany,
}

impl Membership {
    /// Tells everybody that this node is in another state, by order of an operator. A node that
    /// has left stays so.
    pub fn set_local_claim(&mut self, claim: Claim, now: Millis) {
        self.may_lack = false;
        self.claim(claim, now);
    }

    pub(super) fn claim(&mut self, claim: Claim, now: Millis) {
        let own = &mut self.local_mut().record;
        if own.claim == claim || own.claim == Claim::Left {
            return;
        }
        let (from, to) = (std::mem::replace(&mut own.claim, claim), claim);
        own.version += 1;
        self.start_rumor(self.local);
        self.event_of(self.local, EventKind::State { from, to }, now);
        self.changed(now);
    }

    /// Gives up this node's arcs for good and tells some peers at once. Keep driving the machine
    /// for a round or two, so that the word is spread.
    pub fn leave(&mut self, now: Millis) {
        let unix_ms = self.unix_ms(now);
        self.local_mut().record.gone_at_ms = unix_ms;
        self.set_local_claim(Claim::Left, now);
        self.farewell(now);
    }

    /// Says that this process stops and will be back: peers judge it down at once, and its arcs
    /// stay its own. Send what is to be sent, then stop.
    pub fn go_away(&mut self, now: Millis) {
        self.set_local_claim(Claim::Away, now);
        self.farewell(now);
    }

    /// Removes a dead node from the ring for good, everywhere.
    pub fn forget(&mut self, slot: &Slot, now: Millis) -> Result<(), ForgetError> {
        let unix_ms = self.unix_ms(now);
        let id = slot.id();
        let member = self.table.member(id).ok_or(ForgetError::Unknown)?;
        match member.reach {
            _ if member.local => return Err(ForgetError::Local),
            Reach::Up => return Err(ForgetError::Alive),
            Reach::Unreached | Reach::Down(_) => {}
        }
        let mut record = member.record.clone();
        record.claim = Claim::Forgotten;
        record.gone_at_ms = unix_ms;
        record.attributes.clear();
        record.bump(unix_ms);
        self.bury(record, now);
        self.start_rumor(id);
        Ok(())
    }

    /// Holds a peer down for this node, or stops doing so (`/peer/down/NAME`). False when there
    /// is no such peer.
    pub fn force_down(&mut self, id: PeerId, down: bool, now: Millis) -> bool {
        let Some(slot) = self.table.slot_of(id) else {
            return false;
        };
        if let Some(member) = self.table.member_mut(slot) {
            member.forced_down = down;
        }
        self.judge(slot, now);
        true
    }

    /// Forgets what was judged of a peer, an operator's word included: it counts as one that was
    /// never heard of (`/peer/reset/NAME`). False when there is no such peer.
    pub fn reset(&mut self, id: PeerId, now: Millis) -> bool {
        let Some(slot) = self.table.slot_of(id) else { return false };
        if let Some(member) = self.table.member_mut(slot)
            && !member.local
        {
            member.forced_down = false;
            member.renew();
            member.detector = super::Detector::new();
        }
        self.judge(slot, now);
        true
    }

    /// Takes note of an operator's order that others are not told: about a peer, else about this
    /// node.
    pub fn ordered(&mut self, peer: Option<PeerId>, what: &str, now: Millis) {
        let slot = peer.and_then(|id| self.table.slot_of(id)).unwrap_or(self.local);
        self.event_of(slot, EventKind::Ordered { what: what.to_owned() }, now);
    }

    /// Everything known of every holder at `now`, for operators.
    pub fn standings(&self, now: Millis) -> Vec<Standing> {
        let standing = |member: &Member| Standing {
            id: member.id,
            slot: member.record.slot.clone(),
            kind: member.record.kind,
            reach: member.reach,
            since_ms: now.since(member.since),
            heard_ms: member.last_heard().map(|at| now.since(at)),
            phi: member.detector.phi(&self.detector, now),
            generation: member.record.generation,
            attributes: member.record.attributes.clone(),
        };
        self.table.members().map(standing).collect()
    }

    /// Tells everybody a small fact about this node, or takes it back with `None`.
    pub fn set_attribute(&mut self, key: &str, value: Option<&str>) -> Result<(), AttributeError> {
        if !attribute_fits(key, value.unwrap_or_default()) {
            return Err(AttributeError::Length);
        }
        let own = &mut self.local_mut().record;
        let same = own.attributes.get(key).map(String::as_str) == value;
        let grows = value.is_some() && !own.attributes.contains_key(key);
        if same {
            return Ok(());
        }
        if grows && own.attributes.len() == ATTRIBUTES_MAX {
            return Err(AttributeError::TooMany);
        }
        match value {
            Some(value) => own.attributes.insert(key.to_owned(), value.to_owned()),
            None => own.attributes.remove(key),
        };
        own.version += 1;
        self.start_rumor(self.local);
        Ok(())
    }

    /// A host name's address as it is now: C nodes are told addresses, never names. True when the
    /// name had another one before, so that what is connected there is out of date.
    pub fn resolved(&mut self, host: &str, ip: IpAddr, now: Millis) -> bool {
        let before = self.resolved.insert(host.to_owned(), ip);
        if before == Some(ip) {
            return false;
        }
        let here = self.table.entries().filter(|(_, member)| member.record.addr.host == host);
        let slots: Vec<SlotId> = here.map(|(slot, _)| slot).collect();
        for slot in slots {
            self.event_of(slot, EventKind::Resolved { host: host.to_owned(), ip }, now);
        }
        self.c.changed(now);
        before.is_some()
    }
}
