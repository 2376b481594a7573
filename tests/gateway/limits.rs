//! Every bound of a gateway, hit.

use crate::cluster::{Cluster, Shape, documents, eventually};
use crate::fake::Mode;
use crate::migrate;
use serde_json::json;
use std::time::Duration;
use torc::gateway::builtin::Hold;

const PATH: &str = "/indexes/movies/documents";
const ONE: Shape = Shape { groups: 1, members: 1, copies: 1, shards: 16 };

#[tokio::test]
async fn a_write_that_takes_too_long_is_told_and_goes_on() {
    let cluster = Cluster::with(ONE, |settings| {
        settings.request_timeout = Duration::from_millis(100);
    })
    .await;
    cluster.fakes[0].set(Mode::Held(""));
    let answer = cluster.post(PATH, &json!([{"id": 1}])).await;
    assert_eq!((answer.status, answer.code()), (504, "miroir_timeout".into()));
    assert_eq!(answer.json()["type"], "system");
    cluster.fakes[0].set(Mode::Normal);
    eventually("it is stored all the same", async || {
        cluster.fakes[0].engine(|e| e.document("movies", "1")).is_some()
    })
    .await;
}

#[tokio::test]
async fn a_full_lane_is_a_missing_acknowledgement() {
    let shape = Shape { groups: 2, ..ONE };
    let cluster = Cluster::with(shape, |settings| settings.lane_requests_max = 1).await;
    cluster.add(&json!([{"id": 1}])).await;
    cluster.fakes[1].set(Mode::Silent);
    let mut running = Vec::new();
    for id in ["a", "b", "c"] {
        let http = cluster.http.clone();
        running.push(tokio::spawn(async move {
            http.json("POST", PATH, &json!([{"id": id}]))
                .await
                .header("x-miroir-degraded")
                .map(str::to_owned)
        }));
        eventually("group 0 has it", async || {
            cluster.fakes[0].engine(|e| e.document("movies", id)).is_some()
        })
        .await;
    }
    // One is sent and one waits at the silent group; the third is not kept waiting.
    let third = running.pop().unwrap().await.unwrap();
    assert_eq!(third.as_deref(), Some("groups=1"));
    assert!(running.iter().all(|write| !write.is_finished()));
    running.iter().for_each(tokio::task::JoinHandle::abort);
}

#[tokio::test]
async fn bodies_in_flight_are_bounded() {
    let cluster = Cluster::with(ONE, |settings| {
        settings.body_bytes_max = 1 << 20;
        settings.in_flight_bytes_max = 1;
    })
    .await;
    // Room is made for one body of the largest size, packed and not.
    let chunked = cluster.http.with("content-type", "application/x-ndjson");
    let text = "{\"id\":1}\n".repeat(100_000);
    cluster.fakes[0].set(Mode::Held(""));
    let mut running = tokio::task::JoinSet::new();
    for _ in 0..4 {
        let (http, text) = (chunked.clone(), text.clone());
        running.spawn(async move { http.send("POST", PATH, text).await.status });
    }
    eventually("two are let in", async || cluster.gateway.in_flight_bytes() > 1 << 20).await;
    let most = 2 << 20;
    assert!(cluster.gateway.in_flight_bytes() <= most);
    cluster.fakes[0].set(Mode::Normal);
    assert_eq!(running.join_all().await, [202; 4], "the others wait for their turn");
    eventually("no body is left", async || cluster.gateway.in_flight_bytes() == 0).await;
    // A packed body that grows beyond what is left is refused, not waited for.
    let packed = cluster.http.with("content-type", "application/json");
    let packed = packed.with("content-encoding", "gzip");
    let body = crate::requests::gzip(b"[{\"id\":1}]");
    let mut running = tokio::task::JoinSet::new();
    for _ in 0..4 {
        let (http, body) = (packed.clone(), body.clone());
        running.spawn(async move { http.send("POST", PATH, body).await });
    }
    for answer in running.join_all().await {
        let overloaded = (answer.status, answer.code()) == (503, "miroir_overloaded".into());
        assert!(answer.status == 202 || overloaded, "{}", answer.status);
    }
    eventually("no body is left", async || cluster.gateway.in_flight_bytes() == 0).await;
}

#[tokio::test]
async fn connections_beyond_the_limit_wait() {
    let cluster = Cluster::with(ONE, |settings| settings.connections_max = 1).await;
    let address = cluster.http.base().strip_prefix("http://").unwrap().to_owned();
    let held = tokio::net::TcpStream::connect(&address).await.unwrap();
    let http = cluster.http.clone();
    let waiting = tokio::spawn(async move { http.get("/health").await.status });
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert!(!waiting.is_finished(), "the only place is taken");
    drop(held);
    assert_eq!(waiting.await.unwrap(), 200);
}

