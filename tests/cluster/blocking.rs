//! Commands that wait for a key, on rings of both kinds of datastores.

use std::thread;

use crate::client::{Client, Reply, bulk, encode};
use crate::ring::{Layout, Node, Ring, Store, redis_bin, wait_until};

fn three_racks(store: Store) -> Ring {
    Ring::start(Layout { dcs: vec![vec![2, 2, 2]], store, extra: "  hash_tag: '{}'\n".into() })
}

fn pair(key: &str, value: &str) -> Reply {
    Reply::Array(vec![bulk(key), bulk(value)])
}

/// Sends `wait` through one node, `push` through another one once the first waits, and gives the
/// answer of the wait.
fn wake(ring: &Ring, turn: usize, wait: &[&str], push: &[&str]) -> Reply {
    let nodes = &ring.nodes;
    let mut waiting = nodes[turn % nodes.len()].connect();
    let mut other = nodes[(turn * 3 + 1) % nodes.len()].connect();
    // What is pipelined behind it waits too.
    let both = [encode(wait), encode(&["PING", "behind"])].concat();
    waiting.send(&both).expect("sent");
    wait_until("somebody waits", || waits(nodes) > 0);
    let pushed = other.call(push);
    assert!(!pushed.is_error(), "{push:?}: {pushed:?}");
    let reply = waiting.reply().expect("a reply");
    assert_eq!(waiting.reply().expect("a reply"), bulk("behind"));
    wait_until("nobody waits", || waits(nodes) == 0);
    reply
}

/// Clients that wait, as the nodes tell.
fn waits(nodes: &[Node]) -> usize {
    nodes.iter().map(|node| blocked(node.connect())).sum()
}

/// Clients that wait at their keys' owner in the first rack.
fn waits_at_keys(nodes: &[Node]) -> usize {
    let at = |node: &Node| match node.redis {
        Some(_) => blocked(node.connect_store()),
        None => blocked(node.connect()),
    };
    nodes[..2].iter().map(at).sum()
}

fn blocked(mut client: Client) -> usize {
    let info = client.call(&["INFO", "clients"]).text();
    let line = info.lines().find_map(|line| line.strip_prefix("blocked_clients:"));
    line.and_then(|n| n.trim().parse().ok()).expect("a figure")
}

fn lists_and_sorted_sets(ring: &Ring) {
    for turn in 0..6 {
        let key = format!("{{k{turn}}}");
        let (k, to, none) = (key.as_str(), format!("{key}to"), format!("{key}none"));
        let reply = wake(ring, turn, &["BLPOP", &none, k, "0"], &["RPUSH", k, "v"]);
        assert_eq!(reply, pair(k, "v"));
        assert_eq!(wake(ring, turn, &["BRPOP", k, "0"], &["LPUSH", k, "w"]), pair(k, "w"));
        let moved = wake(ring, turn, &["BLMOVE", k, &to, "LEFT", "LEFT", "0"], &["RPUSH", k, "m"]);
        assert_eq!(moved, bulk("m"));
        let zset = format!("{key}zset");
        let z = zset.as_str();
        let popped = wake(ring, turn, &["BZPOPMIN", z, "0"], &["ZADD", z, "2", "a", "1.5", "b"]);
        assert_eq!(popped, Reply::Array(vec![bulk(z), bulk("b"), bulk("1.5")]));
        let mut client = ring.nodes[turn].connect();
        wait_until("copies arrive", || client.call(&["ZCARD", z]) == Reply::Int(1));
        assert_eq!(client.call(&["ZPOPMAX", z]), pair("a", "2"));
        let many = wake(
            ring,
            turn,
            &["BLMPOP", "0", "1", k, "RIGHT", "COUNT", "9"],
            &["RPUSH", k, "1", "2"],
        );
        let values = Reply::Array(vec![bulk("2"), bulk("1")]);
        assert_eq!(many, Reply::Array(vec![bulk(k), values]));
        assert_eq!(client.call(&["BLPOP", k, "0.01"]), Reply::Nil);
        wait_until("copies arrive", || client.call(&["EXISTS", k, &to]) == Reply::Int(1));
    }
}

