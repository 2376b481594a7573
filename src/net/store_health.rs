//! Whether the workers reach the node's own datastore.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

/// The connections of every worker to the datastore, for `/ready`.
#[derive(Debug)]
pub struct StoreHealth {
    workers: Box<[OfWorker]>,
    /// Whether connections are made at the start rather than when they are needed.
    eager: bool,
    error: Mutex<String>,
}

#[derive(Debug, Default)]
struct OfWorker {
    open: AtomicUsize,
    failed: AtomicBool,
}

impl StoreHealth {
    /// Nothing is connected yet. With `eager` that is trouble, else only a failed attempt is.
    pub fn new(workers: usize, eager: bool) -> StoreHealth {
        let workers = (0..workers).map(|_| OfWorker::default()).collect();
        StoreHealth { workers, eager, error: Mutex::default() }
    }

    /// Why some worker cannot use the datastore; `None` when all can.
    pub fn trouble(&self) -> Option<String> {
        let cut_off = |worker: &&OfWorker| {
            let open = worker.open.load(Ordering::Relaxed) > 0;
            !open && (self.eager || worker.failed.load(Ordering::Relaxed))
        };
        let cut_off = self.workers.iter().filter(cut_off).count();
        if cut_off == 0 {
            return None;
        }
        let error = self.error.lock().unwrap_or_else(PoisonError::into_inner);
        let why = if error.is_empty() { "not connected yet" } else { error.as_str() };
        Some(format!("{why} ({cut_off} of {} workers)", self.workers.len()))
    }

    pub(super) fn opened(&self, worker: usize) {
        self.workers[worker].open.fetch_add(1, Ordering::Relaxed);
        self.workers[worker].failed.store(false, Ordering::Relaxed);
    }

    pub(super) fn lost(&self, worker: usize, why: &str) {
        self.workers[worker].open.fetch_sub(1, Ordering::Relaxed);
        self.fail(worker, why.to_owned());
    }

    pub(super) fn refused(&self, worker: usize, error: &io::Error) {
        self.fail(worker, error.to_string());
    }

    fn fail(&self, worker: usize, why: String) {
        self.workers[worker].failed.store(true, Ordering::Relaxed);
        *self.error.lock().unwrap_or_else(PoisonError::into_inner) = why;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_worker_needs_a_connection() {
        let health = StoreHealth::new(2, true);
        assert_eq!(health.trouble().as_deref(), Some("not connected yet (2 of 2 workers)"));
        health.opened(0);
        health.refused(1, &io::ErrorKind::ConnectionRefused.into());
        let trouble = health.trouble().unwrap();
        assert_eq!(trouble, "connection refused (1 of 2 workers)");
        health.opened(1);
        health.opened(1);
        health.lost(1, "connection closed");
        assert_eq!(health.trouble(), None, "one of its connections is left");
        health.lost(1, "connection closed");
        assert_eq!(health.trouble().as_deref(), Some("connection closed (1 of 2 workers)"));
    }

    #[test]
    fn connections_made_on_demand_are_no_trouble_until_one_fails() {
        let health = StoreHealth::new(1, false);
        assert_eq!(health.trouble(), None);
        health.refused(0, &io::ErrorKind::ConnectionRefused.into());
        assert!(health.trouble().is_some());
        health.opened(0);
        assert_eq!(health.trouble(), None);
    }
}
