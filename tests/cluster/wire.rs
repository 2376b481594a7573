//! Bytes on the client and peer ports: pieces, sizes, noise.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};

use crate::client::{Client, Reply, bulk, encode, ok};
use crate::ring::{Layout, Ring, Store};

fn ring() -> Ring {
    Ring::start(Layout { dcs: vec![vec![2, 1]], store: Store::Embedded, extra: String::new() })
}

#[test]
fn pipelines_and_large_values_come_back_in_order_and_whole() {
    let ring = ring();
    let mut client = ring.nodes[0].connect();
    let mut stream = client.stream();
    let mut bytes = Vec::new();
    for i in 0..2_500 {
        bytes.extend(encode(&["SET", &format!("p{i}"), &format!("v{i}")]));
        bytes.extend(encode(&["GET", &format!("p{i}")]));
        bytes.extend(encode(&["MGET", &format!("p{i}"), "p0", "none"]));
        bytes.extend(encode(&["NOSUCH", "x"]));
    }
    let writer = std::thread::spawn(move || stream.write_all(&bytes));
    for i in 0..2_500 {
        let value = bulk(format!("v{i}"));
        assert_eq!(client.reply().unwrap(), ok());
        assert_eq!(client.reply().unwrap(), value);
        assert_eq!(client.reply().unwrap(), Reply::Array(vec![value, bulk("v0"), Reply::Nil]));
        assert!(client.reply().unwrap().is_error());
    }
    writer.join().unwrap().unwrap();
    let large: Vec<u8> = (0..64 << 20).map(|i: u32| (i % 251) as u8).collect();
    for node in &ring.nodes {
        let mut client = node.connect();
        for key in ["large:1", "large:2", "large:3"] {
            assert_eq!(client.call(&[b"SET", key.as_bytes(), &large]), ok());
            assert!(client.call(&["GET", key]) == Reply::Bulk(large.clone()), "{key} differs");
        }
    }
}

#[test]
fn a_request_cut_at_every_byte_is_answered() {
    let ring = ring();
    let mut client = ring.nodes[0].connect();
    let request = [
        encode(&["SET", "cut", "some value"]),
        encode(&["MGET", "cut", "other"]),
        b"GET cut\r\n".to_vec(),
    ]
    .concat();
    for at in 1..request.len() {
        client.send(&request[..at]).unwrap();
        // A request of its own on another connection goes through meanwhile.
        assert_eq!(ring.nodes[1].connect().call(&["PING"]).text(), "PONG");
        client.send(&request[at..]).unwrap();
        assert_eq!(client.reply().unwrap(), ok(), "cut at {at}");
        let both = Reply::Array(vec![bulk("some value"), Reply::Nil]);
        assert_eq!(client.reply().unwrap(), both, "cut at {at}");
        assert_eq!(client.reply().unwrap(), bulk("some value"), "cut at {at}");
    }
}

#[test]
fn noise_on_any_port_harms_nobody() {
    let mut ring = ring();
    let mut client = ring.nodes[0].connect();
    assert_eq!(client.call(&["SET", "quiet", "1"]), ok());
    let mut state = 0x2545_f491_4f6c_dd1d_u64;
    for round in 0..24 {
        let noise: Vec<u8> = (0..4096)
            .map(|_| {
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                state as u8
            })
            .collect();
        let node = &ring.nodes[round % ring.nodes.len()];
        for port in [node.client, node.peer, node.admin] {
            let Ok(mut stream) = TcpStream::connect(("127.0.0.1", port)) else { continue };
            let _ = stream.write_all(&noise);
            let _ = stream.shutdown(Shutdown::Write);
            let _ = stream.read_to_end(&mut Vec::new());
        }
        for node in &ring.nodes {
            let mut client = node.connect();
            assert_eq!(client.call(&["GET", "quiet"]), bulk("1"), "after noise {round}");
        }
        assert_eq!(client.call(&["GET", "quiet"]), bulk("1"), "the open connection");
    }
    for node in &mut ring.nodes {
        assert!(!node.process.as_mut().unwrap().has_ended(), "a node ended");
    }
}

#[test]
fn broken_framing_is_told_and_closed_after_earlier_replies() {
    let ring = ring();
    let mut client = ring.nodes[0].connect();
    let bytes = [encode(&["SET", "a", "1"]), encode(&["GET", "a"]), b"*1\r\n:5\r\n".to_vec()];
    client.send(&bytes.concat()).unwrap();
    assert_eq!(client.reply().unwrap(), ok());
    assert_eq!(client.reply().unwrap(), bulk("1"));
    assert!(client.reply().unwrap().text().starts_with("ERR Protocol error"));
    assert!(client.reply().is_err(), "closed");
    let mut other = Client::connect(ring.nodes[0].client);
    assert_eq!(other.call(&["GET", "a"]), bulk("1"));
}
