//! Checks of `relay:`: limits in the contract's ranges, pools that exist, addresses that fit.

use std::net::IpAddr;

use super::addr::Endpoint;
use super::affinity::AffinityMode;
use super::error::{Fault, Faults};
use super::node::Node;
use super::pool::Pool;
use super::relay::{Relay, RelayPool};
use super::validate::own_listeners_at;

/// Longest interval or timeout, milliseconds: a year.
const TIME_MS_MAX: u64 = 31_536_000_000;
/// Most permits a semaphore of the runtime can have.
const COUNT_MAX: u64 = (usize::MAX >> 3) as u64;
/// Most windows a subscriber may be behind.
const FANOUT_MAX: u64 = 65_536;
/// Least message limit: a full snapshot chunk and its envelope.
const MESSAGE_BYTES_MIN: u64 = 4_259_904;
/// Least queue: a full snapshot chunk and its overhead.
const QUEUE_BYTES_MIN: u64 = 4_194_624;
/// Largest limit in bytes: sizes of messages are numbers of 32 bits.
const BYTES_MAX: u64 = u32::MAX as u64;
/// The name of the domain of the ring's keys.
const KEYS: &str = "keys";

/// Checks the section of a pool; `root` is the map the pool was read from.
pub(super) fn check(pool: &Pool, root: &Node, faults: &mut Faults) {
    let relay = &pool.relay;
    numbers(relay, root, faults);
    addresses(pool, root, faults);
    if relay.is_on() && pool.affinity.mode == AffinityMode::Off {
        let key = if relay.listen.is_some() { "listen" } else { "upstreams" };
        let what = "the relay needs filters to send or to fill";
        fault(root, faults, key, what, "`affinity.mode: advise` beside it");
    }
    for entry in relay.pools.iter().flatten() {
        published(pool, entry, root, faults);
    }
    let domains: Vec<&str> =
        relay.pools.iter().flatten().filter_map(|entry| entry.domain.as_deref()).collect();
    if let Some(twice) = repeated(&domains) {
        fault(root, faults, "pools", format!("domain `{twice}` is given twice"), "one entry each");
    }
}

fn fault(
    root: &Node,
    faults: &mut Faults,
    key: &str,
    what: impl Into<String>,
    accepted: impl Into<String>,
) {
    let mark = root.find(&["relay", key]).or(Some(root.mark));
    faults.push(Fault::new(what).at(mark).accepted(accepted));
}

fn numbers(relay: &Relay, root: &Node, faults: &mut Faults) {
    let count = |value: usize| (value as u64, 1, COUNT_MAX);
    let time = |value: u64| (value, 1, TIME_MS_MAX);
    let ranges = [
        ("max_message_bytes", (relay.max_message_bytes.0, MESSAGE_BYTES_MIN, BYTES_MAX)),
        ("connections_max", count(relay.connections_max)),
        ("keepalive_interval_ms", time(relay.keepalive_interval_ms)),
        ("keepalive_timeout_ms", time(relay.keepalive_timeout_ms)),
        ("pool_heartbeat_interval_ms", time(relay.pool_heartbeat_interval_ms)),
        ("readiness_heartbeat_interval_ms", time(relay.readiness_heartbeat_interval_ms)),
        ("catalog_heartbeat_interval_ms", time(relay.catalog_heartbeat_interval_ms)),
        ("snapshot_progress_timeout_ms", time(relay.snapshot_progress_timeout_ms)),
        ("recovery_attempt_timeout_ms", time(relay.recovery_attempt_timeout_ms)),
        ("load_window_ms", time(relay.load_window_ms)),
        ("load_fanout_capacity", (relay.load_fanout_capacity as u64, 1, FANOUT_MAX)),
        ("publication_queue_capacity", count(relay.publication_queue_capacity)),
        ("publication_queue_bytes", (relay.publication_queue_bytes.0, QUEUE_BYTES_MIN, BYTES_MAX)),
        ("publication_encoding_concurrency", count(relay.publication_encoding_concurrency)),
        ("publication_threshold", (relay.publication_threshold.into(), 1, u32::MAX.into())),
        ("publication_delay_ms", time(relay.publication_delay_ms)),
        ("max_catalog_subscribers", count(relay.max_catalog_subscribers)),
        ("max_readiness_subscribers", count(relay.max_readiness_subscribers)),
        ("max_load_subscribers", count(relay.max_load_subscribers)),
        ("max_serving_load_subscribers", count(relay.max_serving_load_subscribers)),
        ("max_pool_streams_total", count(relay.max_pool_streams_total)),
        ("max_subscribers_per_pool", count(relay.max_subscribers_per_pool)),
        ("max_initialized_pool_hubs", count(relay.max_initialized_pool_hubs)),
    ];
    for (key, (value, least, most)) in ranges {
        if !(least..=most).contains(&value) {
            let what = format!("`{key}` {value} is out of range");
            fault(root, faults, key, what, format!("{least} to {most}"));
        }
    }
}

