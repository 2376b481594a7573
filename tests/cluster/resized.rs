//! Datacenters that come, and whose filters change their size, while they are read from.

use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::Value;

use crate::admin::page;
use crate::client::Client;
use crate::ring::{Layout, Node, Ring, Store, redis_bin, wait_until};
use crate::routed::{EXTRA, assert_right, keys, place, wait_known, write};

/// What `/affinity` says of a datacenter's filter of the ring's keys.
fn lane(node: &Node, dc: &str) -> Value {
    let text = page(node, "GET", "/affinity").1;
    let page: Value = serde_json::from_str(&text).expect("JSON");
    let lanes = page["domains"][0]["lanes"].as_array().expect("lanes");
    lanes.iter().find(|lane| lane["datacenter"] == dc).expect(dc).clone()
}

/// Restarts a node with filters of another size, and reads through the other datacenter until it
/// is settled: every value is there all the time.
fn resize(ring: &mut Ring, number: usize, reader: usize, held: &[String]) {
    ring.nodes[number].kill();
    let larger = |text: String| text.replace("expected_keys: 20000", "expected_keys: 200000");
    ring.nodes[number].edit(larger);
    ring.nodes[number].start();
    let ready = |ring: &Ring| {
        let up = ring.nodes[number].info("state").as_deref() == Some("NORMAL");
        up && place(&ring.nodes[reader], "kv/none") == ["dc1 no", "dc2 no"]
    };
    wait_until("it is settled", || {
        assert_right(&ring.nodes[reader], held);
        ready(ring)
    });
    ring.wait_settled();
}

#[test]
fn a_datacenter_that_is_resized_is_read_from_all_the_while() {
    let Some(bin) = redis_bin("a_datacenter_that_is_resized") else { return };
    // Of a datacenter that is read from, one node of two is always there.
    let (dcs, extra) = (vec![vec![1, 1], vec![1, 1]], EXTRA.to_owned());
    let mut ring = Ring::start(Layout { dcs, store: Store::Redis(bin), extra });
    write(&ring.nodes[0], &keys("dc1"));
    write(&ring.nodes[2], &keys("dc2"));
    wait_known(&ring);
    let held = [&keys("dc2")[..200], &keys("dc1")[..200]].concat();
    let sizes = |ring: &Ring, node: usize| {
        ["dc1", "dc2"].map(|dc| lane(&ring.nodes[node], dc)["buckets"].as_u64())
    };
    assert_eq!(sizes(&ring, 0), [Some(8192); 2]);
    for number in [2, 3] {
        resize(&mut ring, number, 0, &held);
    }
    wait_known(&ring);
    wait_until("one is larger than the other", || {
        (0..4).all(|node| sizes(&ring, node) == [Some(8192), Some(65_536)])
    });
    for number in [0, 1] {
        resize(&mut ring, number, 2, &held);
    }
    wait_known(&ring);
    wait_until("both are large", || (0..4).all(|node| sizes(&ring, node) == [Some(65_536); 2]));
    assert_right(&ring.nodes[1], &held);
}

#[test]
fn a_datacenter_that_is_added_hides_nothing_of_the_others() {
    let (dcs, extra) = (vec![vec![1], vec![1]], EXTRA.to_owned());
    let mut ring = Ring::start(Layout { dcs, store: Store::Embedded, extra });
    let there = keys("dc2");
    write(&ring.nodes[0], &keys("dc1"));
    write(&ring.nodes[1], &there);
    wait_known(&ring);
    // Somebody asks all the while.
    let (port, known) = (ring.nodes[0].client, AtomicBool::new(false));
    std::thread::scope(|scope| {
        let asker = scope.spawn(|| {
            let mut client = Client::connect(port);
            while !known.load(Ordering::Relaxed) {
                for key in &there[..50] {
                    let words = client.call(&["TORC.WHERE", key]).text().replace('\n', " ");
                    assert!(!words.contains("dc2 no"), "{key}: {words}");
                }
            }
        });
        ring.add("dc3", "r1", 0);
        wait_until("the new one is known", || {
            let all = ["dc1 no", "dc2 no", "dc3 no"];
            asker.is_finished() || place(&ring.nodes[0], "kv/none") == all
        });
        known.store(true, Ordering::Relaxed);
        asker.join().expect("all was right");
    });
    ring.wait_settled();
    wait_known(&ring);
    assert_right(&ring.nodes[2], &there);
    assert_right(&ring.nodes[2], &keys("dc1"));
    assert!(lane(&ring.nodes[0], "dc3")["believed"].as_bool().expect("a word"));
}
