//! EXEC of a client that watches: at the replica that tells, and then at the others.

use super::{How, Then, leg_to};
use crate::dispatch::blocking::Waits;
use crate::dispatch::client::ClientId;
use crate::dispatch::dedicated::Purpose;
use crate::dispatch::effects::first_leg;
use crate::dispatch::failure::{Cause, Failure, FailureKind};
use crate::dispatch::gather::Said;
use crate::dispatch::plan::{Op, Plan};
use crate::dispatch::primary::Origin;
use crate::dispatch::requests::Request;
use crate::dispatch::send::{Ask, Parcel};
use crate::dispatch::slot::{Owner, Slot};
use crate::dispatch::stamps::Told;
use crate::dispatch::task::{Part, Written};
use crate::dispatch::upstream::{Target, Ticket};
use crate::dispatch::view::{Now, View};
use crate::dispatch::{Dispatcher, Frame, Watched, block};
use crate::proto::args::Args;
use crate::proto::resp::table;
use crate::stamp::{Stamp, Stamping};

/// What EXEC answers when a watched key changed.
const ABORTED: &[u8] = b"*-1\r\n";

impl Dispatcher {
    /// Runs a transaction of a client that watches; the other racks get it afterwards.
    pub(in crate::dispatch) fn ask_watched(
        &mut self,
        view: &View,
        written: &Written,
        (request, key): (&Request<'_>, Option<&[u8]>),
        now: Now,
    ) {
        let client = ClientId(request.client);
        let frame = Frame::Small(&written.bytes);
        let ask = Ask { key, ..request.ask(&frame) };
        let mut plan = std::mem::take(&mut self.plan);
        let stays = self.plan_watched(view, &ask, &mut plan);
        match stays {
            Ok(true) => self.begin_watched(view, (&ask, request), &plan, now),
            // Another replica answers for the keys by now, and who knows what changed there.
            Ok(false) => {
                self.unwatch(client, now);
                self.reply_in_turn(client.0, request.envelope, Said::Reply(ABORTED), now);
            }
            Err(failure) => {
                self.unwatch(client, now);
                self.reply_in_turn(client.0, request.envelope, Said::Failed(failure), now);
            }
        }
        self.plan = plan;
    }

    /// Plans a transaction at the replica where its client watches; false when the ring changed
    /// meanwhile.
    fn plan_watched(
        &mut self,
        view: &View,
        ask: &Ask<'_>,
        plan: &mut Plan,
    ) -> Result<bool, Failure> {
        let Owner::Client(client) = ask.owner else { return Ok(false) };
        let Some(watch) = self.clients[client as usize].watch.as_ref() else { return Ok(false) };
        let (at, key) = (view.topology.idx_of(watch.at), watch.key.clone());
        let Some(at) = at.filter(|at| self.first_owner(view, &key) == Ok(*at)) else {
            return Ok(false);
        };
        let several = Failure::new(FailureKind::KeysSpanNodes, Cause::SeveralOwners);
        if let Some(key) = ask.key
            && self.first_owner(view, key)? != at
        {
            return Err(several);
        }
        match (ask.op, ask.key) {
            (Op::Write, Some(_)) => {
                self.make_plan(view, ask, plan)?;
                // The votes are planned on the same ring, so the first is the same one.
                Ok(first_leg(view, plan).peer == at)
            }
            (Op::Read | Op::Write, _) => {
                plan.clear();
                plan.legs.push(leg_to(view, at));
                Ok(true)
            }
        }
    }

    fn begin_watched(
        &mut self,
        view: &View,
        (ask, request): (&Ask<'_>, &Request<'_>),
        plan: &Plan,
        now: Now,
    ) {
        let (part, stamp) = match plan.legs.len() {
            1 => (self.reserve_wait(ask, now), self.new_stamp(view, now)),
            _ => {
                let spec = table::lookup(block::NAME).expect("a command of the table");
                let origin = Origin::Redis(spec);
                let (part, _) = self.reserve_primary(view, origin, (request, plan), now);
                (part, self.primary_stamp(part))
            }
        };
        let watch = self.clients[request.client as usize].watch.as_deref();
        let leased = watch.filter(|watch| matches!(watch.how, How::Connection { .. }));
        let at = leased.and_then(|watch| view.topology.idx_of(watch.at));
        // A change that this client made and that is on its way aborts as well.
        if let Some(at) = at
            && let Some(behind) = self.unsettled(at, Owner::Client(request.client))
        {
            let request = Written::command(ask.args.iter());
            return self.catch_up(view, (behind, at), (request, Then::Exec(part, stamp)), now);
        }
        let ticket = Ticket::of(part.slot, part.generation);
        let parcel = Parcel { frame: ask.frame, args: ask.args, stamp };
        self.exec_watched(view, request.client, parcel, ticket, now);
    }

    /// What a client wrote is there: now its transaction runs, unless it left.
    pub(super) fn exec_caught_up(
        &mut self,
        view: &View,
        request: &Written,
        (part, stamp): (Part, Option<Stamp>),
        now: Now,
    ) {
        let asked = |slot: &&Slot| slot.generation == part.generation;
        let Some(slot) = self.slots.get(part.slot as usize).filter(asked) else { return };
        let Owner::Client(client) = slot.owner else { return self.free(part.slot) };
        let frame = Frame::Small(&request.bytes);
        let parcel = Parcel { frame: &frame, args: request.args(), stamp };
        self.exec_watched(view, client, parcel, Ticket::of(part.slot, part.generation), now);
    }

    /// Runs a transaction where its client watches, unless a key changed. That ends the watch, and
    /// whether the client stays or leaves, the transaction is carried out.
    pub(super) fn exec_watched(
        &mut self,
        view: &View,
        client: u32,
        block: Parcel<'_>,
        ticket: Ticket,
        now: Now,
    ) {
        let watch = self.clients[client as usize].watch.take().map(|watch| watch.how);
        match watch {
            Some(How::Connection { up, .. }) => {
                self.clients[client as usize].waits = Some(Waits::Exec(up));
                self.set_purpose(up, Purpose::Exec);
                let deadline_ms = self.deadline_ms(up, now);
                let ticket = Ticket { deadline_ms, ..ticket };
                match self.ups[up.0 as usize].target {
                    Target::Peer(_) => self.send_leased(up, block.frame, block.stamp, ticket, now),
                    Target::Store => {
                        let commands = block::commands(&block.args, &view.settings.modules);
                        let (piece, skip) = block::piece(&commands.unwrap_or_default());
                        let ticket = Ticket { skip, ..ticket };
                        self.send_leased(up, &Frame::Small(&piece), None, ticket, now);
                    }
                }
            }
            Some(How::Versions(watched)) => {
                self.exec_unchanged(view, block, &watched, ticket, now);
                self.let_go(Owner::Client(client));
            }
            Some(How::Lost) | None => {
                self.answer(ticket, Said::Reply(ABORTED), now);
                self.let_go(Owner::Client(client));
            }
        }
    }

    /// Runs a transaction on the embedded store unless one of `watched` changed.
    fn exec_unchanged(
        &mut self,
        view: &View,
        block: Parcel<'_>,
        watched: &[Watched],
        ticket: Ticket,
        now: Now,
    ) {
        let Some(embedded) = self.embedded.clone() else { return };
        self.counters.requests_store += 1;
        let commands = block::commands(&block.args, &view.settings.modules).unwrap_or_default();
        let requests: Vec<Args<'_>> = commands.iter().map(|c| c.request.args()).collect();
        let mut out = std::mem::take(&mut self.executed);
        let mut stamping = Stamping::with(block.stamp);
        embedded.execute_block(&requests, watched, now.wall_ms(), &mut stamping, &mut out);
        self.answer_executed(out, ticket, Told::by(&stamping), now);
    }
}
