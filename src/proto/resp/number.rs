//! The number of a RESP header line: decimal digits, an optional minus, CR LF.

/// What stands at the beginning of a header line or of a number reply.
pub(super) enum Number {
    /// A number, and the offset after its CR LF.
    Value(i64, usize),
    /// What is there is the beginning of a number.
    Incomplete,
    /// Not a number as Redis reads them.
    Invalid,
}

/// More digits than any number within our limits has (4 GiB has ten), so that an endless line of
/// digits is refused where Redis waits for 64 KiB of it.
const DIGITS_MAX: usize = 18;

/// Reads a header number at `at`. Leading zeros, `+` and blanks are refused, as by Redis's
/// `string2ll`. The answer does not depend on how the bytes were cut: a wrong byte is `Invalid`
/// as soon as it is seen.
#[inline(always)]
pub(super) fn read(buf: &[u8], at: usize) -> Number {
    // Nearly all headers have one digit or two.
    match buf.get(at..).and_then(|b| b.first_chunk::<4>()) {
        Some(&[digit @ b'0'..=b'9', b'\r', b'\n', _]) => {
            Number::Value(i64::from(digit - b'0'), at + 3)
        }
        Some(&[tens @ b'1'..=b'9', ones @ b'0'..=b'9', b'\r', b'\n']) => {
            Number::Value(i64::from(tens - b'0') * 10 + i64::from(ones - b'0'), at + 4)
        }
        _ => read_long(buf, at),
    }
}

/// Reads the number of a `:n` reply at `at`: all of an i64.
#[inline(always)]
pub(super) fn read_i64(buf: &[u8], at: usize) -> Number {
    match read(buf, at) {
        Number::Invalid => read_widest(buf, at),
        found => found,
    }
}

/// Numbers with more digits than [`DIGITS_MAX`]; a wrong byte is found again here.
#[cold]
fn read_widest(buf: &[u8], at: usize) -> Number {
    let negative = buf.get(at) == Some(&b'-');
    let first = at + usize::from(negative);
    let rest = &buf[first.min(buf.len())..];
    let digits = rest.iter().take_while(|b| b.is_ascii_digit()).count();
    // i64 has 19 digits at most.
    if digits <= DIGITS_MAX || digits > DIGITS_MAX + 1 || rest[0] == b'0' {
        return Number::Invalid;
    }
    let magnitude = rest[..digits].iter().fold(0u64, |n, b| n * 10 + u64::from(b - b'0'));
    let value = if negative {
        0i64.checked_sub_unsigned(magnitude)
    } else {
        0i64.checked_add_unsigned(magnitude)
    };
    match (value, rest.get(digits), rest.get(digits + 1)) {
        (Some(value), Some(b'\r'), Some(b'\n')) => Number::Value(value, first + digits + 2),
        (Some(_), None, _) | (Some(_), Some(b'\r'), None) => Number::Incomplete,
        _ => Number::Invalid,
    }
}

fn read_long(buf: &[u8], at: usize) -> Number {
    let negative = buf.get(at) == Some(&b'-');
    let first = at + usize::from(negative);
    let mut value: i64 = 0;
    let mut i = first;
    while let Some(&byte) = buf.get(i) {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            break;
        }
        if i - first == DIGITS_MAX {
            return Number::Invalid;
        }
        value = value * 10 + i64::from(digit);
        i += 1;
    }
    let leading_zero = i > first && buf[first] == b'0' && (i - first > 1 || negative);
    if leading_zero || (i == first && i < buf.len()) {
        return Number::Invalid;
    }
    match (buf.get(i), buf.get(i + 1)) {
        (Some(b'\r'), Some(b'\n')) => Number::Value(if negative { -value } else { value }, i + 2),
        (None, _) | (Some(b'\r'), None) => Number::Incomplete,
        _ => Number::Invalid,
    }
}
