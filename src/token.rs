//! Ring tokens: a sign and up to four 32-bit words.
//!
//! Every key is hashed to a token and every node owns the arcs that end in its tokens, so all
//! nodes of a ring must agree on three things to the letter: what a text means, how two tokens
//! compare, and how a hash becomes a token (`src/hashkit/dyn_token.c` of Netflix/dynomite).
//!
//! Order: negative tokens, zero, positive tokens; within a sign the one with more words is
//! greater, then words decide from the most significant. Two negatives compare by magnitude,
//! ascending. A positive token whose only word is 0 (text `00`, called `+0` here) is a token of
//! its own between zero and one.
//!
//! Parity: the reference keeps the sign in an unsigned field, so negatives sort on top of all
//! positive tokens there. Rings with negative tokens are therefore closed to C nodes.

mod text;

#[cfg(test)]
mod tests;

pub use text::TokenError;

use std::cmp::Ordering;
use std::hash::{Hash, Hasher};

/// Words in the longest token.
pub const TOKEN_WORDS_MAX: usize = 4;

/// The sign of a token, in ring order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Sign {
    /// Below zero; only in rings without C nodes.
    Negative,
    /// Zero, whatever its length.
    Zero,
    /// Above zero, `+0` included.
    Positive,
}

/// A point of the token ring, inline and `Copy`.
///
/// All zero tokens are equal, whatever their length; the length is kept because it tells which
/// kind of hash a ring token was made for.
///
/// ```
/// use torc::token::DynToken;
///
/// let low = DynToken::parse_config("-5").unwrap();
/// let high = DynToken::from_u32(7);
/// assert!(low < DynToken::from_u32(0) && DynToken::from_u32(0) < high);
/// assert_eq!(high.to_string(), "7");
/// ```
#[derive(Clone, Copy, Debug)]
pub struct DynToken {
    sign: Sign,
    len: u8,
    /// Least significant first; unused words are 0, and all are 0 when the sign is zero.
    words: [u32; TOKEN_WORDS_MAX],
}

impl DynToken {
    /// The one-word zero.
    pub const ZERO: DynToken = DynToken { sign: Sign::Zero, len: 1, words: [0; TOKEN_WORDS_MAX] };

    /// The token of a 32-bit hash: zero, or a positive token of one word.
    #[inline]
    pub fn from_u32(value: u32) -> DynToken {
        let sign = if value == 0 { Sign::Zero } else { Sign::Positive };
        DynToken { sign, len: 1, words: [value, 0, 0, 0] }
    }

    /// A token of any sign and length, `words` least significant first. `None` when there is no
    /// word or more than four. With [`Sign::Zero`] the words count as zero.
    pub fn from_words(sign: Sign, words: &[u32]) -> Option<DynToken> {
        if words.is_empty() || words.len() > TOKEN_WORDS_MAX {
            return None;
        }
        let mut own = [0; TOKEN_WORDS_MAX];
        if sign != Sign::Zero {
            own[..words.len()].copy_from_slice(words);
        }
        Some(DynToken { sign, len: words.len() as u8, words: own })
    }

    /// A token of four words that spell `value`. This length is kept for 0 too.
    #[inline]
    pub fn from_u128(value: u128) -> DynToken {
        let sign = if value == 0 { Sign::Zero } else { Sign::Positive };
        let word = |i: u32| (value >> (32 * i)) as u32;
        let words = [word(0), word(1), word(2), word(3)];
        DynToken { sign, len: TOKEN_WORDS_MAX as u8, words }
    }

    /// The sign.
    #[inline]
    pub fn sign(&self) -> Sign {
        self.sign
    }

    /// The magnitude, least significant word first; 1 to 4 words.
    #[inline]
    pub fn words(&self) -> &[u32] {
        &self.words[..usize::from(self.len)]
    }

    /// The least significant word: the whole magnitude of a one-word token, and what the
    /// reference prints for it.
    #[inline]
    pub fn low_word(&self) -> u32 {
        self.words[0]
    }

    /// The hash value this token stands for when a 32-bit hash can yield it: zero and the
    /// positive one-word tokens but `+0`. On these, token order is the order of the values.
    #[inline]
    pub fn as_hash_u32(&self) -> Option<u32> {
        match self.sign {
            Sign::Zero => Some(0),
            Sign::Positive if self.len == 1 && self.words[0] != 0 => Some(self.words[0]),
            Sign::Positive | Sign::Negative => None,
        }
    }

    /// The same for a 128-bit hash: zero and the positive four-word tokens.
    #[inline]
    pub fn as_hash_u128(&self) -> Option<u128> {
        match self.sign {
            Sign::Zero => Some(0),
            Sign::Positive if usize::from(self.len) == TOKEN_WORDS_MAX => {
                Some(self.magnitude()).filter(|&value| value != 0)
            }
            Sign::Positive | Sign::Negative => None,
        }
    }

    /// Sign and length as one number that orders tokens of different sign or length.
    #[inline]
    fn rank(&self) -> u16 {
        let len = if self.sign == Sign::Zero { 0 } else { u16::from(self.len) };
        (self.sign as u16) << 8 | len
    }

    /// The words as one number.
    #[inline]
    pub fn magnitude(&self) -> u128 {
        let [a, b, c, d] = self.words.map(u128::from);
        d << 96 | c << 64 | b << 32 | a
    }
}

impl Ord for DynToken {
    #[inline]
    fn cmp(&self, other: &DynToken) -> Ordering {
        self.rank().cmp(&other.rank()).then_with(|| self.magnitude().cmp(&other.magnitude()))
    }
}

impl PartialOrd for DynToken {
    #[inline]
    fn partial_cmp(&self, other: &DynToken) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for DynToken {
    #[inline]
    fn eq(&self, other: &DynToken) -> bool {
        self.rank() == other.rank() && self.words == other.words
    }
}

impl Eq for DynToken {}

impl Hash for DynToken {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.rank().hash(state);
        self.words.hash(state);
    }
}
