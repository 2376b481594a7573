//! memcache in rings of several racks: what must be decided by one store, and by all.
//!
//! A conditional write (add, replace, cas, a meta command with a condition) runs on one replica
//! first: the owner in the first rack that can be asked, the same for every coordinator of a
//! datacenter. The others get what it did as a plain set. What tells a cas id is answered with
//! that replica's id, under its mark ([`ids`]). Where replicas vote, it is told only with the
//! value that replica has, so that the next cas is built on what a majority holds.

use super::allnodes::{self, AllNodes};
use super::client::ClientId;
use super::effects::first_leg;
use super::failure::{Cause, Failure, FailureKind};
use super::gather::Said;
use super::plan::{Op, Plan, Role};
use super::primary::Origin;
use super::requests::Request;
use super::send::{Ask, Parcel};
use super::slot::Envelope;
use super::stamps::Told;
use super::task::{Part, Task};
use super::view::{Now, View};
use super::{Dispatcher, Frame, scan};
use crate::proto::args::Args;
use crate::proto::command::{Effect, Merge, TowardC};
use crate::proto::memcache::decode::McRequest;
use crate::proto::memcache::{forward, ids};
use crate::proto::outbuf::SHARE_MIN;
use crate::ring::PeerIdx;

/// The mark of the ids that a node's store gives.
fn mark_of(view: &View, peer: PeerIdx) -> ids::Mark {
    ids::Mark::new(scan::number_of(&view.topology, peer) as u16)
}

/// True for a request whose answer has ids of one store, and that changes nothing depending on
/// them: it is asked of that store.
pub(super) fn asks_first(view: &View, found: &McRequest, args: &Args<'_>, op: Op) -> bool {
    let reads = op == Op::Read || found.command.merge == Merge::Values;
    reads && is_decided_by_one(view, found, args)
}

/// True for a request that depends on what one store holds, where there are several.
pub(super) fn is_decided_by_one(view: &View, found: &McRequest, args: &Args<'_>) -> bool {
    view.topology.racks().len() > 1 && found.command.effect_of(args) == Effect::PrimaryFirst
}

impl Dispatcher {
    /// Asks what only the replica on which conditional writes run can tell: ids of its store. The
    /// level of reads decides on the values.
    pub(super) fn ask_first(&mut self, view: &View, ask: &Ask<'_>, now: Now) {
        let mut plan = std::mem::take(&mut self.plan);
        let planned = self.plan_first(view, ask, &mut plan);
        match planned.and_then(|first| {
            let level = self.make_plan(view, ask, &mut plan)?;
            Ok((first, level))
        }) {
            Err(failure) => self.answer_now(ask, Said::Failed(failure), now),
            Ok((first, level)) => {
                let among = plan.legs.iter().any(|leg| leg.peer == first.peer);
                if plan.groups.is_empty() || !among {
                    plan.groups.clear();
                    plan.legs.retain(|leg| ask.op == Op::Write && leg.peer != first.peer);
                    plan.legs.iter_mut().for_each(|leg| leg.role = Role::Swallow);
                    plan.legs.insert(0, super::plan::Leg { role: Role::Answer, ..first });
                }
                let envelope = Envelope { ids: Some(mark_of(view, first.peer)), ..ask.envelope };
                let ask = Ask { first: Some(first.peer), envelope, ..*ask };
                self.send(view, &ask, &plan, level, now);
            }
        }
        self.plan = plan;
    }

    /// The replica on which a conditional write of the key would run.
    fn plan_first(
        &self,
        view: &View,
        ask: &Ask<'_>,
        plan: &mut Plan,
    ) -> Result<super::plan::Leg, Failure> {
        self.make_plan(view, &Ask { op: Op::Write, level: view.write, ..*ask }, plan)?;
        Ok(first_leg(view, plan))
    }

