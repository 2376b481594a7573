//! Connections of consumers: bounded in number, and cut when the relay's time is over.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use futures_util::Stream;
use futures_util::stream::unfold;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, watch};
use tonic::transport::server::{Connected, TcpConnectInfo};

use super::counters::{Counters, add};
use super::{Relay, semaphore};

/// Pause of accepting when the process has no descriptor left.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Connections as they come, at most `connections_max` at a time. All of them break when `cut`
/// becomes true.
pub(super) fn incoming(
    relay: &Arc<Relay>,
    listener: TcpListener,
    cut: watch::Receiver<bool>,
) -> impl Stream<Item = io::Result<Connection>> + use<> {
    let places = semaphore(relay.limits.connections_max);
    let state = (Arc::clone(relay), listener, places, cut);
    unfold(state, |(relay, listener, places, cut)| async move {
        // The semaphore is never closed.
        let place = Arc::clone(&places).acquire_owned().await.ok()?;
        let stream = accept(&listener, &relay.counters).await;
        let connection = Connection::new(stream, place, cut.clone());
        Some((Ok(connection), (relay, listener, places, cut)))
    })
}

async fn accept(listener: &TcpListener, counters: &Counters) -> TcpStream {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                add(&counters.connections, 1);
                // Without it small frames wait for the acknowledgement of earlier ones.
                let _ = stream.set_nodelay(true);
                return stream;
            }
            Err(error) => {
                tracing::warn!(%error, "relay: cannot accept; trying on");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

/// One connection.
pub(super) struct Connection {
    stream: TcpStream,
    cut: Pin<Box<dyn Future<Output = ()> + Send>>,
    is_cut: bool,
    _place: OwnedSemaphorePermit,
}

impl Connection {
    fn new(
        stream: TcpStream,
        place: OwnedSemaphorePermit,
        mut cut: watch::Receiver<bool>,
    ) -> Connection {
        let cut = Box::pin(async move {
            // A sender that is gone cuts too.
            let _ = cut.wait_for(|cut| *cut).await;
        });
        Connection { stream, cut, is_cut: false, _place: place }
    }

    fn check(&mut self, cx: &mut Context<'_>) -> io::Result<()> {
        if !self.is_cut {
            self.is_cut = self.cut.as_mut().poll(cx).is_ready();
        }
        if self.is_cut { Err(io::ErrorKind::ConnectionAborted.into()) } else { Ok(()) }
    }
}

impl AsyncRead for Connection {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        this.check(cx)?;
        Pin::new(&mut this.stream).poll_read(cx, buf)
    }
}

impl AsyncWrite for Connection {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        if this.is_cut {
            return Poll::Ready(Err(io::ErrorKind::ConnectionAborted.into()));
        }
        Pin::new(&mut this.stream).poll_write(cx, buf)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        if this.is_cut {
            return Poll::Ready(Err(io::ErrorKind::ConnectionAborted.into()));
        }
        Pin::new(&mut this.stream).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if !this.is_cut {
            ready!(Pin::new(&mut this.stream).poll_shutdown(cx))?;
        }
        Poll::Ready(Ok(()))
    }
}

impl Connected for Connection {
    type ConnectInfo = TcpConnectInfo;

    fn connect_info(&self) -> TcpConnectInfo {
        self.stream.connect_info()
    }
}
