//! The consumer's side: what may be believed of a relay's planes, and when.
//!
//! Each plane of a connection is a machine of its own, fed with the messages of its stream. A
//! message is either taken whole or not at all; a [`PlaneFault`] means that the plane's state is
//! void and its stream must be closed. An entry we cannot use while its key can be read is
//! *quarantined*: it is left out, its old state goes, the other entries stay.
//!
//! | observation | reaction |
//! | --- | --- |
//! | wrong envelope, repeated keys, a key that cannot be trusted | the plane is void |
//! | an unknown kind of anything inside an entry, or a malformed entry | that entry alone |
//! | a new complete snapshot | replaces the old view, even if entries are quarantined |
//! | the relay's life changed within one connection | everything of the connection is void |
//! | an older revision, or the same one with other content | the plane is void |
//! | a gap between windows | the load plane alone is void |
//! | an unknown frame kind, bad CBI1, a gap between frames | that replica alone is void |

mod backoff;
mod catalog;
mod filter;
mod load;
mod readiness;
#[cfg(test)]
mod tests;

pub use backoff::Backoff;
pub use catalog::{CatalogPlane, CatalogView, Quarantined};
pub use filter::{FilterFault, FilterPlane, Step};
pub use load::{LoadPlane, LoadView, ServingPlane, ServingView};
pub use readiness::{ReadinessPlane, ReadinessView};

use super::Fault;
use super::envelope::{EnvelopeFault, RelayId, Response, check_response};

/// Why a plane's state is void. Nothing of the message was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum PlaneFault {
    /// Not a response of this contract.
    #[error(transparent)]
    Envelope(#[from] EnvelopeFault),
    /// Another relay, or another life of it: the whole connection is void.
    #[error("the relay's identity changed within one connection")]
    RelayChanged,
    /// A catalog without its snapshot.
    #[error("a catalog without a snapshot")]
    MissingSnapshot,
    /// An entry whose key cannot be trusted.
    #[error("an entry without a usable key: {0}")]
    Key(Fault),
    /// Two entries of one key.
    #[error("two entries of one key")]
    DuplicateKey,
    /// A revision before the last one.
    #[error("revision {now} after {before}")]
    RevisionWentBack {
        /// The last one.
        before: u64,
        /// The one that came.
        now: u64,
    },
    /// The last revision again, with other content.
    #[error("revision {0} came with two contents")]
    RevisionContent(u64),
    /// A window that does not follow the last one.
    #[error("window {now} after {before}")]
    WindowGap {
        /// The last one.
        before: u64,
        /// The one that came.
        now: u64,
    },
    /// A pool or model in a window that cannot be used.
    #[error("a window with an unusable entry: {0}")]
    Window(Fault),
}

impl PlaneFault {
    /// Fixed name for metrics.
    pub fn label(&self) -> &'static str {
        match self {
            PlaneFault::Envelope(fault) => fault.label(),
            PlaneFault::RelayChanged => "relay_changed",
            PlaneFault::MissingSnapshot => "missing_snapshot",
            PlaneFault::Key(_) => "untrusted_key",
            PlaneFault::DuplicateKey => "duplicate_key",
            PlaneFault::RevisionWentBack { .. } => "revision_went_back",
            PlaneFault::RevisionContent(_) => "revision_content",
            PlaneFault::WindowGap { .. } => "window_gap",
            PlaneFault::Window(_) => "unusable_window",
        }
    }

    /// Whether all planes of the connection are void, not this one alone.
    pub fn voids_connection(&self) -> bool {
        matches!(self, PlaneFault::Envelope(_) | PlaneFault::RelayChanged)
    }

    /// Whether trying again with the same contract is pointless.
    pub fn is_final(&self) -> bool {
        let PlaneFault::Envelope(fault) = self else { return false };
        matches!(fault, EnvelopeFault::ContractMarker(_) | EnvelopeFault::ProtocolVersion(_))
    }
}

/// Checks a response's envelope against the relay the connection began with.
fn check_sender(response: &impl Response, relay: RelayId) -> Result<(), PlaneFault> {
    if check_response(response)? != relay {
        return Err(PlaneFault::RelayChanged);
    }
    Ok(())
}

/// The revisions of a plane of complete snapshots.
#[derive(Debug)]
struct Revisions<C> {
    last: Option<(u64, C)>,
}

impl<C: PartialEq> Revisions<C> {
    const fn new() -> Revisions<C> {
        Revisions { last: None }
    }

    /// Whether a snapshot may be taken. False for the last one again, unchanged.
    fn check(&self, revision: u64, content: &C) -> Result<bool, PlaneFault> {
        match &self.last {
            Some((before, _)) if revision < *before => {
                Err(PlaneFault::RevisionWentBack { before: *before, now: revision })
            }
            Some((before, last)) if revision == *before => {
                if last == content {
                    Ok(false)
                } else {
                    Err(PlaneFault::RevisionContent(revision))
                }
            }
            Some(_) | None => Ok(true),
        }
    }

    fn took(&mut self, revision: u64, content: C) {
        self.last = Some((revision, content));
    }
}
