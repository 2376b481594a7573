//! Values that stay in the datacenter of their writer, and are read from everywhere.

use crate::admin::{metric, page};
use crate::client::{Client, Reply, bulk, encode};
use crate::ring::{Layout, Node, Ring, Store, redis_bin, wait_until};

pub(crate) const EXTRA: &str = "  affinity:\n    mode: route\n    expected_keys: 20000\n    \
                     write_replication: local_dc\n  bucket_types:\n  \
                     - {name: kv, immutable: true}\n";

/// Values written in each datacenter.
const VALUES: usize = 2000;
/// The same where reads and requests to other datacenters are counted.
const MANY: usize = 10_000;

pub(crate) fn keys(dc: &str) -> Vec<String> {
    keys_of(dc, VALUES)
}

fn keys_of(dc: &str, count: usize) -> Vec<String> {
    (0..count).map(|n| format!("kv/{dc}/{n}")).collect()
}

/// Requests on their way at once: more than a worker sends to one other datacenter.
const AT_ONCE: usize = 1000;

/// Sends all requests, many at once; gives the replies.
fn all(client: &mut Client, requests: impl Iterator<Item = Vec<String>>) -> Vec<Reply> {
    let requests: Vec<Vec<String>> = requests.collect();
    let mut replies = Vec::new();
    for some in requests.chunks(AT_ONCE) {
        let bytes: Vec<u8> = some.iter().flat_map(|request| encode(request)).collect();
        client.send(&bytes).expect("sent");
        replies.extend(some.iter().map(|_| client.reply().expect("a reply")));
    }
    replies
}

pub(crate) fn write(node: &Node, keys: &[String]) {
    let set = |key: &String| vec!["SET".to_owned(), key.clone(), format!("value of {key}")];
    let replies = all(&mut node.connect(), keys.iter().map(set));
    assert!(replies.iter().all(|reply| *reply == Reply::Simple("OK".into())));
}

fn read(node: &Node, keys: &[String]) -> Vec<Reply> {
    let get = |key: &String| vec!["GET".to_owned(), key.clone()];
    all(&mut node.connect(), keys.iter().map(get))
}

pub(crate) fn assert_right(node: &Node, keys: &[String]) {
    for (key, reply) in keys.iter().zip(read(node, keys)) {
        assert_eq!(reply, bulk(format!("value of {key}")), "{key}");
    }
}

/// What TORC.WHERE says of a key, sorted by datacenter.
pub(crate) fn place(node: &Node, key: &str) -> Vec<String> {
    let Ok(mut client) = Client::try_connect(node.client) else { return Vec::new() };
    let Ok(Reply::Array(keys)) = client.try_call(&["TORC.WHERE", key]) else { return Vec::new() };
    let Reply::Array(dcs) = &keys[0] else { panic!("an array of datacenters") };
    let mut words: Vec<String> =
        dcs.iter().map(|dc| dc.text().replace('\n', " ").replace("yes", "maybe")).collect();
    words.sort_unstable();
    words
}

/// Waits until every running node knows all values of both datacenters.
pub(crate) fn wait_known(ring: &Ring) {
    wait_known_of(ring, VALUES);
}

fn wait_known_of(ring: &Ring, count: usize) {
    for node in ring.nodes.iter().filter(|node| node.process.is_some()) {
        for dc in ["dc1", "dc2"] {
            let ask: Vec<String> =
                std::iter::once("TORC.WHERE".to_owned()).chain(keys_of(dc, count)).collect();
            let held = |reply: Reply| {
                let Reply::Array(keys) = reply else { return false };
                keys.iter().map(Reply::text).all(|text| {
                    let text = text.replace('\n', " ").replace("yes", "maybe");
                    text.contains(&format!("{dc} maybe")) && !text.contains("unknown")
                })
            };
            wait_until("the filters are told", || {
                let client = Client::try_connect(node.client);
                client.and_then(|mut client| client.try_call(&ask)).is_ok_and(held)
            });
        }
    }
}

