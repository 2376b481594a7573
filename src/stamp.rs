//! Stamps: numbers that say which of two writes of a key is the later one (decisions H6 to H8).
//!
//! A stamp counts microseconds since 1970 and is below 2^53, so that a store which keeps numbers
//! as floating point keeps it exactly. Whoever coordinates a write gives it one, from a hybrid
//! clock: the wall clock where that is ahead, else one more than the greatest stamp given or
//! seen. So a write that a client begins after it saw another one acknowledged has the greater
//! stamp wherever its coordinator has heard of that one, however far apart their clocks are.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// A stamp further ahead of the wall clock than this is taken, counted and shown (decision H7).
pub const AHEAD_US: u64 = 500_000;

/// A stamp further ahead of the wall clock than this is refused (decision H7).
pub const REFUSED_US: u64 = 60_000_000;

/// When a key was last written. The greater one is the later one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Stamp(u64);

impl Stamp {
    /// Of a key that is absent, and not known to have been removed. A read that asks for stamps
    /// carries it.
    pub const NONE: Stamp = Stamp(0);

    /// Of a value that was written without a stamp.
    pub const OLDEST: Stamp = Stamp(1);

    /// The stamp with this number.
    pub const fn new(number: u64) -> Stamp {
        Stamp(number)
    }

    /// The number.
    pub const fn get(self) -> u64 {
        self.0
    }

    /// True for [`Stamp::NONE`].
    pub const fn is_none(self) -> bool {
        self.0 == 0
    }

    /// The next greater one.
    pub const fn next(self) -> Stamp {
        Stamp(self.0 + 1)
    }
}

/// The stamps of one command on a store: what it is told, and what it found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stamping {
    /// Its own one: [`Stamp::NONE`] for a command that only asks, `None` where nobody wants to
    /// know of stamps.
    pub own: Option<Stamp>,
    /// The newest among its keys, as they were before it ran.
    pub found: Stamp,
    /// True when a key kept its value because that was written later.
    pub outrun: bool,
}

impl Stamping {
    /// A command with this stamp.
    pub fn with(own: Option<Stamp>) -> Stamping {
        Stamping { own, ..Stamping::default() }
    }
}

/// What became of another node's stamp.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Heard {
    /// It is believed.
    Fine,
    /// It is believed, but one of the two wall clocks is wrong by more than [`AHEAD_US`].
    Ahead,
    /// It is more than [`REFUSED_US`] ahead: no order can be made of it.
    Refused,
}

/// The hybrid clock of a node, shared by its workers. The time is a parameter: microseconds
/// since 1970, which may go back; stamps never do.
#[derive(Debug, Default)]
pub struct StampClock {
    last: AtomicU64,
}

impl StampClock {
    /// The stamp of a new write: greater than all given and heard before.
    pub fn next(&self, wall_us: u64) -> Stamp {
        let after = |last: u64| (last + 1).max(wall_us);
        let last = self.last.fetch_update(Relaxed, Relaxed, |last| Some(after(last)));
        Stamp(after(last.unwrap_or_default()))
    }

    /// How far the clock is, for others to hear.
    pub fn read(&self, wall_us: u64) -> Stamp {
        Stamp(self.last.load(Relaxed).max(wall_us))
    }

    /// Takes another node's stamp into account, unless it is refused.
    pub fn hear(&self, stamp: Stamp, wall_us: u64) -> Heard {
        let ahead_us = stamp.0.saturating_sub(wall_us);
        if ahead_us > REFUSED_US {
            return Heard::Refused;
        }
        if self.last.load(Relaxed) < stamp.0 {
            self.last.fetch_max(stamp.0, Relaxed);
        }
        if ahead_us > AHEAD_US { Heard::Ahead } else { Heard::Fine }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: u64 = 1_800_000_000_000_000;

    #[test]
    fn stamps_follow_the_wall_clock_and_never_go_back() {
        let clock = StampClock::default();
        assert_eq!(clock.next(NOW), Stamp(NOW));
        assert_eq!(clock.next(NOW), Stamp(NOW + 1));
        assert_eq!(clock.next(NOW - 5_000_000), Stamp(NOW + 2));
        assert_eq!(clock.next(NOW + 10), Stamp(NOW + 10));
        assert_eq!(clock.read(NOW), Stamp(NOW + 10));
        assert!(Stamp(NOW).get() < 1 << 53);
    }

    #[test]
    fn a_stamp_that_was_heard_is_before_all_that_follow() {
        let clock = StampClock::default();
        let theirs = Stamp(NOW + AHEAD_US);
        assert_eq!(clock.hear(theirs, NOW), Heard::Fine);
        assert!(clock.next(NOW) > theirs);
        assert_eq!(clock.hear(Stamp(NOW + AHEAD_US + 1), NOW), Heard::Ahead);
        assert_eq!(clock.hear(Stamp(NOW - 1), NOW), Heard::Fine);
        assert_eq!(clock.next(NOW), Stamp(NOW + AHEAD_US + 2));
    }

    #[test]
    fn a_clock_that_is_wrong_by_far_does_not_spread() {
        let clock = StampClock::default();
        assert_eq!(clock.hear(Stamp(NOW + REFUSED_US), NOW), Heard::Ahead);
        assert_eq!(clock.hear(Stamp(NOW + REFUSED_US + 1), NOW), Heard::Refused);
        assert_eq!(clock.hear(Stamp(u64::MAX), NOW), Heard::Refused);
        assert_eq!(clock.next(NOW), Stamp(NOW + REFUSED_US + 1));
    }
}
