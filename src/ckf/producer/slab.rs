//! Where the named edges lie: pages of 64 records, each page one source's.
//!
//! What a source stores together lies together, so an event of many blocks touches few cache
//! lines, and a source that is cleared is read page by page. Records stay where they are, with one
//! exception: pages that were emptied almost wholly are merged, so that a source's memory follows
//! what it holds.

use super::ownership::SourceIdx;
use crate::ckf::alloc::{self, OutOfMemory};
use crate::ckf::simd;

/// Records of a page: one bit each of a word.
pub(super) const PAGE: usize = u64::BITS as usize;
/// Pages that are made together at least, when there is no room left.
const STEP_MIN: usize = 16;
/// Pages with so few records are merged into others while less than half of all is used.
const SPARSE: u32 = PAGE as u32 / 4;
/// No page.
const NONE: u32 = u32::MAX;

/// Which record: page number and place in the page.
pub(super) type RecordIdx = u32;

/// What a source calls a block, and the block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Record {
    pub(super) id: u64,
    pub(super) hash: u64,
}

/// The pages of one source: a list of those with room and one of those without, and how much they
/// hold.
#[derive(Debug)]
pub(super) struct Pages {
    open: u32,
    full: u32,
    count: u32,
    records: u32,
}

/// All pages.
#[derive(Debug)]
pub(super) struct Slab {
    records: Vec<[Record; PAGE]>,
    heads: Vec<Head>,
    /// The list of pages without a source.
    free: u32,
    free_count: usize,
    /// Pages to be made the first time.
    due: usize,
}

#[derive(Clone, Copy, Debug)]
struct Head {
    /// Records in use, one bit each.
    used: u64,
    source: SourceIdx,
    /// Neighbours in the list of a source's open or full pages, or of free ones.
    next: u32,
    previous: u32,
}

impl Pages {
    /// None.
    pub(super) fn new() -> Pages {
        Pages { open: NONE, full: NONE, count: 0, records: 0 }
    }

    /// Records of the source.
    pub(super) fn records(&self) -> usize {
        self.records as usize
    }
}

impl Slab {
    /// Nothing, with room for about `expected` records from the first one on.
    pub(super) fn new(expected: usize) -> Slab {
        let due = expected.div_ceil(PAGE) + STEP_MIN;
        Slab { records: Vec::new(), heads: Vec::new(), free: NONE, free_count: 0, due }
    }

    /// Bytes of all pages.
    pub(super) fn bytes(&self) -> usize {
        self.records.capacity() * size_of::<[Record; PAGE]>()
            + self.heads.capacity() * size_of::<Head>()
    }

    /// Room for `more` records of so many `sources` together.
    pub(super) fn reserve(&mut self, more: usize, sources: usize) -> Result<(), OutOfMemory> {
        let missing = (more.div_ceil(PAGE) + sources - 1).saturating_sub(self.free_count);
        if self.records.capacity().min(self.heads.capacity()) - self.records.len() >= missing {
            return Ok(());
        }
        let pages = self.records.len();
        let step = missing.max(pages / 8).max(STEP_MIN).max(self.due);
        if pages + step > (NONE as usize) / PAGE {
            return Err(OutOfMemory);
        }
        alloc::reserve_exact(&mut self.heads, step)?;
        alloc::reserve_exact(&mut self.records, step)?;
        simd::advise_huge_pages(&mut self.records);
        self.due = 0;
        Ok(())
    }

    /// A record.
    #[inline]
    pub(super) fn get(&self, at: RecordIdx) -> &Record {
        &self.records[at as usize / PAGE][at as usize % PAGE]
    }

    /// Whose record it is.
    #[inline]
    pub(super) fn source_of(&self, at: RecordIdx) -> SourceIdx {
        self.heads[at as usize / PAGE].source
    }

    /// Brings a record near.
    #[inline]
    pub(super) fn prefetch(&self, at: RecordIdx) {
        simd::prefetch(self.get(at));
    }

    /// Adds a record of `source`, whose pages these are. Room must have been reserved.
    pub(super) fn insert(
        &mut self,
        source: SourceIdx,
        pages: &mut Pages,
        record: Record,
    ) -> RecordIdx {
        if pages.open == NONE {
            let page = self.take_page(source);
            self.link(page, &mut pages.open);
            pages.count += 1;
        }
        let page = pages.open;
        let head = &mut self.heads[page as usize];
        let place = head.used.trailing_ones();
        head.used |= 1 << place;
        if head.used == u64::MAX {
            self.unlink(page, &mut pages.open);
            self.link(page, &mut pages.full);
        }
        pages.records += 1;
        self.records[page as usize][place as usize] = record;
        page * PAGE as u32 + place
    }

