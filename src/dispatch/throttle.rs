//! How many frames a second a connection to another datacenter carries (`conn_msg_rate`).
//!
//! A bucket of tokens, one for each frame, as large as what is earned in a second. A frame that
//! finds no token is queued like any other and held back: what stands behind it waits too, so the
//! order stays. Its deadline is that of any other request.
//!
//! Parity: `src/dyn_dnode_peer.c` (`dnode_req_send_next`) fills the bucket at full seconds only;
//! here tokens come evenly.

/// Credit for one frame.
const TOKEN: u64 = 1000;

/// The bucket of one connection, and where in its bytes the frames begin that wait for tokens.
#[derive(Debug)]
pub(super) struct Throttle {
    /// Tokens a second, and most tokens.
    rate: u64,
    /// What is left of them, in thousandths: so many are earned in a millisecond.
    credit: u64,
    /// Milliseconds on the monotonic clock; what was earned before is counted.
    counted_ms: u64,
    /// Frames that wait.
    held: usize,
    /// Where the first of them begins, while there is one.
    open_to: u64,
}

impl Throttle {
    /// A full bucket.
    pub(super) fn new(rate: u32) -> Throttle {
        let rate = u64::from(rate);
        Throttle { rate, credit: rate * TOKEN, counted_ms: 0, held: 0, open_to: 0 }
    }

    /// Starts over on a fresh connection.
    pub(super) fn reset(&mut self) {
        self.credit = self.rate * TOKEN;
        self.held = 0;
    }

    /// A frame is queued at `start`.
    pub(super) fn admit(&mut self, start: u64, now_ms: u64) {
        self.earn(now_ms);
        if self.held == 0 && self.credit >= TOKEN {
            self.credit -= TOKEN;
            return;
        }
        if self.held == 0 {
            self.open_to = start;
        }
        self.held += 1;
    }

    /// Spends what was earned on held frames; true when some go now. `start_of` tells where the
    /// n-th frame from the end of the queue begins, 1 for the last one.
    pub(super) fn release(&mut self, now_ms: u64, start_of: impl Fn(usize) -> Option<u64>) -> bool {
        if self.held == 0 {
            return false;
        }
        self.earn(now_ms);
        let go = self.held.min((self.credit / TOKEN) as usize);
        self.credit -= go as u64 * TOKEN;
        self.held -= go;
        match start_of(self.held) {
            Some(start) => self.open_to = start,
            // Without a ticket nothing waits for an answer of these: let them go.
            None => self.held = 0,
        }
        go > 0 || self.held == 0
    }

    /// Where in the bytes of the connection writing has to stop.
    pub(super) fn open_to(&self) -> Option<u64> {
        (self.held > 0).then_some(self.open_to)
    }

    /// When the next token comes, while somebody waits for one.
    pub(super) fn due_ms(&self) -> Option<u64> {
        let missing = TOKEN.saturating_sub(self.credit);
        (self.held > 0).then(|| self.counted_ms + missing.div_ceil(self.rate))
    }

    fn earn(&mut self, now_ms: u64) {
        let passed_ms = now_ms.saturating_sub(self.counted_ms);
        let earned = passed_ms.saturating_mul(self.rate);
        self.credit = self.credit.saturating_add(earned).min(self.rate * TOKEN);
        self.counted_ms = self.counted_ms.max(now_ms);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_gives_its_rate_and_never_more_than_a_second_at_once() {
        for rate in [1, 3, 7, 1000, 1500, 50_000] {
            let mut throttle = Throttle::new(rate);
            let frames = rate as usize * 5;
            for i in 0..frames {
                throttle.admit(i as u64 * 10, 1_000_000);
            }
            let sent = |t: &Throttle| t.open_to().map_or(frames, |at| at as usize / 10);
            assert_eq!(sent(&throttle), rate as usize, "a full bucket");
            let start_of = |nth: usize| (nth > 0).then(|| (frames - nth) as u64 * 10);
            let mut now_ms = 1_000_000;
            while let Some(due) = throttle.due_ms() {
                assert!(due > now_ms, "rate {rate}: time goes on");
                now_ms = due;
                throttle.release(now_ms, start_of);
                let most = rate as u64 * (1000 + now_ms - 1_000_000) / 1000;
                assert!(sent(&throttle) as u64 <= most, "rate {rate} at {now_ms}");
            }
            let took = now_ms - 1_000_000;
            assert_eq!(took, 4000, "rate {rate}");
        }
    }

    #[test]
    fn an_idle_bucket_holds_one_second_and_a_fresh_connection_a_full_one() {
        let mut throttle = Throttle::new(10);
        for now_ms in [0, 60_000, 120_000] {
            (0..10).for_each(|i| throttle.admit(i, now_ms));
            assert_eq!(throttle.open_to(), None);
        }
        throttle.admit(77, 120_000);
        assert_eq!(throttle.open_to(), Some(77));
        throttle.reset();
        (0..10).for_each(|i| throttle.admit(i, 120_001));
        assert_eq!(throttle.open_to(), None);
    }

    #[test]
    fn frames_whose_tickets_are_gone_hold_nothing_back() {
        let mut throttle = Throttle::new(1);
        (0..5).for_each(|i| throttle.admit(i, 1000));
        assert!(throttle.release(1000, |_| None));
        assert_eq!((throttle.open_to(), throttle.due_ms()), (None, None));
    }
}
