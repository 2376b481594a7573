//! What concerns every node: scripts, on those too that were not there when they were loaded, and
//! FLUSHALL.

use crate::client::{Reply, bulk, ok};
use crate::ring::{Layout, Node, Ring, Store, redis_bin, wait_until};

#[test]
fn a_script_runs_through_nodes_that_joined_after_it_was_loaded() {
    let name = "a_script_runs_through_nodes_that_joined_after_it_was_loaded";
    let Some(bin) = redis_bin(name) else { return };
    let (dcs, store) = (vec![vec![1, 1]], Store::Redis(bin));
    let mut ring = Ring::start(Layout { dcs, store, extra: String::new() });
    let mut old = ring.nodes[0].connect();
    let script = "redis.call('SET', KEYS[1], ARGV[1]) return redis.call('GET', KEYS[1])";
    let sha = old.call(&["SCRIPT", "LOAD", script]).text();
    assert_eq!(sha.len(), 40);
    // One more in a rack there is, and a rack of its own.
    let joined = [ring.add("dc1", "r1", 1 << 31), ring.add("dc1", "r3", 0)];
    ring.wait_settled();
    for number in joined {
        let mut client = ring.nodes[number].connect();
        for i in 0..20 {
            let (key, value) = (format!("k{i}"), format!("{number}-{i}"));
            assert_eq!(client.call(&["EVALSHA", &sha, "1", &key, &value]), bulk(&value));
        }
        assert_eq!(client.call(&["TORC.SCRIPT", &sha]), bulk(script));
    }
    let mut client = ring.nodes[joined[0]].connect();
    assert_eq!(client.call(&["MULTI"]), ok());
    assert_eq!(client.call(&["EVALSHA", &sha, "1", "k", "in it"]).text(), "QUEUED");
    assert_eq!(client.call(&["EXEC"]), Reply::Array(vec![bulk("in it")]));
    // The datastores of the new nodes run it for the old ones, too.
    for i in 0..20 {
        let (key, value) = (format!("k{i}"), format!("old-{i}"));
        assert_eq!(old.call(&["EVALSHA", &sha, "1", &key, &value]), bulk(&value));
    }
    let mut new = ring.nodes[joined[1]].connect();
    let unknown = "f".repeat(40);
    let reply = new.call(&["EVALSHA", &unknown, "1", "k"]);
    assert!(matches!(&reply, Reply::Error(text) if text.starts_with("NOSCRIPT")), "{reply:?}");
    // One that was only ever sent as a text, after its digest was not known.
    let (text, sha) = ("return ARGV[1]", "098e0f0d1448c0a81dafe820f66d460eb09263da");
    assert!(new.call(&["EVALSHA", sha, "1", "k", "v"]).text().starts_with("NOSCRIPT"));
    assert_eq!(new.call(&["EVAL", text, "1", "k", "v"]), bulk("v"));
    for i in 0..20 {
        assert_eq!(new.call(&["EVALSHA", sha, "1", &format!("k{i}"), "v"]), bulk("v"));
    }
}

/// A library of one function that stores what it is given.
const LIBRARY: &str = "#!lua name=puts\n redis.register_function('put', function(keys, args) \
    redis.call('SET', keys[1], args[1]) return redis.call('GET', keys[1]) end)";

/// Calls the function through a node for keys of every owner.
fn puts(node: &Node, what: &str) {
    let mut client = node.connect();
    for i in 0..20 {
        let (key, value) = (format!("k{i}"), format!("{what}-{i}"));
        assert_eq!(client.call(&["FCALL", "put", "1", &key, &value]), bulk(&value));
    }
}

#[test]
fn a_function_runs_on_datastores_that_were_not_there_when_it_was_loaded() {
    let name = "a_function_runs_on_datastores_that_were_not_there_when_it_was_loaded";
    let Some(bin) = redis_bin(name) else { return };
    let (dcs, store) = (vec![vec![1, 1]], Store::Redis(bin.clone()));
    let mut ring = Ring::start(Layout { dcs, store, extra: String::new() });
    let mut old = ring.nodes[0].connect();
    assert_eq!(old.call(&["FUNCTION", "LOAD", LIBRARY]).text(), "puts");
    // One more in a rack there is, and a rack of its own.
    let joined = [ring.add("dc1", "r1", 1 << 31), ring.add("dc1", "r3", 0)];
    ring.wait_settled();
    puts(&ring.nodes[0], "old");
    joined.iter().for_each(|number| puts(&ring.nodes[*number], "joined"));
    let lists = |number: usize| ring.nodes[number].connect_store().call(&["FUNCTION", "LIST"]);
    wait_until("every datastore has it", || {
        (0..ring.nodes.len()).all(|number| lists(number).text().contains("puts"))
    });
    assert_ne!(ring.nodes[joined[0]].info("libraries_loaded").as_deref(), Some("0"));
    // A datastore that comes back empty.
    let node = &mut ring.nodes[joined[1]];
    drop(node.redis.take());
    let size = ["TORC.LOCAL", "DBSIZE"];
    wait_until("it is missed", || node.connect().call(&size).is_error());
    node.start_redis(&bin);
    wait_until("it is back", || !node.connect().call(&size).is_error());
    puts(&ring.nodes[joined[1]], "back");
    puts(&ring.nodes[0], "all");
    // What was deleted is not found at one that joins.
    let mut other = ring.nodes[joined[1]].connect();
    assert_eq!(other.call(&["FUNCTION", "DELETE", "puts"]), ok());
    let last = ring.add("dc1", "r4", 0);
    ring.wait_settled();
    let reply = ring.nodes[last].connect().call(&["FCALL", "put", "1", "k", "v"]);
    assert!(reply.text().contains("Function not found"), "{reply:?}");
}

#[test]
fn every_store_is_emptied_only_where_a_setting_allows_it() {
    for allowed in [false, true] {
        let (dcs, store) = (vec![vec![2, 2], vec![1]], Store::Embedded);
        let extra = format!("  allow_flush: {allowed}\n");
        let ring = Ring::start(Layout { dcs, store, extra });
        let mut client = ring.nodes[1].connect();
        for flush in ["FLUSHALL", "FLUSHDB"] {
            for i in 0..40 {
                assert_eq!(client.call(&["SET", &format!("k{i}"), "v"]), ok());
            }
            let sizes = || -> Vec<i64> {
                let size =
                    |reply: Reply| if let Reply::Int(size) = reply { size } else { panic!() };
                let ask = |node: &Node| size(node.connect().call(&["TORC.LOCAL", "DBSIZE"]));
                ring.nodes.iter().map(ask).collect()
            };
            wait_until("copies arrive", || sizes().iter().sum::<i64>() == 120);
            let reply = client.call(&[flush]);
            match allowed {
                true => {
                    assert_eq!(reply, ok());
                    assert_eq!(sizes(), [0; 5]);
                }
                false => {
                    let text = reply.text();
                    assert!(text.starts_with("ERR ") && text.contains("allow_flush"), "{text}");
                    assert_eq!(sizes().iter().sum::<i64>(), 120);
                }
            }
        }
    }
}
