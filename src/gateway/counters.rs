//! What a gateway counts. The metrics page and `/documents` read it.

use std::sync::atomic::{AtomicU64, Ordering};

/// Declares the counters once, with their snapshot.
macro_rules! counters {
    ($( $(#[doc = $doc:literal])* $name:ident, )*) => {
        /// Live counters of one gateway.
        #[derive(Debug, Default)]
        pub struct Counters { $( pub(super) $name: AtomicU64, )* }

        /// The counters at one moment.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
        pub struct CounterValues { $( $(#[doc = $doc])* pub $name: u64, )* }

        impl Counters {
            /// Reads all counters.
            pub fn values(&self) -> CounterValues {
                CounterValues { $( $name: self.$name.load(Ordering::Relaxed), )* }
            }
        }

        impl CounterValues {
            /// Names of the metrics and meanings, in the order of the fields.
            pub const ABOUT: &'static [(&'static str, &'static str)] = &[
                $( (concat!("documents_", stringify!($name)), concat!($($doc),*)), )*
            ];

            /// The values, in the same order.
            pub fn iter(&self) -> impl Iterator<Item = u64> {
                [$( self.$name, )*].into_iter()
            }
        }
    };
}

counters! {
    /// Client requests.
    requests,
    /// Requests refused for their credentials.
    auth_failures,
    /// Writes that met their quorum.
    writes_acked,
    /// Acknowledged writes that a group missed.
    writes_degraded,
    /// Writes without a quorum.
    writes_no_quorum,
    /// Documents and ids received in writes.
    documents_received,
    /// Backend requests of writes that failed.
    backend_write_failures,
    /// Reads over several backends.
    reads_scattered,
    /// Reads that lacked shards.
    reads_partial,
    /// Stored responses given again for an idempotency key.
    idempotent_replays,
    /// Pinned reads that did not wait until their write was done.
    session_wait_timeouts,
    /// Reads and writes of the small state that failed.
    state_failures,
    /// Documents copied to backends that lacked them.
    documents_copied,
    /// Writes another gateway did for this one, because it orders those of the index.
    writes_handed_over,
    /// Writes the gateway that orders those of the index did not answer for.
    handovers_failed,
    /// Writes done while two gateways may have written the same index; their owners are compared.
    writes_unsure,
}

/// Adds one.
pub(super) fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

/// Adds several.
pub(super) fn count_many(counter: &AtomicU64, by: u64) {
    counter.fetch_add(by, Ordering::Relaxed);
}
