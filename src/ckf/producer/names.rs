//! Named edges: what a source calls a block, and the block. Found by name, and, as long as a hash
//! has few of them, by hash.
//!
//! A record lies in the [`Slab`]; two tables lead to it by its number, one from source and name,
//! one from the hash. A hash with many edges is only counted (see `ownership.rs`) and not listed
//! by hash. So a block of one owner takes its two names and eleven bytes.

use super::cells::{Cell, CellTable, TaggedCell};
use super::ownership::SourceIdx;
use super::slab::{Pages, Record, RecordIdx, Slab};
use crate::ckf::alloc::OutOfMemory;
use crate::ckf::hashing::{ExternalId, SequenceHash};

/// Odd multiplier that keeps the names of two sources apart.
const SOURCE_MIX: u64 = 0xD6E8_FEB8_6659_FD93;

/// All named edges of one producer.
#[derive(Debug)]
pub(super) struct Names {
    slab: Slab,
    by_name: CellTable<TaggedCell>,
    by_hash: CellTable<TaggedCell>,
}

impl Names {
    /// Nothing, with room for about `expected` edges from the first one on.
    pub(super) fn new(seed: u64, expected: usize) -> Result<Names, OutOfMemory> {
        Ok(Names {
            slab: Slab::new(expected),
            by_name: CellTable::new(seed, expected)?,
            by_hash: CellTable::new(seed, expected)?,
        })
    }

    /// Bytes of the slab and both tables.
    pub(super) fn bytes(&self) -> usize {
        self.slab.bytes() + self.by_name.bytes() + self.by_hash.bytes()
    }

    /// Brings near where the name of an edge is found.
    #[inline]
    pub(super) fn prefetch_name(&self, source: SourceIdx, id: ExternalId) {
        self.by_name.prefetch(name_key(source, id.0));
    }

    /// Brings near where the hash of an edge is found.
    #[inline]
    pub(super) fn prefetch_hash(&self, hash: SequenceHash) {
        self.by_hash.prefetch(hash.0);
    }

    /// Brings near the record that is probably that of a name.
    #[inline]
    pub(super) fn prefetch_record(&self, source: SourceIdx, id: ExternalId) {
        if let Some(at) = self.by_name.find_by(name_key(source, id.0), |_| true) {
            self.slab.prefetch(self.by_name.value(at));
        }
    }

    /// The edge that a source calls so.
    #[inline]
    pub(super) fn find(&self, source: SourceIdx, id: ExternalId) -> Option<RecordIdx> {
        let is = |at| self.slab.get(at).id == id.0 && self.slab.source_of(at) == source;
        self.by_name.find_by(name_key(source, id.0), is).map(|at| self.by_name.value(at))
    }

    /// The hash of an edge.
    #[inline]
    pub(super) fn hash(&self, at: RecordIdx) -> SequenceHash {
        SequenceHash(self.slab.get(at).hash)
    }

    /// Edges listed by this hash.
    pub(super) fn listed(&self, hash: SequenceHash) -> u32 {
        let count = std::cell::Cell::new(0);
        self.by_hash.find_by(hash.0, |at| {
            count.set(count.get() + u32::from(self.slab.get(at).hash == hash.0));
            false
        });
        count.get()
    }

    /// Whether an edge is listed by its hash.
    #[inline]
    pub(super) fn is_listed(&self, at: RecordIdx) -> bool {
        self.by_hash.find_by(self.slab.get(at).hash, |other| other == at).is_some()
    }

    /// Whether other edges than this one are listed by its hash.
    #[inline]
    pub(super) fn has_listed_siblings(&self, at: RecordIdx) -> bool {
        let hash = self.slab.get(at).hash;
        let is = |other| other != at && self.slab.get(other).hash == hash;
        self.by_hash.find_by(hash, is).is_some()
    }

    /// Makes room for these edges, given by source, name and hash, of so many `sources` together.
    pub(super) fn reserve(
        &mut self,
        edges: impl Iterator<Item = (SourceIdx, ExternalId, SequenceHash)> + Clone,
        sources: usize,
    ) -> Result<(), OutOfMemory> {
        let Names { slab, by_name, by_hash } = self;
        slab.reserve(edges.clone().count(), sources)?;
        by_name.reserve_by(
            edges.clone().map(|(source, id, _)| name_key(source, id.0)),
            |_, _, cell, slot| name_of(slab, cell, slot),
        )?;
        by_hash.reserve_by(edges.map(|(_, _, hash)| hash.0), |_, _, cell, slot| {
            hash_of(slab, cell, slot)
        })
    }

