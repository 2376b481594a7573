//! A worker: one thread, one single-threaded runtime, one dispatcher.

use std::rc::Rc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread::JoinHandle;

use arc_swap::ArcSwap;
use bytes::Bytes;
use tokio::sync::{mpsc, oneshot};
use tokio::task::LocalSet;

use super::backoff::Growth;
use super::buffers::Buffers;
use super::clock::Clock;
use super::core::Core;
use super::names::Names;
use super::panics::caught;
use super::secure::LinkSecurity;
use super::store_health::StoreHealth;
pub use super::stream::Socket;
use crate::dispatch::scripts::Scripts;
use crate::dispatch::view::View;
use crate::dispatch::{ClientKind, Conn, Counters, Embedded, Ends, Order, Roll, RollCall};
use crate::gossip::Link;
use crate::ring::PeerId;
use crate::stamp::StampClock;

/// Where the node's own datastore is.
#[derive(Clone, Debug)]
pub enum StoreAddress {
    /// Host and port.
    Tcp(String, u16),
    /// Path of a Unix socket.
    Unix(std::path::PathBuf),
}

/// What every worker of a node is given.
#[derive(Clone)]
pub struct Setup {
    /// The snapshot in use; workers load it again on [`Worker::refresh`].
    pub view: Arc<ArcSwap<View>>,
    /// The embedded store, when there is no other.
    pub embedded: Option<Arc<dyn Embedded>>,
    /// The scripts the node saw loaded.
    pub scripts: Arc<Scripts>,
    /// The clock that stamps writes.
    pub stamps: Arc<StampClock>,
    /// The datastore, when there is no embedded one.
    pub store: Option<StoreAddress>,
    /// User of the datastore; the default one when absent.
    pub store_user: Option<String>,
    /// Password of the datastore.
    pub store_password: Option<String>,
    /// Pauses between two attempts to reach the datastore.
    pub store_pauses: Growth,
    /// The memory all workers' buffers may take.
    pub buffers: Arc<Buffers>,
    /// A client that sends nothing for so long is disconnected, in milliseconds; 0 for never.
    pub idle_timeout_ms: u64,
    /// Whether it is reached.
    pub store_health: Arc<StoreHealth>,
    /// How links are encrypted, when any is.
    pub security: Option<LinkSecurity>,
    /// Where hosts are looked up.
    pub names: Names,
    /// The node's clock.
    pub clock: Clock,
    /// Where peers were last heard, for the failure detector.
    pub heard: Arc<Heard>,
    /// The workers of the node, as they ask each other.
    pub siblings: Arc<Siblings>,
    /// What workers tell the control plane.
    pub notices: mpsc::UnboundedSender<Notice>,
}

/// What a worker tells the control plane.
#[derive(Debug)]
pub enum Notice {
    /// A gossip or control frame.
    Control {
        /// The address it came from.
        from: String,
        /// DNODE type.
        kind: u8,
        /// Payload.
        body: Bytes,
    },
    /// A peer is proven to be torc.
    TorcPeer(PeerId),
    /// One of the worker's connections to a peer was opened, lost or refused.
    Link {
        /// The peer.
        peer: PeerId,
        /// What became of the connection.
        link: Link,
    },
    /// An attempt to connect to a peer came to nothing, and nobody refused it.
    Unanswered(PeerId),
}

/// When each peer was last heard, in milliseconds of the node's clock, by [`PeerId`].
#[derive(Debug, Default)]
pub struct Heard {
    times: RefreshedTimes,
}

type RefreshedTimes = ArcSwap<Vec<AtomicU64>>;

impl Heard {
    /// Makes room for peers up to `id`.
    pub fn reserve(&self, id: PeerId) {
        let old = self.times.load();
        if (id.0 as usize) < old.len() {
            return;
        }
        let mut new: Vec<AtomicU64> =
            old.iter().map(|t| AtomicU64::new(t.load(Ordering::Relaxed))).collect();
        new.resize_with(id.0 as usize + 1, AtomicU64::default);
        self.times.store(Arc::new(new));
    }

    /// Notes that `id` was heard at `ms`.
    pub fn note(&self, id: PeerId, ms: u64) {
        if let Some(time) = self.times.load().get(id.0 as usize) {
            time.fetch_max(ms, Ordering::Relaxed);
        }
    }

    /// When `id` was last heard; 0 for never.
    pub fn last(&self, id: PeerId) -> u64 {
        self.times.load().get(id.0 as usize).map_or(0, |t| t.load(Ordering::Relaxed))
    }
}

/// The workers of a node, for each other.
#[derive(Default)]
pub struct Siblings(OnceLock<Vec<mpsc::UnboundedSender<Command>>>);

impl Siblings {
    /// Makes the workers of a node known to each other. Once.
    pub fn introduce(&self, workers: &[Worker]) {
        let _ = self.0.set(workers.iter().map(|worker| worker.commands.clone()).collect());
    }

    /// What all of them say.
    async fn roll(&self, order: &Order) -> Roll {
        let mut sum = Roll::default();
        for worker in self.0.get().into_iter().flatten() {
            let (reply, answer) = oneshot::channel();
            if worker.send(Command::Roll { order: order.clone(), reply }).is_ok()
                && let Ok(roll) = answer.await
            {
                sum.add(roll);
            }
        }
        sum
    }
}

