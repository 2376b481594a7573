//! Connections that serve one client at a time: for commands that wait at the owner of a key
//! (decision F4), and for what a client watches there (decision F3). Nothing that waits may stand
//! on a shared connection.
//!
//! ```text
//! connecting --open--> leased --answered, watches no more--> idle --the next client--> leased
//!      leased --the client left--> told so --answered--> closed
//!      any --lost, the deadline passed--> closed
//! ```
//!
//! One is opened on demand, at the own datastore or at another torc node, and a few that nobody
//! uses are kept. The own datastore is asked to end a wait whose client left (`unblock.rs`), a node
//! in between is hung up on: nothing more is sent to it, and it forgets the client. That may have
//! been served at that very moment: then its answer comes all the same, and the other replicas are
//! told of it.

use super::client::ClientId;
use super::failure::{Cause, Failure, FailureKind};
use super::gather::Said;
use super::plan::Standing;
use super::slot::Owner;
use super::unblock::StoreClient;
use super::upstream::{NOBODY, Target, Ticket, UpId, Upstream};
use super::view::{Now, View};
use super::{Dispatcher, Event, Frame};
use crate::proto::dnode::{Ext, MsgType, VERSION_C};
use crate::ring::PeerIdx;
use crate::stamp::Stamp;

/// Clients of one worker that wait at one peer at most.
const PEER_WAITS_MAX: usize = 64;

/// Clients of one worker that wait at the own datastore at most, those of other nodes included.
const STORE_WAITS_MAX: usize = 1024;

/// Clients of one worker that watch keys at one peer, or at the own datastore, at most.
const WATCHES_MAX: usize = 64;

/// Connections of one worker that are kept while nobody uses them.
const IDLE_MAX: usize = 16;

/// What a connection is held for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    /// For whoever comes next.
    Idle,
    /// Until its one request is answered.
    Wait,
    /// Until its client watches nothing any more.
    Watch,
    /// Until its transaction is answered, even if its client leaves.
    Exec,
    /// Until the other end has answered, which is told that nobody waits any more.
    Leave,
}

/// Who has a dedicated connection.
#[derive(Debug)]
pub(super) struct Lease {
    /// Nobody has an idle one.
    client: Option<u32>,
    pub(super) purpose: Purpose,
    /// How the datastore calls it.
    pub(super) store_client: StoreClient,
    /// What is sent once it is connected.
    pending: Option<(Vec<u8>, Option<Stamp>, Ticket)>,
    /// What its client is told when it ends without an answer, if that is no failure.
    pub(super) ends_with: Option<&'static [u8]>,
    /// Its client left, and nothing came of what it waited for: it is told nothing.
    pub(super) unserved: bool,
}

impl Lease {
    /// What its client is told when it ends without an answer.
    pub(super) fn ending(&self, failure: Failure) -> Said<'static> {
        self.ends_with.map_or(Said::Failed(failure), Said::Reply)
    }
}

impl Dispatcher {
    /// Gives `client` a connection of its own to `peer`, or to the own datastore.
    pub(super) fn lease(
        &mut self,
        view: &View,
        peer: PeerIdx,
        client: u32,
        purpose: Purpose,
    ) -> Result<UpId, Failure> {
        let info = view.topology.peer(peer);
        let target = match info.is_local {
            true => Target::Store,
            false => Target::Peer(info.id),
        };
        let mut lease = Lease {
            client: Some(client),
            purpose,
            store_client: StoreClient::default(),
            pending: None,
            ends_with: None,
            unserved: false,
        };
        let idle = self.idle_ups.iter().position(|up| self.ups[up.0 as usize].target == target);
        if let Some(at) = idle {
            let up = self.idle_ups.swap_remove(at);
            let held = &mut self.ups[up.0 as usize].lease;
            lease.store_client = held.as_ref().map_or(StoreClient::Unknown, |l| l.store_client);
            *held = Some(Box::new(lease));
            return Ok(up);
        }
        let limit = match (purpose, target) {
            (Purpose::Watch | Purpose::Exec, _) => WATCHES_MAX,
            (Purpose::Wait | Purpose::Leave | Purpose::Idle, Target::Store) => STORE_WAITS_MAX,
            (Purpose::Wait | Purpose::Leave | Purpose::Idle, Target::Peer(_)) => PEER_WAITS_MAX,
        };
        let same = |up: &Upstream| {
            let held = up.lease.as_ref().map(|lease| lease.purpose);
            let held = held.map(|held| if held == Purpose::Leave { Purpose::Wait } else { held });
            up.target == target && held == Some(purpose)
        };
        if self.ups.iter().filter(|(_, up)| same(up)).count() >= limit {
            let failure = Failure::new(FailureKind::Limit, Cause::TooManyWaiting);
            return Err(if info.is_local { failure } else { failure.at(info.id) });
        }
        let same_dc = info.dc == view.topology.local_dc();
        let settings = &view.settings;
        let mut up = Upstream::new(target, same_dc, settings.protocol, settings.reply);
        up.same_rack = info.rack_index == view.topology.own_rack();
        up.lease = Some(Box::new(lease));
        let up = UpId(self.ups.insert(up) as u32);
        let address = (!info.is_local).then(|| (info.host.to_owned(), info.port));
        self.events.push_back(Event::Connect { up, target, address, once: true });
        Ok(up)
    }

