//! Reads of several keys on which replicas differ: each key is settled by itself.
//!
//! Replicas that lack a write, one this key and one that, do not agree on any whole answer,
//! although most of them agree on every key. Keys on which no majority agrees are asked once
//! more, each in a request of its own, so that they get what a read of one key gets: the newest
//! value, or at the safe levels the error.

use std::sync::Arc;

use super::Dispatcher;
use super::client::ClientId;
use super::failure::{Cause, Failure, FailureKind};
use super::fragment::Parts;
use super::gather::{Gather, Parked, Said};
use super::memcache::memcache_request;
use super::replan::{Kept, decode_again};
use super::requests::Request;
use super::slot::{Owner, Stage};
use super::view::Now;
use crate::proto::memcache::ids;
use crate::proto::outbuf::SHARE_MIN;

impl Dispatcher {
    /// Ends a vote in which no majority said the same of all keys.
    pub(super) fn settle_each(&mut self, slot: u32, gather: &Gather, now: Now) {
        let state = &mut self.slots[slot as usize];
        let (owner, generation, level) = (state.owner, state.generation, state.level);
        let mark = state.envelope.ids;
        let bytes = std::mem::take(&mut state.request);
        let view = Arc::clone(&self.view);
        let mut spans = Vec::new();
        let request = self.client_of(owner).and_then(|client| {
            let id = ClientId(client);
            Some(match decode_again(&view, &bytes, &mut spans)? {
                Kept::Redis(spec, args) => self.request(&view, id, spec, args),
                Kept::Memcache(found, args) => memcache_request(&view, id, &found, args),
            })
        });
        let Some(request) = request else {
            // Its client is gone.
            let failure = Failure::new(FailureKind::NoQuorum, Cause::Disagree);
            return self.complete(slot, Said::Failed(failure), now);
        };
        let request = Request { level, ..request };
        let keys = request.key_names();
        let names: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
        let mut settled = Vec::new();
        let open = gather.settle_each(&names, &mut settled);
        if let Some(mark) = mark {
            let of = gather.own_answer().map_or(&[][..], Parked::as_slice);
            let unmarked = std::mem::take(&mut settled);
            ids::marked(&unmarked, of, mark, &mut settled);
        }
        if open.is_empty() {
            match settled.len() < SHARE_MIN {
                true => self.complete(slot, Said::Reply(&settled), now),
                false => self.complete(slot, Said::Large(settled.into()), now),
            }
        } else {
            self.counters.keys_asked_again += open.len() as u64;
            let parts = Parts::reopened(request.merge, keys, &open, &settled);
            self.slots[slot as usize].stage = Stage::Parts(Box::new(parts));
            for (part, key) in (1..).zip(open) {
                let owner = Owner::Slot { slot, generation, part };
                self.ask_members(&view, &request, &[key], (owner, None), now);
            }
        }
        self.recycle(bytes);
    }
}

#[cfg(test)]
mod tests;
