//! Taking edges away, one by one or all of a source.

use fnv::FnvHashMap;

use super::{Hashes, Ownership, SourceIdx};
use crate::ckf::hashing::{ExternalId, SequenceHash};
use crate::ckf::producer::cells::Slot;
use crate::ckf::producer::names::Names;
use crate::ckf::producer::owners::Owners;
use crate::ckf::producer::slab::RecordIdx;

/// What became of an edge that was to be taken away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::ckf::producer) enum Taken {
    /// It is gone.
    Gone,
    /// There is none; the name may have been an omitted block's, which is forgotten.
    Unknown,
    /// It was the last of its hash, which could not be released: nothing has changed.
    Kept,
}

impl Ownership {
    /// Takes away the edge that `source` knows as `id`. When it is its hash's last one, `release`
    /// is asked to take the fingerprint out of the filter first.
    pub(in crate::ckf::producer) fn take(
        &mut self,
        source: SourceIdx,
        id: ExternalId,
        release: impl FnOnce(SequenceHash) -> bool,
    ) -> Taken {
        let Some(named) = self.find_named(source, id) else {
            return self.take_inline(source, id, release);
        };
        let Ownership { hashes, names, sources, edges, unique, .. } = self;
        let hash = names.hash(named);
        let standing = Standing::of(named, hashes, names);
        if standing.is_last() && !release(hash) {
            return Taken::Kept;
        }
        *unique -= usize::from(standing.is_last());
        standing.leave(hashes);
        let state = sources[source as usize].as_mut().expect("a live source");
        names.remove(&mut state.pages, named);
        *edges -= 1;
        Taken::Gone
    }

    /// The same of an edge that has no record.
    fn take_inline(
        &mut self,
        source: SourceIdx,
        id: ExternalId,
        release: impl FnOnce(SequenceHash) -> bool,
    ) -> Taken {
        let Ownership { hashes, sources, edges, unique, .. } = self;
        let state = sources[source as usize].as_mut().expect("a live source");
        let owned = |at: &Slot| Owners::of_bytes(hashes.value(*at)).holds_inline(source);
        let found = if state.inline_edges > 0 { hashes.find(id.0).filter(owned) } else { None };
        let Some(at) = found else {
            state.omitted.remove(&id);
            return Taken::Unknown;
        };
        match Owners::of_bytes(hashes.value(at)).without(source) {
            Some(rest) => hashes.set_value(at, rest.to_bytes()),
            None if release(SequenceHash(id.0)) => {
                hashes.remove(at);
                *unique -= 1;
            }
            None => return Taken::Kept,
        }
        state.inline_edges -= 1;
        *edges -= 1;
        Taken::Gone
    }

    /// Calls `release` for every edge of `source` with its hash and whether it is that hash's
    /// last; takes the edge away when it answers true. Forgets the omitted names.
    pub(in crate::ckf::producer) fn clear(
        &mut self,
        source: SourceIdx,
        mut release: impl FnMut(SequenceHash, bool) -> bool,
    ) {
        let Ownership { hashes, names, sources, edges, unique, .. } = self;
        let state = sources[source as usize].as_mut().expect("a live source");
        state.omitted = FnvHashMap::default();
        names.clear(&mut state.pages, |names, named| {
            let standing = Standing::of(named, hashes, names);
            let goes = release(names.hash(named), standing.is_last());
            if goes {
                *unique -= usize::from(standing.is_last());
                standing.leave(hashes);
                *edges -= 1;
            }
            goes
        });
        if state.inline_edges == 0 {
            return;
        }
        hashes.retain(|canonical, bytes| {
            let owners = Owners::of_bytes(bytes);
            if !owners.holds_inline(source) {
                return Some(bytes);
            }
            let is_last = owners.count() == 1;
            if !release(SequenceHash(canonical), is_last) {
                return Some(bytes);
            }
            *unique -= usize::from(is_last);
            *edges -= 1;
            state.inline_edges -= 1;
            owners.without(source).map(Owners::to_bytes)
        });
    }
}

/// How a named edge takes part in the count of its hash.
#[derive(Clone, Copy)]
enum Standing {
    /// It is listed, alone or with others.
    Listed { is_last: bool },
    /// Its hash is counted, here.
    Counted(Slot, Owners),
}

impl Standing {
    fn of(named: RecordIdx, hashes: &Hashes, names: &Names) -> Standing {
        if names.is_listed(named) {
            return Standing::Listed { is_last: !names.has_listed_siblings(named) };
        }
        let at = hashes.find(names.hash(named).0).expect("a hash is listed or counted");
        Standing::Counted(at, Owners::of_bytes(hashes.value(at)))
    }

    /// It is the only edge of its hash.
    fn is_last(self) -> bool {
        match self {
            Standing::Listed { is_last } => is_last,
            Standing::Counted(_, owners) => owners.count() == 1,
        }
    }

    /// One edge less; a counted hash goes with its last one.
    fn leave(self, hashes: &mut Hashes) {
        if let Standing::Counted(at, owners) = self {
            match owners.without_counted() {
                Some(rest) => hashes.set_value(at, rest.to_bytes()),
                None => hashes.remove(at),
            }
        }
    }
}
