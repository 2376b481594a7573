//! What the machine is told when it starts.

use super::detector::DetectorSettings;
use super::identity::{Addr, Slot};
use super::record::Claim;
use crate::proto::dnode::control::ControlSeal;
use crate::proto::dnode::crypto::SecureOption;
use crate::token::DynToken;

/// How membership behaves. Times in milliseconds.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Name and secret of the cluster: messages of any other are refused.
    pub seal: ControlSeal,
    /// Off, the seed list is final: nobody is learnt, nobody is told.
    pub gossip: bool,
    /// Time between two rounds between torc nodes.
    pub gossip_interval_ms: u64,
    /// How sure the failure detector must be; see [`super::Detector`].
    pub phi_threshold: f64,
    /// A node that joins claims to be normal after this time at latest.
    pub join_max_ms: u64,
    /// What concerns nodes of the reference.
    pub c: CSettings,
}

/// Membership towards nodes of the reference.
#[derive(Clone, Copy, Debug)]
pub struct CSettings {
    /// Whether they are sent anything (`enable_gossip`).
    pub send: bool,
    /// Time between two tables sent to each of them (`gos_interval`).
    pub interval_ms: u64,
    /// Whether what they send is used. Nothing in it is authenticated, so a ring with a secret
    /// or without C nodes says no.
    pub accept: bool,
    /// Links that carry encrypted traffic: no gossip goes there, a C node would close them.
    pub secure: SecureOption,
}

/// Default time between two rounds between torc nodes.
pub const GOSSIP_INTERVAL_MS: u64 = 500;

/// Default failure threshold.
pub const PHI_THRESHOLD: f64 = 8.0;

/// The deviation of a peer's signs of life is never taken for smaller.
pub const DEVIATION_MIN_MS: f64 = 500.0;

/// Default of the longest time a node stays JOINING.
pub const JOIN_MAX_MS: u64 = 600_000;

/// Default time between two tables for a C node.
pub const C_INTERVAL_MS: u64 = 30_000;

impl Settings {
    /// The defaults for a cluster.
    pub fn new(seal: ControlSeal) -> Settings {
        Settings {
            seal,
            gossip: true,
            gossip_interval_ms: GOSSIP_INTERVAL_MS,
            phi_threshold: PHI_THRESHOLD,
            join_max_ms: JOIN_MAX_MS,
            c: CSettings {
                send: false,
                interval_ms: C_INTERVAL_MS,
                accept: true,
                secure: SecureOption::None,
            },
        }
    }

    /// How the detectors judge. A peer is heard of at least every second part of a round.
    pub(super) fn detector(&self) -> DetectorSettings {
        let first_interval_ms = self.gossip_interval_ms / 2;
        DetectorSettings::new(self.phi_threshold, DEVIATION_MIN_MS, first_interval_ms)
    }
}

/// This node.
#[derive(Clone, Debug)]
pub struct LocalNode {
    /// Datacenter.
    pub dc: String,
    /// Rack.
    pub rack: String,
    /// All tokens, at least one; the first one names the slot.
    pub tokens: Vec<DynToken>,
    /// Where peers reach it.
    pub addr: Addr,
    /// Its name for operators.
    pub name: String,
    /// The greater of the start time (Unix, milliseconds) and the last generation used plus 1;
    /// never 0.
    pub generation: u64,
    /// `Joining` when the datastore begins empty and others may have data, else `Normal`.
    pub claim: Claim,
    /// Unix time at the start, in milliseconds.
    pub unix_ms: u64,
}

impl LocalNode {
    /// The slot it holds.
    pub fn slot(&self) -> Slot {
        Slot::new(&self.dc, &self.rack, self.tokens[0])
    }
}

/// A peer of a seed list: known to the configuration or a provider, not met yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seed {
    /// Datacenter.
    pub dc: String,
    /// Rack.
    pub rack: String,
    /// All tokens, at least one; the first one names the slot.
    pub tokens: Vec<DynToken>,
    /// Where it should be.
    pub addr: Addr,
    /// Its name for operators.
    pub name: String,
}

impl Seed {
    /// The slot it should hold.
    pub fn slot(&self) -> Slot {
        Slot::new(&self.dc, &self.rack, self.tokens[0])
    }
}
