//! Quorums, for both planes: of the replicas of one set, and of all the sets a request needs.
//!
//! A set is what holds one copy plan: the racks of a datacenter for a key, the owners of a shard
//! in one replica group of documents. A majority of a set decides for it. A request needs one of
//! its sets ([`Rule::Any`]) or all of them ([`Rule::Every`]):
//!
//! | request | sets | rule |
//! | --- | --- | --- |
//! | DC_ONE | own rack, then the next | any, of one replica each |
//! | DC_QUORUM, DC_SAFE_QUORUM | the local datacenter | every |
//! | DC_EACH_SAFE_QUORUM | every datacenter | every |
//! | documents, for each touched shard | every replica group | any |
//! | documents, as a whole | every touched shard | every |

use super::consistency::quorum;

/// How far a vote is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// What is still awaited may decide it.
    Pending,
    /// Enough replicas did it.
    Met,
    /// Too few can still do it.
    Lost,
}

/// The votes of one set of replicas.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Votes {
    replicas: usize,
    good: usize,
    pending: usize,
}

impl Votes {
    /// A vote of `replicas`, of which `asked` could be asked.
    pub fn new(replicas: usize, asked: usize) -> Votes {
        Votes { replicas, good: 0, pending: asked }
    }

    /// A vote that is over: `good` of `replicas` did it.
    pub fn counted(replicas: usize, good: usize) -> Votes {
        Votes { replicas, good, pending: 0 }
    }

    /// Counts the answer of one replica that was asked.
    pub fn count(&mut self, good: bool) {
        debug_assert!(self.pending > 0, "more answers than questions");
        self.pending -= 1;
        self.good += usize::from(good);
    }

    /// Replicas that did it.
    pub fn good(&self) -> usize {
        self.good
    }

    /// Votes that decide.
    pub fn need(&self) -> usize {
        quorum(self.replicas)
    }

    /// Replicas that have not answered.
    pub fn pending(&self) -> usize {
        self.pending
    }

    /// How far it is.
    pub fn outcome(&self) -> Outcome {
        match self.need() {
            need if self.good >= need => Outcome::Met,
            need if self.good + self.pending < need => Outcome::Lost,
            _ => Outcome::Pending,
        }
    }
}

/// How many of a request's sets must have met their quorum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// One is enough.
    Any,
    /// All of them.
    Every,
}

impl Rule {
    /// The outcome of a request over the outcomes of its sets.
    pub fn outcome(self, sets: impl IntoIterator<Item = Outcome>) -> Outcome {
        let (decides, otherwise) = match self {
            Rule::Any => (Outcome::Met, Outcome::Lost),
            Rule::Every => (Outcome::Lost, Outcome::Met),
        };
        let mut outcome = otherwise;
        for set in sets {
            if set == decides {
                return decides;
            }
            if set == Outcome::Pending {
                outcome = Outcome::Pending;
            }
        }
        outcome
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_is_decided_as_early_as_it_can_be() {
        let (met, lost, pending) = (Outcome::Met, Outcome::Lost, Outcome::Pending);
        for (replicas, asked, answers, expected) in [
            (1, 1, "", pending),
            (1, 1, "+", met),
            (1, 1, "-", lost),
            (1, 0, "", lost),
            (2, 2, "+", pending),
            (2, 2, "++", met),
            (2, 2, "-", lost),
            (2, 1, "", lost),
            (3, 3, "+-", pending),
            (3, 3, "+-+", met),
            (3, 3, "++", met),
            (3, 2, "+", pending),
            (3, 2, "-", lost),
            (5, 5, "++--", pending),
            (5, 5, "---", lost),
        ] {
            let mut votes = Votes::new(replicas, asked);
            answers.chars().for_each(|answer| votes.count(answer == '+'));
            assert_eq!(votes.outcome(), expected, "{replicas} {asked} {answers}");
        }
        assert_eq!([1, 2, 3, 4, 5].map(|rf| Votes::new(rf, rf).need()), [1, 2, 2, 3, 3]);
        assert_eq!(Votes::counted(3, 1).outcome(), lost);
        assert_eq!(Votes::counted(3, 2).outcome(), met);
    }

    #[test]
    fn a_request_is_decided_by_one_set_or_by_all() {
        use Outcome::{Lost, Met, Pending};
        for (sets, any, every) in [
            (vec![], Lost, Met),
            (vec![Met], Met, Met),
            (vec![Met, Lost], Met, Lost),
            (vec![Pending, Lost], Pending, Lost),
            (vec![Pending, Met], Met, Pending),
            (vec![Lost, Lost], Lost, Lost),
        ] {
            assert_eq!(Rule::Any.outcome(sets.clone()), any, "{sets:?}");
            assert_eq!(Rule::Every.outcome(sets.clone()), every, "{sets:?}");
        }
    }
}
