//! The admin port: what the node says about itself over HTTP, and what it can be told.
//!
//! Two sets of pages. Dynomite's paths (`dynomite`) keep their names and bodies, so that scripts
//! and dashboards written for it work: `/info`, `/cluster_describe`, `/set_consistency/...`,
//! `/state/...`, `/peer/...`. Our own (`pages`) are `/live`, `/ready`, `/health`, `/ring`,
//! `/relay`, `/metrics` and `/log-level`; `affinity` tells of the filters; `membership` has the
//! orders of `torc leave`, `torc join` and `torc ring forget`.
//! Unlike the reference (`src/dyn_stats.c`) an unknown path is 404,
//! another method 405 and a bad argument 400, texts are `text/plain`, and every reply closes
//! its connection.
//!
//! The pages read through [`AdminView`], which the node implements; nothing here changes
//! anything itself. Other planes add pages by merging a router of their own into [`router`]'s.
//! There are no passwords: the port belongs on a private address. `/log-level` and the orders
//! about membership insist on a caller on this machine.

mod affinity;
mod dynomite;
mod health;
mod info;
mod membership;
mod pages;
mod reply;
mod ring;
mod view;

#[cfg(test)]
mod tests;

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::Router;
use axum::http::Method;

use crate::dispatch::Latency;
use crate::net::http::HttpLimits;
use crate::telemetry::log::Log;

pub use health::{DcHealth, assess};
pub use ring::{PHI_MAX, Peer, Rack, Ring};
pub use view::{AdminView, Command, Event, Identity, Latch, PeerVerb, Refused};

/// What all pages share.
struct Admin<V> {
    view: V,
    log: Arc<Log>,
    /// Latencies up to the last `/historeset`.
    latency_before: Mutex<Latency>,
}

impl<V> Admin<V> {
    /// Latencies since the last `/historeset`.
    fn latency_since_reset(&self, total: &Latency) -> Latency {
        let before = self.latency_before.lock().unwrap_or_else(PoisonError::into_inner);
        let mut since = *total;
        since.sum_us = since.sum_us.saturating_sub(before.sum_us);
        for (now, then) in since.buckets.iter_mut().zip(before.buckets) {
            *now = now.saturating_sub(then);
        }
        since
    }

    fn reset_latency(&self, total: Latency) {
        *self.latency_before.lock().unwrap_or_else(PoisonError::into_inner) = total;
    }
}

/// Bounds of the admin port: its callers are few and ask one thing at a time.
pub const LIMITS: HttpLimits = HttpLimits {
    connections_max: 64,
    head_bytes_max: 64 << 10,
    head_time: Duration::from_secs(5),
    connection_time: Duration::from_secs(30),
    keep_alive: false,
};

/// All pages over a node, to be served with [`serve`](crate::net::http::serve) and [`LIMITS`].
pub fn router<V: AdminView>(view: V, log: Arc<Log>) -> Router {
    let latency_before = Mutex::new(Latency::default());
    let admin = Arc::new(Admin { view, log, latency_before });
    let pages = Router::new()
        .merge(affinity::routes())
        .merge(dynomite::routes())
        .merge(membership::routes())
        .merge(pages::routes());
    pages
        .fallback(reply::not_found)
        .method_not_allowed_fallback(
            |method: Method| async move { reply::method_not_allowed(&method) },
        )
        .with_state(admin)
}
