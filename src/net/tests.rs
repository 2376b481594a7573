//! One worker over a store that panics and boasts on request, and clients on socket pairs.

use std::future::poll_fn;
use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::{Arc, LazyLock};
use std::task::Poll;
use std::time::Duration;

use arc_swap::ArcSwap;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::mpsc;
use tokio::task::LocalSet;

use super::backoff::Growth;
use super::buffers::Buffers;
use super::clock::Clock;
use super::core::Core;
use super::names::Names;
use super::panics::catch;
use super::store_health::StoreHealth;
use super::worker::{Heard, Setup, Socket, StoreAddress, Worker};
use crate::dispatch::view::{NodeState, Settings, View};
use crate::dispatch::{ClientKind, Counters, Embedded};
use crate::proto::args::Args;
use crate::proto::outbuf::OutBuf;
use crate::ring::{Consistency, Peer, PeerId, PeerState, Topology};
use crate::stamp::Stamping;
use crate::token::DynToken;

/// Bytes of the value of `large`.
const LARGE: usize = 600_000;

/// Where names would be looked up, if there were any.
static CONTROL: LazyLock<Runtime> =
    LazyLock::new(|| Builder::new_current_thread().build().expect("a runtime"));

struct Store;

impl Embedded for Store {
    fn execute(&self, args: &Args<'_>, _: u64, _: &mut Stamping, out: &mut OutBuf) {
        match &args[1] {
            b"boom" => panic!("asked for by the test"),
            b"large" => {
                out.put(format!("${LARGE}\r\n").as_bytes());
                out.put_shared(vec![b'x'; LARGE].into());
                out.put(b"\r\n");
            }
            _ => out.put(b"+fine\r\n"),
        }
    }

    fn version_of(&self, _: &[u8], _: u64) -> u64 {
        0
    }
}

fn setup() -> Setup {
    let peer = Peer {
        id: PeerId(0),
        name: "n".into(),
        host: "h".into(),
        port: 8101,
        dc: "dc".into(),
        rack: "r".into(),
        tokens: vec![DynToken::from_u32(1)],
        state: PeerState::Normal,
        reachable: true,
        is_local: true,
        is_torc: true,
    };
    let view = View {
        topology: Topology::build(vec![peer]).expect("a ring"),
        hasher: Default::default(),
        read: Consistency::DcOne,
        write: Consistency::DcOne,
        buckets: Default::default(),
        state: NodeState::Normal,
        affinity: None,
        settings: Settings::default(),
    };
    Setup {
        view: Arc::new(ArcSwap::from_pointee(view)),
        embedded: Some(Arc::new(Store)),
        scripts: Arc::default(),
        stamps: Arc::default(),
        store: None,
        store_user: None,
        store_password: None,
        store_pauses: Growth { after: 1, most: Duration::from_secs(1) },
        buffers: Arc::new(Buffers::new(usize::MAX)),
        idle_timeout_ms: 0,
        store_health: Arc::new(StoreHealth::new(1, false)),
        security: None,
        names: Names::new(None, CONTROL.handle().clone()).expect("a resolver"),
        clock: Clock::start(),
        heard: Arc::new(Heard::default()),
        siblings: Arc::default(),
        notices: mpsc::unbounded_channel().0,
    }
}

fn connect(worker: &Worker) -> UnixStream {
    let (mine, its) = UnixStream::pair().expect("a pair");
    its.set_nonblocking(true).expect("not blocking");
    worker.accept(Socket::Unix(its), ClientKind::Client);
    mine
}

fn ask(client: &mut UnixStream, key: &str) {
    client.write_all(format!("GET {key}\r\n").as_bytes()).expect("it reads");
}

/// The next reply; empty when the connection is closed.
fn reply(client: &mut UnixStream) -> String {
    let mut line = [0; 7];
    match client.read_exact(&mut line) {
        Ok(()) => String::from_utf8_lossy(&line).into_owned(),
        Err(_) => String::new(),
    }
}

fn counters(worker: &Worker) -> Counters {
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    runtime.block_on(worker.counters()).expect("it runs")
}

#[test]
fn a_worker_survives_a_panic_in_its_dispatcher() {
    let worker = Worker::spawn(0, setup()).expect("a worker");
    let [mut bystander, mut culprit] = [connect(&worker), connect(&worker)];
    for client in [&mut bystander, &mut culprit] {
        ask(client, "k");
        assert_eq!(reply(client), "+fine\r\n");
    }
    ask(&mut culprit, "boom");
    assert_eq!([reply(&mut culprit), reply(&mut bystander)], ["", ""]);
    let mut next = connect(&worker);
    ask(&mut next, "k");
    assert_eq!(reply(&mut next), "+fine\r\n");
    let seen = counters(&worker);
    assert_eq!((seen.panics, seen.dispatchers_replaced), (1, 1));
    assert_eq!((seen.client_reads, seen.clients, worker.clients()), (4, 1, 1));
    worker.stop();
}

