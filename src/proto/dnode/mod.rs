//! DNODE: the frames between the nodes of a ring.
//!
//! A frame is an ASCII header (`   $2014$ <id> <type> <flags> <version> <same_dc> *<dlen> <data>
//! *<plen>\r\n`) and a body. This module knows headers ([`header`]), the extension field that
//! torc nodes put into `data` ([`ext`]), the body cipher ([`crypto`]) and the envelopes of control
//! messages ([`control`]); it knows nothing of connections, ids in flight, or what a body says.
//!
//! Source: `Netflix/dynomite` `src/dyn_dnode_msg.c`, as measured on the wire; the recorded frames
//! are in `tests/vectors/dnode-frames.json`.
//!
//! Rules towards C nodes that callers keep: never an empty body, never a type but 3, 4, 5 and 7,
//! never flag 1 unless both ends are configured for it, increasing ids on a connection, answers
//! in request order with id and `same_dc` copied.

pub mod control;
pub mod crypto;
pub mod ext;
pub mod header;

pub use ext::{Ext, Role};
pub use header::{Header, HeaderDecoder, HeaderError, HeaderLimits, put_header};

/// The version a C node writes, whatever it received.
pub const VERSION_C: u8 = 1;

/// The version that asks "are you torc?": a C node answers it with [`VERSION_C`].
pub const VERSION_TORC: u8 = 2;

/// The one-byte `data` field of requests and responses.
pub const DATA_PLAIN: &[u8] = b"d";

/// The one-byte `data` field of gossip in the C format.
pub const DATA_GOSSIP: &[u8] = b"a";

/// Flags of a frame whose body is encrypted; the only flag ever sent.
pub const FLAG_ENCRYPTED: u8 = 1;

/// What a frame is. A number without a meaning here is kept, so that it can be counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MsgType {
    /// A request for the receiver's own datastore.
    Req,
    /// A request the receiver runs on every rack of its own datacenter.
    ReqForward,
    /// The answer to one `Req` or `ReqForward`.
    Res,
    /// Membership in the C format: one way, never answered.
    GossipSyn,
    /// Membership between torc nodes.
    TorcGossip,
    /// Scripts, cancellation and administration between torc nodes.
    TorcAdmin,
    /// Affinity events for the publisher of a datacenter.
    TorcFeed,
    /// Filter frames between datacenters.
    TorcFilter,
    /// Hint replay and repair.
    TorcRepair,
    /// Any other number.
    Other(u8),
}

impl MsgType {
    /// The number on the wire.
    pub const fn code(self) -> u8 {
        match self {
            MsgType::Req => 3,
            MsgType::ReqForward => 4,
            MsgType::Res => 5,
            MsgType::GossipSyn => 7,
            MsgType::TorcGossip => 32,
            MsgType::TorcAdmin => 33,
            MsgType::TorcFeed => 34,
            MsgType::TorcFilter => 35,
            MsgType::TorcRepair => 36,
            MsgType::Other(code) => code,
        }
    }

    /// The meaning of a number.
    pub const fn from_code(code: u8) -> MsgType {
        match code {
            3 => MsgType::Req,
            4 => MsgType::ReqForward,
            5 => MsgType::Res,
            7 => MsgType::GossipSyn,
            32 => MsgType::TorcGossip,
            33 => MsgType::TorcAdmin,
            34 => MsgType::TorcFeed,
            35 => MsgType::TorcFilter,
            36 => MsgType::TorcRepair,
            other => MsgType::Other(other),
        }
    }

    /// True when a RESP or memcache parser finds the end of a plaintext body, because C nodes
    /// write a wrong `plen` on relayed frames.
    pub const fn has_parsed_body(self) -> bool {
        matches!(self, MsgType::Req | MsgType::ReqForward | MsgType::Res)
    }

    /// True for the types that only torc nodes speak, on control links.
    pub const fn is_control(self) -> bool {
        matches!(
            self,
            MsgType::TorcGossip
                | MsgType::TorcAdmin
                | MsgType::TorcFeed
                | MsgType::TorcFilter
                | MsgType::TorcRepair
        )
    }
}

#[cfg(test)]
pub(crate) mod tests;
