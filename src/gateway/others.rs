//! The other gateways of a ring, as they tell of themselves through gossip: who writes an index,
//! who has which task slot, and whether all mean the same groups.
//!
//! Lanes order the writes of one gateway. So that two gateways cannot send one document to its
//! replicas in different orders, all writes of an index go through one of them, its *sequencer*:
//! of the gateways alive that can be reached, the one with the best rendezvous score for the
//! index. While gateways come and go two may take themselves for it; what they write then is
//! marked as unsure and compared between its owners afterwards.

use super::time::WallClock;
use arc_swap::ArcSwap;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use xxhash_rust::xxh3::xxh3_64;

/// Time after a change of the gateways until all of them know it, and what was sent before is
/// answered.
const SETTLE_US: u64 = 10_000_000;
/// Gateways may differ in their groups for so long: a migration switches them one by one.
const DIFFERENCE_AGE_US: u64 = 3_000_000;

/// Names under which a gateway's facts travel.
const SINCE: &str = "doc.since";
const FINGERPRINT: &str = "doc.fingerprint";
const SLOT: &str = "doc.slot";
const URL: &str = "doc.url";

/// What a gateway tells the others about itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GatewayFacts {
    /// What tells it from others: its node's place in the ring.
    pub id: String,
    /// When it began, microseconds since 1970. Of two with one task slot the later one yields.
    pub since_us: u64,
    /// Digest of its shards, copies, backend ids and groups.
    pub fingerprint: u64,
    /// The task slot it gives numbers of.
    pub slot: Option<u32>,
    /// Where other gateways reach it, `http://host:port`.
    pub url: Option<String>,
}

impl GatewayFacts {
    /// The facts as names and values; a fact that is not there has no value.
    pub fn attributes(&self) -> [(&'static str, Option<String>); 4] {
        [
            (SINCE, Some(self.since_us.to_string())),
            (FINGERPRINT, Some(format!("{:016x}", self.fingerprint))),
            (SLOT, self.slot.map(|slot| slot.to_string())),
            (URL, self.url.clone()),
        ]
    }

    /// The facts of gateway `id`; `None` when these are not a gateway's attributes.
    pub fn read(id: &str, attributes: &BTreeMap<String, String>) -> Option<GatewayFacts> {
        Some(GatewayFacts {
            id: id.to_owned(),
            since_us: attributes.get(SINCE)?.parse().ok()?,
            fingerprint: u64::from_str_radix(attributes.get(FINGERPRINT)?, 16).ok()?,
            slot: attributes.get(SLOT).and_then(|slot| slot.parse().ok()),
            url: attributes.get(URL).cloned(),
        })
    }
}

/// What one gateway knows of the others.
pub(super) struct Others {
    id: String,
    since_us: u64,
    url: Option<String>,
    clock: WallClock,
    known: ArcSwap<Vec<GatewayFacts>>,
    /// When those that may be a sequencer last changed.
    changed_us: AtomicU64,
    /// Since when some other gateway has another fingerprint; 0 while none has.
    differs_us: AtomicU64,
}

impl Others {
    /// Nobody is known yet. A gateway with a `url` is one of several, and waits to hear of them
    /// before it is sure of its turn.
    pub(super) fn new(id: &str, url: Option<String>, clock: WallClock) -> Others {
        let since_us = clock.now_us();
        let changed_us = AtomicU64::new(if url.is_some() { since_us } else { 0 });
        Others {
            id: id.to_owned(),
            since_us,
            url,
            clock,
            known: ArcSwap::default(),
            changed_us,
            differs_us: AtomicU64::new(0),
        }
    }

    /// This gateway's own facts.
    pub(super) fn own(&self, fingerprint: u64, slot: Option<u32>) -> GatewayFacts {
        let (id, url) = (self.id.clone(), self.url.clone());
        GatewayFacts { id, since_us: self.since_us, fingerprint, slot, url }
    }

