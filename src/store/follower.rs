//! Following a store by its presence events: what it holds, as the affinity layer is told.

use std::sync::Arc;

use super::{MemoryStore, PresenceEvent};
use crate::affinity::domain::StoreLoad;
use crate::affinity::following::{Following, Way};
use crate::affinity::member::{Change, MemberKeys};
use crate::ckf::ringkey::{KeyProtocol, ring_key_hash};

/// Follows one store from its start on; its buffers are used again.
pub struct Follower {
    store: Arc<MemoryStore>,
    protocol: KeyProtocol,
    events: Vec<PresenceEvent>,
    keys: Vec<Box<[u8]>>,
    relistings: u64,
}

impl Follower {
    /// Follows a store that has no keys yet, whose keys are of `protocol`.
    pub fn new(store: Arc<MemoryStore>, protocol: KeyProtocol) -> Follower {
        Follower { store, protocol, events: Vec::new(), keys: Vec::new(), relistings: 0 }
    }

    /// Shards of the store.
    pub fn shards(&self) -> usize {
        self.store.shards()
    }

    /// What came of it; a shard whose events were lost was listed instead.
    pub fn following(&self) -> Following {
        let relistings = self.relistings;
        Following { way: Some(Way::Embedded), relistings, ..Following::default() }
    }

    /// How full it is; `bytes_max` is the most it may hold, 0 for no limit.
    pub fn load(&self, bytes_max: u64) -> StoreLoad {
        StoreLoad { used: self.store.counters().bytes, total: (bytes_max > 0).then_some(bytes_max) }
    }

    /// Takes the events of one shard and turns them into changes.
    pub fn take(
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