/// Reads and requests to other datacenters so far.
fn figures(node: &Node) -> [u64; 4] {
    [
        "torc_affinity_remote_total",
        "torc_affinity_hits_total",
        "torc_affinity_false_positives_total",
        "torc_requests_remote_total",
    ]
    .map(|name| metric(node, name))
}

fn since(node: &Node, before: [u64; 4]) -> [u64; 4] {
    let now = figures(node);
    std::array::from_fn(|i| now[i] - before[i])
}

#[test]
fn values_are_read_where_they_are_and_absent_ones_nowhere_else() {
    let (dcs, extra) = (vec![vec![2], vec![2]], EXTRA.to_owned());
    let ring = Ring::start(Layout { dcs, store: Store::Embedded, extra });
    let (here, there) = (keys_of("dc1", MANY), keys_of("dc2", MANY));
    write(&ring.nodes[0], &here);
    write(&ring.nodes[3], &there);
    wait_known_of(&ring, MANY);
    for (node, own, other) in [(0, &here, &there), (1, &here, &there), (2, &there, &here)] {
        let node = &ring.nodes[node];
        let before = figures(node);
        assert_right(node, own);
        assert_right(node, other);
        let [remote, hits, wrong, requests] = since(node, before);
        assert_eq!(hits, MANY as u64, "every key that is only there, once");
        assert_eq!((remote, requests), (hits + wrong, hits + wrong));
        // Absent keys are missed here, save where a filter is wrong.
        let before = figures(node);
        let absent: Vec<String> = (0..MANY).map(|n| format!("kv/none/{n}")).collect();
        assert!(read(node, &absent).iter().all(|reply| *reply == Reply::Nil));
        let [remote, _, wrong, requests] = since(node, before);
        assert_eq!((remote, requests), (wrong, wrong));
        assert!(wrong < 50, "{wrong} of {MANY} absent keys seem to be there");
        // Many keys at once: grouped by datacenter.
        let before = figures(node);
        let mixed: Vec<String> =
            own.iter().zip(other).take(50).flat_map(|(a, b)| [a.clone(), b.clone()]).collect();
        let mget: Vec<String> = std::iter::once("MGET".to_owned()).chain(mixed.clone()).collect();
        let Reply::Array(values) = node.connect().call(&mget) else { panic!("an array") };
        for (key, value) in mixed.iter().zip(values) {
            assert_eq!(value, bulk(format!("value of {key}")));
        }
        assert!(since(node, before)[0] <= 6, "a few groups, not fifty requests");
        let plan = node.connect().call(&["TORC.PLAN", "GET", &other[7]]).text();
        let other_dc = if node.dc == "dc1" { "dc2" } else { "dc1" };
        assert!(plan.contains(&format!("read in {other_dc}")), "{plan}");
        assert!(plan.contains("(peer; answers)"), "{plan}");
        assert!(plan.contains("asked if the key is not there"), "{plan}");
        let plan = node.connect().call(&["TORC.PLAN", "GET", "kv/none/0"]).text();
        assert!(plan.contains("no datacenter holds it; read in"), "{plan}");
        let plan = node.connect().call(&["TORC.PLAN", "SET", &own[7], "v"]).text();
        assert!(plan.contains("its values stay in this datacenter"), "{plan}");
    }
    // A delete goes everywhere.
    let gone = &there[..100];
    let del: Vec<String> = std::iter::once("DEL".to_owned()).chain(gone.to_vec()).collect();
    ring.nodes[0].connect().call(&del);
    wait_until("deleted keys are gone", || {
        read(&ring.nodes[2], gone).iter().all(|reply| *reply == Reply::Nil)
    });
    wait_until("and known to be", || place(&ring.nodes[0], &gone[0]) == ["dc1 no", "dc2 no"]);
    assert!(read(&ring.nodes[1], gone).iter().all(|reply| *reply == Reply::Nil));
}

