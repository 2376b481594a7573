//! What comes in over the links other nodes opened: requests for this node's datastore (type 3),
//! requests to fan out in this datacenter (type 4), and frames for the control plane.

use bytes::{Buf, BytesMut};

use super::client::{ClientId, Decoder, PeerIn};
use super::failure::Failure;
use super::gather::Said;
use super::memcache::{limits, memcache_op};
use super::plan::Op;
use super::requests::Stop;
use super::send::Ask;
use super::slot::{Envelope, Owner};
use super::view::{Now, View};
use super::{Dispatcher, Event, Frame, backfill, block, cut};
use crate::proto::args::{Args, Span};
use crate::proto::command::{Class, Compare, Routing};
use crate::proto::dnode::{Ext, Header, HeaderLimits, MsgType, VERSION_TORC};
use crate::proto::memcache::decode::{McDecoded, McRequest};
use crate::proto::memcache::forward;
use crate::proto::outbuf::SHARE_MIN;
use crate::proto::resp::spec::CommandSpec;
use crate::proto::resp::{encode, table};
use crate::ring::Consistency;

/// The body of one request, found whole.
struct Body {
    len: usize,
    /// What it asks, when it is memcache.
    memcache: Option<McRequest>,
}

/// Why a request of another node does not reach the datastore.
enum Refusal {
    /// The state an operator set does not allow it.
    State(Failure),
    /// The connection is shared: a command that changes it, or that is not answered by exactly one
    /// reply, would give one client's answers to another. No node sends such commands on purpose.
    Words(Vec<u8>),
}

impl Refusal {
    fn words(text: &str) -> Refusal {
        let mut error = Vec::new();
        encode::error(&mut error, text.as_bytes());
        Refusal::Words(error)
    }
}

/// A line that is no request comes from no node on purpose: its link is given up.
fn memcache_body(found: Option<McDecoded>) -> Result<Option<Body>, ()> {
    match found {
        None => Ok(None),
        Some(McDecoded::Request(r)) => Ok(Some(Body { len: r.len, memcache: Some(r) })),
        Some(McDecoded::Rejected { .. } | McDecoded::Skipped { .. }) => Err(()),
    }
}

/// What is not just handed to the datastore.
enum Apart {
    /// It asks for the text of a script.
    Script,
    /// It may wait for a key.
    Waits(&'static CommandSpec),
    /// It concerns what the client watches, if it watches anything.
    Watches,
    /// A value of another datacenter is to be stored here.
    Backfills,
}

/// Most requests are not looked up for it: their names begin otherwise.
fn apart(view: &View, args: &Args<'_>) -> Option<Apart> {
    match args.get(0)?.first()? {
        b'b' | b'B' | b'x' | b'X' => {
            let spec = table::find(args, &view.settings.modules).ok();
            let waits = |spec: &&CommandSpec| spec.routing_of(args) == Routing::Blocking;
            spec.filter(waits).map(Apart::Waits)
        }
        _ if backfill::is_offer(args) => Some(Apart::Backfills),
        b't' | b'T' if args[0].eq_ignore_ascii_case(b"torc.script") => Some(Apart::Script),
        b'w' | b'W' | b'u' | b'U' | b't' | b'T' => Some(Apart::Watches),
        _ => None,
    }
}

/// The key of a memcache request that is to be fanned out (type 4).
fn memcache_key<'a>(header: &Header, request: &McRequest, args: &Args<'a>) -> Option<&'a [u8]> {
    let fan_out = header.msg_type() == MsgType::ReqForward;
    let key = request.command.keys.first_key(args).filter(|_| fan_out);
    key.and_then(|i| args.get(i))
}

impl Dispatcher {
    /// Serves what is whole in `buf`; see [`Dispatcher::on_client_bytes`].
    pub(super) fn on_peer_bytes(
        &mut self,
        view: &View,
        id: ClientId,
        buf: &mut BytesMut,
        now: Now,
    ) {
        let mut pos = 0;
        let mut spans = std::mem::take(&mut self.spans);
        while pos < buf.len() && self.may_take(id) {
            match self.next_peer_frame(view, id, buf, &mut pos, &mut spans, now) {
                Ok(true) => {}
                Ok(false) | Err(Stop::Blocked) => break,
                Err(Stop::Closed) => pos = buf.len(),
            }
        }
        self.spans = spans;
        buf.advance(pos);
    }

