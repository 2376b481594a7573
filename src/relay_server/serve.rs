//! Serving: the listener, health, reflection, the ticker of the load, and a graceful end.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::sync::{oneshot, watch};
use tokio::time::MissedTickBehavior;
use tonic::codec::CompressionEncoding;
use tonic::transport::Server;
use tonic_health::ServingStatus;

use super::Relay;
use super::connections::incoming;
use super::grpc::kv_event_relay_server::KvEventRelayServer;
use super::service::Service;
use crate::relay::descriptor::Descriptor;
use crate::relay::load::PoolLoad;
use crate::relay::{DESCRIPTORS, SERVICE};

/// Streams one connection may have open; the contract's limits hold over all connections.
const STREAMS_PER_CONNECTION: u32 = 1_024;
/// Bytes of a request's headers.
const HEADERS_BYTES_MAX: u32 = 16 << 10;
/// How long a stopping relay waits for readers to take the end of their streams.
const GOODBYE_MAX: Duration = Duration::from_secs(2);
/// How long the cutting of connections may take.
const CUT_MAX: Duration = Duration::from_secs(1);

/// Why a relay cannot serve.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The listener broke, or HTTP/2 did.
    #[error(transparent)]
    Transport(#[from] tonic::transport::Error),
    /// The description of the service cannot be read.
    #[error(transparent)]
    Reflection(#[from] tonic_reflection::server::Error),
}

impl Relay {
    /// Serves consumers until `stop` is ready: health turns to "not serving", streams end
    /// cleanly, and connections that do not follow are cut. `loads` says how full the published
    /// pools are; it is asked once a window.
    pub async fn serve(
        self: Arc<Relay>,
        listener: TcpListener,
        loads: impl Fn(&[Descriptor]) -> Vec<PoolLoad> + Send + 'static,
        stop: impl Future<Output = ()>,
    ) -> Result<(), ServeError> {
        let (health, health_service) = tonic_health::server::health_reporter();
        health.set_service_status(SERVICE, ServingStatus::Serving).await;
        let reflection = tonic_reflection::server::Builder::configure()
            .register_encoded_file_descriptor_set(DESCRIPTORS)
            .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
            .build_v1()?;
        let limits = &self.limits;
        let message_bytes = limits.max_message_bytes.as_usize();
        let service = KvEventRelayServer::new(Service(Arc::clone(&self)))
            .accept_compressed(CompressionEncoding::Zstd)
            .send_compressed(CompressionEncoding::Zstd)
            .max_decoding_message_size(message_bytes)
            .max_encoding_message_size(message_bytes);
        let cut = watch::Sender::new(false);
        let (goodbye, said) = oneshot::channel::<()>();
        let server = Server::builder()
            .http2_keepalive_interval(Some(Duration::from_millis(limits.keepalive_interval_ms)))
            .http2_keepalive_timeout(Some(Duration::from_millis(limits.keepalive_timeout_ms)))
            .http2_max_header_list_size(HEADERS_BYTES_MAX)
            .max_concurrent_streams(STREAMS_PER_CONNECTION)
            .add_service(health_service)
            .add_service(reflection)
            .add_service(service)
            .serve_with_incoming_shutdown(incoming(&self, listener, cut.subscribe()), async {
                // A dropped sender ends it too.
                let _ = said.await;
            });
        let ticker = tokio::spawn(tick(Arc::clone(&self), loads));
        let mut server = std::pin::pin!(server);
        let ended = tokio::select! {
            ended = &mut server => Some(ended),
            () = stop => None,
        };
        ticker.abort();
        let ended = match ended {
            Some(ended) => ended,
            None => {
                for name in [SERVICE, ""] {
                    health.set_service_status(name, ServingStatus::NotServing).await;
                }
                self.closing.send_replace(true);
                let _ = goodbye.send(());
                match tokio::time::timeout(GOODBYE_MAX, &mut server).await {
                    Ok(ended) => ended,
                    Err(_) => {
                        tracing::info!("relay: connections that do not read are cut");
                        cut.send_replace(true);
                        tokio::time::timeout(CUT_MAX, &mut server).await.unwrap_or(Ok(()))
                    }
                }
            }
        };
        Ok(ended?)
    }
}

/// Closes a window of load each time it is full.
async fn tick(relay: Arc<Relay>, loads: impl Fn(&[Descriptor]) -> Vec<PoolLoad> + Send) {
    let mut ticks = tokio::time::interval(Duration::from_millis(relay.limits.load_window_ms));
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    ticks.reset();
    loop {
        ticks.tick().await;
        let loads = loads(&relay.published());
        relay.close_window(&loads);
    }
}
