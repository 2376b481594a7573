//! A dispatcher whose datastore and peers are played by the test: it sees what each of them was
//! sent, and says what they answer.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::BytesMut;

use super::failure::Cause;
use super::unblock::CLIENT_ID;
use super::view::{BucketTypes, NodeState, Now, Settings, View};
use super::{ClientId, ClientKind, Conn, Dispatcher, Embedded, Event, Target, UpId};
use crate::proto::args::Args;
use crate::proto::dnode::{DATA_PLAIN, HeaderDecoder, HeaderLimits, MsgType, put_header};
use crate::proto::resp::decode::{RequestDecoder, RequestLimits};
use crate::proto::resp::encode;
use crate::ring::{Consistency, Peer, PeerId, PeerState, Topology};
use crate::token::DynToken;

/// A peer of the tests: `name`, its rack (`dc/rack`) and its token. The first one is this node.
pub(super) fn ring(peers: &[(&str, &str, u32)]) -> Vec<Peer> {
    let peer = |(i, (name, place, token)): (usize, &(&str, &str, u32))| {
        let (dc, rack) = place.split_once('/').expect("dc/rack");
        Peer {
            id: PeerId(i as u32),
            name: (*name).to_owned(),
            host: "h".into(),
            port: 8101,
            dc: dc.into(),
            rack: rack.into(),
            tokens: vec![DynToken::from_u32(*token)],
            state: PeerState::Normal,
            reachable: true,
            is_local: i == 0,
            is_torc: true,
        }
    };
    peers.iter().enumerate().map(peer).collect()
}

/// The number of the datastore's connection that is upstream 0.
pub(super) const STORE_CLIENT: u32 = 1000;

/// One upstream as the test sees it.
#[derive(Default)]
struct Far {
    /// Bytes it got and the test has not looked at.
    bytes: Vec<u8>,
    /// Ids of requests it has not answered.
    asked: Vec<u64>,
}

pub(super) struct Scripted {
    pub(super) node: Dispatcher,
    pub(super) now: Now,
    pub(super) client: ClientId,
    far: BTreeMap<u32, Far>,
}

pub(super) fn view(peers: Vec<Peer>, settings: Settings) -> Arc<View> {
    Arc::new(View {
        topology: Topology::build(peers).expect("a ring"),
        hasher: Default::default(),
        read: Consistency::DcOne,
        write: Consistency::DcOne,
        buckets: BucketTypes::default(),
        state: NodeState::Normal,
        affinity: None,
        settings,
    })
}

impl Scripted {
    /// A node of `peers` with everything connected and one client.
    pub(super) fn new(peers: Vec<Peer>, settings: Settings) -> Scripted {
        Scripted::over(peers, settings, None)
    }

    pub(super) fn over(
        peers: Vec<Peer>,
        settings: Settings,
        embedded: Option<Arc<dyn Embedded>>,
    ) -> Scripted {
        Scripted::begin(Dispatcher::new(1, view(peers, settings), embedded))
    }

    /// A node that begins with this snapshot.
    pub(super) fn with_view(view: Arc<View>) -> Scripted {
        Scripted::begin(Dispatcher::new(1, view, None))
    }

    fn begin(mut node: Dispatcher) -> Scripted {
        let client = node.add_client(ClientKind::Client);
        let now = Now { mono_us: 1_000_000, wall_us: 1_700_000_000_000_000 };
        let mut scripted = Scripted { node, now, client, far: BTreeMap::new() };
        scripted.connect();
        scripted
    }

    /// Opens what the node wants to have open; peers answer the question who they are, and the
    /// datastore tells the numbers of clients' own connections, from [`STORE_CLIENT`] on.
    pub(super) fn connect(&mut self) {
        while let Some(event) = self.node.poll_event() {
            let (up, target) = match event {
                Event::Connect { up, target, .. } => (up, target),
                Event::Disconnect { up } => {
                    self.far.remove(&up.0);
                    continue;
                }
                _ => continue,
            };
            self.far.insert(up.0, Far::default());
            self.node.on_upstream_state(up, true, Cause::Closed, self.now);
            let leased = self.node.ups[up.0 as usize].lease.is_some();
            let (question, answer) = match target {
                Target::Peer(_) => {
                    (self.node.view().settings.protocol.probe(), "+PONG\r\n".to_owned())
                }
                Target::Store if leased => (CLIENT_ID, format!(":{}\r\n", STORE_CLIENT + up.0)),
                Target::Store => continue,
            };
            self.flush();
            let bytes = &mut self.far.get_mut(&up.0).expect("inserted").bytes;
            let at = bytes.windows(question.len()).position(|w| w == question);
            bytes.drain(..at.expect("a question") + question.len());
            self.reply_of(up, 1, &answer);
        }
    }

    /// Moves the node's output to the far ends; returns what the client got.
    fn flush(&mut self) -> Vec<u8> {
        let mut to_client = Vec::new();
        while let Some(conn) = self.node.next_dirty() {
            let mut bytes = Vec::new();
            loop {
                let mut slices = [std::io::IoSlice::new(&[]); 8];
                let filled = self.node.output(conn, &mut slices);
                if filled == 0 {
                    break;
                }
                let chunk: Vec<u8> = slices[..filled].iter().flat_map(|s| s.to_vec()).collect();
                bytes.extend_from_slice(&chunk);
                self.node.on_written(conn, chunk.len());
            }
            match conn {
                Conn::Client(_) => to_client.extend_from_slice(&bytes),
                Conn::Upstream(up) => {
                    if let Some(far) = self.far.get_mut(&up.0) {
                        far.bytes.extend_from_slice(&bytes);
                    }
                }
            }
        }
        to_client
    }