    /// Takes one frame; `false` when more bytes are needed.
    fn next_peer_frame(
        &mut self,
        view: &View,
        id: ClientId,
        buf: &mut BytesMut,
        pos: &mut usize,
        spans: &mut Vec<Span>,
        now: Now,
    ) -> Result<bool, Stop> {
        let Some(header) = self.peer_header(id, buf, pos)? else { return Ok(false) };
        if header.encrypted() {
            self.sealed_frame(view, id, header, buf, pos, spans, now)
        } else if self.plain_is_allowed(view, id, &header) {
            self.peer_frame(view, id, header, buf, pos, spans, now)
        } else {
            Err(self.refuse_plain(id, &header, now))
        }
    }

    /// The same for a frame whose body is in plaintext, or deciphered.
    pub(super) fn peer_frame(
        &mut self,
        view: &View,
        id: ClientId,
        header: Header,
        buf: &mut BytesMut,
        pos: &mut usize,
        spans: &mut Vec<Span>,
        now: Now,
    ) -> Result<bool, Stop> {
        let kind = header.msg_type();
        match kind {
            MsgType::Req | MsgType::ReqForward => {
                self.peer_request(view, header, (id, buf, pos), spans, now)
            }
            MsgType::GossipSyn => Ok(self.control_frame(id, header, buf, pos)),
            _ if kind.is_control() => Ok(self.control_frame(id, header, buf, pos)),
            _ => {
                // Its body is junk up to the next magic.
                self.counters.unknown_frames_in += 1;
                self.peer_in(id).header = None;
                *pos += header.len;
                Ok(true)
            }
        }
    }

    fn peer_in(&mut self, id: ClientId) -> &mut PeerIn {
        self.clients[id.0 as usize].peer.as_mut().expect("a peer link")
    }

    fn peer_header(
        &mut self,
        id: ClientId,
        buf: &[u8],
        pos: &mut usize,
    ) -> Result<Option<Header>, Stop> {
        let peer = self.peer_in(id);
        if peer.header.is_some() {
            return Ok(peer.header);
        }
        match peer.headers.decode(&buf[*pos..], &HeaderLimits::default()) {
            Ok(Some(header)) => {
                peer.header = Some(header);
                peer.ext = Ext::parse(header.data.of(&buf[*pos..]));
                peer.security.next_frame();
                Ok(Some(header))
            }
            Ok(None) => {
                *pos += peer.headers.take_junk();
                Ok(None)
            }
            Err(_) => Err(self.drop_link(id)),
        }
    }

    fn peer_request(
        &mut self,
        view: &View,
        header: Header,
        (id, buf, pos): (ClientId, &mut BytesMut, &mut usize),
        spans: &mut Vec<Span>,
        now: Now,
    ) -> Result<bool, Stop> {
        let body_at = *pos + header.len;
        let Some(found) = self.find_body(view, id, &buf[body_at..], spans)? else {
            return Ok(false);
        };
        let body = &buf[body_at..body_at + found.len];
        if self.full_ups > 0 {
            let frame = Frame::Small(body);
            let ask = self.peer_ask(id, &header, &frame, spans, &found);
            if let Some(up) = self.would_block(view, &ask) {
                self.block(id, up);
                return Err(Stop::Blocked);
            }
        }
        let frame = (body, spans.as_slice());
        if found.memcache.is_none() && self.awaits_libraries(view, id, frame, now) {
            return Err(Stop::Blocked);
        }
        self.peer_in(id).header = None;
        self.counters.peer_requests_in += 1;
        let stamp = self.stamp_of_peer(view, id, now);
        let args = Args::new(body, spans);
        let refusal = self.refusal(view, &header, &args, &found);
        let as_it_came = refusal.is_none() && found.memcache.is_none_or(|request| request.plain);
        if found.len >= SHARE_MIN && as_it_came {
            let mut whole = cut(buf, pos, header.len + found.len);
            whole.advance(header.len);
            let frame = Frame::Large(whole);
            let ask = Ask { stamp, ..self.peer_ask(id, &header, &frame, spans, &found) };
            self.serve_of_peer(view, ask, now);
            return Ok(true);
        }
        let frame = Frame::Small(body);
        match (&refusal, &found.memcache) {
            (Some(refusal), _) => self.refuse_request(id, &header, &found, refusal, now),
            (None, Some(request)) if !request.plain => {
                let mut plain = self.spare();
                plain.clear();
                forward::write(request, &args, None, &mut plain);
                let plain_frame = Frame::Small(&plain);
                // The key is looked for in the bytes that came.
                let ask = self.peer_ask(id, &header, &frame, spans, &found);
                self.ask(view, &Ask { frame: &plain_frame, stamp, ..ask }, now);
                self.recycle(plain);
            }
            (None, _) => {
                let ask = Ask { stamp, ..self.peer_ask(id, &header, &frame, spans, &found) };
                self.serve_of_peer(view, ask, now);
            }
        }
        *pos = body_at + found.len;
        Ok(true)
    }

