//! From the configuration to the values the workers and the control plane run on.

use std::sync::Arc;

use crate::affinity::Affinity;
use crate::config::{
    self, AffinityMode, Config, HostPort, KeyFileError, KeyspaceScope, ModuleNames, SecureServer,
    Store, WriteReplication,
};
use crate::dispatch::view::{BucketType, BucketTypes, NodeState, Protocol, Settings, View};
use crate::gossip::{self, Addr, CSettings, Claim, LocalNode, Membership, Millis, Seed};
use crate::net::secure::LinkSecurity;
use crate::proto::dnode::control::ControlSeal;
use crate::proto::dnode::crypto::SecureOption;
use crate::proto::resp::decode::RequestLimits;
use crate::proto::resp::reply::ReplyLimits;
use crate::proto::resp::table::ModuleCommands;
use crate::ring::{Consistency, Topology};

/// What an operator can change while the node runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Knobs {
    /// Level of reads for new requests.
    pub read: Consistency,
    /// Level of writes for new requests.
    pub write: Consistency,
    /// Factor of all deadlines, 1 to 10.
    pub timeout_factor: u64,
    /// The node's own state.
    pub state: NodeState,
}

impl Knobs {
    /// As the configuration says.
    pub fn new(config: &Config) -> Knobs {
        Knobs {
            read: config.read_consistency,
            write: config.write_consistency,
            timeout_factor: 1,
            state: NodeState::Normal,
        }
    }
}

/// The snapshot for the ring as it is; `affinity` is what its datacenters hold.
pub fn view(
    config: &Config,
    knobs: &Knobs,
    topology: Topology,
    affinity: Option<Arc<Affinity>>,
) -> View {
    let mut settings = settings(config);
    settings.timeout_factor = knobs.timeout_factor;
    View {
        topology,
        hasher: config.hasher,
        read: knobs.read,
        write: knobs.write,
        buckets: buckets(config),
        state: knobs.state,
        affinity,
        settings,
    }
}

/// The membership before anybody was heard of: this node and its seeds. Seeds are planned from
/// the start and count as errors until they are connected (decision E9).
pub fn membership(config: &Config, own: &HostPort, wall_ms: u64, now: Millis) -> Membership {
    let seal = seal(config);
    let settings = gossip::Settings {
        gossip: config.cluster.gossips(),
        gossip_interval_ms: config.cluster.gossip_interval_ms,
        phi_threshold: config.cluster.phi_threshold,
        join_max_ms: config.cluster.join_max_ms,
        c: CSettings {
            send: config.reference_gossip.enabled && !config.cluster.torc_only,
            interval_ms: config.reference_gossip.interval_ms,
            accept: !config.cluster.torc_only && config.cluster.secret.is_none(),
            secure: secure_option(config),
        },
        ..gossip::Settings::new(seal)
    };
    let local = LocalNode {
        dc: config.datacenter.clone(),
        rack: config.rack.clone(),
        tokens: config.tokens.clone(),
        addr: Addr::new(&own.host, own.port),
        name: config.name.clone().unwrap_or_else(|| own.to_string()),
        generation: wall_ms.max(1),
        claim: match config.store {
            Store::Embedded if config.cluster.gossips() => Claim::Joining,
            Store::Embedded | Store::Server(_) => Claim::Normal,
        },
        unix_ms: wall_ms,
    };
    let seeds = config.seeds.iter().map(seed).collect();
    Membership::new(settings, local, seeds, wall_ms, now)
}

/// The envelope of control messages.
pub fn seal(config: &Config) -> ControlSeal {
    let secret = config.cluster.secret.as_ref().map(|s| s.expose().as_bytes());
    ControlSeal::new(config.cluster_name(), secret)
}

/// How links are encrypted; `None` when none is.
pub fn security(config: &Config) -> Result<Option<LinkSecurity>, KeyFileError> {
    let option = secure_option(config);
    if option == SecureOption::None {
        return Ok(None);
    }
    let wrap_key = Arc::new(config.read_pem_key()?);
    Ok(Some(LinkSecurity { option, wrap_key, mbuf_size: config.peers.mbuf_size }))
}

