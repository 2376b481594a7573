//! Names of domains, pools, producers and leases.
//!
//! Every identity compares its *source* as well as its digest: the same sixteen bytes derived by
//! default and given explicitly are two identities. Text forms are strict (exact width, lower-case
//! hexadecimal) and carry no source, so parsed text always is [`IdentitySource::Explicit`].

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::format::CkfFormat;

/// The version of [`PoolId`] on the wire.
pub const POOL_IDENTITY_VERSION: u32 = 1;

/// Why text is not an identity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParseIdentityError {
    /// A part has the wrong width or a character other than `0-9a-f`.
    #[error("expected lower-case hexadecimal digits of exact width")]
    InvalidHex,
    /// Not `<32 hex>:<32 hex>`.
    #[error("expected <cache semantics>:<routing scope>")]
    InvalidIndexerDomain,
    /// Not `<domain>/<dc>`.
    #[error("expected <indexer domain>/<dc id>")]
    InvalidPool,
    /// Not `<pool>/<32 hex>`.
    #[error("expected <pool>/<dp slot>")]
    InvalidCacheOwner,
}

/// Where a digest came from.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Default, Serialize, Deserialize,
)]
#[serde(rename_all = "snake_case")]
pub enum IdentitySource {
    /// Derived from defaults such as a model path or an endpoint name.
    DefaultDerived,
    /// Given explicitly as a map of keys and values.
    #[default]
    Explicit,
}

impl IdentitySource {
    /// The protobuf number (0 is unspecified and never valid).
    pub fn wire_number(self) -> i32 {
        match self {
            IdentitySource::DefaultDerived => 1,
            IdentitySource::Explicit => 2,
        }
    }

    /// The source of a protobuf number.
    pub fn from_wire_number(number: i32) -> Option<IdentitySource> {
        match number {
            1 => Some(IdentitySource::DefaultDerived),
            2 => Some(IdentitySource::Explicit),
            _ => None,
        }
    }
}

/// Declares a sixteen-byte digest with its source as a type of its own.
macro_rules! digest_identity {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(
            Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize,
        )]
        pub struct $name {
            digest: [u8; 16],
            source: IdentitySource,
        }

        impl $name {
            /// An identity from its parts.
            pub const fn new(digest: [u8; 16], source: IdentitySource) -> $name {
                $name { digest, source }
            }

            /// The sixteen bytes.
            pub const fn digest(&self) -> [u8; 16] {
                self.digest
            }

            /// Where the digest came from.
            pub const fn source(&self) -> IdentitySource {
                self.source
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.digest.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
            }
        }

        impl FromStr for $name {
            type Err = ParseIdentityError;

            fn from_str(text: &str) -> Result<$name, ParseIdentityError> {
                let value = parse_hex(text, 32)?;
                Ok($name::new(value.to_be_bytes(), IdentitySource::Explicit))
            }
        }
    };
}

digest_identity! {
    /// What makes two caches hold interchangeable blocks: model, block size, hash format.
    CacheSemanticsId
}
digest_identity! {
    /// Which routing plane a pool belongs to.
    RoutingScopeId
}
digest_identity! {
    /// A data-parallel slot that keeps its name over restarts.
    StableDpSlotId
}

/// The set of pools whose filters may be compared: equal semantics and equal scope.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct IndexerDomainId {
    /// What the hashes mean.
    pub cache_semantics: CacheSemanticsId,
    /// Who may route by them.
    pub routing_scope: RoutingScopeId,
}

impl fmt::Display for IndexerDomainId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.cache_semantics, self.routing_scope)
    }
}

impl FromStr for IndexerDomainId {
    type Err = ParseIdentityError;

    fn from_str(text: &str) -> Result<IndexerDomainId, ParseIdentityError> {
        let (semantics, scope) =
            text.split_once(':').ok_or(ParseIdentityError::InvalidIndexerDomain)?;
        if scope.contains(':') {
            return Err(ParseIdentityError::InvalidIndexerDomain);
        }
        Ok(IndexerDomainId { cache_semantics: semantics.parse()?, routing_scope: scope.parse()? })
    }
}

/// A datacenter. Stable over restarts, meaningful only inside a [`PoolId`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct DcId(u64);

impl DcId {
    /// A datacenter from its number.
    pub const fn new(id: u64) -> DcId {
        DcId(id)
    }

    /// The number.
    pub const fn get(self) -> u64 {
        self.0
    }
}

impl fmt::Display for DcId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

impl FromStr for DcId {
    type Err = ParseIdentityError;

    fn from_str(text: &str) -> Result<DcId, ParseIdentityError> {
        Ok(DcId(parse_hex(text, 16)? as u64))
    }
}

/// All blocks of one domain that one datacenter holds: what one filter describes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct PoolId {
    /// The domain.
    pub indexer_domain: IndexerDomainId,
    /// The datacenter.
    pub dc_id: DcId,
}

