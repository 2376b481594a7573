//! Requests that were queued on a connection and not written when it was lost: nobody has seen
//! them, so they can be planned again, writes too (decision D6). What was written, even in part,
//! is never sent twice.

use bytes::Bytes;

use super::failure::{Cause, Failure, from_reply};
use super::gather::Said;
use super::memcache::{limits, memcache_op};
use super::plan::Op;
use super::requests::op_of;
use super::send::Ask;
use super::slot::{Envelope, Owner, Stage};
use super::upstream::{NOBODY, Target, Ticket, UpId, Weight};
use super::view::{Now, Protocol, View};
use super::{Dispatcher, Frame};
use crate::proto::args::{Args, Span};
use crate::proto::command::{Compare, Routing};
use crate::proto::dnode::{HeaderDecoder, HeaderLimits};
use crate::proto::memcache::decode::{McDecoded, McDecoder, McRequest};
use crate::proto::memcache::forward;
use crate::proto::outbuf::SHARE_MIN;
use crate::proto::resp::decode::RequestDecoder;
use crate::proto::resp::spec::CommandSpec;
use crate::proto::resp::table;
use crate::ring::Consistency;

/// What must be known of a request to plan it.
struct Known<'a> {
    args: Args<'a>,
    key: Option<&'a [u8]>,
    op: Op,
    spec: Option<&'static CommandSpec>,
}

impl Dispatcher {
    /// The request of `ticket` was lost with its connection before a byte of it was written;
    /// `frame` is what would have been.
    pub(super) fn plan_again(
        &mut self,
        id: UpId,
        ticket: Ticket,
        frame: Vec<u8>,
        cause: Cause,
        now: Now,
    ) {
        let failure = Failure::unsent(self.ups[id.0 as usize].target, cause);
        let taken = match ticket.weight {
            _ if !self.is_single(ticket) => false,
            Weight::Only => self.ask_again(id, ticket, frame, now),
            Weight::First => self.leave_to_spares(ticket.slot, failure),
            Weight::Spare => false,
        };
        if !taken {
            self.answer(ticket, Said::Failed(failure), now);
        }
    }

    fn is_single(&self, ticket: Ticket) -> bool {
        self.slots.get(ticket.slot as usize).is_some_and(|slot| {
            slot.generation == ticket.generation && matches!(slot.stage, Stage::Single)
        })
    }

    /// Sends a request anew. False when that cannot be: its failure is final then, or left to
    /// those who send reads to another rack.
    fn ask_again(&mut self, id: UpId, ticket: Ticket, frame: Vec<u8>, now: Now) -> bool {
        let slot = &self.slots[ticket.slot as usize];
        let started_ms = slot.started_us / 1000;
        let (owner, target) = (slot.owner, self.ups[id.0 as usize].target);
        let Some(client) = self.client_of(owner).filter(|_| slot.request.is_empty()) else {
            return false;
        };
        // What another node sent is for this node's own store and never goes on to a third.
        let from_peer = self.clients[client as usize].peer.is_some();
        if from_peer && target != Target::Store {
            return false;
        }
        let Some(body) = self.body_of(id, frame) else { return false };
        let view = std::sync::Arc::clone(&self.view);
        let (mut spans, mut key) = (Vec::new(), Vec::new());
        let Some(known) = known(&view, &body, &mut spans, &mut key) else { return false };
        let frame = match body.len() < SHARE_MIN {
            true => Frame::Small(&body),
            false => Frame::Large(body.clone()),
        };
        let ask = Ask {
            frame: &frame,
            args: known.args,
            key: known.key.filter(|_| !from_peer),
            op: known.op,
            level: Consistency::DcOne,
            compare: Compare::Exact,
            per_element: false,
            local_only: false,
            tried: 0,
            spec: known.spec,
            memcache: None,
            first: None,
            replays: false,
            stamp: None,
            owner,
            envelope: Envelope::default(),
        };
        let sent = self.send_again(&view, &ask, ticket, started_ms, now);
        self.counters.replanned += u64::from(sent);
        sent
    }

    fn send_again(
        &mut self,
        view: &View,
        ask: &Ask<'_>,
        ticket: Ticket,
        started_ms: u64,
        now: Now,
    ) -> bool {
        let mut plan = std::mem::take(&mut self.plan);
        let mut for_c = Vec::new();
        let planned = self.make_plan(view, ask, &mut plan).is_ok()
            && plan.groups.is_empty()
            && self.write_other_form(view, ask, &plan, &mut for_c).is_ok();
        if planned && let Some(first) = plan.legs.first() {
            let to = (ticket.slot, ticket.generation);
            self.limit_moved(to, started_ms, first.peer);
            let ask = &Ask { stamp: self.stamp_for(view, ask, &plan, now), ..*ask };
            self.send_legs(view, ask, &plan, &for_c, to, now);
        }
        self.recycle(for_c);
        self.plan = plan;
        planned
    }

