//! One domain on one node: its post, its feeds, its lanes and who follows them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use xxhash_rust::xxh3::xxh3_64;

use super::inlet::{Inlet, PART_WORDS, PARTS_AT_ONCE};
use super::member::{Feeds, OwnHoldings};
use super::message::{AbroadMsg, ChangeMsg, Feed, Filter, FilterKind};
use super::{MeshCounters, MeshTime};
use crate::affinity::domain::{Domain, Duties, INCARNATION_STEP, Kind, OWN_LANE, Part, dc_id_of};
use crate::affinity::lanes::LaneNote;
use crate::affinity::places::{Places, Posts};
use crate::affinity::publication::Delta;
use crate::ckf::identity::ProducerIdentity;
use crate::ckf::producer::RouterEvent;

/// Followers get a sign of life so often, milliseconds.
const BEAT_MS: u64 = 1_000;
/// A follower that does not ask again is forgotten after this long, milliseconds.
const FOLLOWER_MS: u64 = 10_000;
/// Filters fetched at a time by one node.
const FETCHES_MAX: usize = 2;
/// Images of the changes of one message, beyond which another one is begun.
const CHANGES_IMAGES: usize = 16 * 1024;

/// A message and the slots it is for.
pub(super) type Addressed = (BTreeSet<u64>, Filter);

/// One domain.
#[derive(Debug)]
pub(super) struct Pools {
    pub(super) domain: Arc<Domain>,
    /// Its name on the wire.
    pub(super) key: u64,
    pub(super) feeds: Feeds,
    posts: Option<Posts>,
    pub(super) inlets: Vec<Inlet>,
    lanes: Vec<Followed>,
    /// Nodes of the own datacenter that have to be heard of.
    members: BTreeSet<u64>,
    /// Whether they are all that hold something.
    strangers: bool,
    /// Lanes of datacenters that are not of this ring.
    abroad: Vec<u8>,
    publishes: bool,
    incarnation: u64,
    /// Tells this life of the node from others of it, and from other nodes.
    pub(super) life: u64,
    beat_at_ms: u64,
    complete: bool,
}

/// Who follows a lane here.
#[derive(Debug, Default)]
struct Followed {
    dc: u64,
    /// Until when, by slot.
    followers: BTreeMap<u64, u64>,
}

impl Pools {
    /// A domain; `before` is the same one with other datacenters, whose feeds go on.
    pub(super) fn new(domain: Arc<Domain>, before: Option<Pools>) -> Pools {
        let lane = |dc: &String| Followed { dc: dc_id_of(dc).get(), ..Followed::default() };
        let lanes: Vec<Followed> = domain.spec().datacenters.iter().map(lane).collect();
        let mut inlets: Vec<Inlet> = (0..lanes.len()).map(|lane| Inlet::new(lane as u8)).collect();
        let (mut feeds, mut incarnation) = (Feeds::default(), 0);
        if let Some(before) = before {
            for (old, inlet) in before.inlets.iter().zip(&mut inlets).take(1) {
                inlet.note_seen(old.seen());
            }
            (feeds, incarnation) = (before.feeds, before.incarnation);
        }
        let key = xxh3_64(format!("{}/{}", domain.spec().id, domain.name()).as_bytes());
        let published = domain.publication().map(|p| p.identity.producer_incarnation);
        let publishes = published.is_some();
        incarnation = incarnation.max(published.unwrap_or(0));
        let posts = None;
        let (members, strangers, abroad) = (BTreeSet::new(), false, Vec::new());
        let (beat_at_ms, complete) = (0, false);
        Pools {
            domain,
            key,
            feeds,
            posts,
            inlets,
            lanes,
            members,
            strangers,
            abroad,
            publishes,
            incarnation,
            life: 0,
            beat_at_ms,
            complete,
        }
    }

    /// True for the domain of ring keys.
    pub(super) fn is_of_keys(&self) -> bool {
        matches!(self.domain.spec().kind, Kind::Keys(_))
    }

    /// True when this node has a post that keeps the exact state.
    pub(super) fn keeps_state(&self, own: u64) -> bool {
        self.posts.is_some_and(|posts| posts.holds(own)) && self.domain.holds_state()
    }

