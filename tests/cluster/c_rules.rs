//! Gossip with nodes of the reference, from the socket: what a node sends such a peer, and what it
//! makes of what comes. The peer is played by the test, at the port their format takes for granted.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpStream};

use torc::proto::dnode::{DATA_GOSSIP, MsgType, VERSION_C};

use crate::admin::get;
use crate::client::encode;
use crate::fake_peer::{FakePeer, Frame, put_frame};
use crate::mixed::free_net;
use crate::ring::{Layout, Node, PATIENCE, Ring, Store, wait_until};

const PEER_PORT: u16 = 8101;

/// Longest frame a C node surely reads: it has to fit one of its buffers.
const FRAME_BYTES_MAX: usize = 16_000;

/// Rings in this test look at C nodes once a second.
const GOSSIP: &str = "  enable_gossip: true\n  gos_interval: 1000\n";

/// A node at `net.host` that knows the one at `seed` and gossips with C nodes.
fn add(ring: &mut Ring, net: &str, host: u8, rack: &str, seed: &str) -> usize {
    ring.peer_at = (format!("{net}.{host}"), Some(PEER_PORT));
    ring.set_extra(&format!("{GOSSIP}  dyn_seeds:\n  - {seed}\n"));
    ring.add("dc1", rack, 0)
}

/// A ring without nodes, whose nodes are given their seeds one by one.
fn empty() -> Ring {
    let (store, extra) = (Store::Embedded, String::new());
    let mut ring = Ring::empty(Layout { dcs: Vec::new(), store, extra });
    ring.seeded = false;
    ring
}

/// One record: datacenter, rack and token, then time, state and address.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Record {
    place: String,
    timestamp: u64,
    state: u32,
    address: Ipv4Addr,
}

/// Reads a table, of exactly the form a C node survives.
fn table(body: &[u8]) -> Vec<Record> {
    let text = std::str::from_utf8(body).expect("a text");
    let number = |text: &str| {
        assert!(text.bytes().all(|b| b.is_ascii_digit()), "{text}");
        text.parse::<u64>().expect("a number")
    };
    let record = |text: &str| {
        let parts: Vec<&str> = text.split(',').collect();
        let [place, timestamp, state, address] = parts[..] else { panic!("{text}") };
        let names: Vec<&str> = place.split('$').collect();
        let [dc, rack, token] = names[..] else { panic!("{text}") };
        assert!(!dc.is_empty() && !rack.is_empty() && number(token) <= u32::MAX.into(), "{text}");
        let address = address.parse().expect("an IPv4 address");
        let (timestamp, state) = (number(timestamp), number(state) as u32);
        Record { place: place.to_owned(), timestamp, state, address }
    };
    text.split('|').map(record).collect()
}

/// The tables that came, oldest first.
fn tables(peer: &FakePeer) -> Vec<Vec<Record>> {
    let frames = peer.frames().into_iter();
    let gossip = frames.filter(|f| f.header.msg_type() == MsgType::GossipSyn);
    gossip.map(|frame| table(&frame.body)).collect()
}

/// Waits until a node, which stands first in what it says, tells what is to be told.
fn wait_told(peer: &FakePeer, by: Ipv4Addr, what: &str, told: impl Fn(&[Record]) -> bool) {
    let of_it = |table: &Vec<Record>| table[0].address == by;
    wait_until(what, || tables(peer).into_iter().rfind(of_it).is_some_and(|table| told(&table)));
}

/// Everything that came is what a C node survives (gossip.md section 6 and dnode.md section 8).
fn check_frame(frame: &Frame) {
    let Frame { header, data, body, .. } = frame;
    assert_eq!(header.flags, 0, "in plaintext: {frame:?}");
    assert!(!body.is_empty(), "a C node's connection is lost with an empty body: {frame:?}");
    match header.msg_type() {
        MsgType::Req | MsgType::ReqForward => assert_eq!(data, b"d", "{frame:?}"),
        MsgType::GossipSyn => {
            assert_eq!((header.version, data.as_slice()), (VERSION_C, DATA_GOSSIP), "{frame:?}");
            assert!(header.len + body.len() <= FRAME_BYTES_MAX, "{frame:?}");
            assert!(frame.in_one_piece, "a C node does not wait for the rest: {frame:?}");
        }
        other => panic!("a frame of type {other:?} for a C node: {frame:?}"),
    }
}

