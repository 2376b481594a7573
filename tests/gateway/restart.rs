//! Gateways killed and restarted between a write and the question what became of it.

use crate::cluster::{eventually, finished};
use crate::fake::Fake;
use crate::http::{Answer, Http};
use crate::node::{EMBEDDED, Folder, Node, free_ports, ring, serves};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::process::{Child, Command, Stdio};
use torc::gateway::builtin::Hold;

const PATH: &str = "/indexes/movies/documents";

/// A redis-server that keeps what it is told as long as it runs.
struct Redis {
    child: Child,
    port: u16,
    _home: Folder,
}

impl Drop for Redis {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// `None`, and a line that says so, where there is no redis-server.
fn redis(name: &str) -> Option<Redis> {
    let binary = std::env::var("REDIS_BIN").unwrap_or_else(|_| "redis-server".to_owned());
    let (home, port) = (Folder::new(name), free_ports(1)[0]);
    let started = Command::new(&binary)
        .args(["--bind", "127.0.0.1", "--port", &port.to_string(), "--save", ""])
        .current_dir(&home.0)
        .stdout(Stdio::null())
        .spawn();
    match started {
        Ok(child) => Some(Redis { child, port, _home: home }),
        Err(error) => {
            println!("skipped: {binary} cannot be run: {error}");
            None
        }
    }
}

async fn fakes(count: usize) -> Vec<Fake> {
    let mut fakes = Vec::new();
    for _ in 0..count {
        fakes.push(Fake::start(None).await);
    }
    fakes
}

fn restart_all(nodes: &mut [Node]) {
    nodes.iter_mut().for_each(Node::kill);
    nodes.iter_mut().for_each(Node::restart);
}

async fn all_serve(nodes: &[Node]) {
    for node in nodes {
        serves(node).await;
    }
}

/// The task of an answer, once the gateway knows and it is done.
async fn done(http: &Http, answer: &Answer) -> Value {
    let path = format!("/tasks/{}", answer.json()["taskUid"]);
    eventually("it answers for the task", async || {
        // While links are made anew it says that it does not know, never "no such task".
        let task = http.get(&path).await;
        assert!(matches!(task.status, 200 | 503), "{:?}", task.json());
        task.json()["status"] == "succeeded"
    })
    .await;
    http.get(&path).await.json()
}

#[tokio::test]
async fn stores_that_stay_keep_every_task_when_all_gateways_are_killed() {
    let stores: Option<Vec<Redis>> = (0..2).map(|i| redis(&format!("state-{i}"))).collect();
    let Some(stores) = stores else { return };
    let fakes = fakes(2).await;
    let store = |i: usize| format!("  servers:\n  - 127.0.0.1:{}:1\n", stores[i].port);
    let mut ring = ring("stores", &fakes, store, |_| "");
    all_serve(&ring.nodes).await;
    let first = ring.nodes[0].http();
    let alias = json!({"name": "films", "target": "movies"});
    assert_eq!(first.json("POST", "/_miroir/aliases", &alias).await.status, 200);
    let keyed = first.with("idempotency-key", "k");
    let film = json!([{"id": 1, "title": "Dune"}]);
    let answer = keyed.json("POST", PATH, &film).await;
    assert_eq!(finished(&first, &answer).await["status"], "succeeded");
    // The second one's outcome is not known to any gateway when they are killed.
    fakes.iter().for_each(|fake| fake.engine(|e| e.set_hold(Some(Hold::Enqueued))));
    let open = first.json("POST", PATH, &json!([{"id": 2}])).await;
    assert_eq!(open.status, 202, "{:?}", open.json());
    restart_all(&mut ring.nodes);
    fakes.iter().for_each(|fake| fake.engine(|e| e.set_hold(None)));
    all_serve(&ring.nodes).await;
    for node in &ring.nodes {
        let http = node.http();
        done(&http, &answer).await;
        assert_eq!(done(&http, &open).await["details"]["indexedDocuments"], 1);
        let again = http.with("idempotency-key", "k").json("POST", PATH, &film).await;
        assert_eq!(again.json(), answer.json(), "it is answered, not done again");
        let found = http.get("/indexes/films/documents/1").await;
        assert_eq!(found.json()["title"], "Dune");
    }
    let mut uids = BTreeSet::from([uid(&answer), uid(&open)]);
    for node in &ring.nodes {
        let more = node.http().json("POST", PATH, &json!([{"id": 3}])).await;
        assert!(uids.insert(uid(&more)), "no number twice: {} of {uids:?}", uid(&more));
    }
}

fn uid(answer: &Answer) -> u64 {
    answer.json()["taskUid"].as_u64().unwrap_or_else(|| panic!("{:?}", answer.json()))
}

#[tokio::test]
async fn embedded_stores_keep_every_task_while_one_rack_of_three_is_killed() {
    let fakes = fakes(3).await;
    let mut ring = ring("racks", &fakes, |_| EMBEDDED.into(), |_| "");
    all_serve(&ring.nodes).await;
    let mut answers: Vec<Answer> = Vec::new();
    // Each rack in turn: in the end all three have lost what they stored once.
    for killed in 0..3 {
        fakes.iter().for_each(|fake| fake.engine(|e| e.set_hold(Some(Hold::Enqueued))));
        let http = ring.nodes[killed].http();
        let answer = http.json("POST", PATH, &json!([{"id": killed}])).await;
        assert_eq!(answer.status, 202, "{:?}", answer.json());
        answers.push(answer);
        ring.nodes[killed].kill();
        ring.nodes[killed].restart();
        fakes.iter().for_each(|fake| fake.engine(|e| e.set_hold(None)));
        all_serve(&ring.nodes).await;
        for node in &ring.nodes {
            done(&node.http(), &answers[killed]).await;
        }
    }
    let uids: BTreeSet<u64> = answers.iter().map(uid).collect();
    assert_eq!(uids.len(), 3, "no number twice");
}

#[tokio::test]
async fn a_ring_that_lost_all_says_so_and_gives_no_number_twice() {
    let fakes = fakes(2).await;
    let mut ring = ring("lost", &fakes, |_| EMBEDDED.into(), |_| "");
    all_serve(&ring.nodes).await;
    let mut uids = BTreeSet::new();
    let write = async |nodes: &[Node], uids: &mut BTreeSet<u64>| {
        for node in nodes {
            eventually("tasks are marked with their numbers", async || {
                let answer = node.http().json("POST", PATH, &json!([{"id": 1}])).await;
                assert_eq!(finished(&node.http(), &answer).await["status"], "succeeded");
                assert!(uids.insert(uid(&answer)), "no number twice: {}", uid(&answer));
                fakes.iter().all(|fake| {
                    let last = fake.take_log().into_iter().rfind(|seen| seen.is_write());
                    last.is_some_and(|seen| seen.target.contains("mtask"))
                })
            })
            .await;
        }
    };
    for _ in 0..2 {
        write(&ring.nodes, &mut uids).await;
        restart_all(&mut ring.nodes);
        all_serve(&ring.nodes).await;
        let last = uids.last().unwrap();
        let http = ring.nodes[0].http();
        let path = format!("/tasks/{last}");
        eventually("the racks are asked", async || http.get(&path).await.status != 503).await;
        assert_eq!(http.get(&path).await.code(), "task_not_found");
        assert_eq!(http.get(&format!("{PATH}/1")).await.json(), json!({"id": 1}));
    }
    write(&ring.nodes, &mut uids).await;
}
