//! The lanes of pools that other nodes publish: written by this node alone, from what it is sent.

use std::collections::BTreeMap;
use std::sync::{MutexGuard, PoisonError};

use super::{Domain, OWN_LANE, Part, pool};
use crate::affinity::publication::Delta;
use crate::ckf::bucket::SLOTS;
use crate::ckf::consumer::ClaimError;
use crate::ckf::consumer::lane::{AssignError, LaneFault, LaneIngestor, LaneOutcome};
use crate::ckf::format::CkfFormat;
use crate::ckf::identity::{LaneLease, ProducerIdentity};
use crate::ckf::publication::{CkfDelta, CkfSnapshot};

/// Changes nobody passed on, over which they are given up; those who follow begin anew.
const RELAYED_MAX: usize = 4096;

/// The lanes this node writes from what others send.
#[derive(Debug, Default)]
pub(super) struct Inlets {
    lanes: BTreeMap<u8, LaneIngestor>,
    /// Changes that came through a relay and were not passed on yet.
    relayed: BTreeMap<u8, Vec<Delta>>,
    /// Leases given so far; the next one is newer.
    epoch: u64,
}

/// Why a filter could not be installed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotInstalled {
    /// The lane has no pool, or this node publishes it.
    #[error(transparent)]
    Claim(#[from] ClaimError),
    /// The filter does not fit this node's table.
    #[error(transparent)]
    Assign(#[from] AssignError),
    /// The words do not fit.
    #[error(transparent)]
    Fault(#[from] LaneFault),
}

impl Inlets {
    /// Gives a lane back; it leaves the answers.
    pub(super) fn drop_lane(&mut self, lane: u8) {
        self.lanes.remove(&lane);
        self.relayed.remove(&lane);
    }

    fn apply(&mut self, lane: u8, delta: &Delta) -> bool {
        let Some(ingestor) = self.lanes.get_mut(&lane) else { return false };
        let Some((identity, lease)) = ingestor.assignment() else { return false };
        let (base, sequence) = (delta.base, delta.sequence);
        let images = delta.images.to_vec();
        match ingestor.apply_delta(&CkfDelta { identity, lease, base, sequence, images }) {
            LaneOutcome::DeltaApplied { .. } | LaneOutcome::IgnoredStaleOrDuplicate { .. } => true,
            LaneOutcome::IgnoredForeignLease
            | LaneOutcome::AwaitingSnapshot
            | LaneOutcome::SnapshotInstalled { .. }
            | LaneOutcome::DrainAcknowledged { .. }
            | LaneOutcome::LaneDeactivated { .. } => false,
        }
    }
}

impl Domain {
    /// The identity of a filter of lane `lane`, as its publisher named it.
    pub fn identity_of(
        &self,
        lane: u8,
        incarnation: u64,
        generation: u64,
        format: CkfFormat,
    ) -> Option<ProducerIdentity> {
        let dc = self.spec.datacenters.get(usize::from(lane))?;
        Some(ProducerIdentity {
            pool: pool(&self.spec.id, super::dc_id_of(dc)),
            producer_incarnation: incarnation,
            layout_generation: generation,
            format,
        })
    }

    /// The format of all its lanes.
    pub fn format(&self) -> CkfFormat {
        self.format
    }

    /// Installs the whole filter of another node's pool. Until it is in, the lane answers from
    /// what it had.
    pub fn install(
        &self,
        lane: u8,
        identity: ProducerIdentity,
        sequence: u64,
        words: Vec<u64>,
    ) -> Result<(), NotInstalled> {
        let mut inlets = self.inlets();
        let inlets = &mut *inlets;
        if let std::collections::btree_map::Entry::Vacant(place) = inlets.lanes.entry(lane) {
            place.insert(self.indexer.claim_lane(lane)?);
        }
        let Some(ingestor) = inlets.lanes.get_mut(&lane) else {
            return Err(ClaimError::NoSuchLane(lane).into());
        };
        inlets.relayed.remove(&lane);
        inlets.epoch += 1;
        let consumer = self.spec.consumer;
        let lease = LaneLease { consumer, lane, assignment_epoch: inlets.epoch };
        ingestor.assign(identity, lease)?;
        match ingestor.install_snapshot(&CkfSnapshot { identity, lease, sequence, words }) {
            LaneOutcome::LaneDeactivated { fault, .. } => Err(fault.into()),
            _ => Ok(()),
        }
    }

    /// Applies a change to a lane that another node publishes. False when the lane is not at the
    /// change's base any more: it needs the whole filter.
    pub fn apply_delta(&self, lane: u8, delta: &Delta) -> bool {
        self.inlets().apply(lane, delta)
    }

    /// The same for a change that came through a relay: nodes that follow this one are to be told
    /// of it.
    pub fn apply_relayed(&self, lane: u8, delta: Delta) -> bool {
        let mut inlets = self.inlets();
        let applied = inlets.apply(lane, &delta);
        if applied {
            let relayed = inlets.relayed.entry(lane).or_default();
            relayed.push(delta);
            if relayed.len() > RELAYED_MAX {
                relayed.clear();
            }
        }
        applied
    }

    /// What came through relays since the last call, by lane.
    pub fn take_relayed(&self) -> BTreeMap<u8, Vec<Delta>> {
        std::mem::take(&mut self.inlets().relayed)
    }

    /// Words of a lane that another node publishes, from `first` on, and what came through a
    /// relay before them.
    pub fn lane_part(&self, lane: u8, first: u32, count: usize) -> Option<Part> {
        let mut inlets = self.inlets();
        let inlets = &mut *inlets;
        let ingestor = inlets.lanes.get(&lane)?;
        let (identity, _) = ingestor.assignment()?;
        let sequence = ingestor.installed_sequence()?;
        let words = ingestor.words_from(first, count);
        let before = inlets.relayed.remove(&lane).unwrap_or_default();
        Some(Part { identity, before, sequence, words })
    }

    /// What a lane that another node publishes answers from.
    pub fn lane_position(&self, lane: u8) -> Option<(ProducerIdentity, u64)> {
        let inlets = self.inlets();
        let ingestor = inlets.lanes.get(&lane)?;
        Some((ingestor.assignment()?.0, ingestor.installed_sequence()?))
    }

    /// How full the filter of a lane is, from 0 to 1; none while there is none. Above 0.9 blocks
    /// are left out.
    pub fn lane_load(&self, lane: u8) -> Option<f64> {
        let slots = (self.format.buckets() * SLOTS) as f64;
        if lane == OWN_LANE
            && let Some(load) = self.published_load()
        {
            return Some(load);
        }
        let inlets = self.inlets();
        let ingestor = inlets.lanes.get(&lane)?;
        ingestor.installed_sequence().map(|_| ingestor.occupied_slots() as f64 / slots)
    }

    /// Takes a lane that another node published out of answers.
    pub fn drop_lane(&self, lane: u8) {
        self.inlets().drop_lane(lane);
        if let Some(lane) = self.lanes.get(lane) {
            lane.unheard();
        }
    }

    fn inlets(&self) -> MutexGuard<'_, Inlets> {
        self.inlets.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
