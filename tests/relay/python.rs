//! Google's gRPC and protobuf for Python, generated from our schema, as an independent reader.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use sha2::{Digest, Sha256};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::process::Command;
use torc::config;
use torc::relay::readiness::{Served, derive};

use crate::producer::{Producer, image};
use crate::server::{Server, within};

fn libraries() -> Option<PathBuf> {
    let found = std::env::var_os("TORC_CLIENTS").map(PathBuf::from);
    if found.is_none() {
        println!("skipped: grpcio: TORC_CLIENTS names no folder of client libraries");
    }
    found
}

fn digest(words: &[u64]) -> String {
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    Sha256::digest(&bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

#[tokio::test]
async fn grpcio_reads_every_stream_and_ends_with_the_producers_words() {
    let Some(folder) = libraries() else { return };
    let limits = config::Relay { load_window_ms: 20, ..config::Relay::default() };
    let server = Server::start(limits).await;
    let producer = Producer::new("dc1", 1, 2 << 19);
    producer.change(&[image(0, 1), image((2 << 19) - 1, u64::MAX), image(77, 0x1234)]);
    server.publish(&producer, "dc1");
    let pool = producer.descriptor("dc1");
    server.relay.set_readiness(derive(&[Served { pool: &pool, alive: Some(true) }]));
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut child = Command::new("python3")
        .arg(root.join("tests/clients/relay.py"))
        .arg(&server.address)
        .arg(root.join("src/relay"))
        .arg("1")
        .env("PYTHONPATH", folder.join("python"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .expect("python3");
    let mut input = child.stdin.take().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut found = HashMap::new();
    while let Some(line) = within(lines.next_line()).await.unwrap() {
        let (name, value) = line.split_once(' ').unwrap();
        if name == "snapshot" {
            producer.change(&[image(77, 0), image(78, 5), image(1 << 19, 9)]);
            input.write_all(b"changed\n").await.unwrap();
        }
        found.insert(name.to_owned(), value.to_owned());
    }
    assert!(within(child.wait()).await.unwrap().success(), "{found:?}");
    let refused = "INVALID_ARGUMENT RELAY_ERROR_REASON_INVALID_REQUEST";
    let expected = [
        ("relay", "17 23"),
        ("pools", "1"),
        ("models", "llama"),
        ("readiness", "1"),
        ("load", "10/40"),
        ("serving", "1"),
        ("refused", refused),
        ("snapshot", "0"),
        ("filter", &digest(&producer.words())),
    ];
    for (name, value) in expected {
        assert_eq!(found.get(name).map(String::as_str), Some(value), "{name}");
    }
}
