//! Numbers as Redis reads and writes them.
//!
//! Integers are strict (`string2ll` of Redis): no blanks, no plus sign, no leading zero. Doubles
//! are what `strtod` accepts without leading blanks, and are written as `%.17g`, the form
//! redis-server 7.0 uses for scores.

use std::io::Write;

/// A 64-bit integer in its one canonical decimal form.
pub(super) fn parse_i64(text: &[u8]) -> Option<i64> {
    let (negative, digits) = match text {
        [b'-', rest @ ..] => (true, rest),
        _ => (false, text),
    };
    match digits {
        [b'0'] if !negative => return Some(0),
        [b'1'..=b'9', ..] if digits.len() <= 19 => {}
        _ => return None,
    }
    let mut value: u64 = 0;
    for &digit in digits {
        if !digit.is_ascii_digit() {
            return None;
        }
        // 19 digits stay below 2^64.
        value = value * 10 + u64::from(digit - b'0');
    }
    match negative {
        false => i64::try_from(value).ok(),
        true if value <= 1 << 63 => Some((value as i64).wrapping_neg()),
        true => None,
    }
}

/// A double as `strtod` reads it, over the whole text; `None` for NaN, for what over- or
/// underflows, and for leading blanks.
pub(super) fn parse_f64(text: &[u8]) -> Option<f64> {
    let value = parse_f64_unchecked(text)?;
    let magnitude = text.strip_prefix(b"-").or(text.strip_prefix(b"+")).unwrap_or(text);
    let named = matches!(magnitude, [b'i' | b'I', ..]);
    if value.is_infinite() && !named {
        return None;
    }
    let mantissa = magnitude.split(|b| matches!(b, b'e' | b'E')).next().unwrap_or_default();
    let hexadecimal = matches!(magnitude, [b'0', b'x' | b'X', ..]);
    let digits = mantissa.iter().any(|b| matches!(b, b'1'..=b'9'));
    (value != 0.0 || hexadecimal || !digits).then_some(value)
}

/// As [`parse_f64`], but what over- or underflows becomes infinite or 0.
pub(super) fn parse_f64_unchecked(text: &[u8]) -> Option<f64> {
    let text = std::str::from_utf8(text).ok()?;
    let magnitude = text.strip_prefix(['-', '+']).unwrap_or(text);
    if let Some(hex) = magnitude.strip_prefix("0x").or(magnitude.strip_prefix("0X")) {
        let value = parse_hex_float(hex)?;
        return Some(if text.starts_with('-') { -value } else { value });
    }
    text.parse().ok().filter(|value: &f64| !value.is_nan())
}

/// What `strtod` reads of a text that may begin with blanks and ends at a NUL; no text at all
/// reads as 0.
pub(super) fn c_number(text: &[u8]) -> &[u8] {
    let end = text.iter().position(|&b| b == 0).unwrap_or(text.len());
    let blanks = |b: &&u8| matches!(b, b' ' | b'\t'..=b'\r');
    match end {
        0 => b"0",
        _ => &text[text[..end].iter().take_while(blanks).count()..end],
    }
}

/// The part after `0x`: hexadecimal digits, a point, and a binary exponent after `p`.
fn parse_hex_float(text: &str) -> Option<f64> {
    let (digits, exponent) = match text.split_once(['p', 'P']) {
        Some((digits, exponent)) => (digits, exponent.parse::<i32>().ok()?),
        None => (text, 0),
    };
    let (whole, part) = digits.split_once('.').unwrap_or((digits, ""));
    if whole.is_empty() && part.is_empty() {
        return None;
    }
    let mut value = 0.0f64;
    for digit in whole.chars().chain(part.chars()) {
        value = value * 16.0 + f64::from(digit.to_digit(16)?);
    }
    let value = value * 2f64.powi(exponent.checked_sub(4 * part.len() as i32)?);
    value.is_finite().then_some(value)
}

