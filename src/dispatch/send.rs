//! From a decoded request to bytes on the outputs of its replicas.

use std::sync::Arc;

use super::client::ClientId;
use super::failure::{Cause, Failure, FailureKind};
use super::gather::{Said, Strictness};
use super::plan::{self, Hop, Leg, Op, Plan, Question, Role, Standing};
use super::slot::{Envelope, Owner, Stage};
use super::stamps::Told;
use super::task::write_for_c;
use super::upstream::{NOBODY, Target, Ticket, UpId, Weight};
use super::view::{Now, Protocol, View};
use super::{Dispatcher, Frame, block};
use crate::proto::args::Args;
use crate::proto::command::{Compare, TowardC};
use crate::proto::dnode::{Ext, MsgType, VERSION_C};
use crate::proto::memcache::table::McCommand;
use crate::proto::outbuf::{OutBuf, SHARE_MIN};
use crate::proto::resp::spec::CommandSpec;
use crate::ring::{Consistency, PeerIdx};
use crate::stamp::{Stamp, Stamping};

/// One request, ready to be planned.
pub(super) struct Ask<'a> {
    /// The bytes a replica gets.
    pub(super) frame: &'a Frame<'a>,
    /// The arguments in them.
    pub(super) args: Args<'a>,
    /// The key that decides; without one the own datastore answers.
    pub(super) key: Option<&'a [u8]>,
    /// Read or write.
    pub(super) op: Op,
    /// The connection's level.
    pub(super) level: Consistency,
    /// How replicas' replies are compared.
    pub(super) compare: Compare,
    /// Whether several keys are read, each of which has its own part of the reply.
    pub(super) per_element: bool,
    /// Whether the request stays in this datacenter (it came as a type 4).
    pub(super) local_only: bool,
    /// Racks that were tried already.
    pub(super) tried: u64,
    /// Its row in the command table, when it has one.
    pub(super) spec: Option<&'static CommandSpec>,
    /// Its row in that of memcache.
    pub(super) memcache: Option<&'static McCommand>,
    /// The replica whose answer is preferred, when that is not the own rack's.
    pub(super) first: Option<PeerIdx>,
    /// An EVALSHA whose text is known, in case the datastore lacks it.
    pub(super) replays: bool,
    /// The stamp it came with; `None` lets the dispatcher give it one where it needs one.
    pub(super) stamp: Option<Stamp>,
    /// Who is answered.
    pub(super) owner: Owner,
    /// How.
    pub(super) envelope: Envelope,
}

/// A request as one replica gets it.
#[derive(Clone, Copy)]
pub(super) struct Parcel<'a> {
    /// Its bytes.
    pub(super) frame: &'a Frame<'a>,
    /// The arguments, for a store that is no connection.
    pub(super) args: Args<'a>,
    /// Its stamp, where stamps are spoken of.
    pub(super) stamp: Option<Stamp>,
}

/// True for commands that store whole values and do nothing else. For keys whose writes stay in
/// their datacenter everything else goes everywhere: deletes above all (decision I1).
pub(super) fn stores_values(name: &str) -> bool {
    matches!(name, "set" | "setex" | "psetex" | "setnx" | "mset" | "restore")
}

impl Dispatcher {
    /// Plans and sends one request.
    pub(super) fn ask(&mut self, view: &View, ask: &Ask<'_>, now: Now) {
        let mut plan = std::mem::take(&mut self.plan);
        match self.make_plan(view, ask, &mut plan) {
            Err(failure) => self.answer_now(ask, Said::Failed(failure), now),
            Ok(level) => self.send(view, ask, &plan, level, now),
        }
        self.plan = plan;
    }

