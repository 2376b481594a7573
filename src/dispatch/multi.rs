//! MULTI, EXEC, DISCARD: transactions of a client, queued by the node and sent as one block to
//! the one owner of all their keys (decision F2).
//!
//! ```text
//! none --MULTI--> open --command--> open | failed --EXEC, DISCARD--> none
//! ```
//!
//! A command that cannot be part of it (unknown, keys of another owner, one that waits) is
//! refused when it comes, and EXEC then discards the whole, as Redis does. A client that watches is
//! in `watch.rs`.

use super::block::{self, Queued};
use super::client::ClientId;
use super::failure::{Cause, Failure, FailureKind};
use super::gather::Said;
use super::plan::Op;
use super::requests::{Request, reads_elsewhere};
use super::slot::Envelope;
use super::task::Written;
use super::view::{Now, View};
use super::{Dispatcher, Frame};
use crate::proto::args::Args;
use crate::proto::command::{Effect, KeySpec, Merge};
use crate::proto::resp::shape::Shape;
use crate::proto::resp::spec::CommandSpec;
use crate::proto::resp::{rewrite, table};

/// Bytes of one queued transaction at most.
const BYTES_MAX: usize = 64 << 20;

const ABORTED: &str = "EXECABORT Transaction discarded because of previous errors.";

/// A transaction of one client between MULTI and EXEC.
#[derive(Debug, Default)]
pub(super) struct Multi {
    commands: Vec<Queued>,
    bytes: usize,
    /// The replica set of its keys in the ring of the time.
    set: Option<u32>,
    failed: bool,
}

impl Multi {
    /// Commands queued so far.
    pub(super) fn len(&self) -> usize {
        self.commands.len()
    }
}

/// What is not queued inside of MULTI.
const NOT_QUEUED: [&str; 6] = ["discard", "exec", "multi", "quit", "reset", "watch"];

impl Dispatcher {
    /// True when a command is queued in place of being served.
    #[inline]
    pub(super) fn is_queued(&self, id: ClientId, spec: &CommandSpec) -> bool {
        self.clients[id.0 as usize].multi.is_some() && !NOT_QUEUED.contains(&spec.name)
    }

    /// The client's transaction, if it has one, cannot be executed any more.
    pub(super) fn fail_multi(&mut self, id: ClientId) {
        if let Some(multi) = &mut self.clients[id.0 as usize].multi {
            multi.failed = true;
            multi.commands.clear();
        }
    }

    /// Gives up the client's transaction and what it watches.
    pub(super) fn end_multi(&mut self, id: ClientId, now: Now) {
        self.clients[id.0 as usize].multi = None;
        self.unwatch(id, now);
    }

    /// Queues one command.
    pub(super) fn queue(
        &mut self,
        view: &View,
        id: ClientId,
        spec: &'static CommandSpec,
        args: Args<'_>,
        now: Now,
    ) {
        match self.try_queue(view, id, spec, args) {
            Ok(()) => {
                let queued = b"+QUEUED\r\n";
                self.reply_in_turn(id.0, Envelope::default(), Said::Reply(queued), now);
            }
            Err(text) => {
                self.fail_multi(id);
                self.reply_error(id, &text, now);
            }
        }
    }

    fn try_queue(
        &mut self,
        view: &View,
        id: ClientId,
        spec: &'static CommandSpec,
        args: Args<'_>,
    ) -> Result<(), String> {
        if !block::may_stand(spec, &args) {
            return Err(format!("ERR '{}' is not supported in a transaction", spec.name));
        }
        let sets = spec.keys_of(&args).map(|i| set_of(view, &args[i]));
        let sets: Vec<u32> = sets.collect();
        let (spec, request) = self.as_queued(spec, &args);
        let Some(multi) = &mut self.clients[id.0 as usize].multi else { return Ok(()) };
        let stray = sets.into_iter().any(|set| *multi.set.get_or_insert(set) != set);
        if stray || reads_elsewhere(view, spec, &args) {
            let failure = Failure::new(FailureKind::KeysSpanNodes, Cause::SeveralOwners);
            return Err(format!("ERR {} ({})", failure.text(), failure.cause.text()));
        }
        multi.bytes += request.bytes.len();
        if multi.commands.len() == block::COMMANDS_MAX || multi.bytes > BYTES_MAX {
            let failure = Failure::new(FailureKind::Limit, Cause::OwnState);
            return Err(format!("ERR {}", failure.text()));
        }
        if !multi.failed {
            multi.commands.push(Queued { spec, request });
        }
        Ok(())
    }

    /// Serves MULTI, EXEC, DISCARD, WATCH and UNWATCH.
    pub(super) fn serve_transaction(
        &mut self,
        view: &View,
        id: ClientId,
        spec: &'static CommandSpec,
        args: Args<'_>,
        now: Now,
    ) {
        let open = self.clients[id.0 as usize].multi.is_some();
        match (spec.name, open) {
            ("multi", false) => {
                self.clients[id.0 as usize].multi = Some(Box::default());
                self.say_ok(id, now);
            }
            ("multi", true) => self.reply_error(id, "ERR MULTI calls can not be nested", now),
            ("exec", true) => self.exec(view, id, now),
            ("discard", true) => {
                self.end_multi(id, now);
                self.say_ok(id, now);
            }
            ("watch", true) => self.reply_error(id, "ERR WATCH inside MULTI is not allowed", now),
            ("unwatch", _) => {
                self.unwatch(id, now);
                self.say_ok(id, now);
            }
            ("watch", false) => self.serve_watch(view, id, args, now),
            (name, _) => {
                let text = format!("ERR {} without MULTI", name.to_ascii_uppercase());
                self.reply_error(id, &text, now);
            }
        }
    }

