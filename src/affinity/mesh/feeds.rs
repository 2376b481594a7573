//! A member's feed to one holder of the exact state, and the holder's end of it.
//!
//! ```text
//! member                              holder
//!   Listing 1, 2, .. Listed n   ─▶      collects; with the last one: holds exactly this
//!   Changes n+1, n+2, ..        ─▶      applies in order
//!                               ◀─      Applied s: everything up to s
//!                               ◀─      Begin s: sessions up to s are over, list anew
//! ```
//!
//! A few batches are on their way at once; what is not answered in time is sent again from the
//! first one on. A holder applies a batch once and in order, whatever arrives how often.

use std::collections::{BTreeSet, VecDeque};

use super::message::{EventMsg, Feed, FeedKind};
use crate::ckf::producer::{RouterEvent, Source};

/// Batches on their way at once.
const WINDOW: usize = 8;
/// Blocks of one batch, beyond which no further event is added.
const BATCH_BLOCKS: usize = 4096;
/// After this long without an answer everything unanswered is sent again, milliseconds.
const RESEND_MS: u64 = 1_000;
/// A feed that has nothing to say gives a sign of life so often, milliseconds.
const ALIVE_MS: u64 = 1_000;
/// Blocks that wait, over which the feed gives up and lists anew later.
const WAITING_BLOCKS_MAX: usize = 1 << 22;
/// A member that was not heard for so long is not known to hold what it told, milliseconds.
pub(super) const SILENT_MS: u64 = 5_000;
/// Blocks of a listing that are collected at most.
const LISTED_BLOCKS_MAX: usize = 1 << 28;

/// The member's end.
#[derive(Debug)]
pub(super) struct Sender {
    session: u64,
    /// Events not in a batch yet; those of the listing first.
    waiting: VecDeque<RouterEvent>,
    waiting_blocks: usize,
    /// Events of `waiting` that belong to the listing.
    listing: usize,
    listed: bool,
    /// Batches without an answer, the oldest first.
    unanswered: VecDeque<Feed>,
    next: u64,
    sent: usize,
    resend_at_ms: u64,
    said_ms: u64,
}

impl Sender {
    /// A feed that begins with a listing.
    pub(super) fn new(session: u64, listing: Vec<RouterEvent>) -> Sender {
        Sender {
            session,
            waiting_blocks: listing.iter().map(RouterEvent::blocks).sum(),
            listing: listing.len(),
            waiting: listing.into(),
            listed: false,
            unanswered: VecDeque::new(),
            next: 1,
            sent: 0,
            resend_at_ms: 0,
            said_ms: 0,
        }
    }

    /// More happened. False when too much waits already: the feed must be begun anew.
    pub(super) fn push(&mut self, events: &[RouterEvent]) -> bool {
        self.waiting_blocks += events.iter().map(RouterEvent::blocks).sum::<usize>();
        self.waiting.extend(events.iter().cloned());
        self.listing > 0 || self.waiting_blocks <= WAITING_BLOCKS_MAX
    }

    /// Everything up to `sequence` was applied.
    pub(super) fn applied(&mut self, session: u64, sequence: u64, now_ms: u64) {
        if session != self.session {
            return;
        }
        while self.unanswered.front().is_some_and(|feed| feed.sequence <= sequence) {
            self.unanswered.pop_front();
            self.sent = self.sent.saturating_sub(1);
            self.resend_at_ms = now_ms + RESEND_MS;
        }
    }

    /// True when this is `session` or an earlier one.
    pub(super) fn is_up_to(&self, session: u64) -> bool {
        self.session <= session
    }

    /// The batches to send now. `sure` is whether the member knows what it holds.
    pub(super) fn poll(&mut self, sure: bool, now_ms: u64) -> Vec<Feed> {
        if self.sent > 0 && now_ms >= self.resend_at_ms {
            self.sent = 0;
        }
        while self.unanswered.len() < WINDOW {
            let Some(feed) = self.next_batch(sure, now_ms) else { break };
            self.unanswered.push_back(feed);
        }
        if self.sent == 0 {
            self.resend_at_ms = now_ms + RESEND_MS;
        }
        let out: Vec<Feed> = self.unanswered.iter().skip(self.sent).cloned().collect();
        self.sent = self.unanswered.len();
        if !out.is_empty() {
            self.said_ms = now_ms;
        }
        out
    }

