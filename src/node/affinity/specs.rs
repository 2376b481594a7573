//! The shapes of a node's domains, from its configuration and its ring.

use crate::affinity::KEYS_DOMAIN;
use crate::affinity::domain::{DomainSpec, Kind};
use crate::ckf::consumer::LANES;
use crate::ckf::digest::{self, Selection};
use crate::ckf::hashing::HashFormat;
use crate::ckf::identity::{ConsumerInstanceId, IndexerDomainId};
use crate::ckf::ringkey::{KeyProtocol, RING_KEY_BLOCK_SIZE};
use crate::config;
use crate::ring::Topology;

/// What all domains of a node have in common.
#[derive(Clone, Copy)]
pub(super) struct About {
    pub(super) protocol: KeyProtocol,
    pub(super) consumer: ConsumerInstanceId,
    pub(super) table_seed: u64,
}

/// The shapes of all domains, ring keys first.
pub(super) fn specs<'a>(
    config: &'a config::Affinity,
    about: About,
    datacenters: &'a [String],
) -> impl Iterator<Item = DomainSpec> + 'a {
    let spec = move |name: &str, kind, expected, semantics: &Selection, scope: &Selection| {
        let (size, format) = match kind {
            Kind::Keys(_) => (RING_KEY_BLOCK_SIZE, HashFormat::Standard),
            Kind::Blocks { block_size, format } => (block_size, format),
        };
        DomainSpec {
            name: name.to_owned(),
            id: IndexerDomainId {
                cache_semantics: digest::cache_semantics(semantics, size, format),
                routing_scope: digest::routing_scope(scope),
            },
            kind,
            datacenters: datacenters.to_vec(),
            expected,
            stale_after_ms: config.stale_after_ms,
            resize_bytes_max: config.resize_bytes_max(datacenters.len()),
            consumer: about.consumer,
            table_seed: about.table_seed,
        }
    };
    let keys = Kind::Keys(about.protocol);
    let keys = spec(KEYS_DOMAIN, keys, config.expected_keys, &config.semantics, &config.scope);
    let blocks = config.domains.iter().map(move |domain| {
        let kind = Kind::Blocks { block_size: domain.block_size, format: domain.hash };
        spec(&domain.name, kind, domain.expected_blocks, &domain.semantics, &domain.scope)
    });
    std::iter::once(keys).chain(blocks)
}

/// The datacenters of the ring, the own one first; as many as there are lanes.
pub(super) fn datacenters(topology: &Topology) -> Vec<String> {
    let own = topology.local_dc().to_owned();
    let mut others: Vec<String> = topology
        .racks()
        .iter()
        .map(|rack| topology.dc_name(rack.dc_index).to_owned())
        .filter(|dc| *dc != own)
        .collect();
    others.sort_unstable();
    others.dedup();
    if others.len() >= LANES {
        tracing::warn!("{} datacenters, affinity follows {LANES} of them", others.len() + 1);
        others.truncate(LANES - 1);
    }
    std::iter::once(own).chain(others).collect()
}
