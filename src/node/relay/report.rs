//! `/relay` of the admin port, and the relay's metrics.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;

use serde_json::{Value as Json, json};

use super::RelayPlane;
use super::consume::{FilterState, State, Upstream};
use crate::affinity::domain::Domain;
use crate::relay_server::{Relay, StreamKind};
use crate::telemetry::figures::Figure;

impl RelayPlane {
    /// What is served and what is followed.
    pub fn page(&self) -> Json {
        let upstreams: Vec<Json> = self.upstreams.iter().map(|u| upstream(u)).collect();
        let server = self.server.as_ref().map(|relay| relay.report());
        let domains = self.affinity.domains();
        let domains: Vec<Json> = domains.domains().map(|domain| duties(domain)).collect();
        json!({ "domains": domains, "server": server, "upstreams": upstreams })
    }

    /// Its metrics.
    pub fn figures(&self) -> Vec<Figure> {
        let mut figures = self.server.as_ref().map(|relay| of_server(relay)).unwrap_or_default();
        if !self.upstreams.is_empty() {
            figures.extend(of_upstreams(&self.upstreams));
        }
        figures
    }
}

/// Whom consumers have to ask for a domain's pool, and who fetches those of others.
fn duties(domain: &Domain) -> Json {
    let duties = domain.duties();
    json!({
        "domain": domain.name(),
        "publisher": duties.publisher,
        "importer": duties.importer,
    })
}

fn of_server(relay: &Relay) -> Vec<Figure> {
    let counters = relay.counters();
    let by_kind = |read: fn(&crate::relay_server::OfKind) -> u64| {
        StreamKind::ALL.map(|kind| (kind.label().to_owned(), read(counters.of(kind))))
    };
    let number = |counter: &std::sync::atomic::AtomicU64| counter.load(Ordering::Relaxed);
    let mut reasons = BTreeMap::<String, u64>::new();
    for stream in relay.report().streams {
        for (reason, count) in stream.ended {
            *reasons.entry(format!("{}/{}", stream.kind, reason.to_lowercase())).or_default() +=
                count;
        }
    }
    vec![
        Figure::gauges(
            "relay_streams_open",
            "Streams of consumers that are open",
            "kind",
            by_kind(|of| of.open.load(Ordering::Relaxed)),
        ),
        Figure::counters(
            "relay_streams",
            "Streams of consumers begun",
            "kind",
            by_kind(|of| of.opened.load(Ordering::Relaxed)),
        ),
        Figure::counters(
            "relay_messages",
            "Messages sent to consumers",
            "kind",
            by_kind(|of| of.messages.load(Ordering::Relaxed)),
        ),
        Figure::counters(
            "relay_ended",
            "Calls refused and streams ended, by kind and reason",
            "reason",
            reasons,
        ),
        Figure::counter(
            "relay_payload_bytes",
            "Bytes of filters sent",
            number(&counters.of(StreamKind::Pool).payload_bytes),
        ),
        Figure::counter(
            "relay_connections",
            "Connections of consumers",
            number(&counters.connections),
        ),
        Figure::counter("relay_snapshots", "Snapshots cut", number(&counters.snapshots)),
        Figure::counter("relay_deltas", "Deltas made", number(&counters.deltas)),
        Figure::counter("relay_images", "Bucket images in them", number(&counters.images)),
        Figure::counter("relay_hubs", "Mirrors begun", number(&counters.hubs_started)),
        Figure::counter("relay_hubs_evicted", "Idle mirrors ended", number(&counters.hubs_evicted)),
        Figure::counter("relay_hubs_failed", "Mirrors given up", number(&counters.hubs_failed)),
    ]
}

