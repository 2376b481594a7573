//! What a gateway is told: groups, keys, times and limits. Filled from configuration.

use super::tls::TlsRoots;
use crate::document::reserved::Reserved;
use crate::document::topology::{Topology, TopologyError};
use std::fmt;
use std::time::Duration;

/// A credential. Its text is never printed.
#[derive(Clone, PartialEq, Eq)]
pub struct Key(String);

impl Key {
    /// A credential from its text; empty text is no credential.
    pub fn new(text: &str) -> Option<Key> {
        (!text.is_empty()).then(|| Key(text.to_owned()))
    }

    /// The text, for the header of a request to a backend.
    pub(super) fn expose(&self) -> &str {
        &self.0
    }

    /// Whether `given` is this credential, in a time that does not depend on where they differ.
    pub fn matches(&self, given: &str) -> bool {
        let (own, given) = (self.0.as_bytes(), given.as_bytes());
        let differing = own.iter().zip(given).fold(0, |seen, (a, b)| seen | (a ^ b));
        differing == 0 && own.len() == given.len()
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Key(..)")
    }
}

/// One Meilisearch server.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct BackendSettings {
    /// Stable id; owners are computed from it.
    pub id: String,
    /// `http://host:port` or `https://host`, with a path prefix if the server has one.
    pub url: String,
}

/// What a pinned session does before it reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SessionStrategy {
    /// Waits until its write is done in the pinned group.
    Block,
    /// Reads the pinned group at once.
    RoutePin,
}

/// What a read does when no owner of a shard can be reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PartialReads {
    /// Answers from the other shards and names the missing ones in a header.
    Allow,
    /// Answers 503.
    Refuse,
}

/// Everything a gateway needs to know.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Number of shards of every index.
    pub shards: u32,
    /// Copies of a shard inside a group.
    pub replication_factor: usize,
    /// Backends, group after group.
    pub groups: Vec<Vec<BackendSettings>>,
    /// Gateways that serve the same backends share their small state under this name; gateways
    /// of other backends in the same ring have another.
    pub namespace: String,
    /// Where other gateways of the ring reach this one, `http://host:port`. Without it no write
    /// is handed to it.
    pub own_url: Option<String>,
    /// What clients present; without it the gateway is open.
    pub master_key: Option<Key>,
    /// What `/_miroir/` paths ask for; without it they take the master key's rule.
    pub admin_key: Option<Key>,
    /// What backends ask for.
    pub node_master_key: Option<Key>,
    /// Who vouches for backends behind https.
    pub tls_roots: TlsRoots,
    /// Number of this gateway among those of the ring, below `max_gateways`. Without one, the
    /// gateway takes the slot it had, else the lowest that nobody uses.
    pub slot: Option<u32>,
    /// Gateways that may ever give out task numbers in this ring.
    pub max_gateways: u32,
    /// Time a backend has to answer one request.
    pub node_timeout: Duration,
    /// Time the gateway takes for one client request at most.
    pub request_timeout: Duration,
    /// Time after which an unreachable backend's task counts as lost.
    pub task_lost_after: Duration,
    /// What a pinned session does before it reads.
    pub session_strategy: SessionStrategy,
    /// Longest wait of a pinned session.
    pub session_wait: Duration,
    /// What a read does when shards are out of reach.
    pub partial_reads: PartialReads,
    /// Largest request body, before and after decompression.
    pub body_bytes_max: usize,
    /// Longest pause while a request body arrives.
    pub body_idle_max: Duration,
    /// Bytes of request bodies the gateway works on at a time, and as many of backends' answers.
    pub in_flight_bytes_max: usize,
    /// Client connections.
    pub connections_max: usize,
    /// Requests waiting for one backend on one index.
    pub lane_requests_max: usize,
    /// Time between looks at the ring for aliases and migrations.
    pub refresh_interval: Duration,
    /// Reserved fields beside the shard number.
    pub reserved: Reserved,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            shards: 64,
            replication_factor: 1,
            groups: Vec::new(),
            namespace: String::new(),
            own_url: None,
            master_key: None,
            admin_key: None,
            node_master_key: None,
            tls_roots: TlsRoots::default(),
            slot: None,
            max_gateways: 16,
            node_timeout: Duration::from_millis(5_000),
            request_timeout: Duration::from_millis(60_000),
            task_lost_after: Duration::from_millis(60_000),
            session_strategy: SessionStrategy::Block,
            session_wait: Duration::from_millis(5_000),
            partial_reads: PartialReads::Allow,
            body_bytes_max: 100 * 1024 * 1024,
            body_idle_max: Duration::from_secs(30),
            in_flight_bytes_max: 512 * 1024 * 1024,
            connections_max: 1_024,
            lane_requests_max: 1_024,
            refresh_interval: Duration::from_millis(1_000),
            reserved: Reserved::default(),
        }
    }
}

impl Settings {
    /// The topology of the configured groups.
    ///
    /// # Errors
    /// The groups cannot serve, see [`TopologyError`].
    pub fn topology(&self) -> Result<Topology, TopologyError> {
        let ids: Vec<Vec<String>> = self
            .groups
            .iter()
            .map(|group| group.iter().map(|backend| backend.id.clone()).collect())
            .collect();
        Topology::new(self.shards, self.replication_factor, &ids)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_match_only_themselves_and_hide_their_text() {
        let key = Key::new("secret").unwrap();
        assert!(key.matches("secret"));
        for other in ["", "secre", "secrets", "Secret", "xxxxxx"] {
            assert!(!key.matches(other), "{other}");
        }
        assert_eq!(format!("{key:?}"), "Key(..)");
        assert_eq!(Key::new(""), None);
    }
}
