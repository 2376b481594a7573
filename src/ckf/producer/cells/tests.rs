use super::keyed::Unset;
use super::*;
use proptest::prelude::*;
use std::collections::HashMap;

impl Unset for u32 {
    const UNSET: u32 = 0;
}

impl Unset for u64 {
    const UNSET: u64 = 0;
}

type Numbers = CellTable<KeyedCell<u64, 4>>;

#[test]
fn mixing_can_be_undone() {
    let table: Numbers = CellTable::new(77, 0).unwrap();
    for key in [0, 1, u64::MAX, MIX, 1 << 63] {
        assert_eq!(table.unmix(table.mix(key)), key);
    }
}

#[test]
fn grows_and_shrinks_with_its_content() {
    let mut table: CellTable<KeyedCell<u32, 4>> = CellTable::new(9, 0).unwrap();
    let empty = table.bytes();
    for key in 0..100_000 {
        table.reserve(std::iter::once(key)).unwrap();
        table.insert(key, key as u32);
    }
    let full = table.bytes();
    assert!(full < 100_000 * 26, "{full} bytes");
    assert!((0..100_000).all(|key| table.get(key) == Some(key as u32)));
    assert_eq!(table.get(100_000), None);
    for key in 0..99_990 {
        table.remove(table.find(key).unwrap());
    }
    let left = table.bytes() - empty;
    assert!(left < (full - empty) / 50, "{left} bytes");
    assert_eq!(table.iter().count(), 10);
}

#[test]
fn what_is_expected_has_room_from_the_beginning() {
    const EXPECTED: u64 = 400_000;
    let mut table: CellTable<KeyedCell<[u8; 3], 6>> = CellTable::new(9, EXPECTED as usize).unwrap();
    assert!(table.bytes() < 20_000);
    table.reserve(std::iter::once(0)).unwrap();
    let before = table.bytes();
    assert!(before < EXPECTED as usize * 25 / 2, "{before} bytes");
    // No shard has so much more than its share that it would have to grow.
    for key in 0..EXPECTED {
        table.reserve(std::iter::once(key)).unwrap();
        table.insert(key, [1; 3]);
    }
    assert_eq!(table.bytes(), before);
    // Twice as much moves out of it, and the first piece is given back.
    for key in EXPECTED..2 * EXPECTED {
        table.reserve(std::iter::once(key)).unwrap();
        table.insert(key, [2; 3]);
    }
    assert!(table.base.is_empty());
    assert!(table.bytes() < 2 * EXPECTED as usize * 14, "{} bytes", table.bytes());
    assert!((0..2 * EXPECTED).all(|key| table.get(key).is_some()));
}

#[test]
fn room_that_was_asked_for_stays() {
    let mut table: CellTable<KeyedCell<[u8; 3], 6>> = CellTable::new(9, 10_000).unwrap();
    table.reserve(std::iter::once(0)).unwrap();
    let before = table.bytes();
    (0..9_000).for_each(|key| {
        table.reserve(std::iter::once(key)).unwrap();
        table.insert(key, [1; 3]);
    });
    let most = table.bytes();
    (0..9_000).for_each(|key| table.remove(table.find(key).unwrap()));
    assert!((before..=most).contains(&table.bytes()));
    assert!(!table.base.is_empty());
}

#[test]
fn keys_that_differ_only_where_cells_compare_last_are_told_apart() {
    let mut table: Numbers = CellTable::new(0, 0).unwrap();
    let mixed = |high: u64| (7 << KEPT_BITS | high << 32 | 5).wrapping_mul(keyed::UNMIX);
    let keys: Vec<u64> = (0..300).map(mixed).collect();
    table.reserve(keys.iter().copied()).unwrap();
    for (n, key) in keys.iter().enumerate().step_by(2) {
        table.insert(*key, n as u64);
    }
    for (n, key) in keys.iter().enumerate() {
        assert_eq!(table.get(*key), n.is_multiple_of(2).then_some(n as u64));
    }
}

#[test]
fn a_refused_reservation_changes_nothing() {
    for failing in 0..40 {
        let mut table: CellTable<KeyedCell<u32, 4>> = CellTable::new(0, 0).unwrap();
        table.reserve(0..4).unwrap();
        (0..4).for_each(|key| table.insert(key, 1));
        alloc::fail_at(failing);
        assert_eq!(table.reserve(10..100), Err(OutOfMemory));
        assert!(alloc::allow_all());
        assert!(table.shards.iter().all(|shard| shard.pending == 0));
        assert_eq!(table.iter().count(), 4);
        table.reserve(10..100).unwrap();
        (10..100).for_each(|key| table.insert(key, 2));
        assert_eq!(table.len(), 94);
    }
}

proptest! {
    /// Keys of two shards and few homes, so that cells overflow.
    #[test]
    fn behaves_like_a_map(
        seed: u64,
        steps in prop::collection::vec((any::<bool>(), 0u64..200), 0..600),
    ) {
        let mut table: Numbers = CellTable::new(seed, 0).unwrap();
        let mixed = |n: u64| (n % 2) << KEPT_BITS | (n / 8) << 48 | n;
        let name = |n: u64| mixed(n).wrapping_mul(keyed::UNMIX) ^ seed;
        let mut model = HashMap::new();
        for (step, (insert, n)) in steps.into_iter().enumerate() {
            let key = name(n);
            match (insert, table.find(key)) {
                (true, None) => {
                    table.reserve(std::iter::once(key)).unwrap();
                    table.insert(key, step as u64);
                    model.insert(key, step as u64);
                }
                (true, Some(at)) => {
                    table.set_value(at, step as u64);
                    model.insert(key, step as u64);
                }
                (false, Some(at)) => {
                    table.remove(at);
                    prop_assert!(model.remove(&key).is_some());
                }
                (false, None) => prop_assert!(!model.contains_key(&key)),
            }
            prop_assert_eq!(table.len(), model.len());
        }
        let found: HashMap<u64, u64> = table.iter().collect();
        prop_assert_eq!(&found, &model);
        table.retain(|key, value| (key % 3 == 0).then_some(value + 1));
        model.retain(|key, _| key % 3 == 0);
        model.values_mut().for_each(|value| *value += 1);
        prop_assert_eq!(table.len(), model.len());
        for key in (0..200).map(name) {
            prop_assert_eq!(table.get(key), model.get(&key).copied());
        }
    }
}