#[test]
fn a_panic_outside_of_the_dispatcher_ends_one_connection() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let local = LocalSet::new();
    local.block_on(&runtime, async {
        let core = Core::start(0, setup(), Arc::default());
        let [mut client, mut other] = [(); 2].map(|()| {
            let (mine, its) = UnixStream::pair().expect("a pair");
            its.set_nonblocking(true).expect("not blocking");
            core.accept(Socket::Unix(its), ClientKind::Client);
            mine
        });
        let id = core.enter().add_client(ClientKind::Client);
        let broken = poll_fn(|_| catch(|| -> Poll<()> { panic!("asked for by the test") })).await;
        core.forget(id, ClientKind::Client, broken);
        assert!(!core.is_broken());
        let seen = core.look().counters().clone();
        assert_eq!((seen.panics, seen.dispatchers_replaced, seen.clients), (1, 0, 2));
        for client in [&mut client, &mut other] {
            ask(client, "k");
            client.set_nonblocking(true).expect("not blocking");
            let mut line = [0; 7];
            while client.read(&mut line).is_err() {
                tokio::task::yield_now().await;
            }
            assert_eq!(&line, b"+fine\r\n");
        }
    });
}

#[test]
fn over_the_bound_of_all_buffers_whoever_holds_most_is_closed() {
    let buffers = Arc::new(Buffers::new(2 * LARGE));
    let setup = Setup { buffers: Arc::clone(&buffers), ..setup() };
    let worker = Worker::spawn(0, setup).expect("a worker");
    let [mut polite, mut greedy, mut uploader] = [(); 3].map(|()| connect(&worker));
    // An unfinished request may stay: it is within the bound.
    uploader.write_all(format!("*2\r\n$3\r\nGET\r\n${LARGE}\r\n").as_bytes()).expect("read");
    uploader.write_all(&vec![b'k'; LARGE / 2]).expect("it reads");
    // One that takes no replies is closed, and what was held for it is free again.
    let requests = "GET large\r\n".repeat(20);
    greedy.write_all(requests.as_bytes()).expect("it reads");
    let mut taken = Vec::new();
    while buffers.closed() == 0 {
        std::thread::yield_now();
    }
    let _ = greedy.read_to_end(&mut taken);
    assert!(taken.len() < 20 * LARGE);
    ask(&mut polite, "k");
    assert_eq!(reply(&mut polite), "+fine\r\n");
    assert_eq!(buffers.closed(), 1);
    uploader.write_all(&vec![b'k'; LARGE - LARGE / 2]).expect("it reads");
    uploader.write_all(b"\r\n").expect("it reads");
    assert_eq!(reply(&mut uploader), "+fine\r\n");
    // One that sends on without end is closed too.
    let mut endless = connect(&worker);
    endless.write_all(b"*2\r\n$3\r\nGET\r\n$500000000\r\n").expect("it reads");
    let chunk = vec![b'k'; LARGE];
    while endless.write_all(&chunk).is_ok() {}
    assert_eq!(buffers.closed(), 2);
    worker.stop();
    assert_eq!(buffers.held(), 0);
}

#[test]
fn a_client_that_is_gone_when_its_reply_comes_is_forgotten() {
    const REQUEST: &[u8] = b"*2\r\n$3\r\nGET\r\n$1\r\nk\r\n";
    let path = std::env::temp_dir().join(format!("torc-net-{}.sock", std::process::id()));
    let listener = UnixListener::bind(&path).expect("bound");
    let store = Some(StoreAddress::Unix(path.clone()));
    let worker = Worker::spawn(0, Setup { embedded: None, store, ..setup() }).expect("a worker");
    let (mut store, _) = listener.accept().expect("it connects");
    std::fs::remove_file(&path).expect("removed");
    while counters(&worker).upstreams_up == 0 {
        std::thread::yield_now();
    }
    let mut client = connect(&worker);
    ask(&mut client, "k");
    let mut request = [0; REQUEST.len()];
    store.read_exact(&mut request).expect("a request");
    assert_eq!(request, REQUEST);
    drop(client);
    store.write_all(b"+fine\r\n").expect("it reads");
    while worker.clients() > 0 {
        std::thread::yield_now();
    }
    worker.stop();
}

#[test]
fn a_client_that_sends_nothing_is_disconnected() {
    let worker = Worker::spawn(0, Setup { idle_timeout_ms: 40, ..setup() }).expect("a worker");
    let mut client = connect(&worker);
    assert_eq!(reply(&mut client), "");
    assert_eq!(counters(&worker).idle_closed, 1);
    worker.stop();
}