    /// The request at the beginning of `body`, once it is whole.
    fn find_body(
        &mut self,
        view: &View,
        id: ClientId,
        body: &[u8],
        spans: &mut Vec<Span>,
    ) -> Result<Option<Body>, Stop> {
        let found = match &mut self.clients[id.0 as usize].decoder {
            // A line of text in place of an array is a frame without body, before the next one.
            Decoder::Resp(_) if body.first().is_some_and(|b| *b != b'*') => Err(()),
            Decoder::Resp(decoder) => decoder
                .decode(body, &view.settings.request, spans)
                .map(|found| found.map(|f| Body { len: f.len, memcache: None }))
                .map_err(|_| ()),
            Decoder::Memcache(decoder) => {
                decoder.decode(body, &limits(view), spans).map_err(|_| ()).and_then(memcache_body)
            }
        };
        found.map_err(|()| self.drop_link(id))
    }

    /// Serves one request of another node.
    fn serve_of_peer(&mut self, view: &View, ask: Ask<'_>, now: Now) {
        self.note_scripts(&ask.args);
        self.note_libraries(&ask.args);
        match apart(view, &ask.args) {
            Some(Apart::Waits(spec)) => self.serve_blocking_of_peer(view, spec, &ask, now),
            Some(Apart::Script) => {
                let mut reply = Vec::new();
                self.tell_script(&ask.args, &mut reply);
                self.answer_now(&ask, Said::Reply(&reply), now);
            }
            Some(Apart::Watches) if self.serve_watching_of_peer(view, &ask, now) => {}
            Some(Apart::Backfills) => self.serve_backfill_of_peer(view, &ask, now),
            Some(Apart::Watches) | None => self.ask(view, &self.with_clock(ask, now), now),
        }
    }

    /// Why a request of another node must not reach the datastore.
    fn refusal(
        &self,
        view: &View,
        header: &Header,
        args: &Args<'_>,
        found: &Body,
    ) -> Option<Refusal> {
        if let Some(request) = &found.memcache {
            // Its decoder let no line through that a store would not answer once.
            return self.state_refuses(view, header, memcache_op(request, args));
        }
        if args.is_empty() {
            return Some(Refusal::words("ERR empty request"));
        }
        let spec = table::find(args, &view.settings.modules).ok()?;
        match spec.routing_of(args) {
            // Another torc node opens a link for each client that waits (decision F4).
            Routing::Keyed
            | Routing::LocalStore
            | Routing::AllNodes
            | Routing::Ring
            | Routing::Blocking => {
                let op = if spec.class_of(args) == Class::Read { Op::Read } else { Op::Write };
                self.state_refuses(view, header, op)
            }
            Routing::Node
                if block::is_block(args)
                    && block::commands(args, &view.settings.modules).is_some() =>
            {
                self.state_refuses(view, header, Op::Write)
            }
            // The heartbeat (decision E1).
            Routing::Node if spec.name == "ping" => None,
            Routing::Node if spec.name == backfill::NAME => {
                self.state_refuses(view, header, Op::Write)
            }
            Routing::Node if spec.name == "torc.script" => None,
            // The same for each client that watches (decision F3).
            Routing::Transaction if matches!(spec.name, "watch" | "unwatch") => None,
            Routing::Node | Routing::Transaction | Routing::Refused(_) | Routing::Hangup => {
                let words = format!("ERR '{}' is not served on a link between nodes", spec.name);
                Some(Refusal::words(&words))
            }
        }
    }

