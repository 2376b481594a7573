//! Who holds what, exactly: the edges from sources to canonical hashes, and their count a hash.
//!
//! Two shapes of content meet here. A ring key names itself (external id = canonical hash), and
//! its few owners fit into the three bytes of its own table entry: such an edge is *inline*. An
//! engine's block has a name of its own, so its edge is a record among the names (`names.rs`),
//! listed by its hash as long as these are few. A hash with edges of both kinds, more than three
//! inline owners, many named ones, or an owner numbered too high, is turned to the counted form:
//! a number in the table of hashes, all edges named and not listed. In every form the sum of edges
//! is the count.
//!
//! Blocks omitted for want of room in the filter have no edge. Their names stay resolvable for
//! children (`omitted`), nothing else.

mod removal;

use fnv::FnvHashMap;

pub(super) use self::removal::Taken;
use super::cells::{CellTable, KeyedCell};
use super::event::Source;
use super::names::{Named, Names};
use super::owners::{OWNERS_MAX, OwnerBytes, Owners};
use super::slab::Pages;
use super::sources::BySource;
use crate::ckf::addressing::Address;
use crate::ckf::alloc::{self, OutOfMemory};
use crate::ckf::hashing::{ExternalId, SequenceHash};

/// The owners of hashes that are inline or counted.
type Hashes = CellTable<KeyedCell<OwnerBytes, 6>>;
/// A source, as long as it holds something.
pub(super) type SourceIdx = u32;

/// Edges of a hash that are listed one by one: beyond them they are counted.
const LISTED_MAX: u32 = 4;

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

/// All edges of one producer.
#[derive(Debug)]
pub(super) struct Ownership {
    hashes: Hashes,
    names: Names,
    sources: Vec<Option<SourceState>>,
    by_name: BySource<SourceIdx>,
    free: Vec<SourceIdx>,
    edges: usize,
    /// Hashes with at least one edge.
    unique: usize,
}

#[derive(Debug)]
struct SourceState {
    name: Source,
    /// Its named edges.
    pages: Pages,
    /// Edges that lie inline in the table of hashes.
    inline_edges: usize,
    omitted: FnvHashMap<ExternalId, SequenceHash>,
}

