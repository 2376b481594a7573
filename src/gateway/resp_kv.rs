//! The small state in the ring, through the node's own client listener.
//!
//! The gateway is an ordinary client of its own node: `SET key value PX ms` and `GET key` with
//! the consistency the node gives its clients.

use super::kv::{KvError, KvFuture, RingKv};
use crate::proto::resp::encode;
use crate::proto::resp::reply::{self, ReplyLimits, ReplyScanner};
use bytes::{Buf, Bytes, BytesMut};
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpStream, UnixStream};

/// Idle connections kept.
const IDLE_MAX: usize = 16;

/// Where the node listens for clients.
#[derive(Clone, Debug)]
pub enum NodeAddress {
    /// `host:port`.
    Tcp(String),
    /// A Unix socket.
    Unix(PathBuf),
}

/// How to reach the node.
#[derive(Clone, Debug)]
pub struct RespKvSettings {
    /// The node's client listener.
    pub address: NodeAddress,
    /// The password clients need, if they need one.
    pub password: Option<super::Key>,
    /// Time for one command, connecting included.
    pub timeout: Duration,
}

trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}
impl<T: AsyncRead + AsyncWrite + Unpin + Send> Stream for T {}

struct Connection {
    stream: Box<dyn Stream>,
    input: BytesMut,
}

/// A [`RingKv`] over a node's client protocol.
pub struct RespKv {
    settings: RespKvSettings,
    idle: Mutex<Vec<Connection>>,
}

impl RespKv {
    /// A client of one node. It connects when it is first used.
    pub fn new(settings: RespKvSettings) -> RespKv {
        RespKv { settings, idle: Mutex::default() }
    }

    async fn command(&self, arguments: &[&[u8]]) -> Result<Bytes, KvError> {
        let work = async {
            // A connection the node has closed meanwhile fails once; a new one decides.
            let pooled = self.idle().pop();
            if let Some(connection) = pooled
                && let Ok(answer) = self.exchange(connection, arguments).await
            {
                return Ok(answer);
            }
            self.exchange(self.connect().await?, arguments).await
        };
        let answered = tokio::time::timeout(self.settings.timeout, work).await;
        answered.map_err(|_| KvError("no answer in time".to_owned()))?
    }

    fn idle(&self) -> std::sync::MutexGuard<'_, Vec<Connection>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn connect(&self) -> Result<Connection, KvError> {
        let stream: Box<dyn Stream> = match &self.settings.address {
            NodeAddress::Tcp(address) => {
                let stream = TcpStream::connect(address).await.map_err(failed)?;
                stream.set_nodelay(true).map_err(failed)?;
                Box::new(stream)
            }
            NodeAddress::Unix(path) => Box::new(UnixStream::connect(path).await.map_err(failed)?),
        };
        let mut connection = Connection { stream, input: BytesMut::new() };
        if let Some(password) = &self.settings.password {
            let answer = connection.round_trip(&[b"AUTH", password.expose().as_bytes()]).await?;
            expect_ok(&answer)?;
        }
        Ok(connection)
    }

    async fn exchange(
        &self,
        mut connection: Connection,
        arguments: &[&[u8]],
    ) -> Result<Bytes, KvError> {
        let answer = connection.round_trip(arguments).await?;
        let mut idle = self.idle();
        if idle.len() < IDLE_MAX {
            idle.push(connection);
        }
        Ok(answer)
    }
}

impl Connection {
    async fn round_trip(&mut self, arguments: &[&[u8]]) -> Result<Bytes, KvError> {
        let mut request = Vec::new();
        encode::command(&mut request, arguments.iter().copied());
        self.stream.write_all(&request).await.map_err(failed)?;
        let mut scanner = ReplyScanner::default();
        loop {
            let found = scanner.scan(&self.input, &ReplyLimits::default()).map_err(failed)?;
            if let Some(length) = found {
                return Ok(self.input.copy_to_bytes(length));
            }
            if self.stream.read_buf(&mut self.input).await.map_err(failed)? == 0 {
                return Err(KvError("the node closed the connection".to_owned()));
            }
        }
    }
}

fn failed(error: impl std::fmt::Display) -> KvError {
    KvError(error.to_string())
}

fn expect_ok(answer: &Bytes) -> Result<(), KvError> {
    if reply::is_ok(answer) {
        return Ok(());
    }
    Err(KvError(String::from_utf8_lossy(answer).trim_end().to_owned()))
}

impl RingKv for RespKv {
    fn get<'a>(&'a self, key: &'a str) -> KvFuture<'a, Vec<Bytes>> {
        Box::pin(async move {
            let answer = self.command(&[b"GET", key.as_bytes()]).await?;
            if reply::is_null(&answer) {
                return Ok(Vec::new());
            }
            if reply::is_error(&answer) {
                return Err(KvError(String::from_utf8_lossy(&answer).trim_end().to_owned()));
            }
            let value = reply::text(&answer)
                .ok_or_else(|| KvError("the node answered GET with no text".to_owned()))?;
            Ok(vec![answer.slice_ref(value)])
        })
    }

    fn set<'a>(&'a self, key: &'a str, value: Bytes, ttl: Option<Duration>) -> KvFuture<'a, ()> {
        Box::pin(async move {
            let ms = ttl.map(|ttl| ttl.as_millis().to_string());
            let mut arguments: Vec<&[u8]> = vec![b"SET", key.as_bytes(), &value];
            if let Some(ms) = &ms {
                arguments.extend([b"PX".as_slice(), ms.as_bytes()]);
            }
            expect_ok(&self.command(&arguments).await?)
        })
    }
}
