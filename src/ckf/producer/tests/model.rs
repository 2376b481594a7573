//! Random events against a slow obvious model: maps and nothing else.

use super::*;
use std::ops::Range;

/// What one source knows: name to (hash, owned).
type Names = BTreeMap<u64, (u64, bool)>;

#[derive(Default)]
struct Model {
    names: BTreeMap<Source, Names>,
    unknown_removals: u64,
    omissions: u64,
}

impl Model {
    fn count(&self, hash: u64) -> usize {
        let edges = self.names.values().flat_map(BTreeMap::values);
        edges.filter(|(held, owned)| *owned && *held == hash).count()
    }

    /// Applies a store, see [`Model::store_resolved`].
    fn store(
        &mut self,
        who: Source,
        parent: Option<u64>,
        blocks: &[(u64, u64)],
        omitted: impl Fn(u64) -> bool,
    ) -> Option<EventError> {
        if blocks.is_empty() {
            return None;
        }
        let mut previous = match parent {
            None => None,
            Some(id) => match self.names.get(&who).and_then(|names| names.get(&id)) {
                Some((hash, _)) => Some(SequenceHash(*hash)),
                None => return Some(EventError::ParentBlockNotFound),
            },
        };
        let chain = blocks.iter().map(|&(id, tokens)| {
            let hash = SequenceHash::after(previous, BlockHash(tokens));
            previous = Some(hash);
            (id, hash.0)
        });
        self.store_resolved(who, &chain.collect::<Vec<_>>(), omitted)
    }

    /// Applies a store of blocks whose hashes are known. Which are omitted is taken from the state
    /// under test: the filter alone knows where there is a place.
    fn store_resolved(
        &mut self,
        who: Source,
        blocks: &[(u64, u64)],
        omitted: impl Fn(u64) -> bool,
    ) -> Option<EventError> {
        let mut after = self.names.get(&who).cloned().unwrap_or_default();
        let mut wanted: Vec<(u64, u64)> = Vec::new();
        for &(id, hash) in blocks {
            match after.get(&id) {
                Some((held, _)) if *held != hash => {
                    return Some(EventError::InvalidBlockSequence);
                }
                Some((_, true)) => {}
                Some((_, false)) | None => {
                    if !wanted.contains(&(id, hash)) {
                        wanted.push((id, hash));
                    }
                    after.entry(id).or_insert((hash, false));
                }
            }
        }
        let mut error = None;
        for (id, hash) in wanted {
            let place = self.count(hash) > 0 || !omitted(hash);
            self.names.entry(who).or_default().insert(id, (hash, place));
            if !place {
                self.omissions += 1;
                error = Some(EventError::CapacityExhausted);
            }
        }
        error
    }

    fn remove(&mut self, who: Source, id: u64) {
        let gone = self.names.get_mut(&who).and_then(|names| names.remove(&id));
        if !gone.is_some_and(|(_, owned)| owned) {
            self.unknown_removals += 1;
        }
    }

    fn edges(&self) -> Vec<(Source, ExternalId, SequenceHash)> {
        let mut edges = Vec::new();
        for (who, names) in &self.names {
            for (id, (hash, owned)) in names {
                if *owned {
                    edges.push((*who, ExternalId(*id), SequenceHash(*hash)));
                }
            }
        }
        edges
    }
}

#[derive(Clone, Debug)]
enum Step {
    Store { who: Source, parent: Option<u64>, blocks: Vec<(u64, u64)> },
    Appear { who: Source, keys: Vec<u64> },
    Resolve { who: Source, blocks: Vec<(u64, u64)> },
    Remove { who: Source, ids: Vec<u64> },
    Clear { who: Source },
    RemoveWorker(u64),
    Replace { who: Source, hashes: Vec<u64> },
}

fn any_source() -> impl Strategy<Value = Source> {
    (0u64..4, 0u32..2).prop_map(|(worker, rank)| source(worker, rank))
}

/// Names from a small range, and `hashes` of blocks.
fn any_step(hashes: Range<u64>) -> impl Strategy<Value = Step> {
    let small = 0u64..24;
    let blocks = prop::collection::vec((small.clone(), hashes), 0..4);
    let key = small.clone().prop_map(|hash| vec![(hash, hash)]);
    let keys = prop::collection::vec(small.clone(), 0..5);
    // Names that are no hashes, others that are, and one block under several names.
    let resolved = prop::collection::vec((small.clone(), small.clone()), 0..4);
    prop_oneof![
        4 => (any_source(), prop::option::weighted(0.4, small.clone()), blocks)
            .prop_map(|(who, parent, blocks)| Step::Store { who, parent, blocks }),
        4 => (any_source(), key)
            .prop_map(|(who, blocks)| Step::Store { who, parent: None, blocks }),
        2 => (any_source(), keys).prop_map(|(who, keys)| Step::Appear { who, keys }),
        2 => (any_source(), resolved).prop_map(|(who, blocks)| Step::Resolve { who, blocks }),
        4 => (any_source(), prop::collection::vec(small.clone(), 0..5))
            .prop_map(|(who, ids)| Step::Remove { who, ids }),
        1 => any_source().prop_map(|who| Step::Clear { who }),
        1 => (0u64..4).prop_map(Step::RemoveWorker),
        1 => (any_source(), prop::collection::vec(small, 0..6))
            .prop_map(|(who, hashes)| Step::Replace { who, hashes }),
    ]
}

