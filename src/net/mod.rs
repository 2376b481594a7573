//! The shell around the cores: sockets, the clock, worker threads. Nothing here decides anything.
//!
//! One acceptor hands each connection to the worker with the fewest; a worker is one thread with
//! a single-threaded runtime and one [`Dispatcher`](crate::dispatch::Dispatcher), and owns its
//! clients and its connections to the datastore and to every peer.

pub mod backoff;
pub mod buffers;
pub mod clock;
pub mod control_link;
#[cfg(feature = "admin")]
pub mod http;
pub mod listener;
pub mod names;
pub mod peer_store;
pub mod secure;
pub mod seed_provider;
pub mod store_health;
pub mod worker;

mod client;
mod core;
mod flush;
mod io;
mod panics;
mod read;
mod stream;
mod upstream;
mod waiting;

#[cfg(test)]
mod tests;