enum Command {
    Accept(Socket, ClientKind),
    Refresh,
    Reopen(PeerId),
    Retry(PeerId),
    Counters(oneshot::Sender<Counters>),
    Roll { order: Order, reply: oneshot::Sender<Roll> },
    Drain(oneshot::Sender<()>),
    Stop,
}

/// Connections a worker serves.
#[derive(Debug, Default)]
pub(super) struct Connections {
    clients: AtomicUsize,
    peers: AtomicUsize,
}

impl Connections {
    fn of(&self, kind: ClientKind) -> &AtomicUsize {
        match kind {
            ClientKind::Client => &self.clients,
            ClientKind::Peer => &self.peers,
        }
    }

    /// One of them is gone.
    pub(super) fn left(&self, kind: ClientKind) {
        self.of(kind).fetch_sub(1, Ordering::Relaxed);
    }
}

/// A running worker.
pub struct Worker {
    commands: mpsc::UnboundedSender<Command>,
    connections: Arc<Connections>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Worker {
    /// Starts worker number `number`.
    pub fn spawn(number: usize, setup: Setup) -> std::io::Result<Worker> {
        let (commands, inbox) = mpsc::unbounded_channel();
        let connections = Arc::new(Connections::default());
        let counted = Arc::clone(&connections);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let thread =
            std::thread::Builder::new().name(format!("worker-{number}")).spawn(move || {
                let local = LocalSet::new();
                local.block_on(&runtime, run(number, setup, inbox, counted));
            })?;
        Ok(Worker { commands, connections, thread: Mutex::new(Some(thread)) })
    }

    /// Connections it serves, of clients and of peers.
    pub fn connections(&self) -> usize {
        self.clients() + self.connections.peers.load(Ordering::Relaxed)
    }

    /// Client connections it serves.
    pub fn clients(&self) -> usize {
        self.connections.clients.load(Ordering::Relaxed)
    }

    /// Gives it a connection.
    pub fn accept(&self, socket: Socket, kind: ClientKind) {
        self.connections.of(kind).fetch_add(1, Ordering::Relaxed);
        let _ = self.commands.send(Command::Accept(socket, kind));
    }

    /// Makes it load the snapshot again.
    pub fn refresh(&self) {
        let _ = self.commands.send(Command::Refresh);
    }

    /// Makes it give up its connections to a peer and connect anew.
    pub fn reopen(&self, peer: PeerId) {
        let _ = self.commands.send(Command::Reopen(peer));
    }

    /// Tries at once what waits for the next attempt to reach a peer; open connections stay.
    pub fn retry(&self, peer: PeerId) {
        let _ = self.commands.send(Command::Retry(peer));
    }

    /// Its figures.
    pub async fn counters(&self) -> Option<Counters> {
        let (reply, answer) = oneshot::channel();
        self.commands.send(Command::Counters(reply)).ok()?;
        answer.await.ok()
    }

    /// Lets it finish what is in flight, from now on; what it gives is over when nothing is.
    pub fn drain(&self) -> impl Future<Output = ()> + use<> {
        let (reply, answer) = oneshot::channel();
        let _ = self.commands.send(Command::Drain(reply));
        async {
            // It fails when the worker has ended.
            let _ = answer.await;
        }
    }

    /// Ends it: its connections close.
    pub fn stop(&self) {
        let _ = self.commands.send(Command::Stop);
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(thread) = thread {
            let _ = thread.join();
        }
    }
}

async fn run(
    number: usize,
    setup: Setup,
    mut inbox: mpsc::UnboundedReceiver<Command>,
    connections: Arc<Connections>,
) {
    let mut core = Core::start(number, setup, connections);
    loop {
        let command = tokio::select! {
            biased;
            () = core.broke.notified() => {
                core = core.replace();
                continue;
            }
            command = inbox.recv() => command,
        };
        match command {
            None | Some(Command::Stop) => return,
            Some(command) => {
                if caught(async { core.obey(command) }).await.is_none() {
                    core.note_panic();
                }
            }
        }
    }
}

impl Core {
    fn roll(self: &Rc<Core>, order: &Order) -> Roll {
        let now = self.setup.clock.now();
        let roll = {
            let ios = self.ios.borrow();
            let ends = |id| ios.get(Conn::Client(id)).map_or(Ends::default(), |io| io.write.ends());
            self.enter().roll(order, ends, now)
        };
        self.after_input();
        roll
    }

    /// Asks all workers for their part of an answer.
    pub(super) async fn call_roll(self: Rc<Core>, call: RollCall) {
        let roll = match self.setup.siblings.0.get() {
            Some(_) => self.setup.siblings.roll(&call.order).await,
            None => self.roll(&call.order),
        };
        if self.is_broken() {
            return;
        }
        let now = self.setup.clock.now();
        self.enter().on_roll(&call, roll, now);
        self.after_input();
    }

    fn obey(self: &Rc<Core>, command: Command) {
        match command {
            Command::Accept(socket, kind) => self.accept(socket, kind),
            Command::Refresh => {
                let view = self.setup.view.load_full();
                self.enter().set_view(view);
                self.after_input();
            }
            Command::Reopen(peer) => self.reopen(peer),
            Command::Retry(peer) => self.hurry(peer),
            Command::Counters(reply) => {
                let _ = reply.send(self.look().figures());
            }
            Command::Roll { order, reply } => {
                let _ = reply.send(self.roll(&order));
            }
            Command::Stop => {}
            Command::Drain(reply) => {
                tokio::task::spawn_local(Rc::clone(self).drained(reply));
            }
        }
    }
}
