//! Tasks, idempotency keys, sessions and aliases: the state all gateways of a ring share.

use crate::cluster::{Cluster, Shape, documents, eventually, finished};
use serde_json::json;
use std::time::Duration;
use torc::gateway::SessionStrategy;
use torc::gateway::builtin::Hold;

const PATH: &str = "/indexes/movies/documents";

fn shape(groups: usize, members: usize) -> Shape {
    Shape { groups, members, copies: 1, shards: 16 }
}

#[tokio::test]
async fn an_accepted_write_says_what_every_client_reads() {
    let cluster = Cluster::start(shape(1, 2)).await;
    let path = format!("{PATH}?customMetadata=mine");
    let body = cluster.post(&path, &json!([{"id": 1}])).await.json();
    let uid = body["taskUid"].as_u64().unwrap();
    assert!(uid < 1 << 31);
    assert_eq!(body["indexUid"], "movies");
    assert_eq!(body["status"], "enqueued");
    assert_eq!(body["type"], "documentAdditionOrUpdate");
    assert_eq!(body["customMetadata"], "mine");
    assert_eq!(body["miroirTaskId"], format!("mtask-{uid:05}"));
    let time = body["enqueuedAt"].as_str().unwrap();
    assert_eq!((time.len(), &time[19..20], &time[26..]), (27, ".", "Z"), "{time}");
    eventually("tasks of backends carry the gateway's task", async || {
        let answer = cluster.post(PATH, &json!([{"id": 2}])).await.json();
        let mark = format!("customMetadata=mtask%2D{:05}", answer["taskUid"].as_u64().unwrap());
        let mut seen = cluster.fakes.iter().flat_map(|fake| fake.writes());
        seen.any(|seen| seen.target.ends_with(&mark))
    })
    .await;
    let by_text = cluster.http.get(&format!("/tasks/mtask-{uid:05}")).await.json();
    assert_eq!(by_text["uid"], uid);
    for (id, status, code) in [
        ("99999", 404, "task_not_found"),
        ("abc", 400, "invalid_task_uids"),
        ("mtask-", 400, "invalid_task_uids"),
        ("-1", 400, "invalid_task_uids"),
    ] {
        let answer = cluster.http.get(&format!("/tasks/{id}")).await;
        assert_eq!((answer.status, answer.code()), (status, code.to_owned()));
    }
}

#[tokio::test]
async fn a_task_is_what_its_backends_tasks_are() {
    let cluster = Cluster::start(shape(2, 1)).await;
    cluster.add(&json!([{"id": "first"}])).await;
    let status = async |uid: &serde_json::Value| {
        cluster.http.get(&format!("/tasks/{uid}")).await.json()["status"].clone()
    };
    cluster.fakes[1].engine(|e| e.set_hold(Some(Hold::Enqueued)));
    let uid = cluster.post(PATH, &json!([{"id": 1}])).await.json()["taskUid"].clone();
    eventually("one of two is done", async || status(&uid).await == "processing").await;
    cluster.fakes[1].engine(|e| e.set_hold(Some(Hold::Processing)));
    assert_eq!(status(&uid).await, "processing");
    cluster.fakes[1].engine(|e| e.set_hold(None));
    eventually("both are done", async || status(&uid).await == "succeeded").await;

    cluster.fakes[0].engine(|e| e.fail_next_task("disk full"));
    let task = cluster.task(&cluster.post(PATH, &json!([{"id": 2}])).await).await;
    assert_eq!(task["status"], "failed");
    assert_eq!(task["error"]["message"], "node-0: disk full");
    assert_eq!(task["details"], json!({"receivedDocuments": 1, "indexedDocuments": 0}));
    assert!(task["duration"].as_str().unwrap().starts_with("PT"));

    let listed = cluster.http.get("/tasks?limit=2").await.json();
    assert_eq!(listed["results"][0]["uid"], task["uid"]);
    assert_eq!(listed["results"].as_array().unwrap().len(), 2);
    assert_eq!(listed["total"], 3);
    let rest = cluster.http.get(&format!("/tasks?from={}", listed["next"])).await.json();
    assert_eq!(rest["results"].as_array().unwrap().len(), 1);
    let failed = cluster.http.get("/tasks?statuses=failed&indexUids=movies").await.json();
    assert_eq!((&failed["total"], &failed["results"][0]["uid"]), (&json!(1), &task["uid"]));
    let none = cluster.http.get("/tasks?types=indexCreation,settingsUpdate").await.json();
    assert_eq!(none["total"], 0);
    let one = cluster.http.get(&format!("/tasks?uids={}", task["uid"])).await.json();
    assert_eq!(one["total"], 1);
    let oldest = cluster.http.get("/tasks?reverse=true&limit=2").await.json();
    assert_eq!(oldest["results"][1]["uid"], uid, "{oldest}");
    assert_eq!(oldest["next"], task["uid"]);
    let rest = cluster.http.get(&format!("/tasks?reverse=true&from={uid}")).await.json();
    assert_eq!((&rest["total"], &rest["results"][0]["uid"]), (&json!(2), &uid));
}

