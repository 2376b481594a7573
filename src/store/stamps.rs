//! Who wrote last: the stamps of the command at hand, and of keys that are gone.
//!
//! A key's stamp is that of its last write. A write of the whole value (the SET family, DEL, the
//! targets of RENAME, RESTORE and the STORE commands) is not applied to a key that was written
//! later; all others are, in the order they come, and leave the later stamp (decision H8). A key
//! that was removed leaves its stamp behind for a while, so that an older value elsewhere is not
//! taken for a newer one; a key that was evicted does not: it is forgotten, not removed.

use std::collections::VecDeque;

use hashbrown::HashTable;

use crate::stamp::{Stamp, Stamping};

/// What a shard knows about the command that holds it.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Turn {
    /// Whether anybody wants to know of stamps.
    pub(super) wanted: bool,
    /// The command's stamp; none for reads, and where writes have no stamps.
    pub(super) own: Stamp,
    /// The newest stamp met that is not the command's own.
    pub(super) found: Stamp,
    /// True when a write was left out because its key was written later.
    pub(super) outrun: bool,
    /// The shard's version when the command began.
    pub(super) since: u64,
    /// Milliseconds since the epoch.
    pub(super) now_ms: u64,
}

impl Turn {
    /// The turn of a command, in a shard with this version.
    pub(super) fn new(stamping: &Stamping, version: u64, now_ms: u64) -> Turn {
        Turn {
            wanted: stamping.own.is_some(),
            own: stamping.own.unwrap_or_default(),
            since: version,
            now_ms,
            ..Turn::default()
        }
    }

    /// Adds what was met to what the command's caller is told.
    pub(super) fn report(&self, stamping: &mut Stamping) {
        stamping.found = stamping.found.max(self.found);
        stamping.outrun |= self.outrun;
    }

    /// Notes the stamp of a key the command looks at.
    pub(super) fn meet(&mut self, stamp: Stamp) {
        // What it wrote itself is not news.
        if stamp != self.own {
            self.found = self.found.max(stamp);
        }
    }
}

/// The stamps of one shard's removed keys, by their hashes: two keys of one 64-bit hash share a
/// stamp, which makes one of them look newer than it is once in a very long time.
#[derive(Debug)]
pub(super) struct Tombstones {
    stamps: HashTable<(u64, Stamp)>,
    /// In the order they were put up; some are replaced by later ones.
    order: VecDeque<Tombstone>,
    max: usize,
    age_ms: u64,
    /// The last removal of all keys.
    all: Tombstone,
}

#[derive(Clone, Copy, Debug, Default)]
struct Tombstone {
    hash: u64,
    stamp: Stamp,
    since_ms: u64,
}

impl Tombstones {
    /// Room for `max` tombstones, each for `age_ms` milliseconds.
    pub(super) fn new(max: usize, age_ms: u64) -> Tombstones {
        let (stamps, order) = (HashTable::new(), VecDeque::new());
        Tombstones { stamps, order, max, age_ms, all: Tombstone::default() }
    }

    /// The stamp of a key's removal, as far as it is remembered.
    pub(super) fn of(&self, hash: u64) -> Stamp {
        let own = self.stamps.find(hash, |(h, _)| *h == hash).map(|(_, stamp)| *stamp);
        own.unwrap_or_default().max(self.all.stamp)
    }

    /// Remembers that a key was removed.
    pub(super) fn add(&mut self, hash: u64, stamp: Stamp, now_ms: u64) {
        if self.max == 0 || stamp <= self.of(hash) {
            return;
        }
        self.forget_old(now_ms);
        if self.order.len() >= self.max {
            self.forget_first();
        }
        self.order.push_back(Tombstone { hash, stamp, since_ms: now_ms });
        match self.stamps.find_mut(hash, |(h, _)| *h == hash) {
            Some(entry) => entry.1 = stamp,
            None => {
                self.stamps.insert_unique(hash, (hash, stamp), |(h, _)| *h);
            }
        }
    }

    /// Forgets a key that has a value again.
    pub(super) fn remove(&mut self, hash: u64) {
        if let Ok(entry) = self.stamps.find_entry(hash, |(h, _)| *h == hash) {
            entry.remove();
        }
    }

    /// Remembers that all keys were removed.
    pub(super) fn add_all(&mut self, stamp: Stamp, now_ms: u64) {
        if stamp > self.all.stamp {
            self.all = Tombstone { hash: 0, stamp, since_ms: now_ms };
        }
    }

    /// True without tombstones.
    pub(super) fn is_empty(&self) -> bool {
        self.stamps.is_empty() && self.all.stamp.is_none()
    }

    /// Tombstones remembered.
    pub(super) fn len(&self) -> usize {
        self.stamps.len()
    }

    /// Forgets what is too old.
    pub(super) fn forget_old(&mut self, now_ms: u64) {
        let age_ms = self.age_ms;
        let old = |tombstone: &Tombstone| tombstone.since_ms.saturating_add(age_ms) < now_ms;
        while self.order.front().is_some_and(old) {
            self.forget_first();
        }
        if old(&self.all) {
            self.all = Tombstone::default();
        }
    }

    fn forget_first(&mut self) {
        let Some(Tombstone { hash, stamp, .. }) = self.order.pop_front() else { return };
        // A later one of the same key has its own place in the order.
        if let Ok(entry) = self.stamps.find_entry(hash, |e| *e == (hash, stamp)) {
            entry.remove();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: u64 = 1_800_000_000_000;

    fn at(ms: u64) -> Stamp {
        Stamp::new((NOW + ms) * 1000)
    }

    #[test]
    fn removed_keys_are_remembered_for_a_while() {
        let mut tombs = Tombstones::new(8, 1000);
        tombs.add(1, at(0), NOW);
        tombs.add(2, at(500), NOW + 500);
        tombs.add(1, at(600), NOW + 600);
        assert_eq!((tombs.of(1), tombs.of(2), tombs.of(3)), (at(600), at(500), Stamp::NONE));
        tombs.add(1, at(1), NOW + 650);
        assert_eq!(tombs.of(1), at(600), "the greater one stays");
        tombs.forget_old(NOW + 1100);
        assert_eq!(tombs.of(1), at(600), "its first removal is forgotten, its second is not");
        tombs.forget_old(NOW + 1501);
        assert_eq!((tombs.of(1), tombs.of(2)), (at(600), Stamp::NONE));
        tombs.remove(1);
        tombs.forget_old(NOW + 5000);
        assert!(tombs.is_empty() && tombs.order.is_empty());
    }

    #[test]
    fn their_number_is_bounded_and_the_oldest_go() {
        let mut tombs = Tombstones::new(4, 1000);
        (0..10).for_each(|n| tombs.add(n, at(n), NOW));
        assert_eq!(tombs.len(), 4);
        assert_eq!((tombs.of(5), tombs.of(6)), (Stamp::NONE, at(6)));
        // The same key again and again needs no more room.
        (10..100).for_each(|n| tombs.add(9, at(n), NOW));
        assert!(tombs.order.len() <= 4 && tombs.of(9) == at(99));
        let mut none = Tombstones::new(0, 1000);
        none.add(1, at(0), NOW);
        assert!(none.is_empty());
    }

    #[test]
    fn a_removal_of_all_is_one_tombstone_for_every_key() {
        let mut tombs = Tombstones::new(4, 1000);
        tombs.add(1, at(9), NOW);
        tombs.add_all(at(5), NOW);
        assert_eq!((tombs.of(1), tombs.of(2)), (at(9), at(5)));
        tombs.forget_old(NOW + 1001);
        assert_eq!(tombs.of(2), Stamp::NONE);
    }
}
