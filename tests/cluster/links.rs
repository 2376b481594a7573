//! The connections a node opens to others: how many there are, what each carries and in which
//! order, how fast, and how often it tries again. The other node is played by the test.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use crate::admin::get;
use crate::client::{Client, encode, ok};
use crate::fake_peer::{FakePeer, Frame};
use crate::ring::{Layout, Node, PATIENCE, Ring, Store, free_port, wait_until};

/// A node whose only peer is the one played, in that datacenter; more lines of its pool.
fn node_beside(peer: &FakePeer, dc: &str, lines: &str) -> Ring {
    // Nothing but workers' connections: no gossip asks who the peer is.
    let extra = format!("  cluster: {{gossip: off}}\n{lines}{}", peer.seed("r9", dc));
    let mut ring = Ring::empty(Layout { dcs: Vec::new(), store: Store::Embedded, extra });
    ring.seeded = false;
    ring.add("dc1", "r1", 0);
    wait_until("it serves", || ring.nodes[0].info("state").is_some());
    ring
}

/// Clients of the node that each write their own key again and again, all at once; what each
/// sent, by key.
fn write_all_at_once(node: &Node, clients: usize, writes: usize) -> BTreeMap<String, Vec<Vec<u8>>> {
    let mut sent = BTreeMap::new();
    let mut open: Vec<Client> = (0..clients).map(|_| node.connect()).collect();
    for (number, client) in open.iter_mut().enumerate() {
        let key = format!("key{number}");
        let requests: Vec<Vec<u8>> =
            (0..writes).map(|i| encode(&["SET", &key, &i.to_string()])).collect();
        client.send(&requests.concat()).expect("sent");
        sent.insert(key, requests);
    }
    for client in &mut open {
        (0..writes).for_each(|_| assert_eq!(client.reply().expect("a reply"), ok()));
    }
    sent
}

/// The connections that brought some frames.
fn used(frames: &[Frame]) -> BTreeSet<usize> {
    frames.iter().map(|frame| frame.link).collect()
}

/// The key of a SET.
fn key(frame: &Frame) -> String {
    let text = String::from_utf8_lossy(&frame.body).into_owned();
    text.split("\r\n").nth(4).expect("a key").to_owned()
}

#[test]
fn a_peer_gets_as_many_connections_as_are_asked_for_and_each_client_keeps_its_order() {
    for (dc, name) in [("dc2", "remote_peer_connections"), ("dc1", "local_peer_connections")] {
        for (asked, count) in [(3, 3), (0, 1)] {
            let peer = FakePeer::start(free_port());
            let other = match name {
                "remote_peer_connections" => "  local_peer_connections: 5\n",
                _ => "  remote_peer_connections: 5\n",
            };
            let ring = node_beside(&peer, dc, &format!("  {name}: {asked}\n{other}"));
            let what = format!("{name}: {asked}");
            // Each begins with a question; from then on it is used.
            wait_until(&what, || used(&peer.frames()).len() >= count);
            let (clients, writes) = (9, 100);
            let sent = write_all_at_once(&ring.nodes[0], clients, writes);
            let came = peer.wait_requests(clients * writes);
            assert_eq!(peer.links(), count, "{what}");
            assert_eq!(came.len(), clients * writes, "{what}");
            for (name, requests) in sent {
                let mine: Vec<Frame> = came.iter().filter(|f| key(f) == name).cloned().collect();
                assert_eq!(used(&mine).len(), 1, "{what}: {name} keeps to one connection");
                assert!(mine.iter().map(|f| &f.body).eq(&requests), "{what}: {name} in order");
            }
            assert_eq!(used(&came).len(), count, "{what}: every connection is used");
        }
    }
}

