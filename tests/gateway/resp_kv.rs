//! The small state over the Redis protocol, as it goes through a node's client listener.

use crate::cluster::{Cluster, PATIENCE, Shape};
use crate::node::{Folder, Node, PATIENT, free_ports};
use bytes::Bytes;
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;
use torc::gateway::{Key, NodeAddress, RespKv, RespKvSettings, RingKv};

/// A node with an embedded store that asks its clients for a password.
fn node(folder: &Folder) -> Node {
    let ports = free_ports(3);
    let text = format!(
        "alone:\n  tokens: 0\n  workers: 1\n  datastore: embedded\n  auth: {{requirepass: secret}}\n\
         {PATIENT}  listen: 127.0.0.1:{}\n  dyn_listen: 127.0.0.1:{}\n  stats_listen: 127.0.0.1:{}\n",
        ports[0], ports[1], ports[2]
    );
    let file = folder.0.join("alone.yml");
    std::fs::write(&file, text).unwrap();
    Node::spawn(file, [ports[0], 0, ports[2]])
}

fn kv(port: u16, password: &str) -> RespKv {
    RespKv::new(RespKvSettings {
        address: NodeAddress::Tcp(format!("127.0.0.1:{port}")),
        password: Key::new(password),
        timeout: PATIENCE,
    })
}

async fn ready(kv: &RespKv) {
    crate::cluster::eventually("the node answers", async || kv.get("x").await.is_ok()).await;
}

#[tokio::test]
async fn values_are_set_read_and_expire() {
    let folder = Folder::new("kv");
    let node = node(&folder);
    let port = node.clients;
    let kv = kv(port, "secret");
    ready(&kv).await;
    assert!(kv.get("torc:doc:x").await.unwrap().is_empty());
    let large = Bytes::from(vec![b'x'; 300_000]);
    kv.set("torc:doc:x", large.clone(), None).await.unwrap();
    assert_eq!(kv.get("torc:doc:x").await.unwrap(), [large]);
    kv.set("torc:doc:x", Bytes::from("y"), Some(Duration::from_millis(1))).await.unwrap();
    crate::cluster::eventually("it expires", async || {
        kv.get("torc:doc:x").await.unwrap().is_empty()
    })
    .await;
    assert!(self::kv(port, "wrong").get("x").await.is_err());
    drop(node);
    assert!(kv.get("x").await.is_err(), "a node that is gone is an error, not an absent value");
    assert!(self::kv(port, "secret").set("x", Bytes::new(), None).await.is_err());
}

#[tokio::test]
async fn a_gateway_keeps_its_state_there() {
    let folder = Folder::new("kept");
    let node = node(&folder);
    let shared = kv(node.clients, "secret");
    ready(&shared).await;
    let shape = Shape { groups: 1, members: 2, copies: 1, shards: 16 };
    let mut cluster = Cluster::start(shape).await;
    cluster.kv = Arc::new(shared);
    cluster.restart().await;
    let alias = json!({"name": "films", "target": "movies"});
    assert_eq!(cluster.post("/_miroir/aliases", &alias).await.status, 200);
    let answer = cluster.post("/indexes/films/documents", &json!([{"id": 1}])).await;
    cluster.restart().await;
    assert_eq!(cluster.task(&answer).await["status"], "succeeded");
    assert_eq!(cluster.http.get("/indexes/films/documents/1").await.status, 200);
    drop(node);
    cluster.restart().await;
    let refused = cluster.post("/indexes/movies/documents", &json!([{"id": 2}])).await;
    let expected = (503, "miroir_state_unavailable".to_owned());
    assert_eq!((refused.status, refused.code()), expected, "aliases were never read");
}
