//! How the own datastore hears that nobody waits on a connection any more.
//!
//! A datastore that serves a wait and reads the end of its connection in one turn drops what it
//! took. So the connection stays open until the wait is answered: the datastore tells the number
//! by which it knows the connection, and is asked to end the wait on one that all clients share.
//!
//! ```text
//! asked --CLIENT ID answered--> known --the client left--> CLIENT UNBLOCK is sent
//!     :1  the wait is answered by an error: nothing was taken
//!     :0  the wait was answered before, or was not read yet: sent again a little later
//! ```
//!
//! A datastore that refuses these commands is hung up on instead, and so is one that cannot be
//! asked.

use super::dedicated::Purpose;
use super::failure::{Cause, Failure};
use super::gather::Said;
use super::plan::Hop;
use super::upstream::{STORE_CLIENT, STORE_UNBLOCK, Target, Ticket, UpId};
use super::view::Now;
use super::{Dispatcher, Event, Frame};
use crate::proto::resp::encode;
use crate::proto::resp::reply::parse_int;

/// Asks a datastore how it calls a connection.
pub(super) const CLIENT_ID: &[u8] = b"*2\r\n$6\r\nCLIENT\r\n$2\r\nID\r\n";

/// How the answer to a wait begins that was ended.
const ENDED: &[u8] = b"-UNBLOCKED ";

/// How the answer of a datastore begins that cannot end waits, or may not for this user.
const REFUSALS: [&[u8]; 2] = [b"-ERR", b"-NOPERM"];

/// The pause before a datastore is asked once more to end a wait.
const PAUSE_MS: u64 = 10;

/// How the datastore calls a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum StoreClient {
    /// Nobody knows: it is a peer's connection, or the datastore does not tell.
    #[default]
    Unknown,
    /// It was asked.
    Asked,
    /// By this number.
    Known(u64),
}

/// A wait whose datastore is to be asked again to end it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Due {
    at_ms: u64,
    up: UpId,
}

impl Dispatcher {
    /// Asks the datastore how it calls a connection that was just opened.
    pub(super) fn ask_store_client(&mut self, id: UpId, now: Now) {
        let deadline_ms = self.deadline_ms(id, now);
        let up = &mut self.ups[id.0 as usize];
        let Some(lease) = up.lease.as_mut().filter(|_| up.target == Target::Store) else { return };
        lease.store_client = StoreClient::Asked;
        self.touch_upstream(id);
        let up = &mut self.ups[id.0 as usize];
        // Its own number is told in the place of a slot's generation.
        up.push(Ticket { deadline_ms, ..Ticket::of(STORE_CLIENT, id.0) }, now.mono_ms());
        up.out.put(CLIENT_ID);
        self.counters.requests_store += 1;
    }

    /// Takes the datastore's answer to CLIENT ID.
    pub(super) fn note_store_client(&mut self, id: UpId, said: &Said<'_>, now: Now) {
        let Some(up) = self.ups.get_mut(id.0 as usize) else { return };
        let Some(lease) = &mut up.lease else { return };
        let number = said.bytes().and_then(parse_int).and_then(|n| u64::try_from(n).ok());
        lease.store_client = number.map_or(StoreClient::Unknown, StoreClient::Known);
        if lease.purpose == Purpose::Leave {
            self.end_store_wait(id, now);
        }
    }

    /// Lets the datastore end the wait on a connection. What it takes until then is answered.
    pub(super) fn end_store_wait(&mut self, id: UpId, now: Now) {
        let lease = self.ups.get(id.0 as usize).and_then(|up| up.lease.as_ref());
        let Some(lease) = lease.filter(|lease| lease.purpose == Purpose::Leave) else { return };
        let mut shared = self.links.to(Target::Store).iter().copied();
        let shared = shared.find(|up| self.ups[up.0 as usize].up);
        match (lease.store_client, shared) {
            // Its answer is waited for.
            (StoreClient::Asked, _) => {}
            (StoreClient::Known(number), Some(shared)) => {
                let mut request = self.spare();
                request.clear();
                let number = number.to_string();
                let words: [&[u8]; 4] = [b"CLIENT", b"UNBLOCK", number.as_bytes(), b"ERROR"];
                encode::command(&mut request, words);
                let ticket = Ticket::of(STORE_UNBLOCK, id.0);
                self.enqueue(shared, Hop::Store, &Frame::Small(&request), None, ticket, now);
                self.recycle(request);
            }
            (StoreClient::Known(_), None) | (StoreClient::Unknown, _) => {
                self.events.push_back(Event::HangUp { up: id });
            }
        }
    }

    /// Takes the datastore's answer to CLIENT UNBLOCK.
    pub(super) fn note_unblocked(&mut self, id: UpId, said: &Said<'_>, now: Now) {
        let Some(up) = self.ups.get_mut(id.0 as usize) else { return };
        let Some(lease) = up.lease.as_mut().filter(|l| l.purpose == Purpose::Leave) else { return };
        match said.bytes() {
            Some(reply) if parse_int(reply) == Some(1) => {}
            Some(reply) if REFUSALS.iter().any(|refusal| reply.starts_with(refusal)) => {
                lease.store_client = StoreClient::Unknown;
                self.end_store_wait(id, now);
            }
            Some(_) | None => self.unblocks.push(Due { at_ms: now.mono_ms() + PAUSE_MS, up: id }),
        }
    }

    /// What is said in place of a reply that tells that the wait on a connection was ended.
    pub(super) fn ended_wait(&mut self, id: UpId, reply: &[u8]) -> Option<Said<'static>> {
        let lease = self.ups[id.0 as usize].lease.as_mut()?;
        if lease.purpose != Purpose::Leave || !reply.starts_with(ENDED) {
            return None;
        }
        lease.unserved = lease.ends_with.is_none();
        Some(lease.ending(Failure::sent(Target::Store, Cause::Closed)))
    }

    /// When a datastore is asked again next.
    pub(super) fn unblock_due_ms(&self) -> Option<u64> {
        self.unblocks.iter().map(|due| due.at_ms).min()
    }

    /// Asks again what is due.
    pub(super) fn unblock_again(&mut self, now: Now) {
        for due in std::mem::take(&mut self.unblocks) {
            match due.at_ms > now.mono_ms() {
                true => self.unblocks.push(due),
                false => self.end_store_wait(due.up, now),
            }
        }
    }
}

#[cfg(test)]
mod tests;
