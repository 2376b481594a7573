//! The relay over real HTTP/2: the contract's tables row by row, both sides, and a client made
//! by another party's tools.
//!
//! Waits are bounds, not measurements: each is far longer than what is waited for takes.

// A test binary has no callers: what its modules share is not public to anybody.
#![allow(unreachable_pub)]

mod admission;
mod bad_peers;
mod consumer;
mod filters;
mod frames;
mod lifecycle;
mod planes;
mod producer;
mod python;
mod scripted;
mod server;
mod slow;
mod values;
