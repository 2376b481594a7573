//! The task that keeps a node's domains: it drives the mesh, follows the store and speaks to
//! other nodes. Only it changes the exact state, save that workers apply what engines tell them.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;

use super::holdings::Holdings;
use super::notices::{Line, Watch};
use super::{AffinityPlane, RedisStore, Told};
use crate::affinity::mesh::{Mesh, MeshSettings, MeshTime, PlaneReport};
use crate::affinity::places::Places;
use crate::net::control_link::ControlLinks;
use crate::node::Order;
use crate::proto::dnode::control::ControlSeal;
use crate::store::{Follower, MemoryStore};

/// How often the store's events are taken, milliseconds.
const FOLLOW_EVERY_MS: u64 = 5;
/// How often the figures are told, milliseconds.
const REPORT_EVERY_MS: u64 = 500;
/// Messages taken before the mesh is driven again.
const MESSAGES_AT_ONCE: usize = 256;

/// What the task is given besides the plane.
pub struct Following {
    /// Its own links to other nodes: a filter must not stand before gossip.
    pub links: ControlLinks,
    /// The ring at the start.
    pub places: Places,
    /// Envelope of its messages.
    pub seal: ControlSeal,
    /// The embedded store, when the node has one.
    pub store: Option<Arc<MemoryStore>>,
    /// The most it may hold, bytes; 0 for no limit.
    pub store_bytes_max: u64,
    /// The datastore, when it has not.
    pub redis: Option<RedisStore>,
    /// Asks the control plane to publish the ring anew.
    pub orders: mpsc::UnboundedSender<Order>,
}

struct Task {
    plane: Arc<AffinityPlane>,
    mesh: Mesh,
    links: ControlLinks,
    follower: Option<Follower>,
    store_bytes_max: u64,
    orders: mpsc::UnboundedSender<Order>,
    /// Makes the datastore be listed again.
    rescan: mpsc::Sender<()>,
    holdings: Holdings,
    report_at_ms: u64,
    /// Publications as last told: identity and whether complete.
    told: Vec<Option<(u64, bool)>>,
    watch: Watch,
}

impl AffinityPlane {
    /// Keeps the domains until the node stops.
    pub async fn run(self: Arc<Self>, following: Following) {
        let Some(inbox) = self.take_inbox() else { return };
        let store = following.store;
        let protocol = self.about.protocol;
        let follower = store.map(|store| Follower::new(store, protocol));
        let shards = follower.as_ref().map_or(1, Follower::shards);
        let settings = MeshSettings {
            seal: following.seal,
            pinned: self.config.publisher.clone(),
            source: self.source,
            rng_seed: self.about.table_seed,
        };
        let mut mesh = Mesh::new(settings, &self.domains(), shards, now(&self));
        mesh.set_places(following.places);
        let (rescan, rescans) = mpsc::channel(1);
        let redis = following
            .redis
            .map(|store| tokio::spawn(store.follow(self.told.clone(), rescans)).abort_handle());
        // It ends with this task.
        let _redis = AbortOnDrop(redis);
        let task = Task {
            plane: self,
            mesh,
            links: following.links,
            follower,
            store_bytes_max: following.store_bytes_max,
            orders: following.orders,
            rescan,
            holdings: Holdings::default(),
            report_at_ms: 0,
            told: Vec::new(),
            watch: Watch::default(),
        };
        task.run(inbox).await;
    }
}

/// Ends a task that must not outlive another.
struct AbortOnDrop(Option<tokio::task::AbortHandle>);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        if let Some(task) = &self.0 {
            task.abort();
        }
    }
}

fn now(plane: &AffinityPlane) -> MeshTime {
    let now = plane.clock.now();
    MeshTime { mono_ms: now.mono_ms(), wall_ms: now.wall_ms() }
}

