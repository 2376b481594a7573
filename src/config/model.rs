//! The configuration as the node uses it: every value typed, every default applied.

use std::path::PathBuf;

use super::addr::{Advertise, Endpoint, HostPort, ServerAddr};
use super::affinity::Affinity;
use super::auth::Auth;
use super::bucket::BucketType;
use super::cluster::Cluster;
use super::documents::Documents;
use super::embedded::Embedded;
use super::limits::Limits;
use super::modules::ModuleNames;
use super::pool::Pool;
use super::relay::Relay;
use super::seeds::Seed;
use super::words::{KeyspaceScope, Protocol, SecureServer, SeedProvider};
use crate::hash::KeyHasher;
use crate::ring::Consistency;
use crate::token::DynToken;

/// The port peers connect to unless told otherwise.
pub const PEER_PORT: u16 = 8101;
/// The port of encrypted peers in the reference's convention.
pub(super) const SECURE_PEER_PORT: u16 = 8103;
/// The admin port unless told otherwise.
pub const ADMIN_PORT: u16 = 22_222;

/// Where this node keeps its arc.
#[derive(Debug, Clone, PartialEq)]
pub enum Store {
    /// Inside this process.
    Embedded,
    /// One Redis, Valkey or memcached server.
    Server(ServerAddr),
}

/// How the store is connected to and given up on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoreLink {
    /// Connections per worker.
    pub connections: usize,
    /// The node is not ready before it has connected to the store.
    pub preconnect: bool,
    /// Let the pauses grow between attempts to reach a store that keeps failing.
    pub auto_eject: bool,
    /// Longest pause between two attempts, milliseconds.
    pub retry_max_ms: u64,
    /// Failures in a row before the pauses grow.
    pub failure_limit: u32,
}

/// The links to other nodes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PeerLinks {
    /// Connections to each peer of the own datacenter, per worker.
    pub local_connections: usize,
    /// Connections to each peer of another datacenter, per worker.
    pub remote_connections: usize,
    /// Which of them are encrypted.
    pub secure: SecureServer,
    /// The RSA private key for those.
    pub pem_key_file: PathBuf,
    /// Most messages a second on one connection.
    pub msg_rate: u32,
    /// The reference's buffer size, which sets the size of a cipher chunk.
    pub mbuf_size: usize,
}

/// Gossip in the form C nodes understand.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReferenceGossip {
    /// Whether it is sent at all.
    pub enabled: bool,
    /// Time between two messages, milliseconds.
    pub interval_ms: u64,
}

/// The configuration of one node.
#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    /// The root key of the file; also the name of the counters' object in `/info`.
    pub pool: String,
    /// This node's name, when the file gives one.
    pub name: Option<String>,
    /// Where clients connect.
    pub listen: Endpoint,
    /// Where peers connect.
    pub dyn_listen: Endpoint,
    /// Where the admin port is.
    pub stats_listen: HostPort,
    /// Connections the system queues at `listen` and `dyn_listen`.
    pub backlog: u32,
    /// The address to tell others, when the file names one. See [`Config::own_address`].
    pub advertise: Option<Advertise>,
    /// True when the EC2 names of the environment tell the own address (`env: aws`).
    pub env_is_aws: bool,
    /// This node's datacenter.
    pub datacenter: String,
    /// This node's rack.
    pub rack: String,
    /// This node's tokens, in the order of the file; at least one.
    pub tokens: Vec<DynToken>,
    /// How keys become tokens.
    pub hasher: KeyHasher,
    /// What clients and the store speak.
    pub data_store: Protocol,
    /// Where this node keeps its arc.
    pub store: Store,
    /// The links to it.
    pub store_link: StoreLink,
    /// Longest wait for the store, milliseconds; deadlines for peers derive from it.
    pub timeout_ms: u64,
    /// Peers of the file, this node not among them.
    pub seeds: Vec<Seed>,
    /// Where more peers come from.
    pub seed_provider: SeedProvider,
    /// The links to peers.
    pub peers: PeerLinks,
    /// Gossip with C nodes.
    pub reference_gossip: ReferenceGossip,
    /// Level of reads.
    pub read_consistency: Consistency,
    /// Level of writes.
    pub write_consistency: Consistency,
    /// Repair replicas that hold something older than a quorum read found.
    pub read_repairs: bool,
    /// Types of keys; the longest prefix wins.
    pub bucket_types: Vec<BucketType>,
    /// The type of keys that no prefix matches: an index into `bucket_types`.
    pub default_bucket_type: Option<usize>,
    /// Let another rack answer reads while the own rack's owner cannot.
    pub read_fallback: bool,
    /// Let FLUSHALL, FLUSHDB and flush_all empty all nodes.
    pub allow_flush: bool,
    /// What KEYS, SCAN, DBSIZE and RANDOMKEY cover.
    pub keyspace_scope: KeyspaceScope,
    /// Class commands as the reference does.
    pub reference_classes: bool,
    /// Commands of the datastore's modules.
    pub module_commands: ModuleNames,
    /// Give the arc up when stopped by SIGTERM.
    pub leave_on_stop: bool,
    /// Where what must survive a restart is kept; in memory when absent.
    pub data_dir: Option<PathBuf>,
    /// Threads that serve clients and peers, when the file says so.
    pub workers: Option<usize>,
    /// Passwords.
    pub auth: Auth,
    /// Membership between torc nodes.
    pub cluster: Cluster,
    /// Bounds.
    pub limits: Limits,
    /// Filters of what each datacenter holds.
    pub affinity: Affinity,
    /// Filters between datacenters, over gRPC.
    pub relay: Relay,
    /// The embedded store.
    pub embedded: Embedded,
    /// The document gateway.
    pub documents: Documents,
}

