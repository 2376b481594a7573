//! A worker: one thread, one single-threaded runtime, one dispatcher.

use std::cell::{Cell, RefCell};
use std::collections::{HashMap, HashSet};
use std::io;
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Waker;
use std::thread::JoinHandle;
use std::time::Duration;

use arc_swap::ArcSwap;
use bytes::{Bytes, BytesMut};
use tokio::sync::{Notify, mpsc, oneshot};
use tokio::task::{AbortHandle, LocalSet};

use super::clock::Clock;
use super::secure::LinkSecurity;
use super::store_health::StoreHealth;
pub use super::stream::Socket;
use super::stream::WriteHalf;
use crate::dispatch::failure::Cause;
use crate::dispatch::scripts::Scripts;
use crate::dispatch::view::View;
use crate::dispatch::{
    ClientId, ClientKind, Conn, Counters, Dispatcher, Embedded, Event, LinkRefused, Target, UpId,
};
use crate::gossip::Link;
use crate::ring::PeerId;

/// Bytes one read takes at most while no request is unfinished.
pub(super) const READ_BYTES: usize = 64 * 1024;

/// Addresses of refused links that are remembered, each for one warning.
const REFUSED_MAX: usize = 64;

/// The longest a worker sleeps while something is due.
const TICK_MAX_MS: u64 = 250;

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
    /// The datastore, when there is no embedded one.
    pub store: Option<StoreAddress>,
    /// User of the datastore; the default one when absent.
    pub store_user: Option<String>,
    /// Password of the datastore.
    pub store_password: Option<String>,
    /// Longest pause between two attempts to reach the datastore.
    pub store_retry_max: Duration,
    /// Whether it is reached.
    pub store_health: Arc<StoreHealth>,
    /// How links are encrypted, when any is.
    pub security: Option<LinkSecurity>,
    /// The node's clock.
    pub clock: Clock,
    /// Where peers were last heard, for the failure detector.
    pub heard: Arc<Heard>,
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

enum Command {
    Accept(Socket, ClientKind),
    Refresh,
    Reopen(PeerId),
    Counters(oneshot::Sender<Counters>),
    Drain(oneshot::Sender<()>),
    Stop,
}

/// A running worker.
pub struct Worker {
    commands: mpsc::UnboundedSender<Command>,
    connections: Arc<AtomicUsize>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Worker {
    /// Starts worker number `number`.
    pub fn spawn(number: usize, setup: Setup) -> std::io::Result<Worker> {
        let (commands, inbox) = mpsc::unbounded_channel();
        let connections = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&connections);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let thread =
            std::thread::Builder::new().name(format!("worker-{number}")).spawn(move || {
                let local = LocalSet::new();
                local.block_on(&runtime, run(number, setup, inbox, counted));
            })?;
        Ok(Worker { commands, connections, thread: Mutex::new(Some(thread)) })
    }

    /// Connections it serves.
    pub fn connections(&self) -> usize {
        self.connections.load(Ordering::Relaxed)
    }

