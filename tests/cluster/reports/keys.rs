//! Several keys, several owners, large values, scripts and replies in replies.

use super::{call, pair, single, still_answers};
use crate::client::{Client, Reply, bulk, encode, ok};

/// Netflix/dynomite#624, Netflix/dyno#193: a script is known to every node.
#[test]
fn a_script_loaded_once_runs_for_every_key() {
    let Some(ring) = pair("a_script_loaded_once_runs_for_every_key") else { return };
    let mut client = ring.nodes[0].connect();
    let script = "return redis.call('GET', KEYS[1])";
    let hash = client.call(&["SCRIPT", "LOAD", script]).text();
    assert_eq!(hash.len(), 40, "{hash}");
    for i in 0..20 {
        let (key, value) = (format!("script-{i}"), i.to_string());
        assert_eq!(client.call(&["SET", &key, &value]), ok());
        assert_eq!(client.call(&["EVALSHA", &hash, "1", &key]), bulk(value), "{key}");
    }
    let unknown = "f".repeat(40);
    let reply = client.call(&["EVALSHA", &unknown, "1", "script-1"]);
    assert!(reply.text().starts_with("NOSCRIPT"), "{reply:?}");
    assert_eq!(client.call(&["EVAL", "return 7", "0"]), Reply::Int(7));
    still_answers(&mut client, "EVAL without keys");
}

/// RedisLabs/redis-cluster-proxy#88, Netflix/dynomite#288: empty values and errors in the middle
/// of a pipeline shift nothing.
#[test]
fn a_pipeline_over_two_owners_is_answered_in_its_order() {
    let Some(ring) = pair("a_pipeline_over_two_owners_is_answered_in_its_order") else { return };
    let mut client = ring.nodes[0].connect();
    let mut bytes = Vec::new();
    for i in 0..100 {
        let (text, hash, value) = (format!("t{i}"), format!("h{i}"), format!("v{i}"));
        bytes.extend(encode(&["SET", &text, &value]));
        bytes.extend(encode(&["HSET", &hash, "f", ""]));
        bytes.extend(encode(&["GET", &hash]));
        bytes.extend(encode(&["GET", &text]));
    }
    client.send(&bytes).expect("sent");
    for i in 0..100 {
        assert_eq!(client.reply().expect("reply"), ok(), "{i}");
        assert_eq!(client.reply().expect("reply"), Reply::Int(1), "{i}");
        assert!(client.reply().expect("reply").text().starts_with("WRONGTYPE"), "{i}");
        assert_eq!(client.reply().expect("reply"), bulk(format!("v{i}")), "{i}");
    }
    assert_eq!(call(&mut client, "HGET h3 f"), bulk(""));
}

/// Netflix/dynomite#809, #486, twitter/twemproxy#19: values around the sizes of buffers.
#[test]
fn values_of_every_size_near_a_buffers_edge_come_back_whole() {
    let name = "values_of_every_size_near_a_buffers_edge_come_back_whole";
    let Some(ring) = pair(name) else { return };
    let mut client = ring.nodes[0].connect();
    let noise = |len: usize, seed: usize| -> Vec<u8> {
        (0..len).map(|i| ((i * 31 + seed) ^ (i >> 8)) as u8).collect()
    };
    let large = noise(5 << 20, 1);
    assert_eq!(client.call(&[&b"SET"[..], b"large", &large]), ok());
    assert!(client.call(&["GET", "large"]) == Reply::Bulk(large), "5 MiB differ");
    for edge in [16_384, 32_768, 49_152, 65_536] {
        for len in edge - 110..edge + 8 {
            let value = noise(len, len);
            let both =
                [encode(&[&b"SET"[..], b"aaaaaaaaaa", &value]), encode(&["GET", "aaaaaaaaaa"])];
            client.send(&both.concat()).expect("sent");
            assert_eq!(client.reply().expect("reply"), ok(), "{len}");
            assert!(client.reply().expect("reply") == Reply::Bulk(value), "{len} bytes differ");
        }
    }
    let values: Vec<Vec<u8>> = (0..6).map(|i| noise(40 << 10, i)).collect();
    let keys: Vec<Vec<u8>> = (0..6).map(|i| format!("several-{i}").into_bytes()).collect();
    let pairs = keys.iter().zip(&values).flat_map(|(key, value)| [key.clone(), value.clone()]);
    let mset: Vec<Vec<u8>> = std::iter::once(b"MSET".to_vec()).chain(pairs).collect();
    assert_eq!(client.call(&mset), ok());
    let mget: Vec<Vec<u8>> = std::iter::once(b"MGET".to_vec()).chain(keys).collect();
    let right = Reply::Array(values.into_iter().map(Reply::Bulk).collect());
    assert!(client.call(&mget) == right, "MGET of large values differs");
}

