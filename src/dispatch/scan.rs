//! SCAN over a ring: its cursor (decision F5), and who tells of which keys.
//!
//! Bits 62 to 41 of a cursor name a node by a hash of its name and of its rack as it is at the
//! time, bits 40 to 0 are the cursor of its datastore. Nothing is kept between two calls, so a
//! cursor survives restarts and is good at every node of the datacenter that sees the same ring.
//! Nodes are visited by rising hash. The whole stays positive as a signed number.
//!
//! When a node comes or goes, dies or has been filled, keys are told by other nodes than before,
//! and some of those may have been visited already. All hashes are others then: the cursor names
//! nobody, and the scan begins anew. A key may be told twice, as SCAN may; none is missed.

use crate::ring::{PeerIdx, ReplicaSet, Topology};
use xxhash_rust::xxh3::Xxh3;

/// Bits of a node's number.
const NODE_BITS: u32 = 22;

/// Bits of a datastore's own cursor.
const STORE_BITS: u32 = 41;

/// The place where a scan stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Cursor {
    /// The node's number; 0 stands before all of them.
    pub(super) node: u32,
    /// The cursor of its datastore; 0 is the beginning.
    pub(super) store: u64,
}

impl Cursor {
    /// Reads a cursor as a client sends it. `None` for what no scan gave.
    pub(super) fn parse(text: &[u8]) -> Option<Cursor> {
        let digits = !text.is_empty() && text.iter().all(u8::is_ascii_digit);
        let number: u64 = std::str::from_utf8(text).ok().filter(|_| digits)?.parse().ok()?;
        let node = u32::try_from(number >> STORE_BITS).ok().filter(|n| n >> NODE_BITS == 0)?;
        Some(Cursor { node, store: number & ((1 << STORE_BITS) - 1) })
    }

    /// The number a client gets. `None` when the datastore's cursor has too many bits.
    pub(super) fn number(self) -> Option<u64> {
        (self.store >> STORE_BITS == 0).then_some(u64::from(self.node) << STORE_BITS | self.store)
    }
}

/// Who tells of the keys of a ring: the owners in one rack. Where one of them is away, or is
/// joining and may lack keys, the owners in another rack tell of what it owns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Tellers {
    rack: usize,
    stand_in: Option<usize>,
}

impl Tellers {
    pub(super) fn of(topology: &Topology, rack: usize) -> Tellers {
        let whole = |rack: usize| owners_in(topology, rack).all(|peer| !lacks(topology, peer));
        let may = |other: &usize| owners_in(topology, *other).next().is_some() && whole(*other);
        let mut others = topology.local_racks().filter(|_| !whole(rack));
        Tellers { rack, stand_in: others.find(may) }
    }

    /// Those that are to be asked.
    pub(super) fn peers(self, topology: &Topology) -> impl Iterator<Item = PeerIdx> {
        let Tellers { rack, stand_in } = self;
        let tells = move |peer: &PeerIdx| stand_in.is_none() || !lacks(topology, *peer);
        let others = stand_in.into_iter().flat_map(|rack| owners_in(topology, rack));
        owners_in(topology, rack).filter(tells).chain(others)
    }

    /// Those whose keys are counted: the owners in one rack that has all of them.
    pub(super) fn counted(self, topology: &Topology) -> impl Iterator<Item = PeerIdx> {
        owners_in(topology, self.stand_in.unwrap_or(self.rack))
    }

    /// The one that tells of a key with these owners.
    pub(super) fn teller(self, topology: &Topology, owners: ReplicaSet<'_>) -> Option<PeerIdx> {
        let own = owners.owner(self.rack)?;
        match self.stand_in {
            Some(rack) if lacks(topology, own) => owners.owner(rack),
            Some(_) | None => Some(own),
        }
    }

    /// The same by rising number.
    fn order(self, topology: &Topology) -> Vec<(u32, PeerIdx)> {
        let place = |peer: &PeerIdx| (topology.peer(*peer).rack, topology.peer(*peer).name);
        let mut peers: Vec<PeerIdx> = self.peers(topology).collect();
        peers.sort_unstable_by_key(place);
        let shape = self.shape(topology, &peers);
        let mut order: Vec<(u32, PeerIdx)> = Vec::with_capacity(peers.len());
        for peer in peers {
            let (rack, name) = place(&peer);
            let mut number = hash_of(shape, &[rack, name]);
            while let Err(place) = free(&order, number) {
                debug_assert!(place < order.len());
                number = next(number);
            }
            let at = order.partition_point(|(n, _)| *n < number);
            order.insert(at, (number, peer));
        }
        order
    }

