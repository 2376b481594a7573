//! The immutable snapshot a worker plans with: ring, levels, limits.
//!
//! The control plane publishes a new one whenever membership or configuration changes; a worker
//! swaps it between two batches. Everything here is a value, so that a simulation builds it in
//! one expression.

use std::fmt;
use std::sync::Arc;

use super::plan::RackCap;
use crate::affinity::Affinity;
use crate::hash::KeyHasher;
use crate::proto::resp::decode::RequestLimits;
use crate::proto::resp::reply::ReplyLimits;
use crate::proto::resp::table::ModuleCommands;
use crate::ring::{Consistency, Topology};
use crate::token::DynToken;

/// A point in time as a worker sees it, read once a wake-up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Now {
    /// Microseconds on a clock that never goes back.
    pub mono_us: u64,
    /// Microseconds since 1970, for expiry and stamps. May go back.
    pub wall_us: u64,
}

impl Now {
    /// Milliseconds on the clock that never goes back.
    pub fn mono_ms(self) -> u64 {
        self.mono_us / 1000
    }

    /// Milliseconds since 1970.
    pub fn wall_ms(self) -> u64 {
        self.wall_us / 1000
    }
}

/// What clients and the datastore of this node speak (`data_store`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Protocol {
    /// RESP, `data_store: 0`.
    #[default]
    Redis,
    /// The memcache text protocol, `data_store: 1`.
    Memcache,
}

impl Protocol {
    /// The request that asks a peer who it is and whether its datastore lives (decision E1).
    pub fn probe(self) -> &'static [u8] {
        match self {
            Protocol::Redis => b"*1\r\n$4\r\nPING\r\n",
            // Of what changes nothing this is all that nodes of the reference know and survive.
            Protocol::Memcache => b"touch torc:probe 0\r\n",
        }
    }
}

/// The node's own state (`/state/...` of the admin port).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum NodeState {
    /// Serves everything.
    #[default]
    Normal,
    /// Refuses everything.
    Standby,
    /// Refuses reads.
    WritesOnly,
    /// Refuses reads while it catches up.
    Resuming,
}

impl fmt::Display for NodeState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            NodeState::Normal => "NORMAL",
            NodeState::Standby => "STANDBY",
            NodeState::WritesOnly => "WRITES_ONLY",
            NodeState::Resuming => "RESUMING",
        })
    }
}

/// Bounds and periods of a worker. Times in milliseconds.
#[derive(Clone, Debug)]
pub struct Settings {
    /// What clients and the datastore speak.
    pub protocol: Protocol,
    /// Bounds of one request.
    pub request: RequestLimits,
    /// Bounds of one reply of a datastore or peer.
    pub reply: ReplyLimits,
    /// Client connections of the node, for CONFIG GET; the acceptor enforces it.
    pub client_connections_max: usize,
    /// A client that sends nothing for so long is disconnected, for CONFIG GET; the workers do it.
    pub idle_timeout_ms: u64,
    /// Requests of one client in flight; over it the client is not read.
    pub client_in_flight_max: usize,
    /// Bytes waiting for one client; over it the client is not read.
    pub client_output_max: usize,
    /// Bytes waiting for one upstream; over it, clients that need it are not read.
    pub upstream_output_max: usize,
    /// Requests in flight on one upstream; over it, clients that need it are not read.
    pub upstream_in_flight_max: usize,
    /// The datastore's deadline (`timeout`); peers get more (decision D4).
    pub timeout_ms: u64,
    /// Admin-set factor of all deadlines, 1 to 10.
    pub timeout_factor: u64,
    /// Connections to the datastore, each worker.
    pub datastore_connections: usize,
    /// Connections to a peer of the own datacenter, each worker.
    pub local_peer_connections: usize,
    /// Connections to a peer of another datacenter, each worker.
    pub remote_peer_connections: usize,
    /// Frames a second on each of these; not 0.
    pub remote_frames_per_second: u32,
    /// Whether a DC_ONE read may leave the own rack (decision A6).
    pub read_fallback: bool,
    /// Whether FLUSHALL, FLUSHDB and flush_all are carried out.
    pub allow_flush: bool,
    /// Whether KEYS, SCAN, DBSIZE and RANDOMKEY see this node only (decision A12).
    pub keyspace_node_only: bool,
    /// Password clients must give (AUTH); `None` lets everybody in.
    pub client_password: Option<String>,
    /// Classes as in the reference's table instead of by effect.
    pub reference_classes: bool,
    /// Commands of datastore modules, by prefix.
    pub modules: ModuleCommands,
    /// Whether DC_ONE reads go where the filters say the key is.
    pub route_reads: bool,
    /// Whether values that are read in another datacenter are stored in the own one too.
    pub backfill: bool,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            protocol: Protocol::Redis,
            request: RequestLimits::default(),
            reply: ReplyLimits::default(),
            client_connections_max: 10_000,
            idle_timeout_ms: 0,
            client_in_flight_max: 1024,
            client_output_max: 64 << 20,
            upstream_output_max: 64 << 20,
            upstream_in_flight_max: 65_536,
            timeout_ms: 5000,
            timeout_factor: 1,
            datastore_connections: 1,
            local_peer_connections: 1,
            remote_peer_connections: 1,
            remote_frames_per_second: 50_000,
            read_fallback: true,
            allow_flush: false,
            keyspace_node_only: false,
            client_password: None,
            reference_classes: false,
            modules: ModuleCommands::default(),
            route_reads: false,
            backfill: false,
        }
    }
}

