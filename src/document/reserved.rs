//! Field names that belong to the gateway.

/// The field every stored document carries: its shard number.
pub const SHARD_FIELD: &str = "_miroir_shard";
/// Milliseconds since the epoch of the last write, with anti-entropy on.
pub const UPDATED_FIELD: &str = "_miroir_updated_at";
/// Expiry time, with TTL on.
pub const EXPIRES_FIELD: &str = "_miroir_expires_at";

/// Which names are reserved beside [`SHARD_FIELD`], which always is. Other names that begin with
/// `_miroir_` are ordinary fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Reserved {
    /// Documents carry [`UPDATED_FIELD`].
    pub anti_entropy: bool,
    /// Documents may carry [`EXPIRES_FIELD`].
    pub ttl: bool,
}

impl Reserved {
    /// Whether a client document must not carry this top-level field, and answers must not show
    /// it. The name is compared after unescaping.
    pub fn contains(&self, field: &str) -> bool {
        field == SHARD_FIELD
            || (self.anti_entropy && field == UPDATED_FIELD)
            || (self.ttl && field == EXPIRES_FIELD)
    }

    /// The reserved names that must be filterable in every index.
    pub fn filterable(&self) -> Vec<&'static str> {
        let mut names = vec![SHARD_FIELD];
        if self.ttl {
            names.push(EXPIRES_FIELD);
        }
        names
    }
}
