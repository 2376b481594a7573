//! What this node holds, exactly, and how it changes: the member's side of a pool.
//!
//! The datastore tells which keys appear and go, shard by shard; told twice is told once. A shard
//! whose events were lost is listed anew and compared, so that only real differences leave. What
//! is kept is one 64-bit hash a key: enough to answer a shard that was emptied, and to tell
//! everything to a new publisher without reading the datastore.
//!
//! A shard that cannot be listed at once is listed page by page, while it changes. What appears
//! and goes meanwhile is told as ever, in its place between the pages; a key that neither was in a
//! page nor appeared is gone at the end.

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
    listing: Option<Listing>,
}

/// A shard that is being listed. What was found is held too.
#[derive(Debug)]
struct Listing {
    shard: usize,
    found: FnvHashSet<u64>,
}

impl MemberKeys {
    /// Nothing, in `shards` shards.
    pub fn new(shards: usize) -> MemberKeys {
        MemberKeys { shards: vec![FnvHashSet::default(); shards], len: 0, listing: None }
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
        if let Some(found) = self.found_in(shard) {
            found.insert(hash.0);
        }
        if self.shards[shard].insert(hash.0) {
            self.len += 1;
            out.push(Change::Stored(hash));
        }
    }

    /// A key went.
    pub fn went(&mut self, shard: usize, hash: SequenceHash, out: &mut Vec<Change>) {
        if let Some(found) = self.found_in(shard) {
            found.remove(&hash.0);
        }
        if self.shards[shard].remove(&hash.0) {
            self.len -= 1;
            out.push(Change::Removed(hash));
        }
    }

    /// Every key of a shard went.
    pub fn cleared(&mut self, shard: usize, out: &mut Vec<Change>) {
        if let Some(found) = self.found_in(shard) {
            found.clear();
        }
        let gone = std::mem::take(&mut self.shards[shard]);
        self.len -= gone.len();
        let start = out.len();
        out.extend(gone.into_iter().map(|hash| Change::Removed(SequenceHash(hash))));
        sort(&mut out[start..]);
    }

    /// A shard is listed page by page from here on; each key of a page is told as one that
    /// [`MemberKeys::appeared`]. A listing that was under way is forgotten.
    pub fn begin_listing(&mut self, shard: usize) {
        self.listing = Some(Listing { shard, found: FnvHashSet::default() });
    }

    /// The listing that is under way, if any, missed something: it is forgotten.
    pub fn forget_listing(&mut self) {
        self.listing = None;
    }

    /// The last page was told: what was not found went. False when no listing was under way.
    pub fn end_listing(&mut self, out: &mut Vec<Change>) -> bool {
        let Some(Listing { shard, found }) = self.listing.take() else { return false };
        let held = &mut self.shards[shard];
        // What was found is held: as many means the same.
        if found.len() < held.len() {
            let start = out.len();
            out.extend(held.difference(&found).map(|hash| Change::Removed(SequenceHash(*hash))));
            sort(&mut out[start..]);
            self.len -= held.len() - found.len();
            *held = found;
        }
        true
    }

    fn found_in(&mut self, shard: usize) -> Option<&mut FnvHashSet<u64>> {
        self.listing.as_mut().filter(|listing| listing.shard == shard).map(|it| &mut it.found)
    }

    /// A shard was listed at once after its events were lost: `listed` is what it holds.
    pub fn reconcile(
        &mut self,
        shard: usize,
        listed: impl IntoIterator<Item = SequenceHash>,
        out: &mut Vec<Change>,
    ) {
        let listed: FnvHashSet<u64> = listed.into_iter().map(|hash| hash.0).collect();
        self.forget_listing();
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

        /// Of some changes of the store nothing is told. A listing in pages, between which the
        /// store goes on changing, mends all that were before it.
        #[test]
        fn a_listing_mends_what_was_missed(
            before in prop::collection::vec((0u64..30, any::<bool>(), any::<bool>()), 0..40),
            during in prop::collection::vec((0u64..30, any::<bool>()), 30),
        ) {
            let (mut member, mut told) = (MemberKeys::new(1), BTreeSet::new());
            let mut store: BTreeSet<u64> = BTreeSet::new();
            let mut out = Vec::new();
            let change = |store: &mut BTreeSet<u64>, (key, adds): (u64, bool)| match adds {
                true => store.insert(key),
                false => store.remove(&key),
            };
            let tell = |member: &mut MemberKeys, (key, adds), out: &mut Vec<Change>| match adds {
                true => member.appeared(0, hash(key), out),
                false => member.went(0, hash(key), out),
            };
            for (key, adds, silent) in before {
                change(&mut store, (key, adds));
                if !silent {
                    tell(&mut member, (key, adds), &mut out);
                }
            }
            prop_assert!(!member.end_listing(&mut out), "none was begun");
            member.begin_listing(0);
            for (at, event) in during.into_iter().enumerate() {
                if store.contains(&(at as u64)) {
                    member.appeared(0, hash(at as u64), &mut out);
                }
                change(&mut store, event);
                tell(&mut member, event, &mut out);
            }
            prop_assert!(member.end_listing(&mut out) && !member.end_listing(&mut out));
            for change in out {
                match change {
                    Change::Stored(hash) => prop_assert!(told.insert(hash.0)),
                    Change::Removed(hash) => prop_assert!(told.remove(&hash.0)),
                }
            }
            prop_assert_eq!(member.len(), store.len());
            prop_assert_eq!(told, store);
        }
    }
}
