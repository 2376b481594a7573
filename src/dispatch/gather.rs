//! From the replies of several replicas to one answer: the verdict machine of the quorum levels.
//!
//! ```text
//! waiting --reply--> waiting | agreed(reply) | newest(reply) | differing(first arrived)
//!                            | failed(cause)
//! ```
//!
//! The rules are `spec/consistency.md` section 3 without its defects: any number of racks,
//! bodies compared and never headers, an unreachable replica is an error at once (section 10).
//! Each datacenter votes for itself; all must be done before the client is answered, and the
//! local one's answer is given.
//!
//! Where every answer tells a stamp, DC_QUORUM takes the newest of differing ones in place of the
//! first arrived: since a quorum was written and a quorum is asked, that is the last acknowledged
//! value or a later one (decision H12). That a key is absent from a store that may still lack data
//! does not count against what others say (E11). A read of several keys on which replicas differ
//! as a whole is settled key by key (`elements.rs`).

mod elements;

use bytes::Bytes;
use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

use super::failure::{Cause, Failure, FailureKind, from_reply};
use super::plan::Group;
use crate::proto::command::Compare;
use crate::proto::memcache::ids;
use crate::proto::resp::reply::{elements, is_null};
use crate::ring::{Outcome, Votes};
use crate::stamp::Stamp;

/// A reply that must wait: copied when small, shared when large.
#[derive(Clone, Debug, Default)]
pub struct Parked {
    small: Vec<u8>,
    shared: Option<Bytes>,
}

impl Parked {
    /// Keeps a copy of `bytes`.
    pub fn copy(&mut self, bytes: &[u8]) {
        self.shared = None;
        self.small.clear();
        self.small.extend_from_slice(bytes);
    }

    /// Keeps a reference to `bytes`.
    pub fn share(&mut self, bytes: Bytes) {
        self.small.clear();
        self.shared = Some(bytes);
    }

    /// The reply.
    pub fn as_slice(&self) -> &[u8] {
        self.shared.as_deref().unwrap_or(&self.small)
    }

    /// The reply as a shared slice, when it is one.
    pub fn shared(&self) -> Option<&Bytes> {
        self.shared.as_ref()
    }

    /// Lends recycled memory for the copy of a small reply.
    pub fn lend(&mut self, spare: Vec<u8>) {
        self.small = spare;
    }

    /// Gives the memory back.
    pub fn into_buffer(self) -> Vec<u8> {
        self.small
    }
}

/// What one replica said.
#[derive(Debug)]
pub enum Said<'a> {
    /// A small reply, in the receive buffer.
    Reply(&'a [u8]),
    /// A large reply, cut out of the receive buffer.
    Large(Bytes),
    /// It could not be asked, or did not answer.
    Failed(Failure),
}

impl Said<'_> {
    /// The bytes of a reply.
    pub fn bytes(&self) -> Option<&[u8]> {
        match self {
            Said::Reply(bytes) => Some(bytes),
            Said::Large(bytes) => Some(bytes),
            Said::Failed(_) => None,
        }
    }

    /// The same once more, for somebody else.
    pub fn again(&self) -> Said<'_> {
        match self {
            Said::Reply(bytes) => Said::Reply(bytes),
            Said::Large(bytes) => Said::Large(bytes.clone()),
            Said::Failed(failure) => Said::Failed(*failure),
        }
    }
}

/// How strictly replicas must agree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Strictness {
    /// DC_QUORUM: without agreement the newest answer is given, or the first arrived one.
    Lenient,
    /// DC_SAFE_QUORUM and DC_EACH_SAFE_QUORUM: without agreement the request fails.
    Safe,
}

/// The outcome of a vote.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Answer number `usize` of [`Gather::answer`] is the client's.
    Reply(usize),
    /// The same, chosen by its stamp among differing ones.
    Newest(usize),
    /// No majority agrees on the whole; each key is settled by itself ([`Gather::settle_each`]).
    PerElement,
    /// The request failed.
    Failed(Failure),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum GroupState {
    Waiting,
    Agreed(usize),
    Newest(usize),
    Differing(usize),
    /// Its keys are settled one by one.
    Elements,
    Failed(Failure),
}

#[derive(Clone, Copy, Debug)]
struct Ballot {
    votes: Votes,
    failure: Option<Failure>,
    own_pending: bool,
    state: GroupState,
}

/// Who gives an answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Voter {
    /// The replica whose answer is preferred: the own rack's, or that whose ids are told.
    pub own: bool,
    /// Its store may lack data.
    pub joining: bool,
    /// The newest stamp among the request's keys in its store, when it tells one.
    pub stamp: Option<Stamp>,
}

impl Voter {
    /// True when its answer is that it has nothing, and that says nothing.
    fn is_blank(self) -> bool {
        self.joining && self.stamp == Some(Stamp::NONE)
    }
}

#[derive(Debug, Default)]
struct Answer {
    dc: u16,
    voter: Voter,
    digest: u64,
    body: Parked,
}

