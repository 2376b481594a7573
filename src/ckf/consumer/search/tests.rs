use super::*;
use crate::ckf::vectors;
use proptest::prelude::*;

/// Presence written down, one mask a position.
struct Written<'a, const RANDOM: bool> {
    masks: &'a [u16],
    probes: usize,
}

impl<const RANDOM: bool> Presence for Written<'_, RANDOM> {
    fn reaches_far(&self) -> bool {
        RANDOM
    }

    fn probe(&mut self, positions: &[usize], masks: &mut [u16]) {
        assert!(!positions.is_empty() && positions.len() == masks.len());
        assert!(positions.is_sorted());
        self.probes += positions.len();
        for (position, mask) in positions.iter().zip(masks) {
            *mask = self.masks[*position];
        }
    }
}

/// The reference's search as its description has it, lane by lane and step by step.
fn reference(masks: &[u16], lane: usize, window: usize) -> u32 {
    let length = masks.len();
    let hit = |position: usize| masks[position] & 1 << lane != 0;
    if length == 0 || !hit(0) {
        return 0;
    }
    let (mut before, mut lower, mut upper, mut next) = (0, 0, length, 1);
    while next < length && upper == length {
        if hit(next) {
            (before, lower) = (lower, next);
        } else {
            upper = next;
        }
        next *= 2;
    }
    while upper - lower > 1 {
        let middle = lower + (upper - lower) / 2;
        if hit(middle) {
            (before, lower) = (lower, middle);
        } else {
            upper = middle;
        }
    }
    let edge = upper.saturating_sub(window);
    let Some(missed) = (edge..upper).find(|position| !hit(*position)) else {
        return upper as u32;
    };
    let astray = missed == edge && before < edge;
    let earlier = (before + 1..edge).find(|position| astray && !hit(*position));
    earlier.unwrap_or(missed) as u32
}

/// Both ways to a position must lead to honest answers; gives that with random access.
fn search_in(masks: &[u16], lanes: u16, manner: Manner) -> [u32; LANES] {
    let rolling = depths(&mut Written::<false> { masks, probes: 0 }, masks.len(), lanes, manner);
    let random = depths(&mut Written::<true> { masks, probes: 0 }, masks.len(), lanes, manner);
    let exact = linear(masks, lanes);
    for found in [rolling, random] {
        for (lane, depth) in found.into_iter().enumerate() {
            let missing = |depth: usize| depth == masks.len() || masks[depth] & 1 << lane == 0;
            assert!(depth >= exact[lane] && missing(depth as usize) || lanes & 1 << lane == 0);
            if (exact[lane] as usize) < manner.linear {
                assert_eq!(depth, exact[lane]);
            }
            if lanes & 1 << lane != 0 {
                assert!(depth <= reference(masks, lane, manner.window), "lane {lane}");
            }
        }
    }
    random
}

fn search(masks: &[u16], lanes: u16, window: usize) -> [u32; LANES] {
    search_in(masks, lanes, Manner { linear: 16, window })
}

/// The obvious answer: the first missing position.
fn linear(masks: &[u16], lanes: u16) -> [u32; LANES] {
    std::array::from_fn(|lane| {
        let bit = 1 << lane;
        let present = |mask: &&u16| **mask & bit != 0;
        if lanes & bit == 0 { 0 } else { masks.iter().take_while(present).count() as u32 }
    })
}

#[test]
fn depths_match_the_vectors_or_are_the_linear_answer() {
    for row in vectors::rows(&vectors::ckf()["prefix_search_on_masks"]) {
        let masks: Vec<u16> = vectors::nums(&row["presence_by_position"])
            .into_iter()
            .map(|mask| mask as u16)
            .collect();
        let lanes = vectors::num(&row["initial_mask"]) as u16;
        let window = vectors::num(&row["verification_window"]) as usize;
        let recorded: Vec<u32> =
            vectors::nums(&row["depths"]).into_iter().map(|depth| depth as u32).collect();
        let exact = linear(&masks, lanes);
        for lane in (0..LANES).filter(|lane| lanes & 1 << lane != 0) {
            assert_eq!(
                reference(&masks, lane, window),
                recorded[lane],
                "{} lane {lane}",
                row["name"]
            );
        }
        for (lane, depth) in search(&masks, lanes, window).into_iter().enumerate() {
            // Equal on monotone rows, where both are exact; between the two on noisy ones.
            assert!(exact[lane] <= depth && depth <= recorded[lane], "{} lane {lane}", row["name"]);
        }
    }
}

#[test]
fn a_chain_nobody_holds_costs_one_small_batch() {
    let masks = vec![0; 1024];
    let mut presence = Written::<true> { masks: &masks, probes: 0 };
    let manner = Manner { linear: 16, window: 2 };
    assert_eq!(depths(&mut presence, 1024, u16::MAX, manner), [0; LANES]);
    assert_eq!(presence.probes, FIRST_BATCH);
    assert_eq!(search(&[], u16::MAX, 2), [0; LANES]);
}

#[test]
fn a_false_hit_far_out_is_found_by_its_window() {
    // Present to 150; a false hit at the second sample.
    let mut masks = vec![0u16; 1000];
    masks[..150].fill(1);
    masks[256] = 1;
    masks[512] = 1;
    assert_eq!(search(&masks, 1, 2)[0], 150);
}

/// A monotone chain: each lane holds a prefix.
fn monotone() -> impl Strategy<Value = (Vec<u16>, [u32; LANES])> {
    (1usize..1500).prop_flat_map(|length| {
        prop::array::uniform16(0..=length as u32).prop_map(move |depths| {
            let mask = |position: usize| {
                (0..LANES)
                    .filter(|lane| position < depths[*lane] as usize)
                    .fold(0, |mask, lane| mask | 1 << lane)
            };
            ((0..length).map(mask).collect(), depths)
        })
    })
}

proptest! {
    #[test]
    fn monotone_chains_are_exact((masks, depths) in monotone(), lanes: u16, window in 1usize..=8) {
        let expected: [u32; LANES] =
            std::array::from_fn(|lane| if lanes & 1 << lane == 0 { 0 } else { depths[lane] });
        prop_assert_eq!(search(&masks, lanes, window), expected);
        for linear in [1, 7, 128, 4096] {
            prop_assert_eq!(search_in(&masks, lanes, Manner { linear, window }), expected);
        }
    }

    #[test]
    fn short_chains_are_exact_whatever_they_hold(
        masks in prop::collection::vec(any::<u16>(), 0..=128),
        lanes: u16,
    ) {
        let manner = Manner { linear: 128, window: 2 };
        prop_assert_eq!(search_in(&masks, lanes, manner), linear(&masks, lanes));
    }

    #[test]
    fn noisy_chains_never_answer_less_than_is_there(
        (mut masks, _) in monotone(),
        flips in prop::collection::vec((any::<prop::sample::Index>(), 0usize..LANES), 0..40),
        window in 1usize..=8,
    ) {
        for (at, lane) in flips {
            let at = at.index(masks.len());
            masks[at] ^= 1 << lane;
        }
        for linear in [1, 5, 16, 64] {
            search_in(&masks, u16::MAX, Manner { linear, window });
        }
    }
}
