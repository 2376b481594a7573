//! torc: a node of a Dynomite ring.
//!
//! Modules stand in layers; a module uses its own layer and lower ones only.

#[cfg(feature = "admin")]
pub mod admin;
pub mod affinity;
pub mod ckf;
pub mod cli;
pub mod config;
pub mod dispatch;
pub mod document;
#[cfg(feature = "documents")]
pub mod gateway;
pub mod gossip;
pub mod hash;
pub mod net;
pub mod node;
pub mod proto;
pub mod ring;
pub mod store;
pub mod telemetry;
pub mod token;
