//! The whole dispatcher for one GET and one SET: from the client's bytes to the datastore's, and
//! from its reply to the client's; the same forwarded to a peer, and voted on by three racks. And
//! how long it plans nothing while one of 1,000 peers changes.
//!
//! `cargo bench --bench dispatch` times it. `scripts/bench --instructions` counts instructions
//! instead, which say the same on any machine: it runs the built bench as
//! `count CASE REQUESTS` under callgrind.

use std::io::IoSlice;
use std::sync::Arc;

use bytes::BytesMut;
use criterion::{BatchSize, Criterion};
use torc::dispatch::failure::Cause;
use torc::dispatch::view::{NodeState, Now, Settings, View};
use torc::dispatch::{ClientId, ClientKind, Conn, Dispatcher, Event, Target};
use torc::hash::{HashType, map_hash};
use torc::proto::dnode::{
    DATA_PLAIN, HeaderDecoder, HeaderLimits, MsgType, VERSION_TORC, put_header,
};
use torc::proto::resp::encode;
use torc::ring::{Consistency, Peer, PeerId, PeerState, Topology};
use torc::token::DynToken;

/// The cases, by name.
const CASES: [(&str, Case); 5] = [
    ("get", Case { racks: 1, forwards: false, set: false, level: Consistency::DcOne }),
    ("set", Case { racks: 1, forwards: false, set: true, level: Consistency::DcOne }),
    ("get-forwarded", Case { racks: 1, forwards: true, set: false, level: Consistency::DcOne }),
    ("set-racks", Case { racks: 3, forwards: false, set: true, level: Consistency::DcOne }),
    ("set-quorum", Case { racks: 3, forwards: false, set: true, level: Consistency::DcQuorum }),
];

#[derive(Clone, Copy)]
struct Case {
    racks: usize,
    forwards: bool,
    set: bool,
    level: Consistency,
}

/// A node, and what its datastore and peers will say.
struct Lab {
    node: Dispatcher,
    client: ClientId,
    now: Now,
    request: Vec<u8>,
    reply: &'static [u8],
    input: BytesMut,
    output: Vec<u8>,
}

fn view(case: Case) -> Arc<View> {
    let count = case.racks + usize::from(case.forwards);
    let peer = |i: usize| Peer {
        id: PeerId(i as u32),
        name: format!("n{i}"),
        host: "127.0.0.1".into(),
        port: 8101,
        dc: "dc".into(),
        rack: format!("r{}", i % case.racks),
        tokens: vec![DynToken::from_u32(if i == 0 { 1 } else { u32::MAX })],
        state: PeerState::Normal,
        reachable: true,
        is_local: i == 0,
        is_torc: true,
    };
    view_of((0..count).map(peer).collect(), case.level)
}

fn view_of(peers: Vec<Peer>, level: Consistency) -> Arc<View> {
    Arc::new(View {
        topology: Topology::build(peers).expect("a ring"),
        hasher: Default::default(),
        read: level,
        write: level,
        buckets: Default::default(),
        state: NodeState::Normal,
        affinity: None,
        settings: Settings::default(),
    })
}

impl Lab {
    fn new(case: Case) -> Lab {
        let mut request = Vec::new();
        let value = [b'x'; 64];
        match case.set {
            true => encode::command(&mut request, [&b"SET"[..], b"key:000000000042", &value]),
            false => encode::command(&mut request, [&b"GET"[..], b"key:000000000042"]),
        }
        let mut node = Dispatcher::new(0, view(case), None);
        let client = node.add_client(ClientKind::Client);
        let mut lab = Lab {
            node,
            client,
            now: Now { mono_us: 1_000_000, wall_us: 1_700_000_000_000_000 },
            request,
            reply: if case.set { b"+OK\r\n" } else { b"$5\r\nvalue\r\n" },
            input: BytesMut::with_capacity(1 << 16),
            output: Vec::with_capacity(1 << 16),
        };
        while let Some(event) = lab.node.poll_event() {
            if let Event::Connect { up, .. } = event {
                lab.node.on_upstream_state(up, true, Cause::Closed, lab.now);
            }
        }
        lab.settle();
        lab.output.clear();
        lab
    }

