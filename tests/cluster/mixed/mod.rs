//! Rings in which nodes of the reference and of torc sit side by side.
//!
//! The reference's binary is named by `DYNOMITE_BIN`; without it these tests say *skipped*. Both
//! kinds of node are started from the same configuration file with the same arguments, each node
//! on a loopback address of its own, because all peers of a C node have one port.

mod data;
mod gossip;
mod levels;
mod memcache;
mod replace;
mod ring;

pub use ring::free_net;
