//! The affinity plane between nodes, as a machine without sockets, clock or tasks.
//!
//! - Every node tells what it holds to those who keep its datacenter's exact state: the publisher
//!   and the standby (`member.rs`, `feeds.rs`; messages of type 34).
//! - The publisher's filter goes to the nodes of its datacenter, and to one node of every other
//!   datacenter, which passes it on unchanged to the nodes of its own (`inlet.rs`, `pool.rs`;
//!   type 35). Who wants a filter asks for it: senders keep no state but who follows them.
//! - Posts follow from the live nodes alone ([`super::places`]); there is no election. Of two
//!   publishers the greater incarnation is believed, and who publishes by right and hears of a
//!   greater one begins a new generation above it.
//!
//! Drive it with `set_*`, `changed` and `handle_*`, then send what `poll_transmit` gives. Time is
//! a parameter.

mod feeds;
mod inlet;
mod member;
mod message;
mod pool;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use prost::Message as _;
use xxhash_rust::xxh3::xxh3_64;

use self::member::OwnHoldings;
use self::message::{Feed, FeedKind, Filter};
use self::pool::Pools;
use super::Affinity;
use super::domain::{Domain, Kind, StoreLoad, events_of};
use super::following::Following;
use super::member::{Change, MemberKeys};
use super::places::Places;
use crate::ckf::consumer::LANES;
use crate::ckf::producer::{RouterEvent, Source};
use crate::gossip::Transmit;
use crate::proto::dnode::MsgType;
use crate::proto::dnode::control::{ControlSeal, SealError};

/// Keys of one event of a listing.
const LISTED_PER_EVENT: usize = 1024;

/// A point in time: a clock that never goes back, and the wall clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MeshTime {
    /// Milliseconds on the clock that never goes back.
    pub mono_ms: u64,
    /// Milliseconds since 1970: takeovers are numbered by it.
    pub wall_ms: u64,
}

/// What is fixed for a node's life.
#[derive(Clone, Debug)]
pub struct MeshSettings {
    /// Envelope of its messages.
    pub seal: ControlSeal,
    /// The name of the node that publishes for its datacenter while it lives.
    pub pinned: Option<String>,
    /// This node as a holder of keys.
    pub source: Source,
    /// Decides when fetches begin; no secret.
    pub rng_seed: u64,
}

/// How often things happened since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MeshCounters {
    /// Messages sent.
    pub sent: u64,
    /// Bytes of them.
    pub sent_bytes: u64,
    /// Messages received and used.
    pub received: u64,
    /// Bytes of them.
    pub received_bytes: u64,
    /// Messages of another cluster, version or secret.
    pub refused: u64,
    /// Messages that were malformed, or not for this node.
    pub malformed: u64,
    /// Times this node became a publisher, or began a new generation.
    pub takeovers: u64,
    /// Parts of filters sent.
    pub parts_sent: u64,
}

/// Figures of a node's affinity plane: of the machine, and of what feeds it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PlaneReport {
    /// Of the exchange with other nodes.
    pub mesh: MeshCounters,
    /// Messages dropped because a link was full.
    pub dropped: u64,
    /// Keys this node's store holds, as far as is known.
    pub held: u64,
    /// Whether that is everything.
    pub sure: bool,
    /// How that is known, or why it is not.
    pub following: Following,
}

/// The plane of one node.
pub struct Mesh {
    settings: MeshSettings,
    places: Places,
    own: u64,
    pools: Vec<Pools>,
    /// What this node holds; shared by all its feeds.
    member: MemberKeys,
    /// False while it does not know what it holds.
    sure: bool,
    /// How full this node's store is.
    load: Option<StoreLoad>,
    /// Datacenters of other rings that are followed for this node.
    abroad: BTreeSet<String>,
    session: u64,
    /// Of this life of the node.
    life: u64,
    rng: fastrand::Rng,
    transmits: VecDeque<Transmit>,
    counters: MeshCounters,
}

impl Mesh {
    /// A node that starts. Its store has `shards` shards; it knows nothing of it yet.
    pub fn new(settings: MeshSettings, affinity: &Affinity, shards: usize, now: MeshTime) -> Mesh {
        let rng = fastrand::Rng::with_seed(settings.rng_seed);
        let mut mesh = Mesh {
            settings,
            places: Places::default(),
            own: 0,
            pools: Vec::new(),
            member: MemberKeys::new(shards),
            sure: false,
            load: None,
            abroad: BTreeSet::new(),
            // Sessions of an earlier life of this node are older.
            session: now.wall_ms << 16,
            life: xxh3_64(&now.wall_ms.to_le_bytes()),
            rng,
            transmits: VecDeque::new(),
            counters: MeshCounters::default(),
        };
        mesh.set_domains(affinity);
        mesh
    }