#[test]
fn a_datacenter_that_is_gone_does_not_hide_what_another_one_holds() {
    let (dcs, extra) = (vec![vec![1], vec![1], vec![1]], EXTRA.to_owned());
    let mut ring = Ring::start(Layout { dcs, store: Store::Embedded, extra });
    // Keys so long that a command of many of them is no small one.
    let long: Vec<String> = (0..600).map(|n| format!("kv/{n:0>60}")).collect();
    write(&ring.nodes[1], &long);
    write(&ring.nodes[2], &long);
    let held = ["dc1 no", "dc2 maybe", "dc3 maybe"];
    wait_until("both are known to hold them", || {
        long.iter().all(|key| place(&ring.nodes[0], key) == held)
    });
    let page = page(&ring.nodes[0], "GET", "/affinity").1;
    let loads = page.matches("\"load\":0.0").count();
    assert_eq!(loads, 4, "of each lane, and of the own exact state: {page}");
    let age = metric(&ring.nodes[0], "torc_affinity_lane_age_ms{lane=\"keys/dc2\"}");
    let load = metric(&ring.nodes[0], "torc_affinity_lane_load_percent{lane=\"keys/dc3\"}");
    assert!(age < 30_000 && (1..10).contains(&load), "{age} ms, {load} %");
    let mget: Vec<String> = std::iter::once("MGET".to_owned()).chain(long.clone()).collect();
    let read_many = |node: &Node| {
        let Reply::Array(values) = node.connect().call(&mget) else { panic!("an array") };
        for (key, value) in long.iter().zip(values) {
            assert_eq!(value, bulk(format!("value of {key}")));
        }
    };
    let before = figures(&ring.nodes[0]);
    read_many(&ring.nodes[0]);
    assert!((1..4).contains(&since(&ring.nodes[0], before)[0]), "a few requests");
    // Its filter is believed for a while, but it cannot be asked.
    ring.nodes[1].kill();
    assert_right(&ring.nodes[0], &long);
    read_many(&ring.nodes[0]);
}

fn publishes(node: &Node) -> bool {
    page(node, "GET", "/affinity").1.contains("\"publishes\":true")
}

#[test]
fn reads_stay_right_while_nodes_and_datacenters_go_and_come() {
    let (dcs, extra) = (vec![vec![2], vec![1]], EXTRA.to_owned());
    let mut ring = Ring::start(Layout { dcs, store: Store::Embedded, extra });
    let (here, there) = (keys("dc1"), keys("dc2"));
    write(&ring.nodes[0], &here);
    write(&ring.nodes[2], &there);
    wait_known(&ring);
    let publisher = usize::from(!publishes(&ring.nodes[0]));
    assert!(publishes(&ring.nodes[publisher]));

    // The publisher of one datacenter dies, and its part of the values with it.
    ring.nodes[publisher].kill();
    let rest = &ring.nodes[1 - publisher];
    assert_right(rest, &there);
    wait_until("the standby publishes", || publishes(rest));
    wait_until("and is believed", || place(&ring.nodes[2], "kv/none") == ["dc1 no", "dc2 no"]);
    assert_right(rest, &there);
    let right = |node: &Node, keys: &[String]| {
        let replies = read(node, keys);
        let missing = replies.iter().filter(|reply| **reply == Reply::Nil).count();
        for (key, reply) in keys.iter().zip(replies) {
            assert!(reply == Reply::Nil || reply == bulk(format!("value of {key}")), "{reply:?}");
        }
        missing
    };
    let lost = right(&ring.nodes[2], &here);
    assert!(lost > 0 && lost < VALUES, "{lost} of {VALUES} went with the node");

    // It comes back empty; what is written again is found again.
    ring.nodes[publisher].start();
    ring.wait_settled();
    write(&ring.nodes[1 - publisher], &here);
    wait_known(&ring);
    assert_right(&ring.nodes[2], &here);
    let body = page(&ring.nodes[publisher], "POST", "/affinity/rebuild");
    assert_eq!(body.0, 200, "it publishes by right: {}", body.1);
    wait_known(&ring);
    assert_right(&ring.nodes[2], &here);

    // The other datacenter dies: its values are missed, and nothing fails.
    ring.nodes[2].kill();
    for node in &ring.nodes[..2] {
        right(node, &there);
        assert_right(node, &here);
    }
}

