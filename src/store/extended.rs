//! The 80-bit floating point of x86, which INCRBYFLOAT and HINCRBYFLOAT of Redis count in.
//!
//! Clients see decimal text made from a 64-bit mantissa (10.5 + 0.1 gives 10.6), so a double is
//! not enough to give the same replies. Rare and small: exact integers do the work.

use num_bigint::BigUint;

/// Bits of the mantissa.
const MANTISSA_BITS: i64 = 64;

/// Largest binary exponent of a finite value, as the position of the top bit.
const TOP_BIT_MAX: i64 = 16_383;

/// Decimal exponents beyond this are infinite or nothing whatever the digits.
const DECIMAL_EXPONENT_MAX: i64 = 11_000;

/// Longest text of a number, as in Redis.
const TEXT_MAX: usize = 5 * 1024;

/// A finite value: mantissa x 2^exponent. The mantissa has its top bit set, or all is 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Extended {
    negative: bool,
    mantissa: u64,
    exponent: i64,
}

/// A number read from text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Parsed {
    Finite(Extended),
    Infinite,
}

/// Reads what `strtold` reads over the whole text; `None` for NaN, leading blanks, and what over-
/// or underflows.
pub(super) fn parse(text: &[u8]) -> Option<Parsed> {
    if text.len() >= TEXT_MAX {
        return None;
    }
    let text = std::str::from_utf8(text).ok()?.to_ascii_lowercase();
    let (negative, magnitude) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(&text)),
    };
    if magnitude == "inf" || magnitude == "infinity" {
        return Some(Parsed::Infinite);
    }
    let (digits, radix, exponent) = match magnitude.strip_prefix("0x") {
        Some(hex) => (split_exponent(hex, 'p')?, 16, 4),
        None => (split_exponent(magnitude, 'e')?, 10, 1),
    };
    let ((whole, part), power) = digits;
    let all = format!("{whole}{part}");
    if all.is_empty() || !all.chars().all(|c| c.is_digit(radix)) {
        return None;
    }
    let number = BigUint::parse_bytes(all.as_bytes(), radix)?;
    let power = power - part.len() as i64 * exponent;
    if number == BigUint::ZERO {
        return Some(Parsed::Finite(Extended::ZERO));
    }
    let value = match radix {
        16 => Extended::round(negative, number, BigUint::from(1u8), power),
        _ if power.abs() > DECIMAL_EXPONENT_MAX => None,
        _ if power >= 0 => {
            let number = number * BigUint::from(10u8).pow(power as u32);
            Extended::round(negative, number, BigUint::from(1u8), 0)
        }
        _ => Extended::round(negative, number, BigUint::from(10u8).pow(-power as u32), 0),
    };
    value.map(Parsed::Finite)
}

/// Whole digits, digits after the point, and the exponent after `mark`.
fn split_exponent(text: &str, mark: char) -> Option<((&str, &str), i64)> {
    let (digits, exponent) = match text.split_once(mark) {
        Some((digits, exponent)) => (digits, exponent.parse::<i32>().ok()?),
        None => (text, 0),
    };
    Some((digits.split_once('.').unwrap_or((digits, "")), exponent.into()))
}

impl Extended {
    const ZERO: Extended = Extended { negative: false, mantissa: 0, exponent: 0 };

    /// The sum, rounded to even; `None` when it is infinite.
    pub(super) fn add(self, other: Extended) -> Option<Extended> {
        let (high, low) = match self.exponent >= other.exponent {
            true => (self, other),
            false => (other, self),
        };
        let apart = high.exponent - low.exponent;
        if low.mantissa == 0 || (high.mantissa != 0 && apart > 2 * MANTISSA_BITS) {
            return Some(high);
        }
        if high.mantissa == 0 {
            return Some(low);
        }
        let a = BigUint::from(high.mantissa) << apart;
        let b = BigUint::from(low.mantissa);
        let (negative, sum) = match (high.negative == low.negative, a >= b) {
            (true, _) => (high.negative, a + b),
            (false, true) => (high.negative, a - b),
            (false, false) => (low.negative, b - a),
        };
        if sum == BigUint::ZERO {
            return Some(Extended::ZERO);
        }
        Extended::round(negative, sum, BigUint::from(1u8), low.exponent)
    }

