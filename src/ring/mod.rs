//! The token ring: who owns a token in every rack.
//!
//! A [`Topology`] is an immutable snapshot made from a peer table. The control plane builds a
//! new one for each change and swaps it; requests keep the one they were planned on.

mod bounds;
mod consistency;
mod continuum;
mod peer;
mod replicas;
mod shares;
mod topology;
mod votes;

pub use consistency::{Consistency, UnknownConsistency, quorum};
pub use continuum::{Continuum, Point};
pub use peer::{Peer, PeerId, PeerIdx, PeerRef, PeerState};
pub use replicas::ReplicaSet;
pub use shares::{arc_shares, even_layout};
pub use topology::{PEERS_MAX, RACKS_MAX, Rack, RemoteDc, Topology, TopologyError};
pub use votes::{Outcome, Rule, Votes};
