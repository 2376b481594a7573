//! The order of a sorted set: a counted B+ tree over (score, member).
//!
//! Every inner node knows how many items lie below each child, so a rank is found, and an item at
//! a rank reached, in logarithmic time; ranges are walked leaf by leaf. A small set is one leaf:
//! a plain sorted vector.

use std::cmp::Ordering;

use super::blob::Blob;

/// Most items of a leaf.
const LEAF_MAX: usize = 64;

/// Most children of an inner node.
const INNER_MAX: usize = 32;

/// A member at its place.
#[derive(Clone, Debug)]
pub(super) struct Scored {
    pub(super) score: f64,
    pub(super) member: Blob,
}

impl Scored {
    /// Order of the set: by score, then by the member's bytes. Scores are never NaN.
    pub(super) fn cmp_to(&self, score: f64, member: &[u8]) -> Ordering {
        let by_score = self.score.partial_cmp(&score).unwrap_or(Ordering::Equal);
        by_score.then_with(|| self.member.as_slice().cmp(member))
    }
}

#[derive(Clone, Debug)]
enum Node {
    Leaf(Vec<Scored>),
    Inner(Vec<Child>),
}

/// A subtree and the number of items in it, which is never 0.
#[derive(Clone, Debug)]
struct Child {
    count: usize,
    node: Node,
}

/// Items in order. Scores and members are unique together; the caller sees to it.
#[derive(Clone, Debug)]
pub(super) struct ScoreTree {
    root: Node,
    len: usize,
}

impl Default for ScoreTree {
    fn default() -> ScoreTree {
        ScoreTree { root: Node::Leaf(Vec::new()), len: 0 }
    }
}

impl ScoreTree {
    /// Adds an item that is not there.
    pub(super) fn insert(&mut self, item: Scored) {
        self.len += 1;
        if let Some(right) = self.root.insert(item) {
            let left = std::mem::replace(&mut self.root, Node::Inner(Vec::new()));
            self.root = Node::Inner(vec![Child::new(left), right]);
        }
    }

    /// Takes an item out; false when it is not there.
    pub(super) fn remove(&mut self, score: f64, member: &[u8]) -> bool {
        if !self.root.remove(score, member) {
            return false;
        }
        self.len -= 1;
        while let Node::Inner(children) = &mut self.root {
            match children.len() {
                0 => self.root = Node::Leaf(Vec::new()),
                1 => self.root = children.remove(0).node,
                _ => break,
            }
        }
        true
    }

    /// How many leading items satisfy `before`, which must be true for a prefix only.
    pub(super) fn count_before(&self, before: impl Fn(&Scored) -> bool) -> usize {
        let mut node = &self.root;
        let mut skipped = 0;
        loop {
            match node {
                Node::Leaf(items) => return skipped + items.partition_point(&before),
                Node::Inner(children) => {
                    let at = children.partition_point(|c| before(c.node.first()));
                    let at = at.saturating_sub(1);
                    skipped += children[..at].iter().map(|c| c.count).sum::<usize>();
                    node = &children[at].node;
                }
            }
        }
    }

    /// Position of an item that is there.
    pub(super) fn rank(&self, score: f64, member: &[u8]) -> usize {
        self.count_before(|item| item.cmp_to(score, member) == Ordering::Less)
    }

    /// Calls `f` for `count` items from rank `start` on; backwards when `reverse` is set, with
    /// `start` then counted from the end. Ends early when `f` returns false.
    pub(super) fn walk<'a>(
        &'a self,
        start: usize,
        count: usize,
        reverse: bool,
        mut f: impl FnMut(&'a Scored) -> bool,
    ) {
        let mut done = 0;
        let count = count.min(self.len.saturating_sub(start));
        while done < count {
            let at = start + done;
            let rank = if reverse { self.len - 1 - at } else { at };
            let (leaf, offset) = self.leaf_of(rank);
            let (before, from) = leaf.split_at(offset);
            let left = count - done;
            let (taken, go_on) = match reverse {
                false => feed(from.iter().take(left), &mut f),
                true => feed(from[..1].iter().chain(before.iter().rev()).take(left), &mut f),
            };
            if !go_on {
                return;
            }
            done += taken;
        }
    }

