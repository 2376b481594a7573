//! This node as one that tells what it holds, and as one that is told.

use std::collections::{BTreeMap, BTreeSet};

use super::feeds::SILENT_MS;
use super::feeds::{Receiver, Sender, Taken};
use super::message::{Feed, LoadMsg};
use crate::affinity::domain::{Domain, News, StoreLoad};
use crate::affinity::places::Posts;
use crate::ckf::producer::{RouterEvent, Source};

/// The feeds of one domain on one node.
#[derive(Debug, Default)]
pub(super) struct Feeds {
    /// To the holders of the exact state, by slot.
    senders: BTreeMap<u64, Sender>,
    /// From the members, by slot, while this node holds the state.
    receivers: BTreeMap<u64, Receiver>,
    /// How full the members' stores are, and when they said so.
    loads: BTreeMap<u64, (LoadMsg, u64)>,
    /// Whether this node's own holdings are in the state it holds.
    own_is_in: bool,
}

/// What a domain's feeds need to know of this node.
pub(super) struct OwnHoldings<'a> {
    /// Its slot.
    pub(super) slot: u64,
    /// Everything it holds, as events; called when somebody has to be told everything.
    pub(super) listing: &'a dyn Fn() -> Vec<RouterEvent>,
    /// Who it is as a source of keys.
    pub(super) source: Source,
    /// False while it does not know what it holds.
    pub(super) sure: bool,
    /// How full its store is, where that is known and the domain is of its keys.
    pub(super) load: Option<StoreLoad>,
}

impl Feeds {
    /// This node holds the state no more.
    pub(super) fn forget_members(&mut self) {
        self.receivers.clear();
        self.loads.clear();
        self.own_is_in = false;
    }

    /// This node got or lost keys.
    pub(super) fn changed(&mut self, domain: &Domain, events: &[RouterEvent], now_ms: u64) {
        if self.own_is_in
            && let Err(error) = domain.apply(events, now_ms)
        {
            tracing::warn!(domain = domain.name(), %error, "the filter was not fed");
        }
        self.push(events);
    }

    fn push(&mut self, events: &[RouterEvent]) {
        // A feed that cannot take more is begun anew, with a listing.
        self.senders.retain(|_, sender| sender.push(events));
    }

    /// What engines told this node since the last time.
    pub(super) fn push_news(&mut self, domain: &Domain) {
        match domain.news() {
            News::Events(events) if events.is_empty() => {}
            News::Events(events) => self.push(&events),
            News::Overrun => self.senders.clear(),
        }
    }

    /// Sees to it that the holders are fed, and this node's own state too.
    pub(super) fn settle(
        &mut self,
        domain: &Domain,
        posts: Option<Posts>,
        own: &OwnHoldings<'_>,
        session: &mut u64,
        now_ms: u64,
    ) {
        let holders: BTreeSet<u64> = posts
            .map(|posts| [Some(posts.publisher), posts.standby])
            .into_iter()
            .flatten()
            .flatten()
            .filter(|slot| *slot != own.slot)
            .collect();
        self.senders.retain(|slot, _| holders.contains(slot));
        if !own.sure {
            return;
        }
        for slot in holders {
            self.senders.entry(slot).or_insert_with(|| {
                *session = session.saturating_add(1);
                Sender::new(*session, (own.listing)())
            });
        }
        if !self.own_is_in && domain.holds_state() {
            let listing = (own.listing)();
            let mut sources: BTreeSet<Source> = listing.iter().map(|e| e.source).collect();
            sources.insert(own.source);
            let sources: Vec<Source> = sources.into_iter().collect();
            // A state that could not take it is marked as damaged, and is built anew.
            self.own_is_in = domain.reconcile(&sources, &listing, now_ms).is_ok();
        }
    }

    /// The batches to send, with whom they are for.
    pub(super) fn poll(&mut self, sure: bool, now_ms: u64) -> Vec<(u64, Feed)> {
        let polled =
            self.senders.iter_mut().map(|(slot, sender)| (*slot, sender.poll(sure, now_ms)));
        polled.flat_map(|(slot, feeds)| feeds.into_iter().map(move |feed| (slot, feed))).collect()
    }

    /// A holder answered a batch.
    pub(super) fn answered(&mut self, from: u64, session: u64, sequence: u64, now_ms: u64) {
        if let Some(sender) = self.senders.get_mut(&from) {
            sender.applied(session, sequence, now_ms);
        }
    }

    /// For a holder all sessions up to `session` are over: it is told everything in a new one.
    pub(super) fn begin_anew(&mut self, from: u64, session: u64) {
        if self.senders.get(&from).is_some_and(|sender| sender.is_up_to(session)) {
            self.senders.remove(&from);
        }
    }

    /// A member's batch arrived; gives the answer.
    pub(super) fn take(&mut self, domain: &Domain, feed: &Feed, now_ms: u64) -> Feed {
        match feed.load {
            Some(load) => self.loads.insert(feed.from, (load, now_ms)),
            None => self.loads.remove(&feed.from),
        };
        let receiver = self.receivers.entry(feed.from).or_default();
        let (taken, answer) = receiver.take(feed, now_ms);
        let outcome = match taken {
            Taken::Nothing => Ok(()),
            Taken::Events(events) => domain.apply(&events, now_ms),
            Taken::Listing(sources, events) => domain.reconcile(&sources, &events, now_ms),
        };
        if let Err(error) = outcome {
            tracing::warn!(domain = domain.name(), %error, "the filter was not fed");
        }
        answer
    }

    /// Forgets what members told that are not among `live` any more.
    pub(super) fn keep_members(&mut self, domain: &Domain, live: &BTreeSet<u64>, now_ms: u64) {
        let gone: Vec<u64> =
            self.receivers.keys().filter(|slot| !live.contains(slot)).copied().collect();
        for slot in gone {
            let Some(receiver) = self.receivers.remove(&slot) else { continue };
            if let Err(error) = domain.reconcile(&receiver.sources(), &[], now_ms) {
                tracing::warn!(domain = domain.name(), %error, "a member could not be forgotten");
            }
        }
    }

    /// How full the stores of `live` members are; `own` is one of them.
    pub(super) fn loads(
        &self,
        live: &BTreeSet<u64>,
        own: (u64, Option<StoreLoad>),
        now_ms: u64,
    ) -> Vec<Option<StoreLoad>> {
        let said = |slot: &u64| {
            let (load, at_ms) = self.loads.get(slot)?;
            (now_ms < at_ms + SILENT_MS).then_some(StoreLoad::from(*load))
        };
        live.iter().map(|slot| if *slot == own.0 { own.1 } else { said(slot) }).collect()
    }

    /// Of which `live` members it is not known what they hold; `own` is one of them.
    pub(super) fn missing(
        &self,
        live: &BTreeSet<u64>,
        own: (u64, bool),
        now_ms: u64,
    ) -> BTreeSet<u64> {
        let known = |slot: u64| match slot == own.0 {
            true => self.own_is_in && own.1,
            false => self.receivers.get(&slot).is_some_and(|feed| feed.is_known(now_ms)),
        };
        live.iter().copied().filter(|slot| !known(*slot)).collect()
    }
}