    /// A number for who tells of which keys.
    fn shape(self, topology: &Topology, peers: &[PeerIdx]) -> u64 {
        let mut hash = Xxh3::with_seed(topology.digest());
        hash.update(topology.racks()[self.rack].name.as_bytes());
        for peer in peers.iter().copied().chain(owners_in(topology, self.rack)) {
            hash.update(&[0, u8::from(lacks(topology, peer))]);
            hash.update(topology.peer(peer).name.as_bytes());
        }
        hash.digest()
    }
}

/// Where a scan stands.
#[derive(Debug)]
pub(super) struct Stand {
    pub(super) tellers: Tellers,
    /// The node that is asked, with its number.
    pub(super) node: (u32, PeerIdx),
    /// The cursor of its datastore.
    pub(super) store: u64,
    /// The number of the node after it.
    pub(super) after: Option<u32>,
}

/// Where a cursor points: into the own rack, or into another one of the datacenter if the scan
/// began there. One that points nowhere is of a ring that is no more, and stands at the beginning.
/// `None` when nobody tells of anything.
pub(super) fn stand(topology: &Topology, cursor: Cursor) -> Option<Stand> {
    let own = topology.own_rack();
    let others = topology.local_racks().filter(|rack| *rack != own && cursor.node != 0);
    let found = std::iter::once(own).chain(others).find_map(|rack| {
        let tellers = Tellers::of(topology, rack);
        let order = tellers.order(topology);
        let at = order.binary_search_by_key(&cursor.node, |(node, _)| *node).ok()?;
        Some((tellers, order, at, cursor.store))
    });
    let (tellers, order, at, store) = found.unwrap_or_else(|| {
        let tellers = Tellers::of(topology, own);
        (tellers, tellers.order(topology), 0, 0)
    });
    let after = order.get(at + 1).map(|(node, _)| *node);
    Some(Stand { tellers, node: *order.get(at)?, store, after })
}

/// True for a node that cannot tell of all it owns.
fn lacks(topology: &Topology, peer: PeerIdx) -> bool {
    let peer = topology.peer(peer);
    peer.is_joining() || !peer.routable()
}

/// The nodes of the own rack that own keys.
pub(super) fn owners(topology: &Topology) -> impl Iterator<Item = PeerIdx> {
    owners_in(topology, topology.own_rack())
}

/// True when some keys have other owners than others.
pub(super) fn has_several_owners(topology: &Topology) -> bool {
    (0..topology.racks().len()).any(|rack| owners_in(topology, rack).nth(1).is_some())
}

fn owners_in(topology: &Topology, rack: usize) -> impl Iterator<Item = PeerIdx> {
    let peers = topology.racks()[rack].peers.clone().map(PeerIdx);
    peers.filter(|idx| {
        let peer = topology.peer(*idx);
        peer.state.owns_arc() && !peer.tokens.is_empty()
    })
}

/// `Err` with the place of the node that has the number already.
fn free(order: &[(u32, PeerIdx)], number: u32) -> Result<(), usize> {
    match order.binary_search_by_key(&number, |(n, _)| *n) {
        Ok(place) => Err(place),
        Err(_) => Ok(()),
    }
}

/// The number of a node in the ring, whatever becomes of other nodes.
pub(super) fn number_of(topology: &Topology, peer: PeerIdx) -> u32 {
    let peer = topology.peer(peer);
    hash_of(0, &[peer.dc, peer.rack, peer.name])
}

fn hash_of(seed: u64, parts: &[&str]) -> u32 {
    let mut hash = Xxh3::with_seed(seed);
    for part in parts {
        hash.update(part.as_bytes());
        hash.update(&[0]);
    }
    let number = hash.digest() as u32 & ((1 << NODE_BITS) - 1);
    number.max(1)
}

