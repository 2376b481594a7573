//! One connection to a datastore or a peer, without the socket: an output buffer and the FIFO
//! of tickets whose replies are awaited.
//!
//! Replies come in the order requests were sent, so a reply belongs to the oldest ticket. A
//! ticket whose deadline passed stays in the FIFO as a tombstone, so that order survives; its
//! late reply is dropped. DNODE ids count from 1 on each connection (decision D11), so the id a
//! reply must carry follows from the ticket's place and is not stored.

mod lost;

use std::collections::VecDeque;

use lost::Lost;

use super::Frame;
use super::dedicated::Lease;
use super::secure::{Head, OutgoingCipher};
use super::throttle::Throttle;
use super::turn::Turn;
use super::view::Protocol;
use crate::proto::dnode::{Ext, Header, HeaderDecoder, HeaderLimits, MsgType};
use crate::proto::memcache::reply::{McReplyLimits, McReplyScanner};
use crate::proto::outbuf::OutBuf;
use crate::proto::resp::reply::{ReplyLimits, ReplyScanner};
use crate::ring::PeerId;

/// A connection to something this node asks, by number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct UpId(pub u32);

/// What an upstream leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// The node's own datastore.
    Store,
    /// A peer, over DNODE.
    Peer(PeerId),
}

/// Nobody waits for the reply of this ticket.
pub(super) const NOBODY: u32 = u32::MAX;

/// The deadline of this ticket passed: whoever waited for its reply has been told.
pub(super) const TOO_LATE: u32 = u32::MAX - 1;

/// The reply of this ticket tells the datastore's version.
pub(super) const STORE_VERSION: u32 = u32::MAX - 2;

/// The reply of this ticket tells how the datastore calls the connection whose number is in the
/// place of the generation.
pub(super) const STORE_CLIENT: u32 = u32::MAX - 3;

/// The same for whether the datastore ended the wait on that connection.
pub(super) const STORE_UNBLOCK: u32 = u32::MAX - 4;

/// One awaited reply.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ticket {
    /// Milliseconds on the monotonic clock.
    pub(super) deadline_ms: u64,
    /// The slot that asked, or [`NOBODY`] or [`TOO_LATE`].
    pub(super) slot: u32,
    /// Generation of the slot; another one means the slot was freed meanwhile.
    pub(super) generation: u32,
    /// Voting group, for quorum requests.
    pub(super) dc: u16,
    /// Replies to drop before the one that counts (a transaction's `+OK` and `+QUEUED`).
    pub(super) skip: u16,
    /// True for the own rack's replica.
    pub(super) own: bool,
    /// True for a replica whose store may lack data.
    pub(super) joining: bool,
    /// What the reply means to a slot that one answer decides.
    pub(super) weight: Weight,
    /// Where its request begins in the bytes of the connection; set when it is queued.
    pub(super) start: u64,
}

/// What one reply means to a slot that one answer decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Weight {
    /// It is the answer, and nobody else was sent the request.
    Only,
    /// It is the answer; the others' are dropped.
    First,
    /// It is dropped, unless the request of the one that was to answer was never sent.
    Spare,
}

impl Ticket {
    /// The ticket of a request that `slot` waits for.
    pub(super) fn of(slot: u32, generation: u32) -> Ticket {
        Ticket {
            deadline_ms: 0,
            slot,
            generation,
            dc: 0,
            skip: 0,
            own: false,
            joining: false,
            weight: Weight::First,
            start: 0,
        }
    }
}

/// Why an upstream's bytes cannot be understood; the connection must be closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UpstreamError {
    /// A reply came that nobody asked for: it must never reach a client.
    #[error("surplus reply")]
    Surplus,
    /// The bytes are no reply of the datastore's protocol.
    #[error("unreadable reply")]
    Unreadable,
    /// The bytes are no DNODE frame.
    #[error("unreadable frame")]
    Frame,
    /// An answer came in plaintext on an encrypted link, or the other way round.
    #[error("an answer that is encrypted otherwise than its request")]
    Plain,
    /// An answer could not be deciphered.
    #[error("an answer that cannot be deciphered: do both nodes use the same mbuf_size?")]
    Sealed,
}