impl fmt::Display for PoolId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.indexer_domain, self.dc_id)
    }
}

impl FromStr for PoolId {
    type Err = ParseIdentityError;

    fn from_str(text: &str) -> Result<PoolId, ParseIdentityError> {
        let (domain, dc) = text.split_once('/').ok_or(ParseIdentityError::InvalidPool)?;
        if dc.contains('/') {
            return Err(ParseIdentityError::InvalidPool);
        }
        Ok(PoolId { indexer_domain: domain.parse()?, dc_id: dc.parse()? })
    }
}

/// A stable owner of cached blocks inside a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct CacheOwnerId {
    /// The pool.
    pub pool: PoolId,
    /// The slot in it.
    pub slot: StableDpSlotId,
}

impl fmt::Display for CacheOwnerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.pool, self.slot)
    }
}

impl FromStr for CacheOwnerId {
    type Err = ParseIdentityError;

    fn from_str(text: &str) -> Result<CacheOwnerId, ParseIdentityError> {
        let (pool, slot) = text.rsplit_once('/').ok_or(ParseIdentityError::InvalidCacheOwner)?;
        Ok(CacheOwnerId { pool: pool.parse()?, slot: slot.parse()? })
    }
}

/// One life of one producer. Any difference means a new snapshot is needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ProducerIdentity {
    /// The pool it describes.
    pub pool: PoolId,
    /// Changes when the producer starts anew or moves. Never 0 on the wire.
    pub producer_incarnation: u64,
    /// Changes when the filter is rebuilt under the same producer. Never 0 on the wire.
    pub layout_generation: u64,
    /// The shape of its filter.
    pub format: CkfFormat,
}

/// One consumer process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ConsumerInstanceId(pub u64);

/// A consumer's claim on one producer's stream, for one of its lanes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct LaneLease {
    /// The consumer.
    pub consumer: ConsumerInstanceId,
    /// Its lane, 0 to 15.
    pub lane: u8,
    /// Rises with every assignment of that lane; older leases are ignored.
    pub assignment_epoch: u64,
}

/// Parses exactly `width` lower-case hexadecimal digits.
fn parse_hex(text: &str, width: usize) -> Result<u128, ParseIdentityError> {
    let digit = |b: u8| b.is_ascii_digit() || (b'a'..=b'f').contains(&b);
    if text.len() != width || !text.bytes().all(digit) {
        return Err(ParseIdentityError::InvalidHex);
    }
    u128::from_str_radix(text, 16).map_err(|_| ParseIdentityError::InvalidHex)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ckf::vectors;

    #[test]
    fn text_forms_and_strict_parsing_match_the_vectors() {
        let all = vectors::ckf();
        let identities = &all["identities"];
        let forms = &identities["text_forms"];
        let pool: PoolId = vectors::text(&forms["pool"]).parse().unwrap();
        assert_eq!(pool.to_string(), vectors::text(&forms["pool"]));
        assert_eq!(pool.indexer_domain.to_string(), vectors::text(&forms["domain"]));
        let owner: CacheOwnerId = vectors::text(&forms["cache_owner"]).parse().unwrap();
        assert_eq!(owner.to_string(), vectors::text(&forms["cache_owner"]));
        assert_eq!(owner.slot.source(), IdentitySource::Explicit);

        for row in vectors::rows(&identities["pool_parse"]) {
            let expected = match vectors::text(&row["result"]) {
                "ok" => Ok(()),
                "InvalidHex" => Err(ParseIdentityError::InvalidHex),
                "InvalidIndexerDomain" => Err(ParseIdentityError::InvalidIndexerDomain),
                "InvalidPool" => Err(ParseIdentityError::InvalidPool),
                other => panic!("unknown result {other}"),
            };
            let text = vectors::text(&row["text"]);
            assert_eq!(text.parse::<PoolId>().map(|_| ()), expected, "{text}");
        }
    }

    #[test]
    fn json_form_matches_the_vector() {
        let all = vectors::ckf();
        let json = &all["identities"]["json_form_pool"];
        let pool: PoolId = serde_json::from_value(json.clone()).unwrap();
        assert_eq!(pool.dc_id, DcId::new(7));
        assert_eq!(pool.indexer_domain.routing_scope.source(), IdentitySource::DefaultDerived);
        assert_eq!(&serde_json::to_value(pool).unwrap(), json);
    }

    #[test]
    fn the_source_takes_part_in_equality() {
        let explicit = CacheSemanticsId::new([1; 16], IdentitySource::Explicit);
        let derived = CacheSemanticsId::new([1; 16], IdentitySource::DefaultDerived);
        assert_ne!(explicit, derived);
        assert_eq!(explicit.to_string(), derived.to_string());
        for source in [IdentitySource::Explicit, IdentitySource::DefaultDerived] {
            assert_eq!(IdentitySource::from_wire_number(source.wire_number()), Some(source));
        }
        assert_eq!(IdentitySource::from_wire_number(0), None);
    }
}
