//! What a Redis or Valkey store holds, from its keyspace events.
//!
//! While the store is listed, and after a lost connection until it is listed again, the node does
//! not know what it holds. FLUSHDB, FLUSHALL and SWAPDB send no events; the number of keys, asked
//! for once a second, tells of them. A store that is older than Redis 7.0 does not tell of every
//! key (see [`events`]), and some servers tell of none; those are asked about the keys the node
//! itself writes. Both are listed again and again, while they are believed.

mod events;
mod follower;
mod link;
mod reply;

use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::{TcpStream, UnixStream};
use tokio::sync::mpsc;

use self::follower::Follower;
use self::link::{Link, Stream};
use super::{AffinityPlane, Told};
use crate::affinity::domain::StoreLoad;
use crate::affinity::following::Way;
use crate::affinity::member::Change;
use crate::affinity::observed::ObservedWrites;
use crate::ckf::hashing::SequenceHash;
use crate::ckf::ringkey::{KeyProtocol, ring_key_hash};
use crate::config::{Config, Endpoint, Store};

/// The pause before the store is connected to again; doubles up to the second one.
const RETRY_FIRST: Duration = Duration::from_millis(200);
const RETRY_MAX: Duration = Duration::from_secs(5);
/// How long connecting may take.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);

/// What the affinity task is told of the store.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum StoreNews {
    /// It is followed so from here on.
    Followed(Way),
    /// It is not known what the store holds, from here on, for this reason.
    Unsure(String),
    /// It is listed from here on, from its beginning.
    Listing,
    /// It holds these: a page of the listing.
    Page(Vec<SequenceHash>),
    /// That was the last page.
    Listed,
    /// This happened.
    Changed(Vec<Change>),
    /// It holds so many keys now.
    Size(u64),
    /// It is so full; none when it does not say.
    Load(Option<StoreLoad>),
}

/// Where the store is, and how to get in.
#[derive(Clone)]
pub struct RedisStore {
    endpoint: Endpoint,
    user: Option<String>,
    password: Option<String>,
    /// The pause between two listings of one that does not tell of every key.
    rescan_after: Duration,
    /// What the node itself tells it to change.
    observed: Arc<ObservedWrites>,
}

/// Why following ended.
#[derive(Debug, thiserror::Error)]
enum Trouble {
    #[error("{0}")]
    Io(#[from] io::Error),
    #[error("it closed the connection")]
    Closed,
    #[error("the store answers {0:?} to {1}")]
    Refused(String, &'static str),
    #[error("the store's bytes are no replies")]
    Unreadable,
    #[error("it does not answer")]
    Silent,
}

impl RedisStore {
    /// The store of a node, unless it is the embedded one.
    pub fn of(config: &Config, plane: &AffinityPlane) -> Option<RedisStore> {
        match &config.store {
            Store::Embedded => None,
            Store::Server(server) => Some(RedisStore {
                endpoint: server.endpoint.clone(),
                user: config.auth.store_user.clone(),
                password: config.auth.store_password.as_ref().map(|p| p.expose().to_owned()),
                observed: Arc::clone(plane.domains().keys().observed_writes()),
                rescan_after: Duration::from_millis(config.affinity.rescan_after_ms),
            }),
        }
    }

    /// Follows the store for ever; `rescan` says that it must be listed again.
    pub(super) async fn follow(self, told: mpsc::Sender<Told>, mut rescan: mpsc::Receiver<()>) {
        let mut pause = RETRY_FIRST;
        let mut told_of = String::new();
        loop {
            let (trouble, was_listed) = match self.enter(&told).await {
                Err(trouble) => (trouble, false),
                Ok(mut follower) => match follower.run(&mut rescan).await {
                    Ok(()) => return,
                    Err(trouble) => (trouble, follower.was_listed()),
                },
            };
            if was_listed {
                pause = RETRY_FIRST;
                told_of.clear();
            }
            let why = trouble.to_string();
            // It is tried again and again; the same trouble is told once.
            if why != told_of {
                tracing::warn!("affinity cannot follow the store: {why}");
                told_of.clone_from(&why);
            }
            if told.send(Told::Store(StoreNews::Unsure(why))).await.is_err() {
                return;
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(RETRY_MAX);
        }
    }

    async fn enter(&self, told: &mpsc::Sender<Told>) -> Result<Follower, Trouble> {
        Follower::enter(Link::open(self).await?, self, told.clone()).await
    }

    async fn connect(&self) -> io::Result<Box<dyn Stream>> {
        let attempt = async {
            Ok(match &self.endpoint {
                Endpoint::Tcp(address) => {
                    let stream = TcpStream::connect((address.host.as_str(), address.port)).await?;
                    stream.set_nodelay(true)?;
                    Box::new(stream) as Box<dyn Stream>
                }
                Endpoint::Unix(path) => Box::new(UnixStream::connect(path).await?),
            })
        };
        tokio::time::timeout(CONNECT_TIMEOUT, attempt)
            .await
            .unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
    }
}

/// `used_memory` and `maxmemory` of INFO; 0 is no limit.
fn load_of(info: &str) -> Option<StoreLoad> {
    let field = |name: &str| -> Option<u64> {
        let line = info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        line?.trim().parse().ok()
    };
    let total = field("maxmemory").filter(|most| *most > 0);
    Some(StoreLoad { used: field("used_memory")?, total })
}

fn hash(key: &(impl AsRef<[u8]> + ?Sized)) -> SequenceHash {
    ring_key_hash(KeyProtocol::Resp, key.as_ref())
}

#[cfg(test)]
mod tests;
