//! Where a DC_ONE read should go, from what the lanes say. A pure function, so that plans can be
//! explained and tested.

use super::lanes::Holding;
use super::lanes::{Lanes, holding};

/// The lane of the own datacenter.
const OWN: u8 = 0;

/// Where to read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Advice {
    /// As Dynomite would: the own datacenter's owner.
    Local(LocalReason),
    /// Another datacenter's owner; on nil, back to the own one.
    Remote {
        /// The lane to ask.
        lane: u8,
    },
}

/// Why the own datacenter is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LocalReason {
    /// It seems to hold the key.
    Held,
    /// Nobody holds the key; a miss is answered here, without a hop.
    NobodyHolds,
    /// The own lane, or one of the others, is not ready or stale.
    NotKnown,
    /// Others said they hold it and were wrong a moment ago.
    FalsePositive,
}

impl Advice {
    /// Why, in words for people.
    pub fn reason(self) -> &'static str {
        match self {
            Advice::Remote { .. } => "another datacenter holds it, this one does not",
            Advice::Local(LocalReason::Held) => "this datacenter holds it",
            Advice::Local(LocalReason::NobodyHolds) => "no datacenter holds it",
            Advice::Local(LocalReason::NotKnown) => "a lane is not ready or stale",
            Advice::Local(LocalReason::FalsePositive) => "the others were wrong a moment ago",
        }
    }
}

/// Advice for one key.
///
/// `mask` and `ready` come from one probe; `wrong` are the lanes known to be wrong about the key;
/// `cheaper` orders remote lanes (distance and load), the first that holds the key is taken.
pub fn advise(
    lanes: &Lanes,
    mask: u16,
    ready: u16,
    wrong: u16,
    cheaper: impl IntoIterator<Item = u8>,
    now_ms: u64,
) -> Advice {
    let believed = lanes.believed(ready, now_ms);
    match holding(OWN, mask, believed) {
        Holding::Yes | Holding::Maybe => return Advice::Local(LocalReason::Held),
        Holding::Unknown => return Advice::Local(LocalReason::NotKnown),
        Holding::No => {}
    }
    let holders = mask & believed & !(1 << OWN);
    let remote = cheaper.into_iter().find(|lane| holders & !wrong & (1 << lane) != 0);
    match remote {
        Some(lane) => Advice::Remote { lane },
        None if holders != 0 => Advice::Local(LocalReason::FalsePositive),
        None if believed == lanes.all() => Advice::Local(LocalReason::NobodyHolds),
        None => Advice::Local(LocalReason::NotKnown),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn three() -> Lanes {
        let lanes = Lanes::new(["own", "near", "far"].map(String::from), 1000);
        lanes.iter().for_each(|(_, lane)| lane.heard(0));
        lanes
    }

    fn ask(mask: u16, ready: u16, wrong: u16) -> Advice {
        advise(&three(), mask, ready, wrong, [1, 2], 10)
    }

    #[test]
    fn the_table_of_plans() {
        let local = Advice::Local;
        assert_eq!(ask(0b111, 0b111, 0), local(LocalReason::Held));
        assert_eq!(ask(0b001, 0b001, 0), local(LocalReason::Held));
        assert_eq!(ask(0b110, 0b111, 0), Advice::Remote { lane: 1 });
        assert_eq!(ask(0b100, 0b111, 0), Advice::Remote { lane: 2 });
        assert_eq!(ask(0b000, 0b111, 0), local(LocalReason::NobodyHolds));
        assert_eq!(ask(0b000, 0b011, 0), local(LocalReason::NotKnown));
        assert_eq!(ask(0b010, 0b110, 0), local(LocalReason::NotKnown));
        // A lane that is not ready is not asked, whatever its bits say.
        assert_eq!(ask(0b100, 0b011, 0), local(LocalReason::NotKnown));
    }

    #[test]
    fn lanes_that_were_wrong_are_passed_over() {
        assert_eq!(ask(0b110, 0b111, 0b010), Advice::Remote { lane: 2 });
        assert_eq!(ask(0b110, 0b111, 0b110), Advice::Local(LocalReason::FalsePositive));
    }

    #[test]
    fn stale_lanes_mean_plain_reads() {
        let lanes = three();
        let late = advise(&lanes, 0b010, 0b111, 0, [1, 2], 2000);
        assert_eq!(late, Advice::Local(LocalReason::NotKnown));
        lanes.get(0).unwrap().heard(2000);
        let late = advise(&lanes, 0b010, 0b111, 0, [1, 2], 2000);
        assert_eq!(late, Advice::Local(LocalReason::NotKnown));
        lanes.get(1).unwrap().heard(2000);
        let heard = advise(&lanes, 0b010, 0b111, 0, [1, 2], 2000);
        assert_eq!(heard, Advice::Remote { lane: 1 });
    }
}