    /// The upstream a request would have to wait for, because it is full. Only looked for while
    /// any upstream is; parts of a split command are let pass, so that a limit is exceeded by
    /// one request at most.
    pub(super) fn would_block(&mut self, view: &View, ask: &Ask<'_>) -> Option<UpId> {
        if self.full_ups == 0 {
            return None;
        }
        let mut plan = std::mem::take(&mut self.plan);
        let planned = self.make_plan(view, ask, &mut plan);
        let full = planned.ok().and_then(|_| {
            let ups = plan.legs.iter().filter_map(|leg| self.pick(leg.peer, ask.owner));
            ups.into_iter().find(|up| self.ups[up.0 as usize].full)
        });
        self.plan = plan;
        full
    }

    pub(super) fn make_plan(
        &self,
        view: &View,
        ask: &Ask<'_>,
        plan: &mut Plan,
    ) -> Result<Consistency, Failure> {
        match ask.key {
            None => self.plan_store(view, plan),
            Some(key) => self.plan_key(view, ask, key, plan),
        }
    }

    fn plan_store(&self, view: &View, plan: &mut Plan) -> Result<Consistency, Failure> {
        let peer = view.topology.local();
        plan.clear();
        if self.embedded.is_none() && !self.any_up(peer) {
            return Err(Failure::new(FailureKind::StoreNotConnected, Cause::NotConnected)
                .at(view.topology.peer(peer).id));
        }
        let rack = view.topology.own_rack() as u16;
        plan.legs.push(Leg { peer, rack, hop: Hop::Store, role: Role::Answer });
        Ok(Consistency::DcOne)
    }

    fn plan_key(
        &self,
        view: &View,
        ask: &Ask<'_>,
        key: &[u8],
        plan: &mut Plan,
    ) -> Result<Consistency, Failure> {
        let token = view.hasher.token(key);
        let terms = view.terms(key, &token, ask.op == Op::Write, ask.level);
        let question = Question {
            topology: &view.topology,
            owners: view.topology.owners(&token),
            op: ask.op,
            level: terms.level,
            cap: terms.cap,
            read_fallback: view.settings.read_fallback,
            tried: ask.tried,
            local_only: ask.local_only,
            stays: terms.stays && ask.spec.is_some_and(|spec| stores_values(spec.name)),
        };
        plan::plan(&question, self.links.standings(), plan)?;
        self.spread_forwards(view, question.owners, ask.frame.as_slice().len(), plan);
        Ok(terms.level)
    }

    pub(super) fn send(
        &mut self,
        view: &View,
        ask: &Ask<'_>,
        plan: &Plan,
        level: Consistency,
        now: Now,
    ) {
        self.counters.missed_writes += plan.missed.len() as u64;
        self.counters.fallback_reads += u64::from(plan.fell_back);
        let ask = &Ask { stamp: self.stamp_for(view, ask, plan, now), ..*ask };
        if let [Leg { hop: Hop::Store, .. }] = plan.legs[..]
            && self.execute_in_place(ask, now)
        {
            return;
        }
        let mut for_c = Vec::new();
        if let Err(failure) = self.write_other_form(view, ask, plan, &mut for_c) {
            return self.answer_now(ask, Said::Failed(failure), now);
        }
        let to = self.reserve(view, ask, plan, level, now);
        self.send_legs(view, ask, plan, &for_c, to, now);
        self.recycle(for_c);
    }

    /// Sends every leg of a plan for the slot `to`; nodes of the reference get `for_c` in place
    /// of the request, unless that is empty.
    pub(super) fn send_legs(
        &mut self,
        view: &View,
        ask: &Ask<'_>,
        plan: &Plan,
        for_c: &[u8],
        (slot, generation): (u32, u32),
        now: Now,
    ) {
        let only = plan.legs.len() == 1;
        for leg in &plan.legs {
            let own = is_preferred(view, ask, leg);
            let standing = self.links.standings().get(leg.peer.0 as usize);
            let joining = standing == Some(&Standing::Joining);
            let ticket = Ticket { own, joining, ..Ticket::of(slot, generation) };
            let ticket = match leg.role {
                Role::Answer if only => Ticket { weight: Weight::Only, ..ticket },
                Role::Answer => ticket,
                Role::Count { dc } => Ticket { dc, ..ticket },
                Role::Swallow if leg.hop == Hop::Forward => Ticket { slot: NOBODY, ..ticket },
                Role::Swallow => self.spare_ticket(ticket),
            };
            let frame = match for_c.is_empty() || self.is_torc(view, leg.peer) {
                true => ask.frame,
                false => &Frame::Small(for_c),
            };
            let parcel = Parcel { frame, args: ask.args, stamp: ask.stamp };
            self.send_ticket(parcel, leg, ticket, ask.owner, now);
        }
    }

