//! The writing side of each connection of a worker, and who wakes it.

use std::task::Waker;

use super::buffers::Share;
use super::stream::WriteHalf;
use super::worker::Setup;
use crate::dispatch::{ClientId, Conn};

/// A connection as the flush task sees it.
pub(super) struct Io {
    pub(super) write: WriteHalf,
    /// The socket took no more bytes; the connection's own task waits until it does.
    pub(super) blocked: bool,
    /// Wakes the connection's own task.
    pub(super) waker: Option<Waker>,
    /// When it last sent something, in milliseconds of the node's clock.
    pub(super) heard_ms: u64,
    /// Bytes of an unfinished request or reply.
    input: usize,
    /// Bytes the dispatcher holds for it.
    output: usize,
    /// The sum, in the memory of all buffers.
    pub(super) share: Share,
}

impl Io {
    pub(super) fn new(write: WriteHalf, setup: &Setup) -> Io {
        let heard_ms = setup.clock.now().mono_ms();
        let share = Share::new(&setup.buffers);
        Io { write, blocked: false, waker: None, heard_ms, input: 0, output: 0, share }
    }

    /// The dispatcher holds `bytes` for it.
    pub(super) fn note_output(&mut self, bytes: usize) {
        if self.output != bytes {
            self.output = bytes;
            self.share.set(self.input + bytes, self.waker.as_ref());
        }
    }

    /// `bytes` of an unfinished frame are kept for it.
    pub(super) fn note_input(&mut self, bytes: usize) {
        if self.input != bytes {
            self.input = bytes;
            self.share.set(bytes + self.output, self.waker.as_ref());
        }
    }
}

/// All connections of a worker. The dispatcher numbers each kind from zero and gives numbers out
/// again, so the numbers are places: an idle client costs no more than its own [`Io`].
#[derive(Default)]
pub(super) struct Ios {
    clients: Vec<Option<Io>>,
    upstreams: Vec<Option<Io>>,
}

impl Ios {
    pub(super) fn insert(&mut self, conn: Conn, io: Io) {
        let (places, at) = self.places(conn);
        if places.len() <= at {
            places.resize_with(at + 1, || None);
        }
        places[at] = Some(io);
    }

    pub(super) fn get(&self, conn: Conn) -> Option<&Io> {
        match conn {
            Conn::Client(id) => self.clients.get(id.0 as usize)?.as_ref(),
            Conn::Upstream(id) => self.upstreams.get(id.0 as usize)?.as_ref(),
        }
    }

    pub(super) fn get_mut(&mut self, conn: Conn) -> Option<&mut Io> {
        let (places, at) = self.places(conn);
        places.get_mut(at)?.as_mut()
    }

    pub(super) fn remove(&mut self, conn: Conn) -> Option<Io> {
        let (places, at) = self.places(conn);
        places.get_mut(at)?.take()
    }

    /// All there are, of both kinds.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Io> {
        self.clients.iter().chain(&self.upstreams).flatten()
    }

    /// Those that ask.
    pub(super) fn clients(&self) -> impl Iterator<Item = (ClientId, &Io)> {
        let numbered = self.clients.iter().zip(0..);
        numbered.filter_map(|(io, id)| Some((ClientId(id), io.as_ref()?)))
    }

    fn places(&mut self, conn: Conn) -> (&mut Vec<Option<Io>>, usize) {
        match conn {
            Conn::Client(id) => (&mut self.clients, id.0 as usize),
            Conn::Upstream(id) => (&mut self.upstreams, id.0 as usize),
        }
    }
}
