//! How a node knows what its datastore holds, as operators are told.
//!
//! A store that tells of every key that appears and goes is believed at its word. One that tells
//! less is listed again and again besides: what it kept silent about is wrong until the end of the
//! first listing that begins after it, and no longer.

/// How a store is followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// It is in the process, and tells everything.
    Embedded,
    /// It tells of each key that appears or goes: Redis 7.0 and later, Valkey.
    Events,
    /// It tells what is done to keys, from which follows which ones appear: older Redis. Some of
    /// its commands and modules tell nothing.
    OlderEvents,
    /// It tells of nothing, or of keys that expire at most: what the node itself writes is asked
    /// about. Servers with another set of events.
    Observed,
}

impl Way {
    /// What operators read.
    pub fn words(self) -> &'static str {
        match self {
            Way::Embedded => "embedded",
            Way::Events => "events",
            Way::OlderEvents => "older events and rescans",
            Way::Observed => "own writes and rescans",
        }
    }

    /// Whether the store is listed again and again.
    pub fn rescans(self) -> bool {
        match self {
            Way::Embedded | Way::Events => false,
            Way::OlderEvents | Way::Observed => true,
        }
    }
}

/// What came of following.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Following {
    /// How it is done; none before the store was reached.
    pub way: Option<Way>,
    /// Why it is not known what the store holds; none while it is.
    pub trouble: Option<String>,
    /// Times it had to be listed, because its events were lost or had not begun.
    pub relistings: u64,
    /// Times it was listed while all was well.
    pub rescans: u64,
    /// When it was listed to the end last, milliseconds on the clock that never goes back.
    pub listed_ms: Option<u64>,
    /// Keys a rescan found that the store had not told of.
    pub mended_missed: u64,
    /// Keys that were believed to be there, until a rescan found them gone.
    pub mended_gone: u64,
}