/// What one replica has, all of them have.
fn copies_agree(ring: &Ring) {
    let sizes = |ring: &Ring| -> Vec<String> {
        let size = |n: &Node| n.connect().call(&["TORC.LOCAL", "DBSIZE"]).text();
        ring.nodes.iter().map(size).collect()
    };
    wait_until("copies arrive", || {
        let sizes = sizes(ring);
        sizes[0..2] == sizes[2..4] && sizes[0..2] == sizes[4..6]
    });
}

fn who_leaves_takes_nothing(ring: &Ring) {
    let mut leaver = ring.nodes[0].connect();
    leaver.send(&encode(&["BLPOP", "{left}", "0"])).expect("sent");
    wait_until("somebody waits", || waits(&ring.nodes) > 0);
    drop(leaver);
    wait_until("nobody waits", || waits(&ring.nodes) == 0);
    let mut client = ring.nodes[5].connect();
    assert_eq!(client.call(&["RPUSH", "{left}", "v"]), Reply::Int(1));
    assert_eq!(client.call(&["LRANGE", "{left}", "0", "-1"]), Reply::Array(vec![bulk("v")]));
    assert_eq!(client.call(&["DEL", "{left}"]), Reply::Int(1));
}

/// What is taken for a client that leaves at that moment is taken at every replica, or at none.
fn leaving_races_with_pushing(ring: &Ring, turns: usize) {
    let mut pusher = ring.nodes[3].connect();
    let mut racks = [0, 2, 4].map(|node| ring.nodes[node].connect());
    for i in 0..turns {
        let mut leaver = ring.nodes[i % 6].connect();
        leaver.send(&encode(&["BLPOP", "{race}", "0"])).expect("sent");
        wait_until("somebody waits", || waits_at_keys(&ring.nodes) > 0);
        pusher.send(&encode(&["RPUSH", "{race}", "v"])).expect("sent");
        drop(leaver);
        assert_eq!(pusher.reply().expect("a reply"), Reply::Int(1));
        wait_until("nobody waits", || waits(&ring.nodes) == 0);
        let mut left = || racks.each_mut().map(|client| client.call(&["LLEN", "{race}"]));
        wait_until("copies agree", || {
            let [first, others @ ..] = left();
            others.iter().all(|other| *other == first)
        });
        assert!(!pusher.call(&["DEL", "{race}"]).is_error());
        wait_until("it is gone", || left() == [0; 3].map(Reply::Int));
    }
}

/// Who waits for a list is not disturbed by a string, and takes the list that comes after it.
fn other_types_are_waited_through(ring: &Ring) {
    let wait = |node: usize, words: &[&str]| {
        let mut client = ring.nodes[node].connect();
        client.send(&encode(words)).expect("sent");
        client
    };
    let mut writer = ring.nodes[1].connect();
    let mut waiting = wait(4, &["BLPOP", "{t}none", "{t}k", "0"]);
    let mut moving = wait(2, &["BLMOVE", "{t}k2", "{t}to", "LEFT", "LEFT", "0"]);
    let mut scored = wait(3, &["BZPOPMIN", "{t}z", "{t}k", "0"]);
    wait_until("all of them wait", || waits_at_keys(&ring.nodes) == 3);
    for key in ["{t}none", "{t}k", "{t}k2", "{t}z"] {
        assert_eq!(writer.call(&["SET", key, "v"]).text(), "OK");
        assert_eq!(writer.call(&["APPEND", key, "w"]), Reply::Int(2));
    }
    assert_eq!(writer.call(&["DEL", "{t}z"]), Reply::Int(1));
    assert_eq!(writer.call(&["RPUSH", "{t}z", "no zset"]), Reply::Int(1));
    assert_eq!(writer.call(&["RPUSH", "{t}other", "1"]), Reply::Int(1));
    assert_eq!(writer.call(&["RENAME", "{t}other", "{t}k"]).text(), "OK");
    assert_eq!(waiting.reply().expect("a reply"), pair("{t}k", "1"));
    // A destination of another type is an error, as it would be at once.
    assert_eq!(writer.call(&["SET", "{t}to", "v"]).text(), "OK");
    assert_eq!(writer.call(&["DEL", "{t}k2"]), Reply::Int(1));
    assert_eq!(writer.call(&["RPUSH", "{t}k2", "m"]), Reply::Int(1));
    assert!(moving.reply().expect("a reply").text().starts_with("WRONGTYPE"));
    assert_eq!(writer.call(&["DEL", "{t}z"]), Reply::Int(1));
    assert_eq!(writer.call(&["ZADD", "{t}z", "1", "a"]), Reply::Int(1));
    let popped = Reply::Array(vec![bulk("{t}z"), bulk("a"), bulk("1")]);
    assert_eq!(scored.reply().expect("a reply"), popped);
    let mut client = ring.nodes[0].connect();
    let keys = ["{t}none", "{t}k", "{t}k2", "{t}z", "{t}to"];
    assert!(client.call(&["BLPOP", "{t}none", "{t}k2", "1"]).text().starts_with("WRONGTYPE"));
    let del: Vec<&str> = ["DEL"].iter().chain(&keys).copied().collect();
    assert!(!client.call(&del).is_error());
}

