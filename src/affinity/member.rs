//! What this node holds, exactly, and how it changes: the member's side of a pool.
//!
//! The datastore tells which keys appear and go, shard by shard; told twice is told once. A shard
//! whose events were lost is listed anew and compared, so that only real differences leave. What
//! is kept is one 64-bit hash a key: enough to answer a shard that was emptied, and to tell
//! everything to a new publisher without reading the datastore.

use fnv::FnvHashSet;

use crate::ckf::hashing::SequenceHash;

/// One change of what a member holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Change {
    /// The member holds it now.
    Stored(SequenceHash),
    /// The member does not hold it any more.
    Removed(SequenceHash),
}

/// The keys of one member, shard by shard.
#[derive(Debug)]
pub struct MemberKeys {
    shards: Vec<FnvHashSet<u64>>,
    len: usize,
}

impl MemberKeys {
    /// Nothing, in `shards` shards.
    pub fn new(shards: usize) -> MemberKeys {
        MemberKeys { shards: vec![FnvHashSet::default(); shards], len: 0 }
    }

    /// Keys held.
    pub fn len(&self) -> usize {
        self.len
    }

    /// True when nothing is held.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// A key appeared.
    pub fn appeared(&mut self, shard: usize, hash: SequenceHash, out: &mut Vec<Change>) {
        if self.shards[shard].insert(hash.0) {
            self.len += 1;
            out.push(Change::Stored(hash));
        }
    }

    /// A key went.
    pub fn went(&mut self, shard: usize, hash: SequenceHash, out: &mut Vec<Change>) {
        if self.shards[shard].remove(&hash.0) {
            self.len -= 1;
            out.push(Change::Removed(hash));
        }
    }

    /// Every key of a shard went.
    pub fn cleared(&mut self, shard: usize, out: &mut Vec<Change>) {
        let gone = std::mem::take(&mut self.shards[shard]);
        self.len -= gone.len();
        let start = out.len();
        out.extend(gone.into_iter().map(|hash| Change::Removed(SequenceHash(hash))));
        sort(&mut out[start..]);
    }

    /// A shard was listed after its events were lost: `listed` is what it holds.
    pub fn reconcile(
        &mut self,
        shard: usize,
        listed: impl IntoIterator<Item = SequenceHash>,
        out: &mut Vec<Change>,
    ) {
        let listed: FnvHashSet<u64> = listed.into_iter().map(|hash| hash.0).collect();
        let held = &self.shards[shard];
        let start = out.len();
        let gone = held.difference(&listed).map(|hash| Change::Removed(SequenceHash(*hash)));
        out.extend(gone);
        sort(&mut out[start..]);
        let start = out.len();
        let new = listed.difference(held).map(|hash| Change::Stored(SequenceHash(*hash)));
        out.extend(new);
        sort(&mut out[start..]);
        self.len = self.len - held.len() + listed.len();
        self.shards[shard] = listed;
    }

    /// Everything held, for a publisher that knows nothing of this member.
    pub fn all(&self) -> impl Iterator<Item = SequenceHash> + '_ {
        self.shards.iter().flatten().map(|hash| SequenceHash(*hash))
    }
}

/// Sets have no order of their own; what leaves has.
fn sort(changes: &mut [Change]) {
    changes.sort_unstable_by_key(|change| match change {
        Change::Stored(hash) | Change::Removed(hash) => hash.0,
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    fn hash(n: u64) -> SequenceHash {
        SequenceHash(n)
    }

    #[test]
    fn only_differences_leave() {
        let mut member = MemberKeys::new(2);
        let mut out = Vec::new();
        member.appeared(0, hash(1), &mut out);
        member.appeared(0, hash(1), &mut out);
        member.appeared(1, hash(2), &mut out);
        member.went(0, hash(9), &mut out);
        assert_eq!(out, [Change::Stored(hash(1)), Change::Stored(hash(2))]);
        out.clear();
        member.reconcile(0, [hash(3), hash(4)], &mut out);
        assert_eq!(
            out,
            [Change::Removed(hash(1)), Change::Stored(hash(3)), Change::Stored(hash(4))]
        );
        out.clear();
        member.cleared(0, &mut out);
        assert_eq!(out, [Change::Removed(hash(3)), Change::Removed(hash(4))]);
        assert_eq!(member.all().collect::<Vec<_>>(), [hash(2)]);
        assert_eq!(member.len(), 1);
    }

    #[derive(Clone, Debug)]
    enum Step {
        Appeared(u64),
        Went(u64),
        Cleared(usize),
        Listed(usize, BTreeSet<u64>),
    }

    fn any_step() -> impl Strategy<Value = Step> {
        prop_oneof![
            4 => (0u64..30).prop_map(Step::Appeared),
            4 => (0u64..30).prop_map(Step::Went),
            1 => (0usize..3).prop_map(Step::Cleared),
            1 => (0usize..3, prop::collection::btree_set(0u64..10, 0..10))
                .prop_map(|(shard, keys)| {
                    (shard, keys.into_iter().map(|key| key * 3 + shard as u64).collect())
                })
                .prop_map(|(shard, keys)| Step::Listed(shard, keys)),
        ]
    }

    proptest! {
        #[test]
        fn the_changes_add_up_to_what_is_held(steps in prop::collection::vec(any_step(), 0..80)) {
            let mut member = MemberKeys::new(3);
            let mut told = BTreeSet::new();
            let mut held: BTreeSet<u64> = BTreeSet::new();
            for step in steps {
                let mut out = Vec::new();
                match step {
                    Step::Appeared(key) => {
                        member.appeared(key as usize % 3, hash(key), &mut out);
                        held.insert(key);
                    }
                    Step::Went(key) => {
                        member.went(key as usize % 3, hash(key), &mut out);
                        held.remove(&key);
                    }
                    Step::Cleared(shard) => {
                        member.cleared(shard, &mut out);
                        held.retain(|key| *key as usize % 3 != shard);
                    }
                    Step::Listed(shard, keys) => {
                        member.reconcile(shard, keys.iter().map(|key| hash(*key)), &mut out);
                        held.retain(|key| *key as usize % 3 != shard);
                        held.extend(keys);
                    }
                }
                for change in out {
                    match change {
                        Change::Stored(hash) => prop_assert!(told.insert(hash.0)),
                        Change::Removed(hash) => prop_assert!(told.remove(&hash.0)),
                    }
                }
                prop_assert_eq!(&told, &held);
                prop_assert_eq!(member.len(), held.len());
            }
            let all: BTreeSet<u64> = member.all().map(|hash| hash.0).collect();
            prop_assert_eq!(all, held);
        }
    }
}