#[test]
fn redis_stores_are_followed_whatever_happens_to_them() {
    let Some(bin) = redis_bin("redis_stores_are_followed") else { return };
    let (dcs, extra) = (vec![vec![1], vec![1]], EXTRA.to_owned());
    let mut ring = Ring::start(Layout { dcs, store: Store::Redis(bin.clone()), extra });
    let (here, there) = (keys("dc1"), keys("dc2"));
    write(&ring.nodes[0], &here);
    write(&ring.nodes[1], &there);
    wait_known(&ring);
    let before = figures(&ring.nodes[0]);
    assert_right(&ring.nodes[0], &here);
    assert_right(&ring.nodes[0], &there);
    let [remote, hits, wrong, requests] = since(&ring.nodes[0], before);
    assert_eq!((hits, remote, requests), (VALUES as u64, hits + wrong, hits + wrong));

    // Behind the node's back: keys come, expire, are deleted, renamed and emptied.
    let mut store = ring.nodes[1].connect_store();
    store.call(&["SET", "kv/behind", "v"]);
    store.call(&["SET", "kv/short", "v", "PX", "300"]);
    store.call(&["DEL", &there[0]]);
    store.call(&["RENAME", &there[1], "kv/renamed"]);
    store.call(&["RPUSH", "kv/list", "a"]);
    let held = |key: &str, word: &str| place(&ring.nodes[0], key) == ["dc1 no", word];
    for key in ["kv/behind", "kv/renamed", "kv/list"] {
        wait_until("it came", || held(key, "dc2 maybe"));
    }
    assert_eq!(ring.nodes[0].connect().call(&["GET", "kv/behind"]), bulk("v"));
    store.call(&["LPOP", "kv/list"]);
    for key in ["kv/short", "kv/list", there[0].as_str(), there[1].as_str()] {
        wait_until("it went", || held(key, "dc2 no"));
    }
    assert_events_told(&ring.nodes[1]);
    // A flush tells nothing: the number of keys does.
    store.call(&["FLUSHALL"]);
    wait_until("the flush is noticed", || held(&there[5], "dc2 no"));
    assert!(read(&ring.nodes[0], &there).iter().all(|reply| *reply == Reply::Nil));
    assert_right(&ring.nodes[1], &here);
    // So does a lost connection.
    write(&ring.nodes[1], &there);
    store.call(&["CLIENT", "KILL", "TYPE", "pubsub"]);
    wait_known(&ring);
    assert_right(&ring.nodes[0], &there);
    // While the store is away nothing is said of what it holds; this one comes back empty.
    ring.nodes[1].redis = None;
    let there_is = |ring: &Ring, word: &str| place(&ring.nodes[0], &there[5]) == ["dc1 no", word];
    wait_until("nothing is said of it", || there_is(&ring, "dc2 unknown"));
    assert_right(&ring.nodes[0], &here);
    ring.nodes[1].start_redis(&bin);
    wait_until("it is empty", || there_is(&ring, "dc2 no"));
    assert_right(&ring.nodes[0], &here);
}

/// Whatever happened in a node's store, its events told of it: it was not listed again.
fn assert_events_told(node: &Node) {
    assert!(!node.log().contains("the store changed without events"), "{}", node.log());
}

/// Whether the node's own store holds a key.
fn stored(node: &Node, key: &str) -> bool {
    let reply = node.connect().call(&["TORC.LOCAL", "EXISTS", key]);
    reply == Reply::Int(1)
}

