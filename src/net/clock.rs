//! The only place that reads the system clock.

use std::time::{Instant, SystemTime, UNIX_EPOCH};

use crate::dispatch::view::Now;

/// A clock that never goes back, and the wall clock beside it.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    start: Instant,
}

impl Clock {
    /// A clock that starts at zero now.
    #[allow(clippy::disallowed_methods)]
    pub fn start() -> Clock {
        Clock { start: Instant::now() }
    }

    /// The time.
    #[allow(clippy::disallowed_methods)]
    pub fn now(&self) -> Now {
        Now { mono_us: self.start.elapsed().as_micros() as u64, wall_us: wall_us() }
    }
}

/// Microseconds since 1970.
#[allow(clippy::disallowed_methods)]
pub fn wall_us() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_micros() as u64)
}

/// Milliseconds since 1970.
#[allow(clippy::disallowed_methods)]
pub fn wall_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_millis() as u64)
}
