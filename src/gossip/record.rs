//! What is said about the holder of a slot, and which of two sayings is newer.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::fmt;

use super::identity::{Addr, Slot};
use crate::ring::PeerState;
use crate::token::DynToken;

/// What a holder says about itself, or an operator about it. Whether it answers is another
/// matter: being down is never part of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Claim {
    /// Serves nothing, by order of an operator.
    Standby,
    /// Serves no reads, by order of an operator.
    WritesOnly,
    /// Serves no reads yet, by order of an operator.
    Resuming,
    /// Serves.
    Normal,
    /// Serves, while its datastore is being filled.
    Joining,
    /// Stops, and will be back; keeps its arcs.
    Away,
    /// Left for good and gave up its arcs.
    Left,
    /// Removed for good by an operator.
    Forgotten,
    /// Says something this version does not know.
    Unknown,
}

impl Claim {
    /// The number on the wire: the reference's where it has one.
    pub(super) fn code(self) -> u32 {
        match self {
            Claim::Standby => 1,
            Claim::WritesOnly => 2,
            Claim::Resuming => 3,
            Claim::Normal => 4,
            Claim::Left => 6,
            Claim::Joining => 7,
            Claim::Forgotten => 9,
            Claim::Away => 10,
            Claim::Unknown => 12,
        }
    }

    pub(super) fn from_code(code: u32) -> Claim {
        match code {
            1 => Claim::Standby,
            2 => Claim::WritesOnly,
            3 => Claim::Resuming,
            4 => Claim::Normal,
            6 => Claim::Left,
            7 => Claim::Joining,
            9 => Claim::Forgotten,
            10 => Claim::Away,
            _ => Claim::Unknown,
        }
    }

    /// True when the slot has no holder any more; such a record is a tombstone.
    pub fn is_gone(self) -> bool {
        matches!(self, Claim::Left | Claim::Forgotten)
    }

    /// The state the ring is built with. Who is away keeps its arcs and is judged down.
    pub fn peer_state(self) -> PeerState {
        match self {
            Claim::Standby => PeerState::Standby,
            Claim::WritesOnly => PeerState::WritesOnly,
            Claim::Resuming => PeerState::Resuming,
            Claim::Normal | Claim::Away => PeerState::Normal,
            Claim::Joining => PeerState::Joining,
            Claim::Left | Claim::Forgotten => PeerState::Leaving,
            Claim::Unknown => PeerState::Unknown,
        }
    }
}

impl fmt::Display for Claim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Claim::Standby => "STANDBY",
            Claim::WritesOnly => "WRITES_ONLY",
            Claim::Resuming => "RESUMING",
            Claim::Normal => "NORMAL",
            Claim::Joining => "JOINING",
            Claim::Away => "AWAY",
            Claim::Left => "LEFT",
            Claim::Forgotten => "FORGOTTEN",
            Claim::Unknown => "UNKNOWN",
        })
    }
}

/// What kind of node holds a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// Not proven yet; treated as a C node by everything but gossip's first question.
    Unknown,
    /// A node of the reference: it gossips in its own format or not at all.
    C,
    /// A torc node.
    Torc,
}

/// Everything that is said about one slot.
///
/// Records of torc nodes are written by the holder alone: a new process takes a higher
/// `generation`, each change a higher `version`. Nobody speaks for a C node, so its record is
/// written by whoever learns something; its version is the Unix time in milliseconds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// The slot.
    pub slot: Slot,
    /// All tokens; the first one is the slot's.
    pub tokens: Vec<DynToken>,
    /// Where the holder listens for peers.
    pub addr: Addr,
    /// The holder's name for operators.
    pub name: String,
    /// What kind of node it is.
    pub kind: Kind,
    /// What it says it does.
    pub claim: Claim,
    /// Which process holds the slot; 0 when no torc node ever did.
    pub generation: u64,
    /// Which saying of that process.
    pub version: u64,
    /// Unix time of a tombstone, in milliseconds; else 0.
    pub gone_at_ms: u64,
    /// Small facts of other modules, by name.
    pub attributes: BTreeMap<String, String>,
}

impl Record {
    /// Order in time; the address settles what two nodes say of a slot in the same moment, so
    /// that everybody keeps the same one.
    pub fn age_order(&self, other: &Record) -> Ordering {
        (self.generation, self.version)
            .cmp(&(other.generation, other.version))
            .then_with(|| (self.kind, self.claim).cmp(&(other.kind, other.claim)))
            .then_with(|| self.addr.cmp(&other.addr))
    }

    /// True when this record replaces `held`.
    pub fn is_newer_than(&self, held: &Record) -> bool {
        self.age_order(held) == Ordering::Greater
    }

    /// True when others may be told: a torc node said so itself, or the C node was met.
    pub fn is_shared(&self) -> bool {
        match self.kind {
            Kind::Torc => self.generation > 0 || self.claim.is_gone(),
            Kind::C => true,
            Kind::Unknown => self.claim.is_gone(),
        }
    }

    /// Marks a change made on behalf of a holder that cannot speak for itself.
    pub(super) fn bump(&mut self, unix_ms: u64) {
        let by_clock = match self.kind {
            Kind::Torc => 0,
            Kind::C | Kind::Unknown => unix_ms,
        };
        self.version = (self.version + 1).max(by_clock);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn claims_keep_their_numbers() {
        for code in 0..20 {
            let claim = Claim::from_code(code);
            assert!(claim == Claim::Unknown || claim.code() == code);
        }
        assert_eq!(Claim::from_code(Claim::Unknown.code()), Claim::Unknown);
    }
}
