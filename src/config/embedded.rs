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
    }
}