    fn next_batch(&mut self, sure: bool, now_ms: u64) -> Option<Feed> {
        let quiet = self.unanswered.is_empty() && now_ms >= self.said_ms + ALIVE_MS;
        if self.listed && self.waiting.is_empty() && !quiet {
            return None;
        }
        let mut feed = Feed { session: self.session, sequence: self.next, sure, ..Feed::default() };
        let mut blocks = 0;
        let listing = !self.listed;
        while blocks < BATCH_BLOCKS && (!listing || self.listing > 0) {
            let Some(event) = self.waiting.pop_front() else { break };
            blocks += event.blocks();
            self.listing = self.listing.saturating_sub(1);
            feed.events.extend(EventMsg::new(&event));
        }
        self.waiting_blocks = self.waiting_blocks.saturating_sub(blocks);
        let kind = match (listing, self.listing) {
            (true, 0) => FeedKind::Listed,
            (true, _) => FeedKind::Listing,
            (false, _) => FeedKind::Changes,
        };
        self.listed |= kind == FeedKind::Listed;
        feed.set_kind(kind);
        self.next += 1;
        Some(feed)
    }
}

/// What a holder does with a batch.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Taken {
    /// Nothing: it came before, or too early.
    Nothing,
    /// These things happened.
    Events(Vec<RouterEvent>),
    /// The sources hold exactly this.
    Listing(Vec<Source>, Vec<RouterEvent>),
}

/// The holder's end of one member's feed.
#[derive(Debug, Default)]
pub(super) struct Receiver {
    session: u64,
    applied: u64,
    collected: Vec<RouterEvent>,
    collected_blocks: usize,
    listed: bool,
    sure: bool,
    heard_ms: u64,
    /// Whose blocks the member told of.
    sources: BTreeSet<Source>,
}

impl Receiver {
    /// Takes a batch; gives what to do and what to answer.
    pub(super) fn take(&mut self, feed: &Feed, now_ms: u64) -> (Taken, Feed) {
        let mut answer = Feed { session: feed.session, ..Feed::default() };
        let begins = feed.sequence == 1 && feed.session > self.session;
        if begins {
            (self.session, self.applied) = (feed.session, 0);
            (self.collected, self.collected_blocks) = (Vec::new(), 0);
            self.listed = false;
        }
        if feed.session != self.session {
            // A newer session whose beginning is still to come, or was lost with this process. Or
            // an older one: a late batch, or its member started anew and its clock went back. Then
            // all before the one that is known are old.
            answer.session = feed.session.max(self.session.saturating_sub(1));
            answer.set_kind(FeedKind::Begin);
            return (Taken::Nothing, answer);
        }
        self.heard_ms = now_ms;
        let mut taken = Taken::Nothing;
        if feed.sequence == self.applied + 1 {
            self.applied = feed.sequence;
            self.sure = feed.sure;
            taken = self.next(feed);
        }
        answer.sequence = self.applied;
        answer.set_kind(FeedKind::Applied);
        (taken, answer)
    }

    fn next(&mut self, feed: &Feed) -> Taken {
        let events: Vec<RouterEvent> = feed.events.iter().filter_map(EventMsg::event).collect();
        match feed.kind() {
            FeedKind::Listing | FeedKind::Listed => {
                self.collected_blocks += events.iter().map(RouterEvent::blocks).sum::<usize>();
                if self.collected_blocks <= LISTED_BLOCKS_MAX {
                    self.collected.extend(events);
                }
                if feed.kind() == FeedKind::Listing {
                    return Taken::Nothing;
                }
                let listed = std::mem::take(&mut self.collected);
                self.listed = self.collected_blocks <= LISTED_BLOCKS_MAX;
                // What it told in an earlier session, and does not any more, goes too.
                self.sources.extend(listed.iter().map(|event| event.source));
                let told = self.sources.iter().copied().collect();
                self.sources = listed.iter().map(|event| event.source).collect();
                Taken::Listing(told, listed)
            }
            FeedKind::Changes => {
                self.sources.extend(events.iter().map(|event| event.source));
                Taken::Events(events)
            }
            FeedKind::Applied | FeedKind::Begin | FeedKind::Unknown => Taken::Nothing,
        }
    }

    /// Whether it is known what the member holds.
    pub(super) fn is_known(&self, now_ms: u64) -> bool {
        self.listed && self.sure && now_ms.saturating_sub(self.heard_ms) < SILENT_MS
    }

