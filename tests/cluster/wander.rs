//! Nine nodes that are killed, stopped, frozen, replaced, that join and leave, at random: after
//! each change all views are the same, and every key is served that its level allows.
//!
//! `WANDER_SEED` replays a run; `SOAK_MINUTES` makes it longer than the slice of every day.

use std::time::{Duration, Instant};

use crate::client::{bulk, ok};
use crate::ring::{Layout, Node, Ring, Store, wait_until};

/// Changes of a run without `SOAK_MINUTES`.
const STEPS: usize = 10;

/// Keys written and read after each change.
const KEYS: u64 = 40;

/// A rack never gets more nodes, nor fewer.
const RACK_NODES: std::ops::RangeInclusive<usize> = 2..=5;

struct Wander {
    ring: Ring,
    rng: fastrand::Rng,
    /// Nodes that run, and are not frozen.
    up: Vec<usize>,
}

impl Wander {
    fn start(seed: u64) -> Wander {
        let layout =
            Layout { dcs: vec![vec![3, 3, 3]], store: Store::Embedded, extra: String::new() };
        let ring = Ring::start(layout);
        let up = (0..ring.nodes.len()).collect();
        Wander { ring, rng: fastrand::Rng::with_seed(seed), up }
    }

    fn step(&mut self) {
        let number = self.up[self.rng.usize(..self.up.len())];
        let node = &self.ring.nodes[number];
        let rack = self.racks(&node.rack);
        let what = format!("n{number} of {}", node.rack);
        match self.rng.u32(0..6) {
            0 => self.kill(number, &what),
            1 => self.stop(number, &what),
            2 => self.freeze(number, &what),
            3 if rack < *RACK_NODES.end() => self.join(&self.ring.nodes[number].rack.clone()),
            4 if rack > *RACK_NODES.start() => self.leave(number, &what),
            _ => self.replace(number, &what),
        }
    }

    /// How many nodes of a rack are up.
    fn racks(&self, rack: &str) -> usize {
        self.up.iter().filter(|number| self.ring.nodes[**number].rack == rack).count()
    }

    fn kill(&mut self, number: usize, what: &str) {
        println!("killed: {what}");
        self.ring.nodes[number].kill();
        self.without(number);
        self.ring.nodes[number].start();
        self.with(number);
    }

    fn stop(&mut self, number: usize, what: &str) {
        println!("stopped: {what}");
        self.ring.nodes[number].signal("-TERM");
        wait_until("it ends", || {
            self.ring.nodes[number].process.as_mut().is_some_and(|process| process.has_ended())
        });
        self.ring.nodes[number].kill();
        self.without(number);
        self.ring.nodes[number].start();
        self.with(number);
    }

    fn freeze(&mut self, number: usize, what: &str) {
        println!("frozen: {what}");
        self.ring.nodes[number].signal("-STOP");
        self.without(number);
        self.ring.nodes[number].signal("-CONT");
        self.with(number);
    }

    fn join(&mut self, rack: &str) {
        let token = self.rng.u32(..);
        println!("joined: {rack} at {token}");
        let number = self.ring.add("dc1", rack, token);
        self.with(number);
    }

    fn leave(&mut self, number: usize, what: &str) {
        println!("left: {what}");
        self.ring.leave(number);
        self.without(number);
    }

    fn replace(&mut self, number: usize, what: &str) {
        println!("replaced: {what}");
        self.ring.nodes[number].kill();
        self.without(number);
        let Node { rack, token, .. } = &self.ring.nodes[number];
        let (rack, token) = (rack.clone(), *token);
        let successor = self.ring.add("dc1", &rack, token);
        self.with(successor);
    }

    fn without(&mut self, number: usize) {
        self.up.retain(|other| *other != number);
        self.check();
    }

    fn with(&mut self, number: usize) {
        self.up.push(number);
        self.check();
    }

    /// All views are the same, and two of three racks are enough for a quorum of every key.
    fn check(&mut self) {
        let nodes: Vec<&Node> = self.up.iter().map(|number| &self.ring.nodes[*number]).collect();
        Ring::wait_settled_among(&nodes);
        let mut client = nodes[self.rng.usize(..nodes.len())].connect();
        assert_eq!(client.call(&["TORC.CONSISTENCY", "DC_QUORUM"]), ok());
        for _ in 0..KEYS {
            let (key, value) = (format!("k{}", self.rng.u32(..)), self.rng.u32(..).to_string());
            assert_eq!(client.call(&["SET", &key, &value]), ok(), "{key}");
            assert_eq!(client.call(&["GET", &key]), bulk(value), "{key}");
        }
    }
}

#[test]
#[allow(clippy::disallowed_methods)]
fn nine_nodes_converge_after_every_change() {
    let number = |name| std::env::var(name).ok().and_then(|value| value.parse::<u64>().ok());
    let seed = number("WANDER_SEED").unwrap_or(1);
    let longest = number("SOAK_MINUTES").map(|minutes| Duration::from_secs(minutes * 60));
    println!("WANDER_SEED={seed}");
    let start = Instant::now();
    let mut wander = Wander::start(seed);
    let mut steps = 0;
    while longest.map_or(steps < STEPS, |longest| start.elapsed() < longest) {
        wander.step();
        steps += 1;
    }
    println!("{steps} changes in {} s", start.elapsed().as_secs());
}
