//! Phi-accrual failure detection: how sure are we that a peer is dead?
//!
//! Signs of life arrive with some mean interval and deviation. `phi` is the negative decimal
//! logarithm of the odds that a living peer stays silent for so long, taken from the normal
//! distribution by its usual logistic approximation. At threshold 8 and the least deviation of
//! 500 ms a peer is judged down 2.6 s after the mean interval passed in silence.

use super::time::Millis;

/// Intervals remembered; at the sampling distance they cover at least three seconds.
const WINDOW: usize = 32;

/// Signs of life closer together than this are one sample, so that a burst does not look like
/// a habit.
const SAMPLE_DISTANCE_MS: u64 = 100;

/// How a detector judges; the same for all peers of a node.
#[derive(Clone, Copy, Debug)]
pub struct DetectorSettings {
    deviation_min_ms: f64,
    first_interval_ms: u64,
    /// How many deviations past the mean phi reaches the threshold.
    quantile: f64,
}

impl DetectorSettings {
    /// Peers are judged down from `phi_threshold` on. Their deviation is never taken for less
    /// than `deviation_min_ms`, and their interval is `first_interval_ms` until it was measured.
    pub fn new(
        phi_threshold: f64,
        deviation_min_ms: f64,
        first_interval_ms: u64,
    ) -> DetectorSettings {
        DetectorSettings { deviation_min_ms, first_interval_ms, quantile: quantile(phi_threshold) }
    }
}

/// The signs of life of one peer.
#[derive(Clone, Debug)]
pub struct Detector {
    last: Option<Millis>,
    sampled: Millis,
    window: [u16; WINDOW],
    count: u64,
    sum: u64,
    squares: u64,
}

impl Detector {
    /// A detector that has seen nothing.
    pub fn new() -> Detector {
        Detector {
            last: None,
            sampled: Millis(0),
            window: [0; WINDOW],
            count: 0,
            sum: 0,
            squares: 0,
        }
    }

    /// The newest sign of life.
    pub fn last(&self) -> Option<Millis> {
        self.last
    }

    /// Takes note of a sign of life at `at`; signs may arrive late and out of order. Returns
    /// true when it is news.
    pub fn heard(&mut self, at: Millis) -> bool {
        match self.last {
            Some(last) if at <= last => return false,
            Some(_) => {
                let interval = at.since(self.sampled);
                if interval >= SAMPLE_DISTANCE_MS {
                    self.push(interval);
                    self.sampled = at;
                }
            }
            None => self.sampled = at,
        }
        self.last = Some(at);
        true
    }

    /// Forgets the intervals, which say nothing about a peer that was away; keeps the last sign.
    pub fn restart(&mut self) {
        self.window = [0; WINDOW];
        (self.count, self.sum, self.squares) = (0, 0, 0);
        self.sampled = self.last.unwrap_or_default();
    }

    /// Counts the silence from `now` on: this node itself was not there to hear anything.
    pub fn excuse(&mut self, now: Millis) {
        if self.last.is_some() {
            self.last = self.last.max(Some(now));
            self.sampled = now;
        }
    }

    /// How sure we are at `now`; 0 for a peer of which nothing was ever heard.
    pub fn phi(&self, settings: &DetectorSettings, now: Millis) -> f64 {
        let Some(last) = self.last else { return 0.0 };
        let (mean, deviation) = self.habit(settings);
        let y = (now.since(last) as f64 - mean) / deviation;
        (1.0 + logistic_exponent(y).exp()).log10()
    }

    /// From when on the peer is judged down, unless it is heard of before. `NEVER` while
    /// nothing was ever heard.
    pub fn deadline(&self, settings: &DetectorSettings) -> Millis {
        let Some(last) = self.last else {
            return Millis::NEVER;
        };
        let (mean, deviation) = self.habit(settings);
        let silence = mean + deviation * settings.quantile;
        last.plus(silence.max(0.0).ceil() as u64)
    }

