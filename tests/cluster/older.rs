//! Datastores that tell less than Redis 7.0 does of what they hold.

use std::path::PathBuf;

use crate::admin::{metric, page};
use crate::client::{Client, Reply, bulk};
use crate::old_store::{Lacks, redis_old_bin};
use crate::ring::{Layout, Node, Ring, Store, redis_bin, wait_until};
use crate::routed::{
    EXTRA, assert_right, evicted_keys_are_known_to_be_gone, keys, place, wait_known, write,
};

/// Rescans long after the test, and often.
const SELDOM: &str = "  affinity:\n    rescan_after_ms: 3600000\n";
const OFTEN: &str = "  affinity:\n    rescan_after_ms: 1000\n";

fn ring(store: &Store, rescans: &str) -> Ring {
    let extra = EXTRA.replacen("  affinity:\n", rescans, 1);
    Ring::start(Layout { dcs: vec![vec![1], vec![1]], store: store.clone(), extra })
}

/// Older stores there are: played by the one at hand, and a real one.
fn older_stores(test: &str) -> Vec<Store> {
    let play = |bin: PathBuf| [Lacks::New, Lacks::Resp3].map(|it| Store::OldRedis(bin.clone(), it));
    let played = redis_bin(test).into_iter().flat_map(play);
    played.chain(redis_old_bin(test).map(Store::Redis)).collect()
}

fn told(node: &Node, key: &str, word: &str) {
    wait_until(&format!("{key}: {word}"), || {
        place(node, key) == ["dc1 no".to_owned(), format!("dc2 {word}")]
    });
}

/// The first number of a store's version.
fn major_version(client: &mut Client) -> u32 {
    let info = client.call(&["INFO", "server"]).text();
    let version = info.split("redis_version:").nth(1).and_then(|rest| rest.split('.').next());
    version.and_then(|number| number.parse().ok()).expect("a version")
}

fn wait_page(node: &Node, words: &str) {
    wait_until(words, || page(node, "GET", "/affinity").1.contains(words));
}

/// Waits until a node's store was listed so often because it had to be, or more often.
fn wait_relistings(node: &Node, times: u64) {
    let name = "torc_affinity_relistings_total";
    wait_until("the store is listed", || metric(node, name) >= times);
}

/// What makes a key appear, by type and by other keys.
const APPEAR: &[&[&str]] = &[
    &["SET", "kv/set", "v"],
    &["SETNX", "kv/setnx", "v"],
    &["MSET", "kv/mset", "v"],
    &["APPEND", "kv/append", "v"],
    &["SETRANGE", "kv/setrange", "3", "v"],
    &["SETBIT", "kv/setbit", "3", "1"],
    &["BITFIELD", "kv/bitfield", "SET", "u8", "0", "1"],
    &["INCR", "kv/incr"],
    &["INCRBYFLOAT", "kv/incrbyfloat", "1.5"],
    &["GETSET", "kv/getset", "v"],
    &["SETEX", "kv/setex", "600", "v"],
    &["PFADD", "kv/pfadd", "v"],
    &["PFMERGE", "kv/pfmerge", "kv/pfadd"],
    &["BITOP", "NOT", "kv/bitop", "kv/set"],
    &["HSET", "kv/hset", "f", "v"],
    &["HSETNX", "kv/hsetnx", "f", "v"],
    &["HINCRBY", "kv/hincrby", "f", "1"],
    &["HINCRBYFLOAT", "kv/hincrbyfloat", "f", "1"],
    &["LPUSH", "kv/lpush", "a", "b"],
    &["RPUSH", "kv/rpush", "a", "b"],
    &["RPOPLPUSH", "kv/lpush", "kv/rpoplpush"],
    &["SADD", "kv/sadd", "1", "2"],
    &["SMOVE", "kv/sadd", "kv/smove", "1"],
    &["SUNIONSTORE", "kv/sunionstore", "kv/sadd"],
    &["SINTERSTORE", "kv/sinterstore", "kv/sadd"],
    &["SDIFFSTORE", "kv/sdiffstore", "kv/sadd"],
    &["SORT", "kv/sadd", "STORE", "kv/sort"],
    &["ZADD", "kv/zadd", "1", "a"],
    &["ZINCRBY", "kv/zincrby", "1", "a"],
    &["ZUNIONSTORE", "kv/zunionstore", "1", "kv/zadd"],
    &["ZINTERSTORE", "kv/zinterstore", "1", "kv/zadd"],
    &["GEOADD", "kv/geoadd", "1", "1", "a"],
    &["GEORADIUS", "kv/geoadd", "1", "1", "9", "m", "STORE", "kv/georadius"],
    &["XADD", "kv/xadd", "*", "f", "v"],
    &["XGROUP", "CREATE", "kv/xgroup", "g", "$", "MKSTREAM"],
    &["EVAL", "redis.call('SET', KEYS[1], 'v')", "1", "kv/eval"],
    &["RENAME", "kv/mset", "kv/rename"],
    &["RENAMENX", "kv/setnx", "kv/renamenx"],
];