/// Now names equal hashes here and there, now few hashes have many names.
fn any_steps() -> impl Strategy<Value = Vec<Step>> {
    prop_oneof![Just(0..24), Just(100..103)]
        .prop_flat_map(|hashes| prop::collection::vec(any_step(hashes), 1..60))
}

fn run(step: &Step, state: &mut DcCkfState, model: &mut Model, images: &mut Vec<BucketImage>) {
    let omitted = |state: &DcCkfState, hash| state.owner_count(SequenceHash(hash)) == 0;
    match step {
        Step::Store { who, parent, blocks } => {
            let applied = state.apply(&stored(*who, *parent, blocks), images);
            let expected = model.store(*who, *parent, blocks, |hash| omitted(state, hash));
            assert_eq!(applied.first_error, expected);
        }
        Step::Appear { who, keys } => {
            let data = EventData::Appeared(keys.iter().copied().map(SequenceHash).collect());
            let applied = state.apply(&RouterEvent::device(*who, data), images);
            let blocks: Vec<(u64, u64)> = keys.iter().map(|key| (*key, *key)).collect();
            let expected = model.store_resolved(*who, &blocks, |hash| omitted(state, hash));
            assert_eq!(applied.first_error, expected);
        }
        Step::Resolve { who, blocks } => {
            let pairs = blocks.iter().map(|(id, hash)| (ExternalId(*id), SequenceHash(*hash)));
            let data = EventData::Resolved(pairs.collect());
            let applied = state.apply(&RouterEvent::device(*who, data), images);
            let expected = model.store_resolved(*who, blocks, |hash| omitted(state, hash));
            assert_eq!(applied.first_error, expected);
        }
        Step::Remove { who, ids } => {
            let applied =
                state.apply(&RouterEvent::removed_keys(*who, ids.iter().copied()), images);
            assert_eq!(applied.first_error, None);
            ids.iter().for_each(|id| model.remove(*who, *id));
        }
        Step::Clear { who } => {
            state.apply(&RouterEvent::device(*who, EventData::Cleared), images);
            model.names.remove(who);
        }
        Step::RemoveWorker(worker) => {
            state.remove_worker(*worker, images);
            model.names.retain(|who, _| who.worker_id != *worker);
        }
        Step::Replace { who, hashes } => {
            let listing: Vec<RouterEvent> =
                hashes.iter().map(|hash| RouterEvent::stored_key(*who, *hash)).collect();
            state.replace_ranks(&[*who], &listing, images).unwrap();
            model.names.remove(who);
            // A roomy filter places everything; the tight one is not run with replacements.
            for hash in hashes {
                model.store(*who, None, &[(*hash, *hash)], |_| false);
            }
        }
    }
}

fn compare(state: &DcCkfState, model: &Model) {
    let mut edges: Vec<_> = state.ownership.iter_edges().collect();
    edges.sort_unstable();
    assert_eq!(edges, model.edges());

    let mut counts: BTreeMap<u64, u32> = BTreeMap::new();
    model.edges().iter().for_each(|(_, _, hash)| *counts.entry(hash.0).or_default() += 1);
    let found: BTreeMap<u64, u32> =
        state.ownership.iter_counts().map(|(hash, count)| (hash.0, count)).collect();
    assert_eq!(found, counts);

    let mut expected: BTreeMap<[u64; 3], u64> = BTreeMap::new();
    let addressing = crate::ckf::addressing::Addressing::new(state.format());
    for hash in counts.keys() {
        let at = addressing.address(SequenceHash(*hash));
        let pair = [at.bucket_a().min(at.bucket_b()), at.bucket_a().max(at.bucket_b())];
        let key = [pair[0].into(), pair[1].into(), at.fingerprint().into()];
        *expected.entry(key).or_default() += 1;
    }
    let found: BTreeMap<[u64; 3], u64> =
        residents(state).into_iter().map(|[a, b, f, n]| ([a, b, f], n)).collect();
    assert_eq!(found, expected);

    let sizes = state.sizes();
    let members = model.names.values().filter(|names| names.values().any(|(_, owned)| *owned));
    assert_eq!(sizes.members, members.count());
    assert_eq!(sizes.contributions, model.edges().len());
    assert_eq!(sizes.unique_hashes, sizes.occupied_slots);
    assert_eq!(state.counters().unknown_removals, model.unknown_removals);
    assert_eq!(state.counters().capacity_omissions, model.omissions);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn random_events_agree_with_the_model(
        steps in any_steps(),
        cadence in 1u32..5,
    ) {
        let mut state = DcCkfState::new(ProducerConfig {
            expected_blocks: 400,
            publish_every_n_events: cadence,
            ..ProducerConfig::default()
        })
        .unwrap();
        let mut model = Model::default();
        let mut mirror = vec![0; state.words().len()];
        for step in &steps {
            let mut images = Vec::new();
            run(step, &mut state, &mut model, &mut images);
            compare(&state, &model);
            images.iter().for_each(|image| mirror[image.bucket as usize] = image.word);
        }
        // What was handed out is what there is.
        let mut images = Vec::new();
        state.flush(&mut images).unwrap();
        images.iter().for_each(|image| mirror[image.bucket as usize] = image.word);
        prop_assert_eq!(&mirror, state.words());
    }

    #[test]
    fn a_filter_too_small_omits_and_nothing_else(steps in any_steps()) {
        let mut state = producer(7);
        let mut model = Model::default();
        for step in steps.iter().filter(|step| !matches!(step, Step::Replace { .. })) {
            run(step, &mut state, &mut model, &mut Vec::new());
            compare(&state, &model);
        }
    }
}
