//! The dispatcher: one value per worker that turns bytes of clients into bytes for datastores
//! and peers, and their replies back. No sockets, no clock, no tasks.
//!
//! # Life of a request
//!
//! 1. [`Dispatcher::on_client_bytes`] decodes it in place (`requests.rs`; links of other nodes:
//!    `peer_requests.rs`).
//! 2. The key's token gives one owner a rack; [`plan`] turns owners, level and connections into
//!    legs.
//! 3. `send.rs` reserves a [`slot`], appends the bytes to each leg's output and pushes a ticket
//!    on its FIFO.
//! 4. [`Dispatcher::on_upstream_bytes`] finds the end of each reply, pops the ticket and feeds
//!    the slot (`replies.rs`): one answer decides, or a [`gather`] votes (`differing.rs` where
//!    replicas differ on some of several keys), or a part of a multi-key command (`fragment.rs`)
//!    is filled in.
//! 5. The reply is appended to the client's output if it is its turn, else parked.
//!
//! Commands that need many nodes, or one after another, are [`task`]s: a value in the slot that is
//! fed each answer (`ringwide.rs`, `allnodes.rs`, `effects.rs`). A transaction is queued
//! (`multi.rs`) and travels as one request (`block.rs`). What watches keys or may wait for one
//! does so apart from the shared connections (`watch.rs`, `blocking.rs`, `waiting.rs`,
//! `dedicated.rs`, `chase.rs`). A node of the reference gets a command it does not know in another
//! form, or the command is refused before anybody runs it (`send.rs`).
//!
//! # Invariants
//!
//! - Replies leave in the order requests came, whatever order upstreams answer in.
//! - Every ticket is popped exactly once: by its reply, or when its connection is lost. A ticket
//!   whose deadline passed stays as a tombstone.
//! - A reply that nobody awaits drops its connection; it never reaches a client.
//! - Memory is bounded by [`view::Settings`]: over a limit the client is not read.

pub mod explain;
pub mod failure;
pub mod gather;
pub mod plan;
pub mod view;

mod allnodes;
mod backfill;
mod block;
mod blocking;
mod chase;
mod client;
mod config_get;
mod counters;
mod dedicated;
mod differing;
mod effects;
mod embedded;
mod evalsha;
mod fragment;
mod info;
mod libraries;
mod links;
mod local;
mod memcache;
mod memcache_ring;
mod multi;
mod orders;
mod output;
mod peer_requests;
mod primary;
mod replan;
mod replicas;
mod replies;
mod requests;
mod ringwide;
mod roll;
mod route;
mod scan;
#[cfg(test)]
mod scripted;
pub mod scripts;
mod secure;
mod send;
mod sessions;
mod slot;
mod stamps;
mod task;
mod throttle;
mod timers;
mod turn;
mod unblock;
mod upstream;
mod waiting;
mod watch;

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use slab::Slab;

pub use client::{ClientId, ClientKind};
pub use counters::{Counters, LATENCY_BUCKETS, Latency};
pub use embedded::{Awaited, Embedded, KeyLine, StoreReport, Watched};
pub use orders::{Ends, Order, Victims};
pub use roll::{Roll, RollCall};
pub use secure::{LinkRefused, LinkRng, Security};
pub use upstream::{Target, UpId, UpstreamError};

use crate::proto::args::Span;
use crate::proto::dnode::Header;
use crate::proto::memcache::decode::McDecoder;
use crate::proto::outbuf::OutBuf;
use crate::proto::resp::decode::RequestDecoder;
use crate::ring::PeerId;
use crate::stamp::StampClock;
use client::{Client, Decoder};
use effects::StoreVersion;
use gather::Gather;
use links::Links;
use plan::Plan;
use scripts::Scripts;
use slot::Slot;
use upstream::Upstream;
use view::{Now, Protocol, View};

/// A connection of either side, for the shell's list of those with bytes to write.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Conn {
    /// Somebody who asks.
    Client(ClientId),
    /// Somebody who is asked.
    Upstream(UpId),
}