fn of_upstreams(upstreams: &[std::sync::Arc<Upstream>]) -> Vec<Figure> {
    let mut faults = BTreeMap::<String, u64>::new();
    let mut connected = Vec::new();
    let mut messages = BTreeMap::<String, u64>::new();
    let (mut snapshots, mut deltas, mut ready) = (0, 0, 0);
    for upstream in upstreams {
        let state = upstream.state();
        connected.push((upstream.address.clone(), u64::from(state.relay.is_some())));
        for (fault, count) in &state.faults {
            *faults.entry((*fault).to_lowercase()).or_default() += count;
        }
        for (plane, of_plane) in &state.planes {
            *messages.entry(plane.label().to_owned()).or_default() += of_plane.messages;
        }
        for filter in state.filters.values() {
            snapshots += filter.snapshots;
            deltas += filter.deltas;
            ready += u64::from(filter.sequence.is_some());
        }
    }
    vec![
        Figure::gauges(
            "relay_upstream_connected",
            "1 while a relay is followed",
            "upstream",
            connected,
        ),
        Figure::counters(
            "relay_upstream_messages",
            "News from relays, by plane",
            "plane",
            messages,
        ),
        Figure::counters(
            "relay_upstream_faults",
            "Times a plane or filter of a relay became void",
            "fault",
            faults,
        ),
        Figure::gauge("relay_upstream_filters", "Filters of relays that answer", ready),
        Figure::gauge(
            "relay_upstream_snapshots",
            "Snapshots of filters that are listed",
            snapshots,
        ),
        Figure::gauge("relay_upstream_deltas", "Deltas of filters that are listed", deltas),
    ]
}

fn upstream(upstream: &Upstream) -> Json {
    let now_ms = upstream.now_ms();
    let age = |heard_ms: Option<u64>| heard_ms.map(|heard| now_ms.saturating_sub(heard));
    let state = upstream.state();
    let planes: BTreeMap<&str, Json> = state
        .planes
        .iter()
        .map(|(plane, of_plane)| {
            let about = json!({
                "messages": of_plane.messages,
                "age_ms": age(of_plane.heard_ms),
                "trouble": of_plane.trouble,
            });
            (plane.label(), about)
        })
        .collect();
    json!({
        "address": upstream.address,
        "relay": state.relay.map(|relay| json!({
            "drt_instance_id": format!("{:016x}", relay.drt_instance_id),
            "incarnation": format!("{:016x}", relay.incarnation),
        })),
        "planes": planes,
        "catalog_revision": state.catalog.as_ref().map(|view| view.revision),
        "pools": pools(&state, age),
        "quarantined": quarantined(&state),
        "readiness_revision": state.readiness.as_ref().map(|view| view.revision),
        "readiness": readiness(&state),
        "load_window": state.load.as_ref().map(|view| view.window.sequence),
        "load": load(&state),
        "serving_window": state.serving_window,
        "faults": state.faults,
    })
}

fn pools(state: &State, age: impl Fn(Option<u64>) -> Option<u64>) -> Vec<Json> {
    let listed = state.catalog.iter().flat_map(|view| &view.pools);
    let none = FilterState::default();
    listed
        .map(|pool| {
            let filter = state.filters.get(&pool.key.pool()).unwrap_or(&none);
            json!({
                "pool": pool.key.pool().to_string(),
                "endpoint": pool.endpoint.to_string(),
                "producer_incarnation": pool.key.identity().producer_incarnation,
                "sequence": filter.sequence,
                "snapshots": filter.snapshots,
                "deltas": filter.deltas,
                "age_ms": age(filter.heard_ms),
                "refused": filter.refused,
                "trouble": filter.trouble,
            })
        })
        .collect()
}

fn quarantined(state: &State) -> Vec<Json> {
    let pools = state.catalog.iter().flat_map(|view| &view.quarantined);
    let entries = state.readiness.iter().flat_map(|view| &view.quarantined);
    pools.chain(entries).map(|q| json!({"name": q.name, "why": q.fault.to_string()})).collect()
}

fn readiness(state: &State) -> Vec<Json> {
    let entries = state.readiness.iter().flat_map(|view| &view.entries);
    entries
        .map(|entry| {
            json!({
                "namespace": entry.key.namespace,
                "model": entry.key.model,
                "state": crate::relay::topology::state_word(entry.state),
            })
        })
        .collect()
}

fn load(state: &State) -> Vec<Json> {
    let pools = state.load.iter().flat_map(|view| &view.pools);
    pools
        .map(|load| {
            json!({
                "pool": load.key.pool().to_string(),
                "used": load.used_blocks,
                "total": load.total_blocks,
                "ranks": format!("{}/{}", load.observed_ranks, load.expected_ranks),
                "authoritative": load.is_authoritative(),
            })
        })
        .collect()
}
