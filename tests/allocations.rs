//! A request costs no allocation once a node is warm: whole workers with their sockets run here
//! under an allocator that counts, and nobody else in the process allocates meanwhile.

use std::alloc::System;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use arc_swap::ArcSwap;
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::mpsc;
use torc::dispatch::view::{NodeState, Settings, View};
use torc::dispatch::{ClientKind, Embedded};
use torc::net::backoff::Growth;
use torc::net::buffers::Buffers;
use torc::net::clock::Clock;
use torc::net::names::Names;
use torc::net::store_health::StoreHealth;
use torc::net::worker::{Heard, Setup, Socket, StoreAddress, Worker};
use torc::ring::{Consistency, Peer, PeerId, PeerState, Topology};
use torc::store::{MemoryStore, StoreSettings};
use torc::token::DynToken;

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// Where names would be looked up, if there were any.
static CONTROL: LazyLock<Runtime> =
    LazyLock::new(|| Builder::new_current_thread().build().expect("a runtime"));

/// Rounds that are counted together.
const COUNTED: usize = 200;

/// Counts that may find something at first: buffers grow, and pools fill.
const WARM_UP: usize = 50;

const VALUE: &str = "0123456789012345678901234567890123456789012345678901234567890123";

/// Nodes by rack, each the owner of every key in it, and the level of all requests.
struct Ring {
    racks: usize,
    /// The first node owns nothing: a second one of its rack does.
    forwards: bool,
    level: Consistency,
    /// What nodes keep keys in: a datastore on this port, or the embedded store.
    store: Option<u16>,
}

impl Ring {
    fn start(&self) -> Vec<Arc<Worker>> {
        let count = self.racks + usize::from(self.forwards);
        let listeners: Vec<TcpListener> = (0..count).map(|_| listen()).collect();
        let ports: Vec<u16> = listeners.iter().map(port_of).collect();
        listeners
            .into_iter()
            .enumerate()
            .map(|(i, listener)| {
                let worker = Worker::spawn(i, self.setup(i, &ports)).expect("a worker");
                let worker = Arc::new(worker);
                let taker = Arc::clone(&worker);
                std::thread::spawn(move || {
                    for stream in listener.incoming() {
                        taker.accept(socket(stream.expect("a peer")), ClientKind::Peer);
                    }
                });
                worker
            })
            .collect()
    }

    fn setup(&self, local: usize, ports: &[u16]) -> Setup {
        let peer = |(i, port): (usize, &u16)| Peer {
            id: PeerId(i as u32),
            name: format!("n{i}"),
            host: "127.0.0.1".into(),
            port: *port,
            dc: "dc".into(),
            rack: format!("r{}", i % self.racks),
            // Of two in a rack the one with the greatest token owns nearly all keys.
            tokens: vec![DynToken::from_u32(if i == 0 { 1 } else { u32::MAX })],
            state: PeerState::Normal,
            reachable: true,
            is_local: i == local,
            is_torc: true,
        };
        let view = View {
            topology: Topology::build(ports.iter().enumerate().map(peer).collect()).expect("ring"),
            hasher: Default::default(),
            read: self.level,
            write: self.level,
            buckets: Default::default(),
            state: NodeState::Normal,
            affinity: None,
            settings: Settings::default(),
        };
        let memory = || Arc::new(MemoryStore::new(StoreSettings::default())) as Arc<dyn Embedded>;
        Setup {
            view: Arc::new(ArcSwap::from_pointee(view)),
            embedded: self.store.is_none().then(memory),
            scripts: Arc::default(),
            stamps: Arc::default(),
            store: self.store.map(|port| StoreAddress::Tcp("127.0.0.1".into(), port)),
            store_user: None,
            store_password: None,
            store_pauses: Growth { after: 1, most: Duration::from_millis(100) },
            buffers: Arc::new(Buffers::new(1 << 30)),
            idle_timeout_ms: 0,
            store_health: Arc::new(StoreHealth::new(ports.len(), true)),
            security: None,
            names: Names::new(None, CONTROL.handle().clone()).expect("a resolver"),
            clock: Clock::start(),
            heard: Arc::new(Heard::default()),
            siblings: Arc::default(),
            notices: mpsc::unbounded_channel().0,
        }
    }
}

fn listen() -> TcpListener {
    TcpListener::bind(("127.0.0.1", 0)).expect("a port")
}

fn port_of(listener: &TcpListener) -> u16 {
    listener.local_addr().expect("bound").port()
}

fn socket(stream: TcpStream) -> Socket {
    stream.set_nodelay(true).expect("no delay");
    stream.set_nonblocking(true).expect("not blocking");
    Socket::Tcp(stream)
}

