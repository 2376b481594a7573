//! The server's part of `/relay` on the admin port.

use std::sync::atomic::Ordering;

use serde::Serialize;

use super::{Relay, StreamKind, lock};
use crate::relay::reason::Reason;

/// What a relay serves now.
#[derive(Debug, Serialize)]
pub struct RelayReport {
    /// Its runtime's number.
    pub drt_instance_id: String,
    /// The number of this life of it.
    pub incarnation: String,
    /// Changes of the catalog.
    pub catalog_revision: u64,
    /// Changes of the readiness.
    pub readiness_revision: u64,
    /// Windows of load so far.
    pub load_window: u64,
    /// Mirrors that run.
    pub hubs: usize,
    /// Those nobody is subscribed to.
    pub idle_hubs: usize,
    /// The published pools.
    pub pools: Vec<PoolReport>,
    /// Streams by kind.
    pub streams: Vec<StreamReport>,
}

/// One published pool.
#[derive(Debug, Serialize)]
pub struct PoolReport {
    /// Domain and datacenter.
    pub pool: String,
    /// Where it is served.
    pub endpoint: String,
    /// The models it serves.
    pub models: Vec<String>,
    /// Its publisher's life.
    pub producer_incarnation: u64,
    /// Buckets of its filter.
    pub buckets: u64,
    /// The last sequence sent; none while nobody ever subscribed.
    pub sequence: Option<u64>,
    /// Frames and bytes that wait for each subscriber.
    pub subscribers: Vec<(usize, usize)>,
}

/// Streams of one kind.
#[derive(Debug, Serialize)]
pub struct StreamReport {
    /// The kind.
    pub kind: &'static str,
    /// Open now.
    pub open: u64,
    /// Begun since the start.
    pub opened: u64,
    /// Messages sent.
    pub messages: u64,
    /// How often calls were refused or streams ended, by reason.
    pub ended: Vec<(&'static str, u64)>,
}

impl Relay {
    /// What it serves now.
    pub fn report(&self) -> RelayReport {
        let (hubs, idle_hubs) = self.pools.hubs();
        let pool = |pool: &crate::relay::descriptor::Descriptor| {
            let hub = self.pools.get(&pool.key.pool()).and_then(|generation| generation.hub());
            let progress = hub.map(|hub| hub.progress());
            PoolReport {
                pool: pool.key.pool().to_string(),
                endpoint: pool.endpoint.to_string(),
                models: pool.registrations.iter().map(|r| r.canonical_id.clone()).collect(),
                producer_incarnation: pool.key.identity().producer_incarnation,
                buckets: pool.key.format().bucket_count,
                sequence: progress.as_ref().map(|(sequence, _)| *sequence),
                subscribers: progress.map(|(_, waiting)| waiting).unwrap_or_default(),
            }
        };
        let id = self.id();
        // Before the value is put together: its locks would be held until it is whole.
        let catalog_revision = lock(&self.catalog).revision();
        let readiness_revision = lock(&self.readiness).revision();
        RelayReport {
            drt_instance_id: format!("{:016x}", id.drt_instance_id),
            incarnation: format!("{:016x}", id.incarnation),
            catalog_revision,
            readiness_revision,
            load_window: self.load.sequence(),
            hubs,
            idle_hubs,
            pools: self.published().iter().map(pool).collect(),
            streams: StreamKind::ALL.iter().map(|kind| self.stream_report(*kind)).collect(),
        }
    }

    fn stream_report(&self, kind: StreamKind) -> StreamReport {
        let figures = self.counters.of(kind);
        let ended = (1..)
            .map_while(|number| Reason::try_from(number).ok())
            .map(|reason| (short(reason), figures.ended(reason)))
            .filter(|(_, count)| *count > 0)
            .collect();
        StreamReport {
            kind: kind.label(),
            open: figures.open.load(Ordering::Relaxed),
            opened: figures.opened.load(Ordering::Relaxed),
            messages: figures.messages.load(Ordering::Relaxed),
            ended,
        }
    }
}

/// A reason's name without its prefix.
pub(super) fn short(reason: Reason) -> &'static str {
    let name = reason.as_str_name();
    name.strip_prefix("RELAY_ERROR_REASON_").unwrap_or(name)
}
