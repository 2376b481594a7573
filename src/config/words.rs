//! Settings that are one word of a list.

use super::texts::words;

words! {
    /// What clients and the backing store speak: `data_store`.
    pub enum Protocol ("is not a data store") {
        /// Redis, RESP.
        Redis = "0",
        /// memcache, text protocol.
        Memcache = "1",
    }
}

words! {
    /// `datastore`: a store that needs no address.
    pub(super) enum BuiltIn ("is not a built-in store; another one is given by `servers:`") {
        /// The store inside this process.
        Embedded = "embedded",
    }
}

words! {
    /// Which peer links are encrypted: `secure_server_option`.
    pub enum SecureServer ("is not a choice of links to encrypt") {
        /// None.
        Nowhere = "none",
        /// Those to another rack or datacenter.
        BetweenRacks = "rack",
        /// Those to another datacenter.
        BetweenDatacenters = "datacenter",
        /// All.
        Everywhere = "all",
    }
}

words! {
    /// Where peers besides those of the file come from: `dyn_seed_provider`.
    pub enum SeedProvider ("is not a seed provider") {
        /// The file alone.
        Simple = "simple_provider",
        /// An HTTP service.
        Florida = "florida_provider",
        /// DNS records.
        Dns = "dns_provider",
    }
}

words! {
    /// What KEYS, SCAN, DBSIZE and RANDOMKEY cover: `keyspace_scope`.
    pub enum KeyspaceScope ("is not a scope") {
        /// The whole ring.
        Ring = "ring",
        /// The node that is asked.
        Node = "node",
    }
}

words! {
    /// A switch that is written `on` or `off`.
    pub(super) enum OnOff ("is neither on nor off") {
        /// On.
        On = "on",
        /// Off.
        Off = "off",
    }
}