    /// This gateway's id.
    pub(super) fn id(&self) -> &str {
        &self.id
    }

    /// When this gateway began.
    pub(super) fn since_us(&self) -> u64 {
        self.since_us
    }

    /// Takes over who is alive now beside this gateway, whose own digest is `fingerprint`.
    pub(super) fn set(&self, mut others: Vec<GatewayFacts>, fingerprint: u64) {
        others.retain(|other| other.id != self.id);
        others.sort_by(|a, b| a.id.cmp(&b.id));
        let now = self.clock.now_us();
        let differs = others.iter().any(|other| other.fingerprint != fingerprint);
        match (differs, self.differs_us.load(Ordering::Relaxed)) {
            (false, _) => self.differs_us.store(0, Ordering::Relaxed),
            (true, 0) => self.differs_us.store(now.max(1), Ordering::Relaxed),
            (true, _) => {}
        }
        let known = self.known.load();
        let places = |facts: &[GatewayFacts]| -> Vec<(String, Option<String>, u64)> {
            let place = |f: &GatewayFacts| (f.id.clone(), f.url.clone(), f.since_us);
            facts.iter().map(place).collect()
        };
        if places(&known) != places(&others) {
            self.changed_us.store(now, Ordering::Relaxed);
        }
        if **known != others {
            self.known.store(Arc::new(others));
        }
    }

    /// Those alive, by id.
    pub(super) fn known(&self) -> Arc<Vec<GatewayFacts>> {
        self.known.load_full()
    }

    /// The other gateway that writes this index; `None` when this one does.
    pub(super) fn sequencer(&self, uid: &str) -> Option<GatewayFacts> {
        let known = self.known.load();
        let score = |id: &str| xxh3_64(format!("{id}\0{uid}").as_bytes());
        let reachable = known.iter().filter(|other| other.url.is_some());
        let best = reachable.max_by_key(|other| (score(&other.id), other.id.clone()))?;
        let own = (score(&self.id), &self.id);
        let ours = self.url.is_some() && own > (score(&best.id), &best.id);
        (!ours).then(|| best.clone())
    }

    /// Whether no other gateway can be writing this index at the same time.
    pub(super) fn is_sure(&self, uid: &str) -> bool {
        let age = self.clock.now_us().saturating_sub(self.changed_us.load(Ordering::Relaxed));
        age >= SETTLE_US && self.sequencer(uid).is_none()
    }

    /// Whether a gateway is still among those alive.
    pub(super) fn is_alive(&self, id: &str) -> bool {
        self.known.load().iter().any(|other| other.id == id)
    }

    /// A gateway that began earlier than this one and uses the same task slot.
    pub(super) fn older_with_slot(&self, slot: u32) -> Option<GatewayFacts> {
        let own = (self.since_us, &self.id);
        let known = self.known.load();
        let mut same = known.iter().filter(|other| other.slot == Some(slot));
        same.find(|other| (other.since_us, &other.id) < own).cloned()
    }

    /// Task slots of the others.
    pub(super) fn slots(&self) -> BTreeSet<u32> {
        self.known.load().iter().filter_map(|other| other.slot).collect()
    }

