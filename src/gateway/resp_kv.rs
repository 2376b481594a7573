//! The small state in the ring, through the node's own client listener.
//!
//! The gateway is an ordinary client of its own node. It writes with `SET key value PX ms`, at
//! the level the node gives the plane's keys, and reads with `TORC.REPLICAS GET key`: what every
//! local rack has, so that the newest version wins even when most racks lost theirs.

use super::kv::{KvError, KvFuture, RingKv};
use crate::proto::resp::encode;
use crate::proto::resp::reply::{self, ReplyLimits, ReplyScanner};
use crate::ring::quorum;
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

/// The values in the answer of `TORC.REPLICAS GET`: for each rack its name, its owner's name and
/// what that owner said.
///
/// # Errors
/// So few racks answered that a stored value may be in none of them.
fn values_of(answer: &Bytes) -> Result<Vec<Bytes>, KvError> {
    let (mut racks, mut answered, mut values, mut trouble) = (0, 0, Vec::new(), None);
    for rack in reply::elements(answer) {
        racks += 1;
        let said = reply::elements(rack).nth(2).unwrap_or_default();
        if let Some(value) = reply::text(said) {
            answered += 1;
            values.push(answer.slice_ref(value));
        } else if reply::is_null(said) {
            answered += 1;
        } else {
            trouble.get_or_insert_with(|| String::from_utf8_lossy(said).trim_end().to_owned());
        }
    }
    // A write reached a majority, so what is stored is found once the others are outnumbered.
    // A rack that was emptied since would hide it: that there is nothing needs more witnesses.
    let needed = match values.is_empty() {
        true => quorum(racks),
        false => racks + 1 - quorum(racks),
    };
    if racks > 0 && answered >= needed {
        return Ok(values);
    }
    let trouble = trouble.unwrap_or_else(|| "the node named no replica".to_owned());
    Err(KvError(format!("{answered} of {racks} replicas answered: {trouble}")))
}

impl RingKv for RespKv {
    fn get<'a>(&'a self, key: &'a str) -> KvFuture<'a, Vec<Bytes>> {
        Box::pin(async move {
            let answer = self.command(&[b"TORC.REPLICAS", b"GET", key.as_bytes()]).await?;
            if reply::is_error(&answer) {
                return Err(KvError(String::from_utf8_lossy(&answer).trim_end().to_owned()));
            }
            values_of(&answer)
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

#[cfg(test)]
mod tests {
    use super::*;

    fn read(said: &[&str]) -> Result<Vec<Bytes>, KvError> {
        let mut answer = format!("*{}\r\n", said.len());
        for (i, said) in said.iter().enumerate() {
            answer += &format!("*3\r\n$2\r\nr{i}\r\n$2\r\nn{i}\r\n{said}\r\n");
        }
        values_of(&Bytes::from(answer))
    }

    const NIL: &str = "$-1";
    const DOWN: &str = "-ERR Peer: Peer Node is not connected (n1, r1, not connected)";
    const OLD: &str = "$3\r\nold";
    const NEW: &str = "$3\r\nnew";

    #[test]
    fn one_value_is_enough_where_a_quorum_wrote_it() {
        assert_eq!(read(&[NIL, NIL, NEW]).unwrap(), ["new"], "two racks were emptied");
        assert_eq!(read(&[OLD, NEW, NIL]).unwrap(), ["old", "new"]);
        assert_eq!(read(&[DOWN, NEW]).unwrap(), ["new"], "both of two racks had to take it");
        assert_eq!(read(&[DOWN, NIL, NEW]).unwrap(), ["new"]);
        assert!(read(&[DOWN, DOWN, OLD]).is_err(), "the other two may have a newer one");
    }

    #[test]
    fn absence_needs_a_majority() {
        assert!(read(&[NIL, NIL, DOWN]).unwrap().is_empty());
        assert!(read(&[NIL]).unwrap().is_empty());
        let error = read(&[DOWN, NIL]).unwrap_err();
        assert!(error.0.starts_with("1 of 2 replicas answered: -ERR Peer"), "{error}");
        assert!(read(&[]).is_err());
    }
}
