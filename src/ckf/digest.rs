//! How identities are derived: the first sixteen bytes of BLAKE3 over length-framed material.
//!
//! A *frame* is a `u32` little-endian length and then the bytes. Defaults are a list; explicit
//! maps replace them completely and enter sorted by key. Block size and hash format always take
//! part in cache semantics and cannot be overridden. Follows the identity rules of NVIDIA's relay
//! (`ai-dynamo/dynamo lib/llm/src/kv_dc_relay/identity.rs`).

use super::hashing::HashFormat;
use super::identity::{
    CacheOwnerId, CacheSemanticsId, DcId, IdentitySource, RoutingScopeId, StableDpSlotId,
};

/// Most entries of an explicit map.
pub const EXPLICIT_ENTRIES_MAX: usize = 32;
/// Longest key of an explicit map, in bytes.
pub const EXPLICIT_KEY_BYTES_MAX: usize = 128;
/// Longest value of an explicit map, in bytes.
pub const EXPLICIT_VALUE_BYTES_MAX: usize = 1024;

/// Why a map of keys and values cannot name an identity.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ExplicitMapError {
    /// No entry, or more than [`EXPLICIT_ENTRIES_MAX`].
    #[error("an identity map needs 1 to {EXPLICIT_ENTRIES_MAX} entries, this one has {0}")]
    EntryCount(usize),
    /// A key of 0 or more than [`EXPLICIT_KEY_BYTES_MAX`] bytes.
    #[error("key {0:?} is not 1 to {EXPLICIT_KEY_BYTES_MAX} bytes long")]
    KeyLength(String),
    /// The value of this key has 0 or more than [`EXPLICIT_VALUE_BYTES_MAX`] bytes.
    #[error("the value of {0:?} is not 1 to {EXPLICIT_VALUE_BYTES_MAX} bytes long")]
    ValueLength(String),
    /// This key appears twice.
    #[error("key {0:?} appears twice")]
    DuplicateKey(String),
}

/// What an identity is derived from: a list of defaults, or a checked explicit map.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Selection {
    /// Default values, in their fixed order.
    Default(Vec<String>),
    /// Entries sorted by key bytes. Build it with [`Selection::explicit`].
    Explicit(Vec<(String, String)>),
}

impl Selection {
    /// A selection of default values.
    pub fn defaults<S: Into<String>>(values: impl IntoIterator<Item = S>) -> Selection {
        Selection::Default(values.into_iter().map(Into::into).collect())
    }

    /// A selection of explicit entries, in any order; checks counts, lengths and duplicates.
    pub fn explicit<K: Into<String>, V: Into<String>>(
        entries: impl IntoIterator<Item = (K, V)>,
    ) -> Result<Selection, ExplicitMapError> {
        let mut sorted: Vec<(String, String)> =
            entries.into_iter().map(|(key, value)| (key.into(), value.into())).collect();
        if sorted.is_empty() || sorted.len() > EXPLICIT_ENTRIES_MAX {
            return Err(ExplicitMapError::EntryCount(sorted.len()));
        }
        for (key, value) in &sorted {
            if key.is_empty() || key.len() > EXPLICIT_KEY_BYTES_MAX {
                return Err(ExplicitMapError::KeyLength(key.clone()));
            }
            if value.is_empty() || value.len() > EXPLICIT_VALUE_BYTES_MAX {
                return Err(ExplicitMapError::ValueLength(key.clone()));
            }
        }
        sorted.sort();
        if let Some(pair) = sorted.windows(2).find(|pair| pair[0].0 == pair[1].0) {
            return Err(ExplicitMapError::DuplicateKey(pair[0].0.clone()));
        }
        Ok(Selection::Explicit(sorted))
    }

    fn source(&self) -> IdentitySource {
        match self {
            Selection::Default(_) => IdentitySource::DefaultDerived,
            Selection::Explicit(_) => IdentitySource::Explicit,
        }
    }

