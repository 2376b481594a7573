//! The task of one connection to a datastore or peer: opens it, reads it, opens it again.

use std::future::poll_fn;
use std::io;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::BytesMut;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, UnixStream};
use tokio::sync::Notify;

use super::backoff::{Backoff, Growth, PAUSE_FIRST};
use super::core::Core;
use super::io::Io;
use super::listener::set_options;
use super::panics::caught;
use super::stream::{ReadHalf, WriteHalf, tcp_halves, unix_halves};
use super::worker::StoreAddress;
use crate::config::HostPort;
use crate::dispatch::failure::Cause;
use crate::dispatch::{Conn, Target, UpId, UpstreamError};
use crate::proto::resp::encode;
use crate::ring::PeerRef;

/// The pauses between two attempts to reach a peer: so short that a node that comes back is used
/// within two seconds.
const PEER_PAUSES: Growth = Growth { after: 1, most: Duration::from_millis(1000) };

/// A connection that was lost sooner was refused in effect: the pauses go on growing.
const SETTLED_MS: u64 = 1000;

/// How long one attempt may take.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);

impl Core {
    /// Keeps one upstream connected for as long as it is wanted, whatever happens; with `once`
    /// until it ends for the first time.
    pub(super) async fn hold(
        self: Rc<Core>,
        up: UpId,
        target: Target,
        address: Option<(String, u16)>,
        (hurry, once): (Rc<Notify>, bool),
    ) {
        if once {
            if caught(Rc::clone(&self).connect_once(up, target, address)).await.is_none() {
                self.note_panic();
                self.lose_upstream(up, Cause::Closed);
            }
            return;
        }
        loop {
            let keep = Rc::clone(&self).keep_connected(up, target, address.clone(), &hurry);
            caught(keep).await;
            if self.is_broken() {
                return;
            }
            self.note_panic();
            self.note_lost(up, Cause::Closed);
            self.lose_upstream(up, Cause::Closed);
            tokio::time::sleep(PAUSE_FIRST).await;
        }
    }

    /// Ends only by a panic.
    async fn keep_connected(
        self: Rc<Core>,
        up: UpId,
        target: Target,
        address: Option<(String, u16)>,
        hurry: &Notify,
    ) {
        let mut pauses = Backoff::new(match target {
            Target::Store => self.setup.store_pauses,
            Target::Peer(_) => PEER_PAUSES,
        });
        let mut told = false;
        loop {
            match self.connect(address.as_ref()).await {
                Ok((read, write)) => {
                    tracing::info!("connected to {}", self.name_of(target));
                    told = false;
                    self.note_open(up);
                    let opened_ms = self.setup.clock.now().mono_ms();
                    let cause = self.run_upstream(up, target, read, write).await;
                    if self.setup.clock.now().mono_ms() - opened_ms >= SETTLED_MS {
                        pauses.reset();
                    }
                    self.note_lost(up, cause);
                    tracing::info!("connection to {} lost: {}", self.name_of(target), cause.text());
                    self.lose_upstream(up, cause);
                }
                Err(error) => {
                    self.note_failed(target, &error);
                    if !told {
                        tracing::warn!(
                            "cannot connect to {}: {error}; trying on",
                            self.name_of(target)
                        );
                    }
                    told = true;
                }
            }
            tokio::select! {
                () = tokio::time::sleep(pauses.next()) => {}
                () = hurry.notified() => pauses.reset(),
            }
        }
    }

    /// Runs a connection that serves one client at a time, until it ends.
    async fn connect_once(
        self: Rc<Core>,
        up: UpId,
        target: Target,
        address: Option<(String, u16)>,
    ) {
        let cause = match self.connect(address.as_ref()).await {
            Ok((read, write)) => self.run_upstream(up, target, read, write).await,
            Err(error) => {
                tracing::debug!("cannot connect to {}: {error}", self.name_of(target));
                Cause::NotConnected
            }
        };
        self.lose_upstream(up, cause);
    }

    /// What a connection leads to, as operators know it.
    fn name_of(&self, target: Target) -> String {
        let view = self.setup.view.load();
        let peer = match (target, &self.setup.store) {
            (Target::Store, Some(StoreAddress::Tcp(host, port))) => {
                return format!("datastore {}", HostPort::new(host, *port));
            }
            (Target::Store, Some(StoreAddress::Unix(path))) => {
                return format!("datastore {}", path.display());
            }
            (Target::Store, None) => return "datastore".into(),
            (Target::Peer(id), _) => view.topology.idx_of(id).map(|at| view.topology.peer(at)),
        };
        let Some(PeerRef { name, host, port, dc, rack, .. }) = peer else {
            return "a peer that left the ring".into();
        };
        let at = HostPort::new(host, port).to_string();
        match name == at {
            true => format!("peer {at} ({dc}/{rack})"),
            false => format!("peer {name} ({dc}/{rack}) at {at}"),
        }
    }