fn secure_option(config: &Config) -> SecureOption {
    match config.peers.secure {
        SecureServer::Nowhere => SecureOption::None,
        SecureServer::BetweenRacks => SecureOption::Rack,
        SecureServer::BetweenDatacenters => SecureOption::Datacenter,
        SecureServer::Everywhere => SecureOption::All,
    }
}

/// An entry of a seed list as the membership takes it.
pub fn seed(seed: &config::Seed) -> Seed {
    Seed {
        dc: seed.datacenter.clone(),
        rack: seed.rack.clone(),
        tokens: seed.tokens.clone(),
        addr: Addr::new(&seed.address.host, seed.address.port),
        name: seed.name.clone().unwrap_or_else(|| seed.address.to_string()),
    }
}

fn settings(config: &Config) -> Settings {
    let limits = &config.limits;
    let reply = ReplyLimits::default();
    Settings {
        protocol: match config.data_store {
            config::Protocol::Redis => Protocol::Redis,
            config::Protocol::Memcache => Protocol::Memcache,
        },
        request: RequestLimits {
            bulk_bytes_max: limits.request_bulk_bytes_max.as_usize(),
            elements_max: limits.request_elements_max,
            inline_bytes_max: limits.inline_bytes_max.as_usize(),
            ..RequestLimits::default()
        },
        reply: ReplyLimits {
            bulk_bytes_max: limits.request_bulk_bytes_max.as_usize().max(reply.bulk_bytes_max),
            depth_max: limits.request_depth_max,
            ..reply
        },
        client_connections_max: limits.client_connections,
        idle_timeout_ms: limits.idle_timeout_ms,
        client_in_flight_max: limits.client_in_flight,
        client_output_max: limits.client_output_bytes_max.as_usize(),
        upstream_output_max: limits.upstream_output_bytes_max.as_usize(),
        upstream_in_flight_max: limits.upstream_in_flight,
        timeout_ms: config.timeout_ms,
        timeout_factor: 1,
        datastore_connections: config.store_link.connections,
        local_peer_connections: config.peers.local_connections,
        remote_peer_connections: config.peers.remote_connections,
        remote_frames_per_second: config.peers.msg_rate,
        read_fallback: config.read_fallback,
        allow_flush: config.allow_flush,
        keyspace_node_only: config.keyspace_scope == KeyspaceScope::Node,
        client_password: config.auth.requirepass.as_ref().map(|p| p.expose().to_owned()),
        reference_classes: config.reference_classes,
        modules: modules(config),
        route_reads: config.affinity.mode == AffinityMode::Route,
        backfill: config.affinity.backfill,
    }
}

fn modules(config: &Config) -> ModuleCommands {
    let mut modules = ModuleCommands::default();
    let ModuleNames { reads, writes } = &config.module_commands;
    writes.iter().for_each(|prefix| modules.add(prefix, false));
    reads.iter().for_each(|prefix| modules.add(prefix, true));
    modules
}

/// The small state of the document plane is kept at a quorum whatever the ring's levels are: a
/// task that was answered for must be found again (decision J3).
fn document_state(config: &Config) -> Option<BucketType> {
    (!config.documents.backends.0.is_empty()).then(|| BucketType {
        name: "torc-documents".into(),
        prefix: b"torc:doc:".to_vec(),
        read: Some(Consistency::DcQuorum),
        write: Some(Consistency::DcQuorum),
        n_val: None,
        stays: false,
    })
}

fn buckets(config: &Config) -> BucketTypes {
    let types = config.bucket_types.iter().map(|bucket| BucketType {
        name: bucket.name.clone(),
        prefix: bucket.prefix.clone().into_bytes(),
        read: bucket.read_consistency,
        write: bucket.write_consistency,
        n_val: bucket.n_val,
        stays: bucket.immutable && config.affinity.write_replication == WriteReplication::LocalDc,
    });
    let types = types.chain(document_state(config));
    let default = config.default_bucket_type.map(|i| config.bucket_types[i].name.clone());
    BucketTypes::new(types.collect(), default.as_deref())
}
