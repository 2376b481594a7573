//! The affinity plane of a node: its domains, and the store's events that feed them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use arc_swap::ArcSwap;
use tokio::sync::watch;
use xxhash_rust::xxh3::xxh3_64;

use crate::affinity::domain::{Domain, DomainError, DomainSpec, Kind};
use crate::affinity::member::{Change, MemberKeys};
use crate::affinity::{Affinity, KEYS_DOMAIN};
use crate::ckf::consumer::LANES;
use crate::ckf::digest::{self, Selection};
use crate::ckf::hashing::HashFormat;
use crate::ckf::identity::{ConsumerInstanceId, IndexerDomainId};
use crate::ckf::producer::Source;
use crate::ckf::ringkey::{KeyProtocol, RING_KEY_BLOCK_SIZE, ring_key_hash};
use crate::config::{self, AffinityMode, Config};
use crate::net::clock::{Clock, wall_ms};
use crate::ring::Topology;
use crate::store::{MemoryStore, PresenceEvent};

/// Presence events kept for each shard of the store; beyond it the shard is listed anew.
pub const EVENTS_MAX: usize = 1024;
/// How often the store's events are taken, milliseconds.
const FOLLOW_EVERY_MS: u64 = 5;

/// The domains of a node and what feeds them.
pub struct AffinityPlane {
    config: config::Affinity,
    about: About,
    /// This node as a holder of keys.
    source: Source,
    clock: Clock,
    domains: ArcSwap<Affinity>,
    catalog: watch::Sender<Arc<Affinity>>,
    /// True while no other node of the own datacenter holds keys this one does not hear of.
    alone: AtomicBool,
}

impl AffinityPlane {
    /// The plane of this node, unless affinity is off.
    pub fn new(
        config: &Config,
        topology: &Topology,
        clock: Clock,
    ) -> Result<Option<AffinityPlane>, DomainError> {
        let own = &config.affinity;
        match own.mode {
            AffinityMode::Off => return Ok(None),
            AffinityMode::Advise => {}
        }
        let token = config.tokens.first().map(ToString::to_string).unwrap_or_default();
        let slot = format!("{}/{}/{token}", config.datacenter, config.rack);
        let worker_id = xxh3_64(slot.as_bytes()).max(1);
        let consumer = ConsumerInstanceId(worker_id);
        let datacenters = datacenters(topology);
        let protocol = match config.data_store {
            config::Protocol::Redis => KeyProtocol::Resp,
            config::Protocol::Memcache => KeyProtocol::Memcache,
        };
        // Any number outsiders do not know will do; the clock is one, mixed with the slot.
        let incarnation = wall_ms().max(1);
        let table_seed = xxh3_64(&[incarnation, worker_id].map(u64::to_le_bytes).concat());
        let about = About { protocol, consumer, table_seed };
        let mut domains = specs(own, about, &datacenters).map(Domain::new);
        let publish = |domain: Result<Domain, DomainError>| -> Result<Arc<Domain>, DomainError> {
            let domain = domain?;
            domain.publish(incarnation)?;
            Ok(Arc::new(domain))
        };
        let Some(keys) = domains.next() else { return Ok(None) };
        let keys = publish(keys)?;
        let blocks = domains.map(publish).collect::<Result<_, _>>()?;
        let domains = Arc::new(Affinity::new(keys, blocks));
        Ok(Some(AffinityPlane {
            config: own.clone(),
            about,
            source: Source { worker_id, dp_rank: 0 },
            clock,
            catalog: watch::Sender::new(Arc::clone(&domains)),
            domains: ArcSwap::new(domains),
            alone: AtomicBool::new(is_alone(topology)),
        }))
    }

    /// The domains now.
    pub fn domains(&self) -> Arc<Affinity> {
        self.domains.load_full()
    }

    /// The domains, told again whenever one of them is published, is not any more, or is another
    /// one; see [`crate::affinity::publication`] for what to do with them.
    pub fn catalog(&self) -> watch::Receiver<Arc<Affinity>> {
        self.catalog.subscribe()
    }

    /// Follows a change of the ring: when datacenters came or went, the lanes are laid out anew
    /// and the producers move over. Gives the domains to use from now on.
    pub fn follow_ring(&self, topology: &Topology) -> Arc<Affinity> {
        self.alone.store(is_alone(topology), Ordering::Relaxed);
        let datacenters = datacenters(topology);
        let current = self.domains();
        if current.keys().spec().datacenters == datacenters {
            return current;
        }
        let moved: Result<Vec<Arc<Domain>>, DomainError> = current
            .domains()
            .zip(specs(&self.config, self.about, &datacenters))
            .map(|(old, spec)| old.move_to(spec).map(Arc::new))
            .collect();
        match moved {
            Ok(mut domains) => {
                let keys = domains.remove(0);
                let next = Arc::new(Affinity::new(keys, domains));
                self.domains.store(Arc::clone(&next));
                self.catalog.send_replace(Arc::clone(&next));
                next
            }
            Err(error) => {
                tracing::error!(%error, "the lanes cannot be laid out for the new ring");
                current
            }
        }
    }

