//! What C nodes learn of torc nodes by gossip, and torc nodes of C nodes.

use super::ring::{Bins, Kind, Node, Ring};
use crate::client::bulk;
use crate::ring::wait_until;

/// A C node looks at its queue of gossip once in each of these intervals, when it has other work.
const PERIOD: &str = "  gos_interval: 1000\n";

/// The C node's gossip stays off: it hears and obeys all the same, and with it on it would serve
/// nobody before somebody spoke to it.
const TORC: &str = "  gos_interval: 1000\n  enable_gossip: true\n";

/// Writes through one node until another one's datastore has the copy.
fn wait_copied(from: &Node, to: &Node, key: &str) {
    let mut store = to.connect_store();
    wait_until(&format!("a write through {} is copied to {}", from.host, to.host), || {
        let mut client = from.connect();
        let _ = client.try_call(&["SET", key, "copied"]);
        store.call(&["GET", key]) == bulk("copied")
    });
}

fn names(node: &Node, host: &str) -> bool {
    // Its event loop takes gossip in when it has something to do.
    let _ = node.connect().try_call(&["GET", "wake"]);
    node.admin("/cluster_describe").contains(&format!("\"{host}\""))
}

#[test]
fn a_c_node_is_taught_a_member_and_its_move_and_its_death_is_seen() {
    let Some(bins) = Bins::find("gossip with C nodes") else { return };
    let mut ring = Ring::empty(&bins);
    let c = ring.place(Kind::C, "dc1", "dc1r1", 0);
    ring.configure(c, &[], PERIOD);
    ring.launch(c);
    wait_until("the C node serves", || ring.nodes[c].try_connect().is_ok());
    // It knows nobody; the torc node knows it.
    let teacher = ring.place(Kind::Torc, "dc1", "dc1r2", 0);
    ring.configure(teacher, &[c], TORC);
    ring.launch(teacher);
    wait_copied(&ring.nodes[c], &ring.nodes[teacher], "taught");
    // Another torc node knows the first one only, and is taught by it.
    let member = ring.place(Kind::Torc, "dc1", "dc1r3", 0);
    ring.configure(member, &[teacher], TORC);
    ring.launch(member);
    wait_copied(&ring.nodes[c], &ring.nodes[member], "a new member");
    // It moves: the same place, another address.
    ring.nodes[member].kill();
    let moved = ring.place(Kind::Torc, "dc1", "dc1r3", 0);
    ring.configure(moved, &[teacher], TORC);
    ring.launch(moved);
    wait_copied(&ring.nodes[c], &ring.nodes[moved], "moved");
    let (old, new) = (ring.nodes[member].host.clone(), ring.nodes[moved].host.clone());
    wait_until("the C node names the new address alone", || {
        names(&ring.nodes[c], &new) && !names(&ring.nodes[c], &old)
    });
    // The C node dies: all torc nodes see it. It comes back and knows nobody again.
    let usable = |node: &Node, count: &str| {
        let info = node.connect().call(&["INFO", "torc"]).text();
        info.lines().any(|line| line.trim_end() == format!("peers_usable:{count}"))
    };
    ring.nodes[c].kill();
    for node in [teacher, moved] {
        wait_until("the death is seen", || usable(&ring.nodes[node], "2"));
    }
    wait_until("the death is an event", || {
        let events = ring.nodes[teacher].admin("/ring");
        events.contains("\"what\":\"down\",\"cause\":\"nobody listens at its address\"")
    });
    ring.launch(c);
    for node in [teacher, moved] {
        wait_until("the return is seen", || usable(&ring.nodes[node], "3"));
    }
    wait_copied(&ring.nodes[c], &ring.nodes[moved], "taught again");
}
