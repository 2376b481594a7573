//! Writes whose copies must not be run as they are (decision D8).
//!
//! A relative time becomes a point in time before the request leaves for the racks. A command
//! whose outcome depends on what is stored, or on chance, runs on one replica first: the owner in
//! the first rack that can be asked, which is the same for every coordinator of a datacenter. The
//! others get what it did.
//!
//! Until the first replica has answered, its client is not served further: what it asks next
//! must not overtake the effect on its way to the other racks.

use std::sync::Arc;

use super::failure::{Cause, Failure, FailureKind};
use super::gather::Said;
use super::plan::{Hop, Leg, Op, Plan, Role};
use super::primary::{Ballot, Origin, Primary};
use super::requests::Request;
use super::send::{Ask, Parcel};
use super::slot::{Owner, Stage};
use super::stamps::Told;
use super::task::{Part, Task, Written, write_for_c};
use super::upstream::{NOBODY, STORE_VERSION, Ticket};
use super::view::{Now, View};
use super::{Dispatcher, Frame};
use crate::proto::command::{Effect, Routing, TowardC};
use crate::proto::resp::effect::EffectRule;
use crate::proto::resp::reply::text;
use crate::proto::resp::spec::CommandSpec;
use crate::proto::resp::{rewrite, table};
use crate::ring::{PeerId, PeerIdx};
use crate::stamp::Stamp;

/// Asks a datastore for its version.
const INFO: &[u8] = b"*2\r\n$4\r\nINFO\r\n$6\r\nserver\r\n";

/// The first version of Redis with PXAT.
const PXAT_SINCE: (u32, u32) = (6, 2);

/// What is known of the own datastore.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum StoreVersion {
    /// Nobody needed to know.
    #[default]
    Unknown,
    /// It was asked.
    Asked,
    /// It has PXAT.
    Modern,
    /// It has not.
    Old,
}

/// What one of the other replicas is to do.
#[derive(Clone, Debug)]
pub(super) struct Effected {
    effect: Written,
    stamp: Option<Stamp>,
    to: (PeerId, Leg),
    /// Whose connection it takes, so that it keeps its place among the client's requests.
    owner: Owner,
}

impl Dispatcher {
    /// Sends a write, or what its replicas get in its place.
    pub(super) fn ask_write(
        &mut self,
        view: &View,
        frame: &Frame<'_>,
        spec: &'static CommandSpec,
        request: &Request<'_>,
        now: Now,
    ) {
        let ask = request.ask(frame);
        let Some(key) = ask.key.filter(|_| view.topology.racks().len() > 1) else {
            return self.ask(view, &ask, now);
        };
        match spec.effect_of(&request.args) {
            Effect::Verbatim => self.ask(view, &ask, now),
            Effect::PrimaryFirst => self.ask_primary(view, frame, spec, request, now),
            Effect::Absolute => {
                let mut bytes = self.spare();
                bytes.clear();
                let written = self.knows_moments(view, spec, key, now)
                    && rewrite::absolute(spec, &request.args, now.wall_ms(), &mut bytes);
                match Written::decoded(&bytes).filter(|_| written) {
                    Some(other) => {
                        let spec = table::find(&other.args(), &view.settings.modules).ok();
                        let args = other.args();
                        let ask = request.ask(frame);
                        let frame = Frame::Small(&other.bytes);
                        let ask = Ask { frame: &frame, args, spec, ..ask };
                        self.ask(view, &ask, now);
                    }
                    None => self.ask(view, &ask, now),
                }
                self.recycle(bytes);
            }
        }
    }

    /// True when every replica's datastore understands the absolute form. The EXPIRE family's is
    /// old; for PXAT the own datastore is asked its version once, and nodes of the reference,
    /// whose datastores are often older, get the request as it came.
    pub(super) fn knows_moments(
        &mut self,
        view: &View,
        spec: &CommandSpec,
        key: &[u8],
        now: Now,
    ) -> bool {
        if matches!(spec.effect, EffectRule::Expire | EffectRule::PExpire) {
            return true;
        }
        let owners = view.topology.owners(&view.hasher.token(key));
        owners.iter().flatten().all(|peer| self.is_torc(view, peer)) && self.has_pxat(view, now)
    }

    fn has_pxat(&mut self, view: &View, now: Now) -> bool {
        if self.embedded.is_some() {
            return true;
        }
        if self.store_version == StoreVersion::Unknown {
            let ups = self.links.of(view.topology.local());
            if let Some(up) = ups.iter().copied().find(|up| self.ups[up.0 as usize].up) {
                self.store_version = StoreVersion::Asked;
                let ticket = Ticket::of(STORE_VERSION, 0);
                self.enqueue(up, Hop::Store, &Frame::Small(INFO), None, ticket, now);
            }
        }
        self.store_version == StoreVersion::Modern
    }

