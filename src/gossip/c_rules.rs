//! What C nodes are told, and what is believed of what they tell.
//!
//! A C node takes over any address it is told for a slot, whatever the time, adds whatever it
//! does not know, never removes, and has no notion of ports, further tokens or clusters. So it is
//! told only what is certain, and what it says is never stronger than what torc nodes know.

use std::net::IpAddr;

use super::c_format::{C_NEVER_HEARD, CEntry, CRecord, CState, read_body, write_bodies};
use super::event::{Source, Transmit};
use super::identity::{Addr, SlotId};
use super::member::{Member, Reach};
use super::membership::Membership;
use super::record::{Claim, Kind};
use super::settings::Seed;
use super::time::Millis;
use crate::proto::dnode::MsgType;
use crate::token::DynToken;

/// The peer port that C nodes keep as it is.
const C_PORT: u16 = 8101;

/// The peer port that C nodes assume when their own is not [`C_PORT`].
const C_PORT_OTHER: u16 = 8103;

/// C nodes hear of a change after this time at latest, and no more often.
const CHANGE_DELAY_MS: u64 = 1000;

/// When C nodes are told the table.
#[derive(Debug)]
pub(super) struct CRounds {
    last: Millis,
    next: Millis,
}

impl CRounds {
    pub(super) fn new(now: Millis) -> CRounds {
        CRounds { last: now, next: now.plus(CHANGE_DELAY_MS) }
    }

    pub(super) fn changed(&mut self, now: Millis) {
        let soon = self.last.plus(CHANGE_DELAY_MS).max(now);
        self.next = self.next.min(soon);
    }
}

impl Membership {
    /// The body of a type 7 frame arrived. It is not authenticated in any way.
    pub fn handle_c_gossip(&mut self, body: &[u8], now: Millis) {
        if !self.settings.c.accept || self.duplicate.is_some() {
            return;
        }
        self.counters.c_received += 1;
        for record in read_body(body) {
            match record {
                Some(record) => self.hear_c(&record, now),
                None => self.counters.malformed += 1,
            }
        }
    }

    fn hear_c(&mut self, heard: &CRecord, now: Millis) {
        let host_is_wildcard = matches!(heard.host.as_str(), "0.0.0.0" | "::" | "*");
        if host_is_wildcard {
            self.counters.malformed += 1;
            return;
        }
        let Some(slot) = self.c_slot(heard) else {
            return self.hear_c_stranger(heard, now);
        };
        let addr = Addr::new(&heard.host, self.c_port());
        let Some(member) = self.table.member_mut(slot) else {
            return;
        };
        let known_host = &member.record.addr.host;
        let resolved = self.resolved.get(known_host).map(IpAddr::to_string);
        let same_host = *known_host == heard.host || resolved.as_ref() == Some(&heard.host);
        let speaks_for_itself =
            member.local || (member.record.kind == Kind::Torc && member.record.generation > 0);
        let newer = heard.timestamp > member.c_heard;
        if same_host {
            if newer {
                member.c_heard = heard.timestamp;
                if !speaks_for_itself {
                    self.hear_c_state(slot, heard.state, now);
                }
            }
            return;
        }
        let answers = member.reach == Reach::Up;
        if speaks_for_itself || answers || !newer || heard.timestamp <= C_NEVER_HEARD {
            return self.conflict(slot, &addr, Source::CGossip, now);
        }
        member.c_heard = heard.timestamp;
        self.move_unanswered(slot, addr, Source::CGossip, now);
    }

    /// A state that a C node claims. DOWN is somebody's judgement and no claim.
    fn hear_c_state(&mut self, slot: SlotId, state: u32, now: Millis) {
        let claim = match state {
            1 => Claim::Standby,
            2 => Claim::WritesOnly,
            3 => Claim::Resuming,
            4 => Claim::Normal,
            7 => Claim::Joining,
            0 | 8 | 11 => return,
            _ => Claim::Unknown,
        };
        let unix_ms = self.unix_ms(now);
        let Some(member) = self.table.member_mut(slot) else {
            return;
        };
        let held = member.record.claim;
        if held == claim {
            return;
        }
        member.record.claim = claim;
        member.record.bump(unix_ms);
        self.start_rumor(slot);
        self.event_of(slot, super::EventKind::State { from: held, to: claim }, now);
        self.changed(now);
    }

    /// A slot nobody told us of. One that was removed comes back only with a newer saying.
    fn hear_c_stranger(&mut self, heard: &CRecord, now: Millis) {
        let token = DynToken::from_u32(heard.token);
        let addr = Addr::new(&heard.host, self.c_port());
        let seed = Seed {
            dc: heard.dc.clone(),
            rack: heard.rack.clone(),
            tokens: vec![token],
            name: addr.to_string(),
            addr,
        };
        let slot = seed.slot().id();
        if let Some(tombstone) = self.table.tombstone(slot)
            && heard.timestamp <= tombstone.gone_at_ms / 1000
        {
            return;
        }
        self.add_unmet(&seed, Source::CGossip, now);
        if let Some(member) = self.table.member_mut(slot) {
            member.c_heard = heard.timestamp;
        }
        self.hear_c_state(slot, heard.state, now);
    }