/// What the shell must do or pass on.
#[derive(Debug)]
pub enum Event {
    /// Open a connection and keep it open, with growing delays.
    Connect {
        /// Its number; report state and bytes under it.
        up: UpId,
        /// What it leads to.
        target: Target,
        /// Host and port of a peer; the datastore's address is the shell's own knowledge.
        address: Option<(String, u16)>,
        /// Try once, and do not reopen it: report its end, and a failure, as lost.
        once: bool,
    },
    /// Send no more on it: the other end takes that for a client that leaves. What it still says is
    /// heard, and its end reported.
    HangUp {
        /// Its number.
        up: UpId,
    },
    /// Close it and do not reopen.
    Disconnect {
        /// Its number.
        up: UpId,
    },
    /// A control or gossip frame came from another node.
    Control {
        /// The connection it came on.
        from: ClientId,
        /// DNODE type.
        kind: u8,
        /// The payload.
        body: Bytes,
    },
    /// A link another node opened is being closed.
    LinkRefused {
        /// The link.
        from: ClientId,
        /// Why.
        why: LinkRefused,
    },
    /// End a client's connection.
    Kill {
        /// The client.
        client: ClientId,
    },
    /// All workers are asked; [`Dispatcher::on_roll`] brings what they say.
    RollCall(RollCall),
    /// A peer answered as only torc does (decision E1).
    TorcPeer {
        /// The peer.
        peer: PeerId,
    },
}

/// See the module's page.
pub struct Dispatcher {
    view: Arc<View>,
    /// Snapshots so far, this one counted.
    views: u64,
    /// `None` while no link is encrypted.
    security: Option<Security>,
    worker: u64,
    /// There are other workers.
    siblings: bool,
    embedded: Option<Arc<dyn Embedded>>,
    clients: Slab<Client>,
    clients_made: u64,
    ups: Slab<Upstream>,
    /// Upstreams over a limit.
    full_ups: usize,
    /// Dedicated connections that nobody uses.
    idle_ups: Vec<UpId>,
    /// Who waits for a key of the embedded store.
    line: waiting::Line,
    /// Effects that are to be sent again.
    chases: Vec<chase::Due>,
    /// Waits that the datastore is to end.
    unblocks: Vec<unblock::Due>,
    links: Links,
    /// Links that were connected and cannot be encrypted.
    unusable: Vec<UpId>,
    slots: Slab<Slot>,
    next_generation: u32,
    /// Reads that were sent again and may still wait.
    moved: Vec<timers::Moved>,
    dirty: Vec<Conn>,
    resumable: Vec<ClientId>,
    events: VecDeque<Event>,
    counters: Counters,
    spans: Vec<Span>,
    plan: Plan,
    letter: fragment::Letter,
    executed: OutBuf,
    inline: Vec<u8>,
    group_of_set: HashMap<fragment::GroupKey, u32, std::hash::BuildHasherDefault<fnv::FnvHasher>>,
    pool: output::Pool,
    spare_gathers: Vec<Gather>,
    router: route::Router,
    /// Values of other datacenters on their way into this one.
    backfills: backfill::UnderWay,
    scripts: Arc<Scripts>,
    missing_scripts: evalsha::Missing,
    libraries: libraries::Libraries,
    clock: Arc<StampClock>,
    store_version: StoreVersion,
}

impl Dispatcher {
    /// A dispatcher for worker number `worker`. With `embedded` there is no datastore connection.
    pub fn new(worker: u64, view: Arc<View>, embedded: Option<Arc<dyn Embedded>>) -> Dispatcher {
        let mut dispatcher = Dispatcher {
            view: Arc::clone(&view),
            views: 0,
            security: None,
            worker,
            siblings: false,
            embedded,
            clients: Slab::new(),
            clients_made: 0,
            ups: Slab::new(),
            full_ups: 0,
            idle_ups: Vec::new(),
            line: waiting::Line::new(),
            chases: Vec::new(),
            unblocks: Vec::new(),
            links: Links::default(),
            unusable: Vec::new(),
            slots: Slab::new(),
            next_generation: 0,
            moved: Vec::new(),
            dirty: Vec::new(),
            resumable: Vec::new(),
            events: VecDeque::new(),
            counters: Counters::default(),
            spans: Vec::new(),
            plan: Plan::default(),
            letter: fragment::Letter::default(),
            executed: OutBuf::new(),
            inline: Vec::new(),
            group_of_set: HashMap::default(),
            pool: output::Pool::default(),
            spare_gathers: Vec::new(),
            router: route::Router::default(),
            backfills: backfill::UnderWay::default(),
            scripts: Arc::default(),
            missing_scripts: evalsha::Missing::default(),
            libraries: libraries::Libraries::default(),
            clock: Arc::default(),
            store_version: StoreVersion::default(),
        };
        dispatcher.open_store();
        dispatcher.set_view(view);
        dispatcher
    }