/// The vote on one request. Reused between requests: its buffers keep their memory.
#[derive(Debug)]
pub struct Gather {
    compare: Compare,
    strictness: Strictness,
    per_element: bool,
    /// What is voted on is a write.
    writes: bool,
    ballots: Vec<Ballot>,
    answers: Vec<Answer>,
    used: usize,
}

impl Default for Gather {
    fn default() -> Gather {
        Gather {
            compare: Compare::Exact,
            strictness: Strictness::Lenient,
            per_element: false,
            writes: false,
            ballots: Vec::new(),
            answers: Vec::new(),
            used: 0,
        }
    }
}

impl Gather {
    /// Begins a vote of `groups`. `per_element` is for reads of several keys, each of which has its
    /// own part of the answer. `own` is the group of the preferred replica, when that is among
    /// those asked.
    pub fn begin(
        &mut self,
        groups: &[Group],
        compare: Compare,
        strictness: Strictness,
        per_element: bool,
        own: Option<u16>,
    ) {
        self.compare = compare;
        self.strictness = strictness;
        self.per_element = per_element;
        self.writes = false;
        self.used = 0;
        self.ballots.clear();
        self.ballots.extend(groups.iter().enumerate().map(|(dc, group)| Ballot {
            votes: group.votes(),
            failure: group.failure,
            own_pending: own.is_some_and(|own| usize::from(own) == dc),
            state: GroupState::Waiting,
        }));
    }

    /// The vote that begins is on a write: a store that may lack data has taken it all the same.
    pub fn on_write(&mut self) {
        self.writes = true;
    }

    /// Counts what a replica of group `dc` said.
    pub fn push(&mut self, dc: u16, voter: Voter, said: Said<'_>) -> Option<Verdict> {
        let ballot = &mut self.ballots[dc as usize];
        ballot.own_pending &= !voter.own;
        let failure = match &said {
            Said::Failed(failure) => Some(*failure),
            Said::Reply(bytes) => from_reply(bytes),
            Said::Large(_) => None,
        };
        ballot.votes.count(failure.is_none());
        match failure {
            Some(failure) => {
                ballot.failure.get_or_insert(failure);
            }
            None => self.keep(dc, voter, said),
        }
        self.settle(dc);
        self.verdict()
    }

    /// The reply with number `i`.
    pub fn answer(&self, i: usize) -> &Parked {
        &self.answers[i].body
    }

    /// The reply of the preferred replica.
    pub fn own_answer(&self) -> Option<&Parked> {
        self.answers[..self.used].iter().find(|answer| answer.voter.own).map(|answer| &answer.body)
    }

    fn keep(&mut self, dc: u16, voter: Voter, said: Said<'_>) {
        if self.used == self.answers.len() {
            self.answers.push(Answer::default());
        }
        let answer = &mut self.answers[self.used];
        self.used += 1;
        answer.dc = dc;
        answer.voter = voter;
        match said {
            Said::Reply(bytes) => answer.body.copy(bytes),
            Said::Large(bytes) => answer.body.share(bytes),
            Said::Failed(_) => unreachable!("failures are counted, not kept"),
        }
        answer.digest = match self.compare {
            Compare::Unordered => unordered_digest(answer.body.as_slice(), 1),
            Compare::UnorderedPairs => unordered_digest(answer.body.as_slice(), 2),
            Compare::Values => {
                let mut values = Vec::new();
                ids::without(answer.body.as_slice(), &mut values);
                xxh3_64(&values)
            }
            Compare::Exact | Compare::First => 0,
        };
    }

    fn settle(&mut self, dc: u16) {
        let ballot = self.ballots[dc as usize];
        if ballot.state != GroupState::Waiting {
            return;
        }
        let state = if ballot.votes.outcome() == Outcome::Lost {
            let none = Failure::new(FailureKind::NoQuorum, Cause::NoReplica);
            GroupState::Failed(ballot.failure.unwrap_or(none))
        } else if self.compare == Compare::First {
            self.settle_first(dc, ballot)
        } else {
            self.settle_equal(dc, ballot)
        };
        self.ballots[dc as usize].state = state;
    }

    /// Replies that differ by nature (a TTL, a random pick): the own replica's, once enough
    /// replicas are known to be alive (decision D7).
    fn settle_first(&self, dc: u16, ballot: Ballot) -> GroupState {
        let own_may_come = ballot.own_pending && ballot.votes.pending() > 0;
        if ballot.votes.outcome() != Outcome::Met || own_may_come {
            return GroupState::Waiting;
        }
        let mine = self.of(dc).find(|i| self.answers[*i].voter.own);
        let newest = self.newest(dc).filter(|_| self.strictness == Strictness::Lenient);
        let chosen = newest.or(mine).or_else(|| self.of(dc).next());
        GroupState::Agreed(chosen.expect("a good answer was kept"))
    }

