//! Libraries of functions on a datastore that was not there when they were loaded.
//!
//! FUNCTION LOAD, DELETE, FLUSH and RESTORE reach every node there is (`allnodes.rs`). A datastore
//! that is connected later, because its node joined or it was restarted, may lack what was loaded
//! before. So before a function first runs there, the datastores of other torc nodes are asked what
//! they have, and what the own one lacks is loaded; who calls functions meanwhile is read on when
//! that is done.
//!
//! ```text
//! unsure --a function is called--> asking --answers, loads--> sure
//!   sure --the datastore knows no such function--> asking, nobody waits
//!    any --the datastore is connected anew--> unsure
//! ```
//!
//! Links of other nodes wait too, for a function must not be overtaken by what its client asks
//! next. What other nodes ask about libraries never waits: it is how they come to know, and how a
//! library gets here.

use std::collections::{BTreeMap, HashSet};

use super::Dispatcher;
use super::Frame;
use super::block;
use super::client::ClientId;
use super::gather::Said;
use super::send::Parcel;
use super::slot::{Envelope, Owner, Stage};
use super::task::{Next, Part, Task, Written};
use super::view::{Now, View};
use crate::proto::args::{Args, Span};
use crate::proto::resp::reply::{elements, is_error, text};
use crate::proto::resp::spec::CommandSpec;
use crate::proto::resp::table;
use crate::ring::PeerIdx;

/// Libraries that are loaded at a time at most; those beyond are counted.
const LIBRARIES_MAX: usize = 1_000;

/// Bytes of their code at most.
const LIBRARY_BYTES_MAX: usize = 8 << 20;

/// How long nobody is asked again.
const PAUSE_MS: u64 = 1000;

/// How a datastore answers a call of a function that it does not have.
const NOT_FOUND: &[u8] = b"-ERR Function not found";

/// What a worker knows of the libraries of the own datastore.
#[derive(Debug, Default)]
pub(super) struct Libraries {
    /// It has all that others have.
    pub(super) sure: bool,
    /// Others are being asked.
    asking: bool,
    /// A client changed libraries meanwhile: the answers are worth nothing.
    stale: bool,
    /// Nobody is asked before.
    not_before_ms: u64,
    /// Who is read on when the answers are there, with the number that tells it from a later one.
    waiting: Vec<(u32, u64)>,
}

impl Libraries {
    /// The datastore was just connected: nobody knows what it has.
    pub(super) fn doubt(&mut self) {
        (self.sure, self.not_before_ms) = (false, 0);
        self.stale = self.asking;
    }
}

/// What the datastores have.
#[derive(Debug)]
pub(super) struct Collecting {
    /// Answers to come.
    waiting: usize,
    loading: bool,
    /// The names of what the own one has, once it answered.
    own: Option<HashSet<Vec<u8>>>,
    /// The own one has no functions at all.
    refuses: bool,
    /// The codes that others have under a name, with how many have it.
    found: BTreeMap<Vec<u8>, BTreeMap<Vec<u8>, usize>>,
    others: usize,
}

impl Collecting {
    fn of(waiting: usize) -> Collecting {
        Collecting {
            waiting,
            loading: false,
            own: None,
            refuses: false,
            found: BTreeMap::new(),
            others: 0,
        }
    }

    /// Takes what one datastore says; the own one is part 0.
    pub(super) fn take(&mut self, part: u16, said: &Said<'_>) -> Next {
        self.waiting -= 1;
        match said.bytes() {
            _ if self.loading => {}
            Some(reply) if part == 0 => {
                self.refuses = is_error(reply);
                self.own = Some(libraries(reply).map(|(name, _)| name.to_vec()).collect());
            }
            Some(reply) if !is_error(reply) => {
                self.others += 1;
                for (name, code) in libraries(reply) {
                    let codes = self.found.entry(name.to_vec()).or_default();
                    *codes.entry(code.to_vec()).or_default() += 1;
                }
            }
            Some(_) | None => {}
        }
        if self.waiting > 0 { Next::Wait } else { Next::Libraries }
    }