    /// The slot a C record means: the format keeps only the low word of the first token.
    fn c_slot(&self, heard: &CRecord) -> Option<SlotId> {
        let means = |member: &Member| {
            let slot = &member.record.slot;
            slot.dc == heard.dc && slot.rack == heard.rack && slot.token.low_word() == heard.token
        };
        let mut found = self.table.entries().filter(|(_, member)| means(member));
        found.next().map(|(slot, _)| slot)
    }

    /// When C nodes are told next. Nothing is said before this node is ready to serve, because
    /// they route to whoever they hear of.
    pub(super) fn c_round_at(&self) -> Millis {
        let ready = self.local().record.claim == Claim::Normal && self.duplicate.is_none();
        if self.settings.c.send && ready { self.c.next } else { Millis::NEVER }
    }

    /// Sends the table to every C node that answers, except over links that carry encrypted
    /// traffic.
    pub(super) fn c_round(&mut self, now: Millis) {
        self.c.last = now;
        self.c.next = now.plus(self.settings.c.interval_ms.max(CHANGE_DELAY_MS));
        let own = self.local().record.slot.clone();
        let listeners: Vec<_> = self
            .table
            .members()
            .filter(|m| m.record.kind == Kind::C && m.reach == Reach::Up)
            .map(|m| (m.id, m.record.addr.clone(), m.record.slot.clone()))
            .filter(|(_, _, slot)| {
                let same_dc = slot.dc == own.dc;
                let secure = self.settings.c.secure;
                !secure.encrypts(same_dc, same_dc && slot.rack == own.rack)
            })
            .collect();
        if listeners.is_empty() {
            return;
        }
        let bodies = write_bodies(&self.c_entries(now));
        for (id, to, slot) in listeners {
            for body in &bodies {
                self.counters.c_sent += 1;
                self.transmit(Transmit {
                    to: to.clone(),
                    peer: Some(id),
                    kind: MsgType::GossipSyn,
                    same_dc: slot.dc == own.dc,
                    payload: body.clone(),
                });
            }
        }
    }

    /// What C nodes may be told; this node comes first.
    fn c_entries(&mut self, now: Millis) -> Vec<CEntry> {
        let unix_s = self.unix_ms(now) / 1000;
        let port = self.c_port();
        let mut entries: Vec<CEntry> = Vec::new();
        let resolved = &self.resolved;
        for (_, member) in self.table.entries_mut() {
            let host = &member.record.addr.host;
            let ip = host.parse().ok().or_else(|| resolved.get(host).copied());
            let (Some(IpAddr::V4(ip)), Some(state)) = (ip, c_state(member)) else {
                continue;
            };
            if member.record.addr.port != port || !member.is_certain() {
                continue;
            }
            let heard = member
                .detector
                .last()
                .map_or(0, |at| unix_s.saturating_sub(now.since(at).div_ceil(1000)));
            let seen = if member.local { unix_s } else { heard };
            member.c_told = member.c_told.max(member.c_heard).max(seen);
            let slot = &member.record.slot;
            let entry = CEntry {
                dc: slot.dc.clone(),
                rack: slot.rack.clone(),
                token: slot.token.low_word(),
                timestamp: member.c_told,
                state,
                ip,
            };
            // Two slots that look the same in this format would take each other's place.
            let place = |e: &CEntry| (e.dc.clone(), e.rack.clone(), e.token);
            match entries.iter().any(|e| place(e) == place(&entry)) {
                true => {}
                false if member.local => entries.insert(0, entry),
                false => entries.push(entry),
            }
        }
        entries
    }

    /// The port C nodes take for granted.
    fn c_port(&self) -> u16 {
        match self.local().record.addr.port {
            C_PORT => C_PORT,
            _ => C_PORT_OTHER,
        }
    }
}

/// How a member is shown to C nodes; `None` hides it.
fn c_state(member: &Member) -> Option<CState> {
    let torc = member.record.kind == Kind::Torc;
    match (member.record.claim, member.reach) {
        // They would route to it at once.
        (Claim::Joining, _) if torc => None,
        (Claim::Left | Claim::Forgotten, _) => None,
        (_, Reach::Down(_)) => Some(CState::Down),
        (Claim::Joining, Reach::Up | Reach::Unreached) => Some(CState::Joining),
        (
            Claim::Normal
            | Claim::Standby
            | Claim::WritesOnly
            | Claim::Resuming
            | Claim::Away
            | Claim::Unknown,
            Reach::Up | Reach::Unreached,
        ) => Some(CState::Normal),
    }
}
