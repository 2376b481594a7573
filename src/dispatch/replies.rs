//! From upstream bytes to replies in the order clients asked.

use std::sync::Arc;

use bytes::{Buf, BytesMut};

use super::failure::{Cause, Failure, FailureKind, from_reply};
use super::gather::{Gather, Parked, Said, Verdict, Voter};
use super::plan::{self, Hop, Leg, Op, Question, Role};
use super::secure::{Head, put_sealed};
use super::send::rack_bit;
use super::slot::{Envelope, Owner, Stage};
use super::stamps::Told;
use super::task::{Part, Task, write_for_c};
use super::upstream::{
    NOBODY, STORE_CLIENT, STORE_UNBLOCK, STORE_VERSION, TOO_LATE, Target, Ticket, UpId,
    UpstreamError, Weight,
};
use super::view::{Now, View};
use super::{Dispatcher, Event, Frame, cut, multi};
use crate::proto::args::Args;
use crate::proto::command::TowardC;
use crate::proto::dnode::{Ext, MsgType, VERSION_C, VERSION_TORC};
use crate::proto::memcache::reply::is_ordinary;
use crate::proto::outbuf::SHARE_MIN;
use crate::proto::resp::decode::RequestDecoder;
use crate::proto::resp::spec::CommandSpec;
use crate::proto::resp::{lift, table};
use crate::ring::Consistency;

impl Dispatcher {
    /// Bytes came from a datastore or peer. Whole replies are taken out of `buf`; an unfinished
    /// one stays. On an error the shell must close the connection and report it as lost.
    pub fn on_upstream_bytes(
        &mut self,
        id: UpId,
        buf: &mut BytesMut,
        now: Now,
    ) -> Result<(), UpstreamError> {
        let Some(up) = self.ups.get_mut(id.0 as usize) else { return Ok(()) };
        up.last_heard_ms = now.mono_ms();
        let mut pos = 0;
        let result = loop {
            let up = &mut self.ups[id.0 as usize];
            let frame = match up.next_reply(&mut buf[pos..]) {
                Ok(Some(frame)) => frame,
                Ok(None) => {
                    pos += up.take_junk();
                    break Ok(());
                }
                Err(error) => break Err(error),
            };
            let ticket = self.take_ticket(id, frame.id, now);
            if frame.version == VERSION_TORC {
                self.recognise(id);
            }
            let len = frame.header + frame.body;
            let told = self.told_by(frame.ext, now);
            match ticket {
                Some(ticket) if frame.body >= SHARE_MIN && ticket.slot < TOO_LATE => {
                    let mut body = cut(buf, &mut pos, len);
                    body.advance(frame.header);
                    self.answer_told(ticket, Said::Large(body), told, now);
                }
                Some(ticket) => {
                    let body = &buf[pos + frame.header..pos + len];
                    let said = self.ended_wait(id, body).unwrap_or(Said::Reply(body));
                    self.answer_told(ticket, said, told, now);
                    if frame.header == 0 && buf[pos] == b'-' {
                        self.note_store_error(&buf[pos..pos + len], now);
                    }
                    pos += len;
                }
                None => pos += len,
            }
        };
        buf.advance(pos);
        if let Err(error) = &result {
            self.count_upstream_error(*error);
        }
        self.release_waiters(id);
        self.release_younger(id);
        self.settle_lease(id);
        self.close_if_retired(id);
        result
    }

    /// Bytes an upstream's unfinished reply needs at least.
    pub fn reply_bytes_needed(&self, id: UpId) -> usize {
        self.ups.get(id.0 as usize).map_or(0, |up| up.need())
    }

