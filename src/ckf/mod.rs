//! The cuckoo filters of the affinity layer: who holds which KV block or key, per datacenter.
//!
//! A **producer** keeps the exact ownership of every block of one datacenter
//! ([`producer::DcCkfState`]) and mirrors it in a packed cuckoo filter, whose changed buckets leave
//! as absolute images ([`publisher::DcCkfPublisher`], bytes in [`cbi1`]). A **consumer**
//! ([`consumer::GlobalCkfIndexer`]) holds up to sixteen such filters in one transposed table and
//! answers, for one hash or a chain of them, which datacenters hold it and how deep.
//!
//! Reading order: [`identity`] and [`format`](mod@format) (names and shapes), [`hashing`] (tokens
//! to hashes), [`addressing`] and [`bucket`] (one hash to its place), then the producer's side
//! and the consumer's side.
//!
//! Formats, digests and state rules follow the published crate `dynamo-kv-router` 1.6.1
//! (`ai-dynamo/dynamo`), whose behaviour is recorded in `tests/vectors/ckf.json` and
//! `tests/vectors/cbi1.json`. One deliberate difference is the rule for a full filter, see
//! [`producer`]. Nothing here reads a clock, opens a socket or starts a task.

pub mod adapter;
pub mod addressing;
pub mod bucket;
pub mod cbi1;
pub mod consumer;
pub mod digest;
pub mod failure;
pub mod format;
pub mod hashing;
pub mod identity;
pub mod pool;
pub mod producer;
pub mod publication;
pub mod publisher;
pub mod ringkey;

mod alloc;
mod simd;
mod sync;

pub use alloc::OutOfMemory;

#[cfg(test)]
pub(crate) mod vectors;
