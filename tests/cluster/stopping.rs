//! Nodes that are told to stop while they are asked without a pause.

use crate::client::{Client, Reply, encode};
use crate::ring::{Layout, Ring, Store, redis_bin, wait_until};

/// Requests sent together.
const TOGETHER: usize = 10;
/// Clients of each node.
const CLIENTS: usize = 6;

/// Adds to `key` until that fails; gives how often it was answered.
fn add_on(port: u16, key: &str) -> i64 {
    let mut client = Client::connect(port);
    let requests = encode(&["INCR", key]).repeat(TOGETHER);
    let mut answered = 0;
    loop {
        if client.send(&requests).is_err() {
            return answered;
        }
        let mut failed = false;
        for _ in 0..TOGETHER {
            match client.reply() {
                Ok(Reply::Int(_)) => answered += 1,
                Ok(_) => failed = true,
                Err(_) => return answered,
            }
        }
        if failed {
            return answered;
        }
    }
}

/// A key whose value is in the first node's store.
fn key_of_the_first(ring: &Ring) -> String {
    let mut client = ring.nodes[0].connect();
    let mut store = ring.nodes[0].connect_store();
    (0..)
        .map(|n| format!("count:{n}"))
        .find(|key| {
            client.call(&["SET", key, "0"]);
            store.call(&["EXISTS", key]) == Reply::Int(1)
        })
        .expect("there is one")
}

#[test]
fn what_a_node_does_before_it_stops_is_answered() {
    let Some(bin) = redis_bin("what_a_node_does_before_it_stops") else { return };
    for nodes in [1, 2] {
        let (dcs, extra) = (vec![vec![nodes]], String::new());
        let mut ring = Ring::start(Layout { dcs, store: Store::Redis(bin.clone()), extra });
        let key = key_of_the_first(&ring);
        let mut store = ring.nodes[0].connect_store();
        let mut stored = || store.call(&["GET", &key]).text().parse::<i64>().expect("a number");
        // Of its own clients, and of another node's that passes them on.
        let ports: Vec<u16> = ring.nodes.iter().map(|node| node.client).collect();
        let answered: i64 = std::thread::scope(|scope| {
            let clients: Vec<_> = ports
                .iter()
                .flat_map(|port| std::iter::repeat_n(*port, CLIENTS))
                .map(|port| {
                    let key = &key;
                    scope.spawn(move || add_on(port, key))
                })
                .collect();
            wait_until("they are under way", || stored() > 2000);
            ring.nodes[0].signal("-TERM");
            clients.into_iter().map(|client| client.join().expect("it counts")).sum()
        });
        let stopped = ring.nodes[0].process.as_mut().expect("it ran");
        wait_until("it has stopped", || stopped.has_ended());
        assert_eq!(stored(), answered, "{nodes} nodes");
    }
}
