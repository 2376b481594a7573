//! Checks of `documents:`: groups that can serve, numbers that make sense.

use super::addr::Endpoint;
use super::documents::Documents;
use super::error::{Fault, Faults};
use super::node::Node;
use super::pool::Pool;
use super::validate::{collide, own_listeners_at};
use crate::document::topology::{SHARDS_MAX, Topology};

/// Most gateways of a ring: each takes its share of the task numbers.
const GATEWAYS_MAX: u32 = 1_024;

/// Checks the section of a pool; `root` is the map the pool was read from.
pub(super) fn check(pool: &Pool, root: &Node, faults: &mut Faults) {
    let documents = &pool.documents;
    numbers(documents, root, faults);
    if let Endpoint::Unix(_) = documents.listen {
        fault(root, faults, "listen", "documents are served over TCP", "host:port");
    }
    if documents.backends.0.is_empty() {
        return;
    }
    let relay = pool.relay.listen.as_ref();
    let relay = relay.filter(|relay| collide(relay, &documents.listen)).map(|_| "relay.listen");
    for key in own_listeners_at(pool, &documents.listen).into_iter().chain(relay) {
        let what = format!("`documents.listen` and `{key}` are the same address");
        fault(root, faults, "listen", what, "another port");
    }
    groups(documents, root, faults);
}

fn fault(
    root: &Node,
    faults: &mut Faults,
    key: &str,
    what: impl Into<String>,
    accepted: impl Into<String>,
) {
    let mark = root.find(&["documents", key]).or(Some(root.mark));
    faults.push(Fault::new(what).at(mark).accepted(accepted));
}

fn numbers(documents: &Documents, root: &Node, faults: &mut Faults) {
    let ranges = [
        ("shards", u64::from(documents.shards), u64::from(SHARDS_MAX)),
        ("max_gateways", u64::from(documents.max_gateways), u64::from(GATEWAYS_MAX)),
        ("replication_factor", documents.replication_factor as u64, u64::MAX),
        ("node_timeout_ms", documents.node_timeout_ms, u64::MAX),
        ("request_timeout_ms", documents.request_timeout_ms, u64::MAX),
        ("refresh_interval_ms", documents.refresh_interval_ms, u64::MAX),
        ("body_bytes_max", documents.body_bytes_max.0, u64::from(u32::MAX)),
        ("in_flight_bytes_max", documents.in_flight_bytes_max.0, u64::MAX),
        ("connections_max", documents.connections_max as u64, u64::MAX),
        ("lane_requests_max", documents.lane_requests_max as u64, u64::MAX),
    ];
    for (key, value, most) in ranges {
        if value == 0 || value > most {
            let accepted =
                if most == u64::MAX { "1 or more".into() } else { format!("1 to {most}") };
            fault(root, faults, key, format!("`{key}` {value} is out of range"), accepted);
        }
    }
    if documents.slot.is_some_and(|slot| slot >= documents.max_gateways) {
        let accepted = "a number below max_gateways";
        fault(root, faults, "slot", "`slot` is not below `max_gateways`", accepted);
    }
}

/// One of two forms: groups by the racks of the ring, or by number.
fn groups(documents: &Documents, root: &Node, faults: &mut Faults) {
    let backends = &documents.backends.0;
    let numbered = backends.iter().filter(|backend| backend.group.is_some()).count();
    if numbered == 0 {
        return;
    }
    if numbered < backends.len() {
        let what = "some backends name a group and some do not";
        let accepted = "all by the name of their node, or all with `group`";
        fault(root, faults, "backends", what, accepted);
        return;
    }
    let groups = numbered_groups(documents);
    if let Some(empty) = groups.iter().position(Vec::is_empty) {
        let what = format!("group {empty} has no backend");
        fault(root, faults, "backends", what, "groups numbered from 0 without gaps");
        return;
    }
    let shards = documents.shards.clamp(1, SHARDS_MAX);
    let copies = documents.replication_factor.max(1);
    if let Err(error) = Topology::new(shards, copies, &groups) {
        fault(root, faults, "backends", error.to_string(), "groups that can reach a quorum");
    }
}

/// Ids by group, for the form with numbers.
fn numbered_groups(documents: &Documents) -> Vec<Vec<String>> {
    let backends = &documents.backends.0;
    let count = backends.iter().filter_map(|b| b.group).max().map_or(0, usize::from) + 1;
    let mut groups = vec![Vec::new(); count];
    for backend in backends {
        groups[usize::from(backend.group.unwrap_or(0))].push(backend.id.clone());
    }
    groups
}
