//! From client bytes to requests: decoding in place, checks, and where each command goes.

use std::sync::Arc;

use bytes::{Buf, BytesMut};

use super::client::{ClientId, Decoder};
use super::failure::{Cause, Failure, FailureKind};
use super::gather::Said;
use super::plan::Op;
use super::send::Ask;
use super::slot::{Envelope, Owner};
use super::view::{NodeState, Now, Protocol, View};
use super::{Dispatcher, Frame, cut, route, scan};
use crate::proto::args::{Args, Span};
use crate::proto::command::{Class, Compare, KeySpec, Merge, Routing};
use crate::proto::memcache::table::McCommand;
use crate::proto::outbuf::SHARE_MIN;
use crate::proto::resp::effect::EffectRule;
use crate::proto::resp::shape::Shape;
use crate::proto::resp::spec::CommandSpec;
use crate::proto::resp::{encode, inline, table};
use crate::ring::Consistency;

/// Why the rest of a connection's bytes must wait, or is dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stop {
    /// A limit was hit; the bytes stay.
    Blocked,
    /// The connection is being closed; the bytes are dropped.
    Closed,
}

/// A whole request's place in the receive buffer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Found {
    pub(super) len: usize,
    /// A line of text in place of an array.
    pub(super) inline: bool,
}

/// One command of a client whose keys decide where it goes.
#[derive(Clone, Copy)]
pub(super) struct Request<'a> {
    pub(super) client: u32,
    /// Its row in the command table, when it has one.
    pub(super) spec: Option<&'static CommandSpec>,
    /// Its row in that of memcache.
    pub(super) memcache: Option<&'static McCommand>,
    /// Is asked of the replica on which conditional writes run.
    pub(super) at_first: bool,
    pub(super) args: Args<'a>,
    pub(super) keys: KeySpec,
    pub(super) merge: Merge,
    pub(super) op: Op,
    pub(super) level: Consistency,
    pub(super) compare: Compare,
    /// Has its own words for keys of several owners.
    pub(super) script: bool,
    pub(super) envelope: Envelope,
}

/// What a client may send before it gave the password.
const BEFORE_AUTH: [&str; 4] = ["auth", "hello", "quit", "reset"];

/// What a client is told that did not give it.
fn no_auth(spec: &CommandSpec) -> &'static str {
    match spec.name {
        "exec" => "EXECABORT Transaction discarded because of: NOAUTH Authentication required.",
        _ => "NOAUTH Authentication required.",
    }
}

/// Whether a command reads or writes, by effect or, if so configured, by the reference's table.
pub(super) fn op_of(view: &View, spec: &CommandSpec, args: &Args<'_>) -> Op {
    let class = match view.settings.reference_classes {
        false => spec.class_of(args),
        true => spec.reference_class_of(args),
    };
    match class {
        Class::Read | Class::Admin => Op::Read,
        Class::Write => Op::Write,
    }
}

impl<'a> Request<'a> {
    /// The question to put for this request when `frame` is what replicas get.
    pub(super) fn ask<'b>(&self, frame: &'b Frame<'b>) -> Ask<'b>
    where
        'a: 'b,
    {
        let key = self.keys.first_key(&self.args).and_then(|i| self.args.get(i));
        Ask {
            frame,
            args: self.args,
            key,
            op: self.op,
            level: self.level,
            compare: self.compare,
            per_element: self.has_elements(),
            local_only: false,
            tried: 0,
            spec: self.spec,
            memcache: self.memcache,
            first: None,
            replays: false,
            stamp: None,
            owner: Owner::Client(self.client),
            envelope: self.envelope,
        }
    }
}

/// True when a command reads keys by a pattern that other nodes may own. They are those of its own
/// key where the pattern has the same hash tag in front of its `*`.
pub(super) fn reads_elsewhere(view: &View, spec: &CommandSpec, args: &Args<'_>) -> bool {
    let mut patterns = spec.patterns_of(args).peekable();
    if patterns.peek().is_none() || !scan::has_several_owners(&view.topology) {
        return false;
    }
    let set = |token| view.topology.owners(&token).set_id();
    let key = spec.first_key(args).and_then(|i| args.get(i)).unwrap_or_default();
    let own = set(view.hasher.token(key));
    patterns.any(|pattern| {
        let star = pattern.iter().position(|byte| *byte == b'*').unwrap_or(pattern.len());
        view.hasher.token_of_prefix(&pattern[..star]).is_none_or(|token| set(token) != own)
    })
}

