//! `/affinity`: what the filters are worth now, and why; `POST /affinity/rebuild`.

use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use axum::routing::{get, post};
use axum::{Extension, Router};
use serde::Serialize;

use super::Admin;
use super::dynomite::{Node, done};
use super::reply::{self, DONE};
use super::view::{AdminView, Command};
use crate::affinity::domain::Domain;
use crate::affinity::following::Way;
use crate::affinity::mesh::PlaneReport;
use crate::dispatch::Counters;
use crate::net::http::Caller;

pub(super) fn routes<V: AdminView>() -> Router<Arc<Admin<V>>> {
    Router::new()
        .route("/affinity", get(affinity::<V>))
        .route("/affinity/rebuild", post(rebuild::<V>))
}

/// A new generation of every filter this node publishes.
async fn rebuild<V: AdminView>(
    State(admin): Node<V>,
    caller: Option<Extension<Caller>>,
) -> Response {
    match reply::is_here(caller) {
        true => done(&admin, Command::RebuildAffinity, DONE).await,
        false => reply::not_here(),
    }
}

async fn affinity<V: AdminView>(State(admin): Node<V>) -> Response {
    let (view, now) = (admin.view.view(), admin.view.now());
    let (Some(affinity), Some(report)) = (&view.affinity, admin.view.affinity_report()) else {
        return reply::text(StatusCode::NOT_FOUND, "affinity is off; see affinity.mode\n");
    };
    let counters = admin.view.counters().await;
    let page = Page {
        mode: if view.settings.route_reads { "route" } else { "advise" },
        holds: Holds::new(&report, now.mono_ms()),
        exchange: Exchange {
            sent: report.mesh.sent,
            sent_bytes: report.mesh.sent_bytes,
            received: report.mesh.received,
            received_bytes: report.mesh.received_bytes,
            refused: report.mesh.refused,
            malformed: report.mesh.malformed,
            dropped: report.dropped,
            takeovers: report.mesh.takeovers,
            parts_sent: report.mesh.parts_sent,
        },
        reads: Reads::new(&counters),
        domains: affinity.domains().map(|domain| about(domain, now.mono_ms())).collect(),
    };
    reply::json(StatusCode::OK, &page)
}

#[derive(Serialize)]
struct Page<'a> {
    mode: &'static str,
    /// What this node's own store holds.
    holds: Holds<'a>,
    /// Between this node and the others.
    exchange: Exchange,
    /// What came of it for clients.
    reads: Reads,
    domains: Vec<About<'a>>,
}

#[derive(Serialize)]
struct Holds<'a> {
    keys: u64,
    /// Whether that is everything.
    known: bool,
    /// Why not.
    #[serde(skip_serializing_if = "Option::is_none")]
    trouble: Option<&'a str>,
    /// How the store is followed.
    #[serde(skip_serializing_if = "Option::is_none")]
    followed_by: Option<&'static str>,
    /// Times it had to be listed.
    relistings: u64,
    /// Times it was listed while all was well, and what that mended.
    rescans: u64,
    /// Since it was listed to the end last.
    listed_ms_ago: Option<u64>,
    mended_missed: u64,
    mended_gone: u64,
}

impl Holds<'_> {
    fn new(report: &PlaneReport, now_ms: u64) -> Holds<'_> {
        let following = &report.following;
        Holds {
            keys: report.held,
            known: report.sure,
            trouble: following.trouble.as_deref(),
            followed_by: following.way.map(Way::words),
            relistings: following.relistings,
            rescans: following.rescans,
            listed_ms_ago: following.listed_ms.map(|at| now_ms.saturating_sub(at)),
            mended_missed: following.mended_missed,
            mended_gone: following.mended_gone,
        }
    }
}

#[derive(Serialize)]
struct Exchange {
    sent: u64,
    sent_bytes: u64,
    received: u64,
    received_bytes: u64,
    refused: u64,
    malformed: u64,
    dropped: u64,
    takeovers: u64,
    parts_sent: u64,
}

