//! Settings that are plain text, a switch, or a word of a list.

use std::path::PathBuf;

use serde_json::{Value as Json, json};

use super::setting::{Bad, Text, text_settings};
use super::suggest;
use crate::hash::{HashTag, HashType};
use crate::ring::Consistency;

text_settings!(bool, String, PathBuf, Secret, HashType, HashTag, Consistency);

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
