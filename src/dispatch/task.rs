//! Commands that need several answers before they have one of their own: of many nodes, or of
//! one node after another.
//!
//! A task is a value in its client's slot. It is fed answers by the number of the part they are
//! for and says what follows; it never sees a connection. Every question it puts is answered
//! exactly once, by a reply or by a failure, so every task ends. Its client may leave meanwhile.

use super::allnodes::AllNodes;
use super::backfill::Backfill;
use super::chase::{self, Chase};
use super::config_get::StoreConfig;
use super::evalsha::Seeking;
use super::failure::{Cause, Failure, FailureKind};
use super::gather::Said;
use super::libraries::Collecting;
use super::plan::{Hop, Leg, Role, Standing};
use super::primary::Primary;
use super::replicas::Replicas;
use super::ringwide::Ring;
use super::send::Parcel;
use super::slot::{Envelope, Owner, Stage};
use super::stamps::Told;
use super::upstream::Ticket;
use super::view::{Now, View};
use super::watch::Catching;
use super::{Dispatcher, Frame, block};
use crate::proto::args::{Args, Span};
use crate::proto::command::TowardC;
use crate::proto::outbuf::SHARE_MIN;
use crate::proto::resp::decode::{RequestDecoder, RequestLimits};
use crate::proto::resp::spec::CommandSpec;
use crate::proto::resp::{encode, rewrite};
use crate::ring::PeerIdx;

/// A command in several steps.
#[derive(Debug)]
pub(super) enum Task {
    /// KEYS, SCAN, DBSIZE, RANDOMKEY.
    Ring(Ring),
    /// SCRIPT LOAD, FLUSHALL and others that concern every node.
    AllNodes(AllNodes),
    /// A write that runs on one replica first.
    Primary(Primary),
    /// A read whose replicas are shown side by side.
    Replicas(Replicas),
    /// An effect that one replica may not be ready for.
    Chase(Chase),
    /// A WATCH behind what its client wrote.
    Watch(Catching),
    /// A value of another datacenter on its way into this one.
    Backfill(Backfill),
    /// A script whose text is looked for.
    Script(Seeking),
    /// Libraries of functions that the own datastore may lack.
    Libraries(Collecting),
    /// CONFIG GET of what the datastore knows.
    Config(StoreConfig),
}

/// Other nodes that are asked for what the own datastore lacks, at most.
const ASKED_MAX: usize = 8;

/// What a task does next.
#[derive(Debug)]
pub(super) enum Next {
    /// More answers are awaited.
    Wait,
    /// This is the client's reply.
    Reply(Vec<u8>),
    /// The command failed.
    Fail(Failure),
    /// The questions are put once more.
    Again,
    /// This is what the other replicas get.
    Spread(Vec<Written>),
    /// The question is put again after so many milliseconds.
    Later(u64),
    /// The client's keys are watched.
    Watch,
    /// The value is offered to the owner in the own rack.
    Offer(Written),
    /// The script is run, with its text if that was found.
    Sought,
    /// Libraries that are missing are loaded.
    Libraries,
}

/// A question a task puts to one node: a slot, its generation and the part it is for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Part {
    pub(super) slot: u32,
    pub(super) generation: u32,
    pub(super) part: u16,
}

impl Dispatcher {
    /// Reserves the slot of a client's task.
    pub(super) fn begin_task(
        &mut self,
        client: u32,
        envelope: Envelope,
        task: Task,
        now: Now,
    ) -> Part {
        let stage = Stage::Task(Box::new(task));
        let (slot, generation) = self.new_slot(Owner::Client(client), stage, envelope, now);
        Part { slot, generation, part: 0 }
    }

