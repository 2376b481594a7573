//! A node of several workers tells of all of them.

use crate::client::ok;
use crate::ring::{Layout, Ring, Store, wait_until};

#[test]
fn info_and_client_list_cover_all_workers() {
    let (store, extra) = (Store::Embedded, String::new());
    let mut ring = Ring::empty(Layout { dcs: Vec::new(), store, extra });
    ring.workers = 2;
    ring.add("dc1", "r1", 0);
    ring.wait_settled();
    let node = &ring.nodes[0];
    let mut clients: Vec<_> = (0..4).map(|_| node.connect()).collect();
    for (i, client) in clients.iter_mut().enumerate() {
        assert_eq!(client.call(&["CLIENT", "SETNAME", &format!("c{i}")]), ok());
    }
    for client in &mut clients {
        // Who asked whether the ring is settled may be on its way out.
        wait_until("four clients", || {
            client.call(&["INFO", "clients"]).text().contains("connected_clients:4\r\n")
        });
        let list = client.call(&["CLIENT", "LIST"]).text();
        assert_eq!(list.lines().count(), 4, "{list}");
        for name in ["name=c0 ", "name=c1 ", "name=c2 ", "name=c3 "] {
            assert!(list.contains(name), "{list}");
        }
        assert!(list.contains("addr=127.0.0.1:"), "{list}");
    }
    // The numbers of a worker's clients begin with its own.
    let list = clients[0].call(&["CLIENT", "LIST"]).text();
    let ids = list.lines().filter_map(|l| l.strip_prefix("id=")?.split(' ').next()?.parse().ok());
    let workers: std::collections::BTreeSet<u64> = ids.map(|id: u64| id >> 40).collect();
    assert_eq!(workers.len(), 2, "{list}");
    let one = list.lines().nth(2).expect("a third line");
    let id = one.split(['=', ' ']).nth(1).expect("an id");
    assert_eq!(clients[3].call(&["CLIENT", "LIST", "ID", id]).text(), format!("{one}\n"));
}
