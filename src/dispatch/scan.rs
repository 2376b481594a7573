//! The cursor of SCAN over a ring (decision F5).
//!
//! Bits 62 to 41 name a node of the own rack by a hash of its place and name, bits 40 to 0 are
//! the cursor of its datastore. Nothing is kept between two calls, so a cursor survives restarts
//! and is good at every other node of the rack. Nodes are visited by rising hash; one that is
//! gone is skipped to the next hash. The whole stays positive as a signed number.

use crate::ring::{PeerIdx, Topology};
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

/// The nodes of the own rack that own keys, by rising number.
pub(super) fn order(topology: &Topology) -> Vec<(u32, PeerIdx)> {
    let mut names: Vec<_> = owners(topology).map(|peer| (topology.peer(peer).name, peer)).collect();
    names.sort_unstable_by_key(|(name, _)| *name);
    let own = topology.peer(topology.local());
    let mut order: Vec<(u32, PeerIdx)> = Vec::with_capacity(names.len());
    for (name, peer) in names {
        let mut number = hash_of(own.dc, own.rack, name);
        while let Err(place) = free(&order, number) {
            debug_assert!(place < order.len());
            number = next(number);
        }
        let at = order.partition_point(|(n, _)| *n < number);
        order.insert(at, (number, peer));
    }
    order
}

/// The nodes of the own rack that own keys.
pub(super) fn owners(topology: &Topology) -> impl Iterator<Item = PeerIdx> {
    let rack = &topology.racks()[topology.own_rack()];
    let peers = rack.peers.clone().map(PeerIdx);
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

/// The number of a node anywhere in the ring, before any collision is settled.
pub(super) fn number_of(topology: &Topology, peer: PeerIdx) -> u32 {
    let peer = topology.peer(peer);
    hash_of(peer.dc, peer.rack, peer.name)
}

fn hash_of(dc: &str, rack: &str, name: &str) -> u32 {
    let mut hash = Xxh3::new();
    for part in [dc, rack, name] {
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

    fn topology(names: &[&str]) -> Topology {
        let peers = names.iter().zip(1..).map(|(name, id)| Peer {
            id: PeerId(id),
            name: (*name).to_owned(),
            host: "127.0.0.1".into(),
            port: 1,
            dc: "dc1".into(),
            rack: "r1".into(),
            tokens: vec![DynToken::from_u32(id * 100)],
            state: if *name == "left" { PeerState::Leaving } else { PeerState::Normal },
            reachable: true,
            is_local: id == 1,
            is_torc: true,
        });
        Topology::build(peers.collect()).unwrap()
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
    fn the_order_depends_on_names_alone() {
        let (a, b) = (topology(&["a", "b", "c", "left"]), topology(&["c", "a", "b"]));
        let names = |t: &Topology| {
            let order = order(t);
            assert!(order.is_sorted());
            order.iter().map(|(n, p)| (*n, t.peer(*p).name.to_owned())).collect::<Vec<_>>()
        };
        assert_eq!(names(&a), names(&b));
        assert_eq!(names(&a).len(), 3, "who leaves owns nothing");
    }

    #[test]
    fn numbers_that_collide_move_on() {
        let topology = topology(&["a"]);
        let number = hash_of("dc1", "r1", "a");
        assert_eq!(order(&topology), [(number, topology.local())]);
        assert!(free(&[(number, topology.local())], number).is_err());
        assert_eq!(next((1 << NODE_BITS) - 1), 1);
    }
}
