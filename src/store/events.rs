//! Presence events: which keys appeared and which went, for the affinity layer.

use std::collections::VecDeque;

/// A change of what the store holds. Overwriting a key is none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PresenceEvent {
    /// The key was absent and now has a value.
    Appeared(Box<[u8]>),
    /// The key had a value and is gone: deleted, emptied, renamed, expired or evicted.
    Went(Box<[u8]>),
    /// Every key of the shard is gone.
    Cleared,
}

/// Events of one shard, bounded. What does not fit is lost, and the loss is reported.
#[derive(Debug)]
pub(super) struct EventRing {
    events: VecDeque<PresenceEvent>,
    max: usize,
    overrun: bool,
}

impl EventRing {
    pub(super) fn new(max: usize) -> EventRing {
        EventRing { events: VecDeque::new(), max, overrun: false }
    }

    /// Adds an event. After an overrun nothing is kept until the next drain: the reader has to
    /// list the shard anyway.
    pub(super) fn push(&mut self, event: PresenceEvent) {
        if self.max == 0 || self.overrun {
            return;
        }
        if self.events.len() == self.max {
            self.events = VecDeque::new();
            self.overrun = true;
            return;
        }
        self.events.push_back(event);
    }

    /// True when events are wanted.
    pub(super) fn is_on(&self) -> bool {
        self.max > 0
    }

    /// Moves all events to `into`; true when some were lost since the last drain.
    pub(super) fn drain(&mut self, into: &mut Vec<PresenceEvent>) -> bool {
        into.extend(self.events.drain(..));
        std::mem::take(&mut self.overrun)
    }
}
