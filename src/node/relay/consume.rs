//! What another relay publishes, put into the lanes of this node's domains.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::mpsc;

use crate::affinity::domain::{Domain, dc_id_of};
use crate::affinity::publication::Delta;
use crate::ckf::bucket::BucketImage;
use crate::ckf::cbi1::Snapshot;
use crate::ckf::digest;
use crate::ckf::identity::PoolId;
use crate::config::Config;
use crate::net::clock::Clock;
use crate::node::affinity::AffinityPlane;
use crate::node::{Order, Shared};
use crate::relay::consumer::{CatalogView, LoadView, ReadinessView};
use crate::relay::descriptor::Descriptor;
use crate::relay::envelope::{RelayId, SUBSCRIBER_ID_BYTES_MAX};
use crate::relay::key::ProducerKey;
use crate::relay_client::{self, Consumer, End, News, Plane, Settings};

/// How often it is asked whether a relay has to be followed.
const LOOK: Duration = Duration::from_millis(200);

/// One relay this node follows.
pub(super) struct Upstream {
    pub(super) address: String,
    plane: Arc<AffinityPlane>,
    clock: Clock,
    orders: mpsc::UnboundedSender<Order>,
    state: Mutex<State>,
}

/// What is known of it.
#[derive(Default)]
pub(super) struct State {
    /// Who it is, while it is connected.
    pub(super) relay: Option<RelayId>,
    pub(super) planes: BTreeMap<Plane, PlaneState>,
    pub(super) catalog: Option<Arc<CatalogView>>,
    pub(super) readiness: Option<Arc<ReadinessView>>,
    pub(super) load: Option<Arc<LoadView>>,
    pub(super) serving_window: Option<u64>,
    pub(super) filters: HashMap<PoolId, FilterState>,
    /// How often planes and filters became void, by reason.
    pub(super) faults: BTreeMap<&'static str, u64>,
}

/// One plane of it.
#[derive(Clone, Debug, Default)]
pub(super) struct PlaneState {
    /// Messages that were news.
    pub(super) messages: u64,
    /// When the last one came.
    pub(super) heard_ms: Option<u64>,
    /// Why it ended the last time, and when it is opened again; none while it is open.
    pub(super) trouble: Option<String>,
}

/// One filter of it.
#[derive(Clone, Debug, Default)]
pub(super) struct FilterState {
    /// In which words it is not followed.
    pub(super) refused: Option<String>,
    pub(super) sequence: Option<u64>,
    pub(super) snapshots: u64,
    pub(super) deltas: u64,
    pub(super) heard_ms: Option<u64>,
    pub(super) trouble: Option<String>,
}

/// How a relay is followed.
pub(super) fn settings(config: &Config, address: String) -> Settings {
    let relay = &config.relay;
    let mut subscriber_id = format!("torc/{}", super::slot(config));
    subscriber_id.retain(|c| !c.is_control());
    while subscriber_id.len() > SUBSCRIBER_ID_BYTES_MAX {
        subscriber_id.pop();
    }
    Settings {
        address,
        subscriber_id,
        max_message_bytes: relay.max_message_bytes.as_usize(),
        keepalive_interval: Duration::from_millis(relay.keepalive_interval_ms),
        keepalive_timeout: Duration::from_millis(relay.keepalive_timeout_ms),
        recovery_attempt_timeout: Duration::from_millis(relay.recovery_attempt_timeout_ms),
    }
}

impl Upstream {
    pub(super) fn new(shared: &Shared, plane: &Arc<AffinityPlane>, address: String) -> Upstream {
        let (plane, clock) = (Arc::clone(plane), shared.clock);
        let orders = shared.orders.clone();
        Upstream { address, plane, clock, orders, state: Mutex::default() }
    }

    /// Whether this node fetches pools of other datacenters for its own. Where another one does,
    /// it passes their filters on, so that a datacenter costs a relay one stream a pool.
    fn is_needed(&self) -> bool {
        self.plane.domains().domains().any(|domain| domain.duties().imports)
    }

