//! `torc check`: is this configuration right, and what does it mean?

use std::collections::BTreeSet;

use clap::Args;

use super::{ConfigArgs, Failure};
use crate::config::{AffinityMode, Config, Protocol, Store};

/// Arguments of `torc check`.
#[derive(Debug, Args)]
pub(super) struct CheckArgs {
    #[command(flatten)]
    config: ConfigArgs,
}

/// Checks the file and prints a summary.
pub(super) fn check(args: &CheckArgs) -> Result<(), Failure> {
    check_config(&args.config, None)
}

/// The same for `torc -t -c FILE`.
pub(super) fn check_config(args: &ConfigArgs, fallback: Option<String>) -> Result<(), Failure> {
    let config = args.load_with(fallback)?;
    println!("the configuration is valid");
    print!("{}", summary(&config));
    Ok(())
}

/// What the configuration means, a few lines of text.
fn summary(config: &Config) -> String {
    let tokens: Vec<String> = config.tokens.iter().map(ToString::to_string).collect();
    let tokens = tokens.join(",");
    let (protocol, store) = match (config.data_store, &config.store) {
        (Protocol::Redis, Store::Embedded) => ("Redis", "embedded".to_owned()),
        (Protocol::Memcache, Store::Embedded) => ("memcache", "embedded".to_owned()),
        (Protocol::Redis, Store::Server(s)) => ("Redis", s.endpoint.to_string()),
        (Protocol::Memcache, Store::Server(s)) => ("memcache", s.endpoint.to_string()),
    };
    let racks: BTreeSet<(&str, &str)> = config
        .seeds
        .iter()
        .map(|s| (s.datacenter.as_str(), s.rack.as_str()))
        .chain([(config.datacenter.as_str(), config.rack.as_str())])
        .collect();
    let datacenters: BTreeSet<&str> = racks.iter().map(|(dc, _)| *dc).collect();
    let ring = format!(
        "{} node(s) listed, {} rack(s), {} datacenter(s)",
        config.seeds.len() + 1,
        racks.len(),
        datacenters.len()
    );
    let mut lines = vec![
        ("node", format!("{}/{}", config.datacenter, config.rack)),
        ("tokens", format!("{tokens} ({})", config.hasher.hash)),
        ("ring", ring),
        ("clients", format!("{} ({protocol})", config.listen)),
        ("reads", config.read_consistency.to_string()),
        ("writes", config.write_consistency.to_string()),
        ("peers", config.dyn_listen.to_string()),
        ("store", store),
        ("admin", config.stats_listen.to_string()),
    ];
    if config.affinity.mode != AffinityMode::Off {
        lines.push(("affinity", affinity(config, datacenters.len())));
    }
    if config.relay.is_on() {
        lines.push(("relay", relay(config)));
    }
    if !config.documents.backends.0.is_empty() {
        lines.push(("documents", documents(config)));
    }
    lines.iter().map(|(name, value)| format!("  {name:<8} {value}\n")).collect()
}

/// What the filters are sized for, and what they cost when everything expected is there.
fn affinity(config: &Config, datacenters: usize) -> String {
    let affinity = &config.affinity;
    // A ring of two datacenters is the least that makes use of this.
    let datacenters = datacenters.max(2);
    let needed_mb = affinity.memory_bytes(datacenters).div_ceil(1 << 20);
    format!(
        "{}, for {} keys in each of {datacenters} datacenters: at most {needed_mb} MiB",
        affinity.mode, affinity.expected_keys
    )
}

/// Whom the relay serves and follows.
fn relay(config: &Config) -> String {
    let upstreams: Vec<String> =
        config.relay.upstreams.iter().flatten().map(ToString::to_string).collect();
    match (&config.relay.listen, upstreams.is_empty()) {
        (Some(listen), true) => format!("on {listen}, follows nobody"),
        (Some(listen), false) => format!("on {listen}, follows {}", upstreams.join(", ")),
        (None, _) => format!("serves nobody, follows {}", upstreams.join(", ")),
    }
}

/// Where the gateway listens, and what it spreads documents over.
fn documents(config: &Config) -> String {
    let documents = &config.documents;
    format!(
        "{} over {} server(s): {} shards, {} copies in each group",
        documents.listen,
        documents.backends.0.len(),
        documents.shards,
        documents.replication_factor
    )
}