#[test]
fn values_that_were_fetched_are_stored_here_too_and_deleted_ones_stay_deleted() {
    let extra = EXTRA.replace("local_dc\n", "local_dc\n    backfill: true\n");
    let stores = [Some(Store::Embedded), redis_bin("values_that_were_fetched").map(Store::Redis)];
    for store in stores.into_iter().flatten() {
        let (dcs, extra) = (vec![vec![1], vec![1]], extra.clone());
        let ring = Ring::start(Layout { dcs, store, extra });
        let (near, far) = (&ring.nodes[0], &ring.nodes[1]);
        write(&ring.nodes[0], &keys("dc1"));
        write(far, &keys("dc2"));
        let (ends, never) = ("kv/dc2/ends", "kv/dc2/0");
        far.connect().call(&["SET", ends, "v", "PX", "600000"]);
        wait_known(&ring);
        wait_until("it is known", || place(near, ends) == ["dc1 no", "dc2 maybe"]);
        for key in [ends, never] {
            assert!(!stored(near, key));
            assert!(matches!(near.connect().call(&["GET", key]), Reply::Bulk(_)));
            wait_until("it is stored here too", || stored(near, key));
        }
        let left = |node: &Node, key: &str| match node.connect().call(&["TORC.LOCAL", "PTTL", key])
        {
            Reply::Int(left) => left,
            other => panic!("{other:?}"),
        };
        let (here, there) = (left(near, ends), left(far, ends));
        assert!(here > 0 && (here - there).abs() < 60_000, "{here} {there}");
        assert_eq!(left(near, never), -1);
        wait_until("the filters tell", || place(near, never) == ["dc1 maybe", "dc2 maybe"]);
        let before = figures(near);
        assert_eq!(near.connect().call(&["GET", never]), bulk(format!("value of {never}")));
        assert_eq!(since(near, before)[3], 0, "it is read here now");

        // So are those of a command of many keys.
        let many = &keys("dc2")[10..60];
        let mget: Vec<String> = std::iter::once("MGET".to_owned()).chain(many.to_vec()).collect();
        near.connect().call(&mget);
        wait_until("all are stored here too", || many.iter().all(|key| stored(near, key)));

        // Values are fetched on one side while they are deleted on the other.
        let racing = &keys("dc2")[100..1100];
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let get = |keys: &[String]| match keys {
                    [key] => vec!["GET".to_owned(), key.clone()],
                    _ => std::iter::once("MGET".to_owned()).chain(keys.to_vec()).collect(),
                };
                let requests = racing.chunks(8).flat_map(|some| {
                    let (one, rest) = some.split_at(1);
                    [one, rest].into_iter().filter(|keys| !keys.is_empty()).map(get)
                });
                all(&mut near.connect(), requests)
            });
            scope.spawn(|| {
                let del = |key: &String| vec!["DEL".to_owned(), key.clone()];
                all(&mut far.connect(), racing.iter().map(del))
            });
        });
        wait_until("deleted keys are gone for good", || {
            [near, far].iter().all(|node| !racing.iter().any(|key| stored(node, key)))
        });
        assert!(read(near, racing).iter().all(|reply| *reply == Reply::Nil));
        let page = page(near, "GET", "/affinity").1;
        assert!(page.contains("\"backfills\":"), "{page}");
    }
}

#[test]
fn what_a_full_redis_store_evicts_is_known_to_be_gone() {
    let Some(bin) = redis_bin("what_a_full_redis_store_evicts") else { return };
    evicted_keys_are_known_to_be_gone(Store::Redis(bin));
}