    /// Follows the relay for ever, whenever it is needed.
    pub(super) async fn run(self: Arc<Self>, settings: Settings) {
        let until = async |needed: bool| {
            while self.is_needed() != needed {
                tokio::time::sleep(LOOK).await;
            }
        };
        loop {
            until(true).await;
            let consumer = Arc::clone(&self);
            let following = relay_client::follow(settings.clone(), consumer, self.clock);
            tokio::select! {
                // Trying again does not help.
                () = following => return,
                () = until(false) => *self.state() = State::default(),
            }
        }
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn now_ms(&self) -> u64 {
        self.clock.now().mono_ms()
    }

    /// The domain and lane of a pool of another ring.
    fn lane(&self, pool: &PoolId) -> Result<(Arc<Domain>, u8), String> {
        let domains = self.plane.domains();
        let mut found = domains.domains().filter(|d| d.spec().id == pool.indexer_domain);
        let domain = found.next().ok_or("no domain of this node has its identity")?;
        let is_lane = |dc: &String| dc_id_of(dc) == pool.dc_id;
        let lane = domain.spec().datacenters.iter().position(is_lane);
        let lane = lane.ok_or("it has no lane yet, or all lanes are taken")?;
        if !self.plane.is_foreign(&domain.spec().datacenters[lane]) {
            return Err("this ring has that datacenter, and sends its filters itself".into());
        }
        Ok((Arc::clone(domain), lane as u8))
    }

    /// The lane of a generation, if that is what fills it.
    fn filled_lane(&self, key: &ProducerKey) -> Result<(Arc<Domain>, u8), String> {
        let (domain, lane) = self.lane(&key.pool())?;
        match domain.lane_position(lane) {
            Some((identity, _)) if identity == *key.identity() => Ok((domain, lane)),
            Some(_) | None => Err("its lane was laid out anew or is filled by another".into()),
        }
    }

    fn filter(&self, pool: PoolId, change: impl FnOnce(&mut FilterState, u64)) {
        let now_ms = self.now_ms();
        change(self.state().filters.entry(pool).or_default(), now_ms);
    }

    fn heard_plane(&self, plane: Plane, change: impl FnOnce(&mut State)) {
        let now_ms = self.now_ms();
        let mut state = self.state();
        let of_plane = state.planes.entry(plane).or_default();
        of_plane.messages += 1;
        of_plane.heard_ms = Some(now_ms);
        of_plane.trouble = None;
        change(&mut state);
    }

    fn plane_ended(&self, plane: Plane, end: &End, pause_ms: Option<u64>) {
        let address = &self.address;
        let label = plane.label();
        match pause_ms {
            Some(_) => tracing::warn!(address, plane = label, "relay upstream: {end}"),
            None => tracing::error!(address, plane = label, "relay upstream, given up: {end}"),
        }
        let mut state = self.state();
        *state.faults.entry(end.label()).or_default() += 1;
        state.planes.entry(plane).or_default().trouble = Some(trouble(end, pause_ms));
        match plane {
            Plane::Connection => {
                state.relay = None;
                (state.catalog, state.readiness, state.load) = (None, None, None);
                state.serving_window = None;
            }
            Plane::Catalog => state.catalog = None,
            Plane::Readiness => state.readiness = None,
            Plane::Load => state.load = None,
            Plane::ServingLoad => state.serving_window = None,
        }
    }
}

fn trouble(end: &End, pause_ms: Option<u64>) -> String {
    match pause_ms {
        Some(pause_ms) => format!("{end}; opened again after {pause_ms} ms"),
        None => format!("{end}; given up"),
    }
}

/// What a datacenter of another ring is called here: its own name where the relay tells it, else
/// its number.
fn dc_name(pool: &Descriptor) -> String {
    let dc_id = pool.key.pool().dc_id;
    let component = &pool.endpoint.component;
    match digest::dc_id(component) == dc_id {
        true => component.clone(),
        false => format!("#{dc_id}"),
    }
}

impl Consumer for Upstream {
    fn news(&self, news: News) {
        match news {
            News::Connected(relay) => {
                tracing::info!(address = self.address, "relay upstream: connected");
                self.heard_plane(Plane::Connection, |state| state.relay = Some(relay));
            }
            News::Catalog(view) => {
                self.heard_plane(Plane::Catalog, |state| {
                    let pools = &view.pools;
                    let listed = |pool: &PoolId| pools.iter().any(|p| p.key.pool() == *pool);
                    state.filters.retain(|pool, _| listed(pool));
                    state.catalog = Some(Arc::clone(&view));
                });
            }
            News::Readiness(view) => {
                self.heard_plane(Plane::Readiness, |state| state.readiness = Some(view));
            }
            News::Load(view) => self.heard_plane(Plane::Load, |state| state.load = Some(view)),
            News::Serving(view) => self.heard_plane(Plane::ServingLoad, |state| {
                state.serving_window = Some(view.window.sequence);
            }),
            News::PlaneEnded { plane, end, pause_ms } => self.plane_ended(plane, &end, pause_ms),
            News::FilterEnded { key, end, pause_ms } => {
                tracing::warn!(address = self.address, pool = %key.pool(), "relay upstream: {end}");
                *self.state().faults.entry(end.label()).or_default() += 1;
                self.filter(key.pool(), |filter, _| {
                    filter.trouble = Some(trouble(&end, pause_ms));
                });
            }
        }
    }

