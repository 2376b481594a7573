//! What the control plane shows of itself: plain values behind short locks, written by the
//! control plane alone and read by the admin port.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::gossip::{Counters, Event};
use crate::net::seed_provider::{Answer, AskError};

/// Changes of the membership kept for `/ring`.
const HISTORY_MAX: usize = 256;

/// One change of the membership.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// Milliseconds since 1970.
    pub at_ms: u64,
    /// Whose slot.
    pub slot: String,
    /// What happened.
    pub what: String,
    /// Why, or who said so.
    pub cause: String,
}

/// What the control plane shows.
#[derive(Debug, Default)]
pub struct Status {
    changes: Mutex<VecDeque<Change>>,
    counts: Mutex<BTreeMap<&'static str, u64>>,
    gossip: Mutex<Counters>,
    holder: Mutex<Option<String>>,
    met: AtomicBool,
    dropped: AtomicU64,
    provider: Provider,
}

/// How a seed provider was asked since the start.
#[derive(Debug, Default)]
pub struct Provider {
    /// Answers.
    pub answers: AtomicU64,
    /// Times it gave none.
    pub failures: AtomicU64,
    /// Entries that made no sense.
    pub skipped: AtomicU64,
}

impl Status {
    /// The last changes, oldest first.
    pub fn changes(&self) -> Vec<Change> {
        lock(&self.changes).iter().cloned().collect()
    }

    /// How often each kind of change happened since the start.
    pub fn change_counts(&self) -> BTreeMap<&'static str, u64> {
        lock(&self.counts).clone()
    }

    /// The figures of gossip.
    pub fn gossip(&self) -> Counters {
        *lock(&self.gossip)
    }

    /// Messages dropped because the link to their node was not drained fast enough.
    pub fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }

    /// Where the newer holder of this node's slot listens; this node serves nobody then.
    pub fn holder(&self) -> Option<String> {
        lock(&self.holder).clone()
    }

    /// True once another node was heard of, or all that are known turned out to be away.
    pub fn met(&self) -> bool {
        self.met.load(Ordering::Relaxed)
    }

    /// How the seed provider was asked.
    pub fn provider(&self) -> &Provider {
        &self.provider
    }

    pub(super) fn provider_asked(&self, answer: &Result<Answer, AskError>) {
        let skipped = answer.as_ref().map_or(0, |answer| answer.skipped);
        let outcome = if answer.is_ok() { &self.provider.answers } else { &self.provider.failures };
        outcome.fetch_add(1, Ordering::Relaxed);
        self.provider.skipped.fetch_add(skipped, Ordering::Relaxed);
    }

    pub(super) fn set_gossip(&self, counters: Counters, dropped: u64) {
        *lock(&self.gossip) = counters;
        self.dropped.store(dropped, Ordering::Relaxed);
    }

    pub(super) fn set_holder(&self, holder: Option<String>) {
        *lock(&self.holder) = holder;
    }

    pub(super) fn set_met(&self) {
        self.met.store(true, Ordering::Relaxed);
    }

    /// Takes note of a change that happened at `at_ms` since 1970.
    pub(super) fn add(&self, event: &Event, at_ms: u64) {
        *lock(&self.counts).entry(event.kind.label()).or_default() += 1;
        let mut changes = lock(&self.changes);
        if changes.len() == HISTORY_MAX {
            changes.pop_front();
        }
        changes.push_back(Change {
            at_ms,
            slot: event.slot.to_string(),
            what: event.kind.to_string(),
            cause: event.kind.cause(),
        });
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gossip::{DownCause, EventKind, Millis, Slot};
    use crate::token::DynToken;

    #[test]
    fn the_history_is_bounded_and_the_counts_are_not() {
        let status = Status::default();
        let slot = Slot::new("dc1", "r1", DynToken::from_u32(7));
        for i in 0..300 {
            let kind = match i % 2 {
                0 => EventKind::Down { cause: DownCause::Silent },
                _ => EventKind::Up,
            };
            status.add(&Event { at: Millis(i), slot: slot.clone(), kind }, i);
        }
        let changes = status.changes();
        assert_eq!((changes.len(), changes[0].at_ms, changes[255].at_ms), (256, 44, 299));
        let down = ("dc1/r1/7", "down", "no sign of life");
        let first = &changes[0];
        assert_eq!((first.slot.as_str(), first.what.as_str(), first.cause.as_str()), down);
        assert_eq!(status.change_counts(), [("down", 150), ("up", 150)].into());
    }
}
