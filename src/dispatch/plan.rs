//! Which replicas a request goes to, and whose answer counts.
//!
//! A pure function of values: the topology, the owners of the key, the level, and which peers
//! have a usable connection. The table is `spec/consistency.md` section 2 with the fixes of its
//! section 10; `decisions.md` A6, B11, D1 to D3, E9 and E11 say how the gaps are filled:
//!
//! - a DC_ONE read asks the own rack's owner, else the next local rack's in sorted order;
//! - a DC_ONE write goes to every local rack and one rack of each remote datacenter; the own
//!   rack's owner answers, else the next local rack's;
//! - quorum levels count over all local racks; a rack that cannot be asked is an error at once;
//! - DC_EACH_SAFE_QUORUM asks every owner of every datacenter itself (type 3), because the
//!   reference's forward makes each remote replica execute the request once per rack.

use super::failure::{Cause, Failure, FailureKind};
use crate::ring::{Consistency, Outcome, PeerIdx, RemoteDc, ReplicaSet, Topology, Votes};

/// Whether a request changes data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// Reads only.
    Read,
    /// May write.
    Write,
}

/// How the bytes reach a replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hop {
    /// This node's own datastore.
    Store,
    /// DNODE type 3: the peer's datastore, no further planning.
    Peer,
    /// DNODE type 4: the peer fans out in its own datacenter.
    Forward,
}

/// What the answer of one leg is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// It is the client's answer.
    Answer,
    /// It counts toward the quorum of group `dc` (0 is the local datacenter).
    Count {
        /// Index into [`Plan::groups`].
        dc: u16,
    },
    /// It is awaited, for order, and dropped.
    Swallow,
}

/// One copy of the request on its way to one replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Leg {
    /// The replica.
    pub peer: PeerIdx,
    /// Its rack, an index into [`Topology::racks`].
    pub rack: u16,
    /// How it is reached.
    pub hop: Hop,
    /// What its answer is for.
    pub role: Role,
}

/// One datacenter whose replicas vote.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Group {
    /// Replicas in it, whatever their state (R of decision D1).
    pub replicas: u16,
    /// Replicas that were asked.
    pub asked: u16,
    /// Why the first of the others could not be.
    pub failure: Option<Failure>,
}

/// Where a request goes. Reused between requests, so that planning allocates nothing.
#[derive(Clone, Debug, Default)]
pub struct Plan {
    /// The copies to send, in sending order.
    pub legs: Vec<Leg>,
    /// The voting datacenters; empty when a single answer decides.
    pub groups: Vec<Group>,
    /// Write targets that could not be reached and do not count: hints are for them.
    pub missed: Vec<(u16, Option<PeerIdx>)>,
    /// True when a read's answer came from another rack than the own one.
    pub fell_back: bool,
}

impl Group {
    /// The vote before anybody answered.
    pub fn votes(&self) -> Votes {
        Votes::new(self.replicas.into(), self.asked.into())
    }
}

impl Plan {
    pub(super) fn clear(&mut self) {
        self.legs.clear();
        self.groups.clear();
        self.missed.clear();
        self.fell_back = false;
    }
}

/// The values a plan is made from.
#[derive(Clone, Copy)]
pub struct Question<'a> {
    /// The ring as this request sees it.
    pub topology: &'a Topology,
    /// One owner a rack.
    pub owners: ReplicaSet<'a>,
    /// Read or write.
    pub op: Op,
    /// The level that applies.
    pub level: Consistency,
    /// Racks of the local datacenter to use and their number, when a bucket type caps them.
    pub cap: Option<RackCap>,
    /// Whether a DC_ONE read may leave the own rack.
    pub read_fallback: bool,
    /// Racks that were tried already, one bit each, for a read that is planned again.
    pub tried: u64,
    /// Whether the request came from another datacenter (type 4) and so stays in this one.
    pub local_only: bool,
    /// Whether a write stays in this datacenter because of its key (decision I1).
    pub stays: bool,
}

impl Question<'_> {
    fn was_tried(&self, rack: usize) -> bool {
        rack < 64 && self.tried >> rack & 1 == 1
    }
}

/// A bucket type's `n_val`: `count` racks of each datacenter from a key-dependent start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RackCap {
    /// First token word; start is this modulo the rack count.
    pub start: u32,
    /// Racks to use; at least 1.
    pub count: usize,
}

/// What stands between this node and a peer; for the local node, its datastore.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// Routable and connected.
    Usable,
    /// The same, but its store may still lack data.
    Joining,
    /// Routable, but there is no connection.
    NotConnected,
    /// Its state, or the failure detector, forbids asking it.
    NotRoutable,
}