#[tokio::test]
async fn listed_tasks_are_those_asked_for() {
    let cluster = Cluster::start(shape(1, 2)).await;
    let first = cluster.add(&json!([{"id": "first"}])).await;
    let other = cluster.post("/indexes/books/documents", &json!([{"id": "b"}])).await;
    let other = cluster.succeeded(&other).await;
    let count = async |query: &str| {
        let listed = cluster.http.get(&format!("/tasks?{query}")).await;
        assert_eq!(listed.status, 200, "{query}: {:?}", listed.json());
        listed.json()["total"].clone()
    };
    let at = |task: &serde_json::Value, name: &str| task[name].as_str().unwrap().to_owned();
    let (began, ended) = (at(&first, "enqueuedAt"), at(&other, "finishedAt"));
    let days = [&began[..10], "2020-01-01", "2999-01-01"];
    let both = |a: &serde_json::Value, b: &serde_json::Value| format!("uids={a},{b},99999");
    for (query, expected) in [
        (String::new(), 2),
        ("types=DocumentAdditionOrUpdate&statuses=Succeeded".to_owned(), 2),
        ("types=indexSwap,export,*".replace(",*", ""), 0),
        ("types=*&statuses=*&indexUids=*&uids=*".to_owned(), 2),
        ("indexUids=books,none".to_owned(), 1),
        (both(&first["uid"], &other["uid"]), 2),
        (format!("uids=mtask-{:05}", first["uid"].as_u64().unwrap()), 1),
        ("batchUids=0".to_owned(), 0),
        ("canceledBy=0".to_owned(), 0),
        (format!("afterEnqueuedAt={began}"), 1),
        (format!("beforeEnqueuedAt={began}"), 0),
        (format!("beforeFinishedAt={ended}"), 1),
        (format!("beforeFinishedAt={}", days[2]), 2),
        (format!("afterStartedAt={}", days[0]), 0),
        (format!("afterStartedAt={}&beforeStartedAt={}", days[1], days[2]), 2),
        ("afterEnqueuedAt=2020-01-01T00:00:00%2B01:00".to_owned(), 2),
    ] {
        assert_eq!(count(&query).await, expected, "{query}");
    }
    for (query, code, message) in [
        ("types=nosuch", "invalid_task_types", "`types`: `nosuch` is not a valid task type. Av"),
        ("types=export,x", "invalid_task_types", "`types[1]`: `x` is not a valid task type."),
        ("statuses=done", "invalid_task_statuses", "`statuses`: `done` is not a valid task status"),
        ("uids=cat", "invalid_task_uids", "`uids`: could not parse `cat` as a positive integer"),
        ("uids=1,cat", "invalid_task_uids", "`uids[1]`: could not parse `cat` as a positive int"),
        ("indexUids=a%20b", "invalid_index_uid", "`indexUids`: `a b` is not a valid index uid."),
        ("batchUids=x", "invalid_batch_uids", "`batchUids`: could not parse `x` as a positive"),
        ("canceledBy=x", "invalid_task_canceled_by", "`canceledBy`: could not parse `x`"),
        ("limit=x", "invalid_task_limit", "`limit`: could not parse `x` as a positive integer"),
        ("from=-1", "invalid_task_from", "`from`: could not parse `-1` as a positive integer"),
        ("reverse=1", "invalid_task_reverse", "`reverse`: could not parse `1` as a boolean"),
        ("afterEnqueuedAt=2021", "invalid_task_after_enqueued_at", "`2021` is an invalid date-"),
        ("beforeEnqueuedAt=2021", "invalid_task_before_enqueued_at", "YYYY-MM-DD or RFC 3339"),
        ("afterStartedAt=x", "invalid_task_after_started_at", "`afterStartedAt`: `x` is an inv"),
        ("beforeStartedAt=x", "invalid_task_before_started_at", "`beforeStartedAt`: `x` is an"),
        ("afterFinishedAt=x", "invalid_task_after_finished_at", "`afterFinishedAt`: `x` is an"),
        ("beforeFinishedAt=x", "invalid_task_before_finished_at", "`beforeFinishedAt`: `x` is"),
        ("nosuch=1", "bad_request", "Unknown parameter `nosuch`: expected one of `limit`"),
    ] {
        let refused = cluster.http.get(&format!("/tasks?{query}")).await;
        assert_eq!((refused.status, refused.code()), (400, code.to_owned()), "{query}");
        let said = refused.json()["message"].as_str().unwrap().to_owned();
        assert!(said.contains(message), "{query}: {said}");
    }
}