    /// Writes the form in which nodes of the reference get a command they do not know, when there
    /// are any in the plan. An error names the first one that cannot run it in any form, so that
    /// nobody begins to.
    pub(super) fn write_other_form(
        &mut self,
        view: &View,
        ask: &Ask<'_>,
        plan: &Plan,
        for_c: &mut Vec<u8>,
    ) -> Result<(), Failure> {
        let of_spec = ask.spec.map(|spec| spec.toward_c_of(&ask.args));
        let form = of_spec.or_else(|| ask.memcache.map(|row| row.toward_c_of(&ask.args)));
        if form.is_none_or(|form| form == TowardC::AsIs) {
            return Ok(());
        }
        let Some(leg) = plan.legs.iter().find(|leg| !self.is_torc(view, leg.peer)) else {
            return Ok(());
        };
        *for_c = self.spare();
        if ask.spec.is_some_and(|spec| write_for_c(spec, &ask.args, for_c)) {
            return Ok(());
        }
        let failure = Failure::new(FailureKind::NotSupported, Cause::NotSupportedByPeer);
        Err(failure.at(view.topology.peer(leg.peer).id))
    }

    /// Runs a request of the embedded store straight into its client's output, when it is that
    /// client's turn and the reply needs no envelope.
    fn execute_in_place(&mut self, ask: &Ask<'_>, now: Now) -> bool {
        let (Some(embedded), Owner::Client(key)) = (&self.embedded, ask.owner) else {
            return false;
        };
        let client = &self.clients[key as usize];
        let plain = !client.resp3 && client.peer.is_none() && !block::is_block(&ask.args);
        let told =
            !ask.envelope.silent && ask.envelope.quiet.is_none() && ask.envelope.ids.is_none();
        if !client.queue.is_empty() || !plain || !told {
            return false;
        }
        let embedded = Arc::clone(embedded);
        self.note_changes(&ask.args, now);
        self.touch_client(key);
        self.counters.requests_store += 1;
        self.counters.latency.record(0);
        let out = &mut self.clients[key as usize].out;
        embedded.execute(&ask.args, now.wall_ms(), &mut Stamping::with(ask.stamp), out);
        true
    }

    fn reserve(
        &mut self,
        view: &View,
        ask: &Ask<'_>,
        plan: &Plan,
        level: Consistency,
        now: Now,
    ) -> (u32, u32) {
        let stage = if plan.groups.is_empty() {
            Stage::Single
        } else {
            let own = plan.legs.iter().find(|leg| is_preferred(view, ask, leg));
            let own = own.and_then(|leg| match leg.role {
                Role::Count { dc } => Some(dc),
                Role::Answer | Role::Swallow => None,
            });
            let strictness = match level {
                Consistency::DcOne | Consistency::DcQuorum => Strictness::Lenient,
                Consistency::DcSafeQuorum | Consistency::DcEachSafeQuorum => Strictness::Safe,
            };
            let mut gather = self.spare_gathers.pop().unwrap_or_default();
            gather.begin(&plan.groups, ask.compare, strictness, ask.per_element, own);
            if ask.op == Op::Write {
                gather.on_write();
            }
            Stage::Vote(gather)
        };
        let (key, generation) = self.new_slot(ask.owner, stage, ask.envelope, now);
        let moves = self.may_move(view, ask, plan);
        let votes_on_each = ask.per_element && !plan.groups.is_empty();
        if moves || ask.replays || votes_on_each {
            let mut request = self.spare();
            request.clear();
            request.extend_from_slice(ask.frame.as_slice());
            let slot = &mut self.slots[key as usize];
            (slot.request, slot.level) = (request, ask.level);
            (slot.moves, slot.replays) = (moves, ask.replays);
            slot.tried = ask.tried | plan.legs.first().map_or(0, |leg| rack_bit(leg.rack));
        }
        (key, generation)
    }

