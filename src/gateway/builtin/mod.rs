//! A small document server with Meilisearch's HTTP interface, in memory.
//!
//! It stores, replaces, merges, fetches, filters, lists and deletes documents and runs one task
//! after another, as Meilisearch does; **it does not search text**: a search with words is an
//! error that says so, unless a [`Matcher`] is given. It exists so that `torc demo --documents`
//! answers the first request on a machine without a Meilisearch, and as the core of the fake
//! server the tests use. It keeps nothing over a restart.
//!
//! Answers follow a recorded Meilisearch v1.50.0, error messages included.

mod engine;
mod filter;
mod index;
mod ingest;
mod routes;
mod search;
mod settings;

pub use engine::{Engine, Hold};
pub use routes::router;

use super::server::{ServeLimits, serve};
use super::time::WallClock;
use serde_json::{Map, Value};
use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::sync::Notify;

/// Bounds of a server that stands alone.
const LIMITS: ServeLimits = ServeLimits {
    connections_max: 256,
    head_timeout: Duration::from_secs(30),
    drain_timeout: Duration::from_secs(1),
};

/// Serves an empty document server on `listener` until `stop` ends.
pub async fn run(listener: TcpListener, clock: WallClock, stop: impl Future<Output = ()>) {
    let engine = Arc::new(Mutex::new(Engine::new(clock, None)));
    let bell = Arc::new(Notify::new());
    let serving = serve(listener, router(engine.clone(), bell.clone(), None), LIMITS, stop);
    tokio::select! {
        () = serving => {}
        () = run_queue(engine, bell) => {}
    }
}

/// Runs tasks as they come, for ever.
async fn run_queue(engine: Arc<Mutex<Engine>>, bell: Arc<Notify>) {
    loop {
        bell.notified().await;
        while engine.lock().unwrap_or_else(PoisonError::into_inner).run_next() {
            tokio::task::yield_now().await;
        }
    }
}

/// Scores a document for the words of a query: `None` when it does not match.
pub type Matcher = fn(&Map<String, Value>, &str) -> Option<f64>;
