//! The lanes of pools that other nodes publish: written by this node alone, from what it is sent.

use std::collections::BTreeMap;
use std::sync::MutexGuard;

use super::{Domain, OWN_LANE, OtherSize, Part, lock, pool};
use crate::affinity::publication::Delta;
use crate::ckf::bucket::SLOTS;
use crate::ckf::consumer::lane::{AssignError, LaneFault, LaneIngestor, LaneOutcome};
use crate::ckf::consumer::{ClaimError, ConsumerError};
use crate::ckf::format::CkfFormat;
use crate::ckf::identity::{LaneLease, ProducerIdentity};
use crate::ckf::publication::{CkfDelta, CkfSnapshot};

/// Changes nobody passed on, over which they are given up; those who follow begin anew.
const RELAYED_MAX: usize = 4096;

/// The lanes this node writes from what others send.
#[derive(Debug, Default)]
pub(super) struct Inlets {
    lanes: BTreeMap<u8, Inlet>,
    /// Changes that came through a relay and were not passed on yet.
    relayed: BTreeMap<u8, Vec<Delta>>,
    /// Leases given so far; the next one is newer.
    epoch: u64,
}

/// One of them.
#[derive(Debug)]
struct Inlet {
    ingestor: LaneIngestor,
    /// The format of the table it writes to.
    format: CkfFormat,
}

impl Inlet {
    /// Begins anew with a whole filter.
    fn fill(&mut self, snapshot: &CkfSnapshot) -> Result<(), NotInstalled> {
        self.ingestor.assign(snapshot.identity, snapshot.lease)?;
        match self.ingestor.install_snapshot(snapshot) {
            LaneOutcome::LaneDeactivated { fault, .. } => Err(fault.into()),
            LaneOutcome::SnapshotInstalled { .. }
            | LaneOutcome::DeltaApplied { .. }
            | LaneOutcome::DrainAcknowledged { .. }
            | LaneOutcome::AwaitingSnapshot
            | LaneOutcome::IgnoredForeignLease
            | LaneOutcome::IgnoredStaleOrDuplicate { .. } => Ok(()),
        }
    }
}