    /// Looks up who does what in the ring as it is.
    pub(super) fn name_posts(&mut self, places: &Places, pinned: Option<&str>) {
        let spec = self.domain.spec();
        let own_dc = spec.datacenters[0].as_str();
        let own = places.local().map_or(0, |place| place.slot);
        self.posts = places.posts(&spec.id, own_dc, pinned);
        self.members = places.members(own_dc).map(|place| place.slot).collect();
        self.strangers = places.has_strangers(own_dc);
        let abroad = |(_, dc): &(usize, &String)| places.count(dc) == 0;
        let abroad = spec.datacenters.iter().enumerate().skip(1).filter(abroad);
        self.abroad = abroad.map(|(lane, _)| lane as u8).collect();
        self.domain.set_duties(self.duties(places, own));
        for (lane, dc) in spec.datacenters.iter().enumerate() {
            let publisher = || places.posts(&spec.id, dc, None).map(|posts| posts.publisher);
            let upstream = match (lane, self.posts) {
                (_, None) => None,
                (0, Some(posts)) => Some(posts.publisher),
                (_, Some(posts)) if posts.importer() == own => publisher(),
                (_, Some(posts)) => Some(posts.importer()),
            };
            let upstream = upstream.filter(|slot| *slot != own);
            let name = upstream.and_then(|slot| places.get(slot)).map(|place| place.name.as_str());
            self.inlets[lane].set_upstream(upstream, name.unwrap_or_default());
        }
    }

    fn duties(&self, places: &Places, own: u64) -> Duties {
        let Some(posts) = self.posts else { return Duties::default() };
        let name = |slot| places.get(slot).map(|place| place.name.clone()).unwrap_or_default();
        Duties {
            publisher: name(posts.publisher),
            importer: name(posts.importer()),
            imports: posts.importer() == own,
        }
    }

    /// Does what this node's post asks for.
    pub(super) fn take_post(&mut self, own: u64, counters: &mut MeshCounters, now: MeshTime) {
        let posts = self.posts;
        if !posts.is_some_and(|posts| posts.holds(own)) {
            if self.domain.holds_state() {
                self.domain.release();
                self.feeds.forget_members();
            }
            self.publishes = false;
            return;
        }
        if self.domain.is_damaged() {
            tracing::warn!(domain = self.domain.name(), "the exact state is built anew");
            self.start_anew(own, counters, now);
        }
        if let Err(error) = self.domain.hold() {
            tracing::error!(domain = self.domain.name(), %error, "no exact state");
            return;
        }
        let publisher = posts.is_some_and(|posts| posts.publisher == own);
        let begins = !self.publishes && !self.waits_for_strangers(own);
        let replaced = self.publishes && self.inlets[0].seen() > self.incarnation;
        if publisher && (begins || replaced) {
            self.publish(own, counters, now);
        } else if !publisher && self.publishes {
            self.publishes = false;
            self.domain.stand_by();
        }
    }

    /// True for a publisher that does not begin: while nodes of its datacenter are not known to
    /// tell what they hold, nobody would believe it. So one that starts, and does not know yet who
    /// the others are, does not replace the one among them that publishes.
    fn waits_for_strangers(&self, own: u64) -> bool {
        let publisher = self.posts.is_some_and(|posts| posts.publisher == own);
        publisher && !self.publishes && self.strangers
    }

    fn publish(&mut self, own: u64, counters: &mut MeshCounters, now: MeshTime) {
        let seen = self.incarnation.max(self.inlets[0].seen());
        self.incarnation = incarnation(seen, own.wrapping_add(self.life), now);
        self.inlets[0].note_seen(self.incarnation);
        counters.takeovers += 1;
        match self.domain.publish(self.incarnation) {
            Ok(()) => self.publishes = true,
            Err(error) => {
                tracing::error!(domain = self.domain.name(), %error, "cannot publish");
                self.publishes = false;
            }
        }
    }

    /// Begins a new generation, when this node publishes.
    pub(super) fn rebuild(&mut self, own: u64, counters: &mut MeshCounters, now: MeshTime) -> bool {
        let publishes = self.publishes;
        if publishes {
            self.start_anew(own, counters, now);
        }
        publishes
    }

