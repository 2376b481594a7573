//! Reads of several keys of which no majority says the same as a whole: each key is settled by
//! itself.

use super::{Compare, Gather, Strictness, Voter};
use crate::proto::memcache::{ids, values};
use crate::proto::resp::encode;
use crate::proto::resp::reply::{elements, is_null};

/// What one replica says of each key in the order asked; `None` where memcache has no value.
struct Sheet<'a> {
    dc: u16,
    voter: Voter,
    says: Vec<Option<&'a [u8]>>,
}

impl Gather {
    /// Settles a [`super::Verdict::PerElement`] over these keys, as they were asked: appends an
    /// answer with the keys of which a majority of every group says the same. Gives the places of
    /// the others, or, when it is too late to ask for them and a guess will do, takes what was said
    /// most often, the first arrived of equals.
    pub fn settle_each(&self, keys: &[&[u8]], out: &mut Vec<u8>) -> Vec<u32> {
        let sheets: Vec<Sheet<'_>> =
            self.answers[..self.used].iter().filter_map(|answer| sheet(answer, keys)).collect();
        let guesses = self.strictness == Strictness::Lenient && self.is_late();
        let (mut settled, mut open) = (Vec::with_capacity(keys.len()), Vec::new());
        for place in 0..keys.len() {
            let most = (0..).zip(&self.ballots).map(|(dc, ballot)| {
                let (value, votes) = self.most_said(&sheets, dc, place);
                (value, votes >= ballot.votes.need())
            });
            let most: Vec<_> = most.collect();
            match guesses || most.iter().all(|(_, is_majority)| *is_majority) {
                true => settled.push(most[0].0),
                false => open.push(place as u32),
            }
        }
        if self.is_of_values() {
            settled.iter().flatten().for_each(|block| out.extend_from_slice(block));
            out.extend_from_slice(b"END\r\n");
        } else {
            encode::array(out, settled.len());
            settled.iter().for_each(|said| out.extend_from_slice(said.unwrap_or(b"$-1\r\n")));
        }
        open
    }

    /// What most replicas of a group say of one key, and how many.
    fn most_said<'a>(
        &self,
        sheets: &[Sheet<'a>],
        dc: u16,
        place: usize,
    ) -> (Option<&'a [u8]>, usize) {
        // A store that may lack data says nothing by lacking it (decision E11).
        let speaks = |sheet: &&Sheet<'a>| {
            sheet.dc == dc && !(sheet.voter.joining && sheet.says[place].is_some_and(is_null))
        };
        let (mut best, mut votes) = (None, 0);
        for sheet in sheets.iter().filter(speaks) {
            let said = sheet.says[place];
            let equal = |other: &&Sheet<'a>| self.is_same_element(said, other.says[place]);
            let count = sheets.iter().filter(speaks).filter(equal).count();
            if count > votes {
                (best, votes) = (said, count);
            }
        }
        (best, votes)
    }

    fn is_same_element(&self, a: Option<&[u8]>, b: Option<&[u8]>) -> bool {
        match (a, b) {
            (Some(a), Some(b)) if self.compare == Compare::Values => ids::is_same(a, b),
            (a, b) => a == b,
        }
    }

    fn is_of_values(&self) -> bool {
        self.answers[..self.used].iter().any(|answer| values::is_answer(answer.body.as_slice()))
    }
}

/// True for the answer to a read of several keys; an error is none.
pub(super) fn has_elements(reply: &[u8]) -> bool {
    reply.first() == Some(&b'*') || values::is_answer(reply)
}

fn sheet<'a>(answer: &'a super::Answer, keys: &[&[u8]]) -> Option<Sheet<'a>> {
    let reply = answer.body.as_slice();
    let says: Vec<Option<&[u8]>> = if values::is_answer(reply) {
        let mut found = values::values(reply).peekable();
        let of_key = |key: &&[u8]| found.next_if(|value| value.key == *key);
        keys.iter().map(of_key).map(|value| value.map(|value| value.block)).collect()
    } else if has_elements(reply) {
        elements(reply).map(Some).collect()
    } else {
        return None;
    };
    (says.len() == keys.len()).then_some(Sheet { dc: answer.dc, voter: answer.voter, says })
}
