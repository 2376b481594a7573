//! Clients that wait for a key to appear (BLPOP and its family).
//!
//! The store only remembers who waits for what. When a key appears, everybody who waits for it is
//! woken at once and tries again; the ones that lose wait again under their old place in line.

use std::collections::HashMap;

/// Names one waiting client to whoever drives the store. Tokens are handed out in the order
/// clients began to wait: the lower one is served first.
pub type WaitToken = u64;

/// The waiting clients of one shard.
#[derive(Debug, Default)]
pub(super) struct Waiters {
    by_key: HashMap<Box<[u8]>, Vec<WaitToken>>,
    woken: Vec<WaitToken>,
}

impl Waiters {
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
    pub(super) fn key_appeared(&mut self, key: &[u8]) {
        if self.by_key.is_empty() {
            return;
        }
        if let Some(waiting) = self.by_key.remove(key) {
            self.woken.extend(waiting);
        }
    }

    /// Moves the woken clients to `into`.
    pub(super) fn take_woken(&mut self, into: &mut Vec<WaitToken>) {
        into.append(&mut self.woken);
    }
}
