//! Token text: what the reference reads, what our configuration accepts, what we print.
//!
//! The reference reads any text as some token. [`DynToken::parse_reference`] repeats that for
//! every input; configuration goes through [`DynToken::parse_config`], which refuses text that
//! is no number and agrees with the reference on all it accepts, except that it adds the
//! four-word form `0x` + 32 hex digits for `murmur3` rings.

use std::fmt;

use super::{DynToken, Sign, TOKEN_WORDS_MAX};

/// Digits the reference folds into one step.
const GROUP_DIGITS: usize = 10;

/// What the reference multiplies by from group to group: 9^9, the radix table's entry for base
/// nine. So longer texts do not mean their decimal value, but every node must read them alike.
const GROUP_RADIX: u32 = 0x1717_9149;

/// Hex digits of a four-word token.
const HEX_DIGITS: usize = 8 * TOKEN_WORDS_MAX;

/// Why a text is no token. `position` is the byte offset of the offence in the given text.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TokenError {
    /// Nothing where a token should stand.
    #[error("token expected at position {position}, found nothing")]
    Empty {
        /// Offset where the token should begin.
        position: usize,
    },
    /// A character that is no digit.
    #[error("token has {found:?} at position {position}, expected a decimal digit")]
    NotADigit {
        /// Offset of the character.
        position: usize,
        /// The character.
        found: char,
    },
    /// A character after `0x` that is no hex digit.
    #[error("token has {found:?} at position {position}, expected a hex digit")]
    NotAHexDigit {
        /// Offset of the character.
        position: usize,
        /// The character.
        found: char,
    },
    /// `0x` with another number of digits than 32.
    #[error("token at position {position} has {digits} hex digits, expected 32")]
    HexLength {
        /// Offset of the token.
        position: usize,
        /// Digits found.
        digits: usize,
    },
}

impl TokenError {
    /// Byte offset of the offence in the text that was parsed.
    pub fn position(&self) -> usize {
        match self {
            TokenError::Empty { position }
            | TokenError::NotADigit { position, .. }
            | TokenError::NotAHexDigit { position, .. }
            | TokenError::HexLength { position, .. } => *position,
        }
    }

    fn moved_by(mut self, offset: usize) -> TokenError {
        match &mut self {
            TokenError::Empty { position }
            | TokenError::NotADigit { position, .. }
            | TokenError::NotAHexDigit { position, .. }
            | TokenError::HexLength { position, .. } => *position += offset,
        }
        self
    }
}

impl DynToken {
    /// Reads a token of the configuration: decimal digits with an optional `-`, or `0x` and
    /// exactly 32 hex digits, most significant first. Decimal text gets the reference's value,
    /// which is the number itself only while [`DynToken::text_keeps_value`] says so.
    pub fn parse_config(text: &str) -> Result<DynToken, TokenError> {
        if let Some(hex) = text.strip_prefix("0x") {
            return parse_hex(hex);
        }
        let digits = text.strip_prefix('-').unwrap_or(text);
        let start = text.len() - digits.len();
        if digits.is_empty() {
            return Err(TokenError::Empty { position: start });
        }
        match digits.char_indices().find(|(_, c)| !c.is_ascii_digit()) {
            Some((i, found)) => Err(TokenError::NotADigit { position: start + i, found }),
            None => Ok(DynToken::parse_reference(text.as_bytes())),
        }
    }

    /// Reads a comma-separated list of the configuration, in the order of the text. Positions
    /// of errors count from the start of the list; blanks are not allowed, because C nodes
    /// would read an element with a blank as `+0`.
    pub fn parse_config_list(text: &str) -> Result<Vec<DynToken>, TokenError> {
        let mut offset = 0;
        text.split(',')
            .map(|element| {
                let start = offset;
                offset += element.len() + 1;
                DynToken::parse_config(element).map_err(|error| error.moved_by(start))
            })
            .collect()
    }

    /// Reads any bytes the way the reference does; there is no text it refuses. A group of ten
    /// digits with a foreign byte in it counts as 0. Empty text, which the reference's lists
    /// can bring about, is `+0`.
    pub fn parse_reference(text: &[u8]) -> DynToken {
        let (sign, digits) = match text {
            b"0" => (Sign::Zero, text),
            [b'-', digits @ ..] => (Sign::Negative, digits),
            _ => (Sign::Positive, text),
        };
        let (first, rest) = digits.split_at(digits.len() % GROUP_DIGITS);
        let word = rest.chunks_exact(GROUP_DIGITS).fold(group_value(first), |word, group| {
            word.wrapping_mul(GROUP_RADIX).wrapping_add(group_value(group))
        });
        DynToken { sign, len: 1, words: [word, 0, 0, 0] }
    }

    /// Reads a list the way the reference does: from the right, so the first token returned is
    /// the last of the text. A comma at the end adds `+0`, one at the start adds nothing.
    pub fn parse_reference_list(text: &[u8]) -> Vec<DynToken> {
        let mut elements = text.split(|&b| b == b',').collect::<Vec<_>>();
        if elements.first().is_some_and(|first| first.is_empty()) {
            elements.remove(0);
        }
        elements.into_iter().rev().map(DynToken::parse_reference).collect()
    }

    /// True when a text that [`DynToken::parse_config`] accepts yields the number it spells.
    /// False for decimal text above 4294967295, which deserves a warning: all nodes agree on
    /// the token, but it does not lie where its digits suggest.
    pub fn text_keeps_value(text: &str) -> bool {
        let digits = text.strip_prefix('-').unwrap_or(text).trim_start_matches('0');
        text.starts_with("0x") || digits.is_empty() || digits.parse::<u32>().is_ok()
    }
}

/// The text [`DynToken::parse_config`] reads back as the same token: decimal for one word, `0x`
/// and eight digits a word otherwise. `+0` prints as `00`, since `0` is another token.
impl fmt::Display for DynToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.sign == Sign::Negative {
            f.write_str("-")?;
        }
        match self.words() {
            [0] if self.sign == Sign::Positive => f.write_str("00"),
            [word] => write!(f, "{word}"),
            words => {
                f.write_str("0x")?;
                words.iter().rev().try_for_each(|word| write!(f, "{word:08x}"))
            }
        }
    }
}

/// A group of at most ten digits in base ten, or 0 when any byte is no digit.
fn group_value(group: &[u8]) -> u32 {
    if !group.iter().all(u8::is_ascii_digit) {
        return 0;
    }
    group.iter().fold(0u32, |value, b| value.wrapping_mul(10).wrapping_add(u32::from(b - b'0')))
}

/// The digits after `0x`; positions count the prefix.
fn parse_hex(hex: &str) -> Result<DynToken, TokenError> {
    const PREFIX: usize = 2;
    let mut value = 0u128;
    for (i, found) in hex.char_indices() {
        let digit =
            found.to_digit(16).ok_or(TokenError::NotAHexDigit { position: PREFIX + i, found })?;
        value = value << 4 | u128::from(digit);
    }
    if hex.len() != HEX_DIGITS {
        return Err(TokenError::HexLength { position: 0, digits: hex.len() });
    }
    Ok(DynToken::from_u128(value))
}
