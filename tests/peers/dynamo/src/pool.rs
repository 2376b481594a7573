//! The identities of a pool, as the contract and as the crate have them.

use dynamo_kv_router::identity::{
    CacheSemanticsId, DcId, IdentitySource, IndexerDomainId, PoolId, RoutingScopeId,
};
use dynamo_kv_router::indexer::cuckoo::{CkfConfig, DcCkfState, ProducerIdentity};

use crate::cbi1::About;
use crate::{EXPECTED, proto};

/// An empty producer of the crate.
pub fn empty_state() -> DcCkfState {
    DcCkfState::new(CkfConfig::new(EXPECTED)).expect("memory")
}

/// The crate's identity of a pool on the wire, which must have the crate's format.
pub fn identity(wire: &proto::ProducerIdentity) -> ProducerIdentity {
    let pool = wire.pool_id.as_ref().expect("a pool");
    let domain = pool.indexer_domain.as_ref().expect("a domain");
    let digest = |digest: &Option<proto::DigestIdentity>| -> ([u8; 16], IdentitySource) {
        let digest = digest.as_ref().expect("a digest");
        let source = match digest.source() {
            proto::IdentitySource::Explicit => IdentitySource::Explicit,
            proto::IdentitySource::DefaultDerived => IdentitySource::DefaultDerived,
            proto::IdentitySource::Unspecified => panic!("a source"),
        };
        (digest.digest.as_ref().try_into().expect("16 bytes"), source)
    };
    let (semantics, scope) = (digest(&domain.cache_semantics), digest(&domain.routing_scope));
    let domain = IndexerDomainId::new(
        CacheSemanticsId::new(semantics.0, semantics.1),
        RoutingScopeId::new(scope.0, scope.1),
    );
    let format = empty_state().format();
    let theirs = proto::CkfFormat {
        format_version: u32::from(format.format_version()),
        seed: format.seed(),
        bucket_count: format.bucket_count() as u64,
        fingerprint_bits: u32::from(format.fingerprint_bits()),
        slots_per_bucket: u32::from(format.slots_per_bucket()),
    };
    assert_eq!(wire.ckf_format.as_ref(), Some(&theirs), "the same size gives the same format");
    ProducerIdentity::new(
        PoolId::new(domain, DcId::new(pool.dc_id)),
        wire.producer_incarnation,
        wire.layout_generation,
        format,
    )
}

/// What frames of a pool say of it.
pub fn about(wire: &proto::ProducerIdentity) -> About {
    let format = wire.ckf_format.as_ref().expect("a format");
    About {
        seed: format.seed,
        buckets: format.bucket_count,
        dc: wire.pool_id.as_ref().expect("a pool").dc_id,
    }
}
