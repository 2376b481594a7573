//! How many entries of a kind a gateway keeps in the ring: whoever was stored longest ago makes
//! room (documents.md, sections 14 and 15). Each gateway counts what it stored itself.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// The entries of one kind that this gateway stored and that have not expired.
pub(super) struct Bounded {
    entries_max: usize,
    ttl_us: u64,
    order: Mutex<Order>,
}

#[derive(Default)]
struct Order {
    by_time: BTreeMap<u64, Arc<str>>,
    times: HashMap<Arc<str>, u64>,
}

impl Bounded {
    /// At most `entries_max` entries, each of which expires `ttl` after it was stored.
    pub(super) fn new(entries_max: usize, ttl: Duration) -> Bounded {
        Bounded { entries_max, ttl_us: ttl.as_micros() as u64, order: Mutex::default() }
    }

    /// Notes that `name` was stored at `now_us`, a time that is noted once. Returns the name that
    /// must leave.
    pub(super) fn note(&self, name: &str, now_us: u64) -> Option<Arc<str>> {
        let mut order = self.order.lock().unwrap_or_else(PoisonError::into_inner);
        order.forget_before(now_us.saturating_sub(self.ttl_us));
        if let Some(before) = order.times.remove(name) {
            order.by_time.remove(&before);
        }
        let name: Arc<str> = name.into();
        order.by_time.insert(now_us, Arc::clone(&name));
        order.times.insert(name, now_us);
        if order.times.len() <= self.entries_max {
            return None;
        }
        order.take_oldest()
    }
}

impl Order {
    fn take_oldest(&mut self) -> Option<Arc<str>> {
        let (_, name) = self.by_time.pop_first()?;
        self.times.remove(&name);
        Some(name)
    }

    fn forget_before(&mut self, time_us: u64) {
        while self.by_time.first_key_value().is_some_and(|(time, _)| *time < time_us) {
            self.take_oldest();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_was_stored_longest_ago_makes_room() {
        let bounded = Bounded::new(2, Duration::from_micros(100));
        assert_eq!(bounded.note("a", 1), None);
        assert_eq!(bounded.note("b", 2), None);
        assert_eq!(bounded.note("a", 3), None, "stored again, not twice");
        assert_eq!(bounded.note("c", 4).as_deref(), Some("b"));
        assert_eq!(bounded.note("d", 5).as_deref(), Some("a"));
        assert_eq!(bounded.note("e", 105), None, "c has expired by itself");
        assert_eq!(bounded.note("f", 300), None, "all others have expired");
    }
}
