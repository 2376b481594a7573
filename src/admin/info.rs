//! `/info`: Dynomite's counters, by its names and in its order.
//!
//! Names that stand for machinery this node has not (message pools, queues per kind of link) are
//! 0, as unused ones are in the reference.

use serde::ser::{Serialize, SerializeMap, Serializer};

use super::view::Identity;
use crate::dispatch::view::{Now, View};
use crate::dispatch::{Counters, LATENCY_BUCKETS, Latency};

/// What `/info` shows.
pub(super) struct Info<'a> {
    pub(super) identity: Identity,
    pub(super) view: &'a View,
    pub(super) now: Now,
    pub(super) counters: Counters,
    /// Since the last reset.
    pub(super) latency: Latency,
}

impl Serialize for Info<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let local = self.view.topology.peer(self.view.topology.local());
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("service", "dynomite")?;
        map.serialize_entry("source", &self.identity.source)?;
        map.serialize_entry("version", env!("CARGO_PKG_VERSION"))?;
        map.serialize_entry("uptime", &(self.now.mono_us / 1_000_000))?;
        map.serialize_entry("timestamp", &(self.now.wall_ms() / 1_000))?;
        map.serialize_entry("rack", local.rack)?;
        map.serialize_entry("dc", local.dc)?;
        for (name, value) in latencies(&self.latency) {
            map.serialize_entry(name, &value)?;
        }
        for name in TOP {
            map.serialize_entry(name, &top_value(&self.counters, name))?;
        }
        map.serialize_entry("dyn_memory", &peak_memory_kib())?;
        map.serialize_entry(&self.identity.pool, &PoolObject(self))?;
        map.end()
    }
}

/// The object named after the pool, with that of the store at its end.
struct PoolObject<'a>(&'a Info<'a>);

impl Serialize for PoolObject<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let info = self.0;
        let mut map = serializer.serialize_map(None)?;
        for name in POOL {
            map.serialize_entry(name, &pool_value(info, name))?;
        }
        map.serialize_entry(&info.identity.store, &StoreObject(&info.counters))?;
        map.end()
    }
}

struct StoreObject<'a>(&'a Counters);

impl Serialize for StoreObject<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(STORE.map(|name| (name, store_value(self.0, name))))
    }
}

fn latencies(latency: &Latency) -> [(&'static str, u64); 5] {
    [
        ("latency_max", percentile(latency, 1.0)),
        ("latency_999th", percentile(latency, 0.999)),
        ("latency_99th", percentile(latency, 0.99)),
        ("latency_95th", percentile(latency, 0.95)),
        ("latency_mean", latency.sum_us.checked_div(latency.buckets.iter().sum()).unwrap_or(0)),
    ]
}

/// An upper bound of the latency of that share of requests, in microseconds.
fn percentile(latency: &Latency, share: f64) -> u64 {
    let count: u64 = latency.buckets.iter().sum();
    let wanted = (count as f64 * share).ceil() as u64;
    let mut seen = 0;
    for (i, bucket) in latency.buckets.iter().enumerate().take(LATENCY_BUCKETS) {
        seen += bucket;
        if seen >= wanted && seen > 0 {
            return 1 << i;
        }
    }
    0
}

/// The greatest resident set this process had, KiB; 0 where the system does not tell.
fn peak_memory_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.and_then(|rest| rest.split_whitespace().next()?.parse().ok()).unwrap_or(0)
}

fn top_value(c: &Counters, name: &str) -> u64 {
    match name {
        "alloc_msgs" => c.in_flight,
        _ => 0,
    }
}

fn pool_value(info: &Info<'_>, name: &str) -> u64 {
    let c = &info.counters;
    match name {
        "client_err" => c.bad_requests,
        "client_connections" => c.clients,
        "client_read_requests" => c.client_reads,
        "client_write_requests" => c.client_writes,
        "client_dropped_requests" => c.errors_state,
        // Of reads and writes together.
        "client_non_quorum_r_responses" => c.errors_quorum,
        "dnode_client_err" => c.unknown_frames_in,
        "dnode_client_connections" => c.peer_links_in,
        "peer_dropped_requests" => c.errors_peer,
        // Of all upstreams together.
        "peer_timedout_requests" => c.timeouts,
        "remote_peer_failover_requests" => c.fallback_reads + c.retried_reads,
        "peer_timedout" => c.stalled_upstreams,
        "peer_connections" => {
            let peers = info.view.topology.peers();
            peers.filter(|peer| !peer.is_local && peer.routable()).count() as u64
        }
        "peer_forward_error" => c.missed_writes,
        "peer_requests" => c.requests_peer + c.requests_remote,
        "peer_mismatch_requests" => c.lost_replies,
        "forward_error" => c.errors_store + c.errors_peer,
        "fragments" => c.fragments,
        _ => 0,
    }
}

