//! Who holds what, exactly: the edges from sources to canonical hashes, and their count a hash.
//!
//! Two shapes of content meet here. A ring key names itself (external id = canonical hash), and
//! its few owners fit into the three bytes of its own table entry: such an edge is *inline*. An
//! engine's block has a name of its own, so its edge lies in the source's lineage table, and the
//! hash keeps only a count. A hash with edges of both kinds, more than three inline owners, or an
//! owner numbered too high, is turned to the counted form; its inline edges move to the lineages
//! of their sources. Either way the sum of edges is the count.
//!
//! Blocks omitted for want of room in the filter have no edge. Their names stay resolvable for
//! children (`omitted`), nothing else.

use fnv::FnvHashMap;

use super::cells::{CellTable, Slot};
use super::event::Source;
use super::owners::{OWNERS_MAX, OwnerBytes, Owners};
use super::sources::BySource;
use crate::ckf::addressing::Address;
use crate::ckf::alloc::{self, OutOfMemory};
use crate::ckf::hashing::{ExternalId, SequenceHash};

/// The owners of each hash.
type Hashes = CellTable<OwnerBytes, 6>;
/// A source, as long as it holds something.
pub(super) type SourceIdx = u32;

/// Why edges cannot be added. Nothing that can be seen has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unreserved {
    /// No memory.
    OutOfMemory,
    /// A hash would have more edges than can be counted.
    TooManyOwners,
}

impl From<OutOfMemory> for Unreserved {
    fn from(_: OutOfMemory) -> Unreserved {
        Unreserved::OutOfMemory
    }
}

/// What a source knows under a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Link {
    /// Nothing.
    Unknown,
    /// A block it owns.
    Owned(SequenceHash),
    /// A block that was omitted; it resolves, but is not owned.
    Omitted(SequenceHash),
}

/// An edge to be added.
#[derive(Clone, Copy, Debug)]
pub(super) struct Edge {
    /// What its source calls the block.
    pub(super) id: ExternalId,
    pub(super) hash: SequenceHash,
    /// Where the fingerprint of the hash belongs.
    pub(super) at: Address,
    /// The hash is known to have no edge.
    pub(super) is_first: bool,
}

/// What became of an edge that was to be taken away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Taken {
    /// It is gone.
    Gone,
    /// There is none; the name may have been an omitted block's, which is forgotten.
    Unknown,
    /// It was the last of its hash, which could not be released: nothing has changed.
    Kept,
}

/// All edges of one producer.
#[derive(Debug)]
pub(super) struct Ownership {
    hashes: Hashes,
    sources: Vec<Option<SourceState>>,
    by_name: BySource<SourceIdx>,
    free: Vec<SourceIdx>,
    edges: usize,
    table_seed: u64,
}

#[derive(Debug)]
struct SourceState {
    name: Source,
    /// External id to canonical hash.
    lineage: CellTable<u64, 4>,
    /// Edges that lie inline in the table of hashes.
    inline_edges: usize,
    omitted: FnvHashMap<ExternalId, SequenceHash>,
}

impl Ownership {
    /// Nothing, with room for `expected` hashes.
    pub(super) fn new(table_seed: u64, expected: usize) -> Result<Ownership, OutOfMemory> {
        Ok(Ownership {
            hashes: CellTable::with_room(table_seed, expected)?,
            sources: Vec::new(),
            by_name: BySource::default(),
            free: Vec::new(),
            edges: 0,
            table_seed,
        })
    }

    /// Edges of all sources.
    pub(super) fn edges(&self) -> usize {
        self.edges
    }

    /// Edges of one source.
    pub(super) fn edges_of(&self, source: SourceIdx) -> usize {
        self.source(source).edges()
    }

    /// Hashes with at least one edge.
    pub(super) fn unique(&self) -> usize {
        self.hashes.len()
    }

    /// Sources with at least one edge.
    pub(super) fn members(&self) -> usize {
        self.sources.iter().flatten().filter(|source| source.edges() > 0).count()
    }

    /// Bytes of all tables.
    pub(super) fn bytes(&self) -> usize {
        let lineages: usize =
            self.sources.iter().flatten().map(|source| source.lineage.bytes()).sum();
        self.hashes.bytes() + lineages
    }

    /// The edges of `hash`.
    pub(super) fn count(&self, hash: SequenceHash) -> u32 {
        self.owners(hash).map_or(0, Owners::count)
    }