    /// The domains are these from now on; after a change of the datacenters their lanes are new.
    pub fn set_domains(&mut self, affinity: &Affinity) {
        let mut old: BTreeMap<String, Pools> =
            self.pools.drain(..).map(|pools| (pools.domain.name().to_owned(), pools)).collect();
        for domain in affinity.domains() {
            let before = old.remove(domain.name());
            let mut pools = Pools::new(Arc::clone(domain), before);
            pools.life = self.life;
            self.pools.push(pools);
        }
        self.name_posts();
    }

    /// The ring is this from now on.
    pub fn set_places(&mut self, places: Places) {
        self.places = places;
        self.own = self.places.local().map_or(0, |place| place.slot);
        self.name_posts();
    }

    fn name_posts(&mut self) {
        let pinned = self.settings.pinned.as_deref();
        for pools in &mut self.pools {
            pools.name_posts(&self.places, pinned);
        }
    }

    /// What this node holds, to be changed with the store's events; tell
    /// [`Mesh::changed`] what came of it.
    pub fn member(&mut self) -> &mut MemberKeys {
        &mut self.member
    }

    /// The domain of ring keys it drives.
    pub fn keys_domain(&self) -> Option<&Arc<Domain>> {
        self.pools.iter().find(|pools| pools.is_of_keys()).map(|pools| &pools.domain)
    }

    /// Whether this node knows what it holds, as last told.
    pub fn is_sure(&self) -> bool {
        self.sure
    }

    /// Whether this node knows what it holds.
    pub fn set_sure(&mut self, sure: bool) {
        self.sure = sure;
    }

    /// How full this node's store is; none while that is not known.
    pub fn set_load(&mut self, load: Option<StoreLoad>) {
        self.load = load;
    }

    /// Datacenters of other rings that another node follows for this one, since the last call.
    pub fn take_abroad(&mut self) -> BTreeSet<String> {
        std::mem::take(&mut self.abroad)
    }

    /// This node's holdings changed so.
    pub fn changed(&mut self, changes: &[Change], now: MeshTime) {
        let events: Vec<RouterEvent> = events_of(self.settings.source, changes).collect();
        for pools in self.pools.iter_mut().filter(|pools| pools.is_of_keys()) {
            pools.changed(&events, now.mono_ms);
        }
    }

    /// Begins a new generation of every pool this node publishes: the members tell everything
    /// anew. False when it publishes none.
    pub fn rebuild(&mut self, now: MeshTime) -> bool {
        let mut any = false;
        for pools in &mut self.pools {
            any |= pools.rebuild(self.own, &mut self.counters, now);
        }
        any
    }

    /// Does what is due. Call it whenever something was told, and several times a second.
    pub fn handle_timeout(&mut self, now: MeshTime) {
        let mut all = std::mem::take(&mut self.pools);
        for index in 0..all.len() {
            let fetching: usize = all.iter().map(Pools::fetching).sum();
            let pools = &mut all[index];
            let busy = fetching - pools.fetching();
            self.settle(pools, busy, now);
        }
        self.pools = all;
    }

    fn settle(&mut self, pools: &mut Pools, busy: usize, now: MeshTime) {
        pools.take_post(self.own, &mut self.counters, now);
        let (member, source) = (&self.member, self.settings.source);
        let domain = Arc::clone(&pools.domain);
        let listing = || match domain.spec().kind {
            Kind::Keys(_) => list_keys(member, source),
            Kind::Blocks { .. } => domain.engines_listing(),
        };
        // Engines tell their blocks to the node itself: it always knows what it was told.
        let sure = self.sure || !pools.is_of_keys();
        let load = self.load.filter(|_| pools.is_of_keys());
        let own = OwnHoldings { slot: self.own, listing: &listing, source, sure, load };
        let feeds = pools.feed(&own, &mut self.session, &self.places, now.mono_ms);
        for (to, mut feed) in feeds {
            feed.load = load.map(Into::into);
            self.send_feed(to, pools.key, feed);
        }
        for (to, filter) in pools.filters(self.own, busy, now.mono_ms) {
            self.send_filter(&to, pools.key, filter);
        }
    }

    /// A control message of type 34 or 35 arrived.
    pub fn handle_message(&mut self, kind: MsgType, payload: &[u8], now: MeshTime) {
        let bytes = match self.settings.seal.open(kind, payload) {
            Ok(bytes) => bytes,
            Err(error) => {
                tracing::debug!(%error, "a message about filters was refused");
                let malformed = error == SealError::Malformed;
                *match malformed {
                    true => &mut self.counters.malformed,
                    false => &mut self.counters.refused,
                } += 1;
                return;
            }
        };
        let used = match kind {
            MsgType::TorcFeed => {
                Feed::decode(&bytes[..]).ok().and_then(|feed| self.take_feed(feed, now))
            }
            MsgType::TorcFilter => {
                Filter::decode(&bytes[..]).ok().and_then(|filter| self.take_filter(&filter, now))
            }
            _ => None,
        };
        match used {
            None => self.counters.malformed += 1,
            Some(()) => {
                self.counters.received += 1;
                self.counters.received_bytes += payload.len() as u64;
            }
        }
    }