#[tokio::test]
async fn a_lost_backend_task_counts_only_when_the_quorum_needs_it() {
    let cluster =
        Cluster::with(shape(2, 1), |settings| settings.task_lost_after = Duration::ZERO).await;
    cluster.add(&json!([{"id": "first"}])).await;
    let add = async || cluster.post(PATH, &json!([{"id": 1}])).await;
    cluster.fakes[1].engine(|e| e.set_hold(Some(Hold::Enqueued)));
    let answer = add().await;
    cluster.fakes[1].engine(|e| e.forget_tasks());
    let task = cluster.succeeded(&answer).await;
    assert_eq!(task["miroir"]["backends"]["node-1"]["status"], "lost");
    cluster.fakes[0].engine(|e| e.set_hold(Some(Hold::Enqueued)));
    let answer = add().await;
    cluster.fakes.iter().for_each(|fake| fake.engine(|e| e.forget_tasks()));
    let task = cluster.task(&answer).await;
    assert_eq!(task["error"]["code"], "miroir_no_quorum");
}

#[tokio::test]
async fn any_gateway_answers_for_a_task_and_a_restart_loses_none() {
    let mut cluster = Cluster::start(shape(1, 2)).await;
    let (_, other) = cluster.another(|settings| settings.slot = Some(1)).await;
    let answer = cluster.post(PATH, &json!([{"id": 1}])).await;
    cluster.restart().await;
    assert_eq!(cluster.task(&answer).await["status"], "succeeded");
    assert_eq!(finished(&other, &answer).await["status"], "succeeded");
    let mut uids = vec![answer.json()["taskUid"].as_u64().unwrap()];
    for http in [&cluster.http, &other, &cluster.http, &other] {
        let answer = http.json("POST", PATH, &json!([{"id": 2}])).await;
        uids.push(answer.json()["taskUid"].as_u64().unwrap());
    }
    let listed = other.get("/tasks").await.json();
    assert_eq!(listed["total"], 5, "{listed}");
    uids.sort_unstable();
    uids.dedup();
    assert_eq!(uids.len(), 5, "no number twice");
}

