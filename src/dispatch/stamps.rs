//! Stamps on their way: each write gets one here, torc nodes are told it in the extension field
//! (decision E2), and an answer brings back the one its key had before (decision H12).
//!
//! Nodes of the reference see nothing of it. Their writes are stamped by the owner, as they come.

use super::Dispatcher;
use super::client::ClientId;
use super::plan::{Op, Plan};
use super::send::Ask;
use super::view::{Now, View};
use crate::proto::dnode::Ext;
use crate::stamp::{Heard, Stamp, StampClock, Stamping};

/// What an answer says of stamps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Told {
    /// The newest stamp among its keys, as they were before; `None` when the store has none.
    pub(super) stamp: Option<Stamp>,
    /// True when a write was left out because its key was written later.
    pub(super) outrun: bool,
}

impl Told {
    /// What a command on the own store found, when it was asked for.
    pub(super) fn by(stamping: &Stamping) -> Told {
        Told { stamp: stamping.own.map(|_| stamping.found), outrun: stamping.outrun }
    }
}

impl Dispatcher {
    /// Uses the clock that all workers of a node share.
    pub fn share_clock(&mut self, clock: std::sync::Arc<StampClock>) {
        self.clock = clock;
    }

    /// The stamp of a request: its own, if it came with one; a new one for a write that has other
    /// replicas; the asking one for a read whose replicas vote.
    pub(super) fn stamp_for(
        &self,
        view: &View,
        ask: &Ask<'_>,
        plan: &Plan,
        now: Now,
    ) -> Option<Stamp> {
        match ask.op {
            _ if ask.stamp.is_some() => ask.stamp,
            Op::Read => (!plan.groups.is_empty()).then_some(Stamp::NONE),
            Op::Write => self.new_stamp(view, now),
        }
    }

    /// The stamp of a new write; `None` where there is one copy only.
    pub(super) fn new_stamp(&self, view: &View, now: Now) -> Option<Stamp> {
        (view.topology.racks().len() > 1).then(|| self.clock.next(now.wall_us))
    }

    /// The stamp of another node's request: what came with it, or one from here.
    pub(super) fn stamp_of_peer(&mut self, view: &View, id: ClientId, now: Now) -> Option<Stamp> {
        let peer = self.clients[id.0 as usize].peer.as_ref();
        match peer.and_then(|peer| peer.ext.stamp) {
            Some(stamp) if self.believes(stamp, now) => Some(stamp),
            // Its order among other writes is that of its arrival.
            Some(_) | None if self.embedded.is_some() => self.new_stamp(view, now),
            Some(_) | None => None,
        }
    }

    /// What an answer's extension field tells. A stamp that is refused is older than all others.
    pub(super) fn told_by(&mut self, ext: Ext, now: Now) -> Told {
        let stamp = ext.stamp.map(|stamp| match self.believes(stamp, now) {
            true => stamp,
            false => Stamp::OLDEST,
        });
        Told { stamp, outrun: ext.outrun }
    }

    fn believes(&mut self, stamp: Stamp, now: Now) -> bool {
        match self.clock.hear(stamp, now.wall_us) {
            Heard::Fine => true,
            Heard::Ahead => {
                self.counters.stamps_ahead += 1;
                true
            }
            Heard::Refused => {
                self.counters.stamps_refused += 1;
                false
            }
        }
    }
}