    /// Sends a request on a leased connection, at once or when it is connected. The ticket has its
    /// own deadline.
    pub(super) fn send_leased(
        &mut self,
        id: UpId,
        frame: &Frame<'_>,
        stamp: Option<Stamp>,
        ticket: Ticket,
        now: Now,
    ) {
        let up = &mut self.ups[id.0 as usize];
        if !up.up {
            let pending = Some((frame.as_slice().to_vec(), stamp, ticket));
            up.lease.as_mut().expect("a leased connection").pending = pending;
            return;
        }
        self.touch_upstream(id);
        let up = &mut self.ups[id.0 as usize];
        let dnode_id = up.push(ticket, now.mono_ms());
        match up.target {
            Target::Store => {
                self.counters.requests_store += 1;
                frame.append_to(&mut up.out);
            }
            Target::Peer(_) => {
                match up.same_dc {
                    true => self.counters.requests_peer += 1,
                    false => self.counters.requests_remote += 1,
                }
                let ext = Ext { stamp, ..Ext::default() };
                up.put_request(dnode_id, MsgType::Req, VERSION_C, ext, frame);
            }
        }
    }

    /// Sends what waited for the connection.
    pub(super) fn send_pending(&mut self, id: UpId, now: Now) {
        let lease = &mut self.ups[id.0 as usize].lease;
        let pending = lease.as_mut().and_then(|lease| lease.pending.take());
        if let Some((bytes, stamp, ticket)) = pending {
            self.send_leased(id, &Frame::Small(&bytes), stamp, ticket, now);
        }
    }

    /// After a reply on a dedicated connection: its client goes on, and unless it watches, another
    /// one may have the connection.
    pub(super) fn settle_lease(&mut self, id: UpId) {
        let Some(up) = self.ups.get(id.0 as usize) else { return };
        let Some(lease) = up.lease.as_ref().filter(|_| up.in_flight() == 0) else { return };
        if lease.pending.is_some() {
            return;
        }
        let (client, purpose, unserved) = (lease.client, lease.purpose, lease.unserved);
        match (purpose, client) {
            (Purpose::Idle, _) => return,
            (Purpose::Watch, Some(client)) => self.note_watching(client),
            (Purpose::Wait | Purpose::Exec, Some(client)) => {
                self.clients[client as usize].waits = None;
                self.make_idle(id);
            }
            (Purpose::Leave, client) => {
                if let Some(client) = client {
                    self.clients[client as usize].waits = None;
                }
                if let Some(client) = client.filter(|_| unserved) {
                    self.events.push_back(Event::Kill { client: ClientId(client) });
                }
                self.close_leased(id);
            }
            (Purpose::Wait | Purpose::Watch | Purpose::Exec, None) => self.make_idle(id),
        }
        if let Some(client) = client {
            self.let_go(Owner::Client(client));
        }
    }

    /// What a connection is held for from now on.
    pub(super) fn set_purpose(&mut self, id: UpId, purpose: Purpose) {
        if let Some(lease) = &mut self.ups[id.0 as usize].lease {
            lease.purpose = purpose;
        }
    }

    /// Nobody waits on a connection any more: the other end is told. False when it has not seen the
    /// whole request, so that nothing can have come of it.
    pub(super) fn hang_up(&mut self, id: UpId, now: Now) -> bool {
        let Some(up) = self.ups.get_mut(id.0 as usize) else { return false };
        let Some(lease) = up.lease.as_mut().filter(|_| up.up && up.out.is_empty()) else {
            return false;
        };
        if lease.purpose != Purpose::Leave {
            lease.purpose = Purpose::Leave;
            match up.target {
                Target::Peer(_) => self.events.push_back(Event::HangUp { up: id }),
                Target::Store => self.end_store_wait(id, now),
            }
        }
        true
    }

