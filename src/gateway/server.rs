//! An HTTP listener with limits and a graceful stop.

use axum::Router;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;

/// Bounds of one listener.
#[derive(Clone, Copy, Debug)]
pub struct ServeLimits {
    /// Connections at a time; further ones wait in the accept queue.
    pub connections_max: usize,
    /// Time a client has to send a request's head.
    pub head_timeout: Duration,
    /// Time requests in flight have to finish once the listener stops.
    pub drain_timeout: Duration,
}

/// Pause after an accept error, so that a lack of descriptors does not spin.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Serves `router` until `stop` ends, then lets requests in flight finish.
pub async fn serve(
    listener: TcpListener,
    router: Router,
    limits: ServeLimits,
    stop: impl Future<Output = ()>,
) {
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder.http1().timer(TokioTimer::new()).header_read_timeout(limits.head_timeout);
    builder.http2().timer(TokioTimer::new());
    let graceful = GracefulShutdown::new();
    let slots = limits.connections_max.min(Semaphore::MAX_PERMITS);
    let slots = Arc::new(Semaphore::new(slots));
    let mut stop = std::pin::pin!(stop);
    loop {
        let accepted = async {
            let slot = slots.clone().acquire_owned().await;
            (slot, listener.accept().await)
        };
        let (slot, stream) = tokio::select! {
            (slot, Ok((stream, _))) = accepted => (slot, stream),
            () = &mut stop => break,
            else => {
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        // A socket option that cannot be set costs latency, not correctness.
        let _ = stream.set_nodelay(true);
        let service = TowerToHyperService::new(router.clone());
        let connection =
            builder.serve_connection_with_upgrades(TokioIo::new(stream), service).into_owned();
        let connection = graceful.watch(connection);
        tokio::spawn(async move {
            if let Err(error) = connection.await {
                tracing::debug!(plane = "doc", %error, "a client connection ended early");
            }
            drop(slot);
        });
    }
    drop(listener);
    if tokio::time::timeout(limits.drain_timeout, graceful.shutdown()).await.is_err() {
        tracing::warn!(plane = "doc", "requests were still running when the listener stopped");
    }
}
