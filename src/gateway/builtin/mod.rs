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

use serde_json::{Map, Value};

/// Scores a document for the words of a query: `None` when it does not match.
pub type Matcher = fn(&Map<String, Value>, &str) -> Option<f64>;