impl Request<'_> {
    /// True for a read of several keys, each of which has its own part of the answer.
    pub(super) fn has_elements(&self) -> bool {
        let is_read = matches!(self.merge, Merge::Mget | Merge::Values);
        is_read && self.keys.keys(&self.args).len() > 1
    }

    /// The keys, in the order asked.
    pub(super) fn key_names(&self) -> Vec<Vec<u8>> {
        self.keys.keys(&self.args).filter_map(|i| self.args.get(i)).map(<[u8]>::to_vec).collect()
    }
}

impl Dispatcher {
    /// Bytes came from somebody who asks. Whole requests are taken out of `buf`; an unfinished
    /// one stays, and so does everything when the client is not to be read any more.
    pub fn on_client_bytes(&mut self, id: ClientId, buf: &mut BytesMut, now: Now) {
        let Some(client) = self.clients.get(id.0 as usize) else { return };
        let is_peer = client.peer.is_some();
        let view = Arc::clone(&self.view);
        match (is_peer, view.settings.protocol) {
            (true, _) => self.on_peer_bytes(&view, id, buf, now),
            (false, Protocol::Redis) => self.on_redis_bytes(&view, id, buf, now),
            (false, Protocol::Memcache) => self.on_memcache_bytes(&view, id, buf, now),
        }
    }

    fn on_redis_bytes(&mut self, view: &View, id: ClientId, buf: &mut BytesMut, now: Now) {
        let mut pos = 0;
        let mut spans = std::mem::take(&mut self.spans);
        while pos < buf.len() && self.may_take(id) {
            let found = match self.find_request(view, id, &buf[pos..], &mut spans, now) {
                Ok(Some(found)) => found,
                Ok(None) | Err(Stop::Blocked) => break,
                Err(Stop::Closed) => {
                    pos = buf.len();
                    break;
                }
            };
            if self.full_ups > 0 && self.must_wait(view, id, &buf[pos..], found, &spans) {
                break;
            }
            let frame = (&buf[pos..pos + found.len], spans.as_slice());
            if !self.libraries.sure && !found.inline && self.awaits_libraries(view, id, frame, now)
            {
                break;
            }
            if found.inline {
                let line = &buf[pos..pos + found.len];
                self.serve_inline(view, id, line, &mut spans, now);
                pos += found.len;
            } else if found.len < SHARE_MIN {
                let frame = Frame::Small(&buf[pos..pos + found.len]);
                self.serve(view, id, &frame, &spans, now);
                pos += found.len;
            } else {
                let frame = Frame::Large(cut(buf, &mut pos, found.len));
                self.serve(view, id, &frame, &spans, now);
            }
        }
        self.spans = spans;
        buf.advance(pos.min(buf.len()));
    }

    /// True while another request of this client may be taken; pauses it at its limits.
    pub(super) fn may_take(&mut self, id: ClientId) -> bool {
        let settings = &self.view.settings;
        let client = &mut self.clients[id.0 as usize];
        if client.closing || client.paused {
            return false;
        }
        if client.queue.len() >= settings.client_in_flight_max
            || client.owed_bytes() >= settings.client_output_max
        {
            client.paused = true;
            self.counters.pauses_client_limit += 1;
            return false;
        }
        true
    }

    fn find_request(
        &mut self,
        view: &View,
        id: ClientId,
        buf: &[u8],
        spans: &mut Vec<Span>,
        now: Now,
    ) -> Result<Option<Found>, Stop> {
        let limits = &view.settings.request;
        let error = match &mut self.clients[id.0 as usize].decoder {
            Decoder::Resp(decoder) => match decoder.decode(buf, limits, spans) {
                Ok(found) => {
                    return Ok(found.map(|f| Found { len: f.len, inline: f.inline }));
                }
                Err(error) => error,
            },
            Decoder::Memcache(_) => unreachable!("a Redis node has Redis clients only"),
        };
        let mut line = Vec::new();
        encode::error(&mut line, format!("ERR {error}").as_bytes());
        Err(self.refuse(id, &line, now))
    }

    /// Tells a client what is wrong with its bytes and closes it: nobody knows where its next
    /// request would begin.
    pub(super) fn refuse(&mut self, id: ClientId, error: &[u8], now: Now) -> Stop {
        self.counters.bad_requests += 1;
        self.reply_in_turn(id.0, Envelope::default(), Said::Reply(error), now);
        self.clients[id.0 as usize].closing = true;
        Stop::Closed
    }

