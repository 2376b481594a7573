//! The search for a token among the boundaries of all racks.
//!
//! Tokens a hash can yield are compared as plain numbers, which a branch-free search over a
//! small array does several times faster than comparing [`DynToken`]s.

use crate::token::{DynToken, Sign};

/// The distinct boundaries, ascending; as plain numbers where one hash can yield all of them.
#[derive(Debug)]
pub(super) enum Bounds {
    /// Values of a 32-bit hash.
    Narrow(Vec<u32>),
    /// Values of a 128-bit hash.
    Broad(Broad),
    /// Anything else: negative tokens, `+0`, different lengths.
    Mixed(Vec<DynToken>),
}

impl Bounds {
    /// Takes the boundaries, ascending and distinct.
    pub(super) fn new(bounds: Vec<DynToken>) -> Bounds {
        if let Some(narrow) = bounds.iter().map(DynToken::as_hash_u32).collect() {
            return Bounds::Narrow(narrow);
        }
        match bounds.iter().map(DynToken::as_hash_u128).collect::<Option<Vec<_>>>() {
            Some(values) => Bounds::Broad(Broad::new(&values)),
            None => Bounds::Mixed(bounds),
        }
    }

    /// The number of boundaries below `token`, and whether the next one equals it.
    #[inline]
    pub(super) fn search(&self, token: &DynToken) -> (usize, bool) {
        match self {
            Bounds::Narrow(bounds) => match token.as_hash_u32() {
                Some(key) => place_of(bounds, &key),
                // A token no 32-bit hash yields equals none of them.
                None => (bounds.partition_point(|&b| DynToken::from_u32(b) < *token), false),
            },
            Bounds::Broad(bounds) => match token.as_hash_u128() {
                Some(key) => bounds.place_of(key),
                None => bounds.place_of_other(token),
            },
            Bounds::Mixed(bounds) => place_of(bounds, token),
        }
    }
}

/// Values of 128 bits in two columns: a search over the upper halves alone takes a third of the
/// time, and nearly always settles it.
#[derive(Debug)]
pub(super) struct Broad {
    upper: Vec<u64>,
    lower: Vec<u64>,
}

impl Broad {
    fn new(values: &[u128]) -> Broad {
        Broad {
            upper: values.iter().map(|&value| (value >> 64) as u64).collect(),
            lower: values.iter().map(|&value| value as u64).collect(),
        }
    }

    #[inline]
    fn place_of(&self, key: u128) -> (usize, bool) {
        let (upper, lower) = ((key >> 64) as u64, key as u64);
        let (place, tied) = place_of(&self.upper, &upper);
        if !tied {
            return (place, false);
        }
        let ties = self.upper[place..].partition_point(|&bound| bound == upper);
        let (among, exact) = place_of(&self.lower[place..place + ties], &lower);
        (place + among, exact)
    }

    /// The place of a token that is no value of a 128-bit hash. What is positive among those
    /// has fewer words or only zero ones, so it lies above zero and below the rest.
    fn place_of_other(&self, token: &DynToken) -> (usize, bool) {
        let starts_at_zero = self.upper.first() == Some(&0) && self.lower.first() == Some(&0);
        (usize::from(token.sign() == Sign::Positive && starts_at_zero), false)
    }
}

#[inline]
fn place_of<K: Ord>(bounds: &[K], key: &K) -> (usize, bool) {
    let place = bounds.partition_point(|bound| bound < key);
    (place, bounds.get(place) == Some(key))
}
