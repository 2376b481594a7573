//! One slot's holder as this node sees it, and the verdict on whether it lives.

use super::detector::{Detector, DetectorSettings};
use super::event::DownCause;
use super::message::Heartbeat;
use super::record::{Claim, Kind, Record};
use super::time::Millis;
use crate::ring::{Peer, PeerId};

/// A refused connection counts when no sign of life came for so long.
const REFUSED_AFTER_MS: u64 = 1000;

/// A peer this node cannot connect to for so long is down for it, whoever else hears it.
const UNREACHABLE_AFTER_MS: u64 = 3000;

/// This node's judgement of a peer. It is never told to other torc nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// Known by name only; it is planned for, and counts as an error until it answers.
    Unreached,
    /// Alive.
    Up,
    /// Judged down.
    Down(DownCause),
}

/// The state of this node's connections to a peer, all workers together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Link {
    /// At least one is open.
    Open,
    /// The last one was lost, or the peer does not answer attempts.
    Lost,
    /// The peer's host says that nobody listens.
    Refused,
}

/// The holder of a slot.
#[derive(Clone, Debug)]
pub struct Member {
    pub(super) id: PeerId,
    pub(super) local: bool,
    pub(super) record: Record,
    pub(super) reach: Reach,
    pub(super) since: Millis,
    /// It stands in the seed list.
    pub(super) seed: bool,
    pub(super) detector: Detector,
    /// The newest heartbeat of the present generation.
    pub(super) heartbeat: u64,
    /// When it arrived, dated back by its age.
    pub(super) heartbeat_at: Millis,
    /// Connections are down since.
    pub(super) link_lost: Option<Millis>,
    pub(super) link_refused: bool,
    pub(super) forced_down: bool,
    /// A newer process of another slot listens at its address.
    pub(super) address_taken: bool,
    /// When the caller was last asked to connect again.
    pub(super) retried: Millis,
    /// The newest timestamp C nodes told of it, in seconds.
    pub(super) c_heard: u64,
    /// The newest timestamp C nodes were told of it, in seconds.
    pub(super) c_told: u64,
}

impl Member {
    pub(super) fn new(id: PeerId, record: Record, now: Millis) -> Member {
        Member {
            id,
            local: false,
            record,
            reach: Reach::Unreached,
            since: now,
            seed: false,
            detector: Detector::new(),
            heartbeat: 0,
            heartbeat_at: Millis(0),
            link_lost: None,
            link_refused: false,
            forced_down: false,
            address_taken: false,
            retried: Millis(0),
            c_heard: 0,
            c_told: 0,
        }
    }

    /// Its number in this process; given once to a slot and never reused.
    pub fn id(&self) -> PeerId {
        self.id
    }

    /// True for this node itself.
    pub fn is_local(&self) -> bool {
        self.local
    }

    /// What is said about it.
    pub fn record(&self) -> &Record {
        &self.record
    }

    /// Whether it lives, as this node judges.
    pub fn reach(&self) -> Reach {
        self.reach
    }

    /// Since when the judgement stands.
    pub fn since(&self) -> Millis {
        self.since
    }

    /// Its newest sign of life.
    pub fn last_heard(&self) -> Option<Millis> {
        self.detector.last()
    }

    /// True when it may be a torc node and is not this one: gossip goes there.
    pub(super) fn may_gossip(&self) -> bool {
        !self.local && self.record.kind != Kind::C
    }

    /// The row of the peer table the ring is built from.
    pub fn peer(&self) -> Peer {
        Peer {
            id: self.id,
            name: self.record.name.clone(),
            host: self.record.addr.host.clone(),
            port: self.record.addr.port,
            dc: self.record.slot.dc.clone(),
            rack: self.record.slot.rack.clone(),
            tokens: self.record.tokens.clone(),
            state: self.record.claim.peer_state(),
            reachable: !matches!(self.reach, Reach::Down(_)),
            is_local: self.local,
            is_torc: self.record.kind == Kind::Torc,
        }
    }

    /// The verdict at `now`.
    pub(super) fn judge(&self, settings: &DetectorSettings, now: Millis) -> Reach {
        if self.local {
            return Reach::Up;
        }
        if self.forced_down {
            return Reach::Down(DownCause::Operator);
        }
        if self.record.claim == Claim::Away {
            return Reach::Down(DownCause::Away);
        }
        if self.address_taken {
            return Reach::Down(DownCause::AddressTaken);
        }
        if now >= self.refused_at() {
            return Reach::Down(DownCause::Refused);
        }
        if now >= self.unreachable_at() {
            return Reach::Down(DownCause::Unreachable);
        }
        match self.detector.last() {
            None => Reach::Unreached,
            Some(_) if now >= self.detector.deadline(settings) => Reach::Down(DownCause::Silent),
            Some(_) => Reach::Up,
        }
    }

    /// When the verdict may turn to down without any news.
    pub(super) fn next_verdict(&self, settings: &DetectorSettings) -> Millis {
        if self.local || matches!(self.reach, Reach::Down(_)) {
            return Millis::NEVER;
        }
        let silent = self.detector.deadline(settings);
        silent.min(self.refused_at()).min(self.unreachable_at())
    }

    fn refused_at(&self) -> Millis {
        match self.link_lost {
            Some(lost) if self.link_refused => {
                let heard = self.detector.last().unwrap_or_default();
                lost.max(heard).plus(REFUSED_AFTER_MS)
            }
            Some(_) | None => Millis::NEVER,
        }
    }

    fn unreachable_at(&self) -> Millis {
        match self.link_lost {
            Some(lost) => lost.plus(UNREACHABLE_AFTER_MS),
            None => Millis::NEVER,
        }
    }

    /// Takes a heartbeat of the present generation; true when it is news.
    pub(super) fn beat(&mut self, beat: Heartbeat, now: Millis) -> bool {
        let Some(age_ms) = beat.age_ms else {
            return false;
        };
        if beat.beat <= self.heartbeat {
            return false;
        }
        self.heartbeat = beat.beat;
        self.heartbeat_at = now.minus(age_ms);
        self.detector.heard(self.heartbeat_at)
    }

    /// What others are told of its last sign of life. Only heartbeats are passed on: they have a
    /// number, so that no sign of life can be counted twice on its way.
    pub(super) fn heartbeat(&self, now: Millis) -> Heartbeat {
        Heartbeat {
            beat: self.heartbeat,
            age_ms: (self.heartbeat > 0).then(|| now.since(self.heartbeat_at)),
        }
    }

    /// A new process holds the slot: what was known of the old one's connections and habits
    /// says nothing any more.
    pub(super) fn renew(&mut self) {
        self.detector.restart();
        self.heartbeat = 0;
        self.link_lost = None;
        self.link_refused = false;
        self.address_taken = false;
    }
}
