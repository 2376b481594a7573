//! EVALSHA, and where the text of a script comes from: SCRIPT LOAD, which every node is told of, or
//! other nodes, for one that was not there then (decision F7).

use std::collections::VecDeque;
use std::sync::Arc;

use sha1::{Digest, Sha1};

use super::client::ClientId;
use super::gather::Said;
use super::requests::Request;
use super::scripts::{Scripts, ShaOne, digest_of};
use super::send::{Ask, Parcel};
use super::slot::{Owner, Stage};
use super::task::{Next, Part, Task, Written};
use super::view::{Now, View};
use super::{Dispatcher, Frame};
use crate::proto::args::Args;
use crate::proto::resp::decode::RequestDecoder;
use crate::proto::resp::reply::text;
use crate::proto::resp::spec::CommandSpec;
use crate::proto::resp::{encode, table};

/// How long nobody is asked again for a text that nobody had.
const MISSING_MS: u64 = 1000;

/// Digests that are remembered as missing at most; the oldest goes first.
const MISSING_MAX: usize = 64;

/// Scripts whose text no node had, and until when that is believed.
#[derive(Debug, Default)]
pub(super) struct Missing(VecDeque<(ShaOne, u64)>);

impl Missing {
    fn has(&self, sha: &ShaOne, now_ms: u64) -> bool {
        self.0.iter().any(|(missing, until_ms)| missing == sha && *until_ms > now_ms)
    }

    fn add(&mut self, sha: ShaOne, now_ms: u64) {
        self.found(&sha);
        if self.0.len() == MISSING_MAX {
            self.0.pop_front();
        }
        self.0.push_back((sha, now_ms + MISSING_MS));
    }

    /// True when it was missing, which it is not any more.
    fn found(&mut self, sha: &ShaOne) -> bool {
        let at = self.0.iter().position(|(missing, _)| missing == sha);
        at.and_then(|at| self.0.remove(at)).is_some()
    }
}

/// An EVALSHA whose text other nodes are asked for.
#[derive(Debug)]
pub(super) struct Seeking {
    request: Written,
    waiting: usize,
    scripts: Arc<Scripts>,
}

impl Seeking {
    /// Takes what one of them says.
    pub(super) fn take(&mut self, said: &Said<'_>) -> Next {
        self.waiting -= 1;
        let args = self.request.args();
        let script = said.bytes().filter(|reply| reply.starts_with(b"$")).and_then(text);
        let found = script.is_some_and(|script| self.scripts.remember_as(&args[1], script));
        if found || self.waiting == 0 { Next::Sought } else { Next::Wait }
    }
}

impl Dispatcher {
    /// Uses the scripts that all workers of a node share.
    pub fn share_scripts(&mut self, scripts: Arc<Scripts>) {
        self.scripts = scripts;
    }

    /// Serves EVALSHA. Where several replicas get it, it goes with the script's text, so that none
    /// of them lacks it; a single one is asked by the digest first. A text that this node does not
    /// know is asked of others first; without it, the datastores answer what they can.
    pub(super) fn serve_evalsha(
        &mut self,
        view: &View,
        frame: &Frame<'_>,
        request: &Request<'_>,
        now: Now,
    ) {
        let ask = request.ask(frame);
        let Some(text) = self.scripts.text_of(&request.args[1]) else {
            if !self.seek_script(view, request, now) {
                self.ask(view, &ask, now);
            }
            return;
        };
        let mut plan = std::mem::take(&mut self.plan);
        match self.make_plan(view, &ask, &mut plan) {
            Ok(level) if plan.legs.len() == 1 => {
                self.send(view, &Ask { replays: true, ..ask }, &plan, level, now);
            }
            Ok(level) => {
                let written = with_text(&request.args, &text);
                let spec = table::lookup(&written.args()[0]);
                let request = Request { args: written.args(), spec, ..*request };
                self.send(view, &request.ask(&Frame::Small(&written.bytes)), &plan, level, now);
            }
            Err(failure) => {
                self.reply_in_turn(request.client, request.envelope, Said::Failed(failure), now);
            }
        }
        self.plan = plan;
    }

    /// A command as it is queued in a transaction: EVALSHA with the script's text if that is known.
    pub(super) fn as_queued(
        &self,
        spec: &'static CommandSpec,
        args: &Args<'_>,
    ) -> (&'static CommandSpec, Written) {
        let sha = args.get(1).filter(|_| matches!(spec.name, "evalsha" | "evalsha_ro"));
        match sha.and_then(|sha| self.scripts.text_of(sha)) {
            Some(text) => {
                let written = with_text(args, &text);
                (table::lookup(&written.args()[0]).unwrap_or(spec), written)
            }
            None => (spec, Written::command(args.iter())),
        }
    }

