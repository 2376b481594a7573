//! Commands over many keys: split by replica set, sent as parts, merged in the order asked.
//!
//! Keys are grouped when they have the same owner in *every* rack, not only in the own one as
//! the reference does: racks may have different tokens. The cost is linear in the keys. Keys that
//! are counted (EXISTS, TOUCH) travel alone where replicas vote on them.

use bytes::Bytes;

use super::failure::Failure;
use super::gather::{Parked, Said};
use super::plan::Op;
use super::requests::Request;
use super::route::Choice;
use super::send::Ask;
use super::slot::{Owner, Slot, Stage};
use super::view::{Now, View};
use super::{Dispatcher, Frame};
use crate::proto::args::{Args, Span};
use crate::proto::command::Merge;
use crate::proto::memcache::values;
use crate::proto::outbuf::SHARE_MIN;
use crate::proto::resp::encode;
use crate::proto::resp::reply::{elements, is_error, parse_int};
use crate::ring::Consistency;

/// The parts of one split command and what came back for them.
#[derive(Debug)]
pub(super) struct Parts {
    merge: Merge,
    /// For each key in the order asked, its part.
    part_of: Vec<u32>,
    /// The keys themselves, where merging needs them.
    keys: Vec<Vec<u8>>,
    replies: Vec<Parked>,
    waiting: usize,
    failure: Option<Failure>,
}

/// Memory for the request of one part, used again for the next.
#[derive(Debug, Default)]
pub(super) struct Letter {
    bytes: Vec<u8>,
    spans: Vec<Span>,
}

/// Keys sorted by the part they belong to.
struct Grouping {
    part_of: Vec<u32>,
    /// Key numbers, those of one part together, each part in the order asked.
    sorted: Vec<u32>,
    /// Where each part begins in `sorted`, and the end.
    starts: Vec<u32>,
}

/// What keys must have in common to travel together.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct GroupKey {
    set: u32,
    bucket: u32,
    start: u32,
    /// Where the filters say the key is.
    choice: Option<Choice>,
}

impl Dispatcher {
    /// Splits a command over its keys' owners, and over the datacenters where the filters say
    /// the keys are. `false` when one owner has them all, so that it can be sent as it is.
    pub(super) fn split(
        &mut self,
        view: &View,
        frame: &Frame<'_>,
        request: &Request<'_>,
        now: Now,
    ) -> bool {
        let (first, step) = spacing(request);
        let keys = (first..request.args.len()).step_by(step);
        // The store has its own words for a key without a value.
        if keys.len() < 2 || !(request.args.len() - first).is_multiple_of(step) {
            let routed = keys.len() == 1 && request.op == Op::Read;
            return routed && self.ask_routed(view, &request.ask(frame), now);
        }
        let choices = self.choices(view, request, keys.clone(), now);
        let grouping = self.group(view, request, keys, &choices);
        let parts = grouping.starts.len() - 1;
        let choice = |member: u32| choices.get(member as usize).copied().flatten();
        if parts == 1 {
            let choice = choice(0);
            return choice.is_some_and(|c| self.route(view, &request.ask(frame), c, now));
        }
        self.counters.fragments += parts as u64;
        let (slot, generation) = self.reserve_parts(request, &grouping, parts, now);
        for part in 0..parts {
            let range = grouping.starts[part] as usize..grouping.starts[part + 1] as usize;
            let members = &grouping.sorted[range];
            let owner = Owner::Slot { slot, generation, part: part as u32 };
            self.ask_members(view, request, members, (owner, choice(members[0])), now);
        }
        true
    }

