//! The own datacenter's exact state: kept, published, fed, and handed on.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::holder::{Holder, Part, Producer};
use super::journal::{News, listing};
use super::{Domain, DomainError, DomainSpec, Kind, NotTaken, OWN_LANE, ProducerReport};
use super::{lock, pool, producer_config};
use crate::affinity::member::Change;
use crate::affinity::publication::{Cut, Delta, Publication, Subscriber};
use crate::ckf::bucket::SLOTS;
use crate::ckf::digest;
use crate::ckf::failure::Recovery;
use crate::ckf::format::BUCKETS_MAX;
use crate::ckf::identity::{LaneLease, ProducerIdentity};
use crate::ckf::producer::{Applied, DcCkfState, EventData, RouterEvent, Source};

/// Changes of a member applied together, so that their memory is fetched together.
const CHANGES_PER_EVENT: usize = 64;
/// Events of a member published together.
const EVENTS_PER_BATCH: u32 = 16;
/// Incarnations of one node are at least so far apart; the rest tells nodes apart.
pub(in crate::affinity) const INCARNATION_STEP: u64 = 1 << 12;
/// The only layout of a producer: another size is another domain's format.
const LAYOUT_GENERATION: u64 = 1;

impl Domain {
    /// The same domain with other datacenters. The exact state and what engines told are shared
    /// with this one, so that nothing told to either is lost; publication goes on through the new
    /// one alone, and lanes of datacenters in both begin with what they have here.
    pub fn move_to(&self, spec: DomainSpec) -> Result<Domain, DomainError> {
        let (journal, holder) = (self.journal.clone(), Arc::clone(&self.holder));
        let next = Domain::around(spec, journal, holder, Arc::clone(&self.hears))?;
        let published = self.leave();
        if let Some(identity) = published {
            // Questions come here until the next one is whole and takes its place.
            self.hold_own_lane();
            let begun = next.publish(identity.producer_incarnation + INCARNATION_STEP);
            begun.or_else(|error| self.stay().and(Err(error)))?;
        }
        for (lane, theirs) in self.lanes.iter() {
            let here = next.lanes.iter().find(|(_, ours)| ours.dc == theirs.dc);
            let Some((number, ours)) = here else { continue };
            let copied = match self.lane_part(lane, 0, BUCKETS_MAX as usize) {
                Some(part) => {
                    next.install(number, part.identity, part.sequence, part.words).is_ok()
                }
                None => lane == OWN_LANE && published.is_some(),
            };
            if copied {
                ours.heard_like(theirs);
            }
        }
        Ok(next)
    }

    /// Nothing is published through this domain any more; gives what was.
    fn leave(&self) -> Option<ProducerIdentity> {
        let mut holder = lock(&self.holder);
        self.is_left.store(true, Ordering::Relaxed);
        holder.producer().map(|producer| producer.identity)
    }

    /// Goes on after moves of which nothing came: what is published is published through this
    /// domain again.
    pub fn stay(&self) -> Result<(), DomainError> {
        let mut holder = lock(&self.holder);
        if !self.is_left.swap(false, Ordering::Relaxed) {
            return Ok(());
        }
        let published = holder.producer().map(|producer| producer.identity);
        let again = published.map_or(Ok(()), |identity| {
            self.publish_from(&mut holder, identity.producer_incarnation + INCARNATION_STEP)
        });
        self.tables.let_go(OWN_LANE);
        again
    }

    /// Keeps the own datacenter's exact state on this node, empty at first.
    pub fn hold(&self) -> Result<(), DomainError> {
        let mut holder = lock(&self.holder);
        if holder.state().is_none() {
            *holder = Holder::Warm(Box::new(self.empty_state()?));
        }
        Ok(())
    }

    /// Gives the exact state up: other nodes hold it.
    pub fn release(&self) {
        lock(&self.holder).take_state();
    }

    /// Ends the publication; the state is kept.
    pub fn stand_by(&self) {
        let mut holder = lock(&self.holder);
        if holder.producer().is_some()
            && let Some(state) = holder.take_state()
        {
            *holder = Holder::Warm(Box::new(state));
        }
    }

    /// Forgets what members told. A publication ends; the state is kept, empty.
    pub fn forget(&self) -> Result<(), DomainError> {
        let empty = self.empty_state()?;
        *lock(&self.holder) = Holder::Warm(Box::new(empty));
        self.hears.damaged.store(false, Ordering::Relaxed);
        Ok(())
    }

    /// Makes this node the publisher of the own datacenter's pool, or begins a new generation.
    /// `incarnation` rises with every takeover of the pool. Nothing happens when this domain was
    /// moved: who publishes is about to learn of the one that took its place, and the lane it
    /// would write here is asked by nobody.
    pub fn publish(&self, incarnation: u64) -> Result<(), DomainError> {
        let mut holder = lock(&self.holder);
        if self.is_left.load(Ordering::Relaxed) {
            return Ok(());
        }
        self.hold_own_lane();
        let published = self.publish_from(&mut holder, incarnation);
        self.tables.let_go(OWN_LANE);
        published
    }

