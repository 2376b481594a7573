//! Pauses between attempts: doubling, with half of each left to chance.

/// The first pause, milliseconds.
const FIRST_MS: u64 = 500;
/// The longest pause, milliseconds.
const LONGEST_MS: u64 = 30_000;
/// After so long in health the next pause is the first one again, milliseconds.
const HEALTHY_MS: u64 = 30_000;

/// The pauses of one connection or stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backoff {
    next_ms: u64,
}

impl Default for Backoff {
    fn default() -> Backoff {
        Backoff { next_ms: FIRST_MS }
    }
}

impl Backoff {
    /// The pause after an attempt that was healthy for `healthy_ms`. `chance` is any random
    /// number.
    pub fn pause_ms(&mut self, healthy_ms: u64, chance: u64) -> u64 {
        if healthy_ms >= HEALTHY_MS {
            self.next_ms = FIRST_MS;
        }
        let whole = self.next_ms;
        self.next_ms = (whole * 2).min(LONGEST_MS);
        let half = whole / 2;
        half + chance % (whole - half + 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_the_longest_and_start_over_after_health() {
        let mut backoff = Backoff::default();
        let mut wanted = 500;
        for _ in 0..10 {
            let mut again = backoff;
            let pause = backoff.pause_ms(0, u64::MAX);
            assert!((wanted / 2..=wanted).contains(&pause), "{pause} of {wanted}");
            assert_eq!(again.pause_ms(0, 0), wanted / 2);
            wanted = (wanted * 2).min(30_000);
        }
        assert_eq!(backoff.pause_ms(29_999, 0), 15_000);
        assert_eq!(backoff.pause_ms(30_000, 0), 250);
        assert_eq!(backoff.pause_ms(0, 500), 1_000);
    }
}
