//! What a node offers through its relay: the pools its affinity plane publishes, which models are
//! ready, and how full the store is.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use crate::affinity::KEYS_DOMAIN;
use crate::affinity::domain::{Domain, Kind, StoreLoad};
use crate::affinity::publication::{Cut, Publication, Subscriber};
use crate::ckf::hashing::HashFormat;
use crate::ckf::identity::{IndexerDomainId, PoolId, ProducerIdentity};
use crate::ckf::ringkey::RING_KEY_BLOCK_SIZE;
use crate::config::{Config, PoolRole, RelayModel, RelayPool};
use crate::node::Shared;
use crate::node::affinity::AffinityPlane;
use crate::relay::descriptor::{Descriptor, Endpoint, Registration, Role, Semantics, Target};
use crate::relay::key::ProducerKey;
use crate::relay::load::{PoolLoad, RankLoad, sum};
use crate::relay::readiness::{Served, derive};
use crate::relay_server::{PoolSource, Relay};
use crate::ring::Topology;

/// Longest time between two looks at what is published and ready.
const LOOK: Duration = Duration::from_millis(200);
/// The endpoint of the ring's keys unless told otherwise.
const KEYS_ENDPOINT: &str = "dnode";

/// Keeps the relay's catalog and readiness as the node's planes are, for ever.
pub(super) async fn run(shared: Arc<Shared>, relay: Arc<Relay>, plane: Arc<AffinityPlane>) {
    let mut publications = plane.catalog();
    let mut offers = Offers::default();
    loop {
        offers.update(&shared, &relay, &plane);
        tokio::select! {
            changed = publications.changed() => if changed.is_err() {
                return;
            },
            () = tokio::time::sleep(LOOK) => {}
        }
    }
}

/// What is offered now.
#[derive(Default)]
struct Offers {
    pools: BTreeMap<PoolId, ProducerIdentity>,
    /// Why a domain's pool is not offered, as it was logged.
    refused: BTreeMap<String, String>,
}

impl Offers {
    fn update(&mut self, shared: &Shared, relay: &Relay, plane: &Arc<AffinityPlane>) {
        let mut seen = Vec::new();
        for domain in plane.domains().domains() {
            let Some(publication) = domain.publication() else { continue };
            if let Some(pool) = self.offer(&shared.config, relay, plane, domain, &publication) {
                seen.push(pool);
            }
        }
        self.pools.retain(|pool, _| {
            let stays = seen.contains(pool);
            if !stays {
                relay.withdraw(pool);
            }
            stays
        });
        let alive = is_covered(shared);
        let published = relay.published();
        let served: Vec<Served<'_>> = published.iter().map(|pool| Served { pool, alive }).collect();
        relay.set_readiness(derive(&served));
    }

    /// Offers a domain's pool once everybody has told what it holds; from then on for as long as
    /// it is published here.
    fn offer(
        &mut self,
        config: &Config,
        relay: &Relay,
        plane: &Arc<AffinityPlane>,
        domain: &Domain,
        publication: &Publication,
    ) -> Option<PoolId> {
        let identity = publication.identity;
        if !publication.complete && self.pools.get(&identity.pool) != Some(&identity) {
            return None;
        }
        let settings = settings_of(config, domain.name())?;
        let offered =
            ProducerKey::try_from(identity).map_err(|fault| fault.to_string()).and_then(|key| {
                let source = Source { plane: Arc::clone(plane), id: domain.spec().id };
                let pool = describe(config, domain, settings.as_ref(), key);
                relay.publish(pool, Arc::new(source)).map_err(|error| error.to_string())
            });
        match offered {
            Ok(()) => {
                self.refused.remove(domain.name());
                self.pools.insert(identity.pool, identity);
                Some(identity.pool)
            }
            Err(why) => {
                let before = self.refused.insert(domain.name().to_owned(), why.clone());
                if before.as_ref() != Some(&why) {
                    tracing::error!(domain = domain.name(), why, "relay: the pool is not offered");
                }
                None
            }
        }
    }
}

/// The filter of a domain, whichever value stands for it when somebody asks.
struct Source {
    plane: Arc<AffinityPlane>,
    id: IndexerDomainId,
}

impl PoolSource for Source {
    fn subscribe(&self, subscriber: Box<dyn Subscriber>) -> Option<Cut> {
        let domains = self.plane.domains();
        let domain = domains.domains().find(|domain| domain.spec().id == self.id)?;
        domain.subscribe(subscriber).ok()
    }
}

