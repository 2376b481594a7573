//! Memcache clients, and memcache requests of other nodes.
//!
//! A store is always sent the replying form of a request: one reply to each, so that its
//! connection stays in step. Whether the client is told is decided when the reply is there
//! (`noreply`, the meta flag `q`).

use bytes::{Buf, BytesMut};

use super::client::{ClientId, Decoder};
use super::gather::Said;
use super::memcache_ring::{asks_first, is_decided_by_one};
use super::plan::Op;
use super::requests::{Request, Stop};
use super::send::Ask;
use super::slot::Envelope;
use super::view::{Now, View};
use super::{Dispatcher, Frame, cut};
use crate::proto::args::{Args, Span};
use crate::proto::command::{Class, KeySpec, Merge, Routing};
use crate::proto::memcache::decode::{McDecoded, McDecoder, McLimits, McRequest};
use crate::proto::memcache::forward;
use crate::proto::outbuf::SHARE_MIN;

impl Dispatcher {
    /// Serves what is whole in `buf`; see [`Dispatcher::on_client_bytes`].
    pub(super) fn on_memcache_bytes(
        &mut self,
        view: &View,
        id: ClientId,
        buf: &mut BytesMut,
        now: Now,
    ) {
        let mut pos = 0;
        let mut spans = std::mem::take(&mut self.spans);
        while pos < buf.len() && self.may_take(id) {
            match self.find_memcache(view, id, &buf[pos..], &mut spans, now) {
                Ok(Some(McDecoded::Request(found))) => {
                    if self.full_ups > 0 {
                        let args = Args::new(&buf[pos..pos + found.len], &spans);
                        if self.memcache_must_wait(view, id, &found, args) {
                            break;
                        }
                    }
                    if found.len < SHARE_MIN {
                        let frame = Frame::Small(&buf[pos..pos + found.len]);
                        self.serve_memcache(view, id, &found, &frame, &spans, now);
                        pos += found.len;
                    } else {
                        let frame = Frame::Large(cut(buf, &mut pos, found.len));
                        self.serve_memcache(view, id, &found, &frame, &spans, now);
                    }
                }
                Ok(Some(McDecoded::Rejected { len, reply })) => {
                    self.counters.unknown_commands += 1;
                    self.say(id, reply, now);
                    pos += len;
                }
                Ok(Some(McDecoded::Skipped { len })) => pos += len,
                Ok(None) | Err(Stop::Blocked) => break,
                Err(Stop::Closed) => pos = buf.len(),
            }
        }
        self.spans = spans;
        buf.advance(pos.min(buf.len()));
    }

    fn find_memcache(
        &mut self,
        view: &View,
        id: ClientId,
        buf: &[u8],
        spans: &mut Vec<Span>,
        now: Now,
    ) -> Result<Option<McDecoded>, Stop> {
        let Decoder::Memcache(decoder) = &mut self.clients[id.0 as usize].decoder else {
            unreachable!("a memcache node has memcache clients only")
        };
        decoder
            .decode(buf, &limits(view), spans)
            .map_err(|error| self.refuse(id, format!("CLIENT_ERROR {error}\r\n").as_bytes(), now))
    }

    fn memcache_must_wait(
        &mut self,
        view: &View,
        id: ClientId,
        found: &McRequest,
        args: Args<'_>,
    ) -> bool {
        if found.command.routing_of(&args) != Routing::Keyed {
            return false;
        }
        let request = memcache_request(view, id, found, args);
        let frame = Frame::Small(args.raw());
        match self.would_block(view, &request.ask(&frame)) {
            Some(up) => {
                self.block(id, up);
                true
            }
            None => false,
        }
    }

    fn serve_memcache(
        &mut self,
        view: &View,
        id: ClientId,
        found: &McRequest,
        frame: &Frame<'_>,
        spans: &[Span],
        now: Now,
    ) {
        let args = Args::new(frame.as_slice(), spans);
        match found.command.routing_of(&args) {
            Routing::Keyed => self.serve_memcache_key(view, id, found, frame, args, now),
            Routing::LocalStore => {
                let request = memcache_request(view, id, found, args);
                let ask = Ask { key: None, ..request.ask(frame) };
                self.ask(view, &ask, now);
            }
            Routing::Node => self.serve_memcache_node(view, id, found, now),
            Routing::Refused(reason) => {
                self.say(id, format!("SERVER_ERROR {reason}\r\n").as_bytes(), now);
            }
            Routing::AllNodes => {
                let request = memcache_request(view, id, found, args);
                self.serve_flush_all(view, id, found, &request, now);
            }
            Routing::Ring | Routing::Blocking | Routing::Transaction | Routing::Hangup => {
                let name = found.command.name;
                let text = format!("SERVER_ERROR '{name}' is not supported by this node\r\n");
                self.say(id, text.as_bytes(), now);
            }
        }
    }

