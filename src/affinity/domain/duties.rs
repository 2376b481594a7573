//! Who does what for a domain in the own datacenter, and how full its nodes' stores are: told by
//! the plane between nodes, read by the relay and by operators.

use super::{Domain, lock};

/// Who does what for a domain in the own datacenter.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Duties {
    /// The node that publishes; empty while there is none.
    pub publisher: String,
    /// The node that fetches the pools of other datacenters and passes them on.
    pub importer: String,
    /// Whether that is this node.
    pub imports: bool,
}

/// How full the store of one node is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoreLoad {
    /// Bytes in use.
    pub used: u64,
    /// The most it may hold; none when it has no limit.
    pub total: Option<u64>,
}

impl Domain {
    /// Who does what.
    pub fn duties(&self) -> Duties {
        lock(&self.hears.duties).clone()
    }

    /// From now on these do it.
    pub fn set_duties(&self, duties: Duties) {
        *lock(&self.hears.duties) = duties;
    }

    /// One entry for each node of the own datacenter; none for one that does not tell. Known
    /// where the domain is published.
    pub fn store_loads(&self) -> Vec<Option<StoreLoad>> {
        lock(&self.hears.loads).clone()
    }

    /// Names of the nodes of the own datacenter of which it is not known what they hold. Known
    /// where the domain is published.
    pub fn missing_members(&self) -> Vec<String> {
        lock(&self.hears.missing).clone()
    }

    /// Of these nodes it is not known what they hold.
    pub fn set_missing_members(&self, names: Vec<String>) {
        *lock(&self.hears.missing) = names;
    }

    /// The nodes' stores are so full.
    pub fn set_store_loads(&self, loads: Vec<Option<StoreLoad>>) {
        *lock(&self.hears.loads) = loads;
    }
}
