//! A relay on a free port, and raw clients of it.

use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Status, Streaming};
use torc::config;
use torc::net::clock::Clock;
use torc::relay::ProducerKey;
use torc::relay::envelope::{CONTRACT_MARKER, RelayId};
use torc::relay::load::{RankLoad, sum};
use torc::relay::proto;
use torc::relay::reason::Reason;
use torc::relay_client::grpc::kv_event_relay_client::KvEventRelayClient;
use torc::relay_client::relay_error_reason;
use torc::relay_server::Relay;

use crate::producer::Producer;

pub type Client = KvEventRelayClient<Channel>;

/// How long anything may take: a bound for slow machines, not a measurement.
pub const PATIENCE: Duration = Duration::from_secs(300);

/// A time of the product that is over in no test.
pub const NEVER: Duration = Duration::from_secs(24 * 3_600);

/// A time of the product where a test waits for it to pass: long beside what a peer that is well
/// takes on a slow machine.
pub const PASSES: Duration = Duration::from_secs(3);

pub const RELAY: RelayId = RelayId { drt_instance_id: 17, incarnation: 23 };

pub struct Server {
    pub relay: Arc<Relay>,
    pub address: String,
    stop: Option<oneshot::Sender<()>>,
    serving: JoinHandle<()>,
}

impl Server {
    /// A relay with these limits; each published pool is a quarter full.
    pub async fn start(limits: config::Relay) -> Server {
        Server::start_as(RELAY, limits, "127.0.0.1:0").await
    }

    pub async fn start_as(id: RelayId, limits: config::Relay, listen: &str) -> Server {
        let listener = TcpListener::bind(listen).await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let relay = Relay::new(id, limits, Clock::start());
        let (stop, stopped) = oneshot::channel::<()>();
        let served = Arc::clone(&relay);
        let serving = tokio::spawn(async move {
            let rank = Some(RankLoad { used: 10, total: Some(40) });
            let loads = move |pools: &[torc::relay::descriptor::Descriptor]| {
                pools.iter().map(|pool| sum(pool.key, &[rank])).collect()
            };
            let stopped = async {
                let _ = stopped.await;
            };
            served.serve(listener, loads, stopped).await.unwrap();
        });
        Server { relay, address, stop: Some(stop), serving }
    }

    /// Publishes a producer's pool, served at its datacenter's name.
    pub fn publish(&self, producer: &Producer, component: &str) {
        let source = Arc::new(producer.clone());
        self.relay.publish(producer.descriptor(component), source).unwrap();
    }

    pub async fn client(&self) -> Client {
        let channel = self.channel().await;
        KvEventRelayClient::new(channel).max_decoding_message_size(8 << 20)
    }

    pub async fn channel(&self) -> Channel {
        let endpoint = Endpoint::from_shared(format!("http://{}", self.address)).unwrap();
        endpoint.connect().await.unwrap()
    }

    /// Lets it stop and waits until it has.
    pub async fn stop(mut self) {
        self.begin_stop();
        within(&mut self.serving).await.unwrap();
    }

    pub fn begin_stop(&mut self) {
        let _ = self.stop.take().unwrap().send(());
    }

    pub async fn stopped(mut self) {
        within(&mut self.serving).await.unwrap();
    }
}

pub async fn within<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, future).await.expect("in time")
}

/// Polls until `done`.
pub async fn until(what: &str, mut done: impl FnMut() -> bool) {
    for _ in 0..PATIENCE.as_millis() / 10 {
        if done() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("{what}: not within {PATIENCE:?}");
}

pub async fn next<M>(stream: &mut Streaming<M>) -> M {
    within(stream.message()).await.unwrap().expect("a message")
}

/// How a stream ends, whatever it says before that.
pub async fn end<M>(stream: &mut Streaming<M>) -> Result<(), Status> {
    loop {
        match within(stream.message()).await {
            Ok(Some(_)) => {}
            Ok(None) => return Ok(()),
            Err(status) => return Err(status),
        }
    }
}

/// Code and reason of a refusal.
pub fn why(status: &Status) -> (Code, Option<Reason>) {
    (status.code(), relay_error_reason(status))
}

pub fn catalog() -> proto::WatchKvPoolCatalogRequest {
    proto::WatchKvPoolCatalogRequest {
        subscriber_id: "test".into(),
        contract_marker: CONTRACT_MARKER,
    }
}

pub fn readiness() -> proto::SubscribeServingReadinessRequest {
    proto::SubscribeServingReadinessRequest {
        subscriber_id: "test".into(),
        contract_marker: CONTRACT_MARKER,
    }
}

pub fn load() -> proto::SubscribeKvPoolLoadRequest {
    proto::SubscribeKvPoolLoadRequest {
        subscriber_id: "test".into(),
        contract_marker: CONTRACT_MARKER,
    }
}

pub fn serving() -> proto::SubscribeServingLoadRequest {
    proto::SubscribeServingLoadRequest {
        subscriber_id: "test".into(),
        contract_marker: CONTRACT_MARKER,
    }
}

pub fn pool(key: &ProducerKey) -> proto::SubscribeKvPoolRequest {
    proto::SubscribeKvPoolRequest {
        subscriber_id: "test".into(),
        expected_producer: Some(key.into()),
        contract_marker: CONTRACT_MARKER,
    }
}
