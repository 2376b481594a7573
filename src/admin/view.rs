//! What the admin port needs to know of a node, and what it can ask it to do.

use std::sync::Arc;

use prometheus_client::registry::Registry;

use crate::affinity::mesh::PlaneReport;
use crate::dispatch::Counters;
use crate::dispatch::view::{NodeState, Now, View};
use crate::gossip::{Addr, Slot, Standing};
use crate::ring::{Consistency, PeerId};

/// Names that do not change while a node runs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Identity {
    /// The pool's name.
    pub pool: String,
    /// The store's name.
    pub store: String,
    /// The name of this machine.
    pub source: String,
}

/// Something that must have happened before the node is ready.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Latch {
    /// What: `listeners`, `ring`, `datastore`, `gossip`, `state`.
    pub name: &'static str,
    /// Why not yet; `None` once it has.
    pub waiting_for: Option<String>,
}

/// A change of the ring.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Event {
    /// When, milliseconds since 1970.
    pub at_ms: u64,
    /// Whose place: `datacenter/rack/first token`.
    pub slot: String,
    /// What changed.
    pub what: String,
    /// Why.
    pub cause: String,
}

/// What an operator can do to a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PeerVerb {
    /// Hold it down whatever is heard of it.
    Down,
    /// Judge it by what is heard of it again.
    Up,
    /// Forget what was known about it and connect to it anew.
    Reset,
}

/// What an operator can change while the node runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// The level of reads for new requests.
    ReadConsistency(Consistency),
    /// The level of writes for new requests.
    WriteConsistency(Consistency),
    /// The factor of all deadlines, 1 to 10.
    TimeoutFactor(u64),
    /// The node's own state.
    State(NodeState),
    /// Read repair on or off.
    ReadRepairs(bool),
    /// The state of some peers.
    Peers(Vec<PeerId>, PeerVerb),
    /// Give up the arc for good.
    Leave,
    /// Remove a dead node from the ring.
    Forget(Slot),
    /// Ask an address for the ring it is in.
    Join(Addr),
    /// Begin a new generation of every filter this node publishes.
    RebuildAffinity,
}

/// The node did not do it; nothing changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Refused(pub String);

/// A node as the admin port sees it. Everything is a copy or a snapshot.
pub trait AdminView: Send + Sync + 'static {
    /// Its names.
    fn identity(&self) -> Identity;

    /// Its clocks; the one that never goes back began at its start.
    fn now(&self) -> Now;

    /// The snapshot it plans with.
    fn view(&self) -> Arc<View>;

    /// Its figures, summed over workers.
    fn counters(&self) -> impl Future<Output = Counters> + Send;

    /// What it waits for before it is ready, in the order of the start.
    fn latches(&self) -> Vec<Latch>;

    /// What is wrong beside the ring and makes the node unhealthy, a line each.
    fn alarms(&self) -> Vec<String>;

    /// What was done for the filters, unless affinity is off.
    fn affinity_report(&self) -> Option<PlaneReport>;

    /// What membership knows of every node.
    fn standings(&self) -> impl Future<Output = Vec<Standing>> + Send;

    /// The last changes of the ring, newest last.
    fn events(&self) -> Vec<Event>;

    /// Adds the metrics of planes beside the data path. Prefix `torc` is added.
    fn collect(&self, registry: &mut Registry);

    /// What the relay serves and follows, as it is shown; none without one.
    fn relay(&self) -> Option<serde_json::Value>;

    /// Does what an operator asks and returns when it is in force.
    fn command(&self, command: Command) -> impl Future<Output = Result<(), Refused>> + Send;
}
