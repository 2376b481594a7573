use super::super::scripted::{Scripted, ring};
use super::super::view::{Protocol, Settings};
use bytes::BytesMut;

/// A memcache ring of three racks, of which the second has a node of the reference.
fn with_a_c_node() -> Scripted {
    let mut peers = ring(&[("a", "dc/r1", 0), ("b", "dc/r2", 0), ("c", "dc/r3", 0)]);
    peers[1].is_torc = false;
    let settings =
        Settings { protocol: Protocol::Memcache, allow_flush: true, ..Settings::default() };
    Scripted::new(peers, settings)
}

fn ask(node: &mut Scripted, lines: &str) -> String {
    let mut buf = BytesMut::from(lines);
    node.node.on_client_bytes(node.client, &mut buf, node.now);
    node.replies()
}

#[test]
fn what_a_node_of_the_reference_does_not_know_is_begun_nowhere() {
    let mut node = with_a_c_node();
    for lines in [
        "ms k 1 T30\r\nx\r\n",
        "ms k 1 ME\r\nx\r\n",
        "md k\r\n",
        "ma k N0\r\n",
        "gat 0 k\r\n",
        "gats 30 k\r\n",
        "set k +1 0 1\r\nx\r\n",
        "flush_all\r\n",
    ] {
        let reply = ask(&mut node, lines);
        let right = "SERVER_ERROR Peer: Peer Node does not know this command (b, r2, ";
        assert!(reply.starts_with(right), "{lines:?}: {reply}");
    }
    // Written in digits it knows them.
    for lines in ["set k 0 -1 1\r\nx\r\n", "touch k -1\r\n", "delete k 0\r\n"] {
        assert_eq!(ask(&mut node, lines), "", "{lines:?} is on its way");
    }
}
