//! Clients that wait for a key of the embedded store.
//!
//! The store keeps the line: numbers of clients by key, the first that came in front. When a key is
//! written it wakes everybody who waits for it, whatever worker they belong to; each worker tries
//! again for its own. Who comes too late keeps its place, and so does who waits for a list where a
//! string came: only what a client finds when it comes is an error of its type.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::blocking::{Patience, Waits, patience};
use super::gather::Said;
use super::slot::Owner;
use super::stamps::Told;
use super::task::Written;
use super::upstream::Ticket;
use super::view::Now;
use super::{Awaited, Dispatcher, Embedded, KeyLine};
use crate::proto::args::Args;
use crate::proto::outbuf::OutBuf;
use crate::proto::resp::reply::is_null;
use crate::proto::resp::spec::CommandSpec;
use crate::stamp::Stamping;

/// What a client gets whose time is over.
pub(super) const NOTHING: &[u8] = b"*-1\r\n";

/// One waiting client.
#[derive(Debug)]
pub(super) struct Waiting {
    client: u32,
    spec: &'static CommandSpec,
    request: Written,
    ticket: Ticket,
    /// On the monotonic clock; `None` waits for ever.
    deadline_ms: Option<u64>,
}

impl Waiting {
    /// The keys it waits for: where something is moved, the one it comes from.
    fn keys(&self) -> Vec<&[u8]> {
        let args = self.request.args();
        let sources = match self.spec.name {
            "blmove" | "brpoplpush" => 1,
            _ => usize::MAX,
        };
        self.spec.keys_of(&args).filter_map(|i| args.get(i)).take(sources).collect()
    }

    /// What its keys must be.
    fn awaited(&self) -> Awaited {
        match self.spec.name.starts_with("bz") {
            true => Awaited::SortedSet,
            false => Awaited::List,
        }
    }

    /// The same request for one of its keys alone: what the others are is no matter any more.
    fn at_key(&self, number: usize) -> Written {
        let args = self.request.args();
        let Some(key) = self.spec.keys_of(&args).nth(number) else { return self.request.clone() };
        let words: Vec<&[u8]> = match self.spec.name {
            "blmove" | "brpoplpush" => return self.request.clone(),
            "blmpop" | "bzmpop" => {
                let options = 3 + self.spec.keys_of(&args).count();
                let head = [&args[0], &args[1], b"1", &args[key]];
                head.into_iter().chain(args.tail(options).iter()).collect()
            }
            _ => vec![&args[0], &args[key], &args[args.len() - 1]],
        };
        Written::command(words.into_iter())
    }
}

/// The waiting clients of one worker by their places in the line.
pub(super) type Line = BTreeMap<u64, Waiting>;

impl Dispatcher {
    /// Runs a command on the embedded store, and lets its client wait when there is nothing.
    pub(super) fn wait_in_store(
        &mut self,
        client: u32,
        spec: &'static CommandSpec,
        args: Args<'_>,
        ticket: Ticket,
        now: Now,
    ) {
        let deadline_ms = match patience(spec, &args) {
            Patience::Millis(ms) => Some(now.mono_ms().saturating_add(ms)),
            Patience::Forever | Patience::Senseless => None,
        };
        let request = Written::command(args.iter());
        let waiting = Waiting { client, spec, request, ticket, deadline_ms };
        let line = self.embedded.as_ref().and_then(|embedded| embedded.line());
        let place = line.map_or(0, |line| line.next_place(self.worker));
        let Some(embedded) = self.embedded.clone() else { return };
        let mut stamping = Stamping::default();
        let mut out = OutBuf::new();
        self.try_once(&*embedded, &waiting.request, &mut stamping, &mut out, now);
        match embedded.line().filter(|_| is_null(out.front())) {
            Some(line) => self.stand(line, &*embedded, place, waiting, now),
            None => self.end_with(&waiting, &mut out, &stamping, now),
        }
    }