    /// Lets one replica run a conditional write; the others get what it did.
    pub(super) fn ask_conditional(
        &mut self,
        view: &View,
        found: &McRequest,
        (request, key): (&Request<'_>, Option<&[u8]>),
        now: Now,
    ) {
        let frame = Frame::Small(request.args.raw());
        let ask = Ask { key, ..request.ask(&frame) };
        let mut plan = std::mem::take(&mut self.plan);
        let mut for_c = Vec::new();
        let planned = self.make_plan(view, &ask, &mut plan);
        let planned = planned.and_then(|_| self.write_other_form(view, &ask, &plan, &mut for_c));
        match planned {
            Err(failure) => {
                self.reply_in_turn(request.client, request.envelope, Said::Failed(failure), now);
            }
            Ok(()) => {
                let mark = mark_of(view, first_leg(view, &plan).peer);
                let origin = Origin::Memcache(*found, mark);
                let (part, first) = self.reserve_primary(view, origin, (request, &plan), now);
                let stamp = self.primary_stamp(part);
                let mut bytes = self.spare();
                bytes.clear();
                forward::write_for(found, &request.args, mark, &mut bytes);
                let args = Args::new(&bytes, &[]);
                let parcel = Parcel { frame: &Frame::Small(&bytes), args, stamp };
                self.ask_memcache_node(view, first, parcel, part, now);
                self.recycle(bytes);
            }
        }
        self.plan = plan;
    }

    fn ask_memcache_node(
        &mut self,
        view: &View,
        peer: PeerIdx,
        parcel: Parcel<'_>,
        part: Part,
        now: Now,
    ) {
        match self.reachable(view, peer) {
            Ok(()) => self.ask_usable(view, peer, parcel, part, now),
            Err(failure) => self.feed_task(part, Said::Failed(failure), Told::default(), now),
        }
    }

    /// Completes a slot with a reply that has ids; `of` is what the first replica said.
    pub(super) fn complete_marked(
        &mut self,
        key: u32,
        (reply, of): (&[u8], &[u8]),
        mark: ids::Mark,
        now: Now,
    ) {
        let mut bytes = self.spare();
        bytes.clear();
        ids::marked(reply, of, mark, &mut bytes);
        if bytes.len() < SHARE_MIN {
            self.complete(key, Said::Reply(&bytes), now);
            self.recycle(bytes);
        } else {
            self.complete(key, Said::Large(bytes.into()), now);
        }
    }

    /// `flush_all` goes to every node that is not down, and is done when all of them did it.
    pub(super) fn serve_flush_all(
        &mut self,
        view: &View,
        id: ClientId,
        found: &McRequest,
        request: &Request<'_>,
        now: Now,
    ) {
        self.counters.client_writes += 1;
        if !view.settings.allow_flush {
            let text =
                b"SERVER_ERROR flush_all is refused: it would empty every node of the ring, \
                         and the setting allow_flush is off\r\n";
            return self.reply_in_turn(id.0, request.envelope, Said::Reply(text), now);
        }
        let peers = allnodes::asked(view, self.links.standings());
        let foreign = found.command.toward_c_of(&request.args) == TowardC::Refuse;
        if let Some(peer) = peers.iter().find(|peer| foreign && !self.is_torc(view, **peer)) {
            let failure = Failure::new(FailureKind::NotSupported, Cause::NotSupportedByPeer)
                .at(view.topology.peer(*peer).id);
            return self.reply_in_turn(id.0, request.envelope, Said::Failed(failure), now);
        }
        let all = AllNodes::new(std::sync::Arc::clone(&self.view), allnodes::Rule::Every, &peers);
        let part = self.begin_task(id.0, request.envelope, Task::AllNodes(all), now);
        let stamp = self.new_stamp(view, now);
        let mut bytes = self.spare();
        bytes.clear();
        forward::write(found, &request.args, None, &mut bytes);
        for (number, peer) in (0..).zip(peers) {
            let args = Args::new(&bytes, &[]);
            let parcel = Parcel { frame: &Frame::Small(&bytes), args, stamp };
            self.ask_memcache_node(view, peer, parcel, Part { part: number, ..part }, now);
        }
        self.recycle(bytes);
    }
}

#[cfg(test)]
mod tests;