    /// Adds an edge of `source`, whose pages these are. Room must have been reserved.
    pub(super) fn insert(
        &mut self,
        (source, pages): (SourceIdx, &mut Pages),
        (id, hash): (ExternalId, SequenceHash),
        is_listed: bool,
    ) {
        let at = self.slab.insert(source, pages, Record { id: id.0, hash: hash.0 });
        self.by_name.insert(name_key(source, id.0), at);
        if is_listed {
            self.by_hash.insert(hash.0, at);
        }
    }

    /// Takes away an edge of the source whose pages these are.
    pub(super) fn remove(&mut self, pages: &mut Pages, at: RecordIdx) {
        let source = self.slab.source_of(at);
        self.forget(at);
        self.slab.remove(pages, at);
        let Some(page) = self.slab.begin_merge(pages, at) else { return };
        for before in self.slab.of_page(page) {
            let record = *self.slab.get(before);
            let after = self.slab.insert(source, pages, record);
            let is = |at| at == before;
            let name = self.by_name.find_by(name_key(source, record.id), is);
            self.by_name.set_value(name.expect("every edge is found by name"), after);
            if let Some(listed) = self.by_hash.find_by(record.hash, is) {
                self.by_hash.set_value(listed, after);
            }
        }
        self.slab.drop_page(page);
    }

    /// Takes the edges of a hash out of the list by hash, and gives their number.
    pub(super) fn unlist(&mut self, hash: SequenceHash) -> u32 {
        let Names { slab, by_hash, .. } = self;
        let mut count = 0;
        while let Some(at) = by_hash.find_by(hash.0, |at| slab.get(at).hash == hash.0) {
            by_hash.remove_by(at, |_, _, cell, slot| hash_of(slab, cell, slot));
            count += 1;
        }
        count
    }

    /// Calls `visit` for every edge of the source whose pages these are; takes the edge away when
    /// it answers true.
    pub(super) fn clear(
        &mut self,
        pages: &mut Pages,
        mut visit: impl FnMut(&Names, RecordIdx) -> bool,
    ) {
        // Pages with room come first: those that get some join the ones that were seen.
        for mut next in self.slab.first_pages(pages) {
            while let Some(page) = next {
                next = self.slab.next_page(page);
                for at in self.slab.of_page(page) {
                    if visit(self, at) {
                        self.forget(at);
                        self.slab.remove(pages, at);
                    }
                }
            }
        }
    }

    /// All edges.
    pub(super) fn iter(&self) -> impl Iterator<Item = (SourceIdx, ExternalId, SequenceHash)> {
        let edge = |(source, record): (SourceIdx, &Record)| {
            (source, ExternalId(record.id), SequenceHash(record.hash))
        };
        self.slab.iter().map(edge)
    }

    /// Takes an edge out of both tables.
    fn forget(&mut self, at: RecordIdx) {
        let Names { slab, by_name, by_hash } = self;
        let (source, record) = (slab.source_of(at), *slab.get(at));
        let name = by_name.find_by(name_key(source, record.id), |other| other == at);
        let name = name.expect("every edge is found by name");
        by_name.remove_by(name, |_, _, cell, slot| name_of(slab, cell, slot));
        if let Some(listed) = by_hash.find_by(record.hash, |other| other == at) {
            by_hash.remove_by(listed, |_, _, cell, slot| hash_of(slab, cell, slot));
        }
    }
}

fn name_key(source: SourceIdx, id: u64) -> u64 {
    id ^ u64::from(source).wrapping_mul(SOURCE_MIX)
}

fn name_of(slab: &Slab, cell: &TaggedCell, slot: usize) -> u64 {
    let at = cell.value(slot);
    name_key(slab.source_of(at), slab.get(at).id)
}

fn hash_of(slab: &Slab, cell: &TaggedCell, slot: usize) -> u64 {
    slab.get(cell.value(slot)).hash
}

#[cfg(test)]
mod tests;
