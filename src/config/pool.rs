//! The keys of a pool, as the file writes them: Dynomite's 42 names and torc's own.
//!
//! Everything is optional here, so that "absent" is told from 0 and `false`; `model` turns it
//! into the values the node uses. Names, units and defaults of the first part are those of
//! `src/dyn_conf.c` of Netflix/dynomite.

use std::path::PathBuf;

use super::addr::{Advertise, Endpoint, ServerAddr};
use super::affinity::AffinityKeys;
use super::auth::Auth;
use super::bucket::BucketTypeKeys;
use super::cluster::Cluster;
use super::documents::Documents;
use super::embedded::Embedded;
use super::limits::Limits;
use super::modules::ModuleNames;
use super::relay::Relay;
use super::section::section;
use super::seeds::Seed;
use super::tokens::TokenList;
use super::words::{BuiltIn, KeyspaceScope, Protocol, SecureServer, SeedProvider};
use crate::hash::{HashTag, HashType};
use crate::ring::Consistency;

section! {
    /// A pool.
    pub(super) struct Pool {
        /// Where clients connect: `host:port` or the path of a Unix socket. Required.
        pub(super) listen: Option<Endpoint> = None,
        /// Where peers connect. Default: 127.0.0.1:8101, which only suits a node alone.
        pub(super) dyn_listen: Option<Endpoint> = None,
        /// The admin port (HTTP). Default: 127.0.0.1:22222.
        pub(super) stats_listen: Option<Endpoint> = None,
        /// The one backing store, `host:port:weight [name]` or `/path/socket:weight [name]`.
        /// This or `datastore` is required.
        pub(super) servers: Option<Vec<ServerAddr>> = None,
        /// What clients and the store speak: 0 Redis, 1 memcache. Default: 0.
        pub(super) data_store: Option<Protocol> = None,
        /// The hash of keys. Default: murmur. `murmur3` needs four-word tokens.
        pub(super) hash: Option<HashType> = None,
        /// Two characters that enclose the part of a key that is hashed, quoted: '{}'. Default:
        /// none, the whole key is hashed.
        pub(super) hash_tag: Option<HashTag> = None,
        /// Without effect: keys are always distributed over the token ring.
        pub(super) distribution: Option<String> = None,
        /// Without effect: replaced by `datastore_connections`.
        pub(super) server_connections: Option<String> = None,
        /// Longest wait for the store, milliseconds; peers get 200 more, those of other
        /// datacenters 5000 more. 0 or absent: 5000.
        pub(super) timeout: Option<u32> = None,
        /// Connections the system queues at `listen` and `dyn_listen`. 0 or absent: 512.
        pub(super) backlog: Option<u32> = None,
        /// Without effect, as in the reference; see `limits.client_connections`.
        pub(super) client_connections: Option<u32> = None,
        /// Whether the node becomes ready only once it has connected to the store. Store and peers
        /// are connected to at start in either case, as in the reference. Default: true.
        pub(super) preconnect: Option<bool> = None,
        /// Whether the pauses between attempts to reach a store that keeps failing grow.
        /// Default: true.
        pub(super) auto_eject_hosts: Option<bool> = None,
        /// Longest pause between attempts to reach the store, milliseconds. 0 or absent: 10000.
        pub(super) server_retry_timeout: Option<u32> = None,
        /// Failures in a row after which the pauses between attempts to reach the store grow.
        /// 0 or absent: 3.
        pub(super) server_failure_limit: Option<u32> = None,
        /// Connections to the store, per worker. 0 or absent: 1.
        pub(super) datastore_connections: Option<u16> = None,
        /// Connections to each peer of the own datacenter, per worker. 0 or absent: 1.
        pub(super) local_peer_connections: Option<u16> = None,
        /// Connections to each peer of another datacenter, per worker. 0 or absent: 1.
        pub(super) remote_peer_connections: Option<u16> = None,
        /// Where peers besides `dyn_seeds` come from: `simple_provider` (nowhere),
        /// `florida_provider` (HTTP, variables DYNOMITE_FLORIDA_IP, _PORT, _REQUEST),
        /// `dns_provider` (variables DYNOMITE_DNS_NAME, DYNOMITE_DNS_TYPE). Default:
        /// simple_provider.
        pub(super) dyn_seed_provider: Option<SeedProvider> = None,
        /// The other nodes, each `host:port:rack:dc:tokens [name]`. Default: none.
        pub(super) dyn_seeds: Option<Vec<Seed>> = None,
        /// Without effect, as in the reference; the port is part of `dyn_listen`.
        pub(super) dyn_port: Option<u32> = None,
        /// Without effect, as in the reference.
        pub(super) dyn_connections: Option<u32> = None,
        /// Without effect, as in the reference; see `timeout`.
        pub(super) dyn_read_timeout: Option<u32> = None,
        /// Without effect, as in the reference; see `timeout`.
        pub(super) dyn_write_timeout: Option<u32> = None,
        /// The rack of this node. Default: localrack.
        pub(super) rack: Option<String> = None,
        /// The datacenter of this node. Default: localdc.
        pub(super) datacenter: Option<String> = None,
        /// The tokens of this node, comma-separated or a list. Required.
        pub(super) tokens: Option<Vec<TokenList>> = None,
        /// Time between two messages of gossip to C nodes, milliseconds. 0 or absent: 30000.
        pub(super) gos_interval: Option<u32> = None,
        /// Exchange gossip with C nodes; torc nodes gossip anyway, see `cluster.gossip`.
        /// Default: false.
        pub(super) enable_gossip: Option<bool> = None,
        /// Which peer links are encrypted: `none`, `rack` (to another rack or datacenter),
        /// `datacenter` (to another datacenter), `all`. Default: none.
        pub(super) secure_server_option: Option<SecureServer> = None,
        /// The RSA private key of encrypted links. Default: conf/dynomite.pem.
        pub(super) pem_key_file: Option<PathBuf> = None,
        /// Without effect: belongs to a feature of the reference that is never used.
        pub(super) recon_key_file: Option<PathBuf> = None,
        /// Without effect: belongs to a feature of the reference that is never used.
        pub(super) recon_iv_file: Option<PathBuf> = None,
        /// Which environment variables tell the own address: `aws` EC2_PUBLIC_HOSTNAME,
        /// EC2_PUBLIC_IPV4, EC2_LOCAL_IPV4; any other word the same without EC2_. Default: aws.
        pub(super) env: Option<String> = None,
        /// Most requests a second on each connection to another datacenter; more wait their
        /// turn. 0 or absent: 50000.
        pub(super) conn_msg_rate: Option<u32> = None,
        /// Level of reads. Default: DC_ONE.
        pub(super) read_consistency: Option<Consistency> = None,
        /// Level of writes. Default: DC_ONE.
        pub(super) write_consistency: Option<Consistency> = None,
        /// Write what a quorum read found newest to replicas that hold something older; acts when
        /// both levels are above DC_ONE. Default: false.
        pub(super) read_repairs_enabled: Option<bool> = None,
        /// Without effect: counters are always current.
        pub(super) stats_interval: Option<u32> = None,
        /// Size of the reference's buffers; must be the same on all nodes that encrypt, as it sets
        /// the size of a cipher chunk. 512 to 512000, a multiple of 16. 0 or absent: 16384.
        pub(super) mbuf_size: Option<u32> = None,
        /// Without effect: messages are not kept in a pool; see `limits`.
        pub(super) max_msgs: Option<u32> = None,

        /// `embedded`: the store inside this process, instead of `servers`.
        pub(super) datastore: Option<BuiltIn> = None,
        /// The name of this node for operators. Default: the advertised `host:port`.
        pub(super) name: Option<String> = None,
        /// The address other nodes connect to, `host` or `host:port`. Default: from the
        /// environment (see `env`), else `dyn_listen`.
        pub(super) advertise: Option<Advertise> = None,
        /// Threads that serve clients and peers. 0 or absent: one a core.
        pub(super) workers: Option<usize> = None,
        /// Let another rack answer reads while the own rack's owner cannot. Default: true.
        pub(super) read_fallback: bool = true,
        /// Let FLUSHALL, FLUSHDB and flush_all empty all nodes. Default: false.
        pub(super) allow_flush: bool = false,
        /// What KEYS, SCAN, DBSIZE and RANDOMKEY cover: `ring`, or `node` as in the reference.
        /// Default: ring.
        pub(super) keyspace_scope: KeyspaceScope = KeyspaceScope::Ring,
        /// Give the arc up when stopped by SIGTERM. Default: false, the node is expected back.
        pub(super) leave_on_stop: bool = false,
        /// A directory for what must survive a restart. Default: none, all of it is in memory.
        pub(super) data_dir: Option<PathBuf> = None,
        /// Class commands as the reference does instead of by their effect. Default: false.
        pub(super) reference_classes: bool = false,
        /// Commands of the datastore's modules.
        pub(super) module_commands: ModuleNames = ModuleNames::default(),
        /// Types of keys, told by prefix: `name`, `prefix`, `read_consistency`,
        /// `write_consistency`, `n_val`. Default: none.
        pub(super) bucket_types: Option<Vec<BucketTypeKeys>> = None,
        /// The type of keys that no prefix matches. Default: the pool's own levels.
        pub(super) default_bucket_type: Option<String> = None,
        /// Passwords.
        pub(super) auth: Auth = Auth::default(),
        /// Membership between torc nodes.
        pub(super) cluster: Cluster = Cluster::default(),
        /// Bounds.
        pub(super) limits: Limits = Limits::default(),
        /// Filters of what each datacenter holds.
        pub(super) affinity: AffinityKeys = AffinityKeys::default(),
        /// Filters between datacenters, over gRPC.
        pub(super) relay: Relay = Relay::default(),
        /// The embedded store.
        pub(super) embedded: Embedded = Embedded::default(),
        /// The document gateway.
        pub(super) documents: Documents = Documents::default(),
    }
}