    fn serve_inline(
        &mut self,
        view: &View,
        id: ClientId,
        line: &[u8],
        spans: &mut Vec<Span>,
        now: Now,
    ) {
        let mut frame = std::mem::take(&mut self.inline);
        match inline::rewrite(line, &mut frame, spans) {
            Ok(()) => self.serve(view, id, &Frame::Small(&frame), spans, now),
            Err(error) => {
                let mut reply = Vec::new();
                encode::error(&mut reply, format!("ERR {error}").as_bytes());
                self.refuse(id, &reply, now);
            }
        }
        self.inline = frame;
    }

    /// True when the request at the beginning of `buf` has to wait for a full upstream; its
    /// client is not read until then.
    fn must_wait(
        &mut self,
        view: &View,
        id: ClientId,
        buf: &[u8],
        found: Found,
        spans: &[Span],
    ) -> bool {
        let frame = Frame::Small(&buf[..found.len]);
        let args = Args::new(frame.as_slice(), spans);
        let spec = match table::find(&args, &view.settings.modules) {
            Ok(spec) if !found.inline && spec.routing_of(&args) == Routing::Keyed => spec,
            Ok(_) | Err(_) => return false,
        };
        let request = self.request(view, id, spec, args);
        match self.would_block(view, &request.ask(&frame)) {
            Some(up) => {
                self.block(id, up);
                true
            }
            None => false,
        }
    }

    /// Serves one whole request.
    fn serve(&mut self, view: &View, id: ClientId, frame: &Frame<'_>, spans: &[Span], now: Now) {
        let args = Args::new(frame.as_slice(), spans);
        if args.is_empty() {
            return;
        }
        let Some(spec) = self.known_command(view, id, &args, now) else {
            self.counters.unknown_commands += 1;
            return match args[0].eq_ignore_ascii_case(b"exec") {
                true => self.end_multi(id, now),
                false => self.fail_multi(id),
            };
        };
        if !self.clients[id.0 as usize].trusted && !BEFORE_AUTH.contains(&spec.name) {
            return self.reply_error(id, no_auth(spec), now);
        }
        if self.is_queued(id, spec) {
            return self.queue(view, id, spec, args, now);
        }
        match spec.routing_of(&args) {
            Routing::Keyed => self.serve_keyed(view, id, frame, spec, args, now),
            Routing::Node => self.serve_local(view, id, spec, args, now),
            Routing::LocalStore => self.serve_store(view, id, frame, spec, args, now),
            Routing::Refused(reason) => self.reply_error(id, &format!("ERR {reason}"), now),
            Routing::Hangup => {
                self.counters.bad_requests += 1;
                self.clients[id.0 as usize].closing = true;
            }
            Routing::AllNodes => self.serve_all_nodes(view, id, frame, spec, args, now),
            Routing::Ring => self.serve_ring(view, id, frame, spec, args, now),
            Routing::Transaction => self.serve_transaction(view, id, spec, args, now),
            Routing::Blocking => self.serve_blocking(view, id, frame, spec, args, now),
        }
    }

