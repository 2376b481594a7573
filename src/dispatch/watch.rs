//! WATCH and UNWATCH (decision F3).
//!
//! One replica tells whether a key changed: the owner in the first rack that can be asked, where
//! conditional writes run too (decision D8). It is the same for all coordinators of a datacenter,
//! and each of them offers WATCH. At the own datastore and at another torc node the client gets a
//! connection of its own, on which EXEC follows; the embedded store compares versions, and its node
//! keeps those of a client of another node with that connection.
//!
//! ```text
//! none --WATCH--> watching --EXEC, DISCARD, UNWATCH, RESET, the client left--> none
//!                 watching --its connection was lost--> lost --the same--> none
//! ```
//!
//! While a client watches, its reads of keys of that replica are answered by it: what is read must
//! not be older than what is watched. The other racks get the transaction after this replica did
//! not abort it. Nobody can tell what changed while a watch was lost, so EXEC aborts then.

use super::client::ClientId;
use super::dedicated::Purpose;
use super::effects::first_leg;
use super::failure::{Cause, Failure, FailureKind};
use super::gather::Said;
use super::plan::{self, Hop, Leg, Op, Question, Role};
use super::requests::Request;
use super::send::{Ask, Parcel};
use super::slot::{Envelope, Owner, Stage};
use super::task::{Next, Part, Task, Written};
use super::upstream::{NOBODY, Ticket, UpId};
use super::view::{Now, View};
use super::{Dispatcher, Frame, Watched, block};
use crate::proto::args::Args;
use crate::proto::resp::reply::is_error;
use crate::ring::{Consistency, PeerId, PeerIdx};
use crate::stamp::Stamp;

mod exec;

/// Keys of the embedded store that one client watches at most.
const KEYS_MAX: usize = 65_536;

const OK: &[u8] = b"+OK\r\n";

const UNWATCH: &[u8] = b"*1\r\n$7\r\nUNWATCH\r\n";

/// What a client watches.
#[derive(Debug)]
pub(super) struct Watch {
    /// The replica that tells.
    at: PeerId,
    /// One of the keys: as long as this replica answers for it, it does for all of them.
    key: Box<[u8]>,
    how: How,
}

#[derive(Debug)]
enum How {
    /// On a connection of the client's own; `sure` once the first WATCH on it was answered.
    Connection { up: UpId, sure: bool },
    /// By the versions that keys of the embedded store had.
    Versions(Vec<Watched>),
    /// It had a connection, which is no more.
    Lost,
}

/// A request on a connection of its own that waits until its replica has what its client wrote
/// before.
#[derive(Debug)]
pub(super) struct Catching {
    request: Written,
    at: PeerIdx,
    then: Then,
}

/// What follows.
#[derive(Debug)]
pub(super) enum Then {
    /// The client watches.
    Watch,
    /// The command of this slot waits for a key at this peer.
    Wait(Part, PeerId),
    /// The transaction of this slot runs, with this stamp.
    Exec(Part, Option<Stamp>),
}

impl Catching {
    /// Takes the answer that stands behind those writes.
    pub(super) fn take(&mut self, said: &Said<'_>) -> Next {
        match said {
            // Where the connection is lost, another one may lead there.
            _ if !matches!(self.then, Then::Watch) => Next::Watch,
            Said::Failed(failure) => Next::Fail(*failure),
            Said::Reply(reply) if is_error(reply) => Next::Reply(reply.to_vec()),
            Said::Reply(_) | Said::Large(_) => Next::Watch,
        }
    }
}

