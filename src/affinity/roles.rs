//! Which node of a datacenter publishes a domain, and which stands by.
//!
//! Every node computes the same answer from the same live members, without an election: members
//! sorted by the hash of their slot and the domain. Different domains spread over different nodes.

use xxhash_rust::xxh3::Xxh3;

use crate::ckf::identity::IndexerDomainId;

/// Who does what for one domain in one datacenter. Indices into the members asked about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Roles {
    /// Holds the exact state and publishes.
    pub publisher: usize,
    /// Holds the same state and takes over.
    pub standby: Option<usize>,
}

/// The roles among the live members of one datacenter, given by slot: a name that stays with a
/// member over restarts and is unique. None without members.
pub fn roles<S: AsRef<[u8]>>(domain: &IndexerDomainId, slots: &[S]) -> Option<Roles> {
    let mut order: Vec<(u64, &[u8], usize)> = slots
        .iter()
        .enumerate()
        .map(|(index, slot)| (rank(domain, slot.as_ref()), slot.as_ref(), index))
        .collect();
    order.sort_unstable();
    let publisher = order.first()?.2;
    Some(Roles { publisher, standby: order.get(1).map(|(_, _, index)| *index) })
}

fn rank(domain: &IndexerDomainId, slot: &[u8]) -> u64 {
    let mut hasher = Xxh3::new();
    hasher.update(&(slot.len() as u64).to_le_bytes());
    hasher.update(slot);
    hasher.update(domain.to_string().as_bytes());
    hasher.digest()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ckf::ringkey::ring_key_domain;

    fn domain(name: &str) -> IndexerDomainId {
        ring_key_domain([("authority", name)], [("authority", name)]).unwrap()
    }

    #[test]
    fn every_node_comes_to_the_same_answer() {
        let slots = ["dc1/r1/0", "dc1/r2/0", "dc1/r3/0", "dc1/r3/7"];
        let found = roles(&domain("ring"), &slots).unwrap();
        let mut shuffled = slots;
        shuffled.rotate_left(2);
        let again = roles(&domain("ring"), &shuffled).unwrap();
        assert_eq!(slots[found.publisher], shuffled[again.publisher]);
        assert_eq!(slots[found.standby.unwrap()], shuffled[again.standby.unwrap()]);
        assert_ne!(found.publisher, found.standby.unwrap());
    }

    #[test]
    fn the_standby_follows_when_the_publisher_is_gone() {
        let slots = ["a", "b", "c"];
        let found = roles(&domain("ring"), &slots).unwrap();
        let rest: Vec<&str> =
            (0..3).filter(|index| *index != found.publisher).map(|index| slots[index]).collect();
        let next = roles(&domain("ring"), &rest).unwrap();
        assert_eq!(rest[next.publisher], slots[found.standby.unwrap()]);
        assert_eq!(roles(&domain("ring"), &["only"]).unwrap().standby, None);
        assert_eq!(roles::<&str>(&domain("ring"), &[]), None);
    }

    #[test]
    fn domains_spread_over_nodes() {
        let slots: Vec<String> = (0..4).map(|n| format!("dc/r/{n}")).collect();
        let mut count = [0; 4];
        for n in 0..400 {
            count[roles(&domain(&n.to_string()), &slots).unwrap().publisher] += 1;
        }
        assert!(count.iter().all(|n| *n > 50), "{count:?}");
    }
}