    /// The text of `%.17Lf` without needless zeros.
    pub(super) fn text(self) -> String {
        const PLACES: usize = 17;
        let scaled = BigUint::from(self.mantissa) * BigUint::from(10u8).pow(PLACES as u32);
        let scaled = match self.exponent >= 0 {
            true => scaled << self.exponent,
            false => shift_to_even(&scaled, -self.exponent),
        };
        let digits = format!("{:0>width$}", scaled.to_string(), width = PLACES + 1);
        let (whole, part) = digits.split_at(digits.len() - PLACES);
        let part = part.trim_end_matches('0');
        let point = if part.is_empty() { "" } else { "." };
        let zero = whole == "0" && part.is_empty();
        let sign = if self.negative && !zero { "-" } else { "" };
        format!("{sign}{whole}{point}{part}")
    }

    /// `number / divisor * 2^exponent`, rounded to even; `None` when it does not fit. `number` is
    /// not 0.
    fn round(negative: bool, number: BigUint, divisor: BigUint, exponent: i64) -> Option<Extended> {
        // Two bits more than the mantissa, then whatever is left only matters as "not exact".
        let shift = MANTISSA_BITS + 2 - (number.bits() as i64 - divisor.bits() as i64);
        let (number, divisor) = match shift >= 0 {
            true => (number << shift, divisor),
            false => (number, divisor << -shift),
        };
        let quotient = &number / &divisor;
        let exact = &quotient * &divisor == number;
        // The lowest bit stands for everything below it.
        let sticky: BigUint = (quotient << 1u8) + BigUint::from(u8::from(!exact));
        let extra = sticky.bits() as i64 - MANTISSA_BITS;
        let mut rounded = shift_to_even(&sticky, extra);
        let mut exponent = exponent - shift - 1 + extra;
        if rounded.bits() as i64 > MANTISSA_BITS {
            rounded >>= 1u8;
            exponent += 1;
        }
        let fits = exponent + MANTISSA_BITS - 1 <= TOP_BIT_MAX
            && exponent + MANTISSA_BITS > -TOP_BIT_MAX - MANTISSA_BITS;
        let mantissa = u64::try_from(rounded).expect("cut to 64 bits above");
        fits.then_some(Extended { negative, mantissa, exponent })
    }
}

/// `number / 2^bits`, rounded to the nearest, ties to even. `bits` is positive.
fn shift_to_even(number: &BigUint, bits: i64) -> BigUint {
    let quotient: BigUint = number >> bits;
    let rest = number - (&quotient << bits);
    let half = BigUint::from(1u8) << (bits - 1);
    match rest > half || (rest == half && quotient.bit(0)) {
        true => quotient + 1u8,
        false => quotient,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sum(a: &str, b: &str) -> String {
        match (parse(a.as_bytes()), parse(b.as_bytes())) {
            (Some(Parsed::Finite(a)), Some(Parsed::Finite(b))) => a.add(b).unwrap().text(),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn sums_are_those_of_redis() {
        // Recorded from redis-server 7.0.15 on x86-64.
        for (a, b, want) in [
            ("10.50", "0.1", "10.6"),
            ("5.0e3", "2.0e2", "5200"),
            ("0.1", "0.2", "0.3"),
            ("3.0", "1.000000000000000005", "4.00000000000000001"),
            ("1", "-1", "0"),
            ("-1.5", "0.25", "-1.25"),
            ("0x10", "0", "16"),
            ("1e18", "0.5", "1000000000000000000.5"),
            ("1e-17", "0", "0.00000000000000001"),
            ("1e-18", "0", "0"),
            ("-1e-18", "0", "0"),
        ] {
            assert_eq!(sum(a, b), want, "{a} + {b}");
        }
    }

    #[test]
    fn what_is_no_number_is_refused() {
        for text in ["", " 1", "1 ", "nan", "1e99999", "1e-99999", "0x", "e5", "1e", "--1"] {
            assert_eq!(parse(text.as_bytes()), None, "{text:?}");
        }
        assert_eq!(parse(b"-inf"), Some(Parsed::Infinite));
    }
}