    fn serve_memcache_key(
        &mut self,
        view: &View,
        id: ClientId,
        found: &McRequest,
        frame: &Frame<'_>,
        args: Args<'_>,
        now: Now,
    ) {
        let replicated = view.topology.racks().len() > 1;
        let absolute = replicated && found.command.expires_relatively(&args);
        if absolute && found.command.merge == Merge::Values {
            return self.serve_made_absolute(view, id, found, args, now);
        }
        let request = memcache_request(view, id, found, args);
        self.count_request(request.op);
        if let Some(failure) = self.forbidden(view, request.op) {
            return self.reply_in_turn(id.0, request.envelope, Said::Failed(failure), now);
        }
        if request.merge == Merge::Values && self.split(view, frame, &request, now) {
            return;
        }
        let mut decoded_key = Vec::new();
        let key = forward::ring_key(found, &args, &mut decoded_key);
        if is_decided_by_one(view, found, &args) && !request.at_first {
            return self.ask_conditional(view, found, (&request, key), now);
        }
        if found.plain && !absolute {
            return self.ask_memcache(view, &request, &Ask { key, ..request.ask(frame) }, now);
        }
        let mut rewritten = self.spare();
        rewritten.clear();
        forward::write(found, &args, absolute.then_some(now.wall_ms() / 1000), &mut rewritten);
        let frame = Frame::Small(&rewritten);
        self.ask_memcache(view, &request, &Ask { key, ..request.ask(&frame) }, now);
        self.recycle(rewritten);
    }

    fn ask_memcache(&mut self, view: &View, request: &Request<'_>, ask: &Ask<'_>, now: Now) {
        match request.at_first {
            true => self.ask_first(view, ask, now),
            false => self.ask(view, ask, now),
        }
    }

    /// Serves a gat with a point in time in place of its exptime, before it is split.
    fn serve_made_absolute(
        &mut self,
        view: &View,
        id: ClientId,
        found: &McRequest,
        args: Args<'_>,
        now: Now,
    ) {
        let (mut bytes, mut spans) = (self.spare(), Vec::new());
        bytes.clear();
        forward::write(found, &args, Some(now.wall_ms() / 1000), &mut bytes);
        let decoded = McDecoder::default().decode(&bytes, &limits(view), &mut spans);
        if let Ok(Some(McDecoded::Request(found))) = decoded {
            let args = Args::new(&bytes, &spans);
            self.serve_memcache_key(view, id, &found, &Frame::Small(&bytes), args, now);
        }
        self.recycle(bytes);
    }

    fn serve_memcache_node(&mut self, view: &View, id: ClientId, found: &McRequest, now: Now) {
        self.counters.client_other += 1;
        let reply = match found.command.name {
            "version" => format!("VERSION {}\r\n", env!("CARGO_PKG_VERSION")),
            "verbosity" => "OK\r\n".to_owned(),
            "mn" => "MN\r\n".to_owned(),
            "stats" => self.memcache_stats(view, now),
            _ => {
                // quit: nothing is answered.
                self.clients[id.0 as usize].closing = true;
                return;
            }
        };
        if !found.noreply {
            self.say(id, reply.as_bytes(), now);
        }
    }

    fn memcache_stats(&self, view: &View, now: Now) -> String {
        let topology = &view.topology;
        let mut text = format!(
            "STAT pid {}\r\nSTAT uptime {}\r\nSTAT time {}\r\nSTAT version {}\r\n\
             STAT ring_digest {:016x}\r\nSTAT peers {}\r\n\
             STAT peers_usable {}\r\nSTAT peers_joining {}\r\n",
            std::process::id(),
            now.mono_us / 1_000_000,
            now.wall_ms() / 1000,
            env!("CARGO_PKG_VERSION"),
            topology.digest(),
            topology.peers().len(),
            self.links.usable(),
            topology.joining(),
        );
        for (name, _, value) in self.counters.each() {
            text.push_str(&format!("STAT {name} {value}\r\n"));
        }
        text + "END\r\n"
    }

    /// Answers with a line made here; an empty one is no answer.
    fn say(&mut self, id: ClientId, reply: &[u8], now: Now) {
        if !reply.is_empty() {
            self.reply_in_turn(id.0, Envelope::default(), Said::Reply(reply), now);
        }
    }
}

/// The bounds of memcache requests, from those of all requests.
pub(super) fn limits(view: &View) -> McLimits {
    let request = &view.settings.request;
    McLimits {
        value_bytes_max: request.bulk_bytes_max,
        words_max: request.elements_max,
        ..McLimits::default()
    }
}

/// Whether a memcache request reads or writes, by effect.
pub(super) fn memcache_op(found: &McRequest, args: &Args<'_>) -> Op {
    match found.command.class_of(args) {
        Class::Read | Class::Admin => Op::Read,
        Class::Write => Op::Write,
    }
}

pub(super) fn memcache_request<'a>(
    view: &View,
    id: ClientId,
    found: &McRequest,
    args: Args<'a>,
) -> Request<'a> {
    let op = memcache_op(found, &args);
    Request {
        client: id.0,
        spec: None,
        memcache: Some(found.command),
        at_first: asks_first(view, found, &args, op),
        args,
        keys: match found.command.merge {
            Merge::Values => found.command.keys,
            Merge::None | Merge::Mget | Merge::Mset | Merge::SumInts => KeySpec::First,
        },
        merge: found.command.merge,
        op,
        level: match op {
            Op::Read => view.read,
            Op::Write => view.write,
        },
        compare: found.command.compare_of(&args),
        script: false,
        envelope: Envelope {
            silent: found.noreply,
            quiet: found.quiet.then_some(found.command),
            ..Envelope::default()
        },
    }
}
