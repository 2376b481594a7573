//! Answers of a filter that turned out wrong, remembered for a while by one worker.
//!
//! A key that was asked for remotely and was not there would be asked for again by the next
//! client. Bounded in number and time: forgetting early costs one hop.

use std::collections::VecDeque;

use fnv::FnvHashMap;

use crate::ckf::hashing::SequenceHash;

/// How long a wrong answer is remembered.
pub const REMEMBER_MS: u64 = 5_000;
/// Wrong answers remembered by one worker.
pub const REMEMBERED_MAX: usize = 65_536;

/// Wrong answers of the last seconds.
#[derive(Debug)]
pub struct FalsePositives {
    /// Lanes that were wrong, one bit each, and when they may be believed again.
    wrong: FnvHashMap<SequenceHash, (u16, u64)>,
    /// The same in the order of their ends.
    ends: VecDeque<(u64, SequenceHash)>,
    max: usize,
}

impl Default for FalsePositives {
    fn default() -> FalsePositives {
        FalsePositives::new(REMEMBERED_MAX)
    }
}

impl FalsePositives {
    /// A memory of at most `max` hashes.
    pub fn new(max: usize) -> FalsePositives {
        FalsePositives { wrong: FnvHashMap::default(), ends: VecDeque::new(), max }
    }

    /// `lane` said it holds `hash`, and did not.
    pub fn remember(&mut self, hash: SequenceHash, lane: u8, now_ms: u64) {
        self.remember_all(hash, 1 << lane, now_ms);
    }

    /// Nothing the lanes `wrong` say about `hash` is to be believed for a while.
    pub fn remember_all(&mut self, hash: SequenceHash, wrong: u16, now_ms: u64) {
        self.forget_ended(now_ms);
        let end = now_ms + REMEMBER_MS;
        let (lanes, until) = self.wrong.entry(hash).or_insert((0, end));
        *lanes |= wrong;
        *until = end;
        self.ends.push_back((end, hash));
        while self.wrong.len() > self.max || self.ends.len() > self.max * 2 {
            self.forget_oldest();
        }
    }

    /// The lanes that are known to be wrong about `hash`.
    pub fn lanes(&self, hash: SequenceHash, now_ms: u64) -> u16 {
        match self.wrong.get(&hash) {
            Some((lanes, end)) if *end > now_ms => *lanes,
            Some(_) | None => 0,
        }
    }

    /// Hashes remembered.
    pub fn len(&self) -> usize {
        self.wrong.len()
    }

    /// True when nothing is remembered.
    pub fn is_empty(&self) -> bool {
        self.wrong.is_empty()
    }

    fn forget_ended(&mut self, now_ms: u64) {
        while self.ends.front().is_some_and(|(end, _)| *end <= now_ms) {
            self.forget_oldest();
        }
    }

    /// Drops the oldest end, and its hash unless that was remembered again since.
    fn forget_oldest(&mut self) {
        if let Some((end, hash)) = self.ends.pop_front()
            && self.wrong.get(&hash).is_some_and(|(_, until)| *until == end)
        {
            self.wrong.remove(&hash);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wrong_answers_are_remembered_for_a_while() {
        let mut memory = FalsePositives::default();
        memory.remember(SequenceHash(1), 2, 100);
        memory.remember(SequenceHash(1), 5, 2_000);
        assert_eq!(memory.lanes(SequenceHash(1), 6_999), 0b100100);
        assert_eq!(memory.lanes(SequenceHash(1), 7_000), 0);
        assert_eq!(memory.lanes(SequenceHash(2), 100), 0);
        memory.remember(SequenceHash(2), 1, 7_000);
        assert_eq!(memory.len(), 1);
    }

    #[test]
    fn the_memory_is_bounded() {
        let mut memory = FalsePositives::new(10);
        for hash in 0..100 {
            memory.remember(SequenceHash(hash), 0, hash);
            memory.remember(SequenceHash(7), 1, hash);
            assert!(memory.len() <= 10 && memory.ends.len() <= 20);
        }
        assert_eq!(memory.lanes(SequenceHash(99), 100), 1);
        assert_eq!(memory.lanes(SequenceHash(50), 100), 0);
    }
}