    fn push(&mut self, interval: u64) {
        let new = u16::try_from(interval).unwrap_or(u16::MAX);
        let old = std::mem::replace(&mut self.window[self.count as usize % WINDOW], new);
        let (new, old) = (u64::from(new), u64::from(old));
        self.count += 1;
        self.sum = self.sum + new - old;
        self.squares = self.squares + new * new - old * old;
    }

    /// Mean interval and deviation, in milliseconds.
    fn habit(&self, settings: &DetectorSettings) -> (f64, f64) {
        if self.count == 0 {
            let mean = settings.first_interval_ms as f64;
            return (mean, settings.deviation_min_ms);
        }
        let n = self.count.min(WINDOW as u64) as f64;
        let mean = self.sum as f64 / n;
        let variance = (self.squares as f64 / n - mean * mean).max(0.0);
        (mean, variance.sqrt().max(settings.deviation_min_ms))
    }
}

impl Default for Detector {
    fn default() -> Detector {
        Detector::new()
    }
}

/// The exponent of the logistic approximation to the normal distribution.
fn logistic_exponent(y: f64) -> f64 {
    y * (1.5976 + 0.070566 * y * y)
}

/// How many deviations past the mean phi reaches `threshold`: the inverse of [`Detector::phi`],
/// by bisection.
fn quantile(threshold: f64) -> f64 {
    let wanted = (10f64.powf(threshold) - 1.0).max(f64::MIN_POSITIVE).ln();
    let (mut low, mut high) = (-40.0, 40.0);
    for _ in 0..40 {
        let middle = (low + high) / 2.0;
        if logistic_exponent(middle) < wanted {
            low = middle;
        } else {
            high = middle;
        }
    }
    high
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings() -> DetectorSettings {
        DetectorSettings::new(8.0, 500.0, 250)
    }

    fn heard_every(ms: u64, times: u64) -> Detector {
        let mut detector = Detector::new();
        for i in 0..times {
            detector.heard(Millis(1000 + i * ms));
        }
        detector
    }

    #[test]
    fn a_steady_peer_is_judged_soon_after_it_falls_silent() {
        let detector = heard_every(200, 50);
        let last = detector.last().unwrap();
        let silence = detector.deadline(&settings()).since(last);
        assert!((2800..2820).contains(&silence), "{silence}");
        assert!(detector.phi(&settings(), last.plus(silence - 2)) < 8.0);
        assert!(detector.phi(&settings(), last.plus(silence)) >= 8.0);
        assert!(detector.phi(&settings(), last) < 0.5);
    }

    #[test]
    fn an_irregular_peer_is_given_more_time() {
        let mut detector = Detector::new();
        let mut at = 0;
        for i in 0..40 {
            at += if i % 2 == 0 { 200 } else { 3000 };
            detector.heard(Millis(at));
        }
        let silence = detector.deadline(&settings()).since(Millis(at));
        assert!(silence > 8000, "{silence}");
    }

    #[test]
    fn bursts_and_late_signs_change_nothing() {
        let mut detector = heard_every(200, 50);
        let before = detector.deadline(&settings());
        let last = detector.last().unwrap();
        assert!(!detector.heard(last.minus(50)), "older than what is known");
        assert_eq!(detector.deadline(&settings()), before);
        for i in 1..50 {
            assert!(detector.heard(last.plus(i)));
        }
        assert_eq!(detector.deadline(&settings()), before.plus(49));
    }

    #[test]
    fn nothing_heard_is_no_verdict() {
        let detector = Detector::new();
        assert_eq!(detector.deadline(&settings()), Millis::NEVER);
        assert_eq!(detector.phi(&settings(), Millis(1 << 40)), 0.0);
    }

    #[test]
    fn a_restart_forgets_the_habit_and_keeps_the_sign() {
        let mut detector = heard_every(2000, 50);
        let last = detector.last().unwrap();
        detector.restart();
        let silence = detector.deadline(&settings()).since(last);
        assert!((2860..2870).contains(&silence), "{silence}");
    }
}
