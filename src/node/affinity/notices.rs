//! What an operator reads in the log about the filters: who publishes, which datacenters are
//! believed and, when one is not for a while, why.

use std::collections::BTreeMap;

use crate::affinity::Affinity;
use crate::affinity::domain::Domain;

/// A lane that is not believed is told of after this long, milliseconds: a publisher that is
/// replaced is nothing to wake anybody for.
const PATIENCE_MS: u64 = 5_000;

/// A line for the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Line {
    /// As it should be.
    Well(String),
    /// Somebody may have to do something.
    Trouble(String),
}

/// What was told so far.
#[derive(Debug, Default)]
pub(super) struct Watch {
    /// By domain.
    publishers: BTreeMap<String, String>,
    /// By domain and datacenter.
    lanes: BTreeMap<String, Seen>,
    /// Keys left out of full filters, by domain.
    omissions: BTreeMap<String, u64>,
}

#[derive(Clone, Copy, Debug)]
struct Seen {
    believed: bool,
    /// Since when.
    since_ms: u64,
    /// Whether it ever was believed.
    ever: bool,
    /// Whether it was told that it is not.
    told: bool,
}

impl Watch {
    /// Looks at all domains; gives what is new.
    pub(super) fn look(&mut self, affinity: &Affinity, now_ms: u64) -> Vec<Line> {
        let mut lines = Vec::new();
        for domain in affinity.domains() {
            self.look_at_posts(domain, &mut lines);
            self.look_at_lanes(domain, now_ms, &mut lines);
            self.look_at_room(domain, &mut lines);
        }
        lines
    }

    fn look_at_posts(&mut self, domain: &Domain, lines: &mut Vec<Line>) {
        let (name, dc) = (domain.name(), &domain.spec().datacenters[0]);
        let said = match domain.publication() {
            Some(publication) => {
                let incarnation = publication.identity.producer_incarnation;
                format!("this node publishes what {dc} holds, takeover {incarnation}")
            }
            None => match domain.duties().publisher {
                publisher if publisher.is_empty() => return,
                publisher if domain.holds_state() => {
                    format!("{publisher} publishes what {dc} holds, this node stands by")
                }
                publisher => format!("{publisher} publishes what {dc} holds"),
            },
        };
        if self.publishers.get(name) != Some(&said) {
            lines.push(Line::Well(format!("{name}: {said}")));
            self.publishers.insert(name.to_owned(), said);
        }
    }

    fn look_at_lanes(&mut self, domain: &Domain, now_ms: u64, lines: &mut Vec<Line>) {
        let mask = domain.lanes().believed(domain.ready_lanes(), now_ms);
        for (number, lane) in domain.lanes().iter() {
            let name = format!("{}/{}", domain.name(), lane.dc);
            let begins = Seen { believed: false, since_ms: now_ms, ever: false, told: false };
            let seen = self.lanes.entry(name.clone()).or_insert(begins);
            let lasts_ms = now_ms - seen.since_ms;
            match (seen.believed, mask & (1 << number) != 0) {
                (false, true) => {
                    if !seen.ever {
                        lines.push(Line::Well(format!("{name} is believed")));
                    } else if seen.told {
                        let lasts_s = lasts_ms / 1000;
                        let line = format!("{name} is believed again, after {lasts_s} s");
                        lines.push(Line::Well(line));
                    }
                    *seen = Seen { believed: true, since_ms: now_ms, ever: true, told: false };
                }
                (true, false) => (seen.believed, seen.since_ms) = (false, now_ms),
                (false, false) if !seen.told && lasts_ms >= PATIENCE_MS => {
                    seen.told = true;
                    let why = domain.lane_state(number, now_ms);
                    let line = format!("{name} is not believed, reads go without it: {why}");
                    lines.push(Line::Trouble(line));
                }
                (false, false) | (true, true) => {}
            }
        }
    }

