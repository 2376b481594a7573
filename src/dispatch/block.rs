//! A transaction as one request: `TORC.EXEC` with the queued requests as its arguments.
//!
//! In this form a block travels between torc nodes and through the dispatcher. A Redis datastore
//! gets it as MULTI, the commands and EXEC in one piece, whose first replies are skipped; the
//! embedded store runs it under its locks; a node of the reference gets one script that calls
//! each command and puts errors in their places (decision F2).

use super::failure::{Cause, Failure, FailureKind};
use super::gather::Said;
use super::plan::{Leg, Op};
use super::send::Parcel;
use super::stamps::Told;
use super::task::Written;
use super::upstream::Ticket;
use super::view::Now;
use super::{Dispatcher, Frame};
use crate::proto::args::Args;
use crate::proto::command::{Class, Compare, Effect, Routing};
use crate::proto::resp::decode::{RequestDecoder, RequestLimits};
use crate::proto::resp::reply::{elements, is_error};
use crate::proto::resp::spec::CommandSpec;
use crate::proto::resp::table::ModuleCommands;
use crate::proto::resp::{encode, rewrite, table};
use crate::stamp::Stamping;

/// The name under which a block travels.
pub(super) const NAME: &[u8] = b"TORC.EXEC";

/// Commands in one block at most; their replies are counted in 16 bits.
pub(super) const COMMANDS_MAX: usize = u16::MAX as usize - 2;

/// Calls each command and puts its reply, or its error, in its place.
const SCRIPT: &[u8] = b"local o,i={},2 for n=1,tonumber(ARGV[1]) do local c=tonumber(ARGV[i]) \
o[n]=redis.pcall(unpack(ARGV,i+1,i+c)) i=i+c+1 end return o";

/// One command of a block.
#[derive(Debug)]
pub(super) struct Queued {
    pub(super) spec: &'static CommandSpec,
    pub(super) request: Written,
}

impl Queued {
    fn effect(&self) -> Effect {
        self.spec.effect_of(&self.request.args())
    }

    fn writes(&self) -> bool {
        self.spec.class_of(&self.request.args()) == Class::Write
    }
}

/// True for a command that may stand in a block: it has one reply and changes nothing about the
/// connection it comes on. One that may wait does not wait there, as in Redis.
pub(super) fn may_stand(spec: &CommandSpec, args: &Args<'_>) -> bool {
    match spec.routing_of(args) {
        Routing::Keyed | Routing::Blocking => true,
        Routing::Node => matches!(spec.name, "ping" | "echo" | "time"),
        Routing::Transaction => spec.name == "unwatch",
        Routing::LocalStore
        | Routing::AllNodes
        | Routing::Ring
        | Routing::Refused(_)
        | Routing::Hangup => false,
    }
}

/// The commands of a block. `None` when one of its arguments is no request, or one that may not
/// stand there.
pub(super) fn commands(block: &Args<'_>, modules: &ModuleCommands) -> Option<Vec<Queued>> {
    let all: Option<Vec<Queued>> = block
        .tail(1)
        .iter()
        .map(|bytes| {
            let request = Written::decoded(bytes).filter(|r| r.bytes.len() == bytes.len())?;
            let args = request.args();
            let spec = table::find(&args, modules).ok().filter(|spec| may_stand(spec, &args))?;
            Some(Queued { spec, request })
        })
        .collect();
    all.filter(|all| all.len() <= COMMANDS_MAX)
}

/// The block of these commands.
pub(super) fn write<'a>(requests: impl ExactSizeIterator<Item = &'a [u8]>) -> Written {
    let mut words = Vec::with_capacity(requests.len() + 1);
    words.push(NAME);
    words.extend(requests);
    Written::command(words.into_iter())
}

/// What the whole block does, and how its replies are compared.
pub(super) fn nature(commands: &[Queued]) -> (Op, Compare) {
    let op = if commands.iter().any(Queued::writes) { Op::Write } else { Op::Read };
    let exact = commands.iter().all(|c| c.spec.compare == Compare::Exact);
    (op, if exact { Compare::Exact } else { Compare::First })
}

/// True when one replica must run it first.
pub(super) fn has_primary(commands: &[Queued]) -> bool {
    commands.iter().any(|c| c.effect() == Effect::PrimaryFirst)
}

