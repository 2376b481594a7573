//! The readiness plane of a consumer.

use std::collections::HashSet;

use super::{PlaneFault, Quarantined, Revisions, check_sender};
use crate::relay::envelope::RelayId;
use crate::relay::proto;
use crate::relay::topology::{Entry, EntryKey};

/// Which models can serve, as far as we understand it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadinessView {
    /// The relay's number of this snapshot.
    pub revision: u64,
    /// What we can use. "Unavailable" and "unknown" are not overridden by published pools.
    pub entries: Vec<Entry>,
    /// What we cannot; none of these is to be taken for ready.
    pub quarantined: Vec<Quarantined>,
}

/// The machine.
#[derive(Debug)]
pub struct ReadinessPlane {
    relay: RelayId,
    revisions: Revisions<Vec<proto::TopologyEntry>>,
}

impl ReadinessPlane {
    /// A plane of a connection to this relay.
    pub fn new(relay: RelayId) -> ReadinessPlane {
        ReadinessPlane { relay, revisions: Revisions::new() }
    }

    /// Takes a message; gives the new view, or nothing when it repeats the last one.
    pub fn take(
        &mut self,
        update: proto::ServingReadinessUpdate,
    ) -> Result<Option<ReadinessView>, PlaneFault> {
        check_sender(&update, self.relay)?;
        if !self.revisions.check(update.revision, &update.entries)? {
            return Ok(None);
        }
        let (mut entries, mut quarantined) = (Vec::new(), Vec::new());
        let mut seen = HashSet::new();
        for message in &update.entries {
            let key = EntryKey::of(message).map_err(PlaneFault::Key)?;
            let name = format!("{}/{}", key.namespace, key.model);
            if !seen.insert(key) {
                return Err(PlaneFault::DuplicateKey);
            }
            match Entry::try_from(message) {
                Ok(entry) => entries.push(entry),
                Err(fault) => quarantined.push(Quarantined { name, pool: None, fault }),
            }
        }
        self.revisions.took(update.revision, update.entries);
        Ok(Some(ReadinessView { revision: update.revision, entries, quarantined }))
    }
}