impl Dispatcher {
    /// Serves WATCH of a client.
    pub(super) fn serve_watch(&mut self, view: &View, id: ClientId, args: Args<'_>, now: Now) {
        let at = match self.watched_at(view, id, &args) {
            Ok(at) => at,
            Err(failure) => {
                let said = Said::Failed(failure);
                return self.reply_in_turn(id.0, Envelope::default(), said, now);
            }
        };
        let leg = leg_to(view, at);
        let Some(behind) = self.unsettled(at, Owner::Client(id.0)) else {
            return self.watch(view, (id.0, at), &args, Envelope::default(), now);
        };
        // What this client wrote is on its way there, and would look like somebody else's write.
        let request = Written::command(args.iter());
        let task = Task::Watch(Catching { request, at, then: Then::Watch });
        let part = self.begin_task(id.0, Envelope::default(), task, now);
        self.hold(id.0);
        let ticket = Ticket::of(part.slot, part.generation);
        let ping = Frame::Small(view.settings.protocol.probe());
        self.enqueue(behind, leg.hop, &ping, None, ticket, now);
    }

    /// The replica that is to watch for a client, all keys together.
    fn watched_at(
        &mut self,
        view: &View,
        id: ClientId,
        args: &Args<'_>,
    ) -> Result<PeerIdx, Failure> {
        let watch = self.clients[id.0 as usize].watch.as_ref();
        let mut at = watch.and_then(|watch| view.topology.idx_of(watch.at));
        for key in args.tail(1).iter() {
            let first = self.first_owner(view, key)?;
            if *at.get_or_insert(first) != first {
                return Err(Failure::new(FailureKind::KeysSpanNodes, Cause::SeveralOwners));
            }
        }
        let at = at.ok_or(Failure::new(FailureKind::NoQuorum, Cause::NoReplica))?;
        if !self.is_torc(view, at) {
            let failure = Failure::new(FailureKind::NotSupported, Cause::NotSupportedByPeer);
            return Err(failure.at(view.topology.peer(at).id));
        }
        self.reachable(view, at).map(|()| at)
    }

    /// The connection on which requests of `owner` are on their way to a replica, if any are.
    pub(super) fn unsettled(&mut self, at: PeerIdx, owner: Owner) -> Option<UpId> {
        self.pick(at, owner).filter(|up| self.ups[up.0 as usize].in_flight() > 0)
    }

    /// Lets a request wait until everything before it on `behind` was answered.
    pub(super) fn catch_up(
        &mut self,
        view: &View,
        (behind, at): (UpId, PeerIdx),
        (request, then): (Written, Then),
        now: Now,
    ) {
        let stage = Stage::Task(Box::new(Task::Watch(Catching { request, at, then })));
        let (slot, generation) = self.new_slot(Owner::Nobody, stage, Envelope::default(), now);
        let ping = Frame::Small(view.settings.protocol.probe());
        let ticket = Ticket::of(slot, generation);
        self.enqueue(behind, leg_to(view, at).hop, &ping, None, ticket, now);
    }

    /// What a client wrote is there: now it watches.
    pub(super) fn watch_caught_up(&mut self, part: Part, now: Now) {
        let view = std::sync::Arc::clone(&self.view);
        let stage = std::mem::replace(&mut self.slots[part.slot as usize].stage, Stage::Single);
        let owner = self.slots[part.slot as usize].owner;
        let Stage::Task(task) = stage else { return };
        let Task::Watch(catching) = *task else { return };
        match catching.then {
            Then::Watch => {}
            Then::Wait(asked, peer) => {
                self.free(part.slot);
                return self.wait_caught_up(&view, &catching.request, (asked, peer), now);
            }
            Then::Exec(asked, stamp) => {
                self.free(part.slot);
                return self.exec_caught_up(&view, &catching.request, (asked, stamp), now);
            }
        }
        let Owner::Client(client) = owner else {
            return self.complete(part.slot, Said::Reply(OK), now);
        };
        let ticket = Ticket::of(part.slot, part.generation);
        let (at, args) = (catching.at, catching.request.args());
        self.watch_with(&view, (client, at), &args, ticket, now);
    }

