//! The top level of a JSON object, read without touching what lies below it.
//!
//! Documents must come out as they came in: numbers beyond 2^53, floats and key order survive
//! because values are kept as text. Names are compared after unescaping.

use serde::de::{Deserializer as _, IgnoredAny, MapAccess, Visitor};
use serde_json::value::RawValue;
use std::borrow::Cow;
use std::fmt;

/// Deepest nesting of a document, its own braces counted as 1. Meilisearch's JSON reader stops at
/// 127 levels and a document arrives there inside an array; deeper ones would be refused by a
/// backend after others had taken their part of the batch.
pub const DEPTH_MAX: usize = 126;

/// Calls `visit` with the name and the value's text of each top-level field, in order.
///
/// # Errors
/// The text is no JSON object.
pub fn fields<'a>(
    text: &'a str,
    visit: impl FnMut(Cow<'a, str>, &'a str),
) -> Result<(), serde_json::Error> {
    let mut reader = serde_json::Deserializer::from_str(text);
    reader.deserialize_map(FieldVisitor { visit })?;
    reader.end()
}

struct FieldVisitor<F> {
    visit: F,
}

impl<'a, F: FnMut(Cow<'a, str>, &'a str)> Visitor<'a> for FieldVisitor<F> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'a>>(mut self, mut map: A) -> Result<(), A::Error> {
        while let Some(Name(name)) = map.next_key()? {
            let value: &'a RawValue = map.next_value()?;
            (self.visit)(name, value.get());
        }
        Ok(())
    }
}

/// A field name that borrows from the input unless it is written with escapes.
struct Name<'a>(Cow<'a, str>);

impl<'a> serde::Deserialize<'a> for Name<'a> {
    fn deserialize<D: serde::Deserializer<'a>>(reader: D) -> Result<Name<'a>, D::Error> {
        struct NameVisitor;
        impl<'a> Visitor<'a> for NameVisitor {
            type Value = Name<'a>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a field name")
            }

            fn visit_borrowed_str<E>(self, name: &'a str) -> Result<Name<'a>, E> {
                Ok(Name(Cow::Borrowed(name)))
            }

            fn visit_str<E>(self, name: &str) -> Result<Name<'a>, E> {
                Ok(Name(Cow::Owned(name.to_owned())))
            }
        }
        reader.deserialize_str(NameVisitor)
    }
}

/// The text of one top-level field; of several with the name, the last.
pub fn field<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let mut found = None;
    fields(text, |key, value| {
        if key == name {
            found = Some(value);
        }
    })
    .ok()?;
    found
}

/// The object without the top-level fields `drop` names. Text that is no object, or that has none
/// of them, is returned as it is.
pub fn without<'a>(text: &'a str, drop: impl Fn(&str) -> bool) -> Cow<'a, str> {
    let mut kept: Vec<(Cow<'a, str>, &'a str)> = Vec::new();
    let mut dropped = false;
    let read = fields(text, |name, value| {
        if drop(&name) {
            dropped = true;
        } else {
            kept.push((name, value));
        }
    });
    if read.is_err() || !dropped {
        return Cow::Borrowed(text);
    }
    Cow::Owned(compose(kept.iter().map(|(name, value)| (name.as_ref(), *value))))
}

/// An object from names and values' texts.
pub fn compose<'a>(members: impl Iterator<Item = (&'a str, &'a str)>) -> String {
    let mut out = String::from("{");
    for (i, (name, value)) in members.enumerate() {
        if i > 0 {
            out.push(',');
        }
        out.push_str(&quoted(name));
        out.push(':');
        out.push_str(value);
    }
    out.push('}');
    out
}

/// Longest part of a bad value shown in a message, in bytes.
const SHOWN_BYTES_MAX: usize = 120;

/// A bad value as messages show it: its beginning, when it is long.
pub fn shorten(text: &str) -> String {
    if text.len() <= SHOWN_BYTES_MAX {
        return text.to_owned();
    }
    let end = (0..=SHOWN_BYTES_MAX).rev().find(|&i| text.is_char_boundary(i)).unwrap_or(0);
    format!("{}...", &text[..end])
}

/// Text as a JSON string.
pub fn quoted(text: &str) -> String {
    serde_json::Value::String(text.to_owned()).to_string()
}

/// Checks what the top-level reader lets pass: nesting deeper than [`DEPTH_MAX`], and escapes
/// that form no character. `Err` says what was wrong, with the offset.
pub fn check_depths(text: &str) -> Result<(), String> {
    let bytes = text.as_bytes();
    let mut depth = 0;
    let mut at = 0;
    while at < bytes.len() {
        match bytes[at] {
            b'"' => at = skip_string(bytes, at + 1)?,
            b'{' | b'[' => {
                depth += 1;
                if depth > DEPTH_MAX {
                    return Err(format!("nested deeper than {DEPTH_MAX} levels at offset {at}"));
                }
                at += 1;
            }
            b'}' | b']' => {
                depth -= 1;
                at += 1;
            }
            _ => at += 1,
        }
    }
    Ok(())
}

/// The offset behind a string whose first character is at `at`, its escapes checked.
fn skip_string(bytes: &[u8], mut at: usize) -> Result<usize, String> {
    loop {
        let Some(step) = memchr::memchr2(b'"', b'\\', &bytes[at..]) else {
            return Err(format!("unterminated string at offset {at}"));
        };
        at += step;
        if bytes[at] == b'"' {
            return Ok(at + 1);
        }
        at = skip_escape(bytes, at)?;
    }
}

fn skip_escape(bytes: &[u8], at: usize) -> Result<usize, String> {
    let unpaired = || format!("lone surrogate escape at offset {at}");
    if bytes.get(at + 1) != Some(&b'u') {
        return Ok(at + 2);
    }
    match unit(bytes, at + 2) {
        Some(0xd800..=0xdbff) => match (bytes.get(at + 6..at + 8), unit(bytes, at + 8)) {
            (Some(b"\\u"), Some(0xdc00..=0xdfff)) => Ok(at + 12),
            _ => Err(unpaired()),
        },
        Some(0xdc00..=0xdfff) => Err(unpaired()),
        Some(_) => Ok(at + 6),
        None => Err(format!("invalid escape at offset {at}")),
    }
}

fn unit(bytes: &[u8], at: usize) -> Option<u16> {
    let digits = std::str::from_utf8(bytes.get(at..at + 4)?).ok()?;
    u16::from_str_radix(digits, 16).ok()
}

/// Whether the text is one JSON value of any kind.
pub fn is_json(text: &str) -> bool {
    serde_json::from_str::<IgnoredAny>(text).is_ok()
}
