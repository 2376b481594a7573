//! How long a node is JOINING: for as long as another rack of its datacenter has data that it may
//! lack (decision E11).
//!
//! A node whose datastore begins empty claims to be joining: it is written to like any other, and
//! read at DC_ONE when nobody else can answer. Nodes tell since when their datastores hold keys.
//! Where no other rack's does since before this process began, there is nothing to wait for: the
//! node is alone, or the whole ring starts. A node that knows nobody looks around before it
//! believes that: it may have been restarted, and be known. Of several nodes that came back empty,
//! the one that began first has the most and is waited for by the others.
//!
//! It ends when the caller has copied what others have ([`Membership::filled`]), and by itself
//! after [`super::Settings::join_max_ms`].

use super::member::{Member, Reach};
use super::membership::Membership;
use super::record::{Claim, Kind};
use super::time::Millis;

/// The attribute: Unix time in milliseconds since which the datastore holds keys.
const DATA_SINCE: &str = "data";

/// A node that is known by name only, and stays silent for so long, is not waited for.
const SILENCE_MS: u64 = 5_000;

/// A node that answers, and of which nothing was heard yet, is waited for so long: it has news of
/// its data on the way, unless it is of another cluster or gossips with nobody.
const UNHEARD_MS: u64 = 30_000;

/// So long a node looks around before it believes that nobody has data, or that there is nobody
/// else, in rounds. Whoever knew it before it was restarted asks it within one.
const LOOK_ROUNDS: u64 = 2;

impl Membership {
    /// Tells everybody that this node's datastore holds keys, since `unix_ms`.
    pub fn set_data_since(&mut self, unix_ms: u64) {
        if let Err(error) = self.set_attribute(DATA_SINCE, Some(&unix_ms.to_string())) {
            unreachable!("a number fits and is among the first attributes: {error}");
        }
    }

    /// This node's datastore has what those of other racks have.
    pub fn filled(&mut self, now: Millis) {
        if std::mem::take(&mut self.may_lack) && self.local().record.claim == Claim::Joining {
            self.claim(Claim::Normal, now);
        }
    }

    /// When joining ends whatever others have.
    pub(super) fn join_ends_at(&self) -> Millis {
        match self.may_lack {
            true => self.started.plus(self.settings.join_max_ms),
            false => Millis::NEVER,
        }
    }

    /// Claims what follows from the data others have.
    pub(super) fn look_for_data(&mut self, now: Millis) {
        if !self.may_lack {
            return;
        }
        let claim = self.local().record.claim;
        if now >= self.join_ends_at() {
            self.may_lack = false;
            return self.claim(Claim::Normal, now);
        }
        let lacks = self.lacks_data();
        match claim {
            Claim::Joining if !lacks && self.has_looked_around(now) => {
                self.claim(Claim::Normal, now);
            }
            // It was cut off from those who have data. With keys of its own it stays what it is.
            Claim::Normal if lacks && !self.holds_keys() => self.claim(Claim::Joining, now),
            _ => {}
        }
    }

    fn holds_keys(&self) -> bool {
        self.local().record.attributes.contains_key(DATA_SINCE)
    }

    /// True once this node knows enough of its ring to serve clients: it knows as many slots as
    /// any torc node has told it of, or everybody it was told of is met, or it has looked around.
    /// A node that takes itself for the whole ring misses what others hold, and takes in what they
    /// should hold.
    pub fn knows_ring(&self, now: Millis) -> bool {
        let told = self.told_of > 0 && self.table.shared_count() >= self.told_of;
        let listed = self.table.members().any(|m| !m.local);
        let met = self.told_of == 0 && listed && self.all_met();
        !self.settings.gossip || told || met || self.looked(now)
    }

    fn has_looked_around(&self, now: Millis) -> bool {
        let waited_ms = now.since(self.started);
        let answers = self.table.members().any(|m| !m.local && is_unmet(m) && m.reach == Reach::Up);
        let patience_ms = if answers { UNHEARD_MS } else { SILENCE_MS };
        waited_ms >= patience_ms || (self.looked(now) && self.all_met())
    }

    fn looked(&self, now: Millis) -> bool {
        let look_ms = LOOK_ROUNDS * self.settings.gossip_interval_ms;
        now.since(self.started) >= look_ms.min(SILENCE_MS)
    }

    fn all_met(&self) -> bool {
        self.contacts.is_empty() && !self.table.members().any(|m| !m.local && is_unmet(m))
    }

    /// True when another rack of the datacenter has data from before this process began: this
    /// node's datastore, which began empty, may lack it.
    pub fn lacks_data(&self) -> bool {
        self.may_lack && self.table.members().any(|member| self.is_fuller(member))
    }

    fn is_fuller(&self, member: &Member) -> bool {
        let (own, record) = (&self.local().record, &member.record);
        let other_copy = record.slot.dc == own.slot.dc && record.slot.rack != own.slot.rack;
        let since = record.attributes.get(DATA_SINCE).and_then(|ms| ms.parse::<u64>().ok());
        other_copy
            && match record.kind {
                // Nodes of the reference do not tell, and keep their data when they stop.
                Kind::C => true,
                Kind::Torc | Kind::Unknown => {
                    let older = since.is_some_and(|ms| ms <= self.started_unix_ms);
                    let empty = record.claim == Claim::Joining;
                    older && (!empty || record.generation < own.generation)
                }
            }
    }
}

/// True for a node of which only the name is known, and which may still answer.
fn is_unmet(member: &Member) -> bool {
    let spoke = member.record.generation > 0 || member.record.kind == Kind::C;
    !spoke && !matches!(member.reach, Reach::Down(_))
}
