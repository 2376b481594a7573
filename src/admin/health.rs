//! Which levels the ring can serve just now.

use std::ops::Range;

use serde::Serialize;

use crate::ring::{Consistency, Topology, quorum};

/// One datacenter.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct DcHealth {
    /// Its name.
    pub datacenter: String,
    /// Its racks.
    pub racks: usize,
    /// Racks that can serve the arc that the fewest racks can serve.
    pub racks_of_worst_arc: usize,
    /// Every arc can be served by at least one rack.
    pub one: bool,
    /// Every arc can be served by most racks.
    pub quorum: bool,
    /// Every arc can be served by every rack.
    pub whole: bool,
}

/// The health of every datacenter, the local one first.
pub fn assess(topology: &Topology) -> Vec<DcHealth> {
    let local = (topology.local_dc(), topology.local_racks());
    let remote = topology.remote_dcs().iter().map(|dc| (dc.name.as_str(), dc.racks.clone()));
    std::iter::once(local).chain(remote).map(|(name, racks)| of(topology, name, racks)).collect()
}

fn of(topology: &Topology, name: &str, racks: Range<usize>) -> DcHealth {
    let count = racks.len();
    // Owners change at tokens only, so looking at every token looks at every arc.
    let tokens = topology.racks()[racks.clone()]
        .iter()
        .flat_map(|rack| rack.continuum.points())
        .map(|point| point.token);
    let worst = tokens
        .map(|token| {
            let owners = topology.owners(&token);
            let serving = |rack| owners.owner(rack).is_some_and(|p| topology.peer(p).routable());
            racks.clone().filter(|&rack| serving(rack)).count()
        })
        .min()
        .unwrap_or(0);
    DcHealth {
        datacenter: name.to_owned(),
        racks: count,
        racks_of_worst_arc: worst,
        one: worst >= 1,
        quorum: worst >= quorum(count),
        whole: worst == count,
    }
}

/// Whether requests at a level can be served for every key, seen from the local datacenter.
pub(super) fn can_serve(health: &[DcHealth], level: Consistency) -> bool {
    let local = &health[0];
    match level {
        Consistency::DcOne => local.one,
        Consistency::DcQuorum | Consistency::DcSafeQuorum => local.quorum,
        Consistency::DcEachSafeQuorum => health.iter().all(|dc| dc.quorum),
    }
}
