//! A sorted set: scores by member, and members in order.

use super::blob::Blob;
use super::dict::{Dict, Entry};
use super::score_tree::{ScoreTree, Scored};

/// Members with scores.
#[derive(Clone, Debug, Default)]
pub(super) struct ZSet {
    scores: Dict<f64>,
    order: ScoreTree,
    member_bytes: usize,
}

impl ZSet {
    pub(super) fn len(&self) -> usize {
        self.scores.len()
    }

    pub(super) fn score(&self, member: &[u8]) -> Option<f64> {
        self.scores.get(member).copied()
    }

    /// Sets a member's score; true when the member is new. Zero has no sign here, as in the small
    /// sets of Redis.
    pub(super) fn set(&mut self, member: &[u8], score: f64) -> bool {
        let score = score + 0.0;
        let at = self.scores.find(member);
        if let Some(at) = at {
            let old = self.scores.at(at).value;
            if old == score {
                return false;
            }
            self.order.remove(old, member);
            *self.scores.at_mut(at) = score;
        }
        let blob = Blob::new(member);
        if at.is_none() {
            self.member_bytes += blob.heap_bytes();
            self.scores.push(blob.clone(), score);
        }
        self.order.insert(Scored { score, member: blob });
        at.is_none()
    }

    /// Removes a member and returns its score.
    pub(super) fn remove(&mut self, member: &[u8]) -> Option<f64> {
        let at = self.scores.find(member)?;
        let removed = self.scores.remove_at(at);
        self.member_bytes -= removed.key.heap_bytes();
        self.order.remove(removed.value, member);
        Some(removed.value)
    }

    /// Position of a member in rising order.
    pub(super) fn rank(&self, member: &[u8]) -> Option<usize> {
        Some(self.order.rank(self.score(member)?, member))
    }

    /// The order, for ranges and walks.
    pub(super) fn order(&self) -> &ScoreTree {
        &self.order
    }

    /// The members of `count` ranks from `start` on, copied so that they can be removed.
    pub(super) fn slice(&self, start: usize, count: usize, reverse: bool) -> Vec<Scored> {
        let mut items = Vec::with_capacity(count.min(self.len()));
        self.order.walk(start, count, reverse, |item| {
            items.push(item.clone());
            true
        });
        items
    }

    /// Member and score at a position that has nothing to do with the order; positions are dense,
    /// so a random one is a fair pick.
    pub(super) fn at(&self, at: usize) -> &Entry<f64> {
        self.scores.at(at)
    }

    /// All members in no particular order.
    pub(super) fn iter(&self) -> impl ExactSizeIterator<Item = &Entry<f64>> {
        self.scores.iter()
    }

    /// One step of a scan, as [`Dict::scan`].
    pub(super) fn scan(&self, cursor: usize, count: usize, f: impl FnMut(&Entry<f64>)) -> usize {
        self.scores.scan(cursor, count, f)
    }

    pub(super) fn heap_bytes(&self) -> usize {
        self.scores.heap_bytes() + self.member_bytes + self.len() * size_of::<Scored>()
    }
}