/// A key prefix with its own levels and replica count (decision B11).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BucketType {
    /// Name, for people.
    pub name: String,
    /// Keys that begin with this belong to it.
    pub prefix: Vec<u8>,
    /// Level of reads, when it differs from the connection's.
    pub read: Option<Consistency>,
    /// Level of writes, when it differs from the connection's.
    pub write: Option<Consistency>,
    /// Racks of each datacenter that hold a key; `None` is all.
    pub n_val: Option<usize>,
    /// Whether values are stored in the writer's datacenter only.
    pub stays: bool,
}

/// Bucket types, the longest prefix first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BucketTypes {
    by_prefix_length: Vec<BucketType>,
    /// The one that keys without a matching prefix belong to.
    default: Option<usize>,
}

impl BucketTypes {
    /// Sorts the types so that the longest prefix wins; `default` names the type of all others.
    pub fn new(mut types: Vec<BucketType>, default: Option<&str>) -> BucketTypes {
        types.sort_by(|a, b| b.prefix.len().cmp(&a.prefix.len()).then(a.prefix.cmp(&b.prefix)));
        let default = default.and_then(|name| types.iter().position(|t| t.name == name));
        BucketTypes { by_prefix_length: types, default }
    }

    /// The type of `key`, if any prefix matches.
    pub fn of(&self, key: &[u8]) -> Option<&BucketType> {
        self.find(key).map(|(_, bucket)| bucket)
    }

    /// The same with its number.
    pub fn find(&self, key: &[u8]) -> Option<(usize, &BucketType)> {
        let by_prefix =
            self.by_prefix_length.iter().enumerate().find(|(_, t)| key.starts_with(&t.prefix));
        by_prefix.or_else(|| self.default.map(|i| (i, &self.by_prefix_length[i])))
    }
}

/// Everything a worker needs to know to plan and serve.
#[derive(Debug)]
pub struct View {
    /// Who owns what.
    pub topology: Topology,
    /// Key to token.
    pub hasher: KeyHasher,
    /// Default level of reads.
    pub read: Consistency,
    /// Default level of writes.
    pub write: Consistency,
    /// Levels by key prefix.
    pub buckets: BucketTypes,
    /// The node's own state.
    pub state: NodeState,
    /// Who holds what, unless that is off.
    pub affinity: Option<Arc<Affinity>>,
    /// Bounds and periods.
    pub settings: Settings,
}

/// The level and the racks that apply to one key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Terms {
    /// The level.
    pub level: Consistency,
    /// The racks, when capped.
    pub cap: Option<RackCap>,
    /// Whether values are stored in the writer's datacenter only.
    pub stays: bool,
}

impl View {
    /// The terms for `key`: its bucket type's, else `default`.
    pub fn terms(&self, key: &[u8], token: &DynToken, write: bool, default: Consistency) -> Terms {
        let Some(bucket) = self.buckets.of(key) else {
            return Terms { level: default, cap: None, stays: false };
        };
        let level = if write { bucket.write } else { bucket.read };
        Terms {
            level: level.unwrap_or(default),
            cap: bucket.n_val.map(|count| RackCap { start: token.low_word(), count }),
            stays: bucket.stays,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_bucket_prefix_wins() {
        let kind = |name: &str, n_val| BucketType {
            name: name.into(),
            prefix: name.as_bytes().to_vec(),
            read: None,
            write: None,
            n_val,
            stays: false,
        };
        let types = BucketTypes::new(vec![kind("s/", Some(1)), kind("s/hot/", Some(2))], None);
        assert_eq!(types.of(b"s/hot/1").and_then(|t| t.n_val), Some(2));
        assert_eq!(types.of(b"s/cold").and_then(|t| t.n_val), Some(1));
        assert_eq!(types.of(b"other"), None);
        let types = BucketTypes::new(vec![kind("s/", Some(1)), kind("t/", Some(3))], Some("t/"));
        assert_eq!(types.of(b"other").and_then(|t| t.n_val), Some(3));
    }
}