    /// Lets a client watch at a replica; for another node's client that is this one.
    fn watch(
        &mut self,
        view: &View,
        (client, at): (u32, PeerIdx),
        args: &Args<'_>,
        envelope: Envelope,
        now: Now,
    ) {
        let owner = Owner::Client(client);
        let (slot, generation) = self.new_slot(owner, Stage::Single, envelope, now);
        // What the client reads next must not be read before the keys are watched.
        self.hold(client);
        self.watch_with(view, (client, at), args, Ticket::of(slot, generation), now);
    }

    fn watch_with(
        &mut self,
        view: &View,
        (client, at): (u32, PeerIdx),
        args: &Args<'_>,
        ticket: Ticket,
        now: Now,
    ) {
        let said = match view.topology.peer(at).is_local && self.embedded.is_some() {
            true => self.watch_versions(view, client, args, now),
            false => match self.watch_connection(view, (client, at), args) {
                Ok(Some(up)) => {
                    let written = Written::command(args.iter());
                    return self.send_watching(up, &written.bytes, ticket, now);
                }
                // A watch that was lost aborts, whatever else is watched.
                Ok(None) => Ok(()),
                Err(failure) => Err(Said::Failed(failure)),
            },
        };
        self.answer(ticket, said.map_or_else(|said| said, |()| Said::Reply(OK)), now);
        self.let_go(Owner::Client(client));
    }

