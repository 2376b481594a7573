//! What a Redis or Valkey store holds, from its keyspace events.
//!
//! One RESP3 connection carries both the events and the answers to this node's questions, in the
//! order in which the store did things. So a page of SCAN, or DBSIZE, says what was true between
//! two events, and nothing has to be guessed: an event after a page is newer than the page, and a
//! key that went is in no later page. That is what a set of tombstones would be for, where pages
//! and events came by different ways; here a removal takes the key out of what was listed so far.
//!
//! While the store is listed, and after a lost connection until it is listed again, the node does
//! not know what it holds. FLUSHDB, FLUSHALL and SWAPDB send no events; the number of keys, asked
//! for once a second, tells of them.

mod reply;

use std::collections::HashSet;
use std::io;
use std::time::Duration;

use bytes::{Buf, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpStream, UnixStream};
use tokio::sync::mpsc;

use self::reply::{Value, parse};
use super::Told;
use crate::affinity::domain::StoreLoad;
use crate::affinity::member::Change;
use crate::ckf::hashing::SequenceHash;
use crate::ckf::ringkey::{KeyProtocol, ring_key_hash};
use crate::config::{Config, Endpoint, Store};
use crate::proto::resp::encode;

/// Flags of `notify-keyspace-events` that are needed: by event; new, generic, expired, evicted.
const FLAGS: &str = "Engxe";
/// Keys of one page of SCAN, about.
const PAGE_KEYS: &str = "512";
/// The pause between two pages.
const PAGE_PAUSE: Duration = Duration::from_millis(5);
/// How often the number of keys is compared.
const COMPARE_EVERY: Duration = Duration::from_secs(1);
/// The pause before the store is connected to again; doubles up to the second one.
const RETRY_FIRST: Duration = Duration::from_millis(200);
const RETRY_MAX: Duration = Duration::from_secs(5);
/// How long connecting may take.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);

/// What the affinity task is told of the store.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum StoreNews {
    /// It is not known what the store holds, from here on, for this reason.
    Unsure(String),
    /// It holds exactly this.
    Holds(Vec<SequenceHash>),
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
}

trait Link: AsyncRead + AsyncWrite + Send + Sync + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Sync + Unpin> Link for T {}

impl RedisStore {
    /// The store of a node, unless it is the embedded one.
    pub fn of(config: &Config) -> Option<RedisStore> {
        match &config.store {
            Store::Embedded => None,
            Store::Server(server) => Some(RedisStore {
                endpoint: server.endpoint.clone(),
                user: config.auth.store_user.clone(),
                password: config.auth.store_password.as_ref().map(|p| p.expose().to_owned()),
            }),
        }
    }

    /// Follows the store for ever; `rescan` says that it must be listed again.
    pub(super) async fn follow(self, told: mpsc::Sender<Told>, mut rescan: mpsc::Receiver<()>) {
        let mut pause = RETRY_FIRST;
        let mut told_of = String::new();
        loop {
            let trouble = match self.connect().await {
                Err(error) => Trouble::Io(error),
                Ok(link) => {
                    let mut follower = Follower {
                        link,
                        buf: BytesMut::new(),
                        told: told.clone(),
                        listed: None,
                        changes: Vec::new(),
                    };
                    let trouble =
                        follower.run(&self, &mut rescan, (&mut pause, &mut told_of)).await;
                    match trouble {
                        Ok(()) => return,
                        Err(trouble) => trouble,
                    }
                }
            };
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

    async fn connect(&self) -> io::Result<Box<dyn Link>> {
        let attempt = async {
            Ok(match &self.endpoint {
                Endpoint::Tcp(address) => {
                    let stream = TcpStream::connect((address.host.as_str(), address.port)).await?;
                    stream.set_nodelay(true)?;
                    Box::new(stream) as Box<dyn Link>
                }
                Endpoint::Unix(path) => Box::new(UnixStream::connect(path).await?),
            })
        };
        tokio::time::timeout(CONNECT_TIMEOUT, attempt)
            .await
            .unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
    }
}

/// One connection to the store.
struct Follower {
    link: Box<dyn Link>,
    buf: BytesMut,
    told: mpsc::Sender<Told>,
    /// What was found so far, while the store is listed.
    listed: Option<HashSet<SequenceHash, fnv::FnvBuildHasher>>,
    changes: Vec<Change>,
}

impl Follower {
    /// Ends well only when nobody listens any more.
    async fn run(
        &mut self,
        store: &RedisStore,
        rescan: &mut mpsc::Receiver<()>,
        (pause, told_of): (&mut Duration, &mut String),
    ) -> Result<(), Trouble> {
        self.enter(store).await?;
        self.turn_on_events().await?;
        self.ask(&["PSUBSCRIBE", "__keyevent@0__:*"], "PSUBSCRIBE").await?;
        self.list().await?;
        *pause = RETRY_FIRST;
        told_of.clear();
        tracing::info!("affinity follows the store's keyspace events");
        let mut compare = tokio::time::interval(COMPARE_EVERY);
        compare.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                read = self.link.read_buf(&mut self.buf) => {
                    if read? == 0 {
                        return Err(Trouble::Closed);
                    }
                    while let Some(value) = self.parsed()? {
                        self.take_event(&value);
                    }
                }
                _ = compare.tick() => {
                    let size = self.ask(&["DBSIZE"], "DBSIZE").await?;
                    self.tell_changes().await;
                    if let Value::Int(size) = size {
                        self.tell(StoreNews::Size(size.max(0) as u64)).await;
                    }
                    let load = self.load().await?;
                    self.tell(StoreNews::Load(load)).await;
                }
                wanted = rescan.recv() => match wanted {
                    Some(()) => self.list().await?,
                    None => return Ok(()),
                },
            }
            self.tell_changes().await;
        }
    }