    /// The leaf that holds the item at `rank`, and its place there.
    fn leaf_of(&self, mut rank: usize) -> (&[Scored], usize) {
        let mut node = &self.root;
        loop {
            match node {
                Node::Leaf(items) => return (items, rank),
                Node::Inner(children) => {
                    let mut at = 0;
                    while rank >= children[at].count {
                        rank -= children[at].count;
                        at += 1;
                    }
                    node = &children[at].node;
                }
            }
        }
    }
}

fn feed<'a>(
    items: impl Iterator<Item = &'a Scored>,
    f: &mut impl FnMut(&'a Scored) -> bool,
) -> (usize, bool) {
    let mut taken = 0;
    for item in items {
        taken += 1;
        if !f(item) {
            return (taken, false);
        }
    }
    (taken, true)
}

impl Child {
    fn new(node: Node) -> Child {
        Child { count: node.count(), node }
    }
}

impl Node {
    fn count(&self) -> usize {
        match self {
            Node::Leaf(items) => items.len(),
            Node::Inner(children) => children.iter().map(|c| c.count).sum(),
        }
    }

    /// Children or items right here.
    fn width(&self) -> usize {
        match self {
            Node::Leaf(items) => items.len(),
            Node::Inner(children) => children.len(),
        }
    }

    fn first(&self) -> &Scored {
        let mut node = self;
        loop {
            match node {
                Node::Leaf(items) => return &items[0],
                Node::Inner(children) => node = &children[0].node,
            }
        }
    }

    /// Adds an item below; returns the new right sibling when this node was split.
    fn insert(&mut self, item: Scored) -> Option<Child> {
        match self {
            Node::Leaf(items) => {
                let member = item.member.as_slice();
                let at = items.partition_point(|i| i.cmp_to(item.score, member).is_lt());
                items.insert(at, item);
                (items.len() > LEAF_MAX)
                    .then(|| Child::new(Node::Leaf(items.split_off(split_at(at, LEAF_MAX)))))
            }
            Node::Inner(children) => {
                let at = child_of(children, item.score, item.member.as_slice());
                children[at].count += 1;
                let right = children[at].node.insert(item)?;
                children[at].count -= right.count;
                children.insert(at + 1, right);
                (children.len() > INNER_MAX)
                    .then(|| Child::new(Node::Inner(children.split_off(split_at(at, INNER_MAX)))))
            }
        }
    }

    fn remove(&mut self, score: f64, member: &[u8]) -> bool {
        match self {
            Node::Leaf(items) => {
                let at = items.partition_point(|i| i.cmp_to(score, member).is_lt());
                let found = items.get(at).is_some_and(|i| i.cmp_to(score, member).is_eq());
                if found {
                    items.remove(at);
                }
                found
            }
            Node::Inner(children) => {
                let at = child_of(children, score, member);
                if !children[at].node.remove(score, member) {
                    return false;
                }
                children[at].count -= 1;
                match children[at].count {
                    0 => drop(children.remove(at)),
                    _ => merge_if_thin(children, at),
                }
                true
            }
        }
    }

    /// Appends the content of the right sibling, which has the same height.
    fn absorb(&mut self, right: Node) {
        match (self, right) {
            (Node::Leaf(items), Node::Leaf(more)) => items.extend(more),
            (Node::Inner(children), Node::Inner(more)) => children.extend(more),
            (Node::Leaf(_), Node::Inner(_)) | (Node::Inner(_), Node::Leaf(_)) => {
                unreachable!("siblings have one height")
            }
        }
    }
}

/// Where to split a full node: in the middle, or near the end when it grows at its end.
fn split_at(inserted: usize, max: usize) -> usize {
    if inserted + 1 >= max { max - 1 } else { max / 2 }
}