    fn start_anew(&mut self, own: u64, counters: &mut MeshCounters, now: MeshTime) {
        // Members are asked to begin anew, so what they held need not be taken out one by one.
        self.feeds.forget_members();
        if let Err(error) = self.domain.forget() {
            tracing::error!(domain = self.domain.name(), %error, "no exact state");
        }
        if self.publishes {
            self.publish(own, counters, now);
        }
    }

    /// This node's own holdings changed.
    pub(super) fn changed(&mut self, events: &[RouterEvent], now_ms: u64) {
        self.feeds.changed(&self.domain, events, now_ms);
    }

    /// Feeds the holders, this node among them; gives the batches to send.
    pub(super) fn feed(
        &mut self,
        own: &OwnHoldings<'_>,
        session: &mut u64,
        places: &Places,
        now_ms: u64,
    ) -> Vec<(u64, Feed)> {
        if !self.is_of_keys() {
            self.feeds.push_news(&self.domain);
        }
        self.feeds.keep_members(&self.domain, &self.members, now_ms);
        self.feeds.settle(&self.domain, self.posts, own, session, now_ms);
        if self.publishes {
            let missing = self.feeds.missing(&self.members, (own.slot, own.sure), now_ms);
            let expected = self.members.len() as u32;
            let known = expected - missing.len() as u32;
            let name = |slot: &u64| places.get(*slot).map(|place| place.name.clone());
            self.domain.set_missing_members(missing.iter().filter_map(name).collect());
            let mut loads = self.feeds.loads(&self.members, (own.slot, own.load), now_ms);
            // Nodes that are away, or do not know of all this, are there all the same.
            let own_dc = &self.domain.spec().datacenters[0];
            loads.resize(places.count(own_dc).max(loads.len()), None);
            self.domain.set_store_loads(loads);
            let complete = known == expected && !self.strangers && places.local().is_some();
            self.domain.set_hears(complete, known, expected);
            // A sign of life of the own lane.
            let _ = self.domain.apply(&[], now_ms);
            if complete != self.complete {
                (self.complete, self.beat_at_ms) = (complete, now_ms);
            }
        }
        self.feeds.poll(own.sure, now_ms)
    }

    /// Filters that are being fetched.
    pub(super) fn fetching(&self) -> usize {
        self.inlets.iter().filter(|inlet| inlet.is_fetching()).count()
    }

    /// What followers and senders of lanes are to be told.
    /// Other domains fetch `busy` filters at the moment.
    pub(super) fn filters(&mut self, own: u64, busy: usize, now_ms: u64) -> Vec<Addressed> {
        let mut out = Vec::new();
        let published = self.domain.take_published();
        self.pass_on(OWN_LANE, &published, &mut out);
        for (lane, relayed) in self.domain.take_relayed() {
            self.pass_on(lane, &relayed, &mut out);
        }
        if now_ms >= self.beat_at_ms {
            self.beat_at_ms = now_ms + BEAT_MS;
            for lane in 0..self.lanes.len() as u8 {
                let followed = &mut self.lanes[usize::from(lane)];
                followed.followers.retain(|_, until| *until > now_ms);
                let to: BTreeSet<u64> = followed.followers.keys().copied().collect();
                self.beat(lane, to, now_ms, &mut out);
            }
            self.tell_abroad(own, now_ms, &mut out);
        }
        for lane in 0..self.inlets.len() {
            let may_fetch = busy + self.fetching() < FETCHES_MAX;
            let inlet = &mut self.inlets[lane];
            if let Some(mut ask) = inlet.poll(may_fetch, now_ms)
                && let Some(upstream) = inlet.upstream()
            {
                ask.dc = self.lanes[lane].dc;
                out.push((BTreeSet::from([upstream]), ask));
            }
        }
        self.note_lanes(own);
        out
    }

    /// The nodes of the own datacenter are told which datacenters of other rings this node
    /// follows for them, and whether their filters are here.
    fn tell_abroad(&self, own: u64, now_ms: u64, out: &mut Vec<Addressed>) {
        if self.abroad.is_empty() || self.posts.is_none_or(|posts| posts.importer() != own) {
            return;
        }
        let (spec, lanes) = (self.domain.spec(), self.domain.lanes());
        let about = |lane: &u8| AbroadMsg {
            dc: spec.datacenters[usize::from(*lane)].clone(),
            ready: lanes.get(*lane).is_some_and(|lane| lane.age_ms(now_ms).is_some()),
        };
        let abroad = self.abroad.iter().map(about).collect();
        let mut message = Filter { abroad, ..Filter::default() };
        message.set_kind(FilterKind::Abroad);
        let others = self.members.iter().copied().filter(|slot| *slot != own).collect();
        out.push((others, message));
    }