    /// The codes that the own datastore lacks: of each library the one that most have. Also how
    /// many are too many.
    fn missing(&mut self) -> (Vec<Vec<u8>>, u64) {
        let own = self.own.take().unwrap_or_default();
        let found = std::mem::take(&mut self.found).into_iter();
        let (mut codes, mut bytes, mut left_out) = (Vec::new(), 0, 0);
        for (_, found) in found.filter(|(name, _)| !own.contains(name)) {
            let Some((code, _)) = found.into_iter().max_by_key(|(_, count)| *count) else {
                continue;
            };
            if codes.len() == LIBRARIES_MAX || bytes + code.len() > LIBRARY_BYTES_MAX {
                left_out += 1;
                continue;
            }
            bytes += code.len();
            codes.push(code);
        }
        (codes, left_out)
    }
}

/// The libraries in a reply to FUNCTION LIST: names, and codes if they were asked for.
fn libraries(reply: &[u8]) -> impl Iterator<Item = (&[u8], &[u8])> {
    let listed = if is_error(reply) { &b"*0\r\n"[..] } else { reply };
    elements(listed).filter_map(|library| {
        let fields: Vec<&[u8]> = elements(library).collect();
        let field = |name: &[u8]| {
            let at = fields.iter().step_by(2).position(|field| text(field) == Some(name))?;
            text(fields.get(2 * at + 1)?)
        };
        Some((field(b"library_name")?, field(b"library_code").unwrap_or_default()))
    })
}

fn is_call(name: &[u8]) -> bool {
    name.eq_ignore_ascii_case(b"fcall") || name.eq_ignore_ascii_case(b"fcall_ro")
}

/// The name of a request of an array of strings.
fn name_of(request: &[u8]) -> Option<&[u8]> {
    request.split(|byte| *byte == b'\n').nth(2)?.strip_suffix(b"\r")
}

/// True for a request that calls a function, or whose answer depends on which there are.
fn needs_libraries(args: &Args<'_>, of_peer: bool) -> bool {
    let Some(name) = args.get(0) else { return false };
    match name.first() {
        Some(b'f' | b'F') => is_call(name) || (!of_peer && name.eq_ignore_ascii_case(b"function")),
        Some(b't' | b'T') => {
            let calls = |request: &[u8]| name_of(request).is_some_and(is_call);
            block::is_block(args) && args.tail(1).iter().any(calls)
        }
        _ => false,
    }
}

fn function(sub: &[u8]) -> &'static CommandSpec {
    let container = table::lookup(b"function").expect("a command of the table");
    table::lookup_sub(container, sub).expect("a command of the table")
}

impl Dispatcher {
    /// True when the request in `frame` has to wait until the own datastore has the libraries that
    /// others have. Whoever sent it is not read until then.
    pub(super) fn awaits_libraries(
        &mut self,
        view: &View,
        id: ClientId,
        (frame, spans): (&[u8], &[Span]),
        now: Now,
    ) -> bool {
        let of_peer = self.clients[id.0 as usize].peer.is_some();
        if self.libraries.sure || !needs_libraries(&Args::new(frame, spans), of_peer) {
            return false;
        }
        if !self.libraries.asking && !self.ask_for_libraries(view, now) {
            return false;
        }
        // Where all answers are here already, there is nothing to wait for.
        if self.libraries.asking {
            self.hold(id.0);
            let number = self.clients[id.0 as usize].number;
            self.libraries.waiting.push((id.0, number));
        }
        self.libraries.asking
    }