/// Why a filter could not be installed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotInstalled {
    /// The lane has no pool, or this node publishes it.
    #[error(transparent)]
    Claim(#[from] ClaimError),
    /// There is no memory for its table.
    #[error(transparent)]
    Table(#[from] ConsumerError),
    /// It has a size there is no place for.
    #[error(transparent)]
    Size(#[from] OtherSize),
    /// The filter is not one of this lane.
    #[error(transparent)]
    Assign(#[from] AssignError),
    /// The words do not fit.
    #[error(transparent)]
    Fault(#[from] LaneFault),
}

impl Inlets {
    /// Formats of the lanes.
    fn formats(&self) -> impl Iterator<Item = CkfFormat> + '_ {
        self.lanes.values().map(|inlet| inlet.format)
    }

    /// Formats of the lanes other than `lane`.
    fn others(&self, lane: u8) -> impl Iterator<Item = CkfFormat> + '_ {
        let others = self.lanes.iter().filter(move |(number, _)| **number != lane);
        others.map(|(_, inlet)| inlet.format)
    }

    /// Who writes a lane.
    #[cfg(test)]
    pub(super) fn ingestor(&mut self, lane: u8) -> &mut LaneIngestor {
        &mut self.lanes.get_mut(&lane).unwrap().ingestor
    }

    fn apply(&mut self, lane: u8, delta: &Delta) -> bool {
        let Some(Inlet { ingestor, .. }) = self.lanes.get_mut(&lane) else { return false };
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

    /// The format of what this node publishes; lanes of datacenters that are resized may have
    /// another one.
    pub fn format(&self) -> CkfFormat {
        self.format
    }

    /// Whether filters of this format can be in a lane.
    pub fn admits(&self, lane: u8, format: CkfFormat) -> Result<(), OtherSize> {
        self.tables.check(format, self.inlets().others(lane))
    }

    /// Installs the whole filter of another node's pool. Until it is in, the lane answers from
    /// what it had: from a copy of it, or, when the new one has another size and comes into a
    /// table beside, from where it is.
    pub fn install(
        &self,
        lane: u8,
        identity: ProducerIdentity,
        sequence: u64,
        words: Vec<u64>,
    ) -> Result<(), NotInstalled> {
        let mut inlets = self.inlets();
        let inlets = &mut *inlets;
        let format = identity.format;
        self.tables.check(format, inlets.others(lane))?;
        inlets.epoch += 1;
        let consumer = self.spec.consumer;
        let lease = LaneLease { consumer, lane, assignment_epoch: inlets.epoch };
        let snapshot = CkfSnapshot { identity, lease, sequence, words };
        match inlets.lanes.get_mut(&lane) {
            Some(inlet) if inlet.format == format => {
                self.tables.hold(lane)?;
                let filled = inlet.fill(&snapshot);
                self.tables.let_go(lane);
                filled?;
            }
            Some(_) | None => {
                let (ingestor, table) = self.tables.claim(lane, format)?;
                let mut inlet = Inlet { ingestor, format };
                inlet.fill(&snapshot)?;
                self.tables.show(table);
                // The one before leaves the answers only now.
                inlets.lanes.insert(lane, inlet);
                self.tables.close_unused(inlets.formats());
            }
        }
        inlets.relayed.remove(&lane);
        Ok(())
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

    /// Gives a lane back that another node published.
    pub(super) fn free_lane(&self, lane: u8) {
        let mut inlets = self.inlets();
        inlets.lanes.remove(&lane);
        inlets.relayed.remove(&lane);
        self.tables.close_unused(inlets.formats());
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
        let ingestor = &inlets.lanes.get(&lane)?.ingestor;
        let (identity, _) = ingestor.assignment()?;
        let sequence = ingestor.installed_sequence()?;
        let words = ingestor.words_from(first, count);
        let before = inlets.relayed.remove(&lane).unwrap_or_default();
        Some(Part { identity, before, sequence, words })
    }

    /// What a lane that another node publishes answers from.
    pub fn lane_position(&self, lane: u8) -> Option<(ProducerIdentity, u64)> {
        let inlets = self.inlets();
        let ingestor = &inlets.lanes.get(&lane)?.ingestor;
        Some((ingestor.assignment()?.0, ingestor.installed_sequence()?))
    }

    /// How full the filter of a lane is, from 0 to 1; none while there is none. Above 0.9 blocks
    /// are left out.
    pub fn lane_load(&self, lane: u8) -> Option<f64> {
        if lane == OWN_LANE
            && let Some(load) = self.published_load()
        {
            return Some(load);
        }
        let inlets = self.inlets();
        let Inlet { ingestor, format } = inlets.lanes.get(&lane)?;
        let slots = (format.buckets() * SLOTS) as f64;
        ingestor.installed_sequence().map(|_| ingestor.occupied_slots() as f64 / slots)
    }

    /// Buckets of the filter a lane answers from; none while there is none.
    pub fn lane_buckets(&self, lane: u8) -> Option<u64> {
        match lane == OWN_LANE && self.publication().is_some() {
            true => Some(self.format.bucket_count),
            false => self.lane_position(lane).map(|(identity, _)| identity.format.bucket_count),
        }
    }

    /// Takes a lane that another node published out of answers.
    pub fn drop_lane(&self, lane: u8) {
        self.free_lane(lane);
        if let Some(lane) = self.lanes.get(lane) {
            lane.unheard();
        }
    }

    /// Lets the own datacenter's lane go on answering what it does until its copy is let go,
    /// whoever writes it. Without memory for a copy it leaves the answers for a moment.
    pub(super) fn hold_own_lane(&self) {
        let _inlets = self.inlets();
        if self.tables.hold(OWN_LANE).is_err() {
            self.tables.let_go(OWN_LANE);
        }
    }

    fn inlets(&self) -> MutexGuard<'_, Inlets> {
        lock(&self.inlets)
    }
}