/// The place of one reply in the receive buffer.
#[derive(Clone, Copy, Debug)]
pub(super) struct ReplyFrame {
    /// Bytes of the DNODE header before the body; 0 for datastores.
    pub(super) header: usize,
    /// Bytes of the body.
    pub(super) body: usize,
    /// The id a peer put on it.
    pub(super) id: Option<u64>,
    /// The DNODE version a peer put on it; 2 proves a torc node (decision E1).
    pub(super) version: u8,
    /// What a torc node put into its data field.
    pub(super) ext: Ext,
}

/// Where a peer's answer stands, as far as it is known.
struct Body {
    at: usize,
    len: Option<usize>,
}

/// The resumable end-finder of the datastore protocol in use.
#[derive(Debug)]
enum Scanner {
    Resp(ReplyScanner),
    Memcache(McReplyScanner),
}

impl Scanner {
    fn new(protocol: Protocol) -> Scanner {
        match protocol {
            Protocol::Redis => Scanner::Resp(ReplyScanner::default()),
            Protocol::Memcache => Scanner::Memcache(McReplyScanner::default()),
        }
    }

    fn scan(&mut self, buf: &[u8], limits: &ReplyLimits) -> Result<Option<usize>, UpstreamError> {
        let memcache = || McReplyLimits {
            value_bytes_max: limits.bulk_bytes_max,
            reply_bytes_max: limits.reply_bytes_max,
            ..McReplyLimits::default()
        };
        match self {
            Scanner::Resp(s) => s.scan(buf, limits).ok(),
            Scanner::Memcache(s) => s.scan(buf, &memcache()).ok(),
        }
        .ok_or(UpstreamError::Unreadable)
    }
}

/// One connection to a datastore or peer.
#[derive(Debug)]
pub(super) struct Upstream {
    pub(super) target: Target,
    pub(super) up: bool,
    pub(super) same_dc: bool,
    /// The same rack of the same datacenter.
    pub(super) same_rack: bool,
    pub(super) is_torc: bool,
    /// No snapshot names it any more: it closes once its replies are here.
    pub(super) retired: bool,
    pub(super) out: OutBuf,
    pub(super) dirty: bool,
    /// True from the moment a limit was hit until half of it is free again.
    pub(super) full: bool,
    /// Clients that wait until this output drains.
    pub(super) waiters: Vec<u32>,
    pub(super) last_heard_ms: u64,
    /// When the last heartbeat was sent.
    pub(super) probed_ms: u64,
    /// When the oldest ticket began to wait, for the stall rule.
    pub(super) waiting_since_ms: u64,
    /// Present for a connection that serves one client at a time.
    pub(super) lease: Option<Box<Lease>>,
    /// Bytes of this connection that were written.
    written: u64,
    fifo: VecDeque<Ticket>,
    /// Tickets at the front whose deadline passed already.
    expired: usize,
    next_id: u64,
    protocol: Protocol,
    limits: ReplyLimits,
    headers: HeaderDecoder,
    header: Option<Header>,
    /// The extension field of the frame that `header` is of.
    ext: Ext,
    scanner: Scanner,
    /// On encrypted links.
    pub(super) cipher: Option<Box<OutgoingCipher>>,
    /// To other datacenters.
    pub(super) throttle: Option<Box<Throttle>>,
    /// Whether it waits for other connections to the same node.
    pub(super) turn: Turn,
}

impl Upstream {
    pub(super) fn new(
        target: Target,
        same_dc: bool,
        protocol: Protocol,
        limits: ReplyLimits,
    ) -> Upstream {
        Upstream {
            target,
            up: false,
            same_dc,
            same_rack: false,
            is_torc: false,
            retired: false,
            out: OutBuf::new(),
            dirty: false,
            full: false,
            waiters: Vec::new(),
            last_heard_ms: 0,
            probed_ms: 0,
            waiting_since_ms: 0,
            lease: None,
            written: 0,
            fifo: VecDeque::new(),
            expired: 0,
            next_id: 1,
            protocol,
            limits,
            headers: HeaderDecoder::default(),
            header: None,
            ext: Ext::default(),
            scanner: Scanner::new(protocol),
            cipher: None,
            throttle: None,
            turn: Turn::default(),
        }
    }