    /// Ends what a client waits for, with these words unless it is served before they are heard.
    pub(super) fn end_leased(&mut self, id: UpId, said: &'static [u8], now: Now) {
        if let Some(lease) = self.ups.get_mut(id.0 as usize).and_then(|up| up.lease.as_mut()) {
            lease.ends_with = Some(said);
        }
        if !self.hang_up(id, now) {
            self.on_upstream_state(id, false, Cause::Closed, now);
        }
    }

    /// The client of a connection is gone; what it asked is carried out.
    pub(super) fn leave_lease(&mut self, id: UpId) {
        if let Some(lease) = self.ups.get_mut(id.0 as usize).and_then(|up| up.lease.as_mut()) {
            lease.client = None;
        }
    }

    /// Keeps a connection for the next client, or closes it when enough are kept.
    pub(super) fn make_idle(&mut self, id: UpId) {
        let up = &mut self.ups[id.0 as usize];
        if !up.up || self.idle_ups.len() >= IDLE_MAX {
            return self.close_leased(id);
        }
        if let Some(lease) = &mut up.lease {
            (lease.client, lease.purpose) = (None, Purpose::Idle);
        }
        self.idle_ups.push(id);
    }

    /// Closes a dedicated connection; who waited on it gets no answer from here.
    pub(super) fn close_leased(&mut self, id: UpId) {
        self.idle_ups.retain(|up| *up != id);
        let mut up = self.ups.remove(id.0 as usize);
        if up.up {
            self.counters.upstreams_up -= 1;
        }
        let pending = up.lease.take().and_then(|lease| lease.pending).map(|(.., ticket)| ticket);
        let tickets: Vec<Ticket> = up.drain().map(|(ticket, _)| ticket).chain(pending).collect();
        for ticket in tickets {
            let waits = |s: &super::slot::Slot| s.generation == ticket.generation;
            if ticket.slot != NOBODY && self.slots.get(ticket.slot as usize).is_some_and(waits) {
                self.free(ticket.slot);
            }
        }
        self.events.push_back(Event::Disconnect { up: id });
    }

    /// A dedicated connection was lost, or could not be made: its client is told, and goes on.
    pub(super) fn lose_leased(&mut self, id: UpId, cause: Cause, now: Now) {
        let Some(up) = self.ups.get_mut(id.0 as usize) else { return };
        let Some(lease) = &mut up.lease else { return };
        let (client, purpose) = (lease.client.take(), lease.purpose);
        let failure = match up.target {
            Target::Store => Failure::new(FailureKind::StoreNotConnected, cause),
            Target::Peer(peer) => Failure::new(FailureKind::PeerNotConnected, cause).at(peer),
        };
        let gone = purpose == Purpose::Leave && lease.ends_with.is_none();
        if let Some((.., ticket)) = lease.pending.take() {
            let said = lease.ending(failure);
            self.answer(ticket, said, now);
        }
        if let Some(client) = client {
            // Who left and was not served is told nothing: that nothing came of it is no failure.
            if gone {
                self.events.push_back(Event::Kill { client: ClientId(client) });
            }
            self.end_lease(client, purpose);
        }
        self.close_leased(id);
    }

    fn end_lease(&mut self, client: u32, purpose: Purpose) {
        match purpose {
            Purpose::Idle => {}
            Purpose::Wait | Purpose::Exec | Purpose::Leave => {
                self.clients[client as usize].waits = None;
            }
            Purpose::Watch => self.lose_watch(client),
        }
        self.let_go(Owner::Client(client));
    }

    /// True for a dedicated connection whose request was given up: it is closed.
    pub(super) fn close_overdue(&mut self, id: UpId) -> bool {
        let Some(up) = self.ups.get(id.0 as usize) else { return true };
        let Some(lease) = &up.lease else { return false };
        if up.in_flight() == 0 || up.next_deadline_ms().is_some() {
            return false;
        }
        if let Some(client) = lease.client {
            let purpose = lease.purpose;
            self.end_lease(client, purpose);
        }
        self.close_leased(id);
        true
    }

    /// True for a dedicated connection to a peer that the snapshot does not ask any more: a frozen
    /// node never answers, and a wait may have no end.
    pub(super) fn is_beyond_reach(&self, up: &Upstream) -> bool {
        match up.target {
            Target::Peer(peer) if up.lease.is_some() => {
                let idx = self.view.topology.idx_of(peer);
                let standing = idx.map(|idx| self.links.standings()[idx.0 as usize]);
                matches!(standing, None | Some(Standing::NotRoutable))
            }
            Target::Peer(_) | Target::Store => false,
        }
    }
}
