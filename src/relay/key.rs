//! Identities of pools and producers: from a message, checked in the contract's order, and back.

use bytes::Bytes;

use super::{Fault, proto};
use crate::ckf::format::{
    BUCKETS_MAX, CkfFormat, FINGERPRINT_BITS, FORMAT_VERSION, SLOTS_PER_BUCKET,
};
use crate::ckf::identity::{
    CacheSemanticsId, DcId, IdentitySource, IndexerDomainId, POOL_IDENTITY_VERSION, PoolId,
    ProducerIdentity, RoutingScopeId,
};

/// One generation of one producer. Equal when every field of the identity is equal, sources of
/// digests among them; endpoint, models, roles and semantics of its pool never take part.
///
/// Built from fields, so that unknown fields of a newer message make no difference.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ProducerKey(ProducerIdentity);

impl ProducerKey {
    /// The identity.
    pub fn identity(&self) -> &ProducerIdentity {
        &self.0
    }

    /// The pool it is a generation of.
    pub fn pool(&self) -> PoolId {
        self.0.pool
    }

    /// The shape of its filter.
    pub fn format(&self) -> &CkfFormat {
        &self.0.format
    }
}

/// Fails for what could not be published.
impl TryFrom<ProducerIdentity> for ProducerKey {
    type Error = Fault;

    fn try_from(identity: ProducerIdentity) -> Result<ProducerKey, Fault> {
        ProducerKey::try_from(&message(&identity))
    }
}

impl TryFrom<&proto::ProducerIdentity> for ProducerKey {
    type Error = Fault;

    fn try_from(message: &proto::ProducerIdentity) -> Result<ProducerKey, Fault> {
        let pool = message.pool_id.as_ref().ok_or(Fault::MissingField("pool_id"))?;
        let pool = pool_id(pool)?;
        if message.layout_generation == 0 {
            return Err(Fault::ZeroLayoutGeneration);
        }
        let format = message.ckf_format.as_ref().ok_or(Fault::MissingField("ckf_format"))?;
        Ok(ProducerKey(ProducerIdentity {
            pool,
            producer_incarnation: message.producer_incarnation,
            layout_generation: message.layout_generation,
            format: ckf_format(format)?,
        }))
    }
}

impl From<&ProducerKey> for proto::ProducerIdentity {
    fn from(key: &ProducerKey) -> proto::ProducerIdentity {
        message(&key.0)
    }
}

/// A pool's identity from its message.
pub fn pool_id(message: &proto::KvPoolId) -> Result<PoolId, Fault> {
    if message.identity_version != POOL_IDENTITY_VERSION {
        return Err(Fault::PoolIdentityVersion(message.identity_version));
    }
    let domain = message.indexer_domain.as_ref().ok_or(Fault::MissingField("indexer_domain"))?;
    let semantics =
        domain.cache_semantics.as_ref().ok_or(Fault::MissingField("cache_semantics"))?;
    let (semantics, source) = digest(semantics)?;
    let cache_semantics = CacheSemanticsId::new(semantics, source);
    let scope = domain.routing_scope.as_ref().ok_or(Fault::MissingField("routing_scope"))?;
    let (scope, source) = digest(scope)?;
    let routing_scope = RoutingScopeId::new(scope, source);
    let indexer_domain = IndexerDomainId { cache_semantics, routing_scope };
    Ok(PoolId { indexer_domain, dc_id: DcId::new(message.dc_id) })
}

/// The message of a pool's identity.
pub fn pool_message(pool: &PoolId) -> proto::KvPoolId {
    let domain = &pool.indexer_domain;
    let digest = |digest: [u8; 16], source: IdentitySource| proto::DigestIdentity {
        digest: Bytes::copy_from_slice(&digest),
        source: source.wire_number(),
    };
    let (semantics, scope) = (domain.cache_semantics, domain.routing_scope);
    proto::KvPoolId {
        identity_version: POOL_IDENTITY_VERSION,
        indexer_domain: Some(proto::IndexerDomainId {
            cache_semantics: Some(digest(semantics.digest(), semantics.source())),
            routing_scope: Some(digest(scope.digest(), scope.source())),
        }),
        dc_id: pool.dc_id.get(),
    }
}

fn message(identity: &ProducerIdentity) -> proto::ProducerIdentity {
    let format = &identity.format;
    proto::ProducerIdentity {
        pool_id: Some(pool_message(&identity.pool)),
        producer_incarnation: identity.producer_incarnation,
        layout_generation: identity.layout_generation,
        ckf_format: Some(proto::CkfFormat {
            format_version: format.format_version.into(),
            seed: format.seed,
            bucket_count: format.bucket_count,
            fingerprint_bits: format.fingerprint_bits.into(),
            slots_per_bucket: format.slots_per_bucket.into(),
        }),
    }
}

/// The length is looked at before the source.
fn digest(message: &proto::DigestIdentity) -> Result<([u8; 16], IdentitySource), Fault> {
    let bytes = <[u8; 16]>::try_from(&message.digest[..])
        .map_err(|_| Fault::DigestLength(message.digest.len()))?;
    let source = IdentitySource::from_wire_number(message.source)
        .ok_or(Fault::IdentitySource(message.source))?;
    Ok((bytes, source))
}

/// Zeroes first, then what is newer than we are, then counts that make no sense.
fn ckf_format(message: &proto::CkfFormat) -> Result<CkfFormat, Fault> {
    let (version, bits) = (message.format_version, message.fingerprint_bits);
    let (slots, buckets) = (message.slots_per_bucket, message.bucket_count);
    let fields = [
        ("version", u64::from(version)),
        ("bucket count", buckets),
        ("fingerprint bits", u64::from(bits)),
        ("slots per bucket", u64::from(slots)),
    ];
    if let Some((name, _)) = fields.iter().find(|(_, value)| *value == 0) {
        return Err(Fault::ZeroFormatField(name));
    }
    let known = (FORMAT_VERSION.into(), FINGERPRINT_BITS.into(), SLOTS_PER_BUCKET.into());
    if (version, bits, slots) != known {
        return Err(Fault::UnsupportedCkfFormat { version, bits, slots });
    }
    if buckets > BUCKETS_MAX {
        return Err(Fault::BucketCountTooLarge(buckets));
    }
    CkfFormat::new(message.seed, buckets).map_err(|_| Fault::UnsupportedBucketCount(buckets))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::relay::vectors;
    use prost::Message;

    #[test]
    fn equality_of_generations_matches_the_vectors() {
        let same = vectors::message::<proto::ProducerIdentity>("producer_identity");
        let key = ProducerKey::try_from(&same).unwrap();
        let rows = vectors::rows("producer_key");
        assert_eq!(rows.len(), 9);
        for row in rows {
            let other = proto::ProducerIdentity::decode(&vectors::bytes(&row["hex"])[..]).unwrap();
            let other = ProducerKey::try_from(&other).unwrap();
            let equal = row["equal_to_producer_identity"].as_bool().unwrap();
            assert_eq!(key == other, equal, "{}", row["changed"]);
        }
        assert_eq!(proto::ProducerIdentity::from(&key), same);
        assert_eq!(ProducerKey::try_from(*key.identity()), Ok(key));
    }

    #[test]
    fn what_we_could_not_publish_is_no_key() {
        let mut identity =
            *ProducerKey::try_from(&vectors::message("producer_identity")).unwrap().identity();
        identity.layout_generation = 0;
        assert_eq!(ProducerKey::try_from(identity), Err(Fault::ZeroLayoutGeneration));
    }
}
