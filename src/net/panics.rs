//! What becomes of a worker when something in it panics (decision C7).
//!
//! A panic while a connection is served ends that connection. One inside the dispatcher leaves a
//! state nobody knows: the worker goes on with a new dispatcher, and every connection of the old
//! one closes. Either is counted, and the process lives.

use std::cell::{Ref, RefMut};
use std::future::{Future, poll_fn};
use std::ops::{Deref, DerefMut};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Poll, Waker};

use super::core::Core;
use crate::dispatch::Dispatcher;
use crate::dispatch::failure::Cause;

/// The dispatcher, entered.
pub(super) struct Entered<'a> {
    dispatcher: RefMut<'a, Dispatcher>,
    core: &'a Core,
}

impl Deref for Entered<'_> {
    type Target = Dispatcher;

    fn deref(&self) -> &Dispatcher {
        &self.dispatcher
    }
}

impl DerefMut for Entered<'_> {
    fn deref_mut(&mut self) -> &mut Dispatcher {
        &mut self.dispatcher
    }
}

impl Drop for Entered<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.core.give_up();
        }
    }
}

/// Polls once; `None` when that is a panic.
pub(super) fn catch<T>(poll: impl FnOnce() -> Poll<T>) -> Poll<Option<T>> {
    match catch_unwind(AssertUnwindSafe(poll)) {
        Ok(polled) => polled.map(Some),
        Err(_) => Poll::Ready(None),
    }
}

/// Runs `work` to its end; `None` when that is a panic.
pub(super) async fn caught<T>(work: impl Future<Output = T>) -> Option<T> {
    let mut work = pin!(work);
    poll_fn(|cx| catch(|| work.as_mut().poll(cx))).await
}

impl Core {
    /// A fresh state in place of this one, whose connections all close.
    pub(super) fn replace(&self) -> Rc<Core> {
        tracing::error!(
            worker = self.number,
            "a panic in the dispatcher: all connections of this worker are closed, and it starts \
             anew"
        );
        self.own_tasks.borrow_mut().drain(..).for_each(|task| task.abort());
        for (_, upstream) in self.upstreams.borrow_mut().drain() {
            upstream.task.abort();
            if upstream.open {
                self.tell_lost(upstream.target, Cause::Closed);
            }
        }
        for io in self.ios.take().iter() {
            io.waker.iter().for_each(Waker::wake_by_ref);
        }
        let old = self.dispatcher.borrow();
        let connections = Arc::clone(&self.connections);
        Core::start_after(Some(&old), self.number, self.setup.clone(), connections)
    }

    /// The dispatcher, to be changed. A panic before the end of the borrow breaks it.
    pub(super) fn enter(&self) -> Entered<'_> {
        Entered { dispatcher: self.dispatcher.borrow_mut(), core: self }
    }

    /// The dispatcher, to be looked at.
    pub(super) fn look(&self) -> Ref<'_, Dispatcher> {
        self.dispatcher.borrow()
    }

    /// True when the dispatcher is given up: the connection ends.
    pub(super) fn is_broken(&self) -> bool {
        self.broken.get()
    }

    /// Ends the use of the dispatcher: the worker replaces it.
    pub(super) fn give_up(&self) {
        self.broken.set(true);
        self.broke.notify_one();
    }

    /// Counts a panic that ended one connection, unless it ends all of them.
    pub(super) fn note_panic(&self) {
        if !self.is_broken() {
            tracing::error!(worker = self.number, "a panic: its connection is closed");
            self.enter().note_panic();
        }
    }
}
