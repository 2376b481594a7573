//! HTTP listeners of the service plane: bounded connections, deadlines, one place for both.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::{Extension, Router};
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;

use super::listener::Listener;

/// Pause of accepting when the process has no descriptor left.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Bounds of one listener.
#[derive(Clone, Copy, Debug)]
pub struct HttpLimits {
    /// Connections served at once; more wait to be accepted.
    pub connections_max: usize,
    /// Bytes of a request's head.
    pub head_bytes_max: usize,
    /// Time for the head of a request.
    pub head_time: Duration,
    /// Time for a whole connection.
    pub connection_time: Duration,
    /// Whether a connection can carry several requests.
    pub keep_alive: bool,
}

/// Who sent a request; every request carries it as an extension.
#[derive(Clone, Copy, Debug)]
pub struct Caller {
    /// The other end of the connection.
    pub remote: SocketAddr,
    /// This end of it.
    pub local: SocketAddr,
}

impl Caller {
    /// True for a process on this machine: over loopback, or from the very address it calls.
    pub fn is_here(&self) -> bool {
        let remote = self.remote.ip().to_canonical();
        remote.is_loopback() || remote == self.local.ip().to_canonical()
    }
}

/// Serves `router` to everybody who connects, until it is dropped.
///
/// # Errors
///
/// When the listener cannot be used: it is a Unix socket, or there is no runtime.
pub async fn serve(listener: Listener, router: Router, limits: HttpLimits) -> io::Result<()> {
    let Listener::Tcp(listener) = listener else {
        return Err(io::Error::new(io::ErrorKind::Unsupported, "HTTP needs a TCP listener"));
    };
    let listener = TcpListener::from_std(listener)?;
    let free = Arc::new(Semaphore::new(limits.connections_max));
    loop {
        let permit = Arc::clone(&free).acquire_owned().await.map_err(io::Error::other)?;
        match listener.accept().await {
            Ok((stream, remote)) => {
                let Ok(local) = stream.local_addr() else { continue };
                let router = router.clone().layer(Extension(Caller { remote, local }));
                tokio::spawn(async move {
                    connection(stream, router, limits).await;
                    drop(permit);
                });
            }
            Err(error) => {
                tracing::warn!(%error, "cannot accept an HTTP connection; trying on");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

async fn connection(stream: TcpStream, router: Router, limits: HttpLimits) {
    let served = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(limits.head_time)
        .max_buf_size(limits.head_bytes_max)
        .keep_alive(limits.keep_alive)
        .serve_connection(TokioIo::new(stream), TowerToHyperService::new(router));
    match tokio::time::timeout(limits.connection_time, served).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::debug!(%error, "HTTP connection"),
        Err(_) => tracing::debug!("HTTP connection took too long"),
    }
}
