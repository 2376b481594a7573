//! What waits to be written: by connection, with recycled memory, and who waits until it is less.

use std::io::IoSlice;

use super::client::{Client, ClientId};
use super::upstream::{UpId, Upstream};
use super::{Conn, Dispatcher};
use crate::proto::outbuf::OutBuf;

/// Recycled buffers kept at most.
pub(super) const POOL_BUFFERS_MAX: usize = 256;

/// The largest buffer that is kept.
const POOL_BUFFER_BYTES_MAX: usize = 1 << 20;

/// Memory in all of them at most.
const POOL_BYTES_MAX: usize = 16 << 20;

/// Buffers that are not in use.
#[derive(Debug, Default)]
pub(super) struct Pool {
    buffers: Vec<Vec<u8>>,
    bytes: usize,
}

impl Pool {
    /// An empty buffer with memory, if there is one.
    fn take(&mut self) -> Option<Vec<u8>> {
        let buffer = self.buffers.pop()?;
        self.bytes -= buffer.capacity();
        Some(buffer)
    }

    fn put(&mut self, mut buffer: Vec<u8>) {
        let bytes = buffer.capacity();
        let fits = (1..=POOL_BUFFER_BYTES_MAX).contains(&bytes)
            && self.bytes + bytes <= POOL_BYTES_MAX
            && self.buffers.len() < POOL_BUFFERS_MAX;
        if fits {
            buffer.clear();
            self.bytes += bytes;
            self.buffers.push(buffer);
        }
    }
}

impl Dispatcher {
    /// Takes a connection that has bytes to write, once each time it gets some.
    pub fn next_dirty(&mut self) -> Option<Conn> {
        let conn = self.dirty.pop()?;
        match conn {
            Conn::Client(id) => {
                if let Some(client) = self.clients.get_mut(id.0 as usize) {
                    client.dirty = false;
                }
            }
            Conn::Upstream(id) => {
                if let Some(up) = self.ups.get_mut(id.0 as usize) {
                    up.dirty = false;
                }
            }
        }
        Some(conn)
    }

    /// True when some connection has bytes to write.
    pub fn has_dirty(&self) -> bool {
        !self.dirty.is_empty()
    }

    /// Fills `slices` with the bytes to write on `conn`; returns how many slices were filled.
    pub fn output<'a>(&'a self, conn: Conn, slices: &mut [IoSlice<'a>]) -> usize {
        let len = self.output_len(conn);
        self.out_of(conn).map_or(0, |out| out.slices_up_to(len, slices))
    }

    /// Bytes that may be written on `conn` now.
    pub fn output_len(&self, conn: Conn) -> usize {
        match conn {
            Conn::Client(id) => self.clients.get(id.0 as usize).map_or(0, |c| c.out.len()),
            Conn::Upstream(id) => self.ups.get(id.0 as usize).map_or(0, Upstream::writable),
        }
    }

    /// Bytes held for `conn`: its output, and replies that are parked until it is their turn.
    pub fn held_bytes(&self, conn: Conn) -> usize {
        match conn {
            Conn::Client(id) => self.clients.get(id.0 as usize).map_or(0, Client::owed_bytes),
            Conn::Upstream(id) => self.ups.get(id.0 as usize).map_or(0, |up| up.out.len()),
        }
    }

    /// True for a client that is owed nothing.
    pub fn is_idle(&self, id: ClientId) -> bool {
        let idle = |c: &Client| c.peer.is_none() && c.queue.is_empty() && c.out.is_empty();
        self.clients.get(id.0 as usize).is_some_and(idle)
    }

    /// `n` bytes of `conn`'s output were written.
    pub fn on_written(&mut self, conn: Conn, n: usize) {
        let spare = match conn {
            Conn::Client(id) => {
                let Some(client) = self.clients.get_mut(id.0 as usize) else { return };
                client.out.advance(n);
                client.out.reclaim()
            }
            Conn::Upstream(id) => {
                let Some(up) = self.ups.get_mut(id.0 as usize) else { return };
                up.on_written(n);
                up.out.reclaim()
            }
        };
        if let Some(spare) = spare {
            self.recycle(spare);
        }
        match conn {
            Conn::Client(id) => self.unpause(id.0),
            Conn::Upstream(id) => self.release_waiters(id),
        }
    }

    pub(super) fn out_of(&self, conn: Conn) -> Option<&OutBuf> {
        match conn {
            Conn::Client(id) => self.clients.get(id.0 as usize).map(|c| &c.out),
            Conn::Upstream(id) => self.ups.get(id.0 as usize).map(|u| &u.out),
        }
    }

    /// An empty buffer, with memory if there is one to spare.
    pub(super) fn spare(&mut self) -> Vec<u8> {
        self.pool.take().unwrap_or_default()
    }

    pub(super) fn recycle(&mut self, buffer: Vec<u8>) {
        self.pool.put(buffer);
    }

    /// Marks a client's output dirty and makes sure it has memory.
    pub(super) fn touch_client(&mut self, key: u32) {
        let client = &mut self.clients[key as usize];
        if client.out.wants_memory()
            && let Some(spare) = self.pool.take()
        {
            client.out.lend(spare);
        }
        if !client.dirty {
            client.dirty = true;
            self.dirty.push(Conn::Client(ClientId(key)));
        }
    }

    pub(super) fn touch_upstream(&mut self, id: UpId) {
        let up = &mut self.ups[id.0 as usize];
        if up.out.wants_memory()
            && let Some(spare) = self.pool.take()
        {
            up.out.lend(spare);
        }
        if !up.dirty {
            up.dirty = true;
            self.dirty.push(Conn::Upstream(id));
        }
    }

    /// Lets a paused client be read again when its queues are half empty.
    pub(super) fn unpause(&mut self, key: u32) {
        let settings = &self.view.settings;
        let Some(client) = self.clients.get_mut(key as usize) else { return };
        if client.paused
            && !client.held
            && client.blocked_on.is_none()
            && client.queue.len() <= settings.client_in_flight_max / 2
            && client.owed_bytes() <= settings.client_output_max / 2
        {
            client.paused = false;
            self.resumable.push(ClientId(key));
        }
    }

    /// Lets the clients that waited for an upstream go on when it has room again.
    pub(super) fn release_waiters(&mut self, id: UpId) {
        let settings = &self.view.settings;
        let Some(up) = self.ups.get_mut(id.0 as usize).filter(|up| up.full) else { return };
        let busy = up.out.len() > settings.upstream_output_max / 2
            || up.in_flight() > settings.upstream_in_flight_max / 2;
        if up.up && !up.retired && busy {
            return;
        }
        up.full = false;
        self.full_ups -= 1;
        for key in std::mem::take(&mut up.waiters) {
            if let Some(client) = self.clients.get_mut(key as usize) {
                client.blocked_on = None;
            }
            self.unpause(key);
        }
    }
}
