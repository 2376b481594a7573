//! Numbers in memcache lines, as C's `strtol` and friends read them within memcached.

/// A signed 32-bit number: exptime and lengths.
pub(super) fn i32_of(text: &[u8]) -> Option<i32> {
    i32::try_from(signed(text)?).ok()
}

/// An unsigned 32-bit number: flags.
pub(super) fn u32_of(text: &[u8]) -> Option<u32> {
    // Parity: memcached 1.6.18 takes larger flags and keeps their low 32 bits.
    u32::try_from(signed(text)?).ok()
}

/// An unsigned 64-bit number: cas ids and deltas.
pub(super) fn u64_of(text: &[u8]) -> Option<u64> {
    magnitude(text.strip_prefix(b"+").unwrap_or(text))
}

fn signed(text: &[u8]) -> Option<i64> {
    let (negative, digits) = match text {
        [b'-', digits @ ..] => (true, digits),
        [b'+', digits @ ..] => (false, digits),
        digits => (false, digits),
    };
    let value = i64::try_from(magnitude(digits)?).ok()?;
    Some(if negative { -value } else { value })
}

fn magnitude(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() {
        return None;
    }
    digits.iter().try_fold(0u64, |n, b| {
        let digit = b.checked_sub(b'0').filter(|d| *d <= 9)?;
        n.checked_mul(10)?.checked_add(u64::from(digit))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_the_range_of_their_type() {
        assert_eq!(i32_of(b"-1"), Some(-1));
        assert_eq!(i32_of(b"+7"), Some(7));
        assert_eq!(i32_of(b"2147483648"), None);
        assert_eq!(u32_of(b"4294967295"), Some(u32::MAX));
        assert_eq!(u32_of(b"-1"), None);
        assert_eq!(u64_of(b"18446744073709551615"), Some(u64::MAX));
        assert_eq!(u64_of(b"18446744073709551616"), None);
        for text in [&b""[..], b"-", b"+", b"1a", b"0x1", b" 1", b"+-1"] {
            assert_eq!((i32_of(text), u64_of(text)), (None, None), "{}", text.escape_ascii());
        }
    }
}
