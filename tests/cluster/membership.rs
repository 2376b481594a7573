//! Joining, leaving, dying and coming back, seen from the client ports.

use std::collections::BTreeSet;

use crate::admin::get;
use crate::client::{Client, Reply, bulk, ok};
use crate::ring::{Layout, Node, Ring, Store, redis_bin, wait_until};

#[test]
fn a_node_that_knows_one_seed_learns_the_ring_and_is_learnt() {
    let mut ring =
        Ring::start(Layout { dcs: vec![vec![1, 1]], store: Store::Embedded, extra: String::new() });
    let mut client = ring.nodes[0].connect();
    for i in 0..200 {
        assert_eq!(client.call(&["SET", &format!("k{i}"), &i.to_string()]), ok());
    }
    ring.add("dc2", "r1", 0);
    ring.wait_settled();
    for node in &ring.nodes {
        assert_eq!(node.info("peers").as_deref(), Some("3"));
    }
    // Writes reach the new datacenter; what it never saw is a miss there.
    assert_eq!(client.call(&["SET", "late", "x"]), ok());
    let mut far = ring.nodes[2].connect();
    wait_until("the copy arrives", || far.call(&["GET", "late"]) == bulk("x"));
    assert_eq!(far.call(&["GET", "k1"]), Reply::Nil);
}

#[test]
fn a_killed_node_is_routed_around_and_used_again_after_its_restart() {
    let mut ring =
        Ring::start(Layout { dcs: vec![vec![2, 2]], store: Store::Embedded, extra: String::new() });
    let mut client = ring.nodes[0].connect();
    for i in 0..100 {
        assert_eq!(client.call(&["SET", &format!("k{i}"), &i.to_string()]), ok());
    }
    let before = ring.nodes[0].info("ring_digest");
    ring.nodes[1].kill();
    wait_until("the death is noticed", || {
        ring.nodes
            .iter()
            .filter(|n| n.process.is_some())
            .all(|n| n.info("peers_usable").as_deref() == Some("3"))
    });
    assert_eq!(ring.nodes[0].info("ring_digest"), before, "a dead node keeps its arc");
    for i in 0..100 {
        let reply = client.call(&["GET", &format!("k{i}")]);
        assert_eq!(reply, bulk(i.to_string()), "read from the other rack");
        assert_eq!(client.call(&["SET", &format!("k{i}"), "new"]), ok());
    }
    ring.nodes[1].start();
    ring.wait_settled();
    let mut back = ring.nodes[1].connect();
    assert_eq!(back.call(&["SET", "k1", "again"]), ok());
    assert_eq!(client.call(&["GET", "k1"]), bulk("again"));
}

/// Reads all keys through a node, at DC_ONE, as soon as it takes clients.
fn assert_complete(node: &Node, keys: usize) {
    let mut client = None;
    wait_until("it takes clients", || {
        client = Client::try_connect(node.client).ok();
        client.is_some()
    });
    let mut client = client.expect("connected");
    for i in 0..keys {
        let reply = client.call(&["GET", &format!("k{i}")]);
        assert_eq!(reply, bulk(i.to_string()), "k{i} through {}", node.rack);
    }
}

/// Waits until a node has copied what the others have.
fn wait_filled(node: &Node) {
    let filled = || node.info("state").as_deref() == Some("NORMAL");
    wait_until("it has what the others have", filled);
}