    /// Whose blocks it told of.
    pub(super) fn sources(&self) -> Vec<Source> {
        self.sources.iter().copied().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ckf::hashing::SequenceHash;
    use crate::ckf::producer::EventData;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    const MEMBER: Source = Source { worker_id: 1, dp_rank: 0 };

    fn appeared(keys: &[u64]) -> RouterEvent {
        let keys = keys.iter().copied().map(SequenceHash).collect();
        RouterEvent::device(MEMBER, EventData::Appeared(keys))
    }

    fn gone(key: u64) -> RouterEvent {
        RouterEvent::removed_keys(MEMBER, [key])
    }

    /// Applies what a receiver wants applied.
    fn apply(held: &mut BTreeSet<u64>, taken: Taken) {
        let events = match taken {
            Taken::Nothing => return,
            Taken::Events(events) => events,
            Taken::Listing(sources, events) => {
                assert!(sources.is_empty() || sources == [MEMBER]);
                held.clear();
                events
            }
        };
        for event in events {
            match event.data {
                EventData::Appeared(keys) => held.extend(keys.iter().map(|key| key.0)),
                EventData::Removed(ids) => ids.iter().for_each(|id| {
                    held.remove(&id.0);
                }),
                _ => panic!("keys only"),
            }
        }
    }

    #[test]
    fn a_listing_comes_first_and_is_applied_as_a_whole() {
        let many: Vec<RouterEvent> =
            (0..9).map(|n| appeared(&[n * 2000, n * 2000 + 1].repeat(600))).collect();
        let mut sender = Sender::new(5, many);
        let mut receiver = Receiver::default();
        let mut held = BTreeSet::from([77]);
        sender.push(&[gone(0)]);
        for round in 0..9 {
            for feed in sender.poll(true, round) {
                let (taken, answer) = receiver.take(&feed, round);
                apply(&mut held, taken);
                sender.applied(answer.session, answer.sequence, round);
            }
            let _ = receiver.is_known(round);
        }
        assert_eq!(held.len(), 17);
        assert!(receiver.is_known(8) && !receiver.is_known(8 + SILENT_MS));
        assert!(sender.poll(true, 500).is_empty());
        let alive = sender.poll(false, 2000);
        assert_eq!((alive.len(), alive[0].events.len()), (1, 0));
        receiver.take(&alive[0], 2000);
        assert!(!receiver.is_known(2000), "it is not sure itself");
    }

    #[test]
    fn a_holder_that_forgot_asks_for_a_new_session() {
        let mut sender = Sender::new(5, Vec::new());
        let first = sender.poll(true, 0);
        assert_eq!(first[0].kind(), FeedKind::Listed);
        sender.applied(5, 1, 0);
        sender.push(&[appeared(&[1])]);
        let feed = sender.poll(true, 1).remove(0);
        let (taken, answer) = Receiver::default().take(&feed, 1);
        assert_eq!((taken, answer.kind(), answer.session), (Taken::Nothing, FeedKind::Begin, 5));
        // A late batch of an old session is no reason to leave the one that is known.
        let mut newer = Receiver::default();
        newer.take(&Sender::new(9, Vec::new()).poll(true, 0)[0], 0);
        let (taken, answer) = newer.take(&feed, 1);
        assert_eq!((taken, answer.kind(), answer.session), (Taken::Nothing, FeedKind::Begin, 8));
        assert!(sender.is_up_to(8) && !Sender::new(9, Vec::new()).is_up_to(8));
    }

    proptest! {
        /// Batches and answers are lost, repeated and late; the holder comes to the same keys.
        #[test]
        fn loss_repetition_and_disorder_change_nothing(
            steps in prop::collection::vec((0u64..20, any::<bool>(), 0u8..4), 1..80),
        ) {
            let mut sender = Sender::new(1, vec![appeared(&[1, 2, 3])]);
            let (mut receiver, mut held) = (Receiver::default(), BTreeSet::new());
            let mut truth = BTreeSet::from([1, 2, 3]);
            let mut late: Vec<Feed> = Vec::new();
            let mut now = 0;
            for (key, add, fate) in steps.iter().copied().chain((0..40).map(|_| (0, true, 0))) {
                now += RESEND_MS / 2;
                match add {
                    true => { truth.insert(key); sender.push(&[appeared(&[key])]) }
                    false => { truth.remove(&key); sender.push(&[gone(key)]) }
                };
                let mut batch = sender.poll(true, now);
                match fate {
                    0 => {}
                    1 => batch.clear(),
                    2 => late.append(&mut batch),
                    _ => { batch.append(&mut late); batch.extend(batch.clone()); batch.reverse() }
                }
                for feed in batch {
                    let (taken, answer) = receiver.take(&feed, now);
                    apply(&mut held, taken);
                    if fate != 3 {
                        sender.applied(answer.session, answer.sequence, now);
                    }
                }
            }
            prop_assert_eq!(held, truth);
            prop_assert!(receiver.is_known(now));
        }
    }
}
