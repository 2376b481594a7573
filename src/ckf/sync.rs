//! The atomics of the consumer's table, in one place so that a model checker can replace them
//! (`tests/loom`).

#[cfg(loom)]
pub(crate) use loom::sync::atomic::{AtomicU16, AtomicU64, Ordering};
#[cfg(not(loom))]
pub(crate) use std::sync::atomic::{AtomicU16, AtomicU64, Ordering};