    /// Puts a task's question to one node's own datastore. A node of the reference gets it in the
    /// form it understands.
    pub(super) fn ask_node(
        &mut self,
        view: &View,
        peer: PeerIdx,
        spec: &'static CommandSpec,
        parcel: Parcel<'_>,
        part: Part,
        now: Now,
    ) {
        let args = parcel.args;
        if let Err(failure) = self.reachable(view, peer) {
            return self.feed_task(part, Said::Failed(failure), Told::default(), now);
        }
        if spec.toward_c_of(&args) == TowardC::AsIs || self.is_torc(view, peer) {
            return self.ask_usable(view, peer, parcel, part, now);
        }
        let mut encoded = self.spare();
        encoded.clear();
        if write_for_c(spec, &args, &mut encoded) {
            // Only the embedded store looks at the arguments, and it is no peer.
            let args = Args::new(&encoded, &[]);
            let parcel = Parcel { frame: &Frame::Small(&encoded), args, stamp: parcel.stamp };
            self.ask_usable(view, peer, parcel, part, now);
        } else {
            let failure = Failure::new(FailureKind::NotSupported, Cause::NotSupportedByPeer);
            let failure = failure.at(view.topology.peer(peer).id);
            self.feed_task(part, Said::Failed(failure), Told::default(), now);
        }
        self.recycle(encoded);
    }

    pub(super) fn ask_usable(
        &mut self,
        view: &View,
        peer: PeerIdx,
        parcel: Parcel<'_>,
        part: Part,
        now: Now,
    ) {
        let rack = view.topology.peer(peer).rack_index as u16;
        let hop = if peer == view.topology.local() { Hop::Store } else { Hop::Peer };
        let leg = Leg { peer, rack, hop, role: Role::Answer };
        let Part { slot, generation, part } = part;
        let ticket = Ticket { dc: part, ..Ticket::of(slot, generation) };
        let owner = self.slots[slot as usize].owner;
        self.send_ticket(parcel, &leg, ticket, owner, now);
    }

    /// Why a node cannot be asked at the moment, if so.
    pub(super) fn reachable(&self, view: &View, peer: PeerIdx) -> Result<(), Failure> {
        let cause = match self.links.standings().get(peer.0 as usize) {
            Some(Standing::Usable | Standing::Joining) => return Ok(()),
            Some(Standing::NotConnected) | None => Cause::NotConnected,
            Some(Standing::NotRoutable) => Cause::NotRoutable,
        };
        let kind = match peer == view.topology.local() {
            true => FailureKind::StoreNotConnected,
            false => FailureKind::PeerNotConnected,
        };
        Err(Failure::new(kind, cause).at(view.topology.peer(peer).id))
    }

    /// True for this node and for peers that proved to be torc; all others are taken for nodes
    /// of the reference (decision E1).
    pub(super) fn is_torc(&self, view: &View, peer: PeerIdx) -> bool {
        peer == view.topology.local()
            || view.topology.peer(peer).is_torc
            || self.links.of(peer).iter().any(|up| self.ups[up.0 as usize].is_torc)
    }

    /// Other torc nodes that can be asked, a few of them.
    pub(super) fn some_others(&self, view: &View) -> Vec<PeerIdx> {
        let asks = |peer: &PeerIdx| {
            *peer != view.topology.local()
                && self.is_torc(view, *peer)
                && self.reachable(view, *peer).is_ok()
        };
        let mut peers: Vec<PeerIdx> =
            view.topology.peers().map(|peer| peer.idx).filter(asks).collect();
        // Another time others may be the first.
        let turn = self.next_generation as usize % peers.len().max(1);
        peers.rotate_left(turn);
        peers.truncate(ASKED_MAX);
        peers
    }

    /// Hands an answer to the task that asked.
    pub(super) fn feed_task(&mut self, part: Part, said: Said<'_>, told: Told, now: Now) {
        self.follow_primary(part, told, now);
        if part.part == 0 {
            self.plan_others_again(part, now);
            if let Some(report) = self.take_report(part) {
                self.feed_task(report, chase::again(&said), Told::default(), now);
            }
        }
        let Some(slot) = self.slots.get_mut(part.slot as usize) else { return };
        let (true, Stage::Task(task)) = (slot.generation == part.generation, &mut slot.stage)
        else {
            return;
        };
        let next = match task.as_mut() {
            Task::Ring(ring) => ring.take(part.part, said),
            Task::AllNodes(all) => all.take(part.part, said),
            Task::Primary(primary) => primary.take(part.part, said),
            Task::Replicas(replicas) => replicas.take(part.part, said),
            Task::Chase(chase) => chase.take(said),
            Task::Watch(catching) => catching.take(&said),
            Task::Backfill(backfill) => backfill.take(&said),
            Task::Script(seeking) => seeking.take(&said),
            Task::Config(config) => config.take(&said),
            Task::Libraries(collecting) => collecting.take(part.part, &said),
        };
        if part.part == 0 && matches!(task.as_ref(), Task::Primary(_) | Task::Watch(_)) {
            let owner = slot.owner;
            if !matches!(next, Next::Spread(_) | Next::Watch) {
                self.let_go(owner);
            }
        }
        self.carry_on(part, next, now);
    }

