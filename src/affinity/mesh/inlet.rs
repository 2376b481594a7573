//! The receiving end of one lane: follows the pool of one datacenter, as another node sends it.
//!
//! ```text
//!             Beat of a filter this lane has not          all parts are in
//!  in step ──────────────────────────────────▶ fetching ──────────────────▶ in step
//!     │ ▲ Changes, each from where the lane is     │
//!     └─┘                    a gap, or silence: once more, a little later
//! ```
//!
//! Parts are cut at different moments. Between them come the changes of what was cut before, on
//! the same connection and in order, so with the last part the words are those of one sequence.
//! While a filter is fetched the lane answers from the one before, also where the new one has
//! another size.

use super::message::{Filter, FilterKind};
use crate::affinity::domain::Domain;
use crate::affinity::lanes::LaneNote;
use crate::affinity::publication::Delta;
use crate::ckf::identity::ProducerIdentity;

/// Words of one part.
pub(super) const PART_WORDS: usize = 8 * 1024;
/// Parts asked for at once.
pub(super) const PARTS_AT_ONCE: usize = 16;
/// How often the sender is told that this node follows, milliseconds.
const FOLLOW_MS: u64 = 2_000;
/// A fetch without progress is begun anew after this long, milliseconds.
const STALLED_MS: u64 = 3_000;
/// The filter of an earlier publisher gives hints so long, while the new one does not hear of
/// everything: a large store takes minutes to be listed. Milliseconds.
const KEPT_MS: u64 = 300_000;
/// Fetches begin at a moment drawn from at most this long, milliseconds.
const JITTER_MAX_MS: u64 = 2_000;
/// The same for each node of the ring: a small ring need not wait.
const JITTER_PER_NODE_MS: u64 = 50;

/// The receiving end of one lane.
#[derive(Debug)]
pub(super) struct Inlet {
    lane: u8,
    /// Who sends it.
    upstream: Option<u64>,
    /// A filter that is wanted, and when it may be fetched.
    wanted: Option<(ProducerIdentity, u64)>,
    fetch: Option<Fetch>,
    follow_at_ms: u64,
    /// The greatest incarnation heard of.
    seen: u64,
    /// Since when its sender is behind this lane.
    behind_since_ms: Option<u64>,
    /// Since when its publisher says that it does not hear of everything.
    unsure_since_ms: Option<u64>,
    note: LaneNote,
}

#[derive(Debug)]
struct Fetch {
    identity: ProducerIdentity,
    /// The sequence of the words so far; none before the first part.
    sequence: Option<u64>,
    words: Vec<u64>,
    /// Words asked for so far.
    asked: usize,
    progress_ms: u64,
}

impl Inlet {
    pub(super) fn new(lane: u8) -> Inlet {
        Inlet {
            lane,
            upstream: None,
            wanted: None,
            fetch: None,
            follow_at_ms: 0,
            seen: 0,
            behind_since_ms: None,
            unsure_since_ms: None,
            note: LaneNote::default(),
        }
    }

    /// Who sends the lane from now on.
    pub(super) fn set_upstream(&mut self, upstream: Option<u64>, name: &str) {
        if self.upstream != upstream {
            self.upstream = upstream;
            (self.wanted, self.fetch, self.follow_at_ms) = (None, None, 0);
            self.note.from = name.to_owned();
            self.note.state = match upstream {
                Some(_) => "asks to follow".to_owned(),
                None => "nobody sends it".to_owned(),
            };
        }
    }

    /// Who sends it.
    pub(super) fn upstream(&self) -> Option<u64> {
        self.upstream
    }

    /// True for who sends it.
    pub(super) fn comes_from(&self, slot: u64) -> bool {
        self.upstream == Some(slot)
    }

    /// Somebody knows of this incarnation.
    pub(super) fn note_seen(&mut self, incarnation: u64) {
        self.seen = self.seen.max(incarnation);
    }

    /// The greatest incarnation heard of.
    pub(super) fn seen(&self) -> u64 {
        self.seen
    }

    /// True while a filter is being fetched.
    pub(super) fn is_fetching(&self) -> bool {
        self.fetch.is_some()
    }

    /// What is to be told of it.
    pub(super) fn note(&self) -> LaneNote {
        self.note.clone()
    }

