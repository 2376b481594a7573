//! Even token layouts and the share of the key space each peer owns.
//!
//! Arithmetic for operators, in big integers; nothing on the data path comes here.

use num_bigint::BigUint;

use super::{Continuum, Topology};
use crate::hash::HashType;
use crate::token::{DynToken, Sign};

/// Bits of a token word.
const WORD_BITS: u32 = 32;

/// Shares are rounded down to this fraction of a percent.
const STEPS_PER_PERCENT: u64 = 10_000_000_000;

/// Tokens that cut the range of `hash` into `count` equal arcs, ascending from 0. The same
/// layout serves every rack. With several tokens a peer, deal them out in turn.
///
/// `None` when the hash does not yield that many different tokens.
///
/// ```
/// use torc::hash::HashType;
/// use torc::ring::even_layout;
///
/// let tokens = even_layout(HashType::Murmur, 3).unwrap();
/// let texts = tokens.iter().map(|token| token.to_string());
/// assert_eq!(texts.collect::<Vec<_>>(), ["0", "1431655765", "2863311530"]);
/// ```
pub fn even_layout(hash: HashType, count: usize) -> Option<Vec<DynToken>> {
    let range = range_of(hash);
    if BigUint::from(count) > range {
        return None;
    }
    (0..count).map(|i| token_at(hash, &range * i / count)).collect()
}

/// The percentage of its rack's keys that each peer owns, by peer index, if keys were spread
/// evenly over the range of `hash`. Where a rack has several points at one token, the first of
/// them counts as the owner of that one token too.
pub fn arc_shares(topology: &Topology, hash: HashType) -> Vec<f64> {
    let range = range_of(hash);
    let mut shares = vec![0.0; topology.peers().len()];
    for rack in topology.racks() {
        for (peer, arc) in arcs(&rack.continuum, hash, &range) {
            shares[peer] += percent(arc, &range);
        }
    }
    shares
}

/// Each point's peer and the number of hash values in its arc.
fn arcs<'a>(
    continuum: &'a Continuum,
    hash: HashType,
    range: &'a BigUint,
) -> impl Iterator<Item = (usize, BigUint)> + 'a {
    let points = continuum.points();
    // The first point's arc begins after the last one and wraps, so count from there.
    let mut before = points.last().map(|last| values_up_to(&last.token, hash, range));
    points.iter().enumerate().filter_map(move |(i, point)| {
        let end = values_up_to(&point.token, hash, range);
        let start = before.replace(end.clone())?;
        let arc = if i == 0 { end + range - start } else { end - start };
        Some((point.peer.0 as usize, arc))
    })
}

/// How many values of `hash` are at or below `token`.
fn values_up_to(token: &DynToken, hash: HashType, range: &BigUint) -> BigUint {
    let words = hash.token_bits().div_ceil(WORD_BITS) as usize;
    let zero_only = BigUint::from(1u32);
    match token.sign() {
        Sign::Negative => BigUint::default(),
        Sign::Zero => zero_only,
        // Positive hashes of more words are above the token, of fewer words below it.
        Sign::Positive if token.words().len() < words => zero_only,
        Sign::Positive if token.words().len() > words => range.clone(),
        Sign::Positive => (BigUint::from(token.magnitude()) + 1u32).min(range.clone()),
    }
}

/// How many values `hash` can yield.
fn range_of(hash: HashType) -> BigUint {
    BigUint::from(1u32) << hash.token_bits()
}

fn token_at(hash: HashType, value: BigUint) -> Option<DynToken> {
    if hash.token_bits() > WORD_BITS {
        u128::try_from(value).ok().map(DynToken::from_u128)
    } else {
        u32::try_from(value).ok().map(DynToken::from_u32)
    }
}

