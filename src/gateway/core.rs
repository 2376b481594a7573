//! The parts of a gateway, shared by its requests.

use super::aliases::Aliases;
use super::answers::Answers;
use super::body::Bodies;
use super::catalogue::Catalogue;
use super::client::{Backend, HttpClient, http_client};
use super::counters::Counters;
use super::idempotency::Idempotency;
use super::kv::{RingKv, State};
use super::lanes::Lanes;
use super::migration::Migration;
use super::others::Others;
use super::placement::Placement;
use super::settings::{BackendSettings, Settings};
use super::tasks::Tasks;
use super::time::WallClock;
use super::tls::connector;
use super::tracking::{Dirty, Trackers};
use crate::document::topology::TopologyError;
use arc_swap::ArcSwap;
use std::collections::{BTreeMap, HashSet};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

/// Everything a request needs. One value per gateway.
pub(super) struct Core {
    pub(super) settings: Settings,
    pub(super) clock: WallClock,
    pub(super) state: State,
    pub(super) lanes: Arc<Lanes>,
    pub(super) catalogue: Catalogue,
    pub(super) tasks: Tasks,
    pub(super) aliases: Aliases,
    pub(super) idempotency: Idempotency,
    pub(super) bodies: Bodies,
    pub(super) answers: Arc<Answers>,
    pub(super) counters: Counters,
    pub(super) trackers: Trackers,
    pub(super) dirty: Mutex<Dirty>,
    /// Acknowledged writes each group missed.
    pub(super) degraded: Mutex<BTreeMap<u16, u64>>,
    pub(super) foreign: Mutex<HashSet<(String, String, u32)>>,
    /// Records of missed writes were read once.
    pub(super) learned: AtomicBool,
    placement: ArcSwap<Placement>,
    client: HttpClient,
    turn: AtomicU64,
    misses: AtomicU64,
    pub(super) others: Arc<Others>,
    pub(super) migration: Migration,
}

impl Core {
    pub(super) fn new(
        settings: Settings,
        gateway_id: &str,
        kv: Arc<dyn RingKv>,
        clock: WallClock,
    ) -> Result<Core, TopologyError> {
        let topology = settings.topology()?;
        let client = http_client(connector(settings.node_timeout, &settings.tls_roots));
        let configured: Vec<&BackendSettings> = settings.groups.iter().flatten().collect();
        let find = |id: &String| configured.iter().find(|backend| backend.id == *id);
        let answers = Arc::new(Answers::new(settings.in_flight_bytes_max));
        let backends = topology.backends().iter().filter_map(find).map(|backend| {
            Arc::new(Backend::new(backend, &settings, client.clone(), answers.clone()))
        });
        let backends = backends.collect();
        let state = State::new(kv, &settings.namespace, clock.clone());
        let others = Others::new(gateway_id, settings.own_url.clone(), clock.clone());
        let others = Arc::new(others);
        Ok(Core {
            lanes: Lanes::new(settings.lane_requests_max),
            catalogue: Catalogue::new(state.clone(), clock.clone(), settings.reserved),
            tasks: Tasks::new(&settings, others.clone(), state.clone(), clock.clone()),
            aliases: Aliases::new(state.clone()),
            idempotency: Idempotency::new(state.clone()),
            bodies: Bodies::new(
                settings.body_bytes_max,
                settings.in_flight_bytes_max,
                settings.body_idle_max,
            ),
            answers,
            counters: Counters::default(),
            trackers: Trackers::default(),
            dirty: Mutex::default(),
            degraded: Mutex::default(),
            foreign: Mutex::default(),
            learned: AtomicBool::new(false),
            placement: ArcSwap::from_pointee(Placement::new(topology, backends)),
            client,
            turn: AtomicU64::new(0),
            misses: AtomicU64::new(0),
            others,
            migration: Migration::new(&settings.groups),
            settings,
            clock,
            state,
        })
    }

    /// The placement now. A request takes it once.
    pub(super) fn placement(&self) -> Arc<Placement> {
        self.placement.load_full()
    }

    pub(super) fn set_placement(&self, placement: Placement) {
        self.placement.store(Arc::new(placement));
    }

    /// The next number of the counter that spreads single reads over groups and replicas.
    pub(super) fn next_turn(&self) -> u64 {
        self.turn.fetch_add(1, Ordering::Relaxed)
    }

    /// A number for each missed write, to tell a repaired miss from a later one.
    pub(super) fn next_miss(&self) -> u64 {
        self.misses.fetch_add(1, Ordering::Relaxed)
    }

    /// The connections to backends and gateways.
    pub(super) fn http_client(&self) -> &HttpClient {
        &self.client
    }

    /// A client for a backend that is not configured yet.
    pub(super) fn new_backend(&self, settings: &BackendSettings) -> Arc<Backend> {
        let (client, answers) = (self.client.clone(), self.answers.clone());
        Arc::new(Backend::new(settings, &self.settings, client, answers))
    }
}