    fn take_ticket(&mut self, id: UpId, dnode_id: Option<u64>, now: Now) -> Option<Ticket> {
        let up = &mut self.ups[id.0 as usize];
        let mut lost = Vec::new();
        let ticket = up.pop(dnode_id, now.mono_ms(), |ticket| lost.push(ticket));
        let Target::Peer(peer) = up.target else { return ticket };
        for ticket in lost {
            self.counters.lost_replies += 1;
            let failure = Failure::new(FailureKind::PeerRefused, Cause::Skipped).at(peer);
            self.answer(ticket, Said::Failed(failure), now);
        }
        ticket
    }

    fn recognise(&mut self, id: UpId) {
        let up = &mut self.ups[id.0 as usize];
        if let Target::Peer(peer) = up.target
            && !up.is_torc
        {
            up.is_torc = true;
            self.events.push_back(Event::TorcPeer { peer });
        }
    }

    fn count_upstream_error(&mut self, error: UpstreamError) {
        match error {
            UpstreamError::Surplus | UpstreamError::Unreadable | UpstreamError::Frame => {
                self.counters.surplus_replies += 1;
            }
            UpstreamError::Plain | UpstreamError::Sealed => self.counters.bad_ciphers += 1,
        }
    }

    /// Hands what one replica said to the slot that asked, if it still waits.
    pub(super) fn answer(&mut self, ticket: Ticket, said: Said<'_>, now: Now) {
        self.answer_told(ticket, said, Told::default(), now);
    }

    /// The same, with what the replica told of stamps.
    pub(super) fn answer_told(&mut self, ticket: Ticket, said: Said<'_>, told: Told, now: Now) {
        match ticket.slot {
            NOBODY => return,
            STORE_VERSION => return self.note_store_version(&said),
            STORE_CLIENT => return self.note_store_client(UpId(ticket.generation), &said, now),
            STORE_UNBLOCK => return self.note_unblocked(UpId(ticket.generation), &said, now),
            TOO_LATE => {
                self.counters.late_replies += 1;
                return;
            }
            _ => {}
        }
        // A vote may have been decided without this replica.
        let waiting = |s: &&mut super::slot::Slot| s.generation == ticket.generation;
        let Some(slot) = self.slots.get_mut(ticket.slot as usize).filter(waiting) else { return };
        match &mut slot.stage {
            Stage::Single if ticket.weight == Weight::Spare => {
                self.hear_spare(ticket.slot, said, now);
            }
            Stage::Single => {
                if slot.envelope.tells {
                    slot.envelope.told = told;
                }
                if let (Some(mark), Some(reply)) = (slot.envelope.ids, said.bytes()) {
                    self.complete_marked(ticket.slot, (reply, reply), mark, now);
                } else if slot.request.is_empty() || !self.try_again(ticket.slot, &said, now) {
                    self.complete(ticket.slot, said, now);
                }
            }
            Stage::Vote(gather) => {
                let Ticket { own, joining, .. } = ticket;
                let voter = Voter { own, joining, stamp: told.stamp };
                if let Some(verdict) = gather.push(ticket.dc, voter, said) {
                    self.close_vote(ticket.slot, verdict, now);
                }
            }
            Stage::Task(_) => {
                let Ticket { slot, generation, dc: part, .. } = ticket;
                self.feed_task(Part { slot, generation, part }, said, told, now);
            }
            // A slot of parts has no tickets of its own, a finished one has none left.
            Stage::Parts(_) | Stage::Done(_) => {}
        }
    }

    fn close_vote(&mut self, key: u32, verdict: Verdict, now: Now) {
        let stage = std::mem::replace(&mut self.slots[key as usize].stage, Stage::Single);
        let Stage::Vote(gather) = stage else { unreachable!("only votes have verdicts") };
        self.counters.newer_chosen += u64::from(matches!(verdict, Verdict::Newest(_)));
        let ids = self.slots[key as usize].envelope.ids;
        match verdict {
            Verdict::Failed(failure) => self.complete(key, Said::Failed(failure), now),
            Verdict::Newest(i) | Verdict::Reply(i) if ids.is_some() => {
                let of = gather.own_answer().map_or(&[][..], Parked::as_slice);
                let mark = ids.expect("checked above");
                self.complete_marked(key, (gather.answer(i).as_slice(), of), mark, now);
            }
            Verdict::Newest(i) | Verdict::Reply(i) => match gather.answer(i).shared() {
                Some(shared) => self.complete(key, Said::Large(shared.clone()), now),
                None => self.complete(key, Said::Reply(gather.answer(i).as_slice()), now),
            },
            Verdict::PerElement => self.settle_each(key, &gather, now),
        }
        self.recycle_gather(gather);
    }