fn percent(arc: BigUint, range: &BigUint) -> f64 {
    let steps = arc * STEPS_PER_PERCENT * 100u32 / range;
    u64::try_from(steps).map_or(0.0, |steps| steps as f64 / STEPS_PER_PERCENT as f64)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::ring::{Peer, PeerId, PeerState};

    fn ring(racks: &[&[&str]]) -> Topology {
        let mut peers = Vec::new();
        for (rack, texts) in racks.iter().enumerate() {
            for text in *texts {
                let id = peers.len() as u32;
                peers.push(Peer {
                    id: PeerId(id),
                    name: format!("n{id}"),
                    host: "127.0.0.1".into(),
                    port: 8101,
                    dc: "dc".into(),
                    rack: format!("r{rack}"),
                    tokens: DynToken::parse_config_list(text).unwrap(),
                    state: PeerState::Normal,
                    reachable: true,
                    is_local: id == 0,
                    is_torc: true,
                });
            }
        }
        Topology::build(peers).unwrap()
    }

    /// Shares in the order of the ids.
    fn shares(topology: &Topology, hash: HashType) -> Vec<f64> {
        let shares = arc_shares(topology, hash);
        let ids = (0..shares.len() as u32).map(PeerId);
        ids.map(|id| shares[topology.idx_of(id).unwrap().0 as usize]).collect()
    }

    #[test]
    fn a_layout_cuts_the_ring_evenly_for_every_hash() {
        for hash in HashType::ALL {
            for nodes in [1, 2, 3, 7, 100] {
                let tokens = even_layout(hash, nodes).unwrap();
                assert!(tokens.is_sorted_by(|a, b| a < b), "{hash}");
                let texts = tokens.iter().map(DynToken::to_string).collect::<Vec<_>>();
                let texts = texts.iter().map(String::as_str).collect::<Vec<_>>();
                let found = shares(&ring(&[&texts]), hash);
                let even = 100.0 / nodes as f64;
                assert!(found.iter().all(|share| (share - even).abs() < 0.01), "{hash}: {found:?}");
            }
        }
    }

    #[test]
    fn a_wide_layout_is_printed_in_hex() {
        let tokens = even_layout(HashType::Murmur3, 2).unwrap();
        assert_eq!(tokens[0].to_string(), format!("0x{}", "0".repeat(32)));
        assert_eq!(tokens[1].to_string(), format!("0x8{}", "0".repeat(31)));
    }

    #[test]
    fn there_are_no_more_tokens_than_the_hash_yields() {
        assert_eq!(even_layout(HashType::Crc32, 32_768).unwrap().len(), 32_768);
        assert_eq!(even_layout(HashType::Crc32, 32_769), None);
        assert_eq!(even_layout(HashType::Murmur, 0), Some(Vec::new()));
    }

    #[test]
    fn shares_follow_the_arcs_and_the_wrap() {
        let quarter = "1073741823";
        let half = "2147483647";
        let topology = ring(&[&[quarter, half], &[half], &["1073741823,2147483647", "3221225471"]]);
        assert_eq!(shares(&topology, HashType::Murmur), [75.0, 25.0, 100.0, 75.0, 25.0]);
    }

    #[test]
    fn tokens_out_of_the_range_of_the_hash_own_what_the_search_gives_them() {
        let negative = ring(&[&["-5", "2147483647", "-10"]]);
        assert_eq!(shares(&negative, HashType::Murmur), [50.0, 50.0, 0.0]);
        // Crc32 yields nothing above 32767, so all keys go to the first token.
        let high = ring(&[&["2147483647", "4294967295"]]);
        assert_eq!(shares(&high, HashType::Crc32), [100.0, 0.0]);
        // One-word tokens are below all of murmur3's hashes but zero.
        let narrow = ring(&[&["1000", "2000"]]);
        assert_eq!(shares(&narrow, HashType::Murmur3), [100.0, 0.0]);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(16))]
        #[test]
        fn shares_count_the_tokens_that_are_looked_up(
            tokens in prop::collection::btree_set(0..40_000u32, 1..12),
        ) {
            let texts = tokens.iter().map(u32::to_string).collect::<Vec<_>>();
            let topology = ring(&[&texts.iter().map(String::as_str).collect::<Vec<_>>()]);
            let mut counts = vec![0u32; tokens.len()];
            for value in 0..1 << 15 {
                let owner = topology.owners(&DynToken::from_u32(value)).owner(0).unwrap();
                counts[owner.0 as usize] += 1;
            }
            for (share, count) in arc_shares(&topology, HashType::Crc32).iter().zip(counts) {
                let counted = f64::from(count) * 100.0 / 32_768.0;
                prop_assert!((share - counted).abs() < 1e-6, "{share} {counted}");
            }
        }
    }
}
