//! The text of INFO: true figures of this node, in the sections clients look for.

use super::counters::Counters;
use super::embedded::StoreReport;
use super::local::REDIS_VERSION;
use super::view::{Now, View};
use crate::proto::args::Args;

/// What goes first when the embedded store is full, in Redis's words.
pub(super) const EVICTION_POLICY: &str = "allkeys-lru";

/// The sections `args` asks for; all of them without any. `store` is an embedded one.
pub(super) fn text(
    view: &View,
    usable: usize,
    counters: &Counters,
    store: Option<StoreReport>,
    args: &Args<'_>,
    now: Now,
) -> String {
    let topology = &view.topology;
    let local = topology.peer(topology.local());
    let joining = topology.joining();
    let Counters { in_flight, waiting, .. } = counters;
    let requests = counters.client_reads + counters.client_writes + counters.client_other;
    let sections = [
        (
            "Server",
            format!(
                "redis_version:{REDIS_VERSION}\r\nredis_mode:standalone\r\nserver_name:torc\r\n\
                 torc_version:{}\r\nos:{}\r\narch_bits:{}\r\nprocess_id:{}\r\n\
                 uptime_in_seconds:{}\r\n",
                env!("CARGO_PKG_VERSION"),
                std::env::consts::OS,
                usize::BITS,
                std::process::id(),
                now.mono_us / 1_000_000,
            ),
        ),
        (
            "Clients",
            format!("connected_clients:{}\r\nblocked_clients:{waiting}\r\n", counters.clients),
        ),
        ("Memory", store.map_or(String::new(), memory)),
        ("Persistence", "loading:0\r\n".to_owned()),
        (
            "Stats",
            format!(
                "total_commands_processed:{requests}\r\nrequests_in_flight:{in_flight}\r\n\
                 timeouts:{}\r\n{}",
                counters.timeouts,
                store.map_or(String::new(), keys),
            ),
        ),
        ("Replication", "role:master\r\nconnected_slaves:0\r\n".to_owned()),
        ("Cluster", "cluster_enabled:0\r\n".to_owned()),
        (
            "Torc",
            format!(
                "node:{}\r\ndatacenter:{}\r\nrack:{}\r\nstate:{}\r\nring_digest:{:016x}\r\n\
                 peers:{}\r\npeers_usable:{usable}\r\npeers_joining:{joining}\r\n\
                 read_consistency:{}\r\nwrite_consistency:{}\r\n",
                local.name,
                local.dc,
                local.rack,
                local.state,
                topology.digest(),
                topology.peers().len(),
                view.read,
                view.write,
            ),
        ),
    ];
    let everything = |word: &[u8]| {
        [&b"all"[..], b"default", b"everything"].iter().any(|w| word.eq_ignore_ascii_case(w))
    };
    let wanted = |name: &str| {
        args.len() == 1
            || args.tail(1).iter().any(|w| everything(w) || w.eq_ignore_ascii_case(name.as_bytes()))
    };
    let shown = sections.iter().filter(|(name, body)| wanted(name) && !body.is_empty());
    shown.map(|(name, body)| format!("# {name}\r\n{body}")).collect::<Vec<_>>().join("\r\n")
}

fn memory(store: StoreReport) -> String {
    let StoreReport { bytes, bytes_max, .. } = store;
    format!(
        "used_memory:{bytes}\r\nmaxmemory:{bytes_max}\r\nmaxmemory_policy:{EVICTION_POLICY}\r\n"
    )
}

fn keys(store: StoreReport) -> String {
    let StoreReport { hits, misses, expired, evicted, .. } = store;
    format!(
        "expired_keys:{expired}\r\nevicted_keys:{evicted}\r\nkeyspace_hits:{hits}\r\n\
         keyspace_misses:{misses}\r\n"
    )
}