    /// The request in a frame; `None` when it was enciphered for one peer.
    fn body_of(&self, id: UpId, mut frame: Vec<u8>) -> Option<Bytes> {
        let up = &self.ups[id.0 as usize];
        if let Target::Peer(_) = up.target {
            if up.cipher.is_some() {
                return None;
            }
            let header = HeaderDecoder::default().decode(&frame, &HeaderLimits::default());
            let header = header.ok().flatten()?;
            frame.drain(..header.len);
        }
        Some(frame.into())
    }

    /// The connection that asked, for a part of a command too.
    pub(super) fn client_of(&self, owner: Owner) -> Option<u32> {
        match owner {
            Owner::Client(key) => Some(key),
            Owner::Slot { slot, generation, .. } => {
                let parent = self.slots.get(slot as usize);
                let parent = parent.filter(|parent| parent.generation == generation)?;
                self.client_of(parent.owner)
            }
            Owner::Nobody => None,
        }
    }

    /// Makes a ticket that of a replica whose answer is dropped, unless the one that was to
    /// answer is lost unsent.
    pub(super) fn spare_ticket(&mut self, ticket: Ticket) -> Ticket {
        if !self.is_single(ticket) {
            return Ticket { slot: NOBODY, ..ticket };
        }
        self.slots[ticket.slot as usize].spares += 1;
        Ticket { weight: Weight::Spare, ..ticket }
    }

    /// The replica that was to answer a write has never seen it: one of the others will, if any
    /// may still.
    fn leave_to_spares(&mut self, key: u32, failure: Failure) -> bool {
        let slot = &mut self.slots[key as usize];
        slot.orphan = Some(failure);
        slot.spares > 0
    }

    /// A replica has answered whose answer is dropped as a rule.
    pub(super) fn hear_spare(&mut self, key: u32, said: Said<'_>, now: Now) {
        let slot = &mut self.slots[key as usize];
        slot.spares -= 1;
        let Some(failure) = slot.orphan else { return };
        let failed = match &said {
            Said::Failed(_) => true,
            Said::Reply(reply) => from_reply(reply).is_some(),
            Said::Large(_) => false,
        };
        match failed {
            false => self.complete(key, said, now),
            true if slot.spares == 0 => self.complete(key, Said::Failed(failure), now),
            true => {}
        }
    }
}

fn known<'a>(
    view: &View,
    body: &'a [u8],
    spans: &'a mut Vec<Span>,
    decoded_key: &'a mut Vec<u8>,
) -> Option<Known<'a>> {
    match decode_again(view, body, spans)? {
        Kept::Redis(spec, args) => {
            let keyed = spec.routing_of(&args) == Routing::Keyed;
            let key = spec.first_key(&args).filter(|_| keyed).and_then(|i| args.get(i));
            Some(Known { args, key, op: op_of(view, spec, &args), spec: Some(spec) })
        }
        Kept::Memcache(found, args) => {
            let keyed = found.command.routing_of(&args) == Routing::Keyed;
            let key = forward::ring_key(&found, &args, decoded_key).filter(|_| keyed);
            Some(Known { args, key, op: memcache_op(&found, &args), spec: None })
        }
    }
}

/// A request whose bytes were kept.
pub(super) enum Kept<'a> {
    /// Its row in the command table, and its arguments.
    Redis(&'static CommandSpec, Args<'a>),
    /// The same of memcache.
    Memcache(McRequest, Args<'a>),
}

/// Decodes a request once more. `None` when the bytes are not one request and no more: a
/// transaction is several.
pub(super) fn decode_again<'a>(
    view: &View,
    bytes: &'a [u8],
    spans: &'a mut Vec<Span>,
) -> Option<Kept<'a>> {
    match view.settings.protocol {
        Protocol::Redis => {
            let limits = &view.settings.request;
            let found = RequestDecoder::default().decode(bytes, limits, spans).ok()??;
            let args = Args::new(bytes, spans);
            let spec = table::find(&args, &view.settings.modules).ok()?;
            (found.len == bytes.len()).then_some(Kept::Redis(spec, args))
        }
        Protocol::Memcache => {
            match McDecoder::default().decode(bytes, &limits(view), spans).ok()?? {
                McDecoded::Request(found) => Some(Kept::Memcache(found, Args::new(bytes, spans))),
                McDecoded::Rejected { .. } | McDecoded::Skipped { .. } => None,
            }
        }
    }
}

#[cfg(test)]
mod tests;
