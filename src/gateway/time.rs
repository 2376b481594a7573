//! Wall-clock microseconds in and out of the texts Meilisearch clients read.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

/// The wall clock, handed in: microseconds since the epoch, in UTC.
#[derive(Clone)]
pub struct WallClock(Arc<dyn Fn() -> u64 + Send + Sync>);

impl WallClock {
    /// A clock that reads `now_us`.
    pub fn new(now_us: impl Fn() -> u64 + Send + Sync + 'static) -> WallClock {
        WallClock(Arc::new(now_us))
    }

    /// Microseconds since the epoch.
    pub fn now_us(&self) -> u64 {
        (self.0)()
    }
}

impl fmt::Debug for WallClock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("WallClock")
    }
}

/// UTC with exactly six fractional digits and `Z`: the Python client refuses a timestamp without
/// a fraction.
pub(super) fn timestamp(us: u64) -> String {
    humantime::format_rfc3339_micros(UNIX_EPOCH + Duration::from_micros(us)).to_string()
}

/// Reads a backend's timestamp, of any number of digits.
pub(super) fn parse_timestamp(text: &str) -> Option<u64> {
    let time = humantime::parse_rfc3339(text).ok()?;
    Some(time.duration_since(UNIX_EPOCH).ok()?.as_micros() as u64)
}

/// An ISO-8601 duration of this many microseconds.
pub(super) fn duration(us: u64) -> String {
    format!("PT{}.{:06}S", us / 1_000_000, us % 1_000_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_read_back_with_six_digits() {
        let us = 1_767_225_600_123_456;
        assert_eq!(timestamp(us), "2026-01-01T00:00:00.123456Z");
        assert_eq!(timestamp(us / 1_000_000 * 1_000_000), "2026-01-01T00:00:00.000000Z");
        assert_eq!(parse_timestamp(&timestamp(us)), Some(us));
        assert_eq!(parse_timestamp("2026-01-01T00:00:00.12345678Z"), Some(us));
        assert_eq!(parse_timestamp("yesterday"), None);
        assert_eq!(duration(1_000_001), "PT1.000001S");
    }
}
