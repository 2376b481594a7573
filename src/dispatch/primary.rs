//! The state of a write that runs on one replica first: what that one said, what the others are
//! told, and how they answer it.

use super::block;
use super::failure::{Cause, Failure, FailureKind, from_reply};
use super::gather::Said;
use super::plan::{Group, Leg, Role};
use super::task::{Next, Written};
use crate::proto::memcache::decode::McRequest;
use crate::proto::memcache::ids::{self, Mark};
use crate::proto::memcache::{self, forward};
use crate::proto::resp::reply::is_error;
use crate::proto::resp::rewrite;
use crate::proto::resp::spec::CommandSpec;
use crate::ring::{Consistency, Outcome, PeerId, Rule, Votes};
use crate::stamp::Stamp;

/// A write that runs on one replica first.
#[derive(Debug)]
pub(super) struct Primary {
    pub(super) origin: Origin,
    pub(super) request: Written,
    /// The copies, without that of the first replica.
    pub(super) others: Vec<(PeerId, Leg)>,
    pub(super) groups: Vec<Ballot>,
    /// What the first replica is told, and then what the others are.
    pub(super) stamp: Option<Stamp>,
    /// For a command that may wait: who runs it, and the level. The ring of the time decides who
    /// gets what it did.
    pub(super) waits_at: Option<(PeerId, Consistency)>,
    pub(super) wall_ms: u64,
    /// The first replica's reply, once it is there.
    pub(super) reply: Option<Vec<u8>>,
}

/// What kind of request it is.
#[derive(Clone, Copy, Debug)]
pub(super) enum Origin {
    /// A command of the table.
    Redis(&'static CommandSpec),
    /// A line of memcache, with what its decoder found, and the mark of the first store's ids.
    Memcache(McRequest, Mark),
}

/// The vote of one datacenter.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ballot {
    votes: Votes,
    failure: Option<Failure>,
}

impl Ballot {
    pub(super) fn of(group: &Group) -> Ballot {
        Ballot { votes: group.votes(), failure: group.failure }
    }

    fn count(&mut self, failure: Option<Failure>) {
        self.votes.count(failure.is_none());
        self.failure = self.failure.or(failure);
    }
}

impl Primary {
    /// Takes the first replica's reply (part 0) or what another one says to the effect.
    pub(super) fn take(&mut self, part: u16, said: Said<'_>) -> Next {
        if part == 0 {
            return match &said {
                Said::Failed(failure) => Next::Fail(*failure),
                Said::Reply(_) | Said::Large(_) => self.begin(said.bytes().unwrap_or_default()),
            };
        }
        let failure = match &said {
            Said::Failed(failure) => Some(*failure),
            Said::Reply(reply) if is_error(reply) || memcache::reply::is_error(reply) => {
                let other = Failure::new(FailureKind::NoQuorum, Cause::Disagree);
                Some(from_reply(reply).unwrap_or(other))
            }
            Said::Reply(_) | Said::Large(_) => None,
        };
        if let Role::Count { dc } = self.others[usize::from(part) - 1].1.role {
            self.groups[usize::from(dc)].count(failure);
        }
        self.verdict()
    }

    fn begin(&mut self, reply: &[u8]) -> Next {
        if let Some(failure) = from_reply(reply) {
            return Next::Fail(failure);
        }
        let effects = self.effects(reply);
        let reply = match self.origin {
            Origin::Redis(_) => reply.to_vec(),
            Origin::Memcache(_, mark) => {
                let mut marked = Vec::new();
                ids::marked(reply, reply, mark, &mut marked);
                marked
            }
        };
        if effects.is_empty() {
            return Next::Reply(reply);
        }
        if let Some(local) = self.groups.first_mut() {
            local.count(None);
        }
        self.reply = Some(reply);
        Next::Spread(effects)
    }

    /// What the other replicas have to do.
    fn effects(&self, reply: &[u8]) -> Vec<Written> {
        let args = self.request.args();
        let mut effects = Vec::new();
        match &self.origin {
            Origin::Redis(_) if block::is_block(&args) => {
                block::outcome(&args, reply, self.wall_ms).into_iter().collect()
            }
            Origin::Redis(spec) => {
                rewrite::outcome(spec, &args, reply, self.wall_ms, &mut effects);
                Written::all(&effects)
            }
            Origin::Memcache(found, _) => {
                let now_s = self.wall_ms / 1000;
                let changed = forward::outcome(found, &args, reply, now_s, &mut effects);
                let effect = Written { bytes: effects, spans: Vec::new() };
                changed.then_some(effect).into_iter().collect()
            }
        }
    }

    /// Whether enough replicas have the effect.
    pub(super) fn verdict(&self) -> Next {
        let outcomes = || self.groups.iter().map(|group| group.votes.outcome());
        match (Rule::Every.outcome(outcomes()), &self.reply) {
            (Outcome::Lost, _) => {
                let lost = outcomes().position(|outcome| outcome == Outcome::Lost);
                let none = Failure::new(FailureKind::NoQuorum, Cause::NoReplica);
                let failure = lost.and_then(|group| self.groups[group].failure);
                Next::Fail(failure.unwrap_or(none))
            }
            (Outcome::Met, Some(reply)) => Next::Reply(reply.clone()),
            (Outcome::Met | Outcome::Pending, _) => Next::Wait,
        }
    }
}
