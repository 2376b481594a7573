//! Named edges: what a source calls a block, and the block. Found by name, and, as long as a hash
//! has few of them, by hash.
//!
//! A record lies in the [`Slab`]; two tables lead to it by its number, one from source and name,
//! one from the hash. A hash with many edges is only counted (see `ownership.rs`) and not listed
//! by hash. So a block of one owner takes its two names and eleven bytes.

use super::cells::{Cell, CellTable, Slot, TaggedCell};
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

/// An edge that was found by name, until the next change.
#[derive(Clone, Copy, Debug)]
pub(super) struct Named {
    pub(super) record: RecordIdx,
    name: Slot,
}

/// How an edge is listed by its hash, until the next change.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Listing {
    /// Where it is, if it is listed.
    pub(super) at: Option<Slot>,
    /// Other edges are listed by this hash.
    pub(super) has_siblings: bool,
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
        self.by_name.find_by(name_key(source, id.0), |_, record| {
            self.slab.prefetch(record);
            true
        });
    }

    /// The edge that a source calls so.
    #[inline]
    pub(super) fn find(&self, source: SourceIdx, id: ExternalId) -> Option<Named> {
        let mut found = 0;
        let name = self.by_name.find_by(name_key(source, id.0), |_, record| {
            found = record;
            self.slab.get(record).id == id.0 && self.slab.source_of(record) == source
        })?;
        Some(Named { record: found, name })
    }

    /// The hash of an edge.
    #[inline]
    pub(super) fn hash(&self, record: RecordIdx) -> SequenceHash {
        SequenceHash(self.slab.get(record).hash)
    }

    /// Edges listed by this hash.
    pub(super) fn listed(&self, hash: SequenceHash) -> u32 {
        let mut count = 0;
        self.by_hash.visit(hash.0, |_, record| count += u32::from(self.hash(record) == hash));
        count
    }

    /// How an edge is listed by its hash.
    #[inline]
    pub(super) fn listing(&self, record: RecordIdx) -> Listing {
        let (hash, mut listing) = (self.hash(record), Listing::default());
        self.by_hash.visit(hash.0, |at, other| {
            if other == record {
                listing.at = Some(at);
            } else {
                listing.has_siblings |= self.hash(other) == hash;
            }
        });
        listing
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
            |_, _, cell, slot| key_of_name(slab, cell, slot),
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

    /// Takes away an edge of the source whose pages these are, as it was found, from where it is
    /// listed.
    pub(super) fn remove(&mut self, pages: &mut Pages, found: Named, listed: Option<Slot>) {
        let source = self.slab.source_of(found.record);
        self.forget(found.name, listed);
        self.slab.remove(pages, found.record);
        let Some(page) = self.slab.begin_merge(pages, found.record) else { return };
        for before in self.slab.of_page(page) {
            let record = *self.slab.get(before);
            let after = self.slab.insert(source, pages, record);
            self.by_name.set_value(self.name_of(before), after);
            if let Some(listed) = self.listing(before).at {
                self.by_hash.set_value(listed, after);
            }
        }
        self.slab.drop_page(page);
    }

    /// Takes the edges of a hash out of the list by hash, and gives their number.
    pub(super) fn unlist(&mut self, hash: SequenceHash) -> u32 {
        let Names { slab, by_hash, .. } = self;
        let mut count = 0;
        let is = |_: Slot, record| slab.get(record).hash == hash.0;
        while let Some(at) = by_hash.find_by(hash.0, is) {
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
                for record in self.slab.of_page(page) {
                    if visit(self, record) {
                        self.forget(self.name_of(record), self.listing(record).at);
                        self.slab.remove(pages, record);
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

    /// Where an edge is found by name.
    fn name_of(&self, record: RecordIdx) -> Slot {
        let key = name_key(self.slab.source_of(record), self.slab.get(record).id);
        let name = self.by_name.find_by(key, |_, other| other == record);
        name.expect("every edge is found by name")
    }

    /// Takes an edge out of both tables.
    fn forget(&mut self, name: Slot, listed: Option<Slot>) {
        let Names { slab, by_name, by_hash } = self;
        by_name.remove_by(name, |_, _, cell, slot| key_of_name(slab, cell, slot));
        if let Some(listed) = listed {
            by_hash.remove_by(listed, |_, _, cell, slot| hash_of(slab, cell, slot));
        }
    }
}

fn name_key(source: SourceIdx, id: u64) -> u64 {
    id ^ u64::from(source).wrapping_mul(SOURCE_MIX)
}

fn key_of_name(slab: &Slab, cell: &TaggedCell, slot: usize) -> u64 {
    let at = cell.value(slot);
    name_key(slab.source_of(at), slab.get(at).id)
}

fn hash_of(slab: &Slab, cell: &TaggedCell, slot: usize) -> u64 {
    slab.get(cell.value(slot)).hash
}

#[cfg(test)]
mod tests;
