//! Reading: small frames pass through the worker's one read buffer, large ones gather in their
//! connection's own.

use std::future::Future;
use std::io;
use std::pin::pin;
use std::task::{Context, Poll};

use bytes::BytesMut;
use tokio::io::AsyncReadExt;

use super::core::Core;
use super::stream::ReadHalf;
use crate::dispatch::view::Now;

/// Bytes one read takes at most, but for the rest of a large frame.
pub(super) const READ_BYTES: usize = 64 * 1024;

/// The beginning of a frame up to this size moves through the read buffer once more.
pub(super) const KEPT_BYTES: usize = 8 * 1024;

/// After a read of so many bytes the others have their turn: one that sends without a pause must
/// not keep them waiting.
pub(super) const TURN_BYTES: usize = 16 * 1024;

/// Buffers for such beginnings that wait to be used again.
const SPARE_MAX: usize = 64;

impl Core {
    /// Reads once and offers `take` all there is: it removes what is whole. `rx` keeps the rest
    /// between two calls; of it at least `need` more bytes must come.
    pub(super) fn poll_read(
        &self,
        read: &mut ReadHalf,
        rx: &mut BytesMut,
        need: usize,
        cx: &mut Context<'_>,
        take: impl FnOnce(&mut BytesMut, Now),
    ) -> Poll<io::Result<usize>> {
        if rx.len() + need > KEPT_BYTES {
            return self.poll_read_large(read, rx, need, cx, take);
        }
        let mut scratch = self.scratch.borrow_mut();
        // A panic may have left something behind.
        scratch.clear();
        scratch.reserve(KEPT_BYTES + READ_BYTES);
        scratch.extend_from_slice(rx);
        let result = pin!(read.read_buf(&mut *scratch)).poll(cx);
        if let Poll::Ready(Ok(1..)) = result {
            rx.clear();
            take(&mut scratch, self.setup.clock.now());
            match scratch.is_empty() {
                true => self.give_back(rx),
                false => self.keep(rx, &scratch),
            }
        }
        result
    }

    fn poll_read_large(
        &self,
        read: &mut ReadHalf,
        rx: &mut BytesMut,
        need: usize,
        cx: &mut Context<'_>,
        take: impl FnOnce(&mut BytesMut, Now),
    ) -> Poll<io::Result<usize>> {
        // What a peer announces is not believed: the buffer at most doubles, so memory follows
        // the bytes that really came.
        let most = rx.len().max(READ_BYTES);
        rx.reserve(need.clamp(4096, most));
        let result = pin!(read.read_buf(rx)).poll(cx);
        if let Poll::Ready(Ok(1..)) = result {
            take(rx, self.setup.clock.now());
            if rx.is_empty() {
                self.give_back(rx);
            }
        }
        result
    }

    fn keep(&self, rx: &mut BytesMut, rest: &[u8]) {
        if rx.capacity() == 0
            && rest.len() <= KEPT_BYTES
            && let Some(spare) = self.kept.borrow_mut().pop()
        {
            *rx = spare;
        }
        rx.extend_from_slice(rest);
    }

    /// An idle connection has no buffer.
    pub(super) fn give_back(&self, rx: &mut BytesMut) {
        let mut buffer = std::mem::take(rx);
        buffer.clear();
        let mut kept = self.kept.borrow_mut();
        if (1..=KEPT_BYTES).contains(&buffer.capacity()) && kept.len() < SPARE_MAX {
            kept.push(buffer);
        }
    }
}