    fn recycle_gather(&mut self, gather: Gather) {
        if self.spare_gathers.len() < super::output::POOL_BUFFERS_MAX {
            self.spare_gathers.push(gather);
        }
    }

    /// Sends a request once more when that can help; false when the answer stands.
    fn try_again(&mut self, key: u32, said: &Said<'_>, now: Now) -> bool {
        if self.slots[key as usize].routed.is_some() && self.answer_routed(key, said, now) {
            return true;
        }
        let slot = &self.slots[key as usize];
        if slot.replays && said.bytes().is_some_and(|reply| reply.starts_with(b"-NOSCRIPT")) {
            return self.replay_script(key, now);
        }
        slot.moves && self.move_read(key, said, now)
    }

    /// Sends a read that failed to the next rack. False when the failure is final: it came too
    /// late, or no other rack can be asked.
    fn move_read(&mut self, key: u32, said: &Said<'_>, now: Now) -> bool {
        let failure = match said {
            Said::Failed(failure) => Some(*failure),
            Said::Reply(reply) => from_reply(reply),
            Said::Large(_) => None,
        };
        // After a timeout the client has waited its full time already (decision H13).
        if failure.is_none_or(|f| f.cause == Cause::TimedOut) {
            return false;
        }
        let slot = &mut self.slots[key as usize];
        let generation = slot.generation;
        let request = std::mem::take(&mut slot.request);
        let view = Arc::clone(&self.view);
        let moved = self.resend(&view, key, &request, now);
        self.counters.retried_reads += u64::from(moved);
        // The embedded store answers at once: then the slot is gone already.
        match self.slots.get_mut(key as usize).filter(|s| s.generation == generation) {
            Some(slot) => slot.request = request,
            None => self.recycle(request),
        }
        moved
    }

    pub(super) fn resend(&mut self, view: &View, key: u32, request: &[u8], now: Now) -> bool {
        let mut spans = Vec::new();
        let limits = &view.settings.request;
        if !matches!(RequestDecoder::default().decode(request, limits, &mut spans), Ok(Some(_))) {
            return false;
        }
        let args = Args::new(request, &spans);
        let Ok(spec) = table::find(&args, &view.settings.modules) else { return false };
        let tried = self.slots[key as usize].tried;
        let Some(leg) = self.read_leg(view, spec, &args, tried) else { return false };
        let mut encoded = Vec::new();
        let mut frame = request;
        if spec.toward_c_of(&args) != TowardC::AsIs && !self.is_torc(view, leg.peer) {
            if !write_for_c(spec, &args, &mut encoded) {
                return false;
            }
            frame = &encoded;
        }
        let slot = &mut self.slots[key as usize];
        slot.tried |= rack_bit(leg.rack);
        let (generation, started_us) = (slot.generation, slot.started_us);
        self.limit_moved((key, generation), started_us / 1000, leg.peer);
        self.send_read(&Frame::Small(frame), args, &leg, (key, generation), now);
        true
    }

    /// Where a read goes after the racks in `tried`.
    pub(super) fn read_leg(
        &mut self,
        view: &View,
        spec: &CommandSpec,
        args: &Args<'_>,
        tried: u64,
    ) -> Option<Leg> {
        let Some(name) = spec.first_key(args).and_then(|i| args.get(i)) else {
            let (peer, rack) = (view.topology.local(), view.topology.own_rack() as u16);
            return Some(Leg { peer, rack, hop: Hop::Store, role: Role::Answer });
        };
        self.owner_leg(view, name, tried)
    }

