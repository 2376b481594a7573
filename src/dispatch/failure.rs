//! Why a request could not be answered, and the one table of texts clients see.
//!
//! The texts are the reference's own (`spec/consistency.md` section 6): clients match on their
//! beginning. Behind them stands `(peer, rack, cause)`, for the person who reads the log.

use super::upstream::Target;
use crate::ring::PeerId;

/// Which side of the node an error comes from, and what it means for a retry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailureKind {
    /// The datastore has no usable connection; the request was not sent.
    StoreNotConnected,
    /// The datastore closed or stayed silent after the request was sent.
    StoreRefused,
    /// No connection to the peer; the request was not sent.
    PeerNotConnected,
    /// The peer closed or stayed silent after the request was sent.
    PeerRefused,
    /// Not enough replicas agree, or none can be asked.
    NoQuorum,
    /// The node's own state (standby, writes only, resuming) forbids the request.
    StateForbids,
    /// The keys of a command that must run in one place have several owners.
    KeysSpanNodes,
    /// The same for a script; the reference has its own words for it.
    ScriptSpansNodes,
    /// A peer of the reference cannot run the command in any form; nothing was sent.
    NotSupported,
    /// A limit of this node was hit.
    Limit,
}

/// The operator's half of an error: what exactly happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// There is no connection at the moment.
    NotConnected,
    /// Its state or the failure detector says that it is not to be asked.
    NotRoutable,
    /// The connection closed while the answer was awaited.
    Closed,
    /// The deadline passed.
    TimedOut,
    /// The answer could not be read.
    BadReply,
    /// It held the most when all buffers together became too large.
    OverLimit,
    /// The peer answered later requests but not this one.
    Skipped,
    /// Replicas gave different answers.
    Disagree,
    /// No replica of the key is routable.
    NoReplica,
    /// The peer runs the reference and cannot execute this command.
    NotSupportedByPeer,
    /// An admin set this node's state.
    OwnState,
    /// The keys belong to different nodes.
    SeveralOwners,
    /// As many clients wait or watch there as may.
    TooManyWaiting,
    /// The peer said so itself.
    Reported,
}

impl Cause {
    /// The words behind the peer and the rack.
    pub fn text(self) -> &'static str {
        match self {
            Cause::NotConnected => "not connected",
            Cause::NotRoutable => "not routable",
            Cause::Closed => "connection closed",
            Cause::TimedOut => "timed out",
            Cause::BadReply => "unreadable reply",
            Cause::OverLimit => "closed for limits.buffers_bytes_max",
            Cause::Skipped => "answer skipped",
            Cause::Disagree => "replicas disagree",
            Cause::NoReplica => "no routable replica",
            Cause::NotSupportedByPeer => "command not supported by this peer",
            Cause::OwnState => "state set by an operator",
            Cause::SeveralOwners => "use a hash tag to keep keys together",
            Cause::TooManyWaiting => "too many clients wait there",
            Cause::Reported => "reported by the peer",
        }
    }
}

/// One failed leg of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Failure {
    /// What the client is told.
    pub kind: FailureKind,
    /// What the operator is told.
    pub cause: Cause,
    /// The peer concerned; `None` is this node itself.
    pub peer: Option<PeerId>,
}

impl Failure {
    /// A failure without a peer.
    pub fn new(kind: FailureKind, cause: Cause) -> Failure {
        Failure { kind, cause, peer: None }
    }

    /// The same failure, of `peer`.
    pub fn at(self, peer: PeerId) -> Failure {
        Failure { peer: Some(peer), ..self }
    }

    /// The failure of a request whose bytes may have reached `target`: a write may or may not
    /// have been applied.
    pub fn sent(target: Target, cause: Cause) -> Failure {
        match target {
            Target::Store => Failure::new(FailureKind::StoreRefused, cause),
            Target::Peer(peer) => Failure::new(FailureKind::PeerRefused, cause).at(peer),
        }
    }

    /// The failure of a request no byte of which was sent to `target`.
    pub fn unsent(target: Target, cause: Cause) -> Failure {
        match target {
            Target::Store => Failure::new(FailureKind::StoreNotConnected, cause),
            Target::Peer(peer) => Failure::new(FailureKind::PeerNotConnected, cause).at(peer),
        }
    }

    /// The reference's text, which clients match on.
    pub fn text(self) -> &'static str {
        match self.kind {
            FailureKind::StoreNotConnected | FailureKind::StoreRefused => {
                "Storage: Datastore refused connection"
            }
            FailureKind::PeerNotConnected => "Peer: Peer Node is not connected",
            FailureKind::PeerRefused => "Peer: Peer Node refused connection",
            FailureKind::NoQuorum => "Dynomite: Failed to achieve Quorum",
            FailureKind::StateForbids => {
                "Dynomite: Dynomite's current state does not allow this request"
            }
            FailureKind::KeysSpanNodes => {
                "Dynomite: Keys of this command cannot span multiple nodes"
            }
            FailureKind::ScriptSpansNodes => {
                "Dynomite: Keys in the script cannot span multiple nodes"
            }
            FailureKind::NotSupported => "Peer: Peer Node does not know this command",
            FailureKind::Limit => "Dynomite: request exceeds a limit of this node",
        }
    }
}

/// The failure told by a reply that another node made in place of its datastore's answer;
/// `None` for every true answer, datastore errors included. Such a line counts as an error of
/// that replica, never as an answer two replicas can agree on.
pub fn from_reply(reply: &[u8]) -> Option<Failure> {
    if !matches!(reply.first(), Some(b'-' | b'S')) {
        return None;
    }
    let text = reply.strip_prefix(b"-ERR ").or_else(|| reply.strip_prefix(b"SERVER_ERROR "))?;
    let kind = if text.starts_with(b"Storage: ") {
        FailureKind::StoreRefused
    } else if text.starts_with(b"Peer: ") {
        FailureKind::PeerRefused
    } else if text.starts_with(b"Dynomite: Dynomite's current state") {
        FailureKind::StateForbids
    } else if text.starts_with(b"Dynomite: Failed to achieve") {
        FailureKind::NoQuorum
    } else {
        return None;
    };
    Some(Failure::new(kind, Cause::Reported))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_made_by_nodes_are_told_from_errors_of_datastores() {
        let kind = |reply: &[u8]| from_reply(reply).map(|f| f.kind);
        let storage = b"-ERR Storage: Datastore refused connection\r\n";
        assert_eq!(kind(storage), Some(FailureKind::StoreRefused));
        let peer = b"-ERR Peer: Peer Node is not connected (n2, r1, closed)\r\n";
        assert_eq!(kind(peer), Some(FailureKind::PeerRefused));
        let memcache = b"SERVER_ERROR Storage: Datastore refused connection\r\n";
        assert_eq!(kind(memcache), Some(FailureKind::StoreRefused));
        assert_eq!(kind(b"-WRONGTYPE Operation against a key\r\n"), None);
        assert_eq!(kind(b"-ERR syntax error\r\n"), None);
        assert_eq!(kind(b"SERVER_ERROR object too large for cache\r\n"), None);
        assert_eq!(kind(b"$7\r\n-ERR Pe\r\n"), None);
    }
}