impl Ownership {
    /// Nothing, with room for `expected` hashes of either kind from the first one on.
    pub(super) fn new(table_seed: u64, expected: usize) -> Result<Ownership, OutOfMemory> {
        Ok(Ownership {
            hashes: CellTable::new(table_seed, expected)?,
            names: Names::new(table_seed, expected)?,
            sources: Vec::new(),
            by_name: BySource::default(),
            free: Vec::new(),
            edges: 0,
            unique: 0,
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
        self.unique
    }

    /// Sources with at least one edge.
    pub(super) fn members(&self) -> usize {
        self.sources.iter().flatten().filter(|source| source.edges() > 0).count()
    }

    /// Bytes of all tables.
    pub(super) fn bytes(&self) -> usize {
        self.hashes.bytes() + self.names.bytes()
    }

    /// The edges of `hash`.
    pub(super) fn count(&self, hash: SequenceHash) -> u32 {
        self.owners(hash).map_or_else(|| self.names.listed(hash), Owners::count)
    }

    /// Brings near what tells whether `source` has an edge of this name.
    #[inline]
    pub(super) fn prefetch_name(&self, source: SourceIdx, id: ExternalId) {
        let source_state = self.source(source);
        if source_state.pages.records() > 0 {
            self.names.prefetch_name(source, id);
        }
        if source_state.inline_edges > 0 {
            self.hashes.prefetch(id.0);
        }
    }

    /// Brings near what adding an edge will write.
    #[inline]
    pub(super) fn prefetch_edge(&self, source: SourceIdx, id: ExternalId, hash: SequenceHash) {
        let is_inline = Owners::may_be_inline(source, id, hash);
        if !is_inline || self.source(source).pages.records() > 0 {
            self.names.prefetch_name(source, id);
        }
        match is_inline {
            true => self.hashes.prefetch(hash.0),
            false => self.names.prefetch_hash(hash),
        }
    }

    /// Brings near the record of a name whose place is near already.
    #[inline]
    pub(super) fn prefetch_record(&self, source: SourceIdx, id: ExternalId) {
        if self.source(source).pages.records() > 0 {
            self.names.prefetch_record(source, id);
        }
    }

    /// Brings near what tells how many edges a hash has; gives the hash that `source` calls `id`,
    /// if it has an edge of that name, else any.
    #[inline]
    pub(super) fn prefetch_hash_of(&self, source: SourceIdx, id: ExternalId) -> SequenceHash {
        let Some(found) = self.find_named(source, id) else { return SequenceHash(id.0) };
        let hash = self.names.hash(found.record);
        self.prefetch_hash(hash);
        hash
    }

    #[inline]
    fn prefetch_hash(&self, hash: SequenceHash) {
        self.names.prefetch_hash(hash);
        if self.hashes.len() > 0 {
            self.hashes.prefetch(hash.0);
        }
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
            pages: Pages::new(),
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
        if let Some(found) = self.find_named(source, id) {
            return Link::Owned(self.names.hash(found.record));
        }
        let omitted = &self.source(source).omitted;
        if omitted.is_empty() {
            return Link::Unknown;
        }
        omitted.get(&id).map_or(Link::Unknown, |canonical| Link::Omitted(*canonical))
    }

    /// Makes room for these edges of `source`, so that adding them cannot fail. Hashes may change
    /// their form, which nothing outside can see.
    pub(super) fn reserve(&mut self, source: SourceIdx, edges: &[Edge]) -> Result<(), Unreserved> {
        let inline = edges.iter().filter(|edge| Owners::may_be_inline(source, edge.id, edge.hash));
        self.hashes.reserve(inline.clone().map(|edge| edge.hash.0))?;
        let mut all_inline = inline.count() == edges.len();
        for edge in edges.iter().filter(|edge| !edge.is_first) {
            all_inline &= self.make_ready(source, edge, edges.len())?;
        }
        if !all_inline {
            // All edges, because an alias later in the batch can push an inline edge out.
            let named = edges.iter().map(|edge| (source, edge.id, edge.hash));
            self.names.reserve(named, 1)?;
        }
        Ok(())
    }

    /// Gives the hash of an edge, one of `batch`, the form in which it can take the edge. True
    /// when the edge will be inline.
    fn make_ready(
        &mut self,
        source: SourceIdx,
        &Edge { id, hash, .. }: &Edge,
        batch: usize,
    ) -> Result<bool, Unreserved> {
        let Some(owners) = self.owners(hash) else {
            let listed = self.names.listed(hash);
            if listed >= LISTED_MAX {
                self.hashes.reserve(std::iter::once(hash.0))?;
                let counted = Owners::counted(self.names.unlist(hash));
                self.hashes.insert(hash.0, counted.to_bytes());
            }
            return Ok(listed == 0 && Owners::may_be_inline(source, id, hash));
        };
        if !owners.is_inline() {
            let count_max = OWNERS_MAX - batch.min(OWNERS_MAX as usize) as u32;
            return if owners.count() > count_max {
                Err(Unreserved::TooManyOwners)
            } else {
                Ok(false)
            };
        }
        if owners.with(source, id, hash).is_some() {
            return Ok(true);
        }
        let edge = |owner| (owner, ExternalId(hash.0), hash);
        self.names.reserve(owners.sources().map(edge), owners.count() as usize)?;
        self.spill(owners, hash);
        Ok(false)
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
        debug_assert!(!is_first || self.count(hash) == 0);
        let entry = if is_first { None } else { self.hashes.find(hash.0) };
        let is_listed = entry.is_none() && !is_first && self.names.listed(hash) > 0;
        let owners = match entry {
            Some(at) => {
                let before = Owners::of_bytes(self.hashes.value(at));
                let owners = before.with(source, id, hash).unwrap_or_else(|| {
                    let counted = self.spill(before, hash);
                    Owners::counted(counted.count() + 1)
                });
                self.hashes.set_value(at, owners.to_bytes());
                Some(owners)
            }
            None if is_listed => None,
            None => {
                if !place() {
                    return false;
                }
                self.unique += 1;
                let owners = Owners::may_be_inline(source, id, hash)
                    .then(|| Owners::first(source, id, hash));
                if let Some(owners) = owners {
                    self.hashes.insert(hash.0, owners.to_bytes());
                }
                owners
            }
        };
        let Ownership { sources, names, .. } = self;
        let state = sources[source as usize].as_mut().expect("a live source");
        if !state.omitted.is_empty() {
            state.omitted.remove(&id);
        }
        match owners {
            Some(owners) if owners.is_inline() => state.inline_edges += 1,
            counted => names.insert((source, &mut state.pages), (id, hash), counted.is_none()),
        }
        self.edges += 1;
        true
    }

    /// Keeps the name of a block that could not be admitted. Room must have been reserved.
    pub(super) fn omit(&mut self, source: SourceIdx, id: ExternalId, hash: SequenceHash) {
        self.source_mut(source).omitted.insert(id, hash);
    }

    /// All edges as (source, external id, canonical hash), in no useful order.
    pub(super) fn iter_edges(
        &self,
    ) -> impl Iterator<Item = (Source, ExternalId, SequenceHash)> + '_ {
        let named = self.names.iter().map(|(idx, id, hash)| (self.source(idx).name, id, hash));
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
        let hashes: std::collections::BTreeSet<u64> =
            self.iter_edges().map(|(_, _, hash)| hash.0).collect();
        hashes.into_iter().map(|hash| (SequenceHash(hash), self.count(SequenceHash(hash))))
    }

    /// Moves the inline edges of `hash` to the names, where room must have been reserved. Gives
    /// the counted form, which is stored already.
    fn spill(&mut self, owners: Owners, hash: SequenceHash) -> Owners {
        let Ownership { hashes, names, sources, .. } = self;
        for owner in owners.sources() {
            let state = sources[owner as usize].as_mut().expect("a live source");
            state.inline_edges -= 1;
            names.insert((owner, &mut state.pages), (ExternalId(hash.0), hash), false);
        }
        let counted = Owners::counted(owners.count());
        if let Some(at) = hashes.find(hash.0) {
            hashes.set_value(at, counted.to_bytes());
        }
        counted
    }

    fn find_named(&self, source: SourceIdx, id: ExternalId) -> Option<Named> {
        let has_names = self.source(source).pages.records() > 0;
        if has_names { self.names.find(source, id) } else { None }
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
        self.pages.records() + self.inline_edges
    }
}
