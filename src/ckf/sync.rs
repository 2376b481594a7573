//! The atomics of the consumer's table, in one place so that a model checker can replace them.

pub(crate) use std::sync::atomic::{AtomicU16, AtomicU64, Ordering};
