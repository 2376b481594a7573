//! Backends that join, leave and are added as a group while documents are written.

use crate::cluster::{Cluster, NEVER, NODE_KEY, Shape, documents, eventually};
use crate::fake::{Fake, hand_clock};
use bytes::Bytes;
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;
use tokio::sync::watch;
use torc::document::topology::Topology;
use torc::gateway::{KvFuture, RingKv};

const PATH: &str = "/indexes/movies/documents";
const MIGRATION: &str = "/_miroir/migration";

/// Moves the clock of a gateway on: each phase of a migration begins when a write that was sent
/// before every gateway followed must be answered or given up, and in tests none is ever given up.
pub(crate) struct Hand(Arc<AtomicU64>);

impl Hand {
    pub(crate) fn let_all_follow(&self) {
        self.0.fetch_add(2 * NEVER.as_micros() as u64, Ordering::Relaxed);
    }
}

pub(crate) async fn cluster(groups: usize, members: usize) -> (Cluster, Hand) {
    let (ahead, clock) = hand_clock();
    let mut cluster = Cluster::start(Shape { groups, members, copies: 1, shards: 16 }).await;
    cluster.restart_at(clock).await;
    (cluster, Hand(ahead))
}

/// Lets a migration go through its phases.
pub(crate) async fn carry_out(cluster: &Cluster, hand: &Hand) {
    for (phase, next) in [("copying", "switched"), ("switched", "done")] {
        hand.let_all_follow();
        eventually(&format!("the migration that was {phase} is {next}"), async || {
            let view = cluster.http.get(MIGRATION).await.json();
            assert!(view["phase"] == phase || view["phase"] == next, "{view}");
            view["phase"] == next
        })
        .await;
    }
}

/// Writes, updates and deletes until it is told to stop; what must be there at the end.
fn writer(
    cluster: &Cluster,
) -> (tokio::sync::oneshot::Sender<()>, tokio::task::JoinHandle<Vec<Value>>) {
    let http = cluster.http.clone();
    let (stop, mut stopped) = tokio::sync::oneshot::channel::<()>();
    let work = tokio::spawn(async move {
        let mut documents: Vec<Option<Value>> = vec![None; 200];
        for round in 0_usize.. {
            if stopped.try_recv().is_ok() {
                break;
            }
            let i = round * 37 % 200;
            let id = format!("live-{i}");
            let answer = if round % 5 == 4 {
                documents[i] = None;
                http.send("DELETE", &format!("{PATH}/{id}"), "").await
            } else {
                let document = json!({"id": id, "round": round});
                documents[i] = Some(document.clone());
                http.json("POST", PATH, &json!([document])).await
            };
            assert_eq!(answer.status, 202, "{:?}", answer.json());
            if round % 20 == 0 {
                crate::cluster::finished(&http, &answer).await;
            }
        }
        documents.into_iter().flatten().collect()
    });
    (stop, work)
}

/// Every document is where the topology says, and nowhere else.
async fn check_placement(backends: &[(&str, &Fake)], topology: &Topology, documents: &[Value]) {
    let mut expected = vec![0; backends.len()];
    for document in documents {
        let id = document["id"].as_str().unwrap();
        let shard = torc::document::shard::shard_for_key(id, topology.shards());
        for owner in topology.write_targets(shard) {
            let name = topology.id(*owner);
            let place = backends.iter().position(|(id, _)| *id == name).unwrap();
            expected[place] += 1;
            let stored = backends[place].1.engine(|e| e.document("movies", id));
            let stored = stored.unwrap_or_else(|| panic!("{id} is missing on {name}"));
            for (field, value) in document.as_object().unwrap() {
                assert_eq!(stored[field], *value, "{id} on {name}");
            }
        }
    }
    for ((name, fake), expected) in backends.iter().zip(expected) {
        eventually("copies nobody uses are gone", async || {
            fake.engine(|e| e.documents("movies")) == expected
        })
        .await;
        assert_eq!(fake.engine(|e| e.documents("movies")), expected, "{name}");
    }
}

