//! Rings whose links are encrypted.

use std::fs;

use rsa::pkcs1::{DecodeRsaPrivateKey, EncodeRsaPrivateKey};

use crate::client::{Client, Reply, ok};
use crate::ring::{Folder, Layout, Ring, Store, wait_until};

/// The key of the recorded vectors, as a file.
pub fn key_file(folder: &Folder) -> String {
    let text = include_str!("../vectors/dnode-frames.json");
    let vectors: serde_json::Value = serde_json::from_str(text).expect("vectors");
    let hex = vectors["rsa_key_pkcs1_der_hex"].as_str().expect("a key");
    let digits = (0..hex.len()).step_by(2);
    let der: Vec<u8> =
        digits.map(|i| u8::from_str_radix(&hex[i..i + 2], 16).expect("hex")).collect();
    let key = rsa::PrivateKey::from_pkcs1_der(&der).expect("a key");
    let path = folder.0.join("key.pem");
    fs::write(&path, key.to_pkcs1_pem(Default::default()).expect("a text")).expect("written");
    path.display().to_string()
}

/// Lengths at the edges of a cipher chunk, and beyond.
pub const LENGTHS: [usize; 8] = [0, 1, 16_304 - 40, 16_304, 16_320, 16_336, 65_536, 1 << 20];

pub fn value(len: usize, salt: usize) -> Vec<u8> {
    (0..len).map(|i| ((i * 31 + salt * 7) % 251) as u8).collect()
}

#[test]
fn values_reach_every_replica_whatever_is_encrypted() {
    for option in ["rack", "datacenter", "all"] {
        let folder = Folder::new();
        let pem = key_file(&folder);
        let ring = Ring::start(Layout {
            dcs: vec![vec![2, 1], vec![1, 1]],
            store: Store::Embedded,
            extra: format!("  secure_server_option: {option}\n  pem_key_file: {pem}\n"),
        });
        let mut clients: Vec<Client> = ring.nodes.iter().map(|n| n.connect()).collect();
        for writer in [1, 3] {
            for len in LENGTHS {
                let key = format!("k{writer}:{len}");
                let client = &mut clients[writer];
                assert_eq!(client.call(&[&b"SET"[..], key.as_bytes(), &value(len, writer)]), ok());
            }
        }
        // Each rack holds everything, so a read through one of its nodes tells of its replica.
        for reader in [0, 2, 3, 4] {
            for writer in [1, 3] {
                for len in LENGTHS {
                    let key = format!("k{writer}:{len}");
                    let want = Reply::Bulk(value(len, writer));
                    let what = format!("{option}: {key} through node {reader}");
                    wait_until(&what, || clients[reader].call(&["GET", &key]) == want);
                }
            }
        }
        for level in ["DC_QUORUM", "DC_EACH_SAFE_QUORUM"] {
            assert_eq!(clients[0].call(&["TORC.CONSISTENCY", level]), ok());
            let big = value(100_000, 3);
            assert_eq!(clients[0].call(&[&b"SET"[..], b"voted", &big]), ok());
            assert!(clients[0].call(&["GET", "voted"]) == Reply::Bulk(big), "{option} {level}");
        }
    }
}

#[test]
fn a_node_that_sends_in_plaintext_is_refused_and_told_why() {
    let folder = Folder::new();
    let pem = key_file(&folder);
    let mut ring = Ring::start(Layout {
        dcs: vec![vec![1, 1]],
        store: Store::Embedded,
        extra: format!("  secure_server_option: all\n  pem_key_file: {pem}\n"),
    });
    // One more node, which was not told.
    ring.set_extra("");
    let stranger = ring.add("dc1", "r3", 0);
    wait_until("it serves", || Client::try_connect(ring.nodes[stranger].client).is_ok());
    let mut client = ring.nodes[stranger].connect();
    wait_until("the reason is logged", || {
        let log = ring.nodes[0].log();
        log.contains("link refused: it is in plaintext, but secure_server_option wants it")
    });
    assert_eq!(client.call(&["TORC.CONSISTENCY", "DC_QUORUM"]), ok());
    let reply = client.call(&["SET", "k", "v"]);
    assert!(reply.is_error(), "{reply:?}");
    let mut member = ring.nodes[0].connect();
    assert_eq!(member.call(&["SET", "k", "mine"]), ok());
    assert_eq!(member.call(&["GET", "k"]), Reply::Bulk(b"mine".to_vec()));
}
