//! The document plane's rules, without sockets, clocks or tasks.
//!
//! A gateway accepts documents over HTTP and spreads them over ordinary Meilisearch servers
//! ("backends") that stand in replica groups. Everything it decides is decided here:
//!
//! - [`shard`]: which shard a document belongs to, and how backends rank for it;
//! - [`topology`]: groups of backends and the owners of every shard;
//! - [`object`], [`csv`], [`batch`]: request bytes to documents, kept exact but for the injected
//!   shard field, and one payload per backend;
//! - [`primary_key`], [`reserved`]: what a document must and must not carry;
//! - [`quorum`]: the two-rule verdict of a write;
//! - [`task`]: the state of one write over all the backends that took it;
//! - [`covering`], [`listing`], [`search`]: reads over several backends made one answer.
//!
//! Two gateways with the same backends, groups, shards and replication factor decide alike
//! without talking to each other; the vectors in `tests/vectors/documents.json` pin that.

pub mod batch;
pub mod covering;
pub mod csv;
pub mod error;
pub mod listing;
pub mod object;
pub mod primary_key;
pub mod quorum;
pub mod reserved;
pub mod search;
pub mod shard;
pub mod task;
pub mod topology;

#[cfg(test)]
mod tests;