    /// True for a read that another rack could answer if this one fails (decision D6).
    fn may_move(&self, view: &View, ask: &Ask<'_>, plan: &Plan) -> bool {
        ask.op == Op::Read
            && view.settings.protocol == Protocol::Redis
            && ask.key.is_some()
            && plan.groups.is_empty()
            && view.settings.read_fallback
            && (2..=TRIED_RACKS_MAX).contains(&view.topology.local_racks().len())
            && ask.frame.as_slice().len() < SHARE_MIN
            && !block::is_block(&ask.args)
    }

    pub(super) fn send_ticket(
        &mut self,
        parcel: Parcel<'_>,
        leg: &Leg,
        ticket: Ticket,
        owner: Owner,
        now: Now,
    ) {
        if leg.hop == Hop::Store {
            self.note_changes(&parcel.args, now);
        }
        if leg.hop == Hop::Store && block::is_block(&parcel.args) {
            return self.send_block(parcel, leg, ticket, now);
        }
        if leg.hop == Hop::Store && self.embedded.is_some() {
            self.counters.requests_store += 1;
            return self.execute(parcel, ticket, now);
        }
        match self.pick(leg.peer, owner) {
            Some(up) => self.enqueue(up, leg.hop, parcel.frame, parcel.stamp, ticket, now),
            None => {
                let failure = Failure::new(FailureKind::PeerNotConnected, Cause::NotConnected);
                self.answer(ticket, Said::Failed(failure), now);
            }
        }
    }

    /// Runs one leg on the embedded store and hands its reply to the slot.
    fn execute(&mut self, parcel: Parcel<'_>, ticket: Ticket, now: Now) {
        let embedded = Arc::clone(self.embedded.as_ref().expect("checked by the caller"));
        let mut out = std::mem::take(&mut self.executed);
        let mut stamping = Stamping::with(parcel.stamp);
        embedded.execute(&parcel.args, now.wall_ms(), &mut stamping, &mut out);
        self.answer_executed(out, ticket, Told::by(&stamping), now);
    }

    /// Hands a reply of the embedded store to the slot that asked.
    pub(super) fn answer_executed(
        &mut self,
        mut out: OutBuf,
        ticket: Ticket,
        told: Told,
        now: Now,
    ) {
        if out.front().len() == out.len() {
            self.answer_told(ticket, Said::Reply(out.front()), told, now);
        } else {
            // A large value came as a shared slice between its header and its end.
            let mut whole = Vec::with_capacity(out.len());
            while !out.is_empty() {
                let front = out.front().len();
                whole.extend_from_slice(out.front());
                out.advance(front);
            }
            self.answer_told(ticket, Said::Large(whole.into()), told, now);
        }
        out.clear();
        self.executed = out;
    }

