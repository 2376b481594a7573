//! Random operations through random nodes at every level; then every datastore is read directly.

use std::collections::BTreeMap;

use torc::hash::{HashType, map_hash};

use crate::client::{Client, Reply, encode};
use crate::ring::{Layout, Node, Ring, Store, free_port, redis_bin, redis_process, wait_until};

const OPERATIONS: usize = 100_000;
const KEYS: u64 = 2_000;
const BATCH: usize = 500;

/// A generator good enough to draw operations: xorshift.
struct Draw(u64);

impl Draw {
    fn next(&mut self, below: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % below
    }
}

fn operation(draw: &mut Draw) -> Vec<String> {
    let key = draw.next(KEYS);
    let value = draw.next(1_000_000);
    // The kind of a key follows from its number, so that few operations are type errors.
    let words = match (key % 5, draw.next(10)) {
        (_, 0) => format!("DEL k{key}"),
        (0, 1..=3) => format!("GET k{key}"),
        (0, 4..=7) => format!("SET k{key} v{value}"),
        (0, _) => format!("APPEND k{key} +{value}"),
        (1, 1..=4) => format!("INCRBY k{key} {value}"),
        (1, _) => format!("DECR k{key}"),
        (2, 1..=4) => format!("HSET k{key} f{} {value} g {value}", value % 7),
        (2, 5..=6) => format!("HDEL k{key} f{}", value % 7),
        (2, _) => format!("HGET k{key} g"),
        (3, 1..=4) => format!("RPUSH k{key} {value}"),
        (3, 5..=6) => format!("LPOP k{key}"),
        (3, _) => format!("LRANGE k{key} 0 3"),
        (4.., 1..=4) => format!("SADD k{key} {}", value % 50),
        (4.., 5..=6) => format!("SREM k{key} {}", value % 50),
        (4.., _) => format!("SCARD k{key}"),
    };
    words.split(' ').map(str::to_owned).collect()
}

/// What a key holds, in a form that is equal for equal contents.
fn content(store: &mut Client, key: &str) -> Vec<String> {
    let kind = store.call(&["TYPE", key]).text();
    let mut lines: Vec<String> = match kind.as_str() {
        "string" => vec![store.call(&["GET", key]).text()],
        "list" => return list(store.call(&["LRANGE", key, "0", "-1"])),
        "set" => list(store.call(&["SMEMBERS", key])),
        "hash" => list(store.call(&["HGETALL", key])).chunks(2).map(|p| p.join("=")).collect(),
        other => vec![other.to_owned()],
    };
    lines.sort();
    lines
}

fn list(reply: Reply) -> Vec<String> {
    match reply {
        Reply::Array(items) => items.iter().map(Reply::text).collect(),
        other => vec![other.text()],
    }
}

fn all_keys(store: &mut Client) -> Vec<String> {
    let mut keys = list(store.call(&["KEYS", "*"]));
    keys.sort();
    keys
}

/// The owner of `key` among the nodes of one rack: the first token not below the key's, else the
/// first.
fn owner<'n>(rack: &[&'n Node], key: &str) -> &'n Node {
    let token = map_hash(HashType::Murmur, key.as_bytes()).low_word();
    let mut sorted = rack.to_vec();
    sorted.sort_by_key(|n| n.token);
    sorted.iter().copied().find(|n| n.token >= token).unwrap_or(sorted[0])
}

#[test]
fn every_key_lies_on_exactly_its_owners_at_every_level() {
    let Some(bin) = redis_bin("keys_land") else { return };
    let ring = Ring::start(Layout {
        dcs: vec![vec![2, 2, 2], vec![2]],
        store: Store::Redis(bin.clone()),
        extra: String::new(),
    });
    // The same operations on one redis-server tell what is right.
    let port = free_port();
    let _server = redis_process(&bin, port);
    let mut model = Client::connect(port);
    for (seed, level) in
        ["DC_ONE", "DC_QUORUM", "DC_SAFE_QUORUM", "DC_EACH_SAFE_QUORUM"].iter().enumerate()
    {
        run_level(&ring, &mut model, level, seed as u64 + 1);
        compare_stores(&ring, &mut model, level);
    }
}

/// Each key keeps to one coordinator, because the order of two coordinators' writes is theirs.
fn run_level(ring: &Ring, model: &mut Client, level: &str, seed: u64) {
    let mut draw = Draw(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    let mut clients: Vec<Client> = ring.nodes.iter().map(Node::connect).collect();
    for client in &mut clients {
        assert_eq!(client.call(&["TORC.CONSISTENCY", level]).text(), "OK");
    }
    for _ in 0..OPERATIONS / BATCH {
        let batch: Vec<Vec<String>> = (0..BATCH).map(|_| operation(&mut draw)).collect();
        let mut per_client: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
        for (i, words) in batch.iter().enumerate() {
            let number: usize = words[1][1..].parse().expect("key number");
            per_client.entry((number * 7 + seed as usize) % clients.len()).or_default().push(i);
        }
        for (client, mine) in &per_client {
            let bytes: Vec<u8> = mine.iter().flat_map(|i| encode(&batch[*i])).collect();
            clients[*client].send(&bytes).expect("sent");
        }
        model.send(&batch.iter().flat_map(|w| encode(w)).collect::<Vec<u8>>()).expect("sent");
        let right: Vec<Reply> = batch.iter().map(|_| model.reply().expect("model")).collect();
        for (client, mine) in &per_client {
            for i in mine {
                let reply = clients[*client].reply().expect("reply");
                assert_eq!(reply, right[*i], "{level}: {:?}", batch[*i]);
            }
        }
    }
}

fn compare_stores(ring: &Ring, model: &mut Client, level: &str) {
    let keys = all_keys(model);
    let mut racks: BTreeMap<(String, String), Vec<&Node>> = BTreeMap::new();
    for node in &ring.nodes {
        racks.entry((node.dc.clone(), node.rack.clone())).or_default().push(node);
    }
    let mut right: BTreeMap<u16, Vec<String>> = BTreeMap::new();
    for rack in racks.values() {
        for key in &keys {
            right.entry(owner(rack, key).redis_port).or_default().push(key.clone());
        }
    }
    for node in &ring.nodes {
        let mut store = node.connect_store();
        let mine = right.remove(&node.redis_port).unwrap_or_default();
        // Copies that nobody waits for may still be on their way.
        wait_until("copies arrive", || all_keys(&mut store) == mine);
        for key in &mine {
            let want = content(model, key);
            if content(&mut store, key) != want {
                let what = format!("{level}: {key} on {}/{}", node.dc, node.rack);
                wait_until(&what, || content(&mut store, key) == want);
            }
        }
    }
}
