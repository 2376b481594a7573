//! Why a value of the contract cannot be used.

/// What is wrong with a value. Checks stop at the first one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum Fault {
    /// This message or list is not there.
    #[error("{0} is missing")]
    MissingField(&'static str),
    /// Not 1; 0 is malformed, anything else is newer than we are.
    #[error("pool identity version {0} is not 1")]
    PoolIdentityVersion(u32),
    /// Not sixteen bytes.
    #[error("a digest of {0} bytes instead of 16")]
    DigestLength(usize),
    /// Neither default-derived nor explicit; 0 is malformed.
    #[error("identity source {0}")]
    IdentitySource(i32),
    /// The layout generation is 0.
    #[error("layout generation 0")]
    ZeroLayoutGeneration,
    /// A field of the filter's format is 0.
    #[error("the filter format's {0} is 0")]
    ZeroFormatField(&'static str),
    /// A filter format other than version 1, 16 bits, 4 slots.
    #[error("filter format version {version} with {bits} bits and {slots} slots")]
    UnsupportedCkfFormat {
        /// Its version.
        version: u32,
        /// Bits of a fingerprint.
        bits: u32,
        /// Slots of a bucket.
        slots: u32,
    },
    /// More buckets than any format we know.
    #[error("{0} buckets are too many")]
    BucketCountTooLarge(u64),
    /// Not a power of two, or 1.
    #[error("{0} buckets are no power of two above 1")]
    UnsupportedBucketCount(u64),
    /// Empty, or with white space around it.
    #[error("{0} is empty or surrounded by white space")]
    InvalidText(&'static str),
    /// Blocks of no token.
    #[error("a block size of 0")]
    ZeroQueryBlockSize,
    /// Not a hash format we know; 0 is malformed.
    #[error("query hash format {0}")]
    QueryHashFormat(i32),
    /// A target that is neither a base model nor an adapter.
    #[error("an unknown kind of model target")]
    UnsupportedModelTarget,
    /// An alias given twice.
    #[error("an alias is given twice")]
    DuplicateAlias,
    /// No role at all.
    #[error("no worker role")]
    MissingWorkerRoles,
    /// Not a role we know; 0 is malformed.
    #[error("worker role {0}")]
    WorkerRole(i32),
    /// A role given twice.
    #[error("a worker role is given twice")]
    DuplicateWorkerRole,
    /// Not a state we know.
    #[error("readiness state {0}")]
    ReadinessState(i32),
    /// An entry without endpoints.
    #[error("a readiness entry without members")]
    MissingTopologyMembers,
    /// A member of another namespace than its entry's.
    #[error("a member of another namespace than its entry's")]
    TopologyNamespaceMismatch,
    /// The same endpoint twice.
    #[error("a member is given twice")]
    DuplicateTopologyMember,
    /// Only prefill and decode can be duplicated.
    #[error("a duplicated role other than prefill and decode")]
    UnsupportedDuplicateEndpointRole,
    /// The same adapter twice.
    #[error("an adapter is given twice")]
    DuplicateAdapter,
    /// Not a status we know; 0 is malformed.
    #[error("data status {0}")]
    DataStatus(i32),
    /// A gauge that should be there and is not, or the other way round.
    #[error("{0} contradicts the view's status")]
    GaugePresence(&'static str),
    /// The same pool twice among those that serve a model.
    #[error("a serving pool is given twice")]
    DuplicateServingPool,
    /// Inside one pool: a model given twice, or a name two models claim.
    #[error("{0} within one pool")]
    AmbiguousName(&'static str),
}

impl Fault {
    /// True when the value is of a kind newer than we know; false when it is wrong in any version.
    pub fn is_unsupported(&self) -> bool {
        match *self {
            Fault::PoolIdentityVersion(version) => version != 0,
            Fault::IdentitySource(number)
            | Fault::QueryHashFormat(number)
            | Fault::WorkerRole(number)
            | Fault::DataStatus(number) => number != 0,
            Fault::ReadinessState(_)
            | Fault::UnsupportedCkfFormat { .. }
            | Fault::BucketCountTooLarge(_)
            | Fault::UnsupportedModelTarget => true,
            Fault::MissingField(_)
            | Fault::DigestLength(_)
            | Fault::ZeroLayoutGeneration
            | Fault::ZeroFormatField(_)
            | Fault::UnsupportedBucketCount(_)
            | Fault::InvalidText(_)
            | Fault::ZeroQueryBlockSize
            | Fault::DuplicateAlias
            | Fault::MissingWorkerRoles
            | Fault::DuplicateWorkerRole
            | Fault::MissingTopologyMembers
            | Fault::TopologyNamespaceMismatch
            | Fault::DuplicateTopologyMember
            | Fault::UnsupportedDuplicateEndpointRole
            | Fault::DuplicateAdapter
            | Fault::GaugePresence(_)
            | Fault::DuplicateServingPool
            | Fault::AmbiguousName(_) => false,
        }
    }

    /// Fixed name for metrics.
    pub fn label(&self) -> &'static str {
        match self {
            Fault::MissingField(_) => "missing_field",
            Fault::PoolIdentityVersion(_) => "pool_identity_version",
            Fault::DigestLength(_) => "digest_length",
            Fault::IdentitySource(_) => "identity_source",
            Fault::ZeroLayoutGeneration => "zero_layout_generation",
            Fault::ZeroFormatField(_) => "zero_format_field",
            Fault::UnsupportedCkfFormat { .. } => "unsupported_ckf_format",
            Fault::BucketCountTooLarge(_) => "bucket_count_too_large",
            Fault::UnsupportedBucketCount(_) => "unsupported_bucket_count",
            Fault::InvalidText(_) => "invalid_text",
            Fault::ZeroQueryBlockSize => "zero_query_block_size",
            Fault::QueryHashFormat(_) => "query_hash_format",
            Fault::UnsupportedModelTarget => "unsupported_model_target",
            Fault::DuplicateAlias => "duplicate_alias",
            Fault::MissingWorkerRoles => "missing_worker_roles",
            Fault::WorkerRole(_) => "worker_role",
            Fault::DuplicateWorkerRole => "duplicate_worker_role",
            Fault::ReadinessState(_) => "readiness_state",
            Fault::MissingTopologyMembers => "missing_topology_members",
            Fault::TopologyNamespaceMismatch => "topology_namespace_mismatch",
            Fault::DuplicateTopologyMember => "duplicate_topology_member",
            Fault::UnsupportedDuplicateEndpointRole => "unsupported_duplicate_endpoint_role",
            Fault::DuplicateAdapter => "duplicate_adapter",
            Fault::DataStatus(_) => "data_status",
            Fault::GaugePresence(_) => "gauge_presence",
            Fault::DuplicateServingPool => "duplicate_serving_pool",
            Fault::AmbiguousName(_) => "ambiguous_name",
        }
    }
}