/// Appends a double as `%.17g` writes it; infinities as `inf` and `-inf`.
pub(super) fn push_double(out: &mut Vec<u8>, x: f64) {
    if x.is_infinite() {
        out.extend_from_slice(if x > 0.0 { b"inf" } else { b"-inf" });
        return;
    }
    if x.abs() < 1e15 && x.fract() == 0.0 && (x != 0.0 || x.is_sign_positive()) {
        out.extend_from_slice(itoa::Buffer::new().format(x as i64).as_bytes());
        return;
    }
    let scientific = format!("{x:.16e}");
    let (mantissa, exponent) = scientific.split_once('e').expect("an exponent is written");
    let exponent: i32 = exponent.parse().expect("an exponent is a number");
    let (sign, mantissa) = match mantissa.strip_prefix('-') {
        Some(rest) => ("-", rest),
        None => ("", mantissa),
    };
    let digits: Vec<u8> = mantissa.bytes().filter(|&b| b != b'.').collect();
    let kept = digits.iter().rposition(|&b| b != b'0').map_or(1, |at| at + 1);
    let digits = &digits[..kept];
    out.extend_from_slice(sign.as_bytes());
    if (-4..17).contains(&exponent) {
        push_fixed(out, digits, exponent);
    } else {
        out.push(digits[0]);
        if digits.len() > 1 {
            out.push(b'.');
            out.extend_from_slice(&digits[1..]);
        }
        let sign = if exponent < 0 { '-' } else { '+' };
        write!(out, "e{sign}{:02}", exponent.abs()).expect("a vector takes every write");
    }
}

/// `digits` with the point after position `exponent`, padded with zeros.
fn push_fixed(out: &mut Vec<u8>, digits: &[u8], exponent: i32) {
    if exponent < 0 {
        out.extend_from_slice(b"0.");
        out.extend(std::iter::repeat_n(b'0', (-exponent - 1) as usize));
        out.extend_from_slice(digits);
        return;
    }
    let whole = exponent as usize + 1;
    if digits.len() <= whole {
        out.extend_from_slice(digits);
        out.extend(std::iter::repeat_n(b'0', whole - digits.len()));
    } else {
        out.extend_from_slice(&digits[..whole]);
        out.push(b'.');
        out.extend_from_slice(&digits[whole..]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_have_one_form() {
        for (text, want) in [
            ("0", Some(0)),
            ("-1", Some(-1)),
            ("9223372036854775807", Some(i64::MAX)),
            ("-9223372036854775808", Some(i64::MIN)),
            ("9223372036854775808", None),
            ("-9223372036854775809", None),
            ("99999999999999999999", None),
            ("", None),
            ("-", None),
            ("-0", None),
            ("+1", None),
            ("01", None),
            ("1 ", None),
            ("1a", None),
        ] {
            assert_eq!(parse_i64(text.as_bytes()), want, "{text:?}");
        }
    }

    #[test]
    fn doubles_are_what_strtod_takes() {
        for (text, want) in [
            ("3.5", Some(3.5)),
            (".5", Some(0.5)),
            ("5.", Some(5.0)),
            ("+1e3", Some(1000.0)),
            ("inf", Some(f64::INFINITY)),
            ("-Infinity", Some(f64::NEG_INFINITY)),
            ("0x1F", Some(31.0)),
            ("-0x1.8p1", Some(-3.0)),
            ("0e-999", Some(0.0)),
            ("nan", None),
            ("1e400", None),
            ("1e-400", None),
            ("", None),
            (" 1", None),
            ("1 ", None),
            ("1x", None),
            ("0x", None),
        ] {
            assert_eq!(parse_f64(text.as_bytes()), want, "{text:?}");
        }
    }

    #[test]
    fn doubles_are_written_with_seventeen_digits() {
        for (x, want) in [
            (0.0, "0"),
            (-0.0, "-0"),
            (1.0, "1"),
            (-17.0, "-17"),
            (3.15, "3.1499999999999999"),
            (0.1, "0.10000000000000001"),
            (1e17, "1e+17"),
            (1e16, "10000000000000000"),
            (1.5e300, "1.5000000000000001e+300"),
            (0.0001, "0.0001"),
            (0.00001, "1.0000000000000001e-05"),
            (123456789.25, "123456789.25"),
            (f64::INFINITY, "inf"),
            (f64::NEG_INFINITY, "-inf"),
        ] {
            let mut out = Vec::new();
            push_double(&mut out, x);
            assert_eq!(String::from_utf8(out).unwrap(), want);
        }
    }
}