    fn watch_versions(
        &mut self,
        view: &View,
        client: u32,
        args: &Args<'_>,
        now: Now,
    ) -> Result<(), Said<'static>> {
        let Some(embedded) = self.embedded.clone() else { return Ok(()) };
        let at = view.topology.peer(view.topology.local()).id;
        let watch = self.clients[client as usize].watch.get_or_insert_with(|| {
            Box::new(Watch { at, key: args[1].into(), how: How::Versions(Vec::new()) })
        });
        let How::Versions(watched) = &mut watch.how else { return Ok(()) };
        for key in args.tail(1).iter() {
            if watched.len() == KEYS_MAX {
                return Err(Said::Reply(b"-ERR too many watched keys\r\n"));
            }
            // Who watches a key already has seen it change, or not.
            if watched.iter().all(|w| *w.key != *key) {
                let version = embedded.version_of(key, now.wall_ms());
                watched.push(Watched { key: key.into(), version });
            }
        }
        Ok(())
    }

    /// The connection on which a client watches; none when it was lost.
    fn watch_connection(
        &mut self,
        view: &View,
        (client, at): (u32, PeerIdx),
        args: &Args<'_>,
    ) -> Result<Option<UpId>, Failure> {
        match self.clients[client as usize].watch.as_ref().map(|watch| &watch.how) {
            Some(How::Connection { up, .. }) => Ok(Some(*up)),
            Some(How::Lost | How::Versions(_)) => Ok(None),
            None => {
                self.reachable(view, at)?;
                let up = self.lease(view, at, client, Purpose::Watch)?;
                let at = view.topology.peer(at).id;
                let how = How::Connection { up, sure: false };
                let watch = Watch { at, key: args[1].into(), how };
                self.clients[client as usize].watch = Some(Box::new(watch));
                Ok(Some(up))
            }
        }
    }

    fn send_watching(&mut self, up: UpId, bytes: &[u8], ticket: Ticket, now: Now) {
        let deadline_ms = self.deadline_ms(up, now);
        let ticket = Ticket { deadline_ms, ..ticket };
        self.send_leased(up, &Frame::Small(bytes), None, ticket, now);
    }

    /// Ends a client's watch, if it has one.
    pub(super) fn unwatch(&mut self, id: ClientId, now: Now) {
        let watch = self.clients[id.0 as usize].watch.take();
        if let Some(How::Connection { up, .. }) = watch.map(|watch| watch.how) {
            self.send_watching(up, UNWATCH, Ticket::of(NOBODY, 0), now);
            self.make_idle(up);
        }
    }

    /// The same for a client that is gone.
    pub(super) fn drop_watch(&mut self, watch: Watch) {
        if let How::Connection { up, .. } = watch.how {
            self.close_leased(up);
        }
    }

    /// The WATCH of a client was answered.
    pub(super) fn note_watching(&mut self, client: u32) {
        let watch = self.clients[client as usize].watch.as_deref_mut();
        if let Some(Watch { how: How::Connection { sure, .. }, .. }) = watch {
            *sure = true;
        }
    }

    /// A client's connection for watching is lost. Whose first WATCH failed watches nothing.
    pub(super) fn lose_watch(&mut self, client: u32) {
        let watch = &mut self.clients[client as usize].watch;
        match watch.as_deref_mut().map(|watch| &mut watch.how) {
            Some(How::Connection { sure: false, .. }) => *watch = None,
            Some(how) => *how = How::Lost,
            None => {}
        }
    }

    /// Asks the replica where a client watches, when the keys of its read are there. False when
    /// the read goes where every read goes.
    pub(super) fn read_where_watched(
        &mut self,
        view: &View,
        request: &Request<'_>,
        frame: &Frame<'_>,
        now: Now,
    ) -> bool {
        let watch = self.clients[request.client as usize].watch.as_ref();
        let Some(at) = watch.and_then(|watch| view.topology.idx_of(watch.at)) else { return false };
        let keys = request.keys.keys(&request.args).filter_map(|i| request.args.get(i));
        for key in keys {
            if self.first_owner(view, key) != Ok(at) {
                return false;
            }
        }
        let mut plan = std::mem::take(&mut self.plan);
        plan.clear();
        plan.legs.push(leg_to(view, at));
        // Without a key it is not sent to another rack when it fails.
        let ask = Ask { key: None, level: Consistency::DcOne, ..request.ask(frame) };
        self.send(view, &ask, &plan, Consistency::DcOne, now);
        self.plan = plan;
        true
    }

    /// Serves WATCH, UNWATCH and a transaction after WATCH of another torc node, which opened a
    /// link for the client they are of. False for every other request.
    pub(super) fn serve_watching_of_peer(&mut self, view: &View, ask: &Ask<'_>, now: Now) -> bool {
        let (Owner::Client(client), Some(name)) = (ask.owner, ask.args.get(0)) else {
            return false;
        };
        let at = view.topology.local();
        if name.eq_ignore_ascii_case(b"watch") {
            self.watch(view, (client, at), &ask.args, ask.envelope, now);
        } else if name.eq_ignore_ascii_case(b"unwatch") {
            self.unwatch(ClientId(client), now);
            self.reply_in_turn(client, ask.envelope, Said::Reply(OK), now);
        } else if self.clients[client as usize].watch.is_some() && block::is_block(&ask.args) {
            let Part { slot, generation, .. } = self.reserve_wait(ask, now);
            let parcel = Parcel { frame: ask.frame, args: ask.args, stamp: ask.stamp };
            self.exec_watched(view, client, parcel, Ticket::of(slot, generation), now);
        } else {
            return false;
        }
        true
    }

    /// The replica of a key on which conditional writes run.
    pub(super) fn first_owner(&mut self, view: &View, key: &[u8]) -> Result<PeerIdx, Failure> {
        let token = view.hasher.token(key);
        let question = Question {
            topology: &view.topology,
            owners: view.topology.owners(&token),
            op: Op::Write,
            level: Consistency::DcOne,
            cap: view.terms(key, &token, true, Consistency::DcOne).cap,
            read_fallback: false,
            tried: 0,
            local_only: true,
            stays: false,
        };
        let mut plan = std::mem::take(&mut self.plan);
        let planned = plan::plan(&question, self.links.standings(), &mut plan);
        let first = planned.map(|()| first_leg(view, &plan).peer);
        self.plan = plan;
        first
    }
}

fn leg_to(view: &View, peer: PeerIdx) -> Leg {
    let info = view.topology.peer(peer);
    let hop = if info.is_local { Hop::Store } else { Hop::Peer };
    Leg { peer, rack: info.rack_index as u16, hop, role: Role::Answer }
}

#[cfg(test)]
mod tests;