impl Task {
    async fn run(mut self, mut inbox: mpsc::Receiver<Told>) {
        let mut tick = tokio::time::interval(Duration::from_millis(FOLLOW_EVERY_MS));
        tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                _ = tick.tick() => {}
                told = inbox.recv() => match told {
                    Some(told) => self.take(told),
                    None => return,
                },
            }
            for _ in 0..MESSAGES_AT_ONCE {
                let Ok(told) = inbox.try_recv() else { break };
                self.take(told);
            }
            self.follow_ring();
            self.admit_abroad();
            self.follow_store().await;
            self.mesh.handle_timeout(now(&self.plane));
            self.send();
            self.tell();
        }
    }

    fn follow_ring(&mut self) {
        let Some((places, affinity)) = self.plane.take_ring() else { return };
        if self.mesh.keys_domain().is_none_or(|keys| !Arc::ptr_eq(keys, affinity.keys())) {
            self.mesh.set_domains(&affinity);
        }
        self.mesh.set_places(places);
    }

    /// Makes room for datacenters of other rings that another node follows for this one.
    fn admit_abroad(&mut self) {
        for dc in self.mesh.take_abroad() {
            if self.plane.foreign.admit(&dc) {
                // A control plane that is gone makes no room any more.
                let _ = self.orders.send(Order::Republish);
            }
        }
    }

    fn take(&mut self, told: Told) {
        match told {
            Told::Store(news) => {
                if self.holdings.take(news, &mut self.mesh, now(&self.plane)) {
                    // One that is wanted already will do.
                    let _ = self.rescan.try_send(());
                }
            }
            Told::Message(kind, bytes) => {
                self.mesh.handle_message(kind, &bytes, now(&self.plane));
                self.send();
            }
            Told::Rebuild(done) => {
                // Nobody awaits it any more when sending fails.
                let _ = done.send(self.mesh.rebuild(now(&self.plane)));
            }
        }
    }

    /// Takes the store's events. Keys that expire unasked are swept by the control plane.
    async fn follow_store(&mut self) {
        let Some(follower) = &mut self.follower else { return };
        let mut changes = Vec::new();
        for shard in 0..follower.shards() {
            let now = now(&self.plane);
            follower.take(shard, now.wall_ms, self.mesh.member(), &mut changes);
            if !changes.is_empty() {
                self.mesh.changed(&changes, now);
                changes.clear();
                tokio::task::yield_now().await;
            }
        }
        self.mesh.set_sure(true);
    }

    fn send(&mut self) {
        while let Some(transmit) = self.mesh.poll_transmit() {
            let same_rack = self.mesh.is_same_rack(&transmit);
            self.links.send(transmit, same_rack);
        }
    }

    /// Tells figures now and then, and followers of the catalog when publications change.
    fn tell(&mut self) {
        let now_ms = now(&self.plane).mono_ms;
        if now_ms < self.report_at_ms {
            return;
        }
        self.report_at_ms = now_ms + REPORT_EVERY_MS;
        if let Some(follower) = &self.follower {
            self.mesh.set_load(Some(follower.load(self.store_bytes_max)));
        }
        self.plane.set_report(PlaneReport {
            mesh: self.mesh.counters(),
            dropped: self.links.dropped,
            held: self.mesh.held() as u64,
            sure: self.mesh.is_sure(),
            following: match &self.follower {
                None => self.holdings.following(),
                Some(follower) => follower.following(),
            },
        });
        let domains = self.plane.domains();
        for line in self.watch.look(&domains, now_ms) {
            match line {
                Line::Well(line) => tracing::info!("affinity: {line}"),
                Line::Trouble(line) => tracing::warn!("affinity: {line}"),
            }
        }
        let publications = domains.domains().map(|domain| domain.publication());
        let told = publications
            .map(|publication| publication.map(|p| (p.identity.producer_incarnation, p.complete)))
            .collect();
        if told != self.told {
            self.told = told;
            self.plane.tell_catalog();
        }
    }
}
