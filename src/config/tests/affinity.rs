//! `affinity:`.

use super::super::{AffinityMode, BlockDomain, WriteReplication};
use super::*;
use crate::ckf::digest::Selection;
use crate::ckf::hashing::HashFormat;

#[test]
fn defaults_name_the_cluster() {
    let affinity = with(&[]).config.affinity;
    assert_eq!(affinity.mode, AffinityMode::Off);
    assert_eq!((affinity.expected_keys, affinity.stale_after_ms), (1_000_000, 30_000));
    assert_eq!(affinity.semantics, Selection::explicit([("authority", "pool")]).unwrap());
    let named = with(&["cluster: {name: ring}"]).config.affinity;
    assert_eq!(named.scope, Selection::explicit([("authority", "ring")]).unwrap());
}

#[test]
fn domains_of_blocks_are_read() {
    let affinity = with(&[
        "affinity:",
        "  mode: advise",
        "  expected_keys: 5000",
        "  domains:",
        "  - {name: llama, block_size: 16, hash: eagle, semantics: {model: meta/llama}}",
        "  - {name: other, block_size: 4, semantics: {model: x}, scope: {team: a}}",
    ])
    .config
    .affinity;
    assert_eq!((affinity.mode, affinity.expected_keys), (AffinityMode::Advise, 5000));
    let llama = BlockDomain {
        name: "llama".into(),
        block_size: 16,
        hash: HashFormat::Eagle,
        expected_blocks: 1_000_000,
        semantics: Selection::explicit([("model", "meta/llama")]).unwrap(),
        scope: Selection::explicit([("authority", "pool")]).unwrap(),
    };
    assert_eq!(affinity.domains[0], llama);
    assert_eq!(affinity.domains[1].scope, Selection::explicit([("team", "a")]).unwrap());
}

#[test]
fn mistakes_are_explained() {
    let long = format!("affinity: {{semantics: {{k: '{}'}}}}", "v".repeat(1025));
    let cases = [
        ("affinity: {mode: router}", "`router` is not a mode of affinity"),
        ("affinity: {write_replication: here}", "`here` is not a way to replicate writes"),
        (
            "affinity: {domains: [{name: a, block_size: 1, hash: md5, semantics: {a: b}}]}",
            "`md5` is not a way to hash blocks",
        ),
        ("affinity: {mode: advise, expected_keys: 0}", "`expected_keys` 0 leaves no room"),
        ("affinity: {mode: advise, expected_keys: 0}", "accepted: 1 to 53687091"),
        (
            "affinity: {mode: advise, expected_keys: 99999999}",
            "`expected_keys` 99999999 is more than the largest filter has room for",
        ),
        ("affinity: {mode: advise, memory_max_bytes: 1mb}", "filters of this size need about"),
        ("affinity: {mode: advise, stale_after_ms: 0}", "is less than three heartbeats"),
        ("affinity: {mode: advise, stale_after_ms: 2999}", "accepted: 3000 or more"),
        ("affinity: {mode: advise, rescan_after_ms: 999}", "would keep the store busy"),
        ("affinity: {semantics: {}}", "an identity map needs 1 to 32 entries"),
        ("affinity: {semantics: words}", "expected names and values"),
        (&long, "the value of \"k\" is not 1 to 1024 bytes long"),
        ("affinity: {domains: [{block_size: 16, semantics: {a: b}}]}", "needs `name`"),
        ("affinity: {domains: [{name: a, semantics: {a: b}}]}", "needs `block_size`"),
        (
            "affinity: {domains: [{name: a, block_size: 0, semantics: {a: b}}]}",
            "a block of 0 tokens is none",
        ),
        ("affinity: {domains: [{name: a, block_size: 1}]}", "needs `semantics`"),
        (
            "affinity: {domains: [{name: a, block_size: 1, expected_blocks: 0}]}",
            "`expected_blocks` 0 leaves no room",
        ),
        (
            "affinity: {domains: [{name: keys, block_size: 1, semantics: {a: b}}]}",
            "domain `keys` is taken",
        ),
    ];
    for (line, text) in cases {
        let errors = load(&format!("{SMALLEST}  {line}\n")).map(|_| ()).unwrap_err().to_string();
        assert!(errors.contains(text), "{line}\n{errors}");
    }
}

#[test]
fn the_entry_of_a_domain_is_pointed_at() {
    let entry = |more: &str| format!("    - {{name: b, block_size: 4, semantics: {{a: b}}{more}}}");
    let lines = |second: String| {
        let head = "  affinity:\n    domains:\n";
        format!("{SMALLEST}{head}{}\n{second}\n", entry("").replace("name: b", "name: a"))
    };
    let errors = |second: String| load(&lines(second)).map(|_| ()).unwrap_err().to_string();
    let first_line = SMALLEST.lines().count() + 3;
    let small = errors(entry(", expected_blocks: 0, scope: {c: d}"));
    assert!(small.contains(&format!(":{}:", first_line + 1)), "{small}");
    let same = errors(entry(""));
    assert!(same.contains("domains `a` and `b` mean the same blocks"), "{same}");
    assert!(load(&lines(entry(", scope: {c: d}"))).is_ok());
}

#[test]
fn what_is_left_of_the_memory_is_for_filters_of_another_size() {
    let affinity = with(&["affinity: {mode: advise, memory_max_bytes: 200mb}"]).config.affinity;
    let needed = affinity.memory_bytes(3);
    assert_eq!(affinity.resize_bytes_max(3), (200 << 20) - needed);
    assert_eq!(affinity.resize_bytes_max(1 << 20), 0);
}

#[test]
fn a_mode_needs_a_store_that_tells() {
    let server = SMALLEST.replace("datastore: embedded", "servers: 127.0.0.1:6379:1");
    let on = "  affinity: {mode: advise}\n";
    assert!(load(&format!("{server}{on}")).is_ok());
    let memcache = format!("{server}  data_store: 1\n{on}");
    let errors = load(&memcache).map(|_| ()).unwrap_err().to_string();
    assert!(errors.contains("memcached does not tell"), "{errors}");
    let routed = format!("{SMALLEST}  data_store: 1\n  affinity: {{mode: route}}\n");
    let errors = load(&routed).map(|_| ()).unwrap_err().to_string();
    assert!(errors.contains("reads of memcache keys are not routed"), "{errors}");
}

#[test]
fn values_stay_only_where_they_can_be_found_and_are_alone() {
    let buckets = "  bucket_types: [{name: kv, immutable: true}]\n";
    let with = |mode: &str, buckets: &str| {
        let affinity = format!("  affinity: {{mode: {mode}, write_replication: local_dc}}\n");
        load(&format!("{SMALLEST}{affinity}{buckets}")).map(|loaded| loaded.config)
    };
    let config = with("route", buckets).unwrap();
    assert_eq!(config.affinity.write_replication, WriteReplication::LocalDc);
    assert!(config.bucket_types[0].immutable);
    let backfill = "route, backfill: true";
    assert!(with(backfill, buckets).unwrap().affinity.backfill);
    let alone = format!("{SMALLEST}  affinity: {{mode: route, backfill: true}}\n{buckets}");
    let errors = load(&alone).map(|_| ()).unwrap_err().to_string();
    assert!(errors.contains("write_replication: local_dc` beside it"), "{errors}");
    let errors = with("advise", buckets).map(|_| ()).unwrap_err().to_string();
    assert!(errors.contains("needs `affinity.mode: route`"), "{errors}");
    let errors = with("route", "").map(|_| ()).unwrap_err().to_string();
    assert!(errors.contains("`immutable: true`, and there is none"), "{errors}");
}