    /// The others whose groups are not the own ones, once that has lasted.
    pub(super) fn differing(&self, fingerprint: u64) -> Vec<GatewayFacts> {
        let since = self.differs_us.load(Ordering::Relaxed);
        if since == 0 || self.clock.now_us().saturating_sub(since) < DIFFERENCE_AGE_US {
            return Vec::new();
        }
        let known = self.known.load();
        known.iter().filter(|other| other.fingerprint != fingerprint).cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts(id: &str, since_us: u64, slot: Option<u32>) -> GatewayFacts {
        let url = Some(format!("http://{id}"));
        GatewayFacts { id: id.to_owned(), since_us, fingerprint: 7, slot, url }
    }

    fn hand_clock() -> (Arc<AtomicU64>, WallClock) {
        let now = Arc::new(AtomicU64::new(100_000_000));
        let shared = now.clone();
        (now, WallClock::new(move || shared.load(Ordering::Relaxed)))
    }

    #[test]
    fn facts_travel_as_attributes() {
        for facts in [facts("a", 5, Some(3)), GatewayFacts { url: None, ..facts("b", 6, None) }] {
            let travelled = facts.attributes().into_iter();
            let travelled =
                travelled.filter_map(|(name, value)| Some((name.to_owned(), value?))).collect();
            assert_eq!(GatewayFacts::read(&facts.id, &travelled), Some(facts));
        }
        assert_eq!(GatewayFacts::read("a", &BTreeMap::new()), None);
    }

    #[test]
    fn all_gateways_name_the_same_sequencer() {
        let (now, clock) = hand_clock();
        let ids = ["a", "b", "c"];
        let all: Vec<GatewayFacts> = ids.iter().map(|id| facts(id, 1, None)).collect();
        let gateways = ids.map(|id| {
            let others = Others::new(id, Some(format!("http://{id}")), clock.clone());
            assert!(!others.is_sure("x"), "it has not heard of the others yet");
            others.set(all.clone(), 7);
            others
        });
        now.fetch_add(SETTLE_US, Ordering::Relaxed);
        let mut turns = [0; 3];
        for i in 0..300 {
            let uid = format!("index-{i}");
            let who: Vec<usize> =
                (0..3).filter(|g| gateways[*g].sequencer(&uid).is_none()).collect();
            assert_eq!(who.len(), 1, "{uid}");
            assert!(gateways[who[0]].is_sure(&uid));
            for other in (0..3).filter(|g| *g != who[0]) {
                assert_eq!(gateways[other].sequencer(&uid).unwrap().id, ids[who[0]]);
                assert!(!gateways[other].is_sure(&uid));
            }
            turns[who[0]] += 1;
        }
        assert!(turns.iter().all(|turns| *turns > 60), "{turns:?}");
        // One goes: nobody is sure until everybody may know.
        let uid = "index-1";
        gateways[0].set(all[..2].to_vec(), 7);
        assert!(!gateways[0].is_sure(uid));
    }

    #[test]
    fn a_gateway_nobody_reaches_writes_alone_or_hands_over() {
        let (_, clock) = hand_clock();
        let alone = Others::new("a", None, clock);
        assert!(alone.is_sure("x"));
        alone.set(vec![GatewayFacts { url: None, ..facts("b", 1, None) }], 7);
        assert_eq!(alone.sequencer("x"), None);
        alone.set(vec![facts("b", 1, None)], 7);
        assert_eq!(alone.sequencer("x").unwrap().id, "b");
    }

    #[test]
    fn of_two_with_one_slot_the_younger_yields() {
        let (_, clock) = hand_clock();
        let own = Others::new("b", None, clock);
        let same = own.since_us();
        for (id, since_us, yields) in
            [("a", same - 1, true), ("a", same, true), ("c", same, false), ("a", same + 1, false)]
        {
            own.set(vec![facts(id, since_us, Some(2))], 7);
            assert_eq!(own.older_with_slot(2).is_some(), yields, "{id} {since_us}");
            assert_eq!(own.older_with_slot(3), None);
        }
        assert_eq!(own.slots(), BTreeSet::from([2]));
    }

    #[test]
    fn a_difference_counts_once_it_lasts() {
        let (now, clock) = hand_clock();
        let own = Others::new("b", None, clock);
        own.set(vec![facts("a", 1, None)], 8);
        assert!(own.differing(8).is_empty());
        now.fetch_add(DIFFERENCE_AGE_US, Ordering::Relaxed);
        own.set(vec![facts("a", 1, None)], 8);
        assert_eq!(own.differing(8)[0].id, "a");
        own.set(vec![facts("a", 1, None)], 7);
        assert!(own.differing(7).is_empty());
    }
}
