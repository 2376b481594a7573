//! Clients that wait for a key to become something (BLPOP and its family).
//!
//! The store only remembers who waits for what. When a key is written, everybody who waits for it
//! is woken at once and looks again; the ones that lose wait again under their old place in line.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Names one waiting client to whoever drives the store. Tokens are handed out in the order
/// clients began to wait: the lower one is served first. The low bits name the client's worker.
pub type WaitToken = u64;

/// Bits of a token that name the worker.
const WORKER_BITS: u32 = 16;

/// The waiting clients of one shard.
#[derive(Debug)]
pub(super) struct Waiters {
    by_key: HashMap<Box<[u8]>, Vec<WaitToken>>,
    woken: Arc<Woken>,
}

impl Waiters {
    pub(super) fn new(woken: Arc<Woken>) -> Waiters {
        Waiters { by_key: HashMap::new(), woken }
    }

    /// Adds a client to those who wait for `key`.
    pub(super) fn add(&mut self, key: &[u8], token: WaitToken) {
        let waiting = self.by_key.entry(key.into()).or_default();
        if let Err(at) = waiting.binary_search(&token) {
            waiting.insert(at, token);
        }
    }

    /// Forgets a client that no longer waits for `key`.
    pub(super) fn remove(&mut self, key: &[u8], token: WaitToken) {
        if let Some(waiting) = self.by_key.get_mut(key) {
            waiting.retain(|&t| t != token);
            if waiting.is_empty() {
                self.by_key.remove(key);
            }
        }
    }

    /// Wakes everybody who waits for `key`.
    #[inline]
    pub(super) fn key_written(&mut self, key: &[u8]) {
        if self.by_key.is_empty() {
            return;
        }
        if let Some(waiting) = self.by_key.remove(key) {
            self.woken.add(&waiting);
        }
    }
}

/// The clients that were woken and not fetched, of all shards, by worker.
#[derive(Default)]
pub(super) struct Woken {
    last_token: AtomicU64,
    workers: Mutex<HashMap<u64, Sleepers>>,
}

#[derive(Default)]
struct Sleepers {
    woken: Vec<WaitToken>,
    /// Tells the worker that it has somebody to fetch.
    wake: Option<Box<dyn Fn() + Send + Sync>>,
}

impl std::fmt::Debug for Woken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Woken").field("last_token", &self.last_token).finish_non_exhaustive()
    }
}

impl Woken {
    /// A token behind all others, for a client of `worker`.
    pub(super) fn next_token(&self, worker: u64) -> WaitToken {
        let number = self.last_token.fetch_add(1, Ordering::Relaxed) + 1;
        number << WORKER_BITS | worker_of(worker)
    }

    /// Calls `wake` whenever a client of `worker` was woken.
    pub(super) fn wake_by(&self, worker: u64, wake: Box<dyn Fn() + Send + Sync>) {
        self.lock().entry(worker_of(worker)).or_default().wake = Some(wake);
    }

    /// Moves the woken clients of `worker` to `into`.
    pub(super) fn take(&self, worker: u64, into: &mut Vec<WaitToken>) {
        if let Some(sleepers) = self.lock().get_mut(&worker_of(worker)) {
            into.append(&mut sleepers.woken);
        }
    }

    fn add(&self, tokens: &[WaitToken]) {
        let mut workers = self.lock();
        for token in tokens {
            let sleepers = workers.entry(worker_of(*token)).or_default();
            sleepers.woken.push(*token);
            if let Some(wake) = &sleepers.wake {
                wake();
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<u64, Sleepers>> {
        self.workers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The worker of a token, or of a worker's own number.
fn worker_of(token: u64) -> u64 {
    token & ((1 << WORKER_BITS) - 1)
}