#[test]
#[allow(clippy::disallowed_methods)] // real processes live in real time
fn a_connection_to_another_datacenter_carries_its_rate() {
    const RATE: usize = 20;
    const WRITES: usize = 50;
    let peer = FakePeer::start(free_port());
    let ring = node_beside(&peer, "dc2", &format!("  conn_msg_rate: {RATE}\n"));
    wait_until("a link", || peer.links() == 1);
    let start = Instant::now();
    write_all_at_once(&ring.nodes[0], 1, WRITES);
    let came = peer.wait_requests(WRITES);
    // A second's worth goes at once, the rest as it is earned: never sooner, whatever the machine.
    let took = came[WRITES - 1].at - start;
    let least = Duration::from_millis(1000 * (WRITES - RATE) as u64 / RATE as u64);
    assert!(took >= least, "{took:?} for {WRITES} writes");
    // Within a datacenter nothing is held back.
    let peer = FakePeer::start(free_port());
    let ring = node_beside(&peer, "dc1", "  conn_msg_rate: 1\n  timeout: 60000\n");
    wait_until("a link", || peer.links() == 1);
    write_all_at_once(&ring.nodes[0], 1, WRITES);
    assert_eq!(peer.wait_requests(WRITES).len(), WRITES);
}

#[test]
fn a_peer_that_ends_every_connection_is_tried_less_and_less_often() {
    let peer = FakePeer::start_unfriendly(free_port());
    let ring = node_beside(&peer, "dc1", "");
    wait_until("some attempts", || peer.links() >= 7);
    let taken = peer.taken();
    let pauses = taken.windows(2).map(|two| (two[1] - two[0]).as_millis());
    let pauses: Vec<u128> = pauses.take(6).collect();
    // They may be longer on a busy machine, but never shorter.
    for (pause, least) in pauses.iter().zip([50, 100, 200, 400, 800, 1000]) {
        assert!(*pause >= least - 1, "{pauses:?}");
    }
    // Meanwhile nobody waits for it.
    let mut client = ring.nodes[0].connect();
    assert_eq!(client.call(&["TORC.CONSISTENCY", "DC_QUORUM"]), ok());
    let refused = client.call(&["SET", "k", "v"]).text();
    assert!(refused.starts_with("ERR Peer: Peer Node "), "{refused}");
}

#[test]
fn a_peer_is_asked_whether_it_lives_while_nobody_asks_for_anything() {
    let peer = FakePeer::start(free_port());
    let extra = format!("  cluster: {{gossip: off}}\n{}", peer.seed("r9", "dc1"));
    let mut ring = Ring::empty(Layout { dcs: Vec::new(), store: Store::Embedded, extra });
    ring.seeded = false;
    ring.add("dc1", "r1", 0);
    // No client comes meanwhile.
    wait_until("it is asked again", || peer.frames().len() >= 5);
    assert_eq!(peer.links(), 1);
    assert!(!get(&ring.nodes[0], "/ring").1.contains("\"what\":\"down\""));
}

#[test]
fn the_timeout_of_one_request_leaves_those_of_others_alone() {
    let peer = FakePeer::start(free_port());
    // Nothing but an answer of the peer decides a write. It is silent for less than the three
    // seconds after which a peer is no longer asked.
    let lines = "  timeout: 2000\n  write_consistency: DC_QUORUM\n";
    let ring = node_beside(&peer, "dc1", lines);
    let mut first = ring.nodes[0].connect();
    let mut others = ring.nodes[0].connect();
    wait_until("the link is used", || first.call(&["SET", "k", "0"]) == ok());
    peer.hold(true);
    first.send(&encode(&["SET", "first", "1"])).expect("sent");
    first.give_up_after(Duration::from_millis(50));
    let mut asked = 0;
    let reply = loop {
        match first.reply() {
            Ok(reply) => break reply.text(),
            Err(_) => others.send(&encode(&["SET", "other", "1"])).expect("sent"),
        }
        asked += 1;
    };
    assert!(reply.starts_with("ERR Peer: Peer Node refused connection"), "{reply}");
    assert!(reply.contains("timed out"), "{reply}");
    peer.hold(false);
    // Those whose time had not passed are answered, each in its turn, over the same connection.
    let replies: Vec<_> = (0..asked).map(|_| others.reply().expect("a reply")).collect();
    assert_eq!(replies.last(), Some(&ok()), "{replies:?}");
    first.give_up_after(PATIENCE);
    assert_eq!(first.call(&["SET", "first", "2"]), ok());
    assert_eq!(peer.links(), 1);
}
