//! What all tasks of a worker share: its dispatcher, its connections, and what it tells others.

use std::cell::{Cell, RefCell};
use std::collections::{HashMap, HashSet};
use std::future::Future;
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use bytes::BytesMut;
use tokio::sync::{Notify, oneshot};
use tokio::task::AbortHandle;

use super::io::Ios;
use super::panics::caught;
use super::read::{KEPT_BYTES, READ_BYTES};
use super::worker::{Connections, Notice, Setup};
use crate::dispatch::failure::Cause;
use crate::dispatch::{ClientId, ClientKind, Conn, Dispatcher, Event, LinkRefused, Target, UpId};
use crate::gossip::Link;
use crate::ring::PeerId;

/// Addresses of refused links that are remembered, each for one warning.
const REFUSED_MAX: usize = 64;

/// The longest a worker sleeps while something is due.
const TICK_MAX_MS: u64 = 250;

/// Peers that ask on although they were told that the node goes away are heard for so long.
const PEERS_ASK_ON: Duration = Duration::from_secs(1);

/// What all tasks of a worker share. Single-threaded, so cells suffice.
pub(super) struct Core {
    pub(super) number: usize,
    pub(super) dispatcher: RefCell<Dispatcher>,
    pub(super) ios: RefCell<Ios>,
    pub(super) scratch: RefCell<BytesMut>,
    /// Small buffers that are not in use.
    pub(super) kept: RefCell<Vec<BytesMut>>,
    pub(super) dirty: Notify,
    pub(super) due: Notify,
    timer_idle: Cell<bool>,
    /// A panic passed through the dispatcher: it is not to be used any more.
    pub(super) broken: Cell<bool>,
    /// Told when that happens.
    pub(super) broke: Notify,
    pub(super) connections: Arc<Connections>,
    pub(super) setup: Setup,
    /// Where incoming peer links come from.
    pub(super) remotes: RefCell<HashMap<ClientId, String>>,
    /// Where links came from that were refused.
    refused: RefCell<HashSet<String>>,
    pub(super) upstreams: RefCell<HashMap<UpId, Upstream>>,
    /// The tasks that belong to no connection.
    pub(super) own_tasks: RefCell<Vec<AbortHandle>>,
    /// Whose requests are not read any more.
    unread: Cell<Unread>,
}

/// Whose requests a worker leaves unread, because it is to stop: they are not executed, so nobody
/// lacks an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Unread {
    /// It does not stop.
    Nobodys,
    /// Peers have been told that the node goes away, and send what is on its way.
    Clients,
    Everybodys,
}

/// The task that keeps one upstream connected.
pub(super) struct Upstream {
    pub(super) task: AbortHandle,
    pub(super) target: Target,
    pub(super) open: bool,
    /// Ends the pause before the next attempt.
    hurry: Rc<Notify>,
}

impl Core {
    /// A worker's shared state, with its own tasks running. In a local set.
    pub(super) fn start(number: usize, setup: Setup, connections: Arc<Connections>) -> Rc<Core> {
        Core::start_after(None, number, setup, connections)
    }

    /// The same, with the figures of `old`.
    pub(super) fn start_after(
        old: Option<&Dispatcher>,
        number: usize,
        setup: Setup,
        connections: Arc<Connections>,
    ) -> Rc<Core> {
        let view = setup.view.load_full();
        let idle_timeout_ms = setup.idle_timeout_ms;
        let mut dispatcher = Dispatcher::new(number as u64, view, setup.embedded.clone());
        dispatcher.share_scripts(Arc::clone(&setup.scripts));
        dispatcher.share_clock(Arc::clone(&setup.stamps));
        dispatcher.has_siblings();
        if let Some(security) = &setup.security {
            dispatcher.secure_links(security.for_dispatcher());
        }
        if let Some(old) = old {
            dispatcher.succeed(old);
        }
        let core = Rc::new(Core {
            number,
            dispatcher: RefCell::new(dispatcher),
            ios: RefCell::default(),
            scratch: RefCell::new(BytesMut::with_capacity(KEPT_BYTES + READ_BYTES)),
            kept: RefCell::default(),
            dirty: Notify::new(),
            due: Notify::new(),
            timer_idle: Cell::new(false),
            broken: Cell::new(false),
            broke: Notify::new(),
            connections,
            setup,
            remotes: RefCell::default(),
            refused: RefCell::default(),
            upstreams: RefCell::default(),
            own_tasks: RefCell::default(),
            unread: Cell::new(Unread::Nobodys),
        });
        core.run_own(Rc::clone(&core).flush_when_dirty());
        core.run_own(Rc::clone(&core).tick());
        core.run_own(Rc::clone(&core).retry_woken());
        if idle_timeout_ms > 0 {
            core.run_own(Rc::clone(&core).close_idle(idle_timeout_ms));
        }
        core.after_input();
        core
    }

    /// Runs a task without which the worker does not work.
    fn run_own(self: &Rc<Core>, work: impl Future<Output = ()> + 'static) {
        let core = Rc::clone(self);
        let task = tokio::task::spawn_local(async move {
            if caught(work).await.is_none() {
                core.give_up();
            }
        });
        self.own_tasks.borrow_mut().push(task.abort_handle());
    }

