//! Peers as the control plane describes them, and as a snapshot shows them.

use std::fmt;

use crate::token::DynToken;

/// A peer's name inside this process: given once by the control plane and kept over rebuilds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PeerId(pub u32);

/// A peer's place in one snapshot; means nothing in another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PeerIdx(pub u32);

/// What a peer claims to be. Whether it answers is another matter: see [`Peer::reachable`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PeerState {
    /// Starting.
    Init,
    /// Set by an operator: serves nothing.
    Standby,
    /// Set by an operator: serves no reads.
    WritesOnly,
    /// Set by an operator: on its way back from `WritesOnly`.
    Resuming,
    /// Serving.
    Normal,
    /// Has given up its arc.
    Leaving,
    /// Serving, while its datastore is still being filled.
    Joining,
    /// Held down by somebody; the arc stays its own.
    Down,
    /// Set by an operator: forget what was known about it.
    Reset,
    /// A state we do not know.
    Unknown,
}

impl PeerState {
    /// True for states in which requests may be sent: `Normal` and `Joining`.
    #[inline]
    pub fn routable(self) -> bool {
        matches!(self, PeerState::Normal | PeerState::Joining)
    }

    /// True while the peer owns its arc: always, except when it is leaving.
    pub fn owns_arc(self) -> bool {
        self != PeerState::Leaving
    }

    /// The name in the reference's spelling.
    pub fn name(self) -> &'static str {
        match self {
            PeerState::Init => "INIT",
            PeerState::Standby => "STANDBY",
            PeerState::WritesOnly => "WRITES_ONLY",
            PeerState::Resuming => "RESUMING",
            PeerState::Normal => "NORMAL",
            PeerState::Leaving => "LEAVING",
            PeerState::Joining => "JOINING",
            PeerState::Down => "DOWN",
            PeerState::Reset => "RESET",
            PeerState::Unknown => "UNKNOWN",
        }
    }
}

impl fmt::Display for PeerState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// One row of the peer table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peer {
    /// Stable name of this peer in this process.
    pub id: PeerId,
    /// Name for operators.
    pub name: String,
    /// Advertised host.
    pub host: String,
    /// Advertised peer port.
    pub port: u16,
    /// Datacenter.
    pub dc: String,
    /// Rack, a name inside the datacenter.
    pub rack: String,
    /// Ring tokens; the first one names the slot the peer holds.
    pub tokens: Vec<DynToken>,
    /// Claimed state.
    pub state: PeerState,
    /// False once the failure detector judges it down.
    pub reachable: bool,
    /// True for this node.
    pub is_local: bool,
    /// True once proven to be a torc node; others are taken for C nodes.
    pub is_torc: bool,
}

impl Peer {
    /// True when requests may be planned for this peer.
    pub fn routable(&self) -> bool {
        self.state.routable() && self.reachable
    }
}

/// A peer as a snapshot shows it; the fields are those of [`Peer`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeerRef<'a> {
    /// Its place in the snapshot.
    pub idx: PeerIdx,
    /// Stable name of this peer in this process.
    pub id: PeerId,
    /// Name for operators.
    pub name: &'a str,
    /// Advertised host.
    pub host: &'a str,
    /// Advertised peer port.
    pub port: u16,
    /// Datacenter.
    pub dc: &'a str,
    /// Rack, a name inside the datacenter.
    pub rack: &'a str,
    /// The rack's place in the snapshot.
    pub rack_index: usize,
    /// Ring tokens; the first one names the slot the peer holds.
    pub tokens: &'a [DynToken],
    /// Claimed state.
    pub state: PeerState,
    /// False once the failure detector judges it down.
    pub reachable: bool,
    /// True for this node.
    pub is_local: bool,
    /// True once proven to be a torc node; others are taken for C nodes.
    pub is_torc: bool,
}

impl PeerRef<'_> {
    /// True when requests may be planned for this peer.
    #[inline]
    pub fn routable(&self) -> bool {
        self.state.routable() && self.reachable
    }

    /// True while its datastore may lack data, so that it should answer reads last.
    #[inline]
    pub fn is_joining(&self) -> bool {
        self.state == PeerState::Joining
    }
}
