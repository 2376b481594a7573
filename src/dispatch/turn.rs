//! Several connections to one node, of which each client uses one: what a client asked keeps its
//! order also when that one was away, and others were used meanwhile.
//!
//! A connection that comes up writes nothing before the requests that are on their way over the
//! others have been answered, or their deadlines have passed. Until then its own requests queue as
//! ever, with deadlines like any other. Every connection waits for older requests alone, so nobody
//! waits in a circle.

use super::Dispatcher;
use super::upstream::UpId;

/// The place of one connection among those that lead to the same node.
#[derive(Debug, Default)]
pub(super) struct Turn {
    /// Connections whose requests are older than anything here, each with the id that follows
    /// the last of those.
    older: Vec<(UpId, u64)>,
    /// Some connection waits for requests of this one.
    awaited: bool,
}

impl Turn {
    /// True while nothing may be written here.
    pub(super) fn waits(&self) -> bool {
        !self.older.is_empty()
    }
}

impl Dispatcher {
    /// The connection has just come up: what is on its way over others goes first.
    pub(super) fn wait_for_older(&mut self, id: UpId) {
        for other in self.siblings(id) {
            let up = &mut self.ups[other.0 as usize];
            if up.up && up.oldest_awaited() < up.next_id() {
                up.turn.awaited = true;
                let next = up.next_id();
                self.ups[id.0 as usize].turn.older.push((other, next));
            }
        }
    }

    /// Lets those write that waited for requests of `id`, as far as these are settled.
    pub(super) fn release_younger(&mut self, id: UpId) {
        let Some(up) = self.ups.get(id.0 as usize).filter(|up| up.turn.awaited) else { return };
        let oldest = if up.up { up.oldest_awaited() } else { u64::MAX };
        let mut awaited = false;
        for other in self.siblings(id) {
            let turn = &mut self.ups[other.0 as usize].turn;
            let waited = turn.waits();
            turn.older.retain(|(elder, next)| *elder != id || oldest < *next);
            awaited |= turn.older.iter().any(|(elder, _)| *elder == id);
            if waited && !turn.waits() {
                self.touch_upstream(other);
            }
        }
        self.ups[id.0 as usize].turn.awaited = awaited;
    }

    /// The other connections to the node `id` leads to, those aside that serve one client alone.
    fn siblings(&self, id: UpId) -> Vec<UpId> {
        let all = self.links.to(self.ups[id.0 as usize].target);
        match all.contains(&id) {
            true => all.iter().copied().filter(|other| *other != id).collect(),
            false => Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests;
