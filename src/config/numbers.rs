//! Settings that are numbers: counts, times, sizes in bytes.

use serde_json::{Value as Json, json};

use super::setting::{Bad, Text, text_settings};

text_settings!(u16, u32, u64, usize, f64, ByteSize);

/// A number of bytes. Written as digits, or with a unit as Redis writes it: `64kb`, `64mb`, `1gb`
/// are powers of 1024, `64k`, `64m`, `1g` powers of 1000.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct ByteSize(pub u64);

impl ByteSize {
    /// So many KiB.
    pub const fn kib(n: u64) -> ByteSize {
        ByteSize(n << 10)
    }

    /// So many MiB.
    pub const fn mib(n: u64) -> ByteSize {
        ByteSize(n << 20)
    }

    /// The number, as large as this machine can address.
    pub fn as_usize(self) -> usize {
        usize::try_from(self.0).unwrap_or(usize::MAX)
    }
}

/// The digits of an unsigned number.
fn number<T: std::str::FromStr>(text: &str, max: impl std::fmt::Display) -> Result<T, Bad> {
    if let Some(at) = text.find(|c: char| !c.is_ascii_digit()) {
        let width = text[at..].chars().next().map_or(1, char::len_utf8);
        return Err(Bad::new("is not a number").within(at..at + width));
    }
    text.parse().map_err(|_| Bad::new(format!("is more than {max}")))
}

fn number_schema(max: u64) -> Json {
    json!({"anyOf": [
        {"type": "integer", "minimum": 0, "maximum": max},
        {"type": "string", "pattern": "^[0-9]+$"},
    ]})
}

macro_rules! number_text {
    ($($type:ty: $accepted:literal),+ $(,)?) => {$(
        impl Text for $type {
            fn accepted() -> String {
                $accepted.into()
            }

            fn parse(text: &str) -> Result<Self, Bad> {
                number(text, <$type>::MAX)
            }

            fn schema() -> Json {
                number_schema(<$type>::MAX as u64)
            }
        }
    )+};
}
number_text!(
    u16: "digits, 0 to 65535",
    u32: "digits, 0 to 4294967295",
    u64: "digits",
    usize: "digits",
);

impl Text for f64 {
    fn accepted() -> String {
        "a positive number such as 8 or 8.5".into()
    }

    fn parse(text: &str) -> Result<Self, Bad> {
        match text.parse::<f64>() {
            Ok(value) if value.is_finite() && value > 0.0 => Ok(value),
            Ok(_) => Err(Bad::new("is not a positive number")),
            Err(_) => Err(Bad::new("is not a number")),
        }
    }

    fn schema() -> Json {
        json!({"type": "number", "exclusiveMinimum": 0})
    }
}

impl Text for ByteSize {
    fn accepted() -> String {
        "bytes as digits, or with a unit: 64kb, 64mb, 1gb".into()
    }

    fn parse(text: &str) -> Result<Self, Bad> {
        let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
        let (count, unit) = text.split_at(digits);
        let factor = match unit.to_ascii_lowercase().as_str() {
            "" | "b" => 1,
            "k" => 1_000,
            "kb" => 1 << 10,
            "m" => 1_000_000,
            "mb" => 1 << 20,
            "g" => 1_000_000_000,
            "gb" => 1 << 30,
            _ => return Err(Bad::new("has an unknown unit").within(digits..text.len())),
        };
        if count.is_empty() {
            return Err(Bad::new("is not a number of bytes"));
        }
        let count: u64 = number(count, u64::MAX)?;
        let bytes = count.checked_mul(factor).ok_or_else(|| Bad::new("is too large"))?;
        Ok(ByteSize(bytes))
    }

    fn schema() -> Json {
        json!({"anyOf": [
            {"type": "integer", "minimum": 0},
            {"type": "string", "pattern": "^[0-9]+([bB]|[kKmMgG][bB]?)?$"},
        ]})
    }
}
