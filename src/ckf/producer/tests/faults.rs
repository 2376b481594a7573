//! Running out of memory at every reservation of every kind of event.

use super::*;

/// Everything about a state that anyone can see.
fn fingerprint(state: &DcCkfState) -> (Value, Vec<u64>, ProducerCounters, usize) {
    let window = state.sizes().pending_buckets;
    (state_of(state), state.words().to_vec(), state.counters(), window)
}

fn filled() -> DcCkfState {
    let mut state = DcCkfState::new(ProducerConfig {
        expected_blocks: 200,
        publish_every_n_events: 1000,
        ..ProducerConfig::default()
    })
    .unwrap();
    for worker in 0..4 {
        apply(&mut state, &RouterEvent::stored_key(source(worker, 0), 5));
        apply(&mut state, &stored(source(worker, 0), None, &[(70, 1), (71, 2), (72, 3)]));
    }
    state
}

/// Runs `act` with the nth reservation failing, for every n, until it needs no more of them.
fn at_every_reservation(act: impl Fn(&mut DcCkfState) -> bool) {
    for n in 0..200 {
        let mut state = filled();
        let before = fingerprint(&state);
        crate::ckf::alloc::fail_at(n);
        let succeeded = act(&mut state);
        if !crate::ckf::alloc::allow_all() {
            assert!(succeeded && n > 0, "no reservation was made");
            return;
        }
        if !succeeded {
            let mut after = fingerprint(&state);
            // That it was refused is the only thing that may be told.
            after.2.events = before.2.events;
            assert_eq!(after, before, "reservation {n}");
            assert!(act(&mut state), "works with memory");
        }
    }
    panic!("more than 200 reservations");
}

#[test]
fn a_store_without_memory_changes_nothing() {
    let blocks: Vec<(u64, u64)> = (0..40).map(|i| (100 + i, 200 + i)).collect();
    let fresh = stored(source(9, 0), None, &blocks);
    at_every_reservation(|state| apply(state, &fresh).first_error.is_none());
    let child = stored(source(1, 0), Some(72), &blocks);
    at_every_reservation(|state| apply(state, &child).first_error.is_none());
}

#[test]
fn turning_inline_owners_into_a_count_without_memory_changes_nothing() {
    // Three owners lie inline; the fourth, and a fifth under another name, do not fit.
    let mut alias = stored(source(0, 0), None, &[(400, 5)]);
    at_every_reservation(|state| apply(state, &alias).first_error.is_none());
    alias.source = source(12, 0);
    at_every_reservation(|state| apply(state, &alias).first_error.is_none());
}

#[test]
fn turning_listed_edges_into_a_count_without_memory_changes_nothing() {
    // Four named edges of these hashes are listed; the fifth is not.
    let fifth = stored(source(12, 0), None, &[(70, 1), (71, 2), (72, 3)]);
    at_every_reservation(|state| apply(state, &fifth).first_error.is_none());
}

#[test]
fn a_removal_or_clear_without_memory_changes_nothing() {
    let removed = RouterEvent::removed_keys(source(1, 0), [72, 71, 70, 5]);
    let cleared = RouterEvent::device(source(1, 0), EventData::Cleared);
    for event in [removed, cleared] {
        for n in 0.. {
            let mut state = filled();
            state.flush(&mut Vec::new()).unwrap();
            let before = fingerprint(&state);
            crate::ckf::alloc::fail_at(n);
            let error = apply(&mut state, &event).first_error;
            if !crate::ckf::alloc::allow_all() {
                break;
            }
            // Giving memory back may be refused as well; that is no error.
            if error.is_some() {
                let mut after = fingerprint(&state);
                after.2.events = before.2.events;
                assert_eq!(after, before);
            }
        }
    }
}

#[test]
fn a_replacement_or_snapshot_without_memory_changes_nothing() {
    let listing: Vec<RouterEvent> =
        (0..20).map(|hash| RouterEvent::stored_key(source(1, 0), hash)).collect();
    at_every_reservation(|state| {
        state.replace_ranks(&[source(1, 0)], &listing, &mut Vec::new()).is_ok()
    });
    at_every_reservation(|state| state.barrier_snapshot(&mut Vec::new(), &mut Vec::new()).is_ok());
}

#[test]
fn building_without_memory_is_an_error() {
    for n in 0.. {
        crate::ckf::alloc::fail_at(n);
        let built = DcCkfState::new(ProducerConfig { expected_blocks: 8, ..Default::default() });
        if !crate::ckf::alloc::allow_all() {
            assert!(built.is_ok() && n > 3);
            return;
        }
        assert_eq!(built.map(|_| ()).unwrap_err(), BuildError::OutOfMemory(OutOfMemory));
    }
}