    /// Speaks RESP3, and says who this is.
    async fn enter(&mut self, store: &RedisStore) -> Result<(), Trouble> {
        let mut words = vec!["HELLO", "3"];
        if let Some(password) = &store.password {
            words.extend(["AUTH", store.user.as_deref().unwrap_or("default"), password]);
        }
        self.ask(&words, "HELLO 3").await.map(|_| ())
    }

    /// Adds the flags that are missing to those the operator set; none is taken away.
    async fn turn_on_events(&mut self) -> Result<(), Trouble> {
        let name = "notify-keyspace-events";
        let what = "CONFIG GET notify-keyspace-events; affinity has to see the flags Engxe there: \
                    allow this command (ACL: +config|get)";
        let reply = self.ask(&["CONFIG", "GET", name], what).await?;
        let set = reply.items().get(1).and_then(Value::text).unwrap_or_default();
        // A stands for many, but for none of the others.
        let has = |flag: char| set.contains(flag) || (set.contains('A') && "gxe".contains(flag));
        let missing: String = FLAGS.chars().filter(|flag| !has(*flag)).collect();
        if missing.is_empty() {
            return Ok(());
        }
        let wanted = format!("{set}{missing}");
        let what = "CONFIG SET notify-keyspace-events; affinity needs the flags Engxe there, and \
                    Redis 7.0 or Valkey: set them in its configuration, or allow this command \
                    (ACL: +config|set)";
        self.ask(&["CONFIG", "SET", name, &wanted], what).await?;
        tracing::info!("the store's notify-keyspace-events is \"{wanted}\" now");
        Ok(())
    }

    /// How full the store is; none when it may not be asked.
    async fn load(&mut self) -> Result<Option<StoreLoad>, Trouble> {
        match self.ask(&["INFO", "memory"], "INFO memory").await {
            Ok(info) => Ok(info.text().and_then(load_of)),
            Err(Trouble::Refused(..)) => Ok(None),
            Err(trouble) => Err(trouble),
        }
    }

    /// Lists the store, page by page, while events go on.
    async fn list(&mut self) -> Result<(), Trouble> {
        self.tell(StoreNews::Unsure("the store is being listed".to_owned())).await;
        self.changes.clear();
        self.listed = Some(HashSet::default());
        let mut cursor = "0".to_owned();
        loop {
            let page = self.ask(&["SCAN", &cursor, "COUNT", PAGE_KEYS], "SCAN").await?;
            let [Value::Bulk(next), keys] = page.items() else { return Err(Trouble::Unreadable) };
            cursor = String::from_utf8_lossy(next).into_owned();
            if let Some(listed) = &mut self.listed {
                listed.extend(keys.items().iter().filter_map(Value::bytes).map(hash));
            }
            if cursor == "0" {
                break;
            }
            tokio::time::sleep(PAGE_PAUSE).await;
        }
        let listed = self.listed.take().unwrap_or_default();
        self.tell(StoreNews::Holds(listed.into_iter().collect())).await;
        Ok(())
    }

    /// Puts one question; events that come before its answer are taken.
    async fn ask(&mut self, words: &[&str], what: &'static str) -> Result<Value, Trouble> {
        let mut request = Vec::new();
        let words: Vec<&[u8]> = words.iter().map(|word| word.as_bytes()).collect();
        let subscribes = words.first() == Some(&b"PSUBSCRIBE".as_slice());
        encode::command(&mut request, words);
        self.link.write_all(&request).await?;
        loop {
            while let Some(value) = self.parsed()? {
                match value {
                    Value::Push(items) if subscribes => return Ok(Value::Push(items)),
                    Value::Push(_) => self.take_event(&value),
                    Value::Error(text) => return Err(Trouble::Refused(text, what)),
                    other => return Ok(other),
                }
            }
            if self.link.read_buf(&mut self.buf).await? == 0 {
                return Err(Trouble::Closed);
            }
        }
    }

    fn parsed(&mut self) -> Result<Option<Value>, Trouble> {
        let Some((value, len)) = parse(&self.buf).map_err(|_| Trouble::Unreadable)? else {
            return Ok(None);
        };
        self.buf.advance(len);
        Ok(Some(value))
    }

    /// `pmessage`, the pattern, `__keyevent@0__:what`, the key.
    fn take_event(&mut self, value: &Value) {
        let Value::Push(items) = value else { return };
        let [Value::Bulk(kind), _, Value::Bulk(channel), Value::Bulk(key)] = &items[..] else {
            return;
        };
        if kind != b"pmessage" {
            return;
        }
        let change = match channel.rsplit(|byte| *byte == b':').next() {
            Some(b"new") => Change::Stored(hash(key)),
            Some(b"del" | b"rename_from" | b"move_from" | b"expired" | b"evicted") => {
                Change::Removed(hash(key))
            }
            _ => return,
        };
        match (&mut self.listed, change) {
            (Some(listed), Change::Stored(hash)) => {
                listed.insert(hash);
            }
            (Some(listed), Change::Removed(hash)) => {
                listed.remove(&hash);
            }
            (None, change) => self.changes.push(change),
        }
    }

    async fn tell_changes(&mut self) {
        if !self.changes.is_empty() {
            let changes = std::mem::take(&mut self.changes);
            self.tell(StoreNews::Changed(changes)).await;
        }
    }

    async fn tell(&self, news: StoreNews) {
        // It fails only while the node stops.
        let _ = self.told.send(Told::Store(news)).await;
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
