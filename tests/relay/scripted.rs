//! A relay that says exactly what a test wants it to, right or wrong.

use std::collections::{HashMap, VecDeque};
use std::pin::Pin;
use std::sync::{Arc, Mutex};

use tokio::net::TcpListener;
use tokio::sync::Notify;
use tokio_stream::wrappers::TcpListenerStream;
use tokio_stream::{Stream, StreamExt};
use tonic::{Request, Response, Status};
use torc::relay::envelope::{CONTRACT_MARKER, PROTOCOL_VERSION};
use torc::relay::proto;
use torc::relay_server::grpc::kv_event_relay_server::{KvEventRelay, KvEventRelayServer};

use crate::server::RELAY;

/// What one stream says; after it the stream stays open unless the last item is an error or
/// `ends` is set.
#[derive(Clone)]
pub struct Script<M> {
    pub says: Vec<Result<M, Status>>,
    /// What it says once it is told to go on.
    more: Option<(Arc<Notify>, M)>,
    pub ends: bool,
}

impl<M> Script<M> {
    pub fn stays(says: Vec<M>) -> Script<M> {
        Script { says: says.into_iter().map(Ok).collect(), more: None, ends: false }
    }

    /// Says one more thing when `gate` opens.
    pub fn then(self, gate: &Arc<Notify>, more: M) -> Script<M> {
        Script { more: Some((Arc::clone(gate), more)), ..self }
    }

    pub fn ends(says: Vec<M>) -> Script<M> {
        Script { says: says.into_iter().map(Ok).collect(), more: None, ends: true }
    }

    pub fn fails(status: Status) -> Script<M> {
        Script { says: vec![Err(status)], more: None, ends: true }
    }
}

/// Scripts of the streams, one for each time a stream is opened; the last one is repeated.
#[derive(Default)]
pub struct Scripts {
    pub info: Option<proto::RelayInfo>,
    pub catalog: VecDeque<Script<proto::KvPoolCatalogUpdate>>,
    pub readiness: VecDeque<Script<proto::ServingReadinessUpdate>>,
    pub load: VecDeque<Script<proto::KvPoolLoadUpdate>>,
    pub filter: VecDeque<Script<proto::FilterUpdate>>,
    /// What the filter of a datacenter's pool says instead, whenever it is opened.
    pub filter_of: HashMap<u64, Script<proto::FilterUpdate>>,
    /// A relay without any is older than this plane.
    pub serving: VecDeque<Script<proto::ServingLoadUpdate>>,
    /// How often each was opened: catalog, readiness, load, filter.
    pub opened: [usize; 4],
}

#[derive(Clone, Default)]
pub struct Scripted(pub Arc<Mutex<Scripts>>);

type Says<M> = Pin<Box<dyn Stream<Item = Result<M, Status>> + Send>>;

/// The next script, as a stream; silence without one.
fn play<M: Clone + Send + 'static>(scripts: &mut VecDeque<Script<M>>) -> Says<M> {
    let script = match scripts.len() {
        0 => Script { says: Vec::new(), more: None, ends: false },
        1 => scripts[0].clone(),
        _ => scripts.pop_front().unwrap(),
    };
    let more = script.more;
    let more = futures_util::stream::once(async move {
        let (gate, more) = more?;
        gate.notified().await;
        Some(Ok(more))
    });
    let says = tokio_stream::iter(script.says).chain(more.filter_map(|more| more));
    if script.ends { Box::pin(says) } else { Box::pin(says.chain(tokio_stream::pending())) }
}

impl Scripted {
    /// Serves on a free port for as long as the runtime lives.
    pub async fn serve(&self) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let service = KvEventRelayServer::new(self.clone()).max_encoding_message_size(64 << 20);
        let server = tonic::transport::Server::builder().add_service(service);
        tokio::spawn(server.serve_with_incoming(TcpListenerStream::new(listener)));
        address
    }

    /// A relay with these scripts.
    pub fn with(change: impl FnOnce(&mut Scripts)) -> Scripted {
        let scripted = Scripted::default();
        change(&mut scripted.0.lock().unwrap());
        scripted
    }

    pub fn opened(&self) -> [usize; 4] {
        self.0.lock().unwrap().opened
    }
}

#[tonic::async_trait]
impl KvEventRelay for Scripted {
    type WatchKvPoolCatalogStream = Says<proto::KvPoolCatalogUpdate>;
    type SubscribeKvPoolStream = Says<proto::FilterUpdate>;
    type SubscribeServingReadinessStream = Says<proto::ServingReadinessUpdate>;
    type SubscribeKvPoolLoadStream = Says<proto::KvPoolLoadUpdate>;
    type SubscribeServingLoadStream = Says<proto::ServingLoadUpdate>;

    async fn get_relay_info(
        &self,
        _: Request<proto::RelayInfoRequest>,
    ) -> Result<Response<proto::RelayInfo>, Status> {
        let plain = proto::RelayInfo {
            protocol_version: PROTOCOL_VERSION,
            relay: Some(RELAY.into()),
            contract_marker: CONTRACT_MARKER,
        };
        Ok(Response::new(self.0.lock().unwrap().info.unwrap_or(plain)))
    }

    async fn watch_kv_pool_catalog(
        &self,
        _: Request<proto::WatchKvPoolCatalogRequest>,
    ) -> Result<Response<Self::WatchKvPoolCatalogStream>, Status> {
        let mut scripts = self.0.lock().unwrap();
        scripts.opened[0] += 1;
        Ok(Response::new(play(&mut scripts.catalog)))
    }

    async fn subscribe_serving_readiness(
        &self,
        _: Request<proto::SubscribeServingReadinessRequest>,
    ) -> Result<Response<Self::SubscribeServingReadinessStream>, Status> {
        let mut scripts = self.0.lock().unwrap();
        scripts.opened[1] += 1;
        Ok(Response::new(play(&mut scripts.readiness)))
    }

    async fn subscribe_kv_pool_load(
        &self,
        _: Request<proto::SubscribeKvPoolLoadRequest>,
    ) -> Result<Response<Self::SubscribeKvPoolLoadStream>, Status> {
        let mut scripts = self.0.lock().unwrap();
        scripts.opened[2] += 1;
        Ok(Response::new(play(&mut scripts.load)))
    }

    async fn subscribe_kv_pool(
        &self,
        request: Request<proto::SubscribeKvPoolRequest>,
    ) -> Result<Response<Self::SubscribeKvPoolStream>, Status> {
        let mut scripts = self.0.lock().unwrap();
        scripts.opened[3] += 1;
        let producer = request.into_inner().expected_producer;
        let dc_id = producer.and_then(|producer| producer.pool_id).map(|pool| pool.dc_id);
        if let Some(script) = dc_id.and_then(|dc_id| scripts.filter_of.get(&dc_id)) {
            return Ok(Response::new(play(&mut VecDeque::from([script.clone()]))));
        }
        Ok(Response::new(play(&mut scripts.filter)))
    }

    async fn subscribe_serving_load(
        &self,
        _: Request<proto::SubscribeServingLoadRequest>,
    ) -> Result<Response<Self::SubscribeServingLoadStream>, Status> {
        let mut scripts = self.0.lock().unwrap();
        if scripts.serving.is_empty() {
            return Err(Status::unimplemented("an older relay"));
        }
        Ok(Response::new(play(&mut scripts.serving)))
    }
}