    /// Brings the table entries of a block near.
    #[inline]
    pub(super) fn prefetch(&self, source: SourceIdx, id: ExternalId) {
        let source = self.source(source);
        if source.lineage.len() > 0 {
            source.lineage.prefetch(id.0);
        }
        if source.inline_edges > 0 {
            self.hashes.prefetch(id.0);
        }
    }

    /// The hash `id` stands for, if `source` has an edge of that name; else any.
    #[inline]
    pub(super) fn probable_hash(&self, source: SourceIdx, id: ExternalId) -> SequenceHash {
        let lineage = &self.source(source).lineage;
        let named = if lineage.len() > 0 { lineage.get(id.0) } else { None };
        SequenceHash(named.unwrap_or(id.0))
    }

    /// Brings the entry of a hash near.
    #[inline]
    pub(super) fn prefetch_hash(&self, hash: SequenceHash) {
        self.hashes.prefetch(hash.0);
    }

    /// The number of a source, if it holds something.
    pub(super) fn source_idx(&self, name: Source) -> Option<SourceIdx> {
        self.by_name.get(&name).copied()
    }

    /// The numbers of all ranks of a worker.
    pub(super) fn sources_of_worker(&self, worker_id: u64) -> Vec<SourceIdx> {
        let ranks = self.by_name.iter().filter(|(name, _)| name.worker_id == worker_id);
        let mut found: Vec<SourceIdx> = ranks.map(|(_, idx)| *idx).collect();
        found.sort_unstable();
        found
    }

    /// The number of a source, made if needed. Follow with [`Ownership::forget_if_empty`].
    pub(super) fn enter_source(&mut self, name: Source) -> Result<SourceIdx, OutOfMemory> {
        if let Some(idx) = self.source_idx(name) {
            return Ok(idx);
        }
        alloc::reserve_map(&mut self.by_name, 1)?;
        alloc::reserve(&mut self.sources, 1)?;
        // So that leaving never allocates.
        let sources = self.sources.len() + 1;
        alloc::reserve(&mut self.free, sources)?;
        let state = SourceState {
            name,
            lineage: CellTable::new(self.table_seed)?,
            inline_edges: 0,
            omitted: FnvHashMap::default(),
        };
        let idx = match self.free.pop() {
            Some(idx) => idx,
            None => {
                self.sources.push(None);
                (self.sources.len() - 1) as SourceIdx
            }
        };
        self.sources[idx as usize] = Some(state);
        self.by_name.insert(name, idx);
        Ok(idx)
    }

    /// Drops a source without edges and names.
    pub(super) fn forget_if_empty(&mut self, idx: SourceIdx) {
        let source = self.source(idx);
        if source.edges() == 0 && source.omitted.is_empty() {
            let name = source.name;
            self.sources[idx as usize] = None;
            self.by_name.remove(&name);
            self.free.push(idx);
        }
    }

    /// What `source` knows as `id`.
    pub(super) fn link(&self, source: SourceIdx, id: ExternalId) -> Link {
        let inline = || {
            let owners = self.owners(SequenceHash(id.0))?;
            owners.holds_inline(source).then_some(Link::Owned(SequenceHash(id.0)))
        };
        match self.named_link(source, id) {
            Link::Unknown if self.source(source).inline_edges > 0 => {
                inline().unwrap_or(Link::Unknown)
            }
            link => link,
        }
    }

    /// The same without edges that lie inline.
    pub(super) fn named_link(&self, source: SourceIdx, id: ExternalId) -> Link {
        let state = self.source(source);
        if state.lineage.len() > 0
            && let Some(canonical) = state.lineage.get(id.0)
        {
            return Link::Owned(SequenceHash(canonical));
        }
        if state.omitted.is_empty() {
            return Link::Unknown;
        }
        state.omitted.get(&id).map_or(Link::Unknown, |canonical| Link::Omitted(*canonical))
    }

