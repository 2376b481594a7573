//! Pauses between attempts to connect: short at first, then longer and longer, up to a bound.

use std::time::Duration;

/// The first pause; it doubles from there.
pub(super) const PAUSE_FIRST: Duration = Duration::from_millis(50);

/// How the pauses grow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Growth {
    /// Failures in a row after which they do.
    pub after: u32,
    /// The longest pause.
    pub most: Duration,
}

/// The pauses of one connection.
#[derive(Debug)]
pub(super) struct Backoff {
    growth: Growth,
    /// Pauses in a row that were given since the connection worked.
    given: u32,
    pause: Duration,
}

impl Backoff {
    pub(super) fn new(growth: Growth) -> Backoff {
        Backoff { growth, given: 0, pause: PAUSE_FIRST }
    }

    /// The pause before the next attempt.
    pub(super) fn next(&mut self) -> Duration {
        let pause = self.pause.min(self.growth.most);
        self.given = self.given.saturating_add(1);
        if self.given >= self.growth.after {
            self.pause = (pause * 2).min(self.growth.most);
        }
        pause
    }

    /// The connection worked, or there is reason to believe that it will.
    pub(super) fn reset(&mut self) {
        *self = Backoff::new(self.growth);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pauses(backoff: &mut Backoff, count: usize) -> Vec<u128> {
        (0..count).map(|_| backoff.next().as_millis()).collect()
    }

    #[test]
    fn pauses_grow_after_some_failures_up_to_a_bound_and_begin_anew() {
        let most = Duration::from_millis(500);
        let mut peer = Backoff::new(Growth { after: 1, most });
        assert_eq!(pauses(&mut peer, 6), [50, 100, 200, 400, 500, 500]);
        peer.reset();
        assert_eq!(pauses(&mut peer, 2), [50, 100]);
        let mut store = Backoff::new(Growth { after: 3, most });
        assert_eq!(pauses(&mut store, 6), [50, 50, 50, 100, 200, 400]);
        let mut never = Backoff::new(Growth { after: u32::MAX, most });
        assert_eq!(pauses(&mut never, 100), [50; 100]);
        let mut short = Backoff::new(Growth { after: 1, most: Duration::from_millis(20) });
        assert_eq!(pauses(&mut short, 3), [20, 20, 20]);
    }
}
