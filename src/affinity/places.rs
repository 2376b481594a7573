//! The nodes affinity deals with, as the ring has them now, and who does what for a domain.

use std::sync::Arc;

use super::roles::roles;
use crate::ckf::identity::IndexerDomainId;
use crate::gossip::{Addr, Slot};
use crate::ring::{PeerId, PeerRef, Topology};

/// One node of the ring.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// Its slot in eight bytes: the same on every node, over restarts.
    pub slot: u64,
    /// Its name, for people.
    pub name: String,
    /// Its datacenter.
    pub dc: String,
    /// Its rack.
    pub rack: String,
    /// Where it listens.
    pub addr: Addr,
    /// Its number in this process.
    pub peer: PeerId,
    /// True once proven to be torc.
    pub torc: bool,
    /// True while requests are planned for it.
    pub live: bool,
    /// True for this node.
    pub local: bool,
}

/// Who publishes a domain in one datacenter, and who stands by. Slots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Posts {
    /// Holds the exact state and publishes.
    pub publisher: u64,
    /// Holds the same state, takes over, and fetches the pools of other datacenters.
    pub standby: Option<u64>,
}

impl Posts {
    /// Who fetches the pools of other datacenters for this one.
    pub fn importer(self) -> u64 {
        self.standby.unwrap_or(self.publisher)
    }

    /// True for nodes that hold the exact state.
    pub fn holds(self, slot: u64) -> bool {
        self.publisher == slot || self.standby == Some(slot)
    }
}

/// All nodes of the ring. Nodes that have left are none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Places {
    places: Vec<Arc<Place>>,
}

impl Places {
    /// The nodes of a ring.
    pub fn of(topology: &Topology) -> Places {
        let owners = topology.peers().filter(|peer| peer.state.owns_arc());
        Places { places: owners.map(|peer| Arc::new(place(&peer))).collect() }
    }

    /// This node.
    pub fn local(&self) -> Option<&Arc<Place>> {
        self.places.iter().find(|place| place.local)
    }

    /// A node by its slot.
    pub fn get(&self, slot: u64) -> Option<&Arc<Place>> {
        self.places.iter().find(|place| place.slot == slot)
    }

    /// A node by its number in this process.
    pub fn by_peer(&self, peer: PeerId) -> Option<&Arc<Place>> {
        self.places.iter().find(|place| place.peer == peer)
    }

    /// The nodes of a datacenter that take part.
    pub fn members<'a>(&'a self, dc: &'a str) -> impl Iterator<Item = &'a Arc<Place>> {
        self.places.iter().filter(move |place| place.dc == dc && place.torc && place.live)
    }

    /// True when a node of the datacenter holds keys and cannot tell of them.
    pub fn has_strangers(&self, dc: &str) -> bool {
        self.places.iter().any(|place| place.dc == dc && place.live && !place.torc)
    }

    /// Nodes of a datacenter, whatever they are.
    pub fn count(&self, dc: &str) -> usize {
        self.places.iter().filter(|place| place.dc == dc).count()
    }

    /// Who does what for `domain` in `dc`; `pinned` names the publisher while that node lives.
    pub fn posts(&self, domain: &IndexerDomainId, dc: &str, pinned: Option<&str>) -> Option<Posts> {
        let members: Vec<&Arc<Place>> = self.members(dc).collect();
        let slots: Vec<[u8; 8]> = members.iter().map(|place| place.slot.to_le_bytes()).collect();
        let slot = |index: usize| members[index].slot;
        let found = roles(domain, &slots)?;
        let (publisher, standby) = (slot(found.publisher), found.standby.map(slot));
        let pin = members.iter().find(|place| Some(place.name.as_str()) == pinned);
        Some(match pin {
            None => Posts { publisher, standby },
            Some(pin) if pin.slot == publisher => Posts { publisher, standby },
            Some(pin) => Posts { publisher: pin.slot, standby: Some(publisher) },
        })
    }
}

fn place(peer: &PeerRef<'_>) -> Place {
    let slot = peer.tokens.first().map(|token| Slot::new(peer.dc, peer.rack, *token));
    Place {
        slot: slot.map_or(0, |slot| slot.id().0),
        name: peer.name.to_owned(),
        dc: peer.dc.to_owned(),
        rack: peer.rack.to_owned(),
        addr: Addr::new(peer.host, peer.port),
        peer: peer.id,
        torc: peer.is_torc || peer.is_local,
        live: peer.routable(),
        local: peer.is_local,
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::ckf::ringkey::ring_key_domain;
    use crate::ring::{Peer, PeerState};
    use crate::token::DynToken;

    /// A ring of nodes `dc`, one rack each; number `own` is this node, those in `down` are not
    /// reached.
    pub(in crate::affinity) fn ring(dcs: &[&str], own: usize, down: &[usize]) -> Places {
        ring_of(dcs, own, down, true)
    }

    /// The same, where the others are known to be torc or are not.
    pub(in crate::affinity) fn ring_of(
        dcs: &[&str],
        own: usize,
        down: &[usize],
        known: bool,
    ) -> Places {
        let peer = |(i, dc): (usize, &&str)| Peer {
            id: PeerId(i as u32),
            name: format!("n{i}"),
            host: "127.0.0.1".into(),
            port: 8000 + i as u16,
            dc: (*dc).to_owned(),
            rack: "r1".into(),
            tokens: vec![DynToken::from_u32(i as u32 * 1000)],
            state: PeerState::Normal,
            reachable: !down.contains(&i),
            is_local: i == own,
            is_torc: known,
        };
        let peers = dcs.iter().enumerate().map(peer).collect();
        Places::of(&Topology::build(peers).unwrap())
    }

    #[test]
    fn every_node_names_the_same_posts_and_the_standby_is_next() {
        let domain = ring_key_domain([("a", "b")], [("a", "b")]).unwrap();
        let dcs = ["x", "x", "x", "y"];
        let all: Vec<Places> = (0..4).map(|own| ring(&dcs, own, &[])).collect();
        let posts = all[0].posts(&domain, "x", None).unwrap();
        assert!(all.iter().all(|places| places.posts(&domain, "x", None) == Some(posts)));
        let dead = (0..3).find(|i| all[0].places[*i].slot == posts.publisher).unwrap();
        let after = ring(&dcs, 3, &[dead]).posts(&domain, "x", None).unwrap();
        assert_eq!(Some(after.publisher), posts.standby);
        assert!(posts.holds(posts.importer()) && posts.importer() != posts.publisher);
        let alone = all[0].posts(&domain, "y", None).unwrap();
        assert_eq!((alone.standby, alone.importer()), (None, alone.publisher));
        assert_eq!(all[0].posts(&domain, "z", None), None);
    }

    #[test]
    fn a_pinned_publisher_holds_while_it_lives() {
        let domain = ring_key_domain([("a", "b")], [("a", "b")]).unwrap();
        let dcs = ["x", "x", "x"];
        for pin in 0..3 {
            let name = format!("n{pin}");
            let places = ring(&dcs, 0, &[]);
            let posts = places.posts(&domain, "x", Some(&name)).unwrap();
            assert_eq!(posts.publisher, places.places[pin].slot);
            assert_ne!(posts.standby, Some(posts.publisher));
            let without = ring(&dcs, 0, &[pin]).posts(&domain, "x", Some(&name)).unwrap();
            assert_ne!(without.publisher, posts.publisher);
        }
    }
}