#[tokio::test]
async fn a_copy_waits_for_what_was_accepted_before_it_began() {
    let (cluster, hand) = migrate::cluster(1, 2).await;
    cluster.add(&documents(0..20)).await;
    for fake in &cluster.fakes {
        fake.engine(|e| e.set_hold(Some(Hold::Enqueued)));
    }
    let answer = cluster.post(PATH, &documents(20..60)).await;
    assert_eq!(answer.status, 202, "acknowledged, and not run yet");
    cluster.forget_requests();
    let joining = crate::fake::Fake::start(Some(crate::cluster::NODE_KEY)).await;
    let body = json!({"add": [{"id": "node-2", "url": joining.url(), "group": 0}]});
    assert_eq!(cluster.post("/_miroir/migration", &body).await.status, 202);
    hand.let_all_follow();
    eventually("the copy waits for a task", async || {
        cluster.fakes.iter().any(|fake| fake.asked("/tasks/") > 2)
    })
    .await;
    let view = async || cluster.http.get("/_miroir/migration").await.json();
    assert_eq!(view().await["phase"], "copying", "the old owners have not run the write");
    let read = |fake: &crate::fake::Fake| fake.asked("/indexes/movies/documents/fetch");
    assert!(cluster.fakes.iter().all(|fake| read(fake) == 0), "nor is anything read of them");
    for fake in &cluster.fakes {
        fake.engine(|e| e.set_hold(None));
    }
    migrate::carry_out(&cluster, &hand).await;
    for i in 0..60 {
        let found = cluster.http.get(&format!("{PATH}/doc-{i}")).await;
        assert_eq!(found.json(), documents(i..i + 1)[0], "doc-{i}");
    }
}

#[tokio::test]
async fn a_body_that_stops_coming_or_drips_is_given_up() {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let cluster = Cluster::with(ONE, |settings| {
        settings.body_idle_max = Duration::from_millis(300);
    })
    .await;
    let address = cluster.http.base().strip_prefix("http://").unwrap().to_owned();
    for drips in [false, true] {
        let stream = tokio::net::TcpStream::connect(&address).await.unwrap();
        let (mut answers, mut stream) = stream.into_split();
        let head = "POST /indexes/movies/documents HTTP/1.1\r\nhost: x\r\n\
                    content-type: application/json\r\ncontent-length: 100000\r\n\r\n[{\"id\":1}";
        stream.write_all(head.as_bytes()).await.unwrap();
        eventually("its bytes count", async || cluster.gateway.in_flight_bytes() >= 100_000).await;
        let dripping = tokio::spawn(async move {
            while drips && stream.write_all(b" ").await.is_ok() {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            stream
        });
        let mut answer = String::new();
        eventually("it is answered", async || {
            let mut part = vec![0; 4096];
            let read = answers.read(&mut part).await.unwrap();
            answer += &String::from_utf8_lossy(&part[..read]);
            read == 0 || answer.contains("stopped coming")
        })
        .await;
        assert!(answer.starts_with("HTTP/1.1 400"), "{answer}");
        assert!(answer.contains("stopped coming"), "{answer}");
        eventually("its share is free", async || cluster.gateway.in_flight_bytes() == 0).await;
        dripping.abort();
    }
    assert_eq!(cluster.writes(), [0]);
}

#[tokio::test]
async fn answers_in_flight_are_bounded() {
    let cluster = Cluster::with(ONE, |settings| settings.in_flight_bytes_max = 1 << 20).await;
    let text = "x".repeat(100_000);
    let all: Vec<_> = (0..20).map(|id| json!({"id": id, "text": text})).collect();
    cluster.add(&json!(all)).await;
    let list = async |limit: u32| cluster.http.get(&format!("{PATH}?limit={limit}")).await;
    let large = list(20).await;
    assert_eq!((large.status, large.code()), (503, "miroir_shard_unavailable".into()));
    assert_eq!(list(5).await.json()["results"].as_array().unwrap().len(), 5);
    // Whoever comes while the room is taken is told so; small answers always have room.
    cluster.fakes[0].set(Mode::Slow(Duration::from_millis(50)));
    let mut running = tokio::task::JoinSet::new();
    for _ in 0..8 {
        let http = cluster.http.clone();
        running.spawn(async move { http.get(&format!("{PATH}?limit=6")).await.status });
    }
    assert!(running.join_all().await.iter().all(|status| matches!(status, 200 | 503)));
    assert_eq!(cluster.post(PATH, &json!([{"id": 1}])).await.status, 202);
    eventually("all room is free", async || cluster.gateway.answer_bytes() == 0).await;
}

#[tokio::test]
async fn a_write_goes_to_all_its_backends_at_the_same_time() {
    let cluster = Cluster::start(Shape { groups: 2, members: 2, ..ONE }).await;
    cluster.add(&documents(0..50)).await;
    cluster.fakes.iter().for_each(|fake| fake.set(Mode::Held("/documents")));
    let http = cluster.http.clone();
    let writing = tokio::spawn(async move { http.json("POST", PATH, &documents(0..50)).await });
    // None of them has answered yet.
    eventually("all four have it", async || cluster.fakes.iter().all(|fake| fake.held() == 1))
        .await;
    assert!(!writing.is_finished());
    cluster.fakes.iter().for_each(|fake| fake.set(Mode::Normal));
    assert_eq!(writing.await.unwrap().status, 202);
}
