//! The affinity plane of the nodes: the real machines, fed by the real follower of each node's
//! store, with messages between them that are lost, come twice, late, or in another order.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;

use torc::affinity::domain::{Domain, DomainSpec, Kind};
use torc::affinity::mesh::{Mesh, MeshSettings, MeshTime};
use torc::affinity::places::Places;
use torc::affinity::{Affinity, KEYS_DOMAIN};
use torc::ckf::hashing::SequenceHash;
use torc::ckf::identity::ConsumerInstanceId;
use torc::ckf::producer::Source;
use torc::ckf::ringkey::{KeyProtocol, ring_key_domain, ring_key_hash};
use torc::dispatch::view::View;
use torc::proto::dnode::MsgType;
use torc::proto::dnode::control::ControlSeal;
use torc::store::Follower;

use super::cluster::node_at;
use super::world::{Task, World};

/// How often a node looks at its store's events, microseconds.
const TICK_US: u64 = 20_000;

/// What happens to messages on their way. Shares are of a thousand.
#[derive(Clone, Debug, Default)]
pub(crate) struct Air {
    pub(crate) lost: u32,
    pub(crate) twice: u32,
    pub(crate) late: u32,
    /// How much later those arrive, milliseconds.
    pub(crate) late_ms: Range<u64>,
    /// Whether messages of one node to another keep their order, as in one connection.
    pub(crate) ordered: bool,
}

impl Air {
    /// Nothing happens to them.
    pub(crate) fn clear() -> Air {
        Air { ordered: true, ..Air::default() }
    }

    /// One connection, that breaks now and then.
    pub(crate) fn breaking() -> Air {
        Air { lost: 40, late: 20, late_ms: 1..300, ordered: true, ..Air::default() }
    }

    /// What no connection does: the machines must be right all the same.
    pub(crate) fn wild() -> Air {
        Air { lost: 60, twice: 60, late: 150, late_ms: 1..4000, ordered: false }
    }
}

struct Plane {
    affinity: Arc<Affinity>,
    mesh: Mesh,
    follower: Follower,
}

/// A message on its way.
struct Parcel {
    from: usize,
    kind: MsgType,
    payload: Vec<u8>,
}

/// The planes of all nodes.
pub(crate) struct Planes {
    pub(crate) air: Air,
    expected: u64,
    nodes: Vec<Option<Plane>>,
    parcels: BTreeMap<u64, Parcel>,
    sent: u64,
    /// When the last message from one node to another arrives.
    last_due_us: BTreeMap<(usize, usize), u64>,
}

pub(crate) fn hash(key: &str) -> SequenceHash {
    ring_key_hash(KeyProtocol::Resp, key.as_bytes())
}

impl World {
    /// Lets every node tell the others what it holds; filters have room for `expected` keys.
    pub(crate) fn start_affinity(&mut self, expected: u64, air: Air) {
        let count = self.nodes.len();
        self.planes = Some(Planes {
            air,
            expected,
            nodes: (0..count).map(|_| None).collect(),
            parcels: BTreeMap::new(),
            sent: 0,
            last_due_us: BTreeMap::new(),
        });
        (0..count).for_each(|n| self.start_plane(n));
        self.publish();
    }

    /// From now on this happens to messages.
    pub(crate) fn set_air(&mut self, air: Air) {
        if let Some(planes) = &mut self.planes {
            planes.air = air;
        }
    }

