//! Control links: the connections gossip and other control messages leave on.
//!
//! One connection for each node that is addressed, opened when there is something to say and
//! closed when there was nothing for a while. It begins with a question that every node
//! understands (decision E1): a torc node answers with version 2, a C node with version 1, and
//! then no torc message is ever sent to it. Gossip in the C format has plaintext connections of
//! its own, because a C node reads a whole message in one piece.

use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::BytesMut;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::mpsc;

use super::listener::set_options;
use super::names::Names;
use super::secure::LinkSecurity;
use crate::gossip::c_format::put_c_gossip_frame;
use crate::gossip::{Addr, Transmit};
use crate::proto::dnode::control::{WIRE_HIGHEST, put_control_body};
use crate::proto::dnode::crypto::{BodyCipher, ChunkCipher};
use crate::proto::dnode::{
    DATA_PLAIN, Ext, FLAG_ENCRYPTED, HeaderDecoder, HeaderLimits, MsgType, Role, VERSION_TORC,
    put_header,
};

/// Messages of gossip that wait for one link at most; more are dropped, the next round says it
/// again.
pub const GOSSIP_QUEUE_MAX: usize = 64;
/// The same for filters and feeds, whose batches are small and many.
pub const FILTER_QUEUE_MAX: usize = 1024;

/// How long connecting and the first answer may take.
const OPEN_TIMEOUT: Duration = Duration::from_secs(1);

/// A link that had nothing to say for this long is closed.
const IDLE_MAX: Duration = Duration::from_secs(60);

/// Longest answer to it that is waited for.
const ANSWER_BYTES_MAX: usize = 4096;

/// What a link found out about the node at its other end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Proven {
    /// Where it listens.
    pub addr: Addr,
    /// True for a torc node.
    pub torc: bool,
}

/// A message and its part in [`ControlLinks::is_idle`].
type Queued = (Transmit, Arc<()>);

/// All control links of a node.
pub struct ControlLinks {
    /// The question a link begins with, in the protocol of the ring's datastores.
    probe: &'static [u8],
    links: HashMap<(Addr, bool), mpsc::Sender<Queued>>,
    /// Held once by every message that is not written yet.
    unwritten: Arc<()>,
    security: Option<LinkSecurity>,
    names: Names,
    proven: mpsc::UnboundedSender<Proven>,
    queue_max: usize,
    /// Messages dropped because a link's queue was full.
    pub dropped: u64,
}

impl ControlLinks {
    /// No links yet; what they find out is told to `proven`. `queue_max` messages wait for each
    /// at most.
    pub fn new(
        probe: &'static [u8],
        security: Option<LinkSecurity>,
        names: Names,
        proven: mpsc::UnboundedSender<Proven>,
        queue_max: usize,
    ) -> ControlLinks {
        let (links, unwritten) = Default::default();
        ControlLinks { probe, links, unwritten, security, names, proven, queue_max, dropped: 0 }
    }

    /// Ends the links to a host that has another address now.
    pub fn drop_host(&mut self, host: &str) {
        self.links.retain(|(addr, _), _| addr.host != host);
    }

    /// True when every message was written or given up.
    pub fn is_idle(&self) -> bool {
        Arc::strong_count(&self.unwritten) == 1
    }

    /// Sends one message, opening the link when there is none. `same_rack` means the same rack of
    /// the same datacenter; it decides with [`Transmit::same_dc`] whether a link is encrypted.
    pub fn send(&mut self, message: Transmit, same_rack: bool) {
        let key = (message.to.clone(), message.kind == MsgType::GossipSyn);
        let message = (message, Arc::clone(&self.unwritten));
        let message = match self.links.get(&key) {
            None => message,
            Some(link) => match link.try_send(message) {
                Ok(()) => return,
                Err(mpsc::error::TrySendError::Full(_)) => {
                    self.dropped += 1;
                    return;
                }
                Err(mpsc::error::TrySendError::Closed(message)) => message,
            },
        };
        let (link, inbox) = mpsc::channel(self.queue_max);
        let (probe, names, proven) = (self.probe, self.names.clone(), self.proven.clone());
        // Gossip in the C format is for links in plaintext alone.
        let secure = |s: &LinkSecurity| s.option.encrypts(message.0.same_dc, same_rack) && !key.1;
        let security = self.security.clone().filter(secure);
        tokio::spawn(async move {
            let to = message.0.to.clone();
            if let Err(error) = run(message, inbox, probe, security, names, proven).await {
                tracing::debug!(%to, %error, "control link");
            }
        });
        self.links.insert(key, link);
        self.links.retain(|_, link| !link.is_closed());
    }
}

