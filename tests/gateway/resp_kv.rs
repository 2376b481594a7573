//! The small state over the Redis protocol, as it goes through a node's client listener. A
//! redis-server (`REDIS_BIN`, default from PATH) stands for the node.

use crate::cluster::{Cluster, Shape};
use bytes::Bytes;
use serde_json::json;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;
use torc::gateway::{Key, NodeAddress, RespKv, RespKvSettings, RingKv};

struct Redis {
    child: Child,
    port: u16,
}

impl Drop for Redis {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// `None` without a redis-server.
fn redis() -> Option<Redis> {
    let binary = std::env::var("REDIS_BIN").unwrap_or_else(|_| "redis-server".to_owned());
    let port = std::net::TcpListener::bind("127.0.0.1:0").ok()?.local_addr().ok()?.port();
    let port_text = port.to_string();
    let arguments = [
        "--port",
        &port_text,
        "--bind",
        "127.0.0.1",
        "--save",
        "",
        "--appendonly",
        "no",
        "--requirepass",
        "secret",
    ];
    let mut command = Command::new(binary);
    command.args(arguments).stdout(Stdio::null()).stderr(Stdio::null());
    match command.spawn() {
        Ok(child) => Some(Redis { child, port }),
        Err(error) => {
            println!("skipped: no redis-server ({error}); name one with REDIS_BIN");
            None
        }
    }
}

fn kv(port: u16, password: &str) -> RespKv {
    RespKv::new(RespKvSettings {
        address: NodeAddress::Tcp(format!("127.0.0.1:{port}")),
        password: Key::new(password),
        timeout: Duration::from_secs(5),
    })
}

async fn ready(kv: &RespKv) {
    crate::cluster::eventually("redis answers", async || kv.get("x").await.is_ok()).await;
}

#[tokio::test]
async fn values_are_set_read_and_expire() {
    let Some(redis) = redis() else { return };
    let kv = kv(redis.port, "secret");
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
    assert!(self::kv(redis.port, "wrong").get("x").await.is_err());
    let port = redis.port;
    drop(redis);
    assert!(kv.get("x").await.is_err(), "a node that is gone is an error, not an absent value");
    assert!(self::kv(port, "secret").set("x", Bytes::new(), None).await.is_err());
}

#[tokio::test]
async fn a_gateway_keeps_its_state_there() {
    let Some(redis) = redis() else { return };
    let shared = kv(redis.port, "secret");
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
    drop(redis);
    cluster.restart().await;
    let refused = cluster.post("/indexes/movies/documents", &json!([{"id": 2}])).await;
    let expected = (503, "miroir_state_unavailable".to_owned());
    assert_eq!((refused.status, refused.code()), expected, "aliases were never read");
}