    /// The plane of a node that has just started, with an empty store.
    pub(crate) fn start_plane(&mut self, n: usize) {
        let Some(planes) = &self.planes else { return };
        let own = &self.table[n].dc;
        let mut dcs: BTreeSet<&String> = self.table.iter().map(|peer| &peer.dc).collect();
        dcs.remove(own);
        let id = ring_key_domain([("authority", "sim")], [("authority", "sim")]).expect("valid");
        let spec = DomainSpec {
            name: KEYS_DOMAIN.into(),
            id,
            kind: Kind::Keys(KeyProtocol::Resp),
            datacenters: std::iter::once(own).chain(dcs).cloned().collect(),
            expected: planes.expected,
            stale_after_ms: 30_000,
            resize_bytes_max: 1 << 30,
            consumer: ConsumerInstanceId(n as u64 + 1),
            table_seed: n as u64,
        };
        let keys = Arc::new(Domain::new(spec).expect("memory"));
        let affinity = Arc::new(Affinity::new(keys, Vec::new()));
        let store = self.nodes[n].embedded.clone().expect("only embedded stores are followed");
        let follower = Follower::new(store, KeyProtocol::Resp);
        let settings = MeshSettings {
            seal: ControlSeal::new("sim", None),
            pinned: None,
            source: Source { worker_id: n as u64 + 1, dp_rank: 0 },
            rng_seed: self.rng.u64(..),
        };
        let mut mesh = Mesh::new(settings, &affinity, follower.shards(), self.mesh_time(n));
        mesh.set_places(Places::of(&self.nodes[n].view.topology));
        let plane = Plane { affinity, mesh, follower };
        if let Some(planes) = &mut self.planes {
            planes.nodes[n] = Some(plane);
        }
        let epoch = self.nodes[n].epoch;
        self.plan(self.now_us, Task::Affinity { node: n, epoch });
    }

    /// The plane of a node that died.
    pub(crate) fn stop_plane(&mut self, n: usize) {
        if let Some(planes) = &mut self.planes {
            planes.nodes[n] = None;
        }
    }

    /// Puts a node's domains into a view of it, and tells its plane of the ring.
    pub(crate) fn with_affinity(&mut self, n: usize, mut view: View) -> View {
        let plane = self.planes.as_mut().and_then(|planes| planes.nodes[n].as_mut());
        if let Some(plane) = plane {
            plane.mesh.set_places(Places::of(&view.topology));
            view.affinity = Some(Arc::clone(&plane.affinity));
        }
        view
    }

    fn mesh_time(&self, n: usize) -> MeshTime {
        let now = self.time(n);
        MeshTime { mono_ms: now.mono_ms(), wall_ms: now.wall_ms() }
    }

    /// A node's store is looked at, and what is due is done.
    pub(crate) fn wake_plane(&mut self, n: usize, epoch: u32) {
        if self.nodes[n].epoch != epoch || !self.nodes[n].up {
            return;
        }
        self.plan(self.now_us + TICK_US, Task::Affinity { node: n, epoch });
        if self.nodes[n].frozen {
            return;
        }
        let now = self.mesh_time(n);
        let Some(plane) = self.planes.as_mut().and_then(|p| p.nodes[n].as_mut()) else { return };
        let mut changes = Vec::new();
        for shard in 0..plane.follower.shards() {
            plane.follower.take(shard, now.wall_ms, plane.mesh.member(), &mut changes);
        }
        if !changes.is_empty() {
            plane.mesh.changed(&changes, now);
        }
        plane.mesh.set_sure(true);
        plane.mesh.handle_timeout(now);
        self.send_parcels(n);
    }

    /// Sends what a node's plane has to say, each message to its own fate.
    fn send_parcels(&mut self, n: usize) {
        while let Some(planes) = &mut self.planes
            && let Some(plane) = &mut planes.nodes[n]
            && let Some(transmit) = plane.mesh.poll_transmit()
        {
            let air = planes.air.clone();
            let to = node_at(transmit.to.port);
            let copies = match self.rng.u32(0..1000) {
                dice if dice < air.lost => 0,
                dice if dice < air.lost + air.twice => 2,
                _ => 1,
            };
            for _ in 0..copies {
                let mut due_us = self.now_us + self.rng.u64(self.net.settings.delay_us.clone());
                if self.rng.u32(0..1000) < air.late {
                    due_us += self.rng.u64(air.late_ms.clone()) * 1000;
                }
                let Some(planes) = &mut self.planes else { return };
                if air.ordered {
                    let last = planes.last_due_us.entry((n, to)).or_default();
                    due_us = due_us.max(*last);
                    *last = due_us;
                }
                planes.sent += 1;
                let number = planes.sent;
                let payload = transmit.payload.clone();
                planes.parcels.insert(number, Parcel { from: n, kind: transmit.kind, payload });
                self.plan(due_us, Task::Parcel { to, number });
            }
        }
    }

