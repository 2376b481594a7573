//! TCP and Unix connections behind one pair of types.

use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpStream, UnixStream, tcp, unix};

use crate::dispatch::Ends;

/// A connection as the acceptor hands it to a worker: not bound to a runtime yet.
#[derive(Debug)]
pub enum Socket {
    /// TCP.
    Tcp(std::net::TcpStream),
    /// A Unix socket.
    Unix(std::os::unix::net::UnixStream),
}

/// The reading half.
#[derive(Debug)]
pub(super) enum ReadHalf {
    Tcp(tcp::OwnedReadHalf),
    Unix(unix::OwnedReadHalf),
}

/// The writing half; dropping it ends the connection's writing side.
#[derive(Debug)]
pub(super) enum WriteHalf {
    Tcp(tcp::OwnedWriteHalf),
    Unix(unix::OwnedWriteHalf),
}

impl Socket {
    /// The other end's address, for people.
    pub(super) fn remote(&self) -> String {
        match self {
            Socket::Tcp(socket) => {
                socket.peer_addr().map_or_else(|_| String::new(), |a| a.ip().to_string())
            }
            Socket::Unix(_) => "unix".to_owned(),
        }
    }

    /// Binds the connection to the current runtime.
    pub(super) fn into_halves(self) -> io::Result<(ReadHalf, WriteHalf)> {
        match self {
            Socket::Tcp(socket) => Ok(tcp_halves(TcpStream::from_std(socket)?)),
            Socket::Unix(socket) => Ok(unix_halves(UnixStream::from_std(socket)?)),
        }
    }
}

pub(super) fn tcp_halves(stream: TcpStream) -> (ReadHalf, WriteHalf) {
    let (read, write) = stream.into_split();
    (ReadHalf::Tcp(read), WriteHalf::Tcp(write))
}

pub(super) fn unix_halves(stream: UnixStream) -> (ReadHalf, WriteHalf) {
    let (read, write) = stream.into_split();
    (ReadHalf::Unix(read), WriteHalf::Unix(write))
}

impl AsyncRead for ReadHalf {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            ReadHalf::Tcp(half) => Pin::new(half).poll_read(cx, buf),
            ReadHalf::Unix(half) => Pin::new(half).poll_read(cx, buf),
        }
    }
}

impl WriteHalf {
    /// Writes what the socket takes now.
    pub(super) fn try_write(&self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        match (self, slices) {
            (WriteHalf::Tcp(half), [one]) => half.try_write(one),
            (WriteHalf::Tcp(half), many) => half.try_write_vectored(many),
            (WriteHalf::Unix(half), [one]) => half.try_write(one),
            (WriteHalf::Unix(half), many) => half.try_write_vectored(many),
        }
    }

    /// Sends no more: the other end reads the end of the stream.
    pub(super) fn hang_up(&mut self) {
        let mut context = Context::from_waker(Waker::noop());
        // Sockets do it at once. Where it fails the connection is lost, and its reader says so.
        let _ = match self {
            WriteHalf::Tcp(half) => Pin::new(half).poll_shutdown(&mut context),
            WriteHalf::Unix(half) => Pin::new(half).poll_shutdown(&mut context),
        };
    }

    /// The addresses of its ends.
    pub(super) fn ends(&self) -> Ends {
        match self {
            WriteHalf::Tcp(half) => {
                let text = |address: io::Result<SocketAddr>| {
                    address.map_or(String::new(), |address| address.to_string())
                };
                Ends { remote: text(half.peer_addr()), local: text(half.local_addr()) }
            }
            WriteHalf::Unix(_) => Ends { remote: "unix:0".into(), local: "unix:0".into() },
        }
    }

    /// Ready when the socket takes bytes again.
    pub(super) fn poll_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            WriteHalf::Tcp(half) => half.as_ref().poll_write_ready(cx),
            WriteHalf::Unix(half) => half.as_ref().poll_write_ready(cx),
        }
    }
}
