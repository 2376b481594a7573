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

/// Microseconds of a day.
pub(super) const DAY_US: u64 = 24 * 3_600 * 1_000_000;

/// Reads an RFC 3339 timestamp, of any number of digits and with any offset from UTC.
pub(super) fn parse_timestamp(text: &str) -> Option<u64> {
    let (local, offset_us) = split_offset(text)?;
    let time = humantime::parse_rfc3339(&format!("{local}Z")).ok()?;
    let local_us = time.duration_since(UNIX_EPOCH).ok()?.as_micros() as i64;
    u64::try_from(local_us - offset_us).ok()
}

/// A timestamp without its offset, and that in microseconds.
fn split_offset(text: &str) -> Option<(&str, i64)> {
    if let Some(local) = text.strip_suffix(['Z', 'z']) {
        return Some((local, 0));
    }
    let (local, offset) = text.split_at_checked(text.len().checked_sub(6)?)?;
    let sign = match offset.as_bytes()[0] {
        b'+' => 1,
        b'-' => -1,
        _ => return None,
    };
    let (hours, minutes) = offset[1..].split_once(':')?;
    let minutes = hours.parse::<u8>().ok()? as i64 * 60 + minutes.parse::<u8>().ok()? as i64;
    Some((local, sign * minutes * 60_000_000))
}

/// Reads a day, `YYYY-MM-DD`: the microsecond it begins in UTC.
pub(super) fn parse_date(text: &str) -> Option<u64> {
    let is_day = text.len() == 10 && text.is_ascii();
    is_day.then(|| parse_timestamp(&format!("{text}T00:00:00Z"))).flatten()
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
        assert_eq!(parse_timestamp("2026-01-01T01:30:00.123456+01:30"), Some(us));
        assert_eq!(parse_timestamp("2025-12-31T22:30:00.123456-01:30"), Some(us));
        for text in ["yesterday", "", "2026", "2026-01-01T00:00:00", "2026-01-01T00:00:00+1:30"] {
            assert_eq!(parse_timestamp(text), None, "{text}");
        }
        assert_eq!(parse_date("2026-01-02"), Some(1_767_225_600_000_000 + DAY_US));
        for text in ["2026-01", "2026-1-1", "2026-13-01", "tomorrow!!"] {
            assert_eq!(parse_date(text), None, "{text}");
        }
        assert_eq!(duration(1_000_001), "PT1.000001S");
    }
}
