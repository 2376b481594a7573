//! Lanes that begin anew: what they held is answered until what they hold is.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use super::*;
use crate::affinity::publication::Delta;
use crate::ckf::addressing::Addressing;
use crate::ckf::bucket::BucketImage;
use crate::ckf::consumer::lane::LaneOutcome;
use crate::ckf::identity::LaneLease;
use crate::ckf::publication::CkfSnapshot;

const KEYS: Kind = Kind::Keys(KeyProtocol::Resp);
/// The lane that is looked at.
const LANE: u8 = 1;
/// Times a lane begins anew while others ask.
const TIMES: u64 = 100;
/// Answers about a fingerprint that moves; it moves after every two, where there is a processor for
/// both.
const ANSWERS: u64 = 400_000;

/// A node of `here` that follows two others, and one of them.
fn follower(expected: u64, theirs: u64) -> (Domain, Domain) {
    let shape = spec("keys", KEYS, &["here", "a", "b"]);
    let here = Domain::new(DomainSpec { expected, ..shape }).unwrap();
    let there = datacenter("a", theirs, "x");
    fetch(&here, LANE, &there).unwrap();
    fetch(&here, 2, &datacenter("b", expected, "y")).unwrap();
    (here, there)
}

/// What `lane` answers of a key; nothing while it does not.
fn answer(domain: &Domain, lane: u8, name: &str) -> Option<bool> {
    let mut masks = [0; 2];
    let hashes = [key(name), key("nobody has it")];
    let believed = domain.probe(&hashes, &mut masks, 0) & domain.ready_lanes();
    assert_eq!(masks[1], 0);
    let depth = domain.depths(Chain::Sequence(&hashes[..1]), 0)[usize::from(lane)].blocks;
    let held = (believed >> lane & 1 == 1).then_some(masks[0] >> lane & 1 == 1);
    assert_eq!(depth, held.map(u32::from));
    held
}

/// Between any two steps of a new incarnation's installation the lane answers, from one whole
/// filter.
#[test]
fn a_lane_answers_between_all_steps_of_its_next_life() {
    for theirs in [1000, 4000] {
        let (here, there) = follower(1000, theirs);
        there.forget().unwrap();
        there.publish(9999).unwrap();
        there.apply_changes(MEMBER, &[Change::Stored(key("z"))], 0).unwrap();
        let part = there.published_part(0, there.format().buckets()).unwrap();
        let lease =
            LaneLease { consumer: here.spec().consumer, lane: LANE, assignment_epoch: 1 << 20 };
        let (identity, sequence, words) = (part.identity, part.sequence, part.words);
        let snapshot = CkfSnapshot { identity, lease, sequence, words };

        let seen = |old: bool| {
            assert_eq!(answer(&here, LANE, "x"), Some(old));
            assert_eq!(answer(&here, LANE, "z"), Some(!old));
            assert_eq!(answer(&here, 2, "y"), Some(true), "the others are what they were");
        };
        let bytes = here.table_bytes();
        seen(true);
        here.tables.hold(LANE).unwrap();
        assert!(here.table_bytes() > bytes);
        seen(true);
        let mut inlets = here.inlets.lock().unwrap();
        let ingestor = inlets.ingestor(LANE);
        ingestor.assign(identity, lease).unwrap();
        seen(true);
        let outcome = ingestor.install_snapshot(&snapshot);
        assert!(matches!(outcome, LaneOutcome::SnapshotInstalled { .. }));
        seen(false);
        here.tables.let_go(LANE);
        seen(false);
        assert_eq!(here.table_bytes(), bytes);
    }
}

/// Asks `domain` for a key without a pause while `act` runs: there is always an answer.
fn always_answered(domain: &Domain, lane: u8, name: &str, act: impl FnOnce()) {
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        let asking = scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                assert_eq!(answer(domain, lane, name), Some(true));
            }
        });
        act();
        done.store(true, Ordering::Relaxed);
        asking.join().unwrap();
    });
}

#[test]
fn a_publisher_that_begins_anew_is_answered_for_by_those_who_follow_it() {
    for theirs in [1000, 4000] {
        let (here, there) = follower(1000, theirs);
        always_answered(&here, LANE, "x", || {
            for incarnation in 0..TIMES {
                there.publish((1 << 20) + incarnation).unwrap();
                fetch(&here, LANE, &there).unwrap();
            }
        });
    }
}

#[test]
fn a_filter_goes_from_table_to_table_and_is_always_in_one() {
    let (here, small) = follower(1000, 1000);
    let large = datacenter("a", 4000, "x");
    always_answered(&here, LANE, "x", || {
        for _ in 0..TIMES {
            fetch(&here, LANE, &large).unwrap();
            fetch(&here, LANE, &small).unwrap();
        }
    });
}