/// 0 is no number: it is where a scan begins.
fn next(number: u32) -> u32 {
    ((number + 1) & ((1 << NODE_BITS) - 1)).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ring::{Peer, PeerId, PeerState};
    use crate::token::DynToken;

    /// Peers of two racks, each with the state that its name says.
    fn topology(names: &[&str]) -> Topology {
        let peers = names.iter().zip(1..).map(|(name, id)| Peer {
            id: PeerId(id),
            name: (*name).to_owned(),
            host: "127.0.0.1".into(),
            port: 1,
            dc: "dc1".into(),
            rack: if name.starts_with("other") { "r2" } else { "r1" }.into(),
            tokens: vec![DynToken::from_u32(u32::from(name.as_bytes()[name.len() - 1]) * 1000)],
            state: match *name {
                "left" => PeerState::Leaving,
                "joins" => PeerState::Joining,
                _ => PeerState::Normal,
            },
            reachable: !name.ends_with("down"),
            is_local: id == 1,
            is_torc: true,
        });
        Topology::build(peers.collect()).unwrap()
    }

    fn names(topology: &Topology) -> Vec<(u32, &str)> {
        let order = Tellers::of(topology, topology.own_rack()).order(topology);
        assert!(order.is_sorted());
        order.iter().map(|(number, peer)| (*number, topology.peer(*peer).name)).collect()
    }

    #[test]
    fn a_cursor_is_a_positive_signed_number_and_comes_back() {
        let all = Cursor { node: (1 << NODE_BITS) - 1, store: (1 << STORE_BITS) - 1 };
        assert_eq!(all.number(), Some(i64::MAX as u64));
        for cursor in [all, Cursor { node: 1, store: 0 }, Cursor { node: 0, store: 0 }] {
            let text = cursor.number().unwrap().to_string();
            assert_eq!(Cursor::parse(text.as_bytes()), Some(cursor));
        }
        assert_eq!(Cursor { node: 1, store: 1 << STORE_BITS }.number(), None);
        for bad in ["", "-1", "x", "+1", "9223372036854775808", "99999999999999999999"] {
            assert_eq!(Cursor::parse(bad.as_bytes()), None, "{bad:?}");
        }
    }

    #[test]
    fn all_nodes_of_a_rack_visit_the_others_in_one_order() {
        let (a, b) = (topology(&["a", "b", "c", "left"]), topology(&["c", "left", "a", "b"]));
        assert_eq!(names(&a), names(&b));
        assert_eq!(names(&a).len(), 3, "who leaves owns nothing");
        let other = topology(&["a", "b", "d", "left"]);
        assert!(names(&other).iter().all(|(n, _)| names(&a).iter().all(|(m, _)| n != m)));
    }

    #[test]
    fn another_rack_tells_of_what_a_node_owns_that_joins_or_is_away() {
        let sorted = |names: &[&str]| {
            let topology = topology(names);
            let mut names: Vec<String> =
                self::names(&topology).iter().map(|(_, n)| (*n).to_owned()).collect();
            names.sort_unstable();
            names
        };
        assert_eq!(sorted(&["a", "joins", "other b"]), ["a", "other b"]);
        assert_eq!(sorted(&["a", "down", "other b"]), ["a", "other b"]);
        assert_eq!(sorted(&["a", "joins", "other down"]), ["a", "joins"], "nobody else can");
        assert_eq!(sorted(&["a", "b", "other b"]), ["a", "b"]);
        let topology = topology(&["a", "joins", "other b"]);
        let tellers = Tellers::of(&topology, topology.own_rack());
        let mut told: Vec<&str> = (0..=255)
            .map(|n| topology.owners(&DynToken::from_u32(n * 1000)))
            .map(|owners| tellers.teller(&topology, owners).unwrap())
            .map(|peer| topology.peer(peer).name)
            .collect();
        told.sort_unstable();
        told.dedup();
        assert_eq!(told, ["a", "other b"]);
    }

    #[test]
    fn a_scan_goes_on_in_the_rack_where_it_began() {
        let (here, there) = (topology(&["a", "b", "other b"]), topology(&["other b", "a", "b"]));
        let begun = stand(&here, Cursor { node: 0, store: 0 }).unwrap();
        let cursor = Cursor { node: begun.node.0, store: 7 };
        let on = stand(&there, cursor).unwrap();
        assert_eq!((on.node.0, on.store, on.after), (begun.node.0, 7, begun.after));
        assert_eq!(there.peer(on.node.1).rack, "r1");
        // In another ring it begins anew.
        let changed = topology(&["other b", "a", "b", "c"]);
        let anew = stand(&changed, cursor).unwrap();
        assert_eq!((changed.peer(anew.node.1).name, anew.store), ("other b", 0));
    }

    #[test]
    fn numbers_that_collide_move_on() {
        let topology = topology(&["a"]);
        let number = names(&topology)[0].0;
        assert!(free(&[(number, topology.local())], number).is_err());
        assert_eq!(next((1 << NODE_BITS) - 1), 1);
    }
}