    fn look_at_room(&mut self, domain: &Domain, lines: &mut Vec<Line>) {
        let Some(omitted) = domain.omissions() else { return };
        let told = self.omissions.entry(domain.name().to_owned()).or_default();
        // One line for each doubling.
        if omitted >= (*told * 2).max(1) {
            *told = omitted;
            lines.push(Line::Trouble(format!(
                "{}: {omitted} times there was no room in the filter, which is for {}: those are \
                 not found from elsewhere; raise affinity.expected_keys or expected_blocks",
                domain.name(),
                domain.spec().expected,
            )));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::affinity::domain::tests::spec;
    use crate::affinity::domain::{DomainSpec, Kind};
    use crate::affinity::member::Change;
    use crate::ckf::hashing::SequenceHash;
    use crate::ckf::producer::Source;
    use crate::ckf::ringkey::KeyProtocol;

    fn affinity() -> Affinity {
        let spec = DomainSpec {
            expected: 4,
            stale_after_ms: 30_000,
            ..spec("keys", Kind::Keys(KeyProtocol::Resp), &["dc1", "dc2"])
        };
        Affinity::new(Arc::new(Domain::new(spec).unwrap()), Vec::new())
    }

    fn well(text: &str) -> Line {
        Line::Well(text.into())
    }

    fn trouble(text: &str) -> Line {
        Line::Trouble(text.into())
    }

    #[test]
    fn what_changes_is_told_once_and_short_troubles_never() {
        let affinity = affinity();
        let keys = affinity.keys();
        let mut watch = Watch::default();
        assert_eq!(watch.look(&affinity, 100), []);
        keys.publish(7).unwrap();
        keys.set_hears(true, 1, 1);
        keys.apply(&[], 500).unwrap();
        let publishes = well("keys: this node publishes what dc1 holds, takeover 7");
        assert_eq!(watch.look(&affinity, 500), [publishes, well("keys/dc1 is believed")]);
        assert_eq!(watch.look(&affinity, 5000), []);
        let alone = "keys/dc2 is not believed, reads go without it: nobody sends it yet";
        assert_eq!(watch.look(&affinity, 5100), [trouble(alone)]);
        assert_eq!(watch.look(&affinity, 9000), []);

        // Away for a moment.
        keys.set_hears(false, 1, 2);
        assert_eq!(watch.look(&affinity, 10_000), []);
        keys.set_hears(true, 2, 2);
        keys.apply(&[], 11_000).unwrap();
        assert_eq!(watch.look(&affinity, 11_000), []);
        // Away for long.
        assert_eq!(watch.look(&affinity, 41_001), []);
        let stale = "keys/dc1 is not believed, reads go without it: stale: nothing was heard of \
                     its publisher for 35 s";
        assert_eq!(watch.look(&affinity, 46_001), [trouble(stale)]);
        keys.apply(&[], 50_000).unwrap();
        let again = "keys/dc1 is believed again, after 8 s";
        assert_eq!(watch.look(&affinity, 50_000), [well(again)]);
        keys.stand_by();
        assert_eq!(watch.look(&affinity, 50_500), []);
    }

    #[test]
    fn a_full_filter_is_told_of_at_each_doubling() {
        let affinity = affinity();
        let keys = affinity.keys();
        keys.publish(7).unwrap();
        let mut watch = Watch::default();
        let source = Source { worker_id: 1, dp_rank: 0 };
        let told = |watch: &mut Watch, hashes: std::ops::Range<u64>| {
            let changes: Vec<Change> =
                hashes.map(|n| Change::Stored(SequenceHash(n * 7919))).collect();
            keys.apply_changes(source, &changes, 0).unwrap();
            let lines = watch.look(&affinity, 100);
            lines.iter().filter(|line| matches!(line, Line::Trouble(_))).count()
        };
        assert_eq!(told(&mut watch, 0..4), 0);
        assert_eq!(told(&mut watch, 4..40), 1);
        assert_eq!(told(&mut watch, 40..42), 0);
        assert_eq!(told(&mut watch, 42..200), 1);
    }
}
