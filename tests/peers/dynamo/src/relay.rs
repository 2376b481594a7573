//! A relay around the crate's producer.

use std::pin::Pin;
use std::sync::{Arc, Mutex};

use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio_stream::wrappers::{TcpListenerStream, UnboundedReceiverStream};
use tokio_stream::{Stream, StreamExt};
use tonic::{Request, Response, Status};

use crate::producer::Producer;
use crate::proto::kv_event_relay_server::{KvEventRelay, KvEventRelayServer};
use crate::proto::{self, FilterUpdateKind};
use crate::{BLOCK_SIZE, MARKER};

/// One life of this relay.
const RELAY: proto::RelayIdentity =
    proto::RelayIdentity { drt_instance_id: 3, relay_incarnation: 4 };

/// A relay of one pool.
#[derive(Clone)]
pub struct Relay {
    wire: proto::ProducerIdentity,
    producer: Arc<Mutex<Producer>>,
}

/// A frame of a pool without payload.
pub fn frame(
    wire: &proto::ProducerIdentity,
    base_sequence: u64,
    sequence: u64,
    kind: FilterUpdateKind,
) -> proto::FilterUpdate {
    proto::FilterUpdate {
        protocol_version: 1,
        relay: Some(RELAY),
        producer: Some(wire.clone()),
        base_sequence,
        sequence,
        send_ts_us: 0,
        kind: kind.into(),
        payload: Default::default(),
        contract_marker: MARKER,
    }
}

impl Relay {
    /// Serves a pool on a free port for as long as the runtime lives; gives the address.
    pub async fn serve(
        wire: proto::ProducerIdentity,
        producer: Arc<Mutex<Producer>>,
    ) -> std::io::Result<String> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?.to_string();
        let service = KvEventRelayServer::new(Relay { wire, producer });
        let server = tonic::transport::Server::builder().add_service(service);
        tokio::spawn(server.serve_with_incoming(TcpListenerStream::new(listener)));
        Ok(address)
    }

    fn catalog(&self) -> proto::KvPoolCatalogUpdate {
        let text = |text: &str| text.to_owned();
        let target = proto::model_target::Target::Base(proto::BaseModelTarget {
            base_model: text("meta/llama"),
        });
        let pool = proto::KvPoolDescriptor {
            producer: Some(self.wire.clone()),
            serving_endpoint: Some(proto::DynamoEndpointId {
                namespace: text("prod"),
                component: text("router"),
                endpoint: text("generate"),
            }),
            registrations: vec![proto::ModelRegistration {
                canonical_model_id: text("meta/llama"),
                target: Some(proto::ModelTarget { target: Some(target) }),
                aliases: Vec::new(),
            }],
            query_semantics: Some(proto::KvQuerySemantics {
                kv_block_size: BLOCK_SIZE,
                hash_format: proto::KvQueryHashFormat::DynamoStandardV1.into(),
            }),
            pool_roles: vec![proto::WorkerRole::Aggregated.into()],
        };
        proto::KvPoolCatalogUpdate {
            protocol_version: 1,
            relay: Some(RELAY),
            revision: 1,
            snapshot: Some(proto::KvPoolCatalogSnapshot { pools: vec![pool] }),
            contract_marker: MARKER,
        }
    }
}

type Says<M> = Pin<Box<dyn Stream<Item = Result<M, Status>> + Send>>;

/// One message, then silence.
fn once<M: Send + 'static>(message: M) -> Says<M> {
    Box::pin(tokio_stream::once(Ok(message)).chain(tokio_stream::pending()))
}

#[tonic::async_trait]
impl KvEventRelay for Relay {
    type WatchKvPoolCatalogStream = Says<proto::KvPoolCatalogUpdate>;
    type SubscribeKvPoolStream = Says<proto::FilterUpdate>;
    type SubscribeServingReadinessStream = Says<proto::ServingReadinessUpdate>;
    type SubscribeKvPoolLoadStream = Says<proto::KvPoolLoadUpdate>;
    type SubscribeServingLoadStream = Says<proto::ServingLoadUpdate>;

    async fn get_relay_info(
        &self,
        request: Request<proto::RelayInfoRequest>,
    ) -> Result<Response<proto::RelayInfo>, Status> {
        assert_eq!(request.get_ref().contract_marker, MARKER);
        Ok(Response::new(proto::RelayInfo {
            protocol_version: 1,
            relay: Some(RELAY),
            contract_marker: MARKER,
        }))
    }

    async fn watch_kv_pool_catalog(
        &self,
        _: Request<proto::WatchKvPoolCatalogRequest>,
    ) -> Result<Response<Self::WatchKvPoolCatalogStream>, Status> {
        Ok(Response::new(once(self.catalog())))
    }

    async fn subscribe_kv_pool(
        &self,
        request: Request<proto::SubscribeKvPoolRequest>,
    ) -> Result<Response<Self::SubscribeKvPoolStream>, Status> {
        assert_eq!(request.get_ref().expected_producer.as_ref(), Some(&self.wire));
        let (to, messages) = mpsc::unbounded_channel();
        self.producer.lock().expect("nobody panics").subscribe(to);
        Ok(Response::new(Box::pin(UnboundedReceiverStream::new(messages))))
    }

    async fn subscribe_serving_readiness(
        &self,
        _: Request<proto::SubscribeServingReadinessRequest>,
    ) -> Result<Response<Self::SubscribeServingReadinessStream>, Status> {
        Ok(Response::new(Box::pin(tokio_stream::pending())))
    }

    async fn subscribe_kv_pool_load(
        &self,
        _: Request<proto::SubscribeKvPoolLoadRequest>,
    ) -> Result<Response<Self::SubscribeKvPoolLoadStream>, Status> {
        Ok(Response::new(Box::pin(tokio_stream::pending())))
    }

    async fn subscribe_serving_load(
        &self,
        _: Request<proto::SubscribeServingLoadRequest>,
    ) -> Result<Response<Self::SubscribeServingLoadStream>, Status> {
        // As the published relay of that version.
        Err(Status::unimplemented("no serving load"))
    }
}