    /// Takes a record away.
    pub(super) fn remove(&mut self, pages: &mut Pages, at: RecordIdx) {
        let (page, place) = (at / PAGE as u32, at % PAGE as u32);
        if self.heads[page as usize].used == u64::MAX {
            self.unlink(page, &mut pages.full);
            self.link(page, &mut pages.open);
        }
        let head = &mut self.heads[page as usize];
        head.used &= !(1 << place);
        pages.records -= 1;
        if head.used == 0 {
            self.unlink(page, &mut pages.open);
            pages.count -= 1;
            self.give_page(page);
        }
    }

    /// Takes the page of `at` out of its source's pages if merging it into the others is due. Its
    /// records must then be inserted anew; [`Slab::drop_page`] ends it. They all find room without
    /// another page: the others are less than half full.
    pub(super) fn begin_merge(&mut self, pages: &mut Pages, at: RecordIdx) -> Option<u32> {
        let page = at / PAGE as u32;
        let used = self.heads[page as usize].used.count_ones();
        let is_due = (1..=SPARSE).contains(&used)
            && pages.count > 1
            && (pages.records as usize) < pages.count as usize * PAGE / 2;
        if !is_due {
            return None;
        }
        self.unlink(page, &mut pages.open);
        pages.count -= 1;
        pages.records -= used;
        Some(page)
    }

    /// Gives back a page whose records were inserted elsewhere.
    pub(super) fn drop_page(&mut self, page: u32) {
        self.heads[page as usize].used = 0;
        self.give_page(page);
    }

    /// The records of a page.
    pub(super) fn of_page(&self, page: u32) -> impl Iterator<Item = RecordIdx> + use<> {
        let used = self.heads[page as usize].used;
        (0..PAGE as u32)
            .filter(move |place| used & 1 << place != 0)
            .map(move |place| page * PAGE as u32 + place)
    }

    /// The first of a source's pages with room, and of those without.
    pub(super) fn first_pages(&self, pages: &Pages) -> [Option<u32>; 2] {
        [pages.open, pages.full].map(|page| (page != NONE).then_some(page))
    }

    /// The page after one of these.
    pub(super) fn next_page(&self, page: u32) -> Option<u32> {
        let next = self.heads[page as usize].next;
        (next != NONE).then_some(next)
    }

    /// All records with their sources.
    pub(super) fn iter(&self) -> impl Iterator<Item = (SourceIdx, &Record)> {
        (0..self.heads.len() as u32)
            .flat_map(|page| self.of_page(page))
            .map(|at| (self.source_of(at), self.get(at)))
    }

    /// Pages that belong to a source.
    #[cfg(test)]
    pub(super) fn pages_in_use(&self) -> usize {
        self.heads.len() - self.free_count
    }

    fn take_page(&mut self, source: SourceIdx) -> u32 {
        let head = Head { used: 0, source, next: NONE, previous: NONE };
        if self.free == NONE {
            debug_assert!(self.records.len() < self.records.capacity(), "room was reserved");
            self.records.push([Record { id: 0, hash: 0 }; PAGE]);
            self.heads.push(head);
            return (self.heads.len() - 1) as u32;
        }
        let page = self.free;
        self.free = self.heads[page as usize].next;
        self.free_count -= 1;
        self.heads[page as usize] = head;
        page
    }

    fn give_page(&mut self, page: u32) {
        self.heads[page as usize].next = self.free;
        self.free = page;
        self.free_count += 1;
    }

    fn link(&mut self, page: u32, first: &mut u32) {
        let head = &mut self.heads[page as usize];
        (head.next, head.previous) = (*first, NONE);
        if *first != NONE {
            self.heads[*first as usize].previous = page;
        }
        *first = page;
    }

    fn unlink(&mut self, page: u32, first: &mut u32) {
        let Head { next, previous, .. } = self.heads[page as usize];
        match previous {
            NONE => *first = next,
            previous => self.heads[previous as usize].next = next,
        }
        if next != NONE {
            self.heads[next as usize].previous = previous;
        }
    }
}
