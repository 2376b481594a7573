use super::*;
use crate::ckf::vectors;
use proptest::prelude::*;

/// Presence written down, one mask a position.
struct Written<'a> {
    masks: &'a [u16],
    probes: usize,
}

impl Presence for Written<'_> {
    fn probe(&mut self, positions: &[usize], masks: &mut [u16]) {
        assert!(!positions.is_empty() && positions.len() == masks.len());
        assert!(positions.is_sorted());
        self.probes += positions.len();
        for (position, mask) in positions.iter().zip(masks) {
            *mask = self.masks[*position];
        }
    }
}

fn search(masks: &[u16], lanes: u16, window: usize) -> [u32; LANES] {
    depths(&mut Written { masks, probes: 0 }, masks.len(), lanes, window)
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
        for (lane, depth) in search(&masks, lanes, window).into_iter().enumerate() {
            // Equal on monotone rows, where both are exact; between the two on noisy ones.
            assert!(exact[lane] <= depth && depth <= recorded[lane], "{} lane {lane}", row["name"]);
        }
    }
}

#[test]
fn a_chain_nobody_holds_costs_one_small_batch() {
    let masks = vec![0; 1024];
    let mut presence = Written { masks: &masks, probes: 0 };
    assert_eq!(depths(&mut presence, 1024, u16::MAX, 2), [0; LANES]);
    assert_eq!(presence.probes, BATCHES[0]);
    assert_eq!(search(&[], u16::MAX, 2), [0; LANES]);
}

#[test]
fn a_false_hit_far_out_is_found_by_its_window() {
    // Present to 150; a false hit at the second sample.
    let mut masks = vec![0u16; 1000];
    masks[..150].fill(1);
    masks[LINEAR - 1 + FIRST_STRIDE + 2 * FIRST_STRIDE] = 1;
    masks[LINEAR - 1 + FIRST_STRIDE] = 1;
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
    }

    #[test]
    fn short_chains_are_exact_whatever_they_hold(
        masks in prop::collection::vec(any::<u16>(), 0..=LINEAR),
        lanes: u16,
    ) {
        prop_assert_eq!(search(&masks, lanes, 2), linear(&masks, lanes));
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
        let exact = linear(&masks, u16::MAX);
        for (lane, depth) in search(&masks, u16::MAX, window).into_iter().enumerate() {
            prop_assert!(depth >= exact[lane]);
            // And the answer is honest: its own position is missing.
            let missing = |depth: usize| depth == masks.len() || masks[depth] & 1 << lane == 0;
            prop_assert!(missing(depth as usize));
        }
    }
}