fn store_value(c: &Counters, name: &str) -> u64 {
    match name {
        "server_dropped_requests" => c.errors_store,
        // Reads and writes together.
        "read_requests" => c.requests_store,
        _ => 0,
    }
}

/// Top level, between the latencies and the memory.
const TOP: [&str; 29] = [
    "payload_size_max",
    "payload_size_999th",
    "payload_size_99th",
    "payload_size_95th",
    "payload_size_mean",
    "average_cross_region_rtt",
    "99_cross_region_rtt",
    "average_cross_zone_latency",
    "99_cross_zone_latency",
    "average_server_latency",
    "99_server_latency",
    "average_cross_region_queue_wait",
    "99_cross_region_queue_wait",
    "average_cross_zone_queue_wait",
    "99_cross_zone_queue_wait",
    "average_server_queue_wait",
    "99_server_queue_wait",
    "client_out_queue_99",
    "server_in_queue_99",
    "server_out_queue_99",
    "dnode_client_out_queue_99",
    "peer_in_queue_99",
    "peer_out_queue_99",
    "remote_peer_out_queue_99",
    "remote_peer_in_queue_99",
    "alloc_msgs",
    "free_msgs",
    "alloc_mbufs",
    "free_mbufs",
];

/// The pool's object.
const POOL: [&str; 45] = [
    "client_eof",
    "client_err",
    "client_connections",
    "client_read_requests",
    "client_write_requests",
    "client_dropped_requests",
    "client_non_quorum_w_responses",
    "client_non_quorum_r_responses",
    "server_ejects",
    "dnode_client_eof",
    "dnode_client_err",
    "dnode_client_connections",
    "dnode_client_in_queue",
    "dnode_client_in_queue_bytes",
    "dnode_client_out_queue",
    "dnode_client_out_queue_bytes",
    "peer_dropped_requests",
    "peer_timedout_requests",
    "remote_peer_dropped_requests",
    "remote_peer_timedout_requests",
    "remote_peer_failover_requests",
    "peer_eof",
    "peer_err",
    "peer_timedout",
    "remote_peer_timedout",
    "peer_connections",
    "peer_forward_error",
    "peer_requests",
    "peer_request_bytes",
    "peer_responses",
    "peer_response_bytes",
    "peer_ejected_at",
    "peer_ejects",
    "peer_in_queue",
    "remote_peer_in_queue",
    "peer_in_queue_bytes",
    "remote_peer_in_queue_bytes",
    "peer_out_queue",
    "remote_peer_out_queue",
    "peer_out_queue_bytes",
    "remote_peer_out_queue_bytes",
    "peer_mismatch_requests",
    "forward_error",
    "fragments",
    "stats_count",
];

/// The store's object.
const STORE: [&str; 34] = [
    "server_eof",
    "server_err",
    "server_timedout",
    "server_ejected_at",
    "server_dropped_requests",
    "server_timedout_requests",
    "read_requests",
    "read_request_bytes",
    "write_requests",
    "write_request_bytes",
    "read_responses",
    "read_response_bytes",
    "write_responses",
    "write_response_bytes",
    "in_queue",
    "in_queue_bytes",
    "out_queue",
    "out_queue_bytes",
    "redis_req_get",
    "redis_req_set",
    "redis_req_del",
    "redis_req_incr_decr",
    "redis_req_keys",
    "redis_req_mget",
    "redis_req_scan",
    "redis_req_sort",
    "redis_req_lreqm",
    "redis_req_sunion",
    "redis_req_ping",
    "redis_req_lists",
    "redis_req_sets",
    "redis_req_hashes",
    "redis_req_sortedsets",
    "redis_req_other",
];