    /// Frame of the tag, then the entries.
    fn material(&self, kind: &str) -> Vec<u8> {
        let variant = match self {
            Selection::Default(_) => "default",
            Selection::Explicit(_) => "explicit",
        };
        let mut out = Vec::new();
        push_frame(&mut out, format!("dynamo/{kind}/{variant}/v1").as_bytes());
        match self {
            Selection::Default(values) => {
                push_u32(&mut out, values.len());
                values.iter().for_each(|value| push_frame(&mut out, value.as_bytes()));
            }
            Selection::Explicit(entries) => {
                push_u32(&mut out, entries.len());
                for (key, value) in entries {
                    push_frame(&mut out, key.as_bytes());
                    push_frame(&mut out, value.as_bytes());
                }
            }
        }
        out
    }
}

/// The identity of a cache's meaning. `block_size` is in tokens.
pub fn cache_semantics(
    selection: &Selection,
    block_size: u32,
    format: HashFormat,
) -> CacheSemanticsId {
    let mut material = selection.material("indexer-cache-semantics");
    material.extend_from_slice(&block_size.to_le_bytes());
    material.extend_from_slice(&format.identity_version().to_le_bytes());
    CacheSemanticsId::new(first16(&material), selection.source())
}

/// The identity of a routing plane.
pub fn routing_scope(selection: &Selection) -> RoutingScopeId {
    RoutingScopeId::new(first16(&selection.material("indexer-routing-scope")), selection.source())
}

/// The identity of a data-parallel slot; only an explicit selection can name one.
pub fn stable_dp_slot(selection: &Selection) -> Option<StableDpSlotId> {
    match selection.source() {
        IdentitySource::DefaultDerived => None,
        IdentitySource::Explicit => {
            let material = selection.material("stable-dp-slot");
            Some(StableDpSlotId::new(first16(&material), IdentitySource::Explicit))
        }
    }
}

/// A datacenter's number from its name. The tag is not framed here, unlike everywhere else.
pub fn dc_id(name: &str) -> DcId {
    let mut material = b"dynamo/indexer-dc/v1".to_vec();
    push_frame(&mut material, name.as_bytes());
    let hash = blake3::hash(&material);
    let mut first = [0; 8];
    first.copy_from_slice(&hash.as_bytes()[..8]);
    DcId::new(u64::from_le_bytes(first))
}

/// Compact name of a worker's rank as an owner of blocks.
pub fn worker_owner_key(worker_id: u64, dp_rank: u32) -> [u8; 16] {
    let mut material = b"dynamo/residency-owner/worker/v1".to_vec();
    material.extend_from_slice(&worker_id.to_be_bytes());
    material.extend_from_slice(&dp_rank.to_be_bytes());
    first16(&material)
}

/// Compact name of a stable cache owner. Sources take part as one byte, counted from 0.
pub fn cache_owner_key(owner: &CacheOwnerId) -> [u8; 16] {
    let source = |source: IdentitySource| match source {
        IdentitySource::DefaultDerived => 0,
        IdentitySource::Explicit => 1,
    };
    let domain = &owner.pool.indexer_domain;
    let mut material = b"dynamo/residency-owner/cache-owner/v1".to_vec();
    material.extend_from_slice(&domain.cache_semantics.digest());
    material.push(source(domain.cache_semantics.source()));
    material.extend_from_slice(&domain.routing_scope.digest());
    material.push(source(domain.routing_scope.source()));
    material.extend_from_slice(&owner.pool.dc_id.get().to_be_bytes());
    material.extend_from_slice(&owner.slot.digest());
    material.push(source(owner.slot.source()));
    first16(&material)
}

fn first16(material: &[u8]) -> [u8; 16] {
    let hash = blake3::hash(material);
    let mut first = [0; 16];
    first.copy_from_slice(&hash.as_bytes()[..16]);
    first
}

fn push_frame(out: &mut Vec<u8>, bytes: &[u8]) {
    push_u32(out, bytes.len());
    out.extend_from_slice(bytes);
}