    /// Gives it a connection.
    pub fn accept(&self, socket: Socket, kind: ClientKind) {
        self.connections.fetch_add(1, Ordering::Relaxed);
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

    /// Its figures.
    pub async fn counters(&self) -> Option<Counters> {
        let (reply, answer) = oneshot::channel();
        self.commands.send(Command::Counters(reply)).ok()?;
        answer.await.ok()
    }

    /// Lets it finish what is in flight; returns when nothing is.
    pub async fn drain(&self) {
        let (reply, answer) = oneshot::channel();
        if self.commands.send(Command::Drain(reply)).is_ok() {
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

/// A connection as the flush task sees it.
pub(super) struct Io {
    pub(super) write: WriteHalf,
    /// The socket took no more bytes; the connection's own task waits until it does.
    pub(super) blocked: bool,
    /// Wakes the connection's own task.
    pub(super) waker: Option<Waker>,
}

/// What all tasks of a worker share. Single-threaded, so cells suffice.
pub(super) struct Core {
    number: usize,
    pub(super) dispatcher: RefCell<Dispatcher>,
    pub(super) ios: RefCell<HashMap<Conn, Io, fnv::FnvBuildHasher>>,
    pub(super) scratch: RefCell<BytesMut>,
    pub(super) dirty: Notify,
    pub(super) due: Notify,
    pub(super) timer_idle: Cell<bool>,
    pub(super) connections: Arc<AtomicUsize>,
    pub(super) setup: Setup,
    /// Where incoming peer links come from.
    pub(super) remotes: RefCell<HashMap<ClientId, String>>,
    /// Where links came from that were refused.
    refused: RefCell<HashSet<String>>,
    upstreams: RefCell<HashMap<UpId, Upstream>>,
}

/// The task that keeps one upstream connected.
struct Upstream {
    task: AbortHandle,
    target: Target,
    open: bool,
}

async fn run(
    number: usize,
    setup: Setup,
    mut inbox: mpsc::UnboundedReceiver<Command>,
    connections: Arc<AtomicUsize>,
) {
    let view = setup.view.load_full();
    let mut dispatcher = Dispatcher::new(number as u64, view, setup.embedded.clone());
    dispatcher.share_scripts(Arc::clone(&setup.scripts));
    if let Some(security) = &setup.security {
        dispatcher.secure_links(security.for_dispatcher());
    }
    let core = Rc::new(Core {
        number,
        dispatcher: RefCell::new(dispatcher),
        ios: RefCell::default(),
        scratch: RefCell::new(BytesMut::with_capacity(READ_BYTES)),
        dirty: Notify::new(),
        due: Notify::new(),
        timer_idle: Cell::new(false),
        connections,
        setup,
        remotes: RefCell::default(),
        refused: RefCell::default(),
        upstreams: RefCell::default(),
    });
    tokio::task::spawn_local(Rc::clone(&core).flush_when_dirty());
    tokio::task::spawn_local(Rc::clone(&core).tick());
    core.after_input();
    while let Some(command) = inbox.recv().await {
        match command {
            Command::Accept(socket, kind) => core.accept(socket, kind),
            Command::Refresh => {
                let view = core.setup.view.load_full();
                core.dispatcher.borrow_mut().set_view(view);
                core.after_input();
            }
            Command::Reopen(peer) => core.reopen(peer),
            Command::Counters(reply) => {
                let dispatcher = core.dispatcher.borrow();
                let mut counters = dispatcher.counters().clone();
                counters.in_flight = dispatcher.in_flight() as u64;
                let _ = reply.send(counters);
            }
            Command::Stop => return,
            Command::Drain(reply) => {
                tokio::task::spawn_local(Rc::clone(&core).drained(reply));
            }
        }
    }
}

impl Core {
    /// What every entry into the dispatcher is followed by: events are carried out, and the
    /// flush and timer tasks are woken when they have work.
    pub(super) fn after_input(self: &Rc<Core>) {
        loop {
            let event = self.dispatcher.borrow_mut().poll_event();
            match event {
                Some(event) => self.carry_out(event),
                None => break,
            }
        }
        let mut dispatcher = self.dispatcher.borrow_mut();
        if dispatcher.has_dirty() {
            self.dirty.notify_one();
        }
        while let Some(client) = dispatcher.next_resumable() {
            self.wake(Conn::Client(client));
        }
        if self.timer_idle.get() && dispatcher.in_flight() > 0 {
            self.due.notify_one();
        }
    }

    /// Wakes a connection's own task.
    pub(super) fn wake(&self, conn: Conn) {
        if let Some(waker) = self.ios.borrow().get(&conn).and_then(|io| io.waker.as_ref()) {
            waker.wake_by_ref();
        }
    }

    fn carry_out(self: &Rc<Core>, event: Event) {
        match event {
            Event::Connect { up, target, address } => {
                let task = Rc::clone(self).keep_connected(up, target, address);
                let task = tokio::task::spawn_local(task).abort_handle();
                self.upstreams.borrow_mut().insert(up, Upstream { task, target, open: false });
            }
            Event::Disconnect { up } => {
                let upstream = self.upstreams.borrow_mut().remove(&up);
                self.ios.borrow_mut().remove(&Conn::Upstream(up));
                if let Some(upstream) = upstream {
                    upstream.task.abort();
                    if upstream.open {
                        self.tell_lost(upstream.target, Cause::Closed);
                    }
                }
            }
            Event::Control { from, kind, body } => {
                let from = self.remotes.borrow().get(&from).cloned().unwrap_or_default();
                self.tell(Notice::Control { from, kind, body });
            }
            Event::LinkRefused { from, why } => self.report_refused(from, &why),
            Event::TorcPeer { peer } => {
                self.tell(Notice::TorcPeer(peer));
            }
        }
    }

    /// One warning for each address: a node that is set up wrongly tries again for ever.
    fn report_refused(&self, from: ClientId, why: &LinkRefused) {
        let from = self.remotes.borrow().get(&from).cloned().unwrap_or_default();
        let mut refused = self.refused.borrow_mut();
        if refused.len() < REFUSED_MAX && !refused.contains(&from) {
            tracing::warn!(from, "link refused: {why}");
            refused.insert(from);
        } else {
            tracing::debug!(from, "link refused: {why}");
        }
    }

    /// Fails what is overdue, asks silent peers whether they live, and reopens connections that
    /// were silent for too long.
    async fn tick(self: Rc<Core>) {
        loop {
            let now = self.setup.clock.now();
            let due = self.dispatcher.borrow().poll_timeout(now);
            match due {
                None => {
                    self.timer_idle.set(true);
                    self.due.notified().await;
                    self.timer_idle.set(false);
                }
                Some(at) => {
                    let wait = at.saturating_sub(now.mono_ms()).clamp(1, TICK_MAX_MS);
                    tokio::time::sleep(Duration::from_millis(wait)).await;
                }
            }
            let now = self.setup.clock.now();
            let stalled = self.dispatcher.borrow_mut().on_deadline(now);
            for up in stalled {
                self.lose_upstream(up, Cause::TimedOut);
            }
            self.after_input();
        }
    }

    /// Ends a connection from this side; its task opens it again.
    pub(super) fn lose_upstream(self: &Rc<Core>, up: UpId, cause: Cause) {
        let waker = self.ios.borrow_mut().remove(&Conn::Upstream(up)).and_then(|io| io.waker);
        let now = self.setup.clock.now();
        self.dispatcher.borrow_mut().on_upstream_state(up, false, cause, now);
        if let Some(waker) = waker {
            waker.wake();
        }
        self.after_input();
    }

    fn reopen(self: &Rc<Core>, peer: PeerId) {
        let open = |(_, upstream): &(&UpId, &Upstream)| {
            upstream.open && upstream.target == Target::Peer(peer)
        };
        let ups: Vec<UpId> =
            self.upstreams.borrow().iter().filter(open).map(|(up, _)| *up).collect();
        for up in ups {
            self.lose_upstream(up, Cause::Closed);
        }
    }

    /// Notes that an upstream was connected, and tells the control plane about peers'.
    pub(super) fn note_open(&self, up: UpId) {
        let mut upstreams = self.upstreams.borrow_mut();
        let Some(upstream) = upstreams.get_mut(&up) else { return };
        upstream.open = true;
        match upstream.target {
            Target::Store => self.setup.store_health.opened(self.number),
            Target::Peer(peer) => self.tell(Notice::Link { peer, link: Link::Open }),
        }
    }

    /// The same for one whose connection was lost.
    pub(super) fn note_lost(&self, up: UpId, cause: Cause) {
        let mut upstreams = self.upstreams.borrow_mut();
        let Some(upstream) = upstreams.get_mut(&up).filter(|upstream| upstream.open) else {
            return;
        };
        upstream.open = false;
        self.tell_lost(upstream.target, cause);
    }

    /// The same for an attempt that failed.
    pub(super) fn note_failed(&self, target: Target, error: &io::Error) {
        match target {
            Target::Store => self.setup.store_health.refused(self.number, error),
            Target::Peer(peer) if error.kind() == io::ErrorKind::ConnectionRefused => {
                self.tell(Notice::Link { peer, link: Link::Refused });
            }
            Target::Peer(peer) => self.tell(Notice::Unanswered(peer)),
        }
    }

    fn tell_lost(&self, target: Target, cause: Cause) {
        match target {
            Target::Store => self.setup.store_health.lost(self.number, cause.text()),
            Target::Peer(peer) => self.tell(Notice::Link { peer, link: Link::Lost }),
        }
    }

    fn tell(&self, notice: Notice) {
        // It fails only while the node stops.
        let _ = self.setup.notices.send(notice);
    }

    pub(super) fn note_heard(&self, target: Target) {
        if let Target::Peer(peer) = target {
            self.setup.heard.note(peer, self.setup.clock.now().mono_ms());
        }
    }

    /// True when nothing is in flight and every byte is written.
    fn is_idle(&self) -> bool {
        let dispatcher = self.dispatcher.borrow();
        let written = || self.ios.borrow().values().all(|io| !io.blocked);
        dispatcher.in_flight() == 0 && !dispatcher.has_dirty() && written()
    }

    async fn drained(self: Rc<Core>, reply: oneshot::Sender<()>) {
        loop {
            if self.is_idle() {
                let _ = reply.send(());
                return;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}