#[test]
fn a_publisher_that_begins_anew_answers_for_itself() {
    let domain = datacenter("a", 1000, "x");
    always_answered(&domain, OWN_LANE, "x", || {
        (0..TIMES).for_each(|n| domain.publish((1 << 20) + n).unwrap());
    });
    always_answered(&domain, OWN_LANE, "x", || {
        let next = domain.move_to(grown()).unwrap();
        assert_eq!(answer(&next, OWN_LANE, "x"), Some(true));
    });
    // The one it moved to publishes; this one has what it had when it left.
    assert_eq!(answer(&domain, OWN_LANE, "x"), Some(true));
}

/// The shape of the domain of datacenter `a` after one more was added.
fn grown() -> DomainSpec {
    spec("keys", KEYS, &["a", "here", "more"])
}

#[test]
fn nothing_is_published_through_a_domain_that_was_moved() {
    let domain = datacenter("a", 1000, "x");
    let next = domain.move_to(grown()).unwrap();
    // Whoever publishes does not know of the other one yet, and begins anew.
    domain.publish(2 << 20).unwrap();
    assert_eq!(answer(&next, OWN_LANE, "x"), Some(true));
    // The same where nothing was published yet.
    let domain = datacenter("a", 1000, "x");
    domain.stand_by();
    let next = domain.move_to(grown()).unwrap();
    domain.publish(2 << 20).unwrap();
    assert_eq!(next.publication(), None);
    next.publish(3 << 20).unwrap();
    assert_eq!(next.ready_lanes() & 1, 1);
}

#[test]
fn a_move_of_which_nothing_came_is_taken_back() {
    let domain = datacenter("a", 1000, "x");
    let begun = domain.publication().unwrap().identity.producer_incarnation;
    drop(domain.move_to(grown()).unwrap());
    domain.stay().unwrap();
    let changes = [Change::Stored(key("y"))];
    domain.apply_changes(MEMBER, &changes, 0).unwrap();
    assert_eq!(answer(&domain, OWN_LANE, "y"), Some(true));
    // Those who follow it must not take the new filter for the one before.
    let again = domain.publication().unwrap().identity.producer_incarnation;
    assert!(again > begun + INCARNATION_STEP);
    domain.stay().unwrap();
    assert_eq!(domain.publication().unwrap().identity.producer_incarnation, again);
}

/// A fingerprint that moves from bucket to bucket is always found. Whoever asks meets one move at
/// most: the next one waits for two answers.
#[test]
fn a_fingerprint_that_moves_is_always_found() {
    let (here, there) = follower(1000, 1000);
    let part = there.published_part(0, there.format().buckets()).unwrap();
    let at = Addressing::new(&there.format()).address(key("x"));
    let (mut from, mut to) = (at.bucket_a(), at.bucket_b());
    if part.words[from as usize] == 0 {
        (from, to) = (to, from);
    }
    let word = part.words[from as usize];
    assert!(from != to && word != 0 && part.words[to as usize] == 0);
    let (done, asked) = (AtomicBool::new(false), AtomicU64::new(0));
    thread::scope(|scope| {
        let asking = scope.spawn(|| {
            let mut missed = 0;
            while !done.load(Ordering::Relaxed) {
                let mut mask = [0];
                let ready = here.probe(&[key("x")], &mut mask, 0);
                missed += u64::from(ready & mask[0] & (1 << LANE) == 0);
                asked.fetch_add(1, Ordering::Relaxed);
            }
            missed
        });
        for sequence in part.sequence + 1.. {
            if asked.load(Ordering::Relaxed) >= ANSWERS || asking.is_finished() {
                break;
            }
            let images = [(to, word), (from, 0)].map(|(bucket, word)| BucketImage { bucket, word });
            let delta = Delta { base: sequence - 1, sequence, images: images.into() };
            let before = asked.load(Ordering::Relaxed);
            assert!(here.apply_delta(LANE, &delta));
            while asked.load(Ordering::Relaxed) < before + 2 && !asking.is_finished() {
                thread::yield_now();
            }
            (from, to) = (to, from);
        }
        done.store(true, Ordering::Relaxed);
        assert_eq!(asking.join().unwrap(), 0);
    });
}

#[test]
fn a_filter_that_does_not_fit_leaves_no_copy_behind() {
    let (here, there) = follower(1000, 1000);
    there.publish(1 << 20).unwrap();
    let part = there.published_part(0, 7).unwrap();
    here.install(LANE, part.identity, part.sequence, part.words).unwrap_err();
    assert_eq!(answer(&here, LANE, "x"), None);
}
