//! The catalog plane of a consumer.

use std::collections::HashSet;

use super::{PlaneFault, Revisions, check_sender};
use crate::ckf::identity::PoolId;
use crate::relay::descriptor::Descriptor;
use crate::relay::envelope::RelayId;
use crate::relay::names::NameIndex;
use crate::relay::{Fault, key, proto};

/// An entry that is left out, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Quarantined {
    /// What it calls itself, for display; possibly nothing readable.
    pub name: String,
    /// The pool, when its identity could be read.
    pub pool: Option<PoolId>,
    /// What is wrong with it.
    pub fault: Fault,
}

/// What a relay publishes, as far as we understand it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CatalogView {
    /// The relay's number of this snapshot.
    pub revision: u64,
    /// The pools we can use.
    pub pools: Vec<Descriptor>,
    /// The pools we cannot.
    pub quarantined: Vec<Quarantined>,
    /// From names to pools.
    pub names: NameIndex,
}

/// The machine.
#[derive(Debug)]
pub struct CatalogPlane {
    relay: RelayId,
    revisions: Revisions<proto::KvPoolCatalogSnapshot>,
}

impl CatalogPlane {
    /// A plane of a connection to this relay.
    pub fn new(relay: RelayId) -> CatalogPlane {
        CatalogPlane { relay, revisions: Revisions::new() }
    }

    /// Takes a message; gives the new view, or nothing when it repeats the last one.
    pub fn take(
        &mut self,
        update: proto::KvPoolCatalogUpdate,
    ) -> Result<Option<CatalogView>, PlaneFault> {
        check_sender(&update, self.relay)?;
        let snapshot = update.snapshot.ok_or(PlaneFault::MissingSnapshot)?;
        if !self.revisions.check(update.revision, &snapshot)? {
            return Ok(None);
        }
        let mut pools = Vec::new();
        let mut quarantined = Vec::new();
        let mut seen = HashSet::new();
        for message in &snapshot.pools {
            let pool = pool_of(message)?;
            if pool.is_some_and(|pool| !seen.insert(pool)) {
                return Err(PlaneFault::DuplicateKey);
            }
            match Descriptor::try_from(message) {
                Ok(descriptor) => pools.push(descriptor),
                Err(fault) => quarantined.push(Quarantined { name: name(message), pool, fault }),
            }
        }
        let names = NameIndex::new(&pools);
        self.revisions.took(update.revision, snapshot);
        Ok(Some(CatalogView { revision: update.revision, pools, quarantined, names }))
    }
}

/// The pool an entry is about; none when that is of a kind we do not know.
fn pool_of(message: &proto::KvPoolDescriptor) -> Result<Option<PoolId>, PlaneFault> {
    let producer = message.producer.as_ref();
    let pool = producer.and_then(|producer| producer.pool_id.as_ref());
    match pool.ok_or(Fault::MissingField("pool_id")).and_then(key::pool_id) {
        Ok(pool) => Ok(Some(pool)),
        Err(fault) if fault.is_unsupported() => Ok(None),
        Err(fault) => Err(PlaneFault::Key(fault)),
    }
}

fn name(message: &proto::KvPoolDescriptor) -> String {
    let endpoint = message.serving_endpoint.as_ref();
    endpoint.map_or_else(String::new, |e| format!("{}/{}/{}", e.namespace, e.component, e.endpoint))
}