fn push_u32(out: &mut Vec<u8>, value: usize) {
    debug_assert!(u32::try_from(value).is_ok());
    out.extend_from_slice(&(value as u32).to_le_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ckf::vectors;

    fn hex(bytes: &[u8]) -> String {
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    #[test]
    fn digests_match_the_vectors() {
        let model = Selection::defaults(["meta/llama"]);
        let weights = Selection::explicit([("weights", "revision-a"), ("mapping", "tp2")]).unwrap();
        let shared = Selection::explicit([("authority", "shared")]).unwrap();
        let endpoint = Selection::defaults(["prod", "router", "generate"]);
        let slot = Selection::explicit([("slot", "0")]).unwrap();
        let standard = HashFormat::Standard;
        let ours = [
            cache_semantics(&model, 512, standard).to_string(),
            cache_semantics(&model, 512, HashFormat::Eagle).to_string(),
            cache_semantics(&model, 16, standard).to_string(),
            routing_scope(&endpoint).to_string(),
            cache_semantics(&weights, 512, standard).to_string(),
            routing_scope(&shared).to_string(),
            stable_dp_slot(&slot).unwrap().to_string(),
        ];
        let all = vectors::ckf();
        let rows = vectors::rows(&all["identities"]["digests"]);
        assert_eq!(rows.len(), ours.len());
        for (row, digest) in rows.iter().zip(ours) {
            assert_eq!(digest, vectors::text(&row["digest"]), "{}", row["name"]);
            let material = vectors::bytes(&row["material_hex"]);
            assert_eq!(hex(&first16(&material)), vectors::text(&row["digest"]));
        }
        assert_eq!(stable_dp_slot(&endpoint), None);
    }

    #[test]
    fn datacenter_numbers_match_the_vectors() {
        let all = vectors::ckf();
        for row in vectors::rows(&all["identities"]["dc_ids"]) {
            let id = dc_id(vectors::text(&row["label"]));
            assert_eq!(id.to_string(), vectors::text(&row["dc_id_text"]));
            assert_eq!(id.get().to_string(), vectors::text(&row["dc_id_decimal"]));
        }
    }

    #[test]
    fn owner_keys_match_the_vectors() {
        let all = vectors::ckf();
        let rows = vectors::rows(&all["identities"]["residency_owner_keys"]);
        assert_eq!(hex(&worker_owner_key(1, 0)), vectors::text(&rows[0]["key"]));
        // Text carries no sources; the recorded owner's scope was derived by default.
        let mut owner: CacheOwnerId = vectors::text(&rows[1]["cache_owner"]).parse().unwrap();
        let scope = &mut owner.pool.indexer_domain.routing_scope;
        *scope = RoutingScopeId::new(scope.digest(), IdentitySource::DefaultDerived);
        assert_eq!(hex(&cache_owner_key(&owner)), vectors::text(&rows[1]["key"]));
    }

    #[test]
    fn explicit_maps_are_bounded() {
        let none: [(&str, &str); 0] = [];
        assert_eq!(Selection::explicit(none), Err(ExplicitMapError::EntryCount(0)));
        let many = (0..33).map(|i| (format!("k{i}"), "v"));
        assert_eq!(Selection::explicit(many), Err(ExplicitMapError::EntryCount(33)));
        let key = "k".repeat(EXPLICIT_KEY_BYTES_MAX + 1);
        assert_eq!(
            Selection::explicit([(key.clone(), "v")]),
            Err(ExplicitMapError::KeyLength(key))
        );
        let value = "v".repeat(EXPLICIT_VALUE_BYTES_MAX + 1);
        assert_eq!(
            Selection::explicit([("k", value)]),
            Err(ExplicitMapError::ValueLength("k".into()))
        );
        assert_eq!(
            Selection::explicit([("k", "a"), ("k", "b")]),
            Err(ExplicitMapError::DuplicateKey("k".into()))
        );
        let longest = "v".repeat(EXPLICIT_VALUE_BYTES_MAX);
        assert!(Selection::explicit([("k".repeat(EXPLICIT_KEY_BYTES_MAX), longest)]).is_ok());
    }
}
