//! `relay:`: the KvEventRelay contract, as server and as consumer.

use super::addr::{Endpoint, HostPort};
use super::numbers::ByteSize;
use super::section::section;
use super::texts::words;

words! {
    /// What a pool's workers do: `relay.pools.roles`.
    pub enum PoolRole ("is not a role") {
        /// They read prompts.
        Prefill = "prefill",
        /// They write answers.
        Decode = "decode",
        /// They encode images or sound.
        Encode = "encode",
        /// They do all of it.
        Aggregated = "aggregated",
        /// They do not say.
        Legacy = "legacy",
    }
}

section! {
    /// `relay:`: filters, catalog, readiness and load of this datacenter over gRPC.
    pub struct Relay {
        /// Where consumers connect, `host:port`. Default: none, nothing is served.
        pub listen: Option<Endpoint> = None,
        /// Let `listen` be reachable from outside of private networks; there are no passwords.
        /// Default: false.
        pub public: bool = false,
        /// Relays to consume, each `host:port`: torc's in other datacenters, or Dynamo's.
        /// Default: none.
        pub upstreams: Option<Vec<Endpoint>> = None,
        /// What is published, by domain. Default: every domain of `affinity`.
        pub pools: Option<Vec<RelayPool>> = None,
        /// Largest message, sent or received. Default: 8mb.
        pub max_message_bytes: ByteSize = ByteSize::mib(8),
        /// Connections of consumers. Default: 1024.
        pub connections_max: usize = 1_024,
        /// Silence after which a connection is probed, milliseconds. Default: 20000.
        pub keepalive_interval_ms: u64 = 20_000,
        /// Time for the answer to a probe, milliseconds. Default: 10000.
        pub keepalive_timeout_ms: u64 = 10_000,
        /// Silence after which a filter's stream repeats its sequence, milliseconds.
        /// Default: 10000.
        pub pool_heartbeat_interval_ms: u64 = 10_000,
        /// Time between repeats of the readiness, milliseconds. Default: 10000.
        pub readiness_heartbeat_interval_ms: u64 = 10_000,
        /// Time between repeats of the catalog, milliseconds. Default: 10000.
        pub catalog_heartbeat_interval_ms: u64 = 10_000,
        /// Time a subscriber may stop reading its snapshot, milliseconds. Default: 60000.
        pub snapshot_progress_timeout_ms: u64 = 60_000,
        /// Time a relay that is followed may take for a whole catalog, for readiness, or for the
        /// next part of a whole filter, milliseconds; then it is asked anew. Default: 30000.
        pub recovery_attempt_timeout_ms: u64 = 30_000,
        /// Length of a window of load, milliseconds; some consumers want one each 3 seconds.
        /// Default: 1000.
        pub load_window_ms: u64 = 1_000,
        /// Windows a subscriber may be behind. Default: 16.
        pub load_fanout_capacity: usize = 16,
        /// Frames that wait for one subscriber of a filter. Default: 16.
        pub publication_queue_capacity: usize = 16,
        /// Bytes that wait for one subscriber of a filter. Default: 16mb.
        pub publication_queue_bytes: ByteSize = ByteSize::mib(16),
        /// Snapshots made at once, and filters whose changes are encoded at once. Default: 2.
        pub publication_encoding_concurrency: usize = 2,
        /// Changes of a filter after which a frame is sent at once. Default: 16.
        pub publication_threshold: u32 = 16,
        /// Longest wait of a change for others to go with it, milliseconds. Default: 1.
        pub publication_delay_ms: u64 = 1,
        /// Subscribers of the catalog. Default: 64.
        pub max_catalog_subscribers: usize = 64,
        /// Subscribers of the readiness. Default: 64.
        pub max_readiness_subscribers: usize = 64,
        /// Subscribers of the pools' load. Default: 64.
        pub max_load_subscribers: usize = 64,
        /// Subscribers of the serving load. Default: 64.
        pub max_serving_load_subscribers: usize = 64,
        /// Subscribers of filters, all together. Default: 64.
        pub max_pool_streams_total: usize = 64,
        /// Subscribers of one filter. Default: 64.
        pub max_subscribers_per_pool: usize = 64,
        /// Filters mirrored for subscribers; idle ones make room. Default: 64.
        pub max_initialized_pool_hubs: usize = 64,
    }
}

section! {
    /// One entry of `relay.pools`.
    pub struct RelayPool {
        /// The domain of `affinity`: `keys`, or a name of `affinity.domains`.
        pub domain: Option<String> = None,
        /// The namespace of its endpoint. Default: the cluster's name.
        pub namespace: Option<String> = None,
        /// The component of its endpoint. Default: the datacenter.
        pub component: Option<String> = None,
        /// Its endpoint. Default: `dnode` for the ring's keys, else the domain's name.
        pub endpoint: Option<String> = None,
        /// What the pool's workers do: `prefill`, `decode`, `encode`, `aggregated`, `legacy`.
        /// Default: aggregated.
        pub roles: Option<Vec<PoolRole>> = None,
        /// The models it serves. Default: one of the cluster's name for the ring's keys, else of
        /// the domain's.
        pub models: Option<Vec<RelayModel>> = None,
    }
}

section! {
    /// One entry of `relay.pools.models`.
    pub struct RelayModel {
        /// The name routers ask for.
        pub name: Option<String> = None,
        /// The base model. Default: the name.
        pub base: Option<String> = None,
        /// The LoRA adapter on it, whose name salts its block hashes. Default: none.
        pub adapter: Option<String> = None,
        /// Other names of it. Default: none.
        pub aliases: Option<Vec<String>> = None,
    }
}

impl Relay {
    /// Where to listen; none when nothing is served.
    pub fn listen(&self) -> Option<&HostPort> {
        self.listen.as_ref().and_then(Endpoint::host_port)
    }

    /// The relays to consume.
    pub fn upstreams(&self) -> impl Iterator<Item = &HostPort> {
        self.upstreams.iter().flatten().filter_map(Endpoint::host_port)
    }

    /// Whether the relay has anything to do.
    pub fn is_on(&self) -> bool {
        self.listen.is_some() || self.upstreams.as_ref().is_some_and(|list| !list.is_empty())
    }
}