    /// Starts over on a fresh connection.
    pub(super) fn reset(&mut self) {
        debug_assert!(self.fifo.is_empty());
        self.out.clear();
        self.written = 0;
        self.expired = 0;
        self.next_id = 1;
        self.headers = HeaderDecoder::default();
        self.header = None;
        self.scanner = Scanner::new(self.protocol);
        self.turn = Turn::default();
        if let Some(throttle) = &mut self.throttle {
            throttle.reset();
        }
    }

    /// Queues the ticket of the request that is appended to the output next, and returns the
    /// DNODE id that must carry.
    pub(super) fn push(&mut self, mut ticket: Ticket, now_ms: u64) -> u64 {
        ticket.start = self.written + self.out.len() as u64;
        if let Some(throttle) = &mut self.throttle {
            throttle.admit(ticket.start, now_ms);
        }
        if self.fifo.is_empty() {
            self.waiting_since_ms = now_ms;
        }
        self.fifo.push_back(ticket);
        let id = self.next_id;
        self.next_id += 1;
        id
    }

    /// Appends the frame of one request to a peer. `ext` is for torc nodes only.
    pub(super) fn put_request(
        &mut self,
        id: u64,
        kind: MsgType,
        version: u8,
        ext: Ext,
        body: &Frame<'_>,
    ) {
        let head = Head { id, kind, version, same_dc: self.same_dc, ext };
        match &mut self.cipher {
            None => {
                head.put_plain(&mut self.out, body.as_slice().len());
                body.append_to(&mut self.out);
            }
            Some(cipher) => cipher.put(&mut self.out, head, body.as_slice()),
        }
    }

    /// Bytes of the output that may be written now.
    pub(super) fn writable(&self) -> usize {
        if self.turn.waits() {
            return 0;
        }
        let open_to = self.throttle.as_ref().and_then(|throttle| throttle.open_to());
        let len = self.out.len();
        open_to.map_or(len, |at| len.min(at.saturating_sub(self.written) as usize))
    }

    /// Lets frames go for which there is a token now; true when there are some.
    pub(super) fn release(&mut self, now_ms: u64) -> bool {
        let fifo = &self.fifo;
        let start_of = |nth: usize| Some(fifo.get(fifo.len().checked_sub(nth)?)?.start);
        self.throttle.as_mut().is_some_and(|throttle| throttle.release(now_ms, start_of))
    }

    /// Requests in flight, tombstones included.
    pub(super) fn in_flight(&self) -> usize {
        self.fifo.len()
    }

    /// The id of the next request.
    pub(super) fn next_id(&self) -> u64 {
        self.next_id
    }

    /// The id of the oldest request whose answer is still awaited; the next one without any.
    pub(super) fn oldest_awaited(&self) -> u64 {
        self.next_id - (self.fifo.len() - self.expired) as u64
    }

    /// Bytes the unfinished reply needs at least.
    pub(super) fn need(&self) -> usize {
        if let Some(header) = self.header.filter(Header::encrypted) {
            return header.plen as usize;
        }
        match &self.scanner {
            Scanner::Resp(s) => s.need(),
            Scanner::Memcache(s) => s.need(),
        }
    }

    /// Looks for the next whole reply at the beginning of `buf`; an encrypted one is deciphered
    /// where it stands.
    pub(super) fn next_reply(
        &mut self,
        buf: &mut [u8],
    ) -> Result<Option<ReplyFrame>, UpstreamError> {
        match self.target {
            Target::Store => {
                if buf.is_empty() {
                    return Ok(None);
                }
                if self.fifo.is_empty() {
                    return Err(UpstreamError::Surplus);
                }
                let body = self.scanner.scan(buf, &self.limits)?;
                let ext = Ext::default();
                Ok(body.map(|body| ReplyFrame { header: 0, body, id: None, version: 0, ext }))
            }
            Target::Peer(_) => self.next_framed_reply(buf),
        }
    }