    async fn connect(&self, address: Option<&(String, u16)>) -> io::Result<(ReadHalf, WriteHalf)> {
        let attempt = async {
            match (address, &self.setup.store) {
                (Some((host, port)), _) => self.tcp(host, *port).await,
                (None, Some(StoreAddress::Tcp(host, port))) => {
                    let mut stream = self.tcp(host, *port).await?;
                    self.log_in(&mut stream).await?;
                    Ok(stream)
                }
                (None, Some(StoreAddress::Unix(path))) => {
                    let mut stream = UnixStream::connect(path).await?;
                    self.log_in(&mut stream).await?;
                    return Ok(unix_halves(stream));
                }
                (None, None) => unreachable!("an embedded store has no connection"),
            }
            .map(tcp_halves)
        };
        tokio::time::timeout(CONNECT_TIMEOUT, attempt)
            .await
            .unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
    }

    async fn tcp(&self, host: &str, port: u16) -> io::Result<TcpStream> {
        let stream = self.setup.names.connect(host, port).await?;
        set_options(&socket2::SockRef::from(&stream));
        Ok(stream)
    }

    /// Gives the datastore its password, when one is configured.
    async fn log_in<S>(&self, stream: &mut S) -> io::Result<()>
    where
        S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin,
    {
        let Some(password) = &self.setup.store_password else { return Ok(()) };
        let mut request = Vec::new();
        let user = self.setup.store_user.as_deref().map(str::as_bytes);
        let words: Vec<&[u8]> = [Some(b"AUTH".as_slice()), user, Some(password.as_bytes())]
            .into_iter()
            .flatten()
            .collect();
        encode::command(&mut request, words);
        stream.write_all(&request).await?;
        let mut reply = Vec::new();
        while !reply.ends_with(b"\r\n") {
            if stream.read_buf(&mut reply).await? == 0 || reply.len() > 1024 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
        if reply == b"+OK\r\n" {
            return Ok(());
        }
        let text = String::from_utf8_lossy(&reply).trim().to_owned();
        Err(io::Error::other(format!("the datastore refused the password: {text}")))
    }

    async fn run_upstream(
        self: &Rc<Core>,
        up: UpId,
        target: Target,
        mut read: ReadHalf,
        write: WriteHalf,
    ) -> Cause {
        let io = Io::new(write, &self.setup);
        self.ios.borrow_mut().insert(Conn::Upstream(up), io);
        let now = self.setup.clock.now();
        self.enter().on_upstream_state(up, true, Cause::Closed, now);
        self.after_input();
        // A peer is asked again and again whether it lives, also while nobody asks for anything.
        self.due.notify_one();
        let mut rx = BytesMut::new();
        poll_fn(|cx| self.poll_upstream(up, target, &mut read, &mut rx, cx)).await
    }

    fn poll_upstream(
        self: &Rc<Core>,
        up: UpId,
        target: Target,
        read: &mut ReadHalf,
        rx: &mut BytesMut,
        cx: &mut Context<'_>,
    ) -> Poll<Cause> {
        if self.poll_write(Conn::Upstream(up), cx).is_ready() {
            return Poll::Ready(Cause::Closed);
        }
        loop {
            if self.is_broken() {
                return Poll::Ready(Cause::Closed);
            }
            match self.poll_replies(up, read, rx, cx) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Ok(Ok(()))) => {
                    if !self.note_input(Conn::Upstream(up), rx.len()) {
                        return Poll::Ready(Cause::OverLimit);
                    }
                    self.note_heard(target);
                    self.after_input();
                }
                Poll::Ready(Ok(Err(error))) => {
                    tracing::warn!("connection to {} dropped: {error}", self.name_of(target));
                    return Poll::Ready(Cause::BadReply);
                }
                Poll::Ready(Err(_)) => return Poll::Ready(Cause::Closed),
            }
        }
    }

    fn poll_replies(
        &self,
        up: UpId,
        read: &mut ReadHalf,
        rx: &mut BytesMut,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<Result<(), UpstreamError>>> {
        let need = if rx.is_empty() { 0 } else { self.look().reply_bytes_needed(up) };
        let mut result = Ok(());
        let read = self.poll_read(read, rx, need, cx, |bytes, now| {
            result = self.enter().on_upstream_bytes(up, bytes, now);
        });
        match read {
            Poll::Pending => Poll::Pending,
            Poll::Ready(Ok(0)) => Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into())),
            Poll::Ready(Ok(_)) => Poll::Ready(Ok(result)),
            Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
        }
    }
}
