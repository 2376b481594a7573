//! What the machine reports: every change with its cause, what to send, and counts.

use std::fmt;
use std::net::IpAddr;

use super::identity::{Addr, Slot};
use super::record::Claim;
use super::time::Millis;
use crate::proto::dnode::MsgType;
use crate::ring::PeerId;

/// Bytes for another node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transmit {
    /// Where to.
    pub to: Addr,
    /// The member that is addressed, when it is one.
    pub peer: Option<PeerId>,
    /// `TorcGossip`: `payload` is the message of a control frame. The sender proves first that
    /// the other side is torc, else it drops the message and says [`super::Membership::proven`].
    /// `GossipSyn`: `payload` is the body of a type 7 frame with data `a`, for a plaintext
    /// connection, to be written in one piece.
    pub kind: MsgType,
    /// True when the other node is of the same datacenter.
    pub same_dc: bool,
    /// The bytes.
    pub payload: Vec<u8>,
}

/// One change of the membership.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// When.
    pub at: Millis,
    /// Whose slot; the own one for what concerns this node.
    pub slot: Slot,
    /// What happened.
    pub kind: EventKind,
}

/// What happened to a slot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EventKind {
    /// Its holder became known.
    Added {
        /// Where it listens.
        addr: Addr,
        /// Who said so.
        source: Source,
    },
    /// It has no holder any more.
    Removed {
        /// True when an operator removed it, false when the holder left.
        forgotten: bool,
    },
    /// Its holder answers.
    Up,
    /// Its holder is judged down by this node.
    Down {
        /// Why.
        cause: DownCause,
    },
    /// Its holder claims another state.
    State {
        /// The state before.
        from: Claim,
        /// The state now.
        to: Claim,
    },
    /// It has another holder, or the same at another address.
    Moved {
        /// The address before.
        from: Addr,
        /// The address now.
        to: Addr,
        /// Who said so.
        source: Source,
    },
    /// The name of its holder's host means this address now.
    Resolved {
        /// The name.
        host: String,
        /// The address.
        ip: IpAddr,
    },
    /// Its holder was started again.
    Restarted,
    /// Its tokens other than the first one changed.
    Tokens,
    /// Its holder was proven to be torc, or not to be.
    Kind {
        /// True for a torc node.
        torc: bool,
    },
    /// Others hear its holder while our connection is down: the backoff is worth cutting short.
    Retry,
    /// This node's own slot is held by a newer process elsewhere: this node must not serve.
    Duplicate {
        /// Where the holder listens.
        holder: Addr,
    },
    /// An operator changed something of this node that others are not told.
    Ordered {
        /// What it is now.
        what: String,
    },
    /// This node was forgotten or replaced by mistake, and took its slot back.
    Rejoined,
    /// Somebody claims another address for the slot, and was not believed.
    Conflict {
        /// The address claimed.
        addr: Addr,
        /// Who said so.
        source: Source,
    },
    /// Messages were refused; reported at most every ten seconds.
    Refused {
        /// Who sent them, as far as it is known.
        from: String,
        /// Why.
        why: String,
    },
}

/// Where a saying comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// The seed list or a provider.
    Seeds,
    /// Another torc node.
    Gossip,
    /// A node of the reference.
    CGossip,
    /// An operator.
    Operator,
}

/// Why this node judges a peer down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DownCause {
    /// No sign of life for too long.
    Silent,
    /// Nobody listens at its address.
    Refused,
    /// This node cannot connect to it.
    Unreachable,
    /// It said that it stops.
    Away,
    /// Its address answers for another slot now.
    AddressTaken,
    /// By order of an operator.
    Operator,
}

/// How often things happened since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Rounds between torc nodes.
    pub rounds: u64,
    /// Messages sent to torc nodes.
    pub sent: u64,
    /// Bytes of them.
    pub sent_bytes: u64,
    /// Messages of torc nodes that were used.
    pub received: u64,
    /// Bytes of them.
    pub received_bytes: u64,
    /// Messages refused: another cluster, version or secret.
    pub refused: u64,
    /// Messages, records and seeds that were malformed or beyond a limit.
    pub malformed: u64,
    /// Records taken over.
    pub merged: u64,
    /// Tables sent to C nodes.
    pub c_sent: u64,
    /// Tables received from C nodes.
    pub c_received: u64,
    /// Pauses of this node itself, after which nobody was judged.
    pub pauses: u64,
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Source::Seeds => "the seed list",
            Source::Gossip => "gossip",
            Source::CGossip => "a C node's gossip",
            Source::Operator => "an operator",
        })
    }
}

