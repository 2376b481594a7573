//! One client request in flight.

use super::Dispatcher;
use super::failure::Failure;
use super::fragment::Parts;
use super::gather::{Gather, Parked};
use super::route::Routed;
use super::stamps::Told;
use super::task::Task;
use super::view::Now;
use crate::proto::memcache::ids::Mark;
use crate::proto::memcache::table::McCommand;
use crate::proto::resp::shape::Shape;
use crate::ring::Consistency;

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
    /// A command in several steps.
    Task(Box<Task>),
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
    /// Whether the answer is to tell what stamps it found.
    pub(super) tells: bool,
    /// What it tells.
    pub(super) told: Told,
    /// Its reader spoke RESP3 when it asked; it may have changed that since.
    pub(super) resp3: bool,
    /// How a RESP3 reader sees the reply.
    pub(super) shape: Shape,
    /// It is the reply of EXEC, lifted by the shapes its client keeps.
    pub(super) exec: bool,
    /// Its cas ids get this mark.
    pub(super) ids: Option<Mark>,
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
    /// True for a read that another rack could answer if this one fails (decision D6).
    pub(super) moves: bool,
    /// Replicas that may still answer in place of the one that was to, if that is lost unsent.
    pub(super) spares: u16,
    /// How that one was lost.
    pub(super) orphan: Option<Failure>,
    /// True for an EVALSHA that is sent with the script's text if the datastore lacks it.
    pub(super) replays: bool,
    /// A read that went where the filters say the key is.
    pub(super) routed: Option<Box<Routed>>,
    /// The level its client asked for.
    pub(super) level: Consistency,
    /// The request itself, while it or a part of it may be sent again; else empty.
    pub(super) request: Vec<u8>,
    /// The reply, once [`Stage::Done`].
    pub(super) parked: Parked,
}

impl Dispatcher {
    /// Reserves a slot, the last one in its client's queue. Returns it and its generation.
    pub(super) fn new_slot(
        &mut self,
        owner: Owner,
        stage: Stage,
        mut envelope: Envelope,
        now: Now,
    ) -> (u32, u32) {
        if let Owner::Client(client) = owner {
            envelope.resp3 = self.clients[client as usize].resp3;
        }
        let generation = self.next_generation;
        self.next_generation = self.next_generation.wrapping_add(1);
        let slot = self.slots.insert(Slot {
            generation,
            owner,
            stage,
            envelope,
            started_us: now.mono_us,
            tried: 0,
            moves: false,
            spares: 0,
            orphan: None,
            replays: false,
            routed: None,
            level: Consistency::DcOne,
            request: Vec::new(),
            parked: Parked::default(),
        }) as u32;
        if let Owner::Client(client) = owner {
            self.clients[client as usize].queue.push_back(slot);
        }
        (slot, generation)
    }
}
