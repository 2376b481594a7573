//! YAML text to a tree of texts; the only file that names the YAML crate.
//!
//! The library gives types to plain scalars (`007` and `0x10` become numbers, long digits a
//! float), which would change tokens and addresses. So the text is read twice: the first pass
//! learns only the shape (scalar, list or map), the second asks for every scalar as text.
//! Positions are found the same way, on demand: the text is read once more and stopped at the
//! node in question, and the library says where it stood. That is exact in block and flow style,
//! and costs nothing while a file is right.
//!
//! Anchors and aliases are expanded by the library; tags are refused.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, EnumAccess, Error as _};
use serde::de::{MapAccess, SeqAccess, Visitor};

use super::node::{Entry, Mark, Node, Value};

/// Why a text is no YAML document, and where (line and column from 1) if that is known.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Broken {
    pub(super) what: String,
    pub(super) place: Option<(usize, usize)>,
}

/// Reads one document.
///
/// # Errors
///
/// [`Broken`] when the text is no YAML, holds tags, or more than one document.
pub(super) fn parse(text: &str, source: usize) -> Result<Node, Broken> {
    let outline = Learn.deserialize(serde_yaml::Deserializer::from_str(text)).map_err(broken)?;
    let mut walk = Walk { source, step: 0, stop_at: None };
    Read { outline: &outline, walk: &mut walk }
        .deserialize(serde_yaml::Deserializer::from_str(text))
        .map_err(broken)
}

/// Line and column (from 1) of a node of `text`, which must be the text it was read from.
pub(super) fn locate(text: &str, mark: Mark) -> Option<(usize, usize)> {
    let outline = Learn.deserialize(serde_yaml::Deserializer::from_str(text)).ok()?;
    let mut walk = Walk { source: mark.source, step: 0, stop_at: Some(mark.step) };
    let stopped = Read { outline: &outline, walk: &mut walk }
        .deserialize(serde_yaml::Deserializer::from_str(text))
        .err()?;
    let location = stopped.location()?;
    Some((location.line(), location.column()))
}

fn broken(error: serde_yaml::Error) -> Broken {
    let place = error.location().map(|l| (l.line(), l.column()));
    let mut what = error.to_string();
    if what.starts_with("EOF while parsing") {
        what = "is empty".into();
    }
    if what.contains("more than one document") {
        what = "holds more than one document".into();
    }
    // The place is shown in its own way.
    if let Some(at) = what.rfind(" at line ") {
        what.truncate(at);
    }
    Broken { what, place }
}

/// The shape of a document.
enum Outline {
    Null,
    Scalar,
    List(Vec<Outline>),
    Map(Vec<Outline>),
}

/// First pass: any node, only its shape kept.
struct Learn;

impl<'de> DeserializeSeed<'de> for Learn {
    type Value = Outline;

    fn deserialize<D: Deserializer<'de>>(self, de: D) -> Result<Outline, D::Error> {
        de.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Learn {
    type Value = Outline;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("text, a list or a map")
    }

    /// An empty document.
    fn visit_none<E>(self) -> Result<Outline, E> {
        Ok(Outline::Null)
    }

    fn visit_unit<E>(self) -> Result<Outline, E> {
        Ok(Outline::Null)
    }

