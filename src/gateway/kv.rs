//! The small state of the document plane: tasks, idempotency entries, session pins, aliases,
//! migrations. It lives in the ring, so that any node answers for any task and a restart loses
//! none that some rack still has; without a ring an in-process map takes over.
//!
//! Every value is stored with a version. A read may find several values, one per replica; the
//! newest version counts, because a replica that was restarted empty or missed a write must not
//! win. Nothing is deleted by absence: an ended thing is a newer, empty value.

use super::bounded::Bounded;
use super::error::ApiError;
use super::time::WallClock;
use bytes::Bytes;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, HashMap};
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use thiserror::Error;

impl From<KvError> for ApiError {
    fn from(error: KvError) -> ApiError {
        ApiError::new("miroir_state_unavailable", error.to_string())
    }
}

/// A future of a [`RingKv`].
pub type KvFuture<'a, T> = Pin<Box<dyn Future<Output = Result<T, KvError>> + Send + 'a>>;

/// The state could not be read or written.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("the gateway's state in the ring cannot be reached: {0}")]
pub struct KvError(pub String);

/// Keys and values with expiry, shared by the gateways of a ring.
pub trait RingKv: Send + Sync {
    /// All values replicas have for `key`, in no order. Empty when none has one.
    fn get<'a>(&'a self, key: &'a str) -> KvFuture<'a, Vec<Bytes>>;

    /// Stores a value at a quorum of replicas, until `ttl` has passed where given.
    fn set<'a>(&'a self, key: &'a str, value: Bytes, ttl: Option<Duration>) -> KvFuture<'a, ()>;
}

/// Entries an in-process map keeps.
const MEMORY_ENTRIES_MAX: usize = 1_200_000;

/// An in-process [`RingKv`]: state of one gateway, gone with the process.
pub struct MemoryKv {
    clock: WallClock,
    inner: Mutex<Memory>,
    entries_max: usize,
}

#[derive(Default)]
struct Memory {
    values: HashMap<String, (Bytes, u64)>,
    /// Keys by the time they expire; the earliest go first when the map is full.
    expiry: BTreeMap<(u64, String), ()>,
}

impl MemoryKv {
    /// An empty map.
    pub fn new(clock: WallClock) -> MemoryKv {
        MemoryKv { clock, inner: Mutex::default(), entries_max: MEMORY_ENTRIES_MAX }
    }
}

impl Memory {
    fn remove(&mut self, key: &str) {
        if let Some((_, expires_us)) = self.values.remove(key) {
            self.expiry.remove(&(expires_us, key.to_owned()));
        }
    }

    fn drop_expired(&mut self, now_us: u64, entries_max: usize) {
        while let Some(((expires_us, key), ())) = self.expiry.first_key_value() {
            let full = self.values.len() > entries_max && *expires_us < u64::MAX;
            if *expires_us > now_us && !full {
                return;
            }
            let key = key.clone();
            self.remove(&key);
        }
    }
}

impl RingKv for MemoryKv {
    fn get<'a>(&'a self, key: &'a str) -> KvFuture<'a, Vec<Bytes>> {
        let now_us = self.clock.now_us();
        let inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        let found = inner.values.get(key).filter(|(_, expires_us)| *expires_us > now_us);
        let values = found.map(|(value, _)| value.clone()).into_iter().collect();
        Box::pin(std::future::ready(Ok(values)))
    }

    fn set<'a>(&'a self, key: &'a str, value: Bytes, ttl: Option<Duration>) -> KvFuture<'a, ()> {
        let now_us = self.clock.now_us();
        let expires_us = ttl.map_or(u64::MAX, |ttl| now_us.saturating_add(ttl.as_micros() as u64));
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        inner.remove(key);
        inner.values.insert(key.to_owned(), (value, expires_us));
        inner.expiry.insert((expires_us, key.to_owned()), ());
        inner.drop_expired(now_us, self.entries_max);
        Box::pin(std::future::ready(Ok(())))
    }
}

/// What all keys of the document plane begin with. `torc:` keeps them out of KEYS and SCAN.
pub const KEY_PREFIX: &str = "torc:doc:";