/// The block that brings the other replicas to the state of the one that answered `reply`; `None`
/// when nothing changed.
pub(super) fn outcome(block: &Args<'_>, reply: &[u8], wall_ms: u64) -> Option<Written> {
    let commands = commands(block, &ModuleCommands::default()).unwrap_or_default();
    let mut effects = Vec::new();
    for (command, reply) in commands.iter().zip(elements(reply)) {
        if is_error(reply) || !command.writes() {
            continue;
        }
        match command.effect() {
            Effect::Verbatim | Effect::Absolute => {
                effects.extend_from_slice(&command.request.bytes);
            }
            Effect::PrimaryFirst => {
                let args = command.request.args();
                rewrite::outcome(command.spec, &args, reply, wall_ms, &mut effects);
            }
        }
    }
    let effects = Written::all(&effects);
    let requests = effects.iter().map(|effect| effect.bytes.as_slice());
    (!effects.is_empty()).then(|| write(requests))
}

/// Appends the block as a script with its keys in KEYS. False, and nothing is appended, when it
/// has no key, more arguments than Lua hands on, or a command that scripts may not call.
pub(super) fn write_for_c(block: &Args<'_>, out: &mut Vec<u8>) -> bool {
    let Some(commands) = commands(block, &ModuleCommands::default()) else { return false };
    let unfit = |c: &Queued| {
        let args = c.request.args();
        // Redis lets no script run what may wait, or watch.
        let never = matches!(c.spec.routing_of(&args), Routing::Blocking | Routing::Transaction);
        args.len() > rewrite::EVAL_ARGS_MAX || never
    };
    let keys: Vec<&[u8]> = commands.iter().flat_map(keys_of).collect();
    let words: usize = commands.iter().map(|c| c.request.args().len() + 1).sum();
    if keys.is_empty() || commands.iter().any(unfit) {
        return false;
    }
    let mut digits = itoa::Buffer::new();
    encode::array(out, 4 + keys.len() + words);
    encode::bulk(out, b"EVAL");
    encode::bulk(out, SCRIPT);
    encode::bulk(out, digits.format(keys.len()).as_bytes());
    keys.iter().for_each(|key| encode::bulk(out, key));
    encode::bulk(out, digits.format(commands.len()).as_bytes());
    for command in &commands {
        let args = command.request.args();
        encode::bulk(out, digits.format(args.len()).as_bytes());
        args.iter().for_each(|arg| encode::bulk(out, arg));
    }
    true
}

/// True for a request in this form.
#[inline]
pub(super) fn is_block(args: &Args<'_>) -> bool {
    args.get(0).is_some_and(|name| name.len() == NAME.len() && name.eq_ignore_ascii_case(NAME))
}

/// The first key of a block: it decides where the block goes.
pub(super) fn first_key<'a>(block: &Args<'a>, modules: &ModuleCommands) -> Option<&'a [u8]> {
    block.tail(1).iter().find_map(|bytes| {
        let mut spans = Vec::new();
        let limits = RequestLimits::default();
        RequestDecoder::default().decode(bytes, &limits, &mut spans).ok()??;
        let args = Args::new(bytes, &spans);
        let key = table::find(&args, modules).ok()?.first_key(&args)?;
        Some(spans[key].of(bytes))
    })
}

/// The keys of one command.
pub(super) fn keys_of(command: &Queued) -> impl Iterator<Item = &[u8]> {
    let args = command.request.args();
    command.spec.keys_of(&args).filter_map(move |i| args.get(i))
}

/// A block as a Redis datastore gets it, and how many replies come before the one that counts.
pub(super) fn piece(commands: &[Queued]) -> (Vec<u8>, u16) {
    let mut piece = Vec::new();
    encode::command(&mut piece, [&b"MULTI"[..]]);
    commands.iter().for_each(|c| piece.extend_from_slice(&c.request.bytes));
    encode::command(&mut piece, [&b"EXEC"[..]]);
    (piece, commands.len() as u16 + 1)
}

impl Dispatcher {
    /// Sends a block to the own datastore.
    pub(super) fn send_block(&mut self, block: Parcel<'_>, leg: &Leg, ticket: Ticket, now: Now) {
        let commands = commands(&block.args, &self.view.settings.modules).unwrap_or_default();
        if let Some(embedded) = self.embedded.clone() {
            self.counters.requests_store += 1;
            let requests: Vec<Args<'_>> = commands.iter().map(|c| c.request.args()).collect();
            let mut out = std::mem::take(&mut self.executed);
            let mut stamping = Stamping::with(block.stamp);
            embedded.execute_block(&requests, &[], now.wall_ms(), &mut stamping, &mut out);
            self.answer_executed(out, ticket, Told::by(&stamping), now);
            return;
        }
        let ups = self.links.of(leg.peer);
        let Some(up) = ups.iter().copied().find(|up| self.ups[up.0 as usize].up) else {
            let failure = Failure::new(FailureKind::StoreNotConnected, Cause::NotConnected);
            return self.answer(ticket, Said::Failed(failure), now);
        };
        let (piece, skip) = piece(&commands);
        self.enqueue(up, leg.hop, &Frame::Small(&piece), None, Ticket { skip, ..ticket }, now);
    }
}