    /// Asks all for their libraries. False when there is nobody to ask, or it was done just now.
    fn ask_for_libraries(&mut self, view: &View, now: Now) -> bool {
        if self.libraries.asking || now.mono_ms() < self.libraries.not_before_ms {
            return false;
        }
        let peers = self.some_others(view);
        if peers.is_empty() {
            return false;
        }
        (self.libraries.asking, self.libraries.stale) = (true, false);
        let stage = Stage::Task(Box::new(Task::Libraries(Collecting::of(peers.len() + 1))));
        let (slot, generation) = self.new_slot(Owner::Nobody, stage, Envelope::default(), now);
        let part = Part { slot, generation, part: 0 };
        let list = function(b"list");
        let words: [&[u8]; 3] = [b"FUNCTION", b"LIST", b"WITHCODE"];
        let own = Written::command(words[..2].iter().copied());
        let theirs = Written::command(words.into_iter());
        self.ask_for(view, view.topology.local(), (list, &own), part, now);
        for (number, peer) in (1..).zip(peers) {
            self.ask_for(view, peer, (list, &theirs), Part { part: number, ..part }, now);
        }
        true
    }

    fn ask_for(
        &mut self,
        view: &View,
        peer: PeerIdx,
        (spec, request): (&'static CommandSpec, &Written),
        part: Part,
        now: Now,
    ) {
        let frame = Frame::Small(&request.bytes);
        let parcel = Parcel { frame: &frame, args: request.args(), stamp: None };
        self.ask_node(view, peer, spec, parcel, part, now);
    }

    /// All have answered: what is missing is loaded, and then everybody goes on.
    pub(super) fn carry_on_libraries(&mut self, part: Part, now: Now) {
        let Stage::Task(task) = &mut self.slots[part.slot as usize].stage else { return };
        let Task::Libraries(collecting) = task.as_mut() else { return };
        let heard = collecting.own.is_some() && collecting.others > 0;
        let done = collecting.loading || collecting.refuses;
        let (codes, left_out) = match done || !heard || self.libraries.stale {
            true => (Vec::new(), 0),
            false => collecting.missing(),
        };
        (collecting.loading, collecting.waiting) = (true, codes.len());
        self.counters.libraries_left_out += left_out;
        self.counters.libraries_loaded += codes.len() as u64;
        if codes.is_empty() {
            self.free(part.slot);
            return self.end_libraries(done || heard, now);
        }
        let view = std::sync::Arc::clone(&self.view);
        let load = function(b"load");
        for (number, code) in (0..).zip(&codes) {
            let words: [&[u8]; 3] = [b"FUNCTION", b"LOAD", code];
            let request = Written::command(words.into_iter());
            let part = Part { part: number, ..part };
            self.ask_for(&view, view.topology.local(), (load, &request), part, now);
        }
    }

    fn end_libraries(&mut self, sure: bool, now: Now) {
        let libraries = &mut self.libraries;
        libraries.asking = false;
        libraries.sure = sure && !libraries.stale;
        libraries.not_before_ms = if libraries.stale { 0 } else { now.mono_ms() + PAUSE_MS };
        for (client, number) in std::mem::take(&mut libraries.waiting) {
            let is = |c: &super::client::Client| c.number == number;
            if self.clients.get(client as usize).is_some_and(is) {
                self.let_go(Owner::Client(client));
            }
        }
    }

    /// A client changes libraries: what was asked for before is not true any more.
    #[inline]
    pub(super) fn note_libraries(&mut self, args: &Args<'_>) {
        if self.libraries.asking
            && args.get(0).is_some_and(|name| name.eq_ignore_ascii_case(b"function"))
            && args.get(1).is_some_and(|sub| !sub.eq_ignore_ascii_case(b"list"))
        {
            self.libraries.stale = true;
        }
    }

    /// A datastore that has no such function, though others may have it, is helped for the next
    /// time.
    pub(super) fn note_store_error(&mut self, error: &[u8], now: Now) {
        if error.starts_with(NOT_FOUND) && self.embedded.is_none() {
            let view = std::sync::Arc::clone(&self.view);
            self.ask_for_libraries(&view, now);
        }
    }
}

#[cfg(test)]
mod tests;