/// The child below which an item belongs.
fn child_of(children: &[Child], score: f64, member: &[u8]) -> usize {
    let not_after = |c: &Child| c.node.first().cmp_to(score, member).is_le();
    children.partition_point(not_after).saturating_sub(1)
}

/// Joins child `at` with a neighbour when it is thin and both fit well into one node.
fn merge_if_thin(children: &mut Vec<Child>, at: usize) {
    let max = match children[at].node {
        Node::Leaf(_) => LEAF_MAX,
        Node::Inner(_) => INNER_MAX,
    };
    if children[at].node.width() >= max / 4 || children.len() < 2 {
        return;
    }
    let left = if at + 1 < children.len() { at } else { at - 1 };
    if children[left].node.width() + children[left + 1].node.width() <= max * 3 / 4 {
        let right = children.remove(left + 1);
        children[left].count += right.count;
        children[left].node.absorb(right.node);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(node: &Node) -> usize {
        match node {
            Node::Leaf(items) => items.len(),
            Node::Inner(children) => {
                let counts: Vec<usize> = children.iter().map(|c| check(&c.node)).collect();
                for (child, &count) in children.iter().zip(&counts) {
                    assert!(child.count == count && count > 0);
                }
                counts.iter().sum()
            }
        }
    }

    fn items(tree: &ScoreTree, start: usize, count: usize, reverse: bool) -> Vec<(f64, Vec<u8>)> {
        let mut all = Vec::new();
        tree.walk(start, count, reverse, |i| {
            all.push((i.score, i.member.as_slice().to_vec()));
            true
        });
        all
    }

    #[test]
    fn agrees_with_a_sorted_vector_over_random_changes() {
        let mut rng = fastrand::Rng::with_seed(3);
        let mut tree = ScoreTree::default();
        let mut model: Vec<(f64, Vec<u8>)> = Vec::new();
        let order = |a: &(f64, Vec<u8>), b: &(f64, Vec<u8>)| {
            a.0.partial_cmp(&b.0).unwrap().then(a.1.cmp(&b.1))
        };
        for step in 0..30_000 {
            let grow = step % 15_000 < 9_000;
            if rng.u8(..10) < if grow { 7 } else { 2 } {
                let item = (f64::from(rng.u8(..50)), rng.u16(..).to_string().into_bytes());
                if let Err(at) = model.binary_search_by(|m| order(m, &item)) {
                    tree.insert(Scored { score: item.0, member: Blob::new(&item.1) });
                    model.insert(at, item);
                }
            } else if !model.is_empty() {
                let at = rng.usize(..model.len());
                assert_eq!(tree.rank(model[at].0, &model[at].1), at);
                let (score, member) = model.remove(at);
                assert!(tree.remove(score, &member));
                assert!(!tree.remove(score, &member));
            }
            assert_eq!(tree.len, model.len());
            if step % 500 == 0 {
                assert_eq!(check(&tree.root), model.len());
                let (start, count) = (rng.usize(..300), rng.usize(..300));
                let want: Vec<_> = model.iter().skip(start).take(count).cloned().collect();
                assert_eq!(items(&tree, start, count, false), want);
                let want: Vec<_> = model.iter().rev().skip(start).take(count).cloned().collect();
                assert_eq!(items(&tree, start, count, true), want);
            }
        }
    }

    #[test]
    fn rising_scores_fill_the_leaves() {
        let mut tree = ScoreTree::default();
        for n in 0..10_000 {
            tree.insert(Scored { score: f64::from(n), member: Blob::from_int(i64::from(n)) });
        }
        fn leaves(node: &Node) -> usize {
            match node {
                Node::Leaf(_) => 1,
                Node::Inner(children) => children.iter().map(|c| leaves(&c.node)).sum(),
            }
        }
        assert!(leaves(&tree.root) <= 10_000 / LEAF_MAX + 5);
        assert_eq!(tree.count_before(|i| i.score < 5_000.0), 5_000);
    }
}