    /// Takes the datastore's answer to INFO.
    pub(super) fn note_store_version(&mut self, said: &Said<'_>) {
        let info = said.bytes().and_then(text).unwrap_or_default();
        self.store_version = match version_of(&String::from_utf8_lossy(info)) {
            Some(version) if version >= PXAT_SINCE => StoreVersion::Modern,
            Some(_) => StoreVersion::Old,
            // It is asked again when it matters next.
            None => StoreVersion::Unknown,
        };
    }

    fn ask_primary(
        &mut self,
        view: &View,
        frame: &Frame<'_>,
        spec: &'static CommandSpec,
        request: &Request<'_>,
        now: Now,
    ) {
        let ask = request.ask(frame);
        let mut plan = std::mem::take(&mut self.plan);
        match self.make_plan(view, &ask, &mut plan) {
            Err(failure) => {
                self.reply_in_turn(request.client, request.envelope, Said::Failed(failure), now);
            }
            Ok(level) if plan.legs.len() == 1 => self.send(view, &ask, &plan, level, now),
            Ok(_) => self.begin_primary(view, frame, spec, (request, &plan), now),
        }
        self.plan = plan;
    }

    pub(super) fn begin_primary(
        &mut self,
        view: &View,
        frame: &Frame<'_>,
        spec: &'static CommandSpec,
        (request, plan): (&Request<'_>, &Plan),
        now: Now,
    ) {
        let origin = Origin::Redis(spec);
        let (part, first) = self.reserve_primary(view, origin, (request, plan), now);
        let stamp = self.primary_stamp(part);
        let parcel = Parcel { frame, args: request.args, stamp };
        self.ask_node(view, first, spec, parcel, part, now);
    }

    /// Reserves the slot of a write that runs on one replica first, and holds its client. Returns
    /// that replica too.
    pub(super) fn reserve_primary(
        &mut self,
        view: &View,
        origin: Origin,
        (request, plan): (&Request<'_>, &Plan),
        now: Now,
    ) -> (Part, PeerIdx) {
        self.counters.missed_writes += plan.missed.len() as u64;
        let first = first_leg(view, plan);
        let others = plan.legs.iter().filter(|leg| **leg != first);
        let stamp = self.new_stamp(view, now);
        let waits = match origin {
            Origin::Redis(spec) => spec.routing_of(&request.args) == Routing::Blocking,
            Origin::Memcache(..) => false,
        };
        let primary = Primary {
            origin,
            request: match origin {
                Origin::Redis(_) => Written::command(request.args.iter()),
                Origin::Memcache(..) => Written::copy(&request.args),
            },
            others: others.map(|leg| (view.topology.peer(leg.peer).id, *leg)).collect(),
            groups: plan.groups.iter().map(Ballot::of).collect(),
            stamp,
            waits_at: waits.then(|| (view.topology.peer(first.peer).id, request.level)),
            wall_ms: now.wall_ms(),
            reply: None,
        };
        let part = self.begin_task(request.client, request.envelope, Task::Primary(primary), now);
        self.hold(request.client);
        (part, first.peer)
    }

    /// Does not serve a client further until [`Dispatcher::let_go`].
    pub(super) fn hold(&mut self, client: u32) {
        let client = &mut self.clients[client as usize];
        client.held = true;
        client.paused = true;
    }

    /// Serves a held client again.
    pub(super) fn let_go(&mut self, owner: Owner) {
        if let Owner::Client(key) = owner {
            self.clients[key as usize].held = false;
            self.unpause(key);
        }
    }

    /// A command waited at the first replica, maybe for long: who else has a copy now.
    pub(super) fn plan_others_again(&mut self, part: Part, now: Now) {
        let view = Arc::clone(&self.view);
        let Some(primary) = self.primary(part) else { return };
        let (Some((first, level)), Origin::Redis(spec)) = (primary.waits_at, primary.origin) else {
            return;
        };
        let request = primary.request.clone();
        let frame = Frame::Small(&request.bytes);
        let ask = Ask {
            frame: &frame,
            args: request.args(),
            key: spec.first_key(&request.args()).and_then(|i| request.args().get(i)),
            op: Op::Write,
            level,
            compare: spec.compare,
            per_element: false,
            local_only: false,
            tried: 0,
            spec: Some(spec),
            memcache: None,
            first: None,
            replays: false,
            stamp: None,
            owner: Owner::Nobody,
            envelope: Default::default(),
        };
        let mut plan = std::mem::take(&mut self.plan);
        let planned = self.make_plan(&view, &ask, &mut plan).is_ok();
        let id = |leg: &Leg| view.topology.peer(leg.peer).id;
        // Without it, the votes of the others are counted as they were planned at first.
        if planned && plan.legs.iter().any(|leg| id(leg) == first) {
            let others = plan.legs.iter().filter(|leg| id(leg) != first);
            let others = others.map(|leg| (id(leg), *leg)).collect();
            let groups = plan.groups.iter().map(Ballot::of).collect();
            // It was done now, whenever the wait began.
            let stamp = self.new_stamp(&view, now);
            if let Some(primary) = self.primary(part) {
                (primary.others, primary.groups, primary.stamp) = (others, groups, stamp);
            }
        }
        self.plan = plan;
    }

    /// The first replica has answered: sends what it did to the others and lets the client go on.
    /// Where nobody else is waited for, the client has its reply at once.
    pub(super) fn spread(&mut self, part: Part, effects: &[Written], now: Now) {
        let owner = self.slots[part.slot as usize].owner;
        let Some(primary) = self.primary(part) else { return };
        let (others, stamp) = (primary.others.clone(), primary.stamp);
        let waited = primary.waits_at.is_some();
        for (number, to) in (1..).zip(others) {
            for (i, effect) in effects.iter().enumerate() {
                let counts = i + 1 == effects.len() && to.1.role != Role::Swallow;
                let effected = Effected { effect: effect.clone(), stamp, to, owner };
                if waited {
                    let report = counts.then_some(Part { part: number, ..part });
                    self.chase(effected, report, now);
                    continue;
                }
                let slot = if counts { part.slot } else { NOBODY };
                let Part { generation, .. } = part;
                let dc = number;
                let ticket = Ticket { dc, ..Ticket::of(slot, generation) };
                self.send_effect(&effected, ticket, now);
            }
        }
        self.let_go(owner);
        // Answers that came at once may have decided it.
        if let Some(next) = self.primary(part).map(|primary| primary.verdict()) {
            self.carry_on(part, next, now);
        }
    }

    pub(super) fn send_effect(&mut self, effected: &Effected, ticket: Ticket, now: Now) {
        let Effected { effect, stamp, to: (id, leg), owner } = effected;
        let (stamp, id, owner) = (*stamp, *id, *owner);
        let view = Arc::clone(&self.view);
        let args = effect.args();
        let Some(peer) = view.topology.idx_of(id) else {
            let failure = Failure::new(FailureKind::PeerNotConnected, Cause::NotRoutable).at(id);
            return self.answer(ticket, Said::Failed(failure), now);
        };
        let leg = Leg { peer, ..*leg };
        let foreign = table::find(&args, &view.settings.modules).ok();
        let foreign = foreign
            .filter(|spec| spec.toward_c_of(&args) != TowardC::AsIs && !self.is_torc(&view, peer));
        let Some(spec) = foreign else {
            let parcel = Parcel { frame: &Frame::Small(&effect.bytes), args, stamp };
            return self.send_ticket(parcel, &leg, ticket, owner, now);
        };
        let mut other = self.spare();
        if write_for_c(spec, &args, &mut other) {
            let parcel = Parcel { frame: &Frame::Small(&other), args, stamp };
            self.send_ticket(parcel, &leg, ticket, owner, now);
        } else {
            let failure = Failure::new(FailureKind::NotSupported, Cause::NotSupportedByPeer);
            self.answer(ticket, Said::Failed(failure.at(id)), now);
        }
        self.recycle(other);
    }

    /// The first replica's keys may have been written by a coordinator whose clock is ahead: what
    /// it did then is newer than that, and the others are told so.
    pub(super) fn follow_primary(&mut self, part: Part, told: Told, now: Now) {
        let ahead = |own: Stamp| told.stamp.is_some_and(|found| found >= own);
        let next = self.clock.read(now.wall_us).next();
        if let Some(primary) = self.primary(part).filter(|_| part.part == 0)
            && primary.stamp.is_some_and(ahead)
        {
            primary.stamp = Some(next);
        }
    }

    /// The stamp of a write that runs on one replica first.
    pub(super) fn primary_stamp(&mut self, part: Part) -> Option<Stamp> {
        self.primary(part).and_then(|primary| primary.stamp)
    }

    fn primary(&mut self, part: Part) -> Option<&mut Primary> {
        let slot = self.slots.get_mut(part.slot as usize)?;
        match &mut slot.stage {
            Stage::Task(task) if slot.generation == part.generation => match task.as_mut() {
                Task::Primary(primary) => Some(primary),
                Task::Ring(_)
                | Task::AllNodes(_)
                | Task::Chase(_)
                | Task::Replicas(_)
                | Task::Watch(_)
                | Task::Backfill(_)
                | Task::Script(_)
                | Task::Libraries(_)
                | Task::Config(_) => None,
            },
            _ => None,
        }
    }
}

/// The leg to the replica that runs a write first: the owner in the first rack of those that can
/// be asked. One that may lack data is it only when nobody else can be (decision E11).
pub(super) fn first_leg(view: &View, plan: &Plan) -> Leg {
    let local = |leg: &&Leg| leg.hop != Hop::Forward;
    let place = |leg: &&Leg| (view.topology.peer(leg.peer).is_joining(), leg.rack);
    let in_order = plan.legs.iter().filter(local).min_by_key(place);
    *in_order.expect("a plan without a local replica is an error")
}

/// The version in the text of INFO.
fn version_of(info: &str) -> Option<(u32, u32)> {
    let version = info.lines().find_map(|line| line.strip_prefix("redis_version:"))?;
    let mut numbers = version.trim().split('.').map_while(|n| n.parse().ok());
    Some((numbers.next()?, numbers.next()?))
}

#[cfg(test)]
mod tests;