    fn publish_from(&self, holder: &mut Holder, incarnation: u64) -> Result<(), DomainError> {
        let state = match holder.take_state() {
            Some(state) => state,
            None => self.empty_state()?,
        };
        // The lane of an earlier life, or of another publisher, must be free before it is claimed.
        self.free_lane(OWN_LANE);
        let identity = ProducerIdentity {
            pool: pool(&self.spec.id, digest::dc_id(&self.spec.datacenters[0])),
            producer_incarnation: incarnation,
            layout_generation: LAYOUT_GENERATION,
            format: self.format,
        };
        let lane = self.tables.claim_own(OWN_LANE)?;
        let (consumer, lane_number) = (self.spec.consumer, OWN_LANE);
        let lease = LaneLease { consumer, lane: lane_number, assignment_epoch: incarnation };
        let producer = Producer::begin(state, identity, lane, lease)?;
        *holder = Holder::Publishing(Box::new(producer));
        Ok(())
    }

    /// Says whose holdings the state contains. While that is not everybody its lane is not
    /// believed.
    pub fn set_hears(&self, complete: bool, members: u32, expected: u32) {
        let hears = &self.hears;
        hears.members.store(members, Ordering::Relaxed);
        hears.expected.store(expected, Ordering::Relaxed);
        hears.complete.store(complete, Ordering::Relaxed);
        if !complete
            && lock(&self.holder).producer().is_some()
            && let Some(lane) = self.lanes.get(OWN_LANE)
        {
            lane.unheard();
        }
    }

    /// Whether this node keeps the exact state.
    pub fn holds_state(&self) -> bool {
        lock(&self.holder).state().is_some()
    }

    /// True once when the state contradicted itself: it must be built anew.
    pub fn is_damaged(&self) -> bool {
        self.hears.damaged.load(Ordering::Relaxed)
    }

    /// Applies what members hold or lost. Not an error when this node holds no state.
    pub fn apply(&self, events: &[RouterEvent], now_ms: u64) -> Result<(), NotTaken> {
        self.apply_to(&mut lock(&self.holder), events, now_ms)
    }

    /// Applies what changed at a member.
    pub fn apply_changes(
        &self,
        source: Source,
        changes: &[Change],
        now_ms: u64,
    ) -> Result<(), NotTaken> {
        let events: Vec<RouterEvent> = events_of(source, changes).collect();
        self.apply(&events, now_ms)
    }

    /// Takes an engine's event: judged against what the engine told this node before.
    pub fn tell(&self, event: &RouterEvent, now_ms: u64) -> Result<Applied, NotTaken> {
        let mut journal = lock(self.journal.as_ref().ok_or(NotTaken::NoEngines)?);
        let (applied, effect) = journal.take(event);
        if let Some(effect) = effect {
            self.apply_to(&mut lock(&self.holder), &[effect], now_ms)?;
        }
        Ok(applied)
    }

    /// What engines told this node since the last call, for other holders.
    pub fn news(&self) -> News {
        self.journal.as_ref().map_or(News::Events(Vec::new()), |journal| lock(journal).news())
    }

    /// Everything engines told this node, for a new holder. What happens next is in
    /// [`Domain::news`], and what is in there now is in here too: told twice is told once.
    pub fn engines_listing(&self) -> Vec<RouterEvent> {
        self.journal.as_ref().map_or_else(Vec::new, |journal| lock(journal).listing())
    }

    /// Makes the state hold exactly `listed` of `sources`.
    pub fn reconcile(
        &self,
        sources: &[Source],
        listed: &[RouterEvent],
        now_ms: u64,
    ) -> Result<(), NotTaken> {
        let mut holder = lock(&self.holder);
        let gone = match holder.state() {
            Some(state) => gone(state, sources, listed),
            None => Vec::new(),
        };
        self.apply_to(&mut holder, &gone, now_ms)?;
        self.apply_to(&mut holder, listed, now_ms)
    }

    /// The publication, when this node publishes.
    pub fn publication(&self) -> Option<Publication> {
        let mut holder = lock(&self.holder);
        let producer = holder.producer()?;
        Some(Publication {
            identity: producer.identity,
            sequence: producer.sequence(),
            complete: self.hears.complete.load(Ordering::Relaxed),
            used: producer.adapter.producer().unique_hashes() as u64,
            capacity: self.spec.expected,
            members: self.hears.members.load(Ordering::Relaxed),
            members_expected: self.hears.expected.load(Ordering::Relaxed),
        })
    }

    /// Follows the publication from a cut on; see [`crate::affinity::publication`].
    pub fn subscribe(&self, subscriber: Box<dyn Subscriber>) -> Result<Cut, NotTaken> {
        let mut holder = lock(&self.holder);
        let producer = holder.producer().ok_or(NotTaken::NotPublisher)?;
        Ok(producer.subscribe(subscriber)?)
    }

    /// What was published since the last call, for other nodes.
    pub fn take_published(&self) -> Vec<Delta> {
        lock(&self.holder).producer().map(Producer::take_pending).unwrap_or_default()
    }

