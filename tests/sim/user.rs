//! Those who ask: a connection to one node, requests in flight, replies in order.

use std::collections::VecDeque;

use bytes::{Buf, BytesMut};
use torc::dispatch::ClientKind;
use torc::proto::resp::encode;
use torc::proto::resp::reply::{ReplyLimits, ReplyScanner, elements, is_null, text};

use super::network::LinkId;
use super::workload::Op;

/// A request whose reply is awaited.
#[derive(Clone, Debug)]
pub(crate) struct Ask {
    pub(crate) sent_us: u64,
    /// What it was, for those of a workload.
    pub(crate) op: Option<Op>,
}

/// One user.
pub(crate) struct User {
    pub(crate) node: usize,
    pub(crate) kind: ClientKind,
    pub(crate) link: Option<LinkId>,
    /// Requests that wait for room in the link.
    pub(crate) out: VecDeque<u8>,
    pub(crate) rx: BytesMut,
    scanner: ReplyScanner,
    pub(crate) waiting: VecDeque<Ask>,
    /// Replies to requests without an [`Op`].
    pub(crate) replies: VecDeque<Vec<u8>>,
    /// False while the user does not read.
    pub(crate) reading: bool,
}

impl User {
    pub(crate) fn new(node: usize, kind: ClientKind) -> User {
        User {
            node,
            kind,
            link: None,
            out: VecDeque::new(),
            rx: BytesMut::new(),
            scanner: ReplyScanner::default(),
            waiting: VecDeque::new(),
            replies: VecDeque::new(),
            reading: true,
        }
    }

    /// Takes the next whole reply out of what was received.
    pub(crate) fn next_reply(&mut self) -> Option<Vec<u8>> {
        let found = self.scanner.scan(&self.rx, &ReplyLimits::default());
        let len = found.expect("a node sends RESP2")?;
        let reply = self.rx[..len].to_vec();
        self.rx.advance(len);
        Some(reply)
    }

    /// Forgets a lost connection; what it waited for has an unknown outcome.
    pub(crate) fn lose(&mut self) -> VecDeque<Ask> {
        self.link = None;
        self.out.clear();
        self.rx.clear();
        self.scanner = ReplyScanner::default();
        std::mem::take(&mut self.waiting)
    }
}

/// The bytes of a request of words.
pub(crate) fn request<W: AsRef<[u8]>>(words: &[W]) -> Vec<u8> {
    let mut out = Vec::new();
    encode::command(&mut out, words.iter().map(AsRef::as_ref));
    out
}

/// A reply in a form that reads well in a table: `OK`, `:1`, `(nil)`, `[a, b]`, `-ERR ...`.
pub(crate) fn brief(reply: &[u8]) -> String {
    let line = || String::from_utf8_lossy(reply).trim_end().to_owned();
    match reply.first() {
        _ if is_null(reply) => "(nil)".to_owned(),
        Some(b'*') => {
            let items: Vec<_> = elements(reply).map(brief).collect();
            format!("[{}]", items.join(", "))
        }
        Some(b'+' | b'$') => match text(reply) {
            Some(text) => String::from_utf8_lossy(text).into_owned(),
            None => line(),
        },
        _ => line(),
    }
}