    fn settle_equal(&self, dc: u16, ballot: Ballot) -> GroupState {
        let (need, pending) = (ballot.votes.need(), ballot.votes.pending());
        let (mut best, mut votes) = (None, 0);
        let speaks = |i: &usize| !self.answers[*i].voter.is_blank();
        let counts = |i: &usize| self.writes || speaks(i);
        for i in self.of(dc).filter(speaks) {
            let equal = self.of(dc).filter(counts).filter(|j| self.same(i, *j)).count();
            if equal > votes {
                (best, votes) = (Some(i), equal);
            }
        }
        // Its ids are told with whatever values are agreed on.
        let ids_may_come = self.compare == Compare::Values && ballot.own_pending;
        match best {
            _ if ids_may_come && pending > 0 => GroupState::Waiting,
            Some(i) if votes >= need => GroupState::Agreed(i),
            _ if votes + pending >= need => GroupState::Waiting,
            Some(i) if self.settles_each(i) => match pending {
                0 => GroupState::Elements,
                _ => GroupState::Waiting,
            },
            Some(_) if self.strictness == Strictness::Safe => {
                GroupState::Failed(Failure::new(FailureKind::NoQuorum, Cause::Disagree))
            }
            _ if pending > 0 => GroupState::Waiting,
            Some(i) => self.newest(dc).map_or(GroupState::Differing(i), GroupState::Newest),
            // Nobody has anything.
            None => GroupState::Agreed(self.of(dc).next().expect("a good answer was kept")),
        }
    }

    /// The newest answer, when all tell their stamps. Of equal stamps that of a store without
    /// gaps, then the one with the greater digest (decision H6), for which all ask alike.
    fn newest(&self, dc: u16) -> Option<usize> {
        let stamp = |i: &usize| self.answers[*i].voter.stamp;
        if !self.of(dc).all(|i| stamp(&i).is_some()) {
            return None;
        }
        let rank = |i: &usize| {
            let Answer { voter, body, .. } = &self.answers[*i];
            let tie = match self.compare {
                Compare::First => u64::from(voter.own),
                Compare::Values | Compare::Exact | Compare::Unordered | Compare::UnorderedPairs => {
                    // An MGET of one key is settled as a GET of it.
                    let body = body.as_slice();
                    xxh3_64(body.strip_prefix(b"*1\r\n").unwrap_or(body))
                }
            };
            (voter.stamp, !voter.joining, tie)
        };
        self.of(dc).max_by_key(rank)
    }

    fn of(&self, dc: u16) -> impl Iterator<Item = usize> + '_ {
        (0..self.used).filter(move |i| self.answers[*i].dc == dc)
    }

    fn same(&self, i: usize, j: usize) -> bool {
        let (a, b) = (&self.answers[i], &self.answers[j]);
        match self.compare {
            Compare::Unordered | Compare::UnorderedPairs => {
                a.digest == b.digest && a.body.as_slice().len() == b.body.as_slice().len()
            }
            Compare::Values => a.digest == b.digest,
            Compare::Exact | Compare::First => {
                let (a, b) = (a.body.as_slice(), b.body.as_slice());
                // A null array comes back from a script of a C peer as a null string.
                a == b || (is_null(a) && is_null(b))
            }
        }
    }

    fn verdict(&self) -> Option<Verdict> {
        let (mut failure, mut each) = (None, false);
        for ballot in &self.ballots {
            match ballot.state {
                GroupState::Waiting => return None,
                GroupState::Failed(f) => {
                    failure.get_or_insert(f);
                }
                GroupState::Elements => each = true,
                GroupState::Agreed(_) | GroupState::Newest(_) | GroupState::Differing(_) => {}
            }
        }
        Some(match (failure, self.ballots[0].state) {
            (Some(failure), _) => Verdict::Failed(failure),
            (None, _) if each => Verdict::PerElement,
            (None, GroupState::Agreed(i) | GroupState::Differing(i)) => Verdict::Reply(i),
            (None, GroupState::Newest(i)) => Verdict::Newest(i),
            (None, GroupState::Waiting | GroupState::Elements | GroupState::Failed(_)) => {
                unreachable!("handled above")
            }
        })
    }

    /// True when the keys of answer `i`, the one given most often, are to be settled one by one.
    fn settles_each(&self, i: usize) -> bool {
        let may_guess = self.strictness == Strictness::Lenient || !self.is_late();
        self.per_element && may_guess && elements::has_elements(self.answers[i].body.as_slice())
    }

    /// True when a replica did not answer in time: whoever asked has waited long enough, and
    /// nothing is asked again (decision H13).
    fn is_late(&self) -> bool {
        self.ballots.iter().any(|b| b.failure.is_some_and(|f| f.cause == Cause::TimedOut))
    }
}

fn is_array(reply: &[u8]) -> bool {
    reply.first() == Some(&b'*')
}

/// A digest of an array reply that does not depend on the order of its elements, taken `group`
/// at a time; for other replies, of the bytes.
fn unordered_digest(reply: &[u8], group: usize) -> u64 {
    if !is_array(reply) {
        return xxh3_64(reply);
    }
    let mut sum = 0u64;
    let mut rest = elements(reply);
    while let Some(first) = rest.next() {
        let seed = xxh3_64(first);
        let one = rest.by_ref().take(group - 1).fold(seed, |h, e| xxh3_64_with_seed(e, h));
        sum = sum.wrapping_add(one);
    }
    sum
}

#[cfg(test)]
mod tests;
