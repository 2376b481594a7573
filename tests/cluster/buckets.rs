//! Keys whose prefix gives them a level and a number of copies of their own.

use crate::client::{Reply, bulk, ok};
use crate::ring::{Layout, Node, Ring, Store, wait_until};

const TYPES: &str = "  bucket_types:\n  \
    - {name: safe, read_consistency: DC_SAFE_QUORUM, write_consistency: DC_SAFE_QUORUM}\n  \
    - {name: few, n_val: 2}\n";

#[test]
fn the_prefix_of_a_key_decides_its_level_and_its_copies() {
    let (dcs, store) = (vec![vec![1, 1, 1]], Store::Embedded);
    let extra = format!("{TYPES}  cluster: {{torc_only: true}}\n");
    let mut ring = Ring::start(Layout { dcs, store, extra });
    for node in &ring.nodes {
        wait_until("it is no newcomer", || node.info("state").as_deref() == Some("NORMAL"));
    }
    let mut client = ring.nodes[0].connect();
    for i in 0..20 {
        for prefix in ["safe/", "few/", ""] {
            assert_eq!(client.call(&["SET", &format!("{prefix}k{i}"), "v"]), ok());
        }
    }
    let copies = |prefix: &str| {
        let has = |node: &Node, i: usize| {
            let exists = ["TORC.LOCAL", "EXISTS", &format!("{prefix}k{i}")];
            node.connect().call(&exists) == Reply::Int(1)
        };
        let at = |i: usize| ring.nodes.iter().filter(|node| has(node, i)).count();
        (0..20).map(at).collect::<Vec<_>>()
    };
    wait_until("copies arrive", || copies("") == [3; 20] && copies("safe/") == [3; 20]);
    assert_eq!(copies("few/"), [2; 20]);
    for node in &ring.nodes {
        for i in 0..20 {
            assert_eq!(node.connect().call(&["GET", &format!("few/k{i}")]), bulk("v"));
        }
    }
    ring.nodes[1].kill();
    ring.nodes[2].kill();
    wait_until("their death is noticed", || {
        ring.nodes[0].info("peers_usable").as_deref() == Some("1")
    });
    assert_eq!(client.call(&["SET", "k1", "w"]), ok());
    assert_eq!(client.call(&["GET", "k1"]), bulk("w"));
    for refused in [&["SET", "safe/k1", "w"][..], &["GET", "safe/k1"]] {
        let reply = client.call(refused);
        assert!(reply.is_error(), "{refused:?}: {reply:?}");
    }
}