    pub(super) fn enqueue(
        &mut self,
        id: UpId,
        hop: Hop,
        frame: &Frame<'_>,
        stamp: Option<Stamp>,
        mut ticket: Ticket,
        now: Now,
    ) {
        ticket.deadline_ms = self.deadline_ms(id, now);
        self.touch_upstream(id);
        let up = &mut self.ups[id.0 as usize];
        let dnode_id = up.push(ticket, now.mono_ms());
        match up.target {
            Target::Store => {
                self.counters.requests_store += 1;
                frame.append_to(&mut up.out);
            }
            Target::Peer(_) => {
                let kind = match hop {
                    Hop::Forward => MsgType::ReqForward,
                    Hop::Peer | Hop::Store => MsgType::Req,
                };
                match up.same_dc {
                    true => self.counters.requests_peer += 1,
                    false => self.counters.requests_remote += 1,
                }
                let ext = Ext { stamp: stamp.filter(|_| up.is_torc), ..Ext::default() };
                up.put_request(dnode_id, kind, VERSION_C, ext, frame);
            }
        }
        let settings = &self.view.settings;
        if !up.full
            && (up.out.len() >= settings.upstream_output_max
                || up.in_flight() >= settings.upstream_in_flight_max)
        {
            up.full = true;
            self.full_ups += 1;
        }
    }

    /// The connection a client's requests for `peer` use: always the same one while it is up,
    /// so that they stay in order.
    pub(super) fn pick(&self, peer: PeerIdx, owner: Owner) -> Option<UpId> {
        let ups = self.links.of(peer);
        let start = match ups.len() {
            1 => 0,
            _ => self.client_of(owner).unwrap_or_default() as usize,
        };
        (0..ups.len()).map(|i| ups[(start + i) % ups.len()]).find(|up| self.ups[up.0 as usize].up)
    }

    pub(super) fn any_up(&self, peer: PeerIdx) -> bool {
        self.links.of(peer).iter().any(|up| self.ups[up.0 as usize].up)
    }

    /// Answers without asking anybody, in the client's order.
    pub(super) fn answer_now(&mut self, ask: &Ask<'_>, said: Said<'_>, now: Now) {
        match ask.owner {
            Owner::Client(key) => self.reply_in_turn(key, ask.envelope, said, now),
            Owner::Slot { slot, generation, part } => {
                self.fill_part(slot, generation, part, said, now);
            }
            Owner::Nobody => {}
        }
    }

    /// Gives a client a reply that was made here: at once when it is its turn, else parked.
    pub(super) fn reply_in_turn(&mut self, key: u32, envelope: Envelope, said: Said<'_>, now: Now) {
        let client = &self.clients[key as usize];
        if client.queue.is_empty() {
            let envelope = Envelope { resp3: client.resp3, ..envelope };
            self.count_failure(&said);
            return self.emit(key, envelope, &said);
        }
        let (slot, _) = self.new_slot(Owner::Client(key), Stage::Single, envelope, now);
        self.complete(slot, said, now);
    }

    /// Sends a read again, to another rack.
    pub(super) fn send_read(
        &mut self,
        frame: &Frame<'_>,
        args: Args<'_>,
        leg: &Leg,
        (slot, generation): (u32, u32),
        now: Now,
    ) {
        let own = usize::from(leg.rack) == self.view.topology.own_rack();
        let ticket = Ticket { own, ..Ticket::of(slot, generation) };
        self.send_ticket(Parcel { frame, args, stamp: None }, leg, ticket, Owner::Nobody, now);
    }

    /// Stops reading a client until `up` has room.
    pub(super) fn block(&mut self, client: ClientId, up: UpId) {
        self.counters.pauses_upstream_limit += 1;
        let state = &mut self.clients[client.0 as usize];
        state.paused = true;
        state.blocked_on = Some(up);
        self.ups[up.0 as usize].waiters.push(client.0);
    }
}

/// True for the leg whose answer is preferred where several are good.
fn is_preferred(view: &View, ask: &Ask<'_>, leg: &Leg) -> bool {
    match ask.first {
        Some(first) => leg.peer == first,
        None => usize::from(leg.rack) == view.topology.own_rack(),
    }
}

/// Racks that [`Ask::tried`] has a bit for. In a datacenter of more, reads are sent once only.
const TRIED_RACKS_MAX: usize = u64::BITS as usize;

/// The bit of a rack in [`Ask::tried`].
pub(super) fn rack_bit(rack: u16) -> u64 {
    1u64.checked_shl(u32::from(rack)).unwrap_or(0)
}