    fn take_feed(&mut self, feed: Feed, now: MeshTime) -> Option<()> {
        let from = self.places.get(feed.from)?;
        let own_dc = self.places.local()?.dc == from.dc;
        let pools = self.pools.iter_mut().find(|pools| pools.key == feed.domain)?;
        match feed.kind() {
            FeedKind::Applied => {
                pools.feeds.answered(feed.from, feed.session, feed.sequence, now.mono_ms);
            }
            FeedKind::Begin => {
                // It may be of an earlier life, when this node's clock was ahead.
                self.session = self.session.max(feed.session.saturating_add(1));
                pools.feeds.begin_anew(feed.from, feed.session);
            }
            FeedKind::Listing | FeedKind::Listed | FeedKind::Changes => {
                // Who does not keep the state says nothing: the member's view will change.
                if own_dc && from.live && pools.keeps_state(self.own) {
                    let answer = pools.feeds.take(&pools.domain, &feed, now.mono_ms);
                    let (to, key) = (feed.from, pools.key);
                    self.send_feed(to, key, answer);
                }
            }
            FeedKind::Unknown => return None,
        }
        Some(())
    }

    fn take_filter(&mut self, filter: &Filter, now: MeshTime) -> Option<()> {
        self.places.get(filter.from)?;
        let nodes = self.places.members(&self.places.local()?.dc).count();
        let dice = self.rng.u64(..);
        let key = filter.domain;
        let index = self.pools.iter().position(|pools| pools.key == key)?;
        if let Some(abroad) = self.pools[index].take_abroad(filter) {
            // There are no more lanes than that.
            self.abroad.extend(abroad.into_iter().take(LANES));
            return Some(());
        }
        let counters = &mut self.counters;
        let out = self.pools[index].take(filter, (nodes, dice), counters, now)?;
        for (to, filter) in out {
            self.send_filter(&to, key, filter);
        }
        Some(())
    }

    /// The next bytes to send.
    pub fn poll_transmit(&mut self) -> Option<Transmit> {
        self.transmits.pop_front()
    }

    /// Counts since the start.
    pub fn counters(&self) -> MeshCounters {
        self.counters
    }

    /// Keys this node holds.
    pub fn held(&self) -> usize {
        self.member.len()
    }

    fn send_feed(&mut self, to: u64, domain: u64, mut feed: Feed) {
        (feed.from, feed.domain) = (self.own, domain);
        self.send(&BTreeSet::from([to]), MsgType::TorcFeed, feed.encode_to_vec());
    }

    fn send_filter(&mut self, to: &BTreeSet<u64>, domain: u64, mut filter: Filter) {
        (filter.from, filter.domain) = (self.own, domain);
        self.send(to, MsgType::TorcFilter, filter.encode_to_vec());
    }

    fn send(&mut self, to: &BTreeSet<u64>, kind: MsgType, bytes: Vec<u8>) {
        let Some(own) = self.places.local() else { return };
        let payload = self.settings.seal.seal(kind, bytes);
        let live = |slot: &u64| self.places.get(*slot).filter(|place| place.live && place.torc);
        for place in to.iter().filter_map(live) {
            self.counters.sent += 1;
            self.counters.sent_bytes += payload.len() as u64;
            let same_dc = place.dc == own.dc;
            let (to, peer, payload) = (place.addr.clone(), Some(place.peer), payload.clone());
            self.transmits.push_back(Transmit { to, peer, kind, same_dc, payload });
        }
    }

    /// True when a transmit goes to a node of this node's own rack.
    pub fn is_same_rack(&self, transmit: &Transmit) -> bool {
        let place = transmit.peer.and_then(|peer| self.places.by_peer(peer));
        let own = self.places.local();
        own.zip(place).is_some_and(|(own, place)| own.dc == place.dc && own.rack == place.rack)
    }
}

/// Everything a member holds, as events.
fn list_keys(member: &MemberKeys, source: Source) -> Vec<RouterEvent> {
    let mut keys: Vec<_> = member.all().collect();
    keys.sort_unstable();
    let event = |keys: &[crate::ckf::hashing::SequenceHash]| {
        let data = crate::ckf::producer::EventData::Appeared(keys.to_vec());
        RouterEvent::device(source, data)
    };
    keys.chunks(LISTED_PER_EVENT).map(event).collect()
}
