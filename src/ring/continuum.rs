//! The points of one rack and the search for a token's owner.
//!
//! A point owns the arc from the point before it, exclusive, to its own token, inclusive; the
//! first point also owns what lies above the last one. This is `src/dyn_vnode.c` of
//! Netflix/dynomite.

use super::PeerIdx;
use crate::token::DynToken;

/// One token of one peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Point {
    /// Where the arc ends.
    pub token: DynToken,
    /// Who owns it.
    pub peer: PeerIdx,
}

/// The sorted points of one rack.
///
/// ```
/// use torc::ring::{Continuum, PeerIdx, Point};
/// use torc::token::DynToken;
///
/// let points = [10, 20, 30].into_iter().zip(0..).map(|(token, peer)| Point {
///     token: DynToken::from_u32(token),
///     peer: PeerIdx(peer),
/// });
/// let continuum = Continuum::new(points);
///
/// assert_eq!(continuum.owner(&DynToken::from_u32(15)), Some(PeerIdx(1)));
/// assert_eq!(continuum.owner(&DynToken::from_u32(20)), Some(PeerIdx(1)));
/// assert_eq!(continuum.owner(&DynToken::from_u32(35)), Some(PeerIdx(0)));
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Continuum {
    points: Vec<Point>,
}

impl Continuum {
    /// Sorts `points` by token. Points of equal tokens stay in the order they came in.
    pub fn new(points: impl IntoIterator<Item = Point>) -> Continuum {
        let mut points = points.into_iter().collect::<Vec<_>>();
        points.sort_by_key(|point| point.token);
        Continuum { points }
    }

    /// The points, ascending.
    pub fn points(&self) -> &[Point] {
        &self.points
    }

    /// The owner of `token`; `None` only in an empty continuum.
    pub fn owner(&self, token: &DynToken) -> Option<PeerIdx> {
        self.search(token).map(|i| self.points[i].peer)
    }

    /// The index of the point that owns `token`.
    ///
    /// Among points of equal tokens the result depends on the steps of the search, so these are
    /// the reference's own: a lower bound would pick another owner than a C node does.
    pub fn search(&self, token: &DynToken) -> Option<usize> {
        let (first, last) = (self.points.first()?, self.points.last()?);
        if *token > last.token || *token <= first.token {
            return Some(0);
        }
        let (mut left, mut right) = (0, self.points.len() - 1);
        while left < right {
            let middle = left + (right - left) / 2;
            match self.points[middle].token.cmp(token) {
                std::cmp::Ordering::Equal => return Some(middle),
                std::cmp::Ordering::Less => left = middle + 1,
                std::cmp::Ordering::Greater => right = middle,
            }
        }
        Some(right)
    }
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::*;
    use crate::token::Sign;

    #[derive(Deserialize)]
    struct File {
        cases: Vec<Case>,
    }

    #[derive(Deserialize)]
    struct Case {
        name: String,
        peers: Vec<PeerRow>,
        continua: Vec<ContinuumRow>,
        searches: Vec<SearchRow>,
    }

    #[derive(Deserialize)]
    struct PeerRow {
        peer_index: u32,
        rack: String,
        tokens_text: String,
    }

    #[derive(Deserialize)]
    struct ContinuumRow {
        rack: String,
        points: Vec<TokenRow>,
    }

    #[derive(Deserialize)]
    struct TokenRow {
        peer_index: u32,
        sign: i32,
        word0: u32,
    }

    #[derive(Deserialize)]
    struct SearchRow {
        rack: String,
        sign: i32,
        len_words: usize,
        word0: u32,
        owner_peer_index: u32,
    }

    fn token(sign: i32, len: usize, word0: u32) -> DynToken {
        let sign = match sign {
            -1 => Sign::Negative,
            0 => Sign::Zero,
            _ => Sign::Positive,
        };
        let mut words = vec![0; len];
        words[len - 1] = word0;
        DynToken::from_words(sign, &words).unwrap()
    }

    fn continuum_of(case: &Case, rack: &str) -> Continuum {
        let peers = case.peers.iter().filter(|peer| peer.rack == rack);
        Continuum::new(peers.flat_map(|peer| {
            DynToken::parse_reference_list(peer.tokens_text.as_bytes())
                .into_iter()
                .map(|token| Point { token, peer: PeerIdx(peer.peer_index) })
        }))
    }

    #[test]
    fn continua_and_searches_match_the_reference() {
        let file: File =
            serde_json::from_str(include_str!("../../tests/vectors/dispatch.json")).unwrap();
        let mut searches = 0;
        for case in &file.cases {
            // Negative tokens sort the other way here (see `token`); tested below.
            let negative = case.continua.iter().flat_map(|c| &c.points).any(|p| p.sign < 0);
            for row in case.continua.iter().filter(|_| !negative) {
                let expected = row.points.iter().map(|p| Point {
                    token: token(p.sign, 1, p.word0),
                    peer: PeerIdx(p.peer_index),
                });
                let expected = expected.collect::<Vec<_>>();
                assert_eq!(continuum_of(case, &row.rack).points(), expected, "{}", case.name);
            }
            for row in case.searches.iter().filter(|_| !negative) {
                let token = token(row.sign, row.len_words, row.word0);
                let owner = continuum_of(case, &row.rack).owner(&token);
                let expected = Some(PeerIdx(row.owner_peer_index));
                assert_eq!(owner, expected, "{}: {token} in {}", case.name, row.rack);
                searches += 1;
            }
        }
        assert_eq!((file.cases.len(), searches), (24, 609 - 25));
    }

    #[test]
    fn negative_tokens_own_the_bottom_of_the_ring() {
        let texts = ["-100", "100", "200", "-5"];
        let continuum = Continuum::new((0..).zip(texts).map(|(peer, text)| Point {
            token: DynToken::parse_config(text).unwrap(),
            peer: PeerIdx(peer),
        }));
        let owner = |text| continuum.owner(&DynToken::parse_config(text).unwrap()).unwrap().0;
        assert_eq!(continuum.points().iter().map(|p| p.peer.0).collect::<Vec<_>>(), [3, 0, 1, 2]);
        assert_eq!(["0", "100", "150", "201", "-5", "-6"].map(owner), [1, 1, 2, 3, 3, 0]);
    }

    #[test]
    fn an_empty_continuum_owns_nothing() {
        assert_eq!(Continuum::default().owner(&DynToken::ZERO), None);
    }
}
