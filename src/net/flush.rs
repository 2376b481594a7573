//! Writing: each connection that got bytes is written once a turn.

use std::io::{self, IoSlice};
use std::rc::Rc;
use std::task::{Context, Poll};

use super::core::Core;
use super::io::Io;
use crate::dispatch::Conn;
use crate::proto::outbuf::SLICES_MAX;

impl Core {
    /// Runs after the tasks that are ready already, so that their output goes out together.
    pub(super) async fn flush_when_dirty(self: Rc<Core>) {
        loop {
            self.dirty.notified().await;
            loop {
                if self.is_broken() {
                    return;
                }
                let conn = self.enter().next_dirty();
                let Some(conn) = conn else { break };
                self.write_out(conn);
            }
            self.after_input();
        }
    }

    /// Writes as much of `conn`'s output as its socket takes.
    fn write_out(&self, conn: Conn) {
        let mut ios = self.ios.borrow_mut();
        let Some(io) = ios.get_mut(conn) else { return };
        if io.blocked {
            return io.note_output(self.look().held_bytes(conn));
        }
        match self.write_until_blocked(conn, io) {
            Ok(()) => {
                let finished = match conn {
                    Conn::Client(id) => self.look().is_finished(id),
                    Conn::Upstream(_) => false,
                };
                if !finished {
                    return;
                }
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => io.blocked = true,
            // The connection's own task cleans up: a client's, which may not be reading, meets the
            // error again; an upstream's reads what came before it first.
            Err(_) => io.blocked = matches!(conn, Conn::Client(_)),
        }
        if let Some(waker) = &io.waker {
            waker.wake_by_ref();
        }
    }

    fn write_until_blocked(&self, conn: Conn, io: &mut Io) -> io::Result<()> {
        let mut dispatcher = self.enter();
        let result = loop {
            let mut slices = [IoSlice::new(&[]); SLICES_MAX];
            let count = dispatcher.output(conn, &mut slices);
            if count == 0 {
                break Ok(());
            }
            match io.write.try_write(&slices[..count]) {
                Ok(written) => dispatcher.on_written(conn, written),
                Err(error) => break Err(error),
            }
        };
        io.note_output(dispatcher.held_bytes(conn));
        result
    }

    /// The part of a connection's own task that writes: goes on when the socket takes bytes
    /// again. Ready only with an error.
    pub(super) fn poll_write(self: &Rc<Core>, conn: Conn, cx: &mut Context<'_>) -> Poll<io::Error> {
        let mut ios = self.ios.borrow_mut();
        let Some(io) = ios.get_mut(conn) else {
            return Poll::Ready(io::ErrorKind::NotConnected.into());
        };
        match &io.waker {
            Some(waker) if waker.will_wake(cx.waker()) => {}
            _ => io.waker = Some(cx.waker().clone()),
        }
        if io.share.is_taken() {
            return Poll::Ready(io::ErrorKind::OutOfMemory.into());
        }
        if !io.blocked {
            return Poll::Pending;
        }
        loop {
            match io.write.poll_ready(cx) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Err(error)) => return Poll::Ready(error),
                Poll::Ready(Ok(())) => {}
            }
            match self.write_until_blocked(conn, io) {
                Ok(()) => {
                    io.blocked = false;
                    drop(ios);
                    self.after_input();
                    return Poll::Pending;
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Poll::Ready(error),
            }
        }
    }
}