/// A domain's entry of `relay.pools`; the inner value is none where there is no list. None when
/// the list leaves the domain out.
fn settings_of(config: &Config, domain: &str) -> Option<Option<RelayPool>> {
    match &config.relay.pools {
        None => Some(None),
        Some(list) => {
            let entry = list.iter().find(|entry| entry.domain.as_deref() == Some(domain))?;
            Some(Some(entry.clone()))
        }
    }
}

fn describe(
    config: &Config,
    domain: &Domain,
    settings: Option<&RelayPool>,
    key: ProducerKey,
) -> Descriptor {
    let keys = domain.name() == KEYS_DOMAIN;
    let name = if keys { config.cluster_name() } else { domain.name() };
    let text = |given: Option<&String>, default: &str| {
        given.map_or_else(|| default.trim().to_owned(), String::clone)
    };
    let endpoint = if keys { KEYS_ENDPOINT } else { domain.name() };
    let (block_size, format) = match domain.spec().kind {
        Kind::Keys(_) => (RING_KEY_BLOCK_SIZE, HashFormat::Standard),
        Kind::Blocks { block_size, format } => (block_size, format),
    };
    let roles = settings.and_then(|pool| pool.roles.clone());
    let models = settings.and_then(|pool| pool.models.as_deref());
    Descriptor {
        key,
        endpoint: Endpoint {
            namespace: text(settings.and_then(|p| p.namespace.as_ref()), config.cluster_name()),
            component: text(settings.and_then(|p| p.component.as_ref()), &config.datacenter),
            endpoint: text(settings.and_then(|p| p.endpoint.as_ref()), endpoint),
        },
        registrations: match models {
            None => vec![plain_model(name.trim())],
            Some(models) => models.iter().map(registration).collect(),
        },
        semantics: Semantics { block_size, format },
        roles: roles
            .map_or_else(|| vec![Role::Aggregated], |list| list.into_iter().map(role).collect()),
    }
}

fn plain_model(name: &str) -> Registration {
    let target = Target::Base(name.to_owned());
    Registration { canonical_id: name.to_owned(), target, aliases: Vec::new() }
}

fn registration(model: &RelayModel) -> Registration {
    let canonical_id = model.name.clone().unwrap_or_default();
    let base = model.base.clone().unwrap_or_else(|| canonical_id.clone());
    let target = match &model.adapter {
        None => Target::Base(base),
        Some(adapter) => Target::Lora { base, adapter: adapter.clone() },
    };
    let aliases = model.aliases.clone().unwrap_or_default();
    Registration { canonical_id, target, aliases }
}

fn role(role: PoolRole) -> Role {
    match role {
        PoolRole::Prefill => Role::Prefill,
        PoolRole::Decode => Role::Decode,
        PoolRole::Encode => Role::Encode,
        PoolRole::Aggregated => Role::Aggregated,
        PoolRole::Legacy => Role::Legacy,
    }
}

/// Whether one rack of the own datacenter can serve every key; none until gossip has settled.
fn is_covered(shared: &Shared) -> Option<bool> {
    if !shared.status.met() {
        return None;
    }
    Some(has_whole_rack(&shared.view.load().topology))
}

fn has_whole_rack(topology: &Topology) -> bool {
    let own = topology.local_dc();
    (0..topology.racks().len()).any(|rack| {
        let mut owners = topology.peers().filter(|peer| peer.rack_index == rack).peekable();
        owners.peek().is_some_and(|peer| peer.dc == own) && owners.all(|peer| peer.routable())
    })
}

/// How full the pools are. A rank is a node of the datacenter; its store tells, through the feeds
/// of the domain of keys. Blocks of engines lie in the engines' memory, which nobody here sees.
pub(super) fn loads(shared: &Arc<Shared>) -> impl Fn(&[Descriptor]) -> Vec<PoolLoad> + use<> {
    let affinity = shared.affinity.clone();
    move |pools| {
        let Some(affinity) = affinity.as_ref().map(|plane| plane.domains()) else {
            return Vec::new();
        };
        let rank = |load: Option<StoreLoad>| {
            load.map(|load| RankLoad { used: load.used, total: load.total })
        };
        let load = |pool: &Descriptor| {
            let id = pool.key.pool().indexer_domain;
            let domain = affinity.domains().find(|domain| domain.spec().id == id);
            let loads = domain.map(|domain| domain.store_loads()).unwrap_or_default();
            let ranks: Vec<Option<RankLoad>> = loads.into_iter().map(rank).collect();
            sum(pool.key, &ranks)
        };
        pools.iter().map(load).collect()
    }
}