    fn say_ok(&mut self, id: ClientId, now: Now) {
        self.reply_in_turn(id.0, Envelope::default(), Said::Reply(b"+OK\r\n"), now);
    }

    fn exec(&mut self, view: &View, id: ClientId, now: Now) {
        let multi = self.clients[id.0 as usize].multi.take().unwrap_or_default();
        if multi.failed {
            self.unwatch(id, now);
            return self.reply_error(id, ABORTED, now);
        }
        let watches = self.clients[id.0 as usize].watch.is_some();
        if multi.commands.is_empty() && !watches {
            return self.reply_in_turn(id.0, Envelope::default(), Said::Reply(b"*0\r\n"), now);
        }
        // The ring may be another one by now.
        let mut sets = multi.commands.iter().flat_map(block::keys_of).map(|key| set_of(view, key));
        let first = sets.next();
        let elsewhere = |c: &Queued| reads_elsewhere(view, c.spec, &c.request.args());
        let spans = !sets.all(|set| Some(set) == first) || multi.commands.iter().any(elsewhere);
        drop(sets);
        let (op, compare) = block::nature(&multi.commands);
        self.count_request(op);
        let several = spans.then(|| Failure::new(FailureKind::KeysSpanNodes, Cause::SeveralOwners));
        if let Some(failure) = several.or_else(|| self.forbidden(view, op)) {
            self.unwatch(id, now);
            return self.reply_in_turn(id.0, Envelope::default(), Said::Failed(failure), now);
        }
        let spec = table::lookup(block::NAME).expect("a command of the table");
        let written = self.block_for_replicas(view, &multi.commands, now);
        let client = &mut self.clients[id.0 as usize];
        let session = client.session.as_deref();
        let level = match op {
            Op::Read => session.and_then(|s| s.read).unwrap_or(view.read),
            Op::Write => session.and_then(|s| s.write).unwrap_or(view.write),
        };
        if client.resp3 {
            let shape = |c: &Queued| c.spec.shape_of(&c.request.args());
            client.exec_shapes.push_back(multi.commands.iter().map(shape).collect());
        }
        let request = Request {
            client: id.0,
            spec: Some(spec),
            memcache: None,
            at_first: false,
            args: written.args(),
            keys: KeySpec::None,
            merge: Merge::None,
            op,
            level,
            compare,
            script: false,
            envelope: Envelope { exec: client.resp3, shape: Shape::Same, ..Envelope::default() },
        };
        let key = multi.commands.iter().flat_map(block::keys_of).next();
        if watches {
            return self.ask_watched(view, &written, (&request, key), now);
        }
        self.ask_block(view, &written, (&request, key), block::has_primary(&multi.commands), now);
    }

    /// The block as it is sent: relative times are points in time where there are several racks.
    fn block_for_replicas(&mut self, view: &View, commands: &[Queued], now: Now) -> Written {
        let mut requests = Vec::with_capacity(commands.len());
        for command in commands {
            let args = command.request.args();
            let mut bytes = Vec::new();
            let key = block::keys_of(command).next();
            let absolute = view.topology.racks().len() > 1
                && command.spec.effect_of(&args) == Effect::Absolute
                && key.is_some_and(|key| self.knows_moments(view, command.spec, key, now))
                && rewrite::absolute(command.spec, &args, now.wall_ms(), &mut bytes);
            if !absolute {
                bytes.clone_from(&command.request.bytes);
            }
            requests.push(bytes);
        }
        block::write(requests.iter().map(Vec::as_slice))
    }

    fn ask_block(
        &mut self,
        view: &View,
        written: &Written,
        (request, key): (&Request<'_>, Option<&[u8]>),
        primary_first: bool,
        now: Now,
    ) {
        let frame = Frame::Small(&written.bytes);
        let ask = super::send::Ask { key, ..request.ask(&frame) };
        let mut plan = std::mem::take(&mut self.plan);
        match self.make_plan(view, &ask, &mut plan) {
            Err(failure) => {
                let client = request.client;
                self.reply_in_turn(client, request.envelope, Said::Failed(failure), now);
            }
            Ok(_) if primary_first && plan.legs.len() > 1 => {
                let spec = table::lookup(block::NAME).expect("a command of the table");
                self.begin_primary(view, &frame, spec, (request, &plan), now);
            }
            Ok(level) => self.send(view, &ask, &plan, level, now),
        }
        self.plan = plan;
    }
}

/// The number of a key's replica set.
fn set_of(view: &View, key: &[u8]) -> u32 {
    view.topology.owners(&view.hasher.token(key)).set_id()
}

/// The shapes of a transaction's replies, for a client that speaks RESP3.
pub(super) type Shapes = Vec<Shape>;

/// Appends the reply of EXEC in its RESP3 form.
pub(super) fn lift(shapes: Option<Shapes>, reply: &[u8], out: &mut Vec<u8>) {
    crate::proto::resp::lift::lift_exec(&shapes.unwrap_or_default(), reply, out);
}

#[cfg(test)]
mod tests;
