//! Several nodes with a network between them that loses what it is told to.

mod abroad;
mod fetches;
mod posts;
mod resize;

use super::*;
use crate::affinity::domain::tests::spec;
use crate::affinity::domain::{Domain, DomainSpec, Part};
use crate::affinity::places::tests::ring;
use crate::ckf::hashing::{BlockHash, ExternalId, HashFormat, SequenceHash};
use crate::ckf::identity::ConsumerInstanceId;
use crate::ckf::producer::{EventData, StoredBlock};
use crate::ckf::ringkey::KeyProtocol;

/// One node, its domains and its machine.
struct Node {
    affinity: Affinity,
    mesh: Mesh,
    dc: String,
}

struct World {
    dcs: Vec<&'static str>,
    nodes: Vec<Node>,
    down: Vec<usize>,
    /// Of a thousand messages so many are lost.
    loss: u32,
    /// Pairs that do not hear each other.
    cut: Vec<(usize, usize)>,
    /// Pairs of different datacenters of which one wrote to the other, the lower first.
    wan: BTreeSet<(usize, usize)>,
    rng: fastrand::Rng,
    now_ms: u64,
}

fn time(now_ms: u64) -> MeshTime {
    MeshTime { mono_ms: now_ms, wall_ms: 1_000_000 + now_ms }
}

fn domain(name: &str, kind: Kind, own: &str, number: u64, expected: u64) -> Arc<Domain> {
    let mut datacenters: Vec<String> = ["x", "y"].map(String::from).into();
    datacenters.sort_by_key(|dc| dc != own);
    let spec = DomainSpec {
        datacenters,
        expected,
        stale_after_ms: 30_000,
        resize_bytes_max: 1 << 30,
        consumer: ConsumerInstanceId(number + 1),
        ..spec(name, kind, &[])
    };
    Arc::new(Domain::new(spec).unwrap())
}

/// A node that starts. Its filter is told in several parts, so that fetches and changes mix.
fn node(number: usize, dc: &str, now_ms: u64) -> Node {
    sized(number, dc, now_ms, 200_000)
}

/// A node that starts, with filters for so many keys.
fn sized(number: usize, dc: &str, now_ms: u64, expected: u64) -> Node {
    let kind = Kind::Blocks { block_size: 4, format: HashFormat::Standard };
    let keys = Kind::Keys(KeyProtocol::Resp);
    let keys = domain("keys", keys, dc, number as u64, expected);
    let blocks = domain("llm", kind, dc, number as u64, 1000);
    let affinity = Affinity::new(keys, vec![blocks]);
    let settings = MeshSettings {
        seal: ControlSeal::new("test", None),
        pinned: None,
        source: Source { worker_id: number as u64 + 1, dp_rank: 0 },
        rng_seed: number as u64,
    };
    let mut mesh = Mesh::new(settings, &affinity, 1, time(now_ms));
    mesh.set_sure(true);
    Node { affinity, mesh, dc: dc.to_owned() }
}

