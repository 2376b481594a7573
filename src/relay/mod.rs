//! The relay contract without gRPC: NVIDIA Dynamo's `KvEventRelay`, both sides of it.
//!
//! A relay tells routers of other places which pools of KV blocks its datacenter publishes, what
//! each pool holds (as a cuckoo filter), whether the models can serve and how full they are. Four
//! planes, each complete by itself; none of them edits another:
//!
//! | plane | what is sent | producer's machine | consumer's machine |
//! | --- | --- | --- | --- |
//! | catalog | complete snapshots by revision | [`catalog`] | [`consumer::CatalogPlane`] |
//! | filter | chunks of one cut, deltas, heartbeats | [`mirror`] | [`consumer::FilterPlane`] |
//! | readiness | complete snapshots by revision | [`readiness`] | [`consumer::ReadinessPlane`] |
//! | load | one window after the other | [`load`] | [`consumer::LoadPlane`] |
//!
//! [`proto`] holds the messages, compiled from `relay.proto` beside this file. Everything that
//! comes in goes through [`envelope`] and then through the validated types: [`key`],
//! [`descriptor`], [`topology`], [`load`]. A [`Fault`] is either *malformed* (the sender is
//! wrong) or *unsupported* (the sender is newer than we are), and the two are never mixed up.
//! What we publish goes through the same checks.
//!
//! Nothing here knows sockets, tasks or a clock. Times are parameters.

pub mod catalog;
pub mod consumer;
pub mod descriptor;
pub mod envelope;
pub mod fault;
pub mod key;
pub mod load;
pub mod mirror;
pub mod names;
pub mod queue;
pub mod readiness;
pub mod reason;
pub mod serving;
pub mod topology;

#[cfg(test)]
mod tests;
#[cfg(test)]
mod vectors;

pub use fault::Fault;
pub use key::ProducerKey;

/// The messages of the contract.
#[allow(missing_docs, clippy::all)]
pub mod proto {
    include!(concat!(env!("OUT_DIR"), "/messages/dynamo.kvrelay.v1.rs"));
}

/// The compiled `relay.proto`, for reflection.
pub const DESCRIPTORS: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/relay.bin"));

/// The service's full name.
pub const SERVICE: &str = "dynamo.kvrelay.v1.KvEventRelay";
