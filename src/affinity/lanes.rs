//! The lanes of one domain: which datacenter each is, and what its answer is worth now.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

/// A lane is stale after this long without a word from its producer: three heartbeats.
pub const STALE_AFTER_MS_DEFAULT: u64 = 30_000;

/// What is known of one key or block in one datacenter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Holding {
    /// It is there: exact local knowledge.
    Yes,
    /// Its filter says so; wrong once in ten thousand absent keys.
    Maybe,
    /// It is not there, up to the delay of publication.
    No,
    /// Nothing can be said: the lane is not ready, or stale.
    Unknown,
}

impl Holding {
    /// The word clients see.
    pub fn word(self) -> &'static str {
        match self {
            Holding::Yes => "yes",
            Holding::Maybe => "maybe",
            Holding::No => "no",
            Holding::Unknown => "unknown",
        }
    }
}

/// What is to be told of a lane besides its age.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LaneNote {
    /// What it waits for or does, in words.
    pub state: String,
    /// The node it is sent by.
    pub from: String,
    /// The takeover it belongs to.
    pub incarnation: u64,
    /// The last change it has.
    pub sequence: u64,
    /// Whole filters installed.
    pub snapshots: u64,
    /// Changes applied.
    pub changes: u64,
    /// Times it had to begin anew because changes were missed.
    pub gaps: u64,
}

/// One lane.
#[derive(Debug)]
pub struct Lane {
    /// The datacenter's name.
    pub dc: String,
    /// When its producer was last heard, plus one so that 0 is never.
    heard: AtomicU64,
    /// The same, even if it said that it does not know everything.
    hinted: AtomicU64,
    note: Mutex<LaneNote>,
}

impl Lane {
    /// A lane that was never heard.
    pub fn new(dc: impl Into<String>) -> Lane {
        let (heard, hinted) = (AtomicU64::new(0), AtomicU64::new(0));
        Lane { dc: dc.into(), heard, hinted, note: Mutex::default() }
    }

    /// Its producer said something: a snapshot, a delta, a heartbeat.
    pub fn heard(&self, now_ms: u64) {
        self.heard.store(now_ms + 1, Ordering::Relaxed);
        self.hinted.store(now_ms + 1, Ordering::Relaxed);
    }

    /// Its producer says that it does not know everything: what the lane names is there, and more
    /// may be.
    pub fn hinted(&self, now_ms: u64) {
        self.heard.store(0, Ordering::Relaxed);
        self.hinted.store(now_ms + 1, Ordering::Relaxed);
    }

    /// Its producer is gone.
    pub fn unheard(&self) {
        self.heard.store(0, Ordering::Relaxed);
        self.hinted.store(0, Ordering::Relaxed);
    }

    /// What is to be told of it.
    pub fn note(&self) -> LaneNote {
        self.note.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Changes what is to be told of it.
    pub fn set_note(&self, note: LaneNote) {
        *self.note.lock().unwrap_or_else(PoisonError::into_inner) = note;
    }

    /// Heard when `other` was: the same lane of an earlier layout.
    pub fn heard_like(&self, other: &Lane) {
        self.heard.store(other.heard.load(Ordering::Relaxed), Ordering::Relaxed);
        self.hinted.store(other.hinted.load(Ordering::Relaxed), Ordering::Relaxed);
    }

    /// Milliseconds since its producer was heard.
    pub fn age_ms(&self, now_ms: u64) -> Option<u64> {
        age_ms(&self.heard, now_ms)
    }
}

fn age_ms(heard: &AtomicU64, now_ms: u64) -> Option<u64> {
    let heard = heard.load(Ordering::Relaxed);
    (heard != 0).then(|| (now_ms + 1).saturating_sub(heard))
}

/// The lanes of one domain; lane 0 is the own datacenter.
#[derive(Debug)]
pub struct Lanes {
    lanes: Vec<Lane>,
    stale_after_ms: u64,
}

impl Lanes {
    /// Lanes in order, the own datacenter first.
    pub fn new(dcs: impl IntoIterator<Item = String>, stale_after_ms: u64) -> Lanes {
        Lanes { lanes: dcs.into_iter().map(Lane::new).collect(), stale_after_ms }
    }

    /// One lane.
    pub fn get(&self, lane: u8) -> Option<&Lane> {
        self.lanes.get(usize::from(lane))
    }

    /// All lanes with their numbers.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (u8, &Lane)> {
        self.lanes.iter().enumerate().map(|(number, lane)| (number as u8, lane))
    }

    /// Bits of all lanes.
    pub fn all(&self) -> u16 {
        ((1u32 << self.lanes.len()) - 1) as u16
    }

    /// Of the `ready` lanes, those heard recently enough to be believed.
    pub fn believed(&self, ready: u16, now_ms: u64) -> u16 {
        self.fresh(ready, now_ms, |lane| &lane.heard)
    }

    /// Of the `ready` lanes, those that are right about what they name, though perhaps not about
    /// what they do not.
    pub fn hinting(&self, ready: u16, now_ms: u64) -> u16 {
        self.fresh(ready, now_ms, |lane| &lane.hinted)
    }

    fn fresh(&self, ready: u16, now_ms: u64, heard: impl Fn(&Lane) -> &AtomicU64) -> u16 {
        let fresh =
            |lane: &Lane| age_ms(heard(lane), now_ms).is_some_and(|age| age <= self.stale_after_ms);
        self.iter()
            .filter(|(number, lane)| ready & (1 << number) != 0 && fresh(lane))
            .fold(0, |mask, (number, _)| mask | 1 << number)
    }
}

/// What a lane's bit says, given the lanes that are believed.
pub fn holding(lane: u8, mask: u16, believed: u16) -> Holding {
    let bit = 1 << lane;
    match (believed & bit != 0, mask & bit != 0) {
        (false, _) => Holding::Unknown,
        (true, true) => Holding::Maybe,
        (true, false) => Holding::No,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lane_is_believed_while_ready_and_fresh() {
        let lanes = Lanes::new(["a", "b", "c"].map(String::from), 30);
        assert_eq!(lanes.believed(0b111, 0), 0);
        lanes.get(0).unwrap().heard(0);
        lanes.get(1).unwrap().heard(10);
        assert_eq!(lanes.believed(0b111, 30), 0b011);
        assert_eq!(lanes.believed(0b111, 31), 0b010);
        assert_eq!(lanes.believed(0b101, 31), 0);
        assert_eq!(lanes.get(2).unwrap().age_ms(99), None);
        // A producer that does not know everything is right about what it names.
        assert_eq!(lanes.hinting(0b111, 31), 0b010);
        lanes.get(1).unwrap().hinted(31);
        assert_eq!((lanes.believed(0b111, 31), lanes.hinting(0b111, 61)), (0, 0b010));
        assert_eq!(lanes.hinting(0b111, 62), 0);
        lanes.get(1).unwrap().heard(31);
        lanes.get(1).unwrap().unheard();
        assert_eq!(lanes.hinting(0b111, 31), 0);
        assert_eq!(lanes.all(), 0b111);
    }

    #[test]
    fn a_bit_is_worth_what_its_lane_is() {
        assert_eq!(holding(1, 0b10, 0b10), Holding::Maybe);
        assert_eq!(holding(1, 0b01, 0b10), Holding::No);
        assert_eq!(holding(1, 0b10, 0b01), Holding::Unknown);
    }
}