    /// What the importer follows; gives the datacenters. None when it is not the importer's word.
    pub(super) fn take_abroad(&self, message: &Filter) -> Option<Vec<String>> {
        if message.kind() != FilterKind::Abroad {
            return None;
        }
        self.posts.filter(|posts| posts.importer() == message.from)?;
        for about in message.abroad.iter().filter(|about| !about.ready) {
            let lane = self.domain.lanes().iter().find(|(_, lane)| lane.dc == about.dc);
            lane.into_iter().for_each(|(_, lane)| lane.unheard());
        }
        Some(message.abroad.iter().map(|about| about.dc.clone()).collect())
    }

    fn note_lanes(&self, own: u64) {
        for (lane, inlet) in self.domain.lanes().iter().map(|(_, lane)| lane).zip(&self.inlets) {
            lane.set_note(inlet.note());
        }
        if self.waits_for_strangers(own)
            && let Some(lane) = self.domain.lanes().get(OWN_LANE)
        {
            let state = "waits: a node of this datacenter is not known to be torc".to_owned();
            lane.set_note(LaneNote { state, ..self.inlets[0].note() });
        }
        let published = self.posts.is_some_and(|posts| posts.publisher == own);
        if let (true, Some(publication)) = (published, self.domain.publication()) {
            let missing = self.domain.missing_members().join(", ");
            let state = match publication.complete {
                true => "published here".to_owned(),
                false if missing.is_empty() => {
                    "published here; a node of this datacenter is not known to be torc".to_owned()
                }
                false => format!("published here; not known yet: what {missing} holds"),
            };
            let note = LaneNote {
                state,
                incarnation: publication.identity.producer_incarnation,
                sequence: publication.sequence,
                ..self.inlets[0].note()
            };
            self.domain.lanes().get(OWN_LANE).into_iter().for_each(|l| l.set_note(note.clone()));
        }
    }

    /// Takes a message about a filter; gives what to say to it. None when it makes no sense.
    pub(super) fn take(
        &mut self,
        filter: &Filter,
        ring: (usize, u64),
        counters: &mut MeshCounters,
        now: MeshTime,
    ) -> Option<Vec<Addressed>> {
        let lane = self.lanes.iter().position(|lane| lane.dc == filter.dc)?;
        let mut out = Vec::new();
        let from = BTreeSet::from([filter.from]);
        match filter.kind() {
            FilterKind::Follow => self.follow(lane, filter, now.mono_ms, &mut out),
            FilterKind::Fetch => {
                self.follow(lane, filter, now.mono_ms, &mut out);
                counters.parts_sent += self.give(lane as u8, filter, &mut out);
            }
            FilterKind::Beat | FilterKind::Part | FilterKind::Changes
                if !self.inlets[lane].comes_from(filter.from) => {}
            FilterKind::Beat => {
                self.inlets[lane].take_beat(&self.domain, filter, ring, now.mono_ms);
            }
            FilterKind::Part => {
                let ask = self.inlets[lane].take_part(&self.domain, filter, now.mono_ms);
                if let Some(mut ask) = ask {
                    ask.dc = filter.dc;
                    out.push((from, ask));
                }
            }
            FilterKind::Changes => {
                let applied = self.inlets[lane].take_changes(&self.domain, filter, now.mono_ms);
                self.pass_on(lane as u8, &applied, &mut out);
            }
            FilterKind::Abroad | FilterKind::Unknown => return None,
        }
        Some(out)
    }

    fn follow(&mut self, lane: usize, filter: &Filter, now_ms: u64, out: &mut Vec<Addressed>) {
        self.inlets[lane].note_seen(filter.incarnation);
        self.lanes[lane].followers.insert(filter.from, now_ms + FOLLOWER_MS);
        if filter.kind() == FilterKind::Follow {
            self.beat(lane as u8, BTreeSet::from([filter.from]), now_ms, out);
        }
    }

