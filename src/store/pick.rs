//! Random picks: HRANDFIELD, SRANDMEMBER, ZRANDMEMBER and SPOP.

use std::collections::HashMap;

use crate::proto::args::Args;

use super::arg;
use super::error::CommandError;

/// How much is picked: `count` different ones, or `-count` that may repeat.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Request {
    pub(super) count: i64,
    pub(super) with_values: bool,
}

impl Request {
    /// Reads `key [count [word]]`; `None` without a count.
    pub(super) fn parse(args: &Args<'_>, word: &str) -> Result<Option<Request>, CommandError> {
        if args.len() < 3 {
            return Ok(None);
        }
        let count = arg::negatable(args, 2)?;
        let with_values = args.len() == 4 && arg::is(&args[3], word);
        if args.len() > 4 || (args.len() == 4 && !with_values) {
            return Err(CommandError::Syntax);
        }
        if with_values && count.unsigned_abs() > (i64::MAX / 2) as u64 {
            return Err(CommandError::OutOfRange);
        }
        Ok(Some(Request { count, with_values }))
    }
}

/// Most positions a repeating pick gives, so that one request cannot ask for all memory.
const REPEATED_MAX: u64 = 1 << 24;

/// Positions below `len`: `count` different ones, or `-count` that may repeat.
pub(super) fn positions(len: usize, count: i64, rng: &mut fastrand::Rng) -> Vec<usize> {
    if len == 0 {
        return Vec::new();
    }
    if count < 0 {
        let count = count.unsigned_abs().min(REPEATED_MAX);
        return (0..count).map(|_| rng.usize(..len)).collect();
    }
    let count = usize::try_from(count).unwrap_or(len).min(len);
    if count == len {
        return (0..len).collect();
    }
    // The first `count` steps of a shuffle; only moved positions are remembered.
    let mut moved: HashMap<usize, usize> = HashMap::new();
    let mut picks = Vec::with_capacity(count);
    for at in 0..count {
        let with = rng.usize(at..len);
        picks.push(moved.get(&with).copied().unwrap_or(with));
        let here = moved.get(&at).copied().unwrap_or(at);
        moved.insert(with, here);
    }
    picks
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn different_positions_are_different_and_fair() {
        let mut rng = fastrand::Rng::with_seed(5);
        let mut hits = [0u32; 10];
        for _ in 0..10_000 {
            let mut picks = positions(10, 3, &mut rng);
            picks.iter().for_each(|&at| hits[at] += 1);
            picks.sort_unstable();
            picks.dedup();
            assert_eq!(picks.len(), 3);
        }
        assert!(hits.iter().all(|&n| (2_700..3_300).contains(&n)), "{hits:?}");
        assert_eq!(positions(4, 9, &mut rng), [0, 1, 2, 3]);
        assert_eq!(positions(1, -3, &mut rng), [0, 0, 0]);
        assert!(positions(0, 5, &mut rng).is_empty());
    }
}
