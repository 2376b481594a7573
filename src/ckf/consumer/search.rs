//! How deep a chain is present in each lane.
//!
//! The depth of a lane is the position of the first missing block. Engines evict from the end of
//! a chain, so presence is monotone, and the answer is exact. Where it is not (holes, false
//! positives) the first [`LINEAR`] positions are still exact; beyond them the answer is a
//! position whose block is missing, found the quick way:
//!
//! 1. look at the first positions in order, in batches, until no lane is left;
//! 2. sample at growing distances, several at a time, to find a hit and a miss a lane;
//! 3. cut the gap of every lane in four until hit and miss are neighbours;
//! 4. verify the last `window` positions before the miss; a lane that fails at the window's left
//!    edge was led astray by a false hit or a hole, and is looked at in order after all.
//!
//! All positions of a step are probed together, so that their memory is fetched together.

use super::table::LANES;

/// Positions looked at in order.
pub(super) const LINEAR: usize = 128;
/// Sizes of the first batches: small ones first, since most chains are absent or short.
const BATCHES: [usize; 7] = [4, 12, 16, 32, 32, 16, 16];
/// Distance of the first sample beyond the linear part; later ones double it.
const FIRST_STRIDE: usize = 64;
/// Samples probed together.
const SAMPLES: usize = 4;
/// Pieces a gap is cut in.
const CUTS: usize = 4;
/// Positions looked at together after a false hit.
const RESCAN: usize = 32;

/// Presence of a chain's positions.
pub(super) trait Presence {
    /// The lanes that hold each of at most [`PROBES_MAX`] positions; positions rise.
    fn probe(&mut self, positions: &[usize], masks: &mut [u16]);
}

/// Most positions probed together.
pub(super) const PROBES_MAX: usize = 64;

/// Depth of each lane of `lanes` in a chain of `length`; 0 for the others.
pub(super) fn depths(
    presence: &mut impl Presence,
    length: usize,
    lanes: u16,
    window: usize,
) -> [u32; LANES] {
    let mut search = Search {
        presence,
        length,
        depths: [0; LANES],
        positions: [0; PROBES_MAX],
        masks: [0; PROBES_MAX],
    };
    let left = search.linear(lanes);
    if left != 0 && length > LINEAR {
        search.beyond(left, window);
    }
    search.depths
}

struct Search<'a, P> {
    presence: &'a mut P,
    length: usize,
    depths: [u32; LANES],
    positions: [usize; PROBES_MAX],
    masks: [u16; PROBES_MAX],
}

/// What is known of one lane beyond the linear part.
#[derive(Clone, Copy, Debug)]
struct Bounds {
    lane: usize,
    /// The greatest position known present.
    lower: usize,
    /// The smallest position after it known missing, or the length.
    upper: usize,
}