    /// Asks for these keys of a command, given by their number, in a request of their own.
    pub(super) fn ask_members(
        &mut self,
        view: &View,
        request: &Request<'_>,
        members: &[u32],
        (owner, choice): (Owner, Option<Choice>),
        now: Now,
    ) {
        let mut letter = std::mem::take(&mut self.letter);
        letter.bytes.clear();
        letter.spans.clear();
        encode_part(request, members, &mut letter.bytes, &mut letter.spans);
        let frame = match letter.bytes.len() < SHARE_MIN {
            true => Frame::Small(&letter.bytes),
            false => Frame::Large(Bytes::from(std::mem::take(&mut letter.bytes))),
        };
        let (first, step) = spacing(request);
        let ask = Ask {
            args: Args::new(frame.as_slice(), &letter.spans),
            key: Some(&request.args[first + members[0] as usize * step]),
            owner,
            envelope: Default::default(),
            per_element: request.has_elements() && members.len() > 1,
            ..request.ask(&frame)
        };
        if request.at_first {
            self.ask_first(view, &ask, now);
        } else if !choice.is_some_and(|choice| self.route(view, &ask, choice, now)) {
            self.ask(view, &ask, now);
        }
        self.letter = letter;
    }

    fn group(
        &mut self,
        view: &View,
        request: &Request<'_>,
        keys: impl ExactSizeIterator<Item = usize>,
        choices: &[Option<Choice>],
    ) -> Grouping {
        let args = &request.args;
        // Replicas that lack one key each count to the same wrong sum.
        let counts = request.merge == Merge::SumInts && request.op == Op::Read;
        let mut groups = std::mem::take(&mut self.group_of_set);
        groups.clear();
        let mut part_of = Vec::with_capacity(keys.len());
        let mut sizes: Vec<u32> = Vec::new();
        for (number, i) in keys.enumerate() {
            let token = view.hasher.token(&args[i]);
            let (bucket, start) = match view.buckets.find(&args[i]) {
                None => (0, 0),
                Some((at, bucket)) => (at as u32 + 1, bucket.n_val.map_or(0, |_| token.low_word())),
            };
            let choice = choices.get(number).copied().flatten();
            let set = view.topology.owners(&token).set_id();
            let votes = counts && {
                let terms = view.terms(&args[i], &token, false, request.level);
                terms.level != Consistency::DcOne
            };
            let fresh = sizes.len() as u32;
            let part = match votes {
                true => fresh,
                false => *groups.entry(GroupKey { set, bucket, start, choice }).or_insert(fresh),
            };
            if part as usize == sizes.len() {
                sizes.push(0);
            }
            sizes[part as usize] += 1;
            part_of.push(part);
        }
        self.group_of_set = groups;
        Grouping::new(part_of, &sizes)
    }

    fn reserve_parts(
        &mut self,
        request: &Request<'_>,
        grouping: &Grouping,
        parts: usize,
        now: Now,
    ) -> (u32, u32) {
        let stage = Stage::Parts(Box::new(Parts {
            merge: request.merge,
            part_of: grouping.part_of.clone(),
            keys: match request.merge {
                Merge::Values => request.key_names(),
                Merge::None | Merge::Mget | Merge::Mset | Merge::SumInts => Vec::new(),
            },
            replies: vec![Parked::default(); parts],
            waiting: parts,
            failure: None,
        }));
        self.new_slot(Owner::Client(request.client), stage, request.envelope, now)
    }

    /// Counts what came back for one part; with the last one the command is answered.
    pub(super) fn fill_part(
        &mut self,
        slot: u32,
        generation: u32,
        part: u32,
        said: Said<'_>,
        now: Now,
    ) {
        let waiting = |s: &&mut Slot| s.generation == generation;
        let Some(state) = self.slots.get_mut(slot as usize).filter(waiting) else { return };
        let Stage::Parts(parts) = &mut state.stage else { return };
        match said {
            Said::Reply(bytes) => parts.replies[part as usize].copy(bytes),
            Said::Large(bytes) => parts.replies[part as usize].share(bytes),
            Said::Failed(failure) => {
                parts.failure.get_or_insert(failure);
            }
        }
        parts.waiting -= 1;
        if parts.waiting > 0 {
            return;
        }
        let stage = std::mem::replace(&mut state.stage, Stage::Single);
        let Stage::Parts(parts) = stage else { unreachable!("matched above") };
        match parts.failure {
            Some(failure) => self.complete(slot, Said::Failed(failure), now),
            None => {
                let merged = parts.merged();
                let said = match merged.len() < SHARE_MIN {
                    true => Said::Reply(&merged),
                    false => Said::Large(Bytes::from(merged)),
                };
                self.complete(slot, said, now);
            }
        }
    }
}

