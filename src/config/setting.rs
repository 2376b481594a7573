//! How one setting is read: from a node to a typed value, or to a fault that says what is
//! accepted instead.
//!
//! [`Text`] is for settings that are one scalar; [`Setting`] for anything a key can hold. A type
//! becomes usable in a [`section!`](super::section) by implementing `Text` and being listed in
//! [`text_settings!`], or by implementing `Setting`.

use std::ops::Range;

use serde_json::{Value as Json, json};

use super::error::{Fault, Faults};
use super::node::{Node, Value};
use super::section::Key;

/// A type that the value of a key can have.
pub(crate) trait Setting: Sized {
    /// The value of a node. `None` when it is wrong, after the fault was reported.
    fn read(node: &Node, faults: &mut Faults) -> Option<Self>;

    /// Its JSON schema.
    fn schema() -> Json;

    /// The keys below, when this is a map (or a list of maps).
    fn keys() -> &'static [Key] {
        &[]
    }
}

/// A type that is written as one scalar.
pub(crate) trait Text: Sized {
    /// What is accepted, for error messages.
    fn accepted() -> String;

    /// The value of a text that is not empty.
    fn parse(text: &str) -> Result<Self, Bad>;

    /// Its JSON schema. Numbers may be written with or without quotes.
    fn schema() -> Json {
        json!({"type": ["string", "number", "boolean"]})
    }
}

/// Why a text is not acceptable.
#[derive(Debug, Clone, Default)]
pub(crate) struct Bad {
    /// A predicate: "is not a number".
    pub what: String,
    /// The bytes that are wrong, when it is not the whole text.
    pub within: Option<Range<usize>>,
    /// What to write instead.
    pub hint: Option<String>,
}

impl Bad {
    pub(super) fn new(what: impl Into<String>) -> Bad {
        Bad { what: what.into(), ..Bad::default() }
    }

    pub(super) fn within(mut self, range: Range<usize>) -> Bad {
        self.within = Some(range);
        self
    }

    pub(super) fn hint(mut self, hint: impl Into<String>) -> Bad {
        self.hint = Some(hint.into());
        self
    }
}

/// Reads a scalar node.
pub(super) fn read_text<T: Text>(node: &Node, faults: &mut Faults) -> Option<T> {
    let fault = match &node.value {
        Value::Text(text) if !text.is_empty() => match T::parse(text) {
            Ok(value) => return Some(value),
            Err(bad) => Fault::new(format!("`{text}` {}", bad.what))
                .width(text)
                .within(bad.within.map(|bytes| in_chars(text, bytes)))
                .hint(bad.hint),
        },
        Value::Text(_) | Value::Null => Fault::new("a value is missing"),
        Value::List(_) | Value::Map(_) => {
            Fault::new(format!("expected one value, found {}", node.describe()))
        }
    };
    faults.push(fault.at(Some(node.mark)).accepted(T::accepted()));
    None
}

/// A range of bytes as one of characters, which is what columns count.
fn in_chars(text: &str, bytes: Range<usize>) -> Range<usize> {
    let count = |end: usize| text.char_indices().take_while(|(at, _)| *at < end).count();
    count(bytes.start)..count(bytes.end)
}

/// Makes [`Text`] types usable as settings.
macro_rules! text_settings {
    ($($type:ty),+ $(,)?) => {$(
        impl $crate::config::setting::Setting for $type {
            fn read(
                node: &$crate::config::node::Node,
                faults: &mut $crate::config::error::Faults,
            ) -> Option<Self> {
                $crate::config::setting::read_text(node, faults)
            }

            fn schema() -> serde_json::Value {
                <$type as $crate::config::setting::Text>::schema()
            }
        }
    )+};
}
pub(super) use text_settings;

/// An absent key is `None`; zero and `false` are values.
impl<T: Setting> Setting for Option<T> {
    fn read(node: &Node, faults: &mut Faults) -> Option<Self> {
        T::read(node, faults).map(Some)
    }

    fn schema() -> Json {
        T::schema()
    }

    fn keys() -> &'static [Key] {
        T::keys()
    }
}

/// A list, or its only element without the dash.
impl<T: Setting> Setting for Vec<T> {
    fn read(node: &Node, faults: &mut Faults) -> Option<Self> {
        match &node.value {
            Value::List(items) => {
                // Every element is read, so that all mistakes are reported at once.
                let read: Vec<Option<T>> = items.iter().map(|i| T::read(i, faults)).collect();
                read.into_iter().collect()
            }
            Value::Text(_) | Value::Map(_) | Value::Null => Some(vec![T::read(node, faults)?]),
        }
    }

    fn schema() -> Json {
        let item = T::schema();
        json!({"anyOf": [item, {"type": "array", "items": item}]})
    }

    fn keys() -> &'static [Key] {
        T::keys()
    }
}