    /// Makes room for these edges of `source`, so that adding them cannot fail. Hashes may change
    /// their form, which nothing outside can see.
    pub(super) fn reserve(&mut self, source: SourceIdx, edges: &[Edge]) -> Result<(), Unreserved> {
        self.hashes.reserve(edges.iter().map(|edge| edge.hash.0))?;
        let count_max = OWNERS_MAX - edges.len().min(OWNERS_MAX as usize) as u32;
        let mut all_inline = true;
        for &Edge { id, hash, is_first, .. } in edges {
            let known = if is_first { None } else { self.owners(hash) };
            match known {
                None => all_inline &= Owners::first(source, id, hash).is_inline(),
                Some(owners) if !owners.is_inline() => {
                    if owners.count() > count_max {
                        return Err(Unreserved::TooManyOwners);
                    }
                    all_inline = false;
                }
                Some(owners) if owners.with(source, id, hash).is_some() => {}
                Some(owners) => {
                    all_inline = false;
                    for owner in owners.sources() {
                        self.source_mut(owner).lineage.reserve(std::iter::once(hash.0))?;
                    }
                    self.spill(owners, hash);
                }
            }
        }
        if !all_inline {
            // All ids, because an alias later in the batch can push an inline edge into the
            // lineage.
            self.source_mut(source).lineage.reserve(edges.iter().map(|edge| edge.id.0))?;
        }
        Ok(())
    }

    /// Room for `more` omissions of `source`.
    pub(super) fn reserve_omissions(
        &mut self,
        source: SourceIdx,
        more: usize,
    ) -> Result<(), OutOfMemory> {
        alloc::reserve_map(&mut self.source_mut(source).omitted, more)
    }

    /// Adds an edge that is not there. Room must have been reserved. When it is the hash's first,
    /// `place` must find it a place in the filter; when there is none, nothing changes and the
    /// answer is false.
    pub(super) fn add(
        &mut self,
        source: SourceIdx,
        edge: &Edge,
        place: impl FnOnce() -> bool,
    ) -> bool {
        let &Edge { id, hash, is_first, .. } = edge;
        debug_assert!(!matches!(self.link(source, id), Link::Owned(_)));
        debug_assert!(!is_first || self.hashes.find(hash.0).is_none());
        let known = if is_first { None } else { self.hashes.find(hash.0) };
        let owners = match known {
            None => {
                if !place() {
                    return false;
                }
                let owners = Owners::first(source, id, hash);
                self.hashes.insert(hash.0, owners.to_bytes());
                owners
            }
            Some(at) => {
                let before = Owners::of_bytes(self.hashes.value(at));
                let owners = before.with(source, id, hash).unwrap_or_else(|| {
                    let counted = self.spill(before, hash);
                    Owners::counted(counted.count() + 1)
                });
                self.hashes.set_value(at, owners.to_bytes());
                owners
            }
        };
        let state = self.source_mut(source);
        if !state.omitted.is_empty() {
            state.omitted.remove(&id);
        }
        if owners.is_inline() {
            state.inline_edges += 1;
        } else {
            state.lineage.insert(id.0, hash.0);
        }
        self.edges += 1;
        true
    }

    /// Keeps the name of a block that could not be admitted. Room must have been reserved.
    pub(super) fn omit(&mut self, source: SourceIdx, id: ExternalId, hash: SequenceHash) {
        self.source_mut(source).omitted.insert(id, hash);
    }

    /// Takes away the edge that `source` knows as `id`. When it is its hash's last one, `release`
    /// is asked to take the fingerprint out of the filter first.
    pub(super) fn take(
        &mut self,
        source: SourceIdx,
        id: ExternalId,
        release: impl FnOnce(SequenceHash) -> bool,
    ) -> Taken {
        let Ownership { hashes, sources, edges, .. } = self;
        let state = sources[source as usize].as_mut().expect("a live source");
        let named = if state.lineage.len() > 0 { state.lineage.find(id.0) } else { None };
        let hash = SequenceHash(named.map_or(id.0, |at| state.lineage.value(at)));
        let owned =
            |at: &Slot| named.is_some() || Owners::of_bytes(hashes.value(*at)).holds_inline(source);
        let may_be = named.is_some() || state.inline_edges > 0;
        let found = if may_be { hashes.find(hash.0).filter(owned) } else { None };
        let Some(at) = found else {
            debug_assert!(named.is_none(), "an owned hash has an entry");
            state.omitted.remove(&id);
            return Taken::Unknown;
        };
        match Owners::of_bytes(hashes.value(at)).without(source) {
            Some(rest) => hashes.set_value(at, rest.to_bytes()),
            None if release(hash) => hashes.remove(at),
            None => return Taken::Kept,
        }
        match named {
            Some(at) => state.lineage.remove(at),
            None => state.inline_edges -= 1,
        }
        *edges -= 1;
        Taken::Gone
    }

