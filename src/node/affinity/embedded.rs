//! What the embedded store holds, from its own events.

use std::sync::Arc;

use crate::affinity::domain::StoreLoad;
use crate::affinity::member::{Change, MemberKeys};
use crate::ckf::ringkey::{KeyProtocol, ring_key_hash};
use crate::store::{MemoryStore, PresenceEvent};

/// Follows one store; its buffers are used again.
pub(super) struct EmbeddedFollower {
    store: Arc<MemoryStore>,
    protocol: KeyProtocol,
    events: Vec<PresenceEvent>,
    keys: Vec<Box<[u8]>>,
    /// Times a shard's events were lost.
    pub(super) relistings: u64,
}

impl EmbeddedFollower {
    pub(super) fn new(store: Arc<MemoryStore>, protocol: KeyProtocol) -> EmbeddedFollower {
        EmbeddedFollower { store, protocol, events: Vec::new(), keys: Vec::new(), relistings: 0 }
    }

    /// Shards of the store.
    pub(super) fn shards(&self) -> usize {
        self.store.shards()
    }

    /// How full it is; `bytes_max` is the most it may hold, 0 for no limit.
    pub(super) fn load(&self, bytes_max: u64) -> StoreLoad {
        StoreLoad { used: self.store.counters().bytes, total: (bytes_max > 0).then_some(bytes_max) }
    }

    /// Takes the events of one shard and turns them into changes.
    pub(super) fn take(
        &mut self,
        shard: usize,
        wall_ms: u64,
        member: &mut MemberKeys,
        changes: &mut Vec<Change>,
    ) {
        let protocol = self.protocol;
        let hash = |key: &[u8]| ring_key_hash(protocol, key);
        let lost = self.store.drain_events(shard as u8, &mut self.events);
        for event in self.events.drain(..) {
            match event {
                PresenceEvent::Appeared(key) => member.appeared(shard, hash(&key), changes),
                PresenceEvent::Went(key) => member.went(shard, hash(&key), changes),
                PresenceEvent::Cleared => member.cleared(shard, changes),
            }
        }
        if lost {
            self.relistings += 1;
            self.keys.clear();
            self.store.shard_keys(shard as u8, wall_ms, &mut self.keys);
            let listed = self.keys.iter().map(|key| hash(key));
            member.reconcile(shard, listed, changes);
        }
    }
}