impl<P: Presence> Search<'_, P> {
    /// Step 1. Gives the lanes that hold all positions looked at; theirs is the full depth when
    /// the chain ends there.
    fn linear(&mut self, lanes: u16) -> u16 {
        let end = self.length.min(LINEAR);
        let mut left = lanes;
        let mut start = 0;
        for batch in BATCHES {
            let stop = end.min(start + batch);
            left = self.scan(left, start, stop);
            start = stop;
            if left == 0 || start == end {
                break;
            }
        }
        self.settle(left, end);
        left
    }

    /// Looks at `start..stop` in order; lanes that miss a position get it as their depth.
    fn scan(&mut self, lanes: u16, start: usize, stop: usize) -> u16 {
        if lanes == 0 || start >= stop {
            return lanes;
        }
        let count = stop - start;
        for (slot, position) in self.positions.iter_mut().zip(start..stop) {
            *slot = position;
        }
        self.probe(count);
        let mut left = lanes;
        for index in 0..count {
            let lost = left & !self.masks[index];
            if lost != 0 {
                self.settle(lost, start + index);
                left &= !lost;
                if left == 0 {
                    break;
                }
            }
        }
        left
    }

    /// Looks at the first `count` of `positions`.
    fn probe(&mut self, count: usize) {
        self.presence.probe(&self.positions[..count], &mut self.masks[..count]);
    }

    fn settle(&mut self, lanes: u16, depth: usize) {
        let depth = u32::try_from(depth).unwrap_or(u32::MAX);
        each_lane(lanes, |lane| self.depths[lane] = depth);
    }

    fn beyond(&mut self, lanes: u16, window: usize) {
        let start = Bounds { lane: 0, lower: LINEAR - 1, upper: self.length };
        let mut all = [start; LANES];
        let mut count = 0;
        each_lane(lanes, |lane| {
            all[count].lane = lane;
            count += 1;
        });
        let bounds = &mut all[..count];
        self.sample(bounds);
        self.narrow(bounds);
        self.verify(bounds, window);
    }

    /// Step 2: doubling distances, and the last position of all.
    fn sample(&mut self, bounds: &mut [Bounds]) {
        let last = self.length - 1;
        let mut open = bounds.iter().fold(0, |mask, bound| mask | bound.bit());
        let mut stride = FIRST_STRIDE;
        let mut position = LINEAR - 1;
        while open != 0 && position < last {
            let mut count = 0;
            while count < SAMPLES && position < last {
                position = last.min(position + stride);
                stride *= 2;
                self.positions[count] = position;
                count += 1;
            }
            self.probe(count);
            let sampled = open;
            for bound in bounds.iter_mut().filter(|bound| sampled & bound.bit() != 0) {
                let samples = self.positions.iter().zip(&self.masks).take(count);
                let missed = samples.map(|(at, mask)| bound.learn(*at, *mask)).any(|hit| !hit);
                if missed {
                    open &= !bound.bit();
                }
            }
        }
    }

    /// Step 3: all lanes together, each gap cut in [`CUTS`] pieces a round.
    fn narrow(&mut self, bounds: &mut [Bounds]) {
        loop {
            let mut count = 0;
            for cut in bounds.iter().flat_map(Bounds::cuts) {
                self.positions[count] = cut;
                count += 1;
            }
            if count == 0 {
                return;
            }
            self.positions[..count].sort_unstable();
            let mut distinct = 1;
            for index in 1..count {
                if self.positions[index] != self.positions[distinct - 1] {
                    self.positions[distinct] = self.positions[index];
                    distinct += 1;
                }
            }
            self.probe(distinct);
            for bound in bounds.iter_mut() {
                for cut in bound.cuts() {
                    let probed = self.positions[..distinct].binary_search(&cut);
                    let mask = self.masks[probed.expect("a probed position")];
                    if !bound.learn(cut, mask) {
                        break;
                    }
                }
            }
        }
    }

    /// Step 4: lanes with the same miss share their window.
    fn verify(&mut self, bounds: &[Bounds], window: usize) {
        let mut done = 0;
        for bound in bounds {
            if done & bound.bit() != 0 {
                continue;
            }
            let same = bounds.iter().filter(|other| other.upper == bound.upper);
            let group = same.fold(0, |mask, other| mask | other.bit());
            done |= group;
            self.settle(group, bound.upper);
            let edge = bound.upper.saturating_sub(window).max(LINEAR);
            self.scan(group, edge, bound.upper);
        }
        for bound in bounds {
            let edge = bound.upper.saturating_sub(window).max(LINEAR);
            let led_astray = self.depths[bound.lane] as usize == edge && edge < bound.upper;
            let mut start = if led_astray { LINEAR } else { edge };
            while start < edge && self.scan(bound.bit(), start, edge.min(start + RESCAN)) != 0 {
                start += RESCAN;
            }
        }
    }
}

impl Bounds {
    fn bit(&self) -> u16 {
        1 << self.lane
    }

    /// Takes in what a position shows; false when it is missing.
    fn learn(&mut self, position: usize, mask: u16) -> bool {
        let hit = mask & self.bit() != 0;
        if hit {
            self.lower = position;
        } else {
            self.upper = position;
        }
        hit
    }

    /// Positions that cut the gap, in rising order; none when hit and miss are neighbours.
    fn cuts(&self) -> impl Iterator<Item = usize> + use<> {
        let (lower, gap) = (self.lower, self.upper - self.lower);
        let piece = gap.div_ceil(CUTS);
        let end = self.upper;
        (1..CUTS).map(move |cut| lower + cut * piece).take_while(move |position| *position < end)
    }
}

fn each_lane(mut lanes: u16, mut visit: impl FnMut(usize)) {
    while lanes != 0 {
        visit(lanes.trailing_zeros() as usize);
        lanes &= lanes - 1;
    }
}

#[cfg(test)]
mod tests;