    fn next_framed_reply(&mut self, buf: &mut [u8]) -> Result<Option<ReplyFrame>, UpstreamError> {
        let header = match self.header {
            Some(header) => header,
            None => match self
                .headers
                .decode(buf, &HeaderLimits::default())
                .map_err(|_| UpstreamError::Frame)?
            {
                Some(header) => {
                    self.ext = Ext::parse(header.data.of(buf));
                    *self.header.insert(header)
                }
                None => return Ok(None),
            },
        };
        if header.msg_type() != MsgType::Res {
            return Err(UpstreamError::Frame);
        }
        let body = match (&self.cipher, header.encrypted()) {
            (None, false) => {
                Body { at: header.len, len: self.scanner.scan(&buf[header.len..], &self.limits)? }
            }
            (Some(_), true) => self.open_reply(&header, buf)?,
            (None, true) | (Some(_), false) => return Err(UpstreamError::Plain),
        };
        let Some(len) = body.len else { return Ok(None) };
        self.header = None;
        Ok(Some(ReplyFrame {
            header: body.at,
            body: len,
            id: Some(header.id),
            version: header.version,
            ext: self.ext,
        }))
    }

    /// Deciphers a whole encrypted answer, which must be one reply exactly.
    fn open_reply(&mut self, header: &Header, buf: &mut [u8]) -> Result<Body, UpstreamError> {
        let end = header.len + header.plen as usize;
        let (Some(cipher), true) = (&self.cipher, buf.len() >= end) else {
            return Ok(Body { at: header.len, len: None });
        };
        let plain = cipher.open(&mut buf[header.len..end]).map_err(|_| UpstreamError::Sealed)?;
        match self.scanner.scan(&buf[end - plain..end], &self.limits)? {
            Some(len) if len == plain => Ok(Body { at: end - plain, len: Some(len) }),
            Some(_) | None => Err(UpstreamError::Unreadable),
        }
    }

    /// After a `None` of [`Upstream::next_reply`]: bytes at the front that belong to no frame.
    /// The caller drops them, so that noise needs no memory.
    pub(super) fn take_junk(&mut self) -> usize {
        match (self.target, &self.header) {
            (Target::Peer(_), None) => self.headers.take_junk(),
            _ => 0,
        }
    }

    /// The ticket a reply with `id` belongs to. Tickets before it are lost and handed to `lost`;
    /// a reply older than every ticket belongs to nobody and is `None` (dnode.md section 4).
    pub(super) fn pop(
        &mut self,
        id: Option<u64>,
        now_ms: u64,
        mut lost: impl FnMut(Ticket),
    ) -> Option<Ticket> {
        self.waiting_since_ms = now_ms;
        if let Some(id) = id {
            let mut head = self.next_id - self.fifo.len() as u64;
            if id < head || id >= self.next_id {
                return None;
            }
            while head < id {
                lost(self.pop_front()?);
                head += 1;
            }
        }
        let front = self.fifo.front_mut()?;
        if front.skip > 0 {
            front.skip -= 1;
            return None;
        }
        self.pop_front()
    }

    /// `n` bytes of the output were written.
    pub(super) fn on_written(&mut self, n: usize) {
        self.out.advance(n);
        self.written += n as u64;
    }

    /// Every request, when the connection is lost.
    pub(super) fn drain(&mut self) -> Lost {
        self.expired = 0;
        let pending = std::mem::take(&mut self.out);
        Lost { tickets: std::mem::take(&mut self.fifo), pending, at: self.written }
    }

    /// The next ticket whose deadline has passed, once.
    pub(super) fn expire(&mut self, now_ms: u64) -> Option<Ticket> {
        let ticket = self.fifo.get_mut(self.expired)?;
        if ticket.deadline_ms > now_ms {
            return None;
        }
        let found = *ticket;
        if ticket.slot != NOBODY {
            ticket.slot = TOO_LATE;
        }
        self.expired += 1;
        Some(found)
    }

    /// When the oldest live ticket expires.
    pub(super) fn next_deadline_ms(&self) -> Option<u64> {
        self.fifo.get(self.expired).map(|t| t.deadline_ms)
    }

    fn pop_front(&mut self) -> Option<Ticket> {
        self.expired = self.expired.saturating_sub(1);
        self.fifo.pop_front()
    }
}

#[cfg(test)]
mod tests;