    /// Follows the events of the node's own store until the node stops. Keys that expire unasked
    /// are swept by the control plane.
    pub async fn follow_store(self: Arc<Self>, store: Arc<MemoryStore>) {
        let mut member = MemberKeys::new(store.shards());
        let mut scratch = Scratch::new(self.about.protocol);
        loop {
            tokio::time::sleep(Duration::from_millis(FOLLOW_EVERY_MS)).await;
            for shard in 0..store.shards() {
                scratch.take(&store, shard, self.clock.now().wall_ms, &mut member);
                if !scratch.changes.is_empty() {
                    self.publish(&scratch.changes);
                    scratch.changes.clear();
                    tokio::task::yield_now().await;
                }
            }
            self.publish(&[]);
        }
    }

    /// Tells what changed; without changes this is a sign of life.
    fn publish(&self, changes: &[Change]) {
        let domains = self.domains();
        let now_ms = self.clock.now().mono_ms();
        let alone = self.alone.load(Ordering::Relaxed);
        for domain in domains.domains() {
            let own = if domain.name() == KEYS_DOMAIN { changes } else { &[] };
            domain.set_hears(alone, 1, 1);
            if let Err(error) = domain.apply_changes(self.source, own, now_ms) {
                tracing::warn!(domain = domain.name(), %error, "the filter was not fed");
            }
        }
    }
}

/// Buffers of one look at a shard.
struct Scratch {
    protocol: KeyProtocol,
    events: Vec<PresenceEvent>,
    keys: Vec<Box<[u8]>>,
    changes: Vec<Change>,
}

impl Scratch {
    fn new(protocol: KeyProtocol) -> Scratch {
        Scratch { protocol, events: Vec::new(), keys: Vec::new(), changes: Vec::new() }
    }

    /// Takes the events of one shard and turns them into changes.
    fn take(&mut self, store: &MemoryStore, shard: usize, wall_ms: u64, member: &mut MemberKeys) {
        let protocol = self.protocol;
        let hash = |key: &[u8]| ring_key_hash(protocol, key);
        let lost = store.drain_events(shard as u8, &mut self.events);
        for event in self.events.drain(..) {
            match event {
                PresenceEvent::Appeared(key) => {
                    member.appeared(shard, hash(&key), &mut self.changes);
                }
                PresenceEvent::Went(key) => member.went(shard, hash(&key), &mut self.changes),
                PresenceEvent::Cleared => member.cleared(shard, &mut self.changes),
            }
        }
        if lost {
            self.keys.clear();
            store.shard_keys(shard as u8, wall_ms, &mut self.keys);
            let listed = self.keys.iter().map(|key| hash(key));
            member.reconcile(shard, listed, &mut self.changes);
        }
    }
}

/// What all domains of a node have in common.
#[derive(Clone, Copy)]
struct About {
    protocol: KeyProtocol,
    consumer: ConsumerInstanceId,
    table_seed: u64,
}

/// The shapes of all domains, ring keys first.
fn specs<'a>(
    config: &'a config::Affinity,
    about: About,
    datacenters: &'a [String],
) -> impl Iterator<Item = DomainSpec> + 'a {
    let spec = move |name: &str, kind, expected, semantics: &Selection, scope: &Selection| {
        let (size, format) = match kind {
            Kind::Keys(_) => (RING_KEY_BLOCK_SIZE, HashFormat::Standard),
            Kind::Blocks { block_size, format } => (block_size, format),
        };
        DomainSpec {
            name: name.to_owned(),
            id: IndexerDomainId {
                cache_semantics: digest::cache_semantics(semantics, size, format),
                routing_scope: digest::routing_scope(scope),
            },
            kind,
            datacenters: datacenters.to_vec(),
            expected,
            stale_after_ms: config.stale_after_ms,
            consumer: about.consumer,
            table_seed: about.table_seed,
        }
    };
    let keys = Kind::Keys(about.protocol);
    let keys = spec(KEYS_DOMAIN, keys, config.expected_keys, &config.semantics, &config.scope);
    let blocks = config.domains.iter().map(move |domain| {
        let kind = Kind::Blocks { block_size: domain.block_size, format: domain.hash };
        spec(&domain.name, kind, domain.expected_blocks, &domain.semantics, &domain.scope)
    });
    std::iter::once(keys).chain(blocks)
}

/// The datacenters of the ring, the own one first; as many as there are lanes.
fn datacenters(topology: &Topology) -> Vec<String> {
    let own = topology.local_dc().to_owned();
    let mut others: Vec<String> = topology
        .racks()
        .iter()
        .map(|rack| topology.dc_name(rack.dc_index).to_owned())
        .filter(|dc| *dc != own)
        .collect();
    others.sort_unstable();
    others.dedup();
    if others.len() >= LANES {
        tracing::warn!("{} datacenters, affinity follows {LANES} of them", others.len() + 1);
        others.truncate(LANES - 1);
    }
    std::iter::once(own).chain(others).collect()
}

fn is_alone(topology: &Topology) -> bool {
    let own = topology.local_dc();
    topology.peers().filter(|peer| peer.dc == own).count() == 1
}
