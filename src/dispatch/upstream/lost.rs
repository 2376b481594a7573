//! What was on its way over a connection that was lost.

use std::collections::VecDeque;

use super::Ticket;
use crate::proto::outbuf::OutBuf;

/// The requests on a connection that was lost, oldest first.
pub(in crate::dispatch) struct Lost {
    pub(super) tickets: VecDeque<Ticket>,
    /// What was not written.
    pub(super) pending: OutBuf,
    /// Where that begins in the bytes of the connection.
    pub(super) at: u64,
}

impl Iterator for Lost {
    /// One request; with its frame when no byte of it was written: then nobody has seen it.
    type Item = (Ticket, Option<Vec<u8>>);

    fn next(&mut self) -> Option<Self::Item> {
        let ticket = self.tickets.pop_front()?;
        if ticket.start < self.at {
            return Some((ticket, None));
        }
        let end = self.tickets.front().map_or(u64::MAX, |next| next.start);
        self.pending.advance((ticket.start - self.at) as usize);
        let len = self.pending.len().min((end - ticket.start) as usize);
        self.at = ticket.start + len as u64;
        Some((ticket, Some(self.pending.take_front(len))))
    }
}