impl World {
    fn new(dcs: &[&'static str]) -> World {
        let nodes = dcs.iter().enumerate().map(|(number, dc)| node(number, dc, 0)).collect();
        let mut world = World {
            dcs: dcs.to_vec(),
            nodes,
            down: Vec::new(),
            loss: 0,
            cut: Vec::new(),
            wan: BTreeSet::new(),
            rng: fastrand::Rng::with_seed(7),
            now_ms: 0,
        };
        world.tell_ring();
        world
    }

    /// Every node sees the ring as it is: without those that are down or cut off from it.
    fn tell_ring(&mut self) {
        for own in 0..self.nodes.len() {
            let mut away = self.down.clone();
            away.extend(self.cut.iter().filter(|(a, _)| *a == own).map(|(_, b)| *b));
            away.extend(self.cut.iter().filter(|(_, b)| *b == own).map(|(a, _)| *a));
            self.nodes[own].mesh.set_places(ring(&self.dcs, own, &away));
        }
    }

    fn run(&mut self, ms: u64) {
        for _ in 0..ms / 10 {
            self.now_ms += 10;
            let now = time(self.now_ms);
            for from in (0..self.nodes.len()).filter(|n| !self.down.contains(n)) {
                self.nodes[from].mesh.handle_timeout(now);
            }
            self.carry(now);
        }
    }

    fn carry(&mut self, now: MeshTime) {
        for _ in 0..50 {
            let mut any = false;
            for from in 0..self.nodes.len() {
                while let Some(sent) = self.nodes[from].mesh.poll_transmit() {
                    let to = usize::from(sent.to.port - 8000);
                    if self.dcs[from] != self.dcs[to] {
                        self.wan.insert((from.min(to), from.max(to)));
                    }
                    let cut = self.cut.iter().any(|c| *c == (from, to) || *c == (to, from));
                    let lost = self.rng.u32(0..1000) < self.loss;
                    if !cut && !lost && !self.down.contains(&to) && !self.down.contains(&from) {
                        any = true;
                        self.nodes[to].mesh.handle_message(sent.kind, &sent.payload, now);
                    }
                }
            }
            if !any {
                return;
            }
        }
    }

    fn store(&mut self, node: usize, keys: impl IntoIterator<Item = u64>) {
        let now = time(self.now_ms);
        let mesh = &mut self.nodes[node].mesh;
        let mut changes = Vec::new();
        for key in keys {
            mesh.member().appeared(0, SequenceHash(key), &mut changes);
        }
        mesh.changed(&changes, now);
    }

    fn lose(&mut self, node: usize, keys: impl IntoIterator<Item = u64>) {
        let now = time(self.now_ms);
        let mesh = &mut self.nodes[node].mesh;
        let mut changes = Vec::new();
        for key in keys {
            mesh.member().went(0, SequenceHash(key), &mut changes);
        }
        mesh.changed(&changes, now);
    }

    /// Where a node thinks a key is: datacenters, or none when it does not know.
    fn held(&self, node: usize, key: u64) -> Option<Vec<&str>> {
        let keys = self.nodes[node].affinity.keys();
        let mut mask = [0];
        let believed = keys.probe(&[SequenceHash(key)], &mut mask, self.now_ms);
        if believed != keys.lanes().all() {
            return None;
        }
        let holds = |(lane, l): (u8, &'_ crate::affinity::lanes::Lane)| {
            (mask[0] & (1 << lane) != 0).then_some(l.dc.clone())
        };
        let mut dcs: Vec<String> = keys.lanes().iter().filter_map(holds).collect();
        dcs.sort_unstable();
        Some(dcs.iter().map(|dc| if dc == "x" { "x" } else { "y" }).collect())
    }

    fn publisher(&self, dc: &str) -> usize {
        let publishes = |n: &usize| {
            let node = &self.nodes[*n];
            !self.down.contains(n) && node.dc == dc && node.affinity.keys().publication().is_some()
        };
        let all: Vec<usize> = (0..self.nodes.len()).filter(publishes).collect();
        assert_eq!(all.len(), 1, "one publisher in {dc}");
        all[0]
    }

    fn up(&self) -> impl Iterator<Item = usize> + '_ {
        (0..self.nodes.len()).filter(|n| !self.down.contains(n))
    }

    /// Every lane of every node that is up has the words of its publisher.
    fn assert_in_step(&self) {
        for dc in ["x", "y"] {
            let keys = self.nodes[self.publisher(dc)].affinity.keys();
            let truth = keys.published_part(0, usize::MAX >> 1).unwrap();
            for node in self.up() {
                let keys = self.nodes[node].affinity.keys();
                let lane = keys.lanes().iter().find(|(_, lane)| lane.dc == dc).unwrap().0;
                if let Some(Part { identity, sequence, words, .. }) =
                    keys.lane_part(lane, 0, usize::MAX >> 1)
                {
                    assert_eq!(
                        (identity, sequence),
                        (truth.identity, truth.sequence),
                        "{node} {dc}"
                    );
                    assert!(words == truth.words, "{node} has other words of {dc}");
                } else {
                    assert_eq!(node, self.publisher(dc), "{node} has no lane of {dc}");
                }
            }
        }
    }
}

