//! Replica groups of backends and the owners of every shard.
//!
//! A topology is a value built once from configuration. Membership is not liveness: owners are
//! computed from all configured members of a group, reachable or not, because leaving a dead
//! backend out would move its shards.

use super::shard::{ShardId, ShardSet, rank};
use thiserror::Error;
use xxhash_rust::xxh3::Xxh3;

/// Most shards an index may be split into.
pub const SHARDS_MAX: u32 = 65_536;
/// Most backends over all groups.
pub const BACKENDS_MAX: usize = 4_096;
/// Longest backend id in bytes.
pub const BACKEND_ID_BYTES_MAX: usize = 255;

/// Position of a backend in [`Topology::backends`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BackendIdx(pub u16);

/// Number of a replica group, from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GroupIdx(pub u16);

/// Why a set of groups cannot serve documents.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum TopologyError {
    /// The shard count is 0 or above [`SHARDS_MAX`].
    #[error("shards must be between 1 and {SHARDS_MAX}, not {0}")]
    Shards(u32),
    /// The replication factor is 0.
    #[error("replication_factor must be at least 1")]
    NoReplicas,
    /// There is no group.
    #[error("no backend is configured")]
    NoGroups,
    /// A group could never reach its quorum.
    #[error("group {group} has {members} backends, fewer than replication_factor {rf}")]
    SmallGroup {
        /// The group.
        group: usize,
        /// Its members.
        members: usize,
        /// The replication factor.
        rf: usize,
    },
    /// One id stands for two backends.
    #[error("backend id {0:?} is used twice")]
    DuplicateId(String),
    /// An id is empty or longer than [`BACKEND_ID_BYTES_MAX`].
    #[error("backend id {0:?} must have 1 to {BACKEND_ID_BYTES_MAX} bytes")]
    BadId(String),
    /// There are more than [`BACKENDS_MAX`] backends.
    #[error("{0} backends are configured, more than {BACKENDS_MAX}")]
    TooManyBackends(usize),
}

/// Groups of backends with the owners of every shard, immutable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Topology {
    shards: u32,
    rf: usize,
    ids: Vec<String>,
    groups: Vec<Vec<BackendIdx>>,
    /// `rf` owners per group, group after group, shard after shard.
    owners: Vec<BackendIdx>,
}

impl Topology {
    /// Builds a topology from the ids of each group's members. Backends are numbered group after
    /// group, members in the order of their ids.
    pub fn new(shards: u32, rf: usize, groups: &[Vec<String>]) -> Result<Topology, TopologyError> {
        check(shards, rf, groups)?;
        let mut topology =
            Topology { shards, rf, ids: Vec::new(), groups: Vec::new(), owners: Vec::new() };
        for members in groups {
            let mut members = members.clone();
            members.sort();
            let first = topology.ids.len();
            topology.ids.extend(members);
            let numbers = first..topology.ids.len();
            topology.groups.push(numbers.map(|i| BackendIdx(i as u16)).collect());
        }
        topology.fill_owners();
        Ok(topology)
    }

    fn fill_owners(&mut self) {
        let ids: Vec<Vec<&str>> = self
            .groups
            .iter()
            .map(|members| members.iter().map(|b| self.ids[b.0 as usize].as_str()).collect())
            .collect();
        let mut owners = Vec::with_capacity(self.shards as usize * self.groups.len() * self.rf);
        for shard in 0..self.shards {
            for (members, ids) in self.groups.iter().zip(&ids) {
                let ranked = rank(ShardId(shard), ids);
                owners.extend(ranked[..self.rf].iter().map(|&i| members[i]));
            }
        }
        self.owners = owners;
    }

    /// Number of shards.
    pub fn shards(&self) -> u32 {
        self.shards
    }

    /// Copies of a shard inside one group.
    pub fn replication_factor(&self) -> usize {
        self.rf
    }

    /// Number of groups.
    pub fn groups(&self) -> usize {
        self.groups.len()
    }

    /// Members of a group.
    pub fn members(&self, group: GroupIdx) -> &[BackendIdx] {
        &self.groups[group.0 as usize]
    }

    /// Every backend's id, in the order of their numbers.
    pub fn backends(&self) -> &[String] {
        &self.ids
    }

    /// The id of a backend.
    pub fn id(&self, backend: BackendIdx) -> &str {
        &self.ids[backend.0 as usize]
    }

    /// The backend with this id.
    pub fn find(&self, id: &str) -> Option<BackendIdx> {
        self.ids.iter().position(|known| known == id).map(|i| BackendIdx(i as u16))
    }

    /// The group a backend belongs to.
    pub fn group_of(&self, backend: BackendIdx) -> GroupIdx {
        let group = self.groups.iter().position(|members| members.contains(&backend));
        GroupIdx(group.expect("every backend is in a group") as u16)
    }

    /// The groups, from 0.
    pub fn group_numbers(&self) -> impl Iterator<Item = GroupIdx> + use<> {
        (0..self.groups.len()).map(|g| GroupIdx(g as u16))
    }

    /// Owners of a shard in one group, best score first.
    pub fn owners(&self, shard: ShardId, group: GroupIdx) -> &[BackendIdx] {
        let row = shard.0 as usize * self.groups.len() + group.0 as usize;
        &self.owners[row * self.rf..(row + 1) * self.rf]
    }

    /// Owners of a shard in all groups: group 0's, then group 1's, and so on.
    pub fn write_targets(&self, shard: ShardId) -> &[BackendIdx] {
        let width = self.groups.len() * self.rf;
        let start = shard.0 as usize * width;
        &self.owners[start..start + width]
    }

    /// The shards a backend owns.
    pub fn shards_of(&self, backend: BackendIdx) -> ShardSet {
        let mut owned = ShardSet::none(self.shards);
        for shard in (0..self.shards).map(ShardId) {
            if self.write_targets(shard).contains(&backend) {
                owned.insert(shard);
            }
        }
        owned
    }

    /// A digest of shards, replication factor, ids and groups. Gateways that differ in it would
    /// send documents astray, so it is compared between nodes and shown to operators.
    pub fn fingerprint(&self) -> u64 {
        let mut hash = Xxh3::new();
        hash.update(&self.shards.to_le_bytes());
        hash.update(&(self.rf as u64).to_le_bytes());
        for members in &self.groups {
            hash.update(&(members.len() as u64).to_le_bytes());
            for backend in members {
                let id = self.id(*backend);
                hash.update(&(id.len() as u64).to_le_bytes());
                hash.update(id.as_bytes());
            }
        }
        hash.digest()
    }
}

fn check(shards: u32, rf: usize, groups: &[Vec<String>]) -> Result<(), TopologyError> {
    if shards == 0 || shards > SHARDS_MAX {
        return Err(TopologyError::Shards(shards));
    }
    if rf == 0 {
        return Err(TopologyError::NoReplicas);
    }
    if groups.is_empty() {
        return Err(TopologyError::NoGroups);
    }
    let total = groups.iter().map(Vec::len).sum();
    if total > BACKENDS_MAX {
        return Err(TopologyError::TooManyBackends(total));
    }
    let mut seen = std::collections::HashSet::new();
    for (group, members) in groups.iter().enumerate() {
        if members.len() < rf {
            return Err(TopologyError::SmallGroup { group, members: members.len(), rf });
        }
        for id in members {
            if id.is_empty() || id.len() > BACKEND_ID_BYTES_MAX {
                return Err(TopologyError::BadId(id.clone()));
            }
            if !seen.insert(id.as_str()) {
                return Err(TopologyError::DuplicateId(id.clone()));
            }
        }
    }
    Ok(())
}