    /// One request and its reply.
    fn round(&mut self) {
        self.input.extend_from_slice(&self.request);
        self.now.mono_us += 1;
        self.node.on_client_bytes(self.client, &mut self.input, self.now);
        self.settle();
        assert_eq!(self.output, self.reply);
        self.output.clear();
    }

    /// Moves bytes until nobody has any: every request is answered.
    fn settle(&mut self) {
        while let Some(conn) = self.node.next_dirty() {
            let mut sent = std::mem::take(&mut self.output);
            let kept = sent.len();
            loop {
                let mut slices = [IoSlice::new(&[]); 8];
                let filled = self.node.output(conn, &mut slices);
                if filled == 0 {
                    break;
                }
                let before = sent.len();
                slices[..filled].iter().for_each(|slice| sent.extend_from_slice(slice));
                let written = sent.len() - before;
                self.node.on_written(conn, written);
            }
            if let Conn::Upstream(up) = conn {
                let framed = matches!(self.node.target(up), Some(Target::Peer(_)));
                self.reply_to(&sent[kept..], framed);
                sent.truncate(kept);
                self.node.on_upstream_bytes(up, &mut self.input, self.now).expect("a reply");
            }
            self.output = sent;
        }
    }

    fn reply_to(&mut self, sent: &[u8], framed: bool) {
        if sent.is_empty() {
            return;
        }
        if !framed {
            return self.input.extend_from_slice(self.reply);
        }
        let header = HeaderDecoder::default().decode(sent, &HeaderLimits::default());
        let header = header.expect("a frame").expect("a whole one");
        let body: &[u8] = if header.version == VERSION_TORC { b"+PONG\r\n" } else { self.reply };
        let mut frame = Vec::new();
        let kind = MsgType::Res.code();
        put_header(
            &mut frame,
            header.id,
            kind,
            0,
            header.version,
            true,
            DATA_PLAIN,
            body.len() as u64,
        );
        self.input.extend_from_slice(&frame);
        self.input.extend_from_slice(body);
    }
}

/// 1,000 peers of 64 tokens in 3 racks; the last of them listens on `port`.
fn large_ring(port: u16) -> Arc<View> {
    let token = |i: usize, v: usize| map_hash(HashType::Murmur, format!("{i}-{v}").as_bytes());
    let peer = |i: usize| Peer {
        id: PeerId(i as u32),
        name: format!("n{i}"),
        host: format!("10.0.{}.{}", i / 250, i % 250),
        port: if i == 999 { port } else { 8101 },
        dc: "dc".into(),
        rack: format!("r{}", i % 3),
        tokens: (0..64).map(|v| token(i, v)).collect(),
        state: PeerState::Normal,
        reachable: true,
        is_local: i == 0,
        is_torc: true,
    };
    view_of((0..1000).map(peer).collect(), Consistency::DcOne)
}

/// What a worker does when a peer moved: the new snapshot is taken, the old one dropped by its
/// last holder, and the links are renewed. No request is planned meanwhile.
fn peer_change(criterion: &mut Criterion) {
    let mut node = Dispatcher::new(0, large_ring(8101), None);
    let mut port = 8101;
    criterion.benchmark_group("dispatch").sample_size(20).bench_function(
        "one of 1,000 x 64 peers moves",
        |b| {
            b.iter_batched(
                || {
                    port ^= 1;
                    large_ring(port)
                },
                |view| {
                    node.set_view(view);
                    while node.poll_event().is_some() {}
                },
                BatchSize::PerIteration,
            );
        },
    );
}

fn main() {
    let args: Vec<String> = std::env::args().collect();
    if let [_, count, name, requests, ..] = &args[..]
        && count == "count"
    {
        let (_, case) = CASES.iter().find(|(known, _)| known == name).expect("a case");
        let mut lab = Lab::new(*case);
        let requests: usize = requests.parse().expect("a number");
        return (0..requests).for_each(|_| lab.round());
    }
    let mut criterion = Criterion::default().configure_from_args();
    for (name, case) in CASES {
        let mut lab = Lab::new(case);
        criterion.bench_function(&format!("dispatch/{name}"), |b| b.iter(|| lab.round()));
    }
    peer_change(&mut criterion);
    criterion.final_summary();
}