/// Every item reaches one of several workers, exactly once.
fn workers_share_a_queue(ring: &Ring) {
    const ITEMS: usize = 300;
    let consumers: Vec<_> = ring
        .nodes
        .iter()
        .map(|node| {
            let mut client: Client = node.connect();
            thread::spawn(move || {
                let mut got = Vec::new();
                loop {
                    let Reply::Array(pair) = client.call(&["BLPOP", "{queue}", "0"]) else {
                        panic!()
                    };
                    match pair[1].text() {
                        end if end == "end" => return got,
                        item => got.push(item),
                    }
                }
            })
        })
        .collect();
    let mut producer = ring.nodes[3].connect();
    for i in 0..ITEMS {
        producer.call(&["RPUSH", "{queue}", &i.to_string()]);
    }
    for _ in &consumers {
        producer.call(&["RPUSH", "{queue}", "end"]);
    }
    let mut got: Vec<usize> = Vec::new();
    for consumer in consumers {
        got.extend(
            consumer.join().expect("a consumer").iter().map(|i| i.parse::<usize>().unwrap()),
        );
    }
    got.sort_unstable();
    assert_eq!(got, (0..ITEMS).collect::<Vec<_>>());
}

#[test]
fn waits_end_with_a_value_over_redis_servers() {
    let Some(bin) = redis_bin("waits_end_with_a_value_over_redis_servers") else { return };
    let ring = three_racks(Store::Redis(bin));
    lists_and_sorted_sets(&ring);
    let stream = wake(
        &ring,
        1,
        &["XREAD", "BLOCK", "0", "STREAMS", "{x}", "$"],
        &["XADD", "{x}", "7-1", "f", "v"],
    );
    assert!(stream.text().contains("7-1"), "{stream:?}");
    let mut client = ring.nodes[2].connect();
    assert_eq!(client.call(&["XGROUP", "CREATE", "{x}", "g", "$"]).text(), "OK");
    let read = ["XREADGROUP", "GROUP", "g", "c", "BLOCK", "0", "STREAMS", "{x}", ">"];
    let read = wake(&ring, 3, &read, &["XADD", "{x}", "8-1", "f", "v"]);
    assert!(read.text().contains("8-1"), "{read:?}");
    assert_eq!(client.call(&["XACK", "{x}", "g", "8-1"]), Reply::Int(1));
    copies_agree(&ring);
    who_leaves_takes_nothing(&ring);
    // redis-server drops what it took when it reads the end of a connection in the same turn.
    leaving_races_with_pushing(&ring, 150);
    other_types_are_waited_through(&ring);
    workers_share_a_queue(&ring);
    copies_agree(&ring);
}

#[test]
fn waits_end_with_a_value_over_embedded_stores() {
    let ring = three_racks(Store::Embedded);
    lists_and_sorted_sets(&ring);
    copies_agree(&ring);
    who_leaves_takes_nothing(&ring);
    leaving_races_with_pushing(&ring, 40);
    other_types_are_waited_through(&ring);
    workers_share_a_queue(&ring);
    copies_agree(&ring);
}