async fn run(
    first: Queued,
    mut inbox: mpsc::Receiver<Queued>,
    probe: &[u8],
    security: Option<LinkSecurity>,
    names: Names,
    proven: mpsc::UnboundedSender<Proven>,
) -> io::Result<()> {
    let (to, same_dc) = (first.0.to.clone(), first.0.same_dc);
    let torc = first.0.kind.is_control();
    let opening = open(&to, same_dc, torc.then_some(probe), security, &names);
    let opened = tokio::time::timeout(OPEN_TIMEOUT, opening).await;
    let (mut stream, cipher) = match opened.unwrap_or_else(|_| Err(timed_out()))? {
        Opened::Ready(stream, cipher) => (stream, cipher),
        Opened::NotTorc => {
            let _ = proven.send(Proven { addr: to, torc: false });
            return Ok(());
        }
    };
    if torc {
        let _ = proven.send(Proven { addr: to, torc: true });
    }
    let mut id = 1;
    let mut next = Some(first);
    while let Some((message, unwritten)) = next {
        let frame = frame(&message, id, cipher.as_deref());
        id += 1;
        stream.write_all(&frame).await?;
        drop(unwritten);
        let mut byte = [0u8; 64];
        next = tokio::select! {
            message = tokio::time::timeout(IDLE_MAX, inbox.recv()) => message.unwrap_or(None),
            read = stream.read(&mut byte) => match read? {
                0 => None,
                _ => return Err(io::Error::other("bytes on a link that only listens")),
            },
        };
    }
    Ok(())
}

fn timed_out() -> io::Error {
    io::ErrorKind::TimedOut.into()
}

/// What a link turned out to be.
pub(super) enum Opened {
    Ready(TcpStream, Option<Box<ChunkCipher>>),
    NotTorc,
}

/// Connects and asks the question a link begins with, if there is one.
pub(super) async fn open(
    to: &Addr,
    same_dc: bool,
    ask: Option<&[u8]>,
    security: Option<LinkSecurity>,
    names: &Names,
) -> io::Result<Opened> {
    let mut stream = names.connect(&to.host, to.port).await?;
    set_options(&socket2::SockRef::from(&stream));
    let Some(probe) = ask else { return Ok(Opened::Ready(stream, None)) };
    let (cipher, data) = match security {
        None => (None, DATA_PLAIN.to_vec()),
        Some(security) => {
            let (cipher, wrapped) = security.new_link().map_err(io::Error::other)?;
            (Some(Box::new(cipher)), wrapped)
        }
    };
    let mut question = Vec::new();
    let head = Head { id: 0, kind: MsgType::Req, same_dc, data: &data };
    put_frame(&mut question, &head, probe, cipher.as_deref());
    stream.write_all(&question).await?;
    let mut answer = BytesMut::new();
    let mut decoder = HeaderDecoder::default();
    let mut header = None;
    loop {
        if stream.read_buf(&mut answer).await? == 0 || answer.len() > ANSWER_BYTES_MAX {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        if header.is_none() {
            let found = decoder.decode(&answer, &HeaderLimits::default());
            header = found.map_err(io::Error::other)?;
        }
        // The body is one short line; with it the link is silent from the other side.
        let Some(header) = header else { continue };
        let body = &answer[header.len..];
        let whole = match header.encrypted() {
            true => body.len() as u64 >= header.plen,
            false => body.ends_with(b"\r\n"),
        };
        if !whole {
            continue;
        }
        return match (header.encrypted() == cipher.is_some(), header.version) {
            (false, _) => Err(io::Error::other("encrypted otherwise than the question")),
            (true, VERSION_TORC..) => Ok(Opened::Ready(stream, cipher)),
            (true, _) => Ok(Opened::NotTorc),
        };
    }
}

/// What stands in the header of a frame to a torc node.
pub(super) struct Head<'a> {
    pub(super) id: u64,
    pub(super) kind: MsgType,
    pub(super) same_dc: bool,
    pub(super) data: &'a [u8],
}

pub(super) fn put_frame(
    out: &mut Vec<u8>,
    head: &Head<'_>,
    body: &[u8],
    cipher: Option<&ChunkCipher>,
) {
    let Head { id, kind, same_dc, data } = *head;
    let (flags, len) = match cipher {
        None => (0, body.len()),
        Some(cipher) => (FLAG_ENCRYPTED, cipher.sealed_len(body.len())),
    };
    put_header(out, id, kind.code(), flags, VERSION_TORC, same_dc, data, len as u64);
    match cipher {
        None => out.extend_from_slice(body),
        Some(cipher) => cipher.seal(body, out),
    }
}

fn frame(message: &Transmit, id: u64, cipher: Option<&ChunkCipher>) -> Vec<u8> {
    let mut out = Vec::new();
    if message.kind == MsgType::GossipSyn {
        put_c_gossip_frame(&mut out, id, message.same_dc, &message.payload);
        return out;
    }
    let wire = Some(WIRE_HIGHEST as u8);
    let data = Ext { role: Some(Role::Control), wire, ..Ext::default() }.encode();
    let mut body = Vec::new();
    put_control_body(&mut body, &message.payload);
    let head = Head { id, kind: message.kind, same_dc: message.same_dc, data: data.as_slice() };
    put_frame(&mut out, &head, &body, cipher);
    out
}
