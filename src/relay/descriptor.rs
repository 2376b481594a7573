//! One published pool: its producer, where it is served, for which models, and how to ask it.

use std::fmt;

use super::Fault;
use super::key::ProducerKey;
use super::proto::{self, model_target};
use crate::ckf::hashing::HashFormat;

pub use super::proto::WorkerRole as Role;

/// A serving endpoint. The three texts are compared one by one, never joined by dots.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Endpoint {
    /// The namespace.
    pub namespace: String,
    /// The component in it.
    pub component: String,
    /// The endpoint of that.
    pub endpoint: String,
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}/{}", self.namespace, self.component, self.endpoint)
    }
}

/// What a name of a model stands for.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Target {
    /// A base model.
    Base(String),
    /// An adapter on a base model.
    Lora {
        /// The base model.
        base: String,
        /// The adapter's canonical name, which salts its block hashes.
        adapter: String,
    },
}

/// One model a pool serves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Registration {
    /// Its name.
    pub canonical_id: String,
    /// What the name stands for.
    pub target: Target,
    /// Other names of it.
    pub aliases: Vec<String>,
}

/// How the tokens of a prompt become hashes that can be asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Semantics {
    /// Tokens of one block, at least 1.
    pub block_size: u32,
    /// How tokens are cut and hashed.
    pub format: HashFormat,
}

/// One published pool, checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Descriptor {
    /// Its generation.
    pub key: ProducerKey,
    /// Where it is served.
    pub endpoint: Endpoint,
    /// The models it serves; may be none.
    pub registrations: Vec<Registration>,
    /// How to ask it.
    pub semantics: Semantics,
    /// What its workers do; at least one.
    pub roles: Vec<Role>,
}

impl TryFrom<&proto::KvPoolDescriptor> for Descriptor {
    type Error = Fault;

    fn try_from(message: &proto::KvPoolDescriptor) -> Result<Descriptor, Fault> {
        let producer = message.producer.as_ref().ok_or(Fault::MissingField("producer"))?;
        let key = ProducerKey::try_from(producer)?;
        let endpoint = endpoint(message.serving_endpoint.as_ref(), "serving_endpoint")?;
        let semantics =
            message.query_semantics.as_ref().ok_or(Fault::MissingField("query_semantics"))?;
        let semantics = self::semantics(semantics)?;
        let registrations =
            message.registrations.iter().map(registration).collect::<Result<_, _>>()?;
        let roles = roles(&message.pool_roles)?;
        if roles.is_empty() {
            return Err(Fault::MissingWorkerRoles);
        }
        Ok(Descriptor { key, endpoint, registrations, semantics, roles })
    }
}

impl From<&Descriptor> for proto::KvPoolDescriptor {
    fn from(pool: &Descriptor) -> proto::KvPoolDescriptor {
        proto::KvPoolDescriptor {
            producer: Some((&pool.key).into()),
            serving_endpoint: Some((&pool.endpoint).into()),
            registrations: pool.registrations.iter().map(Into::into).collect(),
            query_semantics: Some(proto::KvQuerySemantics {
                kv_block_size: pool.semantics.block_size,
                hash_format: format_number(pool.semantics.format),
            }),
            pool_roles: pool.roles.iter().map(|role| *role as i32).collect(),
        }
    }
}

impl From<&Endpoint> for proto::DynamoEndpointId {
    fn from(endpoint: &Endpoint) -> proto::DynamoEndpointId {
        proto::DynamoEndpointId {
            namespace: endpoint.namespace.clone(),
            component: endpoint.component.clone(),
            endpoint: endpoint.endpoint.clone(),
        }
    }
}

impl From<&Registration> for proto::ModelRegistration {
    fn from(registration: &Registration) -> proto::ModelRegistration {
        let target = match &registration.target {
            Target::Base(base) => {
                model_target::Target::Base(proto::BaseModelTarget { base_model: base.clone() })
            }
            Target::Lora { base, adapter } => model_target::Target::Lora(proto::LoraModelTarget {
                base_model: base.clone(),
                adapter: adapter.clone(),
            }),
        };
        proto::ModelRegistration {
            canonical_model_id: registration.canonical_id.clone(),
            target: Some(proto::ModelTarget { target: Some(target) }),
            aliases: registration.aliases.clone(),
        }
    }
}

/// A text that names something: not empty, no white space around it.
pub(super) fn text(text: &str, what: &'static str) -> Result<String, Fault> {
    if text.is_empty() || text.trim() != text {
        return Err(Fault::InvalidText(what));
    }
    Ok(text.to_owned())
}

pub(super) fn endpoint(
    message: Option<&proto::DynamoEndpointId>,
    what: &'static str,
) -> Result<Endpoint, Fault> {
    let message = message.ok_or(Fault::MissingField(what))?;
    Ok(Endpoint {
        namespace: text(&message.namespace, "namespace")?,
        component: text(&message.component, "component")?,
        endpoint: text(&message.endpoint, "endpoint")?,
    })
}

/// A set of roles, in the order given.
pub(super) fn roles(numbers: &[i32]) -> Result<Vec<Role>, Fault> {
    let mut roles = Vec::with_capacity(numbers.len().min(ROLES));
    for &number in numbers {
        let role = match Role::try_from(number) {
            Ok(Role::Unspecified) | Err(_) => return Err(Fault::WorkerRole(number)),
            Ok(role) => role,
        };
        if roles.contains(&role) {
            return Err(Fault::DuplicateWorkerRole);
        }
        roles.push(role);
    }
    Ok(roles)
}

/// Roles there are.
const ROLES: usize = 5;

fn semantics(message: &proto::KvQuerySemantics) -> Result<Semantics, Fault> {
    if message.kv_block_size == 0 {
        return Err(Fault::ZeroQueryBlockSize);
    }
    let format = match proto::KvQueryHashFormat::try_from(message.hash_format) {
        Ok(proto::KvQueryHashFormat::DynamoStandardV1) => HashFormat::Standard,
        Ok(proto::KvQueryHashFormat::DynamoEagleV1) => HashFormat::Eagle,
        Ok(proto::KvQueryHashFormat::Unspecified) | Err(_) => {
            return Err(Fault::QueryHashFormat(message.hash_format));
        }
    };
    Ok(Semantics { block_size: message.kv_block_size, format })
}

fn format_number(format: HashFormat) -> i32 {
    let format = match format {
        HashFormat::Standard => proto::KvQueryHashFormat::DynamoStandardV1,
        HashFormat::Eagle => proto::KvQueryHashFormat::DynamoEagleV1,
    };
    format as i32
}

fn registration(message: &proto::ModelRegistration) -> Result<Registration, Fault> {
    let canonical_id = text(&message.canonical_model_id, "canonical_model_id")?;
    let target = message.target.as_ref().ok_or(Fault::MissingField("target"))?;
    // An alternative we do not know decodes as none at all.
    let target = match target.target.as_ref().ok_or(Fault::UnsupportedModelTarget)? {
        model_target::Target::Base(base) => Target::Base(text(&base.base_model, "base_model")?),
        model_target::Target::Lora(lora) => Target::Lora {
            base: text(&lora.base_model, "base_model")?,
            adapter: text(&lora.adapter, "adapter")?,
        },
    };
    let mut aliases: Vec<String> = Vec::with_capacity(message.aliases.len());
    for alias in &message.aliases {
        let alias = text(alias, "alias")?;
        if aliases.contains(&alias) {
            return Err(Fault::DuplicateAlias);
        }
        aliases.push(alias);
    }
    Ok(Registration { canonical_id, target, aliases })
}
