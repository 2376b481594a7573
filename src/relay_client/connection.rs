//! One connection to a relay: the same limits on every call, and who the relay is.

use std::time::Duration;

use tonic::codec::Streaming;
use tonic::transport::{Channel, Endpoint};
use tonic::{Request, Status};

use super::Settings;
use super::grpc::kv_event_relay_client::KvEventRelayClient;
use crate::relay::envelope::{CONTRACT_MARKER, EnvelopeFault, RelayId, check_response};
use crate::relay::key::ProducerKey;
use crate::relay::proto;

/// Time to connect, and for the answer to the first call.
const ANSWER_MAX: Duration = Duration::from_secs(10);

/// Why there is no connection.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// Not an address.
    #[error("{0} is no address of a relay")]
    Address(String),
    /// Nobody answers there.
    #[error("no connection: {0}")]
    Transport(String),
    /// The first call was refused.
    #[error("{0}")]
    Refused(Box<Status>),
    /// It is no relay of this contract.
    #[error(transparent)]
    Envelope(#[from] EnvelopeFault),
}

/// A connection whose relay has said who it is.
#[derive(Clone, Debug)]
pub struct Connection {
    client: KvEventRelayClient<Channel>,
    subscriber_id: String,
    recovery_attempt_timeout: Duration,
    relay: RelayId,
}

impl Connection {
    /// Connects and asks who is there.
    pub async fn open(settings: &Settings) -> Result<Connection, ConnectError> {
        let address = || ConnectError::Address(settings.address.clone());
        let endpoint = Endpoint::from_shared(format!("http://{}", settings.address))
            .map_err(|_| address())?
            .connect_timeout(ANSWER_MAX)
            .tcp_nodelay(true)
            .http2_keep_alive_interval(settings.keepalive_interval)
            .keep_alive_timeout(settings.keepalive_timeout)
            .keep_alive_while_idle(true);
        let channel =
            endpoint.connect().await.map_err(|error| ConnectError::Transport(root(&error)))?;
        // A full part of a filter is larger than the usual limit.
        let mut client = KvEventRelayClient::new(channel)
            .max_decoding_message_size(settings.max_message_bytes)
            .max_encoding_message_size(settings.max_message_bytes);
        let request = proto::RelayInfoRequest { contract_marker: CONTRACT_MARKER };
        let answer = tokio::time::timeout(ANSWER_MAX, client.get_relay_info(request)).await;
        let silent = || ConnectError::Transport("the relay does not answer".into());
        let answer = answer.map_err(|_| silent())?;
        let info = answer.map_err(|status| ConnectError::Refused(Box::new(status)))?;
        let relay = check_response(info.get_ref())?;
        Ok(Connection {
            client,
            subscriber_id: settings.subscriber_id.clone(),
            recovery_attempt_timeout: settings.recovery_attempt_timeout,
            relay,
        })
    }

    /// The relay it leads to.
    pub fn relay(&self) -> RelayId {
        self.relay
    }

    /// Time for the state that a stream begins with, or the next part of it.
    pub(super) fn recovery_attempt_timeout(&self) -> Duration {
        self.recovery_attempt_timeout
    }

    /// Opens the catalog.
    pub async fn catalog(&self) -> Result<Streaming<proto::KvPoolCatalogUpdate>, Status> {
        let request = Request::new(proto::WatchKvPoolCatalogRequest {
            subscriber_id: self.subscriber_id.clone(),
            contract_marker: CONTRACT_MARKER,
        });
        Ok(self.client.clone().watch_kv_pool_catalog(request).await?.into_inner())
    }

    /// Opens the readiness.
    pub async fn readiness(&self) -> Result<Streaming<proto::ServingReadinessUpdate>, Status> {
        let request = Request::new(proto::SubscribeServingReadinessRequest {
            subscriber_id: self.subscriber_id.clone(),
            contract_marker: CONTRACT_MARKER,
        });
        Ok(self.client.clone().subscribe_serving_readiness(request).await?.into_inner())
    }

    /// Opens the pools' load.
    pub async fn load(&self) -> Result<Streaming<proto::KvPoolLoadUpdate>, Status> {
        let request = Request::new(proto::SubscribeKvPoolLoadRequest {
            subscriber_id: self.subscriber_id.clone(),
            contract_marker: CONTRACT_MARKER,
        });
        Ok(self.client.clone().subscribe_kv_pool_load(request).await?.into_inner())
    }

    /// Opens the serving load.
    pub async fn serving(&self) -> Result<Streaming<proto::ServingLoadUpdate>, Status> {
        let request = Request::new(proto::SubscribeServingLoadRequest {
            subscriber_id: self.subscriber_id.clone(),
            contract_marker: CONTRACT_MARKER,
        });
        Ok(self.client.clone().subscribe_serving_load(request).await?.into_inner())
    }

    /// Opens one generation's filter.
    pub async fn filter(
        &self,
        key: &ProducerKey,
    ) -> Result<Streaming<proto::FilterUpdate>, Status> {
        let request = Request::new(proto::SubscribeKvPoolRequest {
            subscriber_id: self.subscriber_id.clone(),
            expected_producer: Some(key.into()),
            contract_marker: CONTRACT_MARKER,
        });
        Ok(self.client.clone().subscribe_kv_pool(request).await?.into_inner())
    }
}

/// The innermost cause: "connection refused" rather than "transport error".
fn root(error: &dyn std::error::Error) -> String {
    error.source().map_or_else(|| error.to_string(), root)
}
