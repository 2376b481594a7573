//! Bounds of a node's memory, seen from outside.

use crate::admin::metric;
use crate::client::{Client, Reply, bulk, encode, ok};
use crate::ring::{Layout, Node, Ring, Store, wait_until};

fn node(extra: &str) -> Ring {
    let (dcs, store) = (vec![vec![1]], Store::Embedded);
    Ring::start(Layout { dcs, store, extra: extra.to_owned() })
}

/// Sends all requests at once, and takes their answers.
fn all(client: &mut Client, requests: impl Iterator<Item = Vec<String>>) -> Vec<Reply> {
    let requests: Vec<Vec<u8>> = requests.map(|words| encode(&words)).collect();
    client.send(&requests.concat()).expect("sent");
    requests.iter().map(|_| client.reply().expect("a reply")).collect()
}

/// Fills a store beyond its bound, uses a few keys after all others, and writes on. How many of the
/// used ones are left.
fn favourites_left(node: &Node, value: &str) -> usize {
    const FAVOURITES: usize = 20;
    let mut client = node.connect();
    let write = |client: &mut Client, keys: std::ops::Range<usize>| {
        let set = |i: usize| vec!["SET".to_owned(), format!("k{i}"), value.to_owned()];
        assert!(all(client, keys.map(set)).iter().all(|reply| *reply == ok()));
    };
    let favourite = |i: usize| format!("favourite{i}");
    let read = |client: &mut Client| {
        let get = |i: usize| vec!["GET".to_owned(), favourite(i)];
        let replies = all(client, (0..FAVOURITES).map(get));
        replies.iter().filter(|reply| **reply == bulk(value)).count()
    };
    (0..24).for_each(|round| write(&mut client, round * 500..(round + 1) * 500));
    for i in 0..FAVOURITES {
        assert_eq!(client.call(&["SET", &favourite(i), value]), ok());
    }
    let idle = ["OBJECT", "IDLETIME", "favourite0"];
    wait_until(
        "nothing was used for a while",
        || matches!(client.call(&idle), Reply::Int(seconds) if seconds >= 1),
    );
    assert_eq!(read(&mut client), FAVOURITES);
    (24..30).for_each(|round| write(&mut client, round * 500..(round + 1) * 500));
    read(&mut client)
}

#[test]
fn the_embedded_store_keeps_within_its_bounds_and_what_is_used_stays() {
    let keys = node("  embedded: {keys_max: 10000}\n");
    let node_of_keys = &keys.nodes[0];
    assert_eq!(favourites_left(node_of_keys, "v"), 20);
    assert!(metric(node_of_keys, "torc_store_keys") <= 10_000);
    assert!(metric(node_of_keys, "torc_store_evicted_total") >= 5_000);
    let bytes = node("  embedded: {memory_bytes_max: 10mb}\n");
    let node_of_bytes = &bytes.nodes[0];
    assert_eq!(favourites_left(node_of_bytes, &"v".repeat(1000)), 20);
    assert!(metric(node_of_bytes, "torc_store_bytes") <= 10 << 20);
    assert!(metric(node_of_bytes, "torc_store_evicted_total") >= 3_000);
    let mut client = node_of_bytes.connect();
    assert!(client.call(&["DBSIZE"]).text().parse::<u64>().expect("keys") > 5000);
    let info = client.call(&["INFO"]).text();
    let field = |name: &str| -> u64 {
        let value = info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        value.and_then(|value| value.parse().ok()).unwrap_or_else(|| panic!("{name} in {info}"))
    };
    assert_eq!(field("maxmemory"), 10 << 20);
    assert!(field("used_memory") <= 10 << 20 && field("evicted_keys") >= 3_000);
    assert!(field("keyspace_hits") >= 40);
    let bound = client.call(&["CONFIG", "GET", "maxmemory"]).text();
    assert_eq!(bound, format!("maxmemory\n{}", 10 << 20));
}

/// Megabytes of address space.
fn size_mb(node: &Node) -> u64 {
    let id = node.process.as_ref().expect("it runs").id();
    let status = std::fs::read_to_string(format!("/proc/{id}/status")).expect("its status");
    let line = status.lines().find_map(|line| line.strip_prefix("VmSize:")).expect("a size");
    line.trim().trim_end_matches(" kB").parse::<u64>().expect("kilobytes") / 1024
}

#[test]
fn memory_follows_what_is_sent_and_not_what_is_announced() {
    let redis = node("");
    let memcache = Ring::start(Layout {
        dcs: vec![vec![1]],
        store: Store::EmbeddedMemcache,
        extra: "  data_store: 1\n".into(),
    });
    let beginnings = [
        (&redis.nodes[0], "*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$500000000\r\nx"),
        (&redis.nodes[0], "*1000000\r\n$4\r\nMGET\r\n$1\r\nk\r\n"),
        (&memcache.nodes[0], "set k 0 0 500000000\r\nx"),
    ];
    for (node, beginning) in beginnings {
        let held = || metric(node, "torc_buffers_bytes") as usize;
        wait_until("nothing is kept", || held() == 0);
        let before = size_mb(node);
        let mut clients: Vec<Client> = (0..100).map(|_| Client::connect(node.client)).collect();
        for client in &mut clients {
            client.send(beginning.as_bytes()).expect("sent");
        }
        wait_until("all are heard", || held() == 100 * beginning.len());
        let grown = size_mb(node).saturating_sub(before);
        assert!(grown < 1000, "{beginning:?}: {grown} MB for 100 clients");
    }
}
