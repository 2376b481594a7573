//! WATCH: optimistic locking through every node, as client libraries do it.

use std::thread;

use crate::client::{Client, Reply, ok};
use crate::clients;
use crate::ring::{Layout, Ring, Store, redis_bin, wait_until};

/// Clients that count up at the same time, one at each node, and how often each does.
const CLIENTS: usize = 6;
const TIMES: usize = 20;

fn three_racks(store: Store) -> Ring {
    Ring::start(Layout { dcs: vec![vec![2, 2, 2]], store, extra: "  hash_tag: '{}'\n".into() })
}

fn count_up(client: &mut Client, key: &str) -> bool {
    assert_eq!(client.call(&["WATCH", key]), ok());
    let now: usize = match client.call(&["GET", key]) {
        Reply::Nil => 0,
        value => value.text().parse().expect("a number"),
    };
    assert_eq!(client.call(&["MULTI"]), ok());
    assert_eq!(client.call(&["SET", key, &(now + 1).to_string()]).text(), "QUEUED");
    match client.call(&["EXEC"]) {
        Reply::Nil => false,
        reply => {
            assert_eq!(reply, Reply::Array(vec![ok()]));
            true
        }
    }
}

fn nobody_overwrites_what_he_did_not_see(ring: &Ring, stamped: bool) {
    let counters: Vec<_> = (0..CLIENTS)
        .map(|i| {
            let mut client = ring.nodes[i % ring.nodes.len()].connect();
            thread::spawn(move || {
                let mut done = 0;
                while done < TIMES {
                    done += usize::from(count_up(&mut client, "{n}"));
                }
            })
        })
        .collect();
    counters.into_iter().for_each(|counter| counter.join().expect("a client"));
    let all = (CLIENTS * TIMES).to_string();
    // The first rack tells what changed. Where writes carry stamps, the last one is last everywhere.
    let same = if stamped { 6 } else { 2 };
    for node in &ring.nodes[..same] {
        let mut client = node.connect();
        wait_until("copies arrive", || client.call(&["GET", "{n}"]).text() == all);
    }
}

/// A client that writes and watches in one go sees no conflict with itself.
fn own_writes_are_no_conflict(ring: &Ring) {
    for node in &ring.nodes {
        let mut client = node.connect();
        for i in 0..10 {
            let value = i.to_string();
            assert_eq!(client.call(&["SET", "{own}", &value]), ok());
            assert_eq!(client.call(&["WATCH", "{own}"]), ok());
            assert_eq!(client.call(&["GET", "{own}"]).text(), value);
            assert_eq!(client.call(&["MULTI"]), ok());
            assert_eq!(client.call(&["INCR", "{own}"]).text(), "QUEUED");
            assert_eq!(client.call(&["EXEC"]), Reply::Array(vec![Reply::Int(i + 1)]));
        }
    }
}

/// What ends a watch, and what does not.
fn ends(ring: &Ring) {
    let mut other = ring.nodes[4].connect();
    for (i, node) in ring.nodes.iter().enumerate() {
        let mut client = node.connect();
        let mut exec = |before: &[&str], then: &[&str]| {
            assert_eq!(client.call(&["WATCH", "{e}"]), ok());
            for line in before {
                client.call(&line.split(' ').collect::<Vec<_>>());
            }
            assert_eq!(other.call(&["SET", "{e}", "theirs"]), ok());
            // Copies of one client's writes arrive everywhere in order.
            assert!(!other.call(&["SET", "{e}", "theirs", "XX"]).is_error());
            for line in then {
                client.call(&line.split(' ').collect::<Vec<_>>());
            }
            client.call(&["MULTI"]);
            client.call(&["GET", "{e}"]);
            client.call(&["EXEC"])
        };
        let theirs = Reply::Array(vec![Reply::Bulk(b"theirs".to_vec())]);
        assert_eq!(exec(&[], &[]), Reply::Nil, "node {i}");
        assert_eq!(exec(&["UNWATCH"], &[]), theirs, "node {i}");
        assert_eq!(exec(&[], &["UNWATCH"]), theirs, "node {i}");
        assert_eq!(exec(&[], &["MULTI", "DISCARD"]), theirs, "node {i}");
        assert_eq!(exec(&[], &["RESET"]), theirs, "node {i}");
        assert_eq!(exec(&[], &["MULTI", "NOSUCH", "EXEC"]), theirs, "node {i}");
        assert_eq!(exec(&["WATCH {e}2"], &[]), Reply::Nil, "node {i}");
    }
}

fn watching(test: &str, store: Store) {
    let stamped = matches!(store, Store::Embedded);
    let ring = three_racks(store);
    own_writes_are_no_conflict(&ring);
    nobody_overwrites_what_he_did_not_see(&ring, stamped);
    ends(&ring);
    let Some(folder) = clients::libraries(test) else { return };
    let ports: Vec<String> = ring.nodes.iter().map(|node| node.client.to_string()).collect();
    let text = clients::run("python3", "watching.py", &ports, &folder);
    assert!(text.ends_with("ok\n"), "{text}");
}

#[test]
fn watched_keys_over_redis_servers() {
    let name = "watched_keys_over_redis_servers";
    let Some(bin) = redis_bin(name) else { return };
    watching(name, Store::Redis(bin));
}

#[test]
fn watched_keys_over_embedded_stores() {
    watching("watched_keys_over_embedded_stores", Store::Embedded);
}
