//! RESP, the Redis protocol: requests and replies without a socket.
//!
//! In reading order: [`decode`] finds one request in a receive buffer, [`inline`] rewrites the
//! human form of a request, [`reply`] finds the end of one reply, [`encode`] writes both, and
//! [`error`] says what was wrong with bytes that are neither.
//!
//! [`table`] is the command table, one row a command with the columns of [`spec`]; [`shape`],
//! [`effect`] and [`key_use`] are three of them that look at the arguments. [`lift`] turns RESP2
//! replies into RESP3. [`introspect`] tells clients what the table holds, [`rewrite`] writes what
//! replicas and C peers get in place of a command.
//!
//! Stores and peers are always spoken to in RESP2.

pub mod decode;
pub mod effect;
pub mod encode;
pub mod error;
pub mod inline;
pub mod introspect;
pub mod key_use;
pub mod lift;
mod number;
pub mod reply;
pub mod rewrite;
pub mod shape;
pub mod spec;
pub mod table;
