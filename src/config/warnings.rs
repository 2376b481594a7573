//! What the author of a file should know although it can be used.

use super::error::Sources;
use super::model::{Config, PEER_PORT, SECURE_PEER_PORT, Store};
use super::node::{Node, Value};
use super::pool::Pool;
use crate::hash::HashType;
use crate::ring::Consistency;

/// Dynomite's names that have no effect, and what to use instead.
const WITHOUT_EFFECT: &[(&str, &str)] = &[
    ("client_connections", "limits.client_connections"),
    ("distribution", ""),
    ("dyn_connections", ""),
    ("dyn_port", "dyn_listen"),
    ("dyn_read_timeout", "timeout"),
    ("dyn_write_timeout", "timeout"),
    ("max_msgs", "limits"),
    ("recon_iv_file", ""),
    ("recon_key_file", ""),
    ("server_connections", "datastore_connections"),
    ("stats_interval", ""),
];

/// Our own keys whose machinery this version does not have yet.
const NOT_YET: &[&[&str]] = &[&["data_dir"]];

/// Values that say what is done anyway deserve no warning.
const DONE_ANYWAY: &[(&str, &str)] = &[("distribution", "vnode")];

/// The largest number the reference keeps in its fields of eight bits.
const SHORT_MAX: u64 = 255;

/// All warnings about a configuration, most general first.
pub(super) fn all(
    config: &Config,
    root: &Node,
    sources: &Sources,
    odd_tokens: Vec<String>,
    own_seeds: Vec<String>,
) -> Vec<String> {
    let mut list = Vec::new();
    list.extend(without_effect(root));
    list.extend(not_yet(config, root));
    list.extend(differs(config, root));
    list.extend(odd_token_warning(&odd_tokens));
    for seed in own_seeds {
        list.push(format!("dyn_seeds: {seed} is this node itself and is left out"));
    }
    list.extend(ring(config));
    if let (Store::Server(_), Some(at)) = (&config.store, root.find(&["embedded"])) {
        let line = sources.line_of(at);
        list.push(format!("{line}: `embedded` has no effect without `datastore: embedded`"));
    }
    list
}

fn text_of<'n>(root: &'n Node, key: &str) -> Option<&'n str> {
    match &root.get(key)?.value {
        Value::Text(text) => Some(text),
        Value::Null | Value::List(_) | Value::Map(_) => None,
    }
}

fn without_effect(root: &Node) -> Option<String> {
    let named: Vec<String> = WITHOUT_EFFECT
        .iter()
        .filter(|(key, _)| root.get(key).is_some())
        .filter(|(key, _)| {
            let text = text_of(root, key).unwrap_or_default();
            !DONE_ANYWAY.contains(&(*key, text))
        })
        .map(|(key, instead)| match instead.is_empty() {
            true => format!("`{key}`"),
            false => format!("`{key}` (see `{instead}`)"),
        })
        .collect();
    (!named.is_empty()).then(|| format!("without effect: {}", named.join(", ")))
}

fn not_yet(config: &Config, root: &Node) -> Option<String> {
    let given = |path: &[&str]| path.iter().try_fold(root, |node, key| node.get(key)).is_some();
    let mut named: Vec<String> = NOT_YET
        .iter()
        .filter(|path| given(path))
        .map(|path| format!("`{}`", path.join(".")))
        .collect();
    let one = Consistency::DcOne;
    // At DC_ONE it has none in any version, and another warning says so.
    if config.read_repairs && config.read_consistency != one && config.write_consistency != one {
        named.push("`read_repairs_enabled`".into());
    }
    (!named.is_empty()).then(|| format!("without effect in this version: {}", named.join(", ")))
}

/// Keys whose value means something else than in the reference.
fn differs(config: &Config, root: &Node) -> Option<String> {
    let mut named = Vec::new();
    let value = |key| text_of(root, key);
    for key in ["datastore_connections", "local_peer_connections", "remote_peer_connections"] {
        if value(key).and_then(|v| v.parse().ok()).is_some_and(|n: u64| n > SHORT_MAX) {
            named.push(format!("`{key}` is not cut to 8 bits"));
        }
    }
    if value("enable_gossip") == Some("false") && config.cluster.gossips() {
        named.push(
            "`enable_gossip: false` is about C nodes alone; `cluster.gossip: off` makes the seed \
             list final"
                .into(),
        );
    }
    if value("env").is_some() && !config.env_is_aws {
        named.push("`env` is obeyed: the EC2_ variables are not read".into());
    }
    if config.hasher.hash == HashType::Murmur3 {
        named.push("`hash: murmur3` spreads keys".into());
    }
    (!named.is_empty()).then(|| format!("other than in Dynomite: {}", named.join(", ")))
}

/// Token texts that do not mean their decimal value.
pub(super) fn odd_tokens(pool: &Pool) -> Vec<String> {
    let own = pool.tokens.iter().flatten().flat_map(|list| list.odd_texts.iter());
    let peers = pool.dyn_seeds.iter().flatten().flat_map(|seed| seed.odd_texts.iter());
    own.chain(peers).cloned().collect()
}

fn odd_token_warning(texts: &[String]) -> Option<String> {
    let first = texts.first()?;
    let more = match texts.len() {
        1 => String::new(),
        n => format!(" and {} more", n - 1),
    };
    Some(format!(
        "token {first}{more} is above 4294967295 and does not mean its decimal value: all nodes, \
         C ones too, agree on another place (`torc token -c FILE KEY` shows owners)"
    ))
}

fn ring(config: &Config) -> Vec<String> {
    let mut list = Vec::new();
    let port = config.dyn_listen.host_port().map_or(PEER_PORT, |a| a.port);
    let odd_port = ![PEER_PORT, SECURE_PEER_PORT].contains(&port);
    if config.reference_gossip.enabled && odd_port {
        list.push(format!(
            "gossip of C nodes carries no port and assumes {PEER_PORT} (or {SECURE_PEER_PORT}) \
             everywhere, but `dyn_listen` has {port}"
        ));
    }
    let alone =
        config.dyn_listen.host_port().and_then(|a| a.ip()).is_some_and(|ip| ip.is_loopback());
    let remote = |host: &str| host.parse().is_ok_and(|ip: std::net::IpAddr| !ip.is_loopback());
    if alone && config.seeds.iter().any(|s| remote(&s.address.host)) {
        list.push(format!("peers on other hosts cannot reach `dyn_listen` {}", config.dyn_listen));
    }
    let c_peers = config.reference_gossip.enabled && !config.cluster.torc_only;
    if c_peers && config.bucket_types.iter().any(|t| t.n_val.is_some()) {
        list.push("`n_val` has no effect while C nodes are peers: they write to all racks".into());
    }
    let one = Consistency::DcOne;
    if config.read_repairs && (config.read_consistency == one || config.write_consistency == one) {
        list.push(
            "`read_repairs_enabled` has no effect while a consistency level is DC_ONE".into(),
        );
    }
    if config.hasher.hash == HashType::Murmur3 && !config.cluster.torc_only {
        list.push(
            "no C node can be in a ring with murmur3; `cluster.torc_only: true` says so".into(),
        );
    }
    list
}