fn command(words: &[&str]) -> String {
    let word = |w: &&str| format!("${}\r\n{w}\r\n", w.len());
    format!("*{}\r\n{}", words.len(), words.iter().map(word).collect::<String>())
}

/// A datastore that answers every command of `request`'s length with `reply`.
fn datastore(request: &str, reply: &str) -> u16 {
    let listener = listen();
    let port = port_of(&listener);
    let (len, reply) = (request.len(), reply.as_bytes().to_vec());
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let (mut stream, reply) = (stream.expect("a node"), reply.clone());
            stream.set_nodelay(true).expect("no delay");
            std::thread::spawn(move || {
                let mut input = vec![0; 1 << 20];
                let mut waiting = 0;
                while let Ok(n @ 1..) = stream.read(&mut input) {
                    waiting += n;
                    while waiting >= len {
                        waiting -= len;
                        if stream.write_all(&reply).is_err() {
                            return;
                        }
                    }
                }
            });
        }
    });
    port
}

/// Links to peers and the datastore are opened in the background: asks until they are.
fn until_answered(client: &mut TcpStream, request: &str, reply: &str) {
    let mut got = vec![0; reply.len()];
    loop {
        client.write_all(request.as_bytes()).expect("written");
        client.read_exact(&mut got[..1]).expect("an answer");
        if got[0] != b'-' {
            return client.read_exact(&mut got[1..]).expect("the rest");
        }
        let mut byte = [0];
        while byte != *b"\n" {
            client.read_exact(&mut byte).expect("the rest of an error");
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// The least number of allocations that `COUNTED` rounds of `depth` times `request` cost at the
/// first node. What a request itself costs, every round costs.
fn count(ring: &Ring, request: &str, reply: &str, depth: usize) -> usize {
    let nodes = ring.start();
    let listener = listen();
    let mut client = TcpStream::connect(("127.0.0.1", port_of(&listener))).expect("connected");
    client.set_nodelay(true).expect("no delay");
    let (its, _) = listener.accept().expect("the client");
    nodes[0].accept(socket(its), ClientKind::Client);
    if ring.store.is_none() {
        until_answered(&mut client, &command(&["SET", "key", VALUE]), "+OK\r\n");
    }
    until_answered(&mut client, request, reply);
    let requests = request.repeat(depth);
    let want = reply.repeat(depth);
    let mut got = vec![0; want.len()];
    let mut round = |client: &mut TcpStream| {
        client.write_all(requests.as_bytes()).expect("written");
        client.read_exact(&mut got).expect("answers");
        assert!(got == want.as_bytes(), "wrong answers");
    };
    let mut least = usize::MAX;
    for _ in 0..WARM_UP {
        let region = Region::new(ALLOCATOR);
        (0..COUNTED).for_each(|_| round(&mut client));
        let change = region.change();
        least = least.min(change.allocations + change.reallocations);
        if least == 0 {
            break;
        }
    }
    nodes.iter().for_each(|worker| worker.stop());
    least
}

/// All cases in one test: the allocator counts for the whole process.
#[test]
fn a_warm_node_allocates_nothing_for_a_request() {
    let set = command(&["SET", "key", VALUE]);
    let get = command(&["GET", "key"]);
    let value = format!("${}\r\n{VALUE}\r\n", VALUE.len());
    let one = |store| Ring { racks: 1, forwards: false, level: Consistency::DcOne, store };
    let forwarded = || Ring { forwards: true, ..one(None) };
    let racks = |level| Ring { racks: 3, forwards: false, level, store: None };
    let mut table = Vec::new();
    let mut case = |name: &str, ring: Ring, request: &str, reply: &str| {
        for depth in [1, 64] {
            let allocations = count(&ring, request, reply, depth);
            println!("{name}, pipeline {depth}: {allocations} allocations");
            table.push((format!("{name} {depth}"), allocations));
        }
    };
    case("SET, datastore", one(Some(datastore(&set, "+OK\r\n"))), &set, "+OK\r\n");
    case("GET, datastore", one(Some(datastore(&get, &value))), &get, &value);
    case("SET, embedded", one(None), &set, "+OK\r\n");
    case("GET, embedded", one(None), &get, &value);
    case("SET, forwarded", forwarded(), &set, "+OK\r\n");
    case("GET, forwarded", forwarded(), &get, &value);
    case("SET, three racks DC_ONE", racks(Consistency::DcOne), &set, "+OK\r\n");
    case("SET, three racks DC_QUORUM", racks(Consistency::DcQuorum), &set, "+OK\r\n");
    case("GET, three racks DC_QUORUM", racks(Consistency::DcQuorum), &get, &value);
    table.retain(|(_, allocations)| *allocations > 0);
    assert_eq!(table, []);
}