/// Makes the plan for `q` into `plan`. `standings` are by [`PeerIdx`]. An `Err` means that nothing
/// must be sent: no replica can answer.
pub fn plan(q: &Question<'_>, standings: &[Standing], plan: &mut Plan) -> Result<(), Failure> {
    plan.clear();
    let local = Racks::new(q.topology.local_racks(), q.cap);
    match (q.level, q.op) {
        (Consistency::DcEachSafeQuorum, _) if !q.local_only => each(q, &local, standings, plan),
        (Consistency::DcQuorum | Consistency::DcSafeQuorum, _)
            if local.len() > 1 && !q.local_only =>
        {
            group(q, &local, standings, plan);
            if q.op == Op::Write && !q.stays {
                remote_writes(q, standings, plan);
            }
            decided(plan)
        }
        (_, Op::Read) => one_read(q, &local, standings, plan),
        (_, Op::Write) => {
            one_write(q, &local, standings, plan)?;
            if !q.local_only && !q.stays {
                remote_writes(q, standings, plan);
            }
            Ok(())
        }
    }
}

/// A vote that cannot be won any more is not begun, so that nothing is written for nothing.
fn decided(plan: &Plan) -> Result<(), Failure> {
    for group in &plan.groups {
        if group.votes().outcome() == Outcome::Lost {
            return Err(group.failure.unwrap_or(NO_REPLICA));
        }
    }
    Ok(())
}

const NO_REPLICA: Failure =
    Failure { kind: FailureKind::NoQuorum, cause: Cause::NoReplica, peer: None };

fn one_read(
    q: &Question<'_>,
    local: &Racks,
    standings: &[Standing],
    plan: &mut Plan,
) -> Result<(), Failure> {
    let mut first = None;
    let mut joining = None;
    let reach = if q.read_fallback { local.len() } else { 1 };
    for rack in local.own_first(q.topology).take(reach) {
        if q.was_tried(rack) {
            continue;
        }
        match usable(q, rack, standings) {
            Ok((peer, true)) => {
                joining.get_or_insert((rack, peer));
            }
            Ok((peer, false)) => {
                plan.fell_back = rack != q.topology.own_rack();
                plan.legs.push(leg(q, rack, peer, Role::Answer));
                return Ok(());
            }
            Err(failure) => {
                first.get_or_insert(failure);
            }
        }
    }
    // A joining node may lack data, so it answers only when nobody else can (decision E11).
    let (rack, peer) = joining.ok_or(first.unwrap_or(NO_REPLICA))?;
    plan.fell_back = rack != q.topology.own_rack();
    plan.legs.push(leg(q, rack, peer, Role::Answer));
    Ok(())
}

fn one_write(
    q: &Question<'_>,
    local: &Racks,
    standings: &[Standing],
    plan: &mut Plan,
) -> Result<(), Failure> {
    let mut first = None;
    for rack in local.own_first(q.topology) {
        match usable(q, rack, standings) {
            Ok((peer, _)) => {
                let role = if plan.legs.is_empty() { Role::Answer } else { Role::Swallow };
                plan.legs.push(leg(q, rack, peer, role));
            }
            Err(failure) => {
                first.get_or_insert(failure);
                plan.missed.push((rack as u16, q.owners.owner(rack)));
            }
        }
    }
    if plan.legs.is_empty() { Err(first.unwrap_or(NO_REPLICA)) } else { Ok(()) }
}

fn each(
    q: &Question<'_>,
    local: &Racks,
    standings: &[Standing],
    plan: &mut Plan,
) -> Result<(), Failure> {
    group(q, local, standings, plan);
    for dc in q.topology.remote_dcs() {
        group(q, &Racks::new(dc.racks.clone(), q.cap), standings, plan);
    }
    decided(plan)
}

/// Adds one voting datacenter: every owner that can be asked is, the others are errors.
fn group(q: &Question<'_>, racks: &Racks, standings: &[Standing], plan: &mut Plan) {
    let dc = plan.groups.len() as u16;
    let mut group = Group { replicas: racks.len() as u16, ..Group::default() };
    for rack in racks.own_first(q.topology) {
        match usable(q, rack, standings) {
            Ok((peer, _)) => {
                group.asked += 1;
                plan.legs.push(leg(q, rack, peer, Role::Count { dc }));
            }
            Err(failure) => {
                group.failure.get_or_insert(failure);
                plan.missed.push((rack as u16, q.owners.owner(rack)));
            }
        }
    }
    plan.groups.push(group);
}