pub(crate) fn evicted_keys_are_known_to_be_gone(store: Store) {
    let (dcs, extra) = (vec![vec![1], vec![1]], EXTRA.to_owned());
    let ring = Ring::start(Layout { dcs, store, extra });
    let there = keys("dc2");
    write(&ring.nodes[0], &keys("dc1"));
    write(&ring.nodes[1], &there);
    wait_known(&ring);
    // Behind the node's back: the limit is set below what is there, and more is written.
    let mut store = ring.nodes[1].connect_store();
    let used = store.call(&["INFO", "memory"]).text();
    let used = used.lines().find_map(|line| line.strip_prefix("used_memory:")).expect("a number");
    let used: u64 = used.trim().parse().expect("a number");
    store.call(&["CONFIG", "SET", "maxmemory-policy", "allkeys-lru"]);
    store.call(&["CONFIG", "SET", "maxmemory", &(used - 60_000).to_string()]);
    store.call(&["SET", "kv/more", "v"]);
    // Buffers of connections count too: no more is to go while this is looked at.
    store.call(&["CONFIG", "SET", "maxmemory", "0"]);
    let mut held = |keys: &[String]| -> Vec<bool> {
        let mut holds = |key: &String| store.call(&["EXISTS", key]) == Reply::Int(1);
        keys.iter().map(&mut holds).collect()
    };
    let left = held(&there);
    let gone = left.iter().filter(|held| !**held).count();
    assert!(gone > 10 && gone < VALUES, "{gone} of {VALUES} were evicted");
    wait_until("the filters know which", || {
        let told = |key: &String| place(&ring.nodes[0], key)[1] == "dc2 maybe";
        let (told, held): (Vec<bool>, Vec<bool>) = (there.iter().map(told).collect(), held(&there));
        // A filter may be wrong about one that is gone, never about one that is there.
        let wrong = told.iter().zip(&held).filter(|(told, held)| told != held);
        let missed = told.iter().zip(&held).any(|(told, held)| *held && !*told);
        !missed && wrong.count() <= 3
    });
    assert_events_told(&ring.nodes[1]);
    let replies = read(&ring.nodes[0], &there);
    for ((key, reply), held) in there.iter().zip(replies).zip(held(&there)) {
        let value = bulk(format!("value of {key}"));
        assert_eq!(reply, if held { value } else { Reply::Nil }, "{key}");
    }
}

#[test]
fn a_redis_store_that_may_not_be_told_to_tell_is_named_and_reads_go_on() {
    let Some(bin) = redis_bin("a_redis_store_that_may_not_be_told") else { return };
    let (dcs, extra) = (vec![vec![1], vec![1]], EXTRA.to_owned());
    let ring = Ring::start(Layout { dcs, store: Store::Redis(bin), extra });
    write(&ring.nodes[0], &keys("dc1"));
    write(&ring.nodes[1], &keys("dc2"));
    wait_known(&ring);
    let mut store = ring.nodes[1].connect_store();
    store.call(&["ACL", "SETUSER", "admin", "on", ">secret", "~*", "&*", "+@all"]);
    assert!(!store.call(&["AUTH", "admin", "secret"]).is_error());
    store.call(&["CONFIG", "SET", "notify-keyspace-events", ""]);
    assert!(!store.call(&["ACL", "SETUSER", "default", "-config", "+config|get"]).is_error());
    store.call(&["CLIENT", "KILL", "TYPE", "pubsub"]);
    let said = "CONFIG SET notify-keyspace-events; affinity needs the flags Engxe there";
    wait_until("the log says what is missing", || {
        ring.nodes[1].log().contains(said) && ring.nodes[1].log().contains("NOPERM")
    });
    let key = "kv/dc2/3";
    wait_until("nothing is said of it", || place(&ring.nodes[0], key) == ["dc1 no", "dc2 unknown"]);
    assert_right(&ring.nodes[1], &keys("dc2"));
    assert_right(&ring.nodes[0], &keys("dc1"));
    // The operator sets the flags: nothing else is needed.
    store.call(&["CONFIG", "SET", "notify-keyspace-events", "Engxe"]);
    store.call(&["SET", "kv/after", "v"]);
    wait_until("it is followed again", || {
        place(&ring.nodes[0], "kv/after") == ["dc1 no", "dc2 maybe"]
    });
    assert_right(&ring.nodes[0], &keys("dc2"));
}