    /// Calls `release` for every edge of `source` with its hash and whether it is that hash's
    /// last; takes the edge away when it answers true. Forgets the omitted names.
    pub(super) fn clear(
        &mut self,
        source: SourceIdx,
        mut release: impl FnMut(SequenceHash, bool) -> bool,
    ) {
        let Ownership { hashes, sources, edges, .. } = self;
        let state = sources[source as usize].as_mut().expect("a live source");
        state.omitted = FnvHashMap::default();
        state.lineage.retain(|_, canonical| {
            let hash = SequenceHash(canonical);
            let owners = hashes.get(canonical).map(Owners::of_bytes);
            let last = owners.is_some_and(|owners| owners.count() == 1);
            if !release(hash, last) {
                return Some(canonical);
            }
            drop_edge(hashes, source, hash);
            *edges -= 1;
            None
        });
        if state.inline_edges == 0 {
            return;
        }
        hashes.retain(|canonical, bytes| {
            let owners = Owners::of_bytes(bytes);
            if !owners.holds_inline(source) {
                return Some(bytes);
            }
            if !release(SequenceHash(canonical), owners.count() == 1) {
                return Some(bytes);
            }
            *edges -= 1;
            state.inline_edges -= 1;
            owners.without(source).map(Owners::to_bytes)
        });
    }

    /// All edges as (source, external id, canonical hash), in no useful order.
    pub(super) fn iter_edges(
        &self,
    ) -> impl Iterator<Item = (Source, ExternalId, SequenceHash)> + '_ {
        let named = self.sources.iter().flatten().flat_map(|source| {
            let edge = |(id, hash)| (source.name, ExternalId(id), SequenceHash(hash));
            source.lineage.iter().map(edge)
        });
        let inline = self.hashes.iter().flat_map(move |(hash, owners)| {
            Owners::of_bytes(owners)
                .sources()
                .map(move |idx| (self.source(idx).name, ExternalId(hash), SequenceHash(hash)))
        });
        named.chain(inline)
    }

    /// Names of omitted blocks as (source, external id, canonical hash).
    pub(super) fn iter_omitted(
        &self,
    ) -> impl Iterator<Item = (Source, ExternalId, SequenceHash)> + '_ {
        self.sources
            .iter()
            .flatten()
            .flat_map(|source| source.omitted.iter().map(|(id, hash)| (source.name, *id, *hash)))
    }

    /// All hashes with their counts, in no useful order.
    #[cfg(test)]
    pub(super) fn iter_counts(&self) -> impl Iterator<Item = (SequenceHash, u32)> + '_ {
        let count = |(hash, owners)| (SequenceHash(hash), Owners::of_bytes(owners).count());
        self.hashes.iter().map(count)
    }

    /// Moves the inline edges of `hash` to the lineages of their sources, where room must have
    /// been reserved. Gives the counted form, which is stored already.
    fn spill(&mut self, owners: Owners, hash: SequenceHash) -> Owners {
        for owner in owners.sources() {
            let state = self.source_mut(owner);
            state.inline_edges -= 1;
            state.lineage.insert(hash.0, hash.0);
        }
        let counted = Owners::counted(owners.count());
        if let Some(at) = self.hashes.find(hash.0) {
            self.hashes.set_value(at, counted.to_bytes());
        }
        counted
    }

    fn owners(&self, hash: SequenceHash) -> Option<Owners> {
        self.hashes.get(hash.0).map(Owners::of_bytes)
    }

    fn source(&self, idx: SourceIdx) -> &SourceState {
        self.sources[idx as usize].as_ref().expect("a live source")
    }

    fn source_mut(&mut self, idx: SourceIdx) -> &mut SourceState {
        self.sources[idx as usize].as_mut().expect("a live source")
    }
}

impl SourceState {
    fn edges(&self) -> usize {
        self.lineage.len() + self.inline_edges
    }
}

/// One edge less for `hash`; the hash goes with its last one.
fn drop_edge(hashes: &mut Hashes, source: SourceIdx, hash: SequenceHash) {
    let at = hashes.find(hash.0).expect("an owned hash has an entry");
    match Owners::of_bytes(hashes.value(at)).without(source) {
        Some(owners) => hashes.set_value(at, owners.to_bytes()),
        None => hashes.remove(at),
    }
}