    /// Sends a script with its text to a datastore that did not have it. False when the text is
    /// not known any more, or the datastore cannot be asked again.
    pub(super) fn replay_script(&mut self, key: u32, now: Now) -> bool {
        let slot = &mut self.slots[key as usize];
        slot.replays = false;
        slot.tried = 0;
        let request = std::mem::take(&mut slot.request);
        let view = Arc::clone(&self.view);
        let mut spans = Vec::new();
        let limits = &view.settings.request;
        if !matches!(RequestDecoder::default().decode(&request, limits, &mut spans), Ok(Some(_))) {
            return false;
        }
        let args = Args::new(&request, &spans);
        let Some(text) = args.get(1).and_then(|sha| self.scripts.text_of(sha)) else {
            return false;
        };
        self.counters.replayed_scripts += 1;
        self.resend(&view, key, &with_text(&args, &text).bytes, now)
    }

    /// Remembers what SCRIPT LOAD loads and forgets with SCRIPT FLUSH. For other commands it
    /// costs the look at the first word.
    #[inline]
    pub(super) fn note_scripts(&self, args: &Args<'_>) {
        match (args.get(0), args.get(1)) {
            (Some(name), Some(sub)) if name.eq_ignore_ascii_case(b"script") => {
                if sub.eq_ignore_ascii_case(b"flush") {
                    self.scripts.clear();
                } else if sub.eq_ignore_ascii_case(b"load") && args.len() == 3 {
                    self.scripts.remember(&args[2]);
                }
            }
            _ => {}
        }
    }

    /// A script is run by its text. A digest that nobody knew was asked for a moment ago? Then its
    /// text is remembered: clients that never load a script send it so when they must.
    pub(super) fn note_script_run(&mut self, text: &[u8]) {
        if !self.missing_scripts.0.is_empty() {
            let sha = ShaOne::from(Sha1::digest(text));
            if self.missing_scripts.found(&sha) {
                self.scripts.remember(text);
            }
        }
    }

    /// Asks other nodes for the text of a script. False when there is nobody to ask, or nobody had
    /// it a moment ago.
    fn seek_script(&mut self, view: &View, request: &Request<'_>, now: Now) -> bool {
        let Some(sha) = digest_of(&request.args[1]) else { return false };
        if self.missing_scripts.has(&sha, now.mono_ms()) {
            return false;
        }
        let peers = self.some_others(view);
        if peers.is_empty() {
            return false;
        }
        let seeking = Seeking {
            request: Written::command(request.args.iter()),
            waiting: peers.len(),
            scripts: Arc::clone(&self.scripts),
        };
        let task = Task::Script(seeking);
        let part = self.begin_task(request.client, request.envelope, task, now);
        self.hold(request.client);
        let spec = table::lookup(b"torc.script").expect("a command of the table");
        let question = Written::command([&b"TORC.SCRIPT"[..], &request.args[1]].into_iter());
        let frame = Frame::Small(&question.bytes);
        for (number, peer) in (0..).zip(peers) {
            let parcel = Parcel { frame: &frame, args: question.args(), stamp: None };
            self.ask_node(view, peer, spec, parcel, Part { part: number, ..part }, now);
        }
        true
    }

    /// The text is there, or nobody has it: the request is served in its place.
    pub(super) fn serve_sought(&mut self, part: Part, now: Now) {
        let slot = &mut self.slots[part.slot as usize];
        let owner = slot.owner;
        let stage = std::mem::replace(&mut slot.stage, Stage::Single);
        self.free(part.slot);
        let (Stage::Task(task), Owner::Client(client)) = (stage, owner) else { return };
        let Task::Script(seeking) = *task else { return };
        // Its client was held, so that nothing stands behind it.
        let last = self.clients[client as usize].queue.pop_back();
        debug_assert_eq!(last, Some(part.slot));
        let view = Arc::clone(&self.view);
        let args = seeking.request.args();
        if let Some(sha) = digest_of(&args[1]).filter(|_| self.scripts.text_of(&args[1]).is_none())
        {
            self.missing_scripts.add(sha, now.mono_ms());
        }
        if let Ok(spec) = table::find(&args, &view.settings.modules) {
            let request = self.request(&view, ClientId(client), spec, args);
            self.serve_evalsha(&view, &Frame::Small(&seeking.request.bytes), &request, now);
        }
        self.let_go(owner);
    }

    /// `TORC.SCRIPT SHA`: the text of a script, as far as this node knows it.
    pub(super) fn tell_script(&self, args: &Args<'_>, out: &mut Vec<u8>) {
        match args.get(1).and_then(|sha| self.scripts.text_of(sha)) {
            Some(text) => encode::bulk(out, &text),
            None => encode::null_bulk(out),
        }
    }
}

/// The call of a script by its text in place of its digest.
fn with_text(args: &Args<'_>, text: &[u8]) -> Written {
    let name: &[u8] = match args[0].len() {
        7 => b"EVAL",
        _ => b"EVAL_RO",
    };
    Written::command(args.iter().enumerate().map(|(i, arg)| match i {
        0 => name,
        1 => text,
        _ => arg,
    }))
}

#[cfg(test)]
mod tests;
