//! Taking edges away, one by one or all of a source.

use fnv::FnvHashMap;

use super::{Hashes, Ownership, SourceIdx};
use crate::ckf::hashing::{ExternalId, SequenceHash};
use crate::ckf::producer::cells::Slot;
use crate::ckf::producer::filter::Filter;
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
    /// Takes away the edge that `source` knows as `id`. With its hash's last one goes the
    /// fingerprint, for whose removal `filter` must have room.
    pub(in crate::ckf::producer) fn take(
        &mut self,
        source: SourceIdx,
        id: ExternalId,
        filter: &mut Filter,
    ) -> Taken {
        let Some(found) = self.find_named(source, id) else {
            return self.take_inline(source, id, filter);
        };
        let hash = self.names.hash(found.record);
        let at = filter.address(hash);
        filter.prefetch(at);
        self.prefetch_hash(hash);
        let Ownership { hashes, names, sources, edges, unique, .. } = self;
        let standing = Standing::of(found.record, hashes, names);
        if standing.is_last() && filter.remove(at).is_err() {
            return Taken::Kept;
        }
        *unique -= usize::from(standing.is_last());
        standing.leave(hashes);
        let state = sources[source as usize].as_mut().expect("a live source");
        names.remove(&mut state.pages, found, standing.listed());
        *edges -= 1;
        Taken::Gone
    }

    /// The same of an edge that has no record.
    fn take_inline(&mut self, source: SourceIdx, id: ExternalId, filter: &mut Filter) -> Taken {
        let in_filter = filter.address(SequenceHash(id.0));
        filter.prefetch(in_filter);
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
            None if filter.remove(in_filter).is_ok() => {
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
    Listed { at: Slot, is_last: bool },
    /// Its hash is counted, here.
    Counted(Slot, Owners),
}

impl Standing {
    fn of(record: RecordIdx, hashes: &Hashes, names: &Names) -> Standing {
        let listing = names.listing(record);
        if let Some(at) = listing.at {
            return Standing::Listed { at, is_last: !listing.has_siblings };
        }
        let at = hashes.find(names.hash(record).0).expect("a hash is listed or counted");
        Standing::Counted(at, Owners::of_bytes(hashes.value(at)))
    }

    /// It is the only edge of its hash.
    fn is_last(self) -> bool {
        match self {
            Standing::Listed { is_last, .. } => is_last,
            Standing::Counted(_, owners) => owners.count() == 1,
        }
    }

    /// Where it is listed by its hash.
    fn listed(self) -> Option<Slot> {
        match self {
            Standing::Listed { at, .. } => Some(at),
            Standing::Counted(..) => None,
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
