//! The scalar settings of general kind: numbers, sizes, switches, words, tokens.

use std::ops::Range;
use std::path::PathBuf;

use serde_json::{Value as Json, json};

use super::setting::{Bad, Text, text_settings};
use super::suggest;
use crate::hash::{HashTag, HashType};
use crate::ring::Consistency;
use crate::token::{DynToken, TokenError};

text_settings!(
    bool,
    u16,
    u32,
    u64,
    usize,
    f64,
    String,
    PathBuf,
    ByteSize,
    Secret,
    TokenList,
    HashType,
    HashTag,
    Consistency
);

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

/// A password or shared key. Never shown: its `Debug` form hides the text.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// The text itself.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Secret(..)")
    }
}

/// Tokens in the order of the text, comma-separated, and whether any of them lies elsewhere than
/// its digits say.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct TokenList {
    /// The tokens.
    pub tokens: Vec<DynToken>,
    /// Texts that do not mean their decimal value.
    pub odd_texts: Vec<String>,
}

impl TokenList {
    /// Reads the list, or says what is wrong with which bytes.
    pub(super) fn read(text: &str) -> Result<TokenList, (String, Range<usize>)> {
        let tokens = DynToken::parse_config_list(text).map_err(|error| {
            let reason = match &error {
                TokenError::Empty { .. } => "a token is missing".into(),
                TokenError::NotADigit { found, .. } => format!("{found:?} is no decimal digit"),
                TokenError::NotAHexDigit { found, .. } => format!("{found:?} is no hex digit"),
                TokenError::HexLength { digits, .. } => {
                    format!("{digits} hex digits after 0x, expected 32")
                }
            };
            let at = error.position();
            let width = text[at..].chars().next().map_or(0, char::len_utf8);
            (reason, at..at + width)
        })?;
        let odd = text.split(',').filter(|t| !DynToken::text_keeps_value(t));
        Ok(TokenList { tokens, odd_texts: odd.map(str::to_owned).collect() })
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

impl Text for bool {
    fn accepted() -> String {
        "true, false".into()
    }

    fn parse(text: &str) -> Result<Self, Bad> {
        match text {
            "true" => Ok(true),
            "false" => Ok(false),
            other => {
                let bad = Bad::new("is neither true nor false");
                Err(match other.to_ascii_lowercase().as_str() {
                    "yes" | "on" | "1" | "true" => bad.hint("did you mean `true`?"),
                    "no" | "off" | "0" | "false" => bad.hint("did you mean `false`?"),
                    _ => bad,
                })
            }
        }
    }

    fn schema() -> Json {
        json!({"type": "boolean"})
    }
}

impl Text for String {
    fn accepted() -> String {
        "text".into()
    }

    fn parse(text: &str) -> Result<Self, Bad> {
        Ok(text.to_owned())
    }
}

impl Text for PathBuf {
    fn accepted() -> String {
        "a path".into()
    }

    fn parse(text: &str) -> Result<Self, Bad> {
        Ok(text.into())
    }

    fn schema() -> Json {
        json!({"type": "string"})
    }
}

impl Text for Secret {
    fn accepted() -> String {
        "text".into()
    }

    fn parse(text: &str) -> Result<Self, Bad> {
        Ok(Secret(text.to_owned()))
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

impl Text for TokenList {
    fn accepted() -> String {
        "decimal digits with an optional `-`, or 0x and 32 hex digits; several with commas and \
         no blanks"
            .into()
    }

    fn parse(text: &str) -> Result<Self, Bad> {
        TokenList::read(text).map_err(|(reason, range)| {
            let bad = Bad::new(format!("is not a list of tokens: {reason}")).within(range);
            match text.contains(", ") {
                true => bad.hint("write the list without blanks"),
                false => bad,
            }
        })
    }

    fn schema() -> Json {
        json!({"type": ["string", "integer"]})
    }
}

impl Text for HashType {
    fn accepted() -> String {
        HashType::ALL.map(HashType::name).join(", ")
    }

    fn parse(text: &str) -> Result<Self, Bad> {
        text.parse().map_err(|_| no_word(text, "is not a hash", HashType::ALL.map(HashType::name)))
    }

    fn schema() -> Json {
        json!({"enum": HashType::ALL.map(HashType::name)})
    }
}

impl Text for HashTag {
    fn accepted() -> String {
        "exactly two characters, such as '{}'".into()
    }

    fn parse(text: &str) -> Result<Self, Bad> {
        text.parse().map_err(|_| Bad::new(format!("has {} bytes", text.len())))
    }

    fn schema() -> Json {
        json!({"type": "string", "minLength": 2, "maxLength": 2})
    }
}

impl Text for Consistency {
    fn accepted() -> String {
        Consistency::ALL.map(Consistency::name).join(", ") + " (in any case)"
    }

    fn parse(text: &str) -> Result<Self, Bad> {
        let names = Consistency::ALL.map(Consistency::name);
        text.parse().map_err(|_| no_word(text, "is not a consistency level", names))
    }

    fn schema() -> Json {
        let words = Consistency::ALL.map(Consistency::name).join("|");
        json!({"type": "string", "pattern": format!("^(?i:{words})$")})
    }
}

/// The complaint about a word that is not in a list, with the nearest one that is.
pub(super) fn no_word<const N: usize>(text: &str, what: &str, known: [&str; N]) -> Bad {
    Bad { hint: suggest::nearest(text, known.into_iter()), ..Bad::new(what) }
}

/// Declares an enum that is one word of a list in the file.
macro_rules! words {
    (
        $(#[$attribute:meta])*
        $vis:vis enum $name:ident ($what:literal) {
            $( $(#[$variant_attribute:meta])* $variant:ident = $word:literal, )+
        }
    ) => {
        $(#[$attribute])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        $vis enum $name {
            $( $(#[$variant_attribute])* $variant, )+
        }

        /// The word in the file.
        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(match self {
                    $( Self::$variant => $word, )+
                })
            }
        }

        impl $crate::config::setting::Text for $name {
            fn accepted() -> String {
                [$($word),+].join(", ")
            }

            fn parse(text: &str) -> Result<Self, $crate::config::setting::Bad> {
                match text {
                    $( $word => Ok(Self::$variant), )+
                    _ => Err($crate::config::texts::no_word(text, $what, [$($word),+])),
                }
            }

            fn schema() -> serde_json::Value {
                serde_json::json!({"enum": [$($word),+]})
            }
        }

        $crate::config::setting::text_settings!($name);
    };
}
pub(super) use words;