/// twitter/twemproxy#537, #323, Netflix/dynomite#675.
#[test]
fn replies_in_replies_keep_their_shape() {
    let Some(ring) = single("replies_in_replies_keep_their_shape") else { return };
    let mut client = ring.nodes[0].connect();
    let (int, array) = (Reply::Int, Reply::Array);
    let deep = array(vec![int(3), array(vec![int(4)])]);
    let cases = [
        ("return {1,{2,{3,{4}}},'x'}", array(vec![int(1), array(vec![int(2), deep]), bulk("x")])),
        ("return {}", array(vec![])),
        ("return {{},{1,{}}}", array(vec![array(vec![]), array(vec![int(1), array(vec![])])])),
        ("return {redis.call('SET',KEYS[1],'1')}", array(vec![ok()])),
        ("return {false,1}", array(vec![Reply::Nil, int(1)])),
    ];
    for (script, right) in cases {
        assert_eq!(client.call(&["EVAL", script, "1", "nested"]), right, "{script}");
    }
    assert_eq!(call(&mut client, "XADD stream 1-1 f v"), bulk("1-1"));
    let entry = array(vec![bulk("1-1"), array(vec![bulk("f"), bulk("v")])]);
    assert_eq!(call(&mut client, "XRANGE stream - +"), array(vec![entry]));
}

fn with_keys(verb: &str, keys: impl Iterator<Item = usize>) -> String {
    keys.fold(verb.to_owned(), |line, i| format!("{line} many-{i}"))
}

/// Netflix/dynomite#817, #474, #49.
#[test]
fn many_keys_of_two_owners_are_set_read_counted_and_deleted() {
    let name = "many_keys_of_two_owners_are_set_read_counted_and_deleted";
    let Some(ring) = pair(name) else { return };
    let mut client = ring.nodes[1].connect();
    let mset = (0..40).fold("MSET".to_owned(), |line, i| format!("{line} many-{i} v{i}"));
    assert_eq!(call(&mut client, &mset), ok());
    for node in &ring.nodes {
        let there = call(&mut node.connect_store(), "DBSIZE");
        assert!(!matches!(there, Reply::Int(0 | 40)), "both have some: {there:?}");
    }
    let asked = call(&mut client, "MGET many-39 nothing many-0 many-17 many-0");
    let right = [bulk("v39"), Reply::Nil, bulk("v0"), bulk("v17"), bulk("v0")];
    assert_eq!(asked, Reply::Array(right.to_vec()));
    let counted = [
        ("EXISTS many-1 many-2 nothing many-1".to_owned(), 3),
        ("DEL many-5".to_owned(), 1),
        (with_keys("DEL nothing", 0..20), 19),
        (with_keys("UNLINK", 20..30), 10),
        ("HSET hash a 1 b 2".to_owned(), 2),
        ("HDEL hash a".to_owned(), 1),
    ];
    for (line, right) in counted {
        assert_eq!(call(&mut client, &line), Reply::Int(right), "{line}");
    }
    let rest = Reply::Array((30..40).map(|i| bulk(format!("v{i}"))).collect());
    assert_eq!(call(&mut client, &with_keys("MGET", 30..40)), rest);
}

/// The whole answer, or a refusal.
fn whole_or_refused(client: &mut Client, line: &str, right: impl Fn(&Reply) -> bool) {
    let reply = call(client, line);
    assert!(reply.is_error() || right(&reply), "{line}: {reply:?}");
    still_answers(client, line);
}

/// Netflix/dynomite#460, #49, Netflix/dyno#145: never a shorter answer.
#[test]
fn set_operations_over_two_owners_are_whole_or_refused() {
    let name = "set_operations_over_two_owners_are_whole_or_refused";
    let Some(ring) = pair(name) else { return };
    let mut client = ring.nodes[0].connect();
    for i in 0..12 {
        assert_eq!(call(&mut client, &format!("SADD many-{i} m{i}")), Reply::Int(1));
    }
    let members = |reply: &Reply| match reply {
        Reply::Array(members) => members.len(),
        _ => 0,
    };
    whole_or_refused(&mut client, &with_keys("SUNION", 0..12), |reply| members(reply) == 12);
    let only = Reply::Array(vec![bulk("m0")]);
    whole_or_refused(&mut client, &with_keys("SDIFF", 0..12), |reply| *reply == only);
    let msetnx = (0..12).fold("MSETNX".to_owned(), |line, i| format!("{line} new-{i} 1"));
    let set = call(&mut client, &msetnx);
    let there = (0..12).filter(|i| call(&mut client, &format!("GET new-{i}")) == bulk("1"));
    let right = if set == Reply::Int(1) { 12 } else { 0 };
    assert_eq!(there.count(), right, "MSETNX gave {set:?}");
}
