//! What commands do to their keys, in the words of COMMAND GETKEYSANDFLAGS.
//!
//! The first word tells how a key is opened: `RO` reads, `RW` reads and writes, `OW` writes over
//! it, `RM` removes it. Further words tell what becomes of its value: `access` shows it to the
//! client, `update`, `insert` and `delete` change it. They are Redis 7.0's.

use crate::proto::args::Args;

/// The words for one key.
pub type KeyUse = &'static [&'static str];

/// Asks about the key, not for its value.
pub(super) const ASKS: KeyUse = &["RO"];
/// Reads the value.
pub(super) const READS: KeyUse = &["RO", "access"];
/// Reads the value, and may cache something in it.
pub(super) const COUNTS: KeyUse = &["RW", "access"];
/// Changes the value.
pub(super) const CHANGES: KeyUse = &["RW", "update"];
/// Adds to the value.
pub(super) const ADDS: KeyUse = &["RW", "insert"];
/// Takes away from the value.
pub(super) const TAKES_AWAY: KeyUse = &["RW", "delete"];
/// Changes the value and tells what it was or is.
pub(super) const CHANGES_AND_TELLS: KeyUse = &["RW", "access", "update"];
/// Adds to the value what depends on it.
pub(super) const MERGES: KeyUse = &["RW", "access", "insert"];
/// Takes away from the value and tells what.
pub(super) const POPS: KeyUse = &["RW", "access", "delete"];
/// Replaces the value.
pub(super) const REPLACES: KeyUse = &["OW", "update"];
/// Makes a key that is not there yet.
pub(super) const MAKES: KeyUse = &["OW", "insert"];
/// Removes the key.
pub(super) const REMOVES: KeyUse = &["RM", "delete"];

/// What a command does to its keys.
#[derive(Clone, Copy, Debug)]
pub struct KeyUses {
    pub(super) first: KeyUse,
    pub(super) others: KeyUse,
    /// Decides where arguments do.
    pub(super) by: Option<fn(&Args<'_>) -> KeyUse>,
}

impl KeyUses {
    pub(super) const fn all(keys: KeyUse) -> KeyUses {
        KeyUses { first: keys, others: keys, by: None }
    }

    /// What it does to the key that is `nth` of those of a request with these arguments.
    pub fn of(&self, nth: usize, args: &Args<'_>) -> KeyUse {
        match self.by {
            Some(by) => by(args),
            None if nth == 0 => self.first,
            None => self.others,
        }
    }
}

/// SET with GET reads what it replaces.
pub(super) fn of_set(args: &Args<'_>) -> KeyUse {
    let gets = args.tail(3).iter().any(|word| word.eq_ignore_ascii_case(b"get"));
    if gets { CHANGES_AND_TELLS } else { REPLACES }
}