/// What came with Redis 6.2.
const APPEAR_LATER: &[&[&str]] = &[
    &["COPY", "kv/hset", "kv/copy"],
    &["LMOVE", "kv/rpush", "kv/lmove", "LEFT", "LEFT"],
    &["ZDIFFSTORE", "kv/zdiffstore", "1", "kv/zadd"],
    &["ZRANGESTORE", "kv/zrangestore", "kv/zadd", "0", "-1"],
    &["GEOSEARCHSTORE", "kv/geosearch", "kv/geoadd", "FROMMEMBER", "a", "BYRADIUS", "9", "m"],
];

/// What makes a key go, and which.
const GO: &[(&[&str], &str)] = &[
    (&["DEL", "kv/set"], "kv/set"),
    (&["UNLINK", "kv/append"], "kv/append"),
    (&["PEXPIRE", "kv/setrange", "1"], "kv/setrange"),
    (&["EXPIREAT", "kv/setbit", "1"], "kv/setbit"),
    (&["HDEL", "kv/hset", "f"], "kv/hset"),
    (&["RPOP", "kv/lpush"], "kv/lpush"),
    (&["LTRIM", "kv/rpoplpush", "5", "9"], "kv/rpoplpush"),
    (&["LREM", "kv/sort", "0", "2"], "kv/sort"),
    (&["SREM", "kv/smove", "1"], "kv/smove"),
    (&["SPOP", "kv/sadd"], "kv/sadd"),
    (&["SPOP", "kv/sunionstore", "9"], "kv/sunionstore"),
    (&["ZREM", "kv/zincrby", "a"], "kv/zincrby"),
    (&["ZPOPMIN", "kv/zunionstore"], "kv/zunionstore"),
    (&["ZREMRANGEBYRANK", "kv/zinterstore", "0", "-1"], "kv/zinterstore"),
    (&["ZREMRANGEBYSCORE", "kv/zadd", "-inf", "+inf"], "kv/zadd"),
    (&["RENAME", "kv/incr", "kv/incr2"], "kv/incr"),
    (&["EVAL", "redis.call('DEL', KEYS[1])", "1", "kv/eval"], "kv/eval"),
    (&["SINTERSTORE", "kv/sdiffstore", "kv/sinterstore", "kv/setex2"], "kv/sdiffstore"),
];

#[test]
fn older_stores_are_followed_by_what_they_tell() {
    for store in older_stores("older_stores_are_followed_by_what_they_tell") {
        let ring = ring(&store, SELDOM);
        let (near, far) = (&ring.nodes[0], &ring.nodes[1]);
        write(near, &keys("dc1"));
        write(far, &keys("dc2"));
        wait_known(&ring);
        assert_right(near, &keys("dc2"));
        wait_page(far, "\"followed_by\":\"older events and rescans\"");
        wait_relistings(far, 1);

        // Behind the node's back.
        let mut client = far.connect_store();
        let version = major_version(&mut client);
        for command in APPEAR.iter().chain(APPEAR_LATER) {
            let reply = client.call(command);
            let is_known = version >= 5 && !APPEAR_LATER.contains(command);
            assert!(!reply.is_error() || !is_known, "{command:?} {reply:?}");
        }
        let dumped = client.call(&["DUMP", "kv/hsetnx"]);
        let Reply::Bulk(dumped) = dumped else { panic!("{dumped:?}") };
        assert!(!client.call(&[&b"RESTORE"[..], b"kv/restore", b"0", &dumped]).is_error());
        for command in APPEAR.iter().chain(APPEAR_LATER) {
            let names = command.iter().filter(|word| word.starts_with("kv/"));
            for name in names {
                let there = client.call(&["EXISTS", name]) == Reply::Int(1);
                told(near, name, if there { "maybe" } else { "no" });
            }
        }
        told(near, "kv/restore", "maybe");
        assert_eq!(near.connect().call(&["GET", "kv/setex"]), bulk("v"));
        for (command, key) in GO {
            let reply = client.call(command);
            assert!(!reply.is_error() || version < 5, "{command:?} {reply:?}");
            if reply.is_error() {
                continue;
            }
            told(near, key, "no");
            assert_eq!(near.connect().call(&["EXISTS", key]), Reply::Int(0));
        }
        told(near, "kv/incr2", "maybe");
        // Before Redis 6.0 some tell nothing, RESTORE among them: the number of keys does.
        wait_relistings(far, if version < 6 { 2 } else { 1 });
        let listed = metric(far, "torc_affinity_relistings_total");
        assert!(listed == 1 || version < 6, "all was told");

        // A flush tells nothing: the number of keys does.
        client.call(&["FLUSHALL"]);
        told(near, &keys("dc2")[5], "no");
        // A lost subscription is a gap, after which the store is listed.
        write(far, &keys("dc2"));
        client.call(&["CLIENT", "KILL", "TYPE", "pubsub"]);
        wait_known(&ring);
        assert_right(near, &keys("dc2"));
        wait_relistings(far, listed + 1);
    }
}

