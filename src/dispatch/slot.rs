//! One client request in flight.

use super::failure::Failure;
use super::fragment::Parts;
use super::gather::{Gather, Parked};
use crate::proto::memcache::table::McCommand;
use crate::proto::resp::shape::Shape;

/// Who gets the answer of a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Owner {
    /// A client, in the order of its queue.
    Client(u32),
    /// Another slot, of which this is part number `part`.
    Slot { slot: u32, generation: u32, part: u32 },
    /// Nobody any more: the client left.
    Nobody,
}

/// How far a slot is.
#[derive(Debug)]
pub(super) enum Stage {
    /// One answer decides.
    Single,
    /// Several replicas vote.
    Vote(Gather),
    /// Parts with slots of their own.
    Parts(Box<Parts>),
    /// Answered; the reply is parked until it is this request's turn.
    Done(Option<Failure>),
}

/// What a reply needs to be put in the form its reader expects.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Envelope {
    /// Id of the DNODE request.
    pub(super) id: u64,
    /// Version of the DNODE request.
    pub(super) version: u8,
    /// The request's own flag, echoed.
    pub(super) same_dc: bool,
    /// How a RESP3 reader sees the reply.
    pub(super) shape: Shape,
    /// No byte is to be sent (memcache `noreply`).
    pub(super) silent: bool,
    /// Nothing ordinary is to be sent (memcache meta flag `q`).
    pub(super) quiet: Option<&'static McCommand>,
}

/// One request in flight.
#[derive(Debug)]
pub(super) struct Slot {
    pub(super) generation: u32,
    pub(super) owner: Owner,
    pub(super) stage: Stage,
    pub(super) envelope: Envelope,
    pub(super) started_us: u64,
    /// Racks a read has tried, one bit each.
    pub(super) tried: u64,
    /// The request itself, while a read may still move to another rack; else empty.
    pub(super) request: Vec<u8>,
    /// The reply, once [`Stage::Done`].
    pub(super) parked: Parked,
}
