//! Consistency levels and quorum sizes.
//!
//! The level is the coordinator's own: it decides which racks a request is sent to and how many
//! answers must agree, and is not carried between nodes. Names as in `src/dyn_core.h` of
//! Netflix/dynomite.

use std::fmt;
use std::str::FromStr;

/// How many replicas must agree before a client is answered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Consistency {
    /// The own rack's owner answers.
    #[default]
    DcOne,
    /// A majority of the local datacenter's racks; the first answer when none agree.
    DcQuorum,
    /// A majority of the local datacenter's racks must agree, or the request fails.
    DcSafeQuorum,
    /// As [`Consistency::DcSafeQuorum`], in each datacenter.
    DcEachSafeQuorum,
}

impl Consistency {
    /// All levels, weakest first.
    pub const ALL: [Consistency; 4] = [
        Consistency::DcOne,
        Consistency::DcQuorum,
        Consistency::DcSafeQuorum,
        Consistency::DcEachSafeQuorum,
    ];

    /// The level's name as Dynomite's configuration spells it.
    pub fn name(self) -> &'static str {
        match self {
            Consistency::DcOne => "DC_ONE",
            Consistency::DcQuorum => "DC_QUORUM",
            Consistency::DcSafeQuorum => "DC_SAFE_QUORUM",
            Consistency::DcEachSafeQuorum => "DC_EACH_SAFE_QUORUM",
        }
    }
}

/// Answers that make a majority of `replicas` racks; 1 for a single rack.
pub fn quorum(replicas: usize) -> usize {
    replicas / 2 + 1
}

/// A text that names no consistency level.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "unknown consistency {text:?}, expected DC_ONE, DC_QUORUM, DC_SAFE_QUORUM or \
     DC_EACH_SAFE_QUORUM"
)]
pub struct UnknownConsistency {
    /// The offending text.
    pub text: String,
}

/// The four names, in any mixture of case.
impl FromStr for Consistency {
    type Err = UnknownConsistency;

    fn from_str(text: &str) -> Result<Consistency, UnknownConsistency> {
        Consistency::ALL
            .into_iter()
            .find(|level| level.name().eq_ignore_ascii_case(text))
            .ok_or_else(|| UnknownConsistency { text: text.to_owned() })
    }
}

impl fmt::Display for Consistency {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_in_any_case_and_printed_upper() {
        for level in Consistency::ALL {
            let lower = level.to_string().to_lowercase();
            assert_eq!(lower.parse(), Ok(level));
            assert_eq!(level.name().parse(), Ok(level));
        }
        assert_eq!("dc_Each_SAFE_quorum".parse(), Ok(Consistency::DcEachSafeQuorum));
    }

    #[test]
    fn other_words_are_refused_with_the_choices() {
        for text in ["", "DC_ONE ", "ONE", "DC-ONE", "DC_ALL"] {
            let error = text.parse::<Consistency>().unwrap_err();
            assert_eq!(error.text, text);
            assert!(error.to_string().contains("DC_EACH_SAFE_QUORUM"));
        }
    }

    #[test]
    fn a_quorum_is_more_than_half() {
        assert_eq!([1, 2, 3, 4, 5].map(quorum), [1, 2, 2, 3, 3]);
    }
}