    fn refuse_request(
        &mut self,
        id: ClientId,
        header: &Header,
        found: &Body,
        refusal: &Refusal,
        now: Now,
    ) {
        let said = match refusal {
            Refusal::State(failure) => Said::Failed(*failure),
            Refusal::Words(error) => Said::Reply(error),
        };
        let silent = found.memcache.is_some_and(|request| request.noreply);
        let envelope = Envelope { silent, ..envelope_of(header) };
        self.reply_in_turn(id.0, envelope, said, now);
    }

    /// What the state an operator set forbids is answered with the reference's error. A write that
    /// is to be fanned out goes to the other racks: nobody plans with a datastore on standby.
    fn state_refuses(&self, view: &View, header: &Header, op: Op) -> Option<Refusal> {
        if header.msg_type() == MsgType::ReqForward && op == Op::Write {
            return None;
        }
        self.forbidden(view, op).map(Refusal::State)
    }

    /// Type 3 goes straight to the datastore: no second hashing, no bounce. Type 4 is hashed
    /// once and goes to every rack of this datacenter, never further (decision A5).
    fn peer_ask<'a>(
        &self,
        id: ClientId,
        header: &Header,
        frame: &'a Frame<'a>,
        spans: &'a [Span],
        found: &Body,
    ) -> Ask<'a> {
        let args = Args::new(frame.as_slice(), spans);
        let mut ask = Ask {
            frame,
            args,
            key: None,
            op: Op::Write,
            level: Consistency::DcOne,
            compare: Compare::Exact,
            per_element: false,
            local_only: true,
            tried: 0,
            spec: None,
            memcache: found.memcache.map(|request| request.command),
            first: None,
            replays: false,
            stamp: None,
            owner: Owner::Client(id.0),
            envelope: Envelope { tells: self.asks_for_stamps(id), ..envelope_of(header) },
        };
        if let Some(request) = &found.memcache {
            ask.envelope.silent = request.noreply;
            ask.key = memcache_key(header, request, &args);
            ask.op = memcache_op(request, &args);
            return ask;
        }
        if header.msg_type() == MsgType::ReqForward
            && let Ok(spec) = table::find(&args, &self.view.settings.modules)
        {
            ask.spec = Some(spec);
            ask.key = spec.first_key(&args).and_then(|i| args.get(i));
            if spec.class_of(&args) == Class::Read {
                ask.op = Op::Read;
            }
            if block::is_block(&args) {
                ask.key = block::first_key(&args, &self.view.settings.modules);
            }
        }
        ask
    }

    /// The answer to a heartbeat tells the clock, so that clocks of nodes that have nothing else
    /// to say to each other stay together.
    fn with_clock<'a>(&self, mut ask: Ask<'a>, now: Now) -> Ask<'a> {
        if ask.envelope.version == VERSION_TORC {
            ask.envelope.told.stamp = Some(self.clock.read(now.wall_us));
        }
        ask
    }

    fn asks_for_stamps(&self, id: ClientId) -> bool {
        self.clients[id.0 as usize].peer.as_ref().is_some_and(|peer| peer.ext.stamp.is_some())
    }

    /// Hands a gossip or control frame on. `plen` binds for these (dnode.md section 3).
    fn control_frame(
        &mut self,
        id: ClientId,
        header: Header,
        buf: &mut BytesMut,
        pos: &mut usize,
    ) -> bool {
        let len = header.len + header.plen as usize;
        if buf.len() - *pos < len {
            return false;
        }
        let mut body = cut(buf, pos, len);
        body.advance(header.len);
        self.peer_in(id).header = None;
        self.counters.control_frames_in += 1;
        self.events.push_back(Event::Control { from: id, kind: header.kind, body });
        true
    }

    pub(super) fn drop_link(&mut self, id: ClientId) -> Stop {
        self.counters.bad_requests += 1;
        self.clients[id.0 as usize].closing = true;
        Stop::Closed
    }
}

/// An answer carries its request's id and flags.
pub(super) fn envelope_of(header: &Header) -> Envelope {
    Envelope {
        id: header.id,
        version: header.version,
        same_dc: header.same_dc,
        ..Envelope::default()
    }
}
