//! `cluster:`: the ring as torc nodes keep it among themselves.

use super::provider::DnsServer;
use super::section::section;
use super::texts::Secret;
use super::words::OnOff;

section! {
    /// `cluster:`: membership between torc nodes.
    pub struct Cluster {
        /// Nodes of another name are never let into the ring. Default: the pool's root key.
        pub name: Option<String> = None,
        /// `on` or `off`. Off, the seed list is final: nobody is learnt and no node is judged
        /// by gossip. Default: on.
        pub(super) gossip: OnOff = OnOff::On,
        /// Time between two rounds of gossip, milliseconds. Default: 500.
        pub gossip_interval_ms: u64 = 500,
        /// How sure the failure detector must be before a node is judged down; 8 means one wrong
        /// verdict in 10^8 heartbeats. Default: 8.
        pub phi_threshold: f64 = 8.0,
        /// Time between two questions to the seed provider, and between two looks at the addresses
        /// of host names, milliseconds. Default: 30000.
        pub seeds_interval_ms: u64 = 30_000,
        /// The DNS server to ask, `ip` or `ip:port`. Default: those of the system; host names are
        /// then looked up as the system does, `/etc/hosts` included.
        pub dns_server: Option<DnsServer> = None,
        /// Declares that no C node is in this ring. Allows negative tokens and finer stamps.
        /// Default: false.
        pub torc_only: bool = false,
        /// Longest time a node whose embedded store began empty stays JOINING while other racks of
        /// its datacenter have older data, milliseconds. Default: 600000.
        pub join_max_ms: u64 = 600_000,
        /// A key that all nodes of the ring share; control messages are authenticated with it
        /// (HMAC-SHA-256). Default: none, peers are trusted.
        pub secret: Option<Secret> = None,
    }
}

impl Cluster {
    /// True when torc nodes gossip.
    pub fn gossips(&self) -> bool {
        self.gossip == OnOff::On
    }
}
