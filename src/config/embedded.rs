//! `embedded:`: the store inside the process, used with `datastore: embedded`.

use super::numbers::ByteSize;
use super::section::section;

section! {
    /// `embedded:`: bounds of the embedded store; the least recently used keys go first.
    pub struct Embedded {
        /// Memory of keys and values. 0: no bound. Default: 0.
        pub memory_bytes_max: ByteSize = ByteSize(0),
        /// Keys. 0: no bound. Default: 0.
        pub keys_max: u64 = 0,
        /// Removed keys whose stamps are remembered, so that an older value another rack still
        /// has is not taken for a newer one. 0: none. Default: 1000000.
        pub tombstones_max: u64 = 1_000_000,
        /// How long they are remembered, milliseconds. Default: 10800000, three hours.
        pub tombstone_age_ms: u64 = 10_800_000,
    }
}