impl Config {
    /// Threads that serve clients and peers: as configured, else one a core.
    pub fn worker_count(&self) -> usize {
        let cores = || std::thread::available_parallelism().map_or(1, usize::from);
        self.workers.unwrap_or_else(cores)
    }

    /// The name that keeps rings apart: `cluster.name`, else the pool's.
    pub fn cluster_name(&self) -> &str {
        self.cluster.name.as_deref().unwrap_or(&self.pool)
    }

    /// The name of the counters' object of the store in `/info`.
    pub fn store_name(&self) -> &str {
        match &self.store {
            Store::Embedded => "embedded",
            Store::Server(server) => &server.name,
        }
    }

    /// From the keys of a pool that was checked; `bucket_types` and `affinity` are complete.
    pub(super) fn from_pool(
        name: &str,
        pool: Pool,
        bucket_types: Vec<BucketType>,
        affinity: Affinity,
    ) -> Config {
        let default_bucket_type = pool
            .default_bucket_type
            .and_then(|wanted| bucket_types.iter().position(|t| t.name == wanted));
        Config {
            pool: name.to_owned(),
            name: pool.name,
            listen: pool.listen.unwrap_or_else(|| Endpoint::tcp(LOOPBACK, 0)),
            dyn_listen: pool.dyn_listen.unwrap_or_else(|| Endpoint::tcp(LOOPBACK, PEER_PORT)),
            stats_listen: match pool.stats_listen {
                Some(Endpoint::Tcp(address)) => address,
                Some(Endpoint::Unix(_)) | None => HostPort::new(LOOPBACK, ADMIN_PORT),
            },
            backlog: or_default(pool.backlog, 512),
            advertise: pool.advertise,
            env_is_aws: pool.env.as_deref().unwrap_or("aws") == "aws",
            datacenter: pool.datacenter.unwrap_or_else(|| "localdc".into()),
            rack: pool.rack.unwrap_or_else(|| "localrack".into()),
            tokens: pool.tokens.into_iter().flatten().flat_map(|list| list.tokens).collect(),
            hasher: KeyHasher { hash: pool.hash.unwrap_or_default(), tag: pool.hash_tag },
            data_store: pool.data_store.unwrap_or(Protocol::Redis),
            store: match pool.servers.and_then(|servers| servers.into_iter().next()) {
                Some(server) => Store::Server(server),
                None => Store::Embedded,
            },
            store_link: StoreLink {
                connections: usize::from(or_default(pool.datastore_connections, 1)),
                preconnect: pool.preconnect.unwrap_or(true),
                auto_eject: pool.auto_eject_hosts.unwrap_or(true),
                retry_max_ms: or_default(pool.server_retry_timeout, 10_000).into(),
                failure_limit: or_default(pool.server_failure_limit, 3),
            },
            timeout_ms: or_default(pool.timeout, 5_000).into(),
            seeds: pool.dyn_seeds.unwrap_or_default(),
            seed_provider: pool.dyn_seed_provider.unwrap_or(SeedProvider::Simple),
            peers: PeerLinks {
                local_connections: usize::from(or_default(pool.local_peer_connections, 1)),
                remote_connections: usize::from(or_default(pool.remote_peer_connections, 1)),
                secure: pool.secure_server_option.unwrap_or(SecureServer::Nowhere),
                pem_key_file: pool.pem_key_file.unwrap_or_else(|| "conf/dynomite.pem".into()),
                msg_rate: or_default(pool.conn_msg_rate, 50_000),
                mbuf_size: or_default(pool.mbuf_size, 16_384) as usize,
            },
            reference_gossip: ReferenceGossip {
                enabled: pool.enable_gossip.unwrap_or(false),
                interval_ms: or_default(pool.gos_interval, 30_000).into(),
            },
            read_consistency: pool.read_consistency.unwrap_or_default(),
            write_consistency: pool.write_consistency.unwrap_or_default(),
            read_repairs: pool.read_repairs_enabled.unwrap_or(false),
            bucket_types,
            default_bucket_type,
            read_fallback: pool.read_fallback,
            allow_flush: pool.allow_flush,
            keyspace_scope: pool.keyspace_scope,
            reference_classes: pool.reference_classes,
            module_commands: pool.module_commands,
            leave_on_stop: pool.leave_on_stop,
            data_dir: pool.data_dir,
            workers: pool.workers.filter(|&n| n > 0),
            auth: pool.auth,
            cluster: pool.cluster,
            limits: pool.limits,
            affinity,
            embedded: pool.embedded,
            documents: pool.documents,
            relay: pool.relay,
        }
    }
}

const LOOPBACK: &str = "127.0.0.1";

/// Dynomite's numbers keep the reference's default at 0.
fn or_default<T: Default + PartialEq>(value: Option<T>, default: T) -> T {
    value.filter(|v| *v != T::default()).unwrap_or(default)
}
