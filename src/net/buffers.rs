//! The bound over the memory of all buffers of a node (`limits.buffers_bytes_max`).
//!
//! Every connection reports what it holds: an unfinished request or reply, and bytes that wait to
//! be sent. Most hold nothing between two turns. When the sum exceeds the bound, the connection
//! that holds the most is closed, and the next, until it does not. Only connections that hold
//! much are in a list, so the lock around it is not taken for ordinary requests.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Waker;

/// From this size on a connection may be closed for what it holds.
const LARGE: usize = 256 * 1024;

/// All buffers of a node.
#[derive(Debug)]
pub struct Buffers {
    max: usize,
    held: AtomicUsize,
    /// Of that, what connections hold that are being closed.
    leaving: AtomicUsize,
    closed: AtomicU64,
    large: Mutex<Vec<Arc<Holder>>>,
}

/// A connection that holds much.
#[derive(Debug)]
struct Holder {
    bytes: AtomicUsize,
    /// It is to be closed.
    taken: AtomicBool,
    /// What it held when that was decided.
    taken_bytes: AtomicUsize,
    waker: Option<Waker>,
}

/// What one connection holds.
#[derive(Debug)]
pub(super) struct Share {
    buffers: Arc<Buffers>,
    bytes: usize,
    holder: Option<Arc<Holder>>,
}

impl Buffers {
    /// At most `max` bytes.
    pub fn new(max: usize) -> Buffers {
        Buffers {
            max,
            held: AtomicUsize::new(0),
            leaving: AtomicUsize::new(0),
            closed: AtomicU64::new(0),
            large: Mutex::default(),
        }
    }

    /// Bytes held now.
    pub fn held(&self) -> usize {
        self.held.load(Ordering::Relaxed)
    }

    /// Connections closed because of the bound.
    pub fn closed(&self) -> u64 {
        self.closed.load(Ordering::Relaxed)
    }

    fn is_over(&self) -> bool {
        self.held() > self.max.saturating_add(self.leaving.load(Ordering::Relaxed))
    }

    fn close_largest(&self) {
        let large = self.large();
        while self.is_over() {
            let staying = large.iter().filter(|holder| !holder.taken.load(Ordering::Relaxed));
            let most = staying.max_by_key(|holder| holder.bytes.load(Ordering::Relaxed));
            let Some(most) = most else { return };
            let bytes = most.bytes.load(Ordering::Relaxed);
            tracing::warn!(
                bytes,
                held = self.held(),
                max = self.max,
                "all buffers together exceed limits.buffers_bytes_max: the connection that holds \
                 the most is closed"
            );
            most.taken_bytes.store(bytes, Ordering::Relaxed);
            most.taken.store(true, Ordering::Relaxed);
            self.leaving.fetch_add(bytes, Ordering::Relaxed);
            self.closed.fetch_add(1, Ordering::Relaxed);
            most.waker.iter().for_each(Waker::wake_by_ref);
        }
    }

    fn large(&self) -> MutexGuard<'_, Vec<Arc<Holder>>> {
        self.large.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Share {
    /// Nothing yet.
    pub(super) fn new(buffers: &Arc<Buffers>) -> Share {
        Share { buffers: Arc::clone(buffers), bytes: 0, holder: None }
    }

    /// The connection holds so many bytes now. `waker` wakes its task.
    pub(super) fn set(&mut self, bytes: usize, waker: Option<&Waker>) {
        let before = std::mem::replace(&mut self.bytes, bytes);
        match bytes >= before {
            true => self.buffers.held.fetch_add(bytes - before, Ordering::Relaxed),
            false => self.buffers.held.fetch_sub(before - bytes, Ordering::Relaxed),
        };
        match &self.holder {
            Some(_) if bytes < LARGE && !self.is_taken() => self.leave(),
            Some(holder) => holder.bytes.store(bytes, Ordering::Relaxed),
            None if bytes >= LARGE => {
                let holder = Arc::new(Holder {
                    bytes: AtomicUsize::new(bytes),
                    taken: AtomicBool::new(false),
                    taken_bytes: AtomicUsize::new(0),
                    waker: waker.cloned(),
                });
                self.buffers.large().push(Arc::clone(&holder));
                self.holder = Some(holder);
            }
            None => {}
        }
        if bytes > before && self.buffers.is_over() {
            self.buffers.close_largest();
        }
    }

    /// True when the connection is to be closed.
    pub(super) fn is_taken(&self) -> bool {
        self.holder.as_ref().is_some_and(|holder| holder.taken.load(Ordering::Relaxed))
    }

    fn leave(&mut self) {
        let Some(holder) = self.holder.take() else { return };
        let mut large = self.buffers.large();
        large.retain(|other| !Arc::ptr_eq(other, &holder));
        self.buffers
            .leaving
            .fetch_sub(holder.taken_bytes.load(Ordering::Relaxed), Ordering::Relaxed);
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.buffers.held.fetch_sub(self.bytes, Ordering::Relaxed);
        self.leave();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: usize = 1 << 20;

    #[test]
    fn the_largest_is_closed_and_counts_no_more_until_it_is_gone() {
        let buffers = Arc::new(Buffers::new(10 * MIB));
        let mut shares = [(); 4].map(|()| Share::new(&buffers));
        shares[0].set(3 * MIB, None);
        shares[1].set(5 * MIB, None);
        shares[2].set(2 * MIB, None);
        assert_eq!((buffers.held(), buffers.closed()), (10 * MIB, 0));
        shares[3].set(MIB, None);
        let taken = shares.each_ref().map(Share::is_taken);
        assert_eq!((taken, buffers.closed()), ([false, true, false, false], 1));
        // Five of eleven are leaving: there is room for four more.
        shares[3].set(5 * MIB, None);
        assert_eq!(buffers.closed(), 1);
        shares[0].set(4 * MIB, None);
        let taken = shares.each_ref().map(Share::is_taken);
        assert_eq!((taken, buffers.closed()), ([false, true, false, true], 2));
        drop(shares);
        assert_eq!((buffers.held(), buffers.leaving.load(Ordering::Relaxed)), (0, 0));
    }

    #[test]
    fn those_that_hold_little_are_never_closed() {
        let buffers = Arc::new(Buffers::new(MIB));
        let mut shares: Vec<Share> = (0..100).map(|_| Share::new(&buffers)).collect();
        shares.iter_mut().for_each(|share| share.set(LARGE - 1, None));
        assert_eq!(buffers.closed(), 0);
        shares[7].set(LARGE, None);
        assert!(shares[7].is_taken() && buffers.closed() == 1);
        // One that shrank before it was looked at stays in the list no longer.
        shares[8].set(10, None);
        assert_eq!(buffers.large().len(), 1);
    }
}