    /// Where a lane stands here: published, or followed.
    fn position(&mut self, lane: u8, out: &mut Vec<Addressed>) -> Option<(ProducerIdentity, u64)> {
        let part = match lane == OWN_LANE && self.publishes {
            true => self.domain.published_part(0, 0)?,
            false => self.domain.lane_part(lane, 0, 0)?,
        };
        self.pass_on(lane, &part.before, out);
        Some((part.identity, part.sequence))
    }

    fn beat(&mut self, lane: u8, to: BTreeSet<u64>, now_ms: u64, out: &mut Vec<Addressed>) {
        if to.is_empty() {
            return;
        }
        let Some((identity, sequence)) = self.position(lane, out) else { return };
        let mut beat = about(&identity, sequence);
        let age = self.domain.lanes().get(lane).and_then(|lane| lane.age_ms(now_ms));
        beat.complete = age.is_some();
        beat.age_ms = age.unwrap_or(0);
        beat.dc = self.lanes[usize::from(lane)].dc;
        beat.set_kind(FilterKind::Beat);
        out.push((to, beat));
    }

    /// Gives the parts that are asked for; gives their number.
    fn give(&mut self, lane: u8, ask: &Filter, out: &mut Vec<Addressed>) -> u64 {
        let count = (ask.count as usize).min(PART_WORDS * PARTS_AT_ONCE);
        let cut = match lane == OWN_LANE && self.publishes {
            false => self.domain.lane_part(lane, ask.first, count),
            true => self.domain.published_part(ask.first, count),
        };
        let Some(Part { identity, before, sequence, words }) = cut else { return 0 };
        self.pass_on(lane, &before, out);
        let mut first = ask.first;
        for run in words.chunks(PART_WORDS) {
            let mut part = about(&identity, sequence);
            part.dc = ask.dc;
            part.first = first;
            part.words = run.iter().flat_map(|word| word.to_le_bytes()).collect();
            part.set_kind(FilterKind::Part);
            first += run.len() as u32;
            out.push((BTreeSet::from([ask.from]), part));
        }
        words.len().div_ceil(PART_WORDS) as u64
    }

    /// Tells the followers of a lane what changed.
    fn pass_on(&mut self, lane: u8, deltas: &[Delta], out: &mut Vec<Addressed>) {
        let followed = &self.lanes[usize::from(lane)];
        if deltas.is_empty() || followed.followers.is_empty() {
            return;
        }
        let to: BTreeSet<u64> = followed.followers.keys().copied().collect();
        let identity = match lane == OWN_LANE && self.publishes {
            true => self.domain.publication().map(|publication| publication.identity),
            false => self.domain.lane_position(lane).map(|(identity, _)| identity),
        };
        let Some(identity) = identity else { return };
        let mut images = 0;
        let runs = deltas.chunk_by(|delta, _| {
            images += delta.images.len();
            let room = images < CHANGES_IMAGES;
            images *= usize::from(room);
            room
        });
        for run in runs {
            let mut message = about(&identity, run.last().map_or(0, |delta| delta.sequence));
            message.dc = followed.dc;
            message.changes = run.iter().map(ChangeMsg::new).collect();
            message.set_kind(FilterKind::Changes);
            out.push((to.clone(), message));
        }
    }
}

/// The number of a takeover, greater than `seen`: when it happened, then whose it is. Two nodes
/// that take over in the same millisecond, each without the other, must not be taken for one; nor
/// two lives of a node whose clock is behind what it has seen, which gives both the same moment.
fn incarnation(seen: u64, whose: u64, now: MeshTime) -> u64 {
    let moment = (now.wall_ms * INCARNATION_STEP).max(seen.saturating_add(INCARNATION_STEP));
    moment / INCARNATION_STEP * INCARNATION_STEP + whose % INCARNATION_STEP
}

/// A message about the filter of a producer.
fn about(identity: &ProducerIdentity, sequence: u64) -> Filter {
    Filter {
        incarnation: identity.producer_incarnation,
        generation: identity.layout_generation,
        buckets: identity.format.bucket_count,
        seed: identity.format.seed,
        sequence,
        ..Filter::default()
    }
}