    /// What every entry into the dispatcher is followed by: events are carried out, and the
    /// flush and timer tasks are woken when they have work.
    pub(super) fn after_input(self: &Rc<Core>) {
        if self.is_broken() {
            return;
        }
        loop {
            let event = self.enter().poll_event();
            match event {
                Some(event) => self.carry_out(event),
                None => break,
            }
        }
        let mut dispatcher = self.enter();
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

    /// Bytes came on a connection, and `kept` of them wait for more. False when it is to be
    /// closed, because all buffers together are too large and its own are the largest.
    pub(super) fn note_input(&self, conn: Conn, kept: usize) -> bool {
        let mut ios = self.ios.borrow_mut();
        let Some(io) = ios.get_mut(conn) else { return false };
        if self.setup.idle_timeout_ms > 0 {
            io.heard_ms = self.setup.clock.now().mono_ms();
        }
        io.note_input(kept);
        !io.share.is_taken()
    }

    /// Wakes a connection's own task.
    pub(super) fn wake(&self, conn: Conn) {
        if let Some(waker) = self.ios.borrow().get(conn).and_then(|io| io.waker.as_ref()) {
            waker.wake_by_ref();
        }
    }

    fn carry_out(self: &Rc<Core>, event: Event) {
        match event {
            Event::Connect { up, target, address, once } => {
                let hurry = Rc::new(Notify::new());
                let how = (Rc::clone(&hurry), once);
                let task = Rc::clone(self).hold(up, target, address, how);
                let task = tokio::task::spawn_local(task).abort_handle();
                let upstream = Upstream { task, target, open: false, hurry };
                self.upstreams.borrow_mut().insert(up, upstream);
            }
            Event::HangUp { up } => {
                if let Some(io) = self.ios.borrow_mut().get_mut(Conn::Upstream(up)) {
                    io.write.hang_up();
                }
            }
            Event::Disconnect { up } => {
                let upstream = self.upstreams.borrow_mut().remove(&up);
                self.ios.borrow_mut().remove(Conn::Upstream(up));
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
            Event::Kill { client } => self.cut_off(client),
            Event::RollCall(call) => {
                tokio::task::spawn_local(Rc::clone(self).call_roll(call));
            }
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
            if self.is_broken() {
                return;
            }
            let due = self.look().poll_timeout(now);
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
            let stalled = self.enter().on_deadline(now);
            for up in stalled {
                self.lose_upstream(up, Cause::TimedOut);
            }
            self.after_input();
        }
    }

    /// Ends a connection from this side; its task opens it again.
    pub(super) fn lose_upstream(self: &Rc<Core>, up: UpId, cause: Cause) {
        if self.is_broken() {
            return;
        }
        let waker = self.ios.borrow_mut().remove(Conn::Upstream(up)).and_then(|io| io.waker);
        let now = self.setup.clock.now();
        self.enter().on_upstream_state(up, false, cause, now);
        if let Some(waker) = waker {
            waker.wake();
        }
        self.after_input();
    }

    /// Makes the connections to a peer anew, without a pause.
    pub(super) fn reopen(self: &Rc<Core>, peer: PeerId) {
        let open = |(_, upstream): &(&UpId, &Upstream)| {
            upstream.open && upstream.target == Target::Peer(peer)
        };
        let ups: Vec<UpId> =
            self.upstreams.borrow().iter().filter(open).map(|(up, _)| *up).collect();
        for up in ups {
            self.lose_upstream(up, Cause::Closed);
        }
        self.hurry(peer);
    }

    /// Ends the pauses before the next attempts to reach a peer.
    pub(super) fn hurry(&self, peer: PeerId) {
        for upstream in self.upstreams.borrow().values() {
            if upstream.target == Target::Peer(peer) {
                upstream.hurry.notify_one();
            }
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

    pub(super) fn tell_lost(&self, target: Target, cause: Cause) {
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

    /// True when nothing is in flight and every byte is written. Clients that wait for a key are
    /// not waited for.
    fn is_idle(&self) -> bool {
        let dispatcher = self.look();
        let in_flight = dispatcher.in_flight() - dispatcher.waiting();
        let written = || self.ios.borrow().iter().all(|io| !io.blocked);
        in_flight == 0 && !dispatcher.has_dirty() && written()
    }

    /// Whether requests of such connections are to be read.
    pub(super) fn reads(&self, kind: ClientKind) -> bool {
        match self.unread.get() {
            Unread::Nobodys => true,
            Unread::Clients => kind == ClientKind::Peer,
            Unread::Everybodys => false,
        }
    }

    /// Answers what was asked, and reads no more: first of clients, then of peers too, when
    /// nothing of theirs is in flight, or they go on asking.
    pub(super) async fn drained(self: Rc<Core>, reply: oneshot::Sender<()>) {
        self.unread.set(Unread::Clients);
        let _ = tokio::time::timeout(PEERS_ASK_ON, self.idle()).await;
        self.unread.set(Unread::Everybodys);
        self.idle().await;
        let _ = reply.send(());
    }

    async fn idle(&self) {
        while !self.is_idle() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}