#[tokio::test]
async fn two_gateways_cannot_share_a_slot() {
    let cluster = Cluster::start(shape(1, 1)).await;
    cluster.add(&json!([{"id": 1}])).await;
    let settings = torc::gateway::Settings { slot: Some(0), ..cluster.settings.clone() };
    let clock = crate::fake::clock();
    let other = torc::gateway::Gateway::new(settings, "another", cluster.kv.clone(), clock);
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let http = crate::http::Http::new(format!("http://{}", listener.local_addr().unwrap()));
    let other = other.unwrap();
    let serving = tokio::spawn(async move {
        other.run(listener, Duration::ZERO, std::future::pending()).await;
    });
    let refused = http.json("POST", PATH, &json!([{"id": 2}])).await;
    assert_eq!((refused.status, refused.code()), (503, "miroir_state_unavailable".into()));
    serving.abort();
}

#[tokio::test]
async fn gateways_without_a_slot_take_free_ones_and_keep_them() {
    let mut cluster = Cluster::with(shape(1, 1), |settings| settings.slot = None).await;
    let uid = async |http: &crate::http::Http| {
        let answer = http.json("POST", PATH, &json!([{"id": 1}])).await;
        answer.json()["taskUid"].as_u64().unwrap()
    };
    assert_eq!(uid(&cluster.http).await % 16, 0);
    let clock = crate::fake::clock();
    let settings = torc::gateway::Settings { slot: None, ..cluster.settings.clone() };
    let other = torc::gateway::Gateway::new(settings, "another", cluster.kv.clone(), clock);
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let http = crate::http::Http::new(format!("http://{}", listener.local_addr().unwrap()));
    let other = other.unwrap();
    let serving = tokio::spawn(async move {
        other.run(listener, Duration::ZERO, std::future::pending()).await;
    });
    assert_eq!(uid(&http).await % 16, 1);
    cluster.restart().await;
    assert_eq!(uid(&cluster.http).await % 16, 0, "the one it had");
    serving.abort();
}

#[tokio::test]
async fn an_idempotency_key_answers_the_same_request_once() {
    let mut cluster = Cluster::start(shape(1, 2)).await;
    let keyed = cluster.http.with("idempotency-key", "k1");
    let first = keyed.json("POST", PATH, &json!([{"id": 1}])).await;
    cluster.succeeded(&first).await;
    cluster.forget_requests();
    cluster.restart().await;
    let keyed = cluster.http.with("idempotency-key", "k1");
    let again = keyed.json("POST", PATH, &json!([{"id": 1}])).await;
    assert_eq!((again.status, again.json()), (202, first.json()));
    assert_eq!(cluster.writes(), [0, 0], "it was not done again");
    for (method, path, body) in [
        ("POST", PATH, json!([{"id": 2}])),
        ("PUT", PATH, json!([{"id": 1}])),
        ("POST", "/indexes/other/documents", json!([{"id": 1}])),
    ] {
        let reused = keyed.json(method, path, &body).await;
        assert_eq!((reused.status, reused.code()), (409, "miroir_idempotency_key_reused".into()));
    }
    let keyed = cluster.http.with("idempotency-key", "k2");
    let bad = keyed.json("POST", PATH, &json!([{"x": 2}])).await;
    assert_eq!(bad.status, 400);
    assert_eq!(keyed.json("POST", PATH, &json!([{"id": 2}])).await.status, 202, "only a 202 stays");
    let keyed = cluster.http.with("idempotency-key", "sch\u{f6}n \u{2713}");
    let (a, b) = (json!([{"id": 3}]), json!([{"id": 4}]));
    assert_eq!(keyed.json("POST", PATH, &a).await.status, 202, "any text is a key");
    assert_eq!(keyed.json("POST", PATH, &b).await.code(), "miroir_idempotency_key_reused");
    let keyed = cluster.http.with("idempotency-key", "k3");
    let body = json!([{"id": 3}]);
    let (a, b) = tokio::join!(keyed.json("POST", PATH, &body), keyed.json("POST", PATH, &body));
    assert_eq!(a.json()["taskUid"], b.json()["taskUid"], "the second waits for the first");
    let long = cluster.http.with("idempotency-key", &"k".repeat(256));
    let refused = long.json("POST", PATH, &body).await;
    assert_eq!(refused.code(), "miroir_invalid_idempotency_key");
}