#[test]
fn what_an_older_store_evicts_is_known_to_be_gone() {
    let stores = older_stores("what_an_older_store_evicts").into_iter();
    stores.for_each(evicted_keys_are_known_to_be_gone);
}

#[test]
fn what_an_older_store_keeps_silent_about_is_mended_by_the_next_rescan() {
    for store in older_stores("what_an_older_store_keeps_silent_about") {
        let ring = ring(&store, OFTEN);
        let (near, far) = (&ring.nodes[0], &ring.nodes[1]);
        write(far, &keys("dc2"));
        wait_known_there(near);
        let mut client = far.connect_store();
        let flags = client.call(&["CONFIG", "GET", "notify-keyspace-events"]).text();
        let flags = flags.lines().last().expect("the flags").to_owned();
        wait_relistings(far, 1);
        // One comes and one goes, with no event, and the number of keys stays.
        client.call(&["MULTI"]);
        for command in [
            &["CONFIG", "SET", "notify-keyspace-events", ""][..],
            &["SET", "kv/silent", "v"],
            &["DEL", &keys("dc2")[3]],
            &["CONFIG", "SET", "notify-keyspace-events", &flags],
        ] {
            assert!(!client.call(command).is_error(), "{command:?}");
        }
        assert!(!client.call(&["EXEC"]).text().contains("ERR"));
        told(near, "kv/silent", "maybe");
        told(near, &keys("dc2")[3], "no");
        assert_eq!(near.connect().call(&["GET", "kv/silent"]), bulk("v"));
        wait_page(far, "\"mended_missed\":1,\"mended_gone\":1");
        for what in ["missed", "gone"] {
            let name = format!("torc_affinity_mended_total{{what=\"{what}\"}}");
            assert_eq!(metric(far, &name), 1);
        }
        assert_eq!(metric(far, "torc_affinity_relistings_total"), 1);
        assert!(metric(far, "torc_affinity_rescans_total") > 0);
    }
}

fn wait_known_there(near: &Node) {
    keys("dc2").iter().step_by(100).for_each(|key| told(near, key, "maybe"));
}

#[test]
fn a_server_that_tells_of_nothing_is_asked_about_what_the_node_writes() {
    let Some(bin) = redis_bin("a_server_that_tells_of_nothing") else { return };
    let ring = ring(&Store::OldRedis(bin, Lacks::Events), SELDOM);
    let (near, far) = (&ring.nodes[0], &ring.nodes[1]);
    write(near, &keys("dc1"));
    write(far, &keys("dc2"));
    wait_known(&ring);
    assert_right(near, &keys("dc2"));
    wait_page(far, "\"followed_by\":\"own writes and rescans\"");
    wait_relistings(far, 1);
    let mut client = far.connect();
    // What is no single value goes everywhere.
    client.call(&["RPUSH", "kv/list", "a"]);
    client.call(&["SET", "kv/short", "v", "PX", "300"]);
    client.call(&["DEL", &keys("dc2")[3]]);
    let everywhere = ["dc1 maybe", "dc2 maybe"];
    wait_until("the list is known", || place(near, "kv/list") == everywhere);
    told(near, &keys("dc2")[3], "no");
    told(near, "kv/short", "no");
    client.call(&["RPOP", "kv/list"]);
    told(near, "kv/list", "no");
    assert_eq!(metric(far, "torc_affinity_relistings_total"), 1);
    // Behind the node's back: found when the store is listed again, as it is after a gap.
    let mut store = far.connect_store();
    store.call(&["SET", "kv/behind", "v"]);
    store.call(&["CLIENT", "KILL", "TYPE", "pubsub"]);
    told(near, "kv/behind", "maybe");
    store.call(&["FLUSHALL"]);
    told(near, "kv/behind", "no");
}