impl fmt::Display for DownCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            DownCause::Silent => "no sign of life",
            DownCause::Refused => "nobody listens at its address",
            DownCause::Unreachable => "no connection from here",
            DownCause::Away => "it said that it stops",
            DownCause::AddressTaken => "its address answers for another slot",
            DownCause::Operator => "set down by an operator",
        })
    }
}

impl EventKind {
    /// A word for the kind of change, as metrics count it.
    pub fn label(&self) -> &'static str {
        match self {
            EventKind::Added { .. } => "added",
            EventKind::Removed { .. } => "removed",
            EventKind::Up => "up",
            EventKind::Down { .. } => "down",
            EventKind::State { .. } => "state",
            EventKind::Moved { .. } => "moved",
            EventKind::Resolved { .. } => "resolved",
            EventKind::Restarted => "restarted",
            EventKind::Tokens => "tokens",
            EventKind::Kind { .. } => "kind",
            EventKind::Retry => "retry",
            EventKind::Duplicate { .. } => "duplicate",
            EventKind::Ordered { .. } => "ordered",
            EventKind::Rejoined => "rejoined",
            EventKind::Conflict { .. } => "conflict",
            EventKind::Refused { .. } => "refused",
        }
    }

    /// Why, or who said so; [`fmt::Display`] tells what happened.
    pub fn cause(&self) -> String {
        match self {
            EventKind::Added { source, .. }
            | EventKind::Moved { source, .. }
            | EventKind::Conflict { source, .. } => format!("told by {source}"),
            EventKind::Removed { forgotten: true } => "forgotten by an operator".to_owned(),
            EventKind::Removed { forgotten: false } => "it said that it leaves".to_owned(),
            EventKind::Down { cause } => cause.to_string(),
            EventKind::Up => "it answers".to_owned(),
            EventKind::State { .. } | EventKind::Tokens => "it said so".to_owned(),
            EventKind::Resolved { .. } => "its name was looked up".to_owned(),
            EventKind::Restarted => "a newer generation was heard".to_owned(),
            EventKind::Kind { .. } => "its answer to a request of version 2".to_owned(),
            EventKind::Retry => "others hear it, our connection is down".to_owned(),
            EventKind::Duplicate { .. } => "a newer generation was heard elsewhere".to_owned(),
            EventKind::Ordered { .. } => "by order of an operator".to_owned(),
            EventKind::Rejoined => "others held this node for gone".to_owned(),
            EventKind::Refused { why, .. } => why.clone(),
        }
    }
}

/// What happened, without time, slot and cause.
impl fmt::Display for EventKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            EventKind::Added { addr, .. } => write!(f, "added at {addr}"),
            EventKind::Removed { .. } => f.write_str("removed"),
            EventKind::Up => f.write_str("up"),
            EventKind::Down { .. } => f.write_str("down"),
            EventKind::State { from, to } => write!(f, "{from} -> {to}"),
            EventKind::Moved { from, to, .. } => write!(f, "moved from {from} to {to}"),
            EventKind::Resolved { host, ip } => write!(f, "{host} is at {ip}"),
            EventKind::Restarted => f.write_str("restarted"),
            EventKind::Tokens => f.write_str("changed its tokens"),
            EventKind::Kind { torc: true } => f.write_str("is a torc node"),
            EventKind::Kind { torc: false } => f.write_str("is a C node"),
            EventKind::Retry => f.write_str("to be connected again"),
            EventKind::Duplicate { holder } => write!(f, "our slot is held at {holder}"),
            EventKind::Ordered { what } => f.write_str(what),
            EventKind::Rejoined => f.write_str("took its slot back"),
            EventKind::Conflict { addr, .. } => write!(f, "not believed to be at {addr}"),
            EventKind::Refused { from, .. } => write!(f, "refused a message of {from}"),
        }
    }
}
