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
//! of a lane that holds everything go into one probe. So a search waits for memory twice where
//! nothing diverges, not twenty times. Lanes of which the same is known go through it together:
//! where all datacenters hold a chain there is one group of lanes, not sixteen lanes.

use super::table::LANES;

/// Most positions probed together.
pub(super) const PROBES_MAX: usize = 64;
/// The first batch is small, since most chains are absent.
const FIRST_BATCH: usize = 4;
/// The batches after it grow up to this.
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

/// Lanes that hold the linear part, of which the same is known beyond it.
#[derive(Clone, Copy, Debug, Default)]
struct Group {
    lanes: u16,
    /// Where the run of known hits that ends at `lower` begins.
    solid: usize,
    /// The greatest position known present.
    lower: usize,
    /// The smallest position after it known missing, or the length.
    upper: usize,
}

/// Groups in the order of their gaps, which do not overlap.
#[derive(Default)]
struct Groups {
    list: [Group; LANES],
    count: usize,
}

impl<P: Presence> Search<'_, P> {
    fn run(&mut self, lanes: u16) {
        let (mut left, mut start, mut batch) = (lanes, 0, FIRST_BATCH);
        while left != 0 && start < self.linear {
            let stop = self.linear.min(start + batch);
            left = self.scan(left, start, stop);
            start = stop;
            batch = (batch * 3).min(BATCH_MAX);
        }
        self.settle(left, self.linear);
        if left != 0 && self.linear < self.length {
            let groups = self.sample(left);
            let groups = self.narrow(groups);
            groups.iter().for_each(|group| self.verify(group));
        }
    }

    /// Looks at `start..stop` in order. Lanes that miss one of them get the first of these as
    /// their depth; gives the others.
    fn scan(&mut self, lanes: u16, start: usize, stop: usize) -> u16 {
        let count = stop - start;
        self.positions.iter_mut().zip(start..stop).for_each(|(slot, position)| *slot = position);
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

    /// Lists all samples: the powers of two, then the halves on the way from the last of them to
    /// the end. Gives their number.
    fn list_samples(&mut self) -> usize {
        let (mut count, mut lower, mut next) = (0, self.linear - 1, self.linear);
        while count < PROBES_MAX && lower + 1 < self.length {
            lower = if next < self.length { next } else { lower + (self.length - lower) / 2 };
            next = next.saturating_mul(2);
            self.positions[count] = lower;
            count += 1;
        }
        count
    }

    /// Looks at the first `count` of the listed positions.
    fn probe(&mut self, count: usize) {
        self.presence.probe(&self.positions[..count], &mut self.masks[..count]);
    }

    fn settle(&mut self, lanes: u16, depth: usize) {
        let depth = u32::try_from(depth).unwrap_or(u32::MAX);
        // Without a branch, whose way nobody could foretell.
        for (lane, settled) in self.depths.iter_mut().enumerate() {
            *settled = if lanes & 1 << lane != 0 { depth } else { *settled };
        }
    }

    /// Step 2: all samples at once where they cost little, else a few at a time, as long as some
    /// lane holds them all.
    fn sample(&mut self, lanes: u16) -> Groups {
        let mut groups = Groups::default();
        let mut open = Group { lanes, solid: 0, lower: self.linear - 1, upper: self.length };
        if self.presence.reaches_far() {
            let count = self.list_samples();
            self.learn(&mut groups, &mut open, count);
        } else {
            let mut next = self.linear;
            while next < self.length && open.lanes != 0 {
                let mut count = 0;
                while count < SAMPLES && next < self.length {
                    self.positions[count] = next;
                    next = next.saturating_mul(2);
                    count += 1;
                }
                self.learn(&mut groups, &mut open, count);
            }
        }
        groups.push(open);
        groups
    }

    /// Looks at listed samples: lanes that miss one leave `open` for a group of their own.
    fn learn(&mut self, groups: &mut Groups, open: &mut Group, count: usize) {
        self.probe(count);
        for index in 0..count {
            let [missed, held] = open.split(Some((self.positions[index], self.masks[index])));
            groups.push(missed);
            *open = held;
            if held.lanes == 0 {
                return;
            }
        }
    }

    /// Step 3: all groups together, two halvings a round.
    fn narrow(&mut self, mut groups: Groups) -> Groups {
        loop {
            let mut count = 0;
            for group in groups.iter() {
                for position in group.halves().into_iter().flatten() {
                    self.positions[count] = position;
                    count += 1;
                }
            }
            if count == 0 {
                return groups;
            }
            self.probe(count);
            let mut masks = self.masks[..count].iter();
            let mut parts = Groups::default();
            for group in groups.iter() {
                let mut probed = |at| (at, *masks.next().expect("a mask a position"));
                let [left, middle, right] = group.halves().map(|half| half.map(&mut probed));
                let [below, above] = group.split(middle);
                below.split(left).into_iter().for_each(|part| parts.push(part));
                above.split(right).into_iter().for_each(|part| parts.push(part));
            }
            groups = parts;
        }
    }

    /// Step 4.
    fn verify(&mut self, group: &Group) {
        let edge = group.upper.saturating_sub(self.window).max(self.linear);
        self.settle(group.lanes, group.upper);
        if group.solid <= edge {
            return;
        }
        self.scan(group.lanes, edge, group.upper);
        // Group by group, these share what they look at as well.
        let mut astray = (0..LANES)
            .filter(|lane| group.lanes & 1 << lane != 0 && self.depths[*lane] as usize == edge)
            .fold(0, |lanes, lane| lanes | 1 << lane);
        let mut start = self.linear;
        while start < edge && astray != 0 {
            astray = self.scan(astray, start, edge.min(start + BATCH_MAX));
            start += BATCH_MAX;
        }
    }
}

impl Group {
    /// Those of its lanes that miss a position in its gap, and those that hold it, by the mask of
    /// that position.
    fn split(&self, probed: Option<(usize, u16)>) -> [Group; 2] {
        let Some((position, held)) = probed else { return [*self, Group::default()] };
        let solid = if position == self.lower + 1 { self.solid } else { position };
        [
            Group { lanes: self.lanes & !held, upper: position, ..*self },
            Group { lanes: self.lanes & held, solid, lower: position, ..*self },
        ]
    }

    /// The middle of the gap; none when hit and miss are neighbours.
    fn middle(&self) -> Option<usize> {
        let gap = self.upper - self.lower;
        (gap > 1).then(|| self.lower + gap / 2)
    }

    /// The middle of the left half, of the gap, and of the right half.
    fn halves(&self) -> [Option<usize>; 3] {
        let middle = self.middle();
        let half = |lower, upper| Group { lower, upper, ..*self }.middle();
        let left = middle.and_then(|middle| half(self.lower, middle));
        let right = middle.and_then(|middle| half(middle, self.upper));
        [left, middle, right]
    }
}

impl Groups {
    fn iter(&self) -> impl Iterator<Item = &Group> {
        self.list[..self.count].iter()
    }

    /// Adds a group unless it has no lane. Lanes are in one group only, so there is room.
    fn push(&mut self, group: Group) {
        if group.lanes != 0 {
            self.list[self.count] = group;
            self.count += 1;
        }
    }
}

#[cfg(test)]
mod tests;
