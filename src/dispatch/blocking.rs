//! Commands that may wait for a key: BLPOP and its family, XREAD and XREADGROUP with BLOCK
//! (decision F4).
//!
//! The owner of the keys runs them: its datastore on a connection of its own, its embedded store
//! in `waiting.rs`; another torc node is asked over a connection of its own. The client is not
//! served further until the answer is there, so what it pipelined behind waits in order. A write
//! runs on one replica, the same for all coordinators, and the others get what it took.

use super::Dispatcher;
use super::Frame;
use super::client::ClientId;
use super::dedicated::Purpose;
use super::failure::{Cause, Failure, FailureKind};
use super::gather::Said;
use super::plan::{Hop, Op};
use super::primary::Origin;
use super::send::Ask;
use super::slot::{Owner, Slot, Stage};
use super::task::{Part, Written};
use super::upstream::{Ticket, UpId};
use super::view::{Now, View};
use super::watch::Then;
use crate::proto::args::Args;
use crate::proto::resp::spec::CommandSpec;
use crate::proto::resp::table;
use crate::ring::{Consistency, PeerId, PeerIdx};

/// What a client waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Waits {
    /// An answer on a connection of its own.
    Upstream(UpId),
    /// A key of the embedded store; the number is its place in the line.
    Store(u64),
    /// The end of a transaction, on the connection on which it watched.
    Exec(UpId),
}

/// How long a command wants to wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Patience {
    /// For this many milliseconds.
    Millis(u64),
    /// Until there is something.
    Forever,
    /// Its words make no sense: the store says so at once.
    Senseless,
}

/// How long a command with these arguments wants to wait.
pub(super) fn patience(spec: &CommandSpec, args: &Args<'_>) -> Patience {
    let (word, unit_ms) = match spec.name {
        "blmpop" | "bzmpop" => (args.get(1), 1000.0),
        "xread" | "xreadgroup" => {
            let block = args.iter().position(|word| word.eq_ignore_ascii_case(b"block"));
            (block.and_then(|at| args.get(at + 1)), 1.0)
        }
        _ => (args.get(args.len() - 1), 1000.0),
    };
    let number = word.and_then(|w| std::str::from_utf8(w).ok()?.parse::<f64>().ok());
    match number {
        Some(0.0) => Patience::Forever,
        Some(wait) if wait > 0.0 && wait * unit_ms <= i64::MAX as f64 => {
            Patience::Millis((wait * unit_ms).ceil() as u64)
        }
        _ => Patience::Senseless,
    }
}

impl Dispatcher {
    /// Serves a command that may wait.
    pub(super) fn serve_blocking(
        &mut self,
        view: &View,
        id: ClientId,
        frame: &Frame<'_>,
        spec: &'static CommandSpec,
        args: Args<'_>,
        now: Now,
    ) {
        let mut request = self.request(view, id, spec, args);
        self.count_request(request.op);
        if request.op == Op::Read {
            request.level = Consistency::DcOne;
        }
        let several = || Failure::new(FailureKind::KeysSpanNodes, Cause::SeveralOwners);
        let failure = self
            .forbidden(view, request.op)
            .or_else(|| (!self.one_owner(view, &request)).then(several));
        if let Some(failure) = failure {
            return self.reply_in_turn(id.0, request.envelope, Said::Failed(failure), now);
        }
        let mut plan = std::mem::take(&mut self.plan);
        match self.make_plan(view, &request.ask(frame), &mut plan) {
            Err(failure) => {
                self.reply_in_turn(id.0, request.envelope, Said::Failed(failure), now);
            }
            Ok(_) if request.op == Op::Write && plan.legs.len() > 1 => {
                let origin = Origin::Redis(spec);
                let (part, peer) = self.reserve_primary(view, origin, (&request, &plan), now);
                self.ask_waiting(view, peer, spec, (frame, args), part, now);
            }
            Ok(_) => {
                let peer = plan.legs[0].peer;
                let part = self.reserve_wait(&request.ask(frame), now);
                self.ask_waiting(view, peer, spec, (frame, args), part, now);
            }
        }
        self.plan = plan;
    }

    /// Serves one that another torc node sent, on a connection it opened for it.
    pub(super) fn serve_blocking_of_peer(
        &mut self,
        view: &View,
        spec: &'static CommandSpec,
        ask: &Ask<'_>,
        now: Now,
    ) {
        let part = self.reserve_wait(ask, now);
        self.wait_at(view, view.topology.local(), spec, (ask.frame, ask.args), part, now);
    }

    /// Reserves the slot of a command whose only answer is the client's, and holds the client.
    pub(super) fn reserve_wait(&mut self, ask: &Ask<'_>, now: Now) -> Part {
        let (slot, generation) = self.new_slot(ask.owner, Stage::Single, ask.envelope, now);
        if let Owner::Client(client) = ask.owner {
            self.hold(client);
        }
        Part { slot, generation, part: 0 }
    }

