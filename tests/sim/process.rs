//! Processes that crash, freeze and come back, and hosts that do not reach each other.

use std::sync::Arc;

use torc::store::{MemoryStore, StoreSettings};

use super::network::{End, LinkId, Side};
use super::node::{dispatcher, embedded_settings};
use super::world::{Task, World};

impl World {
    /// Kills a node's process. Its store lives on, unless it is the embedded one.
    pub(crate) fn crash(&mut self, n: usize) {
        self.note(|| format!("n{} crashes", n + 1));
        let node = &mut self.nodes[n];
        node.up = false;
        node.frozen = false;
        node.epoch += 1;
        node.wake_at_us = None;
        node.clients.clear();
        node.roll_calls.clear();
        node.upstreams.clear();
        if node.embedded.is_some() {
            node.embedded = Some(Arc::new(MemoryStore::new(embedded_settings())));
        }
        node.dispatcher = dispatcher(&node.view, &node.embedded);
        for (link, side) in self.net.ends_of(n) {
            self.close(link, side);
        }
        self.stop_member(n);
        self.stop_plane(n);
        self.refresh_health();
    }

    /// Starts a crashed node again, with the present table.
    pub(crate) fn restart(&mut self, n: usize) {
        self.note(|| format!("n{} starts", n + 1));
        self.start_plane(n);
        let view = self.config.view(&self.table, n);
        let view = Arc::new(self.with_affinity(n, view));
        let node = &mut self.nodes[n];
        node.dispatcher = dispatcher(&view, &node.embedded);
        node.view = view;
        node.up = true;
        self.pump(n);
        self.start_member(n);
        self.refresh_health();
    }

    /// Stops a node in its tracks; its system still accepts and takes bytes.
    pub(crate) fn freeze(&mut self, n: usize) {
        self.note(|| format!("n{} freezes", n + 1));
        self.nodes[n].frozen = true;
        self.refresh_health();
    }

    /// Lets a frozen node go on.
    pub(crate) fn thaw(&mut self, n: usize) {
        self.note(|| format!("n{} thaws", n + 1));
        self.nodes[n].frozen = false;
        self.nodes[n].wake_at_us = None;
        for (link, side) in self.net.ends_of(n) {
            if let End::Backlog { kind, .. } = self.net.links[link].ends[side] {
                self.accept_backlog(n, link, kind);
            }
            self.arrived(link, side);
            self.write_again(link, side);
        }
        self.pump(n);
        self.refresh_health();
    }

    /// Kills a node's store; with `keep`, its data is there again when it is started.
    pub(crate) fn crash_store(&mut self, n: usize, keep: bool) {
        self.note(|| format!("the store of n{} crashes", n + 1));
        let store = &mut self.stores[n];
        store.up = false;
        store.frozen = false;
        if !keep {
            store.data = MemoryStore::new(StoreSettings::default());
        }
        for link in std::mem::take(&mut store.conns).into_keys() {
            self.close(link, 1);
        }
        self.refresh_health();
    }

    pub(crate) fn start_store(&mut self, n: usize) {
        self.stores[n].up = true;
        self.refresh_health();
    }

    pub(crate) fn freeze_store(&mut self, n: usize) {
        self.note(|| format!("the store of n{} freezes", n + 1));
        self.stores[n].frozen = true;
        self.refresh_health();
    }

    pub(crate) fn thaw_store(&mut self, n: usize) {
        self.note(|| format!("the store of n{} thaws", n + 1));
        self.stores[n].frozen = false;
        let links: Vec<LinkId> = self.stores[n].conns.keys().copied().collect();
        for link in links {
            self.arrived(link, 1);
        }
        self.refresh_health();
    }

    /// Stops all bytes from one node to another.
    pub(crate) fn cut_off(&mut self, from: usize, to: usize) {
        self.note(|| format!("n{} does not reach n{}", from + 1, to + 1));
        self.net.cut_off(from, to);
        self.refresh_health();
    }

    /// Ends a partition in one direction.
    pub(crate) fn join(&mut self, from: usize, to: usize) {
        self.note(|| format!("n{} reaches n{} again", from + 1, to + 1));
        for (link, side) in self.net.join(from, to) {
            self.plan(self.now_us, Task::Deliver { link, side });
        }
        self.refresh_health();
    }

    /// Breaks the connections one node holds to another (or to its own store), after `bytes`
    /// more bytes in the given direction.
    pub(crate) fn cut_links(&mut self, from: usize, to: usize, side: Side, bytes: usize) {
        let links: Vec<LinkId> = self.nodes[from]
            .upstreams
            .values()
            .filter(|wanted| wanted.host == to)
            .filter_map(|wanted| wanted.port.as_ref().map(|port| port.link))
            .collect();
        for link in links {
            self.net.cut_after(link, side, bytes);
        }
    }
}