    /// Where the key `name` is read in the own datacenter, after the racks in `tried`.
    pub(super) fn owner_leg(&mut self, view: &View, name: &[u8], tried: u64) -> Option<Leg> {
        let token = view.hasher.token(name);
        let question = Question {
            topology: &view.topology,
            owners: view.topology.owners(&token),
            op: Op::Read,
            level: Consistency::DcOne,
            cap: view.terms(name, &token, false, Consistency::DcOne).cap,
            read_fallback: true,
            tried,
            local_only: true,
            stays: false,
        };
        let mut plan = std::mem::take(&mut self.plan);
        let planned = plan::plan(&question, self.links.standings(), &mut plan);
        let leg = plan.legs.first().copied();
        self.plan = plan;
        planned.ok().and(leg)
    }

    /// Puts a reply where it belongs: to the client if it is its turn, to the parent of a part,
    /// or aside until its turn comes.
    pub(super) fn complete(&mut self, key: u32, said: Said<'_>, now: Now) {
        if self.slots[key as usize].routed.is_some() {
            self.end_routed(key, &said, now);
        }
        let slot = &mut self.slots[key as usize];
        match slot.owner {
            Owner::Nobody => self.free(key),
            Owner::Slot { slot: parent, generation, part } => {
                self.free(key);
                self.fill_part(parent, generation, part, said, now);
            }
            Owner::Client(client) => {
                let started_us = slot.started_us;
                let envelope = slot.envelope;
                self.counters.latency.record(now.mono_us.saturating_sub(started_us));
                self.count_failure(&said);
                let queue = &mut self.clients[client as usize].queue;
                if queue.front() == Some(&key) {
                    queue.pop_front();
                    self.free(key);
                    self.emit(client, envelope, &said);
                    self.emit_ready(client);
                } else {
                    self.park(key, said);
                }
            }
        }
    }

    fn park(&mut self, key: u32, said: Said<'_>) {
        let spare = self.spare();
        let slot = &mut self.slots[key as usize];
        slot.parked.lend(spare);
        let mut failure = None;
        if let (Owner::Client(client), Some(bytes)) = (slot.owner, said.bytes()) {
            self.clients[client as usize].parked_bytes += bytes.len();
            if bytes.len() >= SHARE_MIN {
                // Nothing is to be written, but the shell looks how much it holds.
                self.touch_client(client);
            }
        }
        let slot = &mut self.slots[key as usize];
        match said {
            Said::Reply(bytes) => slot.parked.copy(bytes),
            Said::Large(bytes) => slot.parked.share(bytes),
            Said::Failed(f) => failure = Some(f),
        }
        slot.stage = Stage::Done(failure);
    }

    /// Writes the replies that were parked behind the one just written.
    fn emit_ready(&mut self, client: u32) {
        while let Some(&key) = self.clients[client as usize].queue.front() {
            let slot = &mut self.slots[key as usize];
            let Stage::Done(failure) = slot.stage else { break };
            let parked = std::mem::take(&mut slot.parked);
            let envelope = slot.envelope;
            let waiting = &mut self.clients[client as usize];
            waiting.queue.pop_front();
            waiting.parked_bytes -= parked.as_slice().len();
            self.free(key);
            let said = match (failure, parked.shared()) {
                (Some(failure), _) => Said::Failed(failure),
                (None, Some(shared)) => Said::Large(shared.clone()),
                (None, None) => Said::Reply(parked.as_slice()),
            };
            self.emit(client, envelope, &said);
            self.recycle(parked.into_buffer());
        }
        self.unpause(client);
    }