    /// A part of the published filter, and what was published before it.
    pub fn published_part(&self, first: u32, count: usize) -> Option<Part> {
        lock(&self.holder).producer()?.part(first, count).ok()
    }

    /// How full the published filter is, from 0 to 1; none when this node does not publish.
    pub(super) fn published_load(&self) -> Option<f64> {
        let mut holder = lock(&self.holder);
        let state = holder.producer()?.adapter.producer();
        Some(state.occupied_slots() as f64 / (self.format.buckets() * SLOTS) as f64)
    }

    /// Times the filter had no room for a block; none while this node does not hold the state.
    /// Unlike a report it looks at nothing else.
    pub fn omissions(&self) -> Option<u64> {
        lock(&self.holder).state().map(|state| state.counters().capacity_omissions)
    }

    /// Figures of the exact state, when this node keeps it.
    pub fn producer_report(&self) -> Option<ProducerReport> {
        let mut holder = lock(&self.holder);
        let published = holder.producer().map(|p| (p.identity, p.sequence()));
        let lane_recoveries = holder.producer().map_or(0, |producer| producer.recoveries());
        let state = holder.state()?;
        Some(ProducerReport {
            identity: published.map(|(identity, _)| identity),
            sizes: state.sizes(),
            counters: state.counters(),
            sequence: published.map(|(_, sequence)| sequence),
            recoveries: self.hears.recoveries.load(Ordering::Relaxed) + lane_recoveries,
        })
    }

    fn apply_to(
        &self,
        holder: &mut Holder,
        events: &[RouterEvent],
        now_ms: u64,
    ) -> Result<(), NotTaken> {
        let mut failed = false;
        for event in events {
            match holder.apply(event) {
                None => return Ok(()),
                Some(Ok(applied)) => {
                    let recovery = applied.first_error.map(|error| error.disposition().recovery);
                    if recovery == Some(Recovery::Producer) {
                        self.hears.damaged.store(true, Ordering::Relaxed);
                    }
                }
                Some(Err(_)) => failed = true,
            }
        }
        let Some(producer) = holder.producer() else { return Ok(()) };
        let flushed = producer.publish();
        if failed || flushed.is_err() {
            // What could not be published, or applied, is told anew by all members.
            self.hears.recoveries.fetch_add(1, Ordering::Relaxed);
            self.hears.damaged.store(true, Ordering::Relaxed);
            flushed?;
        } else if self.hears.complete.load(Ordering::Relaxed)
            && let Some(lane) = self.lanes.get(OWN_LANE)
        {
            lane.heard(now_ms);
        }
        Ok(())
    }

    fn empty_state(&self) -> Result<DcCkfState, DomainError> {
        let per_batch = match self.spec.kind {
            Kind::Keys(_) => EVENTS_PER_BATCH,
            Kind::Blocks { .. } => 1,
        };
        Ok(DcCkfState::new(producer_config(&self.spec, per_batch))?)
    }
}

/// Removals of what `sources` hold and `listed` does not name.
fn gone(state: &DcCkfState, sources: &[Source], listed: &[RouterEvent]) -> Vec<RouterEvent> {
    let mut kept = fnv::FnvHashSet::default();
    for event in listed {
        match &event.data {
            EventData::Appeared(keys) => {
                kept.extend(keys.iter().map(|key| (event.source, key.0, key.0)));
            }
            EventData::Resolved(blocks) => {
                kept.extend(blocks.iter().map(|(id, hash)| (event.source, id.0, hash.0)));
            }
            EventData::Stored { .. } | EventData::Removed(_) | EventData::Cleared => {}
        }
    }
    let old = state.edges().filter(|(source, id, hash)| {
        sources.contains(source) && !kept.contains(&(*source, id.0, hash.0))
    });
    let mut removals = listing(old.collect());
    for event in &mut removals {
        if let EventData::Resolved(blocks) = &event.data {
            event.data = EventData::Removed(blocks.iter().map(|(id, _)| *id).collect());
        }
    }
    removals
}

/// Changes as events: runs of one kind go together, at most [`CHANGES_PER_EVENT`] of them.
pub(in crate::affinity) fn events_of(
    source: Source,
    changes: &[Change],
) -> impl Iterator<Item = RouterEvent> + '_ {
    let stored = |change: &Change| matches!(change, Change::Stored(_));
    let runs = changes.chunk_by(move |a, b| stored(a) == stored(b));
    runs.flat_map(|run| run.chunks(CHANGES_PER_EVENT)).map(move |run| {
        let hash = |change: &Change| match change {
            Change::Stored(hash) | Change::Removed(hash) => *hash,
        };
        let hashes = run.iter().map(hash);
        match run.first() {
            Some(Change::Removed(_)) => {
                RouterEvent::removed_keys(source, hashes.map(|hash| hash.0))
            }
            Some(Change::Stored(_)) | None => {
                RouterEvent::device(source, EventData::Appeared(hashes.collect()))
            }
        }
    })
}