#[test]
fn every_node_comes_to_know_what_every_datacenter_holds() {
    let mut world = World::new(&["x", "x", "x", "y", "y"]);
    world.store(0, 0..1000);
    world.run(3000);
    world.store(1, 500..1500);
    world.store(4, 1400..2000);
    world.run(3000);
    world.assert_in_step();
    for node in 0..5 {
        assert_eq!(world.held(node, 700), Some(vec!["x"]), "{node}");
        assert_eq!(world.held(node, 1450), Some(vec!["x", "y"]));
        assert_eq!(world.held(node, 1900), Some(vec!["y"]));
        assert_eq!(world.held(node, 9_999_999), Some(vec![]));
    }
    // A key has two owners in x: it stays until both have lost it.
    world.lose(0, [700]);
    world.run(1000);
    assert_eq!(world.held(4, 700), Some(vec!["x"]));
    world.lose(1, [700]);
    world.run(1000);
    assert_eq!(world.held(4, 700), Some(vec![]));
}

#[test]
fn the_standby_takes_over_with_all_it_was_told() {
    let mut world = World::new(&["x", "x", "x", "y"]);
    for node in 0..4 {
        world.store(node, [node as u64 * 10, 99]);
    }
    world.run(4000);
    let first = world.publisher("x");
    let before = world.nodes[3].affinity.keys().lanes().get(1).unwrap().note();
    world.down.push(first);
    world.tell_ring();
    world.run(2000);
    let second = world.publisher("x");
    assert_ne!(first, second);
    world.assert_in_step();
    let after = world.nodes[3].affinity.keys().lanes().get(1).unwrap().note();
    assert!(after.incarnation > before.incarnation);
    for node in world.up() {
        assert_eq!(world.held(node, 99), Some(vec!["x", "y"]));
        assert_eq!(world.held(node, first as u64 * 10), Some(vec![]), "its keys went with it");
    }
    // The old one comes back and publishes by right, above what was heard meanwhile.
    world.down.clear();
    world.tell_ring();
    world.run(4000);
    assert_eq!(world.publisher("x"), first);
    world.assert_in_step();
    assert_eq!(world.held(3, first as u64 * 10), Some(vec!["x"]));
}

#[test]
fn a_standby_publishes_at_once_what_it_was_told_before() {
    let mut world = World::new(&["x", "x", "x", "y"]);
    (0..3).for_each(|node| world.store(node, [node as u64 * 10]));
    world.run(4000);
    let first = world.publisher("x");
    world.down.push(first);
    // From here on nobody hears anything.
    world.loss = 1000;
    world.tell_ring();
    world.run(500);
    let second = world.publisher("x");
    let third = (0..3).find(|node| ![first, second].contains(node)).unwrap();
    assert_eq!(world.held(second, third as u64 * 10), Some(vec!["x"]));
    assert_eq!(world.held(second, first as u64 * 10), Some(vec![]), "its keys went with it");
}

#[test]
fn loss_costs_time_and_nothing_else() {
    let mut world = World::new(&["x", "x", "y", "y", "y"]);
    world.loss = 150;
    for round in 0..60 {
        let node = round % 5;
        world.store(node, (0..200).map(|n| (round as u64 * 97 + n) % 5000));
        world.lose((node + 2) % 5, (0..150).map(|n| (round as u64 * 61 + n * 3) % 5000));
        world.run(200);
    }
    world.loss = 0;
    world.run(12_000);
    world.assert_in_step();
    for key in (0..5000).step_by(37) {
        let mut truth: Vec<&str> = Vec::new();
        for node in &world.nodes {
            if node.mesh.member.all().any(|hash| hash.0 == key) {
                truth.push(if node.dc == "x" { "x" } else { "y" });
            }
        }
        truth.sort_unstable();
        truth.dedup();
        for node in world.up() {
            let held = world.held(node, key).expect("all lanes are believed");
            assert!(truth.iter().all(|dc| held.contains(dc)), "{key} on {node}");
        }
    }
}

