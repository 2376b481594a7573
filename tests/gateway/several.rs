//! Several gateways over the same backends that know of each other, as nodes do through gossip.

use crate::cluster::{Cluster, Shape, eventually, finished};
use crate::fake::{Mode, clock};
use crate::http::Http;
use serde_json::{Value, json};
use std::sync::Arc;
use torc::gateway::{Gateway, GatewayFacts, MemoryKv};

const PATH: &str = "/indexes/movies/documents";
const IDS: usize = 30;

/// Two gateways that other gateways can reach.
async fn pair() -> (Cluster, Arc<Gateway>, Http) {
    let shape = Shape { groups: 2, members: 2, copies: 2, shards: 16 };
    let change = |settings: &mut torc::gateway::Settings| settings.own_url = Some(String::new());
    let cluster = Cluster::with(shape, change).await;
    let (second, other) = cluster.another(|settings| settings.slot = Some(1)).await;
    (cluster, second, other)
}

/// Every gateway hears of the others, and of `more`.
fn introduce(gateways: &[&Gateway], more: &[GatewayFacts]) {
    for gateway in gateways {
        let facts = gateways.iter().map(|other| other.facts());
        gateway.set_others(facts.chain(more.iter().cloned()).collect());
    }
}

/// Each document is written by both gateways at the same moment, or deleted by one of them.
async fn race(gateways: [&Http; 2]) {
    let mut answers = Vec::new();
    for id in 0..IDS {
        let write = async |who: usize| match (id + who) % 5 {
            4 => gateways[who].send("DELETE", &format!("{PATH}/{id}"), "").await,
            _ => gateways[who].json("POST", PATH, &json!([{"id": id, "who": who}])).await,
        };
        let (first, second) = tokio::join!(write(0), write(1));
        answers.extend([first, second]);
    }
    for answer in &answers {
        assert_eq!(finished(gateways[0], answer).await["status"], "succeeded");
    }
}

/// The documents of every backend, once no gateway doubts them.
async fn settled(cluster: &Cluster, gateways: &[&Gateway]) -> Vec<Vec<Option<Value>>> {
    for gateway in gateways {
        eventually("nothing is unsure", async || gateway.status()["unsureShards"] == 0).await;
    }
    let stored = |fake: &crate::fake::Fake| {
        let one = |id: usize| fake.engine(|e| e.document("movies", &id.to_string()));
        (0..IDS).map(one).collect()
    };
    cluster.fakes.iter().map(stored).collect()
}

#[tokio::test]
async fn two_gateways_that_write_the_same_documents_leave_equal_replicas() {
    let (cluster, second, other) = pair().await;
    let gateways = [&*cluster.gateway, &*second];
    introduce(&gateways, &[]);
    cluster.add(&json!([{"id": "first"}])).await;
    cluster.fakes[1].set(Mode::Uneven);
    race([&cluster.http, &other]).await;
    let stored = settled(&cluster, &gateways).await;
    for backend in &stored {
        assert_eq!(*backend, stored[0]);
    }
    let counters = gateways.map(Gateway::counters);
    let handed = counters.map(|counters| counters.writes_handed_over);
    assert!(
        handed == [IDS as u64 + 1, 0] || handed == [0, IDS as u64],
        "one orders all writes: {handed:?}"
    );
    let received = counters.map(|counters| counters.documents_received > 0);
    assert_eq!(received, handed.map(|handed| handed == 0));
    // What clients see is what the gateway that did the write said.
    let bad = json!([{"x": 1}]);
    for http in [&cluster.http, &other] {
        let refused = http.json("POST", PATH, &bad).await;
        assert_eq!((refused.status, refused.code()), (400, "miroir_primary_key_required".into()));
        let session = http.with("x-miroir-session", "s").with("idempotency-key", "k");
        let kept = session.json("POST", PATH, &json!([{"id": 1}])).await;
        assert_eq!((kept.status, kept.header("x-miroir-session")), (202, Some("s")));
        assert_eq!(kept.json()["taskUid"].as_u64().unwrap() % 16, handed[0].min(1));
    }
}

#[tokio::test]
async fn replicas_are_made_equal_when_the_gateway_in_charge_is_out_of_reach() {
    let (cluster, second, other) = pair().await;
    let gateways = [&*cluster.gateway, &*second];
    // Nobody listens there, and one of them is in charge of the index.
    let ghost = |i: usize| GatewayFacts {
        id: format!("ghost-{i}"),
        url: Some("http://127.0.0.1:9".into()),
        ..cluster.gateway.facts()
    };
    let ghosts: Vec<GatewayFacts> = (0..40).map(ghost).collect();
    introduce(&gateways, &ghosts);
    cluster.add(&json!([{"id": "first"}])).await;
    cluster.fakes[1].set(Mode::Uneven);
    race([&cluster.http, &other]).await;
    for gateway in gateways {
        let counters = gateway.counters();
        assert_eq!(counters.writes_handed_over, 0);
        assert!(counters.handovers_failed >= 30 && counters.writes_unsure >= 30, "{counters:?}");
    }
    let stored = settled(&cluster, &gateways).await;
    for backend in &stored {
        assert_eq!(*backend, stored[0]);
    }
}

#[tokio::test]
async fn of_two_gateways_with_one_slot_the_younger_gives_no_tasks() {
    let shape = Shape { groups: 1, members: 1, copies: 1, shards: 16 };
    let mut cluster = Cluster::start(shape).await;
    eventually("it has its slot", async || cluster.gateway.facts().slot == Some(0)).await;
    let older = cluster.gateway.facts();
    // Another ring's state, so that gossip alone tells.
    cluster.kv = Arc::new(MemoryKv::new(clock()));
    let (younger, http) = cluster.another(|settings| settings.max_gateways = 8).await;
    assert_eq!(http.json("POST", PATH, &json!([{"id": 1}])).await.status, 202);
    younger.set_others(vec![GatewayFacts { id: "older".into(), ..older.clone() }]);
    let refused = http.json("POST", PATH, &json!([{"id": 1}])).await;
    assert_eq!((refused.status, refused.code()), (503, "miroir_state_unavailable".into()));
    let said = refused.json()["message"].as_str().unwrap().to_owned();
    assert!(said.contains("documents.slot 0 is in use by older"), "{said}");
    let page = younger.status()["gateway"].clone();
    assert_eq!((&page["taskSlot"], &page["taskSlotTrouble"]), (&Value::Null, &json!(said)));
    younger.set_others(Vec::new());
    assert_eq!(http.json("POST", PATH, &json!([{"id": 1}])).await.status, 202);

    let (free, http) = cluster.another(|settings| settings.slot = None).await;
    free.set_others(vec![GatewayFacts { id: "older".into(), ..older }]);
    let taken = http.json("POST", PATH, &json!([{"id": 1}])).await.json();
    assert_eq!(taken["taskUid"].as_u64().unwrap() % 16, 1, "the lowest nobody tells to use");
}
