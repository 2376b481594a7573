//! The document gateway over real HTTP, against servers that behave as a recorded Meilisearch.

mod acceptance;
mod away;
mod cluster;
mod copies;
mod demo;
mod fake;
mod http;
mod limits;
mod migrate;
mod node;
mod nonsense;
mod pins;
#[path = "../cluster/ports.rs"]
mod ports;
mod real;
mod refusals;
mod requests;
mod reserved;
mod resp_kv;
mod restart;
mod sdk;
mod searches;
mod several;
mod state;
mod task_lists;
mod tls;
mod transcript;
mod trouble;
