//! Who holds a key or a chain of blocks: the affinity layer above the filters of [`crate::ckf`].
//!
//! The ring stays the authority. What is said here only orders or skips replicas the ring already
//! allows, for reads; a lane that is not ready, stale or unknown means plain Dynomite. So a fault
//! of this layer costs a hop or a local miss and never a wrong value.
//!
//! - [`domain`]: one domain's producer and consumer on this node; the questions to it.
//! - [`lanes`]: which datacenter a lane is, when it was heard, and what its bit is worth.
//! - [`member`]: what this node holds, exactly, as changes for the publisher; [`following`]: how it
//!   knows; [`observed`]: what of it the store does not tell.
//! - [`advice`]: where a read should go, and why; with a memory of [`false_positives`].
//! - [`mesh`]: what nodes tell each other about all this.
//! - [`roles`], [`places`]: which node of a datacenter publishes.
//! - [`publication`]: what it publishes, for subscribers inside its process.
//! - [`commands`]: `TORC.WHERE`, `TORC.PREFIX`, `TORC.PREFIXKEYS`, `TORC.KV`, `TORC.TOKENS`.
//!
//! Time is a parameter: milliseconds on a clock that never goes back.

pub mod advice;
pub mod commands;
pub mod domain;
pub mod false_positives;
pub mod following;
pub mod lanes;
pub mod member;
pub mod mesh;
pub mod observed;
pub mod places;
pub mod publication;
pub mod recent;
pub mod roles;

use std::sync::Arc;

use domain::Domain;

/// The name of the domain of ring keys.
pub const KEYS_DOMAIN: &str = "keys";

/// All domains of a node. Shared by its workers; see [`Domain`] for what changes inside.
#[derive(Debug)]
pub struct Affinity {
    keys: Arc<Domain>,
    blocks: Vec<Arc<Domain>>,
}

impl Affinity {
    /// The domain of ring keys, and those of engines' blocks in the order of the configuration.
    pub fn new(keys: Arc<Domain>, blocks: Vec<Arc<Domain>>) -> Affinity {
        Affinity { keys, blocks }
    }

    /// The domain of ring keys.
    pub fn keys(&self) -> &Arc<Domain> {
        &self.keys
    }

    /// All domains, ring keys first.
    pub fn domains(&self) -> impl Iterator<Item = &Arc<Domain>> {
        std::iter::once(&self.keys).chain(&self.blocks)
    }

    /// A domain by name; without a name the first of engines' blocks, else the ring keys.
    pub fn domain(&self, name: Option<&[u8]>) -> Option<&Arc<Domain>> {
        match name {
            None => Some(self.blocks.first().unwrap_or(&self.keys)),
            Some(name) => self.domains().find(|domain| domain.name().as_bytes() == name),
        }
    }
}
