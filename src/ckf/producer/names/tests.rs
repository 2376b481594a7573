use super::*;
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};

/// Names with the pages of their sources, and a map beside them.
struct Scene {
    names: Names,
    pages: BTreeMap<SourceIdx, Pages>,
    model: BTreeMap<(SourceIdx, u64), u64>,
}

impl Scene {
    fn new(expected: usize) -> Scene {
        let names = Names::new(5, expected).unwrap();
        Scene { names, pages: BTreeMap::new(), model: BTreeMap::new() }
    }

    fn of(&mut self, source: SourceIdx) -> (&mut Names, &mut Pages) {
        (&mut self.names, self.pages.entry(source).or_insert_with(Pages::new))
    }

    fn insert(&mut self, source: SourceIdx, id: u64, hash: u64) {
        if self.model.insert((source, id), hash).is_none() {
            let (id, hash) = (ExternalId(id), SequenceHash(hash));
            let (names, pages) = self.of(source);
            names.reserve(std::iter::once((source, id, hash)), 1).unwrap();
            names.insert((source, pages), (id, hash), true);
        } else {
            let found = self.names.find(source, ExternalId(id)).unwrap();
            self.model.insert((source, id), self.names.hash(found.record).0);
        }
    }

    fn remove(&mut self, source: SourceIdx, id: u64) {
        let found = self.names.find(source, ExternalId(id));
        let hash = found.map(|found| self.names.hash(found.record).0);
        assert_eq!(hash, self.model.remove(&(source, id)));
        if let Some(found) = found {
            let (names, pages) = self.of(source);
            let listing = names.listing(found.record);
            names.remove(pages, found, listing.at);
        }
    }

    /// Takes away the edges of a source whose names are not multiples of `kept`.
    fn clear(&mut self, source: SourceIdx, kept: u64) {
        let (names, pages) = self.of(source);
        names.clear(pages, |names, at| !names.slab.get(at).id.is_multiple_of(kept));
        self.model.retain(|(owner, id), _| *owner != source || id.is_multiple_of(kept));
    }

    fn check(&self) {
        let all: BTreeSet<(SourceIdx, u64, u64)> =
            self.names.iter().map(|(source, id, hash)| (source, id.0, hash.0)).collect();
        let expected: BTreeSet<(SourceIdx, u64, u64)> =
            self.model.iter().map(|((source, id), hash)| (*source, *id, *hash)).collect();
        assert_eq!(all, expected);
        for (&(source, id), &hash) in &self.model {
            let found = self.names.find(source, ExternalId(id)).expect("found by name");
            assert_eq!(self.names.hash(found.record), SequenceHash(hash));
            let alike = self.model.values().filter(|other| **other == hash).count();
            assert_eq!(self.names.listed(SequenceHash(hash)) as usize, alike);
            let listing = self.names.listing(found.record);
            assert!(listing.at.is_some() && listing.has_siblings == (alike > 1));
        }
        for (source, pages) in &self.pages {
            let records = self.model.keys().filter(|(owner, _)| owner == source).count();
            assert_eq!(pages.records(), records);
        }
    }
}

proptest! {
    #[test]
    fn edges_are_found_by_name_and_by_hash(
        steps in prop::collection::vec((0u32..3, 0u64..600, 0u64..300, 0u32..40), 0..2000),
    ) {
        let mut scene = Scene::new(0);
        let count = steps.len();
        for (step, (source, id, hash, act)) in steps.into_iter().enumerate() {
            match act {
                0 => scene.clear(source, 2 + hash % 3),
                // First more comes than goes, then more goes.
                _ if (act < 30) == (step < count / 2) => scene.insert(source, id, hash),
                _ => scene.remove(source, id),
            }
        }
        scene.check();
    }
}

#[test]
fn a_block_of_one_owner_takes_its_names_and_a_dozen_bytes() {
    const EDGES: u64 = 400_000;
    let mut scene = Scene::new(EDGES as usize);
    let random = |n: u64| (n + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(17);
    (0..EDGES).for_each(|n| scene.insert(0, random(n), random(n + EDGES)));
    let bytes = scene.names.bytes() as f64 / EDGES as f64;
    assert!((16.0..29.0).contains(&bytes), "{bytes} bytes");
    // Twice as much outgrows what was expected.
    (EDGES..2 * EDGES).for_each(|n| scene.insert(1, random(n), random(n + EDGES)));
    let bytes = scene.names.bytes() as f64 / (2 * EDGES) as f64;
    assert!((16.0..32.0).contains(&bytes), "{bytes} bytes");
    assert_eq!(scene.names.iter().count(), 2 * EDGES as usize);
}

#[test]
fn pages_that_are_almost_empty_are_merged() {
    const EDGES: u64 = 64 * 100;
    let mut scene = Scene::new(0);
    (0..EDGES).for_each(|n| scene.insert(1, n, n));
    assert_eq!(scene.names.slab.pages_in_use(), 100);
    // All but every sixteenth, in an order that empties all pages alike.
    for offset in 1..16 {
        (0..EDGES / 16).for_each(|n| scene.remove(1, n * 16 + offset));
    }
    scene.check();
    assert_eq!(scene.pages[&1].records(), 400);
    assert!(scene.names.slab.pages_in_use() <= 25, "{}", scene.names.slab.pages_in_use());
    // What became free serves other sources.
    let before = scene.names.slab.bytes();
    (0..64 * 70).for_each(|n| scene.insert(2, n, n));
    assert_eq!(scene.names.slab.bytes(), before);
    scene.clear(2, u64::MAX);
    (0..EDGES).for_each(|n| scene.remove(1, n));
    scene.check();
}

#[test]
fn one_name_of_many_sources_is_each_ones_own() {
    // So many that some share a cell and a tag.
    let mut scene = Scene::new(0);
    (0..1500).for_each(|source| scene.insert(source, 7, u64::from(source)));
    (0..1500).step_by(2).for_each(|source| scene.remove(source, 7));
    scene.check();
    assert!((0..1500).step_by(2).all(|source| scene.names.find(source, ExternalId(7)).is_none()));
}

#[test]
fn room_for_several_sources_is_a_page_for_each() {
    let mut scene = Scene::new(0);
    for group in 0..40 {
        let edge = |source| (source, ExternalId(1), SequenceHash(1));
        scene.names.reserve((group * 3..).map(edge).take(3), 3).unwrap();
        let before = scene.names.bytes();
        for source in group * 3..group * 3 + 3 {
            let (names, pages) = scene.of(source);
            names.insert((source, pages), (ExternalId(1), SequenceHash(1)), false);
        }
        assert_eq!(scene.names.bytes(), before);
    }
}

#[test]
fn a_refused_reservation_adds_nothing() {
    for failing in 0..3 {
        let mut scene = Scene::new(0);
        let edges = || (0..200).map(|n| (0, ExternalId(n), SequenceHash(n)));
        crate::ckf::alloc::fail_at(failing);
        assert_eq!(scene.names.reserve(edges(), 1), Err(OutOfMemory));
        assert!(crate::ckf::alloc::allow_all());
        scene.check();
        (0..200).for_each(|n| scene.insert(0, n, n));
        scene.check();
    }
}
