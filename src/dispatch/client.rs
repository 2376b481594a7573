//! One connection that asks: a Redis or memcache client, or a peer's incoming link.

use std::collections::VecDeque;

use super::blocking::Waits;
use super::multi::{Multi, Shapes};
use super::secure::IncomingSecurity;
use super::upstream::UpId;
use super::watch::Watch;
use crate::proto::dnode::{Ext, Header, HeaderDecoder};
use crate::proto::memcache::decode::McDecoder;
use crate::proto::outbuf::OutBuf;
use crate::proto::resp::decode::RequestDecoder;
use crate::ring::Consistency;

/// A connection that asks, by number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ClientId(pub u32);

/// What a connection that asks speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientKind {
    /// A client, in the node's client protocol.
    Client,
    /// Another node, in DNODE frames.
    Peer,
}

/// The decoder of the requests of one connection.
#[derive(Debug)]
pub(super) enum Decoder {
    Resp(RequestDecoder),
    Memcache(McDecoder),
}

/// What a client said about itself and chose for its connection.
#[derive(Debug, Default)]
pub(super) struct Session {
    pub(super) name: Vec<u8>,
    pub(super) lib_name: Vec<u8>,
    pub(super) lib_version: Vec<u8>,
    pub(super) read: Option<Consistency>,
    pub(super) write: Option<Consistency>,
}

/// The incoming half of a peer link.
#[derive(Debug, Default)]
pub(super) struct PeerIn {
    pub(super) headers: HeaderDecoder,
    pub(super) header: Option<Header>,
    /// The extension field of the frame that `header` is of.
    pub(super) ext: Ext,
    pub(super) security: IncomingSecurity,
}

/// One connection that asks.
#[derive(Debug)]
pub(super) struct Client {
    /// Unique in the process; what CLIENT ID answers.
    pub(super) number: u64,
    pub(super) decoder: Decoder,
    /// Present for peers only.
    pub(super) peer: Option<Box<PeerIn>>,
    /// Slots whose replies are owed, oldest first.
    pub(super) queue: VecDeque<u32>,
    pub(super) out: OutBuf,
    /// Bytes of replies that are parked until it is their turn.
    pub(super) parked_bytes: usize,
    pub(super) dirty: bool,
    /// True for a connection that speaks RESP3.
    pub(super) resp3: bool,
    /// True once the password was given, or when none is needed.
    pub(super) trusted: bool,
    /// Closed once everything owed is written.
    pub(super) closing: bool,
    /// A limit was hit: the shell must not read it.
    pub(super) paused: bool,
    /// The transaction between MULTI and EXEC.
    pub(super) multi: Option<Box<Multi>>,
    /// For a RESP3 client: the reply shapes of each transaction that is on its way.
    pub(super) exec_shapes: VecDeque<Shapes>,
    /// Not served further until the first replica of its write has answered.
    pub(super) held: bool,
    /// What it watches.
    pub(super) watch: Option<Box<Watch>>,
    /// What it waits for, while a command that may wait is served.
    pub(super) waits: Option<Waits>,
    /// The upstream whose output must drain first.
    pub(super) blocked_on: Option<UpId>,
    /// Allocated when a client says something about itself.
    pub(super) session: Option<Box<Session>>,
}

impl Client {
    pub(super) fn new(number: u64, kind: ClientKind, decoder: Decoder, trusted: bool) -> Client {
        Client {
            number,
            decoder,
            peer: match kind {
                ClientKind::Client => None,
                ClientKind::Peer => Some(Box::default()),
            },
            queue: VecDeque::new(),
            out: OutBuf::new(),
            parked_bytes: 0,
            dirty: false,
            resp3: false,
            trusted,
            closing: false,
            paused: false,
            multi: None,
            exec_shapes: VecDeque::new(),
            held: false,
            watch: None,
            waits: None,
            blocked_on: None,
            session: None,
        }
    }

    /// Bytes of replies held for it, in its output or parked.
    pub(super) fn owed_bytes(&self) -> usize {
        self.out.len() + self.parked_bytes
    }

    /// True while nothing but a key is waited for.
    pub(super) fn waits_for_key(&self) -> bool {
        matches!(self.waits, Some(Waits::Upstream(_) | Waits::Store(_)))
    }

    /// The client's notes about itself, made on first use.
    pub(super) fn session(&mut self) -> &mut Session {
        self.session.get_or_insert_default()
    }
}
