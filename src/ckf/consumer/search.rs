//! How deep a chain is present in each lane.
//!
//! The depth of a lane is the position of the first missing block. Engines evict from the end of
//! a chain, so presence is monotone, and the answer is exact. Where it is not (holes, false
//! positives) the first `linear` positions are still exact; beyond them the answer is a position
//! whose block is missing, never beyond the one the reference finds:
//!
//! 1. look at the first positions in order, in batches, until no lane is left;
//! 2. sample at the powers of two, to find a hit and a miss a lane;
//! 3. halve the gap of every lane until hit and miss are neighbours;
//! 4. verify the last `window` positions before the miss; a lane that fails at the window's left
//!    edge was led astray by a false hit or a hole, and is looked at in order after all.
//!
//! Steps 2 to 4 look at every position at which the reference looks (`search.rs` of crate
//! `dynamo-kv-router` 1.6.1), but not one after the other: halving looks two levels ahead, and
//! where any position can be looked at without making those before it, all samples and the way
//! of a lane that holds everything go into one probe together with the end of step 1. So a
//! search waits for memory three times, not twenty.

use super::table::LANES;

/// Most positions probed together.
pub(super) const PROBES_MAX: usize = 64;
/// The first batch is small, since most chains are absent.
const FIRST_BATCH: usize = 4;
/// The batches after it double up to this.
const BATCH_MAX: usize = 32;
/// Samples probed together where those before a position must be made first.
const SAMPLES: usize = 2;

/// Presence of a chain's positions.
pub(super) trait Presence {
    /// Whether a position at the end costs little more than the next one.
    fn reaches_far(&self) -> bool;

    /// The lanes that hold each of at most [`PROBES_MAX`] positions; positions rise.
    fn probe(&mut self, positions: &[usize], masks: &mut [u16]);
}

/// How a search goes about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Manner {
    /// Positions looked at in order before the search jumps, rounded up to a power of two: then
    /// the steps behind them are the reference's.
    pub(super) linear: usize,
    /// Positions verified before a miss.
    pub(super) window: usize,
}

/// Depth of each lane of `lanes` in a chain of `length`; 0 for the others.
pub(super) fn depths(
    presence: &mut impl Presence,
    length: usize,
    lanes: u16,
    manner: Manner,
) -> [u32; LANES] {
    let mut search = Search {
        presence,
        length,
        linear: length.min(manner.linear.next_power_of_two()),
        window: manner.window,
        depths: [0; LANES],
        positions: [0; PROBES_MAX],
        masks: [0; PROBES_MAX],
    };
    search.run(lanes);
    search.depths
}

struct Search<'a, P> {
    presence: &'a mut P,
    length: usize,
    linear: usize,
    window: usize,
    depths: [u32; LANES],
    positions: [usize; PROBES_MAX],
    masks: [u16; PROBES_MAX],
}

/// What is known of one lane beyond the linear part.
#[derive(Clone, Copy, Debug)]
struct Bounds {
    /// Where the run of known hits that ends at `lower` begins.
    solid: usize,
    /// The greatest position known present.
    lower: usize,
    /// The smallest position after it known missing, or the length.
    upper: usize,
}

