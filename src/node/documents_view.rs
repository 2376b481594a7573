//! The document gateway on the admin port: `/documents`, and its figures for `/metrics`.

use std::sync::Arc;

use axum::Router;
use axum::http::StatusCode;
use axum::http::header::{CONTENT_TYPE, HeaderName};
use axum::routing::get;
use serde_json::json;

use super::Shared;
use crate::gateway::{BackendFigures, CounterValues, Gateway};
use crate::telemetry::figures::Figure;

/// The pages of the gateway.
pub(super) fn pages(shared: Arc<Shared>) -> Router {
    Router::new().route("/documents", get(move || std::future::ready(documents(&shared))))
}

/// Groups, backends, shard ownership, lag and degraded writes.
fn documents(shared: &Shared) -> (StatusCode, [(HeaderName, &'static str); 1], String) {
    let off = "this node has no document gateway: documents.backends names no server";
    let waits = "the gateway waits until every node that documents.backends names is known";
    let (status, page) = match shared.documents.get() {
        Some(gateway) => (StatusCode::OK, gateway.status()),
        None if shared.config.documents.backends.0.is_empty() => {
            (StatusCode::NOT_FOUND, json!({"error": off}))
        }
        None => (StatusCode::SERVICE_UNAVAILABLE, json!({"error": waits})),
    };
    (status, [(CONTENT_TYPE, "application/json")], page.to_string())
}

/// What the gateway counted, and the state of its backends.
pub(super) fn figures(gateway: &Gateway) -> Vec<Figure> {
    let counters = gateway.counters();
    let counted = CounterValues::ABOUT.iter().zip(counters.iter());
    let mut figures: Vec<Figure> = counted
        .map(|((name, help), value)| {
            Figure::counter(name, help.trim().trim_end_matches('.'), value)
        })
        .collect();
    figures.push(Figure::gauge(
        "documents_bytes_in_flight",
        "Bytes of request bodies the gateway works on",
        gateway.in_flight_bytes() as u64,
    ));
    figures.push(Figure::gauge(
        "documents_answer_bytes_in_flight",
        "Bytes of servers' answers the gateway works on",
        gateway.answer_bytes() as u64,
    ));
    let backends = gateway.backend_figures();
    let of = |name, help, value: fn(&BackendFigures) -> u64| {
        let samples = backends.iter().map(|backend| (backend.id.clone(), value(backend)));
        Figure::gauges(name, help, "backend", samples)
    };
    figures.push(of("documents_backend_up", "1 while the server answers", |b| u64::from(b.live)));
    figures.push(of("documents_backend_shards", "Shards the server owns", |b| b.shards));
    figures.push(of(
        "documents_backend_waiting_writes",
        "Writes that wait for the server or run there",
        |b| b.waiting_writes,
    ));
    figures.push(of(
        "documents_backend_missed_shards",
        "Shards of indexes the server missed writes of",
        |b| b.missed_shards,
    ));
    figures
}
