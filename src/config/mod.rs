//! The configuration: Dynomite's YAML, torc's own keys, and errors that point at the mistake.
//!
//! [`Config::load`] reads a file (and an overlay that holds torc's own keys apart), checks it as
//! a whole and gives values the node can use directly. Everything that can be told without a
//! network is told here: one reading reports all mistakes of a stage at once, each with file,
//! line, column, the line itself, what is accepted and what was probably meant.
//!
//! # How a file is read
//!
//! `parse` (YAML to a tree of texts; alone names the YAML crate) -> `overlay` (two trees to one)
//! -> `pool` and the section files (texts to typed keys; unknown and repeated keys) -> `validate`
//! (keys against each other) -> `model` (defaults applied) with `warnings` on the side.
//!
//! Differences from `src/dyn_conf.c` of Netflix/dynomite: absent is told from `false`; unknown
//! words, repeated keys, a second pool and several `servers` are errors; `---`, flow style and
//! `[v6]:port` are accepted. Each of its 42 names is accepted; the ones without effect are named
//! in one warning.
//!
//! # Adding a section
//!
//! 1. A file beside this one: `section! { pub struct Hints { /// Text. pub age_ms: u64 = 5, } }`.
//!    The documentation of a field becomes its description in the JSON schema; the field's type
//!    decides what is accepted. A new scalar type implements `setting::Text`, a word list is a
//!    `words!`.
//! 2. One field in `pool::Pool` (the key) and one in [`Config`] (the value), and its line in
//!    `Config::from_pool`.
//! 3. Checks against other keys in `validate`.
//! 4. Its rows in `reference.md`, and `torc schema > conf/torc.schema.json`. Tests fail while
//!    either lacks a key.

mod addr;
mod advertise;
mod affinity;
mod auth;
mod bucket;
mod cluster;
mod documents;
mod embedded;
mod error;
mod limits;
mod model;
mod modules;
mod node;
mod numbers;
mod overlay;
mod parse;
mod peers;
mod pem;
mod pool;
mod provider;
mod relay;
mod schema;
mod section;
mod seeds;
mod setting;
mod suggest;
mod texts;
mod tokens;
mod validate;
mod validate_documents;
mod validate_relay;
mod validate_ring;
mod warnings;
mod words;

#[doc = include_str!("reference.md")]
pub mod reference {}

#[cfg(test)]
mod tests;

use std::path::Path;

pub use addr::{Advertise, Endpoint, HostPort, ServerAddr};
pub use advertise::{NoOwnAddress, OwnAddress};
pub use affinity::{Affinity, AffinityMode, BlockDomain, WriteReplication};
pub use auth::Auth;
pub use bucket::BucketType;
pub use cluster::Cluster;
pub use documents::{Backends, DocumentBackend, Documents, PartialAnswer, SessionWait};
pub use embedded::Embedded;
pub use error::{ConfigError, ConfigErrors, Place};
pub use limits::Limits;
pub use model::{ADMIN_PORT, Config, PEER_PORT, PeerLinks, ReferenceGossip, Store, StoreLink};
pub use modules::ModuleNames;
pub use numbers::ByteSize;
pub use pem::KeyFileError;
pub use provider::{BadVariable, DnsRecords, DnsServer, SeedSource};
pub use relay::{PoolRole, Relay, RelayModel, RelayPool};
pub use schema::{json_schema, json_schema_text};
pub use seeds::{Seed, SeedError};
pub use texts::Secret;
pub use words::{KeyspaceScope, Protocol, SecureServer, SeedProvider};

use error::{Faults, Sources};
use pool::Pool;
use section::read_section;

/// A configuration that can be used, and what its author should know.
#[derive(Debug, Clone)]
pub struct Loaded {
    /// The configuration.
    pub config: Config,
    /// One line each.
    pub warnings: Vec<String>,
}

/// The texts a configuration is read from. Paths are for messages.
#[derive(Debug, Clone)]
pub struct Texts<'a> {
    /// The file.
    pub file: (&'a Path, String),
    /// Settings laid over it.
    pub overlay: Option<(&'a Path, String)>,
    /// Settings of the command line, used where the others have none.
    pub fallback: Option<String>,
}

impl Config {
    /// Reads and checks a configuration file, and an overlay whose keys win.
    ///
    /// # Errors
    ///
    /// All mistakes of the first stage that has any.
    pub fn load(path: &Path, overlay: Option<&Path>) -> Result<Loaded, ConfigErrors> {
        Config::load_with(path, overlay, None)
    }

    /// The same with settings (YAML without the pool's name) used where the files have none.
    ///
    /// # Errors
    ///
    /// As [`Config::load`].
    pub fn load_with(
        path: &Path,
        overlay: Option<&Path>,
        fallback: Option<String>,
    ) -> Result<Loaded, ConfigErrors> {
        let file = (path, read_file(path)?);
        let overlay = match overlay {
            Some(path) => Some((path, read_file(path)?)),
            None => None,
        };
        let loaded = Config::from_texts(Texts { file, overlay, fallback })?;
        validate::files(&loaded.config, path)?;
        Ok(loaded)
    }

    /// The same from texts.
    ///
    /// # Errors
    ///
    /// As [`Config::load`], but for files the configuration names.
    pub fn from_texts(texts: Texts<'_>) -> Result<Loaded, ConfigErrors> {
        let mut sources = Sources::default();
        let (path, text) = texts.file;
        let (name, mut root) = overlay::read_main(&mut sources, path, text)?;
        if let Some((path, text)) = texts.overlay {
            overlay::apply(&mut sources, path, text, &name, &mut root)?;
        }
        if let Some(text) = texts.fallback {
            overlay::add_absent(&mut sources, text, &mut root)?;
        }
        let mut faults = Faults::default();
        let pool = read_section::<Pool>(&root, &mut faults);
        faults.settle(&sources)?;
        let mut pool = pool.unwrap_or_default();

        let mut faults = Faults::default();
        let dropped = validate::drop_own_seed(&mut pool);
        validate::pool(&pool, &root, &mut faults);
        let entries = pool.bucket_types.as_deref().unwrap_or_default();
        let bucket_types = bucket::complete(entries, root.get("bucket_types"), &mut faults);
        validate::default_bucket_type(&pool, &bucket_types, &root, &mut faults);
        let cluster = pool.cluster.name.clone().unwrap_or_else(|| name.clone());
        let immutable = bucket_types.iter().any(|bucket| bucket.immutable);
        let affinity = affinity::complete(&pool, &cluster, immutable, &root, &mut faults);
        faults.settle(&sources)?;

        let odd_tokens = warnings::odd_tokens(&pool);
        let config = Config::from_pool(&name, pool, bucket_types, affinity);
        let warnings = warnings::all(&config, &root, &sources, odd_tokens, dropped);
        Ok(Loaded { config, warnings })
    }
}

fn read_file(path: &Path) -> Result<String, ConfigErrors> {
    std::fs::read_to_string(path).map_err(|error| ConfigErrors {
        more: 0,
        errors: vec![ConfigError {
            file: path.to_owned(),
            place: None,
            what: format!("cannot be read: {error}"),
            accepted: None,
            hint: None,
        }],
    })
}