    /// Lets `peer` run a command that may wait there, behind what its client wrote before: that is
    /// on its way on another connection.
    fn ask_waiting(
        &mut self,
        view: &View,
        peer: PeerIdx,
        spec: &'static CommandSpec,
        (frame, args): (&Frame<'_>, Args<'_>),
        part: Part,
        now: Now,
    ) {
        let owner = self.slots[part.slot as usize].owner;
        let Some(behind) = self.unsettled(peer, owner) else {
            return self.wait_at(view, peer, spec, (frame, args), part, now);
        };
        let then = Then::Wait(part, view.topology.peer(peer).id);
        self.catch_up(view, (behind, peer), (Written::command(args.iter()), then), now);
    }

    /// What a client wrote is there: now it waits, unless it left.
    pub(super) fn wait_caught_up(
        &mut self,
        view: &View,
        request: &Written,
        (part, peer): (Part, PeerId),
        now: Now,
    ) {
        let asked = |slot: &&Slot| slot.generation == part.generation;
        let Some(slot) = self.slots.get(part.slot as usize).filter(asked) else { return };
        if slot.owner == Owner::Nobody {
            return self.free(part.slot);
        }
        let args = request.args();
        match (view.topology.idx_of(peer), table::find(&args, &view.settings.modules)) {
            (Some(peer), Ok(spec)) => {
                let frame = Frame::Small(&request.bytes);
                self.wait_at(view, peer, spec, (&frame, args), part, now);
            }
            _ => {
                let owner = slot.owner;
                let failure = Failure::new(FailureKind::PeerNotConnected, Cause::NotRoutable);
                let ticket = Ticket { dc: part.part, ..Ticket::of(part.slot, part.generation) };
                self.answer(ticket, Said::Failed(failure.at(peer)), now);
                self.let_go(owner);
            }
        }
    }

    /// Lets `peer` run a command that may wait there.
    fn wait_at(
        &mut self,
        view: &View,
        peer: PeerIdx,
        spec: &'static CommandSpec,
        (frame, args): (&Frame<'_>, Args<'_>),
        part: Part,
        now: Now,
    ) {
        let Owner::Client(client) = self.slots[part.slot as usize].owner else { return };
        let Part { slot, generation, part: dc } = part;
        let ticket = Ticket { dc, ..Ticket::of(slot, generation) };
        let hop = if view.topology.peer(peer).is_local { Hop::Store } else { Hop::Peer };
        if hop == Hop::Store && self.embedded.is_some() {
            return self.wait_in_store(client, spec, args, ticket, now);
        }
        let refused = (!self.is_torc(view, peer)).then(|| {
            Failure::new(FailureKind::NotSupported, Cause::NotSupportedByPeer)
                .at(view.topology.peer(peer).id)
        });
        let leased = match refused {
            Some(failure) => Err(failure),
            None => self
                .reachable(view, peer)
                .and_then(|()| self.lease(view, peer, client, Purpose::Wait)),
        };
        match leased {
            Ok(up) => {
                self.clients[client as usize].waits = Some(Waits::Upstream(up));
                let margin_ms = self.patience_ms(&self.ups[up.0 as usize]);
                let deadline_ms = match patience(spec, &args) {
                    Patience::Millis(ms) => (now.mono_ms() + margin_ms).saturating_add(ms),
                    Patience::Forever => u64::MAX,
                    Patience::Senseless => now.mono_ms() + margin_ms,
                };
                self.send_leased(up, frame, None, Ticket { deadline_ms, ..ticket }, now);
            }
            Err(failure) => {
                self.answer(ticket, Said::Failed(failure), now);
                self.let_go(Owner::Client(client));
            }
        }
    }

    /// A client that waits for a key is not there any more, or sends no more. True when it may be
    /// forgotten at once. Else whoever serves it is told so, and the client ends when that was
    /// answered: what was taken for it until then is taken at every replica.
    pub fn on_hang_up(&mut self, id: ClientId, now: Now) -> bool {
        let Some(client) = self.clients.get(id.0 as usize) else { return true };
        let Some(Waits::Upstream(up)) = client.waits.filter(|_| !client.closing) else {
            return true;
        };
        let heard = self.hang_up(up, now);
        self.clients[id.0 as usize].closing = true;
        !heard
    }

    /// The client is gone while it waits: whoever serves it forgets it.
    pub(super) fn cancel_wait(&mut self, waits: Waits, now: Now) {
        match waits {
            Waits::Upstream(up) if self.hang_up(up, now) => self.leave_lease(up),
            Waits::Upstream(up) => self.close_leased(up),
            Waits::Store(place) => self.leave_line(place),
            Waits::Exec(up) => self.leave_lease(up),
        }
    }

    /// True while a client waits for a key and may leave: nothing is owed to it but that.
    pub fn may_hang_up(&self, id: ClientId) -> bool {
        self.clients.get(id.0 as usize).is_some_and(|c| c.waits_for_key() && !c.closing)
    }

    /// Clients that wait for a key.
    pub fn waiting(&self) -> usize {
        self.clients.iter().filter(|(_, client)| client.waits_for_key()).count()
    }
}

#[cfg(test)]
mod tests;
