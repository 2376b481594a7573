//! Listening sockets, and the acceptor that shares connections out to the workers.

use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use socket2::{Domain, Protocol, SockRef, Type};
use tokio::net::{TcpListener, UnixListener};

use super::worker::{Socket, Worker};
use crate::dispatch::ClientKind;

/// Pause of accepting when the process has no descriptor left.
const NO_DESCRIPTOR_PAUSE: Duration = Duration::from_millis(100);

/// TCP keep-alive of accepted and opened connections, as the reference sets it.
const KEEPALIVE: Duration = Duration::from_secs(15);

/// A bound listening socket.
#[derive(Debug)]
pub enum Listener {
    /// TCP.
    Tcp(std::net::TcpListener),
    /// A Unix socket; its file is removed when the listener is dropped.
    Unix(std::os::unix::net::UnixListener, PathBuf),
}

impl Listener {
    /// Binds `host:port`. With address reuse, so that a node that was killed comes back at once
    /// (decision H13).
    pub fn tcp(host: &str, port: u16, backlog: i32) -> io::Result<Listener> {
        let address = (host, port)
            .to_socket_addrs()?
            .next()
            .ok_or_else(|| io::Error::other(format!("{host} has no address")))?;
        let socket =
            socket2::Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
        socket.set_reuse_address(true)?;
        socket.set_nonblocking(true)?;
        socket.bind(&address.into())?;
        socket.listen(backlog)?;
        Ok(Listener::Tcp(socket.into()))
    }

    /// Binds a Unix socket. A socket file nobody listens on is left from a crash and replaced.
    pub fn unix(path: &Path) -> io::Result<Listener> {
        if std::os::unix::net::UnixStream::connect(path).is_err() {
            let _ = std::fs::remove_file(path);
        }
        let listener = std::os::unix::net::UnixListener::bind(path)?;
        listener.set_nonblocking(true)?;
        Ok(Listener::Unix(listener, path.to_owned()))
    }

    /// The bound address, for people.
    pub fn local(&self) -> String {
        match self {
            Listener::Tcp(listener) => {
                listener.local_addr().map_or_else(|e| e.to_string(), |a| a.to_string())
            }
            Listener::Unix(_, path) => path.display().to_string(),
        }
    }

    /// The bound port, for TCP.
    pub fn port(&self) -> Option<u16> {
        match self {
            Listener::Tcp(listener) => listener.local_addr().ok().map(|a: SocketAddr| a.port()),
            Listener::Unix(..) => None,
        }
    }
}

/// Connections taken in and turned away.
#[derive(Debug, Default)]
pub struct Accepted {
    /// Connections taken in.
    pub total: AtomicU64,
    /// Connections turned away because of `limits.client_connections`.
    pub refused: AtomicU64,
    /// Times accepting paused because no descriptor was left.
    pub no_descriptor: AtomicU64,
    /// Set while the node drains: nobody is taken in any more.
    pub closed: AtomicBool,
}

/// What a client is told that is one too many.
const TOO_MANY: &[u8] = b"-ERR max number of clients reached\r\n";

/// Accepts on `listener` for ever and gives each connection to the worker with the fewest.
pub async fn accept(
    listener: Listener,
    kind: ClientKind,
    workers: Arc<[Worker]>,
    connections_max: usize,
    accepted: Arc<Accepted>,
) -> io::Result<()> {
    let bound = match listener {
        Listener::Tcp(listener) => Bound::Tcp(TcpListener::from_std(listener)?),
        Listener::Unix(listener, path) => Bound::Unix(UnixListener::from_std(listener)?, path),
    };
    loop {
        let socket = match bound.accept().await {
            Ok(socket) => socket,
            Err(error) => {
                accepted.no_descriptor.fetch_add(1, Ordering::Relaxed);
                tracing::warn!(%error, "cannot accept; trying on");
                tokio::time::sleep(NO_DESCRIPTOR_PAUSE).await;
                continue;
            }
        };
        if accepted.closed.load(Ordering::Relaxed) {
            return Ok(());
        }
        let clients = || workers.iter().map(Worker::clients).sum::<usize>();
        if kind == ClientKind::Client && clients() >= connections_max {
            accepted.refused.fetch_add(1, Ordering::Relaxed);
            refuse(socket);
            continue;
        }
        accepted.total.fetch_add(1, Ordering::Relaxed);
        let worker = workers.iter().min_by_key(|w| w.connections()).expect("at least one worker");
        worker.accept(socket, kind);
    }
}

enum Bound {
    Tcp(TcpListener),
    Unix(UnixListener, PathBuf),
}

impl Bound {
    async fn accept(&self) -> io::Result<Socket> {
        match self {
            Bound::Tcp(listener) => {
                let (stream, _) = listener.accept().await?;
                set_options(&SockRef::from(&stream));
                Ok(Socket::Tcp(stream.into_std()?))
            }
            Bound::Unix(listener, _) => {
                let (stream, _) = listener.accept().await?;
                Ok(Socket::Unix(stream.into_std()?))
            }
        }
    }
}

impl Drop for Bound {
    fn drop(&mut self) {
        if let Bound::Unix(_, path) = self {
            let _ = std::fs::remove_file(path);
        }
    }
}

/// Options of every TCP connection: no delay of small packets, and dead peers are noticed.
pub(super) fn set_options(socket: &SockRef<'_>) {
    let keepalive = socket2::TcpKeepalive::new().with_time(KEEPALIVE);
    let set = socket.set_tcp_nodelay(true).and_then(|()| socket.set_tcp_keepalive(&keepalive));
    if let Err(error) = set {
        tracing::debug!(%error, "cannot set socket options");
    }
}

fn refuse(socket: Socket) {
    use std::io::Write;
    let sent = match socket {
        Socket::Tcp(mut socket) => socket.write(TOO_MANY),
        Socket::Unix(mut socket) => socket.write(TOO_MANY),
    };
    if let Err(error) = sent {
        tracing::debug!(%error, "client left before it was refused");
    }
}
