//! What a worker counts. Plain numbers; telemetry reads copies of them.

use super::Dispatcher;

/// Buckets of a latency histogram: bucket `i` counts values below `2^i` microseconds.
pub const LATENCY_BUCKETS: usize = 28;

/// Times of requests, in powers of two microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Latency {
    /// Values below `2^i` and not below `2^(i-1)`.
    pub buckets: [u64; LATENCY_BUCKETS],
    /// Sum of all values.
    pub sum_us: u64,
}

impl Default for Latency {
    fn default() -> Latency {
        Latency { buckets: [0; LATENCY_BUCKETS], sum_us: 0 }
    }
}

impl Latency {
    /// Counts one request.
    pub fn record(&mut self, us: u64) {
        let bucket = (u64::BITS - us.leading_zeros()) as usize;
        self.buckets[bucket.min(LATENCY_BUCKETS - 1)] += 1;
        self.sum_us += us;
    }

    /// Adds another worker's figures.
    pub fn add(&mut self, other: &Latency) {
        for (mine, theirs) in self.buckets.iter_mut().zip(other.buckets) {
            *mine += theirs;
        }
        self.sum_us += other.sum_us;
    }
}

/// Declares the counters once, with their sum over workers and their names for `/metrics`.
macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident: $help:literal),* $(,)?) => {
        /// Figures of one worker. Connections and requests in flight are gauges; all others only
        /// grow.
        #[derive(Clone, Debug, Default, PartialEq, Eq)]
        pub struct Counters {
            $(#[doc = $help] pub $name: u64,)*
            /// Time from the last byte of a request to its reply.
            pub latency: Latency,
        }

        impl Counters {
            /// Adds another worker's figures.
            pub fn add(&mut self, other: &Counters) {
                $(self.$name += other.$name;)*
                self.latency.add(&other.latency);
            }

            /// Every figure with its name and its help text.
            pub fn each(&self) -> Vec<(&'static str, &'static str, u64)> {
                vec![$((stringify!($name), $help, self.$name),)*]
            }
        }
    };
}

impl Dispatcher {
    /// Takes over the figures of a dispatcher that is given up after a panic.
    pub fn succeed(&mut self, old: &Dispatcher) {
        self.clients_made = old.clients_made;
        self.counters = Counters {
            clients: 0,
            peer_links_in: 0,
            upstreams_up: 0,
            in_flight: 0,
            panics: old.counters.panics + 1,
            dispatchers_replaced: old.counters.dispatchers_replaced + 1,
            ..old.counters.clone()
        };
    }

    /// A panic ended one connection.
    pub fn note_panic(&mut self) {
        self.counters.panics += 1;
    }

    /// So many clients were disconnected because they sent nothing for too long.
    pub fn note_idle(&mut self, clients: usize) {
        self.counters.idle_closed += clients as u64;
    }
}

counters! {
    clients: "Client connections open.",
    peer_links_in: "Incoming links of other nodes open.",
    upstreams_up: "Datastore and peer connections open.",
    in_flight: "Requests awaiting their reply.",
    waiting: "Clients that wait for a key.",
    client_reads: "Read requests of clients.",
    client_writes: "Write requests of clients.",
    client_other: "Requests of clients answered by the node itself.",
    peer_requests_in: "Requests received from other nodes.",
    requests_store: "Requests sent to the own datastore.",
    requests_peer: "Requests sent to peers of the own datacenter.",
    requests_remote: "Requests sent to peers of other datacenters.",
    fragments: "Parts that multi-key commands were split into.",
    fallback_reads: "Reads answered by another rack than the own one.",
    retried_reads: "Reads sent again to another rack.",
    replanned: "Requests planned again because their connection was lost before they were sent.",
    replayed_scripts: "Scripts sent again with their text.",
    libraries_loaded: "Libraries of functions loaded that the own datastore lacked.",
    libraries_left_out: "Libraries not loaded so because there were too many.",
    missed_writes: "Replicas that a write could not reach.",
    errors_store: "Replies: the datastore could not be reached.",
    errors_peer: "Replies: a peer could not be reached.",
    errors_quorum: "Replies: the level could not be met.",
    errors_state: "Replies: the node's state forbids the request.",
    errors_unsupported: "Replies: a peer does not know the command.",
    errors_spanning: "Replies: the keys of a command span nodes.",
    timeouts: "Requests whose deadline passed.",
    late_replies: "Replies that came after their deadline.",
    lost_replies: "Requests a peer skipped the answer of.",
    surplus_replies: "Upstream connections dropped for bytes nobody asked for.",
    stalled_upstreams: "Upstream connections dropped for silence.",
    bad_requests: "Connections closed for bytes that are no request.",
    unknown_commands: "Commands not in the table.",
    pauses_client_limit: "Times a client was not read for its own limits.",
    pauses_upstream_limit: "Times a client was not read for an upstream's limits.",
    idle_closed: "Clients disconnected because they sent nothing for limits.idle_timeout_ms.",
    panics: "Panics that ended a connection, or all of a worker.",
    dispatchers_replaced: "Workers that began anew after a panic in their dispatcher.",
    control_frames_in: "Gossip and control frames received.",
    bad_ciphers: "Upstream connections dropped for answers that are not encrypted as they must.",
    refused_links: "Links of other nodes closed for their encryption, or for want of it.",
    affinity_probes: "Times the filters were asked about the key, or all keys, of a read.",
    affinity_remote: "Reads sent to another datacenter because its filter holds the key.",
    affinity_hits: "Keys that were read in another datacenter as its filter said.",
    affinity_false_positives: "Keys another datacenter's filter held and its store did not.",
    affinity_nobody: "Keys read in the own datacenter because no filter holds them.",
    affinity_unknown: "Keys read as ever because a filter is not ready or stale.",
    affinity_second_tries: "Reads repeated in another datacenter after a miss in the own one.",
    affinity_shared: "Reads answered by the reply to the same request of somebody else.",
    affinity_backfills: "Values of other datacenters stored in this node's store too.",
    affinity_backfills_refused: "Values of other datacenters not stored here: their keys changed.",
    affinity_capped: "Reads that waited for their turn to be sent to another datacenter.",
    unknown_frames_in: "Frames of unknown type dropped.",
    stamps_ahead: "Stamps of other nodes more than 500 ms ahead of this node's clock.",
    stamps_refused: "Stamps of other nodes more than 60 s ahead, not believed.",
    keys_asked_again: "Keys of a read of several asked for once more, for want of a majority.",
    newer_chosen: "Reads at DC_QUORUM settled by the newer of differing values.",
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn latencies_fall_into_powers_of_two_and_add_up() {
        let mut a = Counters { clients: 2, ..Counters::default() };
        a.latency.record(0);
        a.latency.record(5);
        let mut b = Counters { clients: 3, ..Counters::default() };
        b.latency.record(u64::MAX >> 1);
        a.add(&b);
        assert_eq!(a.clients, 5);
        assert_eq!(a.latency.buckets[0], 1);
        assert_eq!(a.latency.buckets[3], 1);
        assert_eq!(a.latency.buckets[LATENCY_BUCKETS - 1], 1);
        assert!(a.each().iter().any(|(name, _, value)| *name == "clients" && *value == 5));
    }
}