#[test]
fn embedded_stores_are_filled_again_and_reads_miss_nothing_meanwhile() {
    const KEYS: usize = 200;
    let mut ring = Ring::start(Layout {
        dcs: vec![vec![1, 2, 1]],
        store: Store::Embedded,
        extra: String::new(),
    });
    ring.nodes.iter().for_each(wait_filled);
    let mut client = ring.nodes[0].connect();
    for i in 0..KEYS {
        assert_eq!(client.call(&["SET", &format!("k{i}"), &i.to_string()]), ok());
    }
    for words in [
        &["RPUSH", "list", "a", "b"][..],
        &["HSET", "hash", "f", "1"],
        &["SADD", "set", "m"],
        &["ZADD", "zset", "2", "m"],
        &["SET", "expires", "soon", "PX", "600000"],
    ] {
        assert!(!client.call(words).is_error());
    }
    let mut count = 0;
    // One rack after the other is killed and comes back with nothing: in the end no process of
    // the first is left, and every key is. The last one knows nobody when it starts.
    for rack in [vec![1, 2], vec![3], vec![0]] {
        rack.iter().for_each(|n| ring.nodes[*n].kill());
        rack.iter().for_each(|n| ring.nodes[*n].start());
        for n in &rack {
            assert_complete(&ring.nodes[*n], KEYS);
            // It is written to meanwhile; some of that builds on what it lacks.
            let mut client = ring.nodes[*n].connect();
            count += 1;
            assert!(!client.call(&["HSET", "hash", &count.to_string(), "x"]).is_error());
            assert!(!client.call(&["APPEND", "list2", "x"]).is_error());
        }
        rack.iter().for_each(|n| wait_filled(&ring.nodes[*n]));
        ring.wait_settled();
        ring.nodes.iter().for_each(|node| assert_complete(node, KEYS));
    }
    let new = ring.add("dc1", "r4", 0);
    assert_complete(&ring.nodes[new], KEYS);
    wait_filled(&ring.nodes[new]);
    // Every rack alone has everything: the level asks its own one.
    for node in &ring.nodes {
        let mut client = node.connect();
        assert_eq!(client.call(&["LRANGE", "list", "0", "-1"]).text(), "a\nb");
        assert_eq!(client.call(&["HLEN", "hash"]), Reply::Int(1 + count), "{}", node.rack);
        assert_eq!(client.call(&["STRLEN", "list2"]), Reply::Int(count), "{}", node.rack);
        assert_eq!(client.call(&["ZSCORE", "zset", "m"]), bulk("2"));
        assert_eq!(client.call(&["SISMEMBER", "set", "m"]), Reply::Int(1));
        let Reply::Int(left) = client.call(&["PTTL", "expires"]) else { panic!("no number") };
        assert!((1..=600_000).contains(&left), "{left}");
        assert_complete(node, KEYS);
    }
    assert_eq!(client_keys(&ring.nodes[new]), KEYS as i64 + 6);
}

#[test]
fn a_node_that_knows_nobody_serves_nobody_before_its_ring_has_found_it() {
    let Some(bin) = redis_bin("restarted without seeds") else { return };
    let (store, extra) = (Store::Redis(bin), String::new());
    let mut ring = Ring::start(Layout { dcs: vec![vec![2, 1]], store, extra });
    let mut client = ring.nodes[1].connect();
    for i in 0..100 {
        assert_eq!(client.call(&["SET", &format!("k{i}"), &i.to_string()]), ok());
    }
    for _ in 0..3 {
        // The first one has no seeds, and a neighbour that owns half of the rack's keys.
        ring.nodes[0].kill();
        ring.nodes[0].start();
        assert_complete(&ring.nodes[0], 100);
        ring.wait_settled();
    }
}

