use std::sync::Arc;

use crate::dispatch::scripted::{self, Scripted, ring};
use crate::dispatch::view::{Settings, View};
use crate::dispatch::{ClientKind, UpId};
use crate::ring::Consistency;

/// A node that owns all of its rack, beside a rack of two and one of one; two connections to each
/// peer, and a client that uses the second ones.
fn node() -> Scripted {
    let peers =
        ring(&[("a", "dc/r1", 1), ("b1", "dc/r2", 1), ("b2", "dc/r2", 1 << 31), ("c", "dc/r3", 1)]);
    let settings = Settings { local_peer_connections: 2, ..Settings::default() };
    let view = scripted::view(peers, settings);
    let view = View { read: Consistency::DcQuorum, ..Arc::into_inner(view).expect("just made") };
    let mut node = Scripted::with_view(Arc::new(view));
    node.client = node.node.add_client(ClientKind::Client);
    assert_eq!(node.client.0, 1);
    node
}

/// The connections to where the first one leads that is called `name`.
fn connections(node: &Scripted, name: &str) -> [UpId; 2] {
    let named = |up: &UpId| node.leads_to(*up, name);
    let found: Vec<UpId> = (0..16).map(UpId).filter(named).collect();
    found.try_into().expect("two connections")
}

/// Keys that `b1` and `b2` own, two each.
fn keys(node: &Scripted) -> [Vec<String>; 2] {
    let view = Arc::clone(node.node.view());
    let owner = |key: &String| {
        let owners = view.topology.owners(&view.hasher.token(key.as_bytes()));
        owners.owner(1).map(|peer| view.topology.peer(peer).name.to_owned())
    };
    ["b1", "b2"].map(|name| {
        let names = (0..).map(|n| format!("k{n}"));
        names.filter(|key| owner(key).as_deref() == Some(name)).take(2).collect()
    })
}

#[test]
fn a_key_of_one_part_is_asked_again_on_the_clients_own_connections() {
    let mut node = node();
    let [of_b1, of_b2] = keys(&node);
    let [[_, b1], [_, b2], [other_c, c]] = ["b1", "b2", "c"].map(|name| connections(&node, name));
    node.send(&format!("MGET {} {} {} {}", of_b1[0], of_b2[0], of_b2[1], of_b1[1]));
    let (first, second) = (of_b1.join(" "), of_b2.join(" "));
    let lines = [&first, &second].map(|keys| format!("MGET {keys}"));
    assert_eq!(node.sent("store"), lines);
    assert_eq!(node.sent_over(b1), [format!("3 {}", lines[0])]);
    assert_eq!(node.sent_over(b2), [format!("3 {}", lines[1])]);
    assert_eq!(node.sent_over(c), lines.map(|line| format!("3 {line}")));
    // The first part: all agree on its second key alone. The other part is settled.
    let two = |x: &str, y: &str| format!("*2\r\n$1\r\n{x}\r\n$1\r\n{y}\r\n");
    node.answer("store", &two("1", "v"));
    node.answer("store", &two("p", "q"));
    node.answer_over(c, &two("2", "v"));
    node.answer_over(c, &two("p", "q"));
    node.answer_over(b1, &two("3", "v"));
    let again = format!("MGET {}", of_b1[0]);
    assert_eq!(node.sent("store"), [again.as_str()]);
    assert_eq!(node.sent_over(c), [format!("3 {again}")]);
    assert_eq!(node.sent_over(other_c), Vec::<String>::new());
    assert_eq!(node.sent_over(b1), [format!("3 {again}")]);
    node.answer_over(c, "*1\r\n$1\r\n3\r\n");
    node.answer_over(b1, "*1\r\n$1\r\n3\r\n");
    let right = ["3", "p", "q", "v"].map(|value| format!("$1\r\n{value}\r\n")).concat();
    assert_eq!(node.replies(), format!("*4\r\n{right}"));
}