#[test]
fn a_c_node_is_told_what_it_survives_and_nothing_else() {
    let net = free_net();
    let peer = FakePeer::start_at(&format!("{net}.1"), PEER_PORT);
    let mut ring = empty();
    let first = add(&mut ring, &net, 2, "r1", &format!("{net}.1:{PEER_PORT}:r9:dc2:5"));
    let host = |number: u8| format!("{net}.{number}").parse::<Ipv4Addr>().expect("an address");
    let states = |table: &[Record]| -> Vec<(String, u32, Ipv4Addr)> {
        table.iter().map(|r| (r.place.clone(), r.state, r.address)).collect()
    };
    let own = ("dc1$r1$0".to_owned(), 4, host(2));
    let theirs = ("dc2$r9$5".to_owned(), 4, host(1));
    wait_told(&peer, host(2), "it is told of both", |t| states(t) == [own.clone(), theirs.clone()]);
    // A member it never heard of, taught by the only node it knows. Its table is in no order.
    let second = add(&mut ring, &net, 3, "r2", &format!("{net}.2:{PEER_PORT}:r1:dc1:0"));
    let sorted = |table: &[Record]| states(table).into_iter().collect::<BTreeSet<_>>();
    let other = |state: u32, number: u8| ("dc1$r2$0".to_owned(), state, host(number));
    let all = |state: u32, number: u8| {
        BTreeSet::from([own.clone(), theirs.clone(), other(state, number)])
    };
    wait_told(&peer, host(2), "it is told of a member", |t| sorted(t) == all(4, 3));
    ring.nodes[second].kill();
    wait_told(&peer, host(2), "it is told of a death", |t| sorted(t) == all(8, 3));
    // Another one in its place, elsewhere.
    let heir = add(&mut ring, &net, 4, "r2", &format!("{net}.2:{PEER_PORT}:r1:dc1:0"));
    wait_told(&peer, host(2), "it is told of a move", |t| sorted(t) == all(4, 4));
    ring.nodes[heir].kill();
    wait_told(&peer, host(2), "it is told of another death", |t| sorted(t) == all(8, 4));
    peer.frames().iter().for_each(check_frame);
    // Who speaks stands first, and its times never fall; nobody is ever moved back.
    let (mut newest, mut moved) = (BTreeMap::new(), false);
    for table in tables(&peer) {
        let before = newest.insert(table[0].address, table[0].timestamp);
        assert!(before.is_none_or(|before| before <= table[0].timestamp), "{table:?}");
        for record in table.iter().filter(|record| record.place == "dc1$r2$0") {
            moved |= record.address == host(4);
            assert!(!moved || record.address == host(4), "{table:?}");
        }
    }
    assert!(ring.nodes[first].process.as_mut().is_some_and(|process| !process.has_ended()));
}

/// A link to a node, as a C node opens one.
struct Link(TcpStream);

impl Link {
    fn open(node: &Node, host: &str) -> Link {
        assert!(node.process.is_some());
        let stream = TcpStream::connect((host, PEER_PORT)).expect("its peer port");
        // A bound against hangs; no test's outcome depends on it.
        stream.set_read_timeout(Some(PATIENCE)).expect("timeout set");
        Link(stream)
    }

    fn send(&mut self, bytes: &[u8]) {
        self.0.write_all(bytes).expect("sent");
    }

    /// The link serves requests as before.
    fn check(&mut self, what: &str) {
        self.send(&put_frame(7, MsgType::Req, b"d", &encode(&["PING"]), None));
        let mut answer = Vec::new();
        let mut piece = [0; 1024];
        while !answer.ends_with(b"+PONG\r\n") {
            let read = self.0.read(&mut piece).expect("an answer");
            assert!(read > 0, "{what}: the link is closed");
            answer.extend_from_slice(&piece[..read]);
        }
    }
}

