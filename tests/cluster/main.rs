//! Rings of real processes on loopback: what a user would see.
//!
//! Each test starts its own nodes and datastores on free ports, and ends them by their own
//! process ids. Tests that need redis-server take it from `REDIS_BIN` or the PATH and say
//! *skipped* without it.

// A test binary has no callers: what its modules share is not public to anybody.
#![allow(unreachable_pub)]

mod admin;
mod affinity;
mod blocking;
mod buckets;
mod c_rules;
mod client;
mod clients;
mod differential;
mod discovery;
mod dns;
mod encrypted;
mod events;
mod fake_peer;
mod faults;
mod greetings;
mod keys_land;
mod limits;
mod links;
mod membership;
mod memcache;
mod mixed;
mod modules;
mod newest;
mod old_store;
mod older;
mod ports;
mod probes;
#[cfg(feature = "relay")]
mod relay;
mod reports;
mod resized;
mod ring;
mod routed;
mod scripts;
mod secrets;
#[path = "../oracle/steps.rs"]
mod steps;
mod stopping;
mod wander;
mod watch;
mod wire;
mod workers;
