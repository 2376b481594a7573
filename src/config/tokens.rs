//! Lists of ring tokens.

use std::ops::Range;

use serde_json::{Value as Json, json};

use super::setting::{Bad, Text, text_settings};
use crate::token::{DynToken, TokenError};

text_settings!(TokenList);

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
