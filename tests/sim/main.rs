//! The dispatcher in an in-memory world: several nodes, a virtual clock, links that delay, cut at
//! any byte and partition, stores and nodes that crash and freeze.
//!
//! One seed drives everything. `SIM_SEED=s cargo test --test sim NAME` replays a history with
//! all that happens in it; `SIM_SEEDS=n` runs more of them.

mod checkers;
mod cluster;
mod faults;
mod members;
mod network;
mod node;
mod planes;
mod process;
mod random;
mod scenarios;
mod store;
mod user;
mod workload;
mod world;
