//! Moving over: the nodes of a running C ring become torc nodes one by one, with the same tokens,
//! addresses and datastores, while clients write; and back again.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use super::ring::{Bins, Kind, Node, Ring, Setup};
use crate::client::Client;
use crate::ring::wait_until;

/// Keys of each writer.
const KEYS: u64 = 20;

/// Acknowledged writes of each writer before each change.
const PROGRESS: u64 = 50;

/// What the writers and the one who changes nodes know of each other.
#[derive(Default)]
struct Scene {
    stop: AtomicBool,
    /// Odd while a node is down.
    phase: AtomicU64,
}

/// Values of one key: each write has a greater one.
#[derive(Clone, Copy, Default)]
struct Written {
    acknowledged: u64,
    /// Sent later, with an error or no answer: it may be in effect or not.
    unknown: u64,
}

#[derive(Default)]
struct Outcome {
    keys: BTreeMap<String, Written>,
    /// Errors while no node was down.
    errors: Vec<String>,
}

struct Writer {
    /// The place of the node it writes through.
    node: usize,
    acknowledged: Arc<AtomicU64>,
    thread: JoinHandle<Outcome>,
}

impl Writer {
    fn start(scene: &Arc<Scene>, ring: &Ring, node: usize) -> Writer {
        let acknowledged = Arc::new(AtomicU64::new(0));
        let (scene, count) = (Arc::clone(scene), Arc::clone(&acknowledged));
        let connect = ring.nodes[node].connector();
        let thread = std::thread::spawn(move || write(&scene, node, &count, connect));
        Writer { node, acknowledged, thread }
    }
}

fn write(
    scene: &Scene,
    node: usize,
    count: &AtomicU64,
    connect: impl Fn() -> std::io::Result<Client>,
) -> Outcome {
    let mut outcome = Outcome::default();
    let mut client = None;
    let mut value = 0;
    while !scene.stop.load(Ordering::SeqCst) {
        let before = scene.phase.load(Ordering::SeqCst);
        value += 1;
        let key = format!("w{node}:{}", value % KEYS);
        let written = outcome.keys.entry(key.clone()).or_default();
        let fresh = client.take().map_or_else(&connect, Ok);
        let result = fresh.and_then(|mut open: Client| {
            let reply = open.try_call(&["SET", &key, &value.to_string()])?;
            client = Some(open);
            Ok(reply)
        });
        let error = match result {
            Ok(reply) if !reply.is_error() => {
                written.acknowledged = value;
                count.fetch_add(1, Ordering::SeqCst);
                continue;
            }
            Ok(reply) => reply.text(),
            Err(error) => error.to_string(),
        };
        written.unknown = value;
        let quiet = before.is_multiple_of(2) && scene.phase.load(Ordering::SeqCst) == before;
        if quiet {
            outcome.errors.push(format!("phase {before}, {key}: {error}"));
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    outcome
}

fn progress(writers: &[Writer]) {
    let count = |w: &Writer| w.acknowledged.load(Ordering::SeqCst);
    let targets: Vec<u64> = writers.iter().map(|w| count(w) + PROGRESS).collect();
    wait_until("the writers go on", || {
        writers.iter().zip(&targets).all(|(w, target)| count(w) >= *target)
    });
}

/// Ends a node and starts the other kind in its place.
fn replace(ring: &mut Ring, scene: &Scene, number: usize, kind: Kind) {
    scene.phase.fetch_add(1, Ordering::SeqCst);
    ring.nodes[number].kill();
    ring.nodes[number].kind = kind;
    ring.launch(number);
    ring.wait_joined();
    scene.phase.fetch_add(1, Ordering::SeqCst);
}

/// What the owners of a key in a datacenter hold.
fn held(ring: &Ring, writer: &Node, key: &str) -> Vec<u64> {
    let owners = ring.owners(key).filter(|owner| owner.dc == writer.dc);
    let value = |owner: &Node| owner.connect_store().call(&["GET", key]).text();
    owners.map(|owner| value(owner).parse().unwrap_or(0)).collect()
}

#[test]
fn c_nodes_are_replaced_one_by_one_under_load_and_rolled_back() {
    replace_all(false);
}

#[test]
fn the_same_with_encrypted_links_between_datacenters() {
    replace_all(true);
}

fn replace_all(secure: bool) {
    let Some(bins) = Bins::find("replacing C nodes") else { return };
    // Half of the writers wait for one replica, half for all of their datacenter.
    let levels = ["DC_QUORUM", "DC_ONE"];
    let setup = Setup { who: "cccccccc", secure, levels, extra: "" };
    let mut ring = Ring::start(&bins, &setup);
    let scene = Arc::new(Scene::default());
    let writers: Vec<Writer> =
        (0..ring.nodes.len()).map(|node| Writer::start(&scene, &ring, node)).collect();
    for kind in [Kind::Torc, Kind::C] {
        for number in 0..ring.nodes.len() {
            progress(&writers);
            replace(&mut ring, &scene, number, kind);
        }
    }
    progress(&writers);
    scene.stop.store(true, Ordering::SeqCst);
    let mut errors = Vec::new();
    for writer in writers {
        let mut outcome = writer.thread.join().expect("a writer");
        errors.append(&mut outcome.errors);
        let node = &ring.nodes[writer.node];
        for (key, written) in &outcome.keys {
            let held = held(&ring, node, key);
            let kept = |value: &u64| {
                *value == written.acknowledged
                    || (*value == written.unknown && written.unknown > written.acknowledged)
            };
            let safe = match levels[writer.node % levels.len()] {
                "DC_ONE" => held.iter().any(kept),
                _ => held.iter().all(kept),
            };
            let acknowledged = written.acknowledged;
            assert!(safe, "{key} was acknowledged with {acknowledged}, the owners hold {held:?}");
        }
    }
    assert_eq!(errors, Vec::<String>::new(), "errors while no node was down");
}