#[tokio::test]
async fn a_session_reads_its_own_writes() {
    let mut cluster = Cluster::start(shape(2, 1)).await;
    cluster.add(&json!([{"id": 1, "v": 1}])).await;
    // Group 0 misses the write; only group 1 has it.
    cluster.stop(&[0]).await;
    cluster.fakes[1].engine(|e| e.set_hold(Some(Hold::Enqueued)));
    let session = cluster.http.with("x-miroir-session", "s1");
    let written = session.json("POST", PATH, &json!([{"id": 1, "v": 2}])).await;
    assert_eq!(written.header("x-miroir-session"), Some("s1"));
    assert_eq!(written.header("x-miroir-degraded"), Some("groups=1"));
    let path = format!("{PATH}/1");
    cluster.forget_requests();
    let reading = tokio::spawn({
        let (session, path) = (session.clone(), path.clone());
        async move { session.get(&path).await }
    });
    eventually("the read waits for the write", async || cluster.fakes[1].asked("/tasks/") > 2)
        .await;
    assert!(!reading.is_finished());
    cluster.fakes[1].engine(|e| e.set_hold(None));
    let read = reading.await.unwrap();
    assert_eq!(read.json()["v"], 2, "the read waited for the write");
    assert_eq!(read.header("x-miroir-session"), Some("s1"));
    let found = session.json("POST", "/indexes/movies/search", &json!({})).await;
    assert_eq!(found.json()["hits"][0]["v"], 2);
    for answer in [
        found,
        session.get(PATH).await,
        session.get("/indexes/movies/documents/none").await,
        session.json("POST", PATH, &json!([{"x": 1}])).await,
    ] {
        assert_eq!(answer.header("x-miroir-session"), Some("s1"), "{}", answer.status);
    }
    let unnamed = cluster.http.with("x-miroir-session", "with a blank").get(&path).await;
    assert_eq!(unnamed.header("x-miroir-session"), None);
}

#[tokio::test]
async fn a_session_waits_no_longer_than_it_may_and_is_free_when_its_write_is_done() {
    let cluster = Cluster::with(shape(2, 1), |settings| {
        settings.session_wait = Duration::from_millis(60);
    })
    .await;
    cluster.add(&json!([{"id": 1, "v": 1}])).await;
    let hold = |hold: Option<Hold>| {
        cluster.fakes.iter().for_each(|fake| fake.engine(|e| e.set_hold(hold)));
    };
    hold(Some(Hold::Enqueued));
    let session = cluster.http.with("x-miroir-session", "s3");
    let written = session.json("POST", PATH, &json!([{"id": 1, "v": 2}])).await;
    let path = format!("{PATH}/1");
    assert_eq!(session.get(&path).await.json()["v"], 1, "the pinned group serves all the same");
    assert_eq!(cluster.gateway.counters().session_wait_timeouts, 1);
    let groups_asked = async || {
        cluster.forget_requests();
        for _ in 0..4 {
            assert_eq!(session.get(&path).await.status, 200);
        }
        let fetched = |seen: &crate::fake::Seen| seen.target.ends_with("/documents/1");
        let asked =
            cluster.fakes.iter().map(|f| f.take_log().iter().filter(|s| fetched(s)).count());
        asked.collect::<Vec<_>>()
    };
    assert_eq!(groups_asked().await, [4, 0]);
    hold(None);
    cluster.succeeded(&written).await;
    assert_eq!(groups_asked().await, [2, 2], "both groups serve again");
}

#[tokio::test]
async fn a_pinned_session_can_read_at_once() {
    let cluster = Cluster::with(shape(2, 1), |settings| {
        settings.session_strategy = SessionStrategy::RoutePin;
    })
    .await;
    cluster.add(&json!([{"id": 1, "v": 1}])).await;
    for fake in &cluster.fakes {
        fake.engine(|e| e.set_hold(Some(Hold::Enqueued)));
    }
    let session = cluster.http.with("x-miroir-session", "s2");
    session.json("POST", PATH, &json!([{"id": 1, "v": 2}])).await;
    cluster.forget_requests();
    for _ in 0..4 {
        assert_eq!(session.get(&format!("{PATH}/1")).await.json()["v"], 1);
    }
    let fetches = |node: usize| {
        let log = cluster.fakes[node].take_log();
        log.iter().filter(|seen| seen.target.contains("/documents/1")).count()
    };
    assert_eq!((fetches(0), fetches(1)), (4, 0), "group 0 took all of the write: it is pinned");
}

