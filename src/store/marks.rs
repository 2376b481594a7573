//! What memcache's meta commands remember of an item beside its value.

/// The marks of one item; none for everybody else.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Marks {
    /// It was read since it was stored.
    pub(super) fetched: bool,
    /// It is to be made anew, and is given to readers meanwhile.
    pub(super) stale: bool,
    /// One client was told that it may make it anew.
    pub(super) token_sent: bool,
    /// Its key was written in base64.
    pub(super) binary: bool,
}