impl Grouping {
    fn new(part_of: Vec<u32>, sizes: &[u32]) -> Grouping {
        let mut starts = Vec::with_capacity(sizes.len() + 1);
        let mut end = 0;
        for size in sizes {
            starts.push(end);
            end += size;
        }
        starts.push(end);
        let mut next = starts.clone();
        let mut sorted = vec![0; part_of.len()];
        for (key, part) in part_of.iter().enumerate() {
            let place = &mut next[*part as usize];
            sorted[*place as usize] = key as u32;
            *place += 1;
        }
        Grouping { part_of, sorted, starts }
    }
}

impl Parts {
    /// What is known of a read of `keys`: `settled` answers all but the `open` ones, which are
    /// asked for as parts 1 and on.
    pub(super) fn reopened(
        merge: Merge,
        keys: Vec<Vec<u8>>,
        open: &[u32],
        settled: &[u8],
    ) -> Parts {
        let mut part_of = vec![0; keys.len()];
        (1..).zip(open).for_each(|(part, key)| part_of[*key as usize] = part);
        let mut replies = vec![Parked::default(); 1 + open.len()];
        replies[0].copy(settled);
        Parts { merge, part_of, keys, replies, waiting: open.len(), failure: None }
    }

    /// One reply from those of the parts. An error of one part is the answer of the whole.
    fn merged(&self) -> Vec<u8> {
        let replies = || self.replies.iter().map(Parked::as_slice);
        if let Some(error) = replies().find(|reply| is_error(reply)) {
            return error.to_vec();
        }
        let mut out = Vec::with_capacity(replies().map(<[u8]>::len).sum::<usize>() + 16);
        match self.merge {
            Merge::SumInts => encode::int(&mut out, replies().filter_map(parse_int).sum()),
            Merge::Mset => encode::simple(&mut out, b"OK"),
            Merge::Mget => {
                encode::array(&mut out, self.part_of.len());
                let mut rest: Vec<_> = replies().map(elements).collect();
                for part in &self.part_of {
                    out.extend_from_slice(rest[*part as usize].next().unwrap_or(b"$-1\r\n"));
                }
            }
            Merge::Values => {
                let keys = self.keys.iter().map(Vec::as_slice);
                let asked = keys.zip(self.part_of.iter().map(|part| *part as usize));
                let parts: Vec<&[u8]> = replies().collect();
                if let Err(error) = values::join(asked, &parts, &mut out) {
                    return error.to_vec();
                }
            }
            Merge::None => unreachable!("only mergeable commands are split"),
        }
        out
    }
}

/// Where keys stand in a command that can be split: the first one's place, and how far the next
/// ones are from each other.
fn spacing(request: &Request<'_>) -> (usize, usize) {
    let first = request.keys.first_key(&request.args).unwrap_or(request.args.len());
    (first, if request.merge == Merge::Mset { 2 } else { 1 })
}

/// Writes the request of one part: the command's own name and the members' arguments.
fn encode_part(request: &Request<'_>, members: &[u32], out: &mut Vec<u8>, spans: &mut Vec<Span>) {
    let (args, (first, step)) = (&request.args, spacing(request));
    let place = |member: &u32| first + *member as usize * step;
    if request.merge == Merge::Values {
        return values::write_part(args, first, members.iter().map(place), out);
    }
    let places = members.iter().flat_map(|member| place(member)..place(member) + step);
    encode::array(out, 1 + members.len() * step);
    for i in std::iter::once(0).chain(places) {
        encode::header(out, b'$', args[i].len());
        spans.push(append(out, &args[i]));
        out.extend_from_slice(b"\r\n");
    }
}

fn append(out: &mut Vec<u8>, bytes: &[u8]) -> Span {
    let start = out.len();
    out.extend_from_slice(bytes);
    Span::new(start, out.len())
}
