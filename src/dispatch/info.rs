//! The text of INFO: true figures of this node, in the sections clients look for.

use super::counters::Counters;
use super::local::REDIS_VERSION;
use super::view::{Now, View};
use crate::proto::args::Args;

/// The sections `args` asks for; all of them without any.
pub(super) fn text(
    view: &View,
    usable: usize,
    counters: &Counters,
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
        ("Persistence", "loading:0\r\n".to_owned()),
        (
            "Stats",
            format!(
                "total_commands_processed:{requests}\r\nrequests_in_flight:{in_flight}\r\n\
                 timeouts:{}\r\n",
                counters.timeouts
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
    let shown = sections.iter().filter(|(name, _)| wanted(name));
    shown.map(|(name, body)| format!("# {name}\r\n{body}")).collect::<Vec<_>>().join("\r\n")
}