    /// What to ask the sender now; `may_fetch` allows to begin a fetch.
    pub(super) fn poll(&mut self, may_fetch: bool, now_ms: u64) -> Option<Filter> {
        self.upstream?;
        if self.fetch.as_ref().is_some_and(|fetch| now_ms >= fetch.progress_ms + STALLED_MS) {
            self.give_up("no answer", now_ms);
        }
        if may_fetch
            && self.fetch.is_none()
            && let Some((identity, _)) = self.wanted.filter(|(_, at)| now_ms >= *at)
        {
            let (words, sequence) = (Vec::new(), None);
            let fetch = Fetch { identity, sequence, words, asked: 0, progress_ms: now_ms };
            self.fetch = Some(fetch);
            self.note.state = "fetches the whole filter".to_owned();
            return self.ask_parts();
        }
        if now_ms >= self.follow_at_ms {
            self.follow_at_ms = now_ms + FOLLOW_MS;
            let mut follow = Filter { incarnation: self.seen, ..Filter::default() };
            follow.set_kind(FilterKind::Follow);
            return Some(follow);
        }
        None
    }

    fn ask_parts(&mut self) -> Option<Filter> {
        let fetch = self.fetch.as_mut()?;
        let buckets = fetch.identity.format.buckets();
        let first = fetch.words.len();
        let count = (buckets - first).min(PART_WORDS * PARTS_AT_ONCE);
        fetch.asked = first + count;
        let mut ask = Filter { first: first as u32, count: count as u32, ..Filter::default() };
        ask.incarnation = self.seen;
        ask.set_kind(FilterKind::Fetch);
        Some(ask)
    }

    /// A sign of life of the sender. `nodes` is the size of the ring, `dice` a random number.
    pub(super) fn take_beat(
        &mut self,
        domain: &Domain,
        beat: &Filter,
        (nodes, dice): (usize, u64),
        now_ms: u64,
    ) {
        let Some(identity) = self.identity(domain, beat) else { return };
        if beat.incarnation < self.seen {
            self.note.state = "its publisher was replaced".to_owned();
            return;
        }
        self.seen = beat.incarnation;
        self.unsure_since_ms = match beat.complete {
            true => None,
            false => self.unsure_since_ms.or(Some(now_ms)),
        };
        if self.fetch.as_ref().is_some_and(|fetch| fetch.identity == identity) {
            return;
        }
        match domain.lane_position(self.lane) {
            Some((has, at)) if has == identity && at == beat.sequence => {
                (self.wanted, self.fetch, self.behind_since_ms) = (None, None, None);
                (self.note.incarnation, self.note.sequence) = (beat.incarnation, at);
                self.believe(domain, beat, now_ms);
            }
            // A sender that is behind will come to where this lane is; or it lost its memory.
            Some((has, at))
                if has == identity && at > beat.sequence && !self.waited_for_it(now_ms) => {}
            _ if self.wanted.is_some_and(|(wanted, _)| wanted == identity) => {}
            // A publisher that is new and has not heard of everything yet: what was there before
            // is a better hint than what it has.
            Some((has, _)) if has != identity && !beat.complete && self.keeps(now_ms) => {
                let state = "answers from the filter before: its new publisher does not hear of \
                             everything yet";
                self.note.state = state.to_owned();
                domain.lanes().get(self.lane).into_iter().for_each(|lane| lane.hinted(now_ms));
            }
            _ => {
                let most = (nodes as u64 * JITTER_PER_NODE_MS).min(JITTER_MAX_MS);
                self.fetch = None;
                self.wanted = Some((identity, now_ms + dice % (most + 1)));
                self.note.state = "waits to fetch the whole filter".to_owned();
            }
        }
    }

    /// Whether a sender that is behind was given its time.
    fn waited_for_it(&mut self, now_ms: u64) -> bool {
        now_ms >= *self.behind_since_ms.get_or_insert(now_ms) + STALLED_MS
    }

    /// Whether the filter from an earlier publisher is kept for hints.
    fn keeps(&self, now_ms: u64) -> bool {
        self.unsure_since_ms.is_some_and(|since_ms| now_ms < since_ms + KEPT_MS)
    }

