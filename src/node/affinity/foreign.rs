//! Datacenters that are not of this ring and reach it through a relay.

use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::ckf::consumer::LANES;

/// The ones that are wanted; once wanted they stay, so that lanes are not laid out anew all the
/// time.
#[derive(Debug, Default)]
pub(super) struct Foreign(Mutex<Names>);

#[derive(Debug, Default)]
struct Names {
    wanted: Vec<String>,
    /// Of the ring, as it was published last.
    ring: Vec<String>,
}

impl Foreign {
    /// Wants one more. False when it is known already, or there are as many as lanes.
    pub(super) fn admit(&self, dc: &str) -> bool {
        let mut names = self.names();
        let known = |list: &[String]| list.iter().any(|name| name == dc);
        if known(&names.wanted) || known(&names.ring) || names.wanted.len() >= LANES {
            return false;
        }
        names.wanted.push(dc.to_owned());
        true
    }

    /// Whether one is wanted, and not of the ring.
    #[cfg(feature = "relay")]
    pub(super) fn contains(&self, dc: &str) -> bool {
        let names = self.names();
        names.wanted.iter().any(|name| name == dc) && !names.ring.iter().any(|name| name == dc)
    }

    /// The datacenters of the ring and the wanted ones after them; as many as there are lanes.
    pub(super) fn beside(&self, ring: Vec<String>) -> Vec<String> {
        let mut names = self.names();
        let foreign = names.wanted.iter().filter(|dc| !ring.contains(dc));
        let all = ring.iter().chain(foreign).take(LANES).cloned().collect();
        names.ring = ring;
        all
    }

    fn names(&self) -> MutexGuard<'_, Names> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(all(test, feature = "relay"))]
mod tests {
    use super::*;

    fn ring(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| name.to_string()).collect()
    }

    #[test]
    fn wanted_datacenters_come_after_the_rings() {
        let foreign = Foreign::default();
        assert_eq!(foreign.beside(ring(&["a", "b"])), ["a", "b"]);
        assert!(!foreign.admit("b"));
        assert!(foreign.admit("far"));
        assert!(!foreign.admit("far"));
        assert_eq!(foreign.beside(ring(&["a", "b"])), ["a", "b", "far"]);
        assert!(foreign.contains("far") && !foreign.contains("b"));
        // It joined the ring, which sends its filters itself from now on.
        assert_eq!(foreign.beside(ring(&["a", "far"])), ["a", "far"]);
        assert!(!foreign.contains("far"));
        (0..LANES).for_each(|n| assert_eq!(foreign.admit(&format!("dc{n}")), n + 1 < LANES));
        assert_eq!(foreign.beside(ring(&["a"])).len(), LANES);
    }
}
