//! Time as the caller tells it.

/// Milliseconds on a clock that never goes back; only differences mean something.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Millis(pub u64);

impl Millis {
    /// Later than every point in time.
    pub const NEVER: Millis = Millis(u64::MAX);

    /// `ms` later.
    pub fn plus(self, ms: u64) -> Millis {
        Millis(self.0.saturating_add(ms))
    }

    /// `ms` earlier, but not before the beginning of the clock.
    pub fn minus(self, ms: u64) -> Millis {
        Millis(self.0.saturating_sub(ms))
    }

    /// Milliseconds since `earlier`; 0 when it is later.
    pub fn since(self, earlier: Millis) -> u64 {
        self.0.saturating_sub(earlier.0)
    }
}