fn addresses(pool: &Pool, root: &Node, faults: &mut Faults) {
    let relay = &pool.relay;
    match &relay.listen {
        None => {}
        Some(Endpoint::Unix(_)) => {
            fault(root, faults, "listen", "the relay is served over TCP", "host:port");
        }
        Some(listen @ Endpoint::Tcp(address)) => {
            if !relay.public && address.ip().is_some_and(|ip| !is_private(ip)) {
                let what = format!(
                    "`{address}` can be reached from everywhere, and the relay has \
                                    no passwords"
                );
                let accepted = "an address of this machine or of a private network, or \
                                `public: true` beside it";
                fault(root, faults, "listen", what, accepted);
            }
            for key in own_listeners_at(pool, listen) {
                let what = format!("`relay.listen` and `{key}` are the same address");
                fault(root, faults, "listen", what, "another port");
            }
        }
    }
    for upstream in relay.upstreams.iter().flatten() {
        match upstream {
            Endpoint::Tcp(address) if address.port != 0 && !address.is_wildcard() => {}
            Endpoint::Tcp(_) | Endpoint::Unix(_) => {
                let what = format!("`{upstream}` is no address a relay could be reached at");
                fault(root, faults, "upstreams", what, "host:port");
            }
        }
    }
}

/// Whether only this machine or a private network reaches an address.
fn is_private(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(ip) => ip.is_loopback() || ip.is_private() || ip.is_link_local(),
        IpAddr::V6(ip) => ip.is_loopback() || ip.is_unique_local() || ip.is_unicast_link_local(),
    }
}

/// What a pool says of itself must pass the contract's own checks.
fn published(pool: &Pool, entry: &RelayPool, root: &Node, faults: &mut Faults) {
    let mut wrong = |what: String, accepted: &str| fault(root, faults, "pools", what, accepted);
    let domains = pool.affinity.domains.iter().flatten().filter_map(|d| d.name.as_deref());
    let known: Vec<&str> = std::iter::once(KEYS).chain(domains).collect();
    match entry.domain.as_deref() {
        None => wrong("a pool needs `domain`".into(), &known.join(", ")),
        Some(domain) if !known.contains(&domain) => {
            wrong(format!("there is no domain `{domain}`"), &known.join(", "));
        }
        Some(_) => {}
    }
    let text = "text without blanks around it";
    let texts = [&entry.namespace, &entry.component, &entry.endpoint];
    if texts.into_iter().flatten().any(|t| t.trim() != t) {
        wrong("an endpoint's text has blanks around it".into(), text);
    }
    let roles: Vec<String> = entry.roles.iter().flatten().map(ToString::to_string).collect();
    let roles: Vec<&str> = roles.iter().map(String::as_str).collect();
    if let Some(role) = repeated(&roles) {
        wrong(format!("role `{role}` is given twice"), "each role once");
    }
    if entry.roles.as_ref().is_some_and(Vec::is_empty) {
        wrong("a pool needs a role".into(), "aggregated, or others");
    }
    let mut names: Vec<&str> = Vec::new();
    for model in entry.models.iter().flatten() {
        let Some(name) = model.name.as_deref() else {
            wrong("a model needs `name`".into(), text);
            continue;
        };
        let aliases = model.aliases.iter().flatten().map(String::as_str);
        let given: Vec<&str> = std::iter::once(name).chain(aliases).collect();
        let others = [&model.base, &model.adapter].into_iter().flatten().map(String::as_str);
        if given.iter().copied().chain(others).any(|t| t.trim() != t) {
            wrong(format!("a text of model `{name}` has blanks around it"), text);
        }
        names.extend(given);
    }
    if let Some(name) = repeated(&names) {
        wrong(format!("two models of one pool are called `{name}`"), "each name and alias once");
    }
}

fn repeated<'a>(texts: &[&'a str]) -> Option<&'a str> {
    texts.iter().enumerate().find(|(i, text)| texts[..*i].contains(text)).map(|(_, text)| *text)
}
