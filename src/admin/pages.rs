//! Our own pages: liveness, readiness, health, ring, metrics, log level.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::body::{Body, to_bytes};
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use axum::routing::get;
use axum::{Extension, Router};
use prometheus_client::registry::Registry;
use serde::Serialize;

use super::health::{self, DcHealth, assess};
use super::ring::describe;
use super::view::AdminView;
use super::{Admin, reply};
use crate::net::http::Caller;
use crate::ring::Consistency;
use crate::telemetry::metrics::{NodeMetrics, exposition};

/// Largest body of a request: a log filter.
const BODY_BYTES_MAX: usize = 4_096;

pub(super) fn routes<V: AdminView>() -> Router<Arc<Admin<V>>> {
    Router::new()
        .route("/live", get(|| async { reply::ok("live\n") }))
        .route("/ready", get(ready::<V>))
        .route("/health", get(health::<V>))
        .route("/ring", get(ring::<V>))
        .route("/relay", get(relay::<V>))
        .route("/metrics", get(metrics::<V>))
        .route("/log-level", get(log_level::<V>).put(set_log_level::<V>))
}

/// 200 once all latches are open, else 503 and what is waited for.
async fn ready<V: AdminView>(State(admin): State<Arc<Admin<V>>>) -> Response {
    let mut body = String::new();
    for latch in admin.view.latches() {
        if let Some(reason) = latch.waiting_for {
            body += &format!("waiting for {}: {reason}\n", latch.name);
        }
    }
    match body.is_empty() {
        true => reply::ok("ready\n"),
        false => reply::text(StatusCode::SERVICE_UNAVAILABLE, body),
    }
}

#[derive(Serialize)]
struct Health {
    /// `ok` when every replica serves, `degraded` when some do not but the configured levels can
    /// be met for every key, `unavailable` when they cannot, `alarm` when the ring serves and
    /// something else is wrong.
    status: &'static str,
    /// What that is.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    alarms: Vec<String>,
    /// For each level, whether it can be met for every key.
    levels: BTreeMap<&'static str, bool>,
    read: &'static str,
    write: &'static str,
    datacenters: Vec<DcHealth>,
}

/// 200 while the configured levels can be met for every key and there is no alarm, else 503.
async fn health<V: AdminView>(State(admin): State<Arc<Admin<V>>>) -> Response {
    let view = admin.view.view();
    let datacenters = assess(&view.topology);
    let can = |level| health::can_serve(&datacenters, level);
    let alarms = admin.view.alarms();
    let served = can(view.read) && can(view.write);
    let (status, code) = if served && !alarms.is_empty() {
        ("alarm", StatusCode::SERVICE_UNAVAILABLE)
    } else if datacenters.iter().all(|dc| dc.whole) {
        ("ok", StatusCode::OK)
    } else if served {
        ("degraded", StatusCode::OK)
    } else {
        ("unavailable", StatusCode::SERVICE_UNAVAILABLE)
    };
    let levels = Consistency::ALL.iter().map(|&level| (level.name(), can(level))).collect();
    let (read, write) = (view.read.name(), view.write.name());
    reply::json(code, &Health { status, alarms, levels, read, write, datacenters })
}

async fn ring<V: AdminView>(State(admin): State<Arc<Admin<V>>>) -> Response {
    let standings = admin.view.standings().await;
    let view = admin.view.view();
    reply::json(StatusCode::OK, &describe(&view, &standings, admin.view.events()))
}

/// Streams, revisions, sequences, ages and rejections of the relay.
async fn relay<V: AdminView>(State(admin): State<Arc<Admin<V>>>) -> Response {
    match admin.view.relay() {
        Some(page) => reply::json(StatusCode::OK, &page),
        None => reply::text(StatusCode::NOT_FOUND, "no relay runs here\n"),
    }
}

async fn metrics<V: AdminView>(State(admin): State<Arc<Admin<V>>>) -> Response {
    let mut registry = Registry::with_prefix("torc");
    registry.register_collector(Box::new(NodeMetrics {
        counters: admin.view.counters().await,
        view: admin.view.view(),
        uptime_s: admin.view.now().mono_us / 1_000_000,
        ready: admin.view.latches().iter().all(|latch| latch.waiting_for.is_none()),
    }));
    admin.view.collect(&mut registry);
    match exposition(&registry) {
        Ok(text) => reply::metrics(text),
        Err(error) => reply::text(StatusCode::INTERNAL_SERVER_ERROR, format!("{error}\n")),
    }
}

async fn log_level<V: AdminView>(
    State(admin): State<Arc<Admin<V>>>,
    caller: Option<Extension<Caller>>,
) -> Response {
    match reply::is_here(caller) {
        true => reply::ok(admin.log.filter() + "\n"),
        false => reply::not_here(),
    }
}

async fn set_log_level<V: AdminView>(
    State(admin): State<Arc<Admin<V>>>,
    caller: Option<Extension<Caller>>,
    body: Body,
) -> Response {
    if !reply::is_here(caller) {
        return reply::not_here();
    }
    let Ok(body) = to_bytes(body, BODY_BYTES_MAX).await else {
        return reply::bad_request("the filter is too long", "up to 4096 bytes");
    };
    match admin.log.set_filter(&String::from_utf8_lossy(&body)) {
        Ok(()) => reply::ok(admin.log.filter() + "\n"),
        Err(error) => reply::text(StatusCode::BAD_REQUEST, format!("{error}\n")),
    }
}