    fn wants(&self, pool: &Descriptor) -> Result<(), String> {
        let id = pool.key.pool();
        let wanted = || -> Result<(), String> {
            let domains = self.plane.domains();
            let mut found = domains.domains().filter(|d| d.spec().id == id.indexer_domain);
            let domain = found.next().ok_or("no domain of this node has its identity")?;
            let (theirs, ours) = (pool.key.format(), domain.format());
            if *theirs != ours {
                return Err(format!(
                    "its filter has {} buckets and seed {:#x}, this node's have {} and {:#x}: \
                     affinity.expected_keys must be the same everywhere",
                    theirs.bucket_count, theirs.seed, ours.bucket_count, ours.seed
                ));
            }
            if self.lane(&id).is_err() && self.plane.admit_foreign(&dc_name(pool)) {
                // A control plane that is gone makes no room any more.
                let _ = self.orders.send(Order::Republish);
            }
            let duties = domain.duties();
            if !duties.imports {
                return Err(format!("{} follows it for this datacenter", duties.importer));
            }
            self.lane(&id).map(|_| ())
        };
        let wanted = wanted();
        self.filter(id, |filter, _| filter.refused = wanted.as_ref().err().cloned());
        wanted
    }

    fn install(&self, key: &ProducerKey, snapshot: Snapshot) -> Result<(), String> {
        let (domain, lane) = self.lane(&key.pool())?;
        if let Some((other, _)) = domain.lane_position(lane)
            && other.producer_incarnation > key.identity().producer_incarnation
        {
            return Err("its lane follows a later publisher".into());
        }
        let sequence = snapshot.epoch;
        domain
            .install(lane, *key.identity(), sequence, snapshot.words)
            .map_err(|error| error.to_string())?;
        self.filter(key.pool(), |filter, _| {
            (filter.sequence, filter.trouble) = (Some(sequence), None);
            filter.snapshots += 1;
        });
        Ok(())
    }

    fn apply(
        &self,
        key: &ProducerKey,
        sequence: u64,
        images: Vec<BucketImage>,
    ) -> Result<(), String> {
        let (domain, lane) = self.filled_lane(key)?;
        let delta = Delta { base: sequence.saturating_sub(1), sequence, images: images.into() };
        if !domain.apply_relayed(lane, delta) {
            return Err("the lane did not take a change".into());
        }
        self.filter(key.pool(), |filter, _| {
            filter.sequence = Some(sequence);
            filter.deltas += 1;
        });
        Ok(())
    }

    fn heard(&self, key: &ProducerKey) {
        let now_ms = self.now_ms();
        if let Ok((domain, lane)) = self.filled_lane(key)
            && let Some(lane) = domain.lanes().get(lane)
        {
            lane.heard(now_ms);
        }
        self.filter(key.pool(), |filter, now_ms| filter.heard_ms = Some(now_ms));
    }

    fn retire(&self, key: &ProducerKey) {
        if let Ok((domain, lane)) = self.filled_lane(key) {
            domain.drop_lane(lane);
        }
        if let Some(filter) = self.state().filters.get_mut(&key.pool()) {
            filter.sequence = None;
        }
    }
}
