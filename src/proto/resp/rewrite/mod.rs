//! Other forms of a command: what replicas get, and what C peers get.
//!
//! Each function appends whole RESP requests and changes nothing else. Which one is called for is
//! told by the command table ([`CommandSpec::effect_of`](super::spec::CommandSpec::effect_of),
//! [`CommandSpec::toward_c_of`](super::spec::CommandSpec::toward_c_of)).

mod absolute;
mod outcome;
mod toward_c;

pub use absolute::absolute;
pub use outcome::outcome;
pub use toward_c::{EVAL_ARGS_MAX, in_script, renamed};

use super::encode;

/// A request of words that are gathered one by one.
#[derive(Default)]
struct Words<'a> {
    words: Vec<std::borrow::Cow<'a, [u8]>>,
}

impl<'a> Words<'a> {
    fn of(words: &[&'a [u8]]) -> Words<'a> {
        Words { words: words.iter().map(|word| (*word).into()).collect() }
    }

    fn push(&mut self, word: &'a [u8]) -> &mut Self {
        self.words.push(word.into());
        self
    }

    fn push_number(&mut self, number: i64) -> &mut Self {
        let mut digits = Vec::new();
        encode::decimal(&mut digits, number);
        self.words.push(digits.into());
        self
    }

    fn extend(&mut self, words: impl IntoIterator<Item = &'a [u8]>) -> &mut Self {
        self.words.extend(words.into_iter().map(std::borrow::Cow::from));
        self
    }

    fn write(&self, out: &mut Vec<u8>) {
        encode::array(out, self.words.len());
        self.words.iter().for_each(|word| encode::bulk(out, word));
    }
}

/// An integer argument as Redis's `string2ll` reads it.
fn integer(text: &[u8]) -> Option<i64> {
    let canonical = matches!(text, b"0" | [b'-', b'1'..=b'9', ..] | [b'1'..=b'9', ..]);
    if !canonical {
        return None;
    }
    std::str::from_utf8(text).ok()?.parse().ok()
}

#[cfg(test)]
mod tests;