#[tokio::test]
async fn aliases_resolve_everywhere_and_several_targets_are_read_only() {
    let cluster = Cluster::start(shape(1, 2)).await;
    cluster.add(&documents(0..3)).await;
    let aliases = "/_miroir/aliases";
    let made = cluster.post(aliases, &json!({"name": "films", "target": "movies"})).await;
    assert_eq!((made.status, &made.json()["version"]), (200, &json!(1)));
    let written = cluster.post("/indexes/films/documents", &json!([{"id": "new"}])).await;
    assert_eq!(written.json()["indexUid"], "movies");
    cluster.succeeded(&written).await;
    assert_eq!(cluster.http.get("/indexes/films/documents/new").await.status, 200);
    let deleted = cluster.http.send("DELETE", "/indexes/films/documents/new", "").await;
    cluster.succeeded(&deleted).await;
    assert_eq!(cluster.http.get(&format!("{PATH}/new")).await.status, 404);

    let body = json!({"name": "all", "targets": ["movies", "books"]});
    assert_eq!(cluster.post(aliases, &body).await.status, 200);
    let book = cluster.post("/indexes/books/documents", &json!([{"id": "b"}])).await;
    cluster.succeeded(&book).await;
    cluster.forget_requests();
    for (method, path) in [
        ("POST", "/indexes/all/documents"),
        ("PUT", "/indexes/all/documents"),
        ("DELETE", "/indexes/all/documents/1"),
        ("DELETE", "/indexes/all/documents"),
        ("DELETE", "/indexes/all"),
    ] {
        let body = if method == "DELETE" { json!(null) } else { json!([{"id": 1}]) };
        let refused = cluster.http.json(method, path, &body).await;
        let expected = (409, "miroir_multi_alias_not_writable".to_owned());
        assert_eq!((refused.status, refused.code()), expected, "{method} {path}");
    }
    assert_eq!(cluster.writes(), [0, 0]);
    assert_eq!(cluster.http.get("/indexes/all/documents/b").await.json(), json!({"id": "b"}));
    let listed = cluster.http.get("/indexes/all/documents?limit=3&offset=1").await.json();
    assert_eq!(listed["total"], 4);
    assert_eq!(listed["results"][2], json!({"id": "b"}));
    let found = cluster.post("/indexes/all/search", &json!({})).await.json();
    assert_eq!(found["estimatedTotalHits"], 4);

    let flip = format!("{aliases}/films");
    let wrong = cluster.http.json("PUT", &flip, &json!({"targets": ["books"]})).await;
    assert_eq!(wrong.code(), "miroir_invalid_alias", "an alias keeps its kind");
    let flipped = cluster.http.json("PUT", &flip, &json!({"target": "books"})).await;
    assert_eq!(flipped.json()["version"], 2);
    assert_eq!(flipped.json()["history"][0]["target"], "movies");
    let (_, other) = cluster.another(|settings| settings.slot = Some(1)).await;
    assert_eq!(other.get("/indexes/films/documents/b").await.status, 200);
    let gone = cluster.http.send("DELETE", &flip, "").await;
    assert_eq!(gone.status, 200);
    assert_eq!(cluster.http.get(&flip).await.code(), "miroir_alias_not_found");
    assert_eq!(cluster.http.get("/indexes/films/documents/b").await.code(), "index_not_found");
    eventually("the other gateway hears of it", async || {
        other.get("/indexes/films/documents/b").await.status == 404
    })
    .await;
    let listed = cluster.http.get(aliases).await.json();
    assert_eq!(listed["results"].as_array().unwrap().len(), 1);
}
