//! The six calls.

use std::sync::Arc;
use std::time::Duration;

use tonic::{Request, Response, Status};

use super::Relay;
use super::admission::{Refusal, admit, admit_pool};
use super::counters::{StreamKind, add};
use super::grpc::kv_event_relay_server::KvEventRelay;
use super::pools::NoHub;
use super::streams::{FilterStream, Responses, snapshots, windows};
use crate::relay::envelope::{CONTRACT_MARKER, PROTOCOL_VERSION, check_request};
use crate::relay::proto;
use crate::relay::queue::QueueLimits;
use crate::relay::reason::Reason;

/// The calls of one relay.
pub(super) struct Service(pub(super) Arc<Relay>);

type Answer<M> = Result<Response<Responses<M>>, Status>;

impl Service {
    fn refuse(&self, kind: StreamKind, refusal: Refusal) -> Status {
        self.0.counters.ended(kind, refusal.reason);
        refusal.status()
    }

    /// Admission to a filter's stream, in the contract's order from the catalog on.
    async fn subscribe_pool(
        &self,
        request: proto::SubscribeKvPoolRequest,
    ) -> Result<Responses<proto::FilterUpdate>, Refusal> {
        let relay = &self.0;
        let (place, key) = admit_pool(relay, &request)?;
        let generation = relay
            .pools
            .get(&key.pool())
            .ok_or_else(|| Refusal::new(Reason::PoolNotFound, "the pool is not in the catalog"))?;
        let changed =
            || Refusal::new(Reason::ProducerChanged, "the pool is live under another generation");
        if generation.key != key {
            return Err(changed());
        }
        let gone = || {
            let text = "the generation was withdrawn";
            Refusal::new(Reason::PublicationUnavailable, text)
        };
        let mut closing = relay.closing.subscribe();
        let permit = tokio::select! {
            biased;
            () = generation.until_retired() => return Err(gone()),
            _ = closing.wait_for(|closing| *closing) => return Err(gone()),
            permit = Arc::clone(&relay.permits.snapshots).acquire_owned() => permit,
        };
        // The semaphore is never closed.
        let permit = permit.map_err(|_| gone())?;
        let hub = relay.pools.hub(relay, &generation).map_err(|no_hub| match no_hub {
            NoHub::AllInUse => {
                Refusal::new(Reason::ResourceLimit, "no more filters can be mirrored")
            }
            NoHub::Gone => gone(),
            NoHub::Replaced => changed(),
            NoHub::Broken(error) => {
                relay.fence(key.identity(), &error.to_string());
                Refusal::new(Reason::InvalidPublication, "the filter cannot be mirrored")
            }
        })?;
        if relay.pools.get(&key.pool()).is_none_or(|live| live.key != key) {
            return Err(changed());
        }
        let limits = QueueLimits {
            frames: relay.limits.publication_queue_capacity,
            bytes: relay.limits.publication_queue_bytes.as_usize(),
        };
        let (cut, subscription) = hub.subscribe(limits, relay.limits.max_subscribers_per_pool)?;
        add(&relay.counters.snapshots, 1);
        let encoder = Arc::clone(&subscription);
        let patience = Duration::from_millis(relay.limits.snapshot_progress_timeout_ms);
        tokio::spawn(async move {
            encoder.send_snapshot(cut, patience).await;
            drop(permit);
        });
        let heartbeat_ms = relay.limits.pool_heartbeat_interval_ms;
        Ok(FilterStream { place, key, subscription, heartbeat_ms }.responses())
    }
}

#[tonic::async_trait]
impl KvEventRelay for Service {
    type WatchKvPoolCatalogStream = Responses<proto::KvPoolCatalogUpdate>;
    type SubscribeKvPoolStream = Responses<proto::FilterUpdate>;
    type SubscribeServingReadinessStream = Responses<proto::ServingReadinessUpdate>;
    type SubscribeKvPoolLoadStream = Responses<proto::KvPoolLoadUpdate>;
    type SubscribeServingLoadStream = Responses<proto::ServingLoadUpdate>;

    async fn get_relay_info(
        &self,
        request: Request<proto::RelayInfoRequest>,
    ) -> Result<Response<proto::RelayInfo>, Status> {
        check_request(request.get_ref()).map_err(|fault| Refusal::from(fault).status())?;
        Ok(Response::new(proto::RelayInfo {
            protocol_version: PROTOCOL_VERSION,
            relay: Some(self.0.id.into()),
            contract_marker: CONTRACT_MARKER,
        }))
    }

    async fn watch_kv_pool_catalog(
        &self,
        request: Request<proto::WatchKvPoolCatalogRequest>,
    ) -> Answer<proto::KvPoolCatalogUpdate> {
        let kind = StreamKind::Catalog;
        let place = admit(&self.0, kind, request.get_ref());
        let place = place.map_err(|refusal| self.refuse(kind, refusal))?;
        let repeat_ms = self.0.limits.catalog_heartbeat_interval_ms;
        Ok(Response::new(snapshots(place, self.0.catalog_now.subscribe(), repeat_ms)))
    }

    async fn subscribe_kv_pool(
        &self,
        request: Request<proto::SubscribeKvPoolRequest>,
    ) -> Answer<proto::FilterUpdate> {
        let stream = self.subscribe_pool(request.into_inner()).await;
        stream.map(Response::new).map_err(|refusal| self.refuse(StreamKind::Pool, refusal))
    }

    async fn subscribe_serving_readiness(
        &self,
        request: Request<proto::SubscribeServingReadinessRequest>,
    ) -> Answer<proto::ServingReadinessUpdate> {
        let kind = StreamKind::Readiness;
        let place = admit(&self.0, kind, request.get_ref());
        let place = place.map_err(|refusal| self.refuse(kind, refusal))?;
        let repeat_ms = self.0.limits.readiness_heartbeat_interval_ms;
        Ok(Response::new(snapshots(place, self.0.readiness_now.subscribe(), repeat_ms)))
    }

    async fn subscribe_kv_pool_load(
        &self,
        request: Request<proto::SubscribeKvPoolLoadRequest>,
    ) -> Answer<proto::KvPoolLoadUpdate> {
        let kind = StreamKind::Load;
        let place = admit(&self.0, kind, request.get_ref());
        let place = place.map_err(|refusal| self.refuse(kind, refusal))?;
        Ok(Response::new(windows(place, self.0.load.subscribe())))
    }

    async fn subscribe_serving_load(
        &self,
        request: Request<proto::SubscribeServingLoadRequest>,
    ) -> Answer<proto::ServingLoadUpdate> {
        let kind = StreamKind::ServingLoad;
        let place = admit(&self.0, kind, request.get_ref());
        let place = place.map_err(|refusal| self.refuse(kind, refusal))?;
        Ok(Response::new(windows(place, self.0.serving.subscribe())))
    }
}