/// Kinds of state, each with its own keys and lifetime.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Class {
    /// Task registry entries.
    Task,
    /// Highest task numbers given out, per slot.
    Sequence,
    /// Stored responses by idempotency key.
    Idempotency,
    /// Session pins.
    Session,
    /// Aliases, and the list of their names.
    Alias,
    /// What backends missed, per index.
    Missed,
    /// Documents backends missed, per index, and the list of these indexes.
    Dirty,
    /// The running migration and the backends that joined.
    Migration,
}

impl Class {
    /// The class's part of its keys.
    fn name(self) -> &'static str {
        match self {
            Class::Task => "task",
            Class::Sequence => "seq",
            Class::Idempotency => "idem",
            Class::Session => "session",
            Class::Alias => "alias",
            Class::Missed => "missed",
            Class::Dirty => "dirty",
            Class::Migration => "migration",
        }
    }

    fn ttl(self) -> Option<Duration> {
        match self {
            Class::Task => Some(TASK_KEPT),
            Class::Idempotency => Some(Duration::from_secs(24 * 3600)),
            Class::Session => Some(Duration::from_secs(15 * 60)),
            Class::Sequence | Class::Alias | Class::Missed | Class::Dirty | Class::Migration => {
                None
            }
        }
    }
}

/// How long a task can be asked for.
pub(super) const TASK_KEPT: Duration = Duration::from_secs(7 * 24 * 3600);

/// Stored responses a gateway keeps.
const IDEMPOTENCY_MAX: usize = 1_000_000;

/// Session pins a gateway keeps.
const SESSIONS_MAX: usize = 100_000;

/// How long the empty value stands that ends an entry.
const ENDED: Duration = Duration::from_secs(1);

#[derive(Serialize, Deserialize)]
struct Versioned<T> {
    v: u64,
    d: T,
}

/// Typed access to the small state.
#[derive(Clone)]
pub(super) struct State {
    kv: Arc<dyn RingKv>,
    namespace: Arc<str>,
    clock: WallClock,
    last_version: Arc<AtomicU64>,
    idempotency: Arc<Bounded>,
    sessions: Arc<Bounded>,
}

impl State {
    /// State under keys of its own. Gateways of one namespace share it.
    pub(super) fn new(kv: Arc<dyn RingKv>, namespace: &str, clock: WallClock) -> State {
        let bounded = |class: Class, entries_max| {
            Arc::new(Bounded::new(entries_max, class.ttl().unwrap_or(Duration::MAX)))
        };
        State {
            kv,
            namespace: namespace.into(),
            clock,
            last_version: Arc::default(),
            idempotency: bounded(Class::Idempotency, IDEMPOTENCY_MAX),
            sessions: bounded(Class::Session, SESSIONS_MAX),
        }
    }

    fn key(&self, class: Class, name: &str) -> String {
        format!("{KEY_PREFIX}{}:{}:{name}", self.namespace, class.name())
    }

    /// The newest value, `None` when there is none or none can be understood.
    pub(super) async fn load<T: DeserializeOwned>(
        &self,
        class: Class,
        name: &str,
    ) -> Result<Option<T>, KvError> {
        let key = self.key(class, name);
        let values = self.kv.get(&key).await?;
        let newest = values
            .iter()
            .filter_map(|value| serde_json::from_slice::<Versioned<T>>(value).ok())
            .max_by_key(|versioned| versioned.v);
        Ok(newest.map(|versioned| versioned.d))
    }

    /// Stores a value that is newer than all stored from here before.
    pub(super) async fn store<T: Serialize>(
        &self,
        class: Class,
        name: &str,
        value: &T,
    ) -> Result<(), KvError> {
        let now = self.clock.now_us();
        let last = self.last_version.fetch_max(now, Ordering::Relaxed);
        let v =
            if last < now { now } else { self.last_version.fetch_add(1, Ordering::Relaxed) + 1 };
        let text =
            serde_json::to_vec(&Versioned { v, d: value }).map_err(|e| KvError(e.to_string()))?;
        let key = self.key(class, name);
        self.kv.set(&key, Bytes::from(text), class.ttl()).await?;
        self.make_room(class, name, v).await;
        Ok(())
    }