fn syn(body: &str) -> Vec<u8> {
    put_frame(0, MsgType::GossipSyn, DATA_GOSSIP, body.as_bytes(), None)
}

fn recorded() -> Vec<(String, Vec<u8>)> {
    let text = include_str!("../vectors/dnode-frames.json");
    let vectors: serde_json::Value = serde_json::from_str(text).expect("vectors");
    let frames = vectors["frames"].as_array().expect("frames").iter();
    let gossip = frames.filter_map(|frame| {
        let name = frame["name"].as_str()?.to_owned();
        let hex = frame["hex"].as_str().filter(|_| name.starts_with("gossip-"))?;
        let digits = (0..hex.len()).step_by(2);
        let bytes = digits.map(|i| u8::from_str_radix(&hex[i..i + 2], 16).expect("hex"));
        Some((name, bytes.collect()))
    });
    gossip.collect()
}

#[test]
fn whatever_a_c_node_gossips_its_link_goes_on_and_only_what_is_newer_counts() {
    let net = free_net();
    let mut ring = empty();
    let number = add(&mut ring, &net, 2, "own", &format!("{net}.3:{PEER_PORT}:seed:dc1:0"));
    let node = &ring.nodes[number];
    wait_until("it serves", || node.info("state").is_some());
    let mut link = Link::open(node, &format!("{net}.2"));
    let frames = recorded();
    assert!(frames.iter().any(|(name, _)| name == "gossip-syn-empty-payload"), "{frames:?}");
    assert!(frames.iter().any(|(name, _)| name == "gossip-stream-headerless-payload"));
    for (name, bytes) in &frames {
        link.send(bytes);
        link.check(name);
    }
    for body in ["", "nonsense", "|||", "$$,,,", "dc1$r7$0,1,4,", "dc1$r7$x,1,4,127.0.0.1"] {
        link.send(&syn(body));
        link.check(body);
    }
    assert!(get(node, "/ring").1.contains("dc1/dc1r2/2147483648"), "the recorded nodes are known");
    assert!(!get(node, "/ring").1.contains("dc1/r7"), "what made no sense is not");
    let event = |what: &str, cause: &str| {
        let (_, page) = get(node, "/ring");
        page.matches(&format!("\"what\":\"{what}\",\"cause\":\"{cause}\"")).count()
    };
    let told = "told by a C node's gossip";
    let now = std::time::UNIX_EPOCH.elapsed().expect("a clock").as_secs();
    // The place of the seed, at another address: moved only by what is newer.
    let record =
        |time: u64, state: u32, host: u8| format!("dc1$seed$0,{time},{state},{net}.{host}");
    let moved = format!("moved from {net}.3:{PEER_PORT} to {net}.4:{PEER_PORT}");
    let kept = format!("not believed to be at {net}.4:{PEER_PORT}");
    for (body, moves, conflicts) in [
        (record(now, 4, 3), 0, 0),
        (record(1_010_101, 8, 4), 0, 1),
        (record(now - 55, 8, 4), 0, 1),
        (record(now + 1, 4, 4), 1, 1),
        (record(now + 1, 4, 4), 1, 1),
    ] {
        link.send(&syn(&body));
        link.check(&body);
        wait_until(&body, || (event(&moved, told), event(&kept, told)) == (moves, conflicts));
    }
    // The node's own place at another address: two owners, which is told and not followed.
    link.send(&syn(&format!("dc1$own$0,{},4,{net}.9", now + 2)));
    link.check("two owners");
    let elsewhere = format!("not believed to be at {net}.9:{PEER_PORT}");
    wait_until("two owners are told", || event(&elsewhere, told) == 1);
    // Twice in one table is once, and an unknown state is a state.
    let twice = format!("dc1$r5$9,{now},99,{net}.5|dc1$r5$9,{now},99,{net}.5");
    link.send(&syn(&twice));
    link.check("twice in one table");
    let added = format!("added at {net}.5:{PEER_PORT}");
    wait_until("it is known", || event(&added, told) == 1);
    wait_until("its state is unknown", || {
        get(node, "/ring").1.contains("\"what\":\"NORMAL -> UNKNOWN\"")
    });
    link.check("in the end");
}
