//! The producer's catalog: the pools that are published now, as complete snapshots by revision.
//!
//! A pool is put in after its filter exists, and taken out before its filter goes. The revision
//! starts at 0 and rises by one with every change, so that a reader who missed some sees the last.

use std::collections::BTreeMap;

use super::descriptor::Descriptor;
use super::envelope::{CONTRACT_MARKER, PROTOCOL_VERSION, RelayId};
use super::{Fault, names, proto};
use crate::ckf::identity::PoolId;

/// Why a pool is not published. The catalog is as it was.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unpublishable {
    /// Our own checks refuse it: no consumer would take it.
    #[error("it would be refused by every consumer: {0}")]
    Fault(#[from] Fault),
    /// Another pool is served at the same endpoint.
    #[error("endpoint {0} belongs to another pool")]
    EndpointTaken(String),
}

/// The published pools.
#[derive(Clone, Debug, Default)]
pub struct Catalog {
    pools: BTreeMap<PoolId, Descriptor>,
    revision: u64,
}

impl Catalog {
    /// Publishes a pool, or a newer generation or description of it. True when that changed
    /// anything.
    pub fn upsert(&mut self, pool: Descriptor) -> Result<bool, Unpublishable> {
        // What we build is checked as what we read.
        let pool = Descriptor::try_from(&proto::KvPoolDescriptor::from(&pool))?;
        names::check_pool(&pool.registrations)?;
        let id = pool.key.pool();
        let taken = |other: &&Descriptor| other.endpoint == pool.endpoint && other.key.pool() != id;
        if let Some(other) = self.pools.values().find(taken) {
            return Err(Unpublishable::EndpointTaken(other.endpoint.to_string()));
        }
        if self.pools.get(&id) == Some(&pool) {
            return Ok(false);
        }
        self.pools.insert(id, pool);
        self.revision += 1;
        Ok(true)
    }

    /// Withdraws a pool. True when it was published.
    pub fn remove(&mut self, pool: &PoolId) -> bool {
        let removed = self.pools.remove(pool).is_some();
        self.revision += u64::from(removed);
        removed
    }

    /// Withdraws all pools. True when there were any.
    pub fn clear(&mut self) -> bool {
        let any = !self.pools.is_empty();
        self.pools.clear();
        self.revision += u64::from(any);
        any
    }

    /// Changes so far.
    pub fn revision(&self) -> u64 {
        self.revision
    }

    /// A published pool.
    pub fn get(&self, pool: &PoolId) -> Option<&Descriptor> {
        self.pools.get(pool)
    }

    /// The published pools, in an order that stays.
    pub fn pools(&self) -> impl ExactSizeIterator<Item = &Descriptor> {
        self.pools.values()
    }

    /// The complete snapshot, without names that mean several things.
    pub fn message(&self, relay: RelayId) -> proto::KvPoolCatalogUpdate {
        let mut pools: Vec<Descriptor> = self.pools.values().cloned().collect();
        names::without_ambiguity(&mut pools);
        proto::KvPoolCatalogUpdate {
            protocol_version: PROTOCOL_VERSION,
            relay: Some(relay.into()),
            revision: self.revision,
            snapshot: Some(proto::KvPoolCatalogSnapshot {
                pools: pools.iter().map(Into::into).collect(),
            }),
            contract_marker: CONTRACT_MARKER,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::relay::vectors;

    fn pool(dc: u64, component: &str) -> Descriptor {
        let update: proto::KvPoolCatalogUpdate = vectors::message("catalog_update");
        let mut message = update.snapshot.unwrap().pools.remove(0);
        message.producer.as_mut().unwrap().pool_id.as_mut().unwrap().dc_id = dc;
        message.serving_endpoint.as_mut().unwrap().component = component.into();
        Descriptor::try_from(&message).unwrap()
    }

    #[test]
    fn revisions_count_changes() {
        let mut catalog = Catalog::default();
        let relay = RelayId { drt_instance_id: 17, incarnation: 23 };
        let empty = vectors::message("catalog_update_empty_revision_0");
        assert_eq!(catalog.message(relay), empty);
        assert_eq!(catalog.upsert(pool(7, "a")), Ok(true));
        assert_eq!(catalog.upsert(pool(7, "a")), Ok(false));
        assert_eq!(catalog.upsert(pool(3, "b")), Ok(true));
        assert_eq!(catalog.upsert(pool(7, "c")), Ok(true));
        assert_eq!((catalog.revision(), catalog.pools().len()), (3, 2));
        let order: Vec<u64> = catalog.pools().map(|p| p.key.pool().dc_id.get()).collect();
        assert_eq!(order, [3, 7]);
        assert!(catalog.remove(&pool(3, "b").key.pool()));
        assert!(!catalog.remove(&pool(3, "b").key.pool()));
        assert!(catalog.clear());
        assert!(!catalog.clear());
        assert_eq!(catalog.revision(), 5);
        assert_eq!(catalog.message(relay).snapshot.unwrap().pools.len(), 0);
    }

    #[test]
    fn what_consumers_would_refuse_is_not_published() {
        let mut catalog = Catalog::default();
        let roleless = Descriptor { roles: Vec::new(), ..pool(1, "a") };
        let refused = Unpublishable::Fault(Fault::MissingWorkerRoles);
        assert_eq!(catalog.upsert(roleless), Err(refused));
        assert_eq!(catalog.upsert(pool(1, "a")), Ok(true));
        let taken = Unpublishable::EndpointTaken("ns/a/generate".into());
        assert_eq!(catalog.upsert(pool(2, "a")), Err(taken));
        let mut twice = pool(1, "a");
        twice.registrations.push(twice.registrations[0].clone());
        assert!(matches!(catalog.upsert(twice), Err(Unpublishable::Fault(_))));
        assert_eq!(catalog.revision(), 1);
    }
}
