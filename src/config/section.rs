//! A map of settings: its keys, how it is read, and the [`section!`] macro that declares one.

use serde_json::{Map, Value as Json, json};

use super::error::{Fault, Faults};
use super::node::{Entry, Node, Value};
use super::setting::Setting;
use super::suggest;

/// One key of a section.
pub(crate) struct Key {
    /// As written in the file.
    pub name: &'static str,
    /// Its documentation, line by line.
    pub doc: &'static [&'static str],
    /// The JSON schema of its value.
    pub schema: fn() -> Json,
    /// The keys below it.
    pub keys: fn() -> &'static [Key],
}

/// A struct whose fields are the keys of a map.
pub(crate) trait Section: Sized {
    /// All keys, in the order of the documentation.
    const KEYS: &'static [Key];

    /// Takes every field.
    fn read_fields(fields: &mut Fields<'_>) -> Self;
}

/// The entries of one map while a section is read from it.
pub(crate) struct Fields<'a> {
    entries: &'a [Entry],
    faults: &'a mut Faults,
}

impl Fields<'_> {
    /// The value of a key, or its default when the key is absent or wrong (a fault then).
    pub(super) fn take<T: Setting>(&mut self, name: &str, default: impl FnOnce() -> T) -> T {
        let found = self.entries.iter().find(|e| e.key == name);
        found.and_then(|e| T::read(&e.node, self.faults)).unwrap_or_else(default)
    }
}

/// Reads a section from a map node; unknown and repeated keys are faults.
pub(super) fn read_section<S: Section>(node: &Node, faults: &mut Faults) -> Option<S> {
    let Value::Map(entries) = &node.value else {
        let names: Vec<&str> = S::KEYS.iter().map(|k| k.name).collect();
        let found = node.describe();
        faults.push(
            Fault::new(format!("expected a map of settings, found {found}"))
                .at(Some(node.mark))
                .accepted(format!("a map with the keys {}", names.join(", "))),
        );
        return None;
    };
    for (i, entry) in entries.iter().enumerate() {
        if let Some(first) = entries[..i].iter().find(|e| e.key == entry.key) {
            faults.push(
                Fault::new(format!("key `{}` is given twice", entry.key))
                    .at(Some(entry.key_mark))
                    .width(&entry.key)
                    .earlier(Some(first.key_mark), "first given"),
            );
        } else if !S::KEYS.iter().any(|k| k.name == entry.key) {
            faults.push(unknown_key(entry, S::KEYS));
        }
    }
    Some(S::read_fields(&mut Fields { entries, faults }))
}

/// An unknown key: with the likely one, or all that are known here.
fn unknown_key(entry: &Entry, keys: &'static [Key]) -> Fault {
    let names = || keys.iter().map(|k| k.name);
    let fault = Fault::new(format!("unknown key `{}`", entry.key))
        .at(Some(entry.key_mark))
        .width(&entry.key);
    match suggest::home_of(&entry.key, keys).or_else(|| suggest::nearest(&entry.key, names())) {
        Some(hint) => fault.hint(Some(hint)),
        None => fault.accepted(names().collect::<Vec<_>>().join(", ")),
    }
}

/// The JSON schema of a map with these keys.
pub(super) fn schema_of(keys: &[Key]) -> Json {
    let mut properties = Map::new();
    for key in keys {
        let mut schema = (key.schema)();
        if let Some(object) = schema.as_object_mut() {
            object.insert("description".into(), Json::String(doc_text(key)));
        }
        properties.insert(key.name.into(), schema);
    }
    json!({"type": "object", "additionalProperties": false, "properties": properties})
}

/// The documentation of a key as one paragraph.
pub(super) fn doc_text(key: &Key) -> String {
    key.doc.iter().map(|line| line.trim()).collect::<Vec<_>>().join(" ")
}

/// Declares a section: a struct with documented fields, each `name: Type = default`.
///
/// The field's documentation becomes the description in the JSON schema; the type decides what
/// is accepted (see [`Setting`]).
macro_rules! section {
    (
        $(#[doc = $about:literal])*
        $vis:vis struct $name:ident {
            $( $(#[doc = $doc:literal])* $fvis:vis $field:ident: $type:ty = $default:expr, )*
        }
    ) => {
        $(#[doc = $about])*
        #[derive(Debug, Clone, PartialEq)]
        $vis struct $name {
            $( $(#[doc = $doc])* $fvis $field: $type, )*
        }

        impl Default for $name {
            fn default() -> Self {
                Self { $( $field: $default, )* }
            }
        }

        impl $crate::config::section::Section for $name {
            const KEYS: &'static [$crate::config::section::Key] = &[$(
                $crate::config::section::Key {
                    name: stringify!($field),
                    doc: &[$($doc),*],
                    schema: <$type as $crate::config::setting::Setting>::schema,
                    keys: <$type as $crate::config::setting::Setting>::keys,
                },
            )*];

            fn read_fields(fields: &mut $crate::config::section::Fields<'_>) -> Self {
                Self { $( $field: fields.take(stringify!($field), || $default), )* }
            }
        }

        impl $crate::config::setting::Setting for $name {
            fn read(
                node: &$crate::config::node::Node,
                faults: &mut $crate::config::error::Faults,
            ) -> Option<Self> {
                $crate::config::section::read_section(node, faults)
            }

            fn schema() -> serde_json::Value {
                $crate::config::section::schema_of(
                    <Self as $crate::config::section::Section>::KEYS,
                )
            }

            fn keys() -> &'static [$crate::config::section::Key] {
                <Self as $crate::config::section::Section>::KEYS
            }
        }
    };
}
pub(super) use section;
