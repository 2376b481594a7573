//! The task of one connection that asks.

use std::future::poll_fn;
use std::io;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::BytesMut;

use super::core::Core;
use super::io::Io;
use super::panics::catch;
use super::read::{READ_BYTES, TURN_BYTES};
use super::stream::{ReadHalf, Socket};
use crate::dispatch::{ClientId, ClientKind, Conn};

impl Core {
    /// Serves a new connection until it ends.
    pub(super) fn accept(self: &Rc<Core>, socket: Socket, kind: ClientKind) {
        let remote = socket.remote();
        let (mut read, write) = match socket.into_halves() {
            Ok(halves) => halves,
            Err(error) => {
                tracing::debug!(%error, "connection lost before it was served");
                self.connections.left(kind);
                return;
            }
        };
        let id = self.enter().add_client(kind);
        if kind == ClientKind::Peer {
            self.enter().set_origin(id, &remote);
            self.remotes.borrow_mut().insert(id, remote);
        }
        let io = Io::new(write, &self.setup);
        self.ios.borrow_mut().insert(Conn::Client(id), io);
        let core = Rc::clone(self);
        // Not in a future of its own: ten thousand idle clients hold as many of these.
        tokio::task::spawn_local(async move {
            // What was read and not taken: an unfinished request, or whole ones of a client that
            // is not to be read at the moment. An idle connection has none.
            let mut rx = BytesMut::new();
            let ended =
                poll_fn(|cx| catch(|| core.poll_serve((id, kind), &mut read, &mut rx, cx))).await;
            core.forget(id, kind, ended);
        });
    }

    /// A connection has ended; `None` when that was a panic.
    pub(super) fn forget(self: &Rc<Core>, id: ClientId, kind: ClientKind, ended: Option<()>) {
        if ended.is_none() {
            self.note_panic();
        }
        self.connections.left(kind);
        if self.is_broken() {
            return;
        }
        let now = self.setup.clock.now();
        self.enter().remove_client(id, now);
        self.ios.borrow_mut().remove(Conn::Client(id));
        self.remotes.borrow_mut().remove(&id);
        self.after_input();
    }

    /// Ends the connections of clients that sent nothing for `timeout_ms` and await nothing.
    pub(super) async fn close_idle(self: Rc<Core>, timeout_ms: u64) {
        let pause = Duration::from_millis((timeout_ms / 4).clamp(10, 10_000));
        loop {
            tokio::time::sleep(pause).await;
            let now_ms = self.setup.clock.now().mono_ms();
            let idle: Vec<ClientId> = {
                let (ios, dispatcher) = (self.ios.borrow(), self.look());
                let is_idle = |(id, io): &(ClientId, &Io)| {
                    dispatcher.is_idle(*id) && now_ms - io.heard_ms >= timeout_ms
                };
                ios.clients().filter(is_idle).map(|(id, _)| id).collect()
            };
            self.enter().note_idle(idle.len());
            idle.into_iter().for_each(|id| self.cut_off(id));
        }
    }

    /// Ends a client's connection: its task finds that there is none.
    pub(super) fn cut_off(&self, id: ClientId) {
        let io = self.ios.borrow_mut().remove(Conn::Client(id));
        io.and_then(|io| io.waker).into_iter().for_each(Waker::wake);
    }

    fn poll_serve(
        self: &Rc<Core>,
        (id, kind): (ClientId, ClientKind),
        read: &mut ReadHalf,
        rx: &mut BytesMut,
        cx: &mut Context<'_>,
    ) -> Poll<()> {
        if self.poll_write(Conn::Client(id), cx).is_ready() {
            return Poll::Ready(());
        }
        loop {
            if self.is_broken() || self.look().is_finished(id) {
                return Poll::Ready(());
            }
            if !self.look().wants_read(id) || !self.reads(kind) {
                return self.poll_hang_up(id, read, rx, cx);
            }
            if !rx.is_empty() && self.feed_again(id, rx) {
                continue;
            }
            match self.poll_input(id, read, rx, cx) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Ok(0)) => self.enter().on_client_eof(id),
                Poll::Ready(Ok(n)) => {
                    if !self.note_input(Conn::Client(id), rx.len()) {
                        return Poll::Ready(());
                    }
                    self.after_input();
                    if n >= TURN_BYTES {
                        cx.waker().wake_by_ref();
                        return Poll::Pending;
                    }
                }
                Poll::Ready(Err(_)) => return Poll::Ready(()),
            }
        }
    }

    /// Hears a client leave that waits for a key; ready when it may be forgotten at once. What it
    /// sends meanwhile is kept for later, up to a buffer full: behind that nobody hears it leave.
    fn poll_hang_up(
        self: &Rc<Core>,
        id: ClientId,
        read: &mut ReadHalf,
        rx: &mut BytesMut,
        cx: &mut Context<'_>,
    ) -> Poll<()> {
        while self.look().may_hang_up(id) && rx.len() < READ_BYTES {
            match self.poll_read(read, rx, 0, cx, |_, _| ()) {
                Poll::Ready(Ok(1..)) => {}
                Poll::Ready(Ok(0) | Err(_)) => {
                    let now = self.setup.clock.now();
                    let forgotten = self.enter().on_hang_up(id, now);
                    self.after_input();
                    if forgotten {
                        return Poll::Ready(());
                    }
                }
                Poll::Pending => break,
            }
        }
        Poll::Pending
    }

    /// Offers the bytes kept while the client was paused; false when none could be used.
    fn feed_again(self: &Rc<Core>, id: ClientId, rx: &mut BytesMut) -> bool {
        let before = rx.len();
        let now = self.setup.clock.now();
        self.enter().on_client_bytes(id, rx, now);
        self.after_input();
        let used = rx.len() != before;
        if rx.is_empty() {
            self.give_back(rx);
        }
        used
    }

    fn poll_input(
        &self,
        id: ClientId,
        read: &mut ReadHalf,
        rx: &mut BytesMut,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<usize>> {
        let need = if rx.is_empty() { 0 } else { self.look().bytes_needed(id) };
        self.poll_read(read, rx, need, cx, |bytes, now| {
            self.enter().on_client_bytes(id, bytes, now);
        })
    }
}
