//! torc: a node of a Dynomite ring.
//!
//! # The problem
//!
//! A ring spreads keys over nodes by token, keeps a full copy in every rack, and lets a client
//! talk to any node. The node must therefore be a good proxy (cheap, in order, calm when a store
//! or a peer stalls), a good member (know within seconds who is there), and a good neighbour of
//! the C nodes it replaces one by one.
//!
//! # Overview
//!
//! Three planes in one process:
//!
//! - the **data plane**: [`net::worker`] threads, each a single-threaded runtime around one
//!   [`dispatch::Dispatcher`]. It owns its clients and its connections to the datastore and to
//!   every peer. Nothing on it crosses a thread, takes a lock that another thread holds for long,
//!   or spawns a task for a request;
//! - the **control plane**: [`node`]'s loop around [`gossip::Membership`]. Every change of the
//!   membership becomes a new immutable [`dispatch::view::View`], which workers swap in between
//!   two batches; requests in flight finish as they were planned;
//! - the **service plane**: the admin port, the relay, and the document gateway.
//!
//! Decisions are made by cores without sockets, clock or tasks: bytes and a time go in, bytes and
//! the next wake-up come out. The same cores run in production and in the simulator
//! (`tests/sim`), where a seed replays a whole history of faults.
//!
//! # Life of a request
//!
//! 1. `net/client.rs` reads what is there and hands it to the dispatcher once.
//! 2. [`proto::resp`] or [`proto::memcache`] finds the request in place: spans, no copies.
//! 3. [`hash`] turns the key into a [`token::DynToken`]; [`ring::Topology`] gives its owner in
//!    every rack with one search; [`dispatch::plan`] turns owners, level and connections into
//!    copies to send.
//! 4. Each copy is appended to the output of the datastore's or the peer's connection (framed by
//!    [`proto::dnode`]), and a ticket to its queue; the embedded [`store`] answers at once.
//! 5. Replies are matched by their order; [`dispatch::gather`] lets replicas vote; the answer is
//!    written when it is the client's turn. Everything a turn produced is written with one call
//!    per connection.
//!
//! # Invariants
//!
//! - One reply to each request, in the order asked; nobody ever gets another's.
//! - Equal peer tables give byte-identical continua; their digest is shown, to be compared.
//! - What is bounded by configuration is bounded: over a limit a client is not read.
//! - An error on a write means unknown; only what was never sent is planned again.
//! - A C node is never sent a frame, type or command that it does not know.
//!
//! # Layers
//!
//! A module uses its own layer and lower ones only (`tests/tidy.rs` checks it):
//!
//! | layer | modules |
//! | --- | --- |
//! | 0 pure | [`token`], [`hash`], [`stamp`], [`ring`], [`proto`], [`ckf`], [`document`] |
//! | 1 machines | [`gossip`], [`dispatch`], [`affinity`], `relay` |
//! | 2 local | [`config`], [`store`] |
//! | 3 edges | [`net`], `gateway`, `admin`, `relay_server`, `relay_client`, [`telemetry`] |
//! | 4 binary | [`node`], [`cli`] |
//!
//! Read them in this order: [`token`], [`ring`], [`dispatch`], [`net`], [`node`].

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
#[cfg(feature = "relay")]
pub mod relay;
#[cfg(feature = "relay")]
pub mod relay_client;
#[cfg(feature = "relay")]
pub mod relay_server;
pub mod ring;
pub mod stamp;
pub mod store;
pub mod telemetry;
pub mod token;