    fn believe(&mut self, domain: &Domain, beat: &Filter, now_ms: u64) {
        let Some(lane) = domain.lanes().get(self.lane) else { return };
        if beat.complete {
            lane.heard(now_ms.saturating_sub(beat.age_ms));
            self.note.state = "in step".to_owned();
        } else {
            lane.hinted(now_ms);
            self.note.state = "its publisher does not hear of everything yet".to_owned();
        }
    }

    /// The identity a message speaks of, when there is a table for it.
    fn identity(&mut self, domain: &Domain, filter: &Filter) -> Option<ProducerIdentity> {
        let format = filter.format()?;
        if let Err(refused) = domain.admits(self.lane, format) {
            self.note.state = refused.to_string();
            domain.drop_lane(self.lane);
            return None;
        }
        domain.identity_of(self.lane, filter.incarnation, filter.generation, format)
    }

    /// A part of the filter; gives what to ask for next.
    pub(super) fn take_part(
        &mut self,
        domain: &Domain,
        part: &Filter,
        now_ms: u64,
    ) -> Option<Filter> {
        let identity = self.identity(domain, part)?;
        let fetch = self.fetch.as_mut()?;
        let in_order = fetch.words.len() == part.first as usize
            && fetch.sequence.is_none_or(|sequence| sequence == part.sequence);
        if fetch.identity != identity || !in_order {
            self.give_up("a part was missed", now_ms);
            return None;
        }
        let buckets = identity.format.buckets();
        let room = buckets - fetch.words.len();
        fetch.words.extend(part.part().take(room));
        fetch.sequence = Some(part.sequence);
        fetch.progress_ms = now_ms;
        if fetch.words.len() < buckets {
            return if fetch.words.len() >= fetch.asked { self.ask_parts() } else { None };
        }
        let words = std::mem::take(&mut fetch.words);
        self.fetch = None;
        match domain.install(self.lane, identity, part.sequence, words) {
            Ok(()) => {
                self.wanted = None;
                self.note.snapshots += 1;
                self.note.state = "in step".to_owned();
                (self.note.incarnation, self.note.sequence) = (part.incarnation, part.sequence);
                // The next beat says whether it is to be believed: ask for one at once.
                self.follow_at_ms = 0;
            }
            Err(error) => self.give_up(&error.to_string(), now_ms),
        }
        None
    }

    /// Changes; gives those that were applied to the lane, for nodes that follow this one.
    pub(super) fn take_changes(
        &mut self,
        domain: &Domain,
        filter: &Filter,
        now_ms: u64,
    ) -> Vec<Delta> {
        let Some(identity) = self.identity(domain, filter) else { return Vec::new() };
        let deltas = filter.changes.iter().filter_map(|change| change.delta());
        if self.fetch.as_ref().is_some_and(|fetch| fetch.identity == identity) {
            for delta in deltas {
                self.change_fetched(&delta, now_ms);
            }
            return Vec::new();
        }
        if domain.lane_position(self.lane).is_none_or(|(has, _)| has != identity) {
            return Vec::new();
        }
        let mut applied = Vec::new();
        for delta in deltas {
            if !domain.apply_delta(self.lane, &delta) {
                self.note.gaps += 1;
                self.note.state = "changes were missed".to_owned();
                self.wanted = Some((identity, now_ms));
                break;
            }
            self.note.changes += 1;
            self.note.sequence = delta.sequence;
            applied.push(delta);
        }
        applied
    }

    fn change_fetched(&mut self, delta: &Delta, now_ms: u64) {
        let Some(fetch) = &mut self.fetch else { return };
        // Before the first part there is nothing to change: the part contains it.
        let Some(sequence) = fetch.sequence else { return };
        if delta.base != sequence {
            return self.give_up("changes were missed", now_ms);
        }
        fetch.sequence = Some(delta.sequence);
        for image in delta.images.iter() {
            if let Some(word) = fetch.words.get_mut(image.bucket as usize) {
                *word = image.word;
            }
        }
    }

    /// Begins the fetch anew, a moment later.
    fn give_up(&mut self, why: &str, now_ms: u64) {
        self.note.gaps += 1;
        self.note.state = format!("begins anew: {why}");
        if let Some(fetch) = self.fetch.take() {
            self.wanted = Some((fetch.identity, now_ms + JITTER_PER_NODE_MS));
        }
        self.follow_at_ms = now_ms;
    }
}