#[test]
fn a_lane_is_not_believed_while_a_member_is_not_heard() {
    let mut world = World::new(&["x", "x", "x", "y"]);
    world.store(0, [1]);
    world.run(4000);
    assert_eq!(world.held(3, 1), Some(vec!["x"]));
    // A member that lost its store's events does not know what it holds.
    let member = (0..3).find(|n| *n != world.publisher("x")).unwrap();
    world.nodes[member].mesh.set_sure(false);
    world.run(3000);
    assert_eq!(world.held(3, 1), None);
    world.nodes[member].mesh.set_sure(true);
    world.run(3000);
    assert_eq!(world.held(3, 1), Some(vec!["x"]));
    // Nor while the members' feeds are cut and nobody has noticed.
    world.loss = 1000;
    world.run(8000);
    assert_eq!(world.held(world.publisher("x"), 1), None);
    world.loss = 0;
    world.run(4000);
    assert_eq!(world.held(3, 1), Some(vec!["x"]));
}

#[test]
fn two_halves_of_a_datacenter_come_together_again() {
    let mut world = World::new(&["x", "x", "x", "x", "y"]);
    for node in 0..5 {
        world.store(node, [node as u64]);
    }
    world.run(4000);
    world.cut = vec![(0, 2), (0, 3), (1, 2), (1, 3), (4, 2), (4, 3)];
    world.tell_ring();
    world.run(4000);
    let publishers = (0..4).filter(|n| world.nodes[*n].affinity.keys().publication().is_some());
    assert_eq!(publishers.count(), 2);
    assert_eq!(world.held(4, 2), Some(vec![]), "the far half is away");
    world.cut.clear();
    world.tell_ring();
    world.run(6000);
    world.assert_in_step();
    for node in 0..5 {
        assert_eq!(world.held(node, 2), Some(vec!["x"]));
        assert_eq!(world.held(node, 4), Some(vec!["y"]));
    }
}

#[test]
fn a_rebuild_is_a_new_generation_with_the_same_keys() {
    let mut world = World::new(&["x", "x", "y"]);
    world.store(0, 0..100);
    world.store(1, 50..150);
    world.run(4000);
    let publisher = world.publisher("x");
    let before = world.nodes[publisher].affinity.keys().publication().unwrap().identity;
    assert!(!world.nodes[1 - publisher].mesh.rebuild(time(world.now_ms)));
    assert!(world.nodes[publisher].mesh.rebuild(time(world.now_ms)));
    world.run(4000);
    let after = world.nodes[publisher].affinity.keys().publication().unwrap();
    assert!(after.identity.producer_incarnation > before.producer_incarnation);
    assert_eq!((after.used, after.complete), (150, true));
    world.assert_in_step();
    assert_eq!(world.held(2, 120), Some(vec!["x"]));
}

#[test]
fn engines_may_tell_any_node() {
    let mut world = World::new(&["x", "x", "x", "y"]);
    world.run(2000);
    let blocks = [BlockHash(5), BlockHash(6)];
    let stored = |ids: [u64; 2]| EventData::Stored {
        parent: None,
        start_position: None,
        blocks: (0..2)
            .map(|i| StoredBlock { id: ExternalId(ids[i]), tokens_hash: blocks[i] })
            .collect(),
    };
    for node in 0..3 {
        let llm = world.nodes[node].affinity.domain(Some(b"llm")).unwrap();
        let engine = Source { worker_id: 70 + node as u64, dp_rank: 0 };
        let event = RouterEvent::device(engine, stored([1, 2]));
        assert_eq!(llm.tell(&event, world.now_ms).unwrap().first_error, None);
    }
    world.run(3000);
    let depth = |world: &World, node: usize| {
        let llm = world.nodes[node].affinity.domain(Some(b"llm")).unwrap();
        let depths = llm.depths(super::super::domain::Chain::Blocks(&blocks), world.now_ms);
        let x = depths.iter().find(|depth| depth.dc == "x").unwrap();
        x.blocks
    };
    assert!((0..4).all(|node| depth(&world, node) == Some(2)));
    // What an engine told a node that dies is not known any more; the others' is.
    world.down = vec![0, 1];
    world.tell_ring();
    world.run(4000);
    assert_eq!(depth(&world, 3), Some(2));
    let llm = world.nodes[2].affinity.domain(Some(b"llm")).unwrap();
    let engine = Source { worker_id: 72, dp_rank: 0 };
    llm.tell(&RouterEvent::device(engine, EventData::Cleared), world.now_ms).unwrap();
    world.run(1000);
    assert_eq!(depth(&world, 3), Some(0));
}
