//! What the server counts, by kind of stream.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::relay::reason::Reason;

/// Kinds of streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum StreamKind {
    /// `WatchKvPoolCatalog`.
    Catalog,
    /// `SubscribeKvPool`.
    Pool,
    /// `SubscribeServingReadiness`.
    Readiness,
    /// `SubscribeKvPoolLoad`.
    Load,
    /// `SubscribeServingLoad`.
    ServingLoad,
}

impl StreamKind {
    /// All of them.
    pub const ALL: [StreamKind; 5] = [
        StreamKind::Catalog,
        StreamKind::Pool,
        StreamKind::Readiness,
        StreamKind::Load,
        StreamKind::ServingLoad,
    ];

    /// Fixed name for metrics.
    pub fn label(self) -> &'static str {
        match self {
            StreamKind::Catalog => "catalog",
            StreamKind::Pool => "pool",
            StreamKind::Readiness => "readiness",
            StreamKind::Load => "load",
            StreamKind::ServingLoad => "serving_load",
        }
    }
}

/// Reasons there are.
const REASONS: usize = 12;

/// Figures of one kind of stream.
#[derive(Debug, Default)]
pub struct OfKind {
    /// Streams begun.
    pub opened: AtomicU64,
    /// Streams that are open.
    pub open: AtomicU64,
    /// Messages given to connections.
    pub messages: AtomicU64,
    /// Bytes of filters in them.
    pub payload_bytes: AtomicU64,
    refused: [AtomicU64; REASONS],
}

impl OfKind {
    /// Calls and streams that ended for a reason.
    pub fn ended(&self, reason: Reason) -> u64 {
        self.refused[reason as usize].load(Ordering::Relaxed)
    }
}

/// Figures of the server since it began.
#[derive(Debug, Default)]
pub struct Counters {
    kinds: [OfKind; 5],
    /// Connections taken in.
    pub connections: AtomicU64,
    /// Hubs begun.
    pub hubs_started: AtomicU64,
    /// Idle hubs that made room for others.
    pub hubs_evicted: AtomicU64,
    /// Hubs that had to be given up.
    pub hubs_failed: AtomicU64,
    /// Snapshots cut for subscribers.
    pub snapshots: AtomicU64,
    /// Deltas made.
    pub deltas: AtomicU64,
    /// Images in them.
    pub images: AtomicU64,
}

impl Counters {
    /// The figures of one kind.
    pub fn of(&self, kind: StreamKind) -> &OfKind {
        &self.kinds[kind as usize]
    }

    /// A call was refused, or its stream ended, for a reason.
    pub(super) fn ended(&self, kind: StreamKind, reason: Reason) {
        add(&self.of(kind).refused[reason as usize], 1);
    }
}

pub(super) fn add(counter: &AtomicU64, count: u64) {
    counter.fetch_add(count, Ordering::Relaxed);
}