    /// Ends the oldest entry of a kind of which there may be so many only.
    async fn make_room(&self, class: Class, stored: &str, v: u64) {
        let bounded = match class {
            Class::Idempotency => &self.idempotency,
            Class::Session => &self.sessions,
            _ => return,
        };
        if let Some(oldest) = bounded.note(stored, v) {
            // One that cannot be ended expires.
            let _ = self.kv.set(&self.key(class, &oldest), Bytes::new(), Some(ENDED)).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicU64;

    fn hand_clock() -> (Arc<AtomicU64>, WallClock) {
        let now = Arc::new(AtomicU64::new(1_000_000));
        let shared = now.clone();
        (now, WallClock::new(move || shared.load(Ordering::Relaxed)))
    }

    #[tokio::test]
    async fn values_expire_and_the_earliest_leave_a_full_map() {
        let (now, clock) = hand_clock();
        let mut kv = MemoryKv::new(clock);
        kv.entries_max = 2;
        kv.set("a", Bytes::from("1"), Some(Duration::from_secs(1))).await.unwrap();
        kv.set("a", Bytes::from("2"), Some(Duration::from_secs(5))).await.unwrap();
        assert_eq!(kv.get("a").await.unwrap(), ["2"]);
        now.store(7_000_000, Ordering::Relaxed);
        assert!(kv.get("a").await.unwrap().is_empty());
        kv.set("for ever", Bytes::new(), None).await.unwrap();
        for (key, secs) in [("b", 9), ("c", 8), ("d", 7)] {
            kv.set(key, Bytes::from("x"), Some(Duration::from_secs(secs))).await.unwrap();
        }
        assert!(kv.get("d").await.unwrap().is_empty(), "it would have expired first");
        assert_eq!(kv.get("b").await.unwrap(), ["x"]);
        assert_eq!(kv.get("for ever").await.unwrap().len(), 1);
    }

    #[tokio::test]
    async fn the_oldest_session_leaves_when_there_are_too_many() {
        let (_, clock) = hand_clock();
        let mut state = State::new(Arc::new(MemoryKv::new(clock.clone())), "dc1", clock);
        state.sessions = Arc::new(Bounded::new(2, Duration::from_secs(900)));
        for (name, value) in [("a", 1), ("b", 2), ("a", 3), ("c", 4)] {
            state.store(Class::Session, name, &value).await.unwrap();
        }
        for (name, value) in [("a", Some(3)), ("b", None), ("c", Some(4))] {
            assert_eq!(state.load::<u32>(Class::Session, name).await.unwrap(), value, "{name}");
        }
        for name in ["1", "2", "3"] {
            state.store(Class::Task, name, &1).await.unwrap();
        }
        assert_eq!(state.load::<u32>(Class::Task, "1").await.unwrap(), Some(1), "no such bound");
    }

    struct Replicas(Mutex<Vec<Bytes>>);

    impl RingKv for Replicas {
        fn get<'a>(&'a self, _: &'a str) -> KvFuture<'a, Vec<Bytes>> {
            Box::pin(std::future::ready(Ok(self.0.lock().unwrap().clone())))
        }

        fn set<'a>(&'a self, _: &'a str, value: Bytes, _: Option<Duration>) -> KvFuture<'a, ()> {
            self.0.lock().unwrap().push(value);
            Box::pin(std::future::ready(Ok(())))
        }
    }

    #[tokio::test]
    async fn the_newest_of_several_replicas_counts() {
        let (_, clock) = hand_clock();
        let kv = Arc::new(Replicas(Mutex::new(vec![Bytes::from("garbage")])));
        let state = State::new(kv.clone(), "dc1", clock);
        assert_eq!(state.load::<u32>(Class::Task, "1").await.unwrap(), None);
        for value in [5, 6, 7] {
            state.store(Class::Task, "1", &value).await.unwrap();
        }
        kv.0.lock().unwrap().reverse();
        assert_eq!(state.load::<u32>(Class::Task, "1").await.unwrap(), Some(7));
    }
}