    /// A message arrives, if the host it goes to can be reached.
    pub(crate) fn deliver_parcel(&mut self, to: usize, number: u64) {
        let now = self.mesh_time(to);
        let Some(planes) = &mut self.planes else { return };
        let Some(parcel) = planes.parcels.remove(&number) else { return };
        let reached = self.nodes[to].running() && self.net.joined(parcel.from, to);
        if let Some(plane) = planes.nodes[to].as_mut().filter(|_| reached) {
            plane.mesh.handle_message(parcel.kind, &parcel.payload, now);
            self.send_parcels(to);
        }
    }
}

/// What a test sees of the planes.
impl World {
    pub(crate) fn domain(&self, n: usize) -> Option<&Arc<Domain>> {
        let plane = self.planes.as_ref()?.nodes[n].as_ref()?;
        Some(plane.affinity.keys())
    }

    fn running_nodes(&self) -> impl Iterator<Item = usize> + '_ {
        (0..self.nodes.len()).filter(|n| self.nodes[*n].running())
    }

    fn dcs(&self) -> BTreeSet<String> {
        self.running_nodes().map(|n| self.table[n].dc.clone()).collect()
    }

    /// The running nodes that publish for a datacenter.
    pub(crate) fn publishers(&self, dc: &str) -> Vec<usize> {
        let publishes = |n: &usize| {
            let domain = self.domain(*n);
            self.table[*n].dc == dc && domain.is_some_and(|d| d.publication().is_some())
        };
        self.running_nodes().filter(publishes).collect()
    }

    /// The number of the takeover by which a node publishes, while it does.
    pub(crate) fn incarnation(&self, n: usize) -> Option<u64> {
        let publication = self.domain(n)?.publication()?;
        Some(publication.identity.producer_incarnation)
    }

    /// The lane a node has of a datacenter.
    fn lane_of(&self, n: usize, dc: &str) -> Option<u8> {
        self.domain(n)?.lanes().iter().find(|(_, lane)| lane.dc == dc).map(|(number, _)| number)
    }

    /// True when every running node believes every datacenter and has the filter that its only
    /// publisher has now.
    pub(crate) fn is_in_step(&self) -> bool {
        self.dcs().iter().all(|dc| {
            let [publisher] = self.publishers(dc)[..] else { return false };
            let published = self.domain(publisher).and_then(|domain| domain.publication());
            let Some(truth) = published.filter(|publication| publication.complete) else {
                return false;
            };
            self.running_nodes().all(|n| {
                let (Some(domain), Some(lane)) = (self.domain(n), self.lane_of(n, dc)) else {
                    return false;
                };
                let now_ms = self.time(n).mono_ms();
                let believed = domain.lanes().believed(domain.ready_lanes(), now_ms);
                let at = match n == publisher {
                    true => Some((truth.identity, truth.sequence)),
                    false => domain.lane_position(lane),
                };
                believed & (1 << lane) != 0 && at == Some((truth.identity, truth.sequence))
            })
        })
    }

    /// Waits until all is told, and checks it: every lane is its producer's words, no filter
    /// misses a key a store holds, and who published what was counted right.
    pub(crate) fn drain_affinity(&mut self) {
        // What is in the stores' events is with the planes after two ticks.
        self.run_ms(3 * TICK_US / 1000);
        let end_us = self.now_us + 60_000_000;
        while !self.is_in_step() && self.now_us < end_us {
            self.step();
        }
        if !self.is_in_step() {
            eprintln!("{}", self.lanes_in_words());
        }
        self.run_until("every lane is in step", World::is_in_step);
        for dc in self.dcs() {
            let publisher = self.publishers(&dc)[0];
            let published = self.domain(publisher).expect("runs");
            let truth = published.published_part(0, usize::MAX >> 1).expect("it publishes");
            assert!(truth.before.is_empty(), "all was sent");
            for n in self.running_nodes().filter(|n| *n != publisher) {
                let lane = self.lane_of(n, &dc).expect("a lane");
                let part = self.domain(n).and_then(|d| d.lane_part(lane, 0, usize::MAX >> 1));
                let part = part.expect("a filter");
                assert!(part.words == truth.words, "n{} has other words of {dc}", n + 1);
            }
            let held: BTreeSet<SequenceHash> =
                self.members_of(&dc).flat_map(|n| self.held_by(n)).collect();
            let used = published.publication().map(|publication| publication.used);
            assert_eq!(used, Some(held.len() as u64), "keys of {dc}");
            for n in self.running_nodes() {
                let lane = self.lane_of(n, &dc).expect("a lane");
                let missed = held.iter().find(|hash| !self.seems_held(n, lane, **hash));
                assert_eq!(missed, None, "n{} misses a key of {dc}", n + 1);
            }
        }
    }

    /// What every node says of every lane, for a failure.
    fn lanes_in_words(&self) -> String {
        let mut words = String::new();
        for n in self.running_nodes() {
            let Some(domain) = self.domain(n) else { continue };
            let now_ms = self.time(n).mono_ms();
            let publication = domain.publication();
            words += &format!("n{} {:?} {publication:?}\n", n + 1, domain.duties());
            for (number, lane) in domain.lanes().iter() {
                let (age, note) = (lane.age_ms(now_ms), lane.note());
                let at = domain.lane_position(number).map(|(id, at)| (id.producer_incarnation, at));
                words += &format!("  {}: age {age:?} at {at:?} {note:?}\n", lane.dc);
            }
        }
        words
    }

    fn members_of<'a>(&'a self, dc: &'a str) -> impl Iterator<Item = usize> + 'a {
        self.running_nodes().filter(move |n| self.table[*n].dc == dc)
    }

    /// Everything a node's store holds.
    fn held_by(&self, n: usize) -> Vec<SequenceHash> {
        let store = self.nodes[n].embedded.as_ref().expect("an embedded store");
        let (mut keys, wall_ms) = (Vec::new(), self.time(n).wall_ms());
        for shard in 0..store.shards() {
            store.shard_keys(shard as u8, wall_ms, &mut keys);
        }
        keys.iter().map(|key| ring_key_hash(KeyProtocol::Resp, key)).collect()
    }

    fn seems_held(&self, n: usize, lane: u8, hash: SequenceHash) -> bool {
        let mut mask = [0];
        let domain = self.domain(n).expect("it runs");
        let believed = domain.probe(&[hash], &mut mask, self.time(n).mono_ms());
        believed & mask[0] & (1 << lane) != 0
    }

    /// What a node thinks of a key, by datacenter: whether it is there; none where it does not
    /// know.
    pub(crate) fn opinion(&self, n: usize, key: &str) -> BTreeMap<String, Option<bool>> {
        let domain = self.domain(n).expect("it runs");
        let mut mask = [0];
        let believed = domain.probe(&[hash(key)], &mut mask, self.time(n).mono_ms());
        let of = |lane: u8| (believed & (1 << lane) != 0).then_some(mask[0] & (1 << lane) != 0);
        domain.lanes().iter().map(|(lane, about)| (about.dc.clone(), of(lane))).collect()
    }

    /// How often a node's stores had to be listed because events were lost.
    pub(crate) fn relistings(&self, n: usize) -> u64 {
        let plane = self.planes.as_ref().and_then(|planes| planes.nodes[n].as_ref());
        plane.map_or(0, |plane| plane.follower.following().relistings)
    }
}
