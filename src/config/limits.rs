//! `limits:`: how much of anything one node holds at a time.

use super::numbers::ByteSize;
use super::section::section;

section! {
    /// `limits:`: bounds of what clients, peers and the store can make this node hold.
    pub struct Limits {
        /// Clients connected at once; more are refused. The process's descriptor limit minus 256
        /// applies when that is less. Default: 10000.
        pub client_connections: usize = 10_000,
        /// Requests of one client that are waiting for their answer; it is not read meanwhile.
        /// Default: 1024.
        pub client_in_flight: usize = 1_024,
        /// Largest single argument of a request. Default: 512mb.
        pub request_bulk_bytes_max: ByteSize = ByteSize::mib(512),
        /// Most arguments of a request. Default: 1048576.
        pub request_elements_max: usize = 1_048_576,
        /// Deepest nesting of a reply. Default: 128.
        pub request_depth_max: usize = 128,
        /// Longest line of an inline command. Default: 64kb.
        pub inline_bytes_max: ByteSize = ByteSize::kib(64),
        /// Replies of one client that wait to be sent; it is not read meanwhile. Default: 64mb.
        pub client_output_bytes_max: ByteSize = ByteSize::mib(64),
        /// Requests that wait to be sent on one connection to the store or a peer; clients that
        /// need it are not read meanwhile. Default: 64mb.
        pub upstream_output_bytes_max: ByteSize = ByteSize::mib(64),
        /// Requests of one connection to the store or a peer that wait for their answer.
        /// Default: 65536.
        pub upstream_in_flight: usize = 65_536,
        /// Memory of all buffers together. Default: 1gb.
        pub buffers_bytes_max: ByteSize = ByteSize::mib(1_024),
        /// A client that sends nothing for so long is disconnected, milliseconds. 0: never.
        /// Default: 0.
        pub idle_timeout_ms: u64 = 0,
    }
}