impl<P: Presence> Search<'_, P> {
    fn run(&mut self, lanes: u16) {
        let (mut left, mut start, mut batch) = (lanes, 0, FIRST_BATCH);
        let mut ahead = 0..0;
        while left != 0 && start < self.linear {
            let stop = self.linear.min(start + batch);
            let count = self.list(start, stop);
            if stop == self.linear && stop < self.length && self.presence.reaches_far() {
                ahead = count..self.list_samples(count);
            }
            self.probe(count.max(ahead.end));
            left = self.settle_misses(left, start, count);
            start = stop;
            batch = (batch * 3).min(BATCH_MAX);
        }
        self.settle(left, self.linear);
        if left != 0 && self.linear < self.length {
            self.beyond(left, ahead);
        }
    }

    /// Steps 2 to 4 for the lanes that hold the whole linear part; `ahead` are samples that were
    /// probed already.
    fn beyond(&mut self, lanes: u16, ahead: std::ops::Range<usize>) {
        let start = Bounds { solid: 0, lower: self.linear - 1, upper: self.length };
        let mut bounds = [start; LANES];
        if ahead.is_empty() {
            self.sample(lanes, &mut bounds);
        } else {
            self.learn(lanes, &mut bounds, start, ahead);
        }
        self.narrow(lanes, &mut bounds);
        self.verify(lanes, &bounds);
    }

    /// Lists `start..stop` to be probed.
    fn list(&mut self, start: usize, stop: usize) -> usize {
        for (slot, position) in self.positions.iter_mut().zip(start..stop) {
            *slot = position;
        }
        stop - start
    }

    /// Lists all samples behind what is listed: the powers of two, then the halves on the way
    /// from the last of them to the end. Gives the number of positions listed.
    fn list_samples(&mut self, listed: usize) -> usize {
        let mut count = listed;
        let mut lower = self.linear - 1;
        let mut next = self.first_power();
        while count < PROBES_MAX && lower + 1 < self.length {
            lower = if next < self.length { next } else { lower + (self.length - lower) / 2 };
            next = next.saturating_mul(2);
            self.positions[count] = lower;
            count += 1;
        }
        count
    }

    /// The first power of two beyond the linear part, which ends before the chain does.
    fn first_power(&self) -> usize {
        debug_assert!(self.linear.is_power_of_two());
        self.linear
    }

    /// Looks at the first `count` of the listed positions.
    fn probe(&mut self, count: usize) {
        self.presence.probe(&self.positions[..count], &mut self.masks[..count]);
    }

    /// Lanes that miss one of the first `count` probed positions, which begin at `start` and are
    /// neighbours, get the first of them as their depth. Gives the others.
    fn settle_misses(&mut self, lanes: u16, start: usize, count: usize) -> u16 {
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

    /// Looks at `start..stop` in order.
    fn scan(&mut self, lanes: u16, start: usize, stop: usize) -> u16 {
        if lanes == 0 || start >= stop {
            return lanes;
        }
        let count = self.list(start, stop);
        self.probe(count);
        self.settle_misses(lanes, start, count)
    }

    fn settle(&mut self, lanes: u16, depth: usize) {
        let depth = u32::try_from(depth).unwrap_or(u32::MAX);
        each_lane(lanes, |lane| self.depths[lane] = depth);
    }

    /// Step 2, a few samples at a time, as long as some lane holds them all.
    fn sample(&mut self, lanes: u16, bounds: &mut [Bounds; LANES]) {
        let mut open = lanes;
        let mut known = bounds[0];
        let mut next = self.first_power();
        while next < self.length && open != 0 {
            let mut count = 0;
            while count < SAMPLES && next < self.length {
                self.positions[count] = next;
                next = next.saturating_mul(2);
                count += 1;
            }
            self.probe(count);
            (open, known) = self.learn(open, bounds, known, 0..count);
        }
    }

    /// Takes in probed samples: lanes up to their first miss. `known` is what is known of all of
    /// them before; gives the lanes that missed nothing and what is known of these.
    fn learn(
        &self,
        lanes: u16,
        bounds: &mut [Bounds; LANES],
        mut known: Bounds,
        probed: std::ops::Range<usize>,
    ) -> (u16, Bounds) {
        let mut open = lanes;
        for index in probed {
            let position = self.positions[index];
            let missed = Bounds { upper: position, ..known };
            each_lane(open & !self.masks[index], |lane| bounds[lane] = missed);
            open &= self.masks[index];
            if open == 0 {
                return (0, known);
            }
            known.hit(position);
        }
        each_lane(open, |lane| bounds[lane] = known);
        (open, known)
    }

    /// Step 3: all lanes together, two halvings a round.
    fn narrow(&mut self, lanes: u16, bounds: &mut [Bounds; LANES]) {
        let mut open = lanes;
        loop {
            let mut count = 0;
            let mut still = 0;
            each_lane(open, |lane| {
                for position in bounds[lane].halves() {
                    self.positions[count] = position;
                    count += 1;
                    still |= 1 << lane;
                }
            });
            if count == 0 {
                return;
            }
            open = still;
            let distinct = self.sort_positions(count);
            self.probe(distinct);
            each_lane(open, |lane| {
                for _ in 0..2 {
                    if let Some(middle) = bounds[lane].middle() {
                        let probed = self.positions[..distinct].binary_search(&middle);
                        let mask = self.masks[probed.expect("a probed position")];
                        match mask & 1 << lane {
                            0 => bounds[lane].upper = middle,
                            _ => bounds[lane].hit(middle),
                        }
                    }
                }
            });
        }
    }

    /// Sorts the first `count` listed positions and drops repeated ones; gives what is left.
    fn sort_positions(&mut self, count: usize) -> usize {
        self.positions[..count].sort_unstable();
        let mut distinct = 1;
        for index in 1..count {
            if self.positions[index] != self.positions[distinct - 1] {
                self.positions[distinct] = self.positions[index];
                distinct += 1;
            }
        }
        distinct
    }

    /// Step 4: lanes with the same miss share their window.
    fn verify(&mut self, lanes: u16, bounds: &[Bounds; LANES]) {
        let mut unsure = 0;
        each_lane(lanes, |lane| {
            let bound = &bounds[lane];
            self.settle(1 << lane, bound.upper);
            unsure |= u16::from(bound.solid > self.edge(bound)) << lane;
        });
        let mut astray = 0;
        while unsure != 0 {
            let first = &bounds[unsure.trailing_zeros() as usize];
            let (edge, upper) = (self.edge(first), first.upper);
            let mut group = 0;
            each_lane(unsure, |lane| group |= u16::from(bounds[lane].upper == upper) << lane);
            unsure &= !group;
            self.scan(group, edge, upper);
            each_lane(group, |lane| {
                astray |= u16::from(self.depths[lane] as usize == edge && edge < upper) << lane;
            });
        }
        each_lane(astray, |lane| {
            let edge = self.depths[lane] as usize;
            let mut start = self.linear;
            while start < edge && self.scan(1 << lane, start, edge.min(start + BATCH_MAX)) != 0 {
                start += BATCH_MAX;
            }
        });
    }

    /// The left edge of the window before a lane's miss.
    fn edge(&self, bound: &Bounds) -> usize {
        bound.upper.saturating_sub(self.window).max(self.linear)
    }
}

impl Bounds {
    /// The position, which lies between the bounds, is present.
    fn hit(&mut self, position: usize) {
        if position != self.lower + 1 {
            self.solid = position;
        }
        self.lower = position;
    }

    /// The middle of the gap; none when hit and miss are neighbours.
    fn middle(&self) -> Option<usize> {
        let gap = self.upper - self.lower;
        (gap > 1).then(|| self.lower + gap / 2)
    }

    /// The middle of the gap, and the middles of both halves.
    fn halves(&self) -> impl Iterator<Item = usize> + use<> {
        let middle = self.middle();
        let half = |lower, upper| Bounds { lower, upper, ..*self }.middle();
        let left = middle.and_then(|middle| half(self.lower, middle));
        let right = middle.and_then(|middle| half(middle, self.upper));
        [left, middle, right].into_iter().flatten()
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