#[tokio::test]
async fn a_backend_joins_while_documents_are_written() {
    let (cluster, hand) = cluster(1, 2).await;
    cluster.add(&documents(0..300)).await;
    let joining = Fake::start(Some(NODE_KEY)).await;
    let (stop, writing) = writer(&cluster);
    let body = json!({"add": [{"id": "node-2", "url": joining.url(), "group": 0}]});
    let started = cluster.post(MIGRATION, &body).await;
    assert_eq!((started.status, &started.json()["phase"]), (202, &json!("copying")));
    let again = cluster.post(MIGRATION, &body).await;
    assert_eq!((again.status, again.code()), (409, "miroir_migration_conflict".into()));
    carry_out(&cluster, &hand).await;
    stop.send(()).unwrap();
    let mut all = writing.await.unwrap();
    all.extend(documents(0..300).as_array().unwrap().iter().cloned());
    // The last write's task is after all others.
    cluster.add(&json!([{"id": "last"}])).await;
    all.push(json!({"id": "last"}));
    let members = vec!["node-0".to_owned(), "node-1".to_owned(), "node-2".to_owned()];
    let topology = Topology::new(16, 1, &[members]).unwrap();
    let fakes =
        [("node-0", &cluster.fakes[0]), ("node-1", &cluster.fakes[1]), ("node-2", &joining)];
    check_placement(&fakes, &topology, &all).await;
    for document in &all {
        let path = format!("{PATH}/{}", document["id"].as_str().unwrap());
        assert_eq!(cluster.http.get(&path).await.json(), *document);
    }
    let found = cluster.post("/indexes/movies/search", &json!({"limit": 1000})).await;
    assert_eq!(found.status, 200, "{:?}", found.json());
    assert_eq!(found.json()["hits"].as_array().unwrap().len(), all.len());
    let early = cluster.http.send("DELETE", MIGRATION, "").await;
    assert_eq!(early.code(), "miroir_migration_conflict", "the configuration must follow first");
    let (other, _) = cluster.another(|settings| settings.slot = Some(1)).await;
    eventually("another gateway uses the new owners", async || {
        other.fingerprint() == topology.fingerprint()
    })
    .await;
}

#[tokio::test]
async fn a_group_is_added_and_counts_once_it_is_filled() {
    let (cluster, hand) = cluster(1, 1).await;
    cluster.add(&documents(0..50)).await;
    let mut joining = Fake::start(Some(NODE_KEY)).await;
    joining.stop().await;
    let body = json!({"add": [{"id": "other-0", "url": joining.url(), "group": 1}]});
    assert_eq!(cluster.post(MIGRATION, &body).await.status, 202);
    let answer = cluster.post(PATH, &json!([{"id": "x"}])).await;
    assert_eq!(answer.status, 202);
    assert_eq!(answer.header("x-miroir-degraded"), None, "a group that fills does not count");
    joining.resume().await;
    carry_out(&cluster, &hand).await;
    assert_eq!(joining.engine(|e| e.documents("movies")), 51);
    joining.stop().await;
    let answer = cluster.post(PATH, &json!([{"id": "y"}])).await;
    assert_eq!(answer.header("x-miroir-degraded"), Some("groups=1"));
}

#[tokio::test]
async fn what_joins_takes_every_write_and_acknowledges_none() {
    // It stays in the first phase: no time passes.
    let (mut cluster, _) = cluster(1, 1).await;
    cluster.add(&documents(0..5)).await;
    let joining = Fake::start(Some(NODE_KEY)).await;
    let add = |group| json!({"add": [{"id": "node-1", "url": joining.url(), "group": group}]});
    for group in [0, 1] {
        assert_eq!(cluster.post(MIGRATION, &add(group)).await.status, 202);
        let ids: Vec<String> = (0..64).map(|i| format!("new-{i}")).collect();
        let all: Vec<Value> = ids.iter().map(|id| json!({"id": id})).collect();
        let answer = cluster.post(PATH, &json!(all)).await;
        assert_eq!(answer.status, 202);
        let deleted = cluster.post(&format!("{PATH}/delete-batch"), &json!(ids)).await;
        assert_eq!(deleted.status, 202);
        let dual = joining.take_log().into_iter().filter(|seen| seen.is_write());
        let dual: Vec<String> = dual.map(|seen| seen.target).collect();
        assert!(dual.iter().any(|target| target.contains("primaryKey=id")), "{dual:?}");
        assert!(dual.iter().any(|target| target.contains("delete-batch")), "{dual:?}");
        cluster.stop(&[0]).await;
        let answer = cluster.post(PATH, &json!(all)).await;
        assert_eq!((answer.status, answer.code()), (503, "miroir_no_quorum".into()), "{group}");
        cluster.resume(&[0]).await;
        eventually("the owner answers", async || {
            cluster.post(PATH, &json!([{"id": "x"}])).await.status == 202
        })
        .await;
        assert_eq!(cluster.http.send("DELETE", MIGRATION, "").await.status, 200);
    }
}