    /// Does what a task wants to be done.
    pub(super) fn carry_on(&mut self, part: Part, next: Next, now: Now) {
        match next {
            Next::Wait => {}
            Next::Reply(reply) if reply.len() < SHARE_MIN => {
                self.complete(part.slot, Said::Reply(&reply), now);
            }
            Next::Reply(reply) => self.complete(part.slot, Said::Large(reply.into()), now),
            Next::Fail(failure) => self.complete(part.slot, Said::Failed(failure), now),
            Next::Again => self.ask_owners(part, now),
            Next::Spread(effects) => self.spread(part, &effects, now),
            Next::Later(pause_ms) => self.chase_later(part, pause_ms, now),
            Next::Watch => self.watch_caught_up(part, now),
            Next::Offer(offer) => self.offer_backfill(part, &offer, now),
            Next::Sought => self.serve_sought(part, now),
            Next::Libraries => self.carry_on_libraries(part, now),
        }
    }
}

/// Appends what a node of the reference gets for a command. False, and nothing is appended, when
/// it cannot run the command in any form.
pub(super) fn write_for_c(spec: &CommandSpec, args: &Args<'_>, out: &mut Vec<u8>) -> bool {
    match spec.toward_c_of(args) {
        _ if block::is_block(args) => return block::write_for_c(args, out),
        TowardC::AsIs => encode::command(out, args.iter()),
        TowardC::Rewrite => return rewrite::renamed(spec, args, out),
        TowardC::Eval => return rewrite::in_script(spec, args, out),
        TowardC::Refuse => return false,
    }
    true
}

/// A request as this node writes it: its bytes and where its arguments are.
#[derive(Clone, Debug, Default)]
pub(super) struct Written {
    pub(super) bytes: Vec<u8>,
    pub(super) spans: Vec<Span>,
}

impl Written {
    /// Writes a request of these arguments.
    pub(super) fn command<'a>(args: impl ExactSizeIterator<Item = &'a [u8]>) -> Written {
        let mut written = Written::default();
        let bytes = &mut written.bytes;
        encode::array(bytes, args.len());
        for arg in args {
            encode::header(bytes, b'$', arg.len());
            written.spans.push(Span::new(bytes.len(), bytes.len() + arg.len()));
            bytes.extend_from_slice(arg);
            bytes.extend_from_slice(b"\r\n");
        }
        written
    }

    /// The request as it came.
    pub(super) fn copy(args: &Args<'_>) -> Written {
        Written { bytes: args.raw().to_vec(), spans: args.spans().to_vec() }
    }

    /// The request at the beginning of `bytes`; `None` when there is none.
    pub(super) fn decoded(bytes: &[u8]) -> Option<Written> {
        let mut spans = Vec::new();
        let limits = RequestLimits::default();
        let found = RequestDecoder::default().decode(bytes, &limits, &mut spans).ok()??;
        Some(Written { bytes: bytes[..found.len].to_vec(), spans })
    }

    /// The requests in `bytes`, one after the other.
    pub(super) fn all(mut bytes: &[u8]) -> Vec<Written> {
        let mut all = Vec::new();
        while let Some(one) = Written::decoded(bytes) {
            bytes = &bytes[one.bytes.len()..];
            all.push(one);
        }
        all
    }

    /// The arguments.
    pub(super) fn args(&self) -> Args<'_> {
        Args::new(&self.bytes, &self.spans)
    }
}