    fn visit_enum<A: EnumAccess<'de>>(self, _: A) -> Result<Outline, A::Error> {
        Err(A::Error::custom("tags (`!name`) are not accepted"))
    }

    fn visit_bool<E>(self, _: bool) -> Result<Outline, E> {
        Ok(Outline::Scalar)
    }

    fn visit_i64<E>(self, _: i64) -> Result<Outline, E> {
        Ok(Outline::Scalar)
    }

    fn visit_i128<E>(self, _: i128) -> Result<Outline, E> {
        Ok(Outline::Scalar)
    }

    fn visit_u64<E>(self, _: u64) -> Result<Outline, E> {
        Ok(Outline::Scalar)
    }

    fn visit_u128<E>(self, _: u128) -> Result<Outline, E> {
        Ok(Outline::Scalar)
    }

    fn visit_f64<E>(self, _: f64) -> Result<Outline, E> {
        Ok(Outline::Scalar)
    }

    fn visit_str<E>(self, _: &str) -> Result<Outline, E> {
        Ok(Outline::Scalar)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Outline, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = seq.next_element_seed(Learn)? {
            items.push(item);
        }
        Ok(Outline::List(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Outline, A::Error> {
        let mut values = Vec::new();
        while map.next_key::<serde::de::IgnoredAny>()?.is_some() {
            values.push(map.next_value_seed(Learn)?);
        }
        Ok(Outline::Map(values))
    }
}

/// Counts keys and values in reading order, so that both readings agree on their numbers.
struct Walk {
    source: usize,
    step: u32,
    stop_at: Option<u32>,
}

impl Walk {
    fn enter<E: serde::de::Error>(&mut self) -> Result<Mark, E> {
        let mark = Mark { source: self.source, step: self.step };
        if self.stop_at == Some(self.step) {
            return Err(E::custom("here"));
        }
        self.step += 1;
        Ok(mark)
    }
}

/// Second pass: a node whose shape is known, scalars as text.
struct Read<'w> {
    outline: &'w Outline,
    walk: &'w mut Walk,
}

impl<'de> DeserializeSeed<'de> for Read<'_> {
    type Value = Node;

    fn deserialize<D: Deserializer<'de>>(self, de: D) -> Result<Node, D::Error> {
        match self.outline {
            Outline::Null | Outline::Scalar => de.deserialize_str(self),
            Outline::List(_) => de.deserialize_seq(self),
            Outline::Map(_) => de.deserialize_map(self),
        }
    }
}

impl<'de> Visitor<'de> for Read<'_> {
    type Value = Node;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("text, a list or a map")
    }

    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Node, E> {
        let mark = self.walk.enter()?;
        let value = match self.outline {
            Outline::Null => Value::Null,
            Outline::Scalar | Outline::List(_) | Outline::Map(_) => Value::Text(text.to_owned()),
        };
        Ok(Node { mark, value })
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Node, A::Error> {
        let mark = self.walk.enter()?;
        let Outline::List(shapes) = self.outline else {
            return Err(A::Error::custom("a list where there was none"));
        };
        let mut items = Vec::with_capacity(shapes.len());
        for outline in shapes {
            let walk = &mut *self.walk;
            items.extend(seq.next_element_seed(Read { outline, walk })?);
        }
        // The library wants to be asked until it says "no more".
        while seq.next_element::<serde::de::IgnoredAny>()?.is_some() {}
        Ok(Node { mark, value: Value::List(items) })
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Node, A::Error> {
        let mark = self.walk.enter()?;
        let Outline::Map(shapes) = self.outline else {
            return Err(A::Error::custom("a map where there was none"));
        };
        let mut entries = Vec::with_capacity(shapes.len());
        for outline in shapes {
            let Some((key_mark, key)) = map.next_key_seed(ReadKey(self.walk))? else {
                break;
            };
            let walk = &mut *self.walk;
            let node = map.next_value_seed(Read { outline, walk })?;
            entries.push(Entry { key, key_mark, node });
        }
        while map.next_entry::<serde::de::IgnoredAny, serde::de::IgnoredAny>()?.is_some() {}
        Ok(Node { mark, value: Value::Map(entries) })
    }
}

/// A key of a map, as text.
struct ReadKey<'w>(&'w mut Walk);

impl<'de> DeserializeSeed<'de> for ReadKey<'_> {
    type Value = (Mark, String);

    fn deserialize<D: Deserializer<'de>>(self, de: D) -> Result<Self::Value, D::Error> {
        de.deserialize_str(self)
    }
}

impl Visitor<'_> for ReadKey<'_> {
    type Value = (Mark, String);

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a key")
    }

    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Self::Value, E> {
        Ok((self.0.enter()?, text.to_owned()))
    }
}