#[tokio::test]
async fn a_backend_leaves_and_its_documents_stay() {
    let (cluster, hand) = cluster(1, 3).await;
    cluster.add(&documents(0..100)).await;
    let started = cluster.post(MIGRATION, &json!({"remove": ["node-1"]})).await;
    assert_eq!(started.status, 202, "{:?}", started.json());
    carry_out(&cluster, &hand).await;
    let members = vec!["node-0".to_owned(), "node-2".to_owned()];
    let topology = Topology::new(16, 1, &[members]).unwrap();
    let fakes = [("node-0", &cluster.fakes[0]), ("node-2", &cluster.fakes[2])];
    let all = documents(0..100);
    check_placement(&fakes, &topology, all.as_array().unwrap()).await;
    cluster.forget_requests();
    cluster.add(&documents(100..120)).await;
    assert_eq!(cluster.writes()[1], 0);
}

#[tokio::test]
async fn a_migration_can_be_given_up_and_bad_ones_are_refused() {
    let (cluster, _) = cluster(1, 2).await;
    for body in [
        json!({}),
        json!({"remove": ["node-0", "node-1"]}),
        json!({"remove": ["nobody"]}),
        json!({"add": [{"id": "a", "url": "http://127.0.0.1:1", "group": 5}]}),
        json!({"add": [{"id": "node-0", "url": "http://127.0.0.1:1", "group": 0}]}),
        json!({"add": [{"id": "a", "url": "ftp://x", "group": 0}]}),
        json!({"add": [{"id": "a"}]}),
    ] {
        let refused = cluster.post(MIGRATION, &body).await;
        assert_eq!((refused.status, refused.code()), (400, "bad_request".into()), "{body}");
    }
    let body = json!({"add": [{"id": "node-9", "url": "http://127.0.0.1:1", "group": 0}]});
    assert_eq!(cluster.post(MIGRATION, &body).await.status, 202);
    cluster.add(&documents(0..10)).await;
    let ended = cluster.http.send("DELETE", MIGRATION, "").await;
    assert_eq!(ended.json()["phase"], "ended");
    let topology = cluster.http.get("/_miroir/topology").await.json();
    assert_eq!(topology["joining"], json!([]));
    cluster.add(&documents(0..20)).await;
}

/// A ring that is written to when the test lets it: what a gateway says of migrations waits.
struct Gate {
    ring: Arc<dyn RingKv>,
    shut: watch::Sender<bool>,
    waiting: AtomicUsize,
}

impl RingKv for Gate {
    fn get<'a>(&'a self, key: &'a str) -> KvFuture<'a, Vec<Bytes>> {
        self.ring.get(key)
    }

    fn set<'a>(&'a self, key: &'a str, value: Bytes, ttl: Option<Duration>) -> KvFuture<'a, ()> {
        Box::pin(async move {
            let mut shut = self.shut.subscribe();
            if key.contains("migration") && *shut.borrow() {
                self.waiting.fetch_add(1, Ordering::Relaxed);
                let _ = shut.wait_for(|shut| !shut).await;
            }
            self.ring.set(key, value, ttl).await
        })
    }
}

#[tokio::test]
async fn what_the_coordinator_tells_does_not_bring_a_migration_back() {
    let (mut cluster, _) = cluster(1, 1).await;
    let (_, other) = cluster.another(|settings| settings.slot = Some(1)).await;
    let (shut, waiting) = (watch::Sender::new(false), AtomicUsize::new(0));
    let gate = Arc::new(Gate { ring: cluster.kv.clone(), shut, waiting });
    cluster.kv = gate.clone();
    cluster.restart().await;
    let body = json!({"add": [{"id": "node-9", "url": "http://127.0.0.1:1", "group": 0}]});
    assert_eq!(cluster.post(MIGRATION, &body).await.status, 202);
    gate.shut.send_replace(true);
    eventually("the coordinator tells something", async || {
        gate.waiting.load(Ordering::Relaxed) == 1
    })
    .await;
    assert_eq!(other.send("DELETE", MIGRATION, "").await.json()["phase"], "ended");
    gate.shut.send_replace(false);
    for http in [&cluster.http, &other] {
        eventually("its gateway follows", async || {
            let topology = http.get("/_miroir/topology").await.json();
            topology["joining"] == json!([])
        })
        .await;
        assert_eq!(http.get(MIGRATION).await.json()["phase"], "ended");
    }
}