    /// Appends one reply to a client's output, in the form the client reads.
    pub(super) fn emit(&mut self, key: u32, envelope: Envelope, said: &Said<'_>) {
        if envelope.silent {
            return;
        }
        let text;
        let bytes = match said {
            Said::Failed(failure) => {
                text = self.failure_text(failure);
                text.as_slice()
            }
            Said::Reply(bytes) => bytes,
            Said::Large(bytes) => bytes,
        };
        if envelope.quiet.is_some_and(|command| is_ordinary(command, bytes)) {
            return;
        }
        self.touch_client(key);
        let client = &mut self.clients[key as usize];
        if let Some(peer) = &client.peer {
            let Envelope { id, same_dc, .. } = envelope;
            let version = envelope.version.clamp(VERSION_C, VERSION_TORC);
            let Told { stamp, outrun } = envelope.told;
            let ext = Ext { stamp, outrun, ..Ext::default() };
            let head = Head { id, kind: MsgType::Res, version, same_dc, ext };
            match peer.security.answers() {
                None => head.put_plain(&mut client.out, bytes.len()),
                Some(key) => {
                    let data = ext.encode();
                    return put_sealed(&mut client.out, head, data.as_slice(), key, bytes);
                }
            }
        } else if envelope.exec {
            let shapes = client.exec_shapes.pop_front();
            return multi::lift(shapes, bytes, client.out.tail_mut());
        } else if envelope.resp3 {
            return lift::lift(envelope.shape, bytes, client.out.tail_mut());
        }
        match said {
            Said::Large(shared) => client.out.put_shared(shared.clone()),
            Said::Reply(_) | Said::Failed(_) => client.out.put(bytes),
        }
    }

    /// The error line for a failure: the reference's text, then `(peer, rack, cause)`.
    pub(super) fn failure_text(&self, failure: &Failure) -> Vec<u8> {
        let prefix = match self.view.settings.protocol {
            super::view::Protocol::Redis => "-ERR",
            super::view::Protocol::Memcache => "SERVER_ERROR",
        };
        let topology = &self.view.topology;
        let place = match failure.peer.map(|id| topology.idx_of(id)) {
            Some(Some(idx)) => {
                let peer = topology.peer(idx);
                format!("{}, {}, ", peer.name, peer.rack)
            }
            Some(None) => "left the ring, ".to_owned(),
            None => String::new(),
        };
        format!("{prefix} {} ({place}{})\r\n", failure.text(), failure.cause.text()).into_bytes()
    }

    pub(super) fn count_failure(&mut self, said: &Said<'_>) {
        let Said::Failed(failure) = said else { return };
        match failure.kind {
            FailureKind::StoreNotConnected | FailureKind::StoreRefused => {
                self.counters.errors_store += 1;
            }
            FailureKind::PeerNotConnected | FailureKind::PeerRefused => {
                self.counters.errors_peer += 1;
            }
            FailureKind::NoQuorum | FailureKind::Limit => self.counters.errors_quorum += 1,
            FailureKind::StateForbids => self.counters.errors_state += 1,
            FailureKind::NotSupported => self.counters.errors_unsupported += 1,
            FailureKind::KeysSpanNodes | FailureKind::ScriptSpansNodes => {
                self.counters.errors_spanning += 1;
            }
        }
    }

    /// Forgets a slot; its memory is used again.
    pub(super) fn free(&mut self, key: u32) {
        let slot = self.slots.remove(key as usize);
        self.recycle(slot.request);
        self.recycle(slot.parked.into_buffer());
        match slot.stage {
            Stage::Vote(gather) => self.recycle_gather(gather),
            Stage::Task(task) => {
                if let Task::Backfill(backfill) = *task {
                    self.backfills.ended(&backfill);
                }
            }
            Stage::Single | Stage::Parts(_) | Stage::Done(_) => {}
        }
    }

    /// The client of a slot is gone: nobody is told, but the replies are still awaited.
    pub(super) fn abandon(&mut self, key: u32) {
        let slot = &mut self.slots[key as usize];
        slot.owner = Owner::Nobody;
        if matches!(slot.stage, Stage::Done(_)) {
            self.free(key);
        }
    }
}
