//! What a load generator relies on, over real datastores: order, sizes, depth, crowds, a reader
//! that never reads, a datastore that stops answering. `scripts/bench` times the same rings.

use std::process::Command;
use std::thread;
use std::time::Duration;

use crate::client::{Client, Reply, bulk, encode, ok};
use crate::ring::{Layout, Ring, Store, redis_bin, wait_until};

/// The rings of the bench: nodes by datacenter and rack, and the level.
const RINGS: [(&[&[usize]], &str); 4] = [
    (&[&[1]], "DC_ONE"),
    (&[&[3]], "DC_ONE"),
    (&[&[1, 1, 1]], "DC_ONE"),
    (&[&[1, 1, 1]], "DC_QUORUM"),
];

type Probe = fn(&Ring);

const PROBES: [(&str, Probe); 9] = [
    ("pipelined reads come in order", reads_in_order),
    ("pipelined writes are all taken", writes_taken),
    ("values of every size", sizes),
    ("MGET of 30 keys", mget),
    ("1,000 PINGs at once", pings),
    ("50 connections 64 deep", crowd),
    ("a reader that never reads", slow_reader),
    ("a datastore that stops", stopped_store),
    ("serving again", serves),
];

#[test]
fn every_ring_of_the_bench_answers_as_redis_does() {
    let Some(bin) = redis_bin("every_ring_of_the_bench_answers_as_redis_does") else { return };
    for (dcs, level) in RINGS {
        let extra =
            format!("  timeout: 3000\n  read_consistency: {level}\n  write_consistency: {level}\n");
        let dcs: Vec<Vec<usize>> = dcs.iter().map(|racks| racks.to_vec()).collect();
        println!("{dcs:?} at {level}");
        let ring = Ring::start(Layout { dcs, store: Store::Redis(bin.clone()), extra });
        for (name, probe) in PROBES {
            println!("  {name}");
            probe(&ring);
        }
    }
}

fn client(ring: &Ring) -> Client {
    ring.nodes[0].connect()
}

fn all(commands: impl Iterator<Item = Vec<String>>) -> Vec<u8> {
    commands.flat_map(|args| encode(&args)).collect()
}

fn set(key: &str, value: &str) -> Vec<String> {
    vec!["SET".into(), key.into(), value.into()]
}

fn get(key: &str) -> Vec<String> {
    vec!["GET".into(), key.into()]
}

fn reads_in_order(ring: &Ring) {
    let mut client = client(ring);
    for (count, size) in [(30, 20), (1000, 20), (200, 1024)] {
        let value = |i| format!("{i}:{}", "x".repeat(size));
        client.send(&all((0..count).map(|i| set(&format!("o{i}"), &value(i))))).unwrap();
        (0..count).for_each(|_| assert_eq!(client.reply().unwrap(), ok()));
        client.send(&all((0..count).map(|i| get(&format!("o{i}"))))).unwrap();
        (0..count).for_each(|i| assert_eq!(client.reply().unwrap(), bulk(value(i))));
    }
}

fn writes_taken(ring: &Ring) {
    let mut client = client(ring);
    for size in [20, 1024] {
        let value = "x".repeat(size);
        client.send(&all((0..100).map(|i| set(&format!("s{i}"), &value)))).unwrap();
        (0..100).for_each(|_| assert_eq!(client.reply().unwrap(), ok()));
    }
}

fn sizes(ring: &Ring) {
    let mut client = client(ring);
    for size in [1, 4096, 16_000, 16_384, 65_536, 1 << 20] {
        let value: Vec<u8> = (0..size).map(|i: usize| (i % 251) as u8).collect();
        let key = format!("big{size}");
        assert_eq!(client.call(&[b"SET", key.as_bytes(), &value]), ok());
        assert!(client.call(&["GET", &key]) == Reply::Bulk(value), "{size} bytes differ");
    }
}

fn mget(ring: &Ring) {
    let mut client = client(ring);
    let keys: Vec<String> = (0..30).map(|i| format!("m{i}")).collect();
    keys.iter().for_each(|key| assert_eq!(client.call(&["SET", key, key]), ok()));
    let args: Vec<&str> = std::iter::once("MGET").chain(keys.iter().map(String::as_str)).collect();
    assert_eq!(client.call(&args), Reply::Array(keys.iter().map(bulk).collect()));
}

fn pings(ring: &Ring) {
    let mut client = client(ring);
    client.send(&encode(&["PING"]).repeat(1000)).unwrap();
    (0..1000).for_each(|_| assert_eq!(client.reply().unwrap().text(), "PONG"));
}

fn crowd(ring: &Ring) {
    let mut clients: Vec<Client> = (0..50).map(|_| client(ring)).collect();
    let name = |i, j| format!("w{i}-{j}");
    for (i, client) in clients.iter_mut().enumerate() {
        client.send(&all((0..64).map(|j| set(&name(i, j), &name(i, j))))).unwrap();
    }
    for (i, client) in clients.iter_mut().enumerate() {
        (0..64).for_each(|_| assert_eq!(client.reply().unwrap(), ok()));
        client.send(&all((0..64).map(|j| get(&name(i, j))))).unwrap();
    }
    for (i, client) in clients.iter_mut().enumerate() {
        (0..64).for_each(|j| assert_eq!(client.reply().unwrap(), bulk(name(i, j))));
    }
}

/// 80 MB of replies are asked for and none is read; another client is served meanwhile.
fn slow_reader(ring: &Ring) {
    let value = "z".repeat(4000);
    assert_eq!(client(ring).call(&["SET", "slow", &value]), ok());
    let mut greedy = client(ring).stream();
    let asking = thread::spawn(move || {
        use std::io::Write;
        greedy.set_write_timeout(Some(Duration::from_millis(500))).unwrap();
        let _ = greedy.write_all(&encode(&["GET", "slow"]).repeat(20_000));
        greedy
    });
    for _ in 0..50 {
        assert_eq!(client(ring).call(&["GET", "slow"]), bulk(&value));
    }
    drop(asking.join().unwrap());
}

/// Each request gets an answer, an error where nobody else has the key, and none is awaited for
/// ever.
fn stopped_store(ring: &Ring) {
    let store = ring.nodes[0].redis.as_ref().expect("a datastore").id();
    let mut client = client(ring);
    assert_eq!(client.call(&["SET", "d", "1"]), ok());
    let signal = |name: &str| {
        let done = Command::new("kill").args([name, &store.to_string()]).status();
        assert!(done.is_ok_and(|s| s.success()), "kill {name}");
    };
    signal("-STOP");
    let reply = client.try_call(&["GET", "d"]);
    signal("-CONT");
    let reply = reply.expect("an answer");
    assert!(reply.is_error() || reply == bulk("1"), "{reply:?}");
}

fn serves(ring: &Ring) {
    wait_until("serving again", || {
        let mut client = client(ring);
        client.call(&["SET", "again", "1"]) == ok() && client.call(&["GET", "again"]) == bulk("1")
    });
}
