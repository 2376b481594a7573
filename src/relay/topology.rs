//! One entry of the readiness plane: a model of a namespace and the endpoints that serve it.

use std::collections::HashSet;

use super::descriptor::{self, Endpoint, Role, text};
use super::{Fault, key, proto};
use crate::ckf::identity::PoolId;

pub use super::proto::ServingReadinessState as State;

/// An endpoint that serves the model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// The endpoint, of the entry's namespace.
    pub endpoint: Endpoint,
    /// What it does; at least one.
    pub roles: Vec<Role>,
    /// The pool it serves, while the catalog has one that fits.
    pub pool: Option<PoolId>,
}

/// An adapter on the entry's model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Adapter {
    /// Its name.
    pub canonical_id: String,
    /// Whether it can serve.
    pub state: State,
    /// Roles it lacks.
    pub missing: Vec<Role>,
}

/// What tells entries apart: namespace and model.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EntryKey {
    /// The namespace.
    pub namespace: String,
    /// The model's canonical name.
    pub model: String,
}

/// Whether one model can serve, checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Which model.
    pub key: EntryKey,
    /// Whether it can serve. Published pools override neither "unavailable" nor "unknown".
    pub state: State,
    /// Roles with a worker alive.
    pub present: Vec<Role>,
    /// Roles declared and not alive.
    pub missing: Vec<Role>,
    /// Its endpoints; at least one.
    pub members: Vec<Member>,
    /// Roles that several endpoints declare; prefill and decode only.
    pub duplicated: Vec<Role>,
    /// A member without a role turned the strict checks off.
    pub legacy_fallback: bool,
    /// Adapters on it.
    pub adapters: Vec<Adapter>,
}

impl EntryKey {
    /// The key of an entry; a fault here means that the entry cannot be told from others.
    pub fn of(message: &proto::TopologyEntry) -> Result<EntryKey, Fault> {
        Ok(EntryKey {
            namespace: text(&message.namespace, "namespace")?,
            model: text(&message.canonical_model_id, "canonical_model_id")?,
        })
    }
}

impl TryFrom<&proto::TopologyEntry> for Entry {
    type Error = Fault;

    fn try_from(message: &proto::TopologyEntry) -> Result<Entry, Fault> {
        let key = EntryKey::of(message)?;
        let state = state(message.state)?;
        let present = descriptor::roles(&message.present_roles)?;
        let missing = descriptor::roles(&message.missing_roles)?;
        let duplicated = descriptor::roles(&message.duplicate_role_endpoints)?;
        if duplicated.iter().any(|role| !may_be_duplicated(*role)) {
            return Err(Fault::UnsupportedDuplicateEndpointRole);
        }
        let members = members(&message.members, &key.namespace)?;
        let adapters = adapters(&message.adapters)?;
        let legacy_fallback = message.legacy_fallback_active;
        Ok(Entry { key, state, present, missing, members, duplicated, legacy_fallback, adapters })
    }
}

impl From<&Entry> for proto::TopologyEntry {
    fn from(entry: &Entry) -> proto::TopologyEntry {
        let numbers = |roles: &[Role]| roles.iter().map(|role| *role as i32).collect();
        let member = |member: &Member| proto::TopologyMember {
            endpoint: Some((&member.endpoint).into()),
            roles: numbers(&member.roles),
            pool_id: member.pool.as_ref().map(key::pool_message),
        };
        let adapter = |adapter: &Adapter| proto::AdapterReadiness {
            canonical_model_id: adapter.canonical_id.clone(),
            state: adapter.state as i32,
            missing_roles: numbers(&adapter.missing),
        };
        proto::TopologyEntry {
            namespace: entry.key.namespace.clone(),
            canonical_model_id: entry.key.model.clone(),
            state: entry.state as i32,
            present_roles: numbers(&entry.present),
            missing_roles: numbers(&entry.missing),
            members: entry.members.iter().map(member).collect(),
            duplicate_role_endpoints: numbers(&entry.duplicated),
            legacy_fallback_active: entry.legacy_fallback,
            adapters: entry.adapters.iter().map(adapter).collect(),
        }
    }
}

/// Whether the contract allows a role in the list of duplicated ones.
pub fn may_be_duplicated(role: Role) -> bool {
    match role {
        Role::Prefill | Role::Decode => true,
        Role::Unspecified | Role::Encode | Role::Aggregated | Role::Legacy => false,
    }
}

/// A state's name for people.
pub fn state_word(state: State) -> &'static str {
    match state {
        State::Unknown => "unknown",
        State::Unavailable => "unavailable",
        State::Ready => "ready",
    }
}

fn state(number: i32) -> Result<State, Fault> {
    State::try_from(number).map_err(|_| Fault::ReadinessState(number))
}

fn members(messages: &[proto::TopologyMember], namespace: &str) -> Result<Vec<Member>, Fault> {
    if messages.is_empty() {
        return Err(Fault::MissingTopologyMembers);
    }
    let mut members = Vec::with_capacity(messages.len());
    let mut seen = HashSet::new();
    for message in messages {
        let endpoint = descriptor::endpoint(message.endpoint.as_ref(), "endpoint")?;
        if endpoint.namespace != namespace {
            return Err(Fault::TopologyNamespaceMismatch);
        }
        let roles = descriptor::roles(&message.roles)?;
        if roles.is_empty() {
            return Err(Fault::MissingWorkerRoles);
        }
        let pool = message.pool_id.as_ref().map(key::pool_id).transpose()?;
        if !seen.insert(endpoint.clone()) {
            return Err(Fault::DuplicateTopologyMember);
        }
        members.push(Member { endpoint, roles, pool });
    }
    Ok(members)
}

fn adapters(messages: &[proto::AdapterReadiness]) -> Result<Vec<Adapter>, Fault> {
    let mut adapters: Vec<Adapter> = Vec::with_capacity(messages.len());
    let mut seen = HashSet::new();
    for message in messages {
        let canonical_id = text(&message.canonical_model_id, "canonical_model_id")?;
        let state = state(message.state)?;
        let missing = descriptor::roles(&message.missing_roles)?;
        if !seen.insert(canonical_id.clone()) {
            return Err(Fault::DuplicateAdapter);
        }
        adapters.push(Adapter { canonical_id, state, missing });
    }
    Ok(adapters)
}