    /// A connection that asks was accepted.
    pub fn add_client(&mut self, kind: ClientKind) -> ClientId {
        self.clients_made += 1;
        let number = (self.worker << 40) + self.clients_made;
        let decoder = match self.view.settings.protocol {
            Protocol::Redis => Decoder::Resp(RequestDecoder::default()),
            Protocol::Memcache => Decoder::Memcache(McDecoder::default()),
        };
        let trusted = kind == ClientKind::Peer || self.view.settings.client_password.is_none();
        match kind {
            ClientKind::Client => self.counters.clients += 1,
            ClientKind::Peer => self.counters.peer_links_in += 1,
        }
        ClientId(self.clients.insert(Client::new(number, kind, decoder, trusted)) as u32)
    }

    /// A connection that asks is gone. What it asked is still awaited, for order, and dropped.
    pub fn remove_client(&mut self, id: ClientId, now: Now) {
        let Some(mut client) = self.clients.try_remove(id.0 as usize) else { return };
        match client.peer {
            None => self.counters.clients -= 1,
            Some(_) => self.counters.peer_links_in -= 1,
        }
        for slot in client.queue.drain(..) {
            self.abandon(slot);
        }
        if let Some(waits) = client.waits {
            self.cancel_wait(waits, now);
        }
        if let Some(watch) = client.watch {
            self.drop_watch(*watch);
        }
        client.out.clear();
        if let Some(spare) = client.out.reclaim() {
            self.recycle(spare);
        }
    }

    /// The client sends no more; it is closed once everything owed is written.
    pub fn on_client_eof(&mut self, id: ClientId) {
        if let Some(client) = self.clients.get_mut(id.0 as usize) {
            client.closing = true;
        }
    }

    /// True while the shell may read the client.
    pub fn wants_read(&self, id: ClientId) -> bool {
        self.clients.get(id.0 as usize).is_some_and(|c| !c.paused && !c.closing)
    }

    /// True when nothing is owed to a client that is to be closed.
    pub fn is_finished(&self, id: ClientId) -> bool {
        self.clients
            .get(id.0 as usize)
            .is_none_or(|c| c.closing && c.queue.is_empty() && c.out.is_empty())
    }

    /// How many more bytes a client's unfinished request needs at least.
    pub fn bytes_needed(&self, id: ClientId) -> usize {
        let Some(client) = self.clients.get(id.0 as usize) else { return 0 };
        let header = client.peer.as_ref().and_then(|p| p.header);
        if let Some(header) = header.filter(Header::plen_binds) {
            return header.plen as usize;
        }
        match Some(&client.decoder) {
            Some(Decoder::Resp(decoder)) => decoder.need(),
            Some(Decoder::Memcache(decoder)) => decoder.need(),
            None => 0,
        }
    }

    /// Clients that may be read again; the shell hands in what it still holds of them.
    pub fn next_resumable(&mut self) -> Option<ClientId> {
        self.resumable.pop()
    }

    /// What the shell must do next.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// Figures since the start.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// The snapshot in use.
    pub fn view(&self) -> &Arc<View> {
        &self.view
    }

    /// Requests in flight.
    pub fn in_flight(&self) -> usize {
        self.slots.len()
    }
}

/// One whole request: in the receive buffer when small, cut out of it when large.
#[derive(Debug)]
enum Frame<'a> {
    Small(&'a [u8]),
    Large(Bytes),
}

impl Frame<'_> {
    fn as_slice(&self) -> &[u8] {
        match self {
            Frame::Small(bytes) => bytes,
            Frame::Large(bytes) => bytes,
        }
    }

    fn append_to(&self, out: &mut OutBuf) {
        match self {
            Frame::Small(bytes) => out.put(bytes),
            Frame::Large(bytes) => out.put_shared(bytes.clone()),
        }
    }
}

/// Cuts `len` bytes at `pos` out of `buf` when they are worth sharing; `pos` becomes 0 then.
fn cut(buf: &mut BytesMut, pos: &mut usize, len: usize) -> Bytes {
    use bytes::Buf;
    buf.advance(*pos);
    *pos = 0;
    buf.split_to(len).freeze()
}