    /// The row of a command; a client whose command has none is told.
    pub(super) fn known_command(
        &mut self,
        view: &View,
        id: ClientId,
        command: &Args<'_>,
        now: Now,
    ) -> Option<&'static CommandSpec> {
        let rejection = match table::find(command, &view.settings.modules) {
            Ok(spec) => return Some(spec),
            Err(rejection) => rejection,
        };
        let mut error = Vec::new();
        rejection.write(command, &mut error);
        self.reply_in_turn(id.0, Envelope::default(), Said::Reply(&error), now);
        None
    }

    pub(super) fn count_request(&mut self, op: Op) {
        match op {
            Op::Read => self.counters.client_reads += 1,
            Op::Write => self.counters.client_writes += 1,
        }
    }

    pub(super) fn request<'a>(
        &self,
        view: &View,
        id: ClientId,
        spec: &'static CommandSpec,
        args: Args<'a>,
    ) -> Request<'a> {
        let op = op_of(view, spec, &args);
        let client = &self.clients[id.0 as usize];
        let (own, default) = match (op, &client.session) {
            (_, None) => (None, if op == Op::Read { view.read } else { view.write }),
            (Op::Read, Some(session)) => (session.read, view.read),
            (Op::Write, Some(session)) => (session.write, view.write),
        };
        let shape = if client.resp3 { spec.shape_of(&args) } else { Shape::Same };
        Request {
            client: id.0,
            spec: Some(spec),
            memcache: None,
            at_first: false,
            args,
            keys: spec.keys,
            merge: spec.merge,
            op,
            level: own.unwrap_or(default),
            compare: spec.compare,
            script: spec.name.starts_with("eval"),
            envelope: Envelope { shape, ..Envelope::default() },
        }
    }

    fn serve_keyed(
        &mut self,
        view: &View,
        id: ClientId,
        frame: &Frame<'_>,
        spec: &'static CommandSpec,
        args: Args<'_>,
        now: Now,
    ) {
        let request = self.request(view, id, spec, args);
        self.count_request(request.op);
        if let Some(failure) = self.forbidden(view, request.op) {
            return self.reply_in_turn(id.0, request.envelope, Said::Failed(failure), now);
        }
        let watches = self.clients[id.0 as usize].watch.is_some();
        if watches && request.op == Op::Read && self.read_where_watched(view, &request, frame, now)
        {
            return;
        }
        if request.op == Op::Write && route::is_on(view) {
            self.note_written(view, &request, now);
        }
        if spec.keys == KeySpec::First && !spec.patterns {
            let ask = request.ask(frame);
            if request.op == Op::Read && self.ask_routed(view, &ask, now) {
                return;
            }
            if request.op == Op::Read || spec.effect == EffectRule::Verbatim {
                return self.ask(view, &ask, now);
            }
            return self.ask_write(view, frame, spec, &request, now);
        }
        self.serve_several(view, frame, spec, &request, now);
    }

    /// Serves a command that may have several keys: split when it can be, else sent when one
    /// owner has them all.
    fn serve_several(
        &mut self,
        view: &View,
        frame: &Frame<'_>,
        spec: &'static CommandSpec,
        request: &Request<'_>,
        now: Now,
    ) {
        if request.merge != Merge::None {
            if !self.split(view, frame, request, now) {
                self.ask(view, &request.ask(frame), now);
            }
            return;
        }
        if reads_elsewhere(view, spec, &request.args) || !self.one_owner(view, request) {
            let kind = match request.script {
                true => FailureKind::ScriptSpansNodes,
                false => FailureKind::KeysSpanNodes,
            };
            let failure = Failure::new(kind, Cause::SeveralOwners);
            return self.reply_in_turn(
                request.client,
                request.envelope,
                Said::Failed(failure),
                now,
            );
        }
        match spec.name {
            "evalsha" | "evalsha_ro" => return self.serve_evalsha(view, frame, request, now),
            "eval" | "eval_ro" => self.note_script_run(&request.args[1]),
            _ => {}
        }
        match request.op {
            Op::Write => self.ask_write(view, frame, spec, request, now),
            Op::Read => self.ask(view, &request.ask(frame), now),
        }
    }

    /// The failure of a request that the node's own state does not allow.
    pub(super) fn forbidden(&self, view: &View, op: Op) -> Option<Failure> {
        let forbidden = match view.state {
            NodeState::Normal => false,
            NodeState::Standby => true,
            NodeState::WritesOnly | NodeState::Resuming => op == Op::Read,
        };
        forbidden.then(|| Failure::new(FailureKind::StateForbids, Cause::OwnState))
    }

    /// True when every rack has one owner for all keys of a command.
    pub(super) fn one_owner(&self, view: &View, request: &Request<'_>) -> bool {
        let mut sets = request
            .keys
            .keys(&request.args)
            .map(|i| view.topology.owners(&view.hasher.token(&request.args[i])).set_id());
        let first = sets.next();
        sets.all(|set| Some(set) == first)
    }

    pub(super) fn serve_store(
        &mut self,
        view: &View,
        id: ClientId,
        frame: &Frame<'_>,
        spec: &'static CommandSpec,
        args: Args<'_>,
        now: Now,
    ) {
        let request = self.request(view, id, spec, args);
        let ask = Ask { key: None, ..request.ask(frame) };
        self.ask(view, &ask, now);
    }

    pub(super) fn reply_error(&mut self, id: ClientId, text: &str, now: Now) {
        let mut error = Vec::new();
        encode::error(&mut error, text.as_bytes());
        self.reply_in_turn(id.0, Envelope::default(), Said::Reply(&error), now);
    }
}