/// One forward to each remote datacenter: the preselected rack's owner, else the first other
/// one that is connected. Nobody there is no error for the client (consistency.md section 5).
fn remote_writes(q: &Question<'_>, standings: &[Standing], plan: &mut Plan) {
    for dc in q.topology.remote_dcs() {
        let preselected = preselected(q, dc);
        match owner_in(q, dc, standings) {
            Some((rack, peer)) => plan.legs.push(Leg {
                peer,
                rack: rack as u16,
                hop: Hop::Forward,
                role: Role::Swallow,
            }),
            None => plan.missed.push((preselected as u16, q.owners.owner(preselected))),
        }
    }
}

/// The owner of a key in another datacenter, with its rack: the preselected rack's, else the
/// first other one that is connected.
pub fn owner_in(
    q: &Question<'_>,
    dc: &RemoteDc,
    standings: &[Standing],
) -> Option<(usize, PeerIdx)> {
    preselected_first(q, dc)
        .find_map(|rack| usable(q, rack, standings).ok().map(|(peer, _)| (rack, peer)))
}

/// The same for a read: racks that were tried are left out, and a node that is JOINING, which may
/// lack what it is asked for, is taken when there is no other.
pub fn reader_in(
    q: &Question<'_>,
    dc: &RemoteDc,
    standings: &[Standing],
) -> Option<(usize, PeerIdx)> {
    let mut joining = None;
    for rack in preselected_first(q, dc).filter(|rack| !q.was_tried(*rack)) {
        match usable(q, rack, standings) {
            Ok((peer, false)) => return Some((rack, peer)),
            Ok((peer, true)) => {
                joining.get_or_insert((rack, peer));
            }
            Err(_) => {}
        }
    }
    joining
}

/// The racks of another datacenter that hold a key, the preselected one first.
fn preselected_first(q: &Question<'_>, dc: &RemoteDc) -> impl Iterator<Item = usize> + use<> {
    let preselected = preselected(q, dc);
    let racks = Racks::new(dc.racks.clone(), q.cap);
    std::iter::once(preselected).chain(racks.iter().filter(move |rack| *rack != preselected))
}

fn preselected(q: &Question<'_>, dc: &RemoteDc) -> usize {
    match q.cap {
        None => dc.preselected,
        Some(_) => {
            let racks = Racks::new(dc.racks.clone(), q.cap);
            racks.get(q.topology.own_rack() % racks.len().max(1))
        }
    }
}

fn usable(
    q: &Question<'_>,
    rack: usize,
    standings: &[Standing],
) -> Result<(PeerIdx, bool), Failure> {
    let peer = q.owners.owner(rack).ok_or(NO_REPLICA)?;
    let cause = match standings.get(peer.0 as usize) {
        Some(Standing::Usable) => return Ok((peer, false)),
        Some(Standing::Joining) => return Ok((peer, true)),
        Some(Standing::NotConnected) | None => Cause::NotConnected,
        Some(Standing::NotRoutable) => Cause::NotRoutable,
    };
    let kind = if peer == q.topology.local() {
        FailureKind::StoreNotConnected
    } else {
        FailureKind::PeerNotConnected
    };
    Err(Failure::new(kind, cause).at(q.topology.peer(peer).id))
}

fn leg(q: &Question<'_>, rack: usize, peer: PeerIdx, role: Role) -> Leg {
    let hop = if peer == q.topology.local() { Hop::Store } else { Hop::Peer };
    Leg { peer, rack: rack as u16, hop, role }
}

/// The racks of one datacenter that hold a key: all, or a bucket type's share of them.
#[derive(Clone, Copy)]
struct Racks {
    first: usize,
    all: usize,
    start: usize,
    count: usize,
}

impl Racks {
    fn new(range: std::ops::Range<usize>, cap: Option<RackCap>) -> Racks {
        let all = range.len();
        match cap {
            Some(cap) if cap.count < all => Racks {
                first: range.start,
                all,
                start: cap.start as usize % all,
                count: cap.count.max(1),
            },
            _ => Racks { first: range.start, all, start: 0, count: all },
        }
    }

    fn len(&self) -> usize {
        self.count
    }

    fn get(&self, i: usize) -> usize {
        self.first + (self.start + i) % self.all.max(1)
    }

    fn iter(&self) -> impl Iterator<Item = usize> + use<> {
        let racks = *self;
        (0..racks.count).map(move |i| racks.get(i))
    }

    /// The own rack first when it is among them, then the following ones in sorted order.
    fn own_first(&self, topology: &Topology) -> impl Iterator<Item = usize> + use<> {
        let own = topology.own_rack();
        let shift = self.iter().position(|rack| rack == own).unwrap_or(0);
        let racks = *self;
        (0..racks.count).map(move |i| racks.get((i + shift) % racks.count))
    }
}

#[cfg(test)]
mod tests;
