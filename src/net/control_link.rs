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
use crate::gossip::c_format::put_c_gossip_frame;
use crate::gossip::{Addr, Transmit};
use crate::proto::dnode::control::{WIRE_HIGHEST, put_control_frame};
use crate::proto::dnode::{
    DATA_PLAIN, Ext, HeaderDecoder, HeaderLimits, MsgType, Role, VERSION_TORC, put_header,
};

/// Messages that wait for one link at most; more are dropped, the next round says it again.
const QUEUE_MAX: usize = 64;

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
    proven: mpsc::UnboundedSender<Proven>,
    /// Messages dropped because a link's queue was full.
    pub dropped: u64,
}

impl ControlLinks {
    /// No links yet; what they find out is told to `proven`.
    pub fn new(probe: &'static [u8], proven: mpsc::UnboundedSender<Proven>) -> ControlLinks {
        ControlLinks { probe, links: HashMap::new(), unwritten: Arc::default(), proven, dropped: 0 }
    }

    /// True when every message was written or given up.
    pub fn is_idle(&self) -> bool {
        Arc::strong_count(&self.unwritten) == 1
    }

    /// Sends one message, opening the link when there is none.
    pub fn send(&mut self, message: Transmit) {
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
        let (link, inbox) = mpsc::channel(QUEUE_MAX);
        let (probe, proven) = (self.probe, self.proven.clone());
        tokio::spawn(async move {
            let to = message.0.to.clone();
            if let Err(error) = run(message, inbox, probe, proven).await {
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
    proven: mpsc::UnboundedSender<Proven>,
) -> io::Result<()> {
    let (to, same_dc) = (first.0.to.clone(), first.0.same_dc);
    let torc = first.0.kind.is_control();
    let ask = torc.then_some(probe);
    let opened = tokio::time::timeout(OPEN_TIMEOUT, open(&to, same_dc, ask));
    let mut stream = match opened.await.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))? {
        Opened::Ready(stream) => stream,
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
        let frame = frame(&message, id);
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

enum Opened {
    Ready(TcpStream),
    NotTorc,
}

async fn open(to: &Addr, same_dc: bool, ask: Option<&[u8]>) -> io::Result<Opened> {
    let mut stream = TcpStream::connect((to.host.as_str(), to.port)).await?;
    set_options(&socket2::SockRef::from(&stream));
    let Some(probe) = ask else { return Ok(Opened::Ready(stream)) };
    let mut question = Vec::new();
    let kind = MsgType::Req.code();
    let len = probe.len() as u64;
    put_header(&mut question, 0, kind, 0, VERSION_TORC, same_dc, DATA_PLAIN, len);
    question.extend_from_slice(probe);
    stream.write_all(&question).await?;
    let mut answer = BytesMut::new();
    let mut decoder = HeaderDecoder::default();
    loop {
        if stream.read_buf(&mut answer).await? == 0 || answer.len() > ANSWER_BYTES_MAX {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let header = decoder.decode(&answer, &HeaderLimits::default()).map_err(io::Error::other)?;
        // The body is one short line; with it the link is silent from the other side.
        if let Some(header) = header
            && answer[header.len..].ends_with(b"\r\n")
        {
            return Ok(match header.version >= VERSION_TORC {
                true => Opened::Ready(stream),
                false => Opened::NotTorc,
            });
        }
    }
}

fn frame(message: &Transmit, id: u64) -> Vec<u8> {
    let mut out = Vec::new();
    if message.kind == MsgType::GossipSyn {
        put_c_gossip_frame(&mut out, id, message.same_dc, &message.payload);
        return out;
    }
    let ext = Ext { role: Some(Role::Control), wire: Some(WIRE_HIGHEST as u8), stamp: None };
    let mut data = Vec::new();
    ext.encode(&mut data);
    put_control_frame(&mut out, id, message.kind, message.same_dc, &data, &message.payload);
    out
}
