//! A node of several workers tells of all of them.

use crate::client::{Client, Reply, bulk, encode, ok};
use crate::ring::{Layout, Node, Ring, Store, redis_bin, wait_until};

/// Racks of one node each, with two workers.
fn two_workers(store: Store, racks: usize) -> Ring {
    let mut ring = Ring::empty(Layout { dcs: Vec::new(), store, extra: String::new() });
    ring.workers = 2;
    for rack in 1..=racks {
        ring.add("dc1", &format!("r{rack}"), 0);
    }
    ring.wait_settled();
    ring
}

#[test]
fn info_and_client_list_cover_all_workers() {
    let ring = two_workers(Store::Embedded, 1);
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

fn id_of(client: &mut Client) -> String {
    client.call(&["CLIENT", "ID"]).text()
}

/// The value of a field in the line of CLIENT INFO.
fn field(client: &mut Client, name: &str) -> String {
    let line = client.call(&["CLIENT", "INFO"]).text();
    let mut words = line.split(' ').filter_map(|word| word.split_once('='));
    words.find(|(field, _)| *field == name).expect("a field").1.to_owned()
}

/// A client of each worker.
fn one_of_each_worker(node: &Node) -> [Client; 2] {
    let mut first = node.connect();
    let worker_of = |client: &mut Client| {
        let id: u64 = id_of(client).parse().expect("a number");
        id >> 40
    };
    let worker = worker_of(&mut first);
    let mut second = node.connect();
    while worker_of(&mut second) == worker {
        second = node.connect();
    }
    [first, second]
}

fn is_closed(mut client: Client) -> bool {
    client.reply().is_err()
}

#[test]
fn clients_are_killed_whichever_worker_serves_them() {
    let ring = two_workers(Store::Embedded, 1);
    let node = &ring.nodes[0];
    let [mut asker, mut other] = one_of_each_worker(node);
    let id = id_of(&mut other);
    assert_eq!(asker.call(&["CLIENT", "KILL", "ID", &id]), Reply::Int(1));
    assert!(is_closed(other));
    wait_until("it is gone", || asker.call(&["CLIENT", "LIST", "ID", &id]).text().is_empty());
    assert_eq!(asker.call(&["CLIENT", "KILL", "ID", &id]), Reply::Int(0));
    // Each worker's, by each of what is known of them.
    for serve in 0..4 {
        let pair = one_of_each_worker(node);
        let addresses = pair.map(|mut client| (field(&mut client, "addr"), client));
        for (address, client) in addresses {
            let (words, reply) = match serve {
                0 => (vec!["CLIENT", "KILL", &address], ok()),
                1 => (vec!["CLIENT", "KILL", "ADDR", &address], Reply::Int(1)),
                2 => (vec!["CLIENT", "KILL", "TYPE", "normal", "ADDR", &address], Reply::Int(1)),
                _ => (vec!["CLIENT", "KILL", "USER", "default", "ADDR", &address], Reply::Int(1)),
            };
            assert_eq!(asker.call(&words), reply, "{words:?}");
            assert!(is_closed(client));
        }
    }
    let pair = one_of_each_worker(node);
    let local = field(&mut asker, "laddr");
    assert_eq!(local, format!("127.0.0.1:{}", node.client));
    let kill = ["CLIENT", "KILL", "LADDR", &local, "TYPE", "pubsub"];
    assert_eq!(asker.call(&kill), Reply::Int(0));
    let Reply::Int(killed) = asker.call(&["CLIENT", "KILL", "LADDR", &local]) else { panic!() };
    assert!(killed >= 2);
    pair.into_iter().for_each(|client| assert!(is_closed(client)));
    // Oneself last, and only after the answer.
    let own = field(&mut asker, "addr");
    assert_eq!(asker.call(&["CLIENT", "KILL", "ADDR", &own]), Reply::Int(0));
    assert_eq!(asker.call(&["CLIENT", "KILL", "ADDR", &own, "SKIPME", "no"]), Reply::Int(1));
    assert!(is_closed(asker));
}

/// Lets clients of both workers wait, and wait no longer.
fn unblock_both(ring: &Ring, lists: &str) {
    let node = ring.nodes.last().expect("a node");
    let mut asker = node.connect();
    for mut waiting in one_of_each_worker(node) {
        let id = id_of(&mut waiting);
        assert_eq!(asker.call(&["CLIENT", "UNBLOCK", &id]), Reply::Int(0), "it does not wait");
        let unblocked = Reply::Error("UNBLOCKED client unblocked via CLIENT UNBLOCK".into());
        let ways = [(None, Reply::Nil), (Some("TIMEOUT"), Reply::Nil), (Some("ERROR"), unblocked)];
        for (how, reply) in ways {
            waiting.send(&encode(&["BLPOP", lists, "0"])).expect("sent");
            waiting.send(&encode(&["PING"])).expect("sent");
            let words: Vec<&str> = ["CLIENT", "UNBLOCK", &id].into_iter().chain(how).collect();
            wait_until("it waits", || asker.call(&words) == Reply::Int(1));
            assert_eq!(waiting.reply().expect("a reply"), reply);
            assert_eq!(waiting.reply().expect("a reply"), Reply::Simple("PONG".into()));
        }
    }
    // Nothing is lost to who waits no longer.
    assert_eq!(asker.call(&["RPUSH", lists, "v"]), Reply::Int(1));
    for node in &ring.nodes {
        let mut client = node.connect();
        let all = Reply::Array(vec![bulk("v")]);
        wait_until("the copy arrives", || client.call(&["LRANGE", lists, "0", "-1"]) == all);
    }
}

#[test]
fn clients_wait_no_longer_whichever_worker_serves_them() {
    let name = "clients_wait_no_longer_whichever_worker_serves_them";
    let redis = redis_bin(name).map(Store::Redis);
    for store in [Some(Store::Embedded), redis].into_iter().flatten() {
        for racks in [1, 3] {
            unblock_both(&two_workers(store.clone(), racks), "list");
        }
    }
}
