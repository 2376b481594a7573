//! Keys the node told its store to change, for a store that tells of no changes itself. Whoever
//! follows the store asks it about them a moment later, when it has done what it was told.
//!
//! Nothing is noted, and no lock taken, unless somebody follows a store that way.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

/// Keys that wait to be asked about; beyond them the store has to be listed.
const KEYS_MAX: usize = 65_536;

/// Changes of all workers since they were taken last.
#[derive(Debug, Default)]
pub struct ObservedWrites {
    wanted: AtomicBool,
    changed: Mutex<Changed>,
}

/// Keys that may have been changed.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Changed {
    /// These.
    pub keys: Vec<Box<[u8]>>,
    /// And others: there were too many.
    pub others: bool,
}

impl ObservedWrites {
    /// Whether changes are to be noted from here on.
    pub fn want(&self, wanted: bool) {
        self.wanted.store(wanted, Ordering::Relaxed);
        if !wanted {
            self.take();
        }
    }

    /// Whether changes are to be noted.
    pub fn are_wanted(&self) -> bool {
        self.wanted.load(Ordering::Relaxed)
    }

    /// The store is told to change a key.
    pub fn note(&self, key: &[u8]) {
        let mut changed = self.changed.lock().unwrap_or_else(PoisonError::into_inner);
        if changed.keys.len() < KEYS_MAX {
            changed.keys.push(key.into());
        } else {
            changed.others = true;
        }
    }

    /// What was noted since the last time.
    pub fn take(&self) -> Changed {
        std::mem::take(&mut *self.changed.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_are_taken_once_and_too_many_are_told() {
        let observed = ObservedWrites::default();
        assert!(!observed.are_wanted());
        observed.want(true);
        observed.note(b"a");
        observed.note(b"b");
        let keys = [b"a", b"b"].map(|key| key.as_slice().into()).to_vec();
        assert_eq!(observed.take(), Changed { keys, others: false });
        assert_eq!(observed.take(), Changed::default());
        (0..=KEYS_MAX).for_each(|_| observed.note(b"c"));
        let changed = observed.take();
        assert_eq!((changed.keys.len(), changed.others), (KEYS_MAX, true));
        observed.note(b"d");
        observed.want(false);
        assert!(!observed.are_wanted() && observed.take() == Changed::default());
    }
}
