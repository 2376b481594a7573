//! Windows of load for any number of subscribers: the latest one at once, then each that follows.

use std::sync::{Arc, Mutex};

use tokio::sync::broadcast;

use super::lock;

/// One plane's windows. `M` is the message of a window.
pub(super) struct Windows<M> {
    latest: Mutex<(u64, Arc<M>)>,
    follow: broadcast::Sender<Arc<M>>,
}

impl<M> Windows<M> {
    /// Windows that begin with `first`, the one before all others. A subscriber may be
    /// `capacity` windows behind.
    pub(super) fn new(first: M, capacity: usize) -> Windows<M> {
        let (follow, _) = broadcast::channel(capacity);
        Windows { latest: Mutex::new((0, Arc::new(first))), follow }
    }

    /// The latest window's number.
    pub(super) fn sequence(&self) -> u64 {
        lock(&self.latest).0
    }

    pub(super) fn publish(&self, sequence: u64, message: M) {
        let message = Arc::new(message);
        // Under the lock, so that nobody gets a window twice or misses one.
        let mut latest = lock(&self.latest);
        *latest = (sequence, Arc::clone(&message));
        // Nobody listening is no error.
        let _ = self.follow.send(message);
    }

    /// The latest window and what follows it.
    pub(super) fn subscribe(&self) -> (Arc<M>, broadcast::Receiver<Arc<M>>) {
        let latest = lock(&self.latest);
        (Arc::clone(&latest.1), self.follow.subscribe())
    }
}