#[test]
fn a_place_has_one_holder_and_nobody_is_led_back_to_an_older_one() {
    let (store, extra) = (Store::Embedded, String::new());
    let mut ring = Ring::start(Layout { dcs: vec![vec![1, 1]], store, extra });
    let address = |ring: &Ring, n: usize| format!("127.0.0.1:{}", ring.nodes[n].peer);
    let old = address(&ring, 1);
    ring.nodes[1].kill();
    let heir = ring.add("dc1", "r2", 0);
    ring.wait_settled();
    // A seed list names the old address from now on, and is not believed.
    let seed = format!("  dyn_seeds:\n  - {old}:r2:dc1:0\n");
    ring.nodes[0].edit(|text| text + &seed);
    ring.nodes[0].signal("-HUP");
    let told = |ring: &Ring, text: &str| get(&ring.nodes[0], "/ring").1.contains(text);
    wait_until("it is told", || told(&ring, &format!("not believed to be at {old}")));
    ring.wait_settled();
    assert!(!told(&ring, &format!("to {old}")), "nobody is led back");
    // The newest process has the place; the other one says who, and refuses what it is asked.
    ring.nodes[1].start();
    let why = format!("a newer process at {old} holds its slot");
    wait_until(&why, || {
        let (status, page) = get(&ring.nodes[heir], "/ready");
        status == 503 && page.contains(&why)
    });
    assert!(ring.nodes[heir].connect().call(&["SET", "k", "v"]).is_error());
    let moved = format!("moved from {} to {old}", address(&ring, heir));
    wait_until(&moved, || told(&ring, &moved));
    ring.nodes[heir].kill();
    ring.wait_settled();
}

/// How many keys a node holds itself.
fn client_keys(node: &Node) -> i64 {
    match node.connect().call(&["TORC.LOCAL", "DBSIZE"]) {
        Reply::Int(keys) => keys,
        other => panic!("{other:?}"),
    }
}

/// All keys a scan of the ring finds, which changes after the first page.
fn scan_while(ring: &mut Ring, change: impl FnOnce(&mut Ring)) -> BTreeSet<String> {
    let mut client = ring.nodes[0].connect();
    let (mut cursor, mut found) = ("0".to_owned(), BTreeSet::new());
    let mut page = |cursor: &mut String| {
        let mut reply = Reply::Nil;
        // While a death is not noticed yet, its node cannot be asked.
        wait_until("a page", || {
            reply = client.call(&["SCAN", cursor.as_str(), "COUNT", "10"]);
            !reply.is_error()
        });
        let Reply::Array(parts) = reply else { panic!("{reply:?}") };
        let Reply::Array(keys) = &parts[1] else { panic!("{parts:?}") };
        found.extend(keys.iter().map(Reply::text));
        *cursor = parts[0].text();
        cursor == "0"
    };
    assert!(!page(&mut cursor), "there is more than a page");
    change(ring);
    while !page(&mut cursor) {}
    found
}

#[test]
fn a_scan_is_complete_while_nodes_join_and_die_and_come_back() {
    const KEYS: usize = 400;
    let (dcs, store) = (vec![vec![2, 1]], Store::Embedded);
    let mut ring = Ring::start(Layout { dcs, store, extra: String::new() });
    ring.nodes.iter().for_each(wait_filled);
    let mut client = ring.nodes[0].connect();
    for i in 0..KEYS {
        assert_eq!(client.call(&["SET", &format!("k{i}"), "v"]), ok());
    }
    let all: BTreeSet<String> = (0..KEYS).map(|i| format!("k{i}")).collect();
    let usable = |ring: &Ring, count: &str| {
        wait_until("it is noticed", || {
            ring.nodes[0].info("peers_usable").as_deref() == Some(count)
        });
    };
    for token in [1 << 30, 3 << 30] {
        let found = scan_while(&mut ring, |ring| {
            let before = ring.nodes.len();
            ring.add("dc1", "r1", token);
            usable(ring, &(before + 1).to_string());
        });
        assert_eq!(found, all);
    }
    let found = scan_while(&mut ring, |ring| {
        ring.nodes[1].kill();
        usable(ring, "4");
    });
    assert_eq!(found, all);
    assert_eq!(client.call(&["DBSIZE"]), Reply::Int(KEYS as i64), "counted in the other rack");
    let found = scan_while(&mut ring, |ring| {
        ring.nodes[1].start();
        usable(ring, "5");
    });
    assert_eq!(found, all);
    let Reply::Array(keys) = client.call(&["KEYS", "*"]) else { panic!("no list") };
    assert_eq!(keys.iter().map(Reply::text).collect::<BTreeSet<_>>(), all);
}
