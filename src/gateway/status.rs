//! What operators see of a gateway: groups, backends, who owns what, who lags.

use super::client::Backend;
use super::core::Core;
use super::migration;
use super::tracking::EVERY_OWNER;
use crate::document::shard::ShardSet;
use crate::document::topology::GroupIdx;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::PoisonError;

/// One backend at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BackendFigures {
    /// Its id.
    pub id: String,
    /// It answers.
    pub live: bool,
    /// Shards it owns; none while it is joining.
    pub shards: u64,
    /// Writes that wait for it or run there.
    pub waiting_writes: u64,
    /// Shards of indexes it missed writes of.
    pub missed_shards: u64,
}

/// The figures of all backends, members first.
pub(super) fn backends(core: &Core) -> Vec<BackendFigures> {
    let placement = core.placement();
    let missed = missed_shards(core);
    let figures = |backend: &std::sync::Arc<Backend>| {
        let member = placement.topology.find(&backend.id);
        let shards = member.map_or(0, |member| placement.topology.shards_of(member).iter().count());
        BackendFigures {
            id: backend.id.clone(),
            live: backend.is_live(),
            shards: shards as u64,
            waiting_writes: core.lanes.depth(&backend.id) as u64,
            missed_shards: missed.get(&backend.id).copied().unwrap_or(0),
        }
    };
    placement.backends.iter().map(figures).collect()
}

/// Groups, backends, their health and queues: `GET /_miroir/topology`.
pub(super) fn topology(core: &Core) -> Value {
    let placement = core.placement();
    let topology = &placement.topology;
    let figures = backends(core);
    let show = |place: usize| {
        let (backend, figures) = (&placement.backends[place], &figures[place]);
        json!({"id": backend.id, "url": backend.url, "state": backend.health().as_str(),
            "shards": figures.shards, "waitingWrites": figures.waiting_writes,
            "missedShards": figures.missed_shards})
    };
    let group = |group: GroupIdx| {
        let members = topology.members(group).iter().map(|member| show(usize::from(member.0)));
        json!({"group": group.0, "backends": members.collect::<Vec<_>>()})
    };
    let groups: Vec<Value> = topology.group_numbers().map(group).collect();
    let joining: Vec<Value> = (topology.backends().len()..figures.len()).map(show).collect();
    json!({"shards": topology.shards(), "replicationFactor": topology.replication_factor(),
        "fingerprint": format!("{:016x}", topology.fingerprint()),
        "groups": groups, "joining": joining})
}

/// `/documents` of the admin port.
pub(super) fn page(core: &Core) -> Value {
    let placement = core.placement();
    let mut page = topology(core);
    let degraded = core.degraded.lock().unwrap_or_else(PoisonError::into_inner).clone();
    for group in page["groups"].as_array_mut().into_iter().flatten() {
        let number = group["group"].as_u64().unwrap_or(0) as u16;
        group["degradedWrites"] = json!(degraded.get(&number).copied().unwrap_or(0));
        for backend in group["backends"].as_array_mut().into_iter().flatten() {
            let owned = backend["id"].as_str().and_then(|id| placement.topology.find(id));
            let owned = owned.map(|member| ranges(&placement.topology.shards_of(member)));
            backend["owns"] = json!(owned.unwrap_or_default());
        }
    }
    let own = core.others.id();
    let others: Vec<Value> = core
        .others
        .known()
        .iter()
        .map(|other| {
            json!({"id": other.id, "url": other.url, "taskSlot": other.slot,
                "fingerprint": format!("{:016x}", other.fingerprint)})
        })
        .collect();
    let (slot, trouble) = match core.tasks.standing() {
        Ok(slot) => (Some(slot), None),
        Err(reason) => (None, Some(reason)),
    };
    let unsure = missed_shards(core).get(EVERY_OWNER).copied().unwrap_or(0);
    page["gateway"] = json!({"id": own, "taskSlot": slot, "taskSlotTrouble": trouble});
    page["otherGateways"] = json!(others);
    page["unsureShards"] = json!(unsure);
    page["counters"] = json!(core.counters.values());
    page["bytesInFlight"] = json!(core.bodies.in_flight_bytes());
    page["answerBytesInFlight"] = json!(core.answers.in_flight_bytes());
    page["migration"] = migration::view(core);
    page
}

/// Shards of indexes each backend lacks writes of.
fn missed_shards(core: &Core) -> BTreeMap<String, u64> {
    let mut missed: BTreeMap<String, u64> = BTreeMap::new();
    for backends in core.dirty().values() {
        for (backend, shards) in backends {
            *missed.entry(backend.clone()).or_default() += shards.len() as u64;
        }
    }
    missed
}

/// Shard numbers as text, `0-3,7`.
fn ranges(shards: &ShardSet) -> String {
    let mut runs: Vec<(u32, u32)> = Vec::new();
    for shard in shards.iter().map(|shard| shard.0) {
        match runs.last_mut() {
            Some((_, last)) if *last + 1 == shard => *last = shard,
            _ => runs.push((shard, shard)),
        }
    }
    let run = |(first, last): &(u32, u32)| match first == last {
        true => first.to_string(),
        false => format!("{first}-{last}"),
    };
    runs.iter().map(run).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document::shard::ShardId;

    #[test]
    fn shards_are_shown_as_ranges() {
        let mut shards = ShardSet::none(16);
        assert_eq!(ranges(&shards), "");
        for shard in [0, 1, 2, 3, 7, 14, 15] {
            shards.insert(ShardId(shard));
        }
        assert_eq!(ranges(&shards), "0-3,7,14-15");
        assert_eq!(ranges(&ShardSet::all(16)), "0-15");
    }
}
