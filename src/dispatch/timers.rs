//! Deadlines and heartbeats. All of them are looked for at the heads of the upstream FIFOs, so
//! a request costs no timer of its own.

use super::Dispatcher;
use super::failure::{Cause, Failure, FailureKind};
use super::gather::Said;
use super::slot::Stage;
use super::upstream::{NOBODY, Target, UpId, Upstream, Weight};
use super::view::Now;
use crate::ring::PeerIdx;

/// A peer link that was silent this long is asked whether it lives.
const HEARTBEAT_MS: u64 = 1000;

/// What a peer of the own datacenter gets on top of the datastore's deadline (decision D4).
const SAME_DC_EXTRA_MS: u64 = 200;

/// What a peer of another datacenter gets on top of the datastore's deadline (decision D4).
const REMOTE_DC_EXTRA_MS: u64 = 5000;

/// The least time between two looks at the deadlines.
const TICK_MS: u64 = 20;

/// A read that was sent again. The FIFO it stands in now knows when it was sent there; its
/// client waits since the first time.
#[derive(Clone, Copy, Debug)]
pub(super) struct Moved {
    slot: u32,
    generation: u32,
    deadline_ms: u64,
    failure: Failure,
}

impl Dispatcher {
    /// When a request sent to `id` now must be answered.
    pub(super) fn deadline_ms(&self, id: UpId, now: Now) -> u64 {
        now.mono_ms() + self.patience_ms(&self.ups[id.0 as usize])
    }

    /// How long a request waits for `up`.
    pub(super) fn patience_ms(&self, up: &Upstream) -> u64 {
        let settings = &self.view.settings;
        let extra = match up.target {
            Target::Store => 0,
            Target::Peer(_) if up.same_dc => SAME_DC_EXTRA_MS,
            Target::Peer(_) => REMOTE_DC_EXTRA_MS,
        };
        (settings.timeout_ms + extra) * settings.timeout_factor
    }

    /// When [`Dispatcher::on_deadline`] is to be called, in milliseconds of the monotonic clock;
    /// `None` while nothing is awaited and no peer needs a heartbeat.
    pub fn poll_timeout(&self, now: Now) -> Option<u64> {
        let due = self.ups.iter().filter(|(_, up)| up.up).filter_map(|(_, up)| {
            let heartbeat = match up.target {
                Target::Peer(_) if up.lease.is_none() => {
                    Some(up.last_heard_ms.max(up.probed_ms) + HEARTBEAT_MS)
                }
                Target::Peer(_) | Target::Store => None,
            };
            let token = up.throttle.as_ref().and_then(|throttle| throttle.due_ms());
            let due = [up.next_deadline_ms(), heartbeat, self.stalled_at_ms(up), token];
            due.into_iter().flatten().min()
        });
        if !self.unusable.is_empty() {
            return Some(now.mono_ms() + TICK_MS);
        }
        let moved = self.moved.iter().map(|m| m.deadline_ms);
        due.chain(moved)
            .chain(self.line_due_ms())
            .chain(self.chase_due_ms())
            .chain(self.unblock_due_ms())
            .min()
            .map(|at| at.max(now.mono_ms() + TICK_MS))
    }

    /// Fails what was not answered in time and asks silent peers whether they live. Returns the
    /// upstreams that were silent for so long that the shell must reopen them.
    pub fn on_deadline(&mut self, now: Now) -> Vec<UpId> {
        self.expire_moved(now);
        self.expire_line(now);
        self.resend_chases(now);
        self.unblock_again(now);
        let mut stalled = std::mem::take(&mut self.unusable);
        // By number: an answer may close one of them.
        for id in (0..self.ups.capacity() as u32).map(UpId) {
            self.expire(id, now);
            self.release_younger(id);
            if self.close_overdue(id) {
                continue;
            }
            let Some(up) = self.ups.get(id.0 as usize) else { continue };
            if self.is_beyond_reach(up) {
                self.on_upstream_state(id, false, Cause::NotRoutable, now);
                continue;
            }
            if !up.up {
                continue;
            }
            if self.stalled_at_ms(up).is_some_and(|at| at <= now.mono_ms()) {
                self.counters.stalled_upstreams += 1;
                stalled.push(id);
                continue;
            }
            if self.ups[id.0 as usize].release(now.mono_ms()) {
                self.touch_upstream(id);
            }
            let Some(up) = self.ups.get(id.0 as usize) else { continue };
            let quiet_since = up.last_heard_ms.max(up.probed_ms);
            let is_peer = matches!(up.target, Target::Peer(_)) && up.lease.is_none();
            if is_peer && now.mono_ms() >= quiet_since + HEARTBEAT_MS {
                let idle = up.in_flight() == 0;
                self.ups[id.0 as usize].probed_ms = now.mono_ms();
                if idle {
                    self.probe(id, now);
                }
            }
        }
        stalled
    }

    /// An upstream that owes replies and sent no byte for twice the datastore's deadline is
    /// given up (decision D5), but never before a request to it has had its time: a short
    /// `timeout` must not cut the links to other datacenters.
    fn stalled_at_ms(&self, up: &Upstream) -> Option<u64> {
        let settings = &self.view.settings;
        let since = up.waiting_since_ms.max(up.last_heard_ms);
        let silence_ms = 2 * settings.timeout_ms * settings.timeout_factor;
        (up.in_flight() > 0 && up.lease.is_none())
            .then(|| since + silence_ms.max(self.patience_ms(up)))
    }

    fn expire(&mut self, id: UpId, now: Now) {
        while let Some(up) = self.ups.get_mut(id.0 as usize)
            && let Some(ticket) = up.expire(now.mono_ms())
        {
            let failure = Failure::sent(self.ups[id.0 as usize].target, Cause::TimedOut);
            let counts = ticket.slot != NOBODY && ticket.weight != Weight::Spare;
            if counts && self.is_waiting(ticket.slot, ticket.generation) {
                self.counters.timeouts += 1;
            }
            self.answer(ticket, Said::Failed(failure), now);
        }
    }

    /// Lets a read that moves to `peer` wait no longer than if it had been sent there at first.
    pub(super) fn limit_moved(
        &mut self,
        (slot, generation): (u32, u32),
        started_ms: u64,
        peer: PeerIdx,
    ) {
        let settings = &self.view.settings;
        let allowed_ms = (settings.timeout_ms + SAME_DC_EXTRA_MS) * settings.timeout_factor;
        let kind = match peer == self.view.topology.local() {
            true => FailureKind::StoreRefused,
            false => FailureKind::PeerRefused,
        };
        let failure = Failure::new(kind, Cause::TimedOut).at(self.view.topology.peer(peer).id);
        let deadline_ms = started_ms + allowed_ms;
        self.moved.push(Moved { slot, generation, deadline_ms, failure });
    }

    fn expire_moved(&mut self, now: Now) {
        for moved in std::mem::take(&mut self.moved) {
            if !self.is_waiting(moved.slot, moved.generation) {
                continue;
            }
            if moved.deadline_ms > now.mono_ms() {
                self.moved.push(moved);
                continue;
            }
            self.counters.timeouts += 1;
            self.complete(moved.slot, Said::Failed(moved.failure), now);
        }
    }

    /// True while nobody has answered the request of a slot.
    fn is_waiting(&self, slot: u32, generation: u32) -> bool {
        self.slots
            .get(slot as usize)
            .is_some_and(|s| s.generation == generation && !matches!(s.stage, Stage::Done(_)))
    }
}
