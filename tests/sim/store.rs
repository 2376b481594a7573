//! A datastore process beside a node: the embedded store's commands behind a connection, and
//! the misbehaviour tests ask for.

use std::collections::{BTreeMap, VecDeque};

use bytes::{Buf, BytesMut};
use torc::proto::args::Args;
use torc::proto::outbuf::OutBuf;
use torc::proto::resp::decode::{RequestDecoder, RequestLimits};
use torc::store::{MemoryStore, StoreSettings};

use super::network::LinkId;

/// One connection.
#[derive(Default)]
pub(crate) struct StoreConn {
    rx: BytesMut,
    decoder: RequestDecoder,
    /// Replies that wait for room in the link.
    pub(crate) out: VecDeque<u8>,
}

/// One store. Its data outlives crashes of its node.
pub(crate) struct Store {
    pub(crate) data: MemoryStore,
    pub(crate) up: bool,
    pub(crate) frozen: bool,
    pub(crate) conns: BTreeMap<LinkId, StoreConn>,
    /// Replies to give instead of the right ones, first come first served; heartbeats get none.
    pub(crate) script: VecDeque<Vec<u8>>,
    /// Every command executed, as words, while `log` is on.
    pub(crate) executed: Vec<String>,
    pub(crate) log: bool,
}

impl Store {
    pub(crate) fn new() -> Store {
        Store {
            data: MemoryStore::new(StoreSettings::default()),
            up: true,
            frozen: false,
            conns: BTreeMap::new(),
            script: VecDeque::new(),
            executed: Vec::new(),
            log: false,
        }
    }

    /// True while it accepts connections and answers.
    pub(crate) fn serves(&self) -> bool {
        self.up && !self.frozen
    }

    /// Takes bytes of a connection and queues replies.
    pub(crate) fn take(&mut self, link: LinkId, bytes: &[u8], wall_ms: u64) {
        let Some(conn) = self.conns.get_mut(&link) else { return };
        conn.rx.extend_from_slice(bytes);
        let mut spans = Vec::new();
        loop {
            let limits = RequestLimits::default();
            let found = conn.decoder.decode(&conn.rx, &limits, &mut spans);
            let Some(found) = found.expect("a node sends whole requests only") else { return };
            assert!(!found.inline, "an inline request reached a store");
            let args = Args::new(&conn.rx, &spans);
            if self.log {
                self.executed.push(words(&args));
            }
            let scripted = match &args[0] {
                b"PING" => None,
                _ => self.script.pop_front(),
            };
            match scripted {
                Some(reply) => conn.out.extend(reply),
                None => conn.out.extend(execute(&self.data, &args, wall_ms)),
            }
            conn.rx.advance(found.len);
        }
    }
}

/// Runs one command and returns its reply.
pub(crate) fn execute(data: &MemoryStore, args: &Args<'_>, wall_ms: u64) -> Vec<u8> {
    let mut out = OutBuf::new();
    data.execute(args, wall_ms, &mut out);
    let mut reply = Vec::new();
    while !out.is_empty() {
        let len = out.front().len();
        reply.extend_from_slice(out.front());
        out.advance(len);
    }
    reply
}

fn words(args: &Args<'_>) -> String {
    let words: Vec<_> = args.iter().map(|a| String::from_utf8_lossy(a).into_owned()).collect();
    words.join(" ")
}