#[derive(Serialize)]
struct Reads {
    remote: u64,
    hits: u64,
    false_positives: u64,
    nobody: u64,
    unknown: u64,
    second_tries: u64,
    shared: u64,
    capped: u64,
    backfills: u64,
    backfills_refused: u64,
}

impl Reads {
    fn new(counters: &Counters) -> Reads {
        Reads {
            remote: counters.affinity_remote,
            hits: counters.affinity_hits,
            false_positives: counters.affinity_false_positives,
            nobody: counters.affinity_nobody,
            unknown: counters.affinity_unknown,
            second_tries: counters.affinity_second_tries,
            shared: counters.affinity_shared,
            capped: counters.affinity_capped,
            backfills: counters.affinity_backfills,
            backfills_refused: counters.affinity_backfills_refused,
        }
    }
}

#[derive(Serialize)]
struct About<'a> {
    name: &'a str,
    id: String,
    buckets: u64,
    table_bytes: usize,
    lanes: Vec<Lane<'a>>,
    /// The exact state, on the nodes that keep it.
    #[serde(skip_serializing_if = "Option::is_none")]
    state: Option<Exact>,
}

#[derive(Serialize)]
struct Lane<'a> {
    datacenter: &'a str,
    /// Whether its filter is there.
    ready: bool,
    /// Whether it is heard of as well: only then is it used.
    believed: bool,
    age_ms: Option<u64>,
    /// Part of its filter that is in use.
    load: Option<f64>,
    /// Size of its filter, where it is here: not the domain's while datacenters are resized.
    buckets: Option<u64>,
    /// What it does or waits for.
    state: String,
    /// The node that sends it to this one.
    from: String,
    incarnation: u64,
    sequence: u64,
    snapshots: u64,
    changes: u64,
    gaps: u64,
}

#[derive(Serialize)]
struct Exact {
    publishes: bool,
    /// Whether it contains what every live node of the datacenter holds.
    complete: bool,
    members: u32,
    members_expected: u32,
    /// The nodes of which it is not known what they hold.
    missing: Vec<String>,
    incarnation: Option<u64>,
    sequence: Option<u64>,
    keys: usize,
    contributions: usize,
    /// Part of the filter that is in use.
    load: f64,
    omissions: u64,
    unknown_removals: u64,
    recoveries: u32,
    bytes: usize,
}

fn about(domain: &Domain, now_ms: u64) -> About<'_> {
    let ready = domain.ready_lanes();
    let believed = domain.lanes().believed(ready, now_ms);
    let lanes = domain.lanes().iter().map(|(number, of)| {
        let note = of.note();
        Lane {
            datacenter: &of.dc,
            ready: ready & (1 << number) != 0,
            believed: believed & (1 << number) != 0,
            age_ms: of.age_ms(now_ms),
            load: domain.lane_load(number),
            buckets: domain.lane_buckets(number),
            state: domain.lane_state(number, now_ms),
            from: note.from,
            incarnation: note.incarnation,
            sequence: note.sequence,
            snapshots: note.snapshots,
            changes: note.changes,
            gaps: note.gaps,
        }
    });
    About {
        name: domain.name(),
        id: domain.spec().id.to_string(),
        buckets: domain.format().bucket_count,
        table_bytes: domain.table_bytes(),
        lanes: lanes.collect(),
        state: exact(domain),
    }
}

fn exact(domain: &Domain) -> Option<Exact> {
    let report = domain.producer_report()?;
    let publication = domain.publication();
    Some(Exact {
        publishes: publication.is_some(),
        complete: publication.is_some_and(|p| p.complete),
        members: publication.map_or(0, |p| p.members),
        members_expected: publication.map_or(0, |p| p.members_expected),
        missing: domain.missing_members(),
        incarnation: report.identity.map(|identity| identity.producer_incarnation),
        sequence: report.sequence,
        keys: report.sizes.unique_hashes,
        contributions: report.sizes.contributions,
        load: report.sizes.occupied_slots as f64 / report.sizes.slots.max(1) as f64,
        omissions: report.counters.capacity_omissions,
        unknown_removals: report.counters.unknown_removals,
        recoveries: report.recoveries,
        bytes: report.sizes.ownership_bytes + report.sizes.filter_bytes,
    })
}