    /// The client sends a command, its words separated by blanks.
    pub(super) fn send(&mut self, line: &str) {
        let mut bytes = Vec::new();
        let words: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
        encode::command(&mut bytes, words);
        let mut buf = BytesMut::from(&bytes[..]);
        self.node.on_client_bytes(self.client, &mut buf, self.now);
    }

    /// Everything the client got since.
    pub(super) fn replies(&mut self) -> String {
        String::from_utf8(self.flush()).expect("text")
    }

    /// True when there is a connection of that name.
    pub(super) fn has(&self, name: &str) -> bool {
        self.find_up(name).is_some()
    }

    fn up_of(&self, name: &str) -> UpId {
        self.find_up(name).expect("an upstream of that name")
    }

    fn find_up(&self, name: &str) -> Option<UpId> {
        let open = |up: &UpId| self.node.ups.contains(up.0 as usize);
        let mut ups = self.far.keys().map(|key| UpId(*key)).filter(open);
        ups.find(|up| self.leads_to(*up, name))
    }

    /// True for a connection of that name. A connection of a client's own is called `own NAME`.
    pub(super) fn leads_to(&self, up: UpId, name: &str) -> bool {
        let view = self.node.view();
        let (own, name) = match name.strip_prefix("own ") {
            Some(name) => (true, name),
            None => (false, name),
        };
        match self.node.target(up) {
            Some(_) if self.node.ups[up.0 as usize].lease.is_some() != own => false,
            Some(Target::Store) => name == "store",
            Some(Target::Peer(id)) => {
                view.topology.idx_of(id).is_some_and(|idx| view.topology.peer(idx).name == name)
            }
            None => false,
        }
    }

    /// What `name` (a peer, or `store`) was sent since, as `type WORD WORD`; the datastore's
    /// requests have no type.
    pub(super) fn sent(&mut self, name: &str) -> Vec<String> {
        self.sent_over(self.up_of(name))
    }

    /// The same of one of several connections.
    pub(super) fn sent_over(&mut self, up: UpId) -> Vec<String> {
        let replied = self.flush();
        assert!(replied.is_empty(), "the client was answered meanwhile");
        let store = self.node.target(up) == Some(Target::Store);
        let far = self.far.get_mut(&up.0).expect("an upstream");
        let bytes = std::mem::take(&mut far.bytes);
        let (mut rest, mut lines, mut spans) = (&bytes[..], Vec::new(), Vec::new());
        while !rest.is_empty() {
            let mut line = String::new();
            if !store {
                let header = HeaderDecoder::default().decode(rest, &HeaderLimits::default());
                let header = header.unwrap().unwrap();
                rest = &rest[header.len..];
                far.asked.push(header.id);
                line = format!("{} ", header.kind);
            }
            let limits = RequestLimits::default();
            let found = RequestDecoder::default().decode(rest, &limits, &mut spans);
            let found = found.unwrap().unwrap();
            let args = Args::new(&rest[..found.len], &spans);
            let words = args.iter().map(|w| String::from_utf8_lossy(w).into_owned());
            line += &words.collect::<Vec<_>>().join(" ");
            lines.push(line);
            rest = &rest[found.len..];
        }
        lines
    }

    /// `name` answers the oldest request the test has seen.
    pub(super) fn answer(&mut self, name: &str, reply: &str) {
        self.answer_over(self.up_of(name), reply);
    }

    /// The same on one of several connections.
    pub(super) fn answer_over(&mut self, up: UpId, reply: &str) {
        let far = self.far.get_mut(&up.0).expect("an upstream");
        let id = if far.asked.is_empty() { 0 } else { far.asked.remove(0) };
        self.reply_of(up, id, reply);
    }

    fn reply_of(&mut self, up: UpId, id: u64, reply: &str) {
        let mut bytes = Vec::new();
        if let Some(Target::Peer(_)) = self.node.target(up) {
            let kind = MsgType::Res.code();
            put_header(&mut bytes, id, kind, 0, 1, true, DATA_PLAIN, reply.len() as u64);
        }
        bytes.extend_from_slice(reply.as_bytes());
        let mut buf = BytesMut::from(&bytes[..]);
        self.node.on_upstream_bytes(up, &mut buf, self.now).expect("a reply");
    }

    /// The connection to `name` is lost; the first that is open, where there are several.
    pub(super) fn lose(&mut self, name: &str) -> UpId {
        let up = self.up_of(name);
        self.lose_over(up);
        up
    }

    /// The same of one of several connections.
    pub(super) fn lose_over(&mut self, up: UpId) {
        self.far.remove(&up.0);
        self.node.on_upstream_state(up, false, Cause::Closed, self.now);
    }

    /// A connection that was lost is open again.
    pub(super) fn regain(&mut self, up: UpId) {
        self.far.insert(up.0, Far::default());
        self.node.on_upstream_state(up, true, Cause::Closed, self.now);
    }

    /// So much time passes.
    pub(super) fn pass_ms(&mut self, ms: u64) {
        self.now =
            Now { mono_us: self.now.mono_us + ms * 1000, wall_us: self.now.wall_us + ms * 1000 };
        self.node.on_deadline(self.now);
    }
}