    fn try_once(
        &mut self,
        embedded: &dyn Embedded,
        request: &Written,
        stamping: &mut Stamping,
        out: &mut OutBuf,
        now: Now,
    ) {
        self.counters.requests_store += 1;
        let view = Arc::clone(&self.view);
        *stamping = Stamping::with(self.new_stamp(&view, now));
        out.clear();
        embedded.execute(&request.args(), now.wall_ms(), stamping, out);
    }

    /// Stands in line, or takes what is there meanwhile from the first key that has something.
    fn stand(
        &mut self,
        line: &dyn KeyLine,
        embedded: &dyn Embedded,
        place: u64,
        waiting: Waiting,
        now: Now,
    ) {
        let mut stamping = Stamping::default();
        let mut out = OutBuf::new();
        // The source of a move may be there, and its error that of the destination.
        let mut wrong = None;
        while let Err(ready) = line.stand(&waiting.keys(), waiting.awaited(), place, now.wall_ms())
        {
            self.try_once(embedded, &waiting.at_key(ready), &mut stamping, &mut out, now);
            let error = out.front().starts_with(b"-WRONGTYPE");
            if !is_null(out.front()) && (!error || wrong == Some(ready)) {
                return self.end_with(&waiting, &mut out, &stamping, now);
            }
            // Somebody was quicker, and this is another value by now.
            wrong = error.then_some(ready);
        }
        self.clients[waiting.client as usize].waits = Some(Waits::Store(place));
        self.line.insert(place, waiting);
    }

    fn end_with(&mut self, waiting: &Waiting, out: &mut OutBuf, stamping: &Stamping, now: Now) {
        let mut reply = Vec::with_capacity(out.len());
        while !out.is_empty() {
            let front = out.front().len();
            reply.extend_from_slice(out.front());
            out.advance(front);
        }
        self.end_wait(waiting, Said::Reply(&reply), Told::by(stamping), now);
    }

    fn end_wait(&mut self, waiting: &Waiting, said: Said<'_>, told: Told, now: Now) {
        self.clients[waiting.client as usize].waits = None;
        self.answer_told(waiting.ticket, said, told, now);
        self.let_go(Owner::Client(waiting.client));
    }

    /// Keys appeared in the embedded store for which clients of this worker wait.
    pub fn on_woken(&mut self, now: Now) {
        let Some(embedded) = self.embedded.clone() else { return };
        let Some(line) = embedded.line() else { return };
        let mut places = Vec::new();
        line.take_woken(self.worker, &mut places);
        for place in places {
            if let Some(waiting) = self.line.remove(&place) {
                // It may stand in line for other keys still.
                line.leave(&waiting.keys(), place);
                self.stand(line, &*embedded, place, waiting, now);
            }
        }
    }

    /// When the first of them has waited long enough.
    pub(super) fn line_due_ms(&self) -> Option<u64> {
        self.line.values().filter_map(|waiting| waiting.deadline_ms).min()
    }

    /// Ends the waits whose time is over.
    pub(super) fn expire_line(&mut self, now: Now) {
        let over = |waiting: &Waiting| waiting.deadline_ms.is_some_and(|at| at <= now.mono_ms());
        let places: Vec<u64> =
            self.line.iter().filter(|(_, w)| over(w)).map(|(place, _)| *place).collect();
        for place in places {
            self.end_place(place, NOTHING, now);
        }
    }

    /// Ends a wait with these words.
    pub(super) fn end_place(&mut self, place: u64, said: &[u8], now: Now) {
        let Some(waiting) = self.line.remove(&place) else { return };
        self.forget_place(&waiting, place);
        self.end_wait(&waiting, Said::Reply(said), Told::default(), now);
    }

    /// A client that stands in line is gone.
    pub(super) fn leave_line(&mut self, place: u64) {
        let Some(waiting) = self.line.remove(&place) else { return };
        self.forget_place(&waiting, place);
        let Ticket { slot, generation, .. } = waiting.ticket;
        if self.slots.get(slot as usize).is_some_and(|s| s.generation == generation) {
            self.free(slot);
        }
    }

    fn forget_place(&self, waiting: &Waiting, place: u64) {
        if let Some(line) = self.embedded.as_ref().and_then(|embedded| embedded.line()) {
            line.leave(&waiting.keys(), place);
        }
    }
}
